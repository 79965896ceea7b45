package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// TailRecord is one committed record. Its slices belong to whoever gets it.
type TailRecord struct {
	Topic      string
	Partition  int32
	Offset     int64
	Timestamp  int64 // milliseconds since 1970
	Key, Value []byte
	Headers    []stream.Header
}

// tailDiscovery is how often a Tail asks for topics that do not exist yet.
const tailDiscovery = 100 * time.Millisecond

// tailRest is how long a Tail reads what is left at its end, which takes longer only while Kafka is away.
const tailRest = 5 * time.Second

// Tail reads what is committed to topics from the moment that it was made. A topic that did not exist then is read from its
// beginning once it does. It joins no group and commits no offset.
type Tail struct {
	client, admin *kgo.Client
	topics        []string
	missing       []string                   // those that do not exist yet
	next          map[string]map[int32]int64 // the offset to be read next, by topic and partition
}

// NewTail finds out where topics end. It starts nothing; the caller closes it.
func NewTail(ctx context.Context, settings Kafka, topics []string) (*Tail, error) {
	k, admin, err := connect(ctx, settings)
	if err != nil {
		return nil, err
	}
	// The stable end, so that records of a transaction that is open now are shown once it commits.
	existing, missing, err := stableEnds(ctx, kadm.NewClient(admin), topics)
	if err != nil {
		admin.Close()
		return nil, err
	}
	client, err := k.client(
		kgo.ConsumePartitions(existing),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// A fetch that waits for old topics holds up the first one of a new topic.
		kgo.FetchMaxWait(250*time.Millisecond),
		kgo.KeepControlRecords(), // what is behind the last record of a topic
	)
	if err != nil {
		admin.Close()
		return nil, fmt.Errorf("%w: %w", ErrPipeline, err)
	}
	t := &Tail{client: client, admin: admin, topics: topics, missing: missing, next: map[string]map[int32]int64{}}
	for _, topic := range topics {
		t.next[topic] = map[int32]int64{}
		for p, end := range existing[topic] {
			t.next[topic][p] = end.EpochOffset().Offset
		}
	}
	return t, nil
}

// Close lets go of the connections.
func (t *Tail) Close() {
	t.client.Close()
	t.admin.Close()
}

// Run calls fn for each record, in the order of its partition, until ctx is done or fn answers an error. What is committed when
// ctx is done is read to its end, if Kafka has it within seconds.
func (t *Tail) Run(ctx context.Context, fn func(TailRecord) error) error {
	for ctx.Err() == nil {
		if err := t.poll(ctx, fn); err != nil && ctx.Err() == nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tailRest)
	defer cancel()
	ends, _, err := stableEnds(ctx, kadm.NewClient(t.admin), t.topics)
	for err == nil && ctx.Err() == nil && t.behind(ends) {
		err = t.poll(ctx, fn)
	}
	return unlessDone(ctx, err)
}

// behind tells whether something before ends was not read yet.
func (t *Tail) behind(ends map[string]map[int32]kgo.Offset) bool {
	for topic, partitions := range ends {
		for p, end := range partitions {
			if t.next[topic][p] < end.EpochOffset().Offset {
				return true
			}
		}
	}
	return false
}

// poll hands on what one poll brings; while topics are missing, it returns in time to look for them.
func (t *Tail) poll(ctx context.Context, fn func(TailRecord) error) error {
	poll := ctx
	if len(t.missing) > 0 {
		found, missing, err := fromStart(ctx, kadm.NewClient(t.admin), t.missing)
		if err != nil {
			return err
		}
		t.missing = missing
		t.client.AddConsumePartitions(found)
	}
	if len(t.missing) > 0 {
		var cancel context.CancelFunc
		poll, cancel = context.WithTimeout(ctx, tailDiscovery)
		defer cancel()
	}
	fetches := t.client.PollFetches(poll)
	for _, e := range fetches.Errors() {
		if denied(e.Err) { // kgo tries again after any other error
			return fmt.Errorf("%w: read topic %s: %w", ErrSurroundings, e.Topic, e.Err)
		}
	}
	for r := range fetches.RecordsAll() {
		t.next[r.Topic][r.Partition] = r.Offset + 1
		if r.Attrs.IsControl() {
			continue
		}
		out := TailRecord{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			out.Headers = append(out.Headers, stream.Header(h))
		}
		if err := fn(out); err != nil {
			return err
		}
	}
	return nil
}

// stableEnds answers where committed records of existing topics will appear next, and which topics do not exist.
func stableEnds(ctx context.Context, adm *kadm.Client, topics []string) (ends map[string]map[int32]kgo.Offset, missing []string, err error) {
	ends, missing, err = fromStart(ctx, adm, topics)
	if err != nil || len(ends) == 0 {
		return ends, missing, err
	}
	var existing []string
	for t := range ends {
		existing = append(existing, t)
	}
	listed, err := adm.ListCommittedOffsets(ctx, existing...)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: list offsets: %w", ErrSurroundings, err)
	}
	listed.Each(func(o kadm.ListedOffset) { ends[o.Topic][o.Partition] = kgo.NewOffset().At(o.Offset) })
	return ends, missing, nil
}

// fromStart answers the beginning of every partition of those topics that exist, and which do not.
func fromStart(ctx context.Context, adm *kadm.Client, topics []string) (starts map[string]map[int32]kgo.Offset, missing []string, err error) {
	details, err := listTopics(ctx, adm, topics...)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: list topics: %w", ErrSurroundings, err)
	}
	starts = map[string]map[int32]kgo.Offset{}
	for _, t := range slices.Compact(slices.Sorted(slices.Values(topics))) {
		d, ok := details[t]
		switch {
		case ok && d.Err == nil:
			starts[t] = map[int32]kgo.Offset{}
			for p := range d.Partitions {
				starts[t][p] = kgo.NewOffset().AtStart()
			}
		case !ok || errors.Is(d.Err, kerr.UnknownTopicOrPartition):
			missing = append(missing, t)
		default:
			return nil, nil, fmt.Errorf("%w: look at topic %s: %w", ErrSurroundings, t, d.Err)
		}
	}
	return starts, missing, nil
}

// unlessDone drops an error that is there only because ctx ended.
func unlessDone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
