package pipeline

import (
	"fmt"
	"strings"

	"github.com/flechtwerk/flechtwerk/engine/expr"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// Expression is a text that is compiled as an expression.
type Expression struct {
	leaf
	text stream.Text
}

func (x *Expression) decode(d *decoder, n *node, what string) bool {
	if n.kind == null {
		d.report(n, "expression.yaml", fmt.Sprintf("YAML reads `%s` as nothing, and %s is an expression", n.text, what), "remove the key, or write the expression")
		return false
	}
	text, ok := d.expression(n, what)
	if ok {
		x.node, x.text = n, text
	}
	return ok
}

// Leaves are a structure whose leaves are expressions.
type Leaves struct {
	leaf
	tree *expr.Tree
	// broken says that part of the structure could not be read.
	broken bool
}

func (v *Leaves) decode(d *decoder, n *node, what string) bool {
	v.tree = d.tree(n, what, &v.broken)
	if v.tree != nil {
		v.node = n
	}
	return v.tree != nil
}

// leafText is the mark that a Tree carries: the node that it was made from, and the text of a leaf.
type leafText struct {
	node *node
	text stream.Text
}

// tree turns n into a tree of expressions. What cannot be one is left out and told by broken.
func (d *decoder) tree(n *node, what string, broken *bool) *expr.Tree {
	out := &expr.Tree{}
	switch n.kind {
	case mapping:
		if d.split(n, what) {
			*broken = true
			return nil
		}
		out.Kind = expr.Map
		for _, e := range n.entries {
			d.keyWithoutEnv(e.key)
			if item := d.tree(e.value, what+"."+e.key.text, broken); item != nil {
				out.Names, out.Items = append(out.Names, e.key.text), append(out.Items, item)
			}
		}
		out.Ref = &leafText{node: n}
	case list:
		if d.split(n, what) {
			*broken = true
			return nil
		}
		out.Kind = expr.List
		for i, item := range n.items {
			if item := d.tree(item, fmt.Sprintf("%s[%d]", what, i), broken); item != nil {
				out.Items = append(out.Items, item)
			}
		}
		out.Ref = &leafText{node: n}
	default:
		text, ok := d.expression(n, what)
		if !ok {
			*broken = true
			return nil
		}
		out.Kind, out.Text, out.Ref = expr.Leaf, text.Text, &leafText{n, text}
	}
	return out
}

// split finds an expression of a flow collection that YAML took apart at a comma.
func (d *decoder) split(n *node, what string) bool {
	if n.style != flow {
		return false
	}
	var parts []*node // what stands between the commas
	for _, e := range n.entries {
		if e.value.kind == empty && e.value.tag == "" {
			parts = append(parts, e.key)
		} else {
			parts = append(parts, e.value)
		}
	}
	parts = append(parts, n.items...)
	for i, part := range parts {
		if part.kind != scalar || part.style != bare || depth(part.text) <= 0 {
			continue
		}
		whole := part.text
		for _, next := range parts[i+1:] {
			if depth(whole) <= 0 || next.kind != scalar {
				break
			}
			whole += ", " + next.text
		}
		d.report(part, "expression.yaml", fmt.Sprintf("YAML splits this expression of %s at its comma", what), "quote it: "+quoted(whole))
		return true
	}
	return false
}

// depth is how many brackets a text opens and does not close. Brackets in quotes are passed over.
func depth(text string) int {
	open := 0
	var quote rune
	for _, r := range text {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '\'' || r == '"' || r == '`':
			quote = r
		case strings.ContainsRune("([{", r):
			open++
		case strings.ContainsRune(")]}", r):
			open--
		}
	}
	return open
}

// expression reads the text of one expression and reports what YAML has made of it otherwise.
func (d *decoder) expression(n *node, what string) (stream.Text, bool) {
	none := stream.Text{}
	trapped := func(message, text string) (stream.Text, bool) {
		d.report(n, "expression.yaml", message, "quote it: "+quoted(strings.TrimSpace(text)))
		return none, false
	}
	switch {
	case n.tag != "":
		return trapped(fmt.Sprintf("YAML reads %s as a tag, and %s is an expression", n.tag, what), d.src.from(n.line, n.column))
	case n.kind == empty:
		rest := d.src.line(n.line)
		if i := strings.Index(rest, ": #"); i >= 0 && n.line > 0 {
			return trapped(fmt.Sprintf("YAML reads the text of %s as a comment", what), rest[i+2:])
		}
		d.wrongType(n, what, "an expression")
		return none, false
	case n.kind == null && n.text != "null":
		return trapped(fmt.Sprintf("YAML reads `%s` as nothing, and %s is an expression", n.text, what), "null")
	case n.kind == list && n.style == flow || n.kind == mapping && n.style == flow:
		return trapped(fmt.Sprintf("YAML reads %s here, and %s is an expression", n.what(), what), d.src.from(n.line, n.column))
	case n.kind == list || n.kind == mapping:
		d.wrongType(n, what, "an expression")
		return none, false
	case n.style == folded, n.style != bare && n.style != block && n.lines > 1:
		d.report(n, "body.style", what+" stands on several lines that YAML joins", "write it on one line, or after `|`")
		return none, false
	case strings.TrimSpace(n.text) == "":
		d.report(n, "field.empty", what+" is an empty expression", "write one, or remove the key")
		return none, false
	}
	if i := strings.Index(n.text, "${"); i >= 0 {
		d.at(n, i, "env.place", "`${…}` is not replaced in an expression", "put it under `vars:` and use vars.name here")
		return none, false
	}
	text := stream.Text{File: d.src.file, Line: n.line, Column: n.column, Indent: n.column - 1, Text: n.text}
	switch {
	case n.style == block:
		text = n.block
		text.Text = strings.TrimRight(text.Text, "\n")
	case n.style == single || n.style == double:
		text.Column++
	case n.lines > 1:
		text = d.unfolded(n, text)
	}
	return text, true
}

// unfolded is a text without quotes on several lines with its line breaks, so that places in it are those of the file.
func (d *decoder) unfolded(n *node, text stream.Text) stream.Text {
	raw := d.src.from(n.line, n.column)
	for i := 1; i < n.lines; i++ {
		raw += "\n" + d.src.line(n.line+i)
	}
	if i := strings.LastIndex(raw, " #"); i > strings.LastIndexByte(raw, '\n') {
		raw = raw[:i]
	}
	if strings.Join(strings.Fields(raw), " ") == strings.Join(strings.Fields(n.text), " ") {
		text.Text, text.Indent = strings.TrimRight(raw, " \t\n"), 0
	}
	return text
}

// expressionError reports what the compiler of expressions found in a text.
func (d *decoder) expressionError(l *leafText, err *expr.Error) {
	line, column := l.text.Position(err.Line, err.Column)
	n := l.node
	switch {
	case n.kind == mapping || n.kind == list:
		line, column = n.line, n.column
	case n.style == single || n.style == double:
		line, column = d.place(n, err.Column-1)
	case n.style == bare && n.lines == 1:
		rest := strings.TrimPrefix(d.src.from(n.line, n.column), n.text)
		if trimmed := strings.TrimLeft(rest, " \t"); trimmed != rest && strings.HasPrefix(trimmed, "#") && err.Code == expr.CodeSyntax {
			d.problem(d.src.file, n.line, n.column+characters(n.text)+len(rest)-len(trimmed), "expression.yaml",
				"YAML reads the rest of this expression as a comment: "+err.Message, "quote it: "+quoted(n.text+rest))
			return
		}
	}
	d.problem(d.src.file, line, column, err.Code, err.Message, err.Hint)
}
