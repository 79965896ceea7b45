package script

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// phrases are what bodies are made of. # is a number of their own.
var phrases = []string{
	"state.n += 1;", "state.sum += msg.value.i;", "state.n = (state.n ?? 0) + msg.value.x;", "state.last = msg.value.s;", "state.o = { ...msg.value };",
	"state.list.push(msg.value.i);", "state.list = [...state.list, msg.value.s].slice(-3);", "delete state.last;", "msg.value.x = msg.value.x * 2;",
	"msg.value.s = msg.value.s + '!';", "msg.value.added = state.n;", "msg.value.o.a.push(state.n);", "state.deep = msg.value.o;", "state.big = msg.value.big;",
	"const v# = msg.value; v#.x += 1;", "const { i: i#, ...rest# } = msg.value; yield Message({ value: rest# });", "const s# = state; s#.n = s#.n - 1;",
	"yield State(state);", "yield State({ ...state, k: msg.value.i });", "yield State(null);", "yield Message({ value: msg.value });",
	"yield Message({ value: { ...msg.value, n: state.n } });", "yield Message({ value: state });", "yield Message({ value: { i: msg.value.i, s: msg.value.s } });",
	"yield Message({ key: msg.key + '2', value: msg.value.o });", "yield Message({ value: { ...msg.value.o, n: state.n, sum: state.sum } });",
	"yield Message({ value: State.initial() });", "yield Message({ value: msg.value.big });",
	"if (msg.value.i > 3) yield Message({ value: 'big' });", "if (msg.value.i > 4) { state.n = 100; yield State(state); return; }",
	"if (state.n > 2 && msg.value.s === 'b') { yield State({ n: 0, sum: 0, list: [] }); }", "if (msg.value.i === 2) throw new Error('two');",
	"await fetch(w('x'));", "await fetch(w('x'));", "await 0;", "await Promise.all([fetch(w('x')), fetch(w('y'))]);",
	"try { await fetch(w('fail')) } catch (e) { yield Message({ value: e.code }) } finally { state.f = 1 }",
	"const r# = await (await fetch(w('z'))).json(); yield Message({ value: { ...r#, ...msg.value } });",
	"let c# = 0; for (const e of state.list) { c# += 1; await fetch(w('l')); } yield Message({ value: c# });",
	"var q# = q# ?? msg.value.i; yield Message({ value: q# });", "const f# = () => msg.value.s; await fetch(w('x')); yield Message({ value: f#() });",
	"yield* help(msg.value.i);", "yield* help2(state.n);", "flaky(#);", "await fetch(w('x')); flaky(#);",
	"try { flaky(#) } finally { yield State({ n: -1 }); await fetch(w('f')) }",
	"yield Message({ value: await memo('m' + msg.value.i % 2, '1h', async () => { await fetch(w('x')); return { v: 1 } }) });",
}

// The helpers of bodies: the former share what they close over, so that a call runs one record; the latter do not.
var helpers = []string{`
let waited = 0;
const w = name => name + '/' + ((msg.value.i * 31 + waited++ * 17) % 40);
async function* help(i) { await fetch('x/' + (i * 7 % 5)); yield Message({ value: ['help', i] }); if (i % 2) yield* help2(i); }
async function* help2(i) { if (i > 5) yield* help(0); yield Message({ value: ['help2', i] }); }
`, `
const w = n => n + '/' + msg.value.i;
async function* help(i) { yield Message({ value: ['help', i] }); }
async function* help2(i) { await 0; yield Message({ value: i }); }
`}

// FuzzOverlap makes bodies that await of random phrases. What becomes of records must not depend on how long each waits, how many
// overlap, how values are kept, or whether a record failed at first and ran again.
func FuzzOverlap(f *testing.F) {
	for seed := range 40 {
		f.Add(int64(seed))
	}
	f.Fuzz(func(t *testing.T, seed int64) {
		r := rand.New(rand.NewPCG(uint64(seed), 0)) // the same bodies each time
		body := helpers[r.IntN(len(helpers))]
		for k := range 2 + r.IntN(9) {
			s := strings.ReplaceAll(phrases[r.IntN(len(phrases))], "#", fmt.Sprint(k))
			switch r.IntN(8) {
			case 0:
				s = fmt.Sprintf("if (msg.value.x > %d) { %s }", r.IntN(5), s)
			case 1:
				s = "try { " + s + " } finally { await fetch(w('fin')); state.t = 1; }"
			}
			body += s + "\n"
		}
		var in []input
		for i := range 2 + r.IntN(11) {
			in = append(in, input{string(rune('a' + r.IntN(4))), fmt.Sprintf(`{"i":%d,"s":%q,"x":%d.50,"o":{"a":[%d,{"z":1e2}],"q":null},"big":9007199254740993}`, i, string(rune('a'+i%3)), i%6, i)})
		}
		want := overlapRun{body: body, in: in, concurrency: 1, plain: true, instant: true}.run(t)
		for _, c := range []overlapRun{{concurrency: 64}, {concurrency: 3}, {concurrency: 64, plain: true}, {concurrency: 1}, {concurrency: 64, flaky: true}, {concurrency: 2, plain: true, flaky: true}} {
			if c.flaky && strings.Contains(want, "failed") {
				continue // it would fail for ever
			}
			c.body, c.in = body, in
			if got := c.run(t); got != want {
				t.Fatalf("%+v\n%s\n%v\ngot\n%swant\n%s", c, body, in, got, want)
			}
		}
	})
}

type overlapRun struct {
	body        string
	in          []input
	concurrency int
	plain       bool
	instant     bool // nothing takes time
	flaky       bool // flaky throws at first
}

// run answers what becomes of the records, in two batches.
func (c overlapRun) run(t *testing.T) string {
	t.Helper()
	plainValues = c.plain
	defer func() { plainValues = false }()
	var all strings.Builder
	synctest.Test(t, func(t *testing.T) {
		const flaky = "const flaky = k => { if (%v && memory.get(`${msg.value.i}/${k}`) === null) { memory.set(`${msg.value.i}/${k}`, 1); throw 'flaky' } };\n"
		p := mustCompile(t, Source{Body: stream.Text{File: "f.yaml", Line: 1, Column: 1, Text: fmt.Sprintf(flaky, c.flaky) + c.body}})
		fetch := (&server{}).fetch
		if c.instant {
			fetch = func(_ context.Context, q *FetchRequest) (*FetchResponse, error) {
				name, _, _ := strings.Cut(q.URL, "/")
				if name == "fail" {
					return nil, &FetchError{Code: "connect", Message: "no connection"}
				}
				return &FetchResponse{Status: 200, Headers: http.Header{}, URL: q.URL, Shown: q.URL, Body: io.NopCloser(strings.NewReader(`{"name":"` + name + `"}`))}, nil
			}
		}
		tr, err := p.NewTransform(Env{Stage: "s", Outputs: out, Fetch: fetch, Initial: []byte(`{"n":0,"sum":0,"list":[]}`), Concurrency: c.concurrency, Memory: NewMemory()})
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		store := storeMap{"a": `{"n":3,"sum":2,"list":["q"]}`}
		for _, part := range [][]input{c.in[:len(c.in)/2], c.in[len(c.in)/2:]} {
			b := newBatch(t, store, part...)
			b.Fail = func(i int, _ error) error {
				fmt.Fprintf(&all, "%d failed\n", i)
				return nil
			}
			if c.flaky {
				b.Again = (&again{}).of()
			}
			if err := tr.Run(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			for _, ch := range b.Changes {
				if store[ch.Key] = string(ch.Value); ch.Value == nil {
					delete(store, ch.Key)
				}
			}
			for _, m := range b.Messages {
				fmt.Fprintf(&all, "%d %s=%s\n", m.From, m.Key, m.Value)
			}
			fmt.Fprintln(&all, store)
		}
	})
	return all.String()
}
