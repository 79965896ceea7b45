package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/enginetest"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// knows returns when a stage with on_invalid: skip has taken up all that was written to a config topic before. The first
// invalid config is told before what came with it shows; when a second one is told, it does.
func (i *instance) knows(topic string) {
	i.r.t.Helper()
	for range 2 {
		told := i.log.count("0 invalid")
		i.r.put(topic, 0, "invalid", []byte("[]"))
		i.log.await(i.r.t, "0 invalid", told+1)
	}
}

// P5: a suspended config and one with a tombstone are not polled and keep their state; when they come back they go on where
// they were. The others are polled meanwhile.
func TestP5SuspendedAndDeletedConfigsKeepTheirState(t *testing.T) {
	for name, off := range map[string]string{"suspended": `{"suspended":true}`, "tombstone": ""} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			topic := r.configTopic("configs", 2)
			out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
			r.config(topic, 2, "other", "{}")
			r.config(topic, 2, "a", "{}")
			i := r.polling("every: 10ms\non_invalid: skip\nconfig_topics: "+topic+"\n", pages(t, out, 1))
			polled := func(key string) string { return fmt.Sprintf("%d polled %s ", engine.Token(key, 2), key) }
			for range 3 {
				i.log.await(t, polled("a"), i.log.count(polled("a"))+2)
				r.config(topic, 2, "a", off)
				i.knows(topic)
				// A poll that had begun is finished.
				i.log.await(t, polled("other"), i.log.count(polled("other"))+3)
				before := i.log.count(polled("a"))
				i.log.await(t, polled("other"), i.log.count(polled("other"))+5)
				if n := i.log.count(polled("a")); n != before {
					t.Errorf("polled %d more times", n-before)
				}
				r.config(topic, 2, "a", `{"suspended":false}`)
			}
			i.log.await(t, polled("a"), i.log.count(polled("a"))+2)
			i.stopped()
			checkPages(t, r, out.Name, 12)
		})
	}
}

// P5: a poll that runs keeps the config that it began with, also when that is changed, suspended or deleted meanwhile; the
// next poll has the new one, and there is none if the config is gone.
func TestP5ARunningPollKeepsItsConfig(t *testing.T) {
	r := newRig(t)
	topic := r.configTopic("configs", 1)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	r.put(topic, 0, "a", []byte(`{"v":0}`))
	change, changed := make(chan string), make(chan struct{})
	poll := func(ctx context.Context, p *stream.Poll) error {
		before := string(p.Config.Value)
		change <- before
		<-changed
		if string(p.Config.Value) != before || string(p.Configs.Get("a")) != before {
			t.Errorf("a running poll sees %s and %s, it began with %s", p.Config.Value, p.Configs.Get("a"), before)
		}
		return p.Commit(ctx, page(out, "a", number(t, p.Cursor), 1))
	}
	i := r.polling("every: 10ms\non_invalid: skip\nconfig_topics: "+topic+"\n", poll)
	want, polls := `{"v":0}`, 0
	for _, next := range []string{`{"v":1}`, `{"v":2}`, `{"suspended":true}`, `{"v":4}`, "", `{"v":6}`} {
		if want == "" || want == `{"suspended":true}` { // the config was taken away: this brings it back
			r.config(topic, 1, "a", next)
			want = next
			continue
		}
		if got := <-change; got != want {
			t.Errorf("a poll began with %s, want %s", got, want)
		}
		r.config(topic, 1, "a", next)
		want = next
		i.knows(topic)
		changed <- struct{}{}
		polls++
		i.log.await(t, "0 polled a pages 1 err <nil>", polls)
	}
	if got := <-change; got != `{"v":6}` {
		t.Errorf("the last poll began with %s", got)
	}
	changed <- struct{}{}
	i.stopped()
}

// P5: where picks a stage's own configs. Others are not polled, and neither held against the schema; one on which it fails is
// an invalid one.
func TestP5WherePicksAStagesOwn(t *testing.T) {
	r := newRig(t)
	topic := r.configTopic("configs", 2)
	for key, value := range map[string]string{"mine": `{"kind":"x","url":"u"}`, "theirs": `{"kind":"y"}`, "default": `{"url":"v"}`, "wrong": `{"kind":"x"}`, "fails": `{"kind":"z","n":"many"}`} {
		r.config(topic, 2, key, value)
	}
	seen := newEffects()
	i := r.polling(`
every: 10ms
config_topics: `+topic+`
where: config.kind startsWith "x" || int(config.n ?? "0") > 0
on_invalid: skip
config:
  schema: { type: object, required: [url] }
  defaults: { kind: xx }
configs:
  inline: { kind: x, url: w }
  nobody: { kind: z }
`, seer(seen)).ends(seen)
	for _, key := range []string{"mine", "default", "inline"} {
		seen.await(t, key+" ", 2)
	}
	if n := i.log.count("0 invalid"); n != 2 {
		t.Errorf("%d invalid configs, want two; effects:\n%s", n, i.log)
	}
	r.config(topic, 2, "theirs", `{"kind":"x","url":"now"}`)
	r.config(topic, 2, "mine", `{"kind":"y"}`)
	seen.await(t, `theirs {"kind":"x","url":"now"}`, 10)
	before := seen.count("mine ")
	seen.await(t, "theirs ", seen.count("theirs ")+10)
	if n := seen.count("mine "); n != before {
		t.Errorf("a config that is no longer the stage's own was polled %d more times", n-before)
	}
	for _, key := range []string{"wrong", "fails", "nobody"} {
		if seen.count(key+" ") != 0 {
			t.Errorf("%s was polled", key)
		}
	}
	i.stopped()
}

// P4, P5: at most `workers` polls run at once. A config that waits for its place is polled as it is when it gets it, and not at
// all if it was suspended or deleted meanwhile.
func TestP4WorkersAndP5ConfigWhileItWaits(t *testing.T) {
	r := newRig(t)
	topic := r.configTopic("configs", 1)
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		r.put(topic, 0, key, []byte(`{"v":1}`))
	}
	begun, goOn := make(chan string), make(chan struct{})
	var first atomic.Int32
	var at, most atomic.Int32
	seen := newEffects()
	i := r.polling("every: 20ms\nworkers: 2\non_invalid: skip\nconfig_topics: "+topic+"\n", func(_ context.Context, p *stream.Poll) error {
		if n := at.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer at.Add(-1)
		if first.Add(1) <= 2 {
			begun <- p.Config.Key
			<-goOn
		}
		seen.add("%s %s", p.Config.Key, p.Config.Value)
		return nil
	})
	held := []string{<-begun, <-begun}
	// The others have long been due. Now one is changed, one suspended and one deleted.
	var waiting []string
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		if !slices.Contains(held, key) {
			waiting = append(waiting, key)
		}
	}
	r.put(topic, 0, waiting[0], []byte(`{"v":2}`))
	r.put(topic, 0, waiting[1], []byte(`{"suspended":true}`))
	r.put(topic, 0, waiting[2], nil)
	i.knows(topic)
	close(goOn)
	for _, key := range append(held, waiting[0]) {
		seen.await(t, key+" ", 3)
	}
	for _, line := range seen.all() {
		if key, _, _ := strings.Cut(line, " "); key == waiting[1] || key == waiting[2] || line == waiting[0]+` {"v":1}` {
			t.Errorf("polled with %s, which was no longer so", line)
		}
	}
	if n := most.Load(); n != 2 {
		t.Errorf("%d polls at once, want 2", n)
	}
	i.stopped()
}

// moments are when polls of each config began, since the start of the test, on the fake clock.
type moments struct {
	began time.Time
	mu    sync.Mutex
	of    map[string][]time.Duration
}

func newMoments() *moments { return &moments{began: time.Now(), of: map[string][]time.Duration{}} }

func (m *moments) note(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of[key] = append(m.of[key], time.Since(m.began))
}

// polls answers those of a config so far.
func (m *moments) polls(key string) []time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.of[key])
}

// check compares the polls of a config with when they should have begun; each may be later by late, for the start of the
// stage and the jitter.
func (m *moments) check(t *testing.T, key string, late time.Duration, want ...time.Duration) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.of[key]) != len(want) {
		t.Errorf("config %s was polled at %v, want %v", key, m.of[key], want)
		return
	}
	for n, at := range m.of[key] {
		if at < want[n] || at > want[n]+late {
			t.Errorf("config %s was polled at %v, want %v", key, m.of[key], want)
			return
		}
	}
}

// seconds makes moments.
func seconds(of ...int) []time.Duration {
	var out []time.Duration
	for _, s := range of {
		out = append(out, time.Duration(s)*time.Second)
	}
	return out
}

// P6: `every` may be an expression, of the config and of its state; what changes in them counts from the start of the last
// poll.
func TestP6EveryIsAnExpression(t *testing.T) {
	onFakeClock(t, func(t *testing.T, r *rig) {
		topic := r.configTopic("configs", 1)
		for key, value := range map[string]string{"own": `{"every":"20s"}`, "number": `{"every":15000}`, "none": `{}`, "state": `{"by":"state"}`} {
			r.put(topic, 0, key, []byte(value))
		}
		seen := newMoments()
		i := r.polling(`
every: 'config.by == "state" ? (state.n ?? 0) * 10000 + 10000 : config.every ?? "30s"'
config_topics: `+topic+`
`, func(ctx context.Context, p *stream.Poll) error {
			seen.note(p.Config.Key)
			if p.Config.Key == "state" {
				n := len(seen.polls("state"))
				return p.Commit(ctx, &stream.Page{Cursor: fmt.Appendf(nil, `{"n":%d}`, n), Moved: true})
			}
			return nil
		})
		enginetest.Pass(48 * time.Second)
		r.put(topic, 0, "own", []byte(`{"every":"5s"}`))
		r.put(topic, 0, "number", []byte(`{"every":40000}`))
		enginetest.Pass(47 * time.Second) // 95s
		i.stopped()
		seen.check(t, "none", 4*time.Second, seconds(0, 30, 60, 90)...)
		seen.check(t, "number", 2*time.Second, seconds(0, 15, 30, 45, 85)...)
		seen.check(t, "state", 2*time.Second, seconds(0, 20, 50, 90)...)
		seen.check(t, "own", 3*time.Second, seconds(0, 20, 40, 48, 53, 58, 63, 68, 73, 78, 83, 88, 93)...)
	})
}

// P6: a config whose `every` fails is a failing config and no busy one, whatever on_error says; the others go on, and it goes
// on when it is mended.
func TestP6EveryThatFails(t *testing.T) {
	for _, policy := range []string{"skip", "{ retry: 10s..1m }"} {
		t.Run(policy, func(t *testing.T) {
			onFakeClock(t, func(t *testing.T, r *rig) {
				topic := r.configTopic("configs", 1)
				r.put(topic, 0, "bad", []byte(`{"every":"soon"}`))
				r.put(topic, 0, "good", []byte(`{"every":"10s"}`))
				seen := newMoments()
				i := r.polling("every: config.every\non_error: "+policy+"\nconfig_topics: "+topic+"\n", func(_ context.Context, p *stream.Poll) error {
					seen.note(p.Config.Key)
					return nil
				})
				enginetest.Pass(35 * time.Second)
				if st := i.Engine.Status().Stages[0].Configs; len(st) != 1 || st[0].Config != "bad" || !strings.Contains(st[0].Error, "no duration") || !strings.Contains(st[0].Error, "test.yaml:") {
					t.Errorf("configs in trouble: %+v", st)
				}
				if n := i.log.count("0 polled bad"); n < 1 || n > 5 {
					t.Errorf("it was tried %d times in 35s", n)
				}
				r.put(topic, 0, "bad", []byte(`{"every":"20s"}`))
				enginetest.Pass(30 * time.Second) // 65s
				if st := i.Engine.Status().Stages[0].Configs; len(st) != 0 {
					t.Errorf("configs in trouble: %+v", st)
				}
				i.stopped()
				seen.check(t, "good", 2*time.Second, seconds(0, 10, 20, 30, 40, 50, 60)...)
				seen.check(t, "bad", 2*time.Second, seconds(35, 55)...)
			})
		})
	}
}

// P6: `cron` polls by the clock, in its zone; a poll that goes on over the next time starts the next at once and is told.
func TestP6Cron(t *testing.T) {
	for name, c := range map[string]struct {
		cron     string
		want     []time.Duration
		overruns []bool
	}{
		// 0:10 to 0:35 passes 0:20 and 0:30, for which one poll makes up; 0:40 is in its turn.
		"UTC": {`"*/10 * * * *"`, seconds(10*60, 35*60, 40*60, 50*60), []bool{true, false, false, false}},
		// In winter it is an hour later in Berlin.
		"zone": {`{ at: "40 1 * * *", zone: Europe/Berlin }`, seconds(40 * 60), []bool{false}},
	} {
		t.Run(name, func(t *testing.T) {
			onFakeClock(t, func(t *testing.T, r *rig) {
				r.kafk.SessionTimeout = time.Minute
				seen := newMoments()
				var overruns []bool
				i := r.polling("cron: "+c.cron+"\n", func(_ context.Context, p *stream.Poll) error {
					seen.note(p.Config.Key)
					n := len(seen.polls(p.Config.Key))
					switch {
					case name == "UTC" && n == 1:
						enginetest.Pass(25 * time.Minute)
					case name == "UTC" && n == 2:
						enginetest.Pass(time.Minute)
					}
					return nil
				}, func(o *engine.Options) {
					o.Events = engine.Tee(o.Events, engine.Events{PollEnded: func(i engine.PollInfo) {
						seen.mu.Lock()
						defer seen.mu.Unlock()
						overruns = append(overruns, i.Overrun)
					}})
				})
				enginetest.Pass(55 * time.Minute)
				i.stopped()
				seen.check(t, "default", time.Second, c.want...)
				if !slices.Equal(overruns, c.overruns) {
					t.Errorf("overruns %v, want %v", overruns, c.overruns)
				}
			})
		})
	}
}

// on_error: retry. Only the config that fails pauses, at first for the least and then twice as long each time, never longer than
// the most, for however long it takes; it is shown as backing off, since its first failure; when it succeeds it is as the others.
func TestOnErrorRetryOfAPoll(t *testing.T) {
	onFakeClock(t, func(t *testing.T, r *rig) {
		r.kafk.SessionTimeout = time.Minute
		seen := newMoments()
		out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
		var down atomic.Bool
		down.Store(true)
		i := r.polling("every: 10m\non_error: { retry: 10s..1m }\nconfigs: { down: {}, up: {} }\n", func(ctx context.Context, p *stream.Poll) error {
			seen.note(p.Config.Key)
			if err := p.Commit(ctx, page(out, p.Config.Key, number(t, p.Cursor), 1)); err != nil {
				return err
			}
			if p.Config.Key == "down" && down.Load() {
				return errors.New("no answer")
			}
			return nil
		})
		enginetest.Pass(4 * time.Minute)
		st := i.Engine.Status().Stages[0].Configs
		if len(st) != 1 || st[0].Config != "down" || st[0].State != engine.ConfigBackingOff || st[0].Error != "no answer" || st[0].Since.After(seen.began.Add(11*time.Second)) {
			t.Errorf("configs in trouble: %+v", st)
		}
		tries := len(seen.polls("down"))
		if st[0].Failures != tries || tries < 6 {
			t.Errorf("%d failures after %d polls", st[0].Failures, tries)
		}
		enginetest.Pass(56 * time.Minute) // 1h: many more failures than the pause can double
		if n := len(seen.polls("down")); n < 55 || n > 65 {
			t.Errorf("%d polls in an hour, want one a minute", n)
		}
		first := seen.polls("down")[0]
		for n, pause := range seconds(10, 20, 40, 60, 60, 60) {
			if got := seen.polls("down")[n+1] - seen.polls("down")[n]; got < pause || got > pause+time.Second {
				t.Errorf("pause %d was %v, want %v", n, got, pause)
			}
		}
		seen.check(t, "up", 11*time.Second, seconds(0, 600, 1200, 1800, 2400, 3000)...)
		if since := i.Engine.Status().Stages[0].Configs[0].Since.Sub(seen.began); since < first || since > first+time.Second {
			t.Errorf("it is in trouble since %v, the first poll was at %v", since, first)
		}
		down.Store(false)
		enginetest.Pass(2 * time.Minute)
		if st := i.Engine.Status().Stages[0].Configs; len(st) != 0 {
			t.Errorf("configs in trouble: %+v", st)
		}
		before := len(seen.polls("down"))
		enginetest.Pass(20 * time.Minute)
		i.stopped()
		if n := len(seen.polls("down")) - before; n != 2 {
			t.Errorf("%d polls in 20 minutes, want 2", n)
		}
		checkPages(t, r, out.Name, 60)
	})
}

// on_error: skip. A failing config is polled in its turn, and shown as failed until it succeeds; the others are not touched.
func TestOnErrorSkipOfAPoll(t *testing.T) {
	onFakeClock(t, func(t *testing.T, r *rig) {
		seen := newMoments()
		i := r.polling("every: 10s\non_error: skip\nconfigs: { down: {}, up: {} }\n", func(_ context.Context, p *stream.Poll) error {
			seen.note(p.Config.Key)
			if p.Config.Key == "down" && time.Since(seen.began) < 25*time.Second {
				return errors.New("no answer")
			}
			return nil
		})
		enginetest.Pass(25 * time.Second)
		if st := i.Engine.Status().Stages[0].Configs; len(st) != 1 || st[0].Config != "down" || st[0].State != engine.ConfigFailed || st[0].Failures != 3 {
			t.Errorf("configs in trouble: %+v", st)
		}
		enginetest.Pass(20 * time.Second)
		if st := i.Engine.Status().Stages[0].Configs; len(st) != 0 {
			t.Errorf("configs in trouble: %+v", st)
		}
		i.stopped()
		for _, key := range []string{"up", "down"} {
			seen.check(t, key, 2*time.Second, seconds(0, 10, 20, 30, 40)...)
		}
	})
}

// S5: a page that a topic does not take is a failed poll, whatever the source makes of the error: on_error decides, nothing of the
// page comes out, neither what the poll sends after it, and the other configs go on.
func TestS5RefusedPageFollowsOnError(t *testing.T) {
	for name, large := range map[string]func(*stream.Page){
		"message": func(p *stream.Page) { p.Messages[0].Value = []byte(quoted(3000)) },
		"cursor":  func(p *stream.Page) { p.Cursor = []byte(quoted(3000)) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			out := &stream.Topic{Name: r.topic("out", 1, "max.message.bytes=2000"), Key: stream.String}
			r.topic("changelog", 1, "cleanup.policy=compact", "max.message.bytes=2000")
			var tries atomic.Int32
			i := r.polling("every: 10ms\non_error: skip\nconfigs: { a: {}, b: {} }\n", func(ctx context.Context, p *stream.Poll) error {
				at := number(t, p.Cursor)
				if p.Config.Key == "a" && at == 2 && tries.Add(1) <= 3 {
					one := page(out, "a", at, 1)
					large(one)
					_ = p.Commit(ctx, one)
					_ = p.Commit(ctx, page(out, "a", at+1, 1))
					return nil
				}
				return p.Commit(ctx, page(out, p.Config.Key, at, 1))
			})
			i.log.await(t, "0 polled a pages 0 err the", 3)
			i.log.await(t, "0 polled a pages 1 err <nil>", 5)
			i.log.await(t, "0 polled b pages 1 err <nil>", 5)
			if n := i.log.count("0 running"); n != 1 {
				t.Errorf("the task began %d times; effects:\n%s", n, i.log)
			}
			i.stopped()
			checkPages(t, r, out.Name, 10)
		})
	}
}

// on_error: retry of a transformer. The task whose record fails pauses, and nothing of its batch comes out meanwhile; the other
// goes on. When the record no longer fails everything comes out once, in order.
func TestOnErrorRetryOfATransformer(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 2)
	out := &stream.Topic{Name: r.topic("out", 2), Key: stream.String}
	var down atomic.Bool
	down.Store(true)
	spec := r.simple(in, out)
	number := count(out)
	spec.handle = func(rec *stream.Record, state []byte) ([]stream.Message, []byte, error) {
		if string(rec.Value) == "2" && down.Load() {
			return nil, nil, errors.New("the lookup does not answer")
		}
		return number(rec, state)
	}
	spec.change = func(t *pipeline.Transformer) {
		t.OnError, t.Retry = pipeline.Retry, pipeline.Backoff{Min: 5 * time.Millisecond, Max: 20 * time.Millisecond}
	}
	for n := range 5 {
		r.put(in, 0, "k0", fmt.Append(nil, n))
	}
	i := r.start("", spec)
	i.log.await(t, "0 failed at 2 skipped false", 3)
	for n := range 5 {
		r.put(in, 1, "k1", fmt.Append(nil, 10+n))
	}
	enginetest.WaitOffsets(t, r.opts(), r.id, map[string]map[int32]int64{in: {1: 5}})
	i.log.await(t, "0 failed at 2 skipped false", i.log.count("0 failed")+3)
	if at := r.committed(r.id, in, 0); at > 2 {
		t.Errorf("offset %d was committed while record 2 failed", at)
	}
	for _, rec := range enginetest.ReadCommitted(t, r.opts(), out.Name) {
		if _, of, _ := strings.Cut(string(rec.Value), ":"); of >= "2" && of < "5" && len(of) == 1 {
			t.Errorf("output %s came out while record 2 failed", rec.Value)
		}
	}
	if n := i.log.count("0 running"); n != 1 {
		t.Errorf("the task began %d times", n)
	}
	down.Store(false)
	r.checkCounters(out.Name, 10)
	i.stopped()
	r.checkOffsets(in, 2, 10)
}

// R8: a stage that waits for a record to succeed stops at once, and leaves the record to the next start.
func TestOnErrorRetryEndsWithTheStage(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	spec := r.simple(in, out)
	spec.change = func(t *pipeline.Transformer) {
		t.OnError, t.Retry = pipeline.Retry, pipeline.Backoff{Min: time.Hour, Max: time.Hour}
	}
	r.put(in, 0, "k", []byte(`"bad"`))
	i := r.start("", spec)
	i.log.await(t, "0 failed at 0", 1)
	began := time.Now()
	i.stopped()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v to stop", took)
	}
	if at := r.committed(r.id, in, 0); at > 0 {
		t.Errorf("offset %d was committed", at)
	}
}
