package mqtt_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/flechtwerk/flechtwerk/connectors/connectortest/mqtttest"
	"github.com/flechtwerk/flechtwerk/connectors/mqtt"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

var output = &stream.Topic{Name: "levels"}

// bench runs one session against a broker, with a Kafka that the test plays.
type bench struct {
	t       *testing.T
	broker  string
	tap     *mqtttest.Tap
	publish *mqtttest.Publisher
	config  mqtt.Config

	mu        sync.Mutex
	configs   []stream.Config
	changed   chan struct{}
	committed []string // values, in the order of their commits
	pages     int
	grown     chan struct{}
	gate      func(ctx context.Context, page *stream.Page) error // asked before a page is committed
}

func newBench(t *testing.T, broker string) *bench {
	b := &bench{t: t, broker: broker, tap: mqtttest.NewTap(t, broker), publish: mqtttest.NewPublisher(t, broker)}
	b.configs = []stream.Config{{Key: "default", Value: []byte("{}")}}
	b.changed, b.grown = make(chan struct{}), make(chan struct{})
	b.config = mqtt.Config{
		Broker:   "mqtt://" + b.tap.Addr,
		ClientID: strings.ReplaceAll(t.Name(), "/", "-"),
		Filters:  func(stream.Config) ([]string, error) { return []string{"tanks/+/level"}, nil },
		Format:   stream.String,
		Message: func(_ stream.Config, a *stream.Arrival, arena *stream.Arena) (stream.Message, error) {
			return stream.Message{Topic: output, Partition: stream.AnyPartition, Key: arena.Copy([]byte(a.Topic)), Value: arena.Copy(a.Value), Timestamp: a.Timestamp}, nil
		},
	}
	b.config.Backoff.Min, b.config.Backoff.Max = time.Millisecond, 10*time.Millisecond
	b.config.Quiet = 100 * time.Millisecond
	return b
}

func (b *bench) setConfigs(configs ...stream.Config) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.configs = configs
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *bench) push(grace context.Context) *stream.Push {
	return &stream.Push{
		Configs: func() ([]stream.Config, <-chan struct{}) {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.configs, b.changed
		},
		Lookup: func() stream.Configs { return nil },
		Commit: func(ctx context.Context, page *stream.Page) error {
			b.mu.Lock()
			gate := b.gate
			b.mu.Unlock()
			if gate != nil {
				if err := gate(ctx, page); err != nil {
					return err
				}
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			b.pages++
			for _, m := range page.Messages {
				b.committed = append(b.committed, string(m.Value))
			}
			close(b.grown)
			b.grown = make(chan struct{})
			return nil
		},
		Grace: grace,
	}
}

// wait waits until so many messages are committed.
func (b *bench) wait(n int) []string {
	b.t.Helper()
	patience := time.After(mqtttest.Patience)
	for {
		b.mu.Lock()
		committed, grown := slices.Clone(b.committed), b.grown
		b.mu.Unlock()
		if len(committed) >= n {
			return committed
		}
		select {
		case <-grown:
		case <-patience:
			b.t.Fatalf("%d of %d messages are committed: %v\n%s", len(committed), n, committed, b.tap)
		}
	}
}

// running is a session that runs. stop ends it and answers what Run has returned.
func (b *bench) start() (stop func() error) {
	b.t.Helper()
	s, err := mqtt.New(b.config)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	grace, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, b.push(grace)) }()
	stop = sync.OnceValue(func() error {
		cancel()
		defer end()
		defer s.Close()
		select {
		case err := <-ended:
			return err
		case <-time.After(mqtttest.Patience):
			return errors.New("the session does not end")
		}
	})
	b.t.Cleanup(func() { _ = stop() })
	return stop
}

// subscribed waits until the broker has answered so many SUBSCRIBE packets.
func (b *bench) subscribed(n int) {
	b.t.Helper()
	b.tap.Wait(b.t, n, "SUBACK", mqtttest.Is(packets.SUBACK, false))
}

func (b *bench) mustStop(stop func() error) {
	b.t.Helper()
	if err := stop(); err != nil {
		b.t.Fatalf("%v\n%s", err, b.tap)
	}
}

// order checks that the broker got an acknowledgement for each message of a connection, in the order in which it sent them.
func (b *bench) order(conn int) {
	b.t.Helper()
	var sent, acknowledged []uint16
	for _, p := range b.tap.Packets() {
		if p.Conn != conn {
			continue
		}
		switch c := p.Content.(type) {
		case *packets.Publish:
			if c.QoS > 0 {
				sent = append(sent, c.PacketID)
			}
		case *packets.Puback:
			acknowledged = append(acknowledged, c.PacketID)
		}
	}
	if !slices.Equal(sent, acknowledged) {
		b.t.Errorf("connection %d: the broker sent %v, and got acknowledgements %v\n%s", conn, sent, acknowledged, b.tap)
	}
}

func TestM1SessionOutlivesTheConnection(t *testing.T) {
	b := newBench(t, mqtttest.Embedded(t))
	stop := b.start()
	b.subscribed(1)
	for i := range 100 {
		b.publish.Publish(t, "tanks/a/level", fmt.Sprint(i))
	}
	b.wait(100)
	b.mustStop(stop)
	connect := b.tap.Packets()[0].Content.(*packets.Connect)
	if connect.ProtocolVersion != 5 || connect.CleanStart || *connect.Properties.SessionExpiryInterval != 24*60*60 || *connect.Properties.ReceiveMaximum != 1000 || connect.ClientID != t.Name() {
		t.Errorf("CONNECT is %v", connect)
	}
	b.order(1)
	b.publish.Publish(t, "tanks/a/level", "while away")
	stop = b.start()
	if got := b.wait(101); got[100] != "while away" || len(got) != 101 {
		t.Errorf("%v", got[100:])
	}
	b.mustStop(stop)
}
