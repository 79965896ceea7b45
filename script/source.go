package script

import (
	"fmt"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// place is a place in a user's file, from 1, in characters.
type place struct {
	file         string
	line, column int
}

func (p place) String() string { return fmt.Sprintf("%s:%d:%d", p.file, p.line, p.column) }

// part is a stretch of the joined text that came from a text of the user.
type part struct {
	start, end int // bytes of the joined text
	text       *stream.Text
	lines      []int // where the lines of text begin, in bytes of text
}

// source is the joined text that goja sees, and the way back from it to the user's files.
//
// goja counts columns in bytes and takes more characters for line ends than a YAML file does. So a position is first turned
// back into an offset of the joined text, by goja's rules, and from there into line and column of the part.
type source struct {
	text  strings.Builder
	parts []part
	lines []int // where goja sees lines begin
}

func (s *source) glue(text string) { s.text.WriteString(text) }

// add joins a text of the user. blanked is what goja is to see of it; it has the same length.
func (s *source) add(text *stream.Text, blanked string) {
	p := part{start: s.text.Len(), text: text, lines: []int{0}}
	s.text.WriteString(blanked)
	p.end = s.text.Len()
	for i := 0; i < len(text.Text); i++ {
		if text.Text[i] == '\n' {
			p.lines = append(p.lines, i+1)
		}
	}
	s.parts = append(s.parts, p)
}

// offset is the byte of the joined text at a line and column as goja counts them.
func (s *source) offset(line, column int) int {
	s.index()
	if line < 1 || line > len(s.lines) {
		return -1
	}
	return s.lines[line-1] + column - 1
}

func (s *source) index() {
	if s.lines == nil {
		s.lines = gojaLines(s.text.String())
	}
}

// find is the part that offset lies in, or nil for generated text. The end of a part belongs to it: errors at the end of a
// body are reported there.
func (s *source) find(offset int) *part {
	i := sort.Search(len(s.parts), func(i int) bool { return s.parts[i].end >= offset })
	if i == len(s.parts) || offset < s.parts[i].start {
		return nil
	}
	return &s.parts[i]
}

// place is where offset lies in the user's file. An offset in generated text belongs to the end of the part before it.
func (s *source) place(offset int) place {
	p := s.find(offset)
	if p == nil {
		for i := range s.parts {
			if s.parts[i].end <= offset || p == nil {
				p = &s.parts[i]
			}
		}
		offset = p.end
	}
	return p.place(offset - p.start)
}

func (p *part) place(offset int) place {
	line := sort.SearchInts(p.lines, offset+1)
	column := utf8.RuneCountInString(p.text.Text[p.lines[line-1]:offset]) + 1
	fileLine, fileColumn := p.text.Position(line, column)
	return place{file: p.text.File, line: fileLine, column: fileColumn}
}

// line is the text of the user's line that offset lies in.
func (s *source) line(offset int) string {
	p := s.find(offset)
	if p == nil {
		return ""
	}
	text := p.text.Text
	from := strings.LastIndexByte(text[:offset-p.start], '\n') + 1
	if to := strings.IndexByte(text[from:], '\n'); to >= 0 {
		return text[from : from+to]
	}
	return text[from:]
}

// gojaLines is where lines begin by the rules of ECMAScript, which goja follows.
func gojaLines(text string) []int {
	lines := []int{0}
	for i, r := range text {
		switch r {
		case '\r':
			if i+1 < len(text) && text[i+1] == '\n' {
				continue
			}
			lines = append(lines, i+1)
		case '\n':
			lines = append(lines, i+1)
		case '\u2028', '\u2029':
			lines = append(lines, i+3)
		}
	}
	return lines
}
