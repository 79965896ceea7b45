package main

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/store"
)

// Metrics counts the engine's events for Prometheus. Names and labels are an interface: a change breaks dashboards.
//
// Counters move once a batch or a transaction, never once a record. The children of a stage's labels are looked up when the
// stage is first seen and kept, so that an event costs one map read and a few additions.
type Metrics struct {
	registry *prometheus.Registry

	recordsIn, filtered, restored, scriptSeconds *prometheus.CounterVec
	recordsOut, invalid, failed                  *prometheus.CounterVec
	transactions, offsetCommits                  *prometheus.CounterVec
	polls, pollFailures, overruns                *prometheus.CounterVec
	restarts, warnings, enrichments              *prometheus.CounterVec
	sessionMessages, sessionConnections          *prometheus.CounterVec
	commitSeconds, pollSeconds                   *prometheus.HistogramVec
	newest                                       *prometheus.GaugeVec
	scriptCounts                                 *prometheus.CounterVec

	requests *requests

	stages   sync.Map // stageName → *stageMetrics
	restores sync.Map // taskName → int64, the records that the running restore has told of
}

type stageName struct{ pipeline, stage string }

type taskName struct {
	stageName
	task int32
}

// stageMetrics are the children of one stage.
type stageMetrics struct {
	recordsIn, filtered, restored, scriptSeconds, offsetCommits, restarts prometheus.Counter
	committed, aborted                                                    prometheus.Counter
	polled, pollFailed, overruns                                          prometheus.Counter
	commitSeconds, pollSeconds                                            prometheus.Observer
	newest                                                                prometheus.Gauge
	out                                                                   sync.Map // topic → prometheus.Counter
}

// NewMetrics makes the registry with the collectors of Go and of the process.
func NewMetrics(version Version) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "flechtwerk_" + name, Help: help}, append([]string{"pipeline", "stage"}, labels...))
		m.registry.MustRegister(c)
		return c
	}
	m.recordsIn = counter("records_in_total", "Input records whose offsets are committed.")
	m.recordsOut = counter("records_out_total", "Output records of committed transactions.", "topic")
	m.filtered = counter("records_filtered_total", "Input records that the filter passed over, each time that they were handled.")
	m.invalid = counter("records_invalid_total", "Records that could not be decoded, by what on_invalid did.", "topic", "policy")
	m.failed = counter("records_failed_total", "Records whose body or expression failed, by what on_error did.", "topic", "policy")
	m.scriptSeconds = counter("script_seconds_total", "Time spent in bodies and expressions of transformers, without transactions.")
	m.transactions = counter("transactions_total", "Transactions by how they ended.", "outcome")
	m.offsetCommits = counter("offset_commits_total", "Batches that left nothing but offsets and went without a transaction.")
	m.restored = counter("restored_records_total", "Changelog records applied while restoring state.")
	m.restarts = counter("task_restarts_total", "Tasks that started anew after a transaction with an unknown end or a fence.")
	m.polls = counter("polls_total", "Polls of extractors by how they ended.", "outcome")
	m.pollFailures = counter("poll_failures_total", "Polls of extractors that failed, by what on_error did.", "policy")
	m.enrichments = counter("enrichments_total", "Runs of enrich by how they ended.", "outcome")
	m.overruns = counter("poll_overruns_total", "Polls that took longer than every.")
	m.warnings = counter("warnings_total", "Warnings of the engine.", "code")
	m.scriptCounts = counter("script_count_total", "What scripts count with metrics.count, each time that they ran.", "name")
	m.sessionMessages = counter("mqtt_messages_total", "Messages of MQTT by what became of them: received (again after a reconnect), acknowledged, redelivery (the broker sends them again), invalid, failed, dropped.", "outcome")
	m.sessionConnections = counter("mqtt_connections_total", "Connections to the MQTT broker: made, and lost or not made.", "outcome")
	m.commitSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "flechtwerk_commit_seconds",
		Help:    "Time from the beginning of a committed transaction to its confirmed end.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
	}, []string{"pipeline", "stage"})
	m.pollSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "flechtwerk_poll_seconds",
		Help:    "Time from the start of a poll to its end, with the commits of its pages.",
		Buckets: prometheus.ExponentialBuckets(0.001, 4, 11),
	}, []string{"pipeline", "stage"})
	m.newest = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "flechtwerk_newest_record_timestamp_seconds",
		Help: "Timestamp of the newest input record that was handled.",
	}, []string{"pipeline", "stage"})
	m.requests = newRequests(m.registry)
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "flechtwerk_build_info",
		Help:        "1, with what is running as labels.",
		ConstLabels: prometheus.Labels{"version": version.Version, "commit": version.Commit, "goja": version.Goja},
	})
	build.Set(1)
	m.registry.MustRegister(m.commitSeconds, m.pollSeconds, m.newest, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Events is what the engine calls.
func (m *Metrics) Events() engine.Events {
	policy := func(i engine.RecordInfo) string { return i.Policy.String() }
	return engine.Events{
		// A stage has its series from the start, so that a rate over them knows zero.
		StageStarted:    func(i engine.StageInfo) { m.stage(i.Pipeline, i.Stage) },
		TaskFenced:      func(i engine.TaskInfo) { m.restores.Delete(nameOf(i)) },
		RestoreProgress: m.restore,
		TaskRestarting:  func(i engine.TaskInfo) { m.stage(i.Pipeline, i.Stage).restarts.Inc() },
		TransactionCommitted: func(i engine.TransactionInfo) {
			s := m.stage(i.Pipeline, i.Stage)
			s.committed.Inc()
			s.recordsIn.Add(float64(i.Records))
			s.commitSeconds.Observe(i.Duration.Seconds())
			for _, o := range i.Outputs {
				s.output(m, i.TaskInfo, o.Topic).Add(float64(o.Count))
			}
		},
		TransactionAborted: func(i engine.TransactionInfo) { m.stage(i.Pipeline, i.Stage).aborted.Inc() },
		OffsetsCommitted: func(i engine.TransactionInfo) {
			s := m.stage(i.Pipeline, i.Stage)
			s.offsetCommits.Inc()
			s.recordsIn.Add(float64(i.Records))
		},
		BatchRun: func(i engine.BatchInfo) {
			s := m.stage(i.Pipeline, i.Stage)
			s.scriptSeconds.Add(i.Duration.Seconds())
		},
		BatchTaken: func(i engine.BatchInfo) {
			s := m.stage(i.Pipeline, i.Stage)
			s.filtered.Add(float64(i.Filtered))
			if i.Newest > 0 {
				s.newest.Set(float64(i.Newest) / 1000)
			}
		},
		RecordInvalid: func(i engine.RecordInfo) {
			m.invalid.WithLabelValues(i.Pipeline, i.Stage, i.Topic, policy(i)).Inc()
		},
		RecordFailed: func(i engine.RecordInfo) {
			m.failed.WithLabelValues(i.Pipeline, i.Stage, i.Topic, policy(i)).Inc()
		},
		PollEnded: func(i engine.PollInfo) {
			s := m.stage(i.Pipeline, i.Stage)
			if i.Overrun {
				s.overruns.Inc()
			}
			s.pollSeconds.Observe(i.Duration.Seconds())
			if i.Err != nil {
				s.pollFailed.Inc()
				m.pollFailures.WithLabelValues(i.Pipeline, i.Stage, i.Policy.String()).Inc()
			} else {
				s.polled.Inc()
			}
		},
		ConfigEnriched: func(i engine.PollInfo) {
			outcome := "ended"
			if i.Err != nil {
				outcome = "failed"
			}
			m.enrichments.WithLabelValues(i.Pipeline, i.Stage, outcome).Inc()
		},
		Warning: func(i engine.WarningInfo) { m.warnings.WithLabelValues(i.Pipeline, i.Stage, i.Code).Inc() },
	}
}

func nameOf(i engine.TaskInfo) taskName { return taskName{stageName{i.Pipeline, i.Stage}, i.Task} }

func (m *Metrics) stage(pipeline, stage string) *stageMetrics {
	name := stageName{pipeline, stage}
	if s, ok := m.stages.Load(name); ok {
		return s.(*stageMetrics)
	}
	s, _ := m.stages.LoadOrStore(name, &stageMetrics{
		recordsIn:     m.recordsIn.WithLabelValues(pipeline, stage),
		filtered:      m.filtered.WithLabelValues(pipeline, stage),
		restored:      m.restored.WithLabelValues(pipeline, stage),
		scriptSeconds: m.scriptSeconds.WithLabelValues(pipeline, stage),
		offsetCommits: m.offsetCommits.WithLabelValues(pipeline, stage),
		restarts:      m.restarts.WithLabelValues(pipeline, stage),
		committed:     m.transactions.WithLabelValues(pipeline, stage, "committed"),
		aborted:       m.transactions.WithLabelValues(pipeline, stage, "aborted"),
		polled:        m.polls.WithLabelValues(pipeline, stage, "ended"),
		pollFailed:    m.polls.WithLabelValues(pipeline, stage, "failed"),
		overruns:      m.overruns.WithLabelValues(pipeline, stage),
		commitSeconds: m.commitSeconds.WithLabelValues(pipeline, stage),
		pollSeconds:   m.pollSeconds.WithLabelValues(pipeline, stage),
		newest:        m.newest.WithLabelValues(pipeline, stage),
	})
	return s.(*stageMetrics)
}

func (s *stageMetrics) output(m *Metrics, i engine.TaskInfo, topic string) prometheus.Counter {
	if c, ok := s.out.Load(topic); ok {
		return c.(prometheus.Counter)
	}
	c, _ := s.out.LoadOrStore(topic, m.recordsOut.WithLabelValues(i.Pipeline, i.Stage, topic))
	return c.(prometheus.Counter)
}

// restore counts what a restore has applied since it last told. Events of one task come one after another.
func (m *Metrics) restore(i engine.RestoreInfo) {
	var before int64
	if v, ok := m.restores.Load(nameOf(i.TaskInfo)); ok {
		before = v.(int64)
	}
	if i.Records > before {
		m.stage(i.Pipeline, i.Stage).restored.Add(float64(i.Records - before))
	}
	if i.Done {
		m.restores.Delete(nameOf(i.TaskInfo))
		return
	}
	m.restores.Store(nameOf(i.TaskInfo), i.Records)
}

// Watch adds what is read from the engine when Prometheus asks: tasks by phase, configs by state, and the state store.
func (m *Metrics) Watch(status func() engine.Status, state func() store.Metrics) {
	m.registry.MustRegister(&engineCollector{
		status: status, state: state,
		tasks: prometheus.NewDesc("flechtwerk_tasks", "Tasks of this process by phase.",
			[]string{"pipeline", "stage", "phase"}, nil),
		configs: prometheus.NewDesc("flechtwerk_configs", "Configs of extractors that this process polls, by state.",
			[]string{"pipeline", "stage", "state"}, nil),
		connected: prometheus.NewDesc("flechtwerk_mqtt_connected", "1 while the session with the MQTT broker is connected.", []string{"pipeline", "stage"}, nil),
		held:      prometheus.NewDesc("flechtwerk_mqtt_inbox_messages", "Messages of MQTT that have arrived and are not acknowledged.", []string{"pipeline", "stage"}, nil),
		heldBytes: prometheus.NewDesc("flechtwerk_mqtt_inbox_bytes", "Bytes of messages of MQTT that have arrived and are not acknowledged.", []string{"pipeline", "stage"}, nil),
		disk:      prometheus.NewDesc("flechtwerk_state_store_bytes", "Bytes of the local state store on disk.", nil, nil),
		memory:    prometheus.NewDesc("flechtwerk_state_store_memory_bytes", "Bytes of memory that the local state store holds for its cache and write buffers.", nil, nil),
	})
}

// phases are those of engine.TaskStatus, so that a phase without a task is shown as 0.
var phases = []string{"fencing", "restoring", "running", "restarting", "stopping"}

type engineCollector struct {
	status                       func() engine.Status
	state                        func() store.Metrics
	tasks, configs, disk, memory *prometheus.Desc
	connected, held, heldBytes   *prometheus.Desc
}

func (c *engineCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.tasks, c.configs, c.disk, c.memory, c.connected, c.held, c.heldBytes} {
		ch <- d
	}
}

func (c *engineCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	state := c.state()
	gauge(c.disk, float64(state.DiskBytes))
	gauge(c.memory, float64(state.MemoryBytes))
	for _, s := range c.status().Stages {
		count := map[string]int{}
		for _, t := range s.Tasks {
			count[t.Phase]++
		}
		for _, phase := range phases {
			gauge(c.tasks, float64(count[phase]), s.Pipeline, s.Stage, phase)
		}
		if s.Kind != "extractor" {
			continue
		}
		if session := s.Session; session != nil {
			up := 0.0
			if session.Connected {
				up = 1
			}
			gauge(c.connected, up, s.Pipeline, s.Stage)
			gauge(c.held, float64(session.Held), s.Pipeline, s.Stage)
			gauge(c.heldBytes, float64(session.HeldBytes), s.Pipeline, s.Stage)
		}
		states := map[engine.ConfigState]int{}
		for _, config := range s.Configs {
			states[config.State]++
		}
		gauge(c.configs, float64(s.Polled-len(s.Configs)), s.Pipeline, s.Stage, "ok")
		gauge(c.configs, float64(states[engine.ConfigBackingOff]), s.Pipeline, s.Stage, "backing_off")
		gauge(c.configs, float64(states[engine.ConfigFailed]), s.Pipeline, s.Stage, "failed")
	}
}

// sessionMetrics are the children of one stage's MQTT session.
type sessionMetrics struct {
	received, acknowledged, redelivery, connects, disconnects prometheus.Counter
	outcomes                                                  map[string]prometheus.Counter
}

// session looks the counters of a session up, so that a rate over them knows zero from the start.
func (m *Metrics) session(pipeline, stage string) *sessionMetrics {
	s := &sessionMetrics{
		received:     m.sessionMessages.WithLabelValues(pipeline, stage, "received"),
		acknowledged: m.sessionMessages.WithLabelValues(pipeline, stage, "acknowledged"),
		redelivery:   m.sessionMessages.WithLabelValues(pipeline, stage, "redelivery"),
		connects:     m.sessionConnections.WithLabelValues(pipeline, stage, "made"),
		disconnects:  m.sessionConnections.WithLabelValues(pipeline, stage, "lost"),
		outcomes:     map[string]prometheus.Counter{},
	}
	for _, outcome := range []string{"invalid", "failed", "dropped"} {
		s.outcomes[outcome] = m.sessionMessages.WithLabelValues(pipeline, stage, outcome)
	}
	return s
}
