package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/flechtwerk/flechtwerk/connectors/connectortest/mqtttest"
	"github.com/flechtwerk/flechtwerk/engine/enginetest"
	"github.com/flechtwerk/flechtwerk/engine/enginetest/kafkatest"
)

// bridges are instances of a pipeline that brings MQTT messages to Kafka, each a process.
type bridges struct {
	binary, file, kafka, out string
	broker                   string
	mosquitto                *mqtttest.Mosquitto // nil where the broker is part of the test
	topics                   int
	fed                      []int // by topic: how many were published
}

// newBridges prepares a pipeline. settings are lines of its mqtt: block.
func newBridges(t *testing.T, topics int, kafka string, settings ...string) *bridges {
	t.Helper()
	if testing.Short() {
		t.Skip("starts the binary several times: left out by -short")
	}
	b := &bridges{binary: enginetest.Build(t, "github.com/flechtwerk/flechtwerk/cmd/flechtwerk"), file: filepath.Join(t.TempDir(), "bridge.yaml"), kafka: kafka, topics: topics, fed: make([]int, topics)}
	if realTier() {
		b.mosquitto = mqtttest.NewMosquitto(t)
		b.broker = b.mosquitto.Addr
	} else {
		b.broker = mqtttest.Embedded(t)
	}
	name := enginetest.Unique("bridge")
	b.out = name + "-out"
	text := fmt.Sprintf("pipeline: %s\ntopics:\n  %s: { partitions: 4 }\nextractors:\n  bridge:\n    mqtt:\n      broker: \"mqtt://%s\"\n      topics: bridge/+/seq\n", name, b.out, b.broker)
	for _, s := range settings {
		text += "      " + s + "\n"
	}
	text += fmt.Sprintf("    message: { topic: %s, value: value }\n", b.out)
	if err := os.WriteFile(b.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	enginetest.CreateTopic(t, enginetest.At(b.kafka), b.out, 4)
	return b
}

func realTier() bool { return os.Getenv(enginetest.EnvTier) == "kafka" }

// anyKafka is a Kafka that others use, too.
func anyKafka(t *testing.T) string {
	t.Helper()
	if realTier() {
		return enginetest.Kafka(t)
	}
	return enginetest.StartFakeProcess(t, "group.min.session.timeout.ms=500")
}

func (b *bridges) start(t *testing.T, instance string) *enginetest.Process {
	t.Helper()
	return enginetest.Start(t, enginetest.Command{Path: b.binary, Args: []string{"run", b.file, "--log-level", "debug", "-s", "instance.id=" + instance,
		"-s", "kafka.brokers=" + b.kafka, "-s", "kafka.session_timeout=1s", "-s", "state.dir=" + t.TempDir(), "-s", "http.listen=off"}})
}

func mqttTopic(i int) string { return fmt.Sprintf("bridge/%d/seq", i) }

// feed publishes n more messages to each topic, and answers a function that waits for the end of it.
func (b *bridges) feed(t *testing.T, n int, every time.Duration) (wait func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	var all errgroup.Group
	for i := range b.topics {
		from := b.fed[i]
		b.fed[i] += n
		all.Go(func() error { return mqtttest.Feed(ctx, b.broker, mqttTopic(i), from, from+n, every) })
	}
	return func() {
		t.Helper()
		defer cancel()
		if err := all.Wait(); err != nil {
			t.Fatal(err)
		}
	}
}

func (b *bridges) total() int {
	n := 0
	for _, fed := range b.fed {
		n += fed
	}
	return n
}

// missing are the messages that are not among records, as ranges by topic.
func (b *bridges) missing(records []*enginetest.Record) []string {
	seen := make(map[string]bool, len(records))
	for _, r := range records {
		seen[string(r.Key)+" "+string(r.Value)] = true
	}
	var missing []string
	for i, fed := range b.fed {
		from := -1
		for n := range fed + 1 {
			there := n == fed || seen[fmt.Sprintf(`%s {"seq":%d}`, mqttTopic(i), n)]
			if !there && from < 0 {
				from = n
			}
			if there && from >= 0 {
				missing = append(missing, fmt.Sprintf("%s %d-%d", mqttTopic(i), from, n-1))
				from = -1
			}
		}
	}
	return missing
}

// arrived waits until each message is in Kafka, and answers how many are there more than once. ordered says that the first
// appearances of each topic's messages are in the order in which they were published.
func (b *bridges) arrived(t *testing.T, ordered bool) (twice int) {
	t.Helper()
	var records []*enginetest.Record
	defer func() {
		if missing := b.missing(records); len(missing) > 0 {
			t.Errorf("missing of %d published: %s", b.total(), strings.Join(missing, ", "))
		}
	}()
	records = enginetest.WaitCommitted(t, enginetest.At(b.kafka), b.out, func(now []*enginetest.Record) bool {
		records = now
		return len(b.missing(now)) == 0
	})
	next := map[string]int{}
	for _, r := range records {
		var value struct{ Seq int }
		if err := json.Unmarshal(r.Value, &value); err != nil {
			t.Fatal(err)
		}
		if topic := string(r.Key); ordered && value.Seq > next[topic] {
			t.Errorf("partition %d offset %d: %s has %d where %d should come first", r.Partition, r.Offset, topic, value.Seq, next[topic])
			break
		} else if value.Seq == next[topic] {
			next[topic]++
		}
	}
	return len(records) - b.total()
}

// TestM3KillBridge kills the process at moments of chance while messages arrive, and restarts the broker now and then. Each
// message is in Kafka at least once, and the first appearances are in order. With FLECHTWERK_TIER=kafka it is mosquitto, a
// real Kafka, and 100,000 messages.
func TestM3KillBridge(t *testing.T) {
	kills, perRound := 5, 100
	if realTier() {
		kills, perRound = 20, 477
	}
	// mosquitto 2.0.11 forgets a shared subscription when it is restarted, until its session is there again.
	b := newBridges(t, 10, anyKafka(t), "shared: false")
	rng := rand.New(rand.NewPCG(3, uint64(time.Now().UnixNano())))
	restarts := 0
	for i := range kills {
		p := b.start(t, "one")
		p.Stderr.Wait(t, 0, "MQTT subscribed")
		from := p.Stderr.Len()
		wait := b.feed(t, perRound, time.Second/time.Duration(perRound)) // for longer than four commits take
		if b.mosquitto != nil && i%4 == 1 {
			p.Stderr.Wait(t, from, "transaction committed")
			b.mosquitto.Restart()
			restarts++
			p.Stderr.Wait(t, from, "MQTT subscribed")
		}
		commits := 1 + rng.IntN(4)
		p.Stderr.WaitFor(t, from, strconv.Itoa(commits)+" commits", func(line string) bool {
			if strings.Contains(line, "transaction committed") {
				commits--
			}
			return commits <= 0
		})
		p.Kill()
		if status := p.Status(); status != -int(syscall.SIGKILL) {
			t.Fatalf("kill %d: the process ended with %d before it was killed:\n%s", i, status, p.Stderr)
		}
		wait()
	}
	if len(b.missing(enginetest.ReadCommitted(t, enginetest.At(b.kafka), b.out))) == 0 {
		t.Error("the work was done before the last kill: the kills came too late to prove anything")
	}
	if b.mosquitto != nil && restarts != 5 {
		t.Errorf("the broker was restarted %d times", restarts)
	}
	p := b.start(t, "one")
	p.Stderr.Wait(t, 0, "MQTT subscribed")
	b.feed(t, perRound, 0)()
	twice := b.arrived(t, true)
	t.Logf("%d messages over %d kills and %d restarts of the broker; %d came again", b.total(), kills, restarts, twice)
	p.Signal(t, syscall.SIGTERM)
	if status := p.Status(); status != 0 {
		t.Errorf("it ended with %d:\n%s", status, p.Stderr)
	}
}

// rss is the memory of a process in bytes.
func rss(t *testing.T, p *enginetest.Process) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.PID()))
	if err != nil {
		t.Skip("there is no /proc here")
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// TestM5KafkaAway takes Kafka away for two minutes (in the fast tier for some seconds) while 1,000 messages a second arrive. The
// broker's connection stays, memory does not grow, and nothing is lost.
func TestM5KafkaAway(t *testing.T) {
	var b *bridges
	var away, back func()
	outage := 5 * time.Second
	if realTier() {
		outage = 2 * time.Minute
		kafka := enginetest.OwnKafka(t, kafkatest.Config{})
		b = newBridges(t, 10, kafka.Addr())
		away = func() {
			if err := kafka.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		back = func() {
			if err := kafka.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	} else {
		kafka, addr := enginetest.StartFake(t, "group.min.session.timeout.ms=500")
		b = newBridges(t, 10, addr)
		away = func() { kafka.Signal(t, syscall.SIGSTOP) }
		back = func() { kafka.Signal(t, syscall.SIGCONT) }
	}
	p := b.start(t, "one")
	p.Stderr.Wait(t, 0, "MQTT subscribed")
	const perSecond = 100 // of each topic
	from := p.Stderr.Len()
	wait := b.feed(t, int(outage/time.Second+4)*perSecond, time.Second/perSecond)
	p.Stderr.Wait(t, from, "transaction committed")
	away()
	// The inbox and what the broker may send are full after a few seconds.
	<-time.After(outage / 4)
	before, from := rss(t, p), p.Stderr.Len()
	<-time.After(outage * 3 / 4)
	after := rss(t, p)
	for _, line := range p.Stderr.All()[from:] {
		if strings.Contains(line, "transaction committed") {
			t.Errorf("committed without Kafka: %s", line)
		}
	}
	back()
	wait()
	twice := b.arrived(t, true)
	t.Logf("%d messages over an outage of %s; %d came again; %d KiB at a quarter of it, %d KiB at its end", b.total(), outage, twice, before>>10, after>>10)
	if after > before+before/4+(8<<20) {
		t.Errorf("memory grew from %d to %d bytes", before, after)
	}
	for _, line := range p.Stderr.All() {
		if strings.Contains(line, "MQTT connection lost") || strings.Contains(line, "MQTT disconnected") {
			t.Errorf("disconnected: %s", line)
		}
	}
	p.Signal(t, syscall.SIGTERM)
	if status := p.Status(); status != 0 {
		t.Errorf("it ended with %d:\n%s", status, p.Stderr)
	}
}
