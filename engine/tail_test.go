package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flechtwerk/flechtwerk/engine"
)

// Tail shows what is committed after it was made: not what was there, and nothing of an aborted transaction. A topic that does
// not exist yet is read from its beginning.
func TestTailShowsWhatIsCommittedFromNowOn(t *testing.T) {
	k := startCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	adm := kadm.NewClient(kafkaClient(t, k))
	if _, err := adm.CreateTopic(ctx, 1, 1, nil, "old"); err != nil {
		t.Fatal(err)
	}
	w := kafkaClient(t, k)
	produce := func(topic, key string) {
		t.Helper()
		r := &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte("v"), Timestamp: time.UnixMilli(1000), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("x")}}}
		if err := w.ProduceSync(ctx, r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	produce("old", "before")

	records := make(chan engine.TailRecord)
	done := make(chan error, 1)
	tail := newTail(t, k, "new", "old")
	// It does not matter when it begins to read.
	produce("old", "after")
	reading, stop := context.WithCancel(ctx)
	go func() {
		done <- tail.Run(reading, func(r engine.TailRecord) error {
			select {
			case records <- r:
			case <-reading.Done():
			}
			return nil
		})
	}()
	next := func() string {
		t.Helper()
		select {
		case r := <-records:
			return fmt.Sprint(r.Topic, r.Partition, r.Offset, r.Timestamp, " ", string(r.Key), string(r.Value), r.Headers)
		case err := <-done:
			t.Fatalf("tail ended: %v", err)
		case <-ctx.Done():
			t.Fatal("no record came")
		}
		return ""
	}

	if diff := cmp.Diff("old0 1 1000 afterv[{h [120]}]", next()); diff != "" {
		t.Error(diff)
	}
	if _, err := adm.CreateTopic(ctx, 1, 1, nil, "new"); err != nil {
		t.Fatal(err)
	}
	tx := kafkaClient(t, k, kgo.TransactionalID("tx"))
	for _, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
		if err := tx.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := tx.ProduceSync(ctx, &kgo.Record{Topic: "new", Key: fmt.Append(nil, "commit=", bool(end)), Timestamp: time.UnixMilli(5)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := tx.EndTransaction(ctx, end); err != nil {
			t.Fatal(err)
		}
	}
	produce("new", "last")
	got := []string{next(), next()}
	want := []string{"new0 2 5 commit=true[]", "new0 4 1000 lastv[{h [120]}]"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("tail ended with %v", err)
	}
}

// What is committed when a Tail is told to end is read, though an aborted transaction is behind it.
func TestTailReadsToTheEnd(t *testing.T) {
	k := startCluster(t)
	adm := kadm.NewClient(kafkaClient(t, k))
	if _, err := adm.CreateTopic(t.Context(), 2, 1, nil, "old"); err != nil {
		t.Fatal(err)
	}
	tail := newTail(t, k, "old", "new", "never")
	if _, err := adm.CreateTopic(t.Context(), 1, 1, nil, "new"); err != nil {
		t.Fatal(err)
	}
	tx := kafkaClient(t, k, kgo.TransactionalID("tx"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryCommit, kgo.TryAbort} {
		if err := tx.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		key := fmt.Append(nil, i)
		if err := tx.ProduceSync(t.Context(), &kgo.Record{Topic: "old", Partition: 1, Key: key}, &kgo.Record{Topic: "new", Key: key}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := tx.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	var got []string
	err := tail.Run(ended, func(r engine.TailRecord) error {
		got = append(got, fmt.Sprint(r.Topic, r.Partition, " ", string(r.Key)))
		return nil
	})
	slices.Sort(got)
	if diff := cmp.Diff([]string{"new0 0", "new0 1", "old1 0", "old1 1"}, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestTailEndsWithTheErrorOfItsReader(t *testing.T) {
	k := startCluster(t)
	if _, err := kadm.NewClient(kafkaClient(t, k)).CreateTopic(t.Context(), 1, 1, nil, "a"); err != nil {
		t.Fatal(err)
	}
	tail := newTail(t, k, "a")
	if err := kafkaClient(t, k).ProduceSync(t.Context(), &kgo.Record{Topic: "a", Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	full := errors.New("full")
	if err := tail.Run(t.Context(), func(engine.TailRecord) error { return full }); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
}

func newTail(t *testing.T, k engine.Kafka, topics ...string) *engine.Tail {
	t.Helper()
	tail, err := engine.NewTail(t.Context(), k, topics)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tail.Close)
	return tail
}
