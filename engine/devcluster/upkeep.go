package devcluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// upkeepID is the transactional id of the upkeep's own writes; they are not counted.
const upkeepID = "flechtwerk-dev-upkeep"

var produceKey = kmsg.Produce.Int16()

type partitionID struct {
	topic     string
	partition int32
}

// partition is what the upkeep knows of one partition. Guarded by Cluster.mu.
type partition struct {
	grown int64         // bytes that have come since the last look
	next  int64         // the next look is due when grown reaches it
	busy  chan struct{} // open while the partition is looked after, else nil
}

// beforeProduce runs before the broker handles a produce request, one request at a time except where it sleeps.
func (c *Cluster) beforeProduce(kreq kmsg.Request) (kmsg.Response, error, bool) {
	req := kreq.(*kmsg.ProduceRequest)
	if req.TransactionID != nil && *req.TransactionID == upkeepID {
		return nil, nil, false
	}
	for _, t := range req.Topics {
		topic := t.Topic
		if topic == "" {
			topic = c.name(t.TopicID)
		}
		for _, p := range t.Partitions {
			id := partitionID{topic, p.Partition}
			if wait := c.count(id, int64(len(p.Records))); wait != nil {
				c.kfake.SleepControl(wait)
			}
		}
	}
	return nil, nil, false
}

// name is the name of the topic with this id, or "" if there is none. Only a control function may call it: then the
// broker's loop answers.
func (c *Cluster) name(id [16]byte) string {
	c.mu.Lock()
	name := c.names[id]
	c.mu.Unlock()
	if name != "" {
		return name
	}
	info := c.kfake.TopicIDInfo(id)
	if info == nil {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names[id] = info.Topic
	return info.Topic
}

// count adds the bytes of a request and returns what the request has to wait for, or nil.
func (c *Cluster) count(id partitionID, bytes int64) (wait func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.partitions[id]
	if p == nil {
		p = &partition{next: min(c.config.RetentionBytes, c.config.CompactBytes) / 4}
		c.partitions[id] = p
	}
	p.grown += bytes
	if p.busy != nil {
		busy := p.busy
		return func() {
			select {
			case <-busy:
			case <-c.ctx.Done():
			}
		}
	}
	if p.grown < p.next {
		return nil
	}
	p.busy = make(chan struct{})
	return func() {
		next := c.look(id)
		c.mu.Lock()
		defer c.mu.Unlock()
		p.grown, p.next = 0, next
		close(p.busy)
		p.busy = nil
	}
}

// look brings one partition within its bounds and returns after how many further bytes it wants to be looked at again.
func (c *Cluster) look(id partitionID) (next int64) {
	c.upkeep.Lock()
	defer c.upkeep.Unlock()
	if c.ctx.Err() != nil {
		return c.config.CompactBytes
	}
	topic, info := c.kfake.TopicInfo(id.topic), c.kfake.PartitionInfo(id.topic, id.partition)
	if topic == nil || info == nil {
		return c.config.CompactBytes
	}
	policy := "delete"
	if p := topic.Configs["cleanup.policy"]; p != nil {
		policy = *p
	}
	if !strings.Contains(policy, "compact") {
		if keep := c.config.RetentionBytes / 4 * 3; info.NumBytes > keep {
			// The cut is a share of the offsets; records of one topic are about alike in size.
			cut := info.LogStartOffset +
				int64(float64(info.HighWatermark-info.LogStartOffset)*float64(info.NumBytes-keep)/float64(info.NumBytes))
			c.cut(id, min(cut, info.LastStableOffset))
		}
		return c.config.RetentionBytes / 4
	}
	if info.NumBytes < c.config.CompactBytes {
		return c.config.CompactBytes - info.NumBytes
	}
	if info.LastStableOffset != info.HighWatermark {
		return 0
	}
	live, err := c.rewrite(id, info.LogStartOffset, info.HighWatermark)
	if err != nil {
		c.config.Log.Error("embedded kafka does not compact", "topic", id.topic, "partition", id.partition, "err", err)
		return c.config.CompactBytes
	}
	return max(live, c.config.CompactBytes-live)
}

func (c *Cluster) cut(id partitionID, before int64) {
	if err := c.kfake.DeleteRecords(id.topic, id.partition, before); err != nil {
		c.config.Log.Error("embedded kafka does not delete old records", "topic", id.topic, "partition", id.partition, "err", err)
	}
}

// rewrite writes the last record of each key of [from, end) again and deletes [from, end). It returns the bytes that the
// partition holds then.
func (c *Cluster) rewrite(id partitionID, from, end int64) (live int64, err error) {
	ctx, cancel := context.WithTimeout(c.ctx, 10*time.Second)
	defer cancel()
	last, err := c.fold(ctx, id, from, end)
	if err != nil {
		return 0, err
	}
	if len(last) > 0 {
		if err := c.append(ctx, last); err != nil {
			return 0, err
		}
	}
	c.cut(id, end)
	info := c.kfake.PartitionInfo(id.topic, id.partition)
	if info == nil {
		return 0, nil
	}
	return info.NumBytes, nil
}

// fold reads [from, end), which holds no open transaction, and returns the last committed record of each key that is not
// deleted, by offset.
func (c *Cluster) fold(ctx context.Context, id partitionID, from, end int64) ([]*kgo.Record, error) {
	reader, err := kgo.NewClient(
		kgo.SeedBrokers(c.Addrs()...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{id.topic: {id.partition: kgo.NewOffset().At(from)}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // so that the last offset is seen whatever record it is
	)
	if err != nil {
		return nil, fmt.Errorf("make a reader: %w", err)
	}
	defer reader.Close()
	last := map[string]*kgo.Record{}
	for at := from; at < end; {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("read offset %d: %w", at, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			at = r.Offset + 1
			switch {
			case r.Attrs.IsControl() || r.Key == nil:
			case r.Value == nil:
				delete(last, string(r.Key))
			default:
				last[string(r.Key)] = r
			}
		})
	}
	return slices.SortedFunc(maps.Values(last), func(a, b *kgo.Record) int { return int(a.Offset - b.Offset) }), nil
}

// append writes the records at the end of their partition, in one transaction.
func (c *Cluster) append(ctx context.Context, records []*kgo.Record) error {
	if c.client == nil {
		client, err := kgo.NewClient(
			kgo.SeedBrokers(c.Addrs()...),
			kgo.TransactionalID(upkeepID),
			kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.ProducerBatchCompression(kgo.NoCompression()),
			kgo.ProducerLinger(0),
			kgo.MaxBufferedRecords(1<<20),
		)
		if err != nil {
			return fmt.Errorf("make a writer: %w", err)
		}
		c.client = client
	}
	if err := c.client.BeginTransaction(); err != nil {
		c.dropClient()
		return fmt.Errorf("begin: %w", err)
	}
	commit := kgo.TryCommit
	failed := c.client.ProduceSync(ctx, records...).FirstErr()
	for failed == nil && !c.known(records) {
		// The client may answer the first records of a topic a moment before it can tell that the topic took part, and would
		// then abort in silence.
		select {
		case <-ctx.Done():
			failed = ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	if failed != nil {
		commit = kgo.TryAbort
	}
	if err := c.client.EndTransaction(ctx, commit); err != nil {
		c.dropClient()
		return fmt.Errorf("end: %w", err)
	}
	if failed != nil {
		return fmt.Errorf("write: %w", failed)
	}
	return nil
}

// known tells whether the client has kept the partitions that the records went to.
func (c *Cluster) known(records []*kgo.Record) bool {
	for _, r := range records {
		if leader, _, _ := c.client.PartitionLeader(r.Topic, r.Partition); leader < 0 {
			return false
		}
	}
	return true
}

// dropClient is called when the writer cannot be trusted any more; the next rewrite makes another.
func (c *Cluster) dropClient() {
	c.client.Close()
	c.client = nil
}
