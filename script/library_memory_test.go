package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

func TestMemoryIsSharedByTheTasksOfAStageAndCopied(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		env := Env{Memory: NewMemory()}
		set := newTransform(t, env, "const v = { list: [1], id: msg.value.id }; memory.set('a', v); v.list.push(2); memory.get('a').list.push(3)")
		get := newTransform(t, env, "yield Message({ value: memory.get('a') })")
		runBatch(t, set, nil, input{"k", `{"id":9007199254740993}`})
		expect(t, runBatch(t, get, nil, input{"k", `{}`}), `out k={"list":[1],"id":9007199254740993}`)
		other := newTransform(t, Env{Memory: NewMemory()}, "yield Message({ value: [memory.get('a')] })")
		expect(t, runBatch(t, other, nil, input{"k", `{}`}), `out k=[null]`)
	})
}

func TestMemoryEndsWithItsTimeToLive(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	env := Env{Now: func() time.Time { return now }}
	tr := newTransform(t, env, `
		if (msg.value.set) { memory.set('ms', 1, 1000); memory.set('text', 2, '2s'); memory.set('ever', 3) }
		if (msg.value.drop) memory.set('ever', undefined);
		yield Message({ value: ['ms', 'text', 'ever'].map((k) => memory.get(k)) });`)
	expect(t, runBatch(t, tr, nil, input{"k", `{"set":true}`}), "out k=[1,2,3]")
	now = now.Add(999 * time.Millisecond)
	expect(t, runBatch(t, tr, nil, input{"k", `{}`}), "out k=[1,2,3]")
	now = now.Add(time.Millisecond)
	expect(t, runBatch(t, tr, nil, input{"k", `{}`}), "out k=[null,2,3]")
	now = now.Add(time.Hour)
	expect(t, runBatch(t, tr, nil, input{"k", `{"drop":true}`}), "out k=[null,null,null]")
}

func TestMemoryIsBounded(t *testing.T) {
	m, now := NewMemory(), time.Now()
	for i := range 100 {
		m.set(&remembered{key: fmt.Sprint(i), text: make([]byte, 1<<20)}, 0, now)
		if m.get("0", now) == nil {
			t.Fatal("what is used most is gone")
		}
	}
	if m.size > memoryBytes || m.size < memoryBytes*9/10 {
		t.Errorf("%d bytes are kept", m.size)
	}
	if m.get("1", now) != nil {
		t.Error("what was used least is still there")
	}
	for i := range memoryEntries + 10 {
		m.set(&remembered{key: fmt.Sprint(i)}, 0, now)
	}
	if len(m.entries) != memoryEntries || m.recent.Len() != memoryEntries {
		t.Errorf("%d entries are kept", len(m.entries))
	}
	expressions(t, `{}`, map[string]string{
		`thrown(() => memory.set('a', 'x'.repeat(9e6)))`:     `"true RangeError too_large memory.set: the value has 9000002 bytes; 8388608 are the most"`,
		`thrown(() => memory.get('a'.repeat(2000)))`:         `"true TypeError argument memory.get: the key is a text of 2000 bytes; one of at most 1024 is expected"`,
		`thrown(() => memory.set('a', { x: NaN }))`:          `"true Error value.refused the value's x cannot be written as JSON: it is NaN"`,
		`thrown(() => memory.get(1))`:                        `"true TypeError argument memory.get: the key is a number; a text is expected"`,
		`thrown(() => memory.set('a', 1, -1)).slice(0, 55)`:  `"true TypeError argument memory.set: the time to live is"`,
		`thrown(() => memory.set('a', 1, '5')).slice(0, 55)`: `"true TypeError argument memory.set: the time to live is"`,
	})
}

func TestMemoComputesOnceAndKeepsNoFailure(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		now := time.UnixMilli(1_000_000)
		var printed []string
		env := Env{Now: func() time.Time { return now }, Console: func(_, text string) { printed = append(printed, text) }}
		tr := newTransform(t, env, `
			const compute = () => { console.log('computes'); if (msg.value.fail) throw new Error('down'); return { n: [1] } };
			try { const v = memo('k', '1m', compute); v.n.push(2); yield Message({ value: [v, memo('k', '1m', compute)] }) }
			catch (e) { yield Message({ value: e.message }) }`)
		expect(t, runBatch(t, tr, nil, input{"k", `{"fail":true}`}, input{"k", `{}`}, input{"k", `{"fail":true}`}),
			"out k=\"down\"\nout k=[{\"n\":[1,2]},{\"n\":[1]}]\nout k=[{\"n\":[1,2]},{\"n\":[1]}]")
		if len(printed) != 2 {
			t.Errorf("it computed %d times, want 2", len(printed))
		}
		now = now.Add(time.Minute)
		expect(t, runBatch(t, tr, nil, input{"k", `{"fail":true}`}), `out k="down"`)
	})
	expressions(t, `{}`, map[string]string{
		`memo('a', 1000, () => undefined) === undefined`:           `true`,
		`memo('a', 1000, () => memo('b', 1000, () => 1) + 1)`:      `2`,
		`memo('c', 1000, () => memo('c', 1000, () => 1) + 1)`:      `2`,
		`thrown(() => memo('d', 1000, 5))`:                         `"true TypeError argument memo: the third argument is a number; a function is expected"`,
		`thrown(() => memo('d', 1000, () => NaN)).includes('NaN')`: `true`,
	})
}

// Of many tasks that ask for one key at once, one computes; when it fails, the next does.
func TestMemoFliesOnceAcrossTasks(t *testing.T) {
	const tasks = 4
	var computes atomic.Int32
	entered := make(chan struct{}, tasks)
	release := make(chan struct{})
	env := Env{Memory: NewMemory(), Console: func(string, string) {
		computes.Add(1)
		entered <- struct{}{}
		<-release
	}}
	results := make([]string, tasks)
	var done sync.WaitGroup
	start := func(i int, body string) {
		tr := newTransform(t, env, body)
		b := newBatch(t, nil, input{"k", `{}`})
		done.Go(func() {
			if err := tr.Run(context.Background(), b); err != nil {
				results[i] = err.Error()
			} else {
				results[i] = effects(b)
			}
		})
	}
	start(0, "memo('k', 1000, () => { console.log('fails'); throw new Error('down') })")
	<-entered
	for i := 1; i < tasks; i++ {
		start(i, "yield Message({ value: memo('k', 1e9, () => { console.log('computes'); return 7 }) })")
	}
	for waiting := 0; waiting < tasks-1; {
		env.Memory.mu.Lock()
		waiting = len(env.Memory.waiting)
		env.Memory.mu.Unlock()
	}
	release <- struct{}{}
	<-entered
	release <- struct{}{}
	done.Wait()
	if n := computes.Load(); n != 2 {
		t.Errorf("%d tasks computed, want 2", n)
	}
	if !strings.Contains(results[0], "down") {
		t.Errorf("the first ended with %s", results[0])
	}
	for _, r := range results[1:] {
		expect(t, r, "out k=7")
	}
}

func TestMemoOfTwoTasksThatNeedEachOtherEnds(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	env := Env{Memory: NewMemory(), Console: func(string, string) {
		both.Done()
		both.Wait()
	}}
	body := func(own, other string) string {
		return fmt.Sprintf("yield Message({ value: memo('%s', 1e9, () => { console.log('x'); return 1 + memo('%s', 1e9, () => 1) }) })", own, other)
	}
	var done sync.WaitGroup
	for _, keys := range [][2]string{{"a", "b"}, {"b", "a"}} {
		tr := newTransform(t, env, body(keys[0], keys[1]))
		b := newBatch(t, nil, input{"k", `{}`})
		done.Go(func() {
			if err := tr.Run(context.Background(), b); err != nil {
				t.Error(err)
			}
			if len(b.Messages) != 1 {
				t.Errorf("%d messages", len(b.Messages))
			}
		})
	}
	done.Wait()
}

func TestMemoOfAnInterruptedCallLetsOthersCompute(t *testing.T) {
	env := Env{Memory: NewMemory(), Timeout: 50 * time.Millisecond}
	tr := newTransform(t, env, "yield Message({ value: memo('k', 1e9, () => { if (msg.value.loop) for (;;); return 1 }) })")
	b := newBatch(t, nil, input{"k", `{"loop":true}`}, input{"k", `{}`})
	b.Fail = func(int, error) error { return nil }
	if err := tr.Run(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	expect(t, effects(b), "out k=1")
}

// Of many calls that ask for one key at once, one computes, and none blocks the others; when it fails, the next computes.
func TestMemoOfAFunctionThatWaits(t *testing.T) {
	get := "async () => { console.log('computes'); return (await (await fetch(msg.value.url ?? 'x/100')).json()).name }"
	for name, c := range map[string]struct {
		body          string
		in            []input
		want, printed string
		failures      string
	}{
		"flies once":          {"yield Message({ value: await memo('k', '1h', " + get + ") })", records("a", "b", "c"), "out a=\"x\"\nout b=\"x\"\nout c=\"x\"", "computes", ""},
		"stays a promise":     {"yield Message({ value: await memo('k', '1h', " + get + ").then(name => name + '!') })", records("a", "a"), "out a=\"x!\"\nout a=\"x!\"", "computes", ""},
		"failure":             {"yield Message({ value: await memo('k', '1h', " + get + ") })", []input{{"a", `{"url":"fail/50"}`}, {"b", `{}`}, {"c", `{}`}}, "out b=\"x\"\nout c=\"x\"", "computes\ncomputes", "0: FetchError: http://host/fail: no connection (f.yaml:1:111)"},
		"caught":              {"try { await memo('k', '1h', " + get + ") } catch (e) { yield Message({ value: e.code }) }", []input{{"a", `{"url":"fail/50"}`}}, `out a="connect"`, "computes", ""},
		"beside each other":   {"const f = " + get + "; yield Message({ value: await Promise.all([memo('k', '1h', f), memo('k', '1h', f)]) })", records("a"), `out a=["x","x"]`, "computes", ""},
		"copies":              {"const f = async () => [await 1]; const one = await memo('k', '1h', f); one.push(2); yield Message({ value: [one, await memo('k', '1h', f)] })", records("a"), "out a=[[1,2],[1]]", "", ""},
		"not asynchronous":    {"const v = memo('k', '1h', () => ({ n: 1 })); await fetch('x/1'); yield Message({ value: v.n })", records("a", "b"), "out a=1\nout b=1", "", ""},
		"needs another":       {"const f = async () => 1 + await memo('l', '1h', async () => (await fetch('x/10')).status); yield Message({ value: await memo('k', '1h', f) })", records("a", "b"), "out a=201\nout b=201", "", ""},
		"needs itself":        {"await memo('k', '1h', async () => { await 0; return await memo('k', '1h', async () => 1) })", records("a"), "", "", "0: the script awaits a promise that nothing can settle (f.yaml:1:53)"},
		"need each other":     {"const [p, q] = msg.key === 'a' ? ['p', 'q'] : ['q', 'p']; yield Message({ value: await memo(p, '1h', async () => { await fetch(msg.key === 'a' ? 'x/10' : 'x/20'); return p + await memo(q, '1h', async () => q) }) })", records("a", "b"), "out a=\"pqp\"\nout b=\"qp\"", "", ""},
		"takes too long":      {"yield Message({ value: await memo('k', '1h', async () => (await fetch(msg.value.url ?? 'x/5')).status) })", []input{{"a", `{"url":"never"}`}, {"b", `{}`}}, "", "", "0: the script ran longer than 1s (f.yaml:1:24)\n1: the script ran longer than 1s (f.yaml:1:24)"},
		"cannot be kept":      {"await memo('k', '1h', async () => new Map())", records("a"), "", "", "0: the value cannot be written as JSON: it is a Map (f.yaml:1:1)"},
		"given up by the end": {"if (msg.key === 'a') { memo('k', '1h', async () => (await fetch('x/100')).status); return } yield Message({ value: await memo('k', '1h', async () => 'b') })", records("a", "b"), `out b="b"`, "", "0: the script ended before its fetch did (f.yaml:1:64)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := overlapCase{body: c.body, in: c.in, env: Env{Timeout: time.Second}, skip: true}.run(t)
			if r.err != nil || r.printed != c.printed || strings.Join(r.failures, "\n") != c.failures {
				t.Errorf("%v\nprinted %s\nfailed %q", r.err, r.printed, r.failures)
			}
			expect(t, r.effects, c.want)
		})
	}
}

// Tasks share a flight too: while one waits for a request, the other neither asks nor stands still.
func TestMemoOfAFunctionThatWaitsFliesOnceAcrossTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, s := NewMemory(), &server{}
		var asked atomic.Int32
		var tasks sync.WaitGroup
		for i := range 2 {
			env := Env{Memory: memory, Fetch: s.fetch, Console: func(string, string) { asked.Add(1) }}
			tr := newTransform(t, env, "if (msg.key === 'other') { await fetch('y/10'); yield Message({ value: Date.now() }) } else yield Message({ value: await memo('k', '1h', async () => { console.log('asks'); return (await fetch('x/100')).status }) })")
			b := newBatch(t, nil, input{"k", `{}`}, input{"other", `{}`})
			tasks.Go(func() {
				if err := tr.Run(t.Context(), b); err != nil {
					t.Error(i, err)
				}
				expect(t, effects(b), "out k=200\nout other=946684800010")
			})
		}
		tasks.Wait()
		if asked.Load() != 1 {
			t.Errorf("%d tasks asked", asked.Load())
		}
	})
}

// A task that is to stop does not wait for another that computes.
func TestP7MemoOfAnotherTaskIsNotWaitedForWhenTheTaskStops(t *testing.T) {
	memory := NewMemory()
	entered, release := make(chan struct{}), make(chan struct{})
	first := newTransform(t, Env{Memory: memory, Console: func(string, string) { close(entered); <-release }}, "memo('k', 1000, () => console.log('computes'))")
	var done sync.WaitGroup
	done.Go(func() { _ = first.Run(context.Background(), newBatch(t, nil, input{"k", `{}`})) })
	<-entered
	second := newTransform(t, Env{Memory: memory}, "memo('k', 1000, () => 1)")
	cause := errors.New("revoked")
	ctx, cancel := context.WithCancelCause(context.Background())
	b := newBatch(t, nil, input{"k", `{}`})
	done.Go(func() {
		if err := second.Run(ctx, b); !errors.Is(err, cause) {
			t.Error(err)
		}
		close(release)
	})
	for waiting := 0; waiting == 0; {
		memory.mu.Lock()
		waiting = len(memory.waiting)
		memory.mu.Unlock()
	}
	cancel(cause)
	done.Wait()
	if len(memory.waiting)+len(memory.flights) != 0 {
		t.Error(memory.waiting, memory.flights)
	}
}

func FuzzLibraryTexts(f *testing.F) {
	for _, seed := range []string{"https://user@h:1/a?b=c#d", "a,b\n\"1\",2", "2026-01-01T00:00:00Z", "%Y", "\x00\xff", "file:///C|/x", "https://[::1]/", "http://ex%41mple/", "xn--", "data:,a"} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		body := `const all = [];
			for (const f of [() => new URL(msg.value.a), () => new URL(msg.value.a, msg.value.b), () => csv.parse(msg.value.a), () => time.parse(msg.value.a, msg.value.b), () => time.format(0, msg.value.b),
				() => time.parse(msg.value.a), () => num(msg.value.a), () => new URLSearchParams(msg.value.a).toString(), () => base64.decode(msg.value.a), () => gunzip(msg.value.a), () => json.parse(msg.value.a),
				() => { const u = new URL(msg.value.a); for (const p of ['protocol', 'username', 'host', 'port', 'pathname', 'search', 'hash']) u[p] = msg.value.b; return u.href }]) {
				try { f() } catch (e) { if (!(e instanceof Error) || typeof e.code !== 'string') all.push(String(e)) }
			}
			yield Message({ value: all });`
		e := encodeJSON(t, map[string]string{"a": a, "b": b})
		tr, err := mustCompile(t, Source{Body: stream.Text{Text: body}}).NewTransform(Env{Outputs: out})
		if err != nil {
			t.Fatal(err)
		}
		expect(t, runBatch(t, tr, nil, input{"k", e}), "out k=[]")
	})
}

func encodeJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
