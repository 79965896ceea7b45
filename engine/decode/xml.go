package decode

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/text/encoding/charmap"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// Tree says how XML becomes JSON:
//
//   - An element without attributes and elements in it is its text, as a string. White space around the text is dropped.
//   - Any other element is an object: its attributes as @name, then the elements in it by their names in the order in which each
//     name comes first, then its text, if there is any, as #text.
//   - Elements of one name in one element are an array; one alone is not, unless Lists has its name.
//   - Names stand as they are written, with their prefix. Declarations of namespaces are attributes.
//   - A whole document is an object with the root as its only member. An item of a list is the element without its name.
//
// Comments and processing instructions are dropped. Entities that a DTD declares are not known.
type Tree struct {
	// Lists are names of elements that are arrays also where there is only one of them.
	Lists []string
	// UTF8 says that the body is in UTF-8, whatever it says itself.
	UTF8 bool
}

// tree reads a document of XML.
//
//  1. The JSON of elements that are closed stands in done, one after another; each open element knows from where on its own
//     ones do. When it closes they are put together, and its JSON takes their place.
//  2. An element at the path is an item: its JSON is taken out of done rather than left to the element around it. What is in
//     done at the end is the rest.
//  3. meter ends an item, and what lies between two, that is over the limit, before the parser holds it.
type tree struct {
	items  *Items
	config *Config
	parser *xml.Decoder
	meter  *meter
	open   []element
	depth  int // how many of open are
	done   []byte
	made   []byte
	groups map[string]int
	rooted bool
	ended  bool
}

// element is an open element.
type element struct {
	name       string
	start      int // of its members in done
	children   []child
	attributes []byte
	text       []byte
	onPath     bool
}

// child is a closed element, as JSON in done.
type child struct {
	name       string
	start, end int
	next       int // the next one of its name; 0 is none
}

func newTree(x *Items, body io.Reader, c *Config) *tree {
	m := &meter{in: body, limit: c.Limits.Item}
	m.reset()
	t := &tree{items: x, config: c, meter: m, parser: xml.NewDecoder(m), groups: map[string]int{}}
	t.parser.CharsetReader = func(name string, in io.Reader) (io.Reader, error) {
		if c.Tree.UTF8 {
			return in, nil
		}
		set := charsets[strings.ToLower(name)]
		if set == nil {
			return nil, errCharset
		}
		return set.NewDecoder().Reader(in), nil
	}
	return t
}

var errCharset = errors.New("no such encoding")

var charsets = map[string]*charmap.Charmap{
	"us-ascii": charmap.Windows1252, "ascii": charmap.Windows1252, "iso-8859-1": charmap.Windows1252, "latin1": charmap.Windows1252,
	"windows-1252": charmap.Windows1252, "windows-1250": charmap.Windows1250, "windows-1251": charmap.Windows1251,
	"iso-8859-2": charmap.ISO8859_2, "iso-8859-5": charmap.ISO8859_5, "iso-8859-15": charmap.ISO8859_15, "koi8-r": charmap.KOI8R,
}

func (t *tree) next() ([]byte, int, error) {
	json, err := t.item()
	return json, 0, err
}

func (t *tree) item() ([]byte, error) {
	if t.ended {
		return nil, io.EOF
	}
	t.meter.reset()
	for {
		token, err := t.parser.RawToken()
		switch {
		case errors.Is(err, io.EOF) && t.meter.err == nil:
			return t.end()
		case err != nil:
			return nil, t.explain(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			err = t.begin(&token)
		case xml.EndElement:
			if json, err := t.close(written(token.Name)); err != nil || json != nil {
				return json, err
			}
		case xml.CharData:
			err = t.characters(token)
		}
		if err != nil {
			return nil, err
		}
	}
}

func written(n xml.Name) string {
	if n.Space == "" {
		return n.Local
	}
	return n.Space + ":" + n.Local
}

func (t *tree) wrong(code, what, hint string) *Error {
	line, _ := t.parser.InputPos()
	return &Error{Code: code, Line: line, Offset: -1, What: what, Hint: hint}
}

func (t *tree) begin(token *xml.StartElement) error {
	if t.depth == 0 && t.rooted {
		return t.wrong(CodeSyntax, "a second element beside the root", "")
	}
	// The object around the root, and an array for each element, count too.
	if 2*(t.depth+1) > t.config.Limits.Depth {
		return t.wrong(CodeDepth, "nested too deep", "")
	}
	t.rooted = true
	if t.depth == len(t.open) {
		t.open = append(t.open, element{})
	}
	e := &t.open[t.depth]
	*e = element{name: written(token.Name), start: len(t.done), children: e.children[:0], attributes: e.attributes[:0], text: e.text[:0]}
	path := t.config.Path
	e.onPath = t.config.List && t.depth < len(path) && path[t.depth] == e.name && (t.depth == 0 || t.open[t.depth-1].onPath)
	t.depth++
	if t.config.List && e.onPath && t.depth == len(path)-1 {
		t.items.found = true
	}
	var seen map[string]bool
	for i, a := range token.Attr {
		name := written(a.Name)
		if len(token.Attr) > 1 {
			if seen == nil {
				seen = make(map[string]bool, len(token.Attr))
			}
			if seen[name] {
				return t.wrong(CodeSyntax, "an attribute comes twice in one element", "")
			}
			seen[name] = true
		}
		if i > 0 {
			e.attributes = append(e.attributes, ',')
		}
		e.attributes = append(rawjson.AppendString(e.attributes, "@"+name), ':')
		e.attributes = rawjson.AppendString(e.attributes, a.Value)
	}
	return nil
}

const xmlSpace = " \t\r\n"

func (t *tree) characters(text []byte) error {
	if t.depth > 0 {
		e := &t.open[t.depth-1]
		e.text = append(e.text, text...)
		return nil
	}
	if !t.rooted {
		text = bytes.TrimPrefix(text, []byte("\uFEFF"))
	}
	if len(bytes.Trim(text, xmlSpace)) > 0 {
		if !t.rooted {
			return t.wrong(CodeSyntax, "text where the root should be", "")
		}
		return t.wrong(CodeSyntax, "text behind the root", "")
	}
	return nil
}

// close ends the element that is open. It answers the JSON of one that is an item.
func (t *tree) close(name string) ([]byte, error) {
	if t.depth == 0 || t.open[t.depth-1].name != name {
		return nil, t.wrong(CodeSyntax, "a closing tag of another element than the one that is open", "")
	}
	t.depth--
	e := &t.open[t.depth]
	t.made = t.value(t.made[:0], e)
	t.done = append(t.done[:e.start], t.made...)
	if int64(len(t.made)) > t.meter.limit {
		return nil, t.wrong(CodeTooLarge, "an item of more than "+wording.Size(t.meter.limit)+" as JSON", "the limit of an item allows more")
	}
	if int64(e.start) > t.meter.limit {
		return nil, t.wrong(CodeTooLarge, "more than "+wording.Size(t.meter.limit)+" around the list of items", "the limit of an item allows more")
	}
	if e.onPath && t.depth == len(t.config.Path)-1 {
		t.done, t.items.found = t.done[:e.start], true
		return t.made, nil
	}
	if t.depth > 0 {
		outer := &t.open[t.depth-1]
		outer.children = append(outer.children, child{name: e.name, start: e.start, end: len(t.done)})
	} else {
		root := append(rawjson.AppendString([]byte{'{'}, e.name), ':')
		t.done = append(append(root, t.done...), '}')
	}
	return nil, nil
}

// value appends an element that closes.
func (t *tree) value(dst []byte, e *element) []byte {
	text := bytes.Trim(e.text, xmlSpace)
	if len(e.attributes) == 0 && len(e.children) == 0 {
		return rawjson.AppendString(dst, rawjson.View(text))
	}
	dst = append(append(dst, '{'), e.attributes...)
	clear(t.groups)
	for i := range e.children {
		c := &e.children[i]
		c.next = 0
		if last, ok := t.groups[c.name]; ok {
			e.children[last].next = i
			c.start = -c.start - 1 // not the first of its name
		}
		t.groups[c.name] = i
	}
	for i := range e.children {
		c := &e.children[i]
		if c.start < 0 {
			continue
		}
		dst = append(rawjson.AppendString(comma(dst), c.name), ':')
		if c.next == 0 && !slices.Contains(t.config.Tree.Lists, c.name) {
			dst = append(dst, t.done[c.start:c.end]...)
			continue
		}
		dst = append(append(dst, '['), t.done[c.start:c.end]...)
		for n := c.next; n != 0; n = e.children[n].next {
			of := &e.children[n]
			dst = append(append(dst, ','), t.done[-of.start-1:of.end]...)
		}
		dst = append(dst, ']')
	}
	if len(text) > 0 {
		dst = append(comma(dst), `"#text":`...)
		dst = rawjson.AppendString(dst, rawjson.View(text))
	}
	return append(dst, '}')
}

// end is the end of the body: the whole document, or the rest of it.
func (t *tree) end() ([]byte, error) {
	switch {
	case t.depth > 0:
		return nil, t.wrong(CodeSyntax, "the document ends within an element", "")
	case !t.rooted:
		return nil, t.wrong(CodeSyntax, "there is no element", "")
	}
	t.ended = true
	if !t.config.List {
		return t.done, nil
	}
	if t.items.rest = t.done; len(t.done) == 0 { // the root itself was the item
		t.items.rest = []byte("{}")
	}
	return nil, io.EOF
}

// explain makes an Error of what the parser says. What it says may hold names of the body, so only what is known goes on.
func (t *tree) explain(err error) error {
	if t.meter.err != nil {
		if wrong, ok := t.meter.err.(*Error); ok && wrong.Line == 0 { //nolint:errorlint // ours is never wrapped here
			line, _ := t.parser.InputPos()
			wrong.Line = line
		}
		return t.meter.err
	}
	var syntax *xml.SyntaxError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return t.wrong(CodeSyntax, "the document ends too early", "")
	case errors.Is(err, errCharset):
		return t.wrong(CodeUTF8, "the document is in an encoding that is not known here", "UTF-8, ISO-8859-1 and -2, -5, -15 and windows-1250 to -1252 are")
	case !errors.As(err, &syntax):
		if strings.Contains(err.Error(), errCharset.Error()) {
			return t.wrong(CodeUTF8, "the document is in an encoding that is not known here", "UTF-8, ISO-8859-1 and -2, -5, -15 and windows-1250 to -1252 are")
		}
		return t.wrong(CodeSyntax, "this is no XML", "")
	}
	what, code := "this is no XML", CodeSyntax
	for said, ours := range xmlErrors {
		if strings.HasPrefix(syntax.Msg, said) {
			what = ours
		}
	}
	if syntax.Msg == "invalid UTF-8" {
		code = CodeUTF8
	}
	return t.wrong(code, what, "")
}

var xmlErrors = map[string]string{
	"unexpected EOF":                "the document ends too early",
	"invalid UTF-8":                 "a text that is not UTF-8",
	"invalid character entity":      "an entity that is not known; &amp; stands for an ampersand",
	"illegal character code":        "a character that XML does not allow",
	"invalid characters between":    "text inside of a closing tag",
	"unescaped < inside":            "a < in the value of an attribute",
	"unescaped ]]>":                 "]]> outside of CDATA",
	"unquoted or missing attribute": "an attribute without a quoted value",
	"attribute name without =":      "an attribute without a value",
	"expected":                      "no name where a tag should have one",
}

// meter lets only so many bytes through between two resets.
type meter struct {
	in    io.Reader
	limit int64
	left  int64
	err   error // of the reader, or that it was too much
}

// ahead is what the parser reads before it needs it.
const ahead = 8 << 10

func (m *meter) reset() { m.left = m.limit + ahead }

func (m *meter) Read(p []byte) (int, error) {
	if m.err != nil {
		return 0, m.err
	}
	if m.left <= 0 {
		m.err = &Error{Code: CodeTooLarge, Offset: -1, What: fmt.Sprintf("an item of more than %s", wording.Size(m.limit)), Hint: "the limit of an item allows more"}
		return 0, m.err
	}
	n, err := m.in.Read(p[:min(int64(len(p)), m.left)])
	m.left -= int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		m.err = err
	}
	return n, err
}
