package script

import (
	"container/list"
	"sync"
	"time"

	"github.com/dop251/goja"
)

// Memory is what the scripts of one stage remember in this process, in all its tasks: the values of memory and memo, and the
// keys of log.once. It survives no restart, and what is used least goes when there is too much. It is safe for
// concurrent use.
//
//  1. A value is kept as JSON, so that no two VMs share an object.
//  2. At most one VM computes a key of memo at a time; the others wait for it. A failure is not kept: the next of those
//     that wait computes anew.
//  3. A VM never waits for one that waits for it, through however many others: it computes for itself instead.
type Memory struct {
	mu      sync.Mutex
	entries map[string]*list.Element // of *remembered
	recent  list.List                // the entry used last is in front
	size    int
	flights map[string]*flight
	waiting map[*vm]*flight
}

type remembered struct {
	key     string
	text    []byte // JSON; nil is undefined
	expires time.Time
}

// flight is a key of memo that a VM computes.
type flight struct {
	owner *vm
	done  chan struct{}
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
	return &Memory{entries: map[string]*list.Element{}, flights: map[string]*flight{}, waiting: map[*vm]*flight{}}
}

// The kinds of entries, which begin their keys.
const (
	ofMemory = "m"
	ofMemo   = "f"
	ofOnce   = "o"
)

func (m *Memory) get(key string, now time.Time) (text []byte, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.find(key, now)
}

func (m *Memory) find(key string, now time.Time) (text []byte, ok bool) {
	e := m.entries[key]
	if e == nil {
		return nil, false
	}
	r := e.Value.(*remembered)
	if !r.expires.IsZero() && !now.Before(r.expires) {
		m.remove(e)
		return nil, false
	}
	m.recent.MoveToFront(e)
	return r.text, true
}

func (m *Memory) remove(e *list.Element) {
	r := m.recent.Remove(e).(*remembered)
	delete(m.entries, r.key)
	m.size -= r.weight()
}

func (r *remembered) weight() int { return len(r.key) + len(r.text) + memoryOverhead }

// set keeps text for ttl, or for ever if that is 0.
func (m *Memory) set(key string, text []byte, ttl time.Duration, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(key)
	r := &remembered{key: key, text: text}
	if ttl > 0 {
		r.expires = now.Add(ttl)
	}
	m.entries[key] = m.recent.PushFront(r)
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
	_, met := m.find(key, now)
	m.mu.Unlock()
	if !met {
		m.set(key, nil, 0, now)
	}
	return !met
}

// begin finds key, or says what v is to do about it: wait for a flight of another VM, or compute, in a flight of its own
// or, if waiting could last for ever, without one.
func (m *Memory) begin(key string, v *vm, now time.Time) (text []byte, found bool, wait, own *flight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if text, found = m.find(key, now); found {
		return text, true, nil, nil
	}
	f := m.flights[key]
	if f == nil {
		f = &flight{v, make(chan struct{})}
		m.flights[key] = f
		return nil, false, nil, f
	}
	for next := f; next != nil; next = m.waiting[next.owner] {
		if next.owner == v {
			return nil, false, nil, nil
		}
	}
	m.waiting[v] = f
	return nil, false, f, nil
}

// land ends the flight of a key.
func (m *Memory) land(key string, f *flight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.flights, key)
	close(f.done)
}

func (m *Memory) waited(v *vm) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.waiting, v)
}

// memoryKeyOf is a key of an entry.
func (v *vm) memoryKeyOf(function, kind string, value goja.Value) string {
	v.running(function)
	key := v.textOf(function, "the key", value)
	if len(key) > memoryKey {
		v.wrong(function, "the key has more than %d bytes", memoryKey)
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
			text, ok := v.env.Memory.get(v.memoryKeyOf("memory.get", ofMemory, call.Argument(0)), v.clock())
			if !ok {
				return goja.Null()
			}
			return v.recall(text)
		},
		"set": func(call goja.FunctionCall) goja.Value {
			const function = "memory.set"
			key, ttl := v.memoryKeyOf(function, ofMemory, call.Argument(0)), v.ttlOf(function, call.Argument(2))
			if text := v.remember(function, call.Argument(1)); text == nil {
				v.env.Memory.drop(key)
			} else {
				v.env.Memory.set(key, text, ttl, v.clock())
			}
			return goja.Undefined()
		},
	})
}

func (v *vm) memo(call goja.FunctionCall) goja.Value {
	const function = "memo"
	m := v.env.Memory
	key, ttl := v.memoryKeyOf(function, ofMemo, call.Argument(0)), v.ttlOf(function, call.Argument(1))
	compute, ok := goja.AssertFunction(call.Argument(2))
	if !ok {
		v.wrong(function, "the third argument is %s; a function is expected", kindName(call.Argument(2)))
	}
	for {
		text, found, wait, own := m.begin(key, v, v.clock())
		switch {
		case found:
			return v.recall(text)
		case wait != nil:
			<-wait.done
			m.waited(v)
			continue
		}
		if own != nil {
			defer m.land(key, own)
		}
		value, err := compute(goja.Undefined())
		must(err)
		text = v.remember(function, value)
		if own != nil {
			m.set(key, text, ttl, v.clock())
		}
		return v.recall(text)
	}
}
