// Package devcluster is the Kafka broker inside the process that `run --dev` uses: one node of kfake, in memory, bounded.
//
// Nothing in it outlives the process. Other Kafka tools on this machine may join it under Addrs.
//
// # How it stays bounded
//
// kfake would keep every record; its own compaction looks at records of open transactions, so that an abort can lose the
// last committed value of a key, and keeps the control batch of every transaction. So it is switched off, and the upkeep
// here is driven by what makes a log grow, the produce request:
//
//  1. Every produce request adds its bytes to a count per partition. When enough has come since the last look, the request
//     is put to sleep, its partition is looked after, and then it goes on. Requests for the same partition that arrive
//     meanwhile sleep until that is done, so nobody writes to a partition that is being looked after.
//  2. A partition of a topic that is not compacted loses its oldest records until it holds three quarters of
//     RetentionBytes. As on any broker, a consumer that was further behind finds its offset out of range.
//  3. A partition of a compacted topic is rewritten when it holds twice what it held after the last time, and at least
//     CompactBytes: the last committed record of each key is written again at the end, in the old order and in one
//     transaction, and everything before it is deleted. Deleted keys are gone at once. Only a partition without an open
//     transaction is rewritten; otherwise the next request tries again. The first request of a transaction finds it so.
//
// What differs from a compaction on a real broker: the surviving records get new offsets, and a reader at the end of the
// log sees them again. Every one of them is the value that the reader has already.
package devcluster

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// Config says how the broker is started. The zero value is usable.
type Config struct {
	// Port is the port on 127.0.0.1; 0 takes any free one.
	Port int
	// RetentionBytes bounds each partition of a topic that is not compacted; 64 MiB by default.
	RetentionBytes int64
	// CompactBytes is the size below which a partition of a compacted topic is left alone; 16 MiB by default.
	CompactBytes int64
	// Log receives the broker's warnings and errors; by default they are dropped.
	Log *slog.Logger
}

// Cluster is a running broker.
type Cluster struct {
	config Config
	kfake  *kfake.Cluster
	close  sync.Once

	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	mu         sync.Mutex
	partitions map[partitionID]*partition
	names      map[[16]byte]string // topic names by id

	// upkeep lets one partition be looked after at a time; it guards client, which is made when first needed.
	upkeep sync.Mutex
	client *kgo.Client
}

// Start starts an empty broker that answers when Start returns. The caller closes it.
func Start(config Config) (*Cluster, error) {
	if config.RetentionBytes <= 0 {
		config.RetentionBytes = 64 << 20
	}
	if config.CompactBytes <= 0 {
		config.CompactBytes = 16 << 20
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	fake, err := kfake.NewCluster(
		kfake.NumBrokers(1),
		kfake.Ports(config.Port),
		kfake.ClusterID("flechtwerk-dev"),
		kfake.MaxVersions(versions()),
		kfake.GroupMinSessionTimeout(500*time.Millisecond),
		kfake.WithLogger(logger{config.Log}),
		kfake.BrokerConfigs(map[string]string{
			"log.cleaner.backoff.ms": "3000000000000", // never: see the package comment
			"log.retention.ms":       "-1",
			"log.segment.bytes":      "1048576", // memory comes back a whole segment at a time
		}),
	)
	if err != nil {
		return nil, fmt.Errorf("start the embedded Kafka on port %d: %w", config.Port, err)
	}
	c := &Cluster{
		config:     config,
		kfake:      fake,
		partitions: map[partitionID]*partition{},
		names:      map[[16]byte]string{},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	fake.ControlKey(produceKey, c.beforeProduce)
	return c, nil
}

// Addrs are the bootstrap addresses, host:port.
func (c *Cluster) Addrs() []string { return c.kfake.ListenAddrs() }

// Close stops the broker; its records are gone.
func (c *Cluster) Close() {
	c.close.Do(func() {
		c.cancel()
		c.kfake.Close()
		c.upkeep.Lock()
		defer c.upkeep.Unlock()
		if c.client != nil {
			c.client.Close()
		}
	})
}

// versions is what the broker says it speaks. From version 5 on kfake answers CreateTopics with configs that have no source,
// or with none at all as null, and Java's admin client breaks on both; version 4 has none in the answer.
func versions() *kversion.Versions {
	v := kversion.Stable()
	v.SetMaxKeyVersion(kmsg.CreateTopics.Int16(), 4)
	return v
}

// logger hands kfake's warnings and errors on; the rest is of no use to somebody who runs a pipeline.
type logger struct{ log *slog.Logger }

func (l logger) Logf(level kfake.LogLevel, format string, args ...any) {
	to := slog.LevelError
	switch level {
	case kfake.LogLevelError:
	case kfake.LogLevelWarn:
		to = slog.LevelWarn
	default:
		return
	}
	l.log.Log(context.Background(), to, "embedded kafka", "says", fmt.Sprintf(format, args...))
}
