package rawjson

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// Records of one topic mostly have the same members in the same order, written by the same producer. What such texts share
// is a Shape: everything but the values, down to the white space. A text that is as the one before it is checked by
// comparing what lies between its values, and its members are found without reading their names.
//
//  1. A Shape says nothing about a text that Check would not: Shapes.Check answers as Check does, and a Shape only beside it.
//  2. A Shape never changes. It owns its memory, so that it outlives the text that it was learnt from.
//  3. What is learnt is bounded: at most maxShapes of at most MaxShaped members. Texts that never repeat cost one comparison
//     each, since learning pauses the longer the less it helped.

// MaxShaped is how many members an object with a Shape has at most.
const MaxShaped = 64

const (
	maxShapes   = 8
	maxLead     = 256 // bytes
	shapeSlots  = 64
	longestRest = 1 << 10 // texts between two that are learnt, at most
	leadRoom    = 16      // bytes that are read of a short lead
)

// Shape is what objects with the same members have in common.
type Shape struct {
	leads []lead
	tail  string // from the last value to the end of the text
	names []string
	slots [shapeSlots]uint8 // by hash of the name: 1 + the last member of it
	chain []uint8           // the member before it with the same hash, as in slots

	compact, ordered, doubled bool
}

// lead is what stands before a value: a comma, the name, the colon, white space.
type lead struct {
	text       string
	head, last uint64 // the first and the last eight bytes
	mask       uint64 // of head, where text is shorter
	name, end  uint32 // where the name lies in text
	size       uint8  // of text, where head and last are the whole of it, else 0
	escaped    bool
}

// Compact tells whether there is no white space outside of values.
func (s *Shape) Compact() bool { return s.compact }

// Ordered tells whether no name occurs twice or has escapes, is empty or begins with a digit: then the members stand in the
// order that JavaScript gives them.
func (s *Shape) Ordered() bool { return s.ordered }

// Doubled tells whether some name occurs twice.
func (s *Shape) Doubled() bool { return s.doubled }

// Names are the decoded names. They must not be changed.
func (s *Shape) Names() []string { return s.names }

// Find is the place of the last member called name, or -1.
func (s *Shape) Find(name string) int {
	for i := s.slots[slotOf(name)]; i != 0; i = s.chain[i-1] {
		if s.names[i-1] == name {
			return int(i) - 1
		}
	}
	return -1
}

func slotOf(name string) uint {
	n := uint(len(name))
	if n == 0 {
		return 0
	}
	return (n*5 + uint(name[0])*7 + uint(name[n/2])*11 + uint(name[n-1])*31) % shapeSlots
}

func (l *lead) set(text string) {
	l.text = text
	switch b := []byte(text); {
	case len(b) < 8:
		var full [8]byte
		copy(full[:], b)
		l.head = binary.LittleEndian.Uint64(full[:])
		l.mask = 1<<(8*len(b)) - 1
	default:
		l.head, l.last = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[len(b)-8:])
		if len(b) <= 16 {
			l.size = uint8(len(b))
		}
	}
}

// at tells whether d has the lead at i.
func (l *lead) at(d []byte, i int) bool {
	n := len(l.text)
	if i+n > len(d) || i+8 > len(d) {
		return i+n <= len(d) && string(d[i:i+n]) == l.text
	}
	if n < 8 {
		return word(d, i)&l.mask == l.head
	}
	return word(d, i) == l.head && string(d[i+8:i+n]) == l.text[8:]
}

// Shapes checks texts and remembers their shapes. It belongs to one goroutine. The zero Shapes is ready.
type Shapes struct {
	known []known
	last  int // in known: the shape of the text before
	hand  int // in known: where to look for the next one to go
	rest  int // texts until the next one is learnt
	pause int // texts between two that are learnt
}

type known struct {
	shape  *Shape
	fresh  bool // no text had it since it was learnt
	recent bool // some text had it since the hand went by
}

// Check is Check, and the Shape of the text if it is an object of a kind that was met before.
func (s *Shapes) Check(data []byte, members []Member) (Kind, []Member, *Shape, error) {
	if len(s.known) > 0 && len(data) > 0 && len(data) <= MaxSize {
		if all, i := s.fit(data, members); i >= 0 {
			k := &s.known[i]
			if s.last, k.recent = i, true; k.fresh {
				k.fresh, s.pause = false, 0
			}
			return Object, all, k.shape, nil
		}
	}
	at := len(members)
	kind, members, err := Check(data, members)
	if err != nil || kind != Object {
		return kind, members, nil, err
	}
	if s.rest > 0 {
		s.rest--
		return kind, members, nil, nil
	}
	shape := newShape(data, members[at:])
	if shape != nil {
		s.learn(shape)
	}
	return kind, members, shape, nil
}

// fit checks a text by the shape of the one before it, changing over to another known one where they part. It answers
// the place of the one that fits, or -1 if none does or a value is not right.
//
// Nearly all of a record's way through the checker is in this loop, so the short cases are written out in it.
func (s *Shapes) fit(data []byte, members []Member) (all []Member, at int) {
	at = s.last
	shape := s.known[at].shape
	c := checker{data: data}
	from := len(members)
	members = slices.Grow(members, MaxShaped)
	room := members[from : from+MaxShaped]
	i, n := 0, 0
	leads := shape.leads
	for ; ; n++ {
		var l *lead
		if n < len(leads) {
			l = &leads[n]
			if l.size == 0 || i+leadRoom > len(data) || word(data, i) != l.head || word(data, i+int(l.size)-8) != l.last {
				if !l.at(data, i) {
					l = nil
				}
			}
		} else if string(data[i:]) == shape.tail {
			break
		}
		if l == nil {
			if at = s.other(shape, data, i, n); at < 0 {
				return members, -1
			}
			if shape = s.known[at].shape; n == len(shape.leads) {
				break
			}
			leads = shape.leads
			l = &leads[n]
		}
		m := &room[n]
		start := i + len(l.text)
		m.NameStart, m.NameEnd, m.Start, m.Escaped = uint32(i)+l.name, uint32(i)+l.end, uint32(start), l.escaped
		if i = start; i+9 > len(data) {
			i = c.value(i, 1)
		} else if w := word(data, i); byte(w) == '"' {
			i++
			special := plainText(word(data, i))
			for special == 0 && i+16 <= len(data) {
				i += 8
				special = plainText(word(data, i))
			}
			i += bits.TrailingZeros64(special) >> 3
			if i < len(data) && data[i] == '"' {
				i++
			} else {
				i, _ = c.str(start)
			}
		} else {
			if byte(w) == '-' {
				i++
				w = word(data, i)
			}
			others := noDigits(w)
			point := bits.TrailingZeros64(others)
			last := point
			if byte(w>>(point&^7&63)) == '.' {
				others &= others - 1
				last = bits.TrailingZeros64(others)
			}
			// A number of no digits, of none behind its point, of more than fit, with a zero before its digits or with an exponent
			// goes the long way, and whatever is no number.
			if next := byte(w >> (last &^ 7 & 63)); point > 7 && last != point+8 && others != 0 && (byte(w) != '0' || point == 15) && next|0x20 != 'e' {
				i += last >> 3
			} else {
				i = c.value(start, 1)
			}
		}
		if i < 0 {
			return members, -1
		}
		m.End = uint32(i)
	}
	return members[:from+n], at
}

// other is the place of a shape that is like this one in its first n members and goes on as data does at i, or -1.
func (s *Shapes) other(than *Shape, data []byte, i, n int) int {
	for at := range s.known {
		o := s.known[at].shape
		if o == than || len(o.leads) < n || !slices.EqualFunc(o.leads[:n], than.leads[:n], func(a, b lead) bool { return a.text == b.text }) {
			continue
		}
		if n < len(o.leads) && o.leads[n].at(data, i) || n == len(o.leads) && string(data[i:]) == o.tail {
			return at
		}
	}
	return -1
}

// learn keeps a shape, in place of one that no text had lately if there are many.
func (s *Shapes) learn(shape *Shape) {
	k := known{shape: shape, fresh: true}
	if len(s.known) < maxShapes {
		s.last = len(s.known)
		s.known = append(s.known, k)
		return
	}
	for s.known[s.hand].recent {
		s.known[s.hand].recent = false
		s.hand = (s.hand + 1) % maxShapes
	}
	s.known[s.hand], s.last = k, s.hand
	s.hand = (s.hand + 1) % maxShapes
	s.pause = min(2*s.pause+1, longestRest)
	s.rest = s.pause
}

// newShape is the shape of a checked text, or nil if there is none worth keeping.
func newShape(data []byte, members []Member) *Shape {
	n := len(members)
	if n == 0 || n > MaxShaped {
		return nil
	}
	s := &Shape{leads: make([]lead, n), names: make([]string, n), chain: make([]uint8, n), compact: true, ordered: true}
	from := uint32(0)
	for i := range members {
		m := &members[i]
		if m.Start-from > maxLead {
			return nil
		}
		l := &s.leads[i]
		l.set(string(data[from:m.Start]))
		l.name, l.end, l.escaped = m.NameStart-from, m.NameEnd-from, m.Escaped
		s.compact = s.compact && l.name == 2 && l.end+2 == uint32(len(l.text))
		if l.escaped {
			s.names[i] = m.Name(data)
		} else {
			s.names[i] = l.text[l.name:l.end]
		}
		name := s.names[i]
		s.doubled = s.doubled || s.Find(name) >= 0
		s.ordered = s.ordered && !m.Escaped && name != "" && name[0]-'0' > 9
		slot := slotOf(name)
		s.chain[i], s.slots[slot] = s.slots[slot], uint8(i+1)
		from = m.End
	}
	if len(data)-int(from) > maxLead {
		return nil
	}
	s.tail = string(data[from:])
	s.compact = s.compact && s.tail == "}"
	s.ordered = s.ordered && !s.doubled
	return s
}
