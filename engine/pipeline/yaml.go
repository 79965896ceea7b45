package pipeline

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	yaml "github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// maxNodes is how many nodes a file may have after its aliases are followed.
const maxNodes = 100_000

// source is the text of one file while it is read.
type source struct {
	file  string
	lines []string
}

// line is a line of the file, from 1.
func (s *source) line(n int) string {
	if n < 1 || n > len(s.lines) {
		return ""
	}
	return s.lines[n-1]
}

// from is the rest of a line from a column on, both from 1.
func (s *source) from(line, column int) string {
	text := s.line(line)
	for i := range text {
		if column--; column < 1 {
			return text[i:]
		}
	}
	return ""
}

// parse makes the tree of a file. A syntax error is the only problem and leaves no tree.
func (l *loader) parse(file string, text []byte) (*source, *node) {
	clean := cleaned(text)
	src := &source{file: file, lines: strings.Split(clean, "\n")}
	l.set.remember(file, clean)
	if !strings.HasSuffix(clean, "\n") {
		clean += "\n"
	}
	tree, err := parser.ParseBytes([]byte(clean), 0, parser.AllowDuplicateMapKey())
	if err != nil {
		l.syntax(src, err)
		return src, nil
	}
	b := builder{loader: l, src: src, anchors: map[string]ast.Node{}}
	var root *node
	for _, doc := range tree.Docs {
		if _, directive := doc.Body.(*ast.DirectiveNode); doc.Body == nil || directive {
			continue
		}
		if root != nil {
			at := doc.Body.GetToken().Position
			l.problem(src.file, at.Line, 1, "yaml.documents", "a second document begins here, and a pipeline file has one",
				"put it into a file of its own")
			break
		}
		root = b.value(doc.Body, nil)
	}
	if b.nodes >= maxNodes {
		return src, nil
	}
	if root == nil {
		l.problem(file, 1, 1, "yaml.empty", "the file is empty", "begin with `pipeline: name`")
	}
	return src, root
}

// cleaned is a text without byte order mark whose lines end in a line feed.
func cleaned(text []byte) string {
	return strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.TrimPrefix(string(text), "\uFEFF"))
}

// syntax reports what the parser did not understand, in the words of what most likely was meant.
func (l *loader) syntax(src *source, err error) {
	line, column, message := 1, 1, err.Error()
	var se *yaml.SyntaxError
	if errors.As(err, &se) {
		message = se.Message
		if se.Token != nil && se.Token.Position != nil {
			line, column = max(se.Token.Position.Line, 1), max(se.Token.Position.Column, 1)
		}
	}
	line = min(line, len(src.lines))
	if column > characters(src.line(line))+1 && line < len(src.lines) {
		line++ // the parser counts a line too few after a text of several lines
	}
	text := src.line(line)
	column = min(column, characters(text)+1)
	if indented := strings.TrimLeft(text, " "); strings.HasPrefix(indented, "\t") {
		l.problem(src.file, line, len(text)-len(indented)+1, "yaml.syntax", "a tab in the indentation", "indent with spaces")
		return
	}
	if at, hint, ok := trap(text, column); ok {
		l.problem(src.file, line, at, "yaml.syntax", "YAML does not read this line as it is meant: "+message, hint)
		return
	}
	hint := ""
	switch {
	case strings.Contains(message, "is not allowed in this context"):
		hint = "indent it as its neighbours are; quote a text that holds `: `"
	case strings.Contains(message, "non-map value is specified"), strings.Contains(message, "unexpected key name"):
		hint = "write `key: value`"
	}
	l.problem(src.file, line, column, "yaml.syntax", message, hint)
}

var (
	keyLine   = regexp.MustCompile(`^(\s*(?:- +)?(?:[\w$.-]+|"[^"]*"|'[^']*'):[ \t]+)(\S.*?)\s*$`)
	afterQuot = regexp.MustCompile(`^("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')\s*(\S.*)$`)
	question  = regexp.MustCompile(`\s\?\s.*\s:\s`)
	listFirst = regexp.MustCompile(`^\[[^\]]*\]\s*[^\s#]`)
)

// trap finds the value of a line that YAML takes apart although it was meant as one text. wrong is where the parser gave up,
// column is where the value begins.
func trap(line string, wrong int) (column int, hint string, ok bool) {
	m := keyLine.FindStringSubmatch(line)
	if m == nil {
		return 0, "", false
	}
	key, value := strings.TrimSpace(m[1]), m[2]
	column = characters(m[1]) + 1
	switch first := value[0]; {
	case strings.HasPrefix(value, "{{"), strings.ContainsRune("!@`%*&", rune(first)), listFirst.MatchString(value):
	case (first == '>' || first == '|') && strings.Trim(value[1:], "+-0123456789") != "":
	case first == '\'' || first == '"':
		rest := afterQuot.FindStringSubmatch(value)
		if rest == nil || rest[2][0] == '#' {
			return 0, "", false
		}
	case first == '{' || first == '[':
		if wrong < column {
			return 0, "", false
		}
		at, inner := innerText([]rune(value), wrong-column)
		if inner == "" {
			return 0, "", false
		}
		return column + at, "quote it: " + quoted(inner), true
	case question.MatchString(value), strings.Contains(value, ": "):
	default:
		return 0, "", false
	}
	key = strings.TrimPrefix(key, "- ")
	if slices.Contains(scriptKeys, key) {
		return column, "write the script after `" + key + " |`, indented", true
	}
	return column, "quote it: " + key + " " + quoted(value), true
}

// scriptKeys are the keys whose values are scripts, as they stand in a line.
var scriptKeys = []string{"transform:", "poll:", "functions:", "relay:", "on_timer:"}

// innerText is the text of a flow collection in which the character number wrong stands, and where it begins.
func innerText(value []rune, wrong int) (at int, text string) {
	wrong = min(wrong, len(value))
	for i := 1; i < wrong; i++ {
		before := value[i-1]
		if value[i] == ' ' || before != ' ' && before != '{' && before != '[' {
			continue
		}
		left := strings.TrimRight(string(value[:i]), " ")
		if strings.HasSuffix(left, ":") || strings.HasSuffix(left, ",") || strings.HasSuffix(left, "{") && before != '$' || strings.HasSuffix(left, "[") {
			if depth(string(value[at:i])) > 0 && at > 0 && !strings.HasSuffix(left, ":") {
				continue
			}
			at = i
		}
	}
	open := 0
	for i := at; i < len(value); i++ {
		switch value[i] {
		case '(', '[', '{':
			open++
		case ')', ']', '}', ',':
			if open == 0 {
				return at, strings.TrimSpace(string(value[at:i]))
			}
			if value[i] != ',' {
				open--
			}
		}
	}
	return at, strings.TrimSpace(string(value[at:]))
}

// builder turns the parser's tree into nodes.
type builder struct {
	*loader
	src     *source
	anchors map[string]ast.Node
	open    []string // the aliases that are being followed
	nodes   int
}

// value builds one value. key is the key that it belongs to, which gives the place of a value that is not there.
func (b *builder) value(n ast.Node, key *node) *node {
	if b.nodes++; b.nodes == maxNodes {
		at := b.place(n, key)
		b.problem(b.src.file, at.line, at.column, "yaml.too_large", fmt.Sprintf("the file has more than %d values, aliases counted in", maxNodes), "")
	}
	if n == nil || b.nodes >= maxNodes {
		return b.place(n, key)
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		return b.mapping(n, n.Values)
	case *ast.MappingValueNode:
		return b.mapping(n, []*ast.MappingValueNode{n})
	case *ast.SequenceNode:
		out := b.place(n, key)
		out.kind = list
		if n.IsFlowStyle {
			out.style = flow
		}
		for _, item := range n.Values {
			out.items = append(out.items, b.value(item, out))
		}
		return out
	case *ast.AnchorNode:
		if n.Name != nil {
			b.anchors[n.Name.GetToken().Value] = n.Value
		}
		return b.value(n.Value, key)
	case *ast.AliasNode:
		return b.alias(n, key)
	case *ast.TagNode:
		return b.tagged(n, key)
	case *ast.LiteralNode:
		return b.literal(n)
	case *ast.NullNode:
		out := b.place(n, key)
		if n.GetToken().Type != token.ImplicitNullType {
			out.kind, out.text = null, n.GetToken().Value
		} else if key != nil && key.kind == scalar {
			out.line, out.column = key.line, key.column
		}
		return out
	default:
		return b.scalar(n)
	}
}

// place is an empty node where n stands, or where key stands if n is nil.
func (b *builder) place(n ast.Node, key *node) *node {
	if n != nil && n.GetToken() != nil {
		at := n.GetToken().Position
		return &node{line: at.Line, column: at.Column}
	}
	if key != nil {
		return &node{line: key.line, column: key.column}
	}
	return &node{line: 1, column: 1}
}

func (b *builder) alias(n *ast.AliasNode, key *node) *node {
	name := n.Value.GetToken().Value
	at := b.place(n, key)
	target, ok := b.anchors[name]
	if !ok {
		b.problem(b.src.file, at.line, at.column, "yaml.alias", fmt.Sprintf("no anchor &%s stands above", name), "quote the value if it is no alias")
		return at
	}
	if slices.Contains(b.open, name) {
		b.problem(b.src.file, at.line, at.column, "yaml.alias", fmt.Sprintf("the anchor &%s holds itself", name), "")
		return at
	}
	b.open = append(b.open, name)
	out := b.value(target, key)
	b.open = b.open[:len(b.open)-1]
	out.anchor = true
	return out
}

// tagged builds the value of a tag. Only !!str is known.
func (b *builder) tagged(n *ast.TagNode, key *node) *node {
	out := b.place(n, key)
	if n.Value != nil {
		inner := b.value(n.Value, key)
		if tag := n.GetToken().Value; tag == "!!str" && (inner.kind == scalar || inner.kind == null) {
			inner.kind = scalar
			if inner.style == bare {
				inner.style = single
			}
			return inner
		}
	}
	out.tag = n.GetToken().Value
	return out
}

// swallowed are the entries that follow a tag without value and that the parser took for the tag's value.
func swallowed(key *node, v ast.Node) []*ast.MappingValueNode {
	tag, ok := v.(*ast.TagNode)
	if !ok {
		return nil
	}
	var values []*ast.MappingValueNode
	switch inner := tag.Value.(type) {
	case *ast.MappingNode:
		if inner.IsFlowStyle {
			return nil
		}
		values = inner.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{inner}
	}
	if len(values) > 0 && values[0].Key.GetToken().Position.Column <= key.column {
		tag.Value = nil
		return values
	}
	return nil
}

func (b *builder) mapping(n ast.Node, values []*ast.MappingValueNode) *node {
	out := b.place(n, nil)
	out.kind = mapping
	if m, ok := n.(*ast.MappingNode); ok && m.IsFlowStyle {
		out.style = flow
	} else if len(values) > 0 {
		at := b.place(values[0].Key, out)
		out.line, out.column = at.line, at.column
	}
	for i := 0; i < len(values) && b.nodes < maxNodes; i++ {
		pair := values[i]
		if _, merge := pair.Key.(*ast.MergeKeyNode); merge {
			b.merge(out, pair)
			continue
		}
		key := b.key(pair.Key)
		if more := swallowed(key, pair.Value); more != nil {
			values = slices.Insert(slices.Clone(values), i+1, more...)
		}
		value := b.value(pair.Value, key)
		value.head = key
		if key.kind != scalar && b.nodes < maxNodes {
			b.problem(b.src.file, key.line, key.column, "yaml.key", fmt.Sprintf("%s stands where a key is expected", key.what()), "quote the key, or the value that was split here")
			continue
		}
		if i := slices.IndexFunc(out.entries, func(e entry) bool { return e.key.text == key.text }); i >= 0 {
			if first := out.entries[i].key; !first.anchor {
				b.problem(b.src.file, key.line, key.column, "yaml.duplicate_key", fmt.Sprintf("%q is already given on line %d", key.text, first.line), "remove one of them")
				continue
			}
			out.entries = slices.Delete(out.entries, i, i+1)
		}
		out.entries = append(out.entries, entry{key, value})
	}
	return out
}

func (b *builder) key(n ast.MapKeyNode) *node {
	var inner ast.Node = n
	if k, ok := n.(*ast.MappingKeyNode); ok {
		inner = k.Value
	}
	key := b.value(inner, nil)
	if at := b.place(inner, nil); key.anchor {
		key.line, key.column = at.line, at.column
	}
	if key.kind == null {
		key.kind = scalar
	}
	return key
}

// merge adds the entries of the mappings behind a merge key; what the mapping has itself wins.
func (b *builder) merge(out *node, pair *ast.MappingValueNode) {
	at := b.place(pair.Key, out)
	value := b.value(pair.Value, at)
	parents := []*node{value}
	if value.kind == list {
		parents = value.items
	}
	for _, parent := range parents {
		if parent.kind != mapping {
			if parent.kind != empty {
				b.problem(b.src.file, at.line, at.column, "yaml.alias", "<< merges mappings, and this is "+parent.what(), "write `<<: *anchor`")
			}
			continue
		}
		for _, e := range parent.entries {
			if out.find(e.key.text) == nil {
				key := *e.key
				key.anchor = true
				out.entries = append(out.entries, entry{&key, e.value})
			}
		}
	}
}

// literal builds a block after | or >.
func (b *builder) literal(n *ast.LiteralNode) *node {
	head := n.Start.Position
	out := &node{kind: scalar, style: block, line: head.Line, column: head.Column, text: n.Value.Value, lines: 1}
	if strings.HasPrefix(n.Start.Value, ">") {
		out.style = folded
		return out
	}
	text := stream.Text{File: b.src.file, Line: head.Line + 1, Text: out.text}
	for i, line := range strings.Split(out.text, "\n") {
		if strings.TrimSpace(line) != "" {
			text.Indent = max(0, characters(b.src.line(text.Line+i))-characters(line))
			break
		}
	}
	text.Column = text.Indent + 1
	out.block = text
	return out
}

func (b *builder) scalar(n ast.Node) *node {
	tk := n.GetToken()
	out := &node{kind: scalar, line: tk.Position.Line, column: tk.Position.Column, text: tk.Value, lines: 1}
	if rest := b.src.from(out.line, out.column); strings.HasPrefix(rest, " ") {
		out.column += len(rest) - len(strings.TrimLeft(rest, " ")) // the place of a tagged scalar is a little early
	}
	switch tk.Type {
	case token.SingleQuoteType:
		out.style = single
	case token.DoubleQuoteType:
		out.style = double
	default:
	}
	out.lines = b.height(out)
	return out
}

// height is on how many lines of the file a scalar stands that is no block. What the parser keeps of its origin does not tell.
func (b *builder) height(n *node) int {
	rest := b.src.from(n.line, n.column)
	if n.style != bare {
		if quotedText.MatchString(rest) || rest == "" || rest[0] != '\'' && rest[0] != '"' {
			return 1
		}
		return 2 // or more; nobody asks
	}
	if strings.HasPrefix(rest, n.text) {
		return 1
	}
	lines, missing := 1, len(strings.Join(strings.Fields(n.text), ""))
	for {
		missing -= len(strings.Join(strings.Fields(rest), ""))
		if missing <= 0 || n.line+lines > len(b.src.lines) {
			return lines
		}
		rest = b.src.line(n.line + lines)
		lines++
	}
}

// quotedText begins with a scalar in quotes that ends on its line.
var quotedText = regexp.MustCompile(`^(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*')`)
