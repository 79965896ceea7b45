package script

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// operandTexts are values of every kind that an operand may have, and of the kinds that only JavaScript knows.
var operandTexts = []string{
	"0", "-0", "1", "-7", "2.5", "1.50", "1e3", "1e-7", "0.1", "85", "9007199254740991", "9007199254740993", "-9223372036854775808", "1e400", "123456789012345678",
	`""`, `"a"`, `"ok"`, `"85"`, `" 7 "`, `"é"`, `"\u00e9"`, `"\ud800"`, `"😀"`, `"x\"y"`, "true", "false", "null",
	"{}", `{"c":1}`, `{"c":{"c":2.0}}`, `{"c":"ok","c":3}`, `{"length":4}`, "[]", "[1,2.0]", `["c"]`,
}

// operands are expressions for each side of an operator.
var operands = []string{
	"msg.value.a", "msg.value.b", "msg.value['a']", "msg.value.none", "msg.value.a.c", "msg.value.a?.c", "msg.value?.b", "msg.value.a?.c.c", "vars.limit", "vars.inner.c",
	"0", "-1", "2.5", "1e21", "'ok'", "'a'", "''", "true", "null", "undefined", "NaN", "Infinity", "state.n", "state.s", "state.o", "state.o.c", "state.none",
}

var operators = []string{"+", "-", "*", "/", "%", "<", ">", "<=", ">=", "===", "!==", "==", "!=", "&&", "||", "??"}

// writer makes random bodies of what formulas, guards and actions are made of.
type writer struct{ *rand.Rand }

func (w writer) pick(list []string) string { return list[w.IntN(len(list))] }

func (w writer) expression(depth int) string {
	if depth == 0 || w.IntN(4) == 0 {
		return w.pick(operands)
	}
	switch w.IntN(8) {
	case 0:
		return w.pick([]string{"!", "-", "+", "typeof "}) + "(" + w.expression(depth-1) + ")"
	case 1:
		return "(" + w.expression(depth-1) + " ? " + w.expression(depth-1) + " : " + w.expression(depth-1) + ")"
	default:
		op := w.pick(operators)
		if op == "??" {
			return "((" + w.expression(depth-1) + ") ?? (" + w.expression(depth-1) + "))"
		}
		return "(" + w.expression(depth-1) + " " + op + " " + w.expression(depth-1) + ")"
	}
}

// condition is one that a guard takes: it names no state.
func (w writer) condition() string {
	for {
		if e := w.expression(2); !strings.Contains(e, "state") {
			return e
		}
	}
}

func (w writer) statement() string {
	target := w.pick([]string{"state.n", "state.s", "state.o", "state.made", "msg.value.a", "msg.value.b", "msg.value.made", "msg.value['9']"})
	switch w.IntN(12) {
	case 0:
		return "yield State(state);"
	case 1:
		return "yield State(msg.value);"
	case 2:
		return fmt.Sprintf("yield Message({ value: { ...msg.value, x: %s, y: %s } });", w.expression(2), w.expression(1))
	case 3:
		return fmt.Sprintf("yield Message({ value: { x: %s, y: %s, z: %s } });", w.expression(2), w.pick([]string{"1", "'s'", "null", "[state.n]", "String(state.n)", "[msg.value.b.c.c]"}), w.expression(2))
	case 4:
		return fmt.Sprintf("yield Message({ key: %s, value: { ...state, x: %s } });", w.expression(1), w.expression(2))
	case 5:
		return "yield Message({ value: " + w.pick([]string{"msg.value", "state", "msg.value.a", w.expression(1)}) + " });"
	case 6:
		return fmt.Sprintf("if (%s) { yield Message({ value: { hit: %s } }); }", w.expression(1), w.expression(1))
	case 7:
		return target + w.pick([]string{"++;", "--;"})
	case 8:
		return w.pick([]string{"state.o = { c: state.n };", "state.o = msg.value.a;", "delete msg.value.a;", "delete state.n;", "if (msg.value.a) msg.value.a.c = 5;", "try { msg.value.a.c.c = [1] } catch {}",
			"state.o = { c: 1, toJSON() { return 'j' } };", "try { state.o.c = 7 } catch {}", "const held" + fmt.Sprint(w.IntN(1e9)) + " = msg.value.a;"})
	default:
		return target + " " + w.pick([]string{"=", "=", "+=", "-=", "*=", "/=", "%="}) + " " + w.expression(2) + ";"
	}
}

func (w writer) body() string {
	var lines []string
	for range w.IntN(3) {
		switch w.IntN(5) {
		case 0:
			lines = append(lines, fmt.Sprintf("const v%d = %s;", len(lines), w.condition()))
		case 1:
			lines = append(lines, fmt.Sprintf("const { a: a%d, b: b%d } = msg.value; if (a%d === b%d) return;", len(lines), len(lines), len(lines), len(lines)))
		case 2:
			lines = append(lines, fmt.Sprintf("if (%s) return; else if (%s) { return }", w.condition(), w.condition()))
		default:
			lines = append(lines, fmt.Sprintf("if (%s) return;", w.condition()))
		}
	}
	for range 1 + w.IntN(5) {
		lines = append(lines, w.statement())
	}
	if w.IntN(5) == 0 {
		lines = append(lines, "await msg.value.a;", w.statement())
	}
	if w.IntN(4) == 0 {
		lines = append([]string{fmt.Sprintf("if (%s) {", w.condition())}, append(lines, "}")...)
	}
	body := strings.Join(lines, "\n")
	if w.IntN(3) == 0 {
		alias := w.pick([]string{"const v = msg.value;\n", "const { value: v } = msg;\n", "const k = msg.key, v = msg.value;\n", "let v = msg.value;\n", "const { value: v, offset } = msg;\n"})
		body = alias + strings.ReplaceAll(body, "msg.value", "v")
	}
	return body
}

// oneOfSeveral is what an error names where several are to blame: which of them, depends on what was read or written first.
var oneOfSeveral = regexp.MustCompile(`"\w+" is an integer|the value's \S+ cannot be written as JSON`)

// sameInBoth runs a random body over random records and demands the same of both representations: messages, states, and
// errors with their places.
func sameInBoth(t *testing.T, seed uint64) {
	w := writer{rand.New(rand.NewPCG(seed, 1))}
	body := w.body()
	p, err := Compile(Source{Body: bodyText(body)})
	if err != nil {
		t.Fatalf("%v in\n%s", err, body)
	}
	var values []string
	for range 6 {
		if w.IntN(12) == 0 {
			values = append(values, w.pick(operandTexts))
			continue
		}
		values = append(values, fmt.Sprintf(`{"b":%s,"a":%s,"c":%s}`, w.pick(operandTexts), w.pick(operandTexts), w.pick(operandTexts)))
	}
	values = append(values, "", `{}`, `{"a":1,"toString":2}`)
	run := func(plain bool) string {
		plainValues = plain
		defer func() { plainValues = false }()
		tr, err := p.NewTransform(Env{
			Outputs: out, Initial: []byte(`{"n":0,"s":"","o":{"c":1}}`), Vars: []byte(`{"limit":85,"inner":{"c":2}}`),
		})
		if err != nil {
			t.Fatalf("%v in\n%s", err, body)
		}
		defer tr.Close()
		in := &stream.Input{Name: "in", Topic: stream.Topic{Name: "in", Key: stream.String}}
		b := &stream.Batch{}
		if p.NamesState() {
			b.States = storeMap{}
		}
		var shapes rawjson.Shapes
		for _, value := range values {
			r := stream.Record{Input: in, Key: []byte("k"), StateKey: "k"}
			if value != "" {
				r.Value = []byte(value)
				r.Kind, r.Members, r.Shape, err = shapes.Check(r.Value, nil)
				if err != nil {
					t.Fatal(err)
				}
			}
			b.Records = append(b.Records, r)
		}
		var failed []string
		b.Fail = func(i int, err error) error {
			failed = append(failed, fmt.Sprint(i, " ", oneOfSeveral.ReplaceAllString(showError(err), "…")))
			return nil
		}
		if err := tr.Run(context.Background(), b); err != nil {
			t.Fatal(err)
		}
		return effects(b) + "failed: " + strings.Join(failed, "\n")
	}
	if fast, plain := run(false), run(true); fast != plain {
		t.Fatalf("seed %d, body\n%s\nvalues\n%s\nfast\n%s\nplain\n%s", seed, body, strings.Join(values, "\n"), fast, plain)
	}
}

// What runs in Go and what runs in JavaScript are the same to a script.
func TestT10FormulasAndActionsAreJavaScript(t *testing.T) {
	n := uint64(400)
	if testing.Short() {
		n = 50
	}
	for seed := range n {
		sameInBoth(t, seed)
	}
}

func FuzzFormulas(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed)
	}
	f.Fuzz(sameInBoth)
}

// Every operand with every operator, and each value with each other.
func TestFormulasOverAllKinds(t *testing.T) {
	var parts []string
	for i, op := range operators {
		parts = append(parts, fmt.Sprintf("r%d: msg.value.a %s msg.value.b", i, op))
	}
	parts = append(parts, "n: !msg.value.a", "m: -msg.value.a", "p: +msg.value.a", "t: typeof msg.value.a", "c: msg.value.a ? 1 : 2", "a: msg.value.a", "i: msg.value.a?.c", "k: msg.key", "w: vars.limit")
	list := func(i int) string {
		return fmt.Sprintf(`{"a":%s,"b":%s}`, operandTexts[i/len(operandTexts)], operandTexts[i%len(operandTexts)])
	}
	bodies := []string{}
	for _, part := range parts {
		_, expr, _ := strings.Cut(part, ": ")
		bodies = append(bodies, fmt.Sprintf("yield Message({ value: { %s } });", part), fmt.Sprintf("if (%s) { yield Message({ value: 'hit' }); }", expr))
	}
	for i, body := range bodies {
		p := mustCompile(t, Source{Body: bodyText(body)})
		if i%2 == 0 && !strings.Contains(body, "msg.key") && (len(p.messages) != 1 || p.messages[0].members[0].object.formulas == nil) {
			t.Errorf("no formula in %s", body)
		}
		if i%2 == 1 && p.guard == nil {
			t.Errorf("no guard of %s", body)
		}
		var results [2]string
		for way, plain := range []bool{false, true} {
			plainValues = plain
			tr, err := p.NewTransform(Env{Outputs: out, Vars: []byte(`{"limit":85}`)})
			plainValues = false
			if err != nil {
				t.Fatal(err)
			}
			var failed []string
			inputs := make([]input, 0, len(operandTexts)*len(operandTexts))
			for i := range cap(inputs) {
				inputs = append(inputs, input{"k", list(i)})
			}
			b := newBatch(t, nil, inputs...)
			b.Fail = func(i int, err error) error { failed = append(failed, list(i)+" "+showError(err)); return nil }
			if err := tr.Run(context.Background(), b); err != nil {
				t.Fatal(err)
			}
			for _, m := range b.Messages {
				results[way] += list(m.From) + " → " + string(m.Value) + "\n"
			}
			results[way] += strings.Join(failed, "\n")
			tr.Close()
		}
		if results[0] != results[1] {
			a, b := strings.Split(results[0], "\n"), strings.Split(results[1], "\n")
			for j := range min(len(a), len(b)) {
				if a[j] != b[j] {
					t.Errorf("%s\nfast  %s\nplain %s", body, a[j], b[j])
					break
				}
			}
			if len(a) != len(b) {
				t.Errorf("%s: %d lines, plain %d", body, len(a), len(b))
			}
		}
	}
}

// A guard keeps from the body what the body would do nothing with, and only that.
func TestGuards(t *testing.T) {
	for body, wants := range map[string]string{ // which of the values 1 to 4 the body is called for
		`if (msg.value.n > 2) { called() }`:                                              "34",
		`if (msg.value.n > 2) called(); else called()`:                                   "1234",
		`if (msg.value.n <= 2) return; called()`:                                         "34",
		`if (msg.value.n <= 2) { return } called()`:                                      "34",
		`const { n } = msg.value; if (n === 3) return; called()`:                         "124",
		`const v = msg.value; if (v.n !== 3) return; called()`:                           "3",
		`const { value, key } = msg; if (value.n !== 3 || key !== 'k') return; called()`: "3",
		`const n = msg.value.n * 2; if (n < 8) return; called()`:                         "4",
		`if (msg.value.n === 1) { called() } else if (msg.value.n === 2) { called() }`:   "12",
		`if (msg.value.n === 1) { called() } if (msg.value.n === 4) { called() }`:        "14",
		`if (msg.value.n === 1) return; if (msg.value.n === 4) { called() } called()`:    "234",
		`if (msg.value.n > vars.limit) { called() }`:                                     "34",
		`if (msg.topic !== 'in') { called() }`:                                           "",
		`if (msg.key === 'k') { called() }`:                                              "1234",
		`if (msg.value.s === 'é') { called() }`:                                          "1234", // it is escaped in the text
		`called()`:                                                                       "1234",
		`if (Math.abs(msg.value.n) > 2) called()`:                                        "1234",
	} {
		p := mustCompile(t, Source{Body: bodyText(body), Functions: []stream.Text{{Text: "const called = () => 1;"}}})
		tr, err := p.NewTransform(Env{Outputs: out, Vars: []byte(`{"limit":2}`)})
		if err != nil {
			t.Fatal(err)
		}
		b := newBatch(t, nil)
		for i := 1; i <= 4; i++ {
			b.Records = append(b.Records, newBatch(t, nil, input{"k", fmt.Sprintf(`{"n":%d,"s":"\u00e9"}`, i)}).Records...)
		}
		v := tr.(*transform).vm
		got := ""
		for i := range b.Records {
			if !v.passes(&b.Records[i]) {
				got += fmt.Sprint(i + 1)
			}
		}
		if got != wants {
			t.Errorf("%s: called for %q, want %q", body, got, wants)
		}
		tr.Close()
	}
}

// Which statements are carried out together, by how many runs of how many actions there are.
func TestActions(t *testing.T) {
	for body, want := range map[string]string{
		`state.count += 1; state.sum += msg.value.t; yield State(state); yield Message({ value: { ...msg.value, n: state.count } });`: "[4]",
		`state.count++; const x = 1; state.sum = 2; state.last = msg.value.t;`:                                                        "[1 2]",
		`const v = msg.value; v.n = v.t + 1; yield Message({ value: { ...v, m: v.n } });`:                                             "[2]",
		`const { value } = msg; value.n = 1; yield Message({ value });`:                                                               "[2]",
		`function f() { return v } const v = msg.value; v.n = 1;`:                                                                     "[]",
		`const w = f(), v = msg.value; v.n = 1;`:                                                                                      "[]",
		`yield State(state);`:                                                                                                         "[]",
		`state.count = f(); state.n = 1;`:                                                                                             "[1]",
		`state.o = { a: 1 }; state.toString = 1;`:                                                                                     "[]",
		`const s = state; s.n = 1;`:                                                                                                   "[]",
		`state.n += 'x'; yield Message({ key: msg.value.id, value: msg.value });`:                                                     "[2]",
		`await 1; state.n = 1;`:                                                                                                       "[]",
	} {
		p := mustCompile(t, Source{Body: bodyText(body), Functions: []stream.Text{{Text: "const f = () => 1;"}}})
		sizes := []int{}
		for _, run := range p.runs {
			sizes = append(sizes, len(run))
		}
		if got := fmt.Sprint(sizes); got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
}

// What would differ if a formula or an action went on where it does not know enough.
func TestFormulasLeaveToJavaScript(t *testing.T) {
	for name, c := range map[string]struct{ body, in, want string }{
		"a nested object that was changed": {
			"msg.value.o.c = 5; yield Message({ value: { o: msg.value.o, c: msg.value.o.c } });", `{"o":{"c":1}}`, `→ {"o":{"c":5},"c":5}`},
		"a toJSON of the state, once": {
			"state.o = { toJSON() { console.log('once'); return 1 } }; yield Message({ value: { ...state, x: msg.value.n - 'x' } }); yield State(state);", `{"n":1}`,
			"value.refused 1:59 the value's x cannot be written as JSON: it is NaN"},
		"a toJSON of a nested object, once": {
			"msg.value.o.toJSON = () => { console.log('once'); return 1 }; state.n = 1; yield Message({ value: { ...msg.value, x: msg.value.o - 'x' } });", `{"o":{}}`,
			"value.refused 1:76 the value's x cannot be written as JSON: it is NaN"},
		"the first of two errors": {
			"yield Message({ value: { a: msg.value.n.x.y, b: [msg.value.m.x.y] } });", `{}`, "script.error 1:41 TypeError: Cannot read property 'x' of undefined"},
		"the second of two members fails": {
			"state.n = 1; yield Message({ value: { a: msg.value.n, b: msg.value.m.x } });", `{}`, "script.error 1:70 TypeError: Cannot read property 'x' of undefined"},
		"a message that is too large for its topic is refused where it is yielded": {
			"state.n = 1; yield State(state); yield Message({ topic: 'none', value: { a: 1 } });", `{}`, "script.topic 1:34 the topic \"none\" is not among output_topics"},
		"nothing of a failed run is left": {
			"state.n = 5; yield State(state); state.n = msg.value.a.b;", `{}`, "script.error 1:56 TypeError: Cannot read property 'b' of undefined"},
	} {
		t.Run(name, func(t *testing.T) {
			var printed [2]string
			for i, plain := range []bool{false, true} {
				plainValues = plain
				got := conform{body: c.body, in: []string{c.in}, console: &printed[i]}.run(t)
				plainValues = false
				if got != c.want {
					t.Errorf("plain %v: %s\nwant %s", plain, got, c.want)
				}
			}
			if printed[0] != printed[1] {
				t.Errorf("printed\n%s\nplain\n%s", printed[0], printed[1])
			}
		})
	}
}
