package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/enginetest"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// source is an extractor's poll in Go.
type source func(ctx context.Context, poll *stream.Poll) error

func (s source) Poll(ctx context.Context, poll *stream.Poll) error { return s(ctx, poll) }
func (source) Close()                                              {}

// extract runs one extractor over configs until it is stopped.
func (r *rig) extract(dir string, out *stream.Topic, every time.Duration, tokens int, keys []string, poll source, change ...func(*engine.Options)) *instance {
	r.t.Helper()
	x := &pipeline.Extractor{Name: "source", ApplicationID: r.id, Every: every, Tokens: tokens, Timeout: time.Minute,
		OutputTopics: []*pipeline.Topic{{Topic: *out}}}
	for _, key := range keys {
		x.Configs = append(x.Configs, stream.Config{Key: key, Value: []byte("{}")})
	}
	p := &pipeline.Pipeline{Name: "test", File: "test.yaml", Vars: []byte("{}"), Extractors: []*pipeline.Extractor{x}}
	if dir == "" {
		dir = r.t.TempDir()
	}
	o := engine.Options{Kafka: r.kafk, State: engine.State{Dir: dir, Memory: 8 << 20}}
	o.Handlers.Source = func(*pipeline.Pipeline, *pipeline.Extractor) (stream.Source, error) { return poll, nil }
	return r.launch(o, func(o *engine.Options) {
		for _, c := range change {
			c(o)
		}
	}, p)
}

// page makes a page of n numbered messages from first on, with the number after the last as cursor.
func page(out *stream.Topic, key string, first, n int) *stream.Page {
	p := &stream.Page{Cursor: strconv.AppendInt(nil, int64(first+n), 10), Moved: true}
	for i := range n {
		p.Messages = append(p.Messages, stream.Message{Topic: out, Partition: stream.AnyPartition, Key: []byte(key), Value: strconv.AppendInt(nil, int64(first+i), 10), Timestamp: 1})
	}
	return p
}

func number(t *testing.T, cursor []byte) int {
	if cursor == nil {
		return 0
	}
	n, err := strconv.Atoi(string(cursor))
	if err != nil {
		t.Errorf("cursor %q: %v", cursor, err)
	}
	return n
}

// P1, P4: a page and its cursor are one transaction, the poll goes on after it, and the next poll begins where it left off,
// also in another process without the local state.
func TestP1PageAndCursorAreOneTransaction(t *testing.T) {
	r := newRig(t)
	out := &stream.Topic{Name: r.topic("out", 1)}
	poll := func(ctx context.Context, p *stream.Poll) error {
		at := number(t, p.Cursor)
		for range 2 {
			if err := p.Commit(ctx, page(out, p.Config.Key, at, 3)); err != nil {
				return err
			}
			at += 3
		}
		return nil
	}
	a := r.extract("", out, 20*time.Millisecond, 1, []string{"c"}, poll)
	a.log.await(t, "0 polled c", 2)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	b := r.extract("", out, 20*time.Millisecond, 1, []string{"c"}, poll)
	b.log.await(t, "0 polled c", 2)
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	checkNumbers(t, r, out.Name, 24)
	lines := a.log.all()
	want := []string{"0 assigned", "0 fence", "0 takeover", "0 restored 1 from 0", "0 running", "0 poll c",
		"0 begin", "0 produced 3 changed 1", "0 offsets [1]", "0 commit 0", "0 apply", "0 begin"}
	if len(lines) < len(want) || strings.Join(lines[:2], ";") != strings.Join(want[:2], ";") {
		t.Fatalf("effects:\n%s", a.log)
	}
	for i, w := range want {
		if w != lines[i] && !strings.HasPrefix(w, "0 offsets") {
			t.Errorf("effect %d is %q, want %q", i, lines[i], w)
		}
	}
}

// checkNumbers reads 0, 1, 2, … from a topic of one partition: none missing, none twice, in order.
func checkNumbers(t *testing.T, r *rig, topic string, least int) {
	t.Helper()
	for i, rec := range r.read(topic, least) {
		if string(rec.Value) != strconv.Itoa(i) {
			t.Fatalf("%s at offset %d is %s, want %d", topic, rec.Offset, rec.Value, i)
		}
	}
}

// P2: what was committed before an error stays, the open page does not come out, and the process ends with the error.
func TestP2ErrorAfterABoundaryKeepsCommittedPages(t *testing.T) {
	r := newRig(t)
	out := &stream.Topic{Name: r.topic("out", 1)}
	boom := errors.New("the source broke")
	a := r.extract("", out, time.Hour, 1, []string{"default"}, func(ctx context.Context, p *stream.Poll) error {
		if err := p.Commit(ctx, page(out, "k", 0, 2)); err != nil {
			return err
		}
		return boom
	})
	err := a.wait()
	if !errors.Is(err, boom) || !strings.Contains(err.Error(), `config "default"`) {
		t.Fatalf("error %v, want the poll's with its config", err)
	}
	b := r.extract("", out, time.Hour, 1, []string{"default"}, func(ctx context.Context, p *stream.Poll) error {
		return p.Commit(ctx, page(out, "k", number(t, p.Cursor), 1))
	})
	b.log.await(t, "0 polled default", 1)
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	checkNumbers(t, r, out.Name, 3)
}

// P3: nothing new, nothing written.
func TestP3NothingNewOpensNoTransaction(t *testing.T) {
	r := newRig(t)
	out := &stream.Topic{Name: r.topic("out", 1)}
	var polls atomic.Int32
	a := r.extract("", out, time.Millisecond, 1, []string{"default"}, func(ctx context.Context, p *stream.Poll) error {
		switch polls.Add(1) {
		case 1:
			return p.Commit(ctx, page(out, "k", 0, 1))
		case 2:
			return p.Commit(ctx, &stream.Page{Cursor: []byte("1"), Moved: true}) // the state that is there already
		case 3:
			return p.Commit(ctx, &stream.Page{})
		}
		return nil
	})
	a.log.await(t, "0 polled default", 5)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	begun := 0
	for _, line := range a.log.all() {
		if line == "0 begin" {
			begun++
		}
	}
	if begun != 1 {
		t.Errorf("%d transactions, want 1; effects:\n%s", begun, a.log)
	}
}

// P6, P7: a slow config does not hold up the others, and a stop cancels polls: the open page is dropped.
func TestP6SlowConfigHoldsUpNobodyAndP7Cancel(t *testing.T) {
	r := newRig(t)
	out := &stream.Topic{Name: r.topic("out", 1)}
	cleaned := make(chan struct{})
	a := r.extract("", out, 10*time.Millisecond, 1, []string{"fast", "slow"}, func(ctx context.Context, p *stream.Poll) error {
		if p.Config.Key == "fast" {
			return p.Commit(ctx, page(out, "fast", number(t, p.Cursor), 1))
		}
		<-ctx.Done()
		close(cleaned)
		return context.Cause(ctx)
	})
	a.log.await(t, "0 polled fast", 5)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	<-cleaned
	checkNumbers(t, r, out.Name, 5)
}

// Two instances divide the tokens; when one stops the other takes over its configs and goes on where it was.
func TestExtractorTokensMoveWithTheirCursors(t *testing.T) {
	r := newRig(t)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	var keys []string
	for i := range 8 {
		keys = append(keys, fmt.Sprintf("config-%d", i))
	}
	poll := func(ctx context.Context, p *stream.Poll) error {
		return p.Commit(ctx, page(out, p.Config.Key, number(t, p.Cursor), 1))
	}
	a := r.extract("", out, 20*time.Millisecond, 4, keys, poll)
	a.log.await(t, "3 polled", 2)
	b := r.extract("", out, 20*time.Millisecond, 4, keys, poll)
	b.log.await(t, "", 20)
	waitFor(t, b, "running", 2)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, b, "running", 4)
	b.log.await(t, "1 polled", 3)
	b.log.await(t, "3 polled", 3)
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	next := map[string]int{}
	for _, rec := range r.read(out.Name, 40) {
		if key := string(rec.Key); string(rec.Value) != strconv.Itoa(next[key]) {
			t.Fatalf("config %s: %s, want %d", key, rec.Value, next[key])
		}
		next[string(rec.Key)]++
	}
}

// checkPages reads pages of several configs from a topic of one partition: of each config 0, 1, 2, …, none missing, none twice.
func checkPages(t *testing.T, r *rig, topic string, least int) {
	t.Helper()
	next := map[string]int{}
	for _, rec := range r.read(topic, least) {
		if key := string(rec.Key); string(rec.Value) != strconv.Itoa(next[key]) {
			t.Fatalf("config %s at offset %d: %s, want %d", key, rec.Offset, rec.Value, next[key])
		}
		next[string(rec.Key)]++
	}
}

// pages is a poll of one page of n messages.
func pages(t *testing.T, out *stream.Topic, n int) source {
	return func(ctx context.Context, p *stream.Poll) error {
		return p.Commit(ctx, page(out, p.Config.Key, number(t, p.Cursor), n))
	}
}

// P1: the poll goes on only after its page is committed; before that nobody sees the page or its cursor.
func TestP1PollGoesOnAfterTheCommit(t *testing.T) {
	needFake(t)
	r := newRig(t)
	out := &stream.Topic{Name: r.topic("out", 1)}
	held, release := r.fake.Hold(enginetest.Which{Key: endTxn, TxnID: r.id + "-0", Skip: 1})
	defer release()
	wentOn := make(chan struct{})
	a := r.extract("", out, time.Hour, 1, []string{"default"}, func(ctx context.Context, p *stream.Poll) error {
		if err := p.Commit(ctx, page(out, "k", 0, 2)); err != nil {
			return err
		}
		close(wentOn)
		return p.Commit(ctx, page(out, "k", 2, 2))
	})
	held.Wait(t, 1)
	select {
	case <-wentOn:
		t.Error("the poll went on before the commit")
	default:
	}
	if got := enginetest.ReadCommitted(t, r.opts(), out.Name); len(got) != 0 {
		t.Errorf("%d messages are visible before the commit", len(got))
	}
	if got := enginetest.Fold(t, r.opts(), r.id+"-changelog"); len(got) != 0 {
		t.Errorf("cursor %v is visible before the commit", got)
	}
	release()
	<-wentOn
	checkNumbers(t, r, out.Name, 4)
	a.stopped()
}

// P1, S1: messages without a cursor commit as well, a deleted cursor is gone, and the store agrees with the changelog.
func TestP1PagesWithoutCursorAndDeletedCursor(t *testing.T) {
	r := newRig(t)
	out := &stream.Topic{Name: r.topic("out", 1)}
	dir := t.TempDir()
	var polls atomic.Int32
	poll := func(ctx context.Context, p *stream.Poll) error {
		switch polls.Add(1) {
		case 1:
			one := page(out, "k", 0, 1)
			one.Moved, one.Cursor = false, nil
			return p.Commit(ctx, one)
		case 2:
			if p.Cursor != nil {
				t.Errorf("cursor %q, want none", p.Cursor)
			}
			return p.Commit(ctx, page(out, "k", 1, 1))
		case 3:
			if string(p.Cursor) != "2" {
				t.Errorf("cursor %q, want 2", p.Cursor)
			}
			gone := page(out, "k", 2, 1)
			gone.Cursor = nil
			return p.Commit(ctx, gone)
		case 4:
			if p.Cursor != nil {
				t.Errorf("cursor %q, want none", p.Cursor)
			}
		}
		return nil
	}
	a := r.extract(dir, out, time.Millisecond, 1, []string{"default"}, poll)
	a.log.await(t, "0 polled default", 4)
	a.stopped()
	checkNumbers(t, r, out.Name, 3)
	r.checkFold(dir, 1)
	if got := r.changelogOf(); fmt.Sprint(got) != "[default=2 default=null]" {
		t.Errorf("the changelog is %q", got)
	}
}

// P2, P7: a stop during a poll keeps committed pages and drops the open one; the next run begins at the last cursor.
func TestP7StopInTheMiddleOfAPoll(t *testing.T) {
	r := newRig(t)
	out := &stream.Topic{Name: r.topic("out", 1)}
	waiting := make(chan struct{})
	a := r.extract("", out, time.Hour, 1, []string{"default"}, func(ctx context.Context, p *stream.Poll) error {
		if err := p.Commit(ctx, page(out, "k", 0, 2)); err != nil {
			return err
		}
		close(waiting)
		<-ctx.Done()
		if err := p.Commit(ctx, page(out, "k", 100, 1)); err == nil {
			t.Error("a page was committed after the cancel")
		}
		return context.Cause(ctx)
	})
	<-waiting
	a.stopped()
	b := r.extract("", out, time.Hour, 1, []string{"default"}, pages(t, out, 1))
	b.log.await(t, "0 polled default", 1)
	b.stopped()
	checkNumbers(t, r, out.Name, 3)
}

// P4: polls of different configs of one token run side by side.
func TestP4PollsOfOneTokenRunSideBySide(t *testing.T) {
	r := newRig(t)
	out := &stream.Topic{Name: r.topic("out", 1)}
	var both sync.WaitGroup
	both.Add(2)
	var first sync.Map
	a := r.extract("", out, 2*time.Second, 1, []string{"a", "b"}, func(ctx context.Context, p *stream.Poll) error {
		if _, again := first.LoadOrStore(p.Config.Key, true); !again {
			both.Done()
			both.Wait()
		}
		return p.Commit(ctx, page(out, p.Config.Key, number(t, p.Cursor), 1))
	})
	a.log.await(t, "0 polled a", 1)
	a.log.await(t, "0 polled b", 1)
	a.stopped()
	checkPages(t, r, out.Name, 2)
}

// E5: lost requests and answers of an extractor's transactions: pages exactly once, in order.
func TestE5ExtractorLostRequestsAndAnswers(t *testing.T) {
	for name, install := range map[string]func(*rig, enginetest.Which) *enginetest.Fault{
		"request": func(r *rig, w enginetest.Which) *enginetest.Fault { return r.fake.LoseRequest(w) },
		"answer":  func(r *rig, w enginetest.Which) *enginetest.Fault { return r.fake.LoseAnswer(r.t, w) },
	} {
		for request, w := range map[string]enginetest.Which{
			"EndTxn":          {Key: endTxn, Skip: 2, Count: 2},
			"Produce":         {Key: produceRequest, Skip: 2, Count: 2},
			"TxnOffsetCommit": {Key: txnOffsetCommit, Skip: 1, Count: 2},
		} {
			t.Run(request+", "+name, func(t *testing.T) {
				needFake(t)
				r := newRig(t)
				out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
				w.TxnID = r.id + "-0"
				f := install(r, w)
				dir := t.TempDir()
				a := r.extract(dir, out, 5*time.Millisecond, 1, []string{"a", "b", "c"}, pages(t, out, 2))
				f.Wait(t, 2)
				done := a.log.count("0 polled a")
				a.log.await(t, "0 polled a", done+3)
				a.stopped()
				checkPages(t, r, out.Name, 4)
				r.checkFold(dir, 1)
			})
		}
	}
}

// E5: while the fate of one config's page is unknown, no page of another config of the token is sent: it would move the
// checkpoint past a page that nobody has looked for.
func TestE5DoubtHoldsUpTheOtherConfigs(t *testing.T) {
	for name, install := range map[string]func(*rig, enginetest.Which) *enginetest.Fault{
		"committed": func(r *rig, w enginetest.Which) *enginetest.Fault { return r.fake.LoseAnswer(r.t, w) },
		"aborted":   func(r *rig, w enginetest.Which) *enginetest.Fault { return r.fake.LoseRequest(w) },
	} {
		t.Run(name, func(t *testing.T) {
			needFake(t)
			r := newRig(t)
			out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
			w := enginetest.Which{Key: endTxn, TxnID: r.id + "-0", Skip: 1}
			lost := install(r, w)
			if name == "committed" {
				w.Skip = 2
			}
			refused := r.fake.Fail(kerr.InvalidProducerEpoch, w)
			inDoubt, tried := make(chan struct{}), make(chan struct{})
			var a1, b1 sync.Once
			dir := t.TempDir()
			i := r.extract(dir, out, 5*time.Millisecond, 1, []string{"a", "b"}, func(ctx context.Context, p *stream.Poll) error {
				first := false
				if p.Config.Key == "b" {
					b1.Do(func() { first = true; <-inDoubt })
				}
				err := p.Commit(ctx, page(out, p.Config.Key, number(t, p.Cursor), 2))
				if first {
					if err == nil {
						t.Error("a page was committed beside one whose fate is unknown")
					}
					close(tried)
				}
				if p.Config.Key == "a" && err != nil {
					// The clean-up of a body takes its time; the other config goes on meanwhile.
					a1.Do(func() { close(inDoubt); <-tried })
				}
				return err
			})
			i.log.await(t, "0 running", 2)
			done := i.log.count("0 polled")
			i.log.await(t, "0 polled", done+6)
			i.stopped()
			if lost.Fired() != 1 || refused.Fired() != 1 {
				t.Errorf("the faults hit %d and %d times, want once", lost.Fired(), refused.Fired())
			}
			checkPages(t, r, out.Name, 4)
			r.checkFold(dir, 1)
		})
	}
}

// A source that hides the failure of a commit does not bring the engine to go on as if it had worked.
func TestE5SourceHidesAFailedCommit(t *testing.T) {
	needFake(t)
	r := newRig(t)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	f := r.fake.FailProduce(kerr.PolicyViolation, enginetest.Which{Topic: out.Name, Skip: 1})
	i := r.extract("", out, 5*time.Millisecond, 1, []string{"a"}, func(ctx context.Context, p *stream.Poll) error {
		_ = p.Commit(ctx, page(out, p.Config.Key, number(t, p.Cursor), 2))
		return nil
	})
	i.log.await(t, "0 running", 2)
	i.log.await(t, "0 polled", 5)
	i.stopped()
	if f.Fired() != 1 {
		t.Errorf("the fault hit %d times", f.Fired())
	}
	checkPages(t, r, out.Name, 6)
}

// R7: an extractor that is fenced while it owns its token goes through E3 again and goes on at the last cursor.
func TestR7ExtractorFencedWhileOwner(t *testing.T) {
	r := newRig(t)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	dir := t.TempDir()
	i := r.extract(dir, out, 5*time.Millisecond, 1, []string{"a", "b"}, pages(t, out, 2))
	for n := 1; n <= 2; n++ {
		i.log.await(t, "0 polled a", 3*n)
		if _, _, err := r.foreign(0).ProducerID(t.Context()); err != nil {
			t.Fatal(err)
		}
		i.log.await(t, "0 running", n+1)
	}
	done := i.log.count("0 polled a")
	i.log.await(t, "0 polled a", done+3)
	i.stopped()
	checkPages(t, r, out.Name, 12)
	r.checkFold(dir, 1)
}

// A zombie extractor: its network is cut in the middle of a poll, another takes its token over, and it comes back. The page
// that it had open is refused, and nothing comes out twice.
func TestR7ZombieExtractor(t *testing.T) {
	r := newRig(t)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	inPoll, goOn := make(chan struct{}), make(chan struct{})
	var polls atomic.Int32
	a := r.extract("", out, 5*time.Millisecond, 1, []string{"a"}, func(ctx context.Context, p *stream.Poll) error {
		if polls.Add(1) == 3 {
			close(inPoll)
			<-goOn // deaf to ctx, as a process that was stopped is
		}
		return p.Commit(context.WithoutCancel(ctx), page(out, p.Config.Key, number(t, p.Cursor), 2))
	})
	<-inPoll
	a.wire.cut()
	b := r.extract("", out, 5*time.Millisecond, 1, []string{"a"}, pages(t, out, 2))
	b.log.await(t, "0 polled a", 3)
	a.wire.heal()
	close(goOn)
	b.log.await(t, "0 polled a", 6)
	a.stopped()
	b.stopped()
	checkPages(t, r, out.Name, 14)
}

// A member that the group has dropped, and that does not know it yet, cannot commit a page: its TxnOffsetCommit is refused.
func TestP8StaleMemberCannotCommit(t *testing.T) {
	needFake(t)
	r := newRig(t)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	inPoll, goOn := make(chan struct{}), make(chan struct{})
	var polls atomic.Int32
	i := r.extract("", out, 5*time.Millisecond, 1, []string{"a"}, func(ctx context.Context, p *stream.Poll) error {
		if polls.Add(1) == 3 {
			close(inPoll)
			<-goOn
			return p.Commit(context.WithoutCancel(ctx), page(out, "lost", 0, 1))
		}
		return p.Commit(ctx, page(out, p.Config.Key, number(t, p.Cursor), 2))
	})
	<-inPoll
	held, release := r.fake.Hold(enginetest.Which{Key: heartbeat, Count: -1})
	defer release()
	held.Wait(t, 1)
	r.fake.WaitGroupEmpty(t, r.id)
	close(goOn)
	i.log.await(t, "0 abort", 1)
	held.Remove()
	release()
	i.log.await(t, "0 polled a", 8)
	i.stopped()
	for _, rec := range r.read(out.Name, 4) {
		if string(rec.Key) == "lost" {
			t.Fatalf("a page of a member that was out is at offset %d; effects:\n%s", rec.Offset, i.log)
		}
	}
	checkPages(t, r, out.Name, 8)
}

// A page too large for its topic ends the process and names what does not fit; nothing of the page comes out.
func TestS5PageTooLarge(t *testing.T) {
	r := newRig(t)
	out := &stream.Topic{Name: r.topic("out", 1, "max.message.bytes=2000")}
	i := r.extract("", out, time.Hour, 1, []string{"default"}, func(ctx context.Context, p *stream.Poll) error {
		large := page(out, "the-key", 0, 3)
		large.Messages[1].Value = bytes.Repeat([]byte("x"), 3000)
		return p.Commit(ctx, large)
	})
	err := i.wait()
	for _, want := range []string{`config "default"`, "the-key", "30", "2000", out.Name, "max.message.bytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
	if got := enginetest.ReadCommitted(t, r.opts(), out.Name); len(got) != 0 {
		t.Errorf("%d messages of the page came out", len(got))
	}
}

// S5: a cursor that the changelog does not take.
func TestS5CursorTooLarge(t *testing.T) {
	r := newRig(t)
	out := &stream.Topic{Name: r.topic("out", 1)}
	r.topic("changelog", 1, "cleanup.policy=compact", "max.message.bytes=2000")
	i := r.extract("", out, time.Hour, 1, []string{"default"}, func(ctx context.Context, p *stream.Poll) error {
		large := page(out, "k", 0, 1)
		large.Cursor = []byte(quoted(3000))
		return p.Commit(ctx, large)
	})
	err := i.wait()
	for _, want := range []string{`"default"`, "30", "2000", r.id + "-changelog", "max.message.bytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
	if got := enginetest.ReadCommitted(t, r.opts(), out.Name); len(got) != 0 {
		t.Errorf("%d messages of the page came out", len(got))
	}
}

// waitFor waits until an instance has n tasks in a phase. It polls the status, since that is what is asked for.
func waitFor(t *testing.T, i *instance, phase string, n int) {
	t.Helper()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for deadline := time.Now().Add(30 * time.Second); ; <-again.C {
		found := 0
		for _, s := range i.Engine.Status().Stages {
			for _, task := range s.Tasks {
				if task.Phase == phase {
					found++
				}
			}
		}
		if found == n {
			return
		}
		if i.log.count("ended") > 0 || time.Now().After(deadline) {
			t.Fatalf("%d tasks %s, want %d; effects:\n%s", found, phase, n, i.log)
		}
	}
}
