package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flechtwerk/flechtwerk/engine/enginetest"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// leaders is a client that comes to know of a topic's partition only when it has been asked for it several times.
type leaders struct {
	unknown map[string]int // questions until the answer
	asked   map[string]int
	err     error // of a later look-up, beside a leader that is known
}

func (l *leaders) PartitionLeader(topic string, _ int32) (leader, epoch int32, err error) {
	l.asked[topic]++
	if l.asked[topic] <= l.unknown[topic] {
		return -1, -1, nil
	}
	return 0, 0, l.err
}

// A transaction must not end while its client could not tell which partitions took part: it would abort and say nothing.
func TestE4EndWaitsForTheClientToKnowItsPartitions(t *testing.T) {
	l := &leaders{unknown: map[string]int{"a": 3}, asked: map[string]int{}}
	seen := partakers{cl: l}
	for _, topic := range []string{"a", "a", "b", "a", "b"} {
		if err := seen.await(t.Context(), &kgo.Record{Topic: topic}); err != nil {
			t.Fatal(err)
		}
	}
	if l.asked["a"] != 4 || l.asked["b"] != 1 {
		t.Errorf("asked %v; want a until it was known, and each topic no more after that", l.asked)
	}
	l.err = kerr.LeaderNotAvailable
	if err := seen.await(t.Context(), &kgo.Record{Topic: "c"}); err != nil {
		t.Errorf("a partition that is kept takes part, whatever its last look-up said: %v", err)
	}
	l.unknown["d"] = 1 << 30
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if err := seen.await(ctx, &kgo.Record{Topic: "d"}); !errors.Is(err, gone) {
		t.Errorf("got %v, want the context's cause", err)
	}
}

// Every way of writing a transaction waits for that before it ends one.
func TestE4ProduceWaitsForTheClientToKnowItsPartitions(t *testing.T) {
	fake := enginetest.NewFake(t, enginetest.FakeConfig{})
	for _, topic := range []string{"out", "log"} {
		fake.CreateTopic(t, topic, 1)
	}
	k := &kafka{Kafka: Kafka{Brokers: fake.Addrs(), Dial: fake.Dial, ClientID: "test"}}
	p, err := newProducer(k, "app-0", membership{}, func(string) int32 { return defaultBatch })
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	l := &leaders{unknown: map[string]int{"out": 2, "log": 3}, asked: map[string]int{}}
	p.seen.cl = l
	if err := p.cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	tx := &transaction{messages: []stream.Message{{Topic: &stream.Topic{Name: "out"}, Partition: stream.AnyPartition, Value: []byte("1")}},
		changelog: "log", changes: []stream.Change{{Key: "k", Value: []byte("{}")}}}
	if err := p.produce(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	if l.asked["out"] != 3 || l.asked["log"] != 4 {
		t.Errorf("asked %v; want each topic until it was known", l.asked)
	}
	if err := p.cl.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
}
