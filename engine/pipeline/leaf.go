package pipeline

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// leaf is the part that every scalar type of the Spec has: where it stands. A leaf without node was not given, or was broken.
type leaf struct{ node *node }

func (l *leaf) given() bool { return l.node != nil }

// Text is a text in which `${…}` is replaced.
type Text struct {
	leaf
	Value string
	// missing says that part of the value could not be had.
	missing bool
}

func (t *Text) decode(d *decoder, n *node, what string) bool {
	if n.kind != scalar || n.style == bare && resolve(n.text) != isText || n.tag != "" {
		d.wrongType(n, what, "a text")
		return false
	}
	e := d.expand(n)
	t.node, t.Value, t.missing = n, e.text, e.missing
	return true
}

// Count is a whole number from 1 on.
type Count struct {
	leaf
	Value int
	// missing says that the number comes from the environment and could not be had.
	missing bool
}

func (c *Count) decode(d *decoder, n *node, what string) bool {
	const want = "a whole number"
	e := d.expand(n)
	if n.kind != scalar || n.tag != "" || !e.env && n.style != bare || !e.env && resolve(n.text) != isInteger && resolve(n.text) != isFloat {
		d.wrongType(n, what, want)
		return false
	}
	if e.missing {
		c.node, c.Value, c.missing = n, 1, true
		return true
	}
	v, err := strconv.Atoi(e.text)
	if err != nil || v < 1 || v > math.MaxInt32 {
		d.report(n, "field.value", fmt.Sprintf("%s is %s from 1 on, and %s is none", what, want, n.text), tooLarge(e.text))
		return false
	}
	c.node, c.Value = n, v
	return true
}

// tooLarge is the hint for a whole number that is none only because of its size.
func tooLarge(text string) string {
	if v, err := strconv.ParseFloat(text, 64); err != nil || v <= math.MaxInt32 || v != math.Trunc(v) {
		return ""
	}
	return fmt.Sprintf("the largest is %d", math.MaxInt32)
}

// Duration is a length of time: `250ms`, `30s`, `5m`, `48h` or `7d`.
type Duration struct {
	leaf
	Value time.Duration
	// missing says that it comes from the environment and could not be had.
	missing bool
}

var (
	durationText = regexp.MustCompile(`^([0-9]+)(ms|s|m|h|d)$`)
	units        = map[string]time.Duration{"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}
)

// longest is the longest duration.
const longest = time.Duration(math.MaxInt64)

// ParseDuration reads a duration as the language writes it: 250ms, 30s, 5m, 48h or 7d. It takes no fractions and no sign.
func ParseDuration(text string) (time.Duration, error) {
	m := durationText.FindStringSubmatch(text)
	if m == nil {
		return 0, errors.New("a duration is a whole number and a unit: 250ms, 30s, 5m, 48h or 7d")
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil || n > int64(longest/units[m[2]]) {
		return 0, errors.New("the duration is longer than 292 years")
	}
	return time.Duration(n) * units[m[2]], nil
}

func (t *Duration) decode(d *decoder, n *node, what string) bool {
	if n.kind != scalar || n.tag != "" {
		d.wrongType(n, what, "a duration such as 30s")
		return false
	}
	e := d.expand(n)
	if e.missing {
		t.node, t.Value, t.missing = n, time.Second, true
		return true
	}
	v, err := ParseDuration(e.text)
	switch {
	case err == nil && v > 0:
		t.node, t.Value = n, v
		return true
	case err == nil:
		d.report(n, "duration.invalid", fmt.Sprintf("%s must be longer than nothing", what), "the shortest is 1ms")
	default:
		hint := "write 250ms, 30s, 5m, 48h or 7d"
		if !e.env && intText.MatchString(e.text) {
			hint = fmt.Sprintf("write the unit: %ss or %sms", e.text, e.text)
		}
		d.report(n, "duration.invalid", fmt.Sprintf("%s is a duration, and %s is none", what, n.text), hint)
	}
	return false
}

// Object is a JSON object that the language does not look into.
type Object struct {
	leaf
	JSON []byte
	// texts are the members whose text came from the environment without a type, by their path.
	texts []envText
	// missing says that part of it comes from the environment and could not be had.
	missing bool
}

// envText is a text of the environment in an Object. numeric says that it looks like a number, or is not known.
type envText struct {
	path    []string
	numeric bool
	values  []string // that came from there
}

func (o *Object) decode(d *decoder, n *node, what string) bool {
	if n.kind != mapping {
		d.wrongType(n, what, "a mapping")
		return false
	}
	j := jsonWriter{decoder: d}
	j.value(n, what)
	o.node, o.JSON, o.texts, o.missing = n, j.out, j.texts, j.missing
	return true
}

// jsonWriter writes nodes as JSON.
type jsonWriter struct {
	*decoder
	out   []byte
	path  []string
	texts []envText
	// missing says that some value could not be had.
	missing bool
}

func (j *jsonWriter) value(n *node, what string) {
	if n.tag != "" {
		j.report(n, "yaml.tag", fmt.Sprintf("%s has the YAML tag %s, which means nothing here", what, n.tag), "quote a text that begins with `!`")
	}
	switch n.kind {
	case mapping:
		j.out = append(j.out, '{')
		for i, e := range n.entries {
			if i > 0 {
				j.out = append(j.out, ',')
			}
			j.keyWithoutEnv(e.key)
			j.out = append(rawjson.AppendString(j.out, e.key.text), ':')
			j.path = append(j.path, e.key.text)
			j.value(e.value, what+"."+e.key.text)
			j.path = j.path[:len(j.path)-1]
		}
		j.out = append(j.out, '}')
	case list:
		j.out = append(j.out, '[')
		for i, item := range n.items {
			if i > 0 {
				j.out = append(j.out, ',')
			}
			j.path = append(j.path, strconv.Itoa(i))
			j.value(item, fmt.Sprintf("%s[%d]", what, i))
			j.path = j.path[:len(j.path)-1]
		}
		j.out = append(j.out, ']')
	case scalar:
		j.scalar(n, what)
	default:
		j.out = append(j.out, "null"...)
	}
}

func (j *jsonWriter) scalar(n *node, what string) {
	e := j.expand(n)
	j.missing = j.missing || e.missing
	kind := e.kind
	if !e.env && n.style == bare {
		kind = resolve(n.text)
	}
	if e.missing && kind != isText {
		j.out = append(j.out, "null"...)
		return
	}
	switch kind {
	case isBool:
		j.out = append(j.out, strings.ToLower(e.text)...)
	case isInteger, isFloat:
		j.out = append(j.out, number(e.text)...)
	case isOdd:
		j.report(n, "value.odd", fmt.Sprintf("%s is %s, which some read as a number and some as a text", what, n.text),
			"quote it if it is a text, else write a plain decimal number")
		j.out = append(j.out, "null"...)
	default:
		if e.env {
			j.texts = append(j.texts, envText{slices.Clone(j.path), e.missing || numText.MatchString(e.text), e.values})
		}
		j.out = rawjson.AppendString(j.out, e.text)
	}
}

// keyWithoutEnv refuses `${…}` in a key that is taken as it stands.
func (d *decoder) keyWithoutEnv(key *node) {
	if i := strings.Index(key.text, "${"); i >= 0 && (i == 0 || key.text[i-1] != '$') {
		d.report(key, "env.place", "`${…}` is not replaced in this key", "only the keys of `topics:` are; elsewhere it works in values")
	}
}

// Settings are texts by name, as Kafka has them.
type Settings struct {
	leaf
	Values []Setting
}

// Setting is one of Settings.
type Setting struct {
	Name, Value string
	key         *node
}

func (s *Settings) decode(d *decoder, n *node, what string) bool {
	if n.kind != mapping {
		d.wrongType(n, what, "a mapping of Kafka's settings")
		return false
	}
	s.node = n
	for _, e := range n.entries {
		d.keyWithoutEnv(e.key)
		if e.value.kind != scalar || e.value.tag != "" {
			d.wrongType(e.value, what+"."+e.key.text, "a text, number or boolean")
			continue
		}
		x := d.expand(e.value)
		if !x.env && e.value.style == bare && resolve(e.value.text) == isOdd {
			d.report(e.value, "value.odd", fmt.Sprintf("%s.%s is %s, which some read as a number and some as a text", what, e.key.text, e.value.text), "write a plain decimal number")
			continue
		}
		s.Values = append(s.Values, Setting{e.key.text, x.text, e.key})
	}
	return true
}

// Format is how the bytes of a key or a value are read and written.
type Format struct {
	leaf
	Value stream.Format
}

var formats = map[string]stream.Format{"json": stream.JSON, "string": stream.String, "bytes": stream.Bytes}

func (f *Format) decode(d *decoder, n *node, what string) bool {
	text, ok := d.word(n, what, []string{"json", "string", "bytes"}, []string{"int", "long", "double", "avro", "protobuf"})
	if !ok {
		return false
	}
	f.node, f.Value = n, formats[text]
	return true
}

func lastOf(what string) string { return what[strings.LastIndexByte(what, '.')+1:] }

// Names are one text or a list of them.
type Names struct {
	leaf
	Items []Text
}

func (s *Names) decode(d *decoder, n *node, what string) bool {
	items := []*node{n}
	if n.kind == list {
		items = n.items
		if len(items) == 0 {
			d.report(n, "field.empty", what+" is an empty list", "name a topic, or remove the key")
			return false
		}
	} else if n.kind != scalar {
		d.wrongType(n, what, "a name or a list of names")
		return false
	}
	for i, item := range items {
		var t Text
		name := what
		if n.kind == list {
			name = fmt.Sprintf("%s[%d]", what, i)
		}
		if t.decode(d, item, name) {
			s.Items = append(s.Items, t)
		}
	}
	s.node = n
	return true
}

// Inputs are the input topics of a transformer: one, a list, or a mapping from names to topics.
type Inputs struct {
	leaf
	// Names has one name per topic of the mapping form, and is empty for the others.
	Names  []string
	Topics []Text
}

func (in *Inputs) decode(d *decoder, n *node, what string) bool {
	if n.kind != mapping {
		var names Names
		if !names.decode(d, n, what) {
			return false
		}
		in.node, in.Topics = n, names.Items
		return true
	}
	if len(n.entries) == 0 {
		d.report(n, "field.empty", what+" is an empty mapping", "write `name: topic`")
		return false
	}
	for _, e := range n.entries {
		d.keyWithoutEnv(e.key)
		var t Text
		if t.decode(d, e.value, what+"."+e.key.text) {
			in.Names, in.Topics = append(in.Names, e.key.text), append(in.Topics, t)
		}
	}
	in.node = n
	return true
}

// Named are values by name, in the order of the file.
type Named[T any] struct {
	leaf
	Items []Item[T]
}

// Item is one of Named.
type Item[T any] struct {
	Name       string
	Value      T
	key, value *node
	// broken says that the value could not be read.
	broken bool
}

func (s *Named[T]) decode(d *decoder, n *node, what string) bool {
	if n.kind != mapping {
		d.wrongType(n, what, "a mapping of names")
		return false
	}
	s.node = n
	for _, e := range n.entries {
		item := Item[T]{Name: e.key.text, key: e.key, value: e.value}
		if what == "topics" {
			item.Name = d.expand(e.key).text
		} else {
			d.keyWithoutEnv(e.key)
		}
		value := e.value
		if what == "topics" && value.kind == empty && value.tag == "" {
			value = &node{kind: mapping, line: value.line, column: value.column}
		}
		item.broken = !d.into(value, reflect.ValueOf(&item.Value), what+"."+e.key.text)
		s.Items = append(s.Items, item)
	}
	return true
}

// Rows are the records of an inline seed.
type Rows struct {
	leaf
	Items []row
}

type row struct {
	json         []byte
	line, column int
}

func (r *Rows) decode(d *decoder, n *node, what string) bool {
	if n.kind != list {
		d.wrongType(n, what, "a list of records")
		return false
	}
	r.node = n
	for i, item := range n.items {
		j := jsonWriter{decoder: d}
		j.value(item, fmt.Sprintf("%s[%d]", what, i))
		r.Items = append(r.Items, row{j.out, item.line, item.column})
	}
	return true
}

// Script is a body: inline text, or `{ script: file.js }`.
type Script struct {
	leaf
	Body Body
}

func (s *Script) decode(d *decoder, n *node, what string) bool {
	if n.kind == mapping {
		return s.file(d, n, what)
	}
	if file, ok := fileIn(n); ok {
		d.report(n, "field.value", fmt.Sprintf("%s is a script, and this is the name of a file", what), fmt.Sprintf("write `{ script: %s }`", file))
		return false
	}
	text, ok := d.code(n, what)
	if ok {
		s.node, s.Body = n, Body{Text: text}
	}
	return ok
}

// fileIn is the text of a node if it is nothing but the name of a file.
func fileIn(n *node) (string, bool) {
	text := strings.TrimSpace(n.text)
	return text, n.kind == scalar && n.tag == "" && fileName.MatchString(text)
}

func (s *Script) file(d *decoder, n *node, what string) bool {
	var name *node
	for _, e := range n.entries {
		if e.key.text == "script" {
			name = e.value
		} else {
			d.report(e.key, "field.unknown", fmt.Sprintf("%s has no field %q", what, e.key.text), "write the script after |, or `{ script: file.js }`")
		}
	}
	if name == nil {
		if len(n.entries) == 0 {
			d.wrongType(n, what, "a script after |, or `{ script: file.js }`")
		}
		return false
	}
	var path Text
	if !path.decode(d, name, what+".script") || path.missing {
		return false
	}
	script, ok := d.scriptFile(&path, what+".script")
	if ok {
		s.node, s.Body = n, Body{Text: script, Module: true}
	}
	return ok
}

// scriptFile reads a file of JavaScript.
func (d *decoder) scriptFile(path *Text, what string) (stream.Text, bool) {
	none := stream.Text{}
	name := path.node
	switch {
	case strings.HasSuffix(path.Value, ".ts"):
		d.report(name, "not_supported", "a TypeScript file is not supported yet", "use a .js file")
		return none, false
	case !strings.HasSuffix(path.Value, ".js"):
		d.report(name, "field.value", fmt.Sprintf("%s is the name of a .js file, and %s is none", what, name.text), "")
		return none, false
	}
	file := d.beside(path.Value)
	text, err := d.ReadFile(file)
	if err != nil {
		d.report(name, "script.file", fmt.Sprintf("the script %s cannot be read: %v", name.text, reason(err)), "the path is relative to the pipeline file")
		return none, false
	}
	clean := cleaned(text)
	d.set.remember(file, clean)
	return stream.Text{File: file, Line: 1, Column: 1, Text: clean}, true
}

// code reads a text that is JavaScript: a literal block, or one line.
func (d *decoder) code(n *node, what string) (stream.Text, bool) {
	const hint = "write it after `|`, indented"
	none := stream.Text{}
	if n.kind != scalar || n.tag != "" {
		d.wrongType(n, what, "a script: one line, or a block after `|`")
		return none, false
	}
	switch {
	case n.style == folded:
		d.report(n, "body.style", what+" is folded by `>`, which would join its lines", "write `|` in place of `>`")
	case n.lines > 1:
		d.report(n, "body.style", what+" has several lines without `|`", hint)
	case strings.TrimSpace(n.text) == "":
		d.report(n, "body.empty", what+" has no text", hint)
	case n.style == block:
		return n.block, true
	case n.style == bare:
		return stream.Text{File: d.src.file, Line: n.line, Column: n.column, Indent: n.column - 1, Text: n.text}, true
	case written(d.src.from(n.line, n.column), characters(n.text)) != characters(n.text)+1:
		d.report(n, "body.style", what+" has escapes in its quotes, so that its columns are not those of the file", hint)
	default:
		return stream.Text{File: d.src.file, Line: n.line, Column: n.column + 1, Indent: n.column, Text: n.text}, true
	}
	return none, false
}

// Functions is JavaScript for every body of a pipeline: a text, a .js file, or a list of these.
type Functions struct {
	leaf
	Texts []stream.Text
}

func (f *Functions) decode(d *decoder, n *node, what string) bool {
	switch n.kind {
	case list:
		if len(n.items) == 0 {
			d.report(n, "field.empty", what+" is an empty list", "name a .js file, or remove the key")
			return false
		}
		for i, item := range n.items {
			f.one(d, item, fmt.Sprintf("%s[%d]", what, i))
		}
	case mapping:
		d.wrongType(n, what, "a text, a .js file, or a list of them")
	default:
		f.one(d, n, what)
	}
	f.node = n
	return true
}

var fileName = regexp.MustCompile(`^[^\s;(){}=]+\.(?:js|ts|mjs|cjs)$`)

// one reads a text or the file that it names.
func (f *Functions) one(d *decoder, n *node, what string) {
	if n.kind == scalar && n.tag == "" && n.style != block && n.lines <= 1 && fileName.MatchString(d.expand(n).text) {
		var path Text
		if !path.decode(d, n, what) || path.missing {
			return
		}
		text, ok := d.scriptFile(&path, what)
		if ok && slices.ContainsFunc(f.Texts, func(t stream.Text) bool { return t.File == text.File && t.File != d.src.file }) {
			d.report(n, "field.value", fmt.Sprintf("%s is already in this list", n.text), "what it declares can be declared once; remove it")
		} else if ok {
			f.Texts = append(f.Texts, text)
		}
		return
	}
	if n.kind != scalar {
		d.wrongType(n, what, "a script after `|`, or the name of a .js file")
		return
	}
	if file, ok := fileIn(n); ok {
		d.report(n, "field.value", fmt.Sprintf("%s is the name of a file after `|`, which makes it a script", what), fmt.Sprintf("write %s without the `|`", file))
		return
	}
	if text, ok := d.code(n, what); ok {
		f.Texts = append(f.Texts, text)
	}
}
