package main

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/store"
)

// samples are the lines of our own metrics, without the buckets of histograms.
func samples(t testing.TB, m *Metrics) []string {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := NewServer(ServerConfig{Address: "127.0.0.1:0", Registry: m.registry})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if len(families) == 0 {
		t.Fatal("there are no metrics")
	}
	var out []string
	for line := range strings.Lines(get(t, s, "/metrics").body) {
		if strings.HasPrefix(line, "flechtwerk_") && !strings.Contains(line, "_bucket") && !strings.Contains(line, "build_info") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

func TestMetricsOfEvents(t *testing.T) {
	m := NewMetrics(Version{Version: "v1", Commit: "c", Goja: "g"})
	e := m.Events()
	tx := engine.TransactionInfo{TaskInfo: task3, Records: 5, Outputs: []engine.TopicCount{{Topic: "a", Count: 3}, {Topic: "b", Count: 1}}}
	tx.Duration = 250 * time.Millisecond
	e.StageStarted(engine.StageInfo{Pipeline: "tanks", Stage: "alerts"})
	e.BatchTaken(engine.BatchInfo{TaskInfo: engine.TaskInfo{Pipeline: "tanks", Stage: "alerts"}, Records: 7, Filtered: 2, Newest: 1500})
	e.BatchRun(engine.BatchInfo{TaskInfo: engine.TaskInfo{Pipeline: "tanks", Stage: "alerts", Duration: 2 * time.Second}, Records: 5})
	e.TransactionCommitted(tx)
	e.TransactionCommitted(tx)
	e.TransactionAborted(tx)
	e.OffsetsCommitted(engine.TransactionInfo{TaskInfo: task3, Records: 7})
	e.RecordInvalid(engine.RecordInfo{TaskInfo: task3, Topic: "in", Policy: pipeline.Skip})
	e.RecordFailed(engine.RecordInfo{TaskInfo: task3, Topic: "in"})
	e.TaskRestarting(task3)
	e.Warning(engine.WarningInfo{Pipeline: "tanks", Stage: "alerts", Code: "state.age"})
	poll := engine.PollInfo{TaskInfo: task3, Overrun: true}
	poll.Duration = 3 * time.Second
	e.PollEnded(poll)
	poll = engine.PollInfo{TaskInfo: task3, Policy: pipeline.Retry}
	poll.Err = errors.New("no answer")
	e.PollEnded(poll)
	e.ConfigEnriched(poll)
	e.ConfigEnriched(engine.PollInfo{TaskInfo: task3})
	// Two restores of one task: each tells how much it has applied so far.
	for range 2 {
		e.TaskFenced(task3)
		for _, n := range []int64{10, 25, 25} {
			e.RestoreProgress(engine.RestoreInfo{TaskInfo: task3, Records: n})
		}
		e.RestoreProgress(engine.RestoreInfo{TaskInfo: task3, Records: 30, Done: true})
	}
	const stage = `{pipeline="tanks",stage="alerts"`
	want := []string{
		`flechtwerk_commit_seconds_sum` + stage + `} 0.5`,
		`flechtwerk_commit_seconds_count` + stage + `} 2`,
		`flechtwerk_enrichments_total{outcome="ended",pipeline="tanks",stage="alerts"} 1`,
		`flechtwerk_enrichments_total{outcome="failed",pipeline="tanks",stage="alerts"} 1`,
		`flechtwerk_newest_record_timestamp_seconds` + stage + `} 1.5`,
		`flechtwerk_offset_commits_total` + stage + `} 1`,
		`flechtwerk_poll_failures_total{pipeline="tanks",policy="retry",stage="alerts"} 1`,
		`flechtwerk_poll_overruns_total` + stage + `} 1`,
		`flechtwerk_poll_seconds_sum` + stage + `} 3`,
		`flechtwerk_poll_seconds_count` + stage + `} 2`,
		`flechtwerk_polls_total{outcome="ended",pipeline="tanks",stage="alerts"} 1`,
		`flechtwerk_polls_total{outcome="failed",pipeline="tanks",stage="alerts"} 1`,
		`flechtwerk_records_failed_total{pipeline="tanks",policy="fail",stage="alerts",topic="in"} 1`,
		`flechtwerk_records_filtered_total` + stage + `} 2`,
		`flechtwerk_records_in_total` + stage + `} 17`,
		`flechtwerk_records_invalid_total{pipeline="tanks",policy="skip",stage="alerts",topic="in"} 1`,
		`flechtwerk_records_out_total` + stage + `,topic="a"} 6`,
		`flechtwerk_records_out_total` + stage + `,topic="b"} 2`,
		`flechtwerk_restored_records_total` + stage + `} 60`,
		`flechtwerk_script_seconds_total` + stage + `} 2`,
		`flechtwerk_task_restarts_total` + stage + `} 1`,
		`flechtwerk_transactions_total{outcome="aborted",pipeline="tanks",stage="alerts"} 1`,
		`flechtwerk_transactions_total{outcome="committed",pipeline="tanks",stage="alerts"} 2`,
		`flechtwerk_warnings_total{code="state.age",pipeline="tanks",stage="alerts"} 1`,
	}
	if diff := cmp.Diff(want, samples(t, m)); diff != "" {
		t.Error(diff)
	}
}

func TestMetricsOfStatus(t *testing.T) {
	m := NewMetrics(Version{})
	m.Watch(func() engine.Status {
		return engine.Status{Stages: []engine.StageStatus{
			{Pipeline: "p", Stage: "t", Kind: "transformer", Tasks: []engine.TaskStatus{{Phase: "running"}, {Phase: "running"}, {Phase: "fencing"}}},
			{Pipeline: "p", Stage: "x", Kind: "extractor", Polled: 7, Configs: []engine.ConfigStatus{
				{Config: "a", State: engine.ConfigBackingOff}, {Config: "b", State: engine.ConfigFailed}, {Config: "c", State: engine.ConfigBackingOff},
			}},
		}}
	}, func() store.Metrics { return store.Metrics{DiskBytes: 5, MemoryBytes: 6} })
	var got []string
	for _, line := range samples(t, m) {
		if !strings.HasSuffix(line, " 0") {
			got = append(got, line)
		}
	}
	want := []string{
		`flechtwerk_configs{pipeline="p",stage="x",state="backing_off"} 2`,
		`flechtwerk_configs{pipeline="p",stage="x",state="failed"} 1`,
		`flechtwerk_configs{pipeline="p",stage="x",state="ok"} 4`,
		`flechtwerk_state_store_bytes 5`,
		`flechtwerk_state_store_memory_bytes 6`,
		`flechtwerk_tasks{phase="fencing",pipeline="p",stage="t"} 1`,
		`flechtwerk_tasks{phase="running",pipeline="p",stage="t"} 2`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Names are an interface: base units, counters end in _total, and Go's and the process's own are there.
func TestMetricNames(t *testing.T) {
	m := NewMetrics(Version{})
	m.Events().StageStarted(engine.StageInfo{Pipeline: "p", Stage: "s"})
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
		if !strings.HasPrefix(f.GetName(), "flechtwerk_") {
			continue
		}
		if counter := f.GetType().String() == "COUNTER"; counter != strings.HasSuffix(f.GetName(), "_total") {
			t.Errorf("%s is a %s", f.GetName(), f.GetType())
		}
		if regexp.MustCompile(`milli|_ms|_kb|_mb|minute`).MatchString(f.GetName()) || f.GetHelp() == "" {
			t.Errorf("%s: no base unit, or no help", f.GetName())
		}
	}
	for _, name := range []string{"go_goroutines", "process_cpu_seconds_total", "flechtwerk_build_info"} {
		if !slices.Contains(names, name) {
			t.Errorf("%s is missing", name)
		}
	}
}

// BenchmarkMetricsCommit is what one transaction costs the hot path.
func BenchmarkMetricsCommit(b *testing.B) {
	e := NewMetrics(Version{}).Events()
	tx := engine.TransactionInfo{TaskInfo: task3, Records: 5, Outputs: []engine.TopicCount{{Topic: "a", Count: 3}}}
	b.ReportAllocs()
	for b.Loop() {
		e.TransactionCommitted(tx)
	}
}
