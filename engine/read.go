package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// readTopic hands every committed record of a topic, as far as it is committed now, to fn: partition after partition, each by
// offset. It answers where each partition goes on.
//
// It sends fetch requests itself. A consuming client tells only of records, and after compaction, markers and aborted
// transactions there need be none at the end of a log, so that one would wait for ever.
func readTopic(ctx context.Context, cl *kgo.Client, topic string, fn func(*kgo.Record) error) (next map[int32]int64, err error) {
	adm := kadm.NewClient(cl)
	starts, err := adm.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("list offsets of %s: %w", topic, err)
	}
	ends, err := adm.ListCommittedOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("list offsets of %s: %w", topic, err)
	}
	next = map[int32]int64{}
	for _, end := range ends.Offsets()[topic] {
		start, ok := starts.Lookup(topic, end.Partition)
		if !ok {
			return nil, fmt.Errorf("list offsets of %s/%d: no answer", topic, end.Partition)
		}
		next[end.Partition] = start.Offset
		for next[end.Partition] < end.At {
			if next[end.Partition], err = readSome(ctx, cl, topic, end.Partition, next[end.Partition], end.At, fn); err != nil {
				return nil, fmt.Errorf("read %s/%d at offset %d: %w", topic, end.Partition, next[end.Partition], err)
			}
		}
	}
	return next, nil
}

// startOf answers where the log of a partition begins.
func startOf(ctx context.Context, cl *kgo.Client, topic string, partition int32) (int64, error) {
	starts, err := kadm.NewClient(cl).ListStartOffsets(ctx, topic)
	if err != nil {
		return 0, fmt.Errorf("list offsets of %s: %w", topic, err)
	}
	start, ok := starts.Lookup(topic, partition)
	if !ok {
		return 0, fmt.Errorf("list offsets of %s/%d: no answer", topic, partition)
	}
	if start.Err != nil {
		return 0, fmt.Errorf("list offsets of %s/%d: %w", topic, partition, start.Err)
	}
	return start.Offset, nil
}

// readSome is one fetch of one partition.
func readSome(ctx context.Context, cl *kgo.Client, topic string, partition int32, from, end int64, fn func(*kgo.Record) error) (int64, error) {
	for attempt := 0; ; attempt++ {
		part, err := fetchOnce(ctx, cl, topic, partition, from)
		if err != nil {
			if !kerr.IsRetriable(err) || !pause(ctx, backoff(attempt)) {
				return from, err
			}
			continue
		}
		records, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: from, IsolationLevel: kgo.ReadCommitted(), Topic: topic, Partition: partition},
			part, kgo.DefaultDecompressor(), nil)
		if records.Err != nil {
			return from, records.Err
		}
		for _, r := range records.Records {
			if r.Offset >= end {
				return end, nil
			}
			if err := fn(r); err != nil {
				return from, err
			}
		}
		if next > from {
			return next, nil
		}
		if !pause(ctx, backoff(attempt)) {
			return from, context.Cause(ctx)
		}
	}
}

func fetchOnce(ctx context.Context, cl *kgo.Client, topic string, partition int32, from int64) (*kmsg.FetchResponseTopicPartition, error) {
	found, err := kadm.NewClient(cl).ListTopics(ctx, topic)
	if err != nil {
		return nil, err
	}
	detail := found[topic]
	if detail.Err != nil {
		return nil, detail.Err
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(fetchWait/time.Millisecond), 1, fetchBytes
	req.IsolationLevel, req.SessionEpoch = 1, -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = topic, detail.ID
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, from, restoreBytes
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := cl.Broker(int(detail.Partitions[partition].Leader)).RetriableRequest(ctx, req)
	if err != nil {
		return nil, err
	}
	answer, ok := resp.(*kmsg.FetchResponse)
	if !ok {
		return nil, fmt.Errorf("fetch was answered with %T", resp)
	}
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		return nil, err
	}
	if len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1 {
		return nil, errors.New("fetch was answered without the partition")
	}
	part := &answer.Topics[0].Partitions[0]
	return part, kerr.ErrorForCode(part.ErrorCode)
}
