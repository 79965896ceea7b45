package rawjson

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// Canonical appends the canonical form of JSON that Check has passed: equal values have equal bytes. Members stand sorted by
// the bytes of their names (which is the order of code points), each name once with its last value; there is no space; only
// what JSON demands is escaped; integers keep their digits and other numbers are printed as JavaScript does.
func Canonical(dst, data []byte) []byte {
	c := checker{data: data}
	c.space()
	return c.canonical(dst)
}

// canonical appends the value at c.pos and goes behind it.
func (c *checker) canonical(dst []byte) []byte {
	start := c.pos
	switch c.data[start] {
	case '{':
		return c.canonicalObject(dst)
	case '[':
		dst = append(dst, '[')
		c.pos++
		for first := true; ; first = false {
			c.space()
			if c.data[c.pos] == ']' {
				c.pos++
				return append(dst, ']')
			}
			if !first {
				c.pos++ // the comma
				c.space()
				dst = append(dst, ',')
			}
			dst = c.canonical(dst)
		}
	case '"':
		c.str()
		text, _ := Text(c.data[start:c.pos])
		return AppendString(dst, text)
	case 't', 'f', 'n':
		c.value(0)
		return append(dst, c.data[start:c.pos]...)
	}
	c.number()
	return appendCanonicalNumber(dst, c.data[start:c.pos])
}

func appendCanonicalNumber(dst, raw []byte) []byte {
	if IsInteger(raw) {
		if string(raw) == "-0" {
			raw = raw[1:]
		}
		return append(dst, raw...)
	}
	f, _ := strconv.ParseFloat(View(raw), 64)
	if math.IsInf(f, 0) {
		return append(dst, raw...)
	}
	return AppendFloat(dst, f)
}

func (c *checker) canonicalObject(dst []byte) []byte {
	type member struct {
		name  string
		start int
	}
	var room [16]member
	members := room[:0]
	c.pos++
	for first := true; ; first = false {
		c.space()
		if c.data[c.pos] == '}' {
			c.pos++
			break
		}
		if !first {
			c.pos++ // the comma
			c.space()
		}
		start := c.pos
		c.str()
		name, _ := Text(c.data[start:c.pos])
		c.colon()
		members = append(members, member{name, c.pos})
		c.value(0)
	}
	end := c.pos
	slices.SortStableFunc(members, func(a, b member) int { return strings.Compare(a.name, b.name) })
	dst = append(dst, '{')
	written := 0
	for i, m := range members {
		if i+1 < len(members) && members[i+1].name == m.name {
			continue
		}
		if written++; written > 1 {
			dst = append(dst, ',')
		}
		dst = append(AppendString(dst, m.name), ':')
		c.pos = m.start
		dst = c.canonical(dst)
	}
	c.pos = end
	return append(dst, '}')
}
