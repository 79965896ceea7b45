package script

import (
	"encoding/json"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/dop251/goja"
)

// Field is a member of what a script logs. Value is a string, bool, float64, JSON or nil.
type Field struct {
	Name  string
	Value any
}

// JSON is a JSON text that stays one in a log of JSON lines, and is text in all others.
type JSON string

func (j JSON) String() string { return string(j) }

// MarshalJSON implements json.Marshaler.
func (j JSON) MarshalJSON() ([]byte, error) { return []byte(j), nil }

const (
	maxLogFields   = 64
	maxLogValue    = 4 << 10 // bytes of one field
	maxCounterName = 100     // bytes
)

func newLog(v *vm) goja.Value {
	say := func(level, function string, text, fields goja.Value) {
		v.running(function)
		line := text.String()
		if !goja.IsString(text) {
			line = inspect(v, text)
		}
		list := v.fields(function, fields)
		if v.env.Log != nil {
			v.env.Log(level, cut(line, inspectBytes), list)
		}
	}
	return v.functions("log", map[string]func(goja.FunctionCall) goja.Value{
		"info": func(call goja.FunctionCall) goja.Value {
			say("info", "log.info", call.Argument(0), call.Argument(1))
			return goja.Undefined()
		},
		"warn": func(call goja.FunctionCall) goja.Value {
			say("warn", "log.warn", call.Argument(0), call.Argument(1))
			return goja.Undefined()
		},
		"once": func(call goja.FunctionCall) goja.Value {
			first := v.env.Memory.first(v.memoryKeyOf("log.once", ofOnce, call.Argument(0)), v.clock())
			if first {
				say("warn", "log.once", call.Argument(1), call.Argument(2))
			}
			return v.rt.ToValue(first)
		},
	})
}

// fields are the members of an object, in their order.
func (v *vm) fields(function string, value goja.Value) []Field {
	if goja.IsUndefined(value) || goja.IsNull(value) {
		return nil
	}
	o, ok := value.(*goja.Object)
	if !ok || o.ClassName() != "Object" {
		v.wrong(function, "the fields are %s; an object is expected", kindName(value))
	}
	var list []Field
	for _, name := range o.Keys() {
		if len(list) == maxLogFields {
			break
		}
		if member := o.Get(name); member != nil && !goja.IsUndefined(member) {
			list = append(list, Field{cut(name, maxCounterName), v.loggable(member)})
		}
	}
	return list
}

func (v *vm) loggable(value goja.Value) any {
	switch {
	case goja.IsNull(value):
		return nil
	case goja.IsString(value):
		return cut(value.String(), maxLogValue)
	case goja.IsNumber(value):
		if f := value.ToFloat(); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f
		}
	case value == v.values.yes, value == v.values.no:
		return value.ToBoolean()
	}
	text := inspect(v, value)
	if len(text) <= maxLogValue && json.Valid([]byte(text)) {
		return JSON(text)
	}
	return cut(text, maxLogValue)
}

func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}

func newMetrics(v *vm) goja.Value {
	return v.functions("metrics", map[string]func(goja.FunctionCall) goja.Value{
		"count": func(call goja.FunctionCall) goja.Value {
			const function = "metrics.count"
			v.running(function)
			name, n := v.textOf(function, "the name", call.Argument(0)), 1.0
			if name == "" || len(name) > maxCounterName || strings.ContainsRune(name, utf8.RuneError) {
				v.wrong(function, "the name is a text of %d bytes; one of 1 to %d bytes of UTF-8 is expected", len(name), maxCounterName)
			}
			if value := call.Argument(1); !goja.IsUndefined(value) {
				if !goja.IsNumber(value) || !(value.ToFloat() >= 0) || math.IsInf(value.ToFloat(), 0) {
					v.unfit(function, "the second argument", value, "a number from 0 on")
				}
				n = value.ToFloat()
			}
			if v.env.Count != nil {
				v.env.Count(name, n)
			}
			return goja.Undefined()
		},
	})
}

// newConfigs is how a script reads the configs of its stage, as they were when the batch or the poll began.
func newConfigs(v *vm) goja.Value {
	return v.functions("configs", map[string]func(goja.FunctionCall) goja.Value{
		"get": func(call goja.FunctionCall) goja.Value {
			const function = "configs.get"
			v.running(function)
			key := v.textOf(function, "the key", call.Argument(0))
			if v.configs == nil {
				return goja.Null()
			}
			raw := trim(v.configs.Get(key))
			if len(raw) == 0 {
				return goja.Null()
			}
			return v.values.decode(raw)
		},
	})
}
