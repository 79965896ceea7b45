package script

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/dop251/goja"
	"golang.org/x/text/encoding/charmap"
)

// csvReader reads rows of fields (RFC 4180). Beyond the RFC it takes any one-byte delimiter and quote, lines that end in LF,
// and a quote inside an unquoted field as it is. Blank lines are passed over, and a byte order mark at the beginning.
type csvReader struct {
	in        *bufio.Reader
	delimiter byte
	quote     byte // 0 is none
	line      int  // of the row read last, from 1
	next      int  // of the byte read next
	field     []byte
}

// csvField is one field. Quoted ones are never taken as empty.
type csvField struct {
	text   []byte
	quoted bool
}

const (
	maxFields = 10_000
	maxRows   = 1_000_000
)

// csvError is what is wrong with a row.
type csvError struct {
	line       int
	code, what string
}

func (e *csvError) Error() string { return fmt.Sprintf("line %d: %s", e.line, e.what) }

func newCSVReader(in io.Reader, delimiter, quote byte) *csvReader {
	r := &csvReader{in: bufio.NewReader(in), delimiter: delimiter, quote: quote, next: 1}
	if mark, err := r.in.Peek(3); err == nil && string(mark) == "\uFEFF" {
		_, _ = r.in.Discard(3)
	}
	return r
}

// read answers the next row, or io.EOF. The fields are the caller's.
func (r *csvReader) read() ([]csvField, error) {
	for {
		r.line = r.next
		c, err := r.in.ReadByte()
		if err != nil {
			return nil, err
		}
		if c == '\n' {
			r.next++
			continue
		}
		if c == '\r' {
			if after, err := r.in.Peek(1); err != nil || after[0] == '\n' {
				continue
			}
		}
		_ = r.in.UnreadByte()
		return r.row()
	}
}

func (r *csvReader) row() (fields []csvField, err error) {
	for {
		field, last, err := r.one()
		if err != nil {
			return nil, err
		}
		if fields = append(fields, field); last {
			return fields, nil
		}
		if len(fields) >= maxFields {
			return nil, &csvError{r.line, codeTooLarge, fmt.Sprintf("more than %d fields", maxFields)}
		}
	}
}

// one reads a field; last says that the row ends behind it.
func (r *csvReader) one() (field csvField, last bool, err error) {
	r.field = r.field[:0]
	c, err := r.in.ReadByte()
	if err == nil && c == r.quote && r.quote != 0 {
		field.quoted = true
		if err := r.quoted(); err != nil {
			return field, false, err
		}
		c, err = r.in.ReadByte()
		if err == nil && c == '\r' {
			c, err = r.in.ReadByte()
		}
		if err == nil && c != r.delimiter && c != '\n' {
			return field, false, &csvError{r.next, codeSyntax, "text behind the closing quote of a field"}
		}
	}
	for err == nil && c != r.delimiter && c != '\n' {
		r.field = append(r.field, c)
		c, err = r.in.ReadByte()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return field, false, err
	}
	if last = err != nil || c == '\n'; last {
		r.next++
		if !field.quoted {
			r.field = bytes.TrimSuffix(r.field, []byte("\r"))
		}
	}
	if len(r.field) > maxString {
		return field, false, &csvError{r.line, codeTooLarge, fmt.Sprintf("a field of more than %d bytes", maxString)}
	}
	field.text = bytes.Clone(r.field)
	return field, last, nil
}

// quoted reads a field behind its opening quote, up to the closing one.
func (r *csvReader) quoted() error {
	start := r.next
	for {
		c, err := r.in.ReadByte()
		if errors.Is(err, io.EOF) {
			return &csvError{start, codeSyntax, "a quoted field is not closed"}
		}
		if err != nil {
			return err
		}
		switch c {
		case '\n':
			r.next++
		case r.quote:
			after, err := r.in.Peek(1)
			if err != nil || after[0] != r.quote {
				return nil
			}
			_, _ = r.in.Discard(1)
		}
		r.field = append(r.field, c)
	}
}

// csvOptions are what a script says about CSV.
type csvOptions struct {
	delimiter, quote byte
	arrays           bool     // rows are arrays of fields
	columns          []string // nil: those of the first row
	empty            goja.Value
	extra            string // error, ignore or keep
	invalid          string // error, replace or latin1
}

func (v *vm) csvOptions(function string, value goja.Value) csvOptions {
	o := v.options(function, value, "delimiter", "quote", "columns", "empty", "extra", "invalid_utf8")
	character := func(name string, byDefault byte) byte {
		value := option(o, name)
		if value == nil {
			return byDefault
		}
		text := ""
		if !goja.IsNull(value) {
			text = v.textOf(function, "the option "+name, value)
		}
		switch {
		case text == "" && name == "quote":
			return 0
		case len(text) != 1 || text == "\n" || text == "\r" || text[0] == 0:
			v.wrong(function, "the option %s is one ASCII character", name)
		}
		return text[0]
	}
	options := csvOptions{
		delimiter: character("delimiter", ','), quote: character("quote", '"'),
		empty:   option(o, "empty"),
		extra:   v.choice(function, o, "extra", "error", "ignore", "keep"),
		invalid: v.choice(function, o, "invalid_utf8", "error", "replace", "latin1"),
	}
	if options.delimiter == options.quote {
		v.wrong(function, "delimiter and quote are the same")
	}
	if options.empty == nil {
		options.empty = v.rt.ToValue("")
	}
	if _, object := options.empty.(*goja.Object); object {
		v.wrong(function, "the option empty is a text, a number or null")
	}
	switch columns := option(o, "columns"); {
	case columns == nil || columns == v.values.yes:
	case columns == v.values.no:
		options.arrays = true
	default:
		list, ok := columns.(*goja.Object)
		if !ok || list.ClassName() != "Array" {
			v.wrong(function, "the option columns is true, false or an array of names")
		}
		options.columns = []string{}
		for _, name := range v.values.elements(list) {
			options.columns = append(options.columns, v.textOf(function, "a column", present(name)))
		}
		v.checkColumns(function, options.columns)
	}
	return options
}

func (v *vm) checkColumns(function string, columns []string) {
	seen := map[string]bool{}
	for i, name := range columns {
		if seen[name] {
			v.raise("SyntaxError", codeSyntax, "%s: column %d has the name of one before it", function, i+1)
		}
		seen[name] = true
	}
}

func newCSV(v *vm) goja.Value {
	return v.functions("csv", map[string]func(goja.FunctionCall) goja.Value{
		"parse": func(call goja.FunctionCall) goja.Value {
			const function = "csv.parse"
			data, options := v.dataOf(function, "the first argument", call.Argument(0)), v.csvOptions(function, call.Argument(1))
			rows := []any{}
			v.readCSV(function, bytes.NewReader(data), options, func(row goja.Value) {
				if len(rows) >= maxRows {
					v.raise("RangeError", codeTooLarge, "%s: more than %d rows", function, maxRows)
				}
				rows = append(rows, row)
			})
			return v.rt.NewArray(rows...)
		},
	})
}

// readCSV gives each row to yield: an object by the columns, or an array.
func (v *vm) readCSV(function string, in io.Reader, o csvOptions, yield func(goja.Value)) {
	next := v.csvRows(function, in, o)
	for row := next(); row != nil; row = next() {
		yield(row)
	}
}

// csvRows answers a function that answers the next row, and nil at the end.
func (v *vm) csvRows(function string, in io.Reader, o csvOptions) func() goja.Value {
	r := newCSVReader(in, o.delimiter, o.quote)
	return func() goja.Value {
		for {
			fields, err := r.read()
			if errors.Is(err, io.EOF) {
				return nil
			}
			var wrong *csvError
			if errors.As(err, &wrong) {
				class := "SyntaxError"
				if wrong.code == codeTooLarge {
					class = "RangeError"
				}
				v.raise(class, wrong.code, "%s: %v", function, wrong)
			}
			must(err)
			if o.columns == nil && !o.arrays {
				o.columns = make([]string, len(fields))
				for i, f := range fields {
					o.columns[i] = v.csvText(function, r.line, f.text, o.invalid)
				}
				v.checkColumns(function, o.columns)
				continue
			}
			return v.csvRow(function, r.line, fields, &o)
		}
	}
}

func (v *vm) csvRow(function string, line int, fields []csvField, o *csvOptions) goja.Value {
	values := make([]any, len(fields))
	for i, f := range fields {
		if len(f.text) == 0 && !f.quoted {
			values[i] = o.empty
		} else {
			values[i] = v.rt.ToValue(v.csvText(function, line, f.text, o.invalid))
		}
	}
	if o.arrays {
		return v.rt.NewArray(values...)
	}
	row := v.rt.NewObject()
	for i, name := range o.columns {
		value := o.empty
		if i < len(values) {
			value = values[i].(goja.Value)
		}
		define(row, name, value)
	}
	if n := len(o.columns); len(values) > n {
		switch o.extra {
		case "error":
			v.raise("SyntaxError", codeSyntax, "%s: line %d has %d fields, and there are %d columns; the option extra allows it", function, line, len(values), n)
		case "keep":
			define(row, "$extra", v.rt.NewArray(values[n:]...))
		}
	}
	return row
}

func (v *vm) csvText(function string, line int, text []byte, invalid string) string {
	switch {
	case invalid == "latin1":
		if decoded, err := charmap.Windows1252.NewDecoder().Bytes(text); err == nil {
			return string(decoded)
		}
	case utf8.Valid(text):
		return string(text)
	case invalid == "error":
		v.raise("TypeError", "utf8", "%s: line %s is not UTF-8; the option invalid_utf8 allows it", function, strconv.Itoa(line))
	}
	return replaceInvalid(text)
}
