package script

import (
	"errors"
	"strings"

	"github.com/dop251/goja"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

// goja's own JSON recurses as deep as a text or a value nests and would take the process down with a deep one. These
// functions do what ECMA-262 says (25.5), to a depth of rawjson.MaxDepth.

func replaceJSON(v *vm) {
	json := v.rt.GlobalObject().Get("JSON").(*goja.Object)
	for name, f := range map[string]func(goja.FunctionCall) goja.Value{"parse": v.jsonParse, "stringify": v.jsonStringify} {
		length := 2
		if name == "stringify" {
			length = 3
		}
		must(json.DefineDataProperty(name, v.native(name, length, f), goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))
	}
}

// fail throws an error of a built-in class.
func (v *vm) fail(class, message string) {
	o, err := v.rt.New(v.rt.GlobalObject().Get(class), v.rt.ToValue(message))
	must(err)
	panic(o)
}

func (v *vm) jsonParse(call goja.FunctionCall) goja.Value {
	text := []byte(call.Argument(0).String())
	if _, _, err := rawjson.Check(text, nil); err != nil {
		var syntax *rawjson.SyntaxError
		if errors.As(err, &syntax) && syntax.What == "nested too deep" {
			v.fail("RangeError", "JSON.parse: "+err.Error())
		}
		v.fail("SyntaxError", "JSON.parse: "+err.Error())
	}
	value := v.ordinary.decode(trim(text))
	revive, ok := goja.AssertFunction(call.Argument(1))
	if !ok {
		return value
	}
	root := v.rt.NewObject()
	define(root, "", value)
	return v.revive(revive, root, "")
}

// revive is InternalizeJSONProperty.
func (v *vm) revive(f goja.Callable, holder *goja.Object, name string) goja.Value {
	value := holder.Get(name)
	if o, ok := value.(*goja.Object); ok {
		for _, key := range o.Keys() {
			if member := v.revive(f, o, key); goja.IsUndefined(member) {
				must(o.Delete(key))
			} else {
				define(o, key, member)
			}
		}
	}
	result, err := f(holder, v.rt.ToValue(name), value)
	must(err)
	return result
}

type stringifier struct {
	vm      *vm
	dst     []byte
	replace goja.Callable
	names   []string // the only members that are written, if not nil
	gap     string
	indent  string
	open    []*goja.Object
	bigs    bool // a BigInt is written as its digits
}

func (v *vm) jsonStringify(call goja.FunctionCall) goja.Value {
	return v.stringify(call, stringifier{vm: v})
}

func (v *vm) stringify(call goja.FunctionCall, s stringifier) goja.Value {
	if f, ok := goja.AssertFunction(call.Argument(1)); ok {
		s.replace = f
	} else if list, ok := call.Argument(1).(*goja.Object); ok && isArray(list) {
		s.names = []string{}
		seen := map[string]bool{}
		for _, e := range v.values.elements(list) {
			if e == nil || !goja.IsString(e) && !goja.IsNumber(e) {
				continue
			}
			if name := e.String(); !seen[name] {
				seen[name] = true
				s.names = append(s.names, name)
			}
		}
	}
	switch space := call.Argument(2); {
	case goja.IsNumber(space):
		s.gap = strings.Repeat(" ", int(max(0, min(10, space.ToInteger()))))
	case goja.IsString(space):
		s.gap = space.String()
		if runes := []rune(s.gap); len(runes) > 10 {
			s.gap = string(runes[:10])
		}
	}
	var holder *goja.Object
	if s.replace != nil {
		holder = v.rt.NewObject()
		define(holder, "", call.Argument(0))
	}
	if !s.property(holder, "", call.Argument(0)) {
		return goja.Undefined()
	}
	return v.rt.ToValue(string(s.dst))
}

// property is SerializeJSONProperty; it answers false, having written nothing, for what has no JSON.
func (s *stringifier) property(holder *goja.Object, name string, value goja.Value) bool {
	if o, ok := value.(*goja.Object); ok {
		if toJSON, ok := goja.AssertFunction(o.Get("toJSON")); ok {
			var err error
			value, err = toJSON(o, s.vm.rt.ToValue(name))
			must(err)
		}
	}
	if s.replace != nil {
		var err error
		value, err = s.replace(holder, s.vm.rt.ToValue(name), value)
		must(err)
	}
	o, object := value.(*goja.Object)
	if object {
		if primitive := unbox(o); primitive != nil {
			value, object = primitive, false
		}
	}
	switch {
	case object:
		if isFunction(o) {
			return false
		}
		s.object(o)
	case value == nil || goja.IsUndefined(value):
		return false
	case goja.IsNull(value):
		s.dst = append(s.dst, "null"...)
	case goja.IsNumber(value):
		if f := value.ToFloat(); f-f == 0 {
			s.dst = rawjson.AppendFloat(s.dst, f)
		} else {
			s.dst = append(s.dst, "null"...)
		}
	case goja.IsString(value):
		s.dst = rawjson.AppendString(s.dst, value.String())
	case goja.IsBigInt(value) && s.bigs:
		s.dst = append(s.dst, value.String()...)
	case goja.IsBigInt(value):
		s.vm.fail("TypeError", "Do not know how to serialize a BigInt")
	default:
		if _, symbol := value.(*goja.Symbol); symbol {
			return false
		}
		s.dst = append(s.dst, value.String()...)
	}
	if len(s.dst) > maxString {
		s.vm.fail("RangeError", "JSON.stringify: the text is too long")
	}
	return true
}

func (s *stringifier) object(o *goja.Object) {
	for _, above := range s.open {
		if above == o {
			s.vm.fail("TypeError", "Converting circular structure to JSON")
		}
	}
	if len(s.open) >= rawjson.MaxDepth {
		s.vm.fail("RangeError", "JSON.stringify: nested too deep")
	}
	s.open = append(s.open, o)
	outer := s.indent
	s.indent += s.gap
	first := true
	separate := func() {
		if !first {
			s.dst = append(s.dst, ',')
		}
		first = false
		if s.gap != "" {
			s.dst = append(append(s.dst, '\n'), s.indent...)
		}
	}
	closing := byte('}')
	if isArray(o) {
		closing = ']'
		s.dst = append(s.dst, '[')
		for i, element := range s.vm.values.elements(o) {
			separate()
			if !s.property(o, indexText(i), element) {
				s.dst = append(s.dst, "null"...)
			}
		}
	} else {
		s.dst = append(s.dst, '{')
		names := s.names
		if names == nil {
			names = o.Keys()
		}
		for _, name := range names {
			start, was := len(s.dst), first
			separate()
			s.dst = append(rawjson.AppendString(s.dst, name), ':')
			if s.gap != "" {
				s.dst = append(s.dst, ' ')
			}
			if !s.property(o, name, o.Get(name)) {
				s.dst, first = s.dst[:start], was
			}
		}
	}
	s.indent = outer
	if !first && s.gap != "" {
		s.dst = append(append(s.dst, '\n'), s.indent...)
	}
	s.dst = append(s.dst, closing)
	s.open = s.open[:len(s.open)-1]
}
