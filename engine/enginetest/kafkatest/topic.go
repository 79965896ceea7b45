package kafkatest

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// AwaitTopic returns when the topic, which was just created, and the leaders of its partitions are known to the broker that
// answers: a real one says "created" before it knows the topic itself.
func AwaitTopic(ctx context.Context, admin *kadm.Client, topic string) error {
	for {
		ends, err := admin.ListEndOffsets(ctx, topic)
		if err == nil {
			err = ends.Error()
		}
		if err == nil && len(ends[topic]) > 0 {
			return nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("topic %s does not show up: %w; the last answer: %w", topic, ctx.Err(), err)
		}
	}
}
