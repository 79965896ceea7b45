package script

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dop251/goja"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// States within a batch stay alive: between two calls a state is neither written nor parsed.
//
//  1. A State yield takes a snapshot: the text that the state began as and the members that differ, with nested objects
//     and arrays as JSON. Nothing in it is shared with what the script holds.
//  2. Each call gets an object of its own, made of the snapshot by copying the list of differing members.
//  3. A failing record swaps the snapshot back that was there before it.
//  4. At the end of a batch each changed state is written once and compared with what the store has.
//  5. Between batches a state is kept only with memory of its own: what may share memory with records is parsed again.

// snapshot is an immutable state. The zero snapshot is no state.
type snapshot struct {
	present bool
	text    text
	changes []change
	from    int
}

// stateEntry is the state of one key.
type stateEntry struct {
	key     string
	stored  []byte // what the store has after the batches so far, or nil
	base    []byte // a text that belongs to this entry; now may stand on it
	now     snapshot
	before  snapshot // what was there before record saved-1
	saved   int
	touched bool // is in changed
}

// states are the states of a task. What they keep between batches is bounded by budget, in bytes.
type states struct {
	vm      *vm
	entries map[string]*stateEntry
	changed []*stateEntry
	initial text
	budget  int
	size    int
	scratch lazy
	lent    bool // the body cannot get hold of the object
	shapes  rawjson.Shapes
	members []rawjson.Member // of the text scanned last
}

// entryOverhead is about what an entry takes beside its texts, in bytes.
const entryOverhead = 600

// defaultStateCache is how much state a task keeps between batches, in bytes, unless Env says otherwise.
const defaultStateCache = 16 << 20

func (s *states) entry(store stream.States, key string) (*stateEntry, error) {
	if e := s.entries[key]; e != nil {
		return e, nil
	}
	stored, err := store.State(key)
	if err != nil {
		return nil, err
	}
	e := &stateEntry{key: strings.Clone(key)}
	if len(stored) > 0 {
		e.stored = bytes.Clone(stored)
		e.base = trim(e.stored)
		text, err := s.scan(e.base)
		if err != nil {
			return nil, fmt.Errorf("the stored state of a key is not JSON: %w", err)
		}
		e.now = snapshot{present: true, text: text}
		if len(e.now.text.members) == 0 {
			e.now = snapshot{}
		}
	}
	s.entries[e.key] = e
	s.size += e.weight()
	return e, nil
}

// scan makes a text of the JSON of a state.
func (s *states) scan(raw []byte) (text, error) {
	_, members, shape, err := s.shapes.Check(raw, s.members[:0])
	s.members = members
	return text{raw: raw, members: slices.Clone(members), shape: shape, scanned: true}, err
}

// own is scan for what this package wrote.
func (s *states) own(raw []byte) text {
	t, err := s.scan(raw)
	must(err)
	return t
}

func (e *stateEntry) weight() int { return entryOverhead + len(e.key) + 4*len(e.stored) }

// value is the object state of a call.
func (s *states) value(e *stateEntry) *goja.Object {
	vs := &s.vm.values
	base, changes := &s.initial, []change(nil)
	if e.now.present {
		base, changes = &e.now.text, e.now.changes
	}
	if vs.plain {
		s.scratch = lazy{vs: vs, text: base, changes: changes}
		return vs.object(&text{raw: s.vm.encoder.encodeLazy(nil, &s.scratch)})
	}
	if len(base.members) > manyMembers && base.lookup == nil {
		base.lookup = &lookup{} // one for all calls
	}
	if s.lent {
		return vs.again(&vs.state, base, changes)
	}
	l := vs.newLazy()
	*l.text = text{raw: base.raw, members: base.members, shape: base.shape, scanned: base.scanned, lookup: base.lookup}
	if len(changes) > 0 {
		l.changes = append(vs.changeRoom(len(changes)+1), changes...)
	}
	return vs.expose(l)
}

// keep makes what the script yielded the state of e. i is the record.
func (s *states) keep(e *stateEntry, value goja.Value, i int) {
	if e.saved != i+1 {
		e.saved = i + 1
		e.before, e.now = e.now, e.before
	}
	if !e.touched {
		e.touched = true
		s.changed = append(s.changed, e)
	}
	e.now.from = i
	s.take(&e.now, value)
}

// undo brings back what was there before record i.
func (e *stateEntry) undo(i int) {
	if e.saved == i+1 {
		e.before, e.now = e.now, e.before
		e.saved = 0
	}
}

// take fills a snapshot. The memory of its old changes is used again.
func (s *states) take(to *snapshot, value goja.Value) {
	v := s.vm
	changes := to.changes[:0]
	*to = snapshot{from: to.from, changes: changes}
	if value == nil || goja.IsUndefined(value) || goja.IsNull(value) {
		return
	}
	o, ok := value.(*goja.Object)
	if !ok {
		v.throw(notAState(value))
	}
	l := v.values.lazyOf(o)
	if l == nil || l.copied && !l.ordered() {
		raw := v.encodeState(value)
		if raw != nil {
			to.present = true
			to.text = s.own(raw)
		}
		return
	}
	t := l.text
	t.scan()
	members := len(t.members)
	for i := range l.changes {
		c := l.changes[i]
		switch {
		case c.gone:
		case c.value == nil:
		case goja.IsUndefined(c.value):
			if c.member < 0 {
				continue
			}
			c.value, c.gone = nil, true
		default:
			if isKept(c.value) {
				break
			}
			c.raw = v.encoder.encodeMember(c.name, c.value)
			if c.value = nil; c.raw == nil {
				if c.member < 0 {
					continue
				}
				c.gone = true
			}
		}
		if c.gone {
			members--
		} else if c.member < 0 {
			members++
		}
		changes = append(changes, c)
	}
	for child := t.children; child != nil; child = child.next {
		if l.changeOf(child.member) < 0 && !v.values.untouched(child.value) {
			name := t.members[child.member].Name(t.raw)
			changes = append(changes, change{name: name, raw: v.encoder.encodeMember(name, child.value), member: child.member})
		}
	}
	size := len(t.raw)
	for i := range changes {
		if size += len(changes[i].raw); changes[i].value != nil && goja.IsString(changes[i].value) {
			size += int(lengthOf(changes[i].value))
		}
	}
	if size > maxValue {
		v.throw(refuse(CodeState, "keep less per key, or under more keys", "the State has %d bytes; %d are the most", size, maxValue))
	}
	to.changes = changes
	if to.present = members > 0; to.present {
		to.text = text{raw: t.raw, members: t.members, shape: t.shape, scanned: true, lookup: t.lookup}
	}
}

// isKept tells whether a value can stand in a snapshot as it is: a string, a finite number, a boolean or null.
func isKept(value goja.Value) bool {
	switch {
	case goja.IsNumber(value):
		f := value.ToFloat()
		return f-f == 0
	case goja.IsString(value), goja.IsNull(value), goja.IsBigInt(value):
		return true
	}
	switch value.(type) {
	case *goja.Object, *goja.Symbol:
		return false
	}
	return true
}

func notAState(value goja.Value) *refusal {
	return refuse(CodeState, "put it into an object: State({ value })", "a State is an object, not %s", kindName(value))
}

// finish writes every changed state, and notes the ones that differ from the store.
func (s *states) finish(batch *stream.Batch) {
	limit := s.vm.encoder.limit
	s.vm.encoder.limit = math.MaxInt // what was kept is written: take has looked at its size
	defer func() { s.vm.encoder.limit = limit }()
	for _, e := range s.changed {
		e.touched, e.saved = false, 0
		var written []byte
		if e.now.present {
			s.scratch = lazy{vs: &s.vm.values, text: &e.now.text, changes: e.now.changes}
			written = s.vm.encoder.encodeLazy(batch.Arena.Grab(64+len(e.stored)), &s.scratch)
			if hasSpace(written) {
				written = rawjson.Compact(nil, written)
			}
		}
		if bytes.Equal(written, e.stored) && (written == nil) == (e.stored == nil) {
			s.rest(e)
			continue
		}
		change := stream.Change{Key: e.key, From: e.now.from}
		s.size -= e.weight()
		if written != nil {
			change.Value = batch.Arena.Keep(written)
			e.stored = bytes.Clone(written)
		} else {
			e.stored = nil
		}
		s.size += e.weight()
		batch.Changes = append(batch.Changes, change)
		s.rest(e)
	}
	clear(s.changed)
	s.changed = s.changed[:0]
	s.trim()
}

// rest makes an entry fit to outlive the batch: nothing in it may share memory with records. It stays decoded if it differs
// from a text of its own only in scalars that are no strings.
func (s *states) rest(e *stateEntry) {
	clear(e.before.changes[:cap(e.before.changes)])
	e.before = snapshot{changes: e.before.changes[:0]}
	if !e.now.present {
		return
	}
	t := &e.now.text
	live := sameMemory(t.raw, e.base) || sameMemory(t.raw, s.initial.raw)
	for i := range e.now.changes {
		c := &e.now.changes[i]
		if c.member < 0 || c.gone || c.value == nil || goja.IsString(c.value) {
			live = false
			break
		}
		c.name = t.members[c.member].Name(t.raw)
	}
	if !live {
		clear(e.now.changes)
		e.base = e.stored
		e.now = snapshot{present: true, text: s.own(e.base), changes: e.now.changes[:0]}
	}
}

func sameMemory(a, b []byte) bool { return len(a) > 0 && len(b) > 0 && &a[0] == &b[0] }

// trim drops entries until the budget is kept. A map is walked in random order, so no key is favoured.
func (s *states) trim() {
	if s.size <= s.budget {
		return
	}
	for key, e := range s.entries {
		delete(s.entries, key)
		if s.size -= e.weight(); s.size <= s.budget/4*3 {
			return
		}
	}
}

// forget drops everything.
func (s *states) forget() {
	clear(s.entries)
	clear(s.changed)
	s.changed, s.size = s.changed[:0], 0
}

// hasSpace tells whether a JSON text has white space between its tokens.
func hasSpace(raw []byte) bool {
	inString := false
	for i := 0; i < len(raw); i++ {
		switch b := raw[i]; {
		case inString:
			if b == '\\' {
				i++
			} else if b == '"' {
				inString = false
			}
		case b == '"':
			inString = true
		case b <= ' ':
			return true
		}
	}
	return false
}
