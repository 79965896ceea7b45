package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/script"
)

// logPeriod is how often a restore tells how far it is, and for how long repeats of a line are gathered.
const logPeriod = 10 * time.Second

// eventLog writes the engine's events as lines. What repeats is summed up:
//
//  1. The first line of a kind is written at once and opens a period.
//  2. Its repeats within the period are counted; at the end of the period one line tells how many there were, with the
//     keys of the last.
//  3. A period without repeats closes, and 1 applies again.
type eventLog struct {
	log *slog.Logger
	now func() time.Time

	mu       sync.Mutex
	repeats  map[string]*repeat
	failing  map[string]time.Time // by config: since when its polls fail
	restores map[string]*restoreLine
}

type repeat struct {
	level slog.Level
	text  string
	last  []any
	count int
	since time.Time
}

type restoreLine struct {
	info         engine.RestoreInfo
	start, shown time.Time
}

func newEventLog(log *slog.Logger, now func() time.Time) *eventLog {
	return &eventLog{log: log, now: now, repeats: map[string]*repeat{}, failing: map[string]time.Time{}, restores: map[string]*restoreLine{}}
}

// Run tells repeats and restores until ctx is done, and then what is left of them.
func (l *eventLog) Run(ctx context.Context) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			l.flush()
			return nil
		case <-ticker.C:
			l.tick()
		}
	}
}

// Events is what the engine calls.
func (l *eventLog) Events() engine.Events {
	stopped := l.task(slog.LevelDebug, "task stopped")
	return engine.Events{
		StageStarted: func(i engine.StageInfo) {
			l.log.Info("stage started", "stage", i.String(), "application_id", i.ApplicationID)
		},
		StageStopped: func(i engine.StageInfo) {
			if i.Err != nil {
				l.log.Error("stage failed", "stage", i.String(), "error", message(i.Err))
				return
			}
			l.log.Info("stage stopped", "stage", i.String())
		},
		TaskAssigned: l.task(slog.LevelDebug, "task assigned"),
		TaskFenced:   l.task(slog.LevelDebug, "task fenced"),
		OffsetsFetched: func(i engine.OffsetsInfo) {
			l.log.Debug("offsets fetched", append(taskKeys(i.TaskInfo), "offsets", offsets(i.Offsets))...)
		},
		TakeoverWritten: l.task(slog.LevelDebug, "takeover written"),
		RestoreProgress: l.restore,
		TaskRunning:     l.task(slog.LevelInfo, "task running"),
		TaskRevoked:     l.task(slog.LevelInfo, "task revoked"),
		TaskLost:        l.task(slog.LevelWarn, "task lost"),
		TaskStopped: func(i engine.TaskInfo) {
			l.mu.Lock()
			maps.DeleteFunc(l.failing, func(name string, _ time.Time) bool { return strings.HasPrefix(name, i.String()+"/") })
			l.mu.Unlock()
			stopped(i)
		},
		TaskRestarting: func(i engine.TaskInfo) {
			l.repeated(slog.LevelWarn, "restart "+i.String(), "task restarting", taskKeys(i))
		},
		TransactionCommitted: l.transaction(slog.LevelDebug, "transaction committed"),
		TransactionAborted:   l.transaction(slog.LevelWarn, "transaction aborted"),
		OffsetsCommitted:     l.transaction(slog.LevelDebug, "offsets committed"),
		RecordInvalid:        l.record("record invalid"),
		RecordFailed:         l.record("record failed"),
		PollEnded:            l.poll,
		ConfigEnriched:       l.enriched,
		TopicCreated: func(i engine.TopicInfo) {
			l.log.Info("topic created", "topic", i.Topic, "partitions", i.Partitions)
		},
		TopicSeeded: func(i engine.TopicInfo) {
			l.log.Info("topic seeded", "topic", i.Topic, "records", i.Records)
		},
		StoreSetAside: func(i engine.StoreInfo) {
			l.log.Warn("state store could not be read and was set aside; state is restored from the changelogs", "path", i.Path, "error", i.Err)
		},
		Warning: func(i engine.WarningInfo) {
			keys := []any{"code", i.Code}
			if i.Stage != "" {
				keys = append(keys, "stage", i.Pipeline+"/"+i.Stage)
			}
			l.repeated(slog.LevelWarn, "warning "+i.Pipeline+i.Stage+i.Code, i.Text, keys)
		},
	}
}

func (l *eventLog) task(level slog.Level, text string) func(engine.TaskInfo) {
	return func(i engine.TaskInfo) {
		if l.log.Enabled(context.Background(), level) {
			l.log.Log(context.Background(), level, text, taskKeys(i)...)
		}
	}
}

func (l *eventLog) transaction(level slog.Level, text string) func(engine.TransactionInfo) {
	return func(i engine.TransactionInfo) {
		if !l.log.Enabled(context.Background(), level) {
			return
		}
		keys := taskKeys(i.TaskInfo)
		switch len(i.Configs) {
		case 0:
		case 1:
			keys = append(keys, "config", i.Configs[0])
		default:
			keys = append(keys, "configs", strings.Join(i.Configs, ","))
		}
		keys = append(keys, "records", i.Records, "messages", i.Messages, "changes", i.Changes)
		if len(i.Offsets) > 0 {
			keys = append(keys, "offsets", offsets(i.Offsets))
		}
		if level >= slog.LevelWarn {
			l.repeated(level, text+i.TaskInfo.String(), text, keys)
			return
		}
		l.log.Log(context.Background(), level, text, keys...)
	}
}

func (l *eventLog) record(text string) func(engine.RecordInfo) {
	return func(i engine.RecordInfo) {
		level, outcome := slog.LevelWarn, i.Policy.String()
		if i.Policy == pipeline.Fail {
			level = slog.LevelError
		}
		keys := append(taskKeys(i.TaskInfo), "topic", i.Topic, "partition", i.Partition, "offset", i.Offset, "policy", outcome)
		l.repeated(level, fmt.Sprint(text, i.Pipeline, "/", i.Stage, i.Topic, outcome), text, keys)
	}
}

// poll tells of polls that fail, of the first one that succeeds again, and of those that take too long.
func (l *eventLog) poll(i engine.PollInfo) {
	name := i.TaskInfo.String() + "/" + i.Config
	l.mu.Lock()
	since, failing := l.failing[name]
	switch {
	case i.Err == nil:
		delete(l.failing, name)
	case !failing:
		l.failing[name] = l.now()
	}
	l.mu.Unlock()
	keys := append(taskKeys(i.TaskInfo), "config", i.Config, "pages", i.Pages, "messages", i.Messages)
	switch {
	case i.Err != nil && i.Policy == pipeline.Fail:
		l.log.Error("poll failed", append(keys, "policy", i.Policy.String())...)
	case i.Err != nil:
		l.repeated(slog.LevelWarn, "poll "+name, "poll failed", append(keys, "policy", i.Policy.String()))
	case failing:
		l.log.Info("polls succeed again", append(keys, "failed_for", l.now().Sub(since))...)
	case i.Overrun:
		l.repeated(slog.LevelWarn, "overrun "+name, "poll took longer than every", keys)
	default:
		l.log.Debug("poll ended", keys...)
	}
}

// enriched tells of runs of enrich.
func (l *eventLog) enriched(i engine.PollInfo) {
	keys := append(taskKeys(i.TaskInfo), "config", i.Config)
	switch {
	case i.Err == nil:
		l.log.Debug("config enriched", keys...)
	case i.Policy == pipeline.Fail:
		l.log.Error("enrich failed", append(keys, "policy", i.Policy.String())...)
	default:
		l.repeated(slog.LevelWarn, "enrich "+i.TaskInfo.String()+"/"+i.Config, "enrich failed", append(keys, "policy", i.Policy.String()))
	}
}

// restore keeps the newest news of a restore for tick, and tells its end.
func (l *eventLog) restore(i engine.RestoreInfo) {
	name := i.TaskInfo.String()
	l.mu.Lock()
	line := l.restores[name]
	if line == nil {
		line = &restoreLine{start: l.now(), shown: l.now()}
		l.restores[name] = line
	}
	line.info = i
	if i.Done {
		delete(l.restores, name)
	}
	l.mu.Unlock()
	if i.Done {
		// One that took no time is of interest to nobody.
		level := slog.LevelDebug
		if l.now().Sub(line.start) >= time.Second {
			level = slog.LevelInfo
		}
		i.Duration = l.now().Sub(line.start)
		l.log.Log(context.Background(), level, "state restored", append(taskKeys(i.TaskInfo), "records", i.Records)...)
	}
}

func (l *eventLog) repeated(level slog.Level, name, text string, keys []any) {
	l.mu.Lock()
	r := l.repeats[name]
	first := r == nil
	if first {
		r = &repeat{since: l.now()}
		l.repeats[name] = r
	} else {
		r.count++
	}
	r.level, r.text, r.last = level, text, keys
	l.mu.Unlock()
	if first {
		l.log.Log(context.Background(), level, text, keys...)
	}
}

// tick tells what is due.
func (l *eventLog) tick() {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range sorted(l.restores) {
		if r := l.restores[name]; now.Sub(r.shown) >= logPeriod {
			r.shown = now
			l.log.Info("restoring state", restoreKeys(r.info, now.Sub(r.start))...)
		}
	}
	for _, name := range sorted(l.repeats) {
		r := l.repeats[name]
		if now.Sub(r.since) < logPeriod {
			continue
		}
		if r.count == 0 {
			delete(l.repeats, name)
			continue
		}
		l.tell(r)
		r.count, r.since = 0, now
	}
}

func (l *eventLog) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range sorted(l.repeats) {
		if r := l.repeats[name]; r.count > 0 {
			l.tell(r)
		}
		delete(l.repeats, name)
	}
}

func (l *eventLog) tell(r *repeat) {
	l.log.Log(context.Background(), r.level, r.text, append(slices.Clone(r.last), "repeats", r.count)...)
}

func restoreKeys(i engine.RestoreInfo, took time.Duration) []any {
	i.Duration = took
	keys := append(taskKeys(i.TaskInfo), "records", i.Records)
	done, all := i.Next-i.From, i.End-i.From
	if all <= 0 || done <= 0 || took <= 0 {
		return keys
	}
	perSecond := float64(done) / took.Seconds()
	left := time.Duration(float64(all-done) / perSecond * float64(time.Second))
	return append(keys, "percent", done*100/all, "offsets_per_second", int64(perSecond), "left", left.Round(time.Second))
}

func taskKeys(i engine.TaskInfo) []any {
	keys := []any{"stage", i.Pipeline + "/" + i.Stage, "task", i.Task}
	if i.Duration > 0 {
		keys = append(keys, "took", i.Duration)
	}
	if i.Err != nil {
		keys = append(append(keys, "error", i.Err), scriptKeys(i.Err)...)
	}
	return keys
}

// scriptKeys is what a script's error has beside its message.
func scriptKeys(err error) (keys []any) {
	var failed *script.Error
	if !errors.As(err, &failed) {
		return nil
	}
	keys = append(keys, "code", failed.Code())
	if code := failed.ThrownCode(); code != "" {
		keys = append(keys, "thrown_code", code)
	}
	if causes := failed.Causes(); len(causes) > 0 {
		keys = append(keys, "causes", strings.Join(causes, "; "))
	}
	if stack := failed.Stack(); len(stack) > 1 {
		keys = append(keys, "stack", strings.Join(stack, "; "))
	}
	return keys
}

func offsets(all []engine.Offset) string {
	var text []byte
	for i, o := range all {
		if i > 0 {
			text = append(text, ' ')
		}
		text = append(text, o.String()...)
	}
	return string(text)
}

func sorted[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
