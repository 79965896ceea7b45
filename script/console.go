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
	var b strings.Builder
	inspectInto(v, &b, value, 0)
	text := b.String()
	if len(text) > inspectBytes {
		text = strings.ToValidUTF8(text[:inspectBytes], "") + "…"
	}
	return text
}

func inspectInto(v *vm, b *strings.Builder, value goja.Value, depth int) {
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
	case !ok:
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
		for i, e := range v.values.elements(o) {
			if i > 0 {
				b.WriteByte(',')
			}
			inspectInto(v, b, e, depth+1)
		}
		b.WriteByte(']')
	case "Object":
		if depth >= inspectDepth {
			b.WriteString("{…}")
			return
		}
		b.WriteByte('{')
		for i, key := range o.Keys() {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteByte('"')
			b.WriteString(key)
			b.WriteString(`":`)
			inspectInto(v, b, o.Get(key), depth+1)
		}
		b.WriteByte('}')
	case "Function":
		b.WriteString("[function]")
	case "Map", "Set":
		b.WriteByte('[')
		b.WriteString(class)
		b.WriteByte(']')
	default:
		b.WriteString(o.String())
	}
}
