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
	dst, _ = c.canonical(dst, space(data, 0))
	return dst
}

// canonical appends the value at i and answers the place behind it.
func (c *checker) canonical(dst []byte, i int) ([]byte, int) {
	d := c.data
	switch d[i] {
	case '{':
		return c.canonicalObject(dst, i)
	case '[':
		dst = append(dst, '[')
		i++
		for first := true; ; first = false {
			i = space(d, i)
			if d[i] == ']' {
				return append(dst, ']'), i + 1
			}
			if !first {
				i = space(d, i+1) // behind the comma
				dst = append(dst, ',')
			}
			dst, i = c.canonical(dst, i)
		}
	case '"':
		end, _ := c.str(i)
		text, _ := Text(d[i:end])
		return AppendString(dst, text), end
	case 't', 'f', 'n':
		end := c.value(i, 0)
		return append(dst, d[i:end]...), end
	}
	end := c.number(i)
	return appendCanonicalNumber(dst, d[i:end]), end
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

func (c *checker) canonicalObject(dst []byte, i int) ([]byte, int) {
	type member struct {
		name  string
		start int
	}
	d := c.data
	var room [16]member
	members := room[:0]
	i++
	for first := true; ; first = false {
		i = space(d, i)
		if d[i] == '}' {
			i++
			break
		}
		if !first {
			i = space(d, i+1) // behind the comma
		}
		end, _ := c.str(i)
		name, _ := Text(d[i:end])
		start := c.colon(end)
		members = append(members, member{name, start})
		i = c.value(start, 0)
	}
	slices.SortStableFunc(members, func(a, b member) int { return strings.Compare(a.name, b.name) })
	dst = append(dst, '{')
	written := 0
	for j, m := range members {
		if j+1 < len(members) && members[j+1].name == m.name {
			continue
		}
		if written++; written > 1 {
			dst = append(dst, ',')
		}
		dst = append(AppendString(dst, m.name), ':')
		dst, _ = c.canonical(dst, m.start)
	}
	return append(dst, '}'), i
}
