package pipeline

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/flechtwerk/flechtwerk/engine/expr"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

var literals = regexp.MustCompile("\"(?:[^\"\\\\\n]|\\\\.)*\"|'(?:[^'\\\\\n]|\\\\.)*'|`(?:[^`\\\\]|\\\\.)*`|//[^\n]*|/\\*(?s:.*?)\\*/")

// operators are those that need numbers. + is none of them: it joins texts too.
const operators = `[<>]=?|[-*/%]|\*\*`

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

var recordName = regexp.MustCompile(`\b(key|value|headers|timestamp|topic|partition|offset|now)\b`)

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
	if s.given() {
		d.textsInText(&s.Body.Text, roots)
	}
}

// textsInExpressions warns where an expression of a stage does so. The compiler of expressions knows the vars at the
// top; what is nested in them is found by name.
func (d *draft) textsInExpressions(of *expressions, scope expr.Scope, roots map[string][]envText) {
	for _, l := range of.texts {
		d.textsInText(&l.text, roots)
		if len(d.spec.Vars.texts) == 0 {
			continue
		}
		e, err := expr.Compile(l.text.Text, scope, expr.Any)
		if err != nil {
			continue // a template, or reported where it was compiled
		}
		for _, v := range e.TextVars() {
			if joined(l.text.Text, v) {
				continue
			}
			line, column := l.text.Position(v.Line, v.Column)
			d.textNumber("vars."+v.Name, l.text.File, line, column)
		}
	}
}

// joined tells whether a var stands beside a +, which joins texts as well as it adds numbers.
func joined(text string, v expr.TextVar) bool {
	lines := strings.Split(text, "\n")
	runes := []rune(lines[v.Line-1])
	before := strings.TrimRight(string(runes[:v.Column-1]), " ")
	after := strings.TrimLeft(strings.TrimPrefix(string(runes[v.Column-1:]), "vars."+v.Name), " ")
	return strings.HasSuffix(before, "+") || strings.HasPrefix(after, "+")
}

// textNumber warns about the use of a text of the environment as a number.
func (d *draft) textNumber(name, file string, line, column int) {
	d.problem(file, line, column, "env.text_number", fmt.Sprintf("%s is a text, because it comes from the environment without a type", name),
		"write `${NAME:8|number}` where it is set")
}

// textsInText looks for an ordering or arithmetic beside the name of such a text. It looks at the text alone, so that it
// may miss one; what it finds is one.
func (d *draft) textsInText(text *stream.Text, roots map[string][]envText) {
	clean := ""
	for root, texts := range roots {
		for _, t := range texts {
			if !t.numeric {
				continue
			}
			if clean == "" {
				clean = blank(text.Text)
			}
			name := root + "." + strings.Join(t.path, ".")
			where := regexp.MustCompile(`(?:(?:^|[^<>=*/-])(?:` + operators + `)\s*|[0-9]\s*\+\s*)(` + regexp.QuoteMeta(name) + `)(?:[^\w.(]|$)|` +
				`(?:^|[^\w.$])(` + regexp.QuoteMeta(name) + `)\s*(?:(?:` + operators + `)(?:[^<>=*/-]|$)|\+\s*[0-9])`)
			for _, m := range where.FindAllStringSubmatchIndex(clean, -1) {
				start := max(m[2], m[4])
				before := clean[:start]
				line, column := text.Position(strings.Count(before, "\n")+1, characters(before[strings.LastIndexByte(before, '\n')+1:])+1)
				d.textNumber(name, text.File, line, column)
			}
		}
	}
}
