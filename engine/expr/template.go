package expr

import (
	"strings"
	"unicode/utf8"
)

// Template is a compiled text with holes: `prefix {{ expr }} suffix`.
type Template struct {
	text  string
	ref   any // of the Tree that it was a leaf of
	parts []templatePart
}

// templatePart is literal text, or a hole when expr is set.
type templatePart struct {
	literal string
	expr    *Expr
	offset  int // of the hole's expression in the template, in characters
}

// CompileTemplate compiles text. A hole begins at {{ and ends at the first }} outside of its own quotes, comments and
// brackets. The error is an *Error whose place is in the whole text.
func CompileTemplate(text string, scope Scope) (*Template, error) {
	return CompileSecretTemplate(text, scope, nil, nil)
}

// Replace answers what stands in place of what begins at offset at of text, in bytes, and how long that is; a length of 0 is
// nothing.
type Replace func(at int) (value string, length int)

// CompileSecretTemplate is CompileTemplate where parts of the text outside of its holes are replaced: replace is asked at
// every $. What it answers is taken as it is, whatever stands in it, and appears in no error. ref is the Ref of the Template's
// failures.
func CompileSecretTemplate(text string, scope Scope, ref any, replace Replace) (*Template, error) {
	t, err := compileTemplate(text, scope, replace)
	if err != nil {
		return nil, err
	}
	t.ref = ref
	return t, nil
}

// literal is the text up to the next hole, and where that begins in rest, or -1. begin is where rest begins in the whole
// text.
func literal(rest string, begin int, replace Replace) (value string, hole int) {
	var b strings.Builder
	from := 0
	for i := 0; i < len(rest); i++ {
		switch {
		case strings.HasPrefix(rest[i:], "{{"):
			return b.String() + rest[from:i], i
		case rest[i] == '$' && replace != nil:
			if value, length := replace(begin + i); length > 0 {
				b.WriteString(rest[from:i])
				b.WriteString(value)
				from = i + length
				i = from - 1
			}
		}
	}
	return b.String() + rest[from:], -1
}

func compileTemplate(text string, scope Scope, replace Replace) (*Template, *Error) {
	t := &Template{text: text}
	rest, at := text, 0 // at is the offset of rest, in characters
	for {
		value, open := literal(rest, len(text)-len(rest), replace)
		if value != "" {
			t.parts = append(t.parts, templatePart{literal: value})
		}
		if open < 0 {
			return t, nil
		}
		at += utf8.RuneCountInString(rest[:open]) + 2
		body := rest[open+2:]
		end := holeEnd(body)
		if end < 0 {
			line, column := place(text, at-2)
			return nil, &Error{line, column, CodeTemplate, "{{ is not closed", "end the expression with }}"}
		}
		e, err := compile(body[:end], scope, Any)
		if err != nil {
			err.Line, err.Column = shift(text, at, err.Line, err.Column)
			return nil, err
		}
		t.parts = append(t.parts, templatePart{expr: e, offset: at})
		at += utf8.RuneCountInString(body[:end]) + 2
		rest = body[end+2:]
	}
}

// shift turns a place in a hole, which begins at offset, into one in the whole text.
func shift(text string, offset, line, column int) (int, int) {
	startLine, startColumn := place(text, offset)
	if line == 1 {
		return startLine, startColumn + column - 1
	}
	return startLine + line - 1, column
}

// holeEnd is the index of the }} that ends a hole, or -1.
func holeEnd(s string) int {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '"', '\'', '`':
			for i++; i < len(s) && s[i] != c; i++ {
				if s[i] == '\\' && c != '`' {
					i++
				}
			}
		case '/':
			if strings.HasPrefix(s[i:], "/*") {
				n := strings.Index(s[i+2:], "*/")
				if n < 0 {
					return -1
				}
				i += n + 3
			}
		case '{', '[', '(':
			depth++
		case ')', ']':
			depth--
		case '}':
			if depth <= 0 && i+1 < len(s) && s[i+1] == '}' {
				return i
			}
			depth--
		}
	}
	return -1
}

// Static is the text of a template without holes.
func (t *Template) Static() (string, bool) {
	switch {
	case len(t.parts) == 0:
		return "", true
	case len(t.parts) == 1 && t.parts[0].expr == nil:
		return t.parts[0].literal, true
	}
	return "", false
}

// Only is the expression of a template that is one hole and nothing else, or nil.
func (t *Template) Only() *Expr {
	if len(t.parts) == 1 {
		return t.parts[0].expr
	}
	return nil
}

// Reads are those of the expressions in the holes; see Expr.Reads.
func (t *Template) Reads() [][]string {
	var reads [][]string
	for _, p := range t.parts {
		if p.expr != nil {
			reads = append(reads, p.expr.reads...)
		}
	}
	return reads
}

// Append appends the text with its holes filled: texts as they are, anything else as canonical JSON. A nil hole is an error.
// On an error, a *Failure, dst is returned as it was.
func (t *Template) Append(dst []byte, env *Env) ([]byte, error) {
	return t.fill(dst, env, nil)
}

// fill appends the text with its holes filled. put appends what a hole gives, or says what is wrong with it.
func (t *Template) fill(dst []byte, env *Env, put func(dst, hole []byte) ([]byte, string)) ([]byte, error) {
	out := dst
	var hole []byte
	for i := range t.parts {
		p := &t.parts[i]
		if p.expr == nil {
			out = append(out, p.literal...)
			continue
		}
		var isNil bool
		var f *Failure
		if put == nil {
			out, isNil, f = p.expr.appendText(out, env)
		} else if hole, isNil, f = p.expr.appendText(hole[:0], env); f == nil && !isNil {
			var wrong string
			if out, wrong = put(out, hole); wrong != "" {
				f = p.expr.failure(CodeHole, wrong)
			}
		}
		if f == nil && isNil {
			f = p.expr.failure(CodeNilHole, "nil in a template; say what stands there instead with ??")
		}
		if f != nil {
			f.Line, f.Column = shift(t.text, p.offset, f.Line, f.Column)
			f.Ref = t.ref
			return dst, f
		}
	}
	return out, nil
}
