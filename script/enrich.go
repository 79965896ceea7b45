package script

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/dop251/goja"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

const enrichHint = "return the completed config: return { ...config, … }"

// NewEnrich makes an Enrich that runs the program once per call. Calls may run at once, each in a VM of its own.
func (p *Program) NewEnrich(env Env) (stream.Enrich, error) {
	if p.kind != Enrich {
		return nil, fmt.Errorf("stage %s: a %s script cannot enrich", env.Stage, p.kind)
	}
	vms, err := newPool(p, env)
	if err != nil {
		return nil, err
	}
	return &enricher{vms, p.digest()}, nil
}

type enricher struct {
	vms    *pool
	digest []byte
}

// digest is of all texts of the user that the program is made of: the body, functions, and the files that they import. What
// this package puts around them does not count.
func (p *Program) digest() []byte {
	all := sha256.New()
	for i := range p.src.parts {
		one := sha256.Sum256([]byte(p.src.parts[i].text.Text))
		all.Write(one[:])
	}
	return all.Sum(nil)
}

// Digest implements stream.Enrich.
func (e *enricher) Digest() []byte { return e.digest }

// Complete implements stream.Enrich.
func (e *enricher) Complete(ctx context.Context, config stream.Config) ([]byte, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	v, err := e.vms.take()
	if err != nil {
		return nil, err
	}
	var completed []byte
	v.complete = func(value goja.Value) { completed = v.encodeObject(value, notAConfig) }
	r := &run{ctx: ctx, poll: &stream.Poll{Config: config}, vm: v}
	err, reusable := r.run()
	v.complete = nil
	if reusable {
		e.vms.give(v)
	}
	if err == nil && completed == nil {
		missing := notAConfig(goja.Undefined())
		err = &Error{code: missing.code, message: missing.message, hint: missing.hint}
	}
	if err != nil {
		return nil, err
	}
	return completed, nil
}

// Close implements stream.Enrich.
func (e *enricher) Close() { e.vms.close() }

func notAConfig(value goja.Value) *refusal {
	return refuse(CodeEnrich, enrichHint, "an enrich returns the completed config, a plain object, and not %s", kindName(value))
}
