package mqtt_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"go.uber.org/goleak"

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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newBench(t *testing.T, broker string) *bench {
	b := &bench{t: t, broker: broker, tap: mqtttest.NewTap(t, broker), publish: mqtttest.NewPublisher(t, broker)}
	b.configs = []stream.Config{{Key: "default", Value: []byte("{}")}}
	b.changed, b.grown = make(chan struct{}), make(chan struct{})
	b.config = newConfig("mqtt://"+b.tap.Addr, strings.ReplaceAll(t.Name(), "/", "-"))
	b.config.Events.Disconnected = func(i mqtt.DisconnectedInfo) { b.tap.Note(i.String()) }
	return b
}

// newConfig makes a session whose messages become records as they are.
func newConfig(broker, id string) mqtt.Config {
	c := mqtt.Config{
		Broker:   broker,
		ClientID: id,
		Filters:  func(stream.Config) ([]string, error) { return []string{"tanks/+/level"}, nil },
		Format:   stream.String,
		Message: func(_ stream.Config, a *stream.Arrival, arena *stream.Arena) (stream.Message, error) {
			return stream.Message{Topic: output, Partition: stream.AnyPartition, Key: arena.Copy([]byte(a.Topic)), Value: arena.Copy(a.Value), Timestamp: a.Timestamp}, nil
		},
	}
	c.Backoff.Min, c.Backoff.Max = time.Millisecond, 10*time.Millisecond
	c.Quiet = 100 * time.Millisecond
	return c
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
		Gather: 10 * time.Millisecond,
		Grace:  grace,
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

// start runs a session. stop ends it and answers what Run has returned.
func (b *bench) start() (stop func() error) {
	b.t.Helper()
	stop, _ = b.startAs(b.config)
	return stop
}

// startAs is start with a config of its own; ended gets what Run returns.
func (b *bench) startAs(config mqtt.Config) (stop func() error, ended <-chan error) {
	b.t.Helper()
	_, stop, ended = b.run(config)
	return stop, ended
}

func (b *bench) startSession(config mqtt.Config) (*mqtt.Session, func() error) {
	b.t.Helper()
	s, stop, _ := b.run(config)
	return s, stop
}

func (b *bench) run(config mqtt.Config) (s *mqtt.Session, stop func() error, ended <-chan error) {
	b.t.Helper()
	if b.publish != nil {
		// The embedded broker acknowledges a message before it hands it on; with the next one, it has.
		b.publish.Publish(b.t, "settled", "")
	}
	s, err := mqtt.New(config)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	grace, end := context.WithCancel(context.Background())
	over, done := make(chan error, 1), make(chan struct{})
	var result error
	go func() {
		defer close(done)
		result = s.Run(ctx, b.push(grace))
		over <- result
	}()
	stop = sync.OnceValue(func() error {
		cancel()
		defer end()
		defer s.Close()
		select {
		case <-done:
			return result
		case <-time.After(mqtttest.Patience):
			return errors.New("the session does not end")
		}
	})
	b.t.Cleanup(func() { _ = stop() })
	return s, stop, over
}

// mustEnd answers with what error a session ends by itself.
func (b *bench) mustEnd(ended <-chan error) error {
	b.t.Helper()
	select {
	case err := <-ended:
		if err == nil {
			b.t.Fatal("the session ended without an error")
		}
		return err
	case <-time.After(mqtttest.Patience):
		b.t.Fatalf("the session goes on\n%s", b.tap)
	}
	return nil
}

// block holds every commit up until release is called. entered gets a token with each.
func (b *bench) block() (entered <-chan struct{}, release func()) {
	in, out := make(chan struct{}, 1000), make(chan struct{})
	b.setGate(func(ctx context.Context, _ *stream.Page) error {
		in <- struct{}{}
		select {
		case <-out:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	return in, sync.OnceFunc(func() { close(out) })
}

func (b *bench) setGate(gate func(ctx context.Context, page *stream.Page) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gate = gate
}

// all is what is committed.
func (b *bench) all() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.committed)
}

// acks are the acknowledgements that the broker has got.
func (b *bench) acks(n int) []mqtttest.Packet {
	b.t.Helper()
	return b.tap.Wait(b.t, n, "PUBACK", mqtttest.Is(packets.PUBACK, true))
}

// deliveries are what the broker has sent.
func (b *bench) deliveries(n int) []mqtttest.Packet {
	b.t.Helper()
	return b.tap.Wait(b.t, n, "PUBLISH", mqtttest.Is(packets.PUBLISH, false))
}

// count is how many packets have matched so far.
func (b *bench) count(match func(mqtttest.Packet) bool) int {
	n := 0
	for _, p := range b.tap.Packets() {
		if match(p) {
			n++
		}
	}
	return n
}

func await[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(mqtttest.Patience):
		t.Fatalf("%s does not happen", what)
		panic("unreachable")
	}
}

func numbers(from, to int) []string {
	var n []string
	for i := from; i < to; i++ {
		n = append(n, strconv.Itoa(i))
	}
	return n
}

// onBrokers runs a test on a broker inside the test and, in the second tier, on Debian's mosquitto.
func onBrokers(t *testing.T, test func(t *testing.T, broker string)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) { test(t, mqtttest.Embedded(t)) })
	t.Run("mosquitto", func(t *testing.T) { test(t, mqtttest.NewMosquitto(t).Addr) })
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
