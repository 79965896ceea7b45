package engine

import (
	"fmt"

	"github.com/flechtwerk/flechtwerk/engine/expr"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// Arrivals is what the expressions of a stage say of what arrives by itself. It is used by one goroutine at a time.
type Arrivals struct {
	x        *pipeline.Extractor
	declared *declared // nil for a stage with a relay
	look     *look
	at       *stream.Arrival
	key      string
	config   []byte
	record   stream.Record
	input    stream.Input
}

func newArrivals(e *Engine, p *pipeline.Pipeline, x *pipeline.Extractor) (*Arrivals, error) {
	look, err := newLook(e, p)
	if err != nil {
		return nil, err
	}
	a := &Arrivals{x: x, look: look}
	if x.Message != nil {
		if a.declared, err = newDeclaration(look, x.Message, x.OutputTopics); err != nil {
			return nil, err
		}
	}
	look.env.Properties = func(yield func(string, []byte) bool) {
		if a.at.Delivery == nil {
			return
		}
		for _, h := range a.at.Delivery.Properties {
			if !yield(h.Key, h.Value) {
				return
			}
		}
	}
	return a, nil
}

// Wants tells whether `filter:` takes a.
func (s *Arrivals) Wants(config stream.Config, a *stream.Arrival) (bool, error) {
	if err := s.point(config, a); err != nil {
		return false, err
	}
	wanted, err := s.x.Filter.Bool(&s.look.env)
	return wanted, s.x.Placed(err)
}

// Message is what `message:` makes of a. Its bytes are on arena.
func (s *Arrivals) Message(config stream.Config, a *stream.Arrival, arena *stream.Arena) (stream.Message, error) {
	if err := s.point(config, a); err != nil {
		return stream.Message{}, err
	}
	m, err := s.declared.make(&s.record, arena)
	return m, s.x.Placed(err)
}

// point lets the expressions see an arrival and its config.
func (s *Arrivals) point(config stream.Config, a *stream.Arrival) error {
	env := &s.look.env
	if s.config == nil || s.key != config.Key || rawjson.View(s.config) != rawjson.View(config.Value) {
		doc, err := expr.NewDoc(config.Value)
		if err != nil {
			return fmt.Errorf("config %s: %w", shortKey(config.Key), err)
		}
		env.Config, env.ConfigKey = doc, config.Key
		s.key, s.config = config.Key, config.Value
	}
	s.at = a
	s.input.Name, s.input.Topic = a.Topic, stream.Topic{Name: a.Topic, Key: stream.String, Value: a.Format}
	s.record = stream.Record{Input: &s.input, Timestamp: a.Timestamp, Key: a.Key, Value: a.Value, Headers: a.Headers, Members: a.Members, Kind: a.Kind}
	s.look.tick()
	s.look.at(&s.record)
	if d := a.Delivery; d != nil {
		env.Levels, env.QoS, env.Retained = d.Levels, int(d.QoS), d.Retained
	}
	return nil
}
