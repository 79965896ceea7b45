package script

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/dop251/goja"
)

// Bodies that await run in calls that overlap in one VM. What they wait for runs outside, on goroutines of its own, and comes
// back through the loop, which only the goroutine of the VM works off.
//
//  1. A slice is one entry into the VM: the begin of a call, or the result of one operation. It runs until no promise job is
//     left. Calls share no promise, so everything that runs in a slice belongs to the call that it was begun for, and that
//     call is under way (vm.turn) from begin to end of the slice. When it is over, and no promise job is left of it, another
//     call may begin in the same slice and take its place.
//  2. What a slice leaves waits for operations of its own call. So a call whose promise is pending, and that has no operation
//     under way, will never end.
//  3. To end a call is to reject what it waits for with the sentinel, which no catch clause takes; to drop it is to let it
//     wait for ever, so that nothing of it runs any more.
//  4. A call is over when its body is. What a Promise.race, any or all that is settled has left under way ends with it; any other
//     operation is one that the body forgot to await.
//  5. Nobody leaves while an operation of his is under way: the loop is drained first.

// turn is one run of a body that awaits.
type turn struct {
	record  int
	entry   *stateEntry
	key     string
	keyed   bool
	held    bool // the key is busy
	promise *goja.Promise
	// over is the sentinel once the call is to end.
	over    *goja.Object
	dropped bool

	operations []*operation
	executors  []goja.Callable // the reject functions of promises that the script made
	unhandled  []*goja.Promise // rejected, and nobody looked
	site       int             // where it awaited last, as an offset of the joined text
	threw      goja.Value      // what was thrown last, or a promise was rejected with,
	threwAt    int             // and where, as such an offset
	landings   []func()        // of what it computes for memo
	combined   []combined      // what was given to Promise.race, any and all, and had not settled at the last of them
	reacted    bool            // an asynchronous function awaited, or something was given to a then: more may run than the body
	origins    map[*goja.Object]*origin
	bigs       []string

	began   time.Time
	parent  context.Context
	ctx     context.Context // of operations; made with the first
	release context.CancelFunc
}

// combined is a promise that was given to Promise.race, any or all, and the promise that came of it.
type combined struct{ promise, of *goja.Promise }

// leaves tells whether something is under way that does not matter any more.
func (c *turn) leaves() bool {
	return slices.ContainsFunc(c.combined, func(p combined) bool {
		return p.promise.State() == goja.PromiseStatePending && p.of.State() != goja.PromiseStatePending
	})
}

// context ends when the turn does.
func (c *turn) context() context.Context {
	if c.ctx == nil {
		c.ctx, c.release = context.WithCancel(c.parent)
	}
	return c.ctx
}

func (c *turn) cancel() {
	if c.release != nil {
		c.release()
	}
}

// operation is something that a call waits for.
type operation struct {
	turn            *turn
	resolve, reject func(any) error
	name            string
	stack           []goja.StackFrame // where it began
}

// settle makes the result of an operation, on the goroutine of the VM. What it throws rejects the promise.
type settle func() (goja.Value, error)

type posting struct {
	operation *operation
	settle    settle
	at        time.Time
}

// loop brings results to the goroutine of the VM.
type loop struct {
	signal chan struct{} // has room for one
	away   int           // operations that have not been taken; of the VM's goroutine
	taken  []posting     // what was answered last; of the VM's goroutine

	mu     sync.Mutex
	posted []posting
}

func newLoop() *loop { return &loop{signal: make(chan struct{}, 1)} }

func (l *loop) post(p posting) {
	p.at = time.Now()
	l.mu.Lock()
	l.posted = append(l.posted, p)
	l.mu.Unlock()
	select {
	case l.signal <- struct{}{}:
	default:
	}
}

// take answers what was posted since it was asked last. It is valid until it is asked again.
func (l *loop) take() []posting {
	clear(l.taken)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.posted, l.taken = l.taken[:0], l.posted
	l.away -= len(l.taken)
	return l.taken
}

// answered tells whether something was posted to a call before end that was not taken yet.
func (l *loop) answered(c *turn, end time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.posted, func(p posting) bool { return p.operation.turn == c && p.at.Before(end) })
}

// drain waits until no operation is under way and drops the results.
func (l *loop) drain() {
	for l.take(); l.away > 0; l.take() {
		<-l.signal
	}
}

// outside runs work on a goroutine of its own and answers a promise of what settle makes of it. ctx ends with the call.
func (v *vm) outside(name string, work func(ctx context.Context) settle) goja.Value {
	c := v.turn
	if c == nil {
		v.throw(refuse(CodeError, "call it in a body", "%s works only while a body runs", name))
	}
	v.proceed()
	promise, resolve, reject := v.rt.NewPromise()
	o := &operation{turn: c, resolve: resolve, reject: reject, name: name, stack: v.rt.CaptureCallStack(0, nil)}
	c.operations = append(c.operations, o)
	l, ctx := v.loop, c.context()
	l.away++
	go func() { l.post(posting{operation: o, settle: work(ctx)}) }()
	return v.rt.ToValue(promise)
}

// slice enters the VM for a call. Its error is one that no script can catch. Afterwards v.last is the call that the slice ended
// in, since a worker may have begun others.
func (v *vm) slice(c *turn, f func() error) error {
	v.work(c)
	err := contained(f)
	if v.last = v.turn; v.last != nil {
		v.last.bigs = v.values.bigs
	}
	v.turn = nil
	return err
}

// work makes a call the one that is under way.
func (v *vm) work(c *turn) {
	v.turn, v.index = c, c.record
	v.values.origins, v.values.bigs = c.origins, c.bigs
}

// deliver gives an operation's result to its call.
func (v *vm) deliver(p posting) error {
	o, c := p.operation, p.operation.turn
	for i := range c.operations {
		if c.operations[i] == o {
			c.operations = append(c.operations[:i], c.operations[i+1:]...)
			return v.slice(c, func() error {
				var value, reason goja.Value
				var err error
				thrown := v.rt.Try(func() { value, err = p.settle() })
				given, ok := err.(*thrownValue) //nolint:errorlint // it is never inside another
				switch {
				case thrown != nil:
					reason = thrown.Value()
				case ok:
					reason = given.value
				case err != nil:
					reason = v.rt.NewGoError(err)
				default:
					return o.resolve(value)
				}
				c.throws(reason, v.locate(&Error{}, o.stack))
				return o.reject(reason)
			})
		}
	}
	return nil
}

// end makes a call run its finally blocks and nothing else. Afterwards nothing more of it will run.
func (v *vm) end(c *turn, over *goja.Object) error {
	c.over = over
	c.cancel()
	defer c.drop()
	for len(c.operations) > 0 || len(c.executors) > 0 {
		operations, executors := c.operations, c.executors
		c.operations, c.executors = nil, nil
		for _, o := range operations {
			if err := v.slice(c, func() error { return o.reject(over) }); err != nil {
				return err
			}
		}
		for _, reject := range executors {
			if err := v.slice(c, func() error { _, err := reject(goja.Undefined(), over); return err }); err != nil {
				return err
			}
		}
	}
	return nil
}

// drop makes sure that nothing of a call runs any more.
func (c *turn) drop() {
	c.dropped = true
	c.cancel()
	c.operations, c.executors = nil, nil
	for _, land := range c.landings {
		land()
	}
	c.landings = nil
}

// track notes rejected promises until somebody handles them.
func (v *vm) track(p *goja.Promise, operation goja.PromiseRejectionOperation) {
	c := v.turn
	if c == nil {
		return
	}
	if operation == goja.PromiseRejectionReject {
		c.unhandled = append(c.unhandled, p)
		c.throws(p.Result(), v.locate(&Error{}, v.rt.CaptureCallStack(maxStackLines, nil)))
		return
	}
	for i := range c.unhandled {
		if c.unhandled[i] == p {
			c.unhandled = append(c.unhandled[:i], c.unhandled[i+1:]...)
			return
		}
	}
}

// outcome tells whether a call is over after a slice, and how: with an error, or without.
func (v *vm) outcome(c *turn) (done bool, failed *Error) {
	state := c.promise.State()
	for _, p := range c.unhandled {
		if p != c.promise && c.over == nil {
			failed = v.rejection(c, p.Result())
			failed.message = "a promise was rejected and nothing awaits it: " + failed.message
			failed.code, failed.hint = CodeUnhandled, "await each promise, several with await Promise.all([…])"
			return true, failed
		}
	}
	switch {
	case state == goja.PromiseStateRejected:
		return true, v.rejection(c, c.promise.Result())
	case state == goja.PromiseStateFulfilled && len(c.operations) > 0 && !c.leaves():
		o := c.operations[0]
		failed = &Error{code: CodeForgotten, message: "the script ended before its " + o.name + " did", hint: "await what " + o.name + " answers"}
		v.locate(failed, o.stack)
		return true, failed
	case state == goja.PromiseStateFulfilled:
		return true, nil
	case len(c.operations) == 0:
		return true, v.at(c, refuse(CodeStuck, "what new Promise is given must call resolve or reject", "the script awaits a promise that nothing can settle"))
	}
	return false, nil
}

// at is a failure at the place where the call awaited last.
func (v *vm) at(c *turn, r *refusal) *Error {
	e := &Error{code: r.code, message: r.message, hint: r.hint, err: r.err}
	if c.site >= 0 {
		e.at = v.program.src.place(c.site)
		e.stack = []string{e.at.String()}
	}
	return e
}

// rejection is what a promise was rejected with as an error.
func (v *vm) rejection(c *turn, reason goja.Value) *Error {
	if o, ok := reason.(*goja.Object); ok && o.ClassName() == "Error" {
		var over *ended
		v.showUntil = time.Now().Add(showTime)
		v.guard(func() { over, _ = sentinelOf(o) })
		if over != nil {
			return &Error{code: CodeError, message: over.Error(), err: over.err}
		}
	}
	v.turn, v.values.bigs = c, c.bigs
	defer func() { v.turn = nil }()
	e := v.failure(v.rt.Try(func() { panic(reason) }))
	if e.at.line == 0 {
		switch {
		case c.threw != nil && c.threw.SameAs(reason):
			e.at = v.program.src.place(c.threwAt)
		case c.site >= 0:
			e.at = v.program.src.place(c.site)
		default:
			return e
		}
		e.stack = append([]string{e.at.String()}, e.stack...)
	}
	return e
}

// awaited is called with each value that is awaited where the body can go on meanwhile, and with the place.
func (v *vm) awaited(call goja.FunctionCall) goja.Value {
	if v.turn != nil {
		v.turn.reacted = true
		v.turn.site = int(call.Argument(1).ToInteger())
	}
	v.proceed()
	return call.Argument(0)
}

// ready is called with each value that is awaited where nothing but the body, or a helper that it awaits, can run, and with
// the place. It tells whether the value is there: settledValue then answers it, and otherwise what is to be awaited.
func (v *vm) ready(call goja.FunctionCall) goja.Value {
	value := call.Argument(0)
	c := v.turn
	if c != nil {
		c.site = int(call.Argument(1).ToInteger())
	}
	v.proceed()
	v.settled = value
	if c == nil || c.reacted {
		return v.no
	}
	o, ok := value.(*goja.Object)
	if !ok {
		return v.yes
	}
	if o.ExportType() != promiseType {
		return v.decided(v.noThenable(o))
	}
	if o.Get("constructor") == v.promise {
		if p, ok := o.Export().(*goja.Promise); ok && p.State() == goja.PromiseStateFulfilled {
			v.settled = p.Result()
			return v.yes
		}
	}
	return v.no
}

func (v *vm) decided(is bool) goja.Value {
	if is {
		return v.yes
	}
	return v.no
}

var promiseType = reflect.TypeFor[*goja.Promise]()

// answered is called with each value that an asynchronous function of the script returns. What a thenable does takes more ticks.
func (v *vm) answered(call goja.FunctionCall) goja.Value {
	value := call.Argument(0)
	if o, ok := value.(*goja.Object); ok && v.turn != nil && !v.noThenable(o) {
		v.turn.reacted = true
	}
	return value
}

// noThenable tells whether an object has no then that could be called. To read it may run code of the script only where
// that has accessors or proxies, in which case it is not read.
func (v *vm) noThenable(o *goja.Object) bool {
	if v.values.plain {
		return false
	}
	_, is := o.Get("then").(*goja.Object)
	return !is
}

func (v *vm) settledValue(goja.FunctionCall) goja.Value {
	value := v.settled
	v.settled = nil
	return value
}

// sentinel is what a call is ended with that is over.
func (v *vm) sentinel(failed *Error) *goja.Object {
	if failed == nil {
		return v.rt.NewGoError(&ended{errOver})
	}
	return v.rt.NewGoError(&ended{failed})
}

var errOver = errors.New("the call is over")

// watchThen notes that a call gives something to a promise's then, and what it gives to Promise.race, any and all.
func watchThen(v *vm) {
	v.yes, v.no = v.rt.ToValue(true), v.rt.ToValue(false)
	v.promise = v.rt.GlobalObject().Get("Promise")
	prototype := v.promise.(*goja.Object).Get("prototype").(*goja.Object)
	// Not by AssertFunction: what it makes would run the promise jobs when it is called from one.
	then := prototype.Get("then").Export().(func(goja.FunctionCall) goja.Value)
	must(prototype.DefineDataProperty("then", v.native("then", 2, func(call goja.FunctionCall) goja.Value {
		if v.turn != nil {
			v.turn.reacted = true
			if v.combining != nil {
				if o, ok := call.This.(*goja.Object); ok {
					if p, ok := o.Export().(*goja.Promise); ok {
						*v.combining = append(*v.combining, p)
					}
				}
			}
		}
		return then(call)
	}), goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))
	for _, name := range []string{"race", "any", "all"} {
		combine := v.promise.(*goja.Object).Get(name).Export().(func(goja.FunctionCall) goja.Value)
		must(v.promise.(*goja.Object).DefineDataProperty(name, v.native(name, 1, func(call goja.FunctionCall) goja.Value {
			var given []*goja.Promise
			outer := v.combining
			v.combining = &given
			defer func() { v.combining = outer }()
			made := combine(call)
			if of, ok := made.Export().(*goja.Promise); ok && v.turn != nil {
				c := v.turn
				c.combined = slices.DeleteFunc(c.combined, func(p combined) bool { return p.promise.State() != goja.PromiseStatePending })
				for _, p := range given {
					c.combined = append(c.combined, combined{p, of})
				}
			}
			return made
		}), goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))
	}
}

// thrown is called with each value that a script throws, and with the place.
func (v *vm) thrown(call goja.FunctionCall) goja.Value {
	if c := v.turn; c != nil {
		c.threw, c.threwAt = call.Argument(0), int(call.Argument(1).ToInteger())
	}
	return call.Argument(0)
}

// throws notes where something was rejected that has no stack of its own. at is negative if that is not known. A throw
// statement knows better where it stands.
func (c *turn) throws(value goja.Value, at int) {
	if at >= 0 && (c.threw == nil || !c.threw.SameAs(value)) {
		c.threw, c.threwAt = value, at
	}
}

// executor wraps the function that makes a promise of the script's own, so that the promise can be rejected when the call is
// to end.
func (v *vm) executor(call goja.FunctionCall) goja.Value {
	f, ok := goja.AssertFunction(call.Argument(0))
	if !ok || v.turn == nil {
		return call.Argument(0)
	}
	return v.rt.ToValue(func(made goja.FunctionCall) goja.Value {
		if reject, ok := goja.AssertFunction(made.Argument(1)); ok && v.turn != nil {
			v.turn.executors = append(v.turn.executors, reject)
		}
		result, err := f(goja.Undefined(), made.Arguments...)
		must(err)
		return result
	})
}
