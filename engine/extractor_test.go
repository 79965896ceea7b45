package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flechtwerk/flechtwerk/engine"
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
