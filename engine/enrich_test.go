package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/enginetest"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// enricher is an enrich in Go.
type enricher func(ctx context.Context, config stream.Config) (string, error)

func (e enricher) Complete(ctx context.Context, config stream.Config) ([]byte, error) {
	text, err := e(ctx, config)
	return []byte(text), err
}
func (enricher) Digest() []byte { return nil }
func (enricher) Close()         {}

// rewritten is an enricher whose script is another.
type rewritten struct{ enricher }

func (rewritten) Digest() []byte { return []byte("rewritten") }

func enriching(e stream.Enrich) func(*engine.Options) {
	return func(o *engine.Options) {
		o.Handlers.Enrich = func(*pipeline.Pipeline, *pipeline.Extractor) (stream.Enrich, error) { return e, nil }
	}
}

// numbering completes each config with how often anything was completed, and notes what it was asked.
func numbering(asked *effects) enricher {
	var n atomic.Int64
	return func(_ context.Context, c stream.Config) (string, error) {
		asked.add("%s %s", c.Key, c.Value)
		return fmt.Sprintf(`%s,"n":%d}`, strings.TrimSuffix(string(c.Value), "}"), n.Add(1)), nil
	}
}

const enriched = "every: 10ms\nconfig_topics: %s\nconfig: { defaults: { kind: town } }\nenrich: return {};\n"

// A config is completed once, before its first poll, whatever polls it: the same instance, one that starts again, and another
// one. A config that is written with other words and the same meaning is the same.
func TestEnrichRunsOncePerConfig(t *testing.T) {
	r := newRig(t)
	topic := r.configTopic("configs", 4)
	for n := range 8 {
		r.config(topic, 4, fmt.Sprint("c", n), fmt.Sprintf(`{"town":%d}`, n))
	}
	asked, seen := newEffects(), newEffects()
	spec := fmt.Sprintf(enriched, topic)
	a := r.polling(spec, seer(seen), enriching(numbering(asked))).ends(seen)
	for n := range 8 {
		seen.await(t, fmt.Sprintf(`c%d {"town":%d,"kind":"town","n":`, n, n), 3)
	}
	if n := len(asked.all()); n != 8 {
		t.Errorf("8 configs were completed %d times:\n%s", n, asked)
	}
	a.stopped()
	before := map[string]bool{}
	for _, line := range seen.all() {
		before[line] = true
	}

	seen = newEffects()
	b := r.polling(spec, seer(seen), enriching(numbering(asked)))
	c := r.polling(spec, seer(seen), enriching(numbering(asked)))
	waitFor(t, b, "running", 2)
	waitFor(t, c, "running", 2)
	r.config(topic, 4, "c1", ` { "kind" : "town", "town" : 1 }`)
	for n := range 8 {
		line := fmt.Sprintf("c%d ", n)
		seen.await(t, line, seen.count(line)+3)
	}
	for _, line := range seen.all() {
		if !before[line] && !strings.HasPrefix(line, "c1 ") {
			t.Errorf("the second time a poll saw %s", line)
		}
	}
	b.stopped()
	c.stopped()
	if n := len(asked.all()); n != 8 {
		t.Errorf("after two more starts there were %d runs:\n%s", n, asked)
	}
	if states := enginetest.Fold(t, r.opts(), r.id+"-changelog"); len(states) > 0 {
		t.Errorf("the engine's own records show as states: %v", states)
	}
	records, err := engine.ReadState(t.Context(), r.kafk, r.id, "")
	if err != nil || len(records) > 0 {
		t.Errorf("state list shows %v, %v", records, err)
	}
}

// A config that is written anew, or whose script is another, is completed anew; the other configs are not.
func TestEnrichRunsAgainWhenItsInputsChange(t *testing.T) {
	r := newRig(t)
	topic := r.configTopic("configs", 1)
	r.config(topic, 1, "a", `{"v":1}`)
	r.config(topic, 1, "b", `{"v":1}`)
	asked, seen := newEffects(), newEffects()
	spec := fmt.Sprintf(enriched, topic)
	i := r.polling(spec, seer(seen), enriching(numbering(asked))).ends(seen)
	seen.await(t, "a ", 2)
	seen.await(t, "b ", 2)
	r.config(topic, 1, "a", `{"v":2}`)
	seen.await(t, `a {"v":2,"kind":"town","n":3}`, 2)
	// Back to what it was: only the last result of a config is kept.
	r.config(topic, 1, "a", `{"v":1}`)
	seen.await(t, `a {"v":1,"kind":"town","n":4}`, 2)
	if n := asked.count("b "); n != 1 {
		t.Errorf("the config that did not change was completed %d times", n)
	}
	i.stopped()
	asked, seen = newEffects(), newEffects()
	i = r.polling(spec, seer(seen), enriching(rewritten{numbering(asked)})).ends(seen)
	asked.await(t, "a ", 1)
	asked.await(t, "b ", 1)
	i.stopped()
}

// What enrich fails on concerns one config, which follows on_error; nothing of the failure is kept.
func TestEnrichFailureConcernsItsConfigAlone(t *testing.T) {
	for policy, state := range map[string]engine.ConfigState{"{ retry: 5ms..20ms }": engine.ConfigBackingOff, "skip": engine.ConfigFailed} {
		t.Run(policy, func(t *testing.T) {
			r := newRig(t)
			topic := r.configTopic("configs", 1)
			r.config(topic, 1, "good", `{"v":1}`)
			r.config(topic, 1, "bad", `{"v":1}`)
			asked, seen := newEffects(), newEffects()
			number := numbering(asked)
			var mended atomic.Bool
			i := r.polling(fmt.Sprintf(enriched, topic)+"on_error: "+policy+"\n", seer(seen), enriching(enricher(func(ctx context.Context, c stream.Config) (string, error) {
				text, err := number(ctx, c)
				if c.Key == "bad" && !mended.Load() {
					return "", errors.New("no such town")
				}
				return text, err
			})), func(o *engine.Options) {
				o.Events = engine.Tee(o.Events, engine.Events{ConfigEnriched: func(i engine.PollInfo) { asked.add("enriched %s policy %v err %v", i.Config, i.Policy, i.Err) }})
			}).ends(seen)
			asked.await(t, "bad ", 3)
			seen.await(t, "good ", seen.count("good ")+3)
			st := i.Engine.Status().Stages[0]
			if len(st.Configs) != 1 || st.Configs[0].Config != "bad" || st.Configs[0].State != state || st.Configs[0].Error != "enrich: no such town" || st.Configs[0].Failures < 2 {
				t.Errorf("in trouble are %+v", st.Configs)
			}
			word, _, _ := strings.Cut(strings.TrimPrefix(policy, "{ "), ":")
			asked.await(t, "enriched bad policy "+word+" err enrich: no such town", 2)
			if n := seen.count("bad "); n != 0 {
				t.Errorf("a config that is not complete was polled %d times", n)
			}
			mended.Store(true)
			seen.await(t, "bad ", 2)
			waitTrouble(t, i, 0)
			i.stopped()
			if n := asked.count("good "); n != 1 {
				t.Errorf("the other config was completed %d times", n)
			}
		})
	}
	t.Run("fail", func(t *testing.T) {
		r := newRig(t)
		i := r.polling("every: 10ms\nenrich: return {};\n", seer(newEffects()), enriching(enricher(func(context.Context, stream.Config) (string, error) { return "", errors.New("no such town") })))
		if err := i.wait(); err == nil || !strings.Contains(err.Error(), `config "default": enrich: no such town`) {
			t.Errorf("error %v", err)
		}
	})
}

// waitTrouble waits until n configs of an instance are in trouble.
func waitTrouble(t *testing.T, i *instance, n int) {
	t.Helper()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for deadline := time.Now().Add(30 * time.Second); len(i.Engine.Status().Stages[0].Configs) != n; <-again.C {
		if time.Now().After(deadline) {
			t.Fatalf("in trouble are %+v, want %d", i.Engine.Status().Stages[0].Configs, n)
		}
	}
}

// The completed config must fit the schema as well, and decides on every and suspended; what a schema that came later does not
// take is completed anew.
func TestEnrichIsHeldAgainstTheSchema(t *testing.T) {
	r := newRig(t)
	spec := `
every: config.every
configs: { a: { town: Oslo }, b: { town: Bergen }, c: { town: Narvik } }
config: { schema: { type: object, required: [town], properties: { town: { type: string }, latitude: { type: TYPE } } } }
on_error: { retry: 5ms..20ms }
enrich: return {};
`
	asked, seen := newEffects(), newEffects()
	gives := enricher(func(_ context.Context, c stream.Config) (string, error) {
		asked.add("%s", c.Key)
		return map[string]string{"a": `{"town":"Oslo","latitude":59.9,"every":"10ms"}`, "b": `{"town":"Bergen","latitude":"north","every":"10ms"}`,
			"c": `{"town":"Narvik","latitude":68.4,"every":"10ms","suspended":true}`}[c.Key], nil
	})
	i := r.polling(strings.Replace(spec, "TYPE", "number", 1), seer(seen), enriching(gives)).ends(seen)
	seen.await(t, "a ", 3)
	asked.await(t, "b", 3)
	asked.await(t, "c", 1)
	st := i.Engine.Status().Stages[0]
	if len(st.Configs) != 1 || st.Configs[0].Config != "b" || !strings.Contains(st.Configs[0].Error, "latitude") {
		t.Errorf("in trouble are %+v", st.Configs)
	}
	i.stopped()
	if n := seen.count("b ") + seen.count("c "); n != 0 {
		t.Errorf("a config that does not fit, or is suspended, was polled %d times", n)
	}
	if n := asked.count("a") + asked.count("c"); n != 2 {
		t.Errorf("what fits was completed %d times, want once each", n)
	}
	asked, seen = newEffects(), newEffects()
	i = r.polling(strings.Replace(spec, "TYPE", "string", 1), seer(seen), enriching(gives)).ends(seen)
	asked.await(t, "a", 2)
	seen.await(t, "b ", 2)
	i.stopped()
}

// A result that is lost on its way into the changelog is not believed to be kept: the task begins again, and asks again.
func TestE5EnrichResultInDoubt(t *testing.T) {
	needFake(t)
	r := newRig(t)
	lost := r.fake.LoseRequest(enginetest.Which{Key: endTxn, TxnID: r.id + "-0", Skip: 1})
	refused := r.fake.Fail(kerr.InvalidProducerEpoch, enginetest.Which{Key: endTxn, TxnID: r.id + "-0", Skip: 1})
	asked, seen := newEffects(), newEffects()
	i := r.polling("every: 10ms\nenrich: return {};\n", seer(seen), enriching(numbering(asked))).ends(seen)
	i.log.await(t, "0 running", 2)
	seen.await(t, "default ", 2)
	if lost.Fired() != 1 || refused.Fired() != 1 {
		t.Errorf("the faults hit %d and %d times, want once", lost.Fired(), refused.Fired())
	}
	if n := asked.count("default"); n != 2 || seen.count(`default {"n":1}`) > 0 {
		t.Errorf("asked %d times, polls saw\n%s", n, seen)
	}
	i.stopped()
}

// P7, P9: a run of enrich whose task goes away is cancelled, and leaves nothing.
func TestP7StopWhileEnrichRuns(t *testing.T) {
	r := newRig(t)
	var began sync.WaitGroup
	began.Add(1)
	i := r.polling("every: 10ms\non_error: skip\nenrich: return {};\n", seer(newEffects()), enriching(enricher(func(ctx context.Context, _ stream.Config) (string, error) {
		began.Done()
		<-ctx.Done()
		return "", context.Cause(ctx)
	})))
	began.Wait()
	i.stopped()
	if n := i.log.count("0 begin"); n != 0 {
		t.Errorf("%d transactions began; effects:\n%s", n, i.log)
	}
	asked, seen := newEffects(), newEffects()
	i = r.polling("every: 10ms\nenrich: return {};\n", seer(seen), enriching(numbering(asked))).ends(seen)
	seen.await(t, "default ", 1)
	i.stopped()
	if n := asked.count("default"); n != 1 {
		t.Errorf("asked %d times afterwards", n)
	}
}
