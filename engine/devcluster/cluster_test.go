package devcluster

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func start(t *testing.T, config Config) *Cluster {
	t.Helper()
	c, err := Start(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func connect(t *testing.T, c *Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(c.Addrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func createTopic(t *testing.T, client *kgo.Client, topic, policy string) {
	t.Helper()
	if _, err := kadm.NewClient(client).CreateTopic(t.Context(), 1, -1, map[string]*string{"cleanup.policy": &policy},
		topic); err != nil {
		t.Fatal(err)
	}
}

func TestOtherToolsCanJoin(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := start(t, Config{})
	writer := connect(t, c, kgo.TransactionalID("other-tool"))
	createTopic(t, writer, "shared", "delete")

	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "other", "1"
	resp, err := req.RequestWith(ctx, writer)
	if err != nil {
		t.Fatal(err)
	}
	features := map[string]int16{}
	for _, f := range resp.FinalizedFeatures {
		features[f.Name] = f.MaxVersionLevel
	}
	if features["transaction.version"] != 2 {
		t.Errorf("finalized features %v, want transaction.version 2", features)
	}

	if err := writer.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := writer.ProduceSync(ctx, &kgo.Record{Topic: "shared", Value: []byte("hello")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := writer.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	reader := connect(t, c, kgo.ConsumerGroup("other-group"), kgo.ConsumeTopics("shared"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	fetches := reader.PollFetches(ctx)
	for fetches.NumRecords() == 0 && ctx.Err() == nil {
		fetches = reader.PollFetches(ctx)
	}
	if got := fetches.Records(); len(got) != 1 || string(got[0].Value) != "hello" {
		t.Fatalf("read %v", fetches.Errors())
	}
}

func TestPortIsTheOneAskedFor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if _, err := Start(Config{Port: port}); err == nil {
		t.Fatal("a port that is taken was accepted")
	}
	l.Close()
	c := start(t, Config{Port: port})
	if got, want := c.Addrs(), []string{"127.0.0.1:" + strconv.Itoa(port)}; !slices.Equal(got, want) {
		t.Fatalf("Addrs() = %q, want %q", got, want)
	}
	c.Close()
	c.Close()
}

func TestMemoryStaysFlat(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	const mebi = 1 << 20
	c := start(t, Config{RetentionBytes: 4 * mebi, CompactBytes: 2 * mebi})
	client := connect(t, c, kgo.TransactionalID("writer"))
	createTopic(t, client, "events", "delete")
	createTopic(t, client, "changelog", "compact")

	value := bytes.Repeat([]byte{'x'}, 1000)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var most uint64
	for range 12 {
		// 4 MB of each topic a round, in transactions of ten records.
		for txn := range 400 {
			if err := client.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			var records []*kgo.Record
			for i := range 10 {
				records = append(records,
					&kgo.Record{Topic: "events", Value: value},
					&kgo.Record{Topic: "changelog", Key: fmt.Append(nil, (txn*10+i)%100), Value: value})
			}
			if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if err := client.EndTransaction(ctx, kgo.TryCommit); err != nil {
				t.Fatal(err)
			}
		}
		most = max(most, heap())
	}
	events, changelog := c.kfake.PartitionInfo("events", 0), c.kfake.PartitionInfo("changelog", 0)
	t.Logf("96 MB written: heap at most %d KiB; events %d KiB, changelog %d KiB",
		most>>10, events.NumBytes>>10, changelog.NumBytes>>10)
	if events.NumBytes > 4*mebi+mebi {
		t.Errorf("events holds %d bytes", events.NumBytes)
	}
	if changelog.NumBytes > 2*mebi+mebi {
		t.Errorf("changelog holds %d bytes", changelog.NumBytes)
	}
	if most > 40*mebi {
		t.Errorf("the heap grew to %d bytes", most)
	}
}

// Every key of a compacted topic keeps its last committed value, whatever was aborted around a rewrite, deleted keys stay
// deleted, and headers and timestamps survive.
func TestCompactedTopicKeepsLastCommittedValues(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := start(t, Config{RetentionBytes: 1 << 20, CompactBytes: 64 << 10})
	client := connect(t, c, kgo.TransactionalID("writer"))
	createTopic(t, client, "changelog", "compact")
	bystander := connect(t, c) // writes to the same partition without transactions, at the same time

	want := map[string]string{}
	pad := bytes.Repeat([]byte{'.'}, 300)
	for txn := range 600 {
		end := kgo.TryCommit
		if txn%3 == 1 {
			end = kgo.TryAbort
		}
		if err := client.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			key := fmt.Sprintf("key-%d", (txn*7+i*13)%97)
			r := &kgo.Record{Topic: "changelog", Key: []byte(key), Value: append(fmt.Appendf(nil, "%d/%d", txn, i), pad...),
				Timestamp: time.UnixMilli(int64(1e12 + txn)), Headers: []kgo.RecordHeader{{Key: "txn", Value: fmt.Append(nil, txn)}}}
			if (txn+i)%11 == 0 {
				r.Value = nil
			}
			if err := client.ProduceSync(ctx, r).FirstErr(); err != nil {
				t.Fatal(err)
			}
			switch {
			case end == kgo.TryAbort:
			case r.Value == nil:
				delete(want, key)
			default:
				want[key] = fmt.Sprintf("%s@%d", r.Value, r.Timestamp.UnixMilli())
			}
		}
		other := &kgo.Record{Topic: "changelog", Key: []byte("other"), Value: fmt.Append(nil, txn), Timestamp: time.UnixMilli(1e12)}
		if err := bystander.ProduceSync(ctx, other).FirstErr(); err != nil {
			t.Fatal(err)
		}
		want["other"] = fmt.Sprintf("%d@%d", txn, int64(1e12))
		if err := client.EndTransaction(ctx, end); err != nil {
			t.Fatal(err)
		}
	}
	info := c.kfake.PartitionInfo("changelog", 0)
	if info.LogStartOffset == 0 {
		t.Fatal("nothing was compacted")
	}
	got := map[string]string{}
	kept, err := c.fold(ctx, partitionID{"changelog", 0}, info.LogStartOffset, info.HighWatermark)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range kept {
		got[string(r.Key)] = fmt.Sprintf("%s@%d", r.Value, r.Timestamp.UnixMilli())
		if string(r.Key) != "other" && (len(r.Headers) != 1 || r.Headers[0].Key != "txn") {
			t.Errorf("%s has lost its headers", r.Key)
		}
	}
	if !maps.Equal(got, want) {
		for key := range want {
			if got[key] != want[key] {
				t.Errorf("%s is %.20q, want %.20q", key, got[key], want[key])
			}
		}
		t.Fatalf("%d keys, want %d", len(got), len(want))
	}
}
