package script

import (
	"container/list"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dop251/goja"
)

// Memory is what the scripts of one stage remember in this process, in all its tasks: the values of memory and memo, and the
// keys of log.once. It survives no restart, and what is used least goes when there is too much. It is safe for
// concurrent use.
//
//  1. A value is kept as JSON, so that no two VMs share an object.
//  2. A key of memo is computed once at a time; the others wait for it. A failure is not kept: the next of those that wait
//     computes anew.
//  3. Who computes is a VM, or in a body that awaits the call that is under way. Nobody waits for one that waits for him,
//     through however many others: he computes for himself instead.
//  4. Until a function has answered, waiting for it blocks the VM, which is short: it only calculates. Once it has answered a
//     promise, waiting for that blocks nobody else: a body that awaits gets a promise too.
type Memory struct {
	mu      sync.Mutex
	entries map[string]*list.Element // of *remembered
	recent  list.List                // the entry used last is in front
	size    int
	flights map[string]*flight
	waiting map[any][]*flight // by who waits
}

type remembered struct {
	key     string
	text    []byte // JSON; nil is undefined
	later   bool   // it was computed by a function that answers a promise
	expires time.Time
}

// flight is a key of memo that is computed.
type flight struct {
	key      string
	owner    any           // the *vm or the *turn that computes
	answered chan struct{} // closed when the function has answered
	done     chan struct{} // closed when its value is there, or is not to come
	later    bool          // it has answered a promise; set before answered is closed
	promise  goja.Value    // of the VM that computes, which alone looks at it
}

const (
	memoryBytes   = 64 << 20 // of keys, values and memoryOverhead for each
	memoryEntries = 100_000
	memoryValue   = 8 << 20 // bytes of one value
	memoryKey     = 1 << 10 // bytes of a key
	// memoryOverhead is about what an entry takes beside its texts, in bytes.
	memoryOverhead = 250
)

// NewMemory makes an empty Memory.
func NewMemory() *Memory {
	return &Memory{entries: map[string]*list.Element{}, flights: map[string]*flight{}, waiting: map[any][]*flight{}}
}

// The kinds of entries, which begin their keys.
const (
	ofMemory = "m"
	ofMemo   = "f"
	ofOnce   = "o"
)

func (m *Memory) get(key string, now time.Time) *remembered {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.find(key, now)
}

// find answers what is kept under key, or nil. It does not change any more.
func (m *Memory) find(key string, now time.Time) *remembered {
	e := m.entries[key]
	if e == nil {
		return nil
	}
	r := e.Value.(*remembered)
	if !r.expires.IsZero() && !now.Before(r.expires) {
		m.remove(e)
		return nil
	}
	m.recent.MoveToFront(e)
	return r
}

func (m *Memory) remove(e *list.Element) {
	r := m.recent.Remove(e).(*remembered)
	delete(m.entries, r.key)
	m.size -= r.weight()
}

func (r *remembered) weight() int { return len(r.key) + len(r.text) + memoryOverhead }

// set keeps r for ttl, or for ever if that is 0.
func (m *Memory) set(r *remembered, ttl time.Duration, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(r.key)
	if ttl > 0 {
		r.expires = now.Add(ttl)
	}
	m.entries[r.key] = m.recent.PushFront(r)
	m.size += r.weight()
	for m.size > memoryBytes || len(m.entries) > memoryEntries {
		m.remove(m.recent.Back())
	}
}

func (m *Memory) forget(key string) {
	if e := m.entries[key]; e != nil {
		m.remove(e)
	}
}

func (m *Memory) drop(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(key)
}

// first tells whether key is met for the first time, and notes it.
func (m *Memory) first(key string, now time.Time) bool {
	m.mu.Lock()
	met := m.find(key, now) != nil
	m.mu.Unlock()
	if !met {
		m.set(&remembered{key: key}, 0, now)
	}
	return !met
}

// begin finds key, or says what me is to do about it: wait for a flight, or compute, in a flight of its own or, if waiting could
// last for ever, without one. A flight to wait for may be one of me's own.
func (m *Memory) begin(key string, me any, now time.Time) (found *remembered, wait, own *flight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if found = m.find(key, now); found != nil {
		return found, nil, nil
	}
	f := m.flights[key]
	switch {
	case f == nil:
		f = &flight{key: key, owner: me, answered: make(chan struct{}), done: make(chan struct{})}
		m.flights[key] = f
		return nil, nil, f
	case f.owner == me:
		return nil, f, nil
	case m.waitsFor(f.owner, me):
		return nil, nil, nil
	}
	m.waiting[me] = append(m.waiting[me], f)
	return nil, f, nil
}

// waitsFor tells whether who waits for whom, perhaps through others.
func (m *Memory) waitsFor(who, whom any) bool {
	return slices.ContainsFunc(m.waiting[who], func(f *flight) bool { return f.owner == whom || m.waitsFor(f.owner, whom) })
}

// waited says that me does not wait for f any more.
func (m *Memory) waited(me any, f *flight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rest := m.waiting[me]
	if i := slices.Index(rest, f); i >= 0 {
		rest = slices.Delete(rest, i, i+1)
	}
	if m.waiting[me] = rest; len(rest) == 0 {
		delete(m.waiting, me)
	}
}

// turnLater says that the function of a flight has answered a promise.
func (m *Memory) turnLater(f *flight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f.later = true
	close(f.answered)
}

// land ends a flight, once.
func (m *Memory) land(f *flight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.flights[f.key] != f {
		return
	}
	delete(m.flights, f.key)
	if !f.later {
		close(f.answered)
	}
	close(f.done)
}

// memoryKeyOf is a key of an entry.
func (v *vm) memoryKeyOf(function, kind string, value goja.Value) string {
	v.running(function)
	key := v.textOf(function, "the key", value)
	if len(key) > memoryKey {
		v.wrong(function, "the key is a text of %d bytes; one of at most %d is expected", len(key), memoryKey)
	}
	return kind + key
}

// remember is a value as it is kept.
func (v *vm) remember(function string, value goja.Value) []byte {
	if goja.IsUndefined(value) {
		return nil
	}
	e := encoder{vm: v, limit: maxValue}
	text := e.encode(nil, value)
	if len(text) > memoryValue {
		v.raise("RangeError", codeTooLarge, "%s: the value has %d bytes; %d are the most", function, len(text), memoryValue)
	}
	return text
}

func (v *vm) recall(text []byte) goja.Value {
	if text == nil {
		return goja.Undefined()
	}
	return v.values.decode(trim(text))
}

func newMemoryObject(v *vm) goja.Value {
	return v.functions("memory", map[string]func(goja.FunctionCall) goja.Value{
		"get": func(call goja.FunctionCall) goja.Value {
			r := v.env.Memory.get(v.memoryKeyOf("memory.get", ofMemory, call.Argument(0)), v.clock())
			if r == nil {
				return goja.Null()
			}
			return v.recall(r.text)
		},
		"set": func(call goja.FunctionCall) goja.Value {
			const function = "memory.set"
			key, ttl := v.memoryKeyOf(function, ofMemory, call.Argument(0)), v.ttlOf(function, call.Argument(2))
			if text := v.remember(function, call.Argument(1)); text == nil {
				v.env.Memory.drop(key)
			} else {
				v.env.Memory.set(&remembered{key: key, text: text}, ttl, v.clock())
			}
			return goja.Undefined()
		},
	})
}

// memoizing is one call of memo.
type memoizing struct {
	*vm
	me      any
	key     string
	ttl     time.Duration
	compute goja.Callable
	awaited bool // what is there need not be a promise
}

func (v *vm) memo(call goja.FunctionCall) goja.Value {
	m := v.memoizing(call)
	return m.run()
}

// awaitedMemo is memo where what it answers is awaited at once: nobody sees whether that is a promise.
func (v *vm) awaitedMemo(call goja.FunctionCall) goja.Value {
	m := v.memoizing(call)
	m.awaited = true
	return m.run()
}

func (v *vm) memoizing(call goja.FunctionCall) *memoizing {
	const function = "memo"
	m := &memoizing{vm: v, me: v, key: v.memoryKeyOf(function, ofMemo, call.Argument(0)), ttl: v.ttlOf(function, call.Argument(1))}
	compute, ok := goja.AssertFunction(call.Argument(2))
	if !ok {
		v.wrong(function, "the third argument is %s; a function is expected", kindName(call.Argument(2)))
	}
	m.compute = compute
	if v.turn != nil {
		m.me = v.turn
	}
	return m
}

func (m *memoizing) run() goja.Value {
	memory := m.env.Memory
	for {
		found, wait, own := memory.begin(m.key, m.me, m.clock())
		switch {
		case found != nil && found.later && m.turn != nil && !m.awaited:
			return m.resolved(m.recall(found.text))
		case found != nil:
			return m.recall(found.text)
		case wait == nil:
			return m.fly(own)
		case wait.owner == m.me && wait.promise != nil:
			return wait.promise
		case wait.owner == m.me:
			return m.fly(nil) // inside of the function that computes it
		}
		m.block(wait, wait.answered)
		if wait.later && m.turn != nil {
			return m.await(wait)
		}
		m.block(wait, wait.done)
		memory.waited(m.me, wait)
	}
}

// block waits on the goroutine of the VM.
func (m *memoizing) block(f *flight, until chan struct{}) {
	select {
	case <-until:
	case <-m.ctx.Done():
		m.env.Memory.waited(m.me, f)
		m.proceed()
		m.throw(stopping(context.Cause(m.ctx)))
	}
}

// await is a promise of what a flight brings, or else of what is computed then.
func (m *memoizing) await(f *flight) goja.Value {
	return m.outside("memo", func(ctx context.Context) settle {
		select {
		case <-f.done:
		case <-ctx.Done():
		}
		m.env.Memory.waited(m.me, f)
		return func() (goja.Value, error) { return m.run(), nil }
	})
}

// fly computes, and lands the flight, if there is one, when the value is there.
func (m *memoizing) fly(f *flight) goja.Value {
	memory, later := m.env.Memory, false
	land := func() {
		if f != nil {
			memory.land(f)
		}
	}
	defer func() {
		if !later {
			land()
		}
	}()
	value, err := m.compute(goja.Undefined())
	must(err)
	keep := func(value goja.Value) goja.Value {
		text := m.remember("memo", value)
		if f != nil {
			memory.set(&remembered{key: m.key, text: text, later: later}, m.ttl, m.clock())
		}
		return m.recall(text)
	}
	o, ok := value.(*goja.Object)
	if !ok || o.ExportType() != promiseType || m.turn == nil {
		return keep(value)
	}
	later = true
	if f != nil {
		memory.turnLater(f)
		m.turn.landings = append(m.turn.landings, land)
	}
	kept := m.native("", 1, func(call goja.FunctionCall) goja.Value {
		defer land()
		return keep(call.Argument(0))
	})
	failed := m.native("", 1, func(call goja.FunctionCall) goja.Value {
		land()
		panic(call.Argument(0))
	})
	then, _ := goja.AssertFunction(o.Get("then"))
	promise, err := then(o, kept, failed)
	must(err)
	if f != nil {
		f.promise = promise
	}
	return promise
}

// resolved is a promise of what is there.
func (v *vm) resolved(value goja.Value) goja.Value {
	promise, resolve, _ := v.rt.NewPromise()
	must(resolve(value))
	return v.rt.ToValue(promise)
}
