package script

import "github.com/dop251/goja"

// An answer and a member of a zip have a function for each format, of which a script calls one. To make a function is dear, so
// each is made when it is asked for. The object is a proxy that gives them until then:
//
//  1. A read of a member gives the function, the same each time.
//  2. Whatever else is done with the object, so that it would show what members it has, makes all of them first, in their order.
//     From then on the proxy does nothing more.
//  3. A script that could tell a proxy from an object, or change what its members are, gets an object (Program.plain).

// withReaders gives an object the readers of a content, as members that are not enumerable and cannot be changed.
func (v *vm) withReaders(o *goja.Object, build func(*reader) *goja.Object) *goja.Object {
	l := &lateReaders{vm: v, target: o, build: build}
	if v.values.plain {
		l.complete()
		return o
	}
	l.traps = goja.ProxyTrapConfig{
		Get: l.get, Set: l.set, Has: l.has, DeleteProperty: l.remove, OwnKeys: l.keys, GetOwnPropertyDescriptor: l.describe,
	}
	l.proxy = v.rt.ToValue(v.rt.NewProxy(o, &l.traps)).(*goja.Object)
	return l.proxy
}

type lateReaders struct {
	vm     *vm
	target *goja.Object
	proxy  *goja.Object
	build  func(*reader) *goja.Object
	made   []*goja.Object // by the place of the reader; nil without any
	traps  goja.ProxyTrapConfig
}

func (l *lateReaders) reader(i int) *goja.Object {
	if l.made == nil {
		l.made = make([]*goja.Object, len(l.vm.readers))
	}
	if l.made[i] == nil {
		l.made[i] = l.build(&l.vm.readers[i])
	}
	return l.made[i]
}

// complete makes the members that are left.
func (l *lateReaders) complete() {
	for i := range l.vm.readers {
		must(l.target.DefineDataProperty(l.vm.readers[i].name, l.reader(i), goja.FLAG_FALSE, goja.FLAG_FALSE, goja.FLAG_FALSE))
	}
	l.traps = goja.ProxyTrapConfig{}
}

func (l *lateReaders) get(target *goja.Object, name string, _ goja.Value) goja.Value {
	for i := range l.vm.readers {
		if l.vm.readers[i].name == name {
			return l.reader(i)
		}
	}
	return target.Get(name)
}

func (l *lateReaders) set(target *goja.Object, name string, value, receiver goja.Value) bool {
	l.complete()
	if receiver != l.proxy { // an object whose prototype this is
		if !l.reflect("set", target, l.vm.rt.ToValue(name), value, receiver).ToBoolean() {
			panic(l.vm.rt.NewTypeError("Cannot assign to read only property '%s'", name))
		}
		return true
	}
	must(target.Set(name, value))
	return true
}

func (l *lateReaders) has(target *goja.Object, name string) bool {
	l.complete()
	return l.reflect("has", target, l.vm.rt.ToValue(name)).ToBoolean()
}

func (l *lateReaders) remove(target *goja.Object, name string) bool {
	l.complete()
	must(target.Delete(name))
	return true
}

func (l *lateReaders) keys(target *goja.Object) *goja.Object {
	l.complete()
	return l.reflect("ownKeys", target).(*goja.Object)
}

func (l *lateReaders) describe(target *goja.Object, name string) (d goja.PropertyDescriptor) {
	l.complete()
	if found, ok := l.reflect("getOwnPropertyDescriptor", target, l.vm.rt.ToValue(name)).(*goja.Object); ok {
		flag := func(name string) goja.Flag { return goja.ToFlag(found.Get(name).ToBoolean()) }
		d.Value, d.Writable, d.Configurable, d.Enumerable = found.Get("value"), flag("writable"), flag("configurable"), flag("enumerable")
	}
	return d
}

// reflect calls a function of Reflect. Not by AssertFunction: what it makes would run promise jobs when it is called from one.
func (l *lateReaders) reflect(name string, args ...goja.Value) goja.Value {
	call := l.vm.rt.GlobalObject().Get("Reflect").(*goja.Object).Get(name).Export().(func(goja.FunctionCall) goja.Value)
	return call(goja.FunctionCall{This: goja.Undefined(), Arguments: args})
}
