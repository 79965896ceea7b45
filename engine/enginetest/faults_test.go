package enginetest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// begun is a fake with topic "out" of two partitions and a producer that has written a record in an open transaction.
func begun(t *testing.T) (*Fake, *kgo.Client) {
	t.Helper()
	f := NewFake(t, FakeConfig{})
	f.CreateTopic(t, "out", 2)
	p := connect(t, f, kgo.TransactionalID("task-0"), kgo.DefaultProduceTopic("out"), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RetryBackoffFn(func(int) time.Duration { return time.Millisecond }), kgo.MetadataMinAge(10*time.Millisecond))
	if err := p.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := p.ProduceSync(t.Context(), kgo.StringRecord("first")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return f, p
}

func committed(t *testing.T, f *Fake) int {
	t.Helper()
	return len(ReadCommitted(t, f.Opts(), "out"))
}

func TestFaultLosesTheRequest(t *testing.T) {
	f, p := begun(t)
	fault := f.LoseRequest(Which{Key: kmsg.EndTxn, TxnID: "task-0", Count: -1})
	other := f.LoseRequest(Which{Key: kmsg.EndTxn, TxnID: "task-1"})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := p.EndTransaction(ctx, kgo.TryCommit); err == nil {
		t.Fatal("EndTransaction succeeded though its request was lost")
	}
	if fault.Fired() == 0 || other.Fired() != 0 {
		t.Fatalf("fired %d and, for another id, %d times", fault.Fired(), other.Fired())
	}
	fault.Remove()
	// The next owner aborts what was left open.
	if _, _, err := connect(t, f, kgo.TransactionalID("task-0")).ProducerID(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := committed(t, f); n != 0 {
		t.Fatalf("%d records are committed, want none", n)
	}
}

func TestFaultLosesTheAnswer(t *testing.T) {
	for _, network := range []Network{Loopback, Virtual} {
		t.Run(map[Network]string{Loopback: "loopback", Virtual: "virtual"}[network], func(t *testing.T) {
			run := func(t *testing.T) {
				f := NewFake(t, FakeConfig{Network: network})
				f.CreateTopic(t, "out", 1)
				p := connect(t, f, kgo.TransactionalID("task-0"), kgo.DefaultProduceTopic("out"))
				if err := p.BeginTransaction(); err != nil {
					t.Fatal(err)
				}
				if err := p.ProduceSync(t.Context(), kgo.StringRecord("first")).FirstErr(); err != nil {
					t.Fatal(err)
				}
				fault := f.LoseAnswer(t, Which{Key: kmsg.EndTxn, TxnID: "task-0"})
				err := p.EndTransaction(t.Context(), kgo.TryCommit)
				if fault.Fired() != 1 {
					t.Fatalf("fired %d times", fault.Fired())
				}
				// kgo asks again, and the broker knows the request for a repeated one.
				if err != nil {
					t.Fatalf("EndTransaction: %v", err)
				}
				if n := committed(t, f); n != 1 {
					t.Fatalf("%d records are committed, want 1: the broker did not act on the request", n)
				}
			}
			if network == Virtual {
				synctest.Test(t, run)
			} else {
				run(t)
			}
		})
	}
}

// A client that gives up asking does not know what became of its transaction, and here it was committed.
func TestFaultLosesEveryAnswer(t *testing.T) {
	f, p := begun(t)
	fault := f.LoseAnswer(t, Which{Key: kmsg.EndTxn, TxnID: "task-0", Count: -1})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := p.EndTransaction(ctx, kgo.TryCommit); err == nil {
		t.Fatal("EndTransaction succeeded though no answer came")
	}
	if fault.Fired() < 2 {
		t.Fatalf("fired %d times", fault.Fired())
	}
	if n := committed(t, f); n != 1 {
		t.Fatalf("%d records are committed, want 1", n)
	}
}

func TestFaultFailsProduce(t *testing.T) {
	f, p := begun(t)
	fault := f.FailProduce(kerr.MessageTooLarge, Which{Topic: "out", TxnID: "task-0", Skip: 1})
	for i, want := range []error{nil, kerr.MessageTooLarge, nil} {
		// Two partitions in one request: both are hit, and it counts as one.
		err := p.ProduceSync(t.Context(), &kgo.Record{Value: []byte("a")}, &kgo.Record{Value: []byte("b"), Partition: 1}).FirstErr()
		if i == 1 && !errors.Is(err, want) {
			t.Fatalf("produce %d returned %v, want %v", i, err, want)
		}
		if i == 0 && err != nil {
			t.Fatalf("produce %d returned %v", i, err)
		}
	}
	if fault.Fired() != 1 {
		t.Fatalf("fired %d times, want 1", fault.Fired())
	}
}

func TestFaultNotLeaderIsRetriedByTheClient(t *testing.T) {
	f, p := begun(t)
	fault := f.FailProduce(kerr.NotLeaderForPartition, Which{Topic: "out"})
	if err := p.ProduceSync(t.Context(), kgo.StringRecord("second")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := p.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	if n := committed(t, f); fault.Fired() != 1 || n != 2 {
		t.Fatalf("fired %d times, %d records; want 1 and 2", fault.Fired(), n)
	}
}

func TestFaultFailsOffsets(t *testing.T) {
	f, p := begun(t)
	fault := f.Fail(kerr.IllegalGeneration, Which{Key: kmsg.TxnOffsetCommit, TxnID: "task-0"})
	consumer := connect(t, f)
	for _, want := range []error{kerr.IllegalGeneration, nil} {
		if err := commitOffset(t.Context(), f, p, consumer, "task-0", "g", "out", 1); !errors.Is(err, want) {
			t.Fatalf("offsets: %v, want %v", err, want)
		}
	}
	if fault.Fired() != 1 {
		t.Fatalf("fired %d times", fault.Fired())
	}
	end := f.Fail(kerr.ConcurrentTransactions, Which{Key: kmsg.EndTxn, TxnID: "task-0"})
	if err := p.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	if end.Fired() != 1 {
		t.Fatalf("the fault of EndTxn fired %d times", end.Fired())
	}
}

func TestFaultHoldsUntilReleased(t *testing.T) {
	f, p := begun(t)
	fault, release := f.Hold(Which{Key: kmsg.EndTxn, TxnID: "task-0"})
	watch := f.Watch(Which{Key: kmsg.EndTxn})
	ended := make(chan error, 1)
	go func() { ended <- p.EndTransaction(t.Context(), kgo.TryCommit) }()
	fault.Wait(t, 1)
	if n := committed(t, f); n != 0 {
		t.Fatalf("%d records are committed while the end of the transaction is held", n)
	}
	release()
	release()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if n := committed(t, f); n != 1 || watch.Fired() != 1 {
		t.Fatalf("%d records, %d requests seen; want 1 and 1", n, watch.Fired())
	}
}

// A test may end while a fault still holds a request; nothing waits for it then.
func TestFaultThatHoldsEndsWithTheTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFake(t, FakeConfig{Network: Virtual})
		f.CreateTopic(t, "out", 1)
		p := connect(t, f, kgo.DefaultProduceTopic("out"))
		fault, _ := f.Hold(Which{Key: kmsg.Produce, Topic: "out"})
		p.Produce(t.Context(), kgo.StringRecord("held"), nil)
		fault.Wait(t, 1)
	})
}

func TestFaultDelaysOnTheFakeClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFake(t, FakeConfig{Network: Virtual})
		f.CreateTopic(t, "out", 1)
		p := connect(t, f, kgo.DefaultProduceTopic("out"))
		fault := f.Delay(3*time.Second, Which{Key: kmsg.Produce, Topic: "out"})
		began := time.Now()
		if err := p.ProduceSync(t.Context(), kgo.StringRecord("late")).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if passed := time.Since(began); fault.Fired() != 1 || passed < 3*time.Second {
			t.Fatalf("fired %d times, took %v", fault.Fired(), passed)
		}
	})
}

func TestKillConnections(t *testing.T) {
	f, p := begun(t)
	if n := f.KillConnections(); n == 0 {
		t.Fatal("there was no connection to kill")
	}
	if err := p.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Logf("EndTransaction returned %v", err)
	}
	if err := p.Ping(t.Context()); err != nil {
		t.Fatalf("the client did not come back: %v", err)
	}
}
