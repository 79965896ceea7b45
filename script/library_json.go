package script

import (
	"errors"

	"github.com/dop251/goja"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

// newJSON is JSON that keeps the digits of integers beyond 2^53.
func newJSON(v *vm) goja.Value {
	return v.functions("json", map[string]func(goja.FunctionCall) goja.Value{
		"parse": func(call goja.FunctionCall) goja.Value {
			return v.parseJSON("json.parse", []byte(string(v.dataOf("json.parse", "the argument", call.Argument(0)))))
		},
		"stringify": func(call goja.FunctionCall) goja.Value { return v.stringify(call, stringifier{vm: v, bigs: true}) },
	})
}

// parseJSON makes a value of a text, which is its own from now on. A byte order mark is passed over.
func (v *vm) parseJSON(function string, text []byte) goja.Value {
	if len(text) >= 3 && string(text[:3]) == "\uFEFF" {
		text = text[3:]
	}
	if _, _, err := rawjson.Check(text, nil); err != nil {
		var syntax *rawjson.SyntaxError
		if errors.As(err, &syntax) && syntax.What == "nested too deep" {
			v.raise("RangeError", codeDepth, "%s: %v", function, err)
		}
		v.raise("SyntaxError", codeSyntax, "%s: %v", function, err)
	}
	return v.values.decode(trim(text))
}
