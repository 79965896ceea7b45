package script

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// log is the ordered list of a poll's effects.
type log struct {
	mu    sync.Mutex
	lines []string
}

func (l *log) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *log) String() string { return strings.Join(l.lines, "\n") }

func (l *log) page(page *stream.Page) {
	var s strings.Builder
	for _, m := range page.Messages {
		fmt.Fprintf(&s, " %s=%s", m.Key, m.Value)
	}
	if page.Moved {
		fmt.Fprintf(&s, " cursor=%s", page.Cursor)
	}
	l.add("commit%s", s.String())
}

type pollCase struct {
	body    string
	config  string
	cursor  string
	env     Env
	commit  func(n int) error // the answer to the nth commit
	ctx     context.Context
	effects string
	err     string
}

// check runs the case, and compares what came of it with its effects and its err.
func (c pollCase) check(t *testing.T) {
	t.Helper()
	effects, err := c.run(t)
	expect(t, effects, c.effects)
	if got := fmt.Sprint(err); err != nil && got != c.err || err == nil && c.err != "" {
		t.Errorf("error %v, want %q", err, c.err)
	}
}

func (c pollCase) run(t *testing.T) (string, error) {
	t.Helper()
	p := mustCompile(t, Source{Kind: Poll, Body: stream.Text{File: "f.yaml", Line: 1, Column: 1, Text: c.body}})
	env := c.env
	var l log
	if env.Console == nil {
		env.Console = func(_, text string) { l.add("%s", text) }
	}
	if env.Now == nil {
		env.Now = func() time.Time { return time.UnixMilli(5000) }
	}
	env.Outputs = out
	source, err := p.NewSource(env)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	ctx := c.ctx
	if ctx == nil {
		ctx = t.Context()
	}
	commits := 0
	err = source.Poll(ctx, &stream.Poll{
		Config: stream.Config{Key: "de", Value: []byte(c.config)},
		Cursor: []byte(c.cursor),
		Commit: func(_ context.Context, page *stream.Page) error {
			commits++
			l.page(page)
			if c.commit != nil {
				return c.commit(commits)
			}
			return nil
		},
	})
	return l.String(), err
}

func TestPolls(t *testing.T) {
	for name, c := range map[string]pollCase{
		"P1 every State is a boundary": {
			body:    "for (let i = 0; i < 2; i++) { yield Message({value: i}); console.log('before', i); yield State({i}); console.log('after', i) } yield Message({value: 9})",
			effects: "before 0\ncommit de=0 cursor={\"i\":0}\nafter 0\nbefore 1\ncommit de=1 cursor={\"i\":1}\nafter 1\ncommit de=9",
		},
		"P3 nothing":                  {body: "", effects: ""},
		"P3 unchanged state":          {body: "yield State(state)", cursor: `{"a":1}`, effects: ""},
		"P3 absent deleted":           {body: "yield State()", effects: ""},
		"P3 unchanged after a change": {body: "yield State({a: 1}); yield State({a: 1})", effects: `commit cursor={"a":1}`},
		"unchanged with a message":    {body: "yield Message({value: 1}); yield State(state); console.log('on')", cursor: `{"a":1}`, effects: "commit de=1\non"},
		"cursor deleted":              {body: "yield State({})", cursor: `{"a":1}`, effects: "commit cursor="},
		"cursor and initial":          {body: "console.log(state, State.initial())", cursor: `{"a":1}`, env: Env{Initial: []byte(`{"b":2}`)}, effects: `{"a":1} {"b":2}`},
		"initial":                     {body: "console.log(state)", env: Env{Initial: []byte(`{"b":2}`)}, effects: `{"b":2}`},
		"config": {
			body:   "config.x.push(1); console.log(config, config.$key, Object.keys(config), {...config}); yield Message({value: config, key: config.$key})",
			config: `{"x":[]}`, effects: "{\"x\":[1]} de [\"x\"] {\"x\":[1]}\ncommit de={\"x\":[1]}",
		},
		"P2 an error after a boundary": {
			body:    "yield Message({value: 1}); yield State({a: 1}); yield Message({value: 2}); throw new Error('gone')",
			effects: `commit de=1 cursor={"a":1}`, err: "Error: gone (f.yaml:1:82)",
		},
		"commit fails": {
			body:    "try { yield Message({value: 1}); yield State({a: 1}); console.log('never') } catch (e) { console.log('caught') } finally { console.log('finally') } console.log('never')",
			commit:  func(int) error { return errors.New("fenced") },
			effects: "commit de=1 cursor={\"a\":1}\nfinally", err: "fenced",
		},
		"commit fails in helpers": {
			body: "function* g() { try { yield State({a: 1}) } catch ({message: {length}}) { console.log('caught') } finally { console.log('g') } }\n" +
				"try { yield* g() } catch { console.log('caught too') } finally { console.log('body') }",
			commit:  func(int) error { return errors.New("fenced") },
			effects: "commit cursor={\"a\":1}\ng\nbody", err: "fenced",
		},
		"a finally cannot go on": {
			body:    "for (let i = 0; i < 3; i++) { try { yield State({i}) } finally { console.log('finally', i); continue } }",
			commit:  func(int) error { return errors.New("fenced") },
			effects: "commit cursor={\"i\":0}\nfinally 0\nfinally 1\nfinally 2", err: "fenced",
		},
		"last commit fails": {body: "yield Message({value: 1})", commit: func(int) error { return errors.New("fenced") }, effects: "commit de=1", err: "fenced"},
		"errors of yields are the script's": {
			body:    "const five = 5; try { yield five } catch (e) { console.log(e.message) } yield Message({value: 1})",
			effects: "a number was yielded, which is neither a Message nor a State\ncommit de=1",
		},
		"yield* of states":    {body: "yield* [Message({value: 1}), State({a: 1}), Message({value: 2})]", effects: "commit de=1 cursor={\"a\":1}\ncommit de=2"},
		"default time":        {body: "yield Message({value: Date.now()})", effects: "commit de=5000"},
		"state is a copy":     {body: "const s = {a: [1]}; yield State(s); s.a.push(2); yield State(s)", effects: "commit cursor={\"a\":[1]}\ncommit cursor={\"a\":[1,2]}"},
		"numbers keep digits": {body: "state.n = 1; yield State(state)", cursor: `{"a":1.0}`, effects: `commit cursor={"a":1.0,"n":1}`},
		"msg is unknown here": {body: "yield Message({value: typeof msg})", effects: `commit de="undefined"`},
	} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T) {
				c.check(t)
			})
		})
	}
}

// P7: cancel runs the finally blocks, whatever catches there are, and ends with the cause.
func TestP7CancelRunsFinallyBlocks(t *testing.T) {
	cause := errors.New("the token was revoked")
	for name, body := range map[string]string{
		"at a state":   "try { yield State({a: 1}); console.log('never') } catch { console.log('caught') } finally { console.log('finally') }",
		"at a message": "yield State({a: 1}); console.log('never')",
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			effects, err := pollCase{body: body, ctx: ctx, commit: func(int) error { cancel(cause); return nil }}.run(t)
			if !errors.Is(err, cause) || strings.Contains(effects, "never") || strings.Contains(effects, "caught") {
				t.Error(effects, err)
			}
			if name == "at a state" && !strings.Contains(effects, "finally") {
				t.Error(effects)
			}
		})
	}
	t.Run("while it computes", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		_, err := pollCase{body: "console.log('now'); for (;;) ;", ctx: ctx, env: Env{Grace: 10 * time.Millisecond, Console: func(string, string) { cancel(cause) }}}.run(t)
		if !errors.Is(err, cause) {
			t.Error(err)
		}
	})
	t.Run("at the next yield", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		var l log
		_, err := pollCase{body: "try { for (let i = 0; ; i++) { console.log(i); yield Message({value: i}) } } finally { console.log('finally') }", ctx: ctx,
			env: Env{Grace: time.Minute, Console: func(_, text string) {
				if l.add("%s", text); text == "2" {
					cancel(cause)
				}
			}}}.run(t)
		if !errors.Is(err, cause) || l.String() != "0\n1\n2\nfinally" {
			t.Error(l.String(), err)
		}
	})
	t.Run("before it begins", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		effects, err := pollCase{body: "console.log('never')", ctx: ctx}.run(t)
		if !errors.Is(err, cause) || effects != "" {
			t.Error(effects, err)
		}
	})
}

// The timeout of a poll counts from one State to the next, without the commit.
func TestPollTimeout(t *testing.T) {
	_, err := pollCase{body: "yield State({a: 1});\nlet i = 0; for (;;) i++", env: Env{Timeout: 40 * time.Millisecond}}.run(t)
	var e *Error
	if !errors.As(err, &e) || e.Code() != CodeTimeout {
		t.Fatal(err)
	}
	if _, line, _ := e.Position(); line != 2 {
		t.Error(e.Detail())
	}
	hold := time.NewTimer(120 * time.Millisecond)
	effects, err := pollCase{
		body: "yield State({a: 1}); yield State({a: 2})", env: Env{Timeout: 100 * time.Millisecond},
		commit: func(n int) error {
			if n == 1 {
				<-hold.C
			}
			return nil
		},
	}.run(t)
	if err != nil || effects != "commit cursor={\"a\":1}\ncommit cursor={\"a\":2}" {
		t.Error(effects, err)
	}
}

func TestPollsSideBySide(t *testing.T) {
	p := mustCompile(t, Source{Kind: Poll, Body: bodyText("for (let i = 0; i < 20; i++) { yield Message({value: config.n}); yield State({i}) }")})
	source, err := p.NewSource(Env{Outputs: out})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	var polls sync.WaitGroup
	for n := range 8 {
		polls.Go(func() {
			commits := 0
			err := source.Poll(t.Context(), &stream.Poll{
				Config: stream.Config{Key: fmt.Sprint(n), Value: fmt.Appendf(nil, `{"n":%d}`, n)},
				Commit: func(_ context.Context, page *stream.Page) error {
					if want := fmt.Sprint(n); len(page.Messages) != 1 || string(page.Messages[0].Value) != want || string(page.Messages[0].Key) != want {
						t.Errorf("poll %d commits %s", n, page.Messages[0].Value)
					}
					commits++
					return nil
				},
			})
			if err != nil || commits != 20 {
				t.Error(commits, err)
			}
		})
	}
	polls.Wait()
}

func TestPollsThatAwait(t *testing.T) {
	for name, c := range map[string]pollCase{
		"P1 every State is a boundary": {
			body:    "for (let i = 0; i < 2; i++) { const r = await fetch(`p${i}/100`); yield Message({ value: await r.json() }); yield State({ i }); console.log('after', i) } yield Message({ value: 9 })",
			effects: "commit de={\"name\":\"p0\"} cursor={\"i\":0}\nafter 0\ncommit de={\"name\":\"p1\"} cursor={\"i\":1}\nafter 1\ncommit de=9",
		},
		"P2 an error after a boundary": {
			body:    "yield State({ a: 1 }); yield Message({ value: 2 });\nawait fetch('fail/5')",
			effects: `commit cursor={"a":1}`, err: "FetchError: http://host/fail: no connection (f.yaml:2:12)",
		},
		"P3 nothing": {body: "await fetch('x/5')", effects: ""},
		"commit fails": {
			body:    "try { await 0; yield State({ a: 1 }); console.log('never') } catch { console.log('caught') } finally { console.log('finally') } await 0; console.log('never')",
			commit:  func(int) error { return errors.New("fenced") },
			effects: "commit cursor={\"a\":1}\nfinally", err: "fenced",
		},
		"commit fails in a helper": {
			body: "async function* page() { try { yield State({ a: await 1 }) } catch { console.log('caught') } finally { console.log('page') } }\n" +
				"try { yield* page() } finally { console.log('body') }",
			commit:  func(int) error { return errors.New("fenced") },
			effects: "commit cursor={\"a\":1}\npage\nbody", err: "fenced",
		},
		"requests go on during a commit": {
			body:    "const p = fetch('x/5'); yield State({ a: 1 }); yield Message({ value: (await (await p).json()).name })",
			effects: "commit cursor={\"a\":1}\ncommit de=\"x\"",
		},
		"a loser": {
			body:    "yield Message({ value: (await Promise.race([fetch('x/10'), fetch('never')])).status }); yield State({ a: 1 }); yield Message({ value: 2 })",
			effects: "commit de=200 cursor={\"a\":1}\ncommit de=2",
		},
		"stuck":     {body: "yield State({ a: 1 });\nawait new Promise(() => {})", effects: `commit cursor={"a":1}`, err: "the script awaits a promise that nothing can settle (f.yaml:2:1)"},
		"forgotten": {body: "yield Message({ value: 1 }); fetch('never')", effects: "", err: "the script ended before its fetch did (f.yaml:1:35)"},
		"timeout":   {body: "try { await fetch('never') } finally { console.log('finally') }", env: Env{Timeout: time.Minute}, effects: "", err: "the script ran longer than 1m0s (f.yaml:1:7)"},
		"the timeout counts from a State": {
			body: "for (let i = 0; i < 5; i++) { await fetch('x/40000'); yield State({ i }) }", env: Env{Timeout: time.Minute},
			effects: "commit cursor={\"i\":0}\ncommit cursor={\"i\":1}\ncommit cursor={\"i\":2}\ncommit cursor={\"i\":3}\ncommit cursor={\"i\":4}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := &server{}
					c.env.Fetch = s.fetch
					c.check(t)
				})
			})
		})
	}
}

// P7: cancel runs the finally blocks of a poll that waits, whatever catches there are.
func TestP7CancelOfAWaitingPoll(t *testing.T) {
	cause := errors.New("the token was revoked")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		s := &server{}
		effects, err := pollCase{
			body: "try { yield State({ a: 1 }); try { await fetch('never') } catch { console.log('caught') } console.log('never') } finally { console.log('finally') }",
			ctx:  ctx, env: Env{Fetch: s.fetch},
		}.run(t)
		if !errors.Is(err, cause) || effects != "commit cursor={\"a\":1}\nfinally" || len(s.lines) != 1 {
			t.Error(effects, err, s.lines)
		}
	})
}
