package decode

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// AppendJSON appends the message that wire holds as JSON, by the mapping of proto3
// (https://protobuf.dev/programming-guides/json/) with one difference: 64-bit integers are numbers, with all of their digits.
// Fields are in the order of their numbers, those that are not in the schema are left out. The limits are the default ones.
func (m *Message) AppendJSON(dst, wire []byte) ([]byte, error) {
	e := encoder{depth: DefaultLimits.Depth, limit: len(dst) + int(DefaultLimits.Item)}
	return e.message(dst, m, wire, 1)
}

// encoder writes messages as JSON, straight from the wire.
//
//  1. Most encoders write fields in the order of their numbers, each once: then one pass over the bytes writes the JSON
//     (inOrder). A message that is written otherwise (fields out of order, a field or oneof that comes twice, which are merged or
//     replaced) is taken back and written anew from a list of what there is (outOfOrder).
//  2. What cannot be written ends all: nothing of the item comes out.
type encoder struct {
	invalid  InvalidUTF8
	defaults bool // fields that have no presence and are not on the wire are written
	depth    int
	limit    int // of dst
}

const endsEarly = "the message ends too early"

func (e *encoder) wrong(m *Message, f *field, code, what string) error {
	wrong := &Error{Code: code, Offset: -1, What: what + " in " + m.name}
	if f != nil {
		wrong.What = fmt.Sprintf("%s in %s of %s", what, f.name, m.name)
	}
	return wrong
}

func (e *encoder) tooLarge() error {
	return &Error{Code: CodeTooLarge, Offset: -1, What: "an item of more than " + wording.Size(int64(e.limit)) + " as JSON", Hint: "the limit of an item allows more"}
}

// varint reads a varint and answers its length, 0 where there is none.
func varint(b []byte) (uint64, int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	if len(b) > 1 && b[1] < 0x80 {
		return uint64(b[0]&0x7f) | uint64(b[1])<<7, 2
	}
	v, n := binary.Uvarint(b)
	return v, max(n, 0)
}

// part is one field on the wire.
type part struct {
	number protowire.Number
	t      protowire.Type
	span   []byte // the value: of bytes and groups what is inside
}

// take reads the field that wire begins with, and answers how long it is.
func (e *encoder) take(m *Message, wire []byte) (part, int, error) {
	tag, n := varint(wire)
	p := part{number: protowire.Number(tag >> 3), t: protowire.Type(tag & 7)}
	if n == 0 {
		return p, 0, e.wrong(m, nil, CodeSyntax, endsEarly)
	}
	if tag>>3 < 1 || tag>>3 > 1<<29-1 {
		return p, 0, e.wrong(m, nil, CodeSyntax, "a field number that there cannot be")
	}
	rest := wire[n:]
	switch p.t {
	case protowire.VarintType:
		_, size := varint(rest)
		if size == 0 {
			return p, 0, e.wrong(m, nil, CodeSyntax, endsEarly)
		}
		p.span = rest[:size]
		return p, n + size, nil
	case protowire.BytesType:
		length, size := varint(rest)
		if size == 0 || length > uint64(len(rest)-size) {
			return p, 0, e.wrong(m, nil, CodeSyntax, endsEarly)
		}
		p.span = rest[size : size+int(length)]
		return p, n + size + int(length), nil
	case protowire.Fixed32Type, protowire.Fixed64Type:
		size := 4
		if p.t == protowire.Fixed64Type {
			size = 8
		}
		if len(rest) < size {
			return p, 0, e.wrong(m, nil, CodeSyntax, endsEarly)
		}
		p.span = rest[:size]
		return p, n + size, nil
	case protowire.StartGroupType:
		inside, size := protowire.ConsumeGroup(p.number, rest)
		if size < 0 {
			return p, 0, e.wrong(m, nil, CodeSyntax, "a group that does not end")
		}
		p.span = inside
		return p, n + size, nil
	default:
		return p, 0, e.wrong(m, nil, CodeSyntax, "bytes that are no field")
	}
}

// fits tells whether a field of the schema can be of a type on the wire. A field that cannot is unknown.
func (f *field) fits(t protowire.Type) bool {
	want := wireTypes[f.kind]
	if t == want {
		return true
	}
	if f.message != nil {
		return t == protowire.BytesType || t == protowire.StartGroupType // editions write messages as either
	}
	return t == protowire.BytesType && f.repeated // packed
}

var wireTypes = [...]protowire.Type{
	kindDouble: protowire.Fixed64Type, kindFloat: protowire.Fixed32Type, kindInt64: protowire.VarintType, kindUint64: protowire.VarintType,
	kindInt32: protowire.VarintType, kindFixed64: protowire.Fixed64Type, kindFixed32: protowire.Fixed32Type, kindBool: protowire.VarintType,
	kindString: protowire.BytesType, kindGroup: protowire.StartGroupType, kindMessage: protowire.BytesType, kindBytes: protowire.BytesType,
	kindUint32: protowire.VarintType, kindEnum: protowire.VarintType, kindSfixed32: protowire.Fixed32Type, kindSfixed64: protowire.Fixed64Type,
	kindSint32: protowire.VarintType, kindSint64: protowire.VarintType,
}

// message appends a message. depth is how deep its object stands, from 1.
func (e *encoder) message(dst []byte, m *Message, wire []byte, depth int) ([]byte, error) {
	if depth > e.depth {
		return dst, &Error{Code: CodeDepth, Offset: -1, What: "nested too deep"}
	}
	if m.form != ordinary {
		return e.special(dst, m, wire, depth)
	}
	start := len(dst)
	dst, ok, err := e.inOrder(dst, m, wire, depth)
	if err != nil || ok {
		return dst, err
	}
	return e.outOfOrder(dst[:start], m, wire, depth)
}

// inOrder appends a message whose fields come in order, and answers false if they do not.
func (e *encoder) inOrder(dst []byte, m *Message, wire []byte, depth int) ([]byte, bool, error) {
	dst = append(dst, '{')
	var last *field
	at, count := -1, 0 // the index of last, and how many elements it has
	var oneofs uint64
	var keys mapKeys
	for len(wire) > 0 {
		p, n, err := e.take(m, wire)
		if err != nil {
			return dst, false, err
		}
		wire = wire[n:]
		f := m.look(int(p.number))
		if f == nil || !f.fits(p.t) {
			continue
		}
		if len(dst) > e.limit {
			return dst, false, e.tooLarge()
		}
		if f != last {
			if f.index < at {
				return dst, false, nil
			}
			if f.oneof > 0 {
				bit := uint64(1) << min(f.oneof, 63)
				if oneofs&bit != 0 || f.oneof >= 63 {
					return dst, false, nil
				}
				oneofs |= bit
			}
			dst = last.end(dst)
			if e.defaults && m.implicit {
				dst = e.missing(dst, m, at+1, f.index)
			}
			dst = f.begin(append(comma(dst), f.label...))
			last, at, count, keys = f, f.index, 0, mapKeys{}
		} else if !f.repeated {
			return dst, false, nil
		}
		if !f.isMap() {
			if dst, count, err = e.elements(dst, m, f, p.t, p.span, depth, count); err != nil {
				return dst, false, err
			}
			continue
		}
		if count++; count > 1 {
			dst = append(dst, ',')
		}
		start := len(dst)
		dst, n, err = e.pair(dst, f, p.span, depth)
		if err != nil {
			return dst, false, err
		}
		if keys.doubled(dst[start:n]) {
			return dst, false, nil
		}
	}
	dst = last.end(dst)
	if e.defaults && m.implicit {
		dst = e.missing(dst, m, at+1, len(m.fields))
	}
	return append(dst, '}'), true, nil
}

// begin and end append the brackets of a field.
func (f *field) begin(dst []byte) []byte {
	switch {
	case !f.repeated:
		return dst
	case f.isMap():
		return append(dst, '{')
	}
	return append(dst, '[')
}

func (f *field) end(dst []byte) []byte {
	switch {
	case f == nil || !f.repeated:
		return dst
	case f.isMap():
		return append(dst, '}')
	}
	return append(dst, ']')
}

// mapKeys finds keys of a map that come twice.
type mapKeys struct {
	first []byte
	seen  map[string]bool
}

// doubled notes a key and tells whether it was there before.
func (k *mapKeys) doubled(key []byte) bool {
	if k.first == nil {
		k.first = bytes.Clone(key)
		return false
	}
	if k.seen == nil {
		k.seen = map[string]bool{string(k.first): true}
	}
	if k.seen[string(key)] {
		return true
	}
	k.seen[string(key)] = true
	return false
}

// elements appends what one part of the wire has of a field: a value, or several that are packed. count is how many the field
// has already.
func (e *encoder) elements(dst []byte, m *Message, f *field, t protowire.Type, span []byte, depth, count int) (_ []byte, _ int, err error) {
	want := wireTypes[f.kind]
	if t == want || f.message != nil {
		if count > 0 {
			dst = append(dst, ',')
		}
		if f.repeated {
			depth++
		}
		dst, err = e.value(dst, m, f, span, depth)
		return dst, count + 1, err
	}
	for ; len(span) > 0; count++ {
		n := f.first(span)
		if n == 0 || n > len(span) {
			return dst, count, e.wrong(m, f, CodeSyntax, endsEarly)
		}
		if len(dst) > e.limit {
			return dst, count, e.tooLarge()
		}
		if count > 0 {
			dst = append(dst, ',')
		}
		if dst, err = e.value(dst, m, f, span[:n], depth); err != nil {
			return dst, count, err
		}
		span = span[n:]
	}
	return dst, count, nil
}

// occurrence is a field of the schema on the wire.
type occurrence struct {
	field *field
	t     protowire.Type
	span  []byte
	dead  bool // another member of its oneof came later
}

// find lists the fields of the schema, in the order of the wire.
func (e *encoder) find(m *Message, wire []byte) (found []occurrence, err error) {
	var current map[int]*field
	for len(wire) > 0 {
		p, n, err := e.take(m, wire)
		if err != nil {
			return nil, err
		}
		wire = wire[n:]
		f := m.look(int(p.number))
		if f == nil || !f.fits(p.t) {
			continue
		}
		if f.oneof > 0 {
			if current == nil {
				current = map[int]*field{}
			}
			if before := current[f.oneof]; before != nil && before != f {
				for i := range found {
					found[i].dead = found[i].dead || found[i].field.oneof == f.oneof
				}
			}
			current[f.oneof] = f
		}
		found = append(found, occurrence{field: f, t: p.t, span: p.span})
	}
	return slices.DeleteFunc(found, func(o occurrence) bool { return o.dead }), nil
}

// outOfOrder appends a message whose fields come in any order, and more than once.
func (e *encoder) outOfOrder(dst []byte, m *Message, wire []byte, depth int) ([]byte, error) {
	found, err := e.find(m, wire)
	if err != nil {
		return dst, err
	}
	slices.SortStableFunc(found, func(a, b occurrence) int { return a.field.number - b.field.number })
	dst = append(dst, '{')
	before := 0
	for i := 0; i < len(found); {
		f, end := found[i].field, i+1
		for end < len(found) && found[end].field == f {
			end++
		}
		if e.defaults && m.implicit {
			dst = e.missing(dst, m, before, f.index)
			before = f.index + 1
		}
		dst = append(comma(dst), f.label...)
		if dst, err = e.merged(dst, m, found[i:end], depth); err != nil {
			return dst, err
		}
		i = end
	}
	if e.defaults && m.implicit {
		dst = e.missing(dst, m, before, len(m.fields))
	}
	return append(dst, '}'), nil
}

// merged appends a field from all of its parts.
func (e *encoder) merged(dst []byte, m *Message, found []occurrence, depth int) (_ []byte, err error) {
	f := found[0].field
	if f.isMap() {
		return e.mapping(dst, f, found, depth)
	}
	if !f.repeated {
		span := found[len(found)-1].span
		if f.message != nil && len(found) > 1 {
			span = joined(found, f)
		}
		return e.value(dst, m, f, span, depth)
	}
	dst = append(dst, '[')
	count := 0
	for _, o := range found {
		if len(dst) > e.limit {
			return dst, e.tooLarge()
		}
		if dst, count, err = e.elements(dst, m, f, o.t, o.span, depth, count); err != nil {
			return dst, err
		}
	}
	return append(dst, ']'), nil
}

// mapping appends a map; of entries with one key the last one counts.
func (e *encoder) mapping(dst []byte, f *field, found []occurrence, depth int) ([]byte, error) {
	pairs, at := make([][]byte, 0, len(found)), map[string]int{}
	held := 0
	for _, o := range found {
		pair, n, err := e.pair(nil, f, o.span, depth)
		if err != nil {
			return dst, err
		}
		if held += len(pair); len(dst)+held > e.limit {
			return dst, e.tooLarge()
		}
		if i, ok := at[string(pair[:n])]; ok {
			pairs[i] = pair
			continue
		}
		at[string(pair[:n])] = len(pairs)
		pairs = append(pairs, pair)
	}
	dst = append(dst, '{')
	for _, pair := range pairs {
		dst = append(comma(dst), pair...)
	}
	return append(dst, '}'), nil
}

// pair appends an entry of a map, and answers the place behind its key.
func (e *encoder) pair(dst []byte, f *field, wire []byte, depth int) (_ []byte, behind int, err error) {
	m := f.message
	found, err := e.find(m, wire)
	if err != nil {
		return dst, 0, err
	}
	var key, value []byte
	var there [3]bool
	for _, o := range found {
		there[min(o.field.number, 2)] = true
		if o.field.number == 1 {
			key = o.span
		} else {
			value = o.span
		}
	}
	name, of := &m.fields[0], &m.fields[1]
	if name.kind == kindString {
		dst, err = e.value(dst, m, name, key, depth)
	} else {
		dst = append(dst, '"')
		if there[1] {
			dst, err = e.value(dst, m, name, key, depth)
		} else {
			dst = e.zero(dst, name)
		}
		dst = append(dst, '"')
	}
	if err != nil {
		return dst, 0, err
	}
	behind = len(dst)
	dst = append(dst, ':')
	switch {
	case of.message != nil:
		dst, err = e.value(dst, m, of, joinedOrOne(found, of, value), depth+1)
	case there[2]:
		dst, err = e.value(dst, m, of, value, depth+1)
	default:
		dst = e.zero(dst, of)
	}
	return dst, behind, err
}

func joinedOrOne(found []occurrence, f *field, one []byte) []byte {
	if len(found) <= 2 {
		return one
	}
	return joined(found, f)
}

// first is the length of the first of packed elements, 0 where it is cut off.
func (f *field) first(run []byte) int {
	switch wireTypes[f.kind] {
	case protowire.Fixed32Type:
		return 4
	case protowire.Fixed64Type:
		return 8
	default:
		_, n := varint(run)
		return n
	}
}

// missing appends the defaults of the fields from one index to another that have no presence.
func (e *encoder) missing(dst []byte, m *Message, from, to int) []byte {
	for i := from; i < to; i++ {
		if f := &m.fields[i]; f.implicit {
			dst = append(comma(dst), f.label...)
			if f.repeated {
				dst = f.end(f.begin(dst))
			} else {
				dst = e.zero(dst, f)
			}
		}
	}
	return dst
}

// zero appends the default of a field that is no message.
func (e *encoder) zero(dst []byte, f *field) []byte {
	switch f.kind {
	case kindString, kindBytes:
		return append(dst, `""`...)
	case kindBool:
		return append(dst, "false"...)
	case kindEnum:
		return f.enum.append(dst, f.enum.first)
	case kindMessage, kindGroup:
		return append(dst, "{}"...)
	default:
		return append(dst, '0')
	}
}

func (e *enum) append(dst []byte, v int32) []byte {
	if e.null {
		return append(dst, "null"...)
	}
	if label := e.labels[v]; label != nil {
		return append(dst, label...)
	}
	return strconv.AppendInt(dst, int64(v), 10)
}

// value appends one value.
func (e *encoder) value(dst []byte, m *Message, f *field, span []byte, depth int) ([]byte, error) {
	switch f.kind {
	case kindString:
		dst, ok := appendText(dst, span, e.invalid)
		if !ok {
			return dst, e.wrong(m, f, CodeUTF8, "a text that is not UTF-8")
		}
		return dst, nil
	case kindBytes:
		return appendBase64(dst, span), nil
	case kindMessage, kindGroup:
		return e.message(dst, f.message, span, depth+1)
	case kindDouble:
		return appendDouble(dst, math.Float64frombits(binary.LittleEndian.Uint64(span)), 64), nil
	case kindFloat:
		return appendDouble(dst, float64(math.Float32frombits(binary.LittleEndian.Uint32(span))), 32), nil
	case kindFixed64:
		return strconv.AppendUint(dst, binary.LittleEndian.Uint64(span), 10), nil
	case kindSfixed64:
		return strconv.AppendInt(dst, int64(binary.LittleEndian.Uint64(span)), 10), nil
	case kindFixed32:
		return strconv.AppendUint(dst, uint64(binary.LittleEndian.Uint32(span)), 10), nil
	case kindSfixed32:
		return strconv.AppendInt(dst, int64(int32(binary.LittleEndian.Uint32(span))), 10), nil
	default:
	}
	v, _ := varint(span)
	switch f.kind {
	case kindInt64:
		return strconv.AppendInt(dst, int64(v), 10), nil
	case kindUint64:
		return strconv.AppendUint(dst, v, 10), nil
	case kindInt32:
		return strconv.AppendInt(dst, int64(int32(v)), 10), nil
	case kindUint32:
		return strconv.AppendUint(dst, uint64(uint32(v)), 10), nil
	case kindSint32:
		return strconv.AppendInt(dst, protowire.DecodeZigZag(v&math.MaxUint32), 10), nil
	case kindSint64:
		return strconv.AppendInt(dst, protowire.DecodeZigZag(v), 10), nil
	case kindBool:
		return strconv.AppendBool(dst, v != 0), nil
	default:
		return f.enum.append(dst, int32(v)), nil
	}
}

func appendBase64(dst, b []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(dst, '"'), b), '"')
}
