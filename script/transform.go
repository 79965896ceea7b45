package script

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dop251/goja"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// NewTransform makes a VM that runs the program once per record. It belongs to one task and is used by one goroutine.
func (p *Program) NewTransform(env Env) (stream.Transform, error) {
	if p.kind != Transform {
		return nil, fmt.Errorf("stage %s: a %s script cannot transform", env.Stage, p.kind)
	}
	t := &transform{program: p, env: env, states: map[string]*stateEntry{}}
	if err := t.renew(); err != nil {
		return nil, err
	}
	return t, nil
}

type transform struct {
	program *Program
	env     Env
	vm      *vm
	batch   *stream.Batch
	states  map[string]*stateEntry
	changed []*stateEntry
	current *stateEntry
	call    atomic.Uint64 // counts the calls; the watchdog reads it
}

// stateEntry is the state of one key within a batch.
type stateEntry struct {
	key     string
	stored  []byte // what the store has
	value   []byte // what was yielded last
	from    int
	touched bool // is in changed
}

// renew replaces the VM.
func (t *transform) renew() error {
	v, err := newVM(t.program, &t.env)
	if err != nil {
		return err
	}
	v.defaultKey = t.defaultKey
	v.defaultTimestamp = func() int64 { return t.batch.Records[v.index].Timestamp }
	v.keep = t.keep
	t.vm = v
	return nil
}

func (t *transform) defaultKey(topic *stream.Topic) []byte {
	record := &t.batch.Records[t.vm.index]
	return t.vm.convertKey(record.Key, record.Input.Key, topic.Key)
}

func (t *transform) keep(state []byte) {
	if t.current == nil {
		t.vm.throw(refuse(CodeState, "", "the stage has no state"))
	}
	t.current.value, t.current.from = state, t.vm.index
	if !t.current.touched {
		t.current.touched = true
		t.changed = append(t.changed, t.current)
	}
}

// Run implements stream.Transform.
func (t *transform) Run(ctx context.Context, batch *stream.Batch) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if t.vm == nil {
		if err := t.renew(); err != nil {
			return err
		}
	}
	t.batch = batch
	t.vm.messages, t.vm.arena = &batch.Messages, &batch.Arena
	stop := t.watch(ctx)
	defer stop()
	for i := range batch.Records {
		if err := t.record(ctx, i); err != nil {
			return err
		}
	}
	t.finish()
	return nil
}

func (t *transform) record(ctx context.Context, i int) error {
	v, batch := t.vm, t.batch
	record := &batch.Records[i]
	v.index = i
	v.messages, v.arena = &batch.Messages, &batch.Arena
	v.values.bigs = v.values.bigs[:0]
	var before stateEntry
	var stateValue goja.Value = goja.Undefined()
	t.current = nil
	if batch.States != nil && t.program.namesState {
		entry, err := t.entry(record.StateKey)
		if err != nil {
			return err
		}
		t.current, before = entry, *entry
		if entry.value == nil {
			stateValue = v.values.decode(v.initial)
		} else {
			stateValue = v.values.decode(entry.value)
		}
	}
	messages := len(batch.Messages)
	t.call.Add(1)
	failed := v.run(func() error {
		result, err := v.handler(goja.Undefined(), v.message(record), stateValue)
		if err != nil {
			return err
		}
		_ = result
		return nil
	})
	if failed == nil {
		return nil
	}
	clear(batch.Messages[messages:])
	batch.Messages = batch.Messages[:messages]
	if t.current != nil {
		touched := t.current.touched
		*t.current = before
		t.current.touched = touched
	}
	if failed.code == CodeTimeout || failed.code == CodeStack {
		t.vm = nil
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := t.renew(); err != nil {
			return err
		}
	}
	if err := batch.Fail(i, failed); err != nil {
		return err
	}
	return nil
}

func (t *transform) entry(key string) (*stateEntry, error) {
	if e := t.states[key]; e != nil {
		return e, nil
	}
	stored, err := t.batch.States.State(key)
	if err != nil {
		return nil, err
	}
	e := &stateEntry{key: key, stored: append([]byte(nil), stored...), value: append([]byte(nil), stored...)}
	if len(stored) == 0 {
		e.stored, e.value = nil, nil
	}
	t.states[key] = e
	return e, nil
}

// finish turns what was yielded last into changes.
func (t *transform) finish() {
	for _, e := range t.changed {
		e.touched = false
		if bytes.Equal(e.value, e.stored) {
			continue
		}
		e.stored = e.value
		change := stream.Change{Key: e.key, From: e.from}
		if e.value != nil {
			change.Value = t.batch.Arena.Copy(e.value)
		}
		t.batch.Changes = append(t.batch.Changes, change)
	}
	clear(t.changed)
	t.changed = t.changed[:0]
	clear(t.states)
}

// watch interrupts a call that runs longer than the timeout, and any call when ctx ends. Instead of a timer per call it
// looks at intervals whether the call is still the one that it saw before.
func (t *transform) watch(ctx context.Context) (stop func()) {
	v := t.vm
	stopCtx := context.AfterFunc(ctx, func() {
		v.rt.Interrupt(&refusal{code: CodeTimeout, message: "the stage is stopping", err: context.Cause(ctx)})
	})
	if t.env.Timeout <= 0 {
		return func() { stopCtx() }
	}
	ticker := time.NewTicker(max(t.env.Timeout/16, time.Millisecond))
	done := make(chan struct{})
	go func() {
		defer ticker.Stop()
		seen, since := t.call.Load(), time.Now()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
			}
			if now := t.call.Load(); now != seen {
				seen, since = now, time.Now()
			} else if time.Since(since) >= t.env.Timeout {
				t.vm.rt.Interrupt(t.vm.overtime())
			}
		}
	}()
	return func() { stopCtx(); close(done) }
}

// Forget implements stream.Transform.
func (t *transform) Forget() {
	clear(t.states)
	clear(t.changed)
	t.changed = t.changed[:0]
}

// Close implements stream.Transform.
func (t *transform) Close() { t.vm = nil }
