package engine_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/enginetest"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// T2: one record may become more outputs than go into a request: still one transaction.
func TestT2ManyOutputsOfOneRecord(t *testing.T) {
	const many = 45_000
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 3)}
	spec := r.simple(in, out)
	spec.handle = func(rec *stream.Record, _ []byte) ([]stream.Message, []byte, error) {
		messages := make([]stream.Message, many)
		for n := range messages {
			messages[n] = stream.Message{Topic: out, Partition: stream.AnyPartition, Key: strconv.AppendInt(nil, int64(n%100), 10), Value: strconv.AppendInt(nil, int64(n), 10), Timestamp: rec.Timestamp}
		}
		return messages, []byte(`{"n":1}`), nil
	}
	r.put(in, 0, "k", []byte("0"))
	i := r.start("", spec)
	last := map[string]int{}
	records := r.read(out.Name, many)
	for _, rec := range records {
		n, err := strconv.Atoi(string(rec.Value))
		if before, ok := last[string(rec.Key)]; err != nil || ok && n != before+100 {
			t.Fatalf("key %s at offset %d: %s comes after %d", rec.Key, rec.Offset, rec.Value, before)
		}
		last[string(rec.Key)] = n
	}
	i.stopped()
	if n := i.log.count("0 commit"); n != 1 || len(records) != many {
		t.Errorf("%d records in %d transactions, want %d in one", len(records), n, many)
	}
}

// E4: a failure after part of the outputs were sent takes those back as well.
func TestE4FailureInTheMiddleOfManyOutputs(t *testing.T) {
	needFake(t)
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1)}
	const many = 45_000
	spec := r.simple(in, out)
	spec.handle = func(rec *stream.Record, _ []byte) ([]stream.Message, []byte, error) {
		messages := make([]stream.Message, many)
		for n := range messages {
			messages[n] = stream.Message{Topic: out, Partition: 0, Value: strconv.AppendInt(nil, int64(n), 10), Timestamp: rec.Timestamp}
		}
		return messages, []byte(`{"n":1}`), nil
	}
	f := r.fake.FailProduce(kerr.PolicyViolation, enginetest.Which{Topic: out.Name, TxnID: r.id + "-0", Skip: 1})
	r.put(in, 0, "k", []byte("0"))
	i := r.start("", spec)
	checkNumbers(t, r, out.Name, many)
	i.stopped()
	if f.Fired() != 1 {
		t.Errorf("the fault hit %d times", f.Fired())
	}
	if got := enginetest.ReadCommitted(t, r.opts(), out.Name); len(got) != many {
		t.Errorf("%d outputs, want %d", len(got), many)
	}
}

// stuck is a body that does not end before it is told to.
func stuck(s *stageSpec) (running chan struct{}) {
	running = make(chan struct{}, 16)
	s.before = func(ctx context.Context) {
		running <- struct{}{}
		<-ctx.Done()
	}
	return running
}

// R4: a body that does not come to an end is stopped within a third of the rebalance timeout; its records are handled by the
// newcomer, once.
func TestR4BodyThatDoesNotEnd(t *testing.T) {
	onFakeClock(t, func(t *testing.T, r *rig) {
		in := r.topic("in", 2)
		out := &stream.Topic{Name: r.topic("out", 1)}
		spec := r.simple(in, out)
		running := stuck(&spec)
		a := r.startWith("", inMemory, spec)
		waitFor(t, a, "running", 2)
		r.put(in, 0, "a", []byte("0"))
		r.put(in, 1, "b", []byte("0"))
		<-running
		<-running
		began := time.Now()
		b := r.startWith("", inMemory, r.simple(in, out))
		waitFor(t, b, "running", 1)
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("the newcomer waited %v", took)
		}
		r.read(out.Name, 1)
		a.stopped()
		waitFor(t, b, "running", 2)
		r.checkCounterValues(out.Name, 2)
		b.stopped()
		r.checkOffsets(in, 2, 2)
	})
}

// R8: a body that does not come to an end holds up a stop no longer than the time for it; its records do not count.
func TestR8BodyThatDoesNotEnd(t *testing.T) {
	onFakeClock(t, func(t *testing.T, r *rig) {
		in := r.topic("in", 1)
		out := &stream.Topic{Name: r.topic("out", 1)}
		spec := r.simple(in, out)
		running := stuck(&spec)
		r.put(in, 0, "a", []byte("0"))
		a := r.startWith("", inMemory, spec)
		<-running
		began := time.Now()
		a.stopped()
		if took := time.Since(began); took < 9*time.Second || took > 12*time.Second {
			t.Errorf("the stop took %v, want the 10s that a task has", took)
		}
		b := r.startWith("", inMemory, r.simple(in, out))
		r.checkCounterValues(out.Name, 1)
		b.stopped()
	})
}

// A static member comes back under its name within its session: it keeps its tasks, and no other member is disturbed.
func TestStaticMemberComesBack(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 4)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	named := func(name string) func(*engine.Options) {
		return func(o *engine.Options) { o.InstanceID, o.Kafka.SessionTimeout = name, 6*time.Second }
	}
	l := r.load(in, 4, 8, 0)
	a := r.startWith("", named("a"), r.simple(in, out))
	waitFor(t, a, "running", 4)
	b := r.startWith("", named("b"), r.simple(in, out))
	waitFor(t, a, "running", 2)
	waitFor(t, b, "running", 2)
	a.stopped()
	again := r.startWith("", named("a"), r.simple(in, out))
	waitFor(t, again, "running", 2)
	waitFor(t, b, "running", 2)
	n := l.end()
	r.checkCounters(out.Name, n)
	for task := range int32(4) {
		if n := b.log.count(strconv.Itoa(int(task)) + " assigned"); n > 1 {
			t.Errorf("task %d of the other member was assigned %d times", task, n)
		}
	}
	again.stopped()
	b.stopped()
	r.checkOffsets(in, 4, n)
}

// D3: an input that gets more partitions while a stage with state runs ends it: its changelog has no place for them.
func TestD3InputGrows(t *testing.T) {
	onFakeClock(t, func(t *testing.T, r *rig) {
		in := r.topic("in", 2)
		out := &stream.Topic{Name: r.topic("out", 1)}
		i := r.startWith("", inMemory, r.simple(in, out))
		waitFor(t, i, "running", 2)
		if _, err := kadm.NewClient(r.cl).UpdatePartitions(t.Context(), 3, in); err != nil {
			t.Fatal(err)
		}
		enginetest.Pass(10 * time.Minute) // metadata is looked at every few minutes
		select {
		case <-i.ended:
		default:
			t.Fatalf("the engine goes on; effects:\n%s", i.log)
		}
		for _, want := range []string{in, "3", r.id + "-changelog", "2"} {
			if i.err == nil || !strings.Contains(i.err.Error(), want) {
				t.Errorf("error %v does not say %q", i.err, want)
			}
		}
		if !errors.Is(i.err, engine.ErrSurroundings) {
			t.Errorf("error %v is not one of the surroundings", i.err)
		}
	})
}

// A stage without state takes up partitions that its input gets.
func TestStatelessInputGrows(t *testing.T) {
	onFakeClock(t, func(t *testing.T, r *rig) {
		in := r.topic("in", 2)
		out := &stream.Topic{Name: r.topic("out", 1)}
		spec := r.simple(in, out)
		spec.handle, spec.stateless = echo(out), true
		i := r.startWith("", inMemory, spec)
		waitFor(t, i, "running", 2)
		if _, err := kadm.NewClient(r.cl).UpdatePartitions(t.Context(), 3, in); err != nil {
			t.Fatal(err)
		}
		r.put(in, 2, "k", []byte("0"))
		enginetest.Pass(10 * time.Minute)
		if got := values(r.read(out.Name, 1)); len(got) != 1 {
			t.Errorf("outputs %q", got)
		}
		i.stopped()
	})
}
