package pipeline

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

var (
	recordName = regexp.MustCompile(`\b(key|value|headers|timestamp|topic|partition|offset|now)\b`)
	literals   = regexp.MustCompile("\"(?:[^\"\\\\\n]|\\\\.)*\"|'(?:[^'\\\\\n]|\\\\.)*'|`(?:[^`\\\\]|\\\\.)*`|//[^\n]*|/\\*(?s:.*?)\\*/")
)

// blank replaces literal texts and comments by spaces of the same length.
func blank(text string) string {
	return literals.ReplaceAllStringFunc(text, func(s string) string {
		return strings.Map(func(r rune) rune {
			if r == '\n' {
				return r
			}
			return ' '
		}, s)
	})
}

// isConstant tells whether an expression reads nothing of a record.
func isConstant(text string) bool { return !recordName.MatchString(blank(text)) }

// textOf is the text of a scalar and where it stands.
func textOf(d *decoder, n *node, value string) stream.Text {
	text := stream.Text{File: d.src.file, Line: n.line, Column: n.column, Indent: n.column - 1, Text: value}
	switch {
	case n.style == block:
		text.Line, text.Column, text.Indent = n.block.Line, n.block.Column, n.block.Indent
	case n.style == single || n.style == double:
		text.Column++
	}
	return text
}

// textsInScript warns where a body compares or calculates with a text that came from the environment.
func (d *draft) textsInScript(s *Script, roots map[string][]envText) {
	if s.given() && !s.Body.Module {
		d.textsInText(s.node, s.Body.Text.Text, s.Body.Text.Position, roots)
	}
}

const operators = `[<>]=?|[-*/%]|\*\*`

// textsInText looks for an ordering or arithmetic beside the name of such a text. It looks at the text alone, so that it
// may miss one; what it finds is one.
func (d *draft) textsInText(n *node, text string, position func(line, column int) (int, int), roots map[string][]envText) {
	if n == nil || text == "" {
		return
	}
	clean := ""
	for root, texts := range roots {
		for _, t := range texts {
			if !t.numeric {
				continue
			}
			if clean == "" {
				clean = blank(text)
			}
			name := root + "." + strings.Join(t.path, ".")
			where := regexp.MustCompile(`(?:(?:^|[^<>=*/-])(?:` + operators + `)\s*|[0-9]\s*\+\s*)(` + regexp.QuoteMeta(name) + `)(?:[^\w.(]|$)|` +
				`(?:^|[^\w.$])(` + regexp.QuoteMeta(name) + `)\s*(?:(?:` + operators + `)(?:[^<>=*/-]|$)|\+\s*[0-9])`)
			for _, m := range where.FindAllStringSubmatchIndex(clean, -1) {
				start := max(m[2], m[4])
				before := clean[:start]
				line, column := position(strings.Count(before, "\n")+1, characters(before[strings.LastIndexByte(before, '\n')+1:])+1)
				d.problem(d.src.file, line, column, "env.text_number", fmt.Sprintf("%s is a text, because it comes from the environment without a type", name),
					"write `${NAME:8|number}` where it is set")
			}
		}
	}
}
