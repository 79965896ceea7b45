package enginetest

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// brokers runs a test on a fake and on a real Kafka.
func brokers(t *testing.T, test func(t *testing.T, opts []kgo.Opt)) {
	t.Run("fake", func(t *testing.T) { test(t, NewFake(t, FakeConfig{}).Opts()) })
	t.Run("kafka", func(t *testing.T) { test(t, At(Kafka(t))) })
}

func txn(t *testing.T, client *kgo.Client, end kgo.TransactionEndTry, records ...*kgo.Record) {
	t.Helper()
	if err := client.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := client.EndTransaction(t.Context(), end); err != nil {
		t.Fatal(err)
	}
}

func TestProducePlacesByPartitionOrKey(t *testing.T) {
	brokers(t, func(t *testing.T, opts []kgo.Opt) {
		topic := Unique("placed")
		CreateTopic(t, opts, topic, 8)
		Produce(t, opts,
			&kgo.Record{Topic: topic, Partition: 5, Key: []byte("london"), Value: []byte("asked"), Timestamp: time.UnixMilli(1000),
				Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("1")}, {Key: "h", Value: nil}}},
			&kgo.Record{Topic: topic, Partition: -1, Key: []byte("london"), Value: []byte("by key")})
		got := ReadCommitted(t, opts, topic)
		if len(got) != 2 {
			t.Fatalf("read %d records", len(got))
		}
		// The vector of murmur2: london is 4 of 8.
		if got[0].Partition != 4 || string(got[0].Value) != "by key" || got[1].Partition != 5 || string(got[1].Value) != "asked" {
			t.Errorf("got %s in %d and %s in %d", got[0].Value, got[0].Partition, got[1].Value, got[1].Partition)
		}
		if r := got[1]; r.Timestamp.UnixMilli() != 1000 || fmt.Sprint(r.Headers) != "[{h [49]} {h []}]" {
			t.Errorf("timestamp %d, headers %v", r.Timestamp.UnixMilli(), r.Headers)
		}
	})
}

func TestReadTellsCommittedFromAborted(t *testing.T) {
	brokers(t, func(t *testing.T, opts []kgo.Opt) {
		topic := Unique("read")
		CreateTopic(t, opts, topic, 2)
		if got := ReadCommitted(t, opts, topic); len(got) != 0 {
			t.Fatalf("an empty topic gave %d records", len(got))
		}
		record := func(value string) *kgo.Record { return &kgo.Record{Topic: topic, Value: []byte(value)} }
		client := func() *kgo.Client {
			c, err := kgo.NewClient(append([]kgo.Opt{kgo.TransactionalID(Unique("txn")), kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			return c
		}
		a, b := client(), client()
		txn(t, a, kgo.TryCommit, record("committed"))
		txn(t, a, kgo.TryAbort, record("aborted"))
		// b stays open over an aborted transaction of a: what readers may see ends before b.
		if err := a.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := a.ProduceSync(t.Context(), record("aborted later")).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := b.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := b.ProduceSync(t.Context(), record("open")).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := a.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
			t.Fatal(err)
		}
		if got := values(ReadCommitted(t, opts, topic)); got != "[committed]" {
			t.Errorf("read_committed gave %s", got)
		}
		if got := values(ReadAll(t, opts, topic)); got != "[committed * aborted * aborted later open *]" {
			t.Errorf("everything is %s", got)
		}
		if err := b.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
	})
}

func values(records []*kgo.Record) string {
	var all []string
	for _, r := range records {
		if r.Attrs.IsControl() {
			all = append(all, "*")
		} else {
			all = append(all, string(r.Value))
		}
	}
	return fmt.Sprint(all)
}

func TestFoldReadsAChangelog(t *testing.T) {
	f := NewFake(t, FakeConfig{})
	f.CreateTopic(t, "changelog", 2, "cleanup.policy=compact")
	put := func(partition int32, key string, value []byte) *kgo.Record {
		return &kgo.Record{Topic: "changelog", Partition: partition, Key: []byte(key), Value: value}
	}
	Produce(t, f.Opts(), put(0, "a", []byte(`{"n":1}`)), put(0, "a", []byte(`{"n":2}`)), put(1, "gone", []byte(`{"n":1}`)), put(1, "gone", nil),
		put(0, "empty", []byte(`{"n":1}`)), put(0, "empty", []byte(`{}`)), put(0, "\x00takeover", []byte("x")))
	f.Cluster.Compact() // leaves holes
	want := map[string]string{"a": `{"n":2}`}
	if got := Fold(t, f.Opts(), "changelog"); !maps.Equal(got, want) {
		t.Errorf("fold is %v, want %v", got, want)
	}
}

func TestCommittedOffsets(t *testing.T) {
	f, p := begun(t)
	if got := CommittedOffsets(t, f.Opts(), "g"); len(got) != 0 {
		t.Fatalf("a new group has offsets %v", got)
	}
	if err := commitOffset(t.Context(), f, p, connect(t, f), "task-0", "g", "out", 42); err != nil {
		t.Fatal(err)
	}
	if err := p.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	if got := CommittedOffsets(t, f.Opts(), "g"); got["out"][0] != 42 {
		t.Fatalf("offsets are %v", got)
	}
}

func TestWaitCommittedSeesRecordsAsTheyCome(t *testing.T) {
	f, p := begun(t)
	end := make(chan error, 1)
	go func() { end <- p.EndTransaction(context.Background(), kgo.TryCommit) }()
	if got := values(WaitCommitted(t, f.Opts(), "out", AtLeast(1))); got != "[first]" {
		t.Fatalf("got %s", got)
	}
	if err := <-end; err != nil {
		t.Fatal(err)
	}
}

func TestWaitOffsets(t *testing.T) {
	f, p := begun(t)
	if err := commitOffset(t.Context(), f, p, connect(t, f), "task-0", "g", "out", 42); err != nil {
		t.Fatal(err)
	}
	end := make(chan error, 1)
	go func() { end <- p.EndTransaction(context.Background(), kgo.TryCommit) }()
	WaitOffsets(t, f.Opts(), "g", map[string]map[int32]int64{"out": {0: 42}})
	if err := <-end; err != nil {
		t.Fatal(err)
	}
}
