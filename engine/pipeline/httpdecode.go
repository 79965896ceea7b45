package pipeline

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/flechtwerk/flechtwerk/engine/decode"
)

func (s *DecodeSpec) decode(d *decoder, n *node, what string) bool {
	if n.kind != mapping {
		return s.Format.decode(d, n, what)
	}
	return d.structure(n, reflect.ValueOf(s).Elem(), what)
}

// decode says what the body of an answer is written in.
func (r *request) decode() {
	at := r.in.find("decode")
	if r.out.Tail != nil && at == nil {
		r.out.Decode.Format = decode.Lines
	}
	if at == nil || r.spec.Decode == nil {
		return
	}
	spec, what := r.spec.Decode, r.what+".decode"
	c := &r.out.Decode
	*c = decode.Config{
		Format: spec.Format.Value, Packing: spec.Packing.Value, Members: spec.Members.Value, Invalid: spec.InvalidUTF8.Value,
		Separator: spec.Separator.Value, Delimited: spec.Delimited.Value, Defaults: spec.Defaults.Value,
		Table: decode.Table{Quote: spec.Quote.Value, Empty: spec.Empty.Value, Short: spec.Short.Value, Extra: spec.Extra.Value},
	}
	if at.kind != mapping {
		at = &node{kind: mapping, line: at.line, column: at.column}
	}
	for i := range spec.Columns.Items {
		name := &spec.Columns.Items[i]
		if slices.Contains(c.Table.Columns, name.Value) {
			r.report(name.node, "field.value", fmt.Sprintf("the column %s stands twice in %s.columns", name.node.text, what), "rename one")
			continue
		}
		c.Table.Columns = append(c.Table.Columns, name.Value)
	}
	for i := range spec.Lists.Items {
		c.Tree.Lists = append(c.Tree.Lists, spec.Lists.Items[i].Value)
	}
	if t := &spec.Delimiter; t.given() && !t.missing {
		c.Table.Delimiter, _ = r.character(t.node, t.Value, what+".delimiter")
		if c.Table.Delimiter != 0 && c.Table.Delimiter == c.Table.Quote {
			r.report(t.node, "field.value", what+" has the same delimiter and quote", "")
			c.Table.Quote = 0
		}
	}
	unknown := r.NoEnv && spec.Format.given() && strings.Contains(spec.Format.node.text, "${")
	for key, takes := range map[string][]decode.Format{
		"delimiter": {decode.CSV, decode.TSV}, "quote": {decode.CSV, decode.TSV}, "columns": {decode.CSV, decode.TSV}, "empty": {decode.CSV, decode.TSV},
		"short": {decode.CSV, decode.TSV}, "extra": {decode.CSV, decode.TSV}, "invalid_utf8": {decode.CSV, decode.TSV, decode.Lines, decode.Text},
		"separator": {decode.Lines}, "lists": {decode.XML}, "schema": {decode.Protobuf}, "message": {decode.Protobuf}, "delimited": {decode.Protobuf}, "defaults": {decode.Protobuf},
	} {
		if !slices.Contains(takes, c.Format) && !unknown {
			r.noEffect(at, key, "on "+c.Format.String(), "remove it, or write another `format`")
		}
	}
	if c.Packing != decode.Zip {
		r.noEffect(at, "members", "without `packing: zip`", "remove it, or write `packing: zip`")
	}
	switch c.Format {
	case decode.Protobuf:
		r.protobuf(spec, at, what)
	default:
	}
	if r.out.Tail != nil {
		r.tailed(at, what)
		r.noEffect(at, "packing", "with `tail`, which reads parts of a file", "remove it")
		r.noEffect(at, "separator", "with `tail`, which has a `separator` of its own", "write `tail: { separator: … }`")
	}
	if _, err := decode.New(*c); err != nil && !r.failed(at) {
		r.report(r.in.key("decode"), "http.decode", what+": "+err.Error(), "")
	}
}

// tailFormats are those whose records stand for themselves.
var tailFormats = []decode.Format{decode.Lines, decode.NDJSON, decode.CSV, decode.TSV}

// tailed checks that the records of a file that grows can be read from its middle.
func (r *request) tailed(at *node, what string) {
	c := &r.out.Decode
	switch k := r.in.key("decode"); {
	case !slices.Contains(tailFormats, c.Format):
		r.report(k, "http.decode", fmt.Sprintf("%s: a file that grows is read record by record, and %s has no records that stand for themselves", what, c.Format), "write lines, ndjson, csv or tsv")
	case (c.Format == decode.CSV || c.Format == decode.TSV) && !at.has("columns"):
		r.report(k, "http.decode", what+": in the middle of a file the columns have no names", "write `columns: [...]`")
	}
}

// failed tells whether a problem within a mapping was reported already.
func (r *request) failed(at *node) bool {
	last := at.line
	var walk func(n *node)
	walk = func(n *node) {
		last = max(last, n.line)
		for _, e := range n.entries {
			walk(e.key)
			walk(e.value)
		}
		for _, item := range n.items {
			walk(item)
		}
	}
	walk(at)
	return slices.ContainsFunc(r.problems, func(p Problem) bool {
		return p.File == r.src.file && p.Severity == Error && p.Line >= at.line && p.Line <= last
	})
}

// protobuf reads the schema of a body.
func (r *request) protobuf(spec *DecodeSpec, at *node, what string) {
	for _, key := range []string{"schema", "message"} {
		if !at.has(key) {
			r.report(r.in.key("decode"), "field.missing", fmt.Sprintf("%s has no `%s:`", what, key), "a protobuf body says nothing of itself: name its .proto file and the message type")
			return
		}
	}
	if !spec.Schema.given() || spec.Schema.missing || !spec.Message.given() || spec.Message.missing {
		return
	}
	schema, err := decode.ReadSchema(spec.Schema.Value, func(name string) ([]byte, error) { return r.ReadFile(r.beside(name)) })
	if err != nil {
		r.report(spec.Schema.node, "http.decode", fmt.Sprintf("the schema %s: %v", spec.Schema.node.text, reason(err)), "the path is relative to the pipeline file")
		return
	}
	message, err := schema.Message(spec.Message.Value)
	if err != nil {
		r.report(spec.Message.node, "http.decode", what+": "+err.Error(), "")
		return
	}
	r.out.Decode.Message = message
}

// readers checks that what is read is there, and that what is kept is read.
func (r *request) readers(stage *node, what string) {
	rows := !r.out.Decode.Format.Lists() || r.out.Tail != nil
	if rows {
		name := r.out.Decode.Format.String()
		if r.out.Tail != nil {
			name = "tail"
		}
		r.noEffect(stage, "records", fmt.Sprintf("with %s, whose records are its rows or pieces", name), "remove it")
	}
	relay := stage.has("relay")
	readsState := false
	for _, l := range r.e.reads {
		for _, path := range l.paths {
			readsState = readsState || path[0] == "state"
			if rows && path[0] == "body" {
				r.report(l.node, "http.no_body", "`body` is not there: a body of rows is read row by row and never held as a whole", "`item` is a row; `page.last` is the last one of a page")
				break
			}
		}
	}
	r.e.readsState = readsState
	if readsState || relay || r.failed(stage) {
		return // what reads it may be the script, or is reported
	}
	for _, key := range []string{"cursor", "state"} {
		if k := stage.key(key); k != nil && !stage.has("poll") {
			r.report(k, "state.unused", fmt.Sprintf("%s has `%s:`, but nothing in it reads `state`", what, key), "read it where the request says from where on, as in `since: \"{{ state.since ?? 0 }}\"`, or remove the key")
		}
	}
}
