package enginetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Record is a record as it was read, for tests outside of the rooms that know the client library.
type Record = kgo.Record

// ReadCommitted returns what read_committed readers see of a topic now, by partition and offset. Transactions that have ended
// by now are in it.
func ReadCommitted(t testing.TB, opts []kgo.Opt, topic string) []*kgo.Record {
	t.Helper()
	return read(t, opts, topic, kgo.ReadCommitted())
}

// ReadAll returns everything that a topic holds now, by partition and offset: with aborted and open transactions, and with
// the markers at their ends (Attrs.IsControl).
func ReadAll(t testing.TB, opts []kgo.Opt, topic string) []*kgo.Record {
	t.Helper()
	return read(t, opts, topic, kgo.ReadUncommitted())
}

// Fold returns the last committed value of each key of a topic; a key whose last value is null, empty or {} is not there,
// as the engine reads a changelog. Keys that begin with U+0000 are the engine's own and are left out.
func Fold(t testing.TB, opts []kgo.Opt, topic string) map[string]string {
	t.Helper()
	m := map[string]string{}
	for _, r := range ReadCommitted(t, opts, topic) {
		switch value := string(r.Value); {
		case len(r.Key) > 0 && r.Key[0] == 0:
		case value == "" || value == "{}":
			delete(m, string(r.Key))
		default:
			m[string(r.Key)] = value
		}
	}
	return m
}

// CommittedOffsets returns the group's offsets as a fetch with RequireStable sees them, as topic → partition → offset; it
// waits for open transactions to end.
func CommittedOffsets(t testing.TB, opts []kgo.Opt, group string) map[string]map[int32]int64 {
	t.Helper()
	client, ctx := helper(t, opts)
	defer client.Close()
	offsets, err := fetchOffsets(kadm.RequireStable(ctx), client, group)
	if err != nil {
		t.Fatal(err)
	}
	return offsets
}

func fetchOffsets(ctx context.Context, client *kgo.Client, group string) (map[string]map[int32]int64, error) {
	fetched, err := kadm.NewClient(client).FetchOffsets(ctx, group)
	if err == nil {
		err = fetched.Error()
	}
	if errors.Is(err, kerr.GroupIDNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("fetch the offsets of group %s: %w", group, err)
	}
	m := map[string]map[int32]int64{}
	fetched.Each(func(o kadm.OffsetResponse) {
		if m[o.Topic] == nil {
			m[o.Topic] = map[int32]int64{}
		}
		m[o.Topic][o.Partition] = o.At
	})
	return m, nil
}

func read(t testing.TB, opts []kgo.Opt, topic string, level kgo.IsolationLevel) []*kgo.Record {
	t.Helper()
	client, ctx := helper(t, opts)
	defer client.Close()
	records, err := readTopic(ctx, client, topic, level)
	if err != nil {
		t.Fatalf("read topic %s: %v", topic, err)
	}
	return records
}

// readTopic reads each partition from its start to where it ends now. It asks for batches itself, since a group-less consumer
// does not tell how far it is while it sees nothing but aborted records, markers and holes of a compaction.
func readTopic(ctx context.Context, client *kgo.Client, topic string, level kgo.IsolationLevel) ([]*kgo.Record, error) {
	admin := kadm.NewClient(client)
	if err := settle(ctx, admin, topic); err != nil {
		return nil, err
	}
	starts, err := admin.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, err
	}
	list := admin.ListEndOffsets
	if level == kgo.ReadCommitted() {
		list = admin.ListCommittedOffsets
	}
	ends, err := list(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, err
	}
	meta, err := admin.Metadata(ctx, topic)
	if err != nil {
		return nil, err
	}
	var records []*kgo.Record
	for _, p := range meta.Topics[topic].Partitions.Sorted() {
		start, _ := starts.Lookup(topic, p.Partition)
		end, _ := ends.Lookup(topic, p.Partition)
		r := partitionReader{client: client, leader: p.Leader, topic: topic, id: meta.Topics[topic].ID, partition: p.Partition, level: level}
		if records, err = r.read(ctx, records, start.Offset, end.Offset); err != nil {
			return nil, fmt.Errorf("partition %d: %w", p.Partition, err)
		}
	}
	return records, nil
}

// settle returns when no transaction that wrote to the topic is about to end. A real broker answers the end of a transaction
// first and writes the markers, which make its records visible, afterwards.
func settle(ctx context.Context, admin *kadm.Client, topic string) error {
	for {
		ending, err := admin.ListTransactions(ctx, nil, []string{"PrepareCommit", "PrepareAbort"})
		if err != nil {
			return fmt.Errorf("list transactions: %w", err)
		}
		if len(ending) == 0 {
			return nil
		}
		described, err := admin.DescribeTransactions(ctx, ending.TransactionalIDs()...)
		if err != nil {
			return fmt.Errorf("describe transactions: %w", err)
		}
		waiting := false
		for _, txn := range described {
			if _, ours := txn.Topics[topic]; ours && strings.HasPrefix(txn.State, "Prepare") {
				waiting = true
			}
		}
		if !waiting {
			return nil
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("transactions on %s do not end: %w", topic, ctx.Err())
		}
	}
}

type partitionReader struct {
	client    *kgo.Client
	leader    int32
	topic     string
	id        kadm.TopicID
	partition int32
	level     kgo.IsolationLevel
}

func (p *partitionReader) read(ctx context.Context, records []*kgo.Record, from, end int64) ([]*kgo.Record, error) {
	for at := from; at < end; {
		req := kmsg.NewPtrFetchRequest()
		req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 100, 1, 64<<20
		if p.level == kgo.ReadCommitted() {
			req.IsolationLevel = 1
		}
		rt := kmsg.NewFetchRequestTopic()
		rt.Topic, rt.TopicID = p.topic, p.id
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = p.partition, at, 16<<20
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		kresp, err := p.client.Broker(int(p.leader)).RetriableRequest(ctx, req)
		if err != nil {
			return nil, err
		}
		resp := kresp.(*kmsg.FetchResponse)
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			return nil, err
		}
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			return nil, fmt.Errorf("the broker answered %d topics", len(resp.Topics))
		}
		part, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
			KeepControlRecords: p.level == kgo.ReadUncommitted(), Offset: at, IsolationLevel: p.level, Topic: p.topic, Partition: p.partition,
		}, &resp.Topics[0].Partitions[0], kgo.DefaultDecompressor(), nil)
		if part.Err != nil {
			return nil, fmt.Errorf("offset %d: %w", at, part.Err)
		}
		for _, r := range part.Records {
			if r.Offset < end {
				records = append(records, r)
			}
		}
		if next <= at {
			break // nothing up to the end: a compaction took it
		}
		at = next
	}
	return records, nil
}

// WaitCommitted reads a topic from its start as read_committed readers do, as records become visible, until enough says so of
// what was read so far, in the order of arrival (per partition that of the offsets).
func WaitCommitted(t testing.TB, opts []kgo.Opt, topic string, enough func([]*kgo.Record) bool) []*kgo.Record {
	t.Helper()
	client, ctx := helper(t, append(slices.Clip(opts), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond)))
	defer client.Close()
	var records []*kgo.Record
	for !enough(records) {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("wait for records of topic %s, %d came: %v", topic, len(records), err)
		}
		records = append(records, fetches.Records()...)
	}
	return records
}

// AtLeast is a condition of WaitCommitted.
func AtLeast(n int) func([]*kgo.Record) bool {
	return func(records []*kgo.Record) bool { return len(records) >= n }
}

// WaitOffsets asks for the group's committed offsets until they have reached the given ones. Kafka has no event for that,
// so it asks again every few milliseconds.
func WaitOffsets(t testing.TB, opts []kgo.Opt, group string, want map[string]map[int32]int64) {
	t.Helper()
	client, ctx := helper(t, opts)
	defer client.Close()
	limit := time.After(patience)
	for {
		got, err := fetchOffsets(ctx, client, group)
		if err != nil {
			t.Fatal(err)
		}
		missing := 0
		for topic, partitions := range want {
			for p, offset := range partitions {
				if got[topic][p] < offset {
					missing++
				}
			}
		}
		if missing == 0 {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-limit:
			t.Fatalf("group %s has not reached its offsets within %v:\ngot  %v\nwant %v", group, patience, got, want)
		}
	}
}
