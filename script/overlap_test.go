package script

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// server answers what a test's scripts fetch: the path says what. /NAME/MS answers NAME after so many milliseconds, /fail/MS
// fails then, /never waits for its context.
type server struct {
	mu      sync.Mutex
	lines   []string
	running map[string]int
	most    int
	perName int
}

func (s *server) note(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line)
}

func (s *server) fetch(ctx context.Context, r *FetchRequest) (*FetchResponse, error) {
	var name string
	var ms int
	_, _ = fmt.Sscanf(strings.ReplaceAll(r.URL, "/", " "), "%s %d", &name, &ms)
	s.mu.Lock()
	if s.running == nil {
		s.running = map[string]int{}
	}
	s.running[name]++
	all := 0
	for _, n := range s.running {
		all += n
	}
	s.most, s.perName = max(s.most, all), max(s.perName, s.running[name])
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.running[name]--
		s.mu.Unlock()
	}()
	wait := time.After(time.Duration(ms) * time.Millisecond)
	if name == "never" {
		wait = nil
	}
	select {
	case <-ctx.Done():
		s.note("gave up " + name)
		return nil, &FetchError{Code: "cancelled", Message: "cancelled"}
	case <-wait:
	}
	if name == "fail" {
		return nil, &FetchError{Code: "connect", Message: "http://host/fail: no connection"}
	}
	return &FetchResponse{Status: 200, Headers: http.Header{"X-Name": {name}}, URL: "http://host/" + name, Shown: "http://host/" + name,
		Elapsed: time.Duration(ms) * time.Millisecond, Body: io.NopCloser(strings.NewReader(`{"name":"` + name + `"}`))}, nil
}

// overlapCase runs one batch under a clock of its own.
type overlapCase struct {
	body  string
	env   Env
	in    []input
	store storeMap
	ctx   context.Context
	skip  bool // failing records are passed over
}

type overlapResult struct {
	effects, printed string
	failures         []string // in the order in which the engine is asked
	err              error
	took             time.Duration
	server           *server
}

func (c overlapCase) run(t *testing.T) (r overlapResult) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { r = c.runNow(t) })
	return r
}

func (c overlapCase) runNow(t *testing.T) (r overlapResult) {
	t.Helper()
	p := mustCompile(t, Source{Body: stream.Text{File: "f.yaml", Line: 1, Column: 1, Text: c.body}})
	r.server = &server{}
	var l log
	env := c.env
	env.Stage, env.Outputs, env.Fetch = "s", out, r.server.fetch
	env.Console = func(_, text string) { l.add("%s", text) }
	tr, err := p.NewTransform(env)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	b := newBatch(t, c.store, c.in...)
	b.Fail = func(i int, err error) error {
		text := fmt.Sprintf("%d: %v", i, err)
		r.failures = append(r.failures, text)
		for _, m := range b.Messages {
			if m.From == i {
				t.Errorf("record %d failed, and its message %s is still there", i, m.Value)
			}
		}
		if c.skip {
			return nil
		}
		return err
	}
	ctx := c.ctx
	if ctx == nil {
		ctx = t.Context()
	}
	began := time.Now()
	r.err = tr.Run(ctx, b)
	r.took = time.Since(began)
	r.effects, r.printed = strings.TrimSpace(effects(b)), l.String()
	return r
}

func records(keys ...string) (list []input) {
	for i, key := range keys {
		list = append(list, input{key, fmt.Sprintf(`{"i":%d}`, i)})
	}
	return list
}

// T1, T9: records of different keys overlap, those of one key never; outputs keep the order of the inputs.
func TestT1KeysOverlapAndOneKeyNeverDoes(t *testing.T) {
	for name, stateful := range map[string]bool{"with state": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			body := "yield Message({ value: ['begin', msg.value.i] }); const r = await fetch(`${msg.key}/100`); yield Message({ value: (await r.json()).name });"
			c := overlapCase{in: records("a", "b", "a", "c", "b", "a")}
			if stateful {
				body += " state.n = (state.n ?? 0) + 1; yield State(state); console.log(msg.key + state.n)"
				c.store = storeMap{}
			}
			c.body = body
			r := c.run(t)
			if r.err != nil || r.took != 300*time.Millisecond || r.server.most != 3 || r.server.perName != 1 {
				t.Errorf("took %s, %d at once, %d of one key: %v", r.took, r.server.most, r.server.perName, r.err)
			}
			want := ""
			for i, key := range []string{"a", "b", "a", "c", "b", "a"} {
				want += fmt.Sprintf("out %s=[\"begin\",%d]\nout %s=%q\n", key, i, key, key)
			}
			if got, _, _ := strings.Cut(r.effects, "\nstate"); got != strings.TrimSpace(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if stateful {
				lines := strings.Split(r.effects[strings.Index(r.effects, "state"):], "\n")
				slices.Sort(lines)
				expect(t, strings.Join(lines, " "), `state a={"n":3} state b={"n":2} state c={"n":1}`)
			}
		})
	}
}

func TestT1RecordsWithoutKeyOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := mustCompile(t, Source{Body: bodyText("await fetch('x/100')")})
		s := &server{}
		tr, err := p.NewTransform(Env{Outputs: out, Fetch: s.fetch})
		if err != nil {
			t.Fatal(err)
		}
		b := newBatch(t, nil, records("a", "a", "a")...)
		for i := range b.Records {
			b.Records[i].Key = nil
		}
		if err := tr.Run(t.Context(), b); err != nil || s.most != 3 {
			t.Error(s.most, err)
		}
	})
}

func TestConcurrencyCapsWhatHasBegun(t *testing.T) {
	keys := make([]string, 200)
	for i := range keys {
		keys[i] = fmt.Sprint("k", i)
	}
	for limit, want := range map[int]int{0: 64, 1: 1, 3: 3, 500: 200} {
		r := overlapCase{body: "await fetch(`${msg.key}/100`)", in: records(keys...), env: Env{Concurrency: limit}}.run(t)
		if r.err != nil || r.server.most != want || r.took != time.Duration((199+want)/want)*100*time.Millisecond {
			t.Errorf("limit %d: %d at once, took %s, %v", limit, r.server.most, r.took, r.err)
		}
	}
}

// A failing record takes back only its own; the engine hears of failures in the order of the records.
func TestFailingRecordsTakeBackOnlyTheirOwn(t *testing.T) {
	body := `state.list = [...(state.list ?? []), msg.value.i]; yield State(state); yield Message({ value: state.list });
await fetch(msg.value.i === 0 ? 'x/300' : 'x/50');
if (msg.value.i % 2 === 0) throw new Error('even ' + msg.value.i);
yield Message({ value: 'end' });`
	in := records("a", "b", "b", "a", "c")
	r := overlapCase{body: body, in: in, store: storeMap{}, skip: true}.run(t)
	if r.err != nil {
		t.Fatal(r.err)
	}
	want := []string{"0: Error: even 0 (f.yaml:3:34)", "2: Error: even 2 (f.yaml:3:34)", "4: Error: even 4 (f.yaml:3:34)"}
	if !slices.Equal(r.failures, want) {
		t.Errorf("%q", r.failures)
	}
	messages, changes, _ := strings.Cut(r.effects, "\nstate ")
	expect(t, messages, "out b=[1]\nout b=\"end\"\nout a=[3]\nout a=\"end\"")
	if !strings.Contains(changes, `b={"list":[1]}`) || !strings.Contains(changes, `a={"list":[3]}`) || strings.Contains(changes, "c=") {
		t.Error(changes)
	}
	r = overlapCase{body: body, in: in, store: storeMap{}}.run(t)
	if r.err == nil || !slices.Equal(r.failures, want[:1]) {
		t.Error(r.err, r.failures)
	}
}

func TestNamedErrorsOfAwait(t *testing.T) {
	for name, c := range map[string]struct{ body, code, err string }{
		"stuck":                 {"await 1;\n  await new Promise(() => {});", CodeStuck, "the script awaits a promise that nothing can settle (f.yaml:2:3)"},
		"stuck after fetch":     {"await fetch('x/5'); await new Promise(() => {});", CodeStuck, "the script awaits a promise that nothing can settle (f.yaml:1:21)"},
		"stuck race":            {"await Promise.race([])", CodeStuck, "the script awaits a promise that nothing can settle (f.yaml:1:1)"},
		"forgotten":             {"const p = 1;\nfetch('x/5');", CodeForgotten, "the script ended before its fetch did (f.yaml:2:6)"},
		"forgotten in a helper": {"const get = () => fetch('x/5');\nget(); yield Message({ value: 1 })", CodeForgotten, "the script ended before its fetch did (f.yaml:1:24)"},
		"forgotten helper":      {"const get = async () => { await fetch('x/5') };\nget(); await 0", CodeForgotten, "the script ended before its fetch did (f.yaml:1:38)"},
		"unhandled":             {"Promise.reject(new Error('no'));", CodeUnhandled, "a promise was rejected and nothing awaits it: Error: no (f.yaml:1:16)"},
		"unhandled later":       {"const f = async () => { await fetch('fail/5') }; f(); await fetch('x/50')", CodeUnhandled, "a promise was rejected and nothing awaits it: FetchError: http://host/fail: no connection"},
		"fetch fails":           {"1;\nawait fetch('fail/5')", CodeError, "FetchError: http://host/fail: no connection (f.yaml:2:12)"},
		"wrong option":          {"await fetch('x', { ['metod']: 'GET' })", CodeFetch, `fetch has no option "metod" (f.yaml:1:12)`},
		"recursion":             {"await fetch('x/5'); const f = () => f(); f()", CodeStack, "calls nest deeper than 1000 (f.yaml:1:38)"},
	} {
		t.Run(name, func(t *testing.T) {
			r := overlapCase{body: c.body, in: records("a")}.run(t)
			var e *Error
			if !errors.As(r.err, &e) || e.Code() != c.code || !strings.HasPrefix(e.Error(), c.err) {
				t.Errorf("got %v, want %s %s", r.err, c.code, c.err)
			}
			if r.effects != "" {
				t.Error(r.effects)
			}
		})
	}
}

// Each of these ends as it should, and the record beside it is not harmed.
func TestHostileBodiesHarmNoOtherKey(t *testing.T) {
	for name, c := range map[string]struct{ body, code string }{
		"endless loop":             {"await fetch('x/1'); for (;;) ;", CodeTimeout},
		"endless loop at once":     {"for (;;) ;", CodeTimeout},
		"endless jobs":             {"for (;;) await 0;", CodeTimeout},
		"endless jobs after fetch": {"await fetch('x/1'); for (;;) await 0;", CodeTimeout},
		"waits too long":           {"await fetch('never');", CodeTimeout},
		"catches the timeout":      {"for (;;) { try { await fetch('never') } catch {} finally { console.log('finally') } }", CodeTimeout},
		"recursion":                {"await 0; const f = () => f(); f();", CodeStack},
		"never settles":            {"try { await new Promise(() => {}) } catch { console.log('caught') }", CodeStuck},
		"catches what is stuck":    {"for (;;) { await new Promise(() => {}).catch(() => 1) }", CodeStuck},
		"thenable that lies":       {"await { then() {} }", CodeStuck},
		"throwing then":            {"await { get then() { throw new Error('no') } }", CodeError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := "if (msg.key === 'bad') { " + c.body + " }\nawait fetch('x/20'); await fetch('x/20'); yield Message({ value: msg.value.i })"
			r := overlapCase{body: body, in: records("a", "bad", "b", "bad", "c"), env: Env{Timeout: time.Second}, skip: true}.runNow(t)
			if r.err != nil || len(r.failures) != 2 {
				t.Fatal(r.err, r.failures)
			}
			expect(t, r.effects, "out a=0\nout b=2\nout c=4")
			if r.printed != "" {
				t.Error("printed", r.printed)
			}
		})
	}
}

// What a Promise.race, any or all that is settled has left under way ends with the body: it is no forgotten await.
func TestLosersEndWithTheBody(t *testing.T) {
	for name, c := range map[string]struct{ body, effects, failure string }{
		"race":              {"yield Message({ value: (await Promise.race([fetch('x/10'), fetch('never')])).status })", "out a=200", ""},
		"race, then on":     {"await Promise.race([fetch('x/10'), fetch('fail/50')]); await fetch('x/30'); yield Message({ value: 1 })", "out a=1", ""},
		"any":               {"yield Message({ value: (await Promise.any([fetch('fail/5'), fetch('x/10'), fetch('never')])).status })", "out a=200", ""},
		"all that rejected": {"try { await Promise.all([fetch('fail/10'), fetch('never')]) } catch (e) { yield Message({ value: e.code }) }", `out a="connect"`, ""},
		"helpers":           {"const get = async what => { try { return await fetch(what) } finally { console.log('left', what); await fetch('x/1') } }; try { await Promise.all([get('fail/10'), get('never')]) } catch (e) { yield Message({ value: e.code }) }", `out a="connect"`, ""},
		"one in the other":  {"await Promise.race([Promise.all([fetch('never'), fetch('x/10')]), fetch('x/20')]); yield Message({ value: 1 })", "out a=1", ""},
		"throws":            {"await Promise.race([fetch('x/10'), fetch('never')]); yield Message({ value: 1 }); throw new Error('no')", "", "0: Error: no"},
		"forgotten":         {"Promise.race([fetch('x/10'), fetch('x/20')]); yield Message({ value: 1 })", "", "0: the script ended before its fetch did (f.yaml:1:20)"},
		"forgotten helper":  {"const get = async () => { await Promise.all([fetch('x/10'), fetch('x/20')]) }; get(); yield Message({ value: 1 })", "", "0: the script ended before its fetch did (f.yaml:1:51)"},
		"won and forgotten": {"await Promise.race([fetch('x/10'), fetch('x/5')]); fetch('x/20'); await fetch('x/10'); yield Message({ value: 1 })", "", "0: the script ended before its fetch did (f.yaml:1:57)"},
	} {
		t.Run(name, func(t *testing.T) {
			r := overlapCase{body: c.body, in: records("a"), skip: true, env: Env{Timeout: time.Second}}.run(t)
			if r.err != nil || r.took >= time.Second {
				t.Error(r.err, r.took)
			}
			expect(t, r.effects, c.effects)
			if got := strings.Join(r.failures, "; "); !strings.HasPrefix(got, c.failure) || (got == "") != (c.failure == "") {
				t.Errorf("failures %s", got)
			}
			if c.failure == "" && strings.Contains(c.body, "never") && !slices.Contains(r.server.lines, "gave up never") {
				t.Errorf("the request is still there: %s", r.server.lines)
			}
			if name == "helpers" {
				expect(t, r.printed, "left fail/10\nleft never")
			}
		})
	}
}

// An answer that came in time counts, though others ran for longer than that before it could be looked at.
func TestAnswersInTimeCount(t *testing.T) {
	body := "if (msg.key !== 'a') log.info('runs'); await fetch('x/50'); yield Message({ value: msg.value.i })"
	runs := func(string, string, []Field) { <-time.After(400 * time.Millisecond) }
	r := overlapCase{body: body, in: records("a", "b", "c", "d"), env: Env{Timeout: time.Second, Log: runs}}.run(t)
	if r.err != nil || r.took <= time.Second {
		t.Error(r.err, r.took)
	}
	expect(t, r.effects, "out a=0\nout b=1\nout c=2\nout d=3")
}

func TestTimeoutWhileWaitingNamesTheLine(t *testing.T) {
	r := overlapCase{body: "1;\n  await fetch('never')", in: records("a"), env: Env{Timeout: time.Minute}}.run(t)
	var e *Error
	if !errors.As(r.err, &e) || e.Code() != CodeTimeout || e.Error() != "the script ran longer than 1m0s (f.yaml:2:3)" || r.took != time.Minute {
		t.Error(r.err, r.took)
	}
	if !slices.Equal(r.server.lines, []string{"gave up never"}) {
		t.Error(r.server.lines)
	}
}

// What a body does not have to wait for is not waited for, and nobody can tell: what runs beside it runs in the order that
// JavaScript says.
func TestAwaitOfWhatIsThereKeepsTheOrder(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"asynchronous function":  {"const f = async () => { console.log(1); await 0; console.log(3); await 0; console.log(5) }; const p = f(); console.log(2); await 0; console.log(4); await p; console.log(6)", "1 2 3 4 5 6"},
		"asynchronous method":    {"const o = { async f() { await 0; console.log(2) } }; o.f(); console.log(1); await 0; console.log(3)", "1 2 3"},
		"then":                   {"const r = await fetch('x/1'); r.json().then(() => console.log(2)).then(() => console.log(4)); console.log(1); await 0; console.log(3); await 0; console.log(5)", "1 2 3 4 5"},
		"catch":                  {"const r = await fetch('x/1'); r.json().finally(() => console.log(2)); console.log(1); await 0; console.log(3)", "1 2 3"},
		"thenable":               {"await { then(f) { console.log(1); f() } }; console.log(2); await { get then() { console.log(3) } }; console.log(4)", "1 2 3 4"},
		"promise made":           {"new Promise(f => f({ then(g) { console.log(2); g() } })); console.log(1); await 0; console.log(3)", "1 2 3"},
		"promise made elsewhere": {"const p = fetch('x/1'); await p; new p.constructor(f => f({ then(g) { console.log(2); g() } })); console.log(1); await 0; console.log(3)", "1 2 3"},
		"helper":                 {"async function* g() { console.log(1); await 0; console.log(2); yield Message({ value: await 1 }) } yield* g(); console.log(3)", "1 2 3"},
		"values":                 {"const r = await fetch('x/1'); console.log(await r.text() === await (await r).text(), await null, await undefined, await [1], (await { a: await 'b' }).a)", `true null undefined [1] b`},
		"a promise twice":        {"const p = fetch('x/1'); await p; console.log((await p) === (await p), (await p).status)", "true 200"},
		"rejected":               {"const p = fetch('fail/1'); for (let i = 0; i < 2; i++) try { await p } catch (e) { console.log(e.code) }", "connect connect"},
		"in a finally":           {"try { throw 1 } catch (e) { console.log(await e) } finally { console.log(await 2) }", "1 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := overlapCase{body: c.body, in: records("a")}.run(t)
			if got := strings.ReplaceAll(r.printed, "\n", " "); r.err != nil || got != c.want {
				t.Errorf("%v: %s, want %s", r.err, got, c.want)
			}
		})
	}
}

// P7: when the batch is given up, finally blocks run, no catch takes the cancel, and no request is left.
func TestP7CancelOfWaitingCalls(t *testing.T) {
	cause := errors.New("revoked")
	for name, body := range map[string]string{
		"plain":        "try { await fetch('never'); console.log('on') } catch { console.log('caught') } finally { console.log('finally') } console.log('on')",
		"promise":      "try { await fetch('never').catch(() => { }); await 0; console.log('on') } finally { console.log('finally') }",
		"all":          "try { await Promise.allSettled([fetch('never'), fetch('never')]); await 0; console.log('on') } catch { console.log('caught') } finally { console.log('finally') }",
		"helper":       "async function get() { try { await fetch('never') } catch (e) { console.log('caught') } } try { await get(); console.log('on') } finally { console.log('finally') }",
		"yield helper": "async function* get() { await fetch('never') } try { yield* get(); console.log('on') } catch { console.log('caught') } finally { console.log('finally') }",
		"own promise":  "try { await Promise.race([new Promise(() => {}), fetch('never')]) } catch { console.log('caught') } finally { console.log('finally') }",
		"yields":       "for (;;) { try { await fetch('never') } catch { console.log('caught') } finally { console.log('finally'); yield Message({ value: 1 }); console.log('on') } }",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(cause) })
				r := overlapCase{body: body, in: records("a", "b"), ctx: ctx}.runNow(t)
				if !errors.Is(r.err, cause) || r.printed != "finally\nfinally" || r.took != time.Second {
					t.Error(r.err, r.printed, r.took)
				}
				if len(r.server.lines) < 2 {
					t.Error(r.server.lines)
				}
			})
		})
	}
}

func TestRunsAfterAFailedRunAreClean(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := mustCompile(t, Source{Body: bodyText("state.n = (state.n ?? 0) + 1; yield State(state); await fetch(msg.value.url); yield Message({ value: state.n })")})
		s := &server{}
		tr, err := p.NewTransform(Env{Outputs: out, Fetch: s.fetch})
		if err != nil {
			t.Fatal(err)
		}
		store := storeMap{}
		if err := tr.Run(t.Context(), newBatch(t, store, input{"a", `{"url":"x/5"}`}, input{"b", `{"url":"fail/9"}`}, input{"a", `{"url":"x/100"}`})); err == nil {
			t.Fatal("no failure")
		}
		b := newBatch(t, store, input{"a", `{"url":"x/5"}`}, input{"a", `{"url":"x/5"}`})
		if err := tr.Run(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		expect(t, effects(b), "out a=1\nout a=2\nstate a={\"n\":2}\n")
	})
}

// Where a promise, or what came of one, stands in place of its value, the hint says so.
func TestForgottenAwaitIsHintedAt(t *testing.T) {
	for body, want := range map[string]string{
		"const r = await fetch('x/5'); yield Message({ value: r.json() })":               "the value cannot be written as JSON: it is a Promise → " + awaitIt,
		"const r = await fetch('x/5'); yield Message({ value: { a: [r.json()] } })":      "the value's a[0] cannot be written as JSON: it is a Promise → " + awaitIt,
		"yield* [1].map(async x => Message({ value: x }))":                               "a Promise was yielded, which is neither a Message nor a State → " + awaitIt,
		"yield Promise.resolve(Message({ value: 1 }))":                                   "a Promise was yielded, which is neither a Message nor a State → " + awaitIt,
		"const r = fetch('x/5'); const { status } = r; yield Message({ value: status })": "the Message has no value → is a name misspelt, or a promise not awaited? value: null is a tombstone",
	} {
		r := overlapCase{body: body, in: records("a")}.run(t)
		var e *Error
		if !errors.As(r.err, &e) || !strings.HasPrefix(e.Error(), strings.Split(want, " → ")[0]) || !strings.HasSuffix(want, e.Hint()) || e.Hint() == "" {
			t.Errorf("%s: %v", body, r.err)
		}
	}
}
