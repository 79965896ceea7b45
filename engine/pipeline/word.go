package pipeline

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/flechtwerk/flechtwerk/engine/decode"
	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// Word is one of a few words. Which these are, and what they stand for, is in the vocabulary of T.
type Word[T any] struct {
	leaf
	Value T
}

// meaning is a word and what it stands for.
type meaning struct {
	word  string
	value any
}

// The words that stand for themselves.
type (
	redirect    string // what is done with an answer that points elsewhere
	credentials string // where those of a client are sent
	beginning   string // where a file begins that is read for the first time
	truncated   string // what happens with a file that has become shorter
	stop        string // what an instance does that ends
)

// vocabularies are the words of each type of Word, in the order in which they are told.
var vocabularies = map[reflect.Type][]meaning{
	reflect.TypeFor[redirect]():    themselves[redirect]("follow", "manual", "error"),
	reflect.TypeFor[credentials](): themselves[credentials]("header", "body"),
	reflect.TypeFor[beginning]():   themselves[beginning]("start", "end"),
	reflect.TypeFor[truncated]():   themselves[truncated]("fail", "restart"),
	reflect.TypeFor[stop]():        themselves[stop]("stay", "leave"),

	reflect.TypeFor[decode.Format]():      bodyFormats(decode.JSON, decode.NDJSON, decode.CSV, decode.TSV, decode.XML, decode.Lines, decode.Text, decode.Protobuf),
	reflect.TypeFor[decode.Packing]():     {{"gzip", decode.Gzip}, {"zip", decode.Zip}},
	reflect.TypeFor[decode.Empty]():       {{"text", decode.EmptyText}, {"null", decode.EmptyNull}, {"omit", decode.EmptyOmit}},
	reflect.TypeFor[decode.Short]():       {{"pad", decode.ShortPad}, {"fail", decode.ShortError}},
	reflect.TypeFor[decode.Extra]():       {{"fail", decode.ExtraError}, {"ignore", decode.ExtraIgnore}, {"keep", decode.ExtraKeep}},
	reflect.TypeFor[decode.InvalidUTF8](): {{"fail", decode.InvalidError}, {"replace", decode.InvalidReplace}, {"latin1", decode.InvalidLatin1}},
}

func themselves[T ~string](words ...string) (list []meaning) {
	for _, w := range words {
		list = append(list, meaning{w, T(w)})
	}
	return list
}

func bodyFormats(formats ...decode.Format) (list []meaning) {
	for _, f := range formats {
		list = append(list, meaning{f.String(), f})
	}
	return list
}

// known are the words that w may be.
func (w *Word[T]) known() (words []string) {
	for _, m := range vocabularies[reflect.TypeFor[T]()] {
		words = append(words, m.word)
	}
	return words
}

func (w *Word[T]) decode(d *decoder, n *node, what string) bool {
	known := w.known()
	if n.kind == null && slices.Contains(known, "null") {
		n = &node{kind: scalar, style: bare, line: n.line, column: n.column, text: "null", lines: 1}
	}
	text, ok := d.word(n, what, known, nil)
	if ok {
		w.node, w.Value = n, vocabularies[reflect.TypeFor[T]()][slices.Index(known, text)].value.(T)
	}
	return ok
}

// word reads one of a few words. later are words of the language that are not supported yet.
func (d *decoder) word(n *node, what string, known, later []string) (string, bool) {
	if n.kind != scalar || n.tag != "" {
		d.wrongType(n, what, "one of "+wording.List(known, "and"))
		return "", false
	}
	e := d.expand(n)
	switch {
	case e.missing:
		return known[0], true
	case slices.Contains(known, e.text):
		return e.text, true
	case slices.Contains(later, e.text):
		d.report(n, "not_supported", fmt.Sprintf("`%s: %s` is not supported yet", lastOf(what), e.text), "use "+wording.List(known, "or"))
		return "", false
	}
	hint := ""
	if !e.env {
		hint = didYouMean(e.text, known)
	}
	d.report(n, "field.value", fmt.Sprintf("%s is one of %s, and %s is none", what, wording.List(known, "and"), n.text), hint)
	return "", false
}
