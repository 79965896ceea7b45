package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"github.com/cockroachdb/pebble/v2"
)

// Partition is the state of one partition of one stage. It is safe for concurrent use, but Apply and Clear of one
// partition must not run side by side: which one came last would be left to chance.
//
// Its keys in the database are
//
//	length of the stage's name (varint) · name · partition (4 bytes, big endian) · 0     the checkpoint
//	length of the stage's name (varint) · name · partition (4 bytes, big endian) · 1 · key
type Partition struct {
	db         *DB
	name       string // for errors
	checkpoint []byte // its key
	state      []byte // the prefix of the keys of the state
	end        []byte // the first key after the partition's
}

// Partition is the handle of a partition, which need not exist yet. Handles are cheap, and those of one partition are alike.
func (d *DB) Partition(stage string, partition int32) *Partition {
	prefix := binary.AppendUvarint(nil, uint64(len(stage)))
	prefix = append(prefix, stage...)
	prefix = binary.BigEndian.AppendUint32(prefix, uint32(partition))
	with := func(kind byte) []byte { return append(prefix[:len(prefix):len(prefix)], kind) }
	return &Partition{
		db:         d,
		name:       fmt.Sprintf("%s/%d", stage, partition),
		checkpoint: with(0),
		state:      with(1),
		end:        with(2),
	}
}

// Get answers a copy of what is stored under key, or nil.
func (p *Partition) Get(key string) ([]byte, error) {
	value, found, err := p.Append(nil, key)
	if found && value == nil {
		value = []byte{}
	}
	return value, err
}

// Append appends what is stored under key to dst and tells whether there is anything.
func (p *Partition) Append(dst []byte, key string) (_ []byte, found bool, err error) {
	if err := p.db.enter(); err != nil {
		return dst, false, err
	}
	defer p.db.leave()
	buffer := p.db.keys.Get().(*[]byte)
	defer p.db.keys.Put(buffer)
	*buffer = append(append((*buffer)[:0], p.state...), key...)
	err = p.get(*buffer, func(value []byte) { dst, found = append(dst, value...), true })
	return dst, found, err
}

func (p *Partition) get(key []byte, found func(value []byte)) error {
	value, closer, err := p.db.pebble.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil
	}
	if err != nil {
		return p.db.wrap("read "+p.name, err)
	}
	found(value)
	return p.db.wrap("read "+p.name, closer.Close())
}

// Checkpoint is the partition's checkpoint; false if there is none, so that nothing can be said about the state. The error
// is ErrCheckpoint if it cannot be read.
func (p *Partition) Checkpoint() (c Checkpoint, exists bool, err error) {
	if err := p.db.enter(); err != nil {
		return c, false, err
	}
	defer p.db.leave()
	var bad error
	err = p.get(p.checkpoint, func(value []byte) {
		exists = true
		if c, bad = decodeCheckpoint(value); bad != nil {
			bad = fmt.Errorf("state store %s: partition %s: %w", p.db.dir, p.name, bad)
		}
	})
	return c, exists && err == nil && bad == nil, errors.Join(err, bad)
}

// Apply makes the changes and the checkpoint take effect together (invariant 1). A nil value deletes its key; of several
// changes of one key the last one counts. The slices may be reused once Apply has returned.
func (p *Partition) Apply(changes iter.Seq2[string, []byte], checkpoint Checkpoint) error {
	if err := p.db.enter(); err != nil {
		return err
	}
	defer p.db.leave()
	batch := p.db.pebble.NewBatch()
	for key, value := range changes {
		if err := p.change(batch, key, value); err != nil {
			_ = batch.Close()
			return p.db.wrap("apply to "+p.name, err)
		}
	}
	if err := batch.Set(p.checkpoint, checkpoint.append(nil), nil); err != nil {
		_ = batch.Close()
		return p.db.wrap("apply to "+p.name, err)
	}
	return p.commit("apply to "+p.name, batch)
}

func (p *Partition) change(batch *pebble.Batch, key string, value []byte) error {
	size := len(p.state) + len(key)
	if value == nil {
		op := batch.DeleteDeferred(size)
		copy(op.Key[copy(op.Key, p.state):], key)
		return op.Finish()
	}
	op := batch.SetDeferred(size, len(value))
	copy(op.Key[copy(op.Key, p.state):], key)
	copy(op.Value, value)
	return op.Finish()
}

// Clear removes the partition's state and its checkpoint.
func (p *Partition) Clear() error {
	if err := p.db.enter(); err != nil {
		return err
	}
	defer p.db.leave()
	batch := p.db.pebble.NewBatch()
	if err := batch.DeleteRange(p.checkpoint, p.end, nil); err != nil {
		_ = batch.Close()
		return p.db.wrap("clear "+p.name, err)
	}
	return p.commit("clear "+p.name, batch)
}

// commit owns batch. It is given up, not closed, when the write is still under way in a store that has failed.
func (p *Partition) commit(operation string, batch *pebble.Batch) error {
	if err := p.db.guard(operation, func() error { return batch.Commit(pebble.NoSync) }); err != nil {
		return p.db.wrap(operation, err)
	}
	return p.db.wrap(operation, batch.Close())
}

// All loops over the state as it is when the loop begins, in the order of the keys' bytes. A value is valid until the next
// turn. After the loop, failure tells whether it ended early.
func (p *Partition) All() (states iter.Seq2[string, []byte], failure func() error) {
	var failed error
	states = func(yield func(string, []byte) bool) { failed = p.each(yield) }
	return states, func() error { return failed }
}

func (p *Partition) each(yield func(string, []byte) bool) (err error) {
	if err := p.db.enter(); err != nil {
		return err
	}
	defer p.db.leave()
	operation := "read all of " + p.name
	it, err := p.db.pebble.NewIter(&pebble.IterOptions{LowerBound: p.state, UpperBound: p.end})
	if err != nil {
		return p.db.wrap(operation, err)
	}
	defer func() {
		if closed := it.Close(); err == nil && closed != nil {
			err = p.db.wrap(operation, closed)
		}
	}()
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return p.db.wrap(operation, err)
		}
		if !yield(string(it.Key()[len(p.state):]), value) {
			return nil
		}
	}
	return nil
}
