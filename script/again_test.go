package script

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// again runs records again after a second, then two, four and so on.
type again struct {
	failures []string // "record: error"
	counts   map[int]int
	stop     chan struct{}
	resumed  int
	err      error // of Resume
}

func (a *again) of() *stream.Again {
	a.counts, a.stop = map[int]int{}, make(chan struct{})
	return &stream.Again{
		Failed: func(i int, err error) time.Duration {
			a.failures = append(a.failures, fmt.Sprintf("%d: %v", i, err))
			a.counts[i]++
			return time.Second << (a.counts[i] - 1)
		},
		Stop:   a.stop,
		Resume: func() error { a.resumed++; return a.err },
	}
}

// A record that runs again does so alone: what others did stays and is not done again, records of its key wait for it, and its own
// yields count once, whichever way a body runs and however it fails.
func TestOnlyWhatFailedRunsAgain(t *testing.T) {
	// The records 1 and 4 fail twice and once.
	const count = `const n = (memory.get(String(msg.offset)) ?? 0) + 1; memory.set(String(msg.offset), n); console.log(msg.offset);
state.list = [...(state.list ?? []), msg.offset]; yield State(state); yield Message({ value: state.list });
const fails = msg.offset === 1 && n < 3 || msg.offset === 4 && n < 2;
`
	in := records("a", "b", "b", "a", "c", "b")
	for name, body := range map[string]string{
		"at once":                count + "if (fails) throw new Error('no')",
		"at once, after a State": count + "yield State({ list: ['wrong'] }); if (fails) throw new Error('no'); yield State(state);",
		"of what is there":       count + "await 0; if (fails) throw new Error('no')",
		"in a worker":            count + "if (fails) throw new Error('no'); if (msg.offset > 99) await fetch('x/1')",
		"after a request":        count + "await fetch('x/20'); if (fails) throw new Error('no')",
		"its request":            count + "await fetch(fails ? 'fail/20' : 'x/10')",
		"after other awaits":     count + "await fetch('x/20'); yield State({ list: ['wrong'] }); await fetch('x/20'); yield Message({ value: 'end' }); if (fails) throw new Error('no'); yield State(state)",
		"with an endless loop":   count + "await fetch('x/20'); if (fails) for (;;) ;",
		"forgetting a request":   count + "const p = fetch('x/20'); if (!fails) await p;",
		"leaving a rejection":    count + "await fetch('x/20'); if (fails) Promise.reject(1)",
		"too deep":               count + "await 0; const f = () => f(); if (fails) f()",
	} {
		t.Run(name, func(t *testing.T) {
			run := func(t *testing.T) {
				p := mustCompile(t, Source{Body: bodyText(body)})
				var l log
				env := Env{Stage: "s", Outputs: out, Fetch: (&server{}).fetch, Memory: NewMemory(), Timeout: time.Minute}
				if strings.Contains(name, "endless") {
					env.Timeout = 50 * time.Millisecond
				}
				env.Console = func(_, text string) { l.add("%s", text) }
				tr, err := p.NewTransform(env)
				if err != nil {
					t.Fatal(err)
				}
				defer tr.Close()
				b := newBatch(t, storeMap{}, in...)
				var a again
				b.Again = a.of()
				b.Fail = func(i int, err error) error { t.Errorf("%d is given up: %v", i, err); return err }
				if strings.Contains(name, "endless") {
					b.Again.Failed = func(i int, _ error) time.Duration {
						a.failures = append(a.failures, fmt.Sprint(i))
						return time.Millisecond
					}
				}
				if err := tr.Run(t.Context(), b); err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, m := range b.Messages {
					if string(m.Value) != `"end"` {
						got = append(got, fmt.Sprintf("%s=%s", m.Key, m.Value))
					}
				}
				want := []string{"a=[0]", "b=[1]", "b=[1,2]", "a=[0,3]", "c=[4]", "b=[1,2,5]"}
				if !slices.Equal(got, want) {
					t.Errorf("messages %s", got)
				}
				for _, c := range b.Changes {
					if text := string(c.Value); text != map[string]string{"a": `{"list":[0,3]}`, "b": `{"list":[1,2,5]}`, "c": `{"list":[4]}`}[c.Key] {
						t.Errorf("state %s=%s", c.Key, text)
					}
				}
				calls := strings.Split(l.String(), "\n")
				slices.Sort(calls)
				if strings.Contains(name, "endless") || name == "too deep" {
					// Those that were under way in a VM that had to be replaced begin again, too.
					if calls = slices.Compact(calls); len(calls) != len(in) || len(a.failures) < 2 || a.resumed == 0 {
						t.Errorf("calls %s, %d pauses after %q", calls, a.resumed, a.failures)
					}
					return
				}
				if want := []string{"0", "1", "1", "1", "2", "3", "4", "4", "5"}; !slices.Equal(calls, want) || len(a.failures) != 3 || a.resumed == 0 {
					t.Errorf("calls %s, %d pauses after %q", calls, a.resumed, a.failures)
				}
			}
			if strings.Contains(name, "endless") {
				run(t) // what never ends needs real time
				return
			}
			synctest.Test(t, run)
		})
	}
}

// While a record pauses no other begins, and those under way go on.
func TestNothingBeginsInAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		var l log
		p := mustCompile(t, Source{Body: bodyText(`console.log('begin', msg.key);
const first = memory.get(msg.key) === null; memory.set(msg.key, 1);
await fetch(msg.key === 'a' && first ? 'fail/10' : msg.key === 'c' ? 'x/200' : 'x/100'); console.log('end', msg.key)`)})
		began := time.Now()
		env := Env{Outputs: out, Fetch: s.fetch, Concurrency: 2, Memory: NewMemory(), Timeout: time.Second}
		env.Console = func(_, text string) { l.add("%s %d", text, time.Since(began).Milliseconds()) }
		tr, err := p.NewTransform(env)
		if err != nil {
			t.Fatal(err)
		}
		b := newBatch(t, nil, records("a", "b", "c")...)
		var a again
		b.Again = a.of()
		if err := tr.Run(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		expect(t, l.String(), "begin a 0\nbegin b 0\nend b 100\nbegin a 1010\nbegin c 1010\nend a 1110\nend c 1210")
	})
}

// A pause ends early when the batch is given up, and what is under way then runs its finally blocks.
func TestAPauseEndsEarly(t *testing.T) {
	gone := errors.New("gone")
	for name, body := range map[string]string{
		"at once": "if (msg.key === 'a') throw 1",
		"waiting": "try { await fetch(msg.key === 'a' ? 'fail/10' : 'never') } finally { console.log('finally', msg.key) }",
	} {
		for _, cancelled := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", cancelled), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var l log
					p := mustCompile(t, Source{Body: bodyText(body)})
					env := Env{Outputs: out, Fetch: (&server{}).fetch}
					env.Console = func(_, text string) { l.add("%s", text) }
					tr, err := p.NewTransform(env)
					if err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithCancelCause(t.Context())
					b := newBatch(t, nil, records("a", "b")...)
					a := again{err: gone}
					b.Again = a.of()
					began := time.Now()
					time.AfterFunc(500*time.Millisecond, func() {
						if cancelled {
							cancel(gone)
						} else {
							close(a.stop)
						}
					})
					if err := tr.Run(ctx, b); !errors.Is(err, gone) || time.Since(began) != 500*time.Millisecond {
						t.Errorf("after %v: %v", time.Since(began), err)
					}
					if name == "waiting" {
						expect(t, l.String(), "finally a\nfinally b")
					}
				})
			})
		}
	}
}
