package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/enginetest"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

const (
	joinGroup    = kmsg.JoinGroup
	fetchRequest = kmsg.Fetch
)

// polling runs an extractor as a pipeline file says it, with a poll in Go. spec is what stands under its name.
func (r *rig) polling(spec string, poll source, change ...func(*engine.Options)) *instance {
	r.t.Helper()
	text := "pipeline: test\nextractors:\n  source:\n    application_id: " + r.id + "\n    poll: |\n      yield State(state);\n"
	for line := range strings.Lines(strings.TrimLeft(spec, "\n")) {
		text += "    " + line
	}
	set, problems := pipeline.Load([]string{"test.yaml"}, pipeline.Options{ReadFile: func(string) ([]byte, error) { return []byte(text), nil }})
	if problems.Failed() {
		r.t.Fatalf("%s\n%v", text, problems)
	}
	o := engine.Options{Kafka: r.kafk, State: engine.State{InMemory: true, Memory: 8 << 20}}
	o.Handlers.Source = func(*pipeline.Pipeline, *pipeline.Extractor) (stream.Source, error) { return poll, nil }
	return r.launch(o, func(o *engine.Options) {
		for _, c := range change {
			c(o)
		}
	}, set.Pipelines[0])
}

// seer is a poll that only tells which config it is for: `key {config}`.
func seer(seen *effects) source {
	return func(_ context.Context, p *stream.Poll) error {
		seen.add("%s %s", p.Config.Key, p.Config.Value)
		return nil
	}
}

// config writes a config where its key belongs; an empty one is a tombstone.
func (r *rig) config(topic string, partitions int, key, value string) {
	r.t.Helper()
	r.put(topic, engine.Token(key, partitions), key, bytesOrNil(value))
}

// configTopic makes a config topic.
func (r *rig) configTopic(name string, partitions int32) string {
	r.t.Helper()
	return r.topic(name, partitions, "cleanup.policy=compact")
}

// ends tells those who wait for something to be seen when the instance ends.
func (i *instance) ends(seen *effects) *instance {
	go func() {
		<-i.ended
		seen.add("ended: %v", i.err)
	}()
	return i
}

func bytesOrNil(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

const checked = `
every: 20ms
config_topics: %s
config:
  schema: { type: object, required: [url], properties: { url: { type: string }, page: { type: integer } } }
  defaults: { page: 50 }
on_invalid: %s
`

// C0: with skip a config that is no JSON, no object, or against the schema is told and left out; the others have their
// defaults and are polled. One that becomes invalid is polled no more, and the next right one is.
func TestC0InvalidConfigIsSkipped(t *testing.T) {
	r := newRig(t)
	topic := r.configTopic("configs", 2)
	r.config(topic, 2, "a", `{"url":"u"}`)
	r.config(topic, 2, "no-json", `{"url":`)
	r.config(topic, 2, "no-object", `[1]`)
	r.config(topic, 2, "no-url", `{"page":1}`)
	r.config(topic, 2, "b", `{"url":"v","page":7}`)
	seen := newEffects()
	i := r.polling(fmt.Sprintf(checked, topic, "skip"), seer(seen)).ends(seen)
	seen.await(t, `a {"url":"u","page":50}`, 2)
	seen.await(t, `b {"url":"v","page":7}`, 2)
	if n := i.log.count("0 invalid"); n != 3 {
		t.Errorf("%d configs were told as invalid, want 3; effects:\n%s", n, i.log)
	}
	r.config(topic, 2, "a", `{"url":1}`)
	i.log.await(t, "0 invalid", 4)
	r.config(topic, 2, "no-url", `{"url":"w"}`)
	seen.await(t, `no-url {"url":"w","page":50}`, 1)
	polled := seen.count("a ")
	seen.await(t, "b ", seen.count("b ")+4)
	if n := seen.count("a "); n != polled {
		t.Errorf("the config that became invalid was polled %d more times", n-polled)
	}
	r.config(topic, 2, "a", `{"url":"again"}`)
	seen.await(t, `a {"url":"again","page":50}`, 1)
	for _, line := range seen.all() {
		if strings.HasPrefix(line, "no-json") || strings.HasPrefix(line, "no-object") || strings.Contains(line, `"page":1}`) {
			t.Errorf("an invalid config was polled: %s", line)
		}
	}
	i.stopped()
}

// C0: with fail an invalid config ends the process, at the start as well as later. The error says where it is and never what
// it holds; before the start nobody joins the group for it.
func TestC0InvalidConfigFails(t *testing.T) {
	want := func(t *testing.T, err error, topic string, partition int32, offset int) {
		t.Helper()
		at := (*engine.RecordError)(nil)
		if !errors.As(err, &at) || at.Topic != topic || at.Partition != partition || at.Offset != int64(offset) || at.Key != "bad" {
			t.Errorf("error %v does not say where the config is", err)
		}
		if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "on_invalid: skip") {
			t.Errorf("error %v shows the payload, or not what to do", err)
		}
	}
	t.Run("at the start", func(t *testing.T) {
		r := newRig(t)
		topic := r.configTopic("configs", 1)
		r.put(topic, 0, "a", []byte(`{"url":"u"}`))
		r.put(topic, 0, "bad", []byte(`{"url":1,"token":"secret"}`))
		i := r.polling(fmt.Sprintf(checked, topic, "fail"), seer(newEffects()))
		want(t, i.wait(), topic, 0, 1)
		if i.log.count("0 assigned") != 0 {
			t.Errorf("the group was joined; effects:\n%s", i.log)
		}
	})
	t.Run("later", func(t *testing.T) {
		r := newRig(t)
		topic := r.configTopic("configs", 1)
		r.put(topic, 0, "a", []byte(`{"url":"u"}`))
		seen := newEffects()
		i := r.polling(fmt.Sprintf(checked, topic, "fail"), seer(seen)).ends(seen)
		seen.await(t, "a ", 1)
		r.put(topic, 0, "bad", []byte(`{"url":1,"token":"secret"}`))
		want(t, i.wait(), topic, 0, 1)
	})
}

// C1: the config topics and the inline configs are one namespace. Of two topics the one that is named last counts and the
// key is warned about, once; an inline config shows where no topic has one, and again after the tombstone.
func TestC1OneNamespace(t *testing.T) {
	r := newRig(t)
	first, last := r.configTopic("first", 2), r.configTopic("last", 2)
	r.config(last, 2, "both", `{"of":"last"}`)
	r.config(first, 2, "both", `{"of":"first"}`)
	r.config(first, 2, "over", `{"of":"first"}`)
	r.config(first, 2, "gone", `{"of":"first"}`)
	r.config(first, 2, "gone", "")
	seen := newEffects()
	i := r.polling(fmt.Sprintf("every: 10ms\nconfig_topics: [%s, %s]\nconfigs:\n  over: { of: inline }\n  alone: { of: inline }\n", first, last), seer(seen)).ends(seen)
	for _, line := range []string{`both {"of":"last"}`, `over {"of":"first"}`, `alone {"of":"inline"}`} {
		seen.await(t, line, 3)
	}
	for _, line := range seen.all() {
		if line == `both {"of":"first"}` || line == `over {"of":"inline"}` || strings.HasPrefix(line, "gone") {
			t.Errorf("polled with %s", line)
		}
	}
	r.config(first, 2, "both", `{"of":"first","n":2}`) // hidden still
	r.config(first, 2, "over", "")
	seen.await(t, `over {"of":"inline"}`, 2)
	r.config(last, 2, "both", "")
	seen.await(t, `both {"of":"first","n":2}`, 2)
	r.config(first, 2, "both", "")
	r.config(last, 2, "new", `{"of":"last"}`)
	seen.await(t, "new ", 3)
	polled := seen.count("both ")
	seen.await(t, "new ", seen.count("new ")+3)
	if n := seen.count("both "); n != polled {
		t.Errorf("a deleted config was polled %d more times", n-polled)
	}
	if n := i.log.count("warning config.twice"); n != 1 || !strings.Contains(i.log.String(), `the config "both" is in `+first+" and in "+last) {
		t.Errorf("%d warnings of keys in two topics, want one; effects:\n%s", n, i.log)
	}
	i.stopped()
}

// C1: what hides an inline config: a record with its key, also one that is invalid, so that nobody polls with settings that
// were to be others; and what does not: one that is another stage's, and a tombstone.
func TestC1WhatHidesAnInlineConfig(t *testing.T) {
	r := newRig(t)
	topic, last := r.configTopic("configs", 1), r.configTopic("last", 1)
	inline := func(key string) string { return key + ` {"kind":"own","of":"inline"}` }
	r.config(topic, 1, "invalid", `{"kind":"own","of":7}`)
	r.config(topic, 1, "no-json", `{`)
	r.config(topic, 1, "other", `{"kind":"other","of":7}`)
	r.config(topic, 1, "gone", `{"kind":"own","of":"topic"}`)
	r.config(topic, 1, "gone", "")
	r.config(topic, 1, "above", `{"kind":"own","of":"topic"}`)
	r.config(last, 1, "above", `{"kind":"own","of":7}`)
	seen := newEffects()
	i := r.polling(fmt.Sprintf(`
every: 10ms
config_topics: [%s, %s]
where: config.kind == "own"
config: { schema: { properties: { of: { type: string } } } }
on_invalid: skip
configs:
  invalid: { kind: own, of: inline }
  no-json: { kind: own, of: inline }
  other: { kind: own, of: inline }
  gone: { kind: own, of: inline }
  above: { kind: own, of: inline }
`, topic, last), seer(seen)).ends(seen)
	hidden := func() {
		t.Helper()
		for _, line := range seen.all() {
			if key, _, _ := strings.Cut(line, " "); key == "invalid" || key == "no-json" || key == "above" {
				t.Fatalf("polled with %s", line)
			}
		}
	}
	seen.await(t, inline("other"), 3)
	seen.await(t, inline("gone"), 3)
	hidden()
	// Mended, it counts; then it becomes invalid, and a tombstone brings the inline one back.
	r.config(last, 1, "above", "")
	seen.await(t, `above {"kind":"own","of":"topic"}`, 2)
	r.config(topic, 1, "other", `{"kind":"own","of":"topic"}`)
	seen.await(t, `other {"kind":"own","of":"topic"}`, 2)
	r.config(topic, 1, "other", `{"kind":"own","of":7}`)
	i.log.await(t, "0 invalid", 4)
	r.config(topic, 1, "gone", `{"kind":"own","of":"topic"}`)
	seen.await(t, `gone {"kind":"own","of":"topic"}`, 2)
	polled := seen.count("other")
	seen.await(t, "gone", seen.count("gone")+3)
	if n := seen.count("other"); n != polled {
		t.Errorf("the config that became invalid was polled %d more times", n-polled)
	}
	r.config(topic, 1, "other", "")
	r.config(topic, 1, "invalid", "")
	seen.await(t, inline("invalid"), 2)
	seen.await(t, inline("other"), 5)
	i.stopped()
}

// A stage may write to its own config topic: what it writes is polled from the next cycle on, and a config can end itself. All of
// it commits with the page, so that what a poll that fails has written is never a config.
func TestAStageWritesItsOwnConfigs(t *testing.T) {
	r := newRig(t)
	topic := r.configTopic("configs", 4)
	configs := &stream.Topic{Name: topic, Key: stream.String}
	write := func(key, value string) stream.Message {
		return stream.Message{Topic: configs, Partition: stream.AnyPartition, Key: []byte(key), Value: bytesOrNil(value), Timestamp: 1}
	}
	r.config(topic, 4, "root", `{"depth":0}`)
	seen := newEffects()
	i := r.polling("every: 10ms\non_error: skip\nconfig_topics: "+topic+"\noutput_topics: "+topic+"\n", func(ctx context.Context, p *stream.Poll) error {
		seen.add("%s", p.Config.Key)
		if string(p.Config.Value) == `{"depth":2}` || p.Cursor != nil {
			return nil
		}
		next := `{"depth":1}`
		if p.Config.Key != "root" {
			next = `{"depth":2}`
		}
		page := &stream.Page{Moved: true, Cursor: []byte(`{"read":true}`)}
		for _, child := range []string{"a", "b"} {
			page.Messages = append(page.Messages, write(p.Config.Key+"/"+child, next))
		}
		if p.Config.Key == "root/b" {
			page.Messages = append(page.Messages, write("root/b", "")) // it has done its part
		}
		if err := p.Commit(ctx, page); err != nil {
			return err
		}
		if p.Config.Key == "root/a" {
			return errors.New("after the commit")
		}
		return nil
	}).ends(seen)
	for _, leaf := range []string{"root/a/a", "root/a/b", "root/b/a", "root/b/b"} {
		seen.await(t, leaf, 3)
	}
	waitPolled(t, i, 6)
	if n := seen.count("root/b"); n < 1 {
		t.Errorf("root/b was never polled:\n%s", seen)
	}
	i.stopped()
	if st := enginetest.Fold(t, r.opts(), topic); len(st) != 6 || st["root/b"] != "" {
		t.Errorf("configs in the topic are %v", st)
	}
}

// waitPolled waits until an instance polls n configs.
func waitPolled(t *testing.T, i *instance, n int) {
	t.Helper()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for deadline := time.Now().Add(30 * time.Second); i.Engine.Status().Stages[0].Polled != n; <-again.C {
		if time.Now().After(deadline) {
			t.Fatalf("%d configs are polled, want %d; effects:\n%s", i.Engine.Status().Stages[0].Polled, n, i.log)
		}
	}
}

// A partition that a config topic gains while a stage runs is read as well, from its beginning.
func TestC3ATopicThatGainsPartitions(t *testing.T) {
	onFakeClock(t, func(t *testing.T, r *rig) {
		topic := r.configTopic("configs", 1)
		in := r.topic("in", 1)
		r.put(topic, 0, "a", []byte(`{"v":1}`))
		seen := newEffects()
		out := &stream.Topic{Name: r.topic("out", 1)}
		i := r.configured(in, topic, out, func(b *stream.Batch, _ int) error {
			seen.add("a %s b %s", b.Configs.Get("a"), b.Configs.Get("b"))
			return nil
		})
		ask := func() {
			t.Helper()
			enginetest.Pass(2 * time.Second) // for what was written to the config topic
			r.put(in, 0, "k", []byte("1"))
			enginetest.Pass(2 * time.Second)
		}
		ask()
		if _, err := kadm.NewClient(r.cl).UpdatePartitions(t.Context(), 3, topic); err != nil {
			t.Fatal(err)
		}
		r.cl.ForceMetadataRefresh()
		enginetest.Pass(time.Second)
		r.put(topic, 2, "b", []byte(`{"v":2}`))
		enginetest.Pass(15 * time.Second)
		ask()
		r.put(topic, 2, "b", []byte(`{"v":3}`))
		r.put(topic, 0, "a", []byte(`{"v":4}`))
		ask()
		i.stopped()
		if got, want := strings.Join(seen.all(), "; "), `a {"v":1} b ; a {"v":1} b {"v":2}; a {"v":4} b {"v":3}`; got != want {
			t.Errorf("batches saw %s, want %s", got, want)
		}
	})
}

// C2: a poll and a batch get any config of the stage by its key, and nothing for a key that has none.
func TestC2Get(t *testing.T) {
	r := newRig(t)
	topic := r.configTopic("configs", 3)
	r.config(topic, 3, "other", `{"n":1}`)
	r.config(topic, 3, "deleted", `{"n":2}`)
	r.config(topic, 3, "deleted", "")
	in := r.topic("in", 2)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	get := func(c stream.Configs) string {
		if c.Get("deleted") != nil || c.Get("never") != nil || c.Get("") != nil {
			t.Error("a config that is not there was answered")
		}
		return fmt.Sprintf("%s %s", c.Get("other"), c.Get("inline"))
	}
	got := make(chan string, 1)
	i := r.polling("every: 1s\nconfig_topics: "+topic+"\nwhere: config.n == 1 || config.n == 3\nconfigs:\n  inline: { n: 3 }\n", func(_ context.Context, p *stream.Poll) error {
		if p.Config.Key == "other" {
			select {
			case got <- get(p.Configs):
			default:
			}
		}
		return nil
	})
	if text := <-got; text != `{"n":1} {"n":3}` {
		t.Errorf("a poll gets %s", text)
	}
	i.stopped()
	r.put(in, 1, "k", []byte("{}"))
	j := r.configured(in, topic, out, func(b *stream.Batch, i int) error {
		b.Messages = append(b.Messages, stream.Message{Topic: out, Partition: stream.AnyPartition, Key: b.Records[i].Key, Value: []byte(get(b.Configs)), From: i})
		return nil
	})
	if rec := r.read(out.Name, 1)[0]; string(rec.Value) != `{"n":1} ` {
		t.Errorf("a batch gets %q", rec.Value)
	}
	j.stopped()
}

// eachRecord is a Transform that calls itself for each record of a batch.
type eachRecord func(b *stream.Batch, i int) error

func (eachRecord) Forget() {}
func (eachRecord) Close()  {}

func (h eachRecord) Run(_ context.Context, b *stream.Batch) error {
	for i := range b.Records {
		if err := h(b, i); err != nil {
			if err := b.Fail(i, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// configured runs a stateless transformer with a config topic.
func (r *rig) configured(in, topic string, out *stream.Topic, handle eachRecord, change ...func(*pipeline.Transformer)) *instance {
	r.t.Helper()
	spec := stageSpec{app: r.id + "-transformer", inputs: []string{in}, output: out, stateless: true, formats: stream.Topic{Key: stream.String}}
	spec.change = func(t *pipeline.Transformer) {
		if topic != "" {
			t.ConfigTopics = []*pipeline.Topic{{Topic: stream.Topic{Name: topic, Key: stream.String}}}
		}
		for _, c := range change {
			c(t)
		}
	}
	return r.startWith("", func(o *engine.Options) {
		o.Handlers.Transform = func(*pipeline.Pipeline, *pipeline.Transformer) (engine.Body, error) {
			return engine.Body{New: func() (stream.Transform, error) { return handle, nil }}, nil
		}
	}, spec)
}

// C3: while the stage starts, configs are being written. Each is polled, so none falls between the first read and the
// updates; and each invalid one is told once, so none is read by both.
func TestC3WritesWhileTheStageStarts(t *testing.T) {
	r := newRig(t)
	const partitions = 3
	topic := r.configTopic("configs", partitions)
	writing, stop := context.WithCancel(t.Context())
	written := make(chan []string)
	go func() {
		var keys []string
		for n := 0; writing.Err() == nil; n++ {
			key := fmt.Sprintf("k%d", n)
			for value, key := range map[string]string{"{}": key, "[]": "bad" + key} {
				rec := &kgo.Record{Topic: topic, Partition: engine.Token(key, partitions), Key: []byte(key), Value: []byte(value)}
				if err := r.cl.ProduceSync(context.WithoutCancel(writing), rec).FirstErr(); err != nil {
					t.Errorf("write a config: %v", err)
				}
			}
			keys = append(keys, key)
		}
		written <- keys
	}()
	seen := newEffects()
	var last *instance
	for n := range 3 {
		told, mu := map[string]bool{}, sync.Mutex{}
		i := r.polling("every: 200ms\nconfig_topics: "+topic+"\non_invalid: skip\n", seer(seen), func(o *engine.Options) {
			o.Events = engine.Tee(o.Events, engine.Events{RecordInvalid: func(i engine.RecordInfo) {
				mu.Lock()
				defer mu.Unlock()
				at := fmt.Sprint(i.Partition, "/", i.Offset)
				if told[at] {
					t.Errorf("the config at %s was read twice by one instance", at)
				}
				told[at] = true
			}})
		})
		waitFor(t, i, "running", partitions)
		i.log.await(t, "0 invalid", 5*(n+1))
		if last = i; n < 2 {
			i.stopped()
		}
	}
	stop()
	keys := <-written
	for _, key := range keys {
		seen.await(t, key+" ", 1)
	}
	last.log.await(t, "0 invalid", len(keys))
	if n := last.log.count("0 invalid"); n != len(keys) {
		t.Errorf("%d invalid configs were told, and %d were written", n, len(keys))
	}
	last.stopped()
}

// C3: what is at the end of a config topic need not be a record that anybody sees: aborted ones, markers and what compaction
// took away. The stage starts, and an open transaction does not hold it up; its configs show once it has committed.
func TestC3EndOfTheTopicWithoutRecords(t *testing.T) {
	for _, end := range []string{"aborted", "open", "compacted", "empty"} {
		t.Run(end, func(t *testing.T) {
			r := newRig(t)
			topic := r.configTopic("configs", 1)
			r.put(topic, 0, "a", []byte(`{"n":1}`))
			producer := r.client(kgo.TransactionalID(r.id+"-writer"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			write := func(how kgo.TransactionEndTry, keys ...string) {
				t.Helper()
				for _, key := range keys {
					if err := producer.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(`{"of":"` + end + `"}`)}).FirstErr(); err != nil {
						t.Fatal(err)
					}
				}
				if end == "open" {
					return
				}
				if err := producer.EndTransaction(t.Context(), how); err != nil {
					t.Fatal(err)
				}
			}
			if end != "empty" {
				if err := producer.BeginTransaction(); err != nil {
					t.Fatal(err)
				}
			}
			switch end {
			case "aborted":
				write(kgo.TryAbort, "a", "b")
			case "open":
				write(kgo.TryCommit, "b")
			case "compacted":
				needFake(t)
				write(kgo.TryCommit, "b", "b", "b")
				r.put(topic, 0, "b", nil)
				r.put(topic, 0, "b", []byte(`{"of":"again"}`))
				r.put(topic, 0, "b", nil)
				r.fake.Cluster.Compact()
			case "empty":
				topic = r.configTopic("nothing", 1)
			}
			seen := newEffects()
			i := r.polling("every: 20ms\nconfig_topics: "+topic+"\nconfigs:\n  inline: {}\n", seer(seen)).ends(seen)
			seen.await(t, "inline {}", 1)
			if end != "empty" {
				seen.await(t, `a {"n":1}`, 2)
			}
			if n := seen.count("b "); n != 0 {
				t.Errorf("a config that is not committed was polled %d times", n)
			}
			if end == "open" {
				if err := producer.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
					t.Fatal(err)
				}
			} else {
				r.put(topic, 0, "b", []byte(`{"of":"later"}`))
			}
			seen.await(t, "b ", 2)
			i.stopped()
		})
	}
}

// C4: a config without key is warned about and applies under the empty key.
func TestC4ConfigWithoutKey(t *testing.T) {
	r := newRig(t)
	needFake(t) // a real broker takes no record without key on a compacted topic
	topic := r.configTopic("configs", 8)
	if err := r.cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: 5, Value: []byte(`{"n":1}`)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	seen := newEffects()
	i := r.polling("every: 20ms\nconfig_topics: "+topic+"\n", seer(seen)).ends(seen)
	seen.await(t, ` {"n":1}`, 2)
	if i.log.count("warning config.no_key: "+topic+"/5 at offset 0") != 1 {
		t.Errorf("no warning; effects:\n%s", i.log)
	}
	if i.log.count("1 poll ") == 0 {
		t.Errorf("the token of the empty key is 1; effects:\n%s", i.log)
	}
	i.stopped()
}

// D4: an extractor has as many tokens as its config topics have partitions, inline configs beside them too, so the topics
// must agree.
func TestD4TokensAreThePartitions(t *testing.T) {
	r := newRig(t)
	two, three := r.configTopic("two", 2), r.configTopic("three", 3)
	checkRefused(t, r.polling(fmt.Sprintf("every: 1h\nconfig_topics: [%s, %s]\n", two, three), seer(newEffects())), two+" has 2", three+" has 3", "the same count")
	i := r.polling("every: 20ms\nconfig_topics: "+three+"\nconfigs: { a: {}, b: {}, c: {}, d: {} }\n", seer(newEffects()))
	waitFor(t, i, "running", 3)
	for _, key := range []string{"a", "b", "c", "d"} {
		i.log.await(t, fmt.Sprintf("%d polled %s ", engine.Token(key, 3), key), 1)
	}
	i.stopped()
	found, err := kadm.NewClient(r.cl).ListTopics(t.Context(), r.id+"-changelog")
	if err != nil || len(found[r.id+"-changelog"].Partitions) != 3 {
		t.Errorf("the changelog has %d partitions, want 3 (%v)", len(found[r.id+"-changelog"].Partitions), err)
	}
}

// D4: a transformer reads config topics of any partition count, all of their partitions.
func TestD4TransformerWithAnyCount(t *testing.T) {
	r := newRig(t)
	in, topic := r.topic("in", 2), r.configTopic("configs", 5)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	var keys []string
	for n := range 20 {
		keys = append(keys, fmt.Sprint("k", n))
		r.config(topic, 5, keys[n], fmt.Sprintf(`{"n":%d}`, n))
		r.put(in, int32(n%2), keys[n], []byte("{}"))
	}
	i := r.configured(in, topic, out, func(b *stream.Batch, i int) error {
		key := b.Records[i].Key
		b.Messages = append(b.Messages, stream.Message{Topic: out, Partition: stream.AnyPartition, Key: key, Value: b.Configs.Get(string(key)), From: i})
		return nil
	})
	for _, rec := range r.read(out.Name, len(keys)) {
		if want := fmt.Sprintf(`{"n":%d}`, slices.Index(keys, string(rec.Key))); string(rec.Value) != want {
			t.Errorf("the record of key %s got the config %s", rec.Key, rec.Value)
		}
	}
	i.stopped()
}

// D5: whoever cannot fill its configs never joins the group, so it costs the others no rebalance; what passes is waited out.
func TestD5FillBeforeTheGroup(t *testing.T) {
	needFake(t)
	for _, kind := range []string{"extractor", "transformer"} {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t)
			topic := r.configTopic("configs", 1)
			in := r.topic("in", 1)
			out := &stream.Topic{Name: r.topic("out", 1)}
			r.put(topic, 0, "a", []byte("{}"))
			joins := r.fake.Watch(enginetest.Which{Key: joinGroup})
			refused := r.fake.Fail(kerr.TopicAuthorizationFailed, enginetest.Which{Key: fetchRequest})
			start := func() *instance {
				if kind == "extractor" {
					return r.polling("every: 10ms\nconfig_topics: "+topic+"\n", seer(newEffects()))
				}
				return r.configured(in, topic, out, func(*stream.Batch, int) error { return nil })
			}
			checkRefused(t, start(), topic)
			if refused.Fired() != 1 || joins.Fired() != 0 {
				t.Errorf("the fault hit %d times, want once; %d requests to join the group, want none", refused.Fired(), joins.Fired())
			}
			moved := r.fake.Fail(kerr.NotLeaderForPartition, enginetest.Which{Key: fetchRequest, Count: 2})
			i := start()
			waitFor(t, i, "running", 1)
			i.stopped()
			if moved.Fired() != 2 || joins.Fired() == 0 {
				t.Errorf("the fault hit %d times, want twice; %d requests to join the group, want some", moved.Fired(), joins.Fired())
			}
		})
	}
}

// T8: all records of a batch see the same configs, though others are there meanwhile; the next batch sees those.
func TestT8ConfigsAreConstantWithinABatch(t *testing.T) {
	r := newRig(t)
	in, topic := r.topic("in", 2), r.configTopic("configs", 1)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String, Value: stream.String}
	r.put(topic, 0, "c", []byte("1"))
	r.put(topic, 0, "c", []byte(`{"v":1}`))
	r.put(in, 0, "k", []byte("1"))
	r.put(in, 0, "k", []byte("2"))
	begun, goOn := make(chan struct{}), make(chan struct{})
	i := r.configured(in, topic, out, func(b *stream.Batch, i int) error {
		rec := &b.Records[i]
		if rec.Partition == 0 && rec.Offset == 1 {
			close(begun)
			<-goOn
		}
		b.Messages = append(b.Messages, stream.Message{Topic: out, Partition: 0, Key: fmt.Appendf(nil, "%d/%d", rec.Partition, rec.Offset), Value: b.Configs.Get("c"), From: i})
		return nil
	}, func(t *pipeline.Transformer) { t.OnInvalid = pipeline.Skip })
	<-begun
	r.put(topic, 0, "c", []byte(`{"v":2}`))
	// The other partition's batches tell when the stage has it.
	for n := 1; ; n++ {
		r.put(in, 1, "k", []byte("{}"))
		records := r.read(out.Name, n)
		if string(records[len(records)-1].Value) == `{"v":2}` {
			break
		}
	}
	r.put(in, 0, "k", []byte("3"))
	close(goOn)
	got := map[string]string{}
	for deadline := time.Now().Add(30 * time.Second); got["0/2"] == "" && time.Now().Before(deadline); {
		for _, rec := range enginetest.ReadCommitted(t, r.opts(), out.Name) {
			got[string(rec.Key)] = string(rec.Value)
		}
	}
	if got["0/0"] != `{"v":1}` || got["0/1"] != `{"v":1}` || got["0/2"] != `{"v":2}` {
		t.Errorf("configs by record: %v; effects:\n%s", got, i.log)
	}
	i.stopped()
}
