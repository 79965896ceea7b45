package rawjson

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

// View is b as a string that shares its memory: it is valid only as long as b is not changed, and keeps b alive.
func View(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// Bytes is the other way: s as bytes that share its memory and must not be changed.
func Bytes(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// Find answers the value of the last member called name, as a span of data, or nil.
func Find(data []byte, members []Member, name string) []byte {
	for i := len(members) - 1; i >= 0; i-- {
		m := &members[i]
		// The length alone rules most names out, without a call.
		if m.Escaped || int(m.NameEnd-m.NameStart) == len(name) {
			if m.Is(data, name) {
				return data[m.Start:m.End]
			}
		}
	}
	return nil
}

// Of is the span of the member's value.
func (m *Member) Of(data []byte) []byte { return data[m.Start:m.End] }

// Is tells whether the member is called name.
func (m *Member) Is(data []byte, name string) bool {
	if !m.Escaped {
		return int(m.NameEnd-m.NameStart) == len(name) && string(data[m.NameStart:m.NameEnd]) == name
	}
	return m.Name(data) == name
}

// Name is the member's decoded name; it shares data's memory where it has no escapes.
func (m *Member) Name(data []byte) string {
	raw := data[m.NameStart:m.NameEnd]
	if !m.Escaped {
		return View(raw)
	}
	return string(appendUnescaped(nil, raw))
}

// Members appends the spans of the members of an object that Check has passed. data may have white space around it.
func Members(data []byte, members []Member) []Member {
	c := checker{data: data}
	members, _ = c.top(members, space(data, 0))
	return members
}

// Span is where one element of an array lies.
type Span struct{ Start, End uint32 }

// Elements appends the spans of the elements of an array that Check has passed.
func Elements(data []byte, spans []Span) []Span {
	c := checker{data: data}
	i := space(data, space(data, 0)+1)
	for data[i] != ']' {
		start := i
		i = c.value(i, 0)
		spans = append(spans, Span{uint32(start), uint32(i)})
		if i = space(data, i); data[i] == ',' {
			i = space(data, i+1)
		}
	}
	return spans
}

// Text decodes a JSON string with its quotes. The result shares raw's memory where it has no escapes (shared is true
// then). A lone surrogate becomes U+FFFD.
func Text(raw []byte) (text string, shared bool) {
	body := raw[1 : len(raw)-1]
	for _, b := range body {
		if b == '\\' {
			return string(appendUnescaped(nil, body)), false
		}
	}
	return View(body), true
}

// appendUnescaped decodes the inside of a checked string.
func appendUnescaped(dst, body []byte) []byte {
	for i := 0; i < len(body); {
		b := body[i]
		if b != '\\' {
			dst = append(dst, b)
			i++
			continue
		}
		i++
		switch body[i] {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r := hex4(body[i+1:])
			i += 4
			if utf16.IsSurrogate(r) {
				if i+6 < len(body) && body[i+1] == '\\' && body[i+2] == 'u' {
					if full := utf16.DecodeRune(r, hex4(body[i+3:])); full != utf8.RuneError {
						dst = utf8.AppendRune(dst, full)
						i += 7
						continue
					}
				}
				r = utf8.RuneError
			}
			dst = utf8.AppendRune(dst, r)
		default:
			dst = append(dst, body[i])
		}
		i++
	}
	return dst
}

// IsInteger tells whether a checked number has neither fraction nor exponent.
func IsInteger(raw []byte) bool {
	for _, b := range raw {
		if b == '.' || b|0x20 == 'e' {
			return false
		}
	}
	return true
}

var tens = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16}

// Float is the double that is nearest to a checked number; one beyond the range of doubles is ±Inf.
func Float(raw []byte) float64 {
	// Up to fifteen digits are a double without loss, and so are the powers of ten up to 1e22: one division rounds correctly.
	i, point := 0, -1
	if raw[0] == '-' {
		i = 1
	}
	var digits int64
	for start := i; i < len(raw) && i-start <= 16; i++ {
		if d := raw[i] - '0'; d <= 9 {
			digits = digits*10 + int64(d)
		} else if raw[i] == '.' {
			point = i
		} else {
			break
		}
	}
	if i == len(raw) && digits < 1e15 {
		f := float64(digits)
		if point >= 0 {
			f /= tens[len(raw)-1-point]
		}
		if raw[0] == '-' {
			return -f
		}
		return f
	}
	f, _ := strconv.ParseFloat(View(raw), 64)
	return f
}
