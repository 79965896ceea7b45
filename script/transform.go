package script

import (
	"context"
	"fmt"
	"slices"
	"sync"
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
	return p.newTransform(env)
}

// newTransform makes what runs a body over the records of a batch.
func (p *Program) newTransform(env Env) (stream.Transform, error) {
	t := &transform{program: p, env: env}
	t.states = states{entries: map[string]*stateEntry{}, budget: env.StateCache}
	if t.states.budget == 0 {
		t.states.budget = defaultStateCache
	}
	if p.async {
		return p.newOverlapping(env, t.states)
	}
	if err := t.renew(); err != nil {
		return nil, err
	}
	t.states.initial = t.states.own(t.vm.initial)
	t.states.lent = p.namesState && p.lendsState
	return t, nil
}

// transform runs a batch in one call into the VM: a small loop in JavaScript asks for the next record and calls the
// body. A body that throws ends the loop; Run takes back what the record yielded, asks what to do, and starts the loop again
// behind that record.
type transform struct {
	program *Program
	env     Env
	vm      *vm // nil after an interrupt, until the next is made
	loop    func() error
	lent    bool // the loop passes one state object to all calls
	// relaying is what a relay is at; nil for records.
	relaying *relaying
	states   states

	batch *stream.Batch
	// The record under way: its place, the messages before it, and its state.
	record   int
	messages int
	entry    *stateEntry
	failure  error // of the store: ends Run
	calls    calls
}

// calls tells the watchdog which call runs: a number that grows with each call, times two, plus one while it runs.
type calls struct{ atomic.Uint64 }

// loop is the JavaScript that runs a batch: next answers the first argument of the body, and undefined at the end. A state that
// is lent is always the same object; next fills it.
func (p *Program) loop(lent bool) *goja.Program {
	args := "first"
	if p.flat && p.readsKey {
		args += ", key()"
	}
	for i, name := range p.further {
		switch {
		case name == "state" && lent:
			args += ", state"
		case name != "":
			args += ", " + name + "()"
		case slices.ContainsFunc(p.further[i:], func(name string) bool { return name != "" }):
			args += ", void 0"
		}
	}
	return goja.MustCompile("loop", `(function(next, key, state, config, response, body) {
	for (let first; (first = next()) !== void 0;) body(`+args+`);
})`, true)
}

// renew replaces the VM.
func (t *transform) renew() error {
	v, err := newVM(t.program, &t.env)
	if err != nil {
		return err
	}
	v.relaying = t.relaying
	v.defaultKey = func(topic *stream.Topic) []byte { return v.recordKeyFor(&t.batch.Records[t.record], topic) }
	v.defaultTimestamp = func() int64 { return t.batch.Records[t.record].Timestamp }
	v.keep = t.keep
	t.vm, t.states.vm, t.loop = v, v, nil
	return nil
}

// begin makes the loop.
func (t *transform) begin(lent bool) {
	v := t.vm
	state := v.native("state", 0, t.state)
	if lent {
		state = v.values.again(&v.values.state, &text{}, nil)
	}
	loop, err := v.rt.RunProgram(t.program.loop(lent))
	must(err)
	run, _ := goja.AssertFunction(loop)
	args := []goja.Value{v.native("next", 0, t.next), v.native("key", 0, t.key), state,
		v.native("config", 0, t.config), v.native("response", 0, t.response), v.handler}
	t.lent = lent
	t.loop = func() error {
		return contained(func() error {
			_, err := run(goja.Undefined(), args...)
			return err
		})
	}
}

// Run implements stream.Transform.
func (t *transform) Run(ctx context.Context, batch *stream.Batch) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := t.run(ctx, batch); err != nil {
		// The engine drops the batch; what was yielded in it must not be seen by the next.
		t.states.forget()
		return err
	}
	t.states.finish(batch)
	return nil
}

// take makes a batch the one that the VM works on.
func (v *vm) take(ctx context.Context, batch *stream.Batch) {
	v.ctx, v.records = ctx, batch.Records
	v.messages, v.arena, v.configs = &batch.Messages, &batch.Arena, batch.Configs
}

func (t *transform) run(ctx context.Context, batch *stream.Batch) error {
	t.batch, t.record, t.failure = batch, -1, nil
	for {
		if t.vm == nil {
			if err := t.renew(); err != nil {
				return err
			}
		}
		v := t.vm
		v.take(ctx, batch)
		if lent := t.states.lent && batch.States != nil && !v.values.plain; t.loop == nil || t.lent != lent {
			t.begin(lent)
		}
		stop := watch(ctx, v, &t.calls, 0)
		err := t.loop()
		if err == nil {
			stop()
			return t.failure
		}
		failed := v.failure(err)
		stop()
		t.calls.Store(t.calls.Load() &^ 1)
		t.undo()
		stopped := interruption(err)
		if stopped != nil || failed.spoilt() || v.spent {
			t.vm = nil
		} else {
			v.calm()
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if stopped != nil && stopped.call != t.calls.Load()>>1 {
			t.record-- // meant for the call before: this one runs again
			continue
		}
		if again := batch.Again; again != nil {
			if err := rest(ctx, again, again.Failed(t.record, failed)); err != nil {
				return err
			}
			t.record--
			continue
		}
		if err := batch.Fail(t.record, failed); err != nil {
			return err
		}
	}
}

// rest waits until a record may run again.
func rest(ctx context.Context, again *stream.Again, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-again.Stop:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return again.Resume()
}

// next begins the next record and answers its msg, or msg.value, or undefined at the end of the batch.
func (t *transform) next(goja.FunctionCall) goja.Value {
	v := t.vm
	for {
		t.record++
		if t.record >= len(t.batch.Records) && !t.more() {
			return goja.Undefined()
		}
		if !v.passes(&t.batch.Records[t.record]) {
			break
		}
	}
	v.index = t.record
	v.values.begin()
	t.messages = len(t.batch.Messages)
	record := &t.batch.Records[t.record]
	if t.entry = nil; t.program.namesState && t.batch.States != nil {
		if t.entry, t.failure = t.states.entry(t.batch.States, record.StateKey); t.failure != nil {
			return goja.Undefined()
		}
		if t.lent {
			t.states.value(t.entry)
		}
	}
	t.calls.Store((t.calls.Load()>>1+1)<<1 | 1)
	switch {
	case !t.program.flat:
		return v.msg(record)
	case t.program.readsValue:
		return v.recordValue(record)
	default:
		return goja.Null()
	}
}

// more asks for further records.
func (t *transform) more() (more bool) {
	if t.batch.More == nil {
		return false
	}
	more, t.failure = t.batch.More()
	return more
}

// Releases implements stream.Releasing. A value that the body cannot get hold of is one object for all records, and a copy of
// it has members of its own (lazy.derive).
func (t *transform) Releases() bool {
	return t.program.flat && (t.program.lendsValue || !t.program.readsValue)
}

// Gradual implements stream.Gradual.
func (t *transform) Gradual() {}

// key answers the key of the record under way.
func (t *transform) key(goja.FunctionCall) goja.Value {
	return t.vm.recordKey(&t.batch.Records[t.record])
}

// state answers the state of the record under way.
func (t *transform) state(goja.FunctionCall) goja.Value {
	if t.entry == nil {
		return goja.Undefined()
	}
	return t.states.value(t.entry)
}

// config and response answer those of a relay.
func (t *transform) config(goja.FunctionCall) goja.Value   { return t.vm.beside("config") }
func (t *transform) response(goja.FunctionCall) goja.Value { return t.vm.beside("response") }

func (t *transform) keep(value goja.Value) {
	if t.entry == nil {
		t.vm.throw(refuse(CodeState, "", "the stage has no state"))
	}
	t.states.keep(t.entry, value, t.record)
}

// undo takes back what the record under way yielded.
func (t *transform) undo() {
	clear(t.batch.Messages[t.messages:])
	t.batch.Messages = t.batch.Messages[:t.messages]
	if t.entry != nil {
		t.entry.undo(t.record)
	}
}

// watch interrupts a call that runs longer than the timeout, and any call grace after ctx has ended. Instead of setting a timer for each
// call it looks at intervals whether the call is still the one that it saw before.
func watch(ctx context.Context, v *vm, calls *calls, grace time.Duration) (stop func()) {
	var ending interrupter
	ending.vm = v
	stopCtx := context.AfterFunc(ctx, func() {
		if grace == 0 {
			v.interrupt(stopping(context.Cause(ctx)))
		} else {
			ending.after(grace, stopping(context.Cause(ctx)))
		}
	})
	stopHeap := watchHeap(v, calls)
	timeout := v.env.Timeout
	if timeout <= 0 {
		return func() {
			stopCtx()
			stopHeap()
			ending.end()
		}
	}
	w := &watchdog{vm: v, calls: calls, timeout: timeout, since: time.Now()}
	w.interval = max(timeout/16, time.Millisecond)
	w.mu.Lock()
	w.timer = time.AfterFunc(w.interval, w.look)
	w.mu.Unlock()
	return func() {
		stopCtx()
		stopHeap()
		ending.end()
		w.mu.Lock()
		w.stopped = true
		w.timer.Stop()
		w.mu.Unlock()
	}
}

// stopping is what a VM is interrupted with when its stage ends.
func stopping(cause error) *refusal {
	return &refusal{code: CodeTimeout, message: "the stage is stopping", err: cause}
}

type watchdog struct {
	vm                *vm
	calls             *calls
	timeout, interval time.Duration

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
	seen    uint64
	since   time.Time
}

func (w *watchdog) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	if now := w.calls.Load(); now != w.seen || now&1 == 0 {
		w.seen, w.since = now, time.Now()
	} else if time.Since(w.since) >= w.timeout {
		reason := w.vm.overtime()
		reason.call = now >> 1
		w.vm.interrupt(reason)
		return
	}
	w.timer.Reset(w.interval)
}

// Forget implements stream.Transform.
func (t *transform) Forget() { t.states.forget() }

// Close implements stream.Transform.
func (t *transform) Close() {
	t.states.forget()
	t.vm, t.loop = nil, nil
}
