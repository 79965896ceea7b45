package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/stream"
	"github.com/flechtwerk/flechtwerk/store"
)

// Engine runs the stages of pipelines in this process.
type Engine struct {
	o         Options
	pipelines []*pipeline.Pipeline

	kafka *kafka // set by Run before stages start
	admin *kgo.Client

	mu     sync.Mutex
	stages []*stage // written by Run, read by Status
	db     *store.DB
	failed error
	cancel context.CancelCauseFunc
}

// New makes an engine; nothing is opened or connected before Run. Handlers for bodies are asked for here, so that an error
// of a body is told before anything starts.
func New(pipelines []*pipeline.Pipeline, o Options) (*Engine, error) {
	o.defaults()
	e := &Engine{o: o, pipelines: pipelines}
	for _, p := range pipelines {
		for _, x := range p.Extractors {
			newStage := newExtractorStage
			if x.MQTT != nil {
				newStage = newPushStage
			}
			s, err := newStage(e, p, x)
			if err != nil {
				return nil, fmt.Errorf("%w: %s/%s: %w", ErrPipeline, p.Name, x.Name, err)
			}
			e.stages = append(e.stages, s)
		}
		for _, t := range p.Transformers {
			s, err := newTransformerStage(e, p, t)
			if err != nil {
				return nil, fmt.Errorf("%w: %s/%s: %w", ErrPipeline, p.Name, t.Name, err)
			}
			e.stages = append(e.stages, s)
		}
	}
	return e, nil
}

// Run runs all stages until ctx is done; then tasks finish what they are at, commit it, leave their groups, and Run returns
// nil. An error of a stage ends all of them in the same way and is returned. What the surroundings lack is told before any
// group is joined and is an ErrSurroundings.
func (e *Engine) Run(ctx context.Context) error {
	run, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	e.mu.Lock()
	e.cancel = cancel
	e.mu.Unlock()

	db, err := store.Open(store.Config{Dir: e.o.State.Dir, Memory: e.o.State.Memory, InMemory: e.o.State.InMemory})
	if err != nil {
		return fmt.Errorf("%w: state.dir %s: %w; give this process a folder of its own that it may write to", ErrSurroundings, e.o.State.Dir, err)
	}
	defer db.Close()
	if aside := db.SetAside(); aside != nil {
		e.o.Events.StoreSetAside(StoreInfo{Path: aside.Path, Err: aside.Cause})
	}
	k, admin, err := connect(run, e.o.Kafka)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer admin.Close()
	e.mu.Lock()
	e.db = db
	e.mu.Unlock()
	e.kafka, e.admin = k, admin
	if err := e.preflight(run); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	var wg sync.WaitGroup
	for _, s := range e.stages {
		wg.Go(func() {
			if err := s.run(run); err != nil {
				e.fail(fmt.Errorf("%s/%s: %w", s.pipeline.Name, s.name, err))
			}
		})
	}
	wg.Wait()
	for _, s := range e.stages {
		s.close()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.db = nil
	return e.failed
}

// fail ends the run with err, if nothing else has failed before.
func (e *Engine) fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failed == nil {
		e.failed = surroundings(err)
	}
	e.cancel(errStopped)
}

var errStopped = errors.New("another stage failed")

// Status tells how far every stage is. Any goroutine may call it at any time.
func (e *Engine) Status() Status {
	out := Status{Ready: true}
	for _, s := range e.stages {
		st := s.status()
		out.Ready = out.Ready && st.Joined
		for _, t := range st.Tasks {
			out.Ready = out.Ready && t.Phase == phaseRunning.String()
		}
		out.Stages = append(out.Stages, st)
	}
	return out
}

// StoreMetrics are the figures of the local store; zero while it is not open.
func (e *Engine) StoreMetrics() store.Metrics {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.db == nil {
		return store.Metrics{}
	}
	return e.db.Metrics()
}

// worker is what a task does once it runs.
type worker interface {
	// begin makes the task ready for work: inputs start at offsets, the store holds the state.
	begin(ctx context.Context, offsets []Offset) error
	// run works until soft is done, and then ends what it is at; hard ends it at once. A nil error means that soft or hard
	// is done.
	run(soft, hard context.Context) error
	// drop forgets whatever was not committed, before the task begins again or ends.
	drop()
	close()
}

// stage is one extractor or transformer of this process.
type stage struct {
	engine   *Engine
	pipeline *pipeline.Pipeline
	name     string
	kind     string // transformer or extractor
	app      string // application id
	info     StageInfo

	topics    []string        // what the group subscribes to: inputs, or the lease (config topics, else the changelog)
	inputs    []*stream.Input // of a transformer
	changelog string          // empty for a stage without state
	tokens    int             // of an extractor
	outputs   []*pipeline.Topic

	configTopics []*pipeline.Topic
	configs      *configs // nil for a transformer without config topics
	health       *health  // of an extractor's configs

	// Learned by preflight, before run.
	partitions      int32
	topicIDs        map[string][16]byte
	deleteRetention int64 // of the changelog, milliseconds
	maxState        int   // the changelog's max.message.bytes

	newWorker func(*task) (worker, error)
	release   func()

	push *pushing // of an extractor whose source tells by itself; it has no group, topics, tokens and workers

	group *group // set by run
	gmu   sync.Mutex
}

// maxMessage is the largest batch of records that a topic takes, in bytes, as far as the stage knows.
func (s *stage) maxMessage(topic string) int32 {
	if topic == s.changelog && s.maxState > 0 {
		return int32(min(max(s.maxState, minBatch), maxBatch))
	}
	for _, out := range s.outputs {
		if out.Name == topic && out.MaxMessage > 0 {
			return int32(min(max(out.MaxMessage, minBatch), maxBatch))
		}
	}
	return defaultBatch
}

func (s *stage) close() {
	if s.release != nil {
		s.release()
	}
}

// run fills the configs, joins the group and works until ctx is done.
func (s *stage) run(ctx context.Context) error {
	if s.configs != nil {
		if err := s.configs.fill(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		follow, stop := context.WithCancel(ctx)
		var following sync.WaitGroup
		defer following.Wait()
		defer stop()
		following.Go(func() {
			if err := s.configs.follow(follow); err != nil {
				s.engine.fail(fmt.Errorf("%s/%s: %w", s.pipeline.Name, s.name, err))
			}
		})
	}
	if s.push != nil {
		return s.told(func() error { return s.push.run(ctx) })
	}
	g, err := newGroup(s)
	if err != nil {
		return err
	}
	s.gmu.Lock()
	s.group = g
	s.gmu.Unlock()
	return s.told(func() error { return g.run(ctx) })
}

// told tells of the begin and the end of the stage's work.
func (s *stage) told(work func() error) error {
	s.engine.o.Events.StageStarted(s.info)
	err := work()
	info := s.info
	info.Err = err
	s.engine.o.Events.StageStopped(info)
	return err
}

func (s *stage) status() StageStatus {
	st := StageStatus{Pipeline: s.pipeline.Name, Stage: s.name, Kind: s.kind}
	s.gmu.Lock()
	g := s.group
	s.gmu.Unlock()
	if g != nil {
		st.Joined, st.Tasks = g.status()
	}
	if s.push != nil {
		s.push.status(&st)
	}
	if s.health != nil {
		st.Polled, st.Configs = s.health.status()
	}
	return st
}
