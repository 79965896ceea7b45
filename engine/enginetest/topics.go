package enginetest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flechtwerk/flechtwerk/engine/enginetest/kafkatest"
)

// patience bounds every wait of a helper; a test that runs into it fails and says what it waited for.
const patience = 60 * time.Second

// At are the client options that reach the broker at addr, for helpers that ask for opts.
func At(addr string) []kgo.Opt { return []kgo.Opt{kgo.SeedBrokers(addr)} }

// Unique is name with a random ending, for tests that share a broker.
func Unique(name string) string { return name + "-" + strings.ToLower(rand.Text()[:8]) }

// FreeAddr is an address of this machine where nobody listens, for a program that is to listen there itself. The port is not
// among those that systems hand out, so that nobody gets it by chance meanwhile, and processes look in different places.
func FreeAddr(t testing.TB) string {
	t.Helper()
	const first, ports, stride = 20_000, 10_000, 977
	for range ports {
		addr := fmt.Sprintf("127.0.0.1:%d", first+(os.Getpid()+int(addrs.Add(1))*stride)%ports)
		if l, err := net.Listen("tcp", addr); err == nil {
			_ = l.Close()
			return addr
		}
	}
	t.Fatal("there is no free port")
	return ""
}

var addrs atomic.Int64 // how many FreeAddr has looked at

// CreateTopic makes a topic; configs are written "name=value". Unless these say otherwise it keeps its records for ever: those of tests
// have fixed, old times, and a real broker looks now and then for what it may delete: every five minutes by default, each half second in kafkatest, so that it shows.
func CreateTopic(t testing.TB, opts []kgo.Opt, topic string, partitions int32, configs ...string) {
	t.Helper()
	client, ctx := helper(t, opts)
	defer client.Close()
	forever := "-1"
	values := map[string]*string{"retention.ms": &forever}
	for name, value := range pairs(t, configs) {
		values[name] = &value
	}
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(ctx, partitions, -1, values, topic); err != nil {
		t.Fatalf("create topic %s: %v", topic, err)
	}
	if err := kafkatest.AwaitTopic(ctx, admin, topic); err != nil {
		t.Fatal(err)
	}
}

// Produce writes records and returns when all are there. A record's Partition counts where it is not negative; with -1 the
// key decides by murmur2, as every Kafka client has it.
func Produce(t testing.TB, opts []kgo.Opt, records ...*kgo.Record) {
	t.Helper()
	client, ctx := helper(t, append(slices.Clip(opts), Partitioned(), kgo.ProducerLinger(time.Millisecond)))
	defer client.Close()
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatalf("produce %d records: %v", len(records), err)
	}
}

// Partitioned is a partitioner that takes a record's own Partition, or places it by key where that is -1.
func Partitioned() kgo.Opt {
	byKey := kgo.StickyKeyPartitioner(nil)
	return kgo.RecordPartitioner(kgo.BasicConsistentPartitioner(func(topic string) func(*kgo.Record, int) int {
		place := byKey.ForTopic(topic)
		return func(r *kgo.Record, n int) int {
			if r.Partition >= 0 {
				return int(r.Partition)
			}
			return place.Partition(r, n)
		}
	}))
}

func helper(t testing.TB, opts []kgo.Opt) (*kgo.Client, context.Context) {
	t.Helper()
	client, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	t.Cleanup(client.Close)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return client, ctx
}

// pairs reads configs that are written "name=value".
func pairs(t testing.TB, configs []string) map[string]string {
	t.Helper()
	m := map[string]string{}
	for _, c := range configs {
		name, value, ok := strings.Cut(c, "=")
		if !ok {
			t.Fatalf("config %q is not written name=value", c)
		}
		m[name] = value
	}
	return m
}

// Keyed is a record for Produce that is placed by its key.
func Keyed(topic, key, value string) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: -1, Key: []byte(key), Value: []byte(value)}
}

// ProduceKeyed writes records, each given as "key value", into a topic, placed by their keys.
func ProduceKeyed(t testing.TB, opts []kgo.Opt, topic string, records ...string) {
	t.Helper()
	all := make([]*kgo.Record, len(records))
	for i, r := range records {
		key, value, _ := strings.Cut(r, " ")
		all[i] = Keyed(topic, key, value)
	}
	Produce(t, opts, all...)
}
