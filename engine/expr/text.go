package expr

import (
	"strings"
	"unicode/utf8"
)

// textFunctions are the functions of texts. Positions and lengths are in characters.
var textFunctions = map[string]*function{
	"trim": {min: 1, max: 2, takes: []types{tText}, result: tText, call: func(_ *Env, a []Value, _ int) Value {
		if len(a) == 2 {
			return textValue(strings.Trim(a[0].str, a[1].str))
		}
		return textValue(strings.TrimSpace(a[0].str))
	}},
	"trimPrefix": {min: 1, max: 2, takes: []types{tText}, result: tText, call: func(_ *Env, a []Value, _ int) Value {
		return textValue(strings.TrimPrefix(a[0].str, optionalText(a, 1, " ")))
	}},
	"trimSuffix": {min: 1, max: 2, takes: []types{tText}, result: tText, call: func(_ *Env, a []Value, _ int) Value {
		return textValue(strings.TrimSuffix(a[0].str, optionalText(a, 1, " ")))
	}},
	"upper": {min: 1, max: 1, takes: []types{tText}, result: tText, call: func(env *Env, a []Value, _ int) Value {
		env.spend(len(a[0].str))
		return textValue(strings.ToUpper(a[0].str))
	}},
	"lower": {min: 1, max: 1, takes: []types{tText}, result: tText, call: func(env *Env, a []Value, _ int) Value {
		env.spend(len(a[0].str))
		return textValue(strings.ToLower(a[0].str))
	}},
	"split": {min: 2, max: 3, takes: []types{tText, tText, tNumber}, result: tList, call: func(env *Env, a []Value, pos int) Value {
		return split(env, a, pos, strings.SplitN)
	}},
	"splitAfter": {min: 2, max: 3, takes: []types{tText, tText, tNumber}, result: tList, call: func(env *Env, a []Value, pos int) Value {
		return split(env, a, pos, strings.SplitAfterN)
	}},
	"replace": {min: 3, max: 4, takes: []types{tText, tText, tText, tNumber}, result: tText, call: func(env *Env, a []Value, pos int) Value {
		n := int64(-1)
		if len(a) == 4 {
			var ok bool
			if n, ok = a[3].whole(); !ok {
				return env.fail(pos, CodeOperand, "replace takes a whole number of replacements")
			}
		}
		found := int64(strings.Count(a[0].str, a[1].str))
		if n >= 0 && n < found {
			found = n
		}
		if found > budget || !env.spend(len(a[0].str)) || found*int64(len(a[2].str)) > budget || !env.spend(int(found)*len(a[2].str)) {
			env.spend(budget + 1)
			return Value{}
		}
		return textValue(strings.Replace(a[0].str, a[1].str, a[2].str, int(max(n, -1))))
	}},
	"repeat": {min: 2, max: 2, takes: []types{tText, tNumber}, result: tText, call: func(env *Env, a []Value, pos int) Value {
		n, ok := a[1].whole()
		if !ok || n < 0 {
			return env.fail(pos, CodeOperand, "repeat takes a whole number that is not negative")
		}
		if n > budget || n*int64(len(a[0].str)) > budget || !env.spend(int(n)*len(a[0].str)) {
			env.spend(budget + 1)
			return Value{}
		}
		return textValue(strings.Repeat(a[0].str, int(n)))
	}},
	"join": {min: 1, max: 2, takes: []types{tList, tText}, result: tText, call: func(env *Env, a []Value, pos int) Value {
		var out strings.Builder
		glue, first := optionalText(a, 1, ""), true
		for it := elementsOf(a[0]); it.next(); {
			item := env.resolve(it.value)
			switch item.kind {
			case kNil:
				continue
			case kText:
			default:
				return env.fail(pos, CodeOperand, "join takes a list of texts; map(x, string(#)) makes one")
			}
			if !env.spend(costVisit + len(item.str) + len(glue)) {
				return Value{}
			}
			if !first {
				out.WriteString(glue)
			}
			out.WriteString(item.str)
			first = false
		}
		return textValue(out.String())
	}},
	"indexOf": {min: 2, max: 2, takes: []types{tText}, result: tNumber, call: func(_ *Env, a []Value, _ int) Value {
		return characterIndex(a[0].str, strings.Index(a[0].str, a[1].str))
	}},
	"lastIndexOf": {min: 2, max: 2, takes: []types{tText}, result: tNumber, call: func(_ *Env, a []Value, _ int) Value {
		return characterIndex(a[0].str, strings.LastIndex(a[0].str, a[1].str))
	}},
	"hasPrefix": {min: 2, max: 2, takes: []types{tText}, result: tBool, call: func(_ *Env, a []Value, _ int) Value {
		return boolValue(strings.HasPrefix(a[0].str, a[1].str))
	}},
	"hasSuffix": {min: 2, max: 2, takes: []types{tText}, result: tBool, call: func(_ *Env, a []Value, _ int) Value {
		return boolValue(strings.HasSuffix(a[0].str, a[1].str))
	}},
	"string": {min: 1, max: 1, takes: []types{tAny &^ tNil}, result: tText, call: func(env *Env, a []Value, pos int) Value {
		return stringOf(env, a[0], pos)
	}},
	"format": {min: 1, max: -1, takes: []types{tText, tAny &^ tNil}, result: tText, call: formatText, check: checkFormat},
}

// stringOf is string(v): a number as JavaScript prints it, a list or a map as compact JSON.
func stringOf(env *Env, v Value, pos int) Value {
	switch v.kind {
	case kText:
		return v
	case kBytes:
		if !utf8.ValidString(v.str) {
			return env.fail(pos, CodeNoUTF8, "string takes bytes that are UTF-8")
		}
		return textValue(v.str)
	case kInt, kFloat, kBig:
		return textValue(string(env.appendNumber(nil, v, pos)))
	default:
		return jsonText(env, v, pos)
	}
}

func optionalText(args []Value, i int, otherwise string) string {
	if i < len(args) {
		return args[i].str
	}
	return otherwise
}

func split(env *Env, a []Value, pos int, by func(s, sep string, n int) []string) Value {
	n := int64(-1)
	if len(a) == 3 {
		var ok bool
		if n, ok = a[2].whole(); !ok {
			return env.fail(pos, CodeOperand, "split takes a whole number of parts")
		}
	}
	parts := strings.Count(a[0].str, a[1].str) + 1
	if !env.spend(costVisit*parts + len(a[0].str)) {
		return Value{}
	}
	var items []Value
	for _, part := range by(a[0].str, a[1].str, int(min(max(n, -1), int64(parts)+1))) {
		items = append(items, textValue(part))
	}
	return env.list(items, pos)
}

// characterIndex turns an index in bytes into one in characters.
func characterIndex(text string, at int) Value {
	if at < 0 {
		return intValue(-1)
	}
	return intValue(int64(utf8.RuneCountInString(text[:at])))
}

// jsonText is v as compact JSON in a text.
func jsonText(env *Env, v Value, pos int) Value {
	out := env.appendJSON(nil, v, pos)
	if !env.spend(len(out)) {
		return Value{}
	}
	return textValue(string(out))
}
