package script

import (
	"github.com/dop251/goja"
)

type freezer struct {
	rt     *goja.Runtime
	frozen map[*goja.Object]bool
	freeze goja.Callable
}

func newFreezer(rt *goja.Runtime) *freezer {
	f := &freezer{rt: rt, frozen: map[*goja.Object]bool{}}
	f.freeze, _ = goja.AssertFunction(rt.GlobalObject().Get("Object").(*goja.Object).Get("freeze"))
	return f
}

func (f *freezer) builtins() {}

func (f *freezer) deep(value goja.Value, what string) {
	o, ok := value.(*goja.Object)
	if !ok || f.frozen[o] {
		return
	}
	f.frozen[o] = true
	for _, name := range o.GetOwnPropertyNames() {
		f.deep(o.Get(name), what)
	}
	if _, err := f.freeze(goja.Undefined(), o); err != nil {
		panic(err)
	}
}

func limitBuiltins(*vm) {}
