package script

import (
	"strings"

	"github.com/dop251/goja"
)

// newConsole is the console of a VM. Each call becomes one text; objects are shown as JSON-like text.
func newConsole(v *vm) *goja.Object {
	console := v.rt.NewObject()
	for _, level := range []string{"debug", "log", "info", "warn", "error"} {
		name := level
		if name == "log" {
			name = "info"
		}
		must(console.Set(level, func(call goja.FunctionCall) goja.Value {
			if v.env.Console == nil {
				return goja.Undefined()
			}
			parts := make([]string, len(call.Arguments))
			for i, arg := range call.Arguments {
				if goja.IsString(arg) {
					parts[i] = arg.String()
				} else {
					parts[i] = inspect(v, arg)
				}
			}
			v.env.Console(name, strings.Join(parts, " "))
			return goja.Undefined()
		}))
	}
	return console
}

const (
	inspectDepth = 6
	inspectBytes = 8 << 10
)

// inspect shows a value to a person: like JSON, but of every kind of value, bounded in depth and size.
func inspect(v *vm, value goja.Value) string {
	i := inspector{vm: v, get: (*goja.Object).Get}
	return i.show(value)
}

// inspectThrown is inspect for what was thrown: members that cannot be read are passed over.
func (v *vm) inspectThrown(value goja.Value) string {
	i := inspector{vm: v, get: func(o *goja.Object, name string) (member goja.Value) {
		member = unreadable
		v.guard(func() { member = o.Get(name) })
		return member
	}}
	text := "what cannot be shown"
	v.guard(func() { text = i.show(value) })
	return text
}

// unreadable stands for a member whose getter throws.
var unreadable = goja.NewSymbol("cannot be read")

type inspector struct {
	vm   *vm
	get  func(o *goja.Object, name string) goja.Value
	text strings.Builder
}

func (i *inspector) show(value goja.Value) string {
	i.add(value, 0)
	text := i.text.String()
	if len(text) > inspectBytes {
		text = strings.ToValidUTF8(text[:inspectBytes], "") + "…"
	}
	return text
}

func (i *inspector) add(value goja.Value, depth int) {
	b := &i.text
	if b.Len() > inspectBytes {
		return
	}
	o, ok := value.(*goja.Object)
	switch {
	case value == nil || goja.IsUndefined(value):
		b.WriteString("undefined")
		return
	case goja.IsString(value):
		b.WriteByte('"')
		b.WriteString(value.String())
		b.WriteByte('"')
		return
	case goja.IsBigInt(value):
		b.WriteString(value.String())
		b.WriteByte('n')
		return
	case value == unreadable:
		b.WriteString("[cannot be read]")
		return
	case !ok:
		if _, symbol := value.(*goja.Symbol); symbol {
			b.WriteString("Symbol(" + value.String() + ")")
			return
		}
		b.WriteString(value.String())
		return
	}
	switch class := o.ClassName(); class {
	case "Array":
		if depth >= inspectDepth {
			b.WriteString("[…]")
			return
		}
		b.WriteByte('[')
		for n, e := range i.vm.values.elements(o) {
			if n > 0 {
				b.WriteByte(',')
			}
			i.add(e, depth+1)
		}
		b.WriteByte(']')
	case "Object":
		if what, _ := notPlain(o); what != "" {
			_, kind, _ := strings.Cut(what, " ")
			b.WriteString("[" + kind + "]")
			return
		}
		if depth >= inspectDepth {
			b.WriteString("{…}")
			return
		}
		b.WriteByte('{')
		for n, key := range o.Keys() {
			if n > 0 {
				b.WriteByte(',')
			}
			b.WriteByte('"')
			b.WriteString(key)
			b.WriteString(`":`)
			i.add(i.get(o, key), depth+1)
		}
		b.WriteByte('}')
	case "Function":
		b.WriteString("[function]")
	default:
		b.WriteString(o.String())
	}
}
