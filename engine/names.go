package engine

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Every name and number that the engine writes into Kafka is made here. A change strands the state of every running
// pipeline, so names_test.go pins them.

// changelogTopic is the compacted topic that is the truth of a stage's state.
func changelogTopic(applicationID string) string { return applicationID + "-changelog" }

// transactionalID is the static transactional id of one task.
func transactionalID(applicationID string, task int32) string {
	return applicationID + "-" + strconv.Itoa(int(task))
}

// instanceID is the static transactional id of a stage whose task is the instance: what arrives by itself has no partitions.
func instanceID(applicationID, instance string) string { return applicationID + "-" + instance }

// seedID is the transactional id under which a topic is seeded.
func seedID(topic string) string { return "flechtwerk-seed-" + topic }

// writeID is the transactional id under which people write several records into a topic at once.
func writeID(topic string) string { return "flechtwerk-write-" + topic }

// Keys of a changelog that begin with U+0000 are the engine's own.
const (
	reserved    = "\x00"
	takeoverKey = reserved + "takeover"
	enrichedKey = reserved + "enrich/" // and the config's key
)

// Token is the token of an extractor's config: murmur2(key) & 0x7fffffff mod n, as Kafka's default partitioner places a
// record with this key on n partitions.
func Token(key string, n int) int32 {
	return int32(javaHash([]byte(key), n))
}

// javaHash is the partition that Java's default partitioner picks for a key.
func javaHash(key []byte, n int) int {
	p := kgo.StickyKeyPartitioner(nil).ForTopic("")
	if key == nil {
		key = []byte{}
	}
	return p.Partition(&kgo.Record{Key: key}, n)
}
