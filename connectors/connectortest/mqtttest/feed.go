package mqtttest

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
)

// Feed publishes {"seq":N} to a topic with QoS 1, from a number to the one before another, one after the other, and returns
// when the broker has acknowledged the last. It goes on over ends of the broker: what was not acknowledged is published again.
// every is the least time from one to the next.
func Feed(ctx context.Context, broker, topic string, from, to int, every time.Duration) error {
	var pace <-chan time.Time
	if every > 0 {
		ticks := time.NewTicker(every)
		defer ticks.Stop()
		pace = ticks.C
	}
	for from < to {
		next, err := feed(ctx, broker, topic, from, to, pace)
		from = next
		if ctx.Err() != nil {
			return fmt.Errorf("feed %s: %d of %d published: %w", topic, from, to, err)
		}
		if from < to {
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond): // for the broker to come back
			}
		}
	}
	return nil
}

// feed is Feed over one connection. It answers the first number that is not acknowledged.
func feed(ctx context.Context, broker, topic string, from, to int, pace <-chan time.Time) (int, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", broker)
	if err != nil {
		return from, err
	}
	client := paho.NewClient(paho.ClientConfig{Conn: packets.NewThreadSafeConn(conn), PacketTimeout: Patience})
	if _, err := client.Connect(ctx, &paho.Connect{ClientID: "feed-" + topic, CleanStart: true, KeepAlive: 60}); err != nil {
		return from, err
	}
	defer func() { _ = client.Disconnect(&paho.Disconnect{}) }()
	for ; from < to; from++ {
		if pace != nil {
			<-pace
		}
		ctx, cancel := context.WithTimeout(ctx, Patience)
		_, err := client.Publish(ctx, &paho.Publish{Topic: topic, QoS: 1, Payload: fmt.Appendf(nil, `{"seq":%d}`, from)})
		cancel()
		if err != nil {
			return from, err
		}
	}
	return from, nil
}
