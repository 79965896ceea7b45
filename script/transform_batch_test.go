package script

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/dlclark/regexp2/v2"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

func newTransform(t testing.TB, env Env, body string, functions ...string) stream.Transform {
	t.Helper()
	s := Source{Body: stream.Text{File: "f.yaml", Line: 1, Column: 1, Text: body}}
	for _, f := range functions {
		s.Functions = append(s.Functions, stream.Text{File: "f.yaml", Line: 101, Column: 1, Text: f})
	}
	if env.Outputs == nil {
		env.Outputs = out
	}
	tr, err := mustCompile(t, s).NewTransform(env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.Close)
	return tr
}

func (s storeMap) apply(b *stream.Batch) {
	for _, c := range b.Changes {
		if c.Value == nil {
			delete(s, c.Key)
		} else {
			s[c.Key] = string(c.Value)
		}
	}
}

func runBatch(t testing.TB, tr stream.Transform, store storeMap, inputs ...input) string {
	t.Helper()
	b := newBatch(t, store, inputs...)
	if err := tr.Run(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	store.apply(b)
	return effects(b)
}

func expect(t testing.TB, got, want string) {
	t.Helper()
	if strings.TrimSpace(got) != strings.TrimSpace(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestT3LaterRecordsSeeEarlierState(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		tr := newTransform(t, Env{Initial: []byte(`{"n":0}`)}, "state.n += msg.value.by; yield State(state); yield Message({value: state.n})")
		store := storeMap{"b": `{"n":10}`}
		expect(t, runBatch(t, tr, store, input{"a", `{"by":1}`}, input{"b", `{"by":1}`}, input{"a", `{"by":2}`}),
			"out a=1\nout b=11\nout a=3\nstate a={\"n\":3}\nstate b={\"n\":11}")
		expect(t, runBatch(t, tr, store, input{"a", `{"by":0}`}, input{"b", `{"by":5}`}, input{"b", `{"by":-5}`}),
			"out a=3\nout b=16\nout b=11")
		expect(t, runBatch(t, tr, store, input{"a", `{"by":1}`}), "out a=4\nstate a={\"n\":4}")
	})
}

func TestT4StateChangedWithoutYield(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		tr := newTransform(t, Env{Initial: []byte(`{"n":0,"deep":{"a":[1]}}`)},
			"state.n += 1; state.deep.a.push(2); yield Message({value: state}); if (msg.value.keep) { yield State(state); state.n = 99; state.deep.a.push(99) }")
		expect(t, runBatch(t, tr, storeMap{}, input{"k", `{}`}, input{"k", `{"keep":true}`}, input{"k", `{}`}, input{"k", `{}`}), `
out k={"n":1,"deep":{"a":[1,2]}}
out k={"n":1,"deep":{"a":[1,2]}}
out k={"n":2,"deep":{"a":[1,2,2]}}
out k={"n":2,"deep":{"a":[1,2,2]}}
state k={"n":1,"deep":{"a":[1,2]}}`)
	})
}

func TestT4ValuesAreTakenAtTheYield(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		tr := newTransform(t, Env{}, "const s = {...state, a: {b: 1}, v: msg.value.x}; yield State(s); s.a.b = 2; msg.value.x.push(7); yield Message({value: {x: msg.value.x}})")
		expect(t, runBatch(t, tr, storeMap{}, input{"k", `{"x":[1]}`}), "out k={\"x\":[1,7]}\nstate k={\"a\":{\"b\":1},\"v\":[1]}")
	})
}

func TestT5EmptyStateDeletes(t *testing.T) {
	for name, body := range map[string]string{
		"empty object": "yield State({})", "null": "yield State(null)", "nothing": "yield State()", "undefined": "yield State(undefined)",
		"emptied": "for (const k in state) delete state[k]; yield State(state)", "only undefined": "yield State({a: undefined})",
		"set to undefined": "state.n = undefined; yield State(state)",
	} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T) {
				tr := newTransform(t, Env{}, "if (msg.value.set) yield State({n: 1}); else { "+body+" } ")
				store := storeMap{"there": `{"n":1}`}
				expect(t, runBatch(t, tr, store, input{"there", `{}`}, input{"absent", `{}`}, input{"both", `{"set":1}`}, input{"both", `{}`}), "state there=")
				if len(store) != 0 {
					t.Error(store)
				}
				expect(t, runBatch(t, tr, store, input{"there", `{}`}), "")
				expect(t, runBatch(t, tr, store, input{"there", `{"set":1}`}), `state there={"n":1}`)
			})
		})
	}
}

func TestT5DeletedStateBeginsAnew(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		tr := newTransform(t, Env{Initial: []byte(`{"n":5}`)}, "state.n++; yield Message({value: [state.n, State.initial().n]}); yield msg.value.end ? State() : State(state)")
		expect(t, runBatch(t, tr, storeMap{}, input{"k", `{}`}, input{"k", `{"end":1}`}, input{"k", `{}`}),
			"out k=[6,5]\nout k=[7,5]\nout k=[6,5]\nstate k={\"n\":6}")
	})
}

func TestInitialStateIsAFreshCopy(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		tr := newTransform(t, Env{Initial: []byte(`{"list":[]}`)}, "const a = State.initial(); a.list.push(1); state.list.push(2); yield Message({value: [a, State.initial(), state]})")
		want := `out k=[{"list":[1]},{"list":[]},{"list":[2]}]`
		expect(t, runBatch(t, tr, storeMap{}, input{"k", `{}`}, input{"k", `{}`}), want+"\n"+want)
	})
}

func TestStatelessScriptsHaveNoState(t *testing.T) {
	for body, want := range map[string]bool{
		"yield Message({value: msg.value.state})":            false,
		"const {state: s} = msg.value":                       false,
		"yield Message({value: state.n})":                    true,
		"yield State()":                                      true,
		"const f = () => ({state})":                          true,
		"const f = state => state; f(1)":                     false,
		"{ const state = 1; yield Message({value: state}) }": false,
	} {
		if got := mustCompile(t, Source{Body: bodyText(body)}).NamesState(); got != want {
			t.Errorf("%s: NamesState is %v", body, got)
		}
	}
	if !mustCompile(t, Source{Body: bodyText(";"), Functions: []stream.Text{bodyText("const keep = x => State(x)")}}).NamesState() {
		t.Error("functions that name State do not count")
	}
	p := mustCompile(t, Source{Body: bodyText("yield State({})")})
	tr, err := p.NewTransform(Env{})
	if err != nil {
		t.Fatal(err)
	}
	err = tr.Run(context.Background(), newBatch(t, nil, input{"k", `{}`}))
	var e *Error
	if !errors.As(err, &e) || e.Code() != CodeState {
		t.Errorf("a State without states: %v", err)
	}
}

func TestFailedRecordsLeaveNothing(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		tr := newTransform(t, Env{Initial: []byte(`{"n":0}`)}, `
			state.n += 1;
			yield Message({value: state.n});
			yield State(state);
			state.n += 10;
			yield State(state);
			if (msg.value.bad) throw new Error('bad');
			state.n -= 10;
			yield State(state)`)
		store := storeMap{"k": `{"n":7}`}
		b := newBatch(t, store, input{"k", `{}`}, input{"k", `{"bad":1}`}, input{"new", `{"bad":1}`}, input{"k", `{}`}, input{"k", `{"bad":1}`})
		var failed []string
		b.Fail = func(i int, err error) error {
			failed = append(failed, fmt.Sprintf("%d %v", i, err))
			return nil
		}
		if err := tr.Run(context.Background(), b); err != nil {
			t.Fatal(err)
		}
		expect(t, effects(b), "out k=8\nout k=9\nstate k={\"n\":9}")
		expect(t, strings.Join(failed, "\n"), "1 Error: bad (f.yaml:7:29)\n2 Error: bad (f.yaml:7:29)\n4 Error: bad (f.yaml:7:29)")
		if b.Messages[1].From != 3 || b.Changes[0].From != 3 {
			t.Errorf("made by %d and %d, want 3", b.Messages[1].From, b.Changes[0].From)
		}
	})
}

func TestFailEndsTheBatch(t *testing.T) {
	tr := newTransform(t, Env{}, "if (msg.value.bad) throw new Error('bad'); state.n = (state.n ?? 0) + 1; yield State(state)")
	stop := errors.New("stop")
	b := newBatch(t, storeMap{}, input{"k", `{}`}, input{"k", `{"bad":1}`}, input{"k", `{}`})
	b.Fail = func(i int, err error) error { return stop }
	if err := tr.Run(context.Background(), b); !errors.Is(err, stop) {
		t.Fatal(err)
	}
	expect(t, runBatch(t, tr, storeMap{}, input{"k", `{}`}), `state k={"n":1}`)
}

func TestForgetDropsStatesThatDidNotCommit(t *testing.T) {
	tr := newTransform(t, Env{}, "state.n = (state.n ?? 0) + 1; yield State(state)")
	store := storeMap{"k": `{"n":1}`}
	b := newBatch(t, store, input{"k", `{}`})
	if err := tr.Run(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	expect(t, effects(b), `state k={"n":2}`)
	tr.Forget()
	expect(t, runBatch(t, tr, store, input{"k", `{}`}), `state k={"n":2}`)
}

func TestStatesOutliveTheirBatchWithinTheBudget(t *testing.T) {
	// The store is asked again for what was dropped; counting goes on either way.
	tr := newTransform(t, Env{StateCache: 10 * entryOverhead}, "state.n = (state.n ?? 0) + 1; state.name = msg.value.name; yield State(state)")
	store := storeMap{}
	for range 5 {
		var inputs []input
		for i := range 50 {
			inputs = append(inputs, input{fmt.Sprint("k", i), `{"name":"somebody with a long name"}`})
		}
		runBatch(t, tr, store, inputs...)
		if size := tr.(*transform).states.size; size > 10*entryOverhead {
			t.Fatalf("%d bytes kept", size)
		}
	}
	for key, state := range store {
		expect(t, state, `{"n":5,"name":"somebody with a long name"}`)
		_ = key
	}
}

func TestKeptStatesShareNoMemoryWithRecords(t *testing.T) {
	tr := newTransform(t, Env{}, "yield Message({value: state}); state[msg.value.name] = msg.value; state.last = msg.value.name; state.whole = {...msg.value}; yield State(state)")
	store := storeMap{}
	b := newBatch(t, store, input{"k", `{"name":"somebody with a long name","n":[1]}`})
	value := b.Records[0].Value
	if err := tr.Run(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	store.apply(b)
	for i := range value {
		value[i] = '#'
	}
	b.Reset()
	b = newBatch(t, store, input{"k", `{"name":"x"}`})
	if err := tr.Run(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	expect(t, string(b.Messages[0].Value), `{"somebody with a long name":{"name":"somebody with a long name","n":[1]},"last":"somebody with a long name","whole":{"name":"somebody with a long name","n":[1]}}`)
}

func TestCallsShareNothing(t *testing.T) {
	for name, body := range map[string]string{
		"global":           "globalThis.leak = 1",
		"prototype":        "Array.prototype.leak = 1",
		"built-in":         "Math.max = 1",
		"function":         "Math.max.leak = 1",
		"iterator":         "Object.getPrototypeOf([][Symbol.iterator]()).leak = 1",
		"generator":        "Object.getPrototypeOf(function*(){}).leak = 1",
		"constant":         "TABLE.leak = 1",
		"nested":           "TABLE.a[0] = 1",
		"pushed":           "TABLE.a.push(1)",
		"own function":     "helper.leak = 1",
		"class":            "C.leak = 1",
		"method":           "C.prototype.leak = 1",
		"vars":             "Object.assign(vars, { leak: 1 })",
		"nested vars":      "vars.a.b = 2",
		"Message":          "Message.leak = 1",
		"console":          "console.log = 1",
		"Object.prototype": "Object.prototype.toString = 1",
		"proto of vars":    "const v = vars; v.__proto__ = {}",
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTransform(t, Env{Vars: []byte(`{"a":{"b":1}}`)}, body, "const TABLE = {a: [0]}; function helper() {} class C { m() {} }")
			err := tr.Run(context.Background(), newBatch(t, nil, input{"k", `{}`}))
			if err == nil || !strings.Contains(err.Error(), "TypeError") {
				t.Errorf("%s: %v", body, err)
			}
		})
	}
}

func TestSharedValuesThatCannotBeFrozen(t *testing.T) {
	for functions, want := range map[string]string{
		"const make = () => new Map(); const m = make()":        "m is a Map",
		"const make = () => ({a: [new Set]}); const m = make()": "m.a.0 is a Set",
		"const m = Object(new Date(0))":                         "m is a Date",
		"const r = RegExp('x', 'g')":                            "r is a regular expression with the flag g",
		"const m = [1].map(() => new Uint8Array(1))":            "m.0 is a byte array",
	} {
		p := mustCompile(t, Source{Body: bodyText(";"), Functions: []stream.Text{bodyText(functions)}})
		_, err := p.NewTransform(Env{})
		var e *Error
		if !errors.As(err, &e) || e.Code() != CodeShared || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", functions, err, want)
		}
	}
}

func TestTimeoutNamesTheRunningLine(t *testing.T) {
	for name, body := range map[string]string{
		"loop":          "let i = 0;\nfor (;;) i++;",
		"caught":        "let i = 0;\nfor (;;) { try { for (;;) i++ } catch {} finally { i = 0 } }",
		"in a function": "const f = i => {\nfor (;;) i++ }; f(0)",
		"empty":         "let i = 0; i++;\nfor (;;) ;",
		"empty block":   "let i = 0; i++;\nwhile (true) { }",
		"empty do":      "let i = 0; i++;\ndo ; while (true)",
		"a condition":   "const stop = false; String(stop);\nwhile (!stop) { }",
		"after a wait":  "await 0;\nfor (;;) ;",
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTransform(t, Env{Timeout: 30 * time.Millisecond}, "if (msg.value.ok) { yield Message({value: 1}); return } "+body)
			b := newBatch(t, nil, input{"k", `{"ok":1}`}, input{"k", `{}`}, input{"k", `{"ok":1}`})
			var failed []error
			b.Fail = func(i int, err error) error { failed = append(failed, err); return nil }
			if err := tr.Run(context.Background(), b); err != nil {
				t.Fatal(err)
			}
			expect(t, effects(b), "out k=1\nout k=1")
			var e *Error
			if len(failed) != 1 || !errors.As(failed[0], &e) || e.Code() != CodeTimeout {
				t.Fatal(failed)
			}
			if _, line, _ := e.Position(); line != 2 {
				t.Errorf("line %d: %s", line, e.Detail())
			}
		})
	}
}

func TestCancelEndsARun(t *testing.T) {
	tr := newTransform(t, Env{}, "if (msg.value.go) { console.log('running'); for (;;); } yield Message({value: 1})")
	cause := errors.New("the task was revoked")
	ctx, cancel := context.WithCancelCause(context.Background())
	tr.(*transform).env.Console = func(string, string) { cancel(cause) }
	err := tr.Run(ctx, newBatch(t, nil, input{"k", `{"go":1}`}))
	if !errors.Is(err, cause) {
		t.Fatal(err)
	}
	if err := tr.Run(ctx, newBatch(t, nil, input{"k", `{}`})); !errors.Is(err, cause) {
		t.Fatal(err)
	}
	expect(t, runBatch(t, tr, storeMap{}, input{"k", `{}`}), "out k=1")
}

func TestHostileScripts(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"recursion":          {"const f = () => f() + 1; f()", CodeStack + " 1:"},
		"native recursion":   {"const f = () => [1].map(f); f()", CodeStack},
		"getter recursion":   {"const o = { get a() { return this.a } }; o.a", CodeStack},
		"toString recursion": {"const o = { toString() { return `${this}` } }; `${o}`", CodeStack},
		"toJSON recursion":   {"const o = { toJSON() { return [this] } }; JSON.stringify(o)", CodeError + " 1:57 RangeError: JSON.stringify: nested too deep"},
		"deep stringify":     {"let a = []; for (let i = 0; i < 1e5; i++) a = [a]; JSON.stringify(a)", CodeError + " 1:66 RangeError"},
		"deep string":        {"let a = []; for (let i = 0; i < 1e5; i++) a = [a]; String(a)", CodeError + " 1:58 RangeError"},
		"deep flat":          {"let a = []; for (let i = 0; i < 1e5; i++) a = [a]; throw a.flat(Infinity).length", CodeError + " 1:52 thrown: 1"},
		"repeat":             {"'x'.repeat(2 ** 28)", CodeError},
		"padStart":           {"'x'.padStart(2 ** 28)", CodeError},
		"padEnd":             {"'x'.padEnd(2 ** 28, 'ab')", CodeError},
		"join":               {"new Array(2 ** 28).join('xx')", CodeError},
		"join of long ones":  {"const s = 'x'.repeat(1 << 20); Array(100).fill(s).join('')", CodeError},
		"borrowed repeat":    {"String.prototype.repeat.call('x', 1e9)", CodeError},
		"eval":               {"(0, globalThis['eval'])('1')", CodeError},
		"Function":           {"(() => 1).constructor('return 1')()", CodeError},
		"generator function": {"(function*(){}).constructor('yield 1')", CodeError},
		"async function":     {"Object.getPrototypeOf(function*(){}).constructor('yield 1')", CodeError},
		"sparse array":       {"const a = []; a.length = 4e9; yield Message({value: a})", CodeRefused},
		"deep parse":         {"JSON.parse('['.repeat(1e6))", CodeError + " 1:11 RangeError: JSON.parse: nested too deep"},
		"throw nothing":      {"throw undefined", CodeError + " 1:1 thrown: undefined"},
		"throw an object":    {"throw {a: 1}", CodeError + ` 1:1 thrown: {"a":1}`},
		"throw a liar":       {"throw { get message() { throw 1 }, toString() { throw 2 } }", CodeError},
		"nasty error":        {"const e = new Error('x'); Object.defineProperty(e, 'message', { get() { throw e } }); throw e", CodeError},
		"throw a proxy":      {"throw new Proxy(new Error('x'), { get() { throw 1 }, getPrototypeOf() { throw 2 }, ownKeys() { throw 3 } })", CodeError},
		"yield a proxy":      {"yield new Proxy({}, { get() { throw 1 }, getPrototypeOf() { throw 2 } })", CodeYield},
		"proxy as a value":   {"yield Message({ value: new Proxy({}, { ownKeys() { throw new Error('keys') } }) })", CodeError + " 1:"},
		"revoked proxy":      {"const p = Proxy.revocable({}, {}); p.revoke(); yield Message({ value: p.proxy })", CodeError},
		"own cause":          {"const e = new Error('x'); e.cause = e; throw e", CodeError + " 1:11 Error: x"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTransform(t, Env{Timeout: 10 * time.Second}, c.body)
			for range 2 { // the next call finds a VM that works
				err := tr.Run(context.Background(), newBatch(t, nil, input{"k", `{}`}))
				if err == nil || !strings.HasPrefix(showError(err), c.want) {
					t.Errorf("got %s, want %s", showError(err), c.want)
				}
			}
		})
	}
}

func TestErrorsShowStackAndCauses(t *testing.T) {
	tr := newTransform(t, Env{}, "try {\n  check(msg.value)\n} catch (e) {\n  throw new Error('é failed', {cause: e})\n}",
		"function check(v) {\n  return inner(v)\n}\nconst inner = v => { throw new RangeError('too far') }")
	err := tr.Run(context.Background(), newBatch(t, nil, input{"k", `{}`}))
	var e *Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	expect(t, e.Detail(), "Error: é failed\n    at f.yaml:4:9\n  caused by: RangeError: too far (f.yaml:104:28)")
	tr = newTransform(t, Env{}, "check(msg.value)", "function check(v) {\n  return inner(v)\n}\nconst inner = v => { throw new RangeError('too far') }")
	err = tr.Run(context.Background(), newBatch(t, nil, input{"k", `{}`}))
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	expect(t, e.Detail(), "RangeError: too far\n    at inner (f.yaml:104:28)\n    at check (f.yaml:102:15)\n    at f.yaml:1:6")
}

// V2: what a script throws is its own; what the engine says names fields and sizes, never contents.
func TestV2ErrorsHoldNoPayload(t *testing.T) {
	env := Env{Outputs: []*stream.Topic{{Name: "small", Key: stream.String, MaxMessage: 200}}}
	tr := newTransform(t, env, "yield Message({value: msg.value})")
	err := tr.Run(context.Background(), newBatch(t, nil, input{"the-key", `{"secret":"` + strings.Repeat("s", 200) + `"}`}))
	expect(t, showError(err), `record.too_large 1:1 the Message to small with key "the-key" has 302 bytes; the topic takes 200`)
}

func TestMessageDefaultsAndMembers(t *testing.T) {
	topics := []*stream.Topic{
		{Name: "json", Key: stream.JSON}, {Name: "text", Key: stream.String, Value: stream.String}, {Name: "bytes", Key: stream.Bytes, Value: stream.Bytes},
	}
	show := func(b *stream.Batch) string {
		var s strings.Builder
		for _, m := range b.Messages {
			fmt.Fprintf(&s, "%s %q=%q", m.Topic.Name, m.Key, m.Value)
			if m.Key == nil {
				s.WriteString(" nokey")
			}
			if m.Value == nil {
				s.WriteString(" tombstone")
			}
			if m.Partition != stream.AnyPartition {
				fmt.Fprintf(&s, " p%d", m.Partition)
			}
			if m.Timestamp != 1000 {
				fmt.Fprintf(&s, " @%d", m.Timestamp)
			}
			for _, h := range m.Headers {
				fmt.Fprintf(&s, " %s:%q", h.Key, h.Value)
				if h.Value == nil {
					s.WriteString("null")
				}
			}
			s.WriteByte('\n')
		}
		return s.String()
	}
	for name, c := range map[string]struct{ message, want string }{
		"json":                 {"topic: 'json', value: {a: [1, 'é', null]}", `json "\"k\""="{\"a\":[1,\"é\",null]}"`},
		"canonical key":        {"topic: 'json', key: {b: 1, a: [{d: 1, c: 2}]}, value: 1", `json "{\"a\":[{\"c\":2,\"d\":1}],\"b\":1}"="1"`},
		"number key":           {"topic: 'json', key: 5, value: 1", `json "5"="1"`},
		"text":                 {"topic: 'text', value: 'a é'", `text "k"="a é"`},
		"text of a number":     {"topic: 'text', key: 5, value: 5.5", `text "5"="5.5"`},
		"empty text":           {"topic: 'text', key: '', value: ''", `text ""=""`},
		"bytes":                {"topic: 'bytes', key: new Uint8Array([255]), value: new Uint8Array([0, 1]).buffer", `bytes "\xff"="\x00\x01"`},
		"bytes of text":        {"topic: 'bytes', value: 'é'", `bytes "k"="é"`},
		"view":                 {"topic: 'bytes', value: new Uint8Array([1, 2, 3]).subarray(1, 2)", `bytes "k"="\x02"`},
		"tombstone":            {"topic: 'json', value: null", `json "\"k\""="" tombstone`},
		"no key":               {"topic: 'text', key: null, value: 'a'", `text ""="a" nokey`},
		"undefined key":        {"topic: 'text', key: undefined, value: 'a'", `text "k"="a"`},
		"timestamp":            {"topic: 'text', value: 'a', timestamp: 5", `text "k"="a" @5`},
		"date":                 {"topic: 'text', value: 'a', timestamp: new Date(7)", `text "k"="a" @7`},
		"partition":            {"topic: 'text', value: 'a', partition: 3", `text "k"="a" p3`},
		"headers":              {"topic: 'text', value: 'a', headers: {x: 'é', n: 1, z: null, b: new Uint8Array([1]), e: '', u: undefined}", `text "k"="a" x:"é" n:"1" z:""null b:"\x01" e:""`},
		"W3 headers passed on": {"topic: 'text', value: 'a', headers: msg.headers", `text "k"="a" a:"1" b:""null a:"\xff"`},
		"headers read":         {"topic: 'text', value: msg.headers.a + Object.keys(msg.headers), headers: msg.headers", `text "k"="�a,b" a:"1" b:""null a:"\xff"`},
		"headers spread":       {"topic: 'text', value: 'a', headers: {...msg.headers, c: '3'}", `text "k"="a" a:"�" b:""null c:"3"`},
		"headers changed":      {"topic: 'text', value: (msg.headers.c = '3'), headers: msg.headers", `text "k"="3" a:"�" b:""null c:"3"`},
	} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T) {
				for _, body := range []string{"yield Message({" + c.message + "})", "const m = Message({" + c.message + "}); yield m"} {
					tr := newTransform(t, Env{Outputs: topics}, body)
					b := newBatch(t, nil, input{"k", `{}`})
					b.Records[0].Headers = []stream.Header{{Key: "a", Value: []byte("1")}, {Key: "b"}, {Key: "a", Value: []byte("\xff")}}
					if err := tr.Run(context.Background(), b); err != nil {
						t.Fatal(showError(err))
					}
					expect(t, show(b), c.want)
				}
			})
		})
	}
	for name, c := range map[string]struct{ message, want string }{
		"no topic": {"value: 1", CodeTopic}, "object as text": {"topic: 'text', value: {}", CodeRefused}, "object as bytes": {"topic: 'bytes', value: [1]", CodeRefused},
		"object key": {"topic: 'text', key: {}, value: 'a'", CodeRefused}, "headers": {"topic: 'text', value: 'a', headers: 5", CodeMessage},
		"header": {"topic: 'text', value: 'a', headers: {x: {}}", CodeMessage}, "NaN time": {"topic: 'text', value: 'a', timestamp: NaN", CodeMessage},
		"number topic": {"topic: 5, value: 'a'", CodeTopic}, "half partition": {"topic: 'text', value: 'a', partition: 0.5", CodeMessage},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTransform(t, Env{Outputs: topics}, "yield Message({"+c.message+"})")
			err := tr.Run(context.Background(), newBatch(t, nil, input{"k", `{}`}))
			var e *Error
			if !errors.As(err, &e) || e.Code() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestW2InputFormats(t *testing.T) {
	env := Env{Outputs: []*stream.Topic{{Name: "text", Key: stream.String, Value: stream.String}}}
	tr := newTransform(t, env, "yield Message({key: null, value: JSON.stringify([msg.key, msg.value, typeof msg.value, msg.input])})")
	show := func(in stream.Input, key, value []byte) string {
		b := newBatch(t, nil, input{"k", `{}`})
		in.Topic.Name = "in"
		if in.Name == "" {
			in.Name = "in"
		}
		r := &b.Records[0]
		r.Input, r.Key, r.Value, r.Members = &in, key, value, nil
		r.Kind = 0
		if err := tr.Run(context.Background(), b); err != nil {
			t.Fatal(err)
		}
		return string(b.Messages[0].Value)
	}
	text := stream.Topic{Key: stream.String, Value: stream.String}
	bytes := stream.Topic{Key: stream.Bytes, Value: stream.Bytes}
	json := stream.Topic{Key: stream.JSON}
	expect(t, show(stream.Input{Topic: text}, nil, []byte("é")), `[null,"é","string","in"]`)
	expect(t, show(stream.Input{Topic: text, Name: "events"}, []byte("k"), nil), `["k",null,"object","events"]`)
	expect(t, show(stream.Input{Topic: bytes}, []byte{1}, []byte{2, 255}), `[{"0":1},{"0":2,"1":255},"object","in"]`)
	expect(t, show(stream.Input{Topic: json}, []byte(` {"b":1}`), []byte(`[1]`)), `[{"b":1},[1],"object","in"]`)
	expect(t, show(stream.Input{Topic: json}, []byte(`5`), []byte(`"x"`)), `[5,"x","string","in"]`)
}

// Random work on objects gives the same over both representations.
func TestRandomScriptsAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	name := func() string { return []string{"a", "b", "c", "n1", "7", "é"}[r.IntN(6)] }
	expr := func() string {
		return []string{"1", "2.5", "'x'", "null", "undefined", "[1,{q:2}]", "{z:1}", "v." + "a", "v.b", "v.c?.a", "v.n1", "true"}[r.IntN(12)]
	}
	for range 300 {
		var body strings.Builder
		body.WriteString("let v = msg.value; const w = {...v.b, k: 1};\n")
		for range 2 + r.IntN(8) {
			switch r.IntN(9) {
			case 0:
				fmt.Fprintf(&body, "v[%q] = %s;\n", name(), expr())
			case 1:
				fmt.Fprintf(&body, "delete v[%q];\n", name())
			case 2:
				fmt.Fprintf(&body, "v = {...v, %q: %s, %q: %s};\n", name(), expr(), name(), expr())
			case 3:
				fmt.Fprintf(&body, "v = {%q: %s, ...v};\n", name(), expr())
			case 4:
				fmt.Fprintf(&body, "if (typeof v[%q] === 'object' && v[%[1]q]) v[%[1]q].x = %s;\n", name(), expr())
			case 5:
				fmt.Fprintf(&body, "yield Message({value: {...v, ...w, %q: %s}});\n", name(), expr())
			case 6:
				fmt.Fprintf(&body, "yield Message({value: [Object.keys(v), %q in v, v.%s === v.%[2]s, JSON.stringify(v)]});\n", name(), "c")
			case 7:
				fmt.Fprintf(&body, "if (Array.isArray(v.a)) v.a.push(%s);\n", expr())
			case 8:
				fmt.Fprintf(&body, "state.s = v; state[%q] = %s; yield State(state); yield Message({value: state});\n", name(), expr())
			}
		}
		body.WriteString("yield Message({value: v}); yield Message({value: w})")
		in := []string{
			`{"a":[1.0,2],"b":{"x":1e2,"y":{"z":200.0}},"c":{"a":5},"n1":1.50}`,
			`{"7":1,"b":"\u00e9","a":{"7":[],"3":{}},"c":null,"b":2}`,
			`{"é":1,"a":"str","n1":9007199254740993}`,
		}
		var got [2]string
		for i, plain := range []bool{false, true} {
			plainValues = plain
			got[i] = conform{body: body.String(), in: in}.run(t)
		}
		plainValues = false
		if got[0] != got[1] {
			t.Fatalf("%s\nlazy  %s\nplain %s", body.String(), got[0], got[1])
		}
	}
}

// A match that nothing interrupts ends by its own timeout, and the script then by the pending interrupt.
func TestTimeoutOfRegularExpressions(t *testing.T) {
	regexp2.DefaultMatchTimeout = 300 * time.Millisecond
	defer func() { regexp2.DefaultMatchTimeout = longestMatch }()
	tr := newTransform(t, Env{Timeout: 50 * time.Millisecond}, "const hit = /^(?=(a+)+$)a/.test('a'.repeat(40) + '!');\nyield Message({value: hit})")
	err := tr.Run(context.Background(), newBatch(t, nil, input{"k", `{}`}))
	var e *Error
	if !errors.As(err, &e) || e.Code() != CodeTimeout {
		t.Fatal(err)
	}
}
