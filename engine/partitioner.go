package engine

import (
	"github.com/twmb/franz-go/pkg/kgo"
)

// partitioner places a record where its Partition says, or, if that is negative, by murmur2 of its key as Java's default
// does; records without a key stick to one partition per batch.
type partitioner struct {
	keyed  kgo.Partitioner
	beyond func(r *kgo.Record, partitions int)
}

// newPartitioner answers a partitioner that tells beyond, if given, of a record which asks for a partition that is not there.
func newPartitioner(beyond func(r *kgo.Record, partitions int)) kgo.Partitioner {
	return partitioner{kgo.StickyKeyPartitioner(nil), beyond}
}

func (p partitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return topicPartitioner{p.keyed.ForTopic(topic), p.beyond}
}

type topicPartitioner struct {
	keyed  kgo.TopicPartitioner
	beyond func(r *kgo.Record, partitions int)
}

func (p topicPartitioner) RequiresConsistency(r *kgo.Record) bool {
	return r.Partition >= 0 || p.keyed.RequiresConsistency(r)
}

// Partition answers a partition beyond n for a record that asks for one; the client then fails that record.
func (p topicPartitioner) Partition(r *kgo.Record, n int) int {
	if r.Partition >= 0 {
		if int(r.Partition) >= n && p.beyond != nil {
			p.beyond(r, n)
		}
		return int(r.Partition)
	}
	return p.keyed.Partition(r, n)
}

func (p topicPartitioner) OnNewBatch() {
	if b, ok := p.keyed.(kgo.TopicPartitionerOnNewBatch); ok {
		b.OnNewBatch()
	}
}
