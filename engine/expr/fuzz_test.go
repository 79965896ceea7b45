package expr

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

var seeds = []string{
	`value.temperature > 85 && value.site in ["plant-1", "plant-7"]`, `map(filter(value.list, # != nil), string(#))`, `let x = value.a ?? 1; {a: x, "b": [x, -x, x ** 2]}`, `value.map.b.c[-1]?.d`, `value.t | upper() | split("E") | join("-")`, `reduce(1..10, #acc + #, 0)`, `format("%05.1f %s", value.f, value.t)`, `value.t[1:-1]`, `groupBy(value.users, .on)`, `sortBy(value.users, .age, "desc")`, `if value.yes { 1 } else { 2 }`, `not (value.t matches "x+") and 1 < value.i <= 9`, `time.iso(timestamp, {digits: 0})`, `json.parse(toJSON(value))`, `headers.a ?? key`, `value == {}`, `(((`, `"\x"`, `b"\xff"`, `#`, `.x`, `::len(1)`, `$env.x`, `a?.b?.[1]`, `1..2..3`, `--1`, `!!true`, `{(1): 2}`, `let a = 1;`, `count(value.list)`, `1 ?? 2 + 3`, `uniq(flatten([value.list, [1, [2]]]))`, `max(value.nums, value.big)`, `value.big - 1`, `hash("md5", value.t)`, `{{ value.t }}`, `x{{ {a: {b: "}}"}} }}y`,
}

// Whatever the text and the record: no panic, an *Error or a *Failure with a place in the text, else valid JSON, the same by
// every way.
func FuzzExpression(f *testing.F) {
	for i, text := range seeds {
		f.Add(text, []string{record, sample, `[1,"a",{"b":null}]`, `{"list":[],"t":"\ud83d\ude00"}`}[i%4])
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		if strings.Count(text, "..") > 0 && len(text) > 200 {
			return // long enough to spend the whole budget many times over
		}
		checkExpression(t, text, value)
	})
}

func checkExpression(t *testing.T, text, value string) {
	t.Helper()
	_, members, err := rawjson.Check([]byte(value), nil)
	if err != nil {
		return
	}
	env := &Env{Value: []byte(value), Members: members, Key: []byte("key"), KeyFormat: Text}
	lines := strings.Count(text, "\n") + 1
	if tpl, err := CompileTemplate(text, Record); err == nil {
		_, _ = tpl.Append(nil, env)
	}
	e, err := Compile(text, Record, Any)
	if err != nil {
		var problem *Error
		if !errors.As(err, &problem) || problem.Code == "" || problem.Message == "" || problem.Line < 1 || problem.Line > lines || problem.Column < 1 || problem.Column > utf8.RuneCountInString(text)+1 {
			t.Fatalf("Compile(%.200q): %#v", text, err)
		}
		return
	}
	out, err := e.AppendJSON(nil, env)
	if err != nil {
		var failure *Failure
		if !errors.As(err, &failure) || failure.Code == "" || failure.Line < 1 || failure.Line > lines || failure.Column < 1 || failure.Column > utf8.RuneCountInString(text)+1 {
			t.Fatalf("AppendJSON(%.200q): %#v", text, err)
		}
	} else if _, _, err := rawjson.Check(out, nil); err != nil {
		t.Fatalf("AppendJSON(%.200q) over %q = %q: %v", text, value, out, err)
	}
	v, evalErr := e.Eval(env)
	if evalErr == nil && err == nil {
		if again := env.appendJSON(nil, v, 0); !bytes.Equal(out, again) {
			t.Fatalf("%.200q over %.200q: AppendJSON %q, Eval %q", text, value, out, again)
		}
	}
	holds, condErr := e.Bool(env)
	if b, isBool := v.Bool(); evalErr == nil && (isBool || v.Nil()) && (condErr != nil || holds != b) {
		t.Fatalf("%.200q over %.200q: Bool %v %v, Eval %v", text, value, holds, condErr, b)
	}
	if _, _, err := e.AppendText(nil, env); err == nil && evalErr != nil {
		t.Fatalf("%.200q over %.200q: AppendText succeeds, Eval fails: %v", text, value, evalErr)
	}
}

// TestRandomExpressions puts every function and operator together with every kind of value.
func TestRandomExpressions(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	atoms := []string{
		"value.i", "value.neg", "value.f", "value.whole", "value.t", "value.e", "value.esc", "value.yes", "value.no", "value.nul", "value.missing", "value.max", "value.min", "value.big", "value.huge", "value.list", "value.nums", "value.texts", "value.none", "value.empty",
		"value.map", "value.users", "value", "key", "headers", "timestamp", "topic", "1", "0", "-1", "2.5", `"a"`, `"md5"`, `"desc"`, `"%d"`, "nil", "true", "[1, nil, \"x\"]", "{a: 1}", `b"\xff"`, "1..3",
	}
	var names []string
	for name := range functions {
		names = append(names, name)
	}
	slices.Sort(names)
	var walks []string
	for name := range predicates {
		walks = append(walks, name)
	}
	slices.Sort(walks)
	pick := func(words []string) string { return words[r.IntN(len(words))] }
	operators := []string{"+", "-", "*", "/", "%", "**", "<", ">", "<=", ">=", "==", "!=", "&&", "||", "in", "contains", "startsWith", "endsWith", "matches", "not in"}
	var build func(depth int) string
	build = func(depth int) string {
		if depth == 0 {
			return pick(atoms)
		}
		a := func() string { return build(depth - 1 - r.IntN(depth)) }
		switch r.IntN(12) {
		case 0, 1, 2:
			return "(" + a() + " " + pick(operators) + " " + a() + ")"
		case 3, 4, 5:
			name := pick(names)
			args := make([]string, functions[name].min+r.IntN(2))
			for i := range args {
				args[i] = a()
			}
			return name + "(" + strings.Join(args, ", ") + ")"
		case 6:
			return pick(walks) + "(" + a() + ", " + pick([]string{"# > 1", "#", ".age", "#index", "string(#)", "# in value.nums", "[#]", "{let x = #; x}"}) + ")"
		case 7:
			return "(" + a() + " ? " + a() + " : " + a() + ")"
		case 8:
			return "(" + a() + ")[" + a() + "]"
		case 9:
			return "(" + a() + ")[" + a() + ":" + a() + "]"
		case 10:
			return pick([]string{"!", "-", "+"}) + "(" + a() + ")"
		default:
			return "(" + a() + " ?? " + a() + ")"
		}
	}
	compiled := 0
	for range 20000 {
		text := build(1 + r.IntN(3))
		if _, err := Compile(text, Record, Any); err == nil {
			compiled++
		}
		checkExpression(t, text, record)
	}
	if compiled < 4000 {
		t.Errorf("only %d of the expressions compile", compiled)
	}
}

func TestDeepAndLongTexts(t *testing.T) {
	const n = MaxText / 2
	for _, text := range []string{
		strings.Repeat("(", n), strings.Repeat("(", n) + "1" + strings.Repeat(")", n), strings.Repeat("[", n), strings.Repeat("!", n) + "true", strings.Repeat("-", n) + "1", strings.Repeat("{a:", n/2), strings.Repeat("map(", n/4), "1" + strings.Repeat("**2", n/2), "true" + strings.Repeat("?1:true", n/8),
		strings.Repeat("value.", 3000) + "x", "1" + strings.Repeat("+1", 4000), strings.Repeat("[", 2000) + strings.Repeat("]", 2000), "value" + strings.Repeat("[0]", 3000), strings.Repeat("if true {", n/16), strings.Repeat("let a = 1;", n/16),
	} {
		checkExpression(t, text, record)
	}
}

// A member is found where encoding/json finds it.
func FuzzMember(f *testing.F) {
	f.Add(record, "map", "b")
	f.Add(`{"a":{"b":1,"b":[2]},"a":{"c":{"}":"{"}}}`, "a", "c")
	f.Add(` { "x" : { "\u0079" : "\"" } } `, "x", "y")
	f.Fuzz(func(t *testing.T, value, first, second string) {
		kind, members, err := rawjson.Check([]byte(value), nil)
		if err != nil || kind != rawjson.Object || !utf8.ValidString(first) || !utf8.ValidString(second) {
			return
		}
		env := &Env{Value: []byte(value), Members: members}
		var want json.RawMessage
		var outer, inner map[string]json.RawMessage
		if json.Unmarshal([]byte(value), &outer) != nil {
			return
		}
		if json.Unmarshal(outer[first], &inner) == nil {
			want = inner[second]
		}
		if got := env.rawPath([]string{first, second}); got != string(want) {
			t.Fatalf("%q: %q.%q is %q, want %q", value, first, second, got, want)
		}
		root := rawRoot([]byte(value))
		if got := env.member(env.member(root, first), second); string(env.appendJSON(nil, got, 0)) != orNull(want) && got.kind != kBool {
			t.Fatalf("%q: %q.%q is %v, want %q", value, first, second, got, want)
		}
	})
}

func orNull(raw []byte) string {
	if raw == nil {
		return "null"
	}
	return string(raw)
}

// The quick way to read a number is the exact one.
func FuzzNumber(f *testing.F) {
	for _, s := range []string{"0", "-0", "87.25", "0.1", "123456789012.34", "1e400", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "1.00000000000000000000001", "5e-324", "99999999999999e9"} {
		f.Add(s, 1.5)
	}
	f.Fuzz(func(t *testing.T, s string, limit float64) {
		if kind, _, err := rawjson.Check([]byte(s), nil); err != nil || kind != rawjson.Number || strings.TrimSpace(s) != s {
			return
		}
		v := parseNumber(s)
		if want := rawjson.Float([]byte(s)); v.kind == kFloat && v.float() != want || v.kind == kInt && v.double() != want {
			t.Fatalf("parseNumber(%s) = %v, want %v", s, v, want)
		}
		if limit != limit || limit-limit != 0 {
			return
		}
		env := recordEnv(t, `{"n":`+s+`}`)
		for _, op := range []string{"<", ">", "<=", ">="} {
			c, _ := compareNumbers(v, floatValue(limit))
			if got := pathOrder([]string{"n"}, floatValue(limit), op)(env); got != holdsFor(op)(c) {
				t.Fatalf("%s %s %v is %v by the quick way", s, op, limit, got)
			}
		}
	})
}
