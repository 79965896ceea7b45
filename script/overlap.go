package script

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dop251/goja"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// DefaultConcurrency is how many records of a batch a body that awaits may have begun at once.
const DefaultConcurrency = 64

// overlapping is a transform whose body awaits. Records of different keys overlap, those of one key never do.
//
//  1. Records begin in their order, except that one whose key is busy waits for its predecessor, without taking a place.
//     Records without a key have no predecessor.
//  2. A record that fails takes back what it alone yielded. The engine is asked about failures in the order of the records,
//     once all before it are done, so that what it does does not depend on how long they took. Where failed records run again,
//     it is told at once, and their key stays busy; nothing begins until the pause is over.
//  3. Messages lie in the order of the records when all are done.
//  4. When a VM has to be replaced, what was under way in it, save the call to blame, begins again in the next.
type overlapping struct {
	program *Program
	env     Env
	limit   int
	// relaying is what a relay is at; nil for records.
	relaying *relaying
	vm       *vm // nil after an interrupt, until the next is made
	body     goja.Callable
	args     []goja.Value // of a worker
	loop     *loop
	states   states
	calls    calls
	spare    []map[*goja.Object]*origin
	idle     *turn // one that is over, and that nobody refers to

	// The batch under way.
	ctx     context.Context
	batch   *stream.Batch
	next    int              // the first record that was not looked at
	ready   []int            // records that may begin before next: their key has become free, or their VM went away
	waiting map[string][]int // by busy key, save that of the call under way: the records that wait for it
	running []*turn
	settled []bool
	failed  map[int]*Error
	asked   int       // records before it are settled, and their failures known to the engine
	pause   time.Time // before it no record begins; zero without a pause

	// The worker under way.
	begun   bool  // it was made for a record that it has not asked for
	onward  bool  // when a record is over, the next would begin
	failure error // ends the batch
}

func (p *Program) newOverlapping(env Env, s states) (*overlapping, error) {
	t := &overlapping{program: p, env: env, limit: env.Concurrency, states: s, loop: newLoop(), waiting: map[string][]int{}, failed: map[int]*Error{}}
	if t.limit <= 0 {
		t.limit = DefaultConcurrency
	}
	if err := t.renew(); err != nil {
		return nil, err
	}
	t.states.initial = t.states.own(t.vm.initial)
	return t, nil
}

// renew replaces the VM.
func (t *overlapping) renew() error {
	v, err := newVM(t.program, &t.env)
	if err != nil {
		return err
	}
	t.adopt(v)
	return nil
}

// adopt makes v the VM, which has loaded the program.
func (t *overlapping) adopt(v *vm) {
	v.loop = t.loop
	v.relaying = t.relaying
	v.defaultKey = func(topic *stream.Topic) []byte { return v.recordKeyFor(&t.batch.Records[v.index], topic) }
	v.defaultTimestamp = func() int64 { return t.batch.Records[v.index].Timestamp }
	v.proceed = func() {
		if v.turn != nil && v.turn.over != nil {
			panic(v.turn.over)
		}
	}
	v.keep = func(value goja.Value) {
		c := v.turn
		if c == nil || c.entry == nil {
			v.throw(refuse(CodeState, "", "the stage has no state"))
		}
		t.states.keep(c.entry, value, c.record)
	}
	t.body, _ = goja.AssertFunction(v.handler)
	t.vm, t.states.vm = v, v
	if t.program.loops {
		t.args = t.natives()
	}
}

// Run implements stream.Transform.
func (t *overlapping) Run(ctx context.Context, batch *stream.Batch) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	n := len(batch.Records)
	t.ctx, t.batch, t.next, t.asked = ctx, batch, 0, 0
	t.ready, t.running = t.ready[:0], t.running[:0]
	t.begun, t.failure, t.pause = false, nil, time.Time{}
	clear(t.waiting)
	clear(t.failed)
	t.settled = slices.Grow(t.settled[:0], n)[:n]
	clear(t.settled)
	err := t.run()
	if err != nil {
		t.stop(err)
	}
	t.loop.drain()
	t.ctx, t.batch, t.idle = nil, nil, nil
	if err != nil {
		t.states.forget()
		return err
	}
	from := func(a, b stream.Message) int { return cmp.Compare(a.From, b.From) }
	if !slices.IsSortedFunc(batch.Messages, from) {
		slices.SortStableFunc(batch.Messages, from)
	}
	t.states.finish(batch)
	return nil
}

func (t *overlapping) run() error {
	for {
		stop, err := t.guard()
		if err != nil {
			return err
		}
		err = t.work()
		stop()
		var gone *interrupted
		switch {
		case err == nil:
			return nil
		case !errors.As(err, &gone):
			return err
		}
		if err := t.recover(gone); err != nil {
			return err
		}
	}
}

// guard makes a VM if there is none, and watches it.
func (t *overlapping) guard() (stop func(), err error) {
	if t.vm == nil {
		if err := t.renew(); err != nil {
			return nil, err
		}
	}
	v := t.vm
	v.ctx = t.ctx
	v.records = t.batch.Records
	v.messages, v.arena, v.configs = &t.batch.Messages, &t.batch.Arena, t.batch.Configs
	return watch(t.ctx, v, &t.calls, grace(&t.env)), nil
}

// interrupted is the error of a slice that was interrupted or nested too deep: the VM must go.
type interrupted struct {
	turn *turn
	err  error
}

func (i *interrupted) Error() string { return i.err.Error() }

// recover settles the call that an interrupt was meant for and lets all others that were under way begin again.
func (t *overlapping) recover(gone *interrupted) error {
	failed := t.vm.failure(gone.err)
	reason := interruption(gone.err)
	t.vm = nil
	if err := context.Cause(t.ctx); err != nil {
		return err
	}
	if reason != nil && reason.call != t.calls.Load()>>1 {
		gone.turn = nil // meant for a slice before
	}
	again := slices.Clone(t.running)
	for _, c := range again {
		c.drop()
		if c == gone.turn {
			if err := t.finish(c, failed); err != nil {
				return err
			}
			continue
		}
		t.retreat(c)
	}
	return nil
}

// retreat lets the record of a call begin again. Its key stays busy.
func (t *overlapping) retreat(c *turn) {
	t.hold(c)
	t.leave(c)
	t.undo(c)
	at, _ := slices.BinarySearch(t.ready, c.record)
	t.ready = slices.Insert(t.ready, at, c.record)
}

// work runs until all records are settled.
func (t *overlapping) work() error {
	for {
		for len(t.running) < t.limit && t.pause.IsZero() {
			i, ok := t.take()
			if !ok {
				break
			}
			if err := t.begin(i); err != nil {
				return err
			}
			if t.ctx.Err() != nil {
				return context.Cause(t.ctx)
			}
		}
		if len(t.running) == 0 && t.pause.IsZero() {
			return nil
		}
		if err := t.wait(); err != nil {
			return err
		}
		list := t.loop.take()
		for i, p := range list {
			if p.operation.turn.dropped {
				continue
			}
			t.onward = i == len(list)-1
			if err := t.enter(func() error { return t.vm.deliver(p) }); err != nil {
				return err
			}
			if err := t.look(t.vm.last); err != nil {
				return err
			}
		}
	}
}

// take answers the next record that may begin.
func (t *overlapping) take() (int, bool) {
	if len(t.ready) > 0 {
		i := t.ready[0]
		t.ready = t.ready[1:]
		return i, true
	}
	for t.next < len(t.batch.Records) {
		i := t.next
		t.next++
		if t.vm.passes(&t.batch.Records[i]) {
			t.settled[i] = true
			continue
		}
		if len(t.waiting) == 0 {
			return i, true
		}
		key, ok := t.key(i)
		if !ok {
			return i, true
		}
		waiting, busy := t.waiting[key]
		if !busy {
			return i, true
		}
		t.waiting[key] = append(waiting, i)
	}
	return 0, false
}

// key is what records must not overlap in: the state key, or in stages without state the key of the record, if it has one.
// It is valid as long as the batch is.
func (t *overlapping) key(i int) (string, bool) {
	record := &t.batch.Records[i]
	if t.batch.States != nil {
		return record.StateKey, true
	}
	return rawjson.View(record.Key), record.Key != nil
}

// wait returns when a result is there, or a pause is over. Calls whose time is up end here.
func (t *overlapping) wait() error {
	var up, rested <-chan time.Time
	var stop <-chan struct{}
	if t.env.Timeout > 0 && len(t.running) > 0 {
		timer := time.NewTimer(time.Until(t.oldest().Add(t.env.Timeout)))
		defer timer.Stop()
		up = timer.C
	}
	if !t.pause.IsZero() {
		timer := time.NewTimer(time.Until(t.pause))
		defer timer.Stop()
		rested, stop = timer.C, t.batch.Again.Stop
	}
	select {
	case <-t.loop.signal:
	case <-t.ctx.Done():
		return context.Cause(t.ctx)
	case <-up:
	case <-rested:
		return t.resume()
	case <-stop:
		return t.resume()
	}
	if t.env.Timeout > 0 {
		for _, c := range slices.Clone(t.running) {
			// An answer that came in time counts, however long others have kept it waiting.
			if end := c.began.Add(t.env.Timeout); !time.Now().Before(end) && !t.loop.answered(c, end) {
				c.drop()
				if err := t.finish(c, t.vm.at(c, t.vm.overtime())); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (t *overlapping) resume() error {
	t.pause = time.Time{}
	return t.batch.Again.Resume()
}

func (t *overlapping) oldest() time.Time {
	oldest := t.running[0].began
	for _, c := range t.running[1:] {
		if c.began.Before(oldest) {
			oldest = c.began
		}
	}
	return oldest
}

// begin runs the first slice of a record's call.
func (t *overlapping) begin(i int) error {
	v := t.vm
	c, err := t.open(i)
	if err != nil {
		return err
	}
	t.begun, t.onward = t.program.loops, t.program.loops
	if err := t.enter(func() error {
		return v.slice(c, func() error {
			args := t.args
			if !t.program.loops {
				args = t.arguments(c, &t.batch.Records[i])
			}
			answer, err := t.body(goja.Undefined(), args...)
			if c := v.turn; err == nil && c != nil {
				c.promise = answer.Export().(*goja.Promise)
			}
			return err
		})
	}); err != nil {
		return err
	}
	return t.look(v.last)
}

// open makes the call of a record.
func (t *overlapping) open(i int) (*turn, error) {
	c := t.idle
	if t.idle = nil; c == nil {
		c = &turn{}
	}
	*c = turn{record: i, site: -1, parent: t.ctx, bigs: c.bigs[:0]}
	c.key, c.keyed = t.key(i)
	if len(t.waiting) > 0 && c.keyed {
		_, c.held = t.waiting[c.key]
	}
	if t.program.namesState && t.batch.States != nil {
		var err error
		if c.entry, err = t.states.entry(t.batch.States, t.batch.Records[i].StateKey); err != nil {
			return nil, err
		}
	}
	if n := len(t.spare); n > 0 {
		c.origins, t.spare = t.spare[n-1], t.spare[:n-1]
	} else {
		c.origins = map[*goja.Object]*origin{}
	}
	t.running = append(t.running, c)
	if t.env.Timeout > 0 {
		c.began = time.Now()
	}
	return c, nil
}

// hold makes the key of a call busy.
func (t *overlapping) hold(c *turn) {
	if c.keyed && !c.held {
		c.held = true
		t.waiting[c.key] = nil
	}
}

func (t *overlapping) arguments(c *turn, record *stream.Record) []goja.Value {
	v, p := t.vm, t.program
	args := append(make([]goja.Value, 0, 5), t.first(record))
	if p.flat && p.readsKey {
		args = append(args, v.recordKey(record))
	}
	for _, name := range p.further {
		switch {
		case name == "":
			args = append(args, goja.Undefined())
		case name != "state":
			args = append(args, v.beside(name))
		case c.entry != nil:
			args = append(args, t.states.value(c.entry))
		}
	}
	return args
}

// first is the body's first argument.
func (t *overlapping) first(record *stream.Record) goja.Value {
	switch {
	case !t.program.flat:
		return t.vm.msg(record)
	case t.program.readsValue:
		return t.vm.recordValue(record)
	default:
		return goja.Null()
	}
}

// enter runs a slice under the eyes of the watchdog.
func (t *overlapping) enter(slice func() error) error {
	t.calls.Store((t.calls.Load()>>1+1)<<1 | 1)
	t.vm.last = nil
	err := slice()
	t.calls.Store(t.calls.Load() &^ 1)
	if err != nil {
		return &interrupted{t.vm.last, err}
	}
	err, t.failure = t.failure, nil
	return err
}

// look settles the call that a slice ended in, if it is over.
func (t *overlapping) look(c *turn) error {
	if c == nil || c.promise == nil || c.dropped {
		return nil
	}
	done, failed := t.vm.outcome(c)
	if !done {
		t.hold(c)
		return nil
	}
	if t.vm.spent {
		return &interrupted{c, failed}
	}
	if c.promise.State() == goja.PromiseStatePending || len(c.operations) > 0 {
		over := t.vm.sentinel(failed)
		if err := t.enter(func() error { return t.vm.end(c, over) }); err != nil {
			return err
		}
	}
	return t.finish(c, failed)
}

// leave takes a call out of those that run.
func (t *overlapping) leave(c *turn) {
	c.drop()
	i := slices.Index(t.running, c)
	t.running = slices.Delete(t.running, i, i+1)
	if len(c.origins) > 0 {
		clear(c.origins)
	}
	t.spare = append(t.spare, c.origins)
	if c.ctx == nil && !c.reacted {
		t.idle = c // it began no operation
	}
}

// finish settles a record, or lets it begin again.
func (t *overlapping) finish(c *turn, failed *Error) error {
	if again := t.batch.Again; again != nil && failed != nil {
		t.retreat(c)
		if until := time.Now().Add(again.Failed(c.record, failed)); until.After(t.pause) {
			t.pause = until
		}
		return nil
	}
	t.leave(c)
	if failed != nil {
		t.undo(c)
		t.failed[c.record] = failed
	}
	t.settled[c.record] = true
	if c.held {
		if waiting := t.waiting[c.key]; len(waiting) > 0 {
			t.waiting[c.key] = waiting[1:]
			t.ready = append(t.ready, waiting[0])
		} else {
			delete(t.waiting, c.key)
		}
	}
	for ; t.asked < len(t.settled) && t.settled[t.asked]; t.asked++ {
		if failed := t.failed[t.asked]; failed != nil {
			if err := t.batch.Fail(t.asked, failed); err != nil {
				return err
			}
		}
	}
	return nil
}

// undo takes back what a call yielded.
func (t *overlapping) undo(c *turn) {
	t.batch.Messages = slices.DeleteFunc(t.batch.Messages, func(m stream.Message) bool { return m.From == c.record })
	if c.entry != nil {
		c.entry.undo(c.record)
	}
}

// stop lets what is under way run its finally blocks when the batch is given up.
func (t *overlapping) stop(cause error) {
	v := t.vm
	if v == nil {
		for _, c := range t.running {
			c.drop()
		}
		return
	}
	stop := watch(context.WithoutCancel(t.ctx), v, &t.calls, 0)
	defer stop()
	ending := time.AfterFunc(grace(&t.env), func() { v.interrupt(stopping(cause)) })
	defer ending.Stop()
	for _, c := range slices.Clone(t.running) {
		if t.vm == nil || c.promise == nil {
			c.drop()
			continue
		}
		over := v.rt.NewGoError(&ended{cause})
		if err := t.enter(func() error { return v.end(c, over) }); err != nil {
			t.vm = nil
		}
	}
	t.running = t.running[:0]
}

// Forget implements stream.Transform.
func (t *overlapping) Forget() { t.states.forget() }

// Close implements stream.Transform.
func (t *overlapping) Close() {
	t.states.forget()
	t.vm, t.body = nil, nil
}
