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

// tailDiscovery is how often Tail asks for topics that do not exist yet.
const tailDiscovery = 100 * time.Millisecond

// Tail calls fn for each record of topics that is committed from now on, in the order of its partition, until ctx is done or
// fn answers an error. A topic that does not exist yet is read from its beginning once it does. It joins no group and
// commits no offset.
func Tail(ctx context.Context, settings Kafka, topics []string, fn func(TailRecord) error) error {
	k, admin, err := connect(ctx, settings)
	if err != nil {
		return unlessDone(ctx, err)
	}
	defer admin.Close()
	adm := kadm.NewClient(admin)
	// The stable end, so that records of a transaction that is open now are shown once it commits.
	existing, missing, err := stableEnds(ctx, adm, topics)
	if err != nil {
		return unlessDone(ctx, err)
	}
	cl, err := k.client(
		kgo.ConsumePartitions(existing),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// A fetch that waits for old topics holds up the first one of a new topic.
		kgo.FetchMaxWait(250*time.Millisecond),
	)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrPipeline, err)
	}
	defer cl.Close()
	for ctx.Err() == nil {
		if len(missing) > 0 {
			var found map[string]map[int32]kgo.Offset
			if found, missing, err = fromStart(ctx, adm, missing); err != nil {
				return unlessDone(ctx, err)
			}
			cl.AddConsumePartitions(found)
		}
		if err := tailOnce(ctx, cl, len(missing) > 0, fn); err != nil {
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
