package enginetest

import (
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// run stands in for an engine: one transaction of a task that writes two records and commits an offset.
func run(s *Scenario, d *datadriven.TestData) string {
	app := s.Expand("tank") + "-alerts"
	CreateTopic(s.T, s.Opts, app, 1)
	client, ctx := helper(s.T, append([]kgo.Opt{kgo.TransactionalID(app + "-0"), kgo.DefaultProduceTopic(app)}, s.Opts...))
	task := app + "/1"
	s.Effects.Add(task, "begin")
	if err := client.BeginTransaction(); err != nil {
		d.Fatalf(s.T, "%v", err)
	}
	end := kgo.TryCommit
	if err := client.ProduceSync(ctx, kgo.KeySliceRecord([]byte("k"), []byte("1")), kgo.KeySliceRecord([]byte("k"), []byte("2"))).FirstErr(); err != nil {
		s.Effects.Add(task, "failed")
		end = kgo.TryAbort
	}
	s.Effects.Add(task, "produce %s ×%d", app, 2)
	if err := client.EndTransaction(ctx, end); err != nil {
		d.Fatalf(s.T, "%v", err)
	}
	s.Effects.Add(task, "commit")
	s.Effects.Add(app+"/0", "begin")
	var offsets kadm.Offsets
	offsets.AddOffset(s.Expand("levels"), 1, 2, -1)
	if err := kadm.NewClient(client).CommitAllOffsets(ctx, app, offsets); err != nil {
		d.Fatalf(s.T, "%v", err)
	}
	return ""
}

func TestScenarioVerbs(t *testing.T) {
	for name, on := range map[string]func(testing.TB) *Scenario{
		"fake":  func(t testing.TB) *Scenario { return OnFake(t, FakeConfig{}) },
		"kafka": OnKafka,
	} {
		t.Run(name, func(t *testing.T) {
			RunScenario(t, "testdata/scenarios/verbs", on(t), map[string]Verb{"run": run})
		})
	}
}

func TestScenarioFaults(t *testing.T) {
	RunScenario(t, "testdata/scenarios/faults", OnFake(t, FakeConfig{}), map[string]Verb{"run": run})
}

func TestScenarioNamesAreItsOwnOnASharedBroker(t *testing.T) {
	s := &Scenario{ending: "-x1"}
	s.Claim("levels", "tank-monitor")
	got := s.Expand("{ input_topics: levels, group: tank-monitor-alerts, no: sealevels, state: tank-monitor-alerts-changelog }")
	if want := "{ input_topics: levels-x1, group: tank-monitor-x1-alerts, no: sealevels, state: tank-monitor-x1-alerts-changelog }"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if strings.Contains((&Scenario{}).Expand("levels"), "-") {
		t.Error("a fake broker's names have an ending")
	}
}
