package script

import (
	"slices"
	"strings"
)

// unclosed finds what a text opens and does not close: the place of the innermost bracket, comment or template that is still
// open at its end, or -1. It knows JavaScript no better than it takes for that: a slash after a value divides, any other
// begins a regular expression.
func unclosed(text string) (at int, what string) {
	var open []int
	value := false // the last token may end a value
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
		case strings.HasPrefix(text[i:], "//"):
			n := strings.IndexByte(text[i:], '\n')
			if n < 0 {
				n = len(text) - i
			}
			i += n
		case strings.HasPrefix(text[i:], "/*"):
			n := strings.Index(text[i+2:], "*/")
			if n < 0 {
				return i, "this comment"
			}
			i += n + 4
		case c == '\'' || c == '"':
			i = endOfLiteral(text, i, c)
			value = true
		case c == '/' && !value:
			i = endOfPattern(text, i)
			value = true
		case c == '`':
			open = append(open, i)
			if i = endOfTemplate(text, i+1); i < 0 {
				return open[len(open)-1], "this template"
			}
			if text[i-1] == '`' {
				open = open[:len(open)-1]
				value = true
			} else {
				open = append(open, i-1) // the bracket of ${
				value = false
			}
		case c == '(' || c == '[' || c == '{':
			open = append(open, i)
			i++
			value = false
		case c == ')' || c == ']' || c == '}':
			if n := len(open) - 1; n >= 0 && closes(text[open[n]], c) {
				open = open[:n]
				if c == '}' && n > 0 && text[open[n-1]] == '`' {
					if i = endOfTemplate(text, i+1); i < 0 {
						return open[n-1], "this template"
					}
					if text[i-1] == '`' {
						open = open[:n-1]
						value = true
					} else {
						open = append(open, i-1)
						value = false
					}
					continue
				}
			}
			i++
			value = c != '}'
		default:
			s := clauseScanner{text: text, at: i}
			if word := s.word(); word != "" {
				i = s.at
				value = !slices.Contains(beforePattern, word)
				continue
			}
			i++
			value = c >= '0' && c <= '9' || c >= 0x80
		}
	}
	if len(open) == 0 {
		return -1, ""
	}
	at = open[len(open)-1]
	return at, "this " + text[at:at+1]
}

// beforePattern are the words that a regular expression may follow.
var beforePattern = []string{"return", "typeof", "case", "in", "of", "delete", "void", "throw", "new", "yield", "await", "else", "do"}

func closes(open, c byte) bool {
	return open == '(' && c == ')' || open == '[' && c == ']' || open == '{' && c == '}'
}

// endOfLiteral is where a string that begins at i ends: behind its quote, or at the end of its line.
func endOfLiteral(text string, i int, quote byte) int {
	for i++; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case quote:
			return i + 1
		case '\n':
			return i
		}
	}
	return len(text)
}

// endOfPattern is where a regular expression that begins at i ends, without its flags.
func endOfPattern(text string, i int) int {
	class := false
	for i++; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '[':
			class = true
		case ']':
			class = false
		case '\n':
			return i
		case '/':
			if !class {
				return i + 1
			}
		}
	}
	return len(text)
}

// endOfTemplate is where the text of a template ends, behind its end or behind ${; -1 if it does not.
func endOfTemplate(text string, i int) int {
	for ; i < len(text); i++ {
		switch {
		case text[i] == '\\':
			i++
		case text[i] == '`':
			return i + 1
		case strings.HasPrefix(text[i:], "${"):
			return i + 2
		}
	}
	return -1
}
