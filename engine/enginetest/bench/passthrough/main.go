// Command passthrough copies a topic to another, exactly once, and does nothing else: the least that a transactional stream
// processor on franz-go can cost, and so the yardstick of the benchmarks.
//
// It has what the engine has on the way to and from Kafka: one group consumer (read_committed), one transactional producer per
// partition with at most one open transaction, the batch caps, the commit interval and the floor between transactions,
// placement by key, no compression, all records flushed before the offsets go out under the group's metadata. A record that
// was read is the one that is written, with another topic: per record there is no allocation beside kgo's own.
//
// It prints "ready MALLOCS" when it has its partitions, and "end MALLOCS" on SIGTERM: objects allocated so far.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The limits of a transaction, as the engine has them.
const (
	batchRecords   = 10_000
	batchBytes     = 4 << 20
	recordOverhead = 100
	commitInterval = 100 * time.Millisecond
	commitFloor    = 10 * time.Millisecond
)

func main() {
	brokers := flag.String("brokers", "127.0.0.1:9092", "bootstrap address")
	in := flag.String("in", "", "topic to read")
	out := flag.String("out", "", "topic to write")
	group := flag.String("group", "", "consumer group and prefix of the transactional ids")
	flag.Parse()
	// Never taken back: a further signal that comes while the program ends would end it with the signal's status.
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	c := &copier{brokers: *brokers, in: *in, out: *out, group: *group, tasks: map[int32]*task{}}
	if err := c.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "passthrough:", err)
		os.Exit(1)
	}
	fmt.Println("end", mallocs())
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

type copier struct {
	brokers, in, out, group string

	consumer *kgo.Client
	topicID  [16]byte

	tasks map[int32]*task // made by the assignment, before the first poll returns records of it
	wg    sync.WaitGroup
	fail  context.CancelCauseFunc
}

func (c *copier) options(more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{
		kgo.SeedBrokers(c.brokers),
		kgo.MetadataMinAge(10 * time.Millisecond),
		kgo.RetryBackoffFn(func(n int) time.Duration { return min(5*time.Millisecond<<min(n, 10), time.Second) }),
		kgo.DisableClientMetrics(),
	}, more...)
}

func (c *copier) run(ctx context.Context) error {
	ctx, c.fail = context.WithCancelCause(ctx)
	made := make(chan struct{})
	assigned := make(chan error, 1)
	consumer, err := kgo.NewClient(c.options(
		kgo.ConsumerGroup(c.group),
		kgo.ConsumeTopics(c.in),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.DisableAutoCommit(),
		kgo.SessionTimeout(10*time.Second),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxBytes(16<<20),
		kgo.FetchMaxWait(250*time.Millisecond),
		kgo.OnPartitionsAssigned(func(ctx context.Context, _ *kgo.Client, got map[string][]int32) {
			<-made
			assigned <- c.assign(ctx, got[c.in])
		}),
	)...)
	if err != nil {
		return err
	}
	defer consumer.Close()
	c.consumer = consumer
	if c.topicID, err = c.lookUp(ctx); err != nil {
		return err
	}
	close(made)
	if err := <-assigned; err != nil {
		return err
	}
	for _, t := range c.tasks {
		c.wg.Go(func() {
			// What fails after the end was asked for is left to the broker's abort.
			if err := t.run(ctx); err != nil && ctx.Err() == nil {
				c.fail(err)
			}
		})
	}
	fmt.Println("ready", mallocs())
	for {
		fetches := consumer.PollFetches(ctx)
		if ctx.Err() != nil {
			break
		}
		if err := fetches.Err(); err != nil {
			c.fail(err)
			break
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) { c.tasks[p.Partition].put(p.Records) })
	}
	c.wg.Wait()
	for _, t := range c.tasks {
		t.producer.Close()
	}
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (c *copier) lookUp(ctx context.Context) ([16]byte, error) {
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &c.in
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, c.consumer)
	if err != nil {
		return [16]byte{}, err
	}
	return resp.Topics[0].TopicID, kerr.ErrorForCode(resp.Topics[0].ErrorCode)
}

// assign makes and fences the producers of the assigned partitions. The program runs alone in its group, so there is one
// assignment.
func (c *copier) assign(ctx context.Context, partitions []int32) error {
	for _, p := range partitions {
		id := fmt.Sprintf("%s-%d", c.group, p)
		producer, err := kgo.NewClient(c.options(
			kgo.TransactionalID(id),
			kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
			kgo.ProducerBatchCompression(kgo.NoCompression()),
			kgo.ManualFlushing(),
			kgo.MaxBufferedRecords(2*batchRecords),
			kgo.ConcurrentTransactionsBackoff(5*time.Millisecond),
		)...)
		if err != nil {
			return err
		}
		if _, _, err := producer.ProducerID(ctx); err != nil {
			return err
		}
		c.tasks[p] = &task{copier: c, partition: p, id: id, producer: producer, filled: make(chan struct{}, 1)}
	}
	return nil
}

// task copies one partition.
type task struct {
	copier    *copier
	partition int32
	id        string
	producer  *kgo.Client
	filled    chan struct{}

	mu      sync.Mutex
	waiting []*kgo.Record
	bytes   int
	paused  bool

	batch []*kgo.Record // of the task's own goroutine

	failure struct {
		sync.Mutex
		err error
	}
}

// put queues fetched records; at twice what a transaction takes the partition is paused.
func (t *task) put(records []*kgo.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting = append(t.waiting, records...)
	for _, r := range records {
		t.bytes += weight(r)
	}
	if !t.paused && (len(t.waiting) >= 2*batchRecords || t.bytes >= 2*batchBytes) {
		t.paused = true
		t.copier.consumer.PauseFetchPartitions(map[string][]int32{t.copier.in: {t.partition}})
	}
	select {
	case t.filled <- struct{}{}:
	default:
	}
}

func weight(r *kgo.Record) int { return len(r.Key) + len(r.Value) + recordOverhead }

func (t *task) run(ctx context.Context) error {
	promise := func(_ *kgo.Record, err error) {
		if err != nil {
			t.failure.Lock()
			t.failure.err = err
			t.failure.Unlock()
		}
	}
	var began, ended time.Time
	for t.wait(ctx, began.Add(commitInterval), ended.Add(commitFloor)) {
		began = time.Now()
		t.take()
		if err := t.commit(ctx, promise); err != nil {
			return err
		}
		ended = time.Now()
	}
	return nil
}

// wait returns when a batch is due: something waits and the interval is over, or a whole batch waits and the floor is.
func (t *task) wait(ctx context.Context, due, floor time.Time) bool {
	for {
		t.mu.Lock()
		n, full := len(t.waiting), len(t.waiting) >= batchRecords || t.bytes >= batchBytes
		t.mu.Unlock()
		at := due
		if full {
			at = floor
		}
		var timer <-chan time.Time
		if n > 0 {
			pause := time.Until(at)
			if pause <= 0 {
				return true
			}
			timer = time.After(pause)
		}
		select {
		case <-ctx.Done():
			return false
		case <-timer:
		case <-t.filled:
		}
	}
}

// take moves the next batch out of the queue.
func (t *task) take() {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, bytes := 0, 0
	for n < len(t.waiting) && n < batchRecords && bytes < batchBytes {
		bytes += weight(t.waiting[n])
		n++
	}
	t.batch = append(t.batch[:0], t.waiting[:n]...)
	rest := copy(t.waiting, t.waiting[n:])
	clear(t.waiting[rest:])
	t.waiting = t.waiting[:rest]
	t.bytes -= bytes
	if t.paused && len(t.waiting) <= batchRecords && t.bytes <= batchBytes {
		t.paused = false
		t.copier.consumer.ResumeFetchPartitions(map[string][]int32{t.copier.in: {t.partition}})
	}
}

// commit writes the batch and the offset after it in one transaction.
func (t *task) commit(ctx context.Context, promise func(*kgo.Record, error)) error {
	if err := t.producer.BeginTransaction(); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	last := t.batch[len(t.batch)-1]
	offset, epoch := last.Offset+1, last.LeaderEpoch
	for _, r := range t.batch {
		r.Topic = t.copier.out
		t.producer.Produce(ctx, r, promise)
	}
	err := t.producer.Flush(ctx)
	t.failure.Lock()
	if t.failure.err != nil {
		err = t.failure.err
	}
	t.failure.Unlock()
	if err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	for {
		err := t.offsets(ctx, offset, epoch)
		if err == nil {
			break
		}
		if !kerr.IsRetriable(err) && !errors.Is(err, kerr.ConcurrentTransactions) {
			return fmt.Errorf("offsets: %w", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	if err := t.producer.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return fmt.Errorf("end: %w", err)
	}
	return nil
}

func (t *task) offsets(ctx context.Context, offset int64, epoch int32) error {
	id, producerEpoch, err := t.producer.ProducerID(ctx)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = t.id, id, producerEpoch
	req.Group = t.copier.group
	req.MemberID, req.Generation = t.copier.consumer.GroupMetadata()
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic, topic.TopicID = t.copier.in, t.copier.topicID
	part := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	part.Partition, part.Offset, part.LeaderEpoch = t.partition, offset, epoch
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, t.producer)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}
