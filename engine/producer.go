package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// flushRecords is how many records are buffered before they are sent. The client runs with manual flushing, since a record
// that is sent as soon as it comes makes a request of its own, and two unanswered requests that each add a partition to
// the transaction can make the broker refuse one.
const flushRecords = 20_000

// producer is the transactional client of one task (E6). It is used by one goroutine at a time. After any error of commit
// it must be closed and a new one made: kgo may go on with a new epoch otherwise, over a transaction whose fate nobody asked.
type producer struct {
	k     *kafka
	cl    *kgo.Client
	id    string
	group membership

	slab    []kgo.Record
	failure promiseFailure
	seen    partakers
	// alone lets every record go out in a batch of its own, so that the broker's refusal of a batch names one record.
	alone bool
}

// maxResends is how often offsets are sent again before the task starts anew.
const maxResends = 50

// membership is what a transaction's offsets are committed for: the group, and who of it we are (KIP-447).
type membership struct {
	group    string
	client   *kgo.Client // the stage's consumer
	instance *string
	topicID  func(topic string) [16]byte
}

// promiseFailure is the first failed record of a transaction (E4). Written by the client's goroutines.
type promiseFailure struct {
	mu     sync.Mutex
	record *kgo.Record
	err    error
	count  int // of records that failed
}

// recordError is the broker's or client's refusal of one record for what it is, as against trouble on the way.
type recordError struct {
	index int // in transaction.messages, or beyond it in transaction.changes
	err   error
	// among says that other records were refused with it: a broker refuses a batch as a whole, and any of them may be to
	// blame.
	among bool
}

func (e *recordError) Error() string { return e.err.Error() }
func (e *recordError) Unwrap() error { return e.err }

// transaction is everything that one commit holds.
type transaction struct {
	messages  []stream.Message
	changes   []stream.Change
	changelog string // where changes go
	partition int32
	offsets   []commitOffset
}

// commitOffset is one input position.
type commitOffset struct {
	Offset
	epoch int32 // leader epoch of the last handled record
}

// committed is what a commit left in the changelog.
type committed struct {
	next  int64 // the changelog offset after the transaction's last record; -1 without changes
	epoch int32
}

func newProducer(k *kafka, id string, group membership, maxBytes func(topic string) int32) (*producer, error) {
	p := &producer{k: k, id: id, group: group}
	opts := append(killOnEndSent(),
		kgo.TransactionalID(id),
		kgo.TransactionTimeout(transactionTimeout),
		kgo.RecordPartitioner(newPartitioner(p.beyond)),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerBatchMaxBytesFn(maxBytes),
		kgo.ManualFlushing(),
		kgo.MaxBufferedRecords(2*flushRecords),
		kgo.ConcurrentTransactionsBackoff(5*time.Millisecond),
		kgo.UnknownTopicRetries(8),
	)
	cl, err := k.client(opts...)
	if err != nil {
		return nil, err
	}
	p.cl, p.seen.cl = cl, cl
	return p, nil
}

func (p *producer) close() { p.cl.Close() }

// fence makes this producer the only one of its transactional id: an open transaction of an earlier one is aborted.
func (p *producer) fence(ctx context.Context) error {
	if _, _, err := p.cl.ProducerID(ctx); err != nil {
		return fmt.Errorf("fence %s: %w", p.id, err)
	}
	return nil
}

// promised is called for every record, on the client's goroutines.
func (p *producer) promised(r *kgo.Record, err error) {
	if err == nil {
		return
	}
	p.failure.mu.Lock()
	defer p.failure.mu.Unlock()
	p.failure.count++
	if p.failure.err == nil {
		p.failure.record, p.failure.err = r, err
	}
}

// beyond is called for a record that asks for a partition which its topic does not have, before its promise.
func (p *producer) beyond(r *kgo.Record, partitions int) {
	p.failure.mu.Lock()
	defer p.failure.mu.Unlock()
	if p.failure.err == nil {
		p.failure.record, p.failure.err = r, &codedError{code: "message.partition",
			text: fmt.Sprintf("the message is for partition %d of topic %s, which has %d", r.Partition, r.Topic, partitions)}
	}
}

// commit writes one transaction and tells of it, with info, which it completes. On a *recordError the transaction is aborted
// and nothing else is wrong. On any other error its outcome may be unknown (E5).
func (p *producer) commit(ctx context.Context, tx *transaction, ev *Events, info *TransactionInfo) (left committed, err error) {
	began := time.Now()
	left, err = p.transact(ctx, tx, ev, *info)
	info.Duration = time.Since(began)
	if info.Err = err; err != nil {
		ev.TransactionAborted(*info)
	} else {
		ev.TransactionCommitted(*info)
	}
	return left, err
}

func (p *producer) transact(ctx context.Context, tx *transaction, ev *Events, info TransactionInfo) (committed, error) {
	if err := p.cl.BeginTransaction(); err != nil {
		return committed{}, fmt.Errorf("begin transaction: %w", err)
	}
	ev.TransactionBegun(info)
	if err := p.produce(ctx, tx); err != nil {
		return committed{}, p.abort(ctx, err)
	}
	ev.TransactionProduced(info)
	at("after-produce")
	if len(tx.offsets) > 0 {
		if err := p.sendOffsets(ctx, tx.offsets); err != nil {
			return committed{}, p.abort(ctx, err)
		}
		ev.OffsetsSent(info)
	}
	at("after-offsets")
	if err := p.end(ctx); err != nil {
		return committed{}, fmt.Errorf("end transaction: %w", err)
	}
	at("end-answered")
	out := committed{next: -1}
	for i := range tx.changes {
		if r := &p.slab[len(tx.messages)+i]; r.Offset >= out.next {
			out.next, out.epoch = r.Offset+1, r.LeaderEpoch
		}
	}
	return out, nil
}

// produce sends all records and returns when each is answered.
func (p *producer) produce(ctx context.Context, tx *transaction) error {
	n := len(tx.messages) + len(tx.changes)
	if cap(p.slab) < n {
		p.slab = make([]kgo.Record, n, n+n/4)
	}
	p.slab = p.slab[:n]
	p.failure.record, p.failure.err, p.failure.count = nil, nil, 0
	promise := p.promised
	every := flushRecords
	if p.alone {
		every = 1
	}
	for i := range tx.messages {
		m, r := &tx.messages[i], &p.slab[i]
		*r = kgo.Record{Topic: m.Topic.Name, Partition: m.Partition, Key: m.Key, Value: m.Value, Timestamp: time.UnixMilli(m.Timestamp)}
		if len(m.Headers) > 0 {
			r.Headers = make([]kgo.RecordHeader, len(m.Headers))
			for j, h := range m.Headers {
				r.Headers[j] = kgo.RecordHeader(h)
			}
		}
		p.cl.Produce(ctx, r, promise)
		if (i+1)%every == 0 {
			if err := p.flush(ctx, tx); err != nil {
				return err
			}
		}
	}
	now := time.Now()
	for i := range tx.changes {
		c, r := &tx.changes[i], &p.slab[len(tx.messages)+i]
		*r = kgo.Record{Topic: tx.changelog, Partition: tx.partition, Key: []byte(c.Key), Value: c.Value, Timestamp: now}
		p.cl.Produce(ctx, r, promise)
		if (i+1)%every == 0 {
			if err := p.flush(ctx, tx); err != nil {
				return err
			}
		}
	}
	if err := p.flush(ctx, tx); err != nil {
		return err
	}
	for i := range p.slab {
		if err := p.seen.await(ctx, &p.slab[i]); err != nil {
			return fmt.Errorf("produce: %w", err)
		}
	}
	return nil
}

// partakers knows of which topics a client can tell that they took part in a transaction.
//
// The first records for a topic wait in the client until it has learned of the topic's partitions. It then hands them over,
// and only after that keeps the partitions where EndTransaction looks for those that took part (kgo 1.22.3,
// storePartitionsUpdate). A record may be sent and answered in between. EndTransaction would find that nothing had succeeded,
// abort in place of the commit that was asked for, and return nil: all of the transaction lost, and nobody told.
type partakers struct {
	cl interface {
		PartitionLeader(topic string, partition int32) (leader, epoch int32, err error)
	}
	topics map[string]struct{}
	last   string // the topic asked for last, so that a run of records costs one comparison
}

// await returns when the client's end of a transaction will see the partition of a record that was answered.
func (k *partakers) await(ctx context.Context, r *kgo.Record) error {
	if r.Topic == k.last {
		return nil
	}
	if _, seen := k.topics[r.Topic]; !seen {
		for attempt := 0; ; attempt++ {
			if leader, _, _ := k.cl.PartitionLeader(r.Topic, r.Partition); leader >= 0 { // an error is of a later look-up, which keeps what was there
				break
			}
			if !pause(ctx, min(backoff(attempt), 5*time.Millisecond)) {
				return context.Cause(ctx)
			}
		}
		if k.topics == nil {
			k.topics = map[string]struct{}{}
		}
		k.topics[r.Topic] = struct{}{}
	}
	k.last = r.Topic
	return nil
}

// flush sends what is buffered and answers the first failure of any record so far.
func (p *producer) flush(ctx context.Context, tx *transaction) error {
	flushed := p.cl.Flush(ctx)
	p.failure.mu.Lock()
	defer p.failure.mu.Unlock()
	if err := p.failure.err; err != nil {
		for i := range p.slab {
			if &p.slab[i] == p.failure.record && ofRecord(err) {
				return &recordError{index: i, err: err, among: p.failure.count > 1}
			}
		}
		return fmt.Errorf("produce to %s: %w", p.failure.record.Topic, err)
	}
	if flushed != nil {
		return fmt.Errorf("produce: %w", flushed)
	}
	return nil
}

// ofRecord tells whether a produce error lies in the record itself.
func ofRecord(err error) bool {
	for _, e := range []error{kerr.MessageTooLarge, kerr.InvalidRecord, kerr.RecordListTooLarge, kerr.InvalidTimestamp} {
		if errors.Is(err, e) {
			return true
		}
	}
	coded := (*codedError)(nil)
	return errors.As(err, &coded)
}

// abort ends the transaction without effect and answers why. If the abort itself fails the broker does it, at the fence of
// the task's next producer; so does it where ctx is done, since then the client is about to be closed.
func (p *producer) abort(ctx context.Context, why error) error {
	if ctx.Err() != nil {
		return unrecorded(why)
	}
	if err := abort(ctx, p.cl); err != nil {
		return fmt.Errorf("%w (and the abort: %w)", unrecorded(why), err)
	}
	return why
}

// unrecorded strips the promise of a *recordError that its transaction was aborted.
func unrecorded(err error) error {
	if r := (*recordError)(nil); errors.As(err, &r) {
		return r.err
	}
	return err
}

func (p *producer) end(ctx context.Context) error {
	at("before-end")
	return p.cl.EndTransaction(ctx, kgo.TryCommit)
}

// sendOffsets makes offsets part of the open transaction, under the group's current generation, so that a member that is no
// longer in the group cannot commit.
func (p *producer) sendOffsets(ctx context.Context, offsets []commitOffset) error {
	for attempt := 0; ; attempt++ {
		err := p.tryOffsets(ctx, offsets)
		if err == nil {
			return nil
		}
		if !mayResend(err) || attempt == maxResends {
			return fmt.Errorf("send offsets: %w", err)
		}
		if !pause(ctx, backoff(attempt)) {
			return fmt.Errorf("send offsets: %w", context.Cause(ctx))
		}
	}
}

// mayResend tells whether the same offsets may be sent again in the same transaction: the coordinator is busy, or the group
// has just moved to a new generation in which we may still be. A member that is out gets UNKNOWN_MEMBER_ID.
func mayResend(err error) bool {
	return kerr.IsRetriable(err) && !errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.IllegalGeneration) || errors.Is(err, kerr.RebalanceInProgress) ||
		errors.Is(err, kerr.ConcurrentTransactions)
}

func (p *producer) tryOffsets(ctx context.Context, offsets []commitOffset) error {
	id, epoch, err := p.cl.ProducerID(ctx)
	if err != nil {
		return err
	}
	if p.k.transactionVersion < 2 {
		add := kmsg.NewPtrAddOffsetsToTxnRequest()
		add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = p.id, id, epoch, p.group.group
		resp, err := add.RequestWith(ctx, p.cl)
		if err != nil {
			return err
		}
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			return err
		}
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = p.id, id, epoch
	req.Group, req.InstanceID = p.group.group, p.group.instance
	req.MemberID, req.Generation = p.group.client.GroupMetadata()
	for _, o := range offsets {
		t := kmsg.NewTxnOffsetCommitRequestTopic()
		t.Topic, t.TopicID = o.Topic, p.group.topicID(o.Topic)
		part := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		part.Partition, part.Offset, part.LeaderEpoch = o.Partition, o.Offset.Offset, o.epoch
		t.Partitions = append(t.Partitions, part)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, p.cl)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		for _, part := range t.Partitions {
			if err := kerr.ErrorForCode(part.ErrorCode); err != nil {
				return err
			}
		}
	}
	return nil
}
