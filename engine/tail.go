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

// Tail reads what is committed to topics from the moment that it was made. A topic that did not exist then is read from its
// beginning once it does. It joins no group and commits no offset.
type Tail struct {
	client, admin *kgo.Client
	missing       []string // topics that do not exist yet
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
	)
	if err != nil {
		admin.Close()
		return nil, fmt.Errorf("%w: %w", ErrPipeline, err)
	}
	return &Tail{client: client, admin: admin, missing: missing}, nil
}

// Close lets go of the connections.
func (t *Tail) Close() {
	t.client.Close()
	t.admin.Close()
}

// Run calls fn for each record, in the order of its partition, until ctx is done or fn answers an error.
func (t *Tail) Run(ctx context.Context, fn func(TailRecord) error) error {
	adm := kadm.NewClient(t.admin)
	for ctx.Err() == nil {
		if len(t.missing) > 0 {
			found, missing, err := fromStart(ctx, adm, t.missing)
			if err != nil {
				return unlessDone(ctx, err)
			}
			t.missing = missing
			t.client.AddConsumePartitions(found)
		}
		if err := tailOnce(ctx, t.client, len(t.missing) > 0, fn); err != nil {
			return unlessDone(ctx, err)
		}
	}
	return nil
}

// tailOnce hands on what one poll brings; a short one returns in time to look for missing topics.
func tailOnce(ctx context.Context, cl *kgo.Client, short bool, fn func(TailRecord) error) error {
	poll := ctx
	if short {
		var cancel context.CancelFunc
		poll, cancel = context.WithTimeout(ctx, tailDiscovery)
		defer cancel()
	}
	fetches := cl.PollFetches(poll)
	for _, e := range fetches.Errors() {
		if denied(e.Err) { // kgo tries again after any other error
			return fmt.Errorf("%w: read topic %s: %w", ErrSurroundings, e.Topic, e.Err)
		}
	}
	for r := range fetches.RecordsAll() {
		t := TailRecord{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			t.Headers = append(t.Headers, stream.Header(h))
		}
		if err := fn(t); err != nil {
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
	details, err := adm.ListTopics(ctx, topics...)
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
