package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/enginetest"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// session is a push source in Go.
type session func(ctx context.Context, push *stream.Push) error

func (s session) Run(ctx context.Context, push *stream.Push) error { return s(ctx, push) }
func (session) Status() stream.SessionStatus {
	return stream.SessionStatus{Connected: true, Subscribed: true}
}
func (session) Close() {}

// connecting is one that has not subscribed yet.
type connecting struct{ session }

func (connecting) Status() stream.SessionStatus { return stream.SessionStatus{Connected: true} }

// push runs one stage whose source tells by itself, as the instance named one.
func (r *rig) push(out *stream.Topic, run session, change ...func(*pipeline.Extractor, *engine.Options)) *instance {
	r.t.Helper()
	x := &pipeline.Extractor{Name: "bridge", ApplicationID: r.id, MQTT: &pipeline.MQTT{}, OutputTopics: []*pipeline.Topic{{Topic: *out}},
		Configs: []stream.Config{{Key: "default", Value: []byte("{}")}}}
	p := &pipeline.Pipeline{Name: "test", File: "test.yaml", Vars: []byte("{}"), Extractors: []*pipeline.Extractor{x}}
	o := engine.Options{Kafka: r.kafk, State: engine.State{Dir: r.t.TempDir(), Memory: 8 << 20}, Instance: "one"}
	o.Handlers.Session = func(_ *pipeline.Pipeline, _ *pipeline.Extractor, instance string, _ *engine.Arrivals) (stream.Session, error) {
		if instance != "one" {
			return nil, fmt.Errorf("the instance is called %q", instance)
		}
		return run, nil
	}
	return r.launch(o, func(o *engine.Options) {
		for _, c := range change {
			c(x, o)
		}
	}, p)
}

// arriving hands over n pages of two numbered messages each, and then waits for its end.
func arriving(out *stream.Topic, n int) session {
	return func(ctx context.Context, push *stream.Push) error {
		for i := range n {
			if err := push.Commit(push.Grace, page(out, "k", 2*i, 2)); err != nil {
				return err
			}
		}
		<-ctx.Done()
		return nil
	}
}

// arrived checks that the numbers from 0 to n-1 have come, each at least once, and first in order. It answers how many records
// there are.
func arrived(t *testing.T, r *rig, topic string, n int) int {
	t.Helper()
	records := enginetest.ReadCommitted(t, r.opts(), topic)
	next := 0
	for _, rec := range records {
		v, err := strconv.Atoi(string(rec.Value))
		if err != nil {
			t.Fatal(err)
		}
		if v > next {
			t.Fatalf("%d came before %d%s", v, next, r.effects())
		}
		if v == next {
			next++
		}
	}
	if next != n {
		t.Fatalf("%d of %d messages came%s", next, n, r.effects())
	}
	return len(records)
}

func TestM3CommitAnswersAfterTheTransaction(t *testing.T) {
	r := newRig(t)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	seen := make(chan int, 1)
	i := r.push(out, func(ctx context.Context, push *stream.Push) error {
		if err := push.Commit(ctx, page(out, "k", 0, 3)); err != nil {
			return err
		}
		seen <- len(enginetest.ReadCommitted(t, r.opts(), out.Name))
		<-ctx.Done()
		return nil
	})
	if n := <-seen; n != 3 {
		t.Errorf("%d messages were there when Commit answered", n)
	}
	if st := i.Engine.Status(); !st.Ready || st.Stages[0].Session == nil || st.Stages[0].Polled != 1 || st.Stages[0].Tasks[0].Phase != "running" {
		t.Errorf("%+v", st)
	}
	i.stopped()
	want := "0 assigned\n0 fence\n0 running\n0 begin\n0 produced 3 changed 0\n0 commit 3\n0 stopped\nended: <nil>"
	if got := i.log.String(); got != want {
		t.Errorf("effects\n%s\nwant\n%s", got, want)
	}
}

// Who is told that an instance is ready may publish: what comes before the subscription would be lost.
func TestReadyWaitsForTheSubscription(t *testing.T) {
	r := newRig(t)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	begun := make(chan struct{})
	run := session(func(ctx context.Context, _ *stream.Push) error {
		close(begun)
		<-ctx.Done()
		return nil
	})
	i := r.push(out, run, func(_ *pipeline.Extractor, o *engine.Options) {
		o.Handlers.Session = func(*pipeline.Pipeline, *pipeline.Extractor, string, *engine.Arrivals) (stream.Session, error) {
			return connecting{run}, nil
		}
	})
	<-begun
	if st := i.Engine.Status(); st.Ready || st.Stages[0].Joined || st.Stages[0].Tasks[0].Phase != "running" {
		t.Errorf("%+v", st)
	}
	i.stopped()
}

// E5 for what has no changelog: a page in doubt is sent again behind a fence. Nothing is lost, and the order holds.
func TestM3PageInDoubtIsSentAgain(t *testing.T) {
	for name, install := range map[string]func(*rig, enginetest.Which) *enginetest.Fault{
		"request": func(r *rig, w enginetest.Which) *enginetest.Fault { return r.fake.LoseRequest(w) },
		"answer":  func(r *rig, w enginetest.Which) *enginetest.Fault { return r.fake.LoseAnswer(r.t, w) },
	} {
		for request, w := range map[string]enginetest.Which{
			"EndTxn":         {Key: endTxn, Skip: 2, Count: 2},
			"Produce":        {Key: produceRequest, Skip: 2, Count: 2},
			"InitProducerId": {Key: kmsg.InitProducerID, Count: 2},
		} {
			t.Run(request+", "+name, func(t *testing.T) {
				needFake(t)
				r := newRig(t)
				out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
				w.TxnID = r.id + "-one"
				f := install(r, w)
				i := r.push(out, arriving(out, 8))
				i.log.await(t, "0 commit", 8)
				f.Wait(t, 1)
				i.stopped()
				got := arrived(t, r, out.Name, 16)
				if lost := request == "EndTxn" && name == "answer"; lost != (got > 16) {
					t.Errorf("%d records: a page comes twice where it was committed and nobody knew, and only there%s", got, r.effects())
				}
			})
		}
	}
}

// M5: Kafka is away for a while. Commit waits, and goes on with the same page.
func TestM5CommitWaitsForKafka(t *testing.T) {
	r := newRig(t)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	first, away := make(chan struct{}), make(chan struct{})
	i := r.push(out, func(ctx context.Context, push *stream.Push) error {
		for n := range 6 {
			if n == 2 {
				close(first)
				<-away
			}
			if err := push.Commit(ctx, page(out, "k", 2*n, 2)); err != nil {
				return err
			}
		}
		<-ctx.Done()
		return nil
	})
	<-first
	i.wire.cut()
	close(away)
	i.log.await(t, "0 begin", 3)
	timer := time.NewTimer(2 * time.Second)
	defer timer.Stop()
	select {
	case <-i.ended:
		t.Fatalf("the engine ended: %v", i.err)
	case <-timer.C: // long enough for several attempts
	}
	if n := i.log.count("0 commit"); n != 2 {
		t.Fatalf("%d pages are committed without Kafka", n)
	}
	i.wire.heal()
	i.log.await(t, "0 commit", 6)
	i.stopped()
	arrived(t, r, out.Name, 12)
}

// Another process with the same name fences this one, which ends and says so. What the other one then sends counts.
func TestPushIsFencedByItsName(t *testing.T) {
	r := newRig(t)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	goOn := make(chan struct{})
	i := r.push(out, func(ctx context.Context, push *stream.Push) error {
		if err := push.Commit(ctx, page(out, "k", 0, 2)); err != nil {
			return err
		}
		<-goOn
		return push.Commit(ctx, page(out, "k", 2, 2))
	})
	i.log.await(t, "0 commit", 1)
	other := r.client(kgo.TransactionalID(r.id + "-one"))
	if _, _, err := other.ProducerID(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	err := i.wait()
	if !errors.Is(err, engine.ErrSurroundings) || !strings.Contains(err.Error(), "instance.id one") {
		t.Errorf("%v%s", err, r.effects())
	}
	arrived(t, r, out.Name, 2)
}

func TestPushNamesTheMessageThatKafkaRefuses(t *testing.T) {
	r := newRig(t)
	out := &stream.Topic{Name: r.topic("out", 1, "max.message.bytes=2000"), Key: stream.String}
	i := r.push(out, func(ctx context.Context, push *stream.Push) error {
		large := page(out, "k", 0, 3)
		large.Messages[1].Value = bytes.Repeat([]byte("x"), 3000)
		err := push.Commit(ctx, large)
		var refused *stream.RefusedError
		if !errors.As(err, &refused) || refused.Message != 1 || !strings.Contains(err.Error(), "max.message.bytes") {
			return fmt.Errorf("refused as: %w", err)
		}
		if err := push.Commit(ctx, page(out, "k", 0, 2)); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
	i.log.await(t, "0 commit", 1)
	i.stopped()
	arrived(t, r, out.Name, 2)
}

// P5 for push sources: a suspended config does not take part, and every change is told.
func TestPushKnowsItsConfigs(t *testing.T) {
	r := newRig(t)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	topic := r.topic("configs", 3, "cleanup.policy=compact")
	r.put(topic, 0, "a", []byte(`{"topic":"a"}`))
	r.put(topic, 2, "b", []byte(`{"topic":"b","suspended":true}`))
	told := make(chan string, 16)
	r.push(out, func(ctx context.Context, push *stream.Push) error {
		for {
			now, changed := push.Configs()
			text := ""
			for _, c := range now {
				text += c.Key + string(c.Value) + " "
			}
			told <- text + string(push.Lookup().Get("b"))
			select {
			case <-changed:
			case <-ctx.Done():
				return nil
			}
		}
	}, func(x *pipeline.Extractor, _ *engine.Options) {
		x.Configs = []stream.Config{{Key: "inline", Value: []byte(`{}`)}}
		x.ConfigTopics = []*pipeline.Topic{{Topic: stream.Topic{Name: topic}}}
	})
	want := func(text string) {
		t.Helper()
		select {
		case got := <-told:
			if got != text {
				t.Errorf("configs %q, want %q", got, text)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("nobody told of %q%s", text, r.effects())
		}
	}
	want(`a{"topic":"a"} inline{} {"topic":"b","suspended":true}`)
	r.put(topic, 2, "b", []byte(`{"topic":"b"}`))
	want(`a{"topic":"a"} b{"topic":"b"} inline{} {"topic":"b"}`)
	r.put(topic, 0, "a", nil)
	want(`b{"topic":"b"} inline{} {"topic":"b"}`)
}

// R8: a session that does not end in time is left behind.
func TestR8PushIsAbandonedAfterShutdownTimeout(t *testing.T) {
	r := newRig(t)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	i := r.push(out, func(ctx context.Context, push *stream.Push) error {
		if err := push.Commit(ctx, page(out, "k", 0, 2)); err != nil {
			return err
		}
		<-push.Grace.Done() // deaf to ctx
		return context.Cause(push.Grace)
	}, func(_ *pipeline.Extractor, o *engine.Options) { o.ShutdownTimeout = 200 * time.Millisecond })
	i.log.await(t, "0 commit", 1)
	if err := i.stop(); err != nil {
		t.Error(err)
	}
	if i.log.count("warning task.abandoned") != 1 {
		t.Error(i.log)
	}
}
