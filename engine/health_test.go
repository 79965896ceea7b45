package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// A config whose poll fails is in trouble, since its first failure and until a poll succeeds; the others are not touched, and
// a stage that goes polls none.
func TestStatusOfConfigs(t *testing.T) {
	for policy, want := range map[pipeline.Policy]engine.ConfigState{pipeline.Retry: engine.ConfigBackingOff, pipeline.Skip: engine.ConfigFailed} {
		t.Run(policy.String(), func(t *testing.T) {
			r := newRig(t)
			mended := make(chan struct{})
			poll := source(func(ctx context.Context, p *stream.Poll) error {
				select {
				case <-mended:
					return nil
				default:
				}
				if p.Config.Key == "b" {
					return errors.New("no answer")
				}
				return nil
			})
			x := &pipeline.Extractor{Name: "source", ApplicationID: r.id, Every: 10 * time.Millisecond, Tokens: 1, Timeout: time.Minute,
				Configs: []stream.Config{{Key: "a", Value: []byte("{}")}, {Key: "b", Value: []byte("{}")}, {Key: "c", Value: []byte(`{"suspended":true}`)}},
				OnError: policy, Retry: pipeline.Backoff{Min: 5 * time.Millisecond, Max: 20 * time.Millisecond}}
			o := engine.Options{Kafka: r.kafk, State: engine.State{InMemory: true}}
			o.Handlers.Source = func(*pipeline.Pipeline, *pipeline.Extractor) (stream.Source, error) { return poll, nil }
			before := time.Now()
			i := r.launch(o, nil, &pipeline.Pipeline{Name: "test", File: "test.yaml", Vars: []byte("{}"), Extractors: []*pipeline.Extractor{x}})
			i.log.await(t, "0 polled b pages 0 err no answer", 3)
			i.log.await(t, "0 polled a", 1)
			st := i.Engine.Status().Stages[0]
			if st.Polled != 2 || len(st.Configs) != 1 {
				t.Fatalf("got %+v", st)
			}
			first := st.Configs[0]
			if first.Config != "b" || first.State != want || first.Error != "no answer" || first.Failures < 2 || first.Since.Before(before) {
				t.Errorf("got %+v", first)
			}
			i.log.await(t, "0 polled b", i.log.count("0 polled b")+2)
			if again := i.Engine.Status().Stages[0].Configs[0]; !again.Since.Equal(first.Since) || again.Failures <= first.Failures {
				t.Errorf("got %+v after %+v", again, first)
			}
			close(mended)
			i.log.await(t, "0 polled b pages 0 err <nil>", 2)
			if st := i.Engine.Status().Stages[0]; st.Polled != 2 || len(st.Configs) != 0 {
				t.Errorf("got %+v", st)
			}
			if err := i.stop(); err != nil {
				t.Fatal(err)
			}
			if st := i.Engine.Status().Stages[0]; st.Polled != 0 {
				t.Errorf("got %+v", st)
			}
		})
	}
}

// A config that fails and is changed is tried at once, however long it would have waited.
func TestAFailedConfigThatChangesIsTriedAtOnce(t *testing.T) {
	r := newRig(t)
	topic := &pipeline.Topic{}
	topic.Name = r.topic("configs", 1, "cleanup.policy=compact")
	put := func(value string) {
		t.Helper()
		if err := engine.WriteKeys(t.Context(), r.kafk, topic, []engine.KeyRecord{{Key: "a", Value: []byte(value)}}); err != nil {
			t.Fatal(err)
		}
	}
	put(`{"url":"wrong"}`)
	x := &pipeline.Extractor{Name: "source", ApplicationID: r.id, Every: 10 * time.Millisecond, ConfigTopics: []*pipeline.Topic{topic}, Timeout: time.Minute,
		OnError: pipeline.Retry, Retry: pipeline.Backoff{Min: time.Hour, Max: time.Hour}}
	o := engine.Options{Kafka: r.kafk, State: engine.State{InMemory: true}}
	poll := source(func(ctx context.Context, p *stream.Poll) error {
		if string(p.Config.Value) != `{"url":"right"}` {
			return errors.New("no such page")
		}
		return nil
	})
	o.Handlers.Source = func(*pipeline.Pipeline, *pipeline.Extractor) (stream.Source, error) { return poll, nil }
	i := r.launch(o, nil, &pipeline.Pipeline{Name: "test", File: "test.yaml", Vars: []byte("{}"), Extractors: []*pipeline.Extractor{x}})
	i.log.await(t, "0 polled a pages 0 err no such page", 1)
	put(`{"url":"other"}`)
	i.log.await(t, "0 polled a pages 0 err no such page", 2)
	put(`{"url":"right"}`)
	i.log.await(t, "0 polled a pages 0 err <nil>", 2)
	if err := i.stop(); err != nil {
		t.Fatal(err)
	}
	if n := i.log.count("0 polled a pages 0 err no such page"); n != 2 {
		t.Errorf("%d polls failed, want 2", n)
	}
}
