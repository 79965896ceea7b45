package script

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

var fuzzTexts = []string{
	`{"a":1,"b":[1.0,2,{"c":null}],"a":2}`, `{"n":9223372036854775808,"f":1e400,"z":-0,"s":"\u00e9\ud800"}`, `[1,[2,[3,{}]]]`, `"é😀"`, `null`,
	`{"10":1,"9":{"x":1},"__proto__":{"a":1},"toString":"x","":true}`, ` { "a" : { "b" : [ ] } } `, `1e-7`, `{"\u0061":1,"a":2}`,
}

// program runs one body over records of any JSON, in both representations.
type program struct{ lazy, plain stream.Transform }

func newProgram(f testing.TB, body string) program {
	p, err := Compile(Source{Body: bodyText(body)})
	if err != nil {
		f.Fatal(err)
	}
	var made program
	for _, plain := range []bool{false, true} {
		plainValues = plain
		tr, err := p.NewTransform(Env{Outputs: out, Initial: []byte(`{"n":0}`)})
		if err != nil {
			f.Fatal(err)
		}
		if plain {
			made.plain = tr
		} else {
			made.lazy = tr
		}
	}
	plainValues = false
	return made
}

func (p program) run(tr stream.Transform, text []byte, kind rawjson.Kind, members []rawjson.Member) string {
	in := &stream.Input{Name: "in", Topic: stream.Topic{Name: "in", Key: stream.String}}
	b := &stream.Batch{States: storeMap{}, Fail: func(_ int, err error) error { return err }}
	var shapes rawjson.Shapes
	_, _, shape, _ := shapes.Check(text, nil)
	for _, shape := range []*rawjson.Shape{nil, shape} {
		b.Records = append(b.Records, stream.Record{Input: in, Key: []byte("k"), StateKey: "k", Value: text, Kind: kind, Members: members, Shape: shape})
	}
	if err := tr.Run(context.Background(), b); err != nil {
		return showError(err)
	}
	tr.Forget()
	return effects(b)
}

// FuzzRepresentations does every kind of work on values of random texts and wants the same over lazy and ordinary objects.
func FuzzRepresentations(f *testing.F) {
	for _, text := range fuzzTexts {
		f.Add([]byte(text), "a", "b")
	}
	p := newProgram(f, `
		const v = msg.value;
		yield Message({ value: v });
		if (v === null || typeof v !== 'object') return;
		const [n, m] = msg.headers.names.split('\n');
		yield Message({ value: [Object.keys(v), JSON.stringify(v), v[n], n in v, m in v] });
		yield Message({ value: { ...v, added: 1, [n]: v[m] } });
		yield Message({ value: { ...v, n: v.n, added: 1 } });
		const copy = { first: 1, ...v, ...v[n] };
		yield Message({ value: copy });
		delete v[n];
		yield Message({ value: v });
		v[n] = v[m];
		v[m] = v[m];
		v.deep = { v: v[m] };
		yield Message({ value: v });
		for (const k in v) if (v[k] && typeof v[k] === 'object') v[k].touched = k;
		yield Message({ value: { ...copy, last: v } });
		state.n++;
		state[m] = v[n];
		state.all = v;
		yield State(state);
		state.all.gone = 1;
		yield Message({ value: { n: state.n } });`)
	f.Fuzz(func(t *testing.T, text []byte, n, m string) {
		kind, members, err := rawjson.Check(text, nil)
		if err != nil || len(text) > 4096 || !utf8.ValidString(n) || !utf8.ValidString(m) {
			return
		}
		run := func(tr stream.Transform) string {
			in := &stream.Input{Name: "in", Topic: stream.Topic{Name: "in", Key: stream.String}}
			b := &stream.Batch{States: storeMap{}, Fail: func(int, error) error { return nil }}
			var shapes rawjson.Shapes
			_, _, shape, _ := shapes.Check(text, nil)
			for _, shape := range []*rawjson.Shape{nil, shape} {
				b.Records = append(b.Records, stream.Record{Input: in, Key: []byte("k"), StateKey: "k", Value: text, Kind: kind, Members: members, Shape: shape,
					Headers: []stream.Header{{Key: "names", Value: []byte(n + "\n" + m)}}})
			}
			var failed []string
			b.Fail = func(_ int, err error) error { failed = append(failed, showError(err)); return nil }
			if err := tr.Run(context.Background(), b); err != nil {
				t.Fatal(err)
			}
			tr.Forget()
			for _, message := range b.Messages {
				if _, _, err := rawjson.Check(message.Value, nil); message.Value != nil && err != nil {
					t.Fatalf("%q is no JSON: %v", message.Value, err)
				}
			}
			for _, change := range b.Changes {
				if _, _, err := rawjson.Check(change.Value, nil); change.Value != nil && err != nil {
					t.Fatalf("the state %q is no JSON: %v", change.Value, err)
				}
			}
			return effects(b) + "failed: " + joinLines(failed)
		}
		if lazy, plain := run(p.lazy), run(p.plain); lazy != plain {
			t.Fatalf("%q %q %q\nlazy\n%s\nplain\n%s", text, n, m, lazy, plain)
		}
	})
}

func joinLines(list []string) string {
	var b bytes.Buffer
	for _, s := range list {
		b.WriteString(s)
		b.WriteByte('\n')
	}
	return b.String()
}

// FuzzConversion takes a value apart and builds it again in JavaScript, and wants what encoding/json reads from the text.
func FuzzConversion(f *testing.F) {
	for _, text := range fuzzTexts {
		f.Add([]byte(text))
	}
	p := newProgram(f, `
		const copy = x => Array.isArray(x) ? x.map(copy) : x && typeof x === 'object' ? Object.fromEntries(Object.entries(x).map(([k, v]) => [k, copy(v)])) : x;
		yield Message({ value: { v: copy(msg.value) } });`)
	f.Fuzz(func(t *testing.T, text []byte) {
		kind, members, err := rawjson.Check(text, nil)
		if err != nil || len(text) > 4096 {
			return
		}
		var want any
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&want); err != nil {
			t.Fatal(err)
		}
		for _, tr := range []stream.Transform{p.lazy, p.plain} {
			got := p.run(tr, text, kind, members)
			if len(got) > 6 && got[:5] != "out k" {
				if !hasHuge(want) && !bytes.Contains(text, []byte("__proto__")) {
					t.Fatalf("%q: %s", text, got)
				}
				continue
			}
			var back struct{ V any }
			line := []byte(got[len("out k="):])
			d := json.NewDecoder(bytes.NewReader(line))
			d.UseNumber()
			if err := d.Decode(&back); err != nil {
				t.Fatalf("%q: %q: %v", text, line, err)
			}
			if !bytes.Contains(text, []byte("__proto__")) && !same(want, back.V) {
				t.Fatalf("%q became %q", text, line)
			}
		}
	})
}

// hasHuge tells whether a value has a number that is no finite double, which cannot be written anew.
func hasHuge(v any) bool {
	switch v := v.(type) {
	case json.Number:
		f, _ := v.Float64()
		return math.IsInf(f, 0)
	case []any:
		for _, e := range v {
			if hasHuge(e) {
				return true
			}
		}
	case map[string]any:
		for _, e := range v {
			if hasHuge(e) {
				return true
			}
		}
	}
	return false
}

func same(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		n, ok := b.(json.Number)
		if !ok {
			return false
		}
		if rawjson.IsInteger([]byte(a)) && rawjson.IsInteger([]byte(n)) {
			return a == n || a == "-0" && n == "0"
		}
		x, _ := a.Float64()
		y, _ := n.Float64()
		return x == y
	case []any:
		list, ok := b.([]any)
		if !ok || len(a) != len(list) {
			return false
		}
		for i := range a {
			if !same(a[i], list[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		o, ok := b.(map[string]any)
		if !ok || len(a) != len(o) {
			return false
		}
		for k := range a {
			if !same(a[k], o[k]) {
				return false
			}
		}
		return true
	default:
		return reflect.DeepEqual(a, b)
	}
}

// waitingSteps are what a body of FuzzAwaits is made of.
var waitingSteps = []string{
	"await fetch('x/' + msg.value.d);",
	"await 0;",
	"state.n = (state.n ?? 0) + 1; yield State(state);",
	"yield Message({ value: { i: msg.value.i, n: state.n } });",
	"if (msg.value.i % 3 === 1) throw new Error('third');",
	"try { await fetch('fail/' + msg.value.d) } catch (e) { yield Message({ value: e.code }) } finally { state.tried = true }",
	"{ const name = yield* helper(msg.value.d); state.name = name }",
	"for (let i = 0; i < 2; i++) { state.i = i; await fetch('y/' + msg.value.d); yield Message({ value: [i, state.i] }) }",
	"{ const [a, b] = await Promise.all([fetch('x/1').then(r => r.status), (async () => { await 0; return msg.key })()]); yield Message({ value: [a, b] }) }",
	"yield Message({ value: await memo('of ' + msg.key, '1h', async () => { await fetch('x/2'); return msg.key }) });",
	"if (msg.value.i % 4 === 2) return;",
	"yield State({ n: state.n, at: (await (await fetch('z/' + msg.value.d)).json()).name });",
	"if (msg.value.i === 3) await new Promise(() => {});",
	"{ const late = fetch('x/3'); await fetch('y/1'); await late }",
	"var first = first ?? msg.value.i; yield Message({ value: first });",
	"{ const get = async ms => { if (ms % 2) await fetch('x/' + ms); await 0; return ms }; const a = get(msg.value.d); yield Message({ value: [await get(2), await a] }) }",
	"try { if (msg.value.i % 5 === 3) return } finally { state.left = await msg.value.i }",
}

// FuzzAwaits runs bodies that wait, over records of a few keys, and wants the same whether records overlap, run one after
// another, or wait for what is there already. Its arguments are single bytes: texts would be made smaller again and again, since
// what is covered is never twice the same where goroutines are.
func FuzzAwaits(f *testing.F) {
	debug.SetGCPercent(400) // there is little to keep
	const none = 255
	for _, steps := range [][6]uint8{{2, 0, 3, 2, none, none}, {5, 6, 3, none, none, none}, {7, 4, 3, none, none, none}, {8, 9, 1, 11, none, none}, {12, 3, none, none, none, none}, {13, 10, 2, 3, 2, none}} {
		f.Add(steps[0], steps[1], steps[2], steps[3], steps[4], steps[5], uint8(20), uint8(69), uint8(12), uint8(38), uint8(3), uint8(161))
	}
	f.Fuzz(func(t *testing.T, a, b, c, d, e, g, u, v, w, x, y, z uint8) {
		sameHoweverItWaits(t, []uint8{a, b, c, d, e, g}, []uint8{u, v, w, x, y, z})
	})
}

// The same for a few dozens of random bodies, each time that the tests run.
func TestT9RandomBodiesGiveTheSameHoweverTheyWait(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 9))
	for range 30 {
		steps, records := make([]uint8, 1+random.IntN(8)), make([]uint8, 1+random.IntN(12))
		for i := range steps {
			steps[i] = uint8(random.IntN(len(waitingSteps)))
		}
		for i := range records {
			records[i] = uint8(random.IntN(256))
		}
		sameHoweverItWaits(t, steps, records)
	}
}

// sameHoweverItWaits makes a body of the steps, of which numbers that are too large are none, and records, each of one of four
// keys and with the milliseconds that its requests take.
func sameHoweverItWaits(t *testing.T, steps, records []uint8) {
	var body bytes.Buffer
	for _, step := range steps {
		if int(step) < len(waitingSteps) {
			body.WriteString(waitingSteps[step] + "\n")
		}
	}
	body.WriteString("await 0;\n")
	var inputs []input
	for i, r := range records {
		inputs = append(inputs, input{string(rune('a' + r%4)), fmt.Sprintf(`{"i":%d,"d":%d}`, i, r/4)})
	}
	functions := stream.Text{File: "functions", Line: 1, Column: 1, Text: "async function* helper(ms) { const r = await fetch('h/' + ms); yield Message({ value: r.status }); return (await r.json()).name }"}
	compile := func(more string) *Program {
		return spareVMs.compile(t, Source{Body: stream.Text{File: "body", Line: 1, Column: 1, Text: body.String() + more}, Functions: []stream.Text{functions}})
	}
	run := func(p *Program, concurrency int) (result string) {
		synctest.Test(t, func(t *testing.T) {
			s := &server{}
			tr := spareVMs.transform(t, p, Env{Outputs: out, Fetch: s.fetch, Concurrency: concurrency, Timeout: time.Minute})
			store := storeMap{}
			for range 2 {
				b := newBatch(t, store, inputs...)
				b.Fail = func(i int, err error) error {
					result += fmt.Sprintf("failed %d: %s\n", i, showError(err))
					return nil
				}
				if err := tr.Run(t.Context(), b); err != nil {
					t.Fatal(err)
				}
				lines := strings.Split(effects(b), "\n")
				slices.Sort(lines[len(b.Messages):]) // states are in no order
				result += strings.Join(lines, "\n")
				store.apply(b)
			}
		})
		return result
	}
	plain := compile("")
	overlapping := run(plain, DefaultConcurrency)
	if inTurn := run(plain, 1); inTurn != overlapping {
		t.Fatalf("%s\n%v\noverlapping\n%s\none after another\n%s", body.String(), inputs, overlapping, inTurn)
	}
	if slow := run(compile("'constructor'"), DefaultConcurrency); slow != overlapping { // no shortcuts for a script that may make promises
		t.Fatalf("%s\n%v\nat once\n%s\nwaited for\n%s", body.String(), inputs, overlapping, slow)
	}
}

// spareVMs are VMs that run one program after the other: to make one takes longer than what a fuzz target runs in it. The next
// input of a fuzz target often has the same body.
var spareVMs vmPool

type vmPool struct {
	programs map[string]*Program // by body
	spare    []*vm               // the one used last is the last
}

// compile is a program that may have been compiled before.
func (l *vmPool) compile(t *testing.T, s Source) *Program {
	t.Helper()
	if len(l.programs) > 100 {
		l.programs = nil
	}
	p := l.programs[s.Body.Text]
	if p == nil {
		p = mustCompile(t, s)
		if l.programs == nil {
			l.programs = map[string]*Program{}
		}
		l.programs[s.Body.Text] = p
	}
	return p
}

// transform is a transform over a body that waits. Its VM goes back to the pool at the end of the test.
func (l *vmPool) transform(t *testing.T, p *Program, env Env) stream.Transform {
	t.Helper()
	i := slices.IndexFunc(l.spare, func(v *vm) bool { return v.program == p })
	if i < 0 && len(l.spare) < 8 {
		i, l.spare = 0, slices.Insert(l.spare, 0, bareVM())
	}
	i = max(i, 0)
	v := l.spare[i]
	l.spare = slices.Delete(l.spare, i, i+1)
	tr := &overlapping{program: p, env: env, limit: env.Concurrency, states: states{entries: map[string]*stateEntry{}, budget: defaultStateCache}, loop: newLoop(), waiting: map[string][]int{}, failed: map[int]*Error{}}
	if v.program == p {
		env.Memory = NewMemory()
		tr.env, v.env = env, &tr.env
	} else if err := v.load(p, &tr.env); err != nil {
		t.Fatal(err)
	}
	tr.adopt(v)
	tr.states.initial = tr.states.own(v.initial)
	t.Cleanup(func() {
		if tr.vm == v && !v.spent { // and was not replaced
			l.spare = append(l.spare, v)
		}
	})
	return tr
}
