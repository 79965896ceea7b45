package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
)

// logTest is an event log with a clock of its own, writing logfmt without times.
type logTest struct {
	*eventLog
	events engine.Events
	out    bytes.Buffer
	clock  time.Time
}

func newLogTest(level slog.Level) *logTest {
	l := &logTest{clock: time.UnixMilli(0)}
	log := slog.New(slog.NewTextHandler(&l.out, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	l.eventLog = newEventLog(log, func() time.Time { return l.clock })
	l.events = l.Events()
	return l
}

// lines are what was written since the last call.
func (l *logTest) lines() []string {
	text := strings.TrimSuffix(l.out.String(), "\n")
	l.out.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func (l *logTest) want(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, l.lines()); diff != "" {
		t.Error(diff)
	}
}

var task3 = engine.TaskInfo{Pipeline: "tanks", Stage: "alerts", Task: 3}

func TestLogSumsUpRepeats(t *testing.T) {
	l := newLogTest(slog.LevelInfo)
	invalid := func(offset int64) {
		l.events.RecordInvalid(engine.RecordInfo{TaskInfo: task3, Topic: "levels", Partition: 3, Offset: offset, Policy: pipeline.Skip})
	}
	invalid(7)
	l.want(t, `level=WARN msg="record invalid" stage=tanks/alerts task=3 topic=levels partition=3 offset=7 policy=skip`)
	for offset := range int64(500) {
		invalid(8 + offset)
	}
	l.clock = l.clock.Add(9 * time.Second)
	l.tick()
	l.want(t)
	l.clock = l.clock.Add(time.Second)
	l.tick()
	l.want(t, `level=WARN msg="record invalid" stage=tanks/alerts task=3 topic=levels partition=3 offset=507 policy=skip repeats=500`)

	// A period without repeats closes, so that the next one is told at once.
	l.clock = l.clock.Add(10 * time.Second)
	l.tick()
	invalid(600)
	if got := l.lines(); len(got) != 1 || strings.Contains(got[0], "repeats") {
		t.Errorf("got %v", got)
	}

	// What is left is told at the end.
	invalid(601)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Run(ctx); err != nil {
		t.Fatal(err)
	}
	l.want(t, `level=WARN msg="record invalid" stage=tanks/alerts task=3 topic=levels partition=3 offset=601 policy=skip repeats=1`)
}

func TestLogTellsOfALongRestoreEveryTenSeconds(t *testing.T) {
	l := newLogTest(slog.LevelInfo)
	for second := range 25 {
		l.events.RestoreProgress(engine.RestoreInfo{TaskInfo: task3, From: 100, Next: 100 + int64(second)*40, End: 1100, Records: int64(second) * 30})
		l.tick()
		l.clock = l.clock.Add(time.Second)
	}
	l.want(t,
		`level=INFO msg="restoring state" stage=tanks/alerts task=3 took=10s records=300 percent=40 offsets_per_second=40 left=15s`,
		`level=INFO msg="restoring state" stage=tanks/alerts task=3 took=20s records=600 percent=80 offsets_per_second=40 left=5s`)
	l.events.RestoreProgress(engine.RestoreInfo{TaskInfo: task3, From: 100, Next: 1100, End: 1100, Records: 750, Done: true})
	l.clock = l.clock.Add(time.Minute)
	l.tick()
	l.want(t, `level=INFO msg="state restored" stage=tanks/alerts task=3 took=25s records=750`)
}

// One line an event: whatever is called, at every level, with an error and without.
func TestLogLinesOfEvents(t *testing.T) {
	l := newLogTest(slog.LevelDebug)
	failed := task3
	failed.Err, failed.Duration = errors.New("boom"), 2*time.Second
	tx := engine.TransactionInfo{TaskInfo: task3, Records: 5, Messages: 4, Changes: 2, Offsets: []engine.Offset{{Topic: "levels", Partition: 3, Offset: 42}}}
	l.events.StageStarted(engine.StageInfo{Pipeline: "tanks", Stage: "alerts", ApplicationID: "tanks-alerts"})
	l.events.TaskAssigned(task3)
	l.events.OffsetsFetched(engine.OffsetsInfo{TaskInfo: task3, Offsets: tx.Offsets})
	l.events.TaskRunning(task3)
	l.events.TransactionCommitted(tx)
	l.events.OffsetsCommitted(tx)
	l.events.TaskRestarting(failed)
	l.events.TaskLost(task3)
	l.events.PollEnded(engine.PollInfo{TaskInfo: task3, Config: "de", Pages: 1, Messages: 2})
	l.events.PollEnded(engine.PollInfo{TaskInfo: task3, Config: "de", Overrun: true})
	l.events.PollEnded(engine.PollInfo{TaskInfo: failed, Config: "de"})
	l.events.TopicCreated(engine.TopicInfo{Topic: "levels", Partitions: 8})
	l.events.TopicSeeded(engine.TopicInfo{Topic: "levels", Records: 3})
	l.events.Warning(engine.WarningInfo{Pipeline: "tanks", Stage: "alerts", Code: "state.age", Text: "old"})
	l.want(t,
		`level=INFO msg="stage started" stage=tanks/alerts application_id=tanks-alerts`,
		`level=DEBUG msg="task assigned" stage=tanks/alerts task=3`,
		`level=DEBUG msg="offsets fetched" stage=tanks/alerts task=3 offsets="levels/3=42"`,
		`level=INFO msg="task running" stage=tanks/alerts task=3`,
		`level=DEBUG msg="transaction committed" stage=tanks/alerts task=3 records=5 messages=4 changes=2 offsets="levels/3=42"`,
		`level=DEBUG msg="offsets committed" stage=tanks/alerts task=3 records=5 messages=4 changes=2 offsets="levels/3=42"`,
		`level=WARN msg="task restarting" stage=tanks/alerts task=3 took=2s error=boom`,
		`level=WARN msg="task lost" stage=tanks/alerts task=3`,
		`level=DEBUG msg="poll ended" stage=tanks/alerts task=3 config=de pages=1 messages=2`,
		`level=WARN msg="poll took longer than every" stage=tanks/alerts task=3 config=de pages=0 messages=0`,
		`level=ERROR msg="poll failed" stage=tanks/alerts task=3 took=2s error=boom config=de pages=0 messages=0 policy=fail`,
		`level=INFO msg="topic created" topic=levels partitions=8`,
		`level=INFO msg="topic seeded" topic=levels records=3`,
		`level=WARN msg=old code=state.age stage=tanks/alerts`,
	)
}

// A config whose polls fail is told once, with repeats later, and so is that it works again.
func TestLogOfAFailingConfig(t *testing.T) {
	l := newLogTest(slog.LevelInfo)
	failed := engine.PollInfo{TaskInfo: task3, Config: "de", Policy: pipeline.Retry}
	failed.Err = errors.New("no answer")
	for range 3 {
		l.events.PollEnded(failed)
	}
	l.events.PollEnded(engine.PollInfo{TaskInfo: task3, Config: "fr"})
	l.want(t, `level=WARN msg="poll failed" stage=tanks/alerts task=3 error="no answer" config=de pages=0 messages=0 policy=retry`)
	l.clock = l.clock.Add(10 * time.Second)
	l.tick()
	l.want(t, `level=WARN msg="poll failed" stage=tanks/alerts task=3 error="no answer" config=de pages=0 messages=0 policy=retry repeats=2`)
	for range 2 {
		l.events.PollEnded(engine.PollInfo{TaskInfo: task3, Config: "de", Pages: 1, Messages: 5})
	}
	l.want(t, `level=INFO msg="polls succeed again" stage=tanks/alerts task=3 config=de pages=1 messages=5 failed_for=10s`)

	for range 2 {
		l.events.ConfigEnriched(failed)
	}
	l.want(t, `level=WARN msg="enrich failed" stage=tanks/alerts task=3 error="no answer" config=de policy=retry`)
	l.clock = l.clock.Add(10 * time.Second)
	l.tick()
	l.want(t, `level=WARN msg="enrich failed" stage=tanks/alerts task=3 error="no answer" config=de policy=retry repeats=1`)

	// A task that goes takes its configs along.
	l.events.PollEnded(failed)
	l.events.TaskStopped(task3)
	l.lines()
	l.events.PollEnded(engine.PollInfo{TaskInfo: task3, Config: "de"})
	l.want(t)
}

func TestLoggerFormats(t *testing.T) {
	for _, c := range []struct {
		format string
		colour bool
		want   string
	}{
		{"logfmt", false, "level=info msg=\"it is so\" a=1 took=1.5ms\n"},
		{"json", true, `"level":"info","msg":"it is so","a":1,"took":"1.5ms"}` + "\n"},
		{"logfmt", true, green + "info " + plainT + " it is so " + faint + "a=" + plainT + "1 " + faint + "took=" + plainT + "1.5ms\n"},
	} {
		var out bytes.Buffer
		log := newLogger(&out, c.format, slog.LevelInfo, c.colour)
		log.Debug("not this")
		log.With("a", 1).Info("it is so", "took", 1500*time.Microsecond)
		if !strings.HasSuffix(out.String(), c.want) || strings.Contains(out.String(), "not this") {
			t.Errorf("%s, colour %v: %q", c.format, c.colour, out.String())
		}
	}
	var out bytes.Buffer
	newLogger(&out, "logfmt", slog.LevelInfo, true).WithGroup("g").With("a", "b c").Warn("x", slog.Group("h", "i", fmt.Errorf("j")))
	if got := out.String(); !strings.Contains(got, "g.a="+plainT+`"b c"`) || !strings.Contains(got, "g.h.i="+plainT+"j") {
		t.Errorf("%q", got)
	}
}
