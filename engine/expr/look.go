package expr

import "github.com/flechtwerk/flechtwerk/engine/rawjson"

// The functions of this file walk over JSON that rawjson.Check has passed, so none of them looks for errors. Texts are
// strings here: views of the record's bytes.

func skipSpace(s string, i int) int {
	for i < len(s) {
		switch s[i] {
		case ' ', '\t', '\n', '\r':
			i++
		default:
			return i
		}
	}
	return i
}

// skipString answers the place behind the string that begins at i, and whether it has escapes.
func skipString(s string, i int) (end int, escaped bool) {
	for i++; ; i++ {
		switch s[i] {
		case '"':
			return i + 1, escaped
		case '\\':
			escaped = true
			i++
		}
	}
}

// skipValue answers the place behind the value that begins at i.
func skipValue(s string, i int) int {
	switch s[i] {
	case '"':
		end, _ := skipString(s, i)
		return end
	case '{', '[':
		depth := 0
		for {
			switch s[i] {
			case '"':
				i, _ = skipString(s, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
	}
	for i < len(s) {
		switch s[i] {
		case ',', ']', '}', ' ', '\t', '\n', '\r':
			return i
		}
		i++
	}
	return i
}

// rawMembers walks over the members of an object.
type rawMembers struct {
	s                  string
	pos                int
	nameStart, nameEnd int
	start, end         int
	escaped            bool
}

func (m *rawMembers) next() bool {
	i := skipSpace(m.s, m.pos)
	if m.pos == 0 || m.s[i] == ',' { // the opening brace, or the comma before the next member
		i = skipSpace(m.s, i+1)
	}
	if m.s[i] == '}' {
		m.pos = i
		return false
	}
	m.nameStart = i + 1
	i, m.escaped = skipString(m.s, i)
	m.nameEnd = i - 1
	i = skipSpace(m.s, skipSpace(m.s, i)+1)
	m.start = i
	m.end = skipValue(m.s, i)
	m.pos = m.end
	return true
}

func (m *rawMembers) is(name string) bool {
	if !m.escaped {
		return m.s[m.nameStart:m.nameEnd] == name
	}
	return m.name() == name
}

func (m *rawMembers) name() string {
	if !m.escaped {
		return m.s[m.nameStart:m.nameEnd]
	}
	name, _ := rawjson.Text(rawjson.Bytes(m.s[m.nameStart-1 : m.nameEnd+1]))
	return name
}

// findMember is the last member of that name of an object, or "".
func findMember(object, name string) string {
	found := ""
	for m := (rawMembers{s: object}); m.next(); {
		if m.is(name) {
			found = m.s[m.start:m.end]
		}
	}
	return found
}

// rawElements walks over the elements of an array.
type rawElements struct {
	s          string
	pos        int
	start, end int
}

func (e *rawElements) next() bool {
	i := skipSpace(e.s, e.pos)
	if e.pos == 0 || e.s[i] == ',' {
		i = skipSpace(e.s, i+1)
	}
	if e.s[i] == ']' {
		e.pos = i
		return false
	}
	e.start = i
	e.end = skipValue(e.s, i)
	e.pos = e.end
	return true
}

// findElement is element n (from 0) of an array, or "".
func findElement(array string, n int64) string {
	for e := (rawElements{s: array}); e.next(); n-- {
		if n == 0 {
			return e.s[e.start:e.end]
		}
	}
	return ""
}

func countElements(array string) int {
	n := 0
	for e := (rawElements{s: array}); e.next(); {
		n++
	}
	return n
}
