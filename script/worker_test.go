package script

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// workerBodies are bodies that wait for some records and not for others.
var workerBodies = map[string]string{
	"waits for some":       "if (msg.value.ms) await fetch(`${msg.key}/${msg.value.ms}`); await 0; yield Message({ value: msg.value.i })",
	"waits for all":        "const r = await fetch(`${msg.key}/${msg.value.ms + msg.value.i + 1}`); yield Message({ value: [msg.value.i, (await r.json()).name] })",
	"waits twice":          "for (let i = 0; i < msg.value.ms % 3; i++) { yield Message({ value: [msg.value.i, i] }); await fetch(`${msg.key}/${msg.value.ms + i}`) }",
	"state":                "state.list = [...(state.list ?? []), msg.value.i]; yield State(state); if (msg.value.ms) await fetch(`${msg.key}/${msg.value.ms}`); yield Message({ value: state.list })",
	"throws":               "if (msg.value.ms) await fetch(`${msg.key}/${msg.value.ms}`); if (msg.value.i % 3 === 1) throw new Error('no ' + msg.value.i); yield Message({ value: msg.value.i })",
	"rejected":             "yield Message({ value: 0 }); await fetch(msg.value.ms % 2 ? `fail/${msg.value.ms}` : `x/${msg.value.ms + msg.value.i + 1}`); yield Message({ value: msg.value.i })",
	"forgotten":            "if (msg.value.ms % 4 === 1) fetch(`x/${20 + msg.value.i}`); await msg.value.ms; yield Message({ value: msg.value.i })",
	"unhandled":            "if (msg.value.ms % 4 === 1) { fetch(`fail/${msg.value.i * 3 + 1}`); await fetch(`x/${msg.value.ms + 7}`) } yield Message({ value: msg.value.i })",
	"not awaited":          "const p = msg.value.ms ? fetch('x/' + msg.value.ms) : 0; await fetch(`y/${msg.value.ms + msg.value.i * 13 + 1}`); yield Message({ value: [msg.value.i, typeof p] })",
	"asynchronous arrow":   "const get = async ms => { if (ms) await fetch(`${msg.key}/${ms}`); console.log('got', msg.value.i); return ms }; if (msg.value.i % 2) await get(msg.value.ms); yield Message({ value: msg.value.i })",
	"left running":         "const log = async () => { await 0; console.log('later', msg.value.i) }; if (msg.value.i % 2) log(); await msg.value.ms; yield Message({ value: msg.value.i })",
	"then":                 "if (msg.value.ms % 2) fetch('x/' + msg.value.ms).then(r => console.log(msg.value.i, r.status)); await fetch(`y/${msg.value.ms + msg.value.i * 13 + 1}`); yield Message({ value: 1 })",
	"memo":                 "const x = await memo(msg.key, '20ms', async () => (await (await fetch(`${msg.key}/${msg.value.ms + msg.value.i + 1}`)).json()).name); yield Message({ value: [msg.value.i, x] })",
	"returns":              "try { if (msg.value.ms % 3 === 0) return; for (const x of [1, 2]) { await x; if (x > msg.value.ms % 3) return } await fetch(`${msg.key}/${msg.value.ms + msg.value.i + 1}`) } finally { yield Message({ value: msg.value.i }); console.log(await msg.value.i) }",
	"var":                  "var n = n === undefined ? msg.value.i : 'left'; if (msg.value.ms) await fetch(`${msg.key}/${msg.value.ms}`); var f = f ?? (() => n); yield Message({ value: f() })",
	"stuck":                "if (msg.value.ms % 4 === 1) await { then() {} }; await 0; yield Message({ value: msg.value.i })",
	"over time":            "if (msg.value.ms % 8 === 1) await fetch('never'); if (msg.value.ms) await fetch('x/' + msg.value.ms); yield Message({ value: msg.value.i })",
	"helper":               "async function* get(ms) { if (ms) yield Message({ value: await (await fetch(`${msg.key}/${ms}`)).text() }); return ms } console.log(yield* get(msg.value.ms), yield* get(0)); yield Message({ value: msg.value.i })",
	"more than it returns": "const identity = x => x; if (msg.value.ms % 4 === 1) return identity(msg.value.i); yield Message({ value: await msg.value.i })",
}

// T1, T9, T10: whether a call runs one record or many, nobody can tell: not by what is yielded, printed or fetched, nor by what
// fails, nor by when and in which order any of it happens.
func TestT1WorkersDoWhatCallsDo(t *testing.T) {
	for name, body := range workerBodies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(1, uint64(len(name))))
			for round := range 6 {
				var in []input
				for i := range 1 + random.IntN(30) {
					ms := max(0, random.IntN(20_000)-9_000) // no two answers come at once, so that the order is certain
					in = append(in, input{fmt.Sprint("k", random.IntN(6)), fmt.Sprintf(`{"i":%d,"ms":%d}`, i, ms)})
				}
				c := overlapCase{in: in, skip: round != 0, env: Env{Concurrency: []int{0, 1, 3}[round%3], Timeout: time.Minute}}
				run := func(body string, worker bool) string {
					if p := mustCompile(t, Source{Body: bodyText(body)}); p.loops != worker {
						t.Fatalf("the body is run by workers: %t", p.loops)
					}
					c.body = "console.log('begin', msg.value.i); " + body
					if strings.Contains(body, "State(") {
						c.store = storeMap{"k1": `{"list":["stored"]}`}
					}
					return c.run(t).String()
				}
				if got, want := run(body, true), run(body+singleCalls, false); got != want {
					t.Fatalf("%s\nin workers\n%s\nin calls\n%s", body, got, want)
				}
			}
		})
	}
}

// What does not fit into a worker runs in a call for each record, and gives the same.
func TestWorkersRunWhatFits(t *testing.T) {
	module := func(head string) Source {
		return Source{Module: true, Body: stream.Text{File: "t.js", Line: 1, Column: 1, Text: head}}
	}
	for name, c := range map[string]struct {
		source Source
		loops  bool
	}{
		"body":                     {Source{Body: bodyText("const n = msg.value.i; yield Message({ value: await n })")}, true},
		"nothing of the record":    {Source{Body: bodyText("var n = (n ?? -1) + 1; await 0; yield Message({ value: n })")}, true},
		"whole":                    {Source{Body: bodyText("const { value } = msg; yield Message({ value: await value.i })")}, true},
		"awaits nothing":           {Source{Body: bodyText("yield Message({ value: msg.value.i })")}, false},
		"names Promise":            {Source{Body: bodyText("yield Message({ value: await Promise.resolve(msg.value.i) })")}, false},
		"names a constructor":      {Source{Body: bodyText("yield Message({ value: await msg.value.i }); msg.constructor")}, false},
		"asynchronous arrow":       {Source{Body: bodyText("const f = async x => x; yield Message({ value: await f(msg.value.i) })")}, true},
		"returns in a finally":     {Source{Body: bodyText("try { yield Message({ value: await msg.value.i }) } finally { return }")}, false},
		"a function's return":      {Source{Body: bodyText("try { yield Message({ value: await msg.value.i }) } finally { (() => { return })() }")}, true},
		"var of a function":        {Source{Body: bodyText("var f; function f() { return msg.value.i } yield Message({ value: await f() })")}, false},
		"a function twice":         {Source{Body: bodyText("function f() { return 9 } function f() { return msg.value.i } yield Message({ value: await f() })")}, false},
		"var twice":                {Source{Body: bodyText("var n = 9; var n = msg.value.i; yield Message({ value: await n })")}, true},
		"module":                   {module("export async function* transform(msg, state) { yield Message({ value: await msg.value.i }) }"), true},
		"module with names":        {module("export async function* transform(first, own) { yield Message({ value: await first.value.i }); yield State(own) }"), true},
		"module with more":         {module("export async function* transform(msg, state, more) { yield Message({ value: await msg.value.i }); if (more) throw more }"), true},
		"module without":           {module("export async function* transform() { var n = (n ?? -1) + 1; yield Message({ value: await n }) }"), true},
		"module with a pattern":    {module("export async function* transform({ value: { i } }) { yield Message({ value: await i }) }"), false},
		"module with a default":    {module("export async function* transform(msg, more = 1) { yield Message({ value: await msg.value.i }) }"), false},
		"module with a rest":       {module("export async function* transform(msg, ...more) { yield Message({ value: await msg.value.i }) }"), false},
		"module that calls itself": {module("export async function* transform(msg) { if (msg.value) yield* transform(msg.value); else yield Message({ value: await msg.i }) }"), false},
		"module with arguments":    {module("export async function* transform(msg) { function msg2() { return arguments.length } yield Message({ value: await msg.value.i + msg2() }) }"), true},
		"module with its function": {module("export async function* transform(msg) { var msg; yield Message({ value: await msg.value.i }) }"), false},
	} {
		t.Run(name, func(t *testing.T) {
			p := mustCompile(t, c.source)
			if p.loops != c.loops {
				t.Errorf("run by workers: %t", p.loops)
			}
			tr, err := p.NewTransform(Env{Outputs: out})
			if err != nil {
				t.Fatal(err)
			}
			defer tr.Close()
			b := newBatch(t, nil, records("a", "b", "a")...)
			if p.NamesState() {
				b.States = storeMap{}
			}
			if err := tr.Run(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			want := "out a=0\nout b=1\nout a=2\n"
			switch {
			case strings.Contains(name, "nothing of"), strings.Contains(name, "without"):
				want = "out a=0\nout b=0\nout a=0\n"
			}
			expect(t, effects(b), want)
		})
	}
}

// A relay's calls are given config and response too.
func TestWorkersOfARelayKnowItsArguments(t *testing.T) {
	for name, c := range map[string]relayCase{
		"response and cursor": {
			pull: true, cursor: `{"at":7}`, arrivals: [][2]string{{"", `{"i":1}`}, {"", `{"i":2}`}},
			body: "var n = (n ?? 0) + 1; yield Message({ key: config.$key, value: [await msg.value.i, response.status, (await response.json()).next, state.at, n] }); config.$key = 'x'; yield State({ at: msg.value.i })",
			want: "0 de=[1,200,3,7,1]@1000\n1 de=[2,200,3,1,1]@1000\ncursor {\"at\":2}",
		},
		"no response": {
			arrivals: [][2]string{{"a/b", `{"i":1}`}, {"a/c", `{"i":2}`}},
			body:     "yield Message({ value: [await msg.value.i, config.region, msg.levels] }); config.region = 'x'; msg.levels.push('y')",
			want:     "0 a/b=[1,\"DE\",[\"a\",\"b\"]]@1000\n1 a/c=[2,\"DE\",[\"a\",\"c\"]]@1000",
		},
		"module": {
			module: true, arrivals: [][2]string{{"a/b", `{"i":1}`}, {"a/c", `{"i":2}`}},
			body: "export async function* relay(m, c) { yield Message({ value: [await m.value.i, c.region] }); c = null }",
			want: "0 a/b=[1,\"DE\"]@1000\n1 a/c=[2,\"DE\"]@1000",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if p := mustCompile(t, Source{Kind: Relay, Push: !c.pull, Module: c.module, Body: bodyText(c.body)}); !p.loops {
				t.Fatal("not run by workers")
			}
			got, err := c.run(t)
			if err != nil {
				t.Fatal(err)
			}
			expect(t, got, c.want)
		})
	}
}

func (r overlapResult) String() string {
	slices.Sort(r.server.lines)
	return fmt.Sprintf("%s\nprinted\n%s\nfailures\n%s\n%v after %s\n%q", r.effects, r.printed,
		strings.Join(r.failures, "\n"), r.err, r.took, r.server.lines)
}
