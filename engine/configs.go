package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flechtwerk/flechtwerk/engine/expr"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// configs is what a stage knows of its configs: the inline ones and those of its config topics, one namespace by key (C1).
//
//  1. fill reads the topics up to their committed ends before the group is joined (D5); follow goes on from exactly there
//     (C3). Nobody else writes.
//  2. What readers see is a Configs, which never changes: a batch and a poll keep the one that they began with (T8, P5).
//  3. A key's config is that of the last of the stage's config topics that has one, else the inline one. So the outcome does
//     not hang on the order in which topics are read.
//  4. A record that is invalid hides what is below it, as a right one does: whoever wrote it wanted something else than that,
//     and a config that is left out is seen, while one with other settings than it was given is not. A record that `where`
//     gives to other stages hides nothing, and neither does a tombstone, of which compaction leaves no trace.
type configs struct {
	s      *stage
	spec   *pipeline.ConfigSpec // nil checks nothing
	where  *expr.Expr           // nil for all
	topics []*pipeline.Topic
	inline []stream.Config
	policy pipeline.Policy // on_invalid

	env expr.Env // of where; used by fill and follow only

	// Used by fill and follow only.
	layers []map[string][]byte // by topic; a nil config is an invalid one
	next   map[string]map[int32]int64
	warned map[string]bool

	mu      sync.Mutex
	current *Configs
	changed chan struct{} // closed when current is replaced
}

// Configs are a stage's configs at one moment.
type Configs struct{ byKey map[string][]byte }

// Get is the config of key, a JSON object, or nil.
func (c *Configs) Get(key string) []byte { return c.byKey[key] }

// Keys are the keys of all configs, sorted.
func (c *Configs) Keys() []string { return slices.Sorted(maps.Keys(c.byKey)) }

// start makes the layers and shows the inline configs.
func (c *configs) start() error {
	vars, err := expr.NewDoc(c.s.pipeline.Vars)
	if err != nil {
		return fmt.Errorf("vars: %w", err)
	}
	c.env.Vars = vars
	c.next, c.warned, c.changed = map[string]map[int32]int64{}, map[string]bool{}, make(chan struct{})
	for range c.topics {
		c.layers = append(c.layers, map[string][]byte{})
	}
	c.publish()
	return nil
}

// now answers the current configs, and a channel that is closed when there are others.
func (c *configs) now() (*Configs, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current, c.changed
}

// fill reads the config topics as they are now.
func (c *configs) fill(ctx context.Context) error {
	for i, t := range c.topics {
		next, err := readTopic(ctx, c.s.engine.admin, t.Name, func(r *kgo.Record) error { return c.take(i, r) })
		if err != nil {
			return surroundings(fmt.Errorf("configs: %w", err))
		}
		c.next[t.Name] = next
	}
	c.publish()
	return nil
}

// follow takes up what is written to the config topics, until ctx is done.
func (c *configs) follow(ctx context.Context) error {
	if len(c.topics) == 0 {
		return nil
	}
	from := map[string]map[int32]kgo.Offset{}
	index := map[string]int{}
	for i, t := range c.topics {
		index[t.Name] = i
		from[t.Name] = map[int32]kgo.Offset{}
		for p, next := range c.next[t.Name] {
			from[t.Name][p] = kgo.NewOffset().At(next)
		}
	}
	cl, err := c.s.engine.kafka.client(
		kgo.ConsumePartitions(from),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxBytes(fetchBytes),
		kgo.FetchMaxWait(fetchWait),
	)
	if err != nil {
		return fmt.Errorf("configs: %w", err)
	}
	defer cl.Close()
	look := time.Now().Add(configDiscovery)
	for {
		poll, cancel := context.WithDeadline(ctx, look)
		fetches := cl.PollFetches(poll)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		if !time.Now().Before(look) {
			c.widen(ctx, cl, from)
			look = time.Now().Add(configDiscovery)
		}
		for _, e := range fetches.Errors() {
			if errors.Is(e.Err, context.DeadlineExceeded) {
				continue
			}
			if denied(e.Err) {
				return fmt.Errorf("%w: configs of %s/%d: %w", ErrSurroundings, e.Topic, e.Partition, e.Err)
			}
			c.s.warn("kafka.fetch", fmt.Sprintf("%s/%d: %v", e.Topic, e.Partition, e.Err))
		}
		var failure error
		fetches.EachRecord(func(r *kgo.Record) {
			if failure == nil {
				failure = c.take(index[r.Topic], r)
			}
		})
		if failure != nil {
			return failure
		}
		c.publish()
	}
}

// configDiscovery is how often follow looks whether a topic has more partitions than it reads.
const configDiscovery = 10 * time.Second

// widen has cl read the partitions that config topics have gained, from their beginning. Those in read are read already.
func (c *configs) widen(ctx context.Context, cl *kgo.Client, read map[string]map[int32]kgo.Offset) {
	topics, err := kadm.NewClient(c.s.engine.admin).ListTopics(ctx, slices.Collect(maps.Keys(read))...)
	if err != nil {
		return // it is asked again
	}
	gained := map[string]map[int32]kgo.Offset{}
	for name, topic := range topics {
		for p := range topic.Partitions {
			if _, known := read[name][p]; known || topic.Err != nil {
				continue
			}
			if gained[name] == nil {
				gained[name] = map[int32]kgo.Offset{}
			}
			gained[name][p] = kgo.NewOffset().AtStart()
			read[name][p] = kgo.NewOffset().AtStart()
		}
	}
	if len(gained) > 0 {
		cl.AddConsumePartitions(gained)
	}
}

// take lays one record into the layer of its topic.
func (c *configs) take(layer int, r *kgo.Record) error {
	key := string(r.Key)
	if r.Key == nil {
		c.s.warn("config.no_key", fmt.Sprintf("%s/%d at offset %d: a config without key; it applies under the key \"\"", r.Topic, r.Partition, r.Offset))
	}
	if r.Value == nil {
		delete(c.layers[layer], key)
		return nil
	}
	value, ours, err := c.check(key, r)
	if err == nil {
		if ours {
			c.layers[layer][key] = value
		} else {
			delete(c.layers[layer], key)
		}
		return nil
	}
	c.layers[layer][key] = nil
	info := RecordInfo{TaskInfo: TaskInfo{Pipeline: c.s.pipeline.Name, Stage: c.s.name}, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Policy: c.policy}
	info.Err = err
	c.s.engine.o.Events.RecordInvalid(info)
	if c.policy == pipeline.Skip {
		return nil
	}
	return &RecordError{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: key,
		Err: fmt.Errorf("the config is invalid: %w; write a right one, or say on_invalid: skip for %s", err, c.s.name)}
}

// check answers the config with its defaults, and whether it is one of the stage's own (where). What is not ours is not
// held against a schema: several kinds of configs may share a topic.
func (c *configs) check(key string, r *kgo.Record) (value []byte, ours bool, err error) {
	if !utf8.Valid(r.Key) {
		return nil, false, errors.New("the key is not a string: invalid UTF-8")
	}
	if strings.HasPrefix(key, reserved) {
		return nil, false, errors.New("the key begins with U+0000, which is kept for the engine")
	}
	if value, err = c.spec.Fill(r.Value); err != nil {
		return nil, false, err
	}
	if c.where != nil {
		if c.env.Config, err = expr.NewDoc(value); err != nil {
			return nil, false, err
		}
		c.env.ConfigKey, c.env.Now = key, c.s.engine.o.Now().UnixMilli()
		if ours, err = c.where.Bool(&c.env); err != nil || !ours {
			return nil, false, err
		}
	}
	return value, true, c.spec.Check(value)
}

// publish makes what is known now visible, if it differs from what was.
func (c *configs) publish() {
	all := map[string][]byte{}
	for _, in := range c.inline {
		all[in.Key] = in.Value
	}
	from := map[string]string{}
	for i, layer := range c.layers {
		for key, value := range layer {
			if other, ok := from[key]; ok && !c.warned[key] {
				c.warned[key] = true
				c.s.warn("config.twice", fmt.Sprintf("the config %s is in %s and in %s; the latter counts", shortKey(key), other, c.topics[i].Name))
			}
			from[key] = c.topics[i].Name
			if all[key] = value; value == nil {
				delete(all, key)
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil && maps.EqualFunc(c.current.byKey, all, func(a, b []byte) bool { return string(a) == string(b) }) {
		return
	}
	c.current = &Configs{byKey: all}
	close(c.changed)
	c.changed = make(chan struct{})
}
