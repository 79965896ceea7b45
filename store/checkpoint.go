package store

import (
	"encoding/binary"
	"fmt"
	"time"
)

// Checkpoint is how far a partition has got in its changelog.
type Checkpoint struct {
	Topic       [16]byte // the changelog's topic id
	Next        int64    // the first offset of the changelog that is not applied
	LeaderEpoch int32    // of the last record applied, -1 if unknown
	Written     time.Time
	Inputs      []InputOffset
}

// InputOffset is how far an input was read when the checkpoint was written.
type InputOffset struct {
	Topic     string
	Partition int32
	Offset    int64 // the next one to read
}

// checkpointVersion begins every encoded checkpoint. It also stands for the layout of the partition's keys: with another
// one the checkpoint is unreadable, so the partition is filled anew.
const checkpointVersion = 1

func (c *Checkpoint) append(dst []byte) []byte {
	dst = append(dst, checkpointVersion)
	dst = append(dst, c.Topic[:]...)
	dst = binary.AppendVarint(dst, c.Next)
	dst = binary.AppendVarint(dst, int64(c.LeaderEpoch))
	dst = binary.AppendVarint(dst, c.Written.UnixMilli())
	dst = binary.AppendUvarint(dst, uint64(len(c.Inputs)))
	for _, in := range c.Inputs {
		dst = binary.AppendUvarint(dst, uint64(len(in.Topic)))
		dst = append(dst, in.Topic...)
		dst = binary.AppendVarint(dst, int64(in.Partition))
		dst = binary.AppendVarint(dst, in.Offset)
	}
	return dst
}

func decodeCheckpoint(data []byte) (Checkpoint, error) {
	r := reader{rest: data}
	if version := r.bytes(1); r.failed || version[0] != checkpointVersion {
		return Checkpoint{}, fmt.Errorf("%w: it is not of version %d", ErrCheckpoint, checkpointVersion)
	}
	var c Checkpoint
	copy(c.Topic[:], r.bytes(uint64(len(c.Topic))))
	c.Next = r.varint()
	c.LeaderEpoch = int32(r.varint())
	c.Written = time.UnixMilli(r.varint())
	for n := r.uvarint(); n > 0 && !r.failed; n-- {
		c.Inputs = append(c.Inputs, InputOffset{
			Topic:     string(r.bytes(r.uvarint())),
			Partition: int32(r.varint()),
			Offset:    r.varint(),
		})
	}
	if r.failed || len(r.rest) > 0 {
		return Checkpoint{}, fmt.Errorf("%w: it has a wrong length", ErrCheckpoint)
	}
	return c, nil
}

// reader takes values off the front of rest. Once something is missing it answers zeros, and failed is set.
type reader struct {
	rest   []byte
	failed bool
}

func (r *reader) bytes(n uint64) []byte {
	if r.failed || n > uint64(len(r.rest)) {
		r.failed = true
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.rest)
	r.skip(n)
	return v
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	r.skip(n)
	return v
}

func (r *reader) skip(n int) {
	if n <= 0 {
		r.failed, r.rest = true, nil
		return
	}
	r.rest = r.rest[n:]
}
