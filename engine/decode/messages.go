package decode

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// checkMessage checks what a config says of a body of Protobuf.
func (c *Config) checkMessage() error {
	switch {
	case c.Message == nil:
		return errors.New("a body of protobuf needs a message type")
	case c.Delimited && c.List:
		return errors.New("a stream of messages is a list already; a path picks one in a single message")
	case c.List && len(c.Path) == 0:
		return fmt.Errorf("a path in protobuf names a repeated field of %s", c.Message.name)
	case !c.List:
		return nil
	}
	m := c.Message
	for i, name := range c.Path {
		f := m.inJSON(name)
		last := i == len(c.Path)-1
		switch {
		case f == nil:
			return fmt.Errorf("%s has no field %q; it has %s", m.name, name, m.names())
		case last && (!f.repeated || f.isMap()):
			return fmt.Errorf("the field %q of %s is not repeated, so it is no list", name, m.name)
		case !last && (f.repeated || f.message == nil || f.message.form != ordinary):
			return fmt.Errorf("the field %q of %s is not a single message, so the path cannot go on in it", name, m.name)
		}
		m = f.message
	}
	return nil
}

func (m *Message) names() string {
	const most = 20
	var names []string
	for i := range m.fields {
		if names = append(names, m.fields[i].json); len(names) == most {
			names = append(names, "…")
			break
		}
	}
	return strings.Join(names, ", ")
}

// messages reads a body of Protobuf: one message, a stream of them, or the elements of a repeated field in one.
//
// Where a field is picked, the message around it is never held as a whole. Each field is looked at as it comes: one of the path
// is gone into, an element of the picked one is an item, and all others are kept as they are on the wire, for the rest.
type messages struct {
	items  *Items
	window *window
	config *Config
	json   []byte
	done   bool
	levels []level
	run    []byte // what is left of packed elements
	picked *field
}

// level is a message on the path that is being read.
type level struct {
	message *Message
	field   *field // the next one on the path
	end     int64  // of the message in the body; the largest number for the body itself
	rest    []byte
}

func newMessages(x *Items, w *window, c *Config) *messages {
	r := &messages{items: x, window: w, config: c}
	w.begun = true // bytes have no byte order mark
	if c.List {
		r.levels = []level{{message: c.Message, field: c.Message.inJSON(c.Path[0]), end: math.MaxInt64}}
	}
	return r
}

func (r *messages) next() ([]byte, int, error) {
	json, err := r.item()
	return json, 0, err
}

func (r *messages) item() ([]byte, error) {
	switch {
	case r.done:
		return nil, io.EOF
	case r.config.List:
		return r.element()
	case r.config.Delimited:
		return r.delimited()
	}
	r.done = true
	w := r.window
	for w.fill() {
	}
	if !w.ended() {
		return nil, w.err
	}
	return r.encode(r.config.Message, w.rest())
}

func (r *messages) encoder() encoder {
	l := &r.config.Limits
	return encoder{invalid: r.config.Invalid, defaults: r.config.Defaults, depth: l.Depth, limit: int(l.Item)}
}

// encode makes an item of a message.
func (r *messages) encode(m *Message, wire []byte) (_ []byte, err error) {
	if int64(len(wire)) > r.window.limit {
		return nil, r.window.tooLarge()
	}
	e := r.encoder()
	if r.json, err = e.message(r.json[:0], m, wire, 1); err != nil {
		return nil, r.at(err)
	}
	if len(r.json) > e.limit {
		return nil, r.at(e.tooLarge())
	}
	return r.json, nil
}

// at adds where the item begins.
func (r *messages) at(err error) error {
	var wrong *Error
	if errors.As(err, &wrong) {
		wrong.Offset = r.window.base
	}
	return err
}

// delimited is the next message of a stream, or io.EOF.
func (r *messages) delimited() ([]byte, error) {
	w := r.window
	if _, ok := w.byteAt(0); !ok {
		if w.ended() {
			return nil, io.EOF
		}
		return nil, w.err
	}
	length, n, err := r.varint(0)
	if err != nil {
		return nil, err
	}
	if err := r.holds(n, length); err != nil {
		return nil, err
	}
	json, err := r.encode(r.config.Message, w.rest()[n:n+int(length)])
	if err != nil {
		return nil, err
	}
	w.use(n + int(length))
	return json, nil
}

// varint reads a varint n bytes ahead, and answers the place behind it.
func (r *messages) varint(n int) (uint64, int, error) {
	const longest = 10
	for i := n; ; i++ {
		c, ok := r.window.byteAt(i)
		if !ok {
			return 0, 0, r.window.cut(endsEarly)
		}
		if c < 0x80 {
			v, size := varint(r.window.rest()[n:])
			if size == 0 {
				break
			}
			return v, n + size, nil
		}
		if i-n == longest {
			break
		}
	}
	return 0, 0, r.wrong("bytes that are no field")
}

func (r *messages) wrong(what string) *Error {
	return &Error{Code: CodeSyntax, Offset: r.window.base, What: what + " in " + r.config.Message.name}
}

// holds reads on until length bytes are there behind the next n.
func (r *messages) holds(n int, length uint64) error {
	if length > uint64(r.window.limit) {
		return r.window.tooLarge()
	}
	for r.window.end-r.window.start < n+int(length) {
		if !r.window.fill() {
			return r.window.cut(endsEarly)
		}
	}
	return nil
}

// element is the next element of the picked field, or io.EOF at the end of the body.
func (r *messages) element() ([]byte, error) {
	w := r.window
	for {
		if len(r.run) > 0 {
			return r.packed()
		}
		l := &r.levels[len(r.levels)-1]
		if w.base == l.end {
			if err := r.leave(); err != nil {
				return nil, err
			}
			continue
		}
		if _, ok := w.byteAt(0); !ok {
			if !w.ended() {
				return nil, w.err
			}
			if len(r.levels) > 1 {
				return nil, w.cut(endsEarly)
			}
			return nil, r.finish()
		}
		tag, n, err := r.varint(0)
		if err != nil {
			return nil, err
		}
		number, t := protowire.Number(tag>>3), protowire.Type(tag&7)
		if tag>>3 < 1 || tag>>3 > 1<<29-1 {
			return nil, r.wrong("a field number that there cannot be")
		}
		f := l.message.look(int(number))
		picked := f == l.field && f.fits(t)
		if picked && len(r.levels) < len(r.config.Path) {
			if t == protowire.BytesType {
				if err := r.enter(f, n); err != nil {
					return nil, err
				}
				continue
			}
			picked = false // a group is small enough to be kept
		}
		length, err := r.field(number, t, n)
		if err != nil {
			return nil, err
		}
		if l.end-w.base < int64(length) {
			return nil, r.wrong("a field that reaches beyond its message")
		}
		if !picked {
			if err := r.keep(l, length); err != nil {
				return nil, err
			}
			continue
		}
		json, err := r.pick(f, length)
		if err != nil {
			return nil, err
		}
		w.use(length)
		if json != nil {
			return json, nil
		}
	}
}

// pick makes an item of the field that begins here, or notes that it is several.
func (r *messages) pick(f *field, length int) ([]byte, error) {
	e := r.encoder()
	p, _, err := e.take(r.levels[len(r.levels)-1].message, r.window.rest()[:length])
	if err != nil {
		return nil, r.at(err)
	}
	if f.message != nil {
		return r.encode(f.message, p.span)
	}
	if p.t == wireTypes[f.kind] {
		r.json, err = e.value(r.json[:0], r.levels[len(r.levels)-1].message, f, p.span, 1)
		return r.json, r.at(err)
	}
	r.run, r.picked = append([]byte(nil), p.span...), f
	return nil, nil
}

// packed is the next element of a run.
func (r *messages) packed() ([]byte, error) {
	n := r.picked.first(r.run)
	if n == 0 || n > len(r.run) {
		return nil, r.wrong(endsEarly)
	}
	e := r.encoder()
	var err error
	r.json, err = e.value(r.json[:0], r.levels[len(r.levels)-1].message, r.picked, r.run[:n], 1)
	r.run = r.run[n:]
	return r.json, r.at(err)
}

// enter goes into a message on the path, whose tag is n bytes long.
func (r *messages) enter(f *field, n int) error {
	length, n, err := r.varint(n)
	if err != nil {
		return err
	}
	w, l := r.window, &r.levels[len(r.levels)-1]
	begin := w.base + int64(n)
	if length > math.MaxInt64/2 || l.end-begin < int64(length) {
		return r.wrong("a field that reaches beyond its message")
	}
	w.use(n)
	r.levels = append(r.levels, level{message: f.message, field: f.message.inJSON(r.config.Path[len(r.levels)]), end: begin + int64(length)})
	return nil
}

// leave ends a message on the path: what is left of it belongs to the rest of the one around it.
func (r *messages) leave() error {
	n := len(r.levels) - 1
	l, outer := r.levels[n], &r.levels[n-1]
	r.levels = r.levels[:n]
	outer.rest = protowire.AppendTag(outer.rest, protowire.Number(outer.field.number), protowire.BytesType)
	outer.rest = protowire.AppendBytes(outer.rest, l.rest)
	return r.restFits(outer)
}

func (r *messages) restFits(l *level) error {
	if int64(len(l.rest)) > r.window.limit {
		return &Error{Code: CodeTooLarge, Offset: r.window.base, What: "more than " + wording.Size(r.window.limit) + " around the list of items", Hint: "the limit of an item allows more"}
	}
	return nil
}

// keep adds a field to the rest.
func (r *messages) keep(l *level, length int) error {
	l.rest = append(l.rest, r.window.rest()[:length]...)
	r.window.use(length)
	return r.restFits(l)
}

// finish makes the rest, at the end of the body.
func (r *messages) finish() error {
	r.done = true
	e := r.encoder()
	rest, err := e.message(nil, r.config.Message, r.levels[0].rest, 1)
	if err != nil {
		return r.at(err)
	}
	r.items.rest, r.items.found = rest, true
	return io.EOF
}

// field is the length of a field whose tag is n bytes long, once all of it is there.
func (r *messages) field(number protowire.Number, t protowire.Type, n int) (int, error) {
	switch t {
	case protowire.VarintType:
		_, end, err := r.varint(n)
		return end, err
	case protowire.Fixed32Type:
		return n + 4, r.holds(n, 4)
	case protowire.Fixed64Type:
		return n + 8, r.holds(n, 8)
	case protowire.BytesType:
		length, n, err := r.varint(n)
		if err != nil {
			return 0, err
		}
		return n + int(length), r.holds(n, length)
	case protowire.StartGroupType:
		return r.group(number, n)
	default:
		return 0, r.wrong("bytes that are no field")
	}
}

// group is the length of a group. It is looked at again each time that twice as much is there.
func (r *messages) group(number protowire.Number, n int) (int, error) {
	w := r.window
	for want := windowSize; ; want *= 2 {
		more := true
		for more && w.end-w.start < want {
			more = w.fill()
		}
		_, size := protowire.ConsumeGroup(number, w.rest()[n:])
		switch {
		case size >= 0:
			return n + size, nil
		case !more:
			return 0, w.cut(endsEarly)
		case !errors.Is(protowire.ParseError(size), io.ErrUnexpectedEOF):
			return 0, r.wrong("a group that does not end")
		}
	}
}
