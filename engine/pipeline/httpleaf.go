package pipeline

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/decode"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// Template is a text with holes: `{{ expr }}`.
type Template struct {
	leaf
	text stream.Text // as it is written
}

func (t *Template) decode(d *decoder, n *node, what string) bool {
	if n.kind == mapping && n.style == flow && strings.HasPrefix(d.src.from(n.line, n.column), "{{") {
		d.report(n, "expression.yaml", fmt.Sprintf("YAML reads `{{` as a mapping, and %s is a text", what), "quote it: "+quoted(strings.TrimSpace(d.src.from(n.line, n.column))))
		return false
	}
	if n.kind != scalar || n.tag != "" {
		d.wrongType(n, what, "a text")
		return false
	}
	if n.style == bare && resolve(n.text) == isOdd {
		d.report(n, "value.odd", fmt.Sprintf("%s is %s, which some read as a number and some as a text", what, n.text), "quote it")
		return false
	}
	t.node, t.text = n, textOf(d, n, n.text)
	return true
}

// Templates are templates by name, in the order of the file. One name may have a list of them.
type Templates struct {
	leaf
	Items []namedTemplate
}

type namedTemplate struct {
	name string
	key  *node
	Template
}

func (s *Templates) decode(d *decoder, n *node, what string) bool {
	if n.kind != mapping {
		d.wrongType(n, what, "a mapping of names and texts")
		return false
	}
	s.node = n
	for _, e := range n.entries {
		d.keyWithoutEnv(e.key)
		values := []*node{e.value}
		if e.value.kind == list {
			values = e.value.items
		}
		for _, value := range values {
			item := namedTemplate{name: e.key.text, key: e.key}
			if item.Template.decode(d, value, what+"."+e.key.text) {
				s.Items = append(s.Items, item)
			}
		}
	}
	return true
}

// BodyTree is a JSON value with templates in it.
type BodyTree struct {
	leaf
	root *bodyNode
}

// bodyNode is a part of a BodyTree: a template, a literal, or names and items.
type bodyNode struct {
	template *Template
	literal  []byte
	names    []string
	items    []*bodyNode
	list     bool
}

func (b *BodyTree) decode(d *decoder, n *node, what string) bool {
	if n.kind == empty {
		d.wrongType(n, what, "a JSON value")
		return false
	}
	ok := true
	b.root = d.bodyNode(n, what, &ok)
	b.node = n
	return ok
}

func (d *decoder) bodyNode(n *node, what string, ok *bool) *bodyNode {
	out := &bodyNode{}
	isHole := n.style == flow && strings.HasPrefix(d.src.from(n.line, n.column), "{{")
	if isHole || n.kind == scalar && strings.Contains(n.text, "{{") {
		out.template = &Template{}
		*ok = out.template.decode(d, n, what) && *ok
		return out
	}
	switch n.kind {
	case mapping:
		out.names = []string{}
		for _, e := range n.entries {
			d.keyWithoutEnv(e.key)
			out.names = append(out.names, e.key.text)
			out.items = append(out.items, d.bodyNode(e.value, what+"."+e.key.text, ok))
		}
	case list:
		out.list = true
		for i, item := range n.items {
			out.items = append(out.items, d.bodyNode(item, fmt.Sprintf("%s[%d]", what, i), ok))
		}
	default:
		j := jsonWriter{decoder: d}
		j.value(n, what)
		out.literal = j.out
	}
	return out
}

// Flag is true or false.
type Flag struct {
	leaf
	Value bool
}

func (f *Flag) decode(d *decoder, n *node, what string) bool {
	e := d.expand(n)
	text := strings.ToLower(e.text)
	switch {
	case n.kind != scalar || n.tag != "" || !e.env && (n.style != bare || resolve(n.text) != isBool):
		d.wrongType(n, what, "true or false")
		return false
	case !e.missing && text != "true" && text != "false":
		d.report(n, "field.value", fmt.Sprintf("%s is true or false, and %s is neither", what, n.text), "")
		return false
	}
	f.node, f.Value = n, text == "true"
	return true
}

// Quote is the character around a field, or false.
type Quote struct {
	leaf
	Value byte
}

func (q *Quote) decode(d *decoder, n *node, what string) bool {
	if n.kind == scalar && n.style == bare && resolve(n.text) == isBool && strings.EqualFold(n.text, "false") {
		q.node, q.Value = n, decode.NoQuote
		return true
	}
	var t Text
	if !t.decode(d, n, what) {
		return false
	}
	q.node = n
	if t.missing {
		return true
	}
	var ok bool
	q.Value, ok = d.character(n, t.Value, what)
	return ok
}

// character reads one ASCII character.
func (d *decoder) character(n *node, text, what string) (byte, bool) {
	if text == `\t` {
		text = "\t"
	}
	if len(text) != 1 || text[0] >= 0x80 || text[0] == '\n' || text[0] == '\r' {
		d.report(n, "field.value", fmt.Sprintf("%s is one ASCII character and no line break, and %q is none", what, n.text), "")
		return 0, false
	}
	return text[0], true
}

// StatusRange are the statuses from From to To.
type StatusRange struct{ From, To int }

// Statuses are statuses of answers: one, a range such as 200-299, or a list of these.
type Statuses struct {
	leaf
	Ranges []StatusRange
}

var statusText = regexp.MustCompile(`^([1-5][0-9][0-9])(?:\s*-\s*([1-5][0-9][0-9]))?$`)

func (s *Statuses) decode(d *decoder, n *node, what string) bool {
	const want = "a status such as 200, a range such as 200-299, or a list of these"
	items := []*node{n}
	if n.kind == list {
		if items = n.items; len(items) == 0 {
			d.report(n, "field.empty", what+" is an empty list, so that every answer is an error", "name a status, or remove the key")
			return false
		}
	}
	s.node = n
	for _, item := range items {
		if item.kind != scalar || item.tag != "" {
			d.wrongType(item, what, want)
			return false
		}
		e := d.expand(item)
		if e.missing {
			continue
		}
		m := statusText.FindStringSubmatch(e.text)
		if m == nil {
			hint := ""
			if len(e.text) == 3 && strings.HasSuffix(e.text, "xx") {
				hint = fmt.Sprintf("write %c00-%c99", e.text[0], e.text[0])
			}
			d.report(item, "field.value", fmt.Sprintf("%s is %s, and %s is none", what, want, item.text), hint)
			return false
		}
		from, _ := strconv.Atoi(m[1]) // the expression lets three digits through
		to := from
		if m[2] != "" {
			to, _ = strconv.Atoi(m[2])
		}
		if to < from {
			d.report(item, "field.value", fmt.Sprintf("%s ends below where it begins", what), "write the lower status first")
			return false
		}
		s.Ranges = append(s.Ranges, StatusRange{from, to})
	}
	return true
}

// RetryAfter is the longest wait where a server says when to come again, false, or both a wait and how often.
type RetryAfter struct {
	leaf
	Most  time.Duration // 0 by default
	Times int           // 0 by default
	Off   bool
}

// retryAfterSpec is the long form of RetryAfter.
type retryAfterSpec struct {
	Most  Duration `json:"max"`
	Times Count    `json:"times"`
}

func (r *RetryAfter) decode(d *decoder, n *node, what string) bool {
	switch {
	case n.kind == mapping:
		var spec retryAfterSpec
		if !d.structure(n, reflect.ValueOf(&spec).Elem(), what) {
			return false
		}
		r.Most, r.Times = spec.Most.Value, spec.Times.Value
	case n.kind == scalar && n.style == bare && strings.EqualFold(n.text, "false"):
		r.Off = true
	default:
		var most Duration
		if !most.decode(d, n, what) {
			return false
		}
		r.Most = most.Value
	}
	r.node = n
	return true
}

// Pauses are a range of durations, such as 1s..1m.
type Pauses struct {
	leaf
	Value Backoff
}

func (p *Pauses) decode(d *decoder, n *node, what string) bool {
	var ok bool
	if p.Value, ok = d.backoff(n, what); ok {
		p.node = n
	}
	return ok
}

// PageParam is where a request says which page it wants: a member of the query, or a header or a member of the body by name.
type PageParam struct {
	leaf
	In   string // query, header or body
	Name string
}

func (p *PageParam) decode(d *decoder, n *node, what string) bool {
	p.In = "query"
	name := n
	if n.kind == mapping {
		if len(n.entries) != 1 || !slices.Contains([]string{"query", "header", "body"}, n.entries[0].key.text) {
			d.report(n, "field.value", fmt.Sprintf("%s is the name of a member of the query, or one of `{ query: name }`, `{ header: name }` and `{ body: name }`", what), "")
			return false
		}
		p.In, name, what = n.entries[0].key.text, n.entries[0].value, what+"."+n.entries[0].key.text
	}
	var t Text
	if !t.decode(d, name, what) {
		return false
	}
	if t.Value == "" {
		d.report(name, "field.value", what+" is an empty name", "")
		return false
	}
	p.node, p.Name = n, t.Value
	return true
}
