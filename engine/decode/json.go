package decode

import (
	"bytes"
	"io"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// document reads one JSON document: as one item, or the elements of a list in it.
//
//  1. Where a list is picked, only the element under way is held, and the rest: all that stands around the list. Each piece
//     of the rest is checked before it is kept, so the rest is valid by how it is made.
//  2. The length of a value is found by its brackets and quotes alone (window.value), then the whole value is checked.
type document struct {
	items  *Items
	window *window
	config *Config
	begun  bool
	first  bool // no element of the list has been read
	level  int  // objects that are open around the list
	listed bool // the list has been read, or is being read
	rest   []byte
	scan   scan
	checks checks
}

func newJSON(x *Items, w *window, c *Config) *document {
	return &document{items: x, window: w, config: c}
}

const (
	noValue = "nothing where a JSON value is expected"
	noMore  = "the JSON document ends too early"
)

func (d *document) next() ([]byte, int, error) {
	w := d.window
	if !d.begun {
		d.begun = true
		if w.space(); w.start == w.end {
			return nil, 0, w.cut(noValue)
		}
		if !d.config.List {
			json, err := d.whole()
			return json, 0, err
		}
		if err := d.seek(); err != nil {
			return nil, 0, err
		}
	} else if !d.config.List {
		return nil, 0, io.EOF
	}
	if !d.items.found {
		return nil, 0, io.EOF
	}
	json, err := d.element()
	return json, 0, err
}

// whole is the document as one item.
func (d *document) whole() ([]byte, error) {
	w := d.window
	n, err := d.value(d.config.Limits.Depth)
	if err != nil {
		return nil, err
	}
	for after := n; ; after++ {
		c, ok := w.byteAt(after)
		if !ok {
			break
		}
		if !isSpace(c) {
			return nil, d.wrong(after, "more text after the JSON document")
		}
	}
	if !w.ended() {
		return nil, w.err
	}
	return w.rest()[:n], nil
}

// element is the next element of the list, or io.EOF once the document has been read to its end.
func (d *document) element() ([]byte, error) {
	w := d.window
	w.space()
	c, ok := w.byteAt(0)
	switch {
	case !ok:
		return nil, w.cut(noMore)
	case c == ']':
		w.use(1)
		d.rest = append(d.rest, ']')
		if err := d.finish(); err != nil {
			return nil, err
		}
		return nil, io.EOF
	case d.first:
		d.first = false
	case c != ',':
		return nil, d.wrong(0, "no comma or ] after an element")
	default:
		w.use(1)
		w.space()
	}
	n, err := d.value(d.config.Limits.Depth)
	if err != nil {
		return nil, err
	}
	json := w.rest()[:n]
	w.use(n)
	return json, nil
}

// seek goes to the list. It reads the whole document if there is none.
func (d *document) seek() error {
	c, _ := d.window.byteAt(0)
	if len(d.config.Path) > 0 && c == '{' {
		d.open()
		return d.members(true)
	}
	if len(d.config.Path) == 0 && c == '[' {
		d.begin()
		return nil
	}
	if len(d.config.Path) == 0 && c != 'n' {
		return d.noList()
	}
	if err := d.keep(); err != nil {
		return err
	}
	return d.finish()
}

func (d *document) open() {
	d.window.use(1)
	d.rest = append(d.rest, '{')
	d.level++
}

func (d *document) begin() {
	d.window.use(1)
	d.rest = append(d.rest, '[')
	d.first, d.listed, d.items.found = true, true, true
}

func (d *document) noList() error {
	return &Error{Code: CodeList, Offset: d.window.base, What: "no list where the items should be", Hint: "the path of the records must lead to an array"}
}

// finish reads what stands behind the list, to the end of the body.
func (d *document) finish() error {
	w := d.window
	if d.level > 0 {
		if err := d.members(false); err != nil {
			return err
		}
		return nil
	}
	if w.space(); w.start < w.end {
		return d.wrong(0, "more text after the JSON document")
	}
	if !w.ended() {
		return w.err
	}
	d.items.rest = d.rest
	return nil
}

// members reads members of the object that is open, and of those around it: up to the list, or to the end of the document.
func (d *document) members(first bool) error {
	w := d.window
	for d.level > 0 {
		w.space()
		c, ok := w.byteAt(0)
		if ok && c == '}' {
			w.use(1)
			d.rest = append(d.rest, '}')
			d.level--
			first = false
			continue
		}
		if ok && !first {
			if c != ',' {
				return d.wrong(0, "no comma or } after a member")
			}
			w.use(1)
			w.space()
			d.rest = append(d.rest, ',')
			c, ok = w.byteAt(0)
		}
		if !ok {
			return w.cut(noMore)
		}
		if c != '"' {
			return d.wrong(0, "no member name where one is expected")
		}
		picked, err := d.name()
		if err != nil {
			return err
		}
		first = false
		if c, ok = w.byteAt(0); !ok {
			return w.cut(noMore)
		}
		switch last := d.level == len(d.config.Path); {
		case picked && last && c == '[':
			if d.listed {
				return d.wrong(0, "the list of items comes twice")
			}
			d.begin()
			return nil
		case picked && last && c != 'n':
			return d.noList()
		case picked && !last && c == '{':
			d.open()
			first = true
			continue
		}
		if err := d.keep(); err != nil {
			return err
		}
	}
	return d.finish()
}

// name reads the name of a member and its colon, and tells whether it is the next one of the path.
func (d *document) name() (picked bool, err error) {
	w := d.window
	n, err := d.value(1)
	if err != nil {
		return false, err
	}
	raw := w.rest()[:n]
	name, _ := rawjson.Text(raw)
	picked = name == d.config.Path[d.level-1]
	if err := d.copy(n); err != nil {
		return false, err
	}
	w.space()
	if c, ok := w.byteAt(0); !ok {
		return false, w.cut(noMore)
	} else if c != ':' {
		return false, d.wrong(0, "no colon after a member name")
	}
	w.use(1)
	w.space()
	d.rest = append(d.rest, ':')
	return picked, nil
}

// keep reads a value into the rest.
func (d *document) keep() error {
	n, err := d.value(d.config.Limits.Depth - d.level)
	if err != nil {
		return err
	}
	return d.copy(n)
}

func (d *document) copy(n int) error {
	if int64(len(d.rest)+n) > d.window.limit {
		return &Error{Code: CodeTooLarge, Offset: d.window.base, What: "more than " + wording.Size(d.window.limit) + " around the list of items", Hint: "the limit of an item allows more"}
	}
	d.rest = append(d.rest, d.window.rest()[:n]...)
	d.window.use(n)
	return nil
}

// value is the length of the checked value that begins here.
func (d *document) value(depth int) (int, error) {
	w := d.window
	n, err := w.value(&d.scan, depth)
	if err != nil {
		return 0, err
	}
	if int64(n) > w.limit {
		return 0, w.tooLarge()
	}
	if err := d.checks.check(w.rest()[:n]); err != nil {
		return 0, wrongJSON(err, w.base)
	}
	return n, nil
}

// checks proves texts to be JSON. It keeps room for their members, which nobody here asks for.
type checks struct{ members []rawjson.Member }

func (c *checks) check(json []byte) (err error) {
	_, c.members, err = rawjson.Check(json, c.members[:0])
	return err
}

func (d *document) wrong(at int, what string) error {
	return &Error{Code: CodeSyntax, Offset: d.window.base + int64(at), What: what}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// scan is how far a value has been looked through.
type scan struct {
	at, open int
	inString bool
}

// plain are the bytes that say nothing about where a value ends.
var plain = func() (table [256]bool) {
	for i := range table {
		table[i] = !bytes.ContainsRune([]byte("\"{}[],: \t\n\r"), rune(i)) || i >= 0x80
	}
	return table
}()

// value is the length of the value that begins here, by its brackets and quotes alone: what is between them is not looked at.
func (w *window) value(s *scan, depth int) (int, error) {
	*s = scan{}
	for {
		if n, err := s.run(w.rest(), depth); err != nil {
			err.Offset += w.base
			return 0, err
		} else if n >= 0 {
			return n, nil
		}
		if w.fill() {
			continue
		}
		if w.ended() && s.open == 0 && !s.inString && s.at > 0 {
			return min(s.at, w.end-w.start), nil
		}
		if w.ended() && w.start == w.end {
			return 0, w.cut(noValue)
		}
		return 0, w.cut(noMore)
	}
}

// run goes on through what is there, and answers the length of the value, or -1 if more is needed.
func (s *scan) run(b []byte, depth int) (int, *Error) {
	i := s.at
	for i < len(b) {
		c := b[i]
		if s.inString {
			switch c {
			case '\\':
				i++
			case '"':
				if s.inString = false; s.open == 0 {
					return i + 1, nil
				}
			}
			i++
			continue
		}
		if plain[c] {
			i++
			continue
		}
		switch c {
		case '"':
			s.inString = true
		case '{', '[':
			if s.open++; s.open > depth {
				return 0, &Error{Code: CodeDepth, Offset: int64(i), What: "nested too deep"}
			}
		case '}', ']':
			if s.open == 0 {
				return i, nil
			}
			if s.open--; s.open == 0 {
				return i + 1, nil
			}
		default:
			if s.open == 0 {
				return i, nil
			}
		}
		i++
	}
	s.at = i
	return -1, nil
}
