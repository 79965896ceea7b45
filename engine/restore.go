package engine

import (
	"context"
	"fmt"
	"iter"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/store"
)

// Limits of a restore.
const (
	restoreBytes  = 4 << 20          // applied to the store at once
	restoreReport = time.Second      // between two RestoreProgress events
	trustMargin   = 10 * time.Minute // a checkpoint this close to delete.retention.ms is not trusted any more
)

// restore brings the store to the changelog's committed end, which is where our takeover record lies. It begins at the
// store's checkpoint where that can be trusted, else at the start of the log with an empty store.
//
//  1. The checkpoint is trusted if it is of this very topic (by id), lies inside the log, and is younger than
//     delete.retention.ms: compaction may have removed the deletes that an older copy still needs (E9).
//  2. Records are read read_committed, so that what was aborted is never seen; the end is the takeover record itself, never
//     a position, since compaction and control records leave gaps.
//  3. Each applied piece moves the checkpoint, so that a restore that is cut short goes on from there.
func (t *task) restore(ctx context.Context, takeover int64) error {
	began := time.Now()
	topic := t.g.s.changelog
	start, err := startOf(ctx, t.g.s.engine.admin, topic, t.partition)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	from, err := t.trusted(start, takeover)
	if err != nil {
		return err
	}
	if from < 0 {
		if err := t.local.Clear(); err != nil {
			return fmt.Errorf("restore %s/%d: %w", topic, t.partition, err)
		}
		from = start
	}
	cl, err := t.g.s.engine.kafka.client(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {t.partition: kgo.NewOffset().At(from)}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxBytes(fetchBytes),
		kgo.FetchMaxWait(fetchWait),
		kgo.FetchMaxPartitionBytes(restoreBytes),
	)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	defer cl.Close()
	r := restoring{task: t, info: RestoreInfo{TaskInfo: t.info, From: from, Next: from, End: takeover + 1}}
	r.report()
	for r.info.Next <= takeover {
		fetches := cl.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if errs := fetches.Errors(); len(errs) > 0 {
			return fmt.Errorf("restore %s/%d at offset %d: %w", topic, t.partition, r.info.Next, errs[0].Err)
		}
		if err := r.apply(fetches.Records(), takeover); err != nil {
			return err
		}
		at("during-restore")
	}
	r.info.Done, r.info.Duration = true, time.Since(began)
	r.report()
	return nil
}

// trusted answers where to go on from, or -1 if the store must be filled anew.
func (t *task) trusted(start, takeover int64) (int64, error) {
	cp, ok, err := t.local.Checkpoint()
	switch {
	case err != nil:
		t.g.s.warn("state.checkpoint", fmt.Sprintf("partition %d: %v; restored from the whole changelog", t.partition, err))
		return -1, nil
	case !ok:
		return -1, nil
	case cp.Topic != t.g.s.topicIDs[t.g.s.changelog]:
		t.g.s.warn("state.topic_id", fmt.Sprintf("partition %d: the local state is of another topic %s that had the same name; restored from the whole changelog", t.partition, t.g.s.changelog))
		return -1, nil
	case cp.Next < start || cp.Next > takeover+1:
		t.g.s.warn("state.offset", fmt.Sprintf("partition %d: the local state ends at offset %d, outside of the changelog; restored from the whole changelog", t.partition, cp.Next))
		return -1, nil
	case t.g.s.deleteRetention > 0 && time.Since(cp.Written) > time.Duration(t.g.s.deleteRetention)*time.Millisecond-trustMargin && cp.Next < takeover:
		t.g.s.warn("state.age", fmt.Sprintf("partition %d: the local state of %s is older than the changelog keeps deletes; restored from the whole changelog", t.partition, cp.Written.Format(time.RFC3339)))
		return -1, nil
	}
	return cp.Next, nil
}

// restoring is one restore under way.
type restoring struct {
	task *task
	info RestoreInfo
	told time.Time
}

func (r *restoring) report() {
	r.told = time.Now()
	t := r.task
	t.mu.Lock()
	t.restored, t.end = r.info.Next, r.info.End
	t.mu.Unlock()
	t.events().RestoreProgress(r.info)
}

// apply brings records into the store, up to the takeover record.
func (r *restoring) apply(records []*kgo.Record, takeover int64) error {
	t := r.task
	for len(records) > 0 {
		n, bytes := 0, 0
		for n < len(records) && bytes < restoreBytes && records[n].Offset <= takeover {
			rec := records[n]
			if rec.Key == nil || !utf8.Valid(rec.Key) {
				return &fatalError{fmt.Errorf("restore %s/%d at offset %d: the changelog record's key is not a state key (no key, or not UTF-8); "+
					"something else writes into this topic", rec.Topic, rec.Partition, rec.Offset)}
			}
			bytes += weight(rec)
			n++
		}
		if n == 0 {
			// Whoever fenced us has written a takeover record of its own, and compaction has removed ours.
			t.next = takeover + 1
			r.info.Next = t.next
			return nil
		}
		last := records[n-1]
		t.next, t.epoch = last.Offset+1, last.LeaderEpoch
		if err := t.apply(states(records[:n]), nil); err != nil {
			return fmt.Errorf("restore %s/%d: %w", last.Topic, last.Partition, err)
		}
		r.info.Records += int64(n)
		r.info.Next = t.next
		records = records[n:]
		if time.Since(r.told) >= restoreReport {
			r.report()
		}
	}
	return nil
}

// states are the state changes of changelog records. Null, empty and {} are deletes (S3); the engine's own records are none.
func states(records []*kgo.Record) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for _, rec := range records {
			key := string(rec.Key)
			if key == takeoverKey {
				continue
			}
			value := rec.Value
			if emptyState(value) {
				value = nil
			}
			if !yield(key, value) {
				return
			}
		}
	}
}

func emptyState(value []byte) bool {
	if len(value) > 64 {
		return false
	}
	compact := rawjson.Compact(nil, value)
	return len(compact) == 0 || string(compact) == "{}" || string(compact) == "null"
}

// apply makes changes and the checkpoint at the task's changelog position take effect together (E2: only after the
// transaction that holds them).
func (t *task) apply(changes iter.Seq2[string, []byte], inputs []commitOffset) error {
	cp := store.Checkpoint{Topic: t.g.s.topicIDs[t.g.s.changelog], Next: t.next, LeaderEpoch: t.epoch, Written: time.Now()}
	for _, in := range inputs {
		cp.Inputs = append(cp.Inputs, store.InputOffset{Topic: in.Topic, Partition: in.Partition, Offset: in.Offset.Offset})
	}
	return t.local.Apply(changes, cp)
}
