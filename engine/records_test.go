package engine_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/enginetest"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
)

// keys are records as lines: partition, key, value.
func keys(records []engine.KeyRecord) []string {
	var out []string
	for _, r := range records {
		out = append(out, fmt.Sprintf("%d %q %s", r.Partition, r.Key, r.Value))
	}
	return out
}

func topicNamed(name string) *pipeline.Topic {
	t := &pipeline.Topic{}
	t.Name = name
	return t
}

// What is written one by one, all at once, and as tombstones is read as the newest record of each key; records of aborted
// transactions and those without a key are what they are to a stage.
func TestReadKeysIsTheFoldOfWriteKeys(t *testing.T) {
	r := newRig(t)
	topic := topicNamed(r.topic("configs", 4, "cleanup.policy=compact"))
	write := func(records ...engine.KeyRecord) {
		t.Helper()
		if err := engine.WriteKeys(t.Context(), r.kafk, topic, records); err != nil {
			t.Fatal(err)
		}
		for _, w := range records {
			if w.Partition != engine.Token(w.Key, 4) || w.Timestamp == 0 {
				t.Errorf("%s went to partition %d at %d", w.Key, w.Partition, w.Timestamp)
			}
		}
	}
	want := func(want ...string) {
		t.Helper()
		got, err := engine.ReadKeys(t.Context(), r.kafk, topic)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, keys(got)); diff != "" {
			t.Error(diff)
		}
	}
	want()
	write(engine.KeyRecord{Key: "abc", Value: []byte(`{"n":1}`)})
	write(engine.KeyRecord{Key: "abc", Value: []byte(`{"n":2}`)}, engine.KeyRecord{Key: "ab", Value: []byte(`{}`)}, engine.KeyRecord{Key: "", Value: []byte(`{"no":"key"}`)})
	want(`1 "" {"no":"key"}`, `2 "ab" {}`, `3 "abc" {"n":2}`)
	write(engine.KeyRecord{Key: "ab"})
	want(`1 "" {"no":"key"}`, `3 "abc" {"n":2}`)

	crashed := r.client(kgo.TransactionalID(r.id))
	if err := crashed.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := crashed.ProduceSync(t.Context(), &kgo.Record{Topic: topic.Name, Key: []byte("abc"), Value: []byte(`{"n":3}`)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := crashed.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	want(`1 "" {"no":"key"}`, `3 "abc" {"n":2}`)
}

// incompressible is a JSON text of about n bytes that no codec makes smaller than half.
func incompressible(n int) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	text := []byte{'"'}
	for len(text) < n {
		text = strconv.AppendUint(text, rng.Uint64(), 36)
	}
	return append(text, '"')
}

// All or nothing: one record that the topic does not take keeps the others back.
func TestWriteKeysAllOrNothing(t *testing.T) {
	r := newRig(t)
	topic := topicNamed(r.topic("configs", 2, "cleanup.policy=compact", "max.message.bytes=1000"))
	if r.fake != nil { // whose broker looks at no topic's own limit
		refused := r.fake.FailProduce(kerr.MessageTooLarge, enginetest.Which{Key: kmsg.Produce, Topic: topic.Name})
		defer func() {
			if refused.Fired() == 0 {
				t.Error("nothing was refused")
			}
		}()
	}
	records := []engine.KeyRecord{{Key: "a", Value: []byte(`{}`)}, {Key: "ab", Value: incompressible(4000)}, {Key: "abc", Value: []byte(`{}`)}}
	if err := engine.WriteKeys(t.Context(), r.kafk, topic, records); err == nil || errors.Is(err, engine.ErrSurroundings) {
		t.Errorf("got %v", err)
	}
	if got, err := engine.ReadKeys(t.Context(), r.kafk, topic); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v", keys(got), err)
	}
}

func TestD2KeysOfATopicThatIsNotThere(t *testing.T) {
	k := startCluster(t)
	topic := &pipeline.Topic{Declared: true, Place: pipeline.Place{File: "shop.yaml"}}
	topic.Name = "feeds"
	_, err := engine.ReadKeys(t.Context(), k, topic)
	if !errors.Is(err, engine.ErrSurroundings) || !strings.Contains(err.Error(), "topic feeds does not exist; create it with: flechtwerk topics apply shop.yaml") {
		t.Errorf("read: %v", err)
	}
	err = engine.WriteKeys(t.Context(), k, topic, []engine.KeyRecord{{Key: "a", Value: []byte("{}")}})
	if !errors.Is(err, engine.ErrSurroundings) || !strings.Contains(err.Error(), "topic feeds does not exist") {
		t.Errorf("write: %v", err)
	}
	_, err = engine.ReadState(t.Context(), k, "shop-count", "")
	if !errors.Is(err, engine.ErrSurroundings) || !strings.Contains(err.Error(), "topic shop-count-changelog does not exist; the stage has not run") {
		t.Errorf("state: %v", err)
	}
}

// S3, S4 and the engine's own keys, as people see them.
func TestReadStateIsTheFoldOfTheChangelog(t *testing.T) {
	r := newRig(t)
	changelog := r.topic("count-changelog", 2, "cleanup.policy=compact")
	app := strings.TrimSuffix(changelog, "-changelog")
	put := func(partition int32, key, value any) {
		t.Helper()
		rec := &kgo.Record{Topic: changelog, Partition: partition}
		if text, ok := key.(string); ok {
			rec.Key = []byte(text)
		}
		if text, ok := value.(string); ok {
			rec.Value = []byte(text)
		}
		if err := r.cl.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	put(0, "\x00takeover", `{"epoch":1}`)
	put(0, "tank-1", `{"n":1}`)
	put(0, "tank-1", `{"n":2}`)
	put(1, "tank-1", `{"n":7}`)
	put(1, "tank-2", `{"n":1}`)
	put(1, "tank-2", nil)
	put(1, "tank-3", `{"n":1}`)
	put(1, "tank-3", ` { } `)
	put(0, "well-1", `{"n":1}`)
	for prefix, want := range map[string][]string{
		"":       {`0 "tank-1" {"n":2}`, `1 "tank-1" {"n":7}`, `0 "well-1" {"n":1}`},
		"well":   {`0 "well-1" {"n":1}`},
		"tank-2": nil,
		"\x00":   nil,
	} {
		got, err := engine.ReadState(t.Context(), r.kafk, app, prefix)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, keys(got)); diff != "" {
			t.Errorf("%q: %s", prefix, diff)
		}
	}
	put(1, "\xff", `{"n":1}`)
	if _, err := engine.ReadState(t.Context(), r.kafk, app, ""); err == nil || !strings.Contains(err.Error(), "not a state key") || !strings.Contains(err.Error(), changelog+"/1 at offset 5") {
		t.Errorf("got %v", err)
	}
}

// D4: a config topic that nobody declares gets the partitions of the ones beside it, and all of them are compacted.
func TestD4PlanOfConfigTopics(t *testing.T) {
	k := startCluster(t)
	const feeds = `
pipeline: feeds
topics:
  feeds: { partitions: 6, seed: { key: id, records: [{ id: a }] } }
extractors:
  read:
    every: 1s
    config_topics: [more, feeds]
    output_topics: items
    poll: |
      yield Message({ value: {} });
`
	got := planLines(planned(t, k, feeds, engine.PlanOptions{Undeclared: true}))
	want := []string{
		"+ create   feeds (6 partitions, cleanup.policy=compact)",
		"+ create   items (4 partitions)",
		"+ create   more (6 partitions, cleanup.policy=compact)",
		"+ seed     feeds",
		"             from the pipeline file, key id",
		"  run      feeds-read-changelog",
		"             changelog; run creates it, compacted, with as many partitions as the stage has tasks",
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
