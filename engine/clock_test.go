package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/enginetest"
	"github.com/flechtwerk/flechtwerk/engine/expr"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// onFakeClock runs a test on a clock that jumps ahead whenever everybody waits.
func onFakeClock(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	if realTier() {
		t.Skip("a fake clock needs the fake cluster")
	}
	synctest.Test(t, func(t *testing.T) {
		test(t, newRigOn(t, enginetest.FakeConfig{Network: enginetest.Virtual}))
	})
}

func inMemory(o *engine.Options) { o.State = engine.State{InMemory: true, Memory: 8 << 20} }

// times are moments since the start of a test.
type times struct {
	began time.Time
	mu    sync.Mutex
	at    []time.Duration
}

func (s *times) note() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.began.IsZero() {
		s.began = time.Now()
	}
	s.at = append(s.at, time.Since(s.began).Round(10*time.Millisecond))
}

func (s *times) check(t *testing.T, want ...time.Duration) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, w := range want {
		if n >= len(s.at) || s.at[n] < w || s.at[n] > w+time.Second {
			t.Fatalf("moments %v, want %v", s.at, want)
		}
	}
}

// P6: every counts from the start of a poll, however long it takes.
func TestP6EveryCountsFromTheStart(t *testing.T) {
	onFakeClock(t, func(t *testing.T, r *rig) {
		out := &stream.Topic{Name: r.topic("out", 1)}
		var starts times
		i := r.extract("", out, 10*time.Second, 1, []string{"default"}, func(ctx context.Context, p *stream.Poll) error {
			starts.note()
			enginetest.Pass(4 * time.Second) // the poll's work
			return p.Commit(ctx, page(out, "k", number(t, p.Cursor), 1))
		}, inMemory)
		enginetest.Pass(45 * time.Second)
		i.stopped()
		starts.check(t, 0, 10*time.Second, 20*time.Second, 30*time.Second, 40*time.Second)
		checkNumbers(t, r, out.Name, 4)
	})
}

// P6: a poll that takes longer than every lets the next one begin at once, and is told.
func TestP6OverrunStartsAtOnceAndIsTold(t *testing.T) {
	onFakeClock(t, func(t *testing.T, r *rig) {
		out := &stream.Topic{Name: r.topic("out", 1)}
		var starts times
		var mu sync.Mutex
		var overruns []bool
		i := r.extract("", out, 10*time.Second, 1, []string{"default"}, func(ctx context.Context, p *stream.Poll) error {
			starts.note()
			work := 25 * time.Second
			if n := number(t, p.Cursor); n >= 2 {
				work = time.Second
			}
			enginetest.Pass(work)
			return p.Commit(ctx, page(out, "k", number(t, p.Cursor), 1))
		}, inMemory, func(o *engine.Options) {
			o.Events = engine.Tee(o.Events, engine.Events{PollEnded: func(i engine.PollInfo) {
				mu.Lock()
				defer mu.Unlock()
				overruns = append(overruns, i.Overrun)
			}})
		})
		enginetest.Pass(75 * time.Second)
		i.stopped()
		starts.check(t, 0, 25*time.Second, 50*time.Second, 60*time.Second, 70*time.Second)
		mu.Lock()
		defer mu.Unlock()
		if len(overruns) < 4 || !overruns[0] || !overruns[1] || overruns[2] || overruns[3] {
			t.Errorf("overruns %v, want the first two", overruns)
		}
	})
}

// on_error: retry of a transformer pauses longer after each failure, up to the most, whatever it is that fails: the body, the
// filter, the state key, or an output that its topic refuses. The task does not begin anew meanwhile. What the filter has kept
// or passed over before the failure is not looked at again.
func TestRetryPausesGrow(t *testing.T) {
	for name, fails := range map[string]func(t *testing.T, r *rig, spec *stageSpec, x *pipeline.Transformer){
		"body": func(_ *testing.T, _ *rig, spec *stageSpec, _ *pipeline.Transformer) {
			number := spec.handle
			spec.handle = func(rec *stream.Record, state []byte) ([]stream.Message, []byte, error) {
				if string(rec.Value) == `"wrong"` {
					return nil, nil, errors.New("no answer")
				}
				return number(rec, state)
			}
		},
		"filter": func(t *testing.T, _ *rig, _ *stageSpec, x *pipeline.Transformer) {
			x.Filter = compiled(t, `value != "other" && (value != "wrong" || value + 1)`, expr.Condition)
		},
		"state key": func(t *testing.T, _ *rig, _ *stageSpec, x *pipeline.Transformer) {
			x.Filter = compiled(t, `value != "other"`, expr.Condition)
			x.StateKey = compiled(t, `value == "wrong" ? nil : key`, expr.Any)
		},
		"output": func(_ *testing.T, _ *rig, spec *stageSpec, _ *pipeline.Transformer) {
			number := spec.handle
			spec.handle = func(rec *stream.Record, state []byte) ([]stream.Message, []byte, error) {
				messages, next, err := number(rec, state)
				if string(rec.Value) == `"wrong"` {
					messages[0].Value = []byte(quoted(3000))
				}
				return messages, next, err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			onFakeClock(t, func(t *testing.T, r *rig) {
				in := r.topic("in", 1)
				out := &stream.Topic{Name: r.topic("out", 1, "max.message.bytes=2000"), Key: stream.String}
				spec := r.simple(in, out)
				fails(t, r, &spec, &pipeline.Transformer{})
				spec.change = func(x *pipeline.Transformer) {
					x.OnError, x.Retry = pipeline.Retry, pipeline.Backoff{Min: time.Second, Max: 8 * time.Second}
					fails(t, r, &stageSpec{}, x)
				}
				for _, value := range []string{`"other"`, `1`, `"other"`, `"wrong"`, `2`, `"other"`} {
					r.put(in, 0, "k", []byte(value))
				}
				var failures times
				i := r.startWith("", func(o *engine.Options) {
					inMemory(o)
					o.CommitInterval = time.Second
					o.Events = engine.Tee(o.Events, engine.Events{RecordFailed: func(engine.RecordInfo) { failures.note() }})
				}, spec)
				enginetest.Pass(40 * time.Second)
				failures.check(t, 0, time.Second, 3*time.Second, 7*time.Second, 15*time.Second, 23*time.Second)
				if n := i.log.count("0 running"); n != 1 {
					t.Errorf("the task began %d times", n)
				}
				i.stopped()
				if got := enginetest.ReadCommitted(t, r.opts(), out.Name); len(got) > 0 {
					t.Errorf("%d outputs came out", len(got))
				}
			})
		})
	}
}

func compiled(t *testing.T, text string, want expr.Want) *expr.Expr {
	t.Helper()
	x, err := expr.Compile(text, expr.Record, want)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// P6: configs begin spread over a tenth of every, each at the same moment after every start, and then keep their beat.
func TestP6JitterIsTheSameAtEveryStart(t *testing.T) {
	onFakeClock(t, func(t *testing.T, r *rig) {
		out := &stream.Topic{Name: r.topic("out", 1)}
		keys := []string{"a", "b", "c", "d"}
		run := func() map[string]time.Duration {
			first := map[string]time.Duration{}
			var mu sync.Mutex
			var running time.Time
			i := r.extract("", out, time.Minute, 1, keys, func(_ context.Context, p *stream.Poll) error {
				mu.Lock()
				defer mu.Unlock()
				if _, again := first[p.Config.Key]; !again {
					first[p.Config.Key] = time.Since(running).Round(100 * time.Millisecond)
				}
				return nil
			}, inMemory, func(o *engine.Options) {
				o.Events = engine.Tee(o.Events, engine.Events{TaskRunning: func(engine.TaskInfo) {
					mu.Lock()
					defer mu.Unlock()
					running = time.Now()
				}})
			})
			enginetest.Pass(20 * time.Second)
			i.stopped()
			return first
		}
		one, two := run(), run()
		spread := map[time.Duration]bool{}
		for _, key := range keys {
			if one[key] != two[key] || one[key] < 0 || one[key] > 6*time.Second {
				t.Errorf("config %s began after %v and after %v, want the same within 6s", key, one[key], two[key])
			}
			spread[one[key]] = true
		}
		if len(spread) < 3 {
			t.Errorf("configs began at %v", one)
		}
	})
}

// A task that cannot start tries again, ever more slowly, for as long as it takes; then it works.
func TestE3BackoffOfATaskThatCannotStart(t *testing.T) {
	onFakeClock(t, func(t *testing.T, r *rig) {
		in := r.topic("in", 1)
		out := &stream.Topic{Name: r.topic("out", 1)}
		refused := r.fake.Fail(kerr.InvalidTransactionTimeout, enginetest.Which{Key: initProducerID, TxnID: r.id + "-0", Count: -1})
		r.put(in, 0, "k", []byte("0"))
		i := r.startWith("", inMemory, r.simple(in, out))
		enginetest.Pass(5 * time.Minute)
		if n := i.log.count("0 restarting"); n < 30 || n > 90 {
			t.Errorf("it tried %d times in five minutes", n)
		}
		refused.Remove()
		enginetest.Pass(10 * time.Second)
		i.stopped()
		r.checkCounters(out.Name, 1)
	})
}

// An outage of the cluster, however long, is waited out: nothing ends, and afterwards everything counts once.
func TestD7LaterOutagesAreWaitedOut(t *testing.T) {
	for _, outage := range []time.Duration{5 * time.Second, time.Minute, 10 * time.Minute} {
		t.Run(outage.String(), func(t *testing.T) {
			onFakeClock(t, func(t *testing.T, r *rig) {
				in := r.topic("in", 2)
				out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
				i := r.startWith("", inMemory, r.simple(in, out))
				r.load(in, 2, 4, 100).wait()
				r.checkCounters(out.Name, 100)
				i.wire.cut()
				l := r.load(in, 2, 4, 100)
				l.wait()
				enginetest.Pass(outage)
				select {
				case <-i.ended:
					t.Fatalf("the engine ended with %v", i.err)
				default:
				}
				i.wire.heal()
				began := time.Now()
				r.checkCounterValues(out.Name, 200)
				if took := time.Since(began); took > time.Minute {
					t.Errorf("it took %v to go on", took)
				}
				i.stopped()
				r.checkOffsets(in, 2, 200)
			})
		})
	}
}

// A lone key's counters go on over a restart while the clock runs on for a day: the local state is too old to be trusted.
func TestE9FolderOfADayAgo(t *testing.T) {
	onFakeClock(t, func(t *testing.T, r *rig) {
		in := r.topic("in", 1)
		out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
		dir := t.TempDir()
		r.put(in, 0, "k", []byte("0"))
		a := r.start(dir, r.simple(in, out))
		r.checkCounters(out.Name, 1)
		a.stopped()
		enginetest.Pass(25 * time.Hour)
		r.put(in, 0, "k", []byte("1"))
		b := r.start(dir, r.simple(in, out))
		r.checkCounters(out.Name, 2)
		b.stopped()
		if b.log.count("warning state.age") != 1 {
			t.Errorf("no warning; effects:\n%s", b.log)
		}
		if strings.Contains(b.log.String(), "restarting") {
			t.Errorf("the task began again; effects:\n%s", b.log)
		}
	})
}
