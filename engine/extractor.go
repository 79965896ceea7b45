package engine

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/expr"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

func newExtractorStage(e *Engine, p *pipeline.Pipeline, x *pipeline.Extractor) (*stage, error) {
	source, err := e.o.Handlers.Source(p, x)
	if err != nil {
		return nil, err
	}
	s := &stage{engine: e, pipeline: p, name: x.Name, kind: "extractor", app: x.ApplicationID, tokens: x.Tokens, outputs: x.OutputTopics,
		changelog: changelogTopic(x.ApplicationID), release: source.Close, health: newHealth()}
	s.info = StageInfo{Pipeline: p.Name, Stage: x.Name, ApplicationID: s.app}
	// The lease: membership in the group decides who polls. Its records are never read.
	s.topics = []string{s.changelog}
	if len(x.ConfigTopics) > 0 {
		s.topics = nil
		for _, t := range x.ConfigTopics {
			s.topics = append(s.topics, t.Name)
		}
		s.configTopics = x.ConfigTopics
	}
	completes, err := newEnrichment(e, p, x)
	if err != nil {
		source.Close()
		return nil, err
	}
	if completes != nil {
		s.release = func() { source.Close(); completes.Close() }
	}
	s.configs = &configs{s: s, spec: x.Config, where: x.Where, topics: x.ConfigTopics, inline: x.Configs, policy: x.OnInvalid}
	if err := s.configs.start(); err != nil {
		return nil, err
	}
	room := newPlaces(cmp.Or(x.Workers, pipeline.DefaultWorkers))
	s.newWorker = func(t *task) (worker, error) {
		return &polls{pages: pages{task: t}, spec: x, source: source, enrich: completes, room: room, failed: make(chan error, 1)}, nil
	}
	return s, nil
}

// polls is an extractor's work for one token: each config of the token is polled by a goroutine of its own, side by side with
// at most workers polls under way in the process; their pages are committed one after another, since the token has one
// transactional id.
type polls struct {
	spec   *pipeline.Extractor
	source stream.Source
	enrich *enrichment // nil where configs are polled as they are
	room   *places     // shared by the stage's tasks
	failed chan error  // the first error of this round

	pages
}

func (w *polls) begin(context.Context, []Offset) error {
	w.reset()
	return nil
}

func (w *polls) drop() { w.failed = make(chan error, 1) }

func (w *polls) close() {}

// errPollCancelled is what a poll sees when its token goes away.
var errPollCancelled = errors.New("the poll was cancelled: the task is stopping")

// run polls until soft is done. A poll that runs then is cancelled: what it has committed stays, the open page does not
// (P7). A page that is being committed is finished.
func (w *polls) run(soft, hard context.Context) error {
	round, cancel := context.WithCancelCause(soft)
	defer cancel(nil)
	var polling sync.WaitGroup
	under := map[string]bool{} // configs with a goroutine
	ended := make(chan string)
	for round.Err() == nil {
		set, changed := w.task.g.s.configs.now()
		for _, key := range set.Keys() {
			if under[key] || Token(key, int(w.task.g.s.partitions)) != w.task.partition || !active(set.Get(key)) {
				continue
			}
			under[key] = true
			polling.Go(func() {
				if err := w.poll(round, hard, key); err != nil {
					select {
					case w.failed <- err:
					default:
					}
					cancel(errPollCancelled)
				}
				select {
				case ended <- key:
				case <-round.Done():
				}
			})
		}
		select {
		case <-round.Done():
		case <-changed:
		case key := <-ended:
			delete(under, key)
		}
	}
	polling.Wait()
	for key := range under {
		w.task.g.s.health.forget(key)
	}
	select {
	case err := <-w.failed:
		return err
	default:
		return nil
	}
}

// active tells whether a config is to be polled: it is there and not suspended (P5).
func active(config []byte) bool {
	if config == nil {
		return false
	}
	return string(rawjson.Find(config, rawjson.Members(config, nil), "suspended")) != "true"
}

// poll polls one config until it is gone or suspended. What changes in it counts from the next poll on.
func (w *polls) poll(round, hard context.Context, key string) error {
	c := &cycle{w: w, key: key, health: w.task.g.s.health}
	c.health.ok(key)
	defer c.health.forget(key)
	if err := c.start(); err != nil {
		return err
	}
	for {
		set, changed := w.task.g.s.configs.now()
		config := set.Get(key)
		if !active(config) {
			return nil
		}
		c.renew(config)
		again, err := c.next(round, hard, config, changed)
		if round.Err() != nil && !fatal(err) {
			return nil
		}
		if again {
			continue
		}
		if err := c.judge(err); err != nil {
			return err
		}
	}
}

// next waits for the next poll and polls. It answers again, and no error, where the configs have changed meanwhile: the config,
// and when it is due, may be others now.
func (c *cycle) next(round, hard context.Context, raw []byte, changed <-chan struct{}) (again bool, err error) {
	if !c.retry.IsZero() {
		if again := wait(round, c.retry, changed); again || round.Err() != nil {
			return again, nil
		}
	}
	config, err := c.complete(round, hard, raw)
	if err != nil {
		return false, err
	}
	if !active(config) {
		select {
		case <-round.Done():
		case <-changed:
		}
		return true, nil
	}
	due, err := c.due(config)
	if err != nil {
		return false, c.ended(PollInfo{TaskInfo: c.w.task.info, Config: c.key}, err)
	}
	if again := wait(round, due, changed); again || round.Err() != nil {
		return again, nil
	}
	return c.run(round, hard)
}

// cycle is the polling of one config, poll after poll.
type cycle struct {
	w      *polls
	key    string
	health *health
	env    expr.Env

	began    time.Time // of the last poll; zero before the first
	assigned time.Time
	failures int
	retry    time.Time // not before, after a failure; zero after a success
	config   []byte    // as it was written, at the last poll
	full     completed // the config as it is polled
}

// renew ends the wait of a config that failed and has been changed since: it may well be mended.
func (c *cycle) renew(config []byte) {
	if !c.retry.IsZero() && !bytes.Equal(c.config, config) {
		c.retry = time.Now()
	}
	c.config = config
}

func (c *cycle) start() error {
	vars, err := expr.NewDoc(c.w.task.g.s.pipeline.Vars)
	if err != nil {
		return fmt.Errorf("vars: %w", err)
	}
	c.env.Vars, c.env.ConfigKey = vars, c.key
	c.assigned = time.Now()
	return nil
}

// due is when the next poll begins: every counts from the start of the last one (P6).
func (c *cycle) due(config []byte) (time.Time, error) {
	if !c.retry.IsZero() {
		return c.retry, nil
	}
	x := c.w.spec
	if x.Schedule != nil {
		after := c.began
		if after.IsZero() {
			after = c.assigned
		}
		return x.Schedule.Next(after), nil
	}
	every, err := c.every(config)
	if err != nil {
		return time.Time{}, err
	}
	if c.began.IsZero() {
		return c.assigned.Add(jitter(c.key, every)), nil
	}
	return c.began.Add(every), nil
}

// every is the config's period.
func (c *cycle) every(config []byte) (time.Duration, error) {
	x := c.w.spec
	if x.EveryExpr == nil {
		return x.Every, nil
	}
	every, err := c.evaluate(config)
	if err != nil {
		return 0, &periodError{err}
	}
	return every, nil
}

// periodError is why nobody knows when a config is polled next.
type periodError struct{ err error }

func (e *periodError) Error() string { return e.err.Error() }
func (e *periodError) Unwrap() error { return e.err }

// noPeriodPause is how long on_error: skip waits for a config whose every fails. It may hang on the time or the state, so that
// asking again is of use.
const noPeriodPause = 10 * time.Second

func (c *cycle) evaluate(config []byte) (time.Duration, error) {
	x := c.w.spec
	cursor, err := c.w.cursor(c.key)
	if err != nil {
		return 0, err
	}
	if c.env.Config, err = expr.NewDoc(config); err != nil {
		return 0, err
	}
	if cursor == nil {
		cursor = []byte(cmp.Or(string(x.Initial), "{}"))
	}
	if c.env.State, err = expr.NewDoc(cursor); err != nil {
		return 0, err
	}
	c.env.Now = c.w.task.g.s.engine.o.Now().UnixMilli()
	every, err := x.Period(&c.env)
	return every, x.Placed(err)
}

// maxJitter bounds how long the first poll of a config may be put off so that configs do not all start at once.
const maxJitter = 10 * time.Second

// jitter is the same for a config at every start: a tenth of every, at most, by the config's key. A lone config under the
// default key has none.
func jitter(key string, every time.Duration) time.Duration {
	window := min(every/10, maxJitter)
	if window <= 0 || key == defaultConfig {
		return 0
	}
	// A hash that spreads keys which differ in one letter, as those of configs do.
	sum := sha256.Sum256([]byte(key))
	return time.Duration(binary.BigEndian.Uint64(sum[:8]) % uint64(window))
}

// defaultConfig is the key of the config of an extractor without configs.
const defaultConfig = "default"

// judge is the on_error policy for what became of a poll. What it answers ends the round.
func (c *cycle) judge(err error) error {
	if err == nil {
		c.failures, c.retry = 0, time.Time{}
		c.health.ok(c.key)
		return nil
	}
	if commit := (*commitError)(nil); errors.As(err, &commit) {
		return commit.err
	}
	if c.began.IsZero() {
		c.began = time.Now()
	}
	x := c.w.spec
	switch x.OnError {
	case pipeline.Retry:
		c.retry = time.Now().Add(growing(x.Retry, c.failures))
		c.failures++
		c.health.failed(c.key, ConfigBackingOff, err, c.failures)
		return nil
	case pipeline.Skip:
		c.failures++
		c.retry = time.Time{}
		if period := (*periodError)(nil); errors.As(err, &period) {
			c.retry = time.Now().Add(noPeriodPause)
		}
		if enrich := (*enrichError)(nil); errors.As(err, &enrich) {
			c.retry = c.afterEnrich(time.Now())
		}
		c.health.failed(c.key, ConfigFailed, err, c.failures)
		return nil
	default:
		return &fatalError{fmt.Errorf("config %s: %w", shortKey(c.key), err)}
	}
}

// run is one poll. It waits for a place among the workers first; the config is what it is then. It answers again, having
// polled nothing, where the config has changed and must be completed anew.
func (c *cycle) run(round, hard context.Context) (again bool, err error) {
	w := c.w
	place := w.room.take(round)
	if place == nil {
		return true, nil
	}
	defer place.leave()
	t := w.task
	set, _ := t.g.s.configs.now()
	raw := set.Get(c.key)
	config := stream.Config{Key: c.key, Value: raw}
	if w.enrich != nil {
		config.Value = c.full.config
	}
	if !active(raw) || w.enrich != nil && !bytes.Equal(raw, c.full.raw) {
		return true, nil
	}
	c.config, c.began = raw, time.Now()
	info := PollInfo{TaskInfo: t.info, Config: c.key}
	t.events().PollStarted(info)
	every, err := c.every(config.Value)
	if err != nil {
		return false, c.ended(info, err)
	}
	cursor, err := w.cursor(c.key)
	if err != nil {
		return false, c.ended(info, fmt.Errorf("read the cursor: %w", err))
	}
	var refused error // why a topic does not take a page
	poll := &stream.Poll{Config: config, Cursor: cursor, Configs: set}
	poll.Commit = func(ctx context.Context, page *stream.Page) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if refused != nil {
			return refused
		}
		place.rest()
		wrote, err := w.commit(hard, c.key, page)
		place.work(round)
		if r := (*pageError)(nil); errors.As(err, &r) {
			refused = r.err
			return refused
		}
		if err != nil {
			return &commitError{err}
		}
		if wrote {
			info.Pages++
			info.Messages += len(page.Messages)
		}
		if round.Err() != nil {
			return context.Cause(round)
		}
		return nil
	}
	err = w.source.Poll(round, poll)
	if refused != nil {
		err = refused
	}
	if doubt := w.doubted(); doubt != nil {
		err = &commitError{doubt} // whatever the source made of it
	}
	info.Duration = time.Since(c.began)
	if s := w.spec.Schedule; s != nil {
		info.Overrun = s.Next(c.began).Before(time.Now())
	} else {
		info.Overrun = info.Duration > every
	}
	if commit := (*commitError)(nil); err != nil && round.Err() != nil && !errors.As(err, &commit) {
		err = nil
	}
	return false, c.ended(info, err)
}

// ended tells how a poll ended, also one that could not even begin.
func (c *cycle) ended(info PollInfo, err error) error {
	info.Err, info.Policy = err, c.w.spec.OnError
	c.w.task.events().PollEnded(info)
	return err
}
