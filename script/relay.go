package script

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/dop251/goja"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// NewRelay makes a VM that runs the program once per arrival. It is used by one goroutine at a time.
//
// A relay is a transform of records that did not come from Kafka: the arrivals of a Run are the records of a batch, and the
// cursor is the state of its only key.
//
//  1. A stateful body sees the committed cursor, or what an earlier arrival of the same Run yielded. Its calls never overlap.
//  2. Calls of a body that awaits and has no state overlap, save those of arrivals with the same key.
//  3. Nothing is kept from one Run to the next: the engine may have dropped the page.
func (p *Program) NewRelay(env Env) (stream.Relay, error) {
	if p.kind != Relay {
		return nil, fmt.Errorf("stage %s: a %s script cannot relay", env.Stage, p.kind)
	}
	r := &relay{state: &relaying{}, stateful: p.namesState}
	made, err := p.newTransform(env)
	if err != nil {
		return nil, err
	}
	switch t := made.(type) {
	case *transform:
		t.relaying, t.vm.relaying = r.state, r.state
	case *overlapping:
		t.relaying, t.vm.relaying = r.state, r.state
	}
	r.transform = made
	return r, nil
}

type relay struct {
	transform stream.Transform
	state     *relaying
	stateful  bool
	batch     stream.Batch
	inputs    []stream.Input
}

// relaying is what a relay is at.
type relaying struct {
	in     *stream.Relaying
	config []byte  // the config as JSON
	answer *answer // nil without a response
}

// State implements stream.States: the cursor is the state of the only key that there is.
func (r *relaying) State(string) ([]byte, error) { return r.in.Cursor, nil }

// Run implements stream.Relay.
func (r *relay) Run(ctx context.Context, in *stream.Relaying, page *stream.Page) error {
	if err := r.state.begin(in); err != nil {
		return err
	}
	defer func() {
		*in.Arena = r.batch.Arena
		r.batch.Arena = stream.Arena{}
		r.batch.Messages = nil
		r.batch.Reset()
		clear(r.inputs)
		*r.state = relaying{}
		r.transform.Forget()
	}()
	n := len(in.Arrivals)
	r.inputs = slices.Grow(r.inputs[:0], n)[:n]
	r.batch.Records = slices.Grow(r.batch.Records[:0], n)[:n]
	for i := range in.Arrivals {
		a := &in.Arrivals[i]
		r.inputs[i] = stream.Input{Name: a.Topic, Topic: stream.Topic{Name: a.Topic, Key: stream.String, Value: a.Format}}
		r.batch.Records[i] = stream.Record{
			Input: &r.inputs[i], Timestamp: a.Timestamp, Key: a.Key, Value: a.Value, Headers: a.Headers, Members: a.Members, Kind: a.Kind,
			StateKey: in.Config.Key,
		}
	}
	b := &r.batch
	b.States, b.Configs, b.Fail, b.Arena = nil, in.Configs, in.Fail, *in.Arena
	if r.stateful {
		b.States = r.state
	}
	before := len(page.Messages)
	b.Messages = page.Messages[before:]
	if err := r.transform.Run(ctx, b); err != nil {
		return err
	}
	page.Messages = append(page.Messages[:before], b.Messages...)
	for _, c := range b.Changes {
		page.Cursor, page.Moved = c.Value, true
	}
	return nil
}

// Close implements stream.Relay.
func (r *relay) Close() { r.transform.Close() }

func (r *relaying) begin(in *stream.Relaying) error {
	config, err := objectText("config", in.Config.Key, in.Config.Value)
	if err != nil {
		return err
	}
	*r = relaying{in: in, config: config}
	if from := in.Response; from != nil {
		header := http.Header{}
		for _, h := range from.Headers {
			header.Add(h.Key, string(h.Value))
		}
		elapsed := time.Duration(from.Elapsed) * time.Millisecond
		r.answer = &answer{
			FetchResponse: &FetchResponse{Status: from.Status, Headers: header, URL: from.URL, Shown: from.URL, Elapsed: elapsed},
			body:          from.Body, items: from.Body == nil,
		}
	}
	return nil
}

// beside makes a further argument of a relay's call.
func (v *vm) beside(name string) goja.Value {
	switch {
	case name == "config":
		return v.configObject(v.relaying.in.Config.Key, v.relaying.config)
	case v.relaying.answer != nil:
		return v.response(v.relaying.answer)
	}
	return goja.Null()
}
