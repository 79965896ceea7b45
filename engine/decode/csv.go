package decode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

// NoQuote as Table.Quote says that nothing is quoted.
const NoQuote byte = 0xFF

// MaxFields is how many fields a row may have.
const MaxFields = 10_000

// Empty says what an empty unquoted field becomes, and one that a row is too short for.
type Empty uint8

// What an empty field becomes.
const (
	EmptyText Empty = iota // ""
	EmptyNull              // null
	EmptyOmit              // nothing: the object has no such member
)

// Short says what is done with a row that has fewer fields than there are columns.
type Short uint8

// What is done with a short row.
const (
	ShortPad Short = iota // what is missing is empty
	ShortError
)

// Extra says what is done with a row that has more fields than there are columns.
type Extra uint8

// What is done with a long row.
const (
	ExtraError  Extra = iota
	ExtraIgnore       // what is beyond the columns is dropped
	ExtraKeep         // the further fields are an array, the member $extra
)

// Table says how CSV is read.
type Table struct {
	Delimiter byte // 0 is a comma, or a tab in TSV
	Quote     byte // 0 is a double quote, or none in TSV; NoQuote is none
	// Columns are the names of the fields where the first row does not have them.
	Columns []string
	Empty   Empty
	Short   Short
	Extra   Extra
}

// complete fills in what a format has that does not say, and checks the rest.
func (t *Table) complete(f Format) error {
	if t.Delimiter == 0 {
		if t.Delimiter = ','; f == TSV {
			t.Delimiter = '\t'
		}
	}
	if t.Quote == 0 {
		if t.Quote = '"'; f == TSV {
			t.Quote = NoQuote
		}
	}
	for _, c := range []byte{t.Delimiter, t.Quote} {
		if c == '\n' || c == '\r' || c >= utf8.RuneSelf && c != NoQuote {
			return errors.New("delimiter and quote are one ASCII character each, and no line break")
		}
	}
	if t.Delimiter == NoQuote || t.Delimiter == t.Quote {
		return errors.New("delimiter and quote are the same, or there is no delimiter")
	}
	if t.Columns != nil && len(t.Columns) == 0 {
		return errors.New("columns are empty")
	}
	if i := Doubled(t.Columns); i >= 0 {
		return fmt.Errorf("column %d has the name of one before it", i+1)
	}
	return nil
}

// Doubled is the index of the first name that stood before, or -1.
func Doubled(columns []string) int {
	seen := make(map[string]bool, len(columns))
	for i, name := range columns {
		if seen[name] {
			return i
		}
		seen[name] = true
	}
	return -1
}

// Field is a field of a row. A quoted one is never taken as empty.
type Field struct {
	Text   []byte
	Quoted bool
}

// Empty tells whether the field is empty and not quoted.
func (f *Field) Empty() bool { return len(f.Text) == 0 && !f.Quoted }

// Rows reads rows of fields (RFC 4180). Beyond the RFC it takes any one-byte delimiter and quote, lines that end in LF, and a
// quote inside an unquoted field as it is. Blank lines are passed over, and a byte order mark at the beginning.
type Rows struct {
	window           *window
	delimiter, quote byte
	quotes           bool
	line             int // of the row read last, from 1
	after            int // of the byte read next
	fields           []Field
	spans            []fieldSpan
	unquoted         []byte
}

// fieldSpan is where a field stands in Rows.unquoted.
type fieldSpan struct {
	start, end int
	quoted     bool
}

// NewRows reads the rows of a text; limit is the largest row in bytes. Of the table, only delimiter and quote count.
func NewRows(in io.Reader, t Table, limit int64) (*Rows, error) {
	if err := t.complete(CSV); err != nil {
		return nil, err
	}
	return newRows(newWindow(in, limit), &t), nil
}

func newRows(w *window, t *Table) *Rows {
	return &Rows{window: w, delimiter: t.Delimiter, quote: t.Quote, quotes: t.Quote != NoQuote, after: 1}
}

// Line is where the row that was read last begins, from 1.
func (r *Rows) Line() int { return r.line }

// Next gives the next row, or io.EOF. The fields are valid until it is called again.
func (r *Rows) Next() ([]Field, error) {
	w := r.window
	for {
		r.line = r.after
		line, n, err := w.until([]byte{'\n'})
		if err != nil {
			return nil, inLine(err, r.line)
		}
		r.fields, r.unquoted = r.fields[:0], r.unquoted[:0]
		if r.quotes && bytes.IndexByte(line, r.quote) >= 0 {
			if !r.oneLine(line) {
				return r.quoted()
			}
			r.after++
			w.use(n)
			if len(r.fields) > MaxFields {
				return nil, r.tooMany()
			}
			return r.fields, nil
		}
		r.after++
		w.use(n)
		if line = bytes.TrimSuffix(line, []byte{'\r'}); len(line) == 0 {
			continue
		}
		for {
			i := bytes.IndexByte(line, r.delimiter)
			if i < 0 {
				break
			}
			r.fields = append(r.fields, Field{Text: line[:i]})
			line = line[i+1:]
		}
		r.fields = append(r.fields, Field{Text: line})
		if len(r.fields) > MaxFields {
			return nil, r.tooMany()
		}
		return r.fields, nil
	}
}

func (r *Rows) tooMany() *Error {
	return &Error{Code: CodeTooLarge, Line: r.line, Offset: -1, What: fmt.Sprintf("more than %d fields", MaxFields)}
}

// oneLine splits a row with quotes in it that ends where its line does. It answers false for any other, and for what is wrong.
func (r *Rows) oneLine(line []byte) bool {
	for {
		if len(line) == 0 || line[0] != r.quote {
			i := bytes.IndexByte(line, r.delimiter)
			if i < 0 {
				r.fields = append(r.fields, Field{Text: bytes.TrimSuffix(line, []byte{'\r'})})
				return true
			}
			r.fields = append(r.fields, Field{Text: line[:i]})
			line = line[i+1:]
			continue
		}
		line = line[1:]
		i := bytes.IndexByte(line, r.quote)
		if i < 0 {
			return false
		}
		if i+1 == len(line) || i+2 == len(line) && line[i+1] == '\r' {
			r.fields = append(r.fields, Field{line[:i], true})
			return true
		}
		if line[i+1] != r.delimiter {
			return false // a doubled quote, or what is wrong
		}
		r.fields = append(r.fields, Field{line[:i], true})
		line = line[i+2:]
	}
}

// quoted reads a row byte by byte. What its fields are is copied, since reading on may move the window.
func (r *Rows) quoted() ([]Field, error) {
	w, at := r.window, 0
	r.fields, r.spans = r.fields[:0], r.spans[:0]
	for last := false; !last; {
		field := fieldSpan{start: len(r.unquoted)}
		c, ok := w.byteAt(at)
		if ok && c == r.quote {
			field.quoted = true
			behind, err := r.inside(at + 1)
			if err != nil {
				return nil, err
			}
			at = behind
			if c, ok = w.byteAt(at); ok && c == '\r' {
				at++
				c, ok = w.byteAt(at)
			}
			if ok && c != r.delimiter && c != '\n' {
				return nil, &Error{Code: CodeSyntax, Line: r.after, Offset: -1, What: "text behind the closing quote of a field", Hint: "a quote inside of quotes is doubled; if nothing is quoted, switch quotes off"}
			}
		}
		for ok && c != r.delimiter && c != '\n' {
			r.unquoted = append(r.unquoted, c)
			at++
			c, ok = w.byteAt(at)
		}
		if !ok && !w.ended() {
			return nil, inLine(w.err, r.line)
		}
		if last = !ok || c == '\n'; last {
			r.after++
			if n := len(r.unquoted); !field.quoted && n > field.start && r.unquoted[n-1] == '\r' {
				r.unquoted = r.unquoted[:n-1]
			}
		}
		if ok {
			at++
		}
		field.end = len(r.unquoted)
		if r.spans = append(r.spans, field); len(r.spans) > MaxFields {
			return nil, r.tooMany()
		}
	}
	w.use(at)
	for _, s := range r.spans {
		r.fields = append(r.fields, Field{r.unquoted[s.start:s.end], s.quoted})
	}
	return r.fields, nil
}

// inside reads a field behind its opening quote and answers the place behind the closing one.
func (r *Rows) inside(at int) (int, error) {
	w, begin := r.window, r.after
	for ; ; at++ {
		c, ok := w.byteAt(at)
		if !ok {
			if w.ended() {
				return 0, &Error{Code: CodeSyntax, Line: begin, Offset: -1, What: "a quoted field is not closed", Hint: "if nothing is quoted, switch quotes off"}
			}
			return 0, inLine(w.err, r.line)
		}
		switch c {
		case '\n':
			r.after++
		case r.quote:
			if next, ok := w.byteAt(at + 1); !ok || next != r.quote {
				return at + 1, nil
			}
			at++
		}
		r.unquoted = append(r.unquoted, c)
	}
}

// columns are the names of the fields, as they stand in JSON.
type columns struct{ names [][]byte }

func newColumns(names []string) *columns {
	c := &columns{make([][]byte, len(names))}
	for i, name := range names {
		c.names[i] = append(rawjson.AppendString(nil, name), ':')
	}
	return c
}

// table makes objects of rows.
type table struct {
	rows    *Rows
	config  *Config
	columns *columns
	json    []byte
}

func newTable(w *window, c *Config, given *columns) *table {
	return &table{rows: newRows(w, &c.Table), config: c, columns: given}
}

func (t *table) next() ([]byte, int, error) {
	if t.columns == nil {
		if err := t.header(); err != nil {
			return nil, 0, err
		}
	}
	fields, err := t.rows.Next()
	if err != nil {
		return nil, 0, err
	}
	if err := t.row(fields); err != nil {
		return nil, 0, err
	}
	return t.json, t.rows.line, nil
}

// header takes the names of the columns from the first row.
func (t *table) header() error {
	fields, err := t.rows.Next()
	if err != nil {
		return err
	}
	names := make([]string, len(fields))
	for i, f := range fields {
		name, ok := DecodeText(f.Text, t.config.Invalid)
		if !ok {
			return notUTF8(t.rows.line)
		}
		names[i] = strings.Clone(name)
	}
	if i := Doubled(names); i >= 0 {
		return &Error{Code: CodeColumns, Line: t.rows.line, Offset: -1, What: fmt.Sprintf("column %d has the name of one before it", i+1), Hint: "columns gives names of your own; without a row of names it is needed"}
	}
	t.columns = newColumns(names)
	return nil
}

func (t *table) row(fields []Field) error {
	names, how := t.columns.names, &t.config.Table
	if len(fields) < len(names) && how.Short == ShortError {
		return t.misfit(fields, "short: pad allows it")
	}
	if len(fields) > len(names) && how.Extra == ExtraError {
		return t.misfit(fields, "extra: ignore or keep allows it; a wrong delimiter or quote looks like this too")
	}
	json := append(t.json[:0], '{')
	for i, name := range names {
		if i < len(fields) && !fields[i].Empty() {
			var ok bool
			if json, ok = appendText(append(comma(json), name...), fields[i].Text, t.config.Invalid); !ok {
				return notUTF8(t.rows.line)
			}
			continue
		}
		switch how.Empty {
		case EmptyText:
			json = append(append(comma(json), name...), `""`...)
		case EmptyNull:
			json = append(append(comma(json), name...), "null"...)
		case EmptyOmit:
		}
	}
	if len(fields) > len(names) && how.Extra == ExtraKeep {
		json = append(comma(json), `"$extra":[`...)
		for i, f := range fields[len(names):] {
			if i > 0 {
				json = append(json, ',')
			}
			var ok bool
			if json, ok = appendText(json, f.Text, t.config.Invalid); !ok {
				return notUTF8(t.rows.line)
			}
		}
		json = append(json, ']')
	}
	t.json = append(json, '}')
	return nil
}

// comma separates a member from the one before it.
func comma(json []byte) []byte {
	if json[len(json)-1] == '{' {
		return json
	}
	return append(json, ',')
}

func (t *table) misfit(fields []Field, hint string) *Error {
	return &Error{Code: CodeColumns, Line: t.rows.line, Offset: -1, What: fmt.Sprintf("%d fields for %d columns", len(fields), len(t.columns.names)), Hint: hint}
}

// DecodeText is a text that may share the memory of b. It answers false for what is not UTF-8 and must be.
func DecodeText(b []byte, invalid InvalidUTF8) (string, bool) {
	switch {
	case invalid == InvalidLatin1 && !ascii(b):
		return windows1252(b), true
	case utf8.Valid(b):
		return rawjson.View(b), true
	case invalid == InvalidError:
		return "", false
	}
	return replaced(b), true
}
