package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/enginetest"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// checkBegins compares the first effects of a task.
func checkBegins(t *testing.T, i *instance, task int32, want ...string) {
	t.Helper()
	got := i.log.ofTask(task)
	for n, w := range want {
		if n >= len(got) || !strings.HasPrefix(got[n], w) {
			t.Fatalf("effect %d of task %d is not %q; effects:\n%s", n, task, w, i.log)
		}
	}
}

// R1, E3: fence, offsets, takeover, restore, and only then work.
func TestR1OrderOfAStart(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 2)
	out := &stream.Topic{Name: r.topic("out", 1)}
	l := r.load(in, 2, 4, 100)
	l.wait()
	for range 2 {
		i := r.start("", r.simple(in, out))
		i.log.await(t, "0 running", 1)
		i.log.await(t, "1 running", 1)
		r.checkCounters(out.Name, 100)
		i.stopped()
		for task := range int32(2) {
			checkBegins(t, i, task, "assigned", "fence", "offsets fetched", "takeover", "restored", "running")
		}
	}
}

// R1: a task that begins again does so in the same order, and reads on at the stable offsets.
func TestR1OrderOfANewStart(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1)}
	r.put(in, 0, "k", []byte("0"))
	i := r.start("", r.simple(in, out))
	i.log.await(t, "0 apply", 1)
	if _, _, err := r.foreign(0).ProducerID(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.put(in, 0, "k", []byte("1"))
	i.log.await(t, "0 apply", 2)
	i.stopped()
	r.checkCounters(out.Name, 2)
	got := i.log.ofTask(0)
	at := slices.IndexFunc(got, func(line string) bool { return strings.HasPrefix(line, "restarting") })
	want := []string{"fence", "offsets fetched", "takeover", "restored", "running", "begin"}
	if at < 0 || len(got) < at+1+len(want) {
		t.Fatalf("the task did not begin again; effects:\n%s", i.log)
	}
	for n, w := range want {
		if !strings.HasPrefix(got[at+1+n], w) {
			t.Errorf("effect %q after the restart, want %q; effects:\n%s", got[at+1+n], w, i.log)
		}
	}
}

// R2: an open transaction of whoever ran the task before is aborted by the newcomer. Its outputs and states are seen by
// nobody, its commit is refused, and readers are not held up by it.
func TestR2ZombiesOpenTransaction(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1)}
	changelog := r.topic("changelog", 1, "cleanup.policy=compact")
	zombie := r.foreign(0)
	if err := zombie.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := zombie.ProduceSync(t.Context(), &kgo.Record{Topic: out.Name, Key: []byte("k"), Value: []byte("zombie")},
		&kgo.Record{Topic: changelog, Key: []byte("k"), Value: []byte(`{"n":100}`)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		r.put(in, 0, "k", fmt.Append(nil, n))
	}
	dir := t.TempDir()
	i := r.start(dir, r.simple(in, out))
	r.checkCounters(out.Name, 3)
	if err := zombie.EndTransaction(t.Context(), kgo.TryCommit); err == nil {
		t.Error("the zombie's commit was taken")
	}
	r.put(in, 0, "k", []byte("3"))
	r.checkCounters(out.Name, 4)
	i.stopped()
	for _, rec := range enginetest.ReadCommitted(t, r.opts(), out.Name) {
		if string(rec.Value) == "zombie" {
			t.Error("the zombie's output is visible")
		}
	}
	r.checkFold(dir, 1)
}

// R2: nor does a zombie produce anything after the newcomer's fence.
func TestR2ZombieCannotWriteOn(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1)}
	zombie := r.foreign(0)
	if _, _, err := zombie.ProducerID(t.Context()); err != nil {
		t.Fatal(err)
	}
	i := r.start("", r.simple(in, out))
	i.log.await(t, "0 running", 1)
	if err := zombie.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	err := zombie.ProduceSync(t.Context(), &kgo.Record{Topic: out.Name, Value: []byte("zombie")}).FirstErr()
	if end := zombie.EndTransaction(t.Context(), kgo.TryCommit); err == nil && end == nil {
		t.Error("the zombie wrote and committed")
	}
	r.put(in, 0, "k", []byte("0"))
	r.checkCounters(out.Name, 1)
	i.stopped()
}

// R3: a restore ends at the takeover record though the changelog ends in aborted transactions, markers and holes.
func TestR3RestoreOverAbortedAndCompacted(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1)}
	changelog := r.topic("changelog", 1, "cleanup.policy=compact")
	r.setCommitted(in, 0, 0)
	write := func(end kgo.TransactionEndTry, values ...string) {
		t.Helper()
		other := r.client(kgo.TransactionalID(r.id+"-other"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		defer other.Close()
		if err := other.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for n, v := range values {
			rec := &kgo.Record{Topic: changelog, Key: fmt.Appendf(nil, "k%d", n%3), Value: []byte(v)}
			if err := other.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if err := other.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	write(kgo.TryCommit, `{"n":1}`, `{"n":2}`, `{"n":3}`, `{"n":4}`, `{"n":5}`)
	write(kgo.TryAbort, `{"n":70}`, `{"n":71}`, `{"n":72}`)
	write(kgo.TryCommit, `{"n":10}`)
	write(kgo.TryAbort, `{"n":80}`, `{"n":81}`, `{"n":82}`)
	if r.fake != nil {
		r.fake.Cluster.Compact()
	}
	write(kgo.TryAbort, `{"n":90}`)
	for n := range 3 {
		r.put(in, 0, fmt.Sprintf("k%d", n), fmt.Append(nil, n))
	}
	dir := t.TempDir()
	i := r.start(dir, r.simple(in, out))
	got := values(r.read(out.Name, 3))
	i.stopped()
	if want := []string{"11:0", "6:1", "4:2"}; !slices.Equal(got, want) {
		t.Errorf("outputs %q, want %q", got, want)
	}
	r.checkFold(dir, 1)
}

// R3: a takeover record that is compacted away because a later one came does not let the restore hang.
func TestR3TakeoverRecordIsCompactedAway(t *testing.T) {
	needFake(t)
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1)}
	changelog := r.topic("changelog", 1, "cleanup.policy=compact")
	r.setCommitted(in, 0, 0)
	r.put(changelog, 0, "other", []byte(`{"n":1}`))
	// The restore's fetch comes after ours, and after the compaction.
	held, release := r.fake.Hold(enginetest.Which{Key: listOffsets})
	defer release()
	i := r.start("", r.simple(in, out))
	held.Wait(t, 1)
	foreign := r.foreign(0)
	if err := foreign.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := foreign.ProduceSync(t.Context(), &kgo.Record{Topic: changelog, Key: []byte("\x00takeover"), Value: []byte("{}")},
		&kgo.Record{Topic: changelog, Key: []byte("k"), Value: []byte(`{"n":7}`)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := foreign.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	r.fake.Cluster.Compact()
	release()
	r.put(in, 0, "k", []byte("0"))
	if got := values(r.read(out.Name, 1)); !slices.Equal(got, []string{"8:0"}) {
		t.Errorf("outputs %q", got)
	}
	i.stopped()
}

// R4, E7: when a second instance joins, tasks that stay go on without a new start and without an aborted transaction.
func TestR4NeighboursGoOn(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 4)
	out := &stream.Topic{Name: r.topic("out", 2), Key: stream.String}
	l := r.load(in, 4, 8, 0)
	a := r.start("", r.simple(in, out))
	waitFor(t, a, "running", 4)
	b := r.start("", r.simple(in, out))
	waitFor(t, b, "running", 2)
	waitFor(t, a, "running", 2)
	kept := 0
	for task := range int32(4) {
		lines := a.log.ofTask(task)
		if slices.Contains(lines, "revoked") {
			continue
		}
		kept++
		for _, line := range lines {
			for _, bad := range []string{"abort", "restarting", "stopped", "lost"} {
				if strings.HasPrefix(line, bad) {
					t.Errorf("task %d, which stayed, shows %q", task, line)
				}
			}
		}
		if n := a.log.count(fmt.Sprintf("%d running", task)); n != 1 {
			t.Errorf("task %d, which stayed, began %d times", task, n)
		}
		done := a.log.count(fmt.Sprintf("%d commit", task))
		a.log.await(t, fmt.Sprintf("%d commit", task), done+2)
	}
	if kept != 2 {
		t.Errorf("%d tasks stayed, want 2; effects:\n%s", kept, a.log)
	}
	n := l.end()
	r.checkCounters(out.Name, n)
	a.stopped()
	b.stopped()
	r.checkOffsets(in, 4, n)
}

// R4: a task that is revoked finishes the transaction that it is at; the newcomer goes on after it.
func TestR4RevokedTaskFinishesItsTransaction(t *testing.T) {
	needFake(t)
	r := newRig(t)
	in := r.topic("in", 2)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	a := r.start("", r.simple(in, out))
	waitFor(t, a, "running", 2)
	ends := map[int32]func(){}
	var faults []*enginetest.Fault
	for task := range int32(2) {
		f, release := r.fake.Hold(enginetest.Which{Key: endTxn, TxnID: fmt.Sprintf("%s-%d", r.id, task)})
		defer release()
		ends[task], faults = release, append(faults, f)
		r.put(in, task, "k", []byte("0"))
	}
	for _, f := range faults {
		f.Wait(t, 1)
	}
	b := r.start("", r.simple(in, out))
	a.log.await(t, "1 revoked", 1)
	if slices.Contains(a.log.ofTask(1), "stopped") {
		t.Error("the task stopped in the middle of its transaction")
	}
	for _, release := range ends {
		release()
	}
	waitFor(t, b, "running", 1)
	a.stopped()
	b.stopped()
	if n := a.log.count("1 abort") + a.log.count("0 abort"); n != 0 {
		t.Errorf("%d transactions were aborted; effects:\n%s", n, a.log)
	}
	if got := r.read(out.Name, 2); len(got) != 2 {
		t.Errorf("%d outputs, want 2", len(got))
	}
	r.checkOffsets(in, 2, 2)
}

// R5: what was fetched for a task and not handled when it went is handled by whoever has it next, once.
func TestR5FetchedButNotHandled(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 2)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	l := r.load(in, 2, 4, 400)
	l.wait()
	// Small batches: most of what is fetched waits in the queue when the second instance comes.
	few := func(o *engine.Options) { o.BatchRecords = 5 }
	a := r.startWith("", few, r.simple(in, out))
	a.log.await(t, "0 commit", 1)
	b := r.startWith("", few, r.simple(in, out))
	waitFor(t, b, "running", 1)
	r.checkCounters(out.Name, 400)
	a.stopped()
	b.stopped()
	r.checkOffsets(in, 2, 400)
}

// R6: two, three, one instance under load, and one that ends without a word: of every key 1 to n in order.
func TestR6InstancesComeAndGo(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 6)
	out := &stream.Topic{Name: r.topic("out", 3), Key: stream.String}
	spec := r.simple(in, out)
	l := r.load(in, 6, 24, 0)
	a, b := r.start("", spec), r.start("", spec)
	waitFor(t, a, "running", 3)
	waitFor(t, b, "running", 3)
	c := r.start("", spec)
	waitFor(t, c, "running", 2)
	b.wire.cut()
	waitFor(t, a, "running", 3)
	waitFor(t, c, "running", 3)
	a.stopped()
	waitFor(t, c, "running", 6)
	dir := t.TempDir()
	d := r.start(dir, spec)
	waitFor(t, d, "running", 3)
	c.stopped()
	waitFor(t, d, "running", 6)
	n := l.end()
	r.checkCounters(out.Name, n)
	d.stopped()
	r.checkOffsets(in, 6, n)
	r.checkFold(dir, 6)
	t.Logf("%d records", n)
}

// R7: a task that is fenced while it is still the owner goes through E3 again, and nothing is lost or doubled.
func TestR7FencedWhileOwner(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 2)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	dir := t.TempDir()
	l := r.load(in, 2, 4, 0)
	i := r.start(dir, r.simple(in, out))
	for n := 1; n <= 3; n++ {
		done := i.log.count("0 commit")
		i.log.await(t, "0 commit", done+3)
		foreign := r.foreign(0)
		if n == 2 {
			// One that also leaves a transaction open.
			if err := foreign.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			if err := foreign.ProduceSync(t.Context(), &kgo.Record{Topic: out.Name, Key: []byte("k0"), Value: []byte("foreign")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		} else if _, _, err := foreign.ProducerID(t.Context()); err != nil {
			t.Fatal(err)
		}
		i.log.await(t, "0 running", n+1)
	}
	done := i.log.count("0 commit")
	i.log.await(t, "0 commit", done+2)
	n := l.end()
	r.checkCounters(out.Name, n)
	i.stopped()
	r.checkOffsets(in, 2, n)
	r.checkFold(dir, 2)
	if n := i.log.count("1 restarting"); n != 0 {
		t.Errorf("the other task began again %d times", n)
	}
}

// R7: an instance that was cut off beyond its session comes back: it drops its tasks, joins again, and nothing is lost or
// doubled. Neither ends the process.
func TestR7CutOffAndBack(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 4)
	out := &stream.Topic{Name: r.topic("out", 2), Key: stream.String}
	spec := r.simple(in, out)
	l := r.load(in, 4, 8, 0)
	a, b := r.start("", spec), r.start("", spec)
	waitFor(t, a, "running", 2)
	waitFor(t, b, "running", 2)
	a.wire.cut()
	waitFor(t, b, "running", 4)
	a.wire.heal()
	waitFor(t, b, "running", 2)
	waitFor(t, a, "running", 2)
	lost := 0
	for task := range int32(4) {
		lost += a.log.count(fmt.Sprintf("%d lost", task)) + a.log.count(fmt.Sprintf("%d revoked", task))
	}
	if lost == 0 {
		t.Errorf("no task was given up; effects:\n%s", a.log)
	}
	n := l.end()
	r.checkCounters(out.Name, n)
	a.stopped()
	b.stopped()
	r.checkOffsets(in, 4, n)
}

// A lone instance that misses its heartbeats loses its tasks, joins again and goes on.
func TestR7GroupLostAndBack(t *testing.T) {
	needFake(t)
	for _, kind := range []string{"stateful", "stateless"} {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t)
			in := r.topic("in", 2)
			out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
			spec := r.simple(in, out)
			if spec.stateless = kind == "stateless"; spec.stateless {
				spec.handle = echo(out)
			}
			i := r.start("", spec)
			waitFor(t, i, "running", 2)
			r.put(in, 0, "a", []byte("0"))
			r.read(out.Name, 1)
			held, release := r.fake.Hold(enginetest.Which{Key: heartbeat, Count: -1})
			defer release()
			held.Wait(t, 1)
			r.fake.WaitGroupEmpty(t, r.id)
			r.put(in, 0, "a", []byte("1")) // handled by a member that is out: it must not count
			r.put(in, 1, "b", []byte("0"))
			held.Remove()
			release()
			i.log.await(t, "0 lost", 1)
			i.log.await(t, "0 running", 2)
			got := r.read(out.Name, 3)
			if len(got) != 3 {
				t.Errorf("%d outputs, want 3", len(got))
			}
			i.stopped()
			if got := enginetest.ReadCommitted(t, r.opts(), out.Name); len(got) != 3 {
				t.Errorf("%d outputs at the end, want 3; effects:\n%s", len(got), i.log)
			}
			r.checkOffsets(in, 2, 3)
		})
	}
}

// R8: a stop finishes what is in flight, commits it, leaves the group, and ends without an error.
func TestR8StopDrainsAndLeaves(t *testing.T) {
	needFake(t)
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	held, release := r.fake.Hold(enginetest.Which{Key: endTxn, TxnID: r.id + "-0", Skip: 1})
	defer release()
	r.put(in, 0, "k", []byte("0"))
	dir := t.TempDir()
	i := r.start(dir, r.simple(in, out))
	held.Wait(t, 1)
	i.cancel()
	release()
	i.stopped()
	r.checkCounters(out.Name, 1)
	r.checkOffsets(in, 1, 1)
	r.checkFold(dir, 1)
	if n := i.log.count("0 commit"); n != 1 {
		t.Errorf("%d commits, want 1; effects:\n%s", n, i.log)
	}
}

// R8: after a stop the group has no members, so that nobody waits for a session to time out.
func TestR8GroupIsEmptyAfterAStop(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 2)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	long := func(o *engine.Options) { o.Kafka.SessionTimeout = 20 * time.Second }
	l := r.load(in, 2, 4, 50)
	i := r.startWith("", long, r.simple(in, out))
	l.wait()
	r.checkCounters(out.Name, 50)
	i.stopped()
	groups, err := kadm.NewClient(r.cl).DescribeGroups(t.Context(), r.id)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(groups[r.id].Members); n != 0 {
		t.Errorf("the group has %d members after the stop", n)
	}
	began := time.Now()
	again := r.startWith("", long, r.simple(in, out))
	waitFor(t, again, "running", 2)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the next start took %v", took)
	}
	again.stopped()
}

// R8: a stop while the cluster is away ends within the time for it, and nothing is lost.
func TestR8StopWhileTheClusterIsAway(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	l := r.load(in, 1, 2, 0)
	i := r.startWith("", func(o *engine.Options) { o.ShutdownTimeout = time.Second }, r.simple(in, out))
	i.log.await(t, "0 commit", 3)
	i.wire.cut()
	began := time.Now()
	i.stopped()
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("the stop took %v", took)
	}
	again := r.start("", r.simple(in, out))
	n := l.end()
	r.checkCounters(out.Name, n)
	again.stopped()
	r.checkOffsets(in, 1, n)
}

// An instance beyond the number of tasks has none, is ready all the same, and takes over when another goes.
func TestR6SpareInstance(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	a := r.start("", r.simple(in, out))
	waitFor(t, a, "running", 1)
	b := r.start("", r.simple(in, out))
	for deadline := time.Now().Add(30 * time.Second); !b.Engine.Status().Ready; {
		if time.Now().After(deadline) {
			t.Fatalf("the spare instance is not ready: %+v", b.Engine.Status())
		}
		select {
		case <-b.ended:
			t.Fatalf("it ended: %v", b.err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	r.put(in, 0, "k", []byte("0"))
	r.checkCounters(out.Name, 1)
	a.stopped()
	waitFor(t, b, "running", 1)
	r.put(in, 0, "k", []byte("1"))
	r.checkCounters(out.Name, 2)
	b.stopped()
}

// A committed offset that is no longer in the log is told with its remedy; nothing is skipped silently.
func TestR1OffsetOutOfRange(t *testing.T) {
	needFake(t)
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1)}
	l := r.load(in, 1, 1, 10)
	l.wait()
	a := r.start("", r.simple(in, out))
	r.read(out.Name, 10)
	a.stopped()
	r.load(in, 1, 1, 10).wait()
	if err := r.fake.Cluster.DeleteRecords(in, 0, 15); err != nil {
		t.Fatal(err)
	}
	b := r.start("", r.simple(in, out))
	err := b.wait()
	for _, want := range []string{in + "/0", r.id, "deleted before they were read"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	if !errors.Is(err, engine.ErrSurroundings) || !errors.Is(err, kerr.OffsetOutOfRange) {
		t.Errorf("error %v is of the wrong kind", err)
	}
}
