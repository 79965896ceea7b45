package main

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/stream"
	"github.com/flechtwerk/flechtwerk/script"
)

// bodies are the compiled scripts of a Set.
type bodies struct {
	programs map[*pipeline.Body]*script.Program
	clients  *clients
}

// compile compiles the body of every stage. A body with problems is left out.
func compile(set *pipeline.Set) (*bodies, pipeline.Problems) {
	stages := set.Scripted()
	longest := pipeline.TransformTimeout
	for _, s := range stages {
		if s.Extractor != nil {
			longest = max(longest, s.Extractor.Timeout)
		} else {
			longest = max(longest, s.Transformer.Timeout)
		}
	}
	script.LimitMatches(longest)
	programs := make([]*script.Program, len(stages))
	found := make([]pipeline.Problems, len(stages))
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(stages)) {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(stages)); i = next.Add(1) - 1 {
				programs[i], found[i] = compileBody(set, stages[i])
			}
		})
	}
	workers.Wait()
	b := &bodies{programs: map[*pipeline.Body]*script.Program{}, clients: newClients()}
	var problems pipeline.Problems
	for i, s := range stages {
		problems = append(problems, found[i]...)
		if programs[i] != nil {
			b.programs[s.Body()] = programs[i]
		}
	}
	return b, problems
}

// kinds are the kinds of scripts by their keys in the file.
var kinds = map[string]script.Kind{"transform": script.Transform, "poll": script.Poll, "relay": script.Relay, "enrich": script.Enrich}

func compileBody(set *pipeline.Set, s pipeline.Stage) (*script.Program, pipeline.Problems) {
	body := s.Body()
	program, err := script.Compile(script.Source{
		Kind: kinds[s.Key], Body: body.Text, Module: body.Module, Push: s.Extractor != nil && s.Extractor.MQTT != nil, Functions: s.Pipeline.Functions,
		Vars: s.Pipeline.Vars, Outputs: s.Outputs(), Protobuf: s.Pipeline.Protobuf, Read: set.Script,
	})
	if err == nil {
		return program, nil
	}
	var wrong script.Problems
	if !errors.As(err, &wrong) {
		wrong = script.Problems{{File: body.File, Line: body.Line, Column: body.Column, Code: "script.compile", Message: err.Error()}}
	}
	problems := make(pipeline.Problems, len(wrong))
	for i, w := range wrong {
		problems[i] = pipeline.Problem{File: w.File, Line: w.Line, Column: w.Column, Severity: pipeline.Error, Code: w.Code, Message: w.Message, Hint: w.Hint}
	}
	return nil, problems
}

// facts is what pipeline.Set.CheckScripts asks for.
func (b *bodies) facts(s pipeline.Stage) (pipeline.Facts, bool) {
	program := b.programs[s.Body()]
	if program == nil {
		return pipeline.Facts{}, false
	}
	return pipeline.Facts{YieldsMessage: program.YieldsMessage(), NamesState: program.NamesState(), NamesConfigs: program.NamesConfigs(), NamesProtobuf: program.NamesProtobuf()}, true
}

// wiring is what stages are wired to.
type wiring struct {
	now          func() time.Time
	log          *slog.Logger
	lines        *eventLog
	metrics      *Metrics
	batchRecords int // of one transaction, at most
	batchBytes   int
	// subscribed is told when the session of a stage has subscribed.
	subscribed func(stage string)
}

// handlers is the table from what a stage says to what runs it.
func (b *bodies) handlers(w wiring) engine.Handlers {
	now, log, metrics := w.now, w.log, w.metrics
	return engine.Handlers{
		Transform: func(p *pipeline.Pipeline, t *pipeline.Transformer) (engine.Body, error) {
			program := b.programs[&t.Transform]
			if program == nil {
				return engine.Body{}, errors.New("the stage has no transform")
			}
			env, err := b.env(p, t.Name, t.OutputTopics, t.Initial, t.Timeout, now, log, metrics)
			if err != nil {
				return engine.Body{}, err
			}
			env.Concurrency = t.Concurrency
			return engine.Body{
				New:      func() (stream.Transform, error) { return program.NewTransform(env) },
				Stateful: program.NamesState(),
			}, nil
		},
		Source: func(p *pipeline.Pipeline, x *pipeline.Extractor) (stream.Source, error) {
			if x.HTTP != nil {
				return b.poller(p, x, w)
			}
			program := b.programs[&x.Poll]
			if program == nil {
				return nil, errors.New("the stage has no poll")
			}
			env, err := b.env(p, x.Name, x.OutputTopics, x.Initial, x.Timeout, now, log, metrics)
			if err != nil {
				return nil, err
			}
			return program.NewSource(env)
		},
		Session: func(p *pipeline.Pipeline, x *pipeline.Extractor, instance string, arrivals *engine.Arrivals) (stream.Session, error) {
			return b.session(p, x, instance, arrivals, w)
		},
		Enrich: func(p *pipeline.Pipeline, x *pipeline.Extractor) (stream.Enrich, error) {
			program := b.programs[&x.Enrich]
			if program == nil {
				return nil, errors.New("the stage has no enrich")
			}
			env, err := b.env(p, x.Name, nil, nil, x.Timeout, now, log, metrics)
			if err != nil {
				return nil, err
			}
			return program.NewEnrich(env)
		},
	}
}

// env is what a stage's script runs in, with the fetch of its pipeline.
func (b *bodies) env(p *pipeline.Pipeline, stage string, outputs []*pipeline.Topic, initial []byte, timeout time.Duration, now func() time.Time, log *slog.Logger, metrics *Metrics) (script.Env, error) {
	client, err := b.clients.of(p)
	if err != nil {
		return script.Env{}, err
	}
	env := scriptEnv(p, stage, outputs, initial, timeout, now, log, metrics)
	env.Fetch = fetcher(client, p.Fetch.MaxRedirects > 0)
	return env, nil
}

func scriptEnv(p *pipeline.Pipeline, stage string, outputs []*pipeline.Topic, initial []byte, timeout time.Duration, now func() time.Time, log *slog.Logger, metrics *Metrics) script.Env {
	env := script.Env{Stage: p.Name + "/" + stage, Vars: p.Vars, Initial: initial, Timeout: timeout, Now: now}
	for _, t := range outputs {
		env.Outputs = append(env.Outputs, &t.Topic)
	}
	log = log.With("stage", env.Stage)
	env.Console = func(level, text string) {
		log.Log(context.Background(), levels[level], text)
	}
	env.Log = func(level, text string, fields []script.Field) {
		attrs := make([]slog.Attr, len(fields))
		for i, f := range fields {
			attrs[i] = slog.Any(f.Name, f.Value)
		}
		// In a group, so that no name of a script meets one of the log's own.
		log.LogAttrs(context.Background(), levels[level], text, slog.Attr{Key: "fields", Value: slog.GroupValue(attrs...)})
	}
	env.Count = metrics.ScriptCounts(p.Name, stage)
	env.Memory = script.NewMemory()
	return env
}
