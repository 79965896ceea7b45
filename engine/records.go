package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flechtwerk/flechtwerk/engine/pipeline"
)

// What people read and write in topics beside the stages: configs, and the committed state of a stage.
//
//  1. Read is what is committed when reading begins. Of each key the newest record counts, and a deleted key is not there.
//  2. Writing is all or nothing: one record goes out by itself, several in one transaction.

// KeyRecord is a record of a topic in which the newest record of a key counts. Its Value belongs to whoever has it.
type KeyRecord struct {
	Key       string
	Value     []byte // nil deletes the key
	Partition int32
	Offset    int64
	Timestamp int64 // milliseconds since 1970
}

// ReadKeys answers the newest record of every key of a topic, by key. A record without a key has the key "". All of them are
// held in memory. A topic that does not exist is an ErrSurroundings.
func ReadKeys(ctx context.Context, settings Kafka, topic *pipeline.Topic) ([]KeyRecord, error) {
	return newest(ctx, settings, topic.Name, missingHint(topic), func(r *kgo.Record) (bool, error) { return true, nil })
}

// ReadState answers the committed state of a stage, by state key, as its changelog has it. A transformer may have a state
// key in several partitions, each with a state of its own. Only keys with prefix are held in memory; the engine's own are
// left out. A changelog that does not exist is an ErrSurroundings.
func ReadState(ctx context.Context, settings Kafka, applicationID, prefix string) ([]KeyRecord, error) {
	return newest(ctx, settings, changelogTopic(applicationID), "the stage has not run on this cluster", func(r *kgo.Record) (bool, error) {
		if r.Key == nil || !utf8.Valid(r.Key) {
			return false, fmt.Errorf("%s/%d at offset %d: the key is not a state key (no key, or not UTF-8); something else writes into this topic", r.Topic, r.Partition, r.Offset)
		}
		if emptyState(r.Value) {
			r.Value = nil
		}
		key := string(r.Key)
		return !strings.HasPrefix(key, reserved) && strings.HasPrefix(key, prefix), nil
	})
}

// newest folds those records of a topic that keep takes. hint says why the topic may not exist.
func newest(ctx context.Context, settings Kafka, topic, hint string, keep func(*kgo.Record) (bool, error)) ([]KeyRecord, error) {
	_, cl, err := connectTo(ctx, settings, topic, hint)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	type place struct {
		partition int32
		key       string
	}
	byKey := map[place]KeyRecord{}
	_, err = readTopic(ctx, cl, topic, func(r *kgo.Record) error {
		kept, err := keep(r)
		if err != nil || !kept {
			return err
		}
		at := place{r.Partition, string(r.Key)}
		if r.Value == nil {
			delete(byKey, at)
			return nil
		}
		byKey[at] = KeyRecord{Key: at.key, Value: slices.Clone(r.Value), Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli()}
		return nil
	})
	if err != nil {
		return nil, surroundings(err)
	}
	out := make([]KeyRecord, 0, len(byKey))
	for _, r := range byKey {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b KeyRecord) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Partition, b.Partition))
	})
	return out, nil
}

// connectTo is connect for a topic that must exist.
func connectTo(ctx context.Context, settings Kafka, topic, hint string) (*kafka, *kgo.Client, error) {
	k, cl, err := connect(ctx, settings)
	if err != nil {
		return nil, nil, err
	}
	t := &pipeline.Topic{}
	t.Name = topic
	have, err := partitionCounts(ctx, kadm.NewClient(cl), []*pipeline.Topic{t})
	if err == nil && have[topic] == 0 {
		err = fmt.Errorf("%w: topic %s does not exist; %s", ErrSurroundings, topic, hint)
	}
	if err != nil {
		cl.Close()
		return nil, nil, err
	}
	return k, cl, nil
}

// writeTimeout is how long a write may take.
const writeTimeout = time.Minute

// ErrWriters says that two programs wrote several records into one topic at once, and that this one wrote none.
var ErrWriters = errors.New("another program writes records into this topic just now; nothing was written, try again")

// WriteKeys writes records into a topic, where Java's default partitioner places them, and fills in their Partition, Offset
// and Timestamp. When it returns, readers of committed records see them. If it fails, none of them is there, unless the cluster did not answer in the end, as the error then says.
func WriteKeys(ctx context.Context, settings Kafka, topic *pipeline.Topic, records []KeyRecord) error {
	if len(records) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, writeTimeout, fmt.Errorf("not done within %v", writeTimeout))
	defer cancel()
	k, admin, err := connectTo(ctx, settings, topic.Name, missingHint(topic))
	if err != nil {
		return err
	}
	admin.Close()
	opts := []kgo.Opt{kgo.RecordPartitioner(newPartitioner(nil)), kgo.MaxBufferedRecords(2 * writeFlush)}
	if len(records) > 1 {
		opts = append(opts, kgo.TransactionalID(writeID(topic.Name)), kgo.TransactionTimeout(transactionTimeout), kgo.ConcurrentTransactionsBackoff(5*time.Millisecond))
	}
	cl, err := k.client(opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	now := time.Now()
	written := make([]*kgo.Record, len(records))
	for i := range records {
		r := &records[i]
		written[i] = &kgo.Record{Topic: topic.Name, Partition: -1, Key: []byte(r.Key), Value: r.Value, Timestamp: now}
	}
	if len(records) == 1 {
		err = cl.ProduceSync(ctx, written[0]).FirstErr()
	} else {
		_, err = writeAll(ctx, cl, each(written))
	}
	switch {
	case errors.Is(err, kerr.ProducerFenced), errors.Is(err, kerr.InvalidProducerEpoch), errors.Is(err, kerr.ConcurrentTransactions):
		return fmt.Errorf("write to topic %s: %w", topic.Name, ErrWriters)
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("write to topic %s: the cluster did not say whether it is done: %w", topic.Name, context.Cause(ctx))
	case err != nil:
		return surroundings(fmt.Errorf("write to topic %s: %w", topic.Name, err))
	}
	for i, r := range written {
		records[i].Partition, records[i].Offset, records[i].Timestamp = r.Partition, r.Offset, r.Timestamp.UnixMilli()
	}
	if len(records) > 1 {
		awaitReadable(ctx, cl, topic.Name, records)
	}
	return nil
}

// readableTimeout is how long a write waits until others can read it.
const readableTimeout = 5 * time.Second

// awaitReadable waits until a reader of committed records sees what was written, so that who lists after a write finds it:
// the broker answers the end of a transaction before its markers are in the log. It gives up after a while, since another
// program's open transaction may hide what stands behind it.
func awaitReadable(ctx context.Context, cl *kgo.Client, topic string, records []KeyRecord) {
	ctx, cancel := context.WithTimeout(ctx, readableTimeout)
	defer cancel()
	adm := kadm.NewClient(cl)
	for attempt := 0; ; attempt++ {
		ends, err := adm.ListCommittedOffsets(ctx, topic)
		hidden := err != nil || slices.ContainsFunc(records, func(r KeyRecord) bool {
			end, ok := ends.Lookup(topic, r.Partition)
			return !ok || end.Err != nil || end.Offset <= r.Offset
		})
		if !hidden || !pause(ctx, backoff(attempt)) {
			return
		}
	}
}

func each(records []*kgo.Record) iter.Seq2[*kgo.Record, error] {
	return func(yield func(*kgo.Record, error) bool) {
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// writeFlush is how many records of a transaction are sent together.
const writeFlush = 5_000

// writeAll writes records in one transaction of cl and answers how many there were.
func writeAll(ctx context.Context, cl *kgo.Client, records iter.Seq2[*kgo.Record, error]) (int, error) {
	if err := cl.BeginTransaction(); err != nil {
		return 0, fmt.Errorf("begin transaction: %w", err)
	}
	n, err := produceAll(ctx, cl, records)
	if err != nil {
		if abortErr := abort(ctx, cl); abortErr != nil {
			err = fmt.Errorf("%w (and the abort: %w)", err, abortErr)
		}
		return 0, err
	}
	if err := cl.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return 0, fmt.Errorf("end transaction: %w", err)
	}
	return n, nil
}

// produceAll returns when every record is answered (E4). All of them are for one topic.
func produceAll(ctx context.Context, cl *kgo.Client, records iter.Seq2[*kgo.Record, error]) (int, error) {
	var first kgo.FirstErrPromise
	n := 0
	seen := partakers{cl: cl}
	flush := func(last *kgo.Record) error {
		err := cl.Flush(ctx)
		if err == nil {
			err = first.Err()
		}
		if err == nil && last != nil {
			err = seen.await(ctx, last)
		}
		return err
	}
	var last *kgo.Record
	for r, err := range records {
		if err != nil {
			return 0, err
		}
		cl.Produce(ctx, r, first.Promise())
		last = r
		if n++; n%writeFlush == 0 {
			if err := flush(last); err != nil {
				return 0, err
			}
		}
	}
	return n, flush(last)
}

func abort(ctx context.Context, cl *kgo.Client) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTimeout)
	defer cancel()
	if err := cl.AbortBufferedRecords(ctx); err != nil {
		return err
	}
	return cl.EndTransaction(ctx, kgo.TryAbort)
}
