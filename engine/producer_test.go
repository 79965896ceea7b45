package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
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
