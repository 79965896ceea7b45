package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/devcluster"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
)

const outlets = `
pipeline: shop
topic_defaults: { config: { retention.ms: -1 } }
topics:
  outlets:
    partitions: 3
    config: { cleanup.policy: "compact" }
    seed:
      key: domain
      records:
        - { domain: a.example, n: 1 }
        - { domain: b.example, n: 2 }
        - { domain: c.example, n: 3 }
  visits: {}
transformers:
  count:
    input_topics: [visits, clicks, outlets]
    output_topics: counts
    message: { value: value }
`

// loadPipelines reads text as the file shop.yaml.
func loadPipelines(t *testing.T, text string) []*pipeline.Pipeline {
	t.Helper()
	set, problems := pipeline.Load([]string{"shop.yaml"}, pipeline.Options{ReadFile: func(string) ([]byte, error) { return []byte(text), nil }})
	if problems.Failed() {
		t.Fatalf("shop.yaml: %v", problems)
	}
	return set.Pipelines
}

func startCluster(t *testing.T) engine.Kafka {
	t.Helper()
	c, err := devcluster.Start(devcluster.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return engine.Kafka{Brokers: c.Addrs()}
}

func planned(t *testing.T, k engine.Kafka, text string, o engine.PlanOptions) *engine.TopicPlan {
	t.Helper()
	plan, err := engine.PlanTopics(t.Context(), k, loadPipelines(t, text), o)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func applied(t *testing.T, k engine.Kafka, text string, o engine.PlanOptions) []string {
	t.Helper()
	var told []string
	err := planned(t, k, text, o).Apply(t.Context(), engine.Events{
		TopicCreated: func(i engine.TopicInfo) { told = append(told, fmt.Sprintf("created %s/%d", i.Topic, i.Partitions)) },
		TopicSeeded:  func(i engine.TopicInfo) { told = append(told, fmt.Sprintf("seeded %s ×%d", i.Topic, i.Records)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(told)
	return told
}

func planLines(plan *engine.TopicPlan) []string {
	var out []string
	for _, s := range plan.Steps {
		out = append(out, strings.Split(s.String(), "\n")...)
	}
	return out
}

func kafkaClient(t *testing.T, k engine.Kafka, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(k.Brokers...)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// committedRecords reads the n committed records of a topic and makes sure that there is no further one: a record that is written
// after them must be the next of its partition.

func committedRecords(t *testing.T, k engine.Kafka, topic string, n int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	adm := kadm.NewClient(kafkaClient(t, k))
	details, err := adm.ListTopics(ctx, topic)
	if err != nil || details[topic].Err != nil {
		t.Fatal(err, details[topic].Err)
	}
	ends := len(details[topic].Partitions)
	w := kafkaClient(t, k, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for p := range ends {
		if err := w.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: int32(p), Key: []byte("end")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	r := kafkaClient(t, k, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()))
	var out []string
	for ends > 0 {
		fetches := r.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read %s: %v (have %v)", topic, err, out)
		}
		for rec := range fetches.RecordsAll() {
			if string(rec.Key) == "end" {
				ends--
				continue
			}
			out = append(out, fmt.Sprintf("%d %s %s", rec.Partition, rec.Key, rec.Value))
		}
	}
	slices.Sort(out)
	if len(out) != n {
		t.Errorf("%s holds %d records, want %d: %v", topic, len(out), n, out)
	}
	return out
}

func TestPlanShowsWhatIsMissing(t *testing.T) {
	k := startCluster(t)
	got := planLines(planned(t, k, outlets, engine.PlanOptions{}))
	want := []string{
		"+ create   outlets (3 partitions, cleanup.policy=compact, retention.ms=-1)",
		"+ seed     outlets",
		"             from the pipeline file, key domain",
		"+ create   visits (3 partitions, retention.ms=-1)",
		"! missing  clicks",
		"             declare it under `topics:` in shop.yaml and create it with: flechtwerk topics apply shop.yaml",
		"! missing  counts",
		"             declare it under `topics:` in shop.yaml and create it with: flechtwerk topics apply shop.yaml",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// D3: what nobody declares gets the partitions of the inputs beside it, so that the stage can run.
func TestApplyUndeclared(t *testing.T) {
	k := startCluster(t)
	told := applied(t, k, outlets, engine.PlanOptions{Undeclared: true})
	want := []string{"created clicks/3", "created counts/4", "created outlets/3", "created visits/3", "seeded outlets ×3"}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Error(diff)
	}
	for _, s := range planned(t, k, outlets, engine.PlanOptions{}).Steps {
		if s.Action != engine.TopicOK {
			t.Errorf("after apply: %s", s)
		}
	}
}

func TestSeedIsWrittenOnceAndPlacedAsJavaDoes(t *testing.T) {
	k := startCluster(t)
	applied(t, k, outlets, engine.PlanOptions{})
	if told := applied(t, k, outlets, engine.PlanOptions{}); len(told) > 0 {
		t.Errorf("the second apply did %v", told)
	}
	var want []string
	for i, domain := range []string{"a.example", "b.example", "c.example"} {
		want = append(want, fmt.Sprintf("%d %s {\"domain\":%q,\"n\":%d}", engine.Token(domain, 3), domain, domain, i+1))
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, committedRecords(t, k, "outlets", 3)); diff != "" {
		t.Error(diff)
	}
}

// A topic that somebody else has written to keeps what it has.
func TestSeedLeavesRecordsAlone(t *testing.T) {
	k := startCluster(t)
	adm := kadm.NewClient(kafkaClient(t, k))
	policy, retention := "compact", "-1"
	if _, err := adm.CreateTopic(t.Context(), 3, 1, map[string]*string{"cleanup.policy": &policy, "retention.ms": &retention}, "outlets"); err != nil {
		t.Fatal(err)
	}
	if err := kafkaClient(t, k).ProduceSync(t.Context(), &kgo.Record{Topic: "outlets", Key: []byte("x"), Value: []byte("mine")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if told := applied(t, k, outlets, engine.PlanOptions{}); !slices.Equal(told, []string{"created visits/3"}) {
		t.Errorf("did %v", told)
	}
	committedRecords(t, k, "outlets", 1)
}

// A crash half-way through a seed leaves an open transaction, or an aborted one. Neither counts as a seed.
func TestSeedAfterACrashHalfWay(t *testing.T) {
	for _, aborted := range []bool{false, true} {
		t.Run(fmt.Sprint("aborted=", aborted), func(t *testing.T) {
			k := startCluster(t)
			adm := kadm.NewClient(kafkaClient(t, k))
			policy, retention := "compact", "-1"
			if _, err := adm.CreateTopic(t.Context(), 3, 1, map[string]*string{"cleanup.policy": &policy, "retention.ms": &retention}, "outlets"); err != nil {
				t.Fatal(err)
			}
			crashed := kafkaClient(t, k, kgo.TransactionalID("flechtwerk-seed-outlets"))
			if err := crashed.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			for _, key := range []string{"a", "b", "c", "d"} {
				if err := crashed.ProduceSync(t.Context(), &kgo.Record{Topic: "outlets", Key: []byte(key), Value: []byte("half")}).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			if aborted {
				if err := crashed.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
					t.Fatal(err)
				}
			}
			if told := applied(t, k, outlets, engine.PlanOptions{}); !slices.Contains(told, "seeded outlets ×3") {
				t.Errorf("did %v", told)
			}
			for _, r := range committedRecords(t, k, "outlets", 3) {
				if strings.Contains(r, "half") {
					t.Errorf("a record of the crashed seed is visible: %s", r)
				}
			}
		})
	}
}

func TestPlanShowsDifferencesAndChangesNothing(t *testing.T) {
	k := startCluster(t)
	adm := kadm.NewClient(kafkaClient(t, k))
	policy := "delete"
	if _, err := adm.CreateTopic(t.Context(), 2, 1, map[string]*string{"cleanup.policy": &policy}, "outlets"); err != nil {
		t.Fatal(err)
	}
	plan := planned(t, k, outlets, engine.PlanOptions{})
	if s := plan.Steps[0]; s.Action != engine.TopicDiffers || len(s.Diff) < 2 || s.Diff[0] != "partitions: 3 wanted, 2 there" || s.Diff[1] != "cleanup.policy: compact wanted, delete there" {
		t.Errorf("got %s", s)
	}
	if err := plan.Apply(t.Context(), engine.Events{}); err != nil {
		t.Fatal(err)
	}
	if s := planned(t, k, outlets, engine.PlanOptions{}).Steps[0]; s.Action != engine.TopicDiffers || s.Have != 2 {
		t.Errorf("after apply: %s", s)
	}
}

// D7: a broker that is not there.
func TestD7PlanWithoutBroker(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := engine.PlanTopics(ctx, engine.Kafka{Brokers: []string{"127.0.0.1:1"}}, loadPipelines(t, outlets), engine.PlanOptions{})
	if !errors.Is(err, engine.ErrSurroundings) || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("got %v", err)
	}
}
