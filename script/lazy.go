package script

import (
	"slices"
	"sort"
	"strconv"

	"github.com/dop251/goja"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// A lazy object is a JSON text and what the script did to it.
//
//	text     the bytes and the places of the members; never changed, shared by all objects that were made of it
//	children the objects and arrays that were made of members of the text, once each, also shared: an object and its
//	         spread hold the same children, as JavaScript has it
//	changes  what this object has instead of or beside the members of the text
//
//  1. A scalar is decoded at each read and kept nowhere.
//  2. An object or array is made at the first read and stays the same one.
//  3. Writing a member puts it into changes. Writing what the text says anyway does nothing, so that a number keeps its
//     digits in both representations.
//  4. A text that is untouched, children included, is written by copying it. Otherwise, and in a copy that a spread made, the
//     members are written in JavaScript's order, each untouched one by copying its span.

// text is the text of a JSON object.
type text struct {
	raw      []byte
	members  []rawjson.Member
	shape    *rawjson.Shape // of the text as a whole, if known; then members are
	lookup   *lookup        // once a member of many was looked for; shared by texts with the same members
	children *child
	scanned  bool
	shared   bool // by an object that was derived
}

// lookup finds members by their names where there are many.
type lookup struct {
	reads int
	index map[string]int32
}

type child struct {
	next   *child
	value  *goja.Object
	member int32
}

// change is a member that differs from the text.
type change struct {
	name   string
	value  goja.Value // nil while only raw is known
	raw    []byte     // JSON that value is made of at the first read
	member int32      // the place in the text, or -1 for a member that the text has not
	gone   bool
}

type lazy struct {
	vs      *values
	text    *text
	changes []change
	index   map[string]int32 // of changes, once there are many
	copied  bool             // made by a spread, which puts members in JavaScript's order
}

// lazyObject is a lazy object with its own text, in one piece of memory.
type lazyObject struct {
	lazy lazy
	text text
}

// manyMembers is from how many members or changes on a map finds them.
const manyMembers = 24

func (t *text) scan() {
	if !t.scanned {
		t.members, t.scanned = rawjson.Members(t.raw, nil), true
	}
}

// find is the place of a member, the last of several with one name, or -1.
func (t *text) find(name string) int32 {
	if t.shape != nil {
		return int32(t.shape.Find(name))
	}
	t.scan()
	if len(t.members) > manyMembers {
		if t.lookup == nil {
			t.lookup = &lookup{}
		}
		k := t.lookup
		if k.reads++; k.index == nil && k.reads > 3 {
			k.index = make(map[string]int32, len(t.members))
			for i := range t.members {
				k.index[t.members[i].Name(t.raw)] = int32(i)
			}
		}
		if k.index != nil {
			if i, ok := k.index[name]; ok {
				return i
			}
			return -1
		}
	}
	for i := len(t.members) - 1; i >= 0; i-- {
		m := &t.members[i]
		if m.Escaped {
			if m.Name(t.raw) == name {
				return int32(i)
			}
			continue
		}
		if int(m.NameEnd-m.NameStart) != len(name) {
			continue
		}
		// Most names of one length differ in their first byte.
		if own := t.raw[m.NameStart:m.NameEnd]; len(own) == 0 || own[0] == name[0] && string(own) == name {
			return int32(i)
		}
	}
	return -1
}

func (t *text) span(member int32) []byte {
	m := &t.members[member]
	return t.raw[m.Start:m.End]
}

// lazy makes a lazy object of t. changes are its own from now on.
func (vs *values) lazy(t *text, changes []change) *goja.Object {
	l := vs.newLazy()
	l.text, l.changes = t, changes
	return vs.expose(l)
}

// lazyRecord makes a lazy object of the value of a record.
func (vs *values) lazyRecord(record *stream.Record) *goja.Object {
	l := vs.newLazy()
	*l.text = text{raw: record.Value, members: record.Members, shape: record.Shape, scanned: true}
	return vs.expose(l)
}

// lent is the object of a body that cannot get hold of it, and so used for one record after another.
type lent struct {
	object *goja.Object
	lazy   *lazy
}

// again makes what was lent an object of t and a copy of changes.
func (vs *values) again(o *lent, t *text, changes []change) *goja.Object {
	l := o.lazy
	switch {
	case l == nil:
		l = vs.newLazy()
		o.object, o.lazy = vs.rt.NewDynamicObject(l), l
	case l.text.shared:
		l.text = new(text)
	}
	*l.text = text{raw: t.raw, members: t.members, shape: t.shape, lookup: t.lookup, scanned: t.scanned}
	l.changes, l.index, l.copied = append(l.changes[:0], changes...), nil, false
	return o.object
}

// newLazy is a lazy object with an empty text of its own.
func (vs *values) newLazy() *lazy {
	if len(vs.slab) == 0 {
		vs.slab = make([]lazyObject, slabSize)
	}
	o := &vs.slab[0]
	vs.slab = vs.slab[1:]
	o.lazy.vs, o.lazy.text = vs, &o.text
	return &o.lazy
}

// changeRoom is an empty list of changes with room for n.
func (vs *values) changeRoom(n int) []change {
	if len(vs.changes) < n {
		vs.changes = make([]change, max(n, changeSlab))
	}
	room := vs.changes[0:0:n]
	vs.changes = vs.changes[n:]
	return room
}

func (vs *values) expose(l *lazy) *goja.Object {
	o := vs.rt.NewDynamicObject(l)
	vs.recent[vs.next%recentSize] = recentLazy{o, l}
	vs.next++
	return o
}

// changed is the place of a name's latest change, or -1.
func (l *lazy) changed(name string) int {
	if len(l.changes) > manyMembers {
		if l.index == nil {
			l.index = make(map[string]int32, 2*len(l.changes))
			for i := range l.changes {
				l.index[l.changes[i].name] = int32(i)
			}
		}
		if i, ok := l.index[name]; ok {
			return int(i)
		}
		return -1
	}
	for i := len(l.changes) - 1; i >= 0; i-- {
		if l.changes[i].name == name {
			return i
		}
	}
	return -1
}

// look is the place of a name's latest change, or -1, and if there is none the member of the text, or -1. A change of a member
// is told by the member's number, so that names are compared only with those of additions.
func (l *lazy) look(name string) (change int, member int32) {
	if l.text.shape == nil || len(l.changes) > manyMembers {
		if change = l.changed(name); change >= 0 {
			return change, -1
		}
		return -1, l.text.find(name)
	}
	member = int32(l.text.shape.Find(name))
	for i := len(l.changes) - 1; i >= 0; i-- {
		if c := &l.changes[i]; c.member == member && member >= 0 || c.member < 0 && c.name == name {
			return i, member
		}
	}
	return -1, member
}

func (l *lazy) note(c change) {
	if l.changes == nil {
		l.changes = l.vs.changeRoom(4)
	}
	l.changes = append(l.changes, c)
	if l.index != nil {
		l.index[c.name] = int32(len(l.changes) - 1)
	}
}

func (c *change) get(vs *values) goja.Value {
	if c.value == nil && !c.gone {
		c.value, c.raw = vs.member(c.name, c.raw), nil
	}
	return c.value
}

// Get implements goja.DynamicObject.
func (l *lazy) Get(name string) goja.Value {
	if len(l.changes) == 0 {
		if i := l.text.find(name); i >= 0 {
			return l.vs.load(l.text, i, name)
		}
		return nil
	}
	i, member := l.look(name)
	switch {
	case i >= 0:
		return l.changes[i].get(l.vs)
	case member >= 0:
		return l.vs.load(l.text, member, name)
	}
	return nil
}

func (vs *values) load(t *text, member int32, name string) goja.Value {
	raw := t.span(member)
	if first := raw[0]; first != '{' && first != '[' {
		return vs.member(name, raw)
	}
	if o := t.child(member); o != nil {
		return o
	}
	o := vs.member(name, raw).(*goja.Object)
	t.children = &child{t.children, o, member}
	return o
}

// Set implements goja.DynamicObject.
func (l *lazy) Set(name string, value goja.Value) bool {
	if value == nil {
		value = goja.Undefined()
	}
	i, member := l.look(name)
	if i >= 0 {
		if c := &l.changes[i]; !c.gone {
			c.value, c.raw = value, nil
			return true
		}
		l.note(change{name: name, value: value, member: -1})
		return true
	}
	if member >= 0 && l.vs.says(l.text, member, value) {
		return true
	}
	l.note(change{name: name, value: value, member: member})
	return true
}

// spell makes a scalar that was just set be written as raw, which says the same.
func (l *lazy) spell(name string, raw []byte) {
	if i := l.changed(name); i >= 0 && raw != nil && !l.changes[i].gone {
		l.changes[i].value, l.changes[i].raw = nil, raw
	}
}

// says tells whether the text has value at member.
func (vs *values) says(t *text, member int32, value goja.Value) bool {
	raw := t.span(member)
	if o, ok := value.(*goja.Object); ok {
		return t.child(member) == o
	}
	switch raw[0] {
	case '{', '[':
		return false
	case '"':
		if !goja.IsString(value) {
			return false
		}
		was, _ := rawjson.Text(raw)
		return was == value.String()
	case 'n':
		return goja.IsNull(value)
	case 't':
		return value == vs.yes
	case 'f':
		return value == vs.no
	}
	if goja.IsNumber(value) {
		f := rawjson.Float(raw)
		return value.ToFloat() == f && (f <= maxSafe && f >= -maxSafe || !rawjson.IsInteger(raw)) && (f != 0 || vs.number("", raw).SameAs(value))
	}
	return goja.IsBigInt(value) && vs.number("", raw).SameAs(value)
}

// Has implements goja.DynamicObject.
func (l *lazy) Has(name string) bool {
	i, member := l.look(name)
	if i >= 0 {
		return !l.changes[i].gone
	}
	return member >= 0
}

// Delete implements goja.DynamicObject.
func (l *lazy) Delete(name string) bool {
	i, member := l.look(name)
	if i >= 0 {
		c := &l.changes[i]
		switch {
		case c.gone:
		case c.member >= 0:
			c.value, c.raw, c.gone = nil, nil, true
		default:
			// A tombstone of the text's member, if there is one, lies before it and counts again.
			l.changes = append(l.changes[:i], l.changes[i+1:]...)
			l.index = nil
		}
		return true
	}
	if member >= 0 {
		l.note(change{name: name, member: member, gone: true})
	}
	return true
}

// entry is one member of a lazy object in its order: of the text, or a change.
type entry struct {
	member, change int32
}

// entries are the members in JavaScript's order: indexes first by number, then as they came.
func (l *lazy) entries(list []entry) []entry {
	t := l.text
	t.scan()
	start := len(list)
	indexes := false
	doubles := t.doubled()
	for i := range t.members {
		m := &t.members[i]
		if first := t.raw[m.NameStart]; first-'0' <= 9 {
			indexes = indexes || isIndex(m.Name(t.raw))
		}
		e := entry{int32(i), -1}
		if doubles {
			if l.seen(i) {
				continue
			}
			e.member = t.find(m.Name(t.raw))
		}
		if len(l.changes) > 0 {
			e.change = l.changeOf(e.member)
			if e.change >= 0 && l.changes[e.change].gone {
				continue
			}
		}
		list = append(list, e)
	}
	for i := range l.changes {
		c := &l.changes[i]
		if c.member < 0 {
			indexes = indexes || isIndex(c.name)
			list = append(list, entry{-1, int32(i)})
		}
	}
	if indexes {
		own := list[start:]
		sort.SliceStable(own, func(i, j int) bool {
			a, b := l.name(own[i]), l.name(own[j])
			if !isIndex(a) || !isIndex(b) {
				return isIndex(a) && !isIndex(b)
			}
			if len(a) != len(b) {
				return len(a) < len(b)
			}
			return a < b
		})
	}
	return list
}

// changeOf is the change of a member of the text, or -1.
func (l *lazy) changeOf(member int32) int32 {
	if len(l.changes) > manyMembers {
		i := l.changed(l.text.members[member].Name(l.text.raw))
		// A member that was deleted and added again is found as the later addition; its tombstone lies before it.
		if i >= 0 && l.changes[i].member < 0 {
			for j := i - 1; j >= 0; j-- {
				if l.changes[j].member == member {
					return int32(j)
				}
			}
		}
		return int32(i)
	}
	for i := range l.changes {
		if l.changes[i].member == member {
			return int32(i)
		}
	}
	return -1
}

// doubled compares every name with every other.
func (t *text) doubled() bool {
	if t.shape != nil {
		return t.shape.Doubled()
	}
	if len(t.members) > manyMembers {
		names := make(map[string]bool, len(t.members))
		for i := range t.members {
			name := t.members[i].Name(t.raw)
			if names[name] {
				return true
			}
			names[name] = true
		}
		return false
	}
	for i := range t.members {
		name := t.members[i].Name(t.raw)
		for j := range i {
			if t.members[j].Is(t.raw, name) {
				return true
			}
		}
	}
	return false
}

// seen tells whether an earlier member has the name of member i.
func (l *lazy) seen(i int) bool {
	name := l.text.members[i].Name(l.text.raw)
	for j := range i {
		if l.text.members[j].Is(l.text.raw, name) {
			return true
		}
	}
	return false
}

func (l *lazy) name(e entry) string {
	if e.change >= 0 {
		return l.changes[e.change].name
	}
	return l.text.members[e.member].Name(l.text.raw)
}

// Keys implements goja.DynamicObject.
func (l *lazy) Keys() []string {
	list := l.entries(nil)
	keys := make([]string, len(list))
	for i, e := range list {
		keys[i] = l.name(e)
	}
	return keys
}

// untouched tells whether the object is still what its text says.
func (l *lazy) untouched() bool {
	if len(l.changes) > 0 {
		return false
	}
	for c := l.text.children; c != nil; c = c.next {
		if !l.vs.untouched(c.value) {
			return false
		}
	}
	return true
}

// rawMember is the text of a member that is still what the text says, or nil.
func (l *lazy) rawMember(name string) []byte {
	i, member := l.look(name)
	if i >= 0 {
		return l.changes[i].raw
	}
	if member < 0 {
		return nil
	}
	if c := l.text.child(member); c != nil && !l.vs.untouched(c) {
		return nil
	}
	return l.text.span(member)
}

// child is the object that was made of a member, or nil.
func (t *text) child(member int32) *goja.Object {
	for c := t.children; c != nil; c = c.next {
		if c.member == member {
			return c.value
		}
	}
	return nil
}

// derive is a new object with the members of l, as {...l} makes one.
func (l *lazy) derive(room int) *lazy {
	for i := range l.changes {
		l.changes[i].get(l.vs)
	}
	if l == l.vs.value.lazy && !l.text.shared {
		l.text.members = slices.Clone(l.text.members) // the copy may outlive the record
	}
	d := l.vs.newLazy()
	d.text, d.copied = l.text, true
	l.text.shared = true
	if n := len(l.changes) + room; n > 0 {
		d.changes = append(l.vs.changeRoom(n), l.changes...)
	}
	return d
}

// lazy appends a lazy object as JSON.
func (e *encoder) lazy(l *lazy) {
	if !l.copied && l.untouched() {
		e.dst = append(e.dst, trim(l.text.raw)...)
		return
	}
	if l.ordered() {
		e.splice(l)
		return
	}
	base := len(e.entries)
	e.entries = l.entries(e.entries)
	end := len(e.entries)
	e.dst = append(e.dst, '{')
	first := true
	for i := base; i < end; i++ {
		e.entry(l, e.entries[i], &first)
	}
	e.entries = e.entries[:base]
	e.dst = append(e.dst, '}')
}

// splice writes a lazy object whose members stand in order: runs of untouched ones are copied at once.
func (e *encoder) splice(l *lazy) {
	t := l.text
	inText := false // some change is of a member of the text
	for i := range l.changes {
		inText = inText || l.changes[i].member >= 0
	}
	first := true
	if !inText && t.wholesale() {
		e.dst = append(e.dst, t.raw[:len(t.raw)-1]...)
		first = false
		for i := range l.changes {
			e.entry(l, entry{-1, int32(i)}, &first)
		}
		e.dst = append(e.dst, '}')
		return
	}
	e.dst = append(e.dst, '{')
	var from, to uint32 // the run that is not yet copied
	flush := func() {
		if to > 0 {
			if !first {
				e.dst = append(e.dst, ',')
			}
			e.dst = append(e.dst, t.raw[from:to]...)
			first, to = false, 0
		}
	}
	for i := range t.members {
		m := &t.members[i]
		at := entry{int32(i), -1}
		if inText {
			at.change = l.changeOf(at.member)
		}
		if at.change < 0 && m.Start == m.NameEnd+2 && t.child(at.member) == nil {
			if to == 0 || m.NameStart != to+2 {
				flush()
				from = m.NameStart - 1
			}
			to = m.End
			continue
		}
		flush()
		if at.change < 0 || !l.changes[at.change].gone {
			e.entry(l, at, &first)
		}
	}
	flush()
	for i := range l.changes {
		if l.changes[i].member < 0 {
			e.entry(l, entry{-1, int32(i)}, &first)
		}
	}
	e.dst = append(e.dst, '}')
}

// wholesale tells whether the members are written by copying the text without its closing brace: it has some, no space
// between them, and no object was made of one.
func (t *text) wholesale() bool { return t.shape != nil && t.shape.Compact() && t.children == nil }

// ordered tells whether the members stand in JavaScript's order already and each name once.
func (l *lazy) ordered() bool {
	for i := range l.changes {
		if c := &l.changes[i]; c.member < 0 && (c.name == "" || c.name[0]-'0' <= 9) {
			return false
		}
	}
	t := l.text
	if t.shape != nil {
		return t.shape.Ordered()
	}
	t.scan()
	var met [4]uint64
	for i := range t.members {
		m := &t.members[i]
		n := m.NameEnd - m.NameStart
		if m.Escaped || n == 0 {
			return false
		}
		first := uint32(t.raw[m.NameStart])
		if first-'0' <= 9 {
			return false
		}
		h := n + first*7 + uint32(t.raw[m.NameEnd-1])*31 + uint32(t.raw[m.NameStart+n/2])*17
		bit := uint64(1) << (h & 63)
		if met[h>>6&3]&bit != 0 && t.doubled() {
			return false
		}
		met[h>>6&3] |= bit
	}
	return true
}

// entry appends one member.
func (e *encoder) entry(l *lazy, at entry, first *bool) {
	t := l.text
	start := len(e.dst)
	if !*first {
		e.dst = append(e.dst, ',')
	}
	if at.member >= 0 {
		if m := &t.members[at.member]; m.Escaped {
			e.dst = rawjson.AppendString(e.dst, m.Name(t.raw))
		} else {
			e.dst = append(e.dst, t.raw[m.NameStart-1:m.NameEnd+1]...)
		}
	} else {
		e.dst = rawjson.AppendString(e.dst, l.changes[at.change].name)
	}
	e.dst = append(e.dst, ':')
	written := true
	if at.change >= 0 {
		if c := &l.changes[at.change]; c.value == nil {
			e.dst = append(e.dst, c.raw...)
		} else {
			written = e.member(c.name, c.value)
		}
	} else if o := l.text.child(at.member); o != nil {
		e.member(t.members[at.member].Name(t.raw), o)
	} else {
		e.dst = append(e.dst, t.span(at.member)...)
	}
	if written {
		*first = false
	} else {
		e.dst = e.dst[:start]
	}
}

func (e *encoder) member(name string, value goja.Value) bool {
	if o, ok := value.(*goja.Object); ok {
		e.path = append(e.path, name)
		ok := e.object(o)
		e.path = e.path[:len(e.path)-1]
		return ok
	}
	if goja.IsNumber(value) {
		if f := value.ToFloat(); f-f == 0 {
			e.dst = rawjson.AppendFloat(e.dst, f)
			return true
		}
	}
	e.path = append(e.path, name)
	ok := e.value(value)
	e.path = e.path[:len(e.path)-1]
	return ok
}

func indexName(i int) string { return "[" + strconv.Itoa(i) + "]" }
func indexText(i int) string { return strconv.Itoa(i) }
