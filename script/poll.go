package script

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dop251/goja"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// NewSource makes a Source that runs the program once per poll. Polls may run at once: each has a VM of its own, which a
// later poll may take over.
func (p *Program) NewSource(env Env) (stream.Source, error) {
	if p.kind != Poll {
		return nil, fmt.Errorf("stage %s: a %s script cannot poll", env.Stage, p.kind)
	}
	vms, err := newPool(p, env)
	if err != nil {
		return nil, err
	}
	return &pollSource{vms}, nil
}

type pollSource struct{ vms *pool }

// pool are VMs of a program that are not at work.
type pool struct {
	program *Program
	env     Env

	mu     sync.Mutex
	spare  []*vm
	closed bool
}

// newPool makes the first VM, to find out whether it can be made.
func newPool(p *Program, env Env) (*pool, error) {
	s := &pool{program: p, env: env}
	v, err := newVM(p, &s.env)
	if err != nil {
		return nil, err
	}
	s.spare = append(s.spare, v)
	return s, nil
}

func (s *pool) take() (*vm, error) {
	s.mu.Lock()
	if n := len(s.spare); n > 0 {
		v := s.spare[n-1]
		s.spare = s.spare[:n-1]
		s.mu.Unlock()
		return v, nil
	}
	s.mu.Unlock()
	return newVM(s.program, &s.env)
}

func (s *pool) give(v *vm) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.spare = append(s.spare, v)
	}
}

func (s *pool) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spare, s.closed = nil, true
}

// Poll implements stream.Source.
func (s *pollSource) Poll(ctx context.Context, poll *stream.Poll) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	v, err := s.vms.take()
	if err != nil {
		return err
	}
	r := &run{ctx: ctx, poll: poll, vm: v}
	err, reusable := r.run()
	if reusable {
		s.vms.give(v)
	}
	return err
}

// Close implements stream.Source.
func (s *pollSource) Close() { s.vms.close() }

// run is one poll under way.
type run struct {
	ctx   context.Context
	poll  *stream.Poll
	vm    *vm
	arena stream.Arena
	page  stream.Page
	// cursor is the committed state.
	cursor []byte
	// over is the sentinel once the poll is to end, and err why.
	over *goja.Object
	err  error
	stop interrupter
	// pause stops the clock of the timeout; resume sets it anew.
	pause func()
	calls calls // for the watch over memory; a call here is what runs without a break
}

// interrupter interrupts a VM after a while, unless it is told in time not to: what fires late must not hit the next poll.
type interrupter struct {
	vm *vm

	// fired, if not nil, is told that the VM was interrupted, once: it may be waiting.
	fired chan *refusal

	mu    sync.Mutex
	armed map[*time.Timer]bool
	done  bool
}

func (i *interrupter) after(d time.Duration, reason *refusal) (cancel func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.armed[timer] && !i.done {
			i.vm.interrupt(reason)
			if i.fired != nil {
				i.fired <- reason
			}
			i.done = true
		}
	})
	if i.armed == nil {
		i.armed = map[*time.Timer]bool{}
	}
	i.armed[timer] = true
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		timer.Stop()
		delete(i.armed, timer)
	}
}

func (i *interrupter) end() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.done = true
	for timer := range i.armed {
		timer.Stop()
	}
}

// defaultGrace is how long a cancelled poll may take to end.
const defaultGrace = time.Second

func grace(env *Env) time.Duration {
	if env.Grace > 0 {
		return env.Grace
	}
	return defaultGrace
}

func (r *run) run() (err error, reusable bool) {
	v := r.vm
	v.ctx = r.ctx
	v.messages, v.arena, v.index = &r.page.Messages, &r.arena, 0
	v.configs = r.poll.Configs
	v.values.begin()
	v.proceed, v.keep = r.proceed, r.boundary
	v.defaultTimestamp = v.now
	v.defaultKey = func(topic *stream.Topic) []byte {
		return v.convertKey([]byte(r.poll.Config.Key), stream.String, topic.Key)
	}
	if r.cursor = r.poll.Cursor; len(r.cursor) == 0 {
		r.cursor = nil
	}
	state := v.initial
	if r.cursor != nil {
		state = r.cursor
	}
	config, err := v.config(&r.poll.Config)
	if err != nil {
		return err, true
	}
	r.stop.vm = v
	if v.program.async {
		r.stop.fired = make(chan *refusal, 1)
	}
	stopCtx := context.AfterFunc(r.ctx, func() {
		r.stop.after(grace(v.env), stopping(context.Cause(r.ctx)))
	})
	defer stopCtx()
	r.resume()
	defer watchHeap(v, &r.calls)()
	body, _ := goja.AssertFunction(v.handler)
	var failed *Error
	var thrown error
	if args := []goja.Value{config, v.values.decode(trim(state))}; v.program.async {
		failed, thrown = r.overlap(body, args)
	} else {
		r.calls.Add(1)
		thrown = contained(func() error {
			_, err := body(goja.Undefined(), args...)
			return err
		})
	}
	if thrown != nil {
		failed = v.failure(thrown)
	}
	r.pause()
	r.stop.end()
	v.calm()
	interrupted := interruption(thrown) != nil || failed != nil && failed.code == CodeTimeout
	reusable = !interrupted && !v.spent && (failed == nil || !failed.spoilt())
	switch {
	case r.err != nil:
		return r.err, reusable
	case failed != nil && interrupted && context.Cause(r.ctx) != nil:
		return context.Cause(r.ctx), false
	case failed != nil:
		return failed, reusable
	case len(r.page.Messages) > 0:
		return r.commit(), true
	}
	return nil, true
}

// overlap runs a body that awaits. Its error is one that no script can catch.
func (r *run) overlap(body goja.Callable, args []goja.Value) (*Error, error) {
	v := r.vm
	v.loop = newLoop()
	c := &turn{site: -1, parent: r.ctx, origins: v.values.origins}
	defer v.loop.drain()
	defer c.drop()
	enter := func(f func() error) error {
		r.calls.Add(1)
		defer r.calls.Add(1)
		return f()
	}
	err := enter(func() error {
		return v.slice(c, func() error {
			answer, err := body(goja.Undefined(), args...)
			if err == nil {
				c.promise = answer.Export().(*goja.Promise)
			}
			return err
		})
	})
	for err == nil {
		done, failed := v.outcome(c)
		if done {
			if c.promise.State() == goja.PromiseStatePending || len(c.operations) > 0 {
				if r.over == nil {
					r.over = v.sentinel(failed)
				}
				err = v.end(c, r.over)
			}
			return failed, err
		}
		select {
		case <-v.loop.signal:
			for _, p := range v.loop.take() {
				if err == nil {
					err = enter(func() error { return v.deliver(p) })
				}
			}
		case <-r.ctx.Done():
			if r.over == nil {
				r.end(context.Cause(r.ctx))
			}
			return nil, v.end(c, r.over)
		case reason := <-r.stop.fired:
			return v.at(c, reason), nil
		}
	}
	return nil, err
}

func (r *run) resume() {
	r.pause = func() {}
	if t := r.vm.env.Timeout; t > 0 {
		r.pause = r.stop.after(t, r.vm.overtime())
	}
}

// proceed throws the sentinel in a poll that is to end.
func (r *run) proceed() {
	if r.over == nil {
		err := context.Cause(r.ctx)
		if err == nil {
			return
		}
		r.end(err)
	}
	panic(r.over)
}

func (r *run) end(err error) {
	r.err = err
	r.over = r.vm.rt.NewGoError(&ended{err})
}

// boundary takes a yielded state: what came before it commits with it before the script goes on.
func (r *run) boundary(value goja.Value) {
	state := r.vm.encodeState(value)
	if bytes.Equal(state, r.cursor) && len(r.page.Messages) == 0 {
		return
	}
	if !bytes.Equal(state, r.cursor) {
		r.page.Moved, r.page.Cursor = true, state
	}
	r.pause()
	r.calls.Add(1)
	err := r.commit()
	r.calls.Add(1)
	if err == nil {
		err = context.Cause(r.ctx)
	}
	if err != nil {
		r.end(err)
		panic(r.over)
	}
	r.resume()
}

func (r *run) commit() error {
	if err := r.poll.Commit(r.ctx, &r.page); err != nil {
		return err
	}
	if r.page.Moved {
		r.cursor = r.page.Cursor
	}
	clear(r.page.Messages)
	r.page.Messages, r.page.Cursor, r.page.Moved = r.page.Messages[:0], nil, false
	r.arena.Reset()
	return nil
}

// config makes the object config.
func (v *vm) config(c *stream.Config) (goja.Value, error) {
	raw, err := objectText("config", c.Key, c.Value)
	if err != nil {
		return nil, err
	}
	return v.configObject(c.Key, raw), nil
}

func (v *vm) configObject(key string, raw []byte) goja.Value {
	o := v.values.ordinary(trim(raw))
	must(o.DefineDataProperty("$key", v.rt.ToValue(key), goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))
	return o
}
