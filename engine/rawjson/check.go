package rawjson

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// MaxDepth is how deep arrays and objects may nest.
const MaxDepth = 1000

// MaxSize is the largest text in bytes; spans are 32 bits wide.
const MaxSize = math.MaxInt32

// Kind is what a JSON text is at its top.
type Kind uint8

// The kinds of JSON values.
const (
	Invalid Kind = iota
	Null
	False
	True
	Number
	String
	Array
	Object
)

// Member is where one member of an object lies in its text: the name without its quotes, the value with all of its own.
// Escaped says that the name has escape sequences.
type Member struct {
	NameStart, NameEnd, Start, End uint32
	Escaped                        bool
}

// SyntaxError says what is wrong with a text and at which byte (from 0). It never quotes the text.
type SyntaxError struct {
	Offset int
	What   string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("%s at byte %d", e.What, e.Offset) }

var errSize = errors.New("the text is larger than 2 GiB")

// Check proves that data is one JSON value in valid UTF-8 with nothing but white space around it, and appends the spans of
// its top-level members to members if it is an object. The error is a *SyntaxError, save for a text over MaxSize.
func Check(data []byte, members []Member) (Kind, []Member, error) {
	if len(data) > MaxSize {
		return Invalid, members, errSize
	}
	c := checker{data: data}
	c.space()
	if c.pos == len(data) {
		return Invalid, members, &SyntaxError{c.pos, "nothing where a JSON value is expected"}
	}
	kind := KindOf(data[c.pos])
	var ok bool
	if kind == Object {
		members, ok = c.top(members)
	} else {
		ok = c.value(0)
	}
	if !ok {
		return Invalid, members, &SyntaxError{c.pos, c.what}
	}
	c.space()
	if c.pos != len(data) {
		return Invalid, members, &SyntaxError{c.pos, "more text after the JSON value"}
	}
	return kind, members, nil
}

// KindOf tells the kind of a value by its first byte.
func KindOf(first byte) Kind {
	switch first {
	case '{':
		return Object
	case '[':
		return Array
	case '"':
		return String
	case 't':
		return True
	case 'f':
		return False
	case 'n':
		return Null
	}
	if first == '-' || '0' <= first && first <= '9' {
		return Number
	}
	return Invalid
}

type checker struct {
	data []byte
	pos  int
	what string
}

func (c *checker) fail(what string) bool { c.what = what; return false }

func (c *checker) space() {
	for c.pos < len(c.data) {
		switch c.data[c.pos] {
		case ' ', '\t', '\n', '\r':
			c.pos++
		default:
			return
		}
	}
}

// top reads the outermost object and notes its members.
func (c *checker) top(members []Member) ([]Member, bool) {
	c.pos++
	for first := true; ; first = false {
		c.space()
		if c.pos == len(c.data) {
			return members, c.fail("the object is not closed")
		}
		if first && c.data[c.pos] == '}' {
			c.pos++
			return members, true
		}
		if c.data[c.pos] != '"' {
			return members, c.fail("no member name where one is expected")
		}
		m := Member{NameStart: uint32(c.pos + 1)}
		escaped, ok := c.str()
		if !ok {
			return members, false
		}
		m.NameEnd, m.Escaped = uint32(c.pos-1), escaped
		if !c.colon() {
			return members, false
		}
		m.Start = uint32(c.pos)
		if !c.value(1) {
			return members, false
		}
		m.End = uint32(c.pos)
		members = append(members, m)
		c.space()
		if c.pos == len(c.data) {
			return members, c.fail("the object is not closed")
		}
		switch c.data[c.pos] {
		case ',':
			c.pos++
		case '}':
			c.pos++
			return members, true
		default:
			return members, c.fail("no comma or } after a member")
		}
	}
}

func (c *checker) colon() bool {
	c.space()
	if c.pos == len(c.data) || c.data[c.pos] != ':' {
		return c.fail("no colon after a member name")
	}
	c.pos++
	c.space()
	return true
}

func (c *checker) value(depth int) bool {
	if c.pos == len(c.data) {
		return c.fail("nothing where a JSON value is expected")
	}
	switch b := c.data[c.pos]; b {
	case '"':
		_, ok := c.str()
		return ok
	case '{':
		return c.object(depth + 1)
	case '[':
		return c.array(depth + 1)
	case 't':
		return c.word("true")
	case 'f':
		return c.word("false")
	case 'n':
		return c.word("null")
	default:
		if b == '-' || '0' <= b && b <= '9' {
			return c.number()
		}
		return c.fail("no JSON value where one is expected")
	}
}

func (c *checker) object(depth int) bool {
	if depth > MaxDepth {
		return c.fail("nested too deep")
	}
	c.pos++
	for first := true; ; first = false {
		c.space()
		if c.pos == len(c.data) {
			return c.fail("the object is not closed")
		}
		if first && c.data[c.pos] == '}' {
			c.pos++
			return true
		}
		if c.data[c.pos] != '"' {
			return c.fail("no member name where one is expected")
		}
		if _, ok := c.str(); !ok {
			return false
		}
		if !c.colon() || !c.value(depth) {
			return false
		}
		c.space()
		if c.pos == len(c.data) {
			return c.fail("the object is not closed")
		}
		switch c.data[c.pos] {
		case ',':
			c.pos++
		case '}':
			c.pos++
			return true
		default:
			return c.fail("no comma or } after a member")
		}
	}
}

func (c *checker) array(depth int) bool {
	if depth > MaxDepth {
		return c.fail("nested too deep")
	}
	c.pos++
	for first := true; ; first = false {
		c.space()
		if c.pos == len(c.data) {
			return c.fail("the array is not closed")
		}
		if first && c.data[c.pos] == ']' {
			c.pos++
			return true
		}
		if !c.value(depth) {
			return false
		}
		c.space()
		if c.pos == len(c.data) {
			return c.fail("the array is not closed")
		}
		switch c.data[c.pos] {
		case ',':
			c.pos++
		case ']':
			c.pos++
			return true
		default:
			return c.fail("no comma or ] after an element")
		}
	}
}

func (c *checker) word(w string) bool {
	if len(c.data)-c.pos < len(w) || string(c.data[c.pos:c.pos+len(w)]) != w {
		return c.fail("no JSON value where one is expected")
	}
	c.pos += len(w)
	return true
}

func (c *checker) number() bool {
	d, i := c.data, c.pos
	if d[i] == '-' {
		i++
	}
	start := i
	for i < len(d) && d[i]-'0' <= 9 {
		i++
	}
	if i == start || d[start] == '0' && i > start+1 {
		c.pos = start
		return c.fail("a number that is not JSON")
	}
	if i < len(d) && d[i] == '.' {
		i++
		start = i
		for i < len(d) && d[i]-'0' <= 9 {
			i++
		}
		if i == start {
			c.pos = i
			return c.fail("no digit after the point of a number")
		}
	}
	if i < len(d) && d[i]|0x20 == 'e' {
		i++
		if i < len(d) && (d[i] == '+' || d[i] == '-') {
			i++
		}
		start = i
		for i < len(d) && d[i]-'0' <= 9 {
			i++
		}
		if i == start {
			c.pos = i
			return c.fail("no digit in the exponent of a number")
		}
	}
	c.pos = i
	return true
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// str reads a string from its opening quote and tells whether it has escapes. Eight bytes are looked at at once: a byte
// that is a quote, a backslash, a control character or not ASCII makes the word special.
func (c *checker) str() (escaped, ok bool) {
	d, i := c.data, c.pos+1
	for {
		for i+8 <= len(d) {
			w := binary.LittleEndian.Uint64(d[i:])
			quote := w ^ ones*'"'
			slash := w ^ ones*'\\'
			special := (quote-ones)&^quote | (slash-ones)&^slash | (w - ones*0x20) | w
			if special&highs != 0 {
				break
			}
			i += 8
		}
		for n := 0; n < 8; n++ {
			if i >= len(d) {
				c.pos = i
				return false, c.fail("the string is not closed")
			}
			b := d[i]
			switch {
			case b == '"':
				c.pos = i + 1
				return escaped, true
			case b == '\\':
				escaped = true
				if i = c.escape(i); i < 0 {
					return false, false
				}
			case b < 0x20:
				c.pos = i
				return false, c.fail("a control character in a string")
			case b < utf8.RuneSelf:
				i++
			default:
				r, size := utf8.DecodeRune(d[i:])
				if r == utf8.RuneError && size == 1 {
					c.pos = i
					return false, c.fail("invalid UTF-8")
				}
				i += size
			}
		}
	}
}

// escape reads one escape sequence at i and answers the place behind it, or -1.
func (c *checker) escape(i int) int {
	d := c.data
	if i+1 < len(d) {
		switch d[i+1] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			return i + 2
		case 'u':
			if i+6 <= len(d) && hex4(d[i+2:i+6]) >= 0 {
				return i + 6
			}
		}
	}
	c.pos = i
	c.fail("an escape sequence that is not JSON")
	return -1
}

// hex4 reads four hexadecimal digits, or answers -1.
func hex4(d []byte) rune {
	var r rune
	for _, b := range d[:4] {
		switch {
		case '0' <= b && b <= '9':
			r = r<<4 | rune(b-'0')
		case 'a' <= b|0x20 && b|0x20 <= 'f':
			r = r<<4 | rune(b|0x20-'a'+10)
		default:
			return -1
		}
	}
	return r
}
