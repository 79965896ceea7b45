package script

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/dop251/goja"

	"github.com/flechtwerk/flechtwerk/engine/decode"
)

var csvOptionNames = []string{"delimiter", "quote", "columns", "empty", "short", "extra", "invalid_utf8"}

// maxRows is how many rows csv.parse answers.
const maxRows = 1_000_000

// csvOptions are what a script says about CSV.
type csvOptions struct {
	delimiter, quote byte
	arrays           bool     // rows are arrays of fields
	columns          []string // nil: those of the first row
	empty            goja.Value
	short            string // pad or error
	extra            string // error, ignore or keep
	invalid          decode.InvalidUTF8
}

func (v *vm) csvOptions(function string, value goja.Value) csvOptions {
	o := v.options(function, value, csvOptionNames...)
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
			return decode.NoQuote
		case len(text) != 1 || text == "\n" || text == "\r" || text[0] == 0:
			v.unfit(function, "the option "+name, value, "one ASCII character")
		}
		return text[0]
	}
	options := csvOptions{
		delimiter: character("delimiter", ','), quote: character("quote", '"'),
		empty:   option(o, "empty"),
		short:   v.choice(function, o, "short", "pad", "error"),
		extra:   v.choice(function, o, "extra", "error", "ignore", "keep"),
		invalid: v.invalidUTF8(function, o),
	}
	if options.delimiter == options.quote {
		v.wrong(function, "delimiter and quote are the same; two characters are expected")
	}
	if options.empty == nil {
		options.empty = v.rt.ToValue("")
	}
	if _, object := options.empty.(*goja.Object); object {
		v.unfit(function, "the option empty", options.empty, "a text, a number or null")
	}
	switch columns := option(o, "columns"); {
	case columns == nil || columns == v.values.yes:
	case columns == v.values.no:
		options.arrays = true
	default:
		list, ok := columns.(*goja.Object)
		if !ok || list.ClassName() != "Array" {
			v.unfit(function, "the option columns", columns, "true, false or an array of names")
		}
		options.columns = []string{}
		for _, name := range v.values.elements(list) {
			options.columns = append(options.columns, v.textOf(function, "a column", present(name)))
		}
		v.checkColumns(function, options.columns)
	}
	return options
}

// invalidUTF8 is the option of that name.
func (v *vm) invalidUTF8(function string, o *goja.Object) decode.InvalidUTF8 {
	switch v.choice(function, o, "invalid_utf8", "error", "replace", "latin1") {
	case "replace":
		return decode.InvalidReplace
	case "latin1":
		return decode.InvalidLatin1
	}
	return decode.InvalidError
}

func (v *vm) checkColumns(function string, columns []string) {
	if i := decode.Doubled(columns); i >= 0 {
		v.raise("SyntaxError", codeSyntax, "%s: column %d has the name of one before it", function, i+1)
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
	rows, err := decode.NewRows(in, decode.Table{Delimiter: o.delimiter, Quote: o.quote}, maxString)
	must(err)
	return func() goja.Value {
		for {
			fields, err := rows.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				v.misread(function, err)
			}
			if o.columns == nil && !o.arrays {
				o.columns = make([]string, len(fields))
				for i, f := range fields {
					o.columns[i] = v.csvText(function, rows.Line(), f.Text, o.invalid)
				}
				v.checkColumns(function, o.columns)
				continue
			}
			return v.csvRow(function, rows.Line(), fields, &o)
		}
	}
}

func (v *vm) csvRow(function string, line int, fields []decode.Field, o *csvOptions) goja.Value {
	values := make([]any, len(fields))
	for i, f := range fields {
		if f.Empty() {
			values[i] = o.empty
		} else {
			values[i] = v.rt.ToValue(v.csvText(function, line, f.Text, o.invalid))
		}
	}
	if o.arrays {
		return v.rt.NewArray(values...)
	}
	if len(values) < len(o.columns) && o.short == "error" {
		v.raise("SyntaxError", codeSyntax, "%s: line %d has %d fields, and there are %d columns; the option short allows it", function, line, len(values), len(o.columns))
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

func (v *vm) csvText(function string, line int, text []byte, invalid decode.InvalidUTF8) string {
	decoded, ok := decode.DecodeText(text, invalid)
	if !ok {
		v.raise("TypeError", codeUTF8, "%s: line %d is not UTF-8; the option invalid_utf8 allows it", function, line)
	}
	return strings.Clone(decoded)
}
