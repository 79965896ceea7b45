package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/flechtwerk/flechtwerk/connectors/connectortest/mqtttest"
	"github.com/flechtwerk/flechtwerk/engine/enginetest"
)

// sharing are instances of one pipeline that share the messages of an MQTT broker.
type sharing struct {
	kafka, binary, file, out string
	publisher                *mqtttest.Publisher
	sent                     int
}

// share makes brokers and the pipeline. leave says what an instance does that ends.
func share(t *testing.T, broker, leave string) *sharing {
	t.Helper()
	s := &sharing{binary: enginetest.Build(t, "github.com/flechtwerk/flechtwerk/cmd/flechtwerk", "faults")}
	if os.Getenv("FLECHTWERK_TIER") == "kafka" {
		s.kafka = enginetest.Kafka(t)
	} else {
		s.kafka = enginetest.StartFakeProcess(t)
	}
	name := enginetest.Unique("share")
	s.out, s.file = name+"-out", filepath.Join(t.TempDir(), "share.yaml")
	text := fmt.Sprintf(`pipeline: %s
extractors:
  bridge:
    mqtt: { broker: "mqtt://%s", topics: share/+, on_stop: %s }
    output_topics: %s
    message: { value: value }
`, name, broker, leave, s.out)
	if err := os.WriteFile(s.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	enginetest.CreateTopic(t, enginetest.At(s.kafka), s.out, 2)
	s.publisher = mqtttest.NewPublisher(t, broker)
	return s
}

// start starts an instance and waits until it has subscribed.
func (s *sharing) start(t *testing.T, instance string) *enginetest.Process {
	t.Helper()
	p := enginetest.Start(t, enginetest.Command{Path: s.binary, Args: []string{"run", s.file, "--log-level", "debug", "-s", "kafka.brokers=" + s.kafka,
		"-s", "instance.id=" + instance, "-s", "state.dir=" + filepath.Join(filepath.Dir(s.file), instance), "-s", "http.listen=off"}})
	p.Stderr.Wait(t, 0, "MQTT subscribed")
	return p
}

// send publishes n more numbered messages.
func (s *sharing) send(t *testing.T, n int) {
	t.Helper()
	for range n {
		s.publisher.Publish(t, fmt.Sprintf("share/%d", s.sent%10), strconv.Itoa(s.sent))
		s.sent++
	}
}

// counts are how often each number is in Kafka, once all are.
func (s *sharing) counts(t *testing.T) map[string]int {
	t.Helper()
	for least := s.sent; ; {
		records := enginetest.WaitCommitted(t, enginetest.At(s.kafka), s.out, enginetest.AtLeast(least))
		seen := map[string]int{}
		for _, r := range records {
			seen[string(r.Value)]++
		}
		if len(seen) >= s.sent {
			return seen
		}
		least = len(records) + 1
	}
}

func eachMosquitto(t *testing.T, test func(t *testing.T, broker string)) {
	t.Run("embedded", func(t *testing.T) { test(t, mqtttest.Embedded(t)) })
	t.Run("mosquitto", func(t *testing.T) { test(t, mqtttest.NewMosquitto(t).Addr) })
}

// M8: of two instances that share a subscription one leaves for good. Every message arrives, and each once.
func TestM8AnInstanceLeavesForGood(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: left out by -short")
	}
	eachMosquitto(t, func(t *testing.T, broker string) {
		s := share(t, broker, "leave")
		one, two := s.start(t, "one"), s.start(t, "two")
		s.send(t, 300)
		one.Signal(t, syscall.SIGTERM)
		s.send(t, 300) // while it leaves
		if status := one.Status(); status != 0 {
			t.Fatalf("exit status %d:\n%s", status, one.Stderr)
		}
		one.Stderr.Wait(t, 0, "MQTT unsubscribed")
		one.Stderr.Wait(t, 0, "transaction committed")
		two.Stderr.Wait(t, 0, "transaction committed")
		s.send(t, 300)
		for number, n := range s.counts(t) {
			if n != 1 {
				t.Errorf("message %s is there %d times", number, n)
			}
		}
	})
}

// M8: an instance is killed and comes back under its name. What the broker kept for it arrives, and nothing is lost.
func TestM8AnInstanceIsKilledAndComesBack(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: left out by -short")
	}
	eachMosquitto(t, func(t *testing.T, broker string) {
		s := share(t, broker, "stay")
		one, two := s.start(t, "one"), s.start(t, "two")
		s.send(t, 300)
		one.Stderr.Wait(t, 0, "transaction committed")
		two.Stderr.Wait(t, 0, "transaction committed")
		one.Kill()
		if status := one.Status(); status != -int(syscall.SIGKILL) {
			t.Fatalf("it ended with %d before it was killed:\n%s", status, one.Stderr)
		}
		from := two.Stderr.Len()
		s.send(t, 300)
		two.Stderr.Wait(t, from, "transaction committed")
		back := s.start(t, "one")
		back.Stderr.Wait(t, 0, "resumed=true")
		s.send(t, 300)
		if n := len(s.counts(t)); n != s.sent {
			t.Errorf("%d of %d messages arrived", n, s.sent)
		}
	})
}
