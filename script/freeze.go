package script

import (
	"strings"
	"sync/atomic"

	"github.com/dop251/goja"
)

// Freezing makes sure that no call leaves anything behind for the next: built-ins, globals, vars and what functions
// declare cannot be changed.
//
// A frozen prototype has a side effect, known as the override mistake: where a prototype has a read-only member, an
// assignment of that member to an object that inherits from it throws. Ordinary code does that to a few names
// (this.name = … in a subclass of Error, o.toString = …). On the built-in prototypes, and on those of classes that functions
// declare, these are turned into accessors whose setter defines the member on the receiver, as the assignment would have done.
type freezer struct {
	rt     *goja.Runtime
	done   map[*goja.Object]bool
	freeze goja.Callable
	lookup goja.Callable // Object.getOwnPropertyDescriptor
}

func newFreezer(rt *goja.Runtime) *freezer {
	f := &freezer{rt: rt, done: map[*goja.Object]bool{}}
	object := rt.GlobalObject().Get("Object").(*goja.Object)
	f.freeze, _ = goja.AssertFunction(object.Get("freeze"))
	f.lookup, _ = goja.AssertFunction(object.Get("getOwnPropertyDescriptor"))
	return f
}

// overridden are the names that ordinary code sets on its own objects although a built-in prototype has them.
var overridden = []string{"constructor", "toString", "valueOf", "toLocaleString", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "name", "message"}

// hidden are the built-ins that no global leads to.
var hiddenProgram = goja.MustCompile("hidden", `[
	function*(){}, (function*(){})(), async function(){}, [][Symbol.iterator](), new Map()[Symbol.iterator](), new Set()[Symbol.iterator](),
	''[Symbol.iterator](), 'a'.matchAll(/a/g), Object.getPrototypeOf(Int8Array),
]`, true)

// builtins freezes everything that is there before the script. Looking for it costs more than freezing it, and every VM
// begins the same: so the first one notes how each object was found.
func (f *freezer) builtins() {
	hidden, err := f.rt.RunProgram(hiddenProgram)
	must(err)
	var roots []*goja.Object
	must(f.rt.ExportTo(hidden, &roots))
	roots = append([]*goja.Object{f.rt.GlobalObject()}, roots...)
	plan := builtinPlan.Load()
	var found []*goja.Object
	if plan == nil {
		s := search{freezer: f, plan: &freezePlan{}}
		for i, root := range roots {
			s.find(root, way{from: -1, root: i})
		}
		found = s.found
		for i, o := range found {
			for _, name := range f.overriddenBy(o) {
				s.plan.accessors = append(s.plan.accessors, accessor{i, name})
			}
		}
		builtinPlan.Store(s.plan)
		plan = s.plan
	} else {
		found = f.follow(plan, roots)
		for _, o := range found {
			f.done[o] = true
		}
	}
	for _, a := range plan.accessors {
		f.override(found[a.object], a.name)
	}
	for _, o := range found {
		f.seal(o)
	}
}

// freezePlan is how the built-ins are found, and which members of which become accessors.
type freezePlan struct {
	ways      []way
	accessors []accessor
}

// way is how an object is found: as a root, or as the prototype, a member or half of an accessor of one found before.
type way struct {
	from, root int
	prototype  bool
	name       string
	symbol     *goja.Symbol
	part       string // value, get or set
}

type accessor struct {
	object int
	name   string
}

var builtinPlan atomic.Pointer[freezePlan]

func (f *freezer) follow(p *freezePlan, roots []*goja.Object) []*goja.Object {
	found := make([]*goja.Object, len(p.ways))
	for i, w := range p.ways {
		switch {
		case w.from < 0:
			found[i] = roots[w.root]
		case w.prototype:
			found[i] = found[w.from].Prototype()
		case w.part != "value":
			var key goja.Value = w.symbol
			if w.symbol == nil {
				key = f.rt.ToValue(w.name)
			}
			f.member(found[w.from], key, func(part string, value *goja.Object) {
				if part == w.part {
					found[i] = value
				}
			})
		case w.symbol != nil:
			found[i] = found[w.from].GetSymbol(w.symbol).(*goja.Object)
		default:
			found[i] = found[w.from].Get(w.name).(*goja.Object)
		}
	}
	return found
}

type search struct {
	*freezer
	plan  *freezePlan
	found []*goja.Object
}

// find adds o and what it leads to through its prototype, members and accessors.
func (s *search) find(o *goja.Object, w way) {
	if o == nil || s.done[o] {
		return
	}
	s.done[o] = true
	from := len(s.found)
	s.found = append(s.found, o)
	s.plan.ways = append(s.plan.ways, w)
	s.find(o.Prototype(), way{from: from, prototype: true})
	for _, name := range o.GetOwnPropertyNames() {
		s.member(o, s.rt.ToValue(name), func(part string, value *goja.Object) { s.find(value, way{from: from, name: name, part: part}) })
	}
	for _, symbol := range o.Symbols() {
		s.member(o, symbol, func(part string, value *goja.Object) { s.find(value, way{from: from, symbol: symbol, part: part}) })
	}
}

// member visits the objects that one member holds, without running an accessor.
func (f *freezer) member(o *goja.Object, key goja.Value, visit func(part string, value *goja.Object)) {
	descriptor, err := f.lookup(goja.Undefined(), o, key)
	must(err)
	d, ok := descriptor.(*goja.Object)
	if !ok {
		return
	}
	for _, part := range []string{"value", "get", "set"} {
		if value, ok := d.Get(part).(*goja.Object); ok {
			visit(part, value)
		}
	}
}

// overriddenBy are the overridden names that a prototype has as plain members.
func (f *freezer) overriddenBy(o *goja.Object) (names []string) {
	constructor, ok := o.Get("constructor").(*goja.Object)
	if !ok || constructor.Get("prototype") != goja.Value(o) {
		return nil
	}
	for _, name := range overridden {
		descriptor, err := f.lookup(goja.Undefined(), o, f.rt.ToValue(name))
		must(err)
		if d, ok := descriptor.(*goja.Object); ok && d.Get("value") != nil && d.Get("configurable").ToBoolean() {
			names = append(names, name)
		}
	}
	return names
}

// override turns a member of a prototype into an accessor.
func (f *freezer) override(o *goja.Object, name string) {
	value := o.Get(name)
	get := f.rt.ToValue(func(goja.FunctionCall) goja.Value { return value }).(*goja.Object)
	set := f.rt.ToValue(func(call goja.FunctionCall) goja.Value {
		receiver, ok := call.This.(*goja.Object)
		if !ok || receiver == o {
			panic(f.rt.NewTypeError("Cannot assign to read only property '%s'", name))
		}
		define(receiver, name, call.Argument(0))
		return goja.Undefined()
	}).(*goja.Object)
	must(o.DefineAccessorProperty(name, get, set, goja.FLAG_FALSE, goja.FLAG_FALSE))
	f.seal(get)
	f.seal(set)
}

func (f *freezer) seal(o *goja.Object) {
	_, err := f.freeze(goja.Undefined(), o)
	must(err)
}

// deep freezes a value of the script's and all that it leads to. It throws where that is impossible.
func (f *freezer) deep(name string, value goja.Value) {
	var found []*goja.Object
	f.collectOwn(name, value, &found)
	for _, o := range found {
		for _, name := range f.overriddenBy(o) {
			f.override(o, name)
		}
		f.seal(o)
	}
}

func (f *freezer) collectOwn(path string, value goja.Value, found *[]*goja.Object) {
	o, ok := value.(*goja.Object)
	if !ok || f.done[o] {
		return
	}
	f.done[o] = true
	switch class := o.ClassName(); class {
	case "Date":
		panic(f.rt.NewGoError(cannotFreeze(path, "a Date")))
	case "RegExp":
		if flags := o.Get("flags").String(); strings.ContainsAny(flags, "gy") {
			panic(f.rt.NewGoError(cannotFreeze(path, "a regular expression with the flag "+flags)))
		}
	case "Object", "Promise":
		if what, _ := notPlain(o); what != "" {
			panic(f.rt.NewGoError(cannotFreeze(path, what)))
		}
		if isURL(o) {
			panic(f.rt.NewGoError(cannotFreeze(path, "a URL")))
		}
	}
	*found = append(*found, o)
	if proto := o.Prototype(); proto != nil {
		f.collectOwn(path, proto, found)
	}
	for _, name := range o.GetOwnPropertyNames() {
		f.member(o, f.rt.ToValue(name), func(_ string, value *goja.Object) { f.collectOwn(path+"."+name, value, found) })
	}
	for _, symbol := range o.Symbols() {
		f.member(o, symbol, func(_ string, value *goja.Object) { f.collectOwn(path, value, found) })
	}
}

func cannotFreeze(path, what string) *refusal {
	return refuse(CodeShared, "make it inside a function, or use an object or an array; what one call may keep for the next is its State",
		"%s is %s, which is shared by all calls and cannot be frozen", path, what)
}
