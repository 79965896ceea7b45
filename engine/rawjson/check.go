package rawjson

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"unicode/utf8"
	"unsafe"
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
	i := space(data, 0)
	if i == len(data) {
		return Invalid, members, &SyntaxError{i, "nothing where a JSON value is expected"}
	}
	kind := KindOf(data[i])
	if kind == Object {
		members, i = c.top(members, i)
	} else {
		i = c.value(i, 0)
	}
	if i < 0 {
		return Invalid, members, &SyntaxError{c.pos, c.what}
	}
	if i = space(data, i); i != len(data) {
		return Invalid, members, &SyntaxError{i, "more text after the JSON value"}
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

// checker walks through a text. Its methods take the place where they begin and answer the place behind what they read, or a
// negative number after they have noted what is wrong.
type checker struct {
	data []byte
	pos  int
	what string
}

func (c *checker) fail(pos int, what string) int {
	c.pos, c.what = pos, what
	return -1
}

// space is the place of the first byte from i on that is no white space.
func space(d []byte, i int) int {
	for i < len(d) {
		switch d[i] {
		case ' ', '\t', '\n', '\r':
			i++
		default:
			return i
		}
	}
	return i
}

// top reads the outermost object, which opens at i, and notes its members.
func (c *checker) top(members []Member, i int) ([]Member, int) {
	d := c.data
	i = space(d, i+1)
	if i < len(d) && d[i] == '}' {
		return members, i + 1
	}
	for {
		if i >= len(d) {
			return members, c.fail(i, "the object is not closed")
		}
		if d[i] != '"' {
			return members, c.fail(i, "no member name where one is expected")
		}
		end, escaped := quick(d, i), false
		if end < 0 {
			if end, escaped = c.str(i); end < 0 {
				return members, end
			}
		}
		start := end + 1
		if start >= len(d) || d[end] != ':' || d[start] <= ' ' {
			if start = c.colon(end); start < 0 {
				return members, start
			}
		}
		stop := c.value(start, 1)
		if stop < 0 {
			return members, stop
		}
		members = append(members, Member{uint32(i + 1), uint32(end - 1), uint32(start), uint32(stop), escaped})
		if stop+1 < len(d) && d[stop] == ',' && d[stop+1] > ' ' {
			i = stop + 1
			continue
		}
		if i = c.next(stop, '}', "the object is not closed", "no comma or } after a member"); i <= 0 {
			return members, -i - 1
		}
	}
}

// next reads what follows a member or an element: a comma, then it answers the place of the next one; or the closing
// bracket, then the place behind it as -1-place. An error is 0.
func (c *checker) next(i int, closing byte, open, wrong string) int {
	d := c.data
	if i < len(d) && d[i] <= ' ' {
		i = space(d, i)
	}
	if i >= len(d) {
		c.fail(i, open)
		return 0
	}
	switch d[i] {
	case ',':
		if i++; i < len(d) && d[i] <= ' ' {
			i = space(d, i)
		}
		return i
	case closing:
		return -i - 2
	}
	c.fail(i, wrong)
	return 0
}

// colon reads the colon behind a name and answers the place of the value.
func (c *checker) colon(i int) int {
	d := c.data
	if i < len(d) && d[i] <= ' ' {
		i = space(d, i)
	}
	if i >= len(d) || d[i] != ':' {
		return c.fail(i, "no colon after a member name")
	}
	if i++; i < len(d) && d[i] <= ' ' {
		i = space(d, i)
	}
	return i
}

func (c *checker) value(i, depth int) int {
	d := c.data
	if i >= len(d) {
		return c.fail(i, "nothing where a JSON value is expected")
	}
	switch b := d[i]; b {
	case '"':
		return c.quickText(i)
	case '{':
		return c.object(i, depth+1)
	case '[':
		return c.array(i, depth+1)
	case 't':
		return c.word(i, "true")
	case 'f':
		return c.word(i, "false")
	case 'n':
		return c.word(i, "null")
	default:
		if b == '-' || b-'0' <= 9 {
			return c.number(i)
		}
		return c.fail(i, "no JSON value where one is expected")
	}
}

func (c *checker) object(i, depth int) int {
	d := c.data
	if depth > MaxDepth {
		return c.fail(i, "nested too deep")
	}
	i = space(d, i+1)
	if i < len(d) && d[i] == '}' {
		return i + 1
	}
	for {
		if i >= len(d) {
			return c.fail(i, "the object is not closed")
		}
		if d[i] != '"' {
			return c.fail(i, "no member name where one is expected")
		}
		end := c.quickText(i)
		if end < 0 {
			return end
		}
		if i = end + 1; i >= len(d) || d[end] != ':' || d[i] <= ' ' {
			if i = c.colon(end); i < 0 {
				return i
			}
		}
		if i = c.value(i, depth); i < 0 {
			return i
		}
		if i+1 < len(d) && d[i] == ',' && d[i+1] > ' ' {
			i++
			continue
		}
		if i = c.next(i, '}', "the object is not closed", "no comma or } after a member"); i <= 0 {
			return -i - 1
		}
	}
}

func (c *checker) array(i, depth int) int {
	d := c.data
	if depth > MaxDepth {
		return c.fail(i, "nested too deep")
	}
	i = space(d, i+1)
	if i < len(d) && d[i] == ']' {
		return i + 1
	}
	for {
		var closed bool
		if i, closed = numbers(d, i); closed {
			return i
		}
		if i < len(d) && d[i] <= ' ' {
			i = space(d, i)
		}
		if i >= len(d) {
			return c.fail(i, "the array is not closed")
		}
		i = c.value(i, depth)
		if i < 0 {
			return i
		}
		if i+1 < len(d) && d[i] == ',' && d[i+1] > ' ' {
			i++
			continue
		}
		if i = c.next(i, ']', "the array is not closed", "no comma or ] after an element"); i <= 0 {
			return -i - 1
		}
	}
}

// numbers passes over short numbers that each have a comma right behind them, or the bracket that closes the array. It answers
// the place behind the last of these, and whether that was the bracket.
func numbers(d []byte, i int) (end int, closed bool) {
	for i+9 <= len(d) {
		w, j := word(d, i), i
		if byte(w) == '-' {
			j++
			w = word(d, j)
		}
		others := noDigits(w)
		point := bits.TrailingZeros64(others)
		last := point
		if byte(w>>(point&^7&63)) == '.' {
			others &= others - 1
			last = bits.TrailingZeros64(others)
		}
		next := byte(w >> (last &^ 7 & 63))
		if point < 8 || others == 0 || last == point+8 || byte(w) == '0' && point > 15 || next != ',' && next != ']' {
			break
		}
		if i = j + last>>3 + 1; next == ']' {
			return i, true
		}
	}
	return i, false
}

func (c *checker) word(i int, w string) int {
	if len(c.data)-i < len(w) || string(c.data[i:i+len(w)]) != w {
		return c.fail(i, "no JSON value where one is expected")
	}
	return i + len(w)
}

// number reads a number.
func (c *checker) number(i int) int {
	if i+9 <= len(c.data) {
		if end := decimal(c.data, i); end > 0 {
			return end
		}
	}
	if c.data[i] == '-' {
		i++
	}
	return c.longNumber(i)
}

// decimal reads a number that has no exponent and ends within sixteen bytes, or answers a negative number. Nine bytes from i on
// must be there.
func decimal(d []byte, i int) int {
	w := word(d, i)
	if byte(w) == '-' {
		i++
		w = word(d, i)
	}
	others := noDigits(w)
	point := bits.TrailingZeros64(others)
	last := point
	if byte(w>>(point&^7&63)) == '.' {
		others &= others - 1
		last = bits.TrailingZeros64(others)
	}
	if point < 8 || byte(w) == '0' && point != 15 {
		return -1
	}
	end := i + last>>3
	if others == 0 {
		if i+16 > len(d) {
			return -1
		}
		if others = noDigits(word(d, i+8)); others == 0 {
			return -1
		}
		last = 64 + bits.TrailingZeros64(others)
		end = i + last>>3
	}
	// No digit behind the point, a point behind eight digits, an exponent.
	if next := d[end]; last == point+8 || next == '.' || next|0x20 == 'e' {
		return -1
	}
	return end
}

// noDigits has the high bit of each byte that is no digit.
func noDigits(w uint64) uint64 {
	t := w ^ ones*'0'
	return (t&^highs + ones*(0x80-10) | t) & highs
}

// digits is the place behind the digits that begin at i.
func digits(d []byte, i int) int {
	for ; i+8 <= len(d); i += 8 {
		if others := noDigits(word(d, i)); others != 0 {
			return i + bits.TrailingZeros64(others)>>3
		}
	}
	for i < len(d) && d[i]-'0' <= 9 {
		i++
	}
	return i
}

// longNumber reads any number, from behind its sign.
func (c *checker) longNumber(start int) int {
	d := c.data
	i := digits(d, start)
	if i == start || d[start] == '0' && i > start+1 {
		return c.fail(start, "a number that is not JSON")
	}
	if i < len(d) && d[i] == '.' {
		start = i + 1
		if i = digits(d, start); i == start {
			return c.fail(i, "no digit after the point of a number")
		}
	}
	if i < len(d) && d[i]|0x20 == 'e' {
		i++
		if i < len(d) && (d[i] == '+' || d[i] == '-') {
			i++
		}
		start = i
		if i = digits(d, start); i == start {
			return c.fail(i, "no digit in the exponent of a number")
		}
	}
	return i
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// word are the eight bytes from i on. The caller makes sure that they are there.
func word(d []byte, i int) uint64 {
	return binary.LittleEndian.Uint64((*[8]byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(d)), i))[:])
}

// plainText has the high bit of each byte that is a quote, a backslash, a control character or not ASCII. Borrows may set bits
// above the lowest one that is right, so only that one counts.
func plainText(w uint64) uint64 {
	quote := w ^ ones*'"'
	slash := w ^ ones*'\\'
	return ((quote-ones)&^quote | (slash-ones)&^slash | (w - ones*0x20) | w) & highs
}

// quick reads a string of up to seven plain bytes, and answers a negative number for any other.
func quick(d []byte, i int) int {
	if i+9 > len(d) {
		return -1
	}
	n := bits.TrailingZeros64(plainText(word(d, i+1))) >> 3
	if n > 7 || d[i+1+n] != '"' {
		return -1
	}
	return i + 2 + n
}

// quickText reads a string of any length, at once as long as it is plain.
func (c *checker) quickText(i int) int {
	d := c.data
	for j := i + 1; j+8 <= len(d); j += 8 {
		special := plainText(word(d, j))
		if special == 0 {
			continue
		}
		if j += bits.TrailingZeros64(special) >> 3; d[j] == '"' {
			return j + 1
		}
		break
	}
	end, _ := c.str(i)
	return end
}

// str reads a string from its opening quote and tells whether it has escapes.
func (c *checker) str(i int) (end int, escaped bool) {
	d := c.data
	i++
	for {
		var b byte
		if i+8 <= len(d) {
			special := plainText(word(d, i))
			if special == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(special) >> 3
			b = d[i]
		} else {
			if i >= len(d) {
				return c.fail(i, "the string is not closed"), false
			}
			b = d[i]
		}
		switch {
		case b == '"':
			return i + 1, escaped
		case b == '\\':
			escaped = true
			if i = c.escape(i); i < 0 {
				return i, false
			}
		case b < 0x20:
			return c.fail(i, "a control character in a string"), false
		case b < utf8.RuneSelf:
			i++
		default:
			for i < len(d) && d[i] >= utf8.RuneSelf {
				r, size := utf8.DecodeRune(d[i:])
				if r == utf8.RuneError && size == 1 {
					return c.fail(i, "invalid UTF-8"), false
				}
				i += size
			}
		}
	}
}

// escape reads one escape sequence at i.
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
	return c.fail(i, "an escape sequence that is not JSON")
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
