package decode

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/flechtwerk/flechtwerk/engine/decode/decodetest"
	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

// readings are ways in which a body may arrive: all at once, byte by byte, and with the end told together with the last bytes.
var readings = map[string]func(io.Reader) io.Reader{
	"whole":   func(r io.Reader) io.Reader { return r },
	"bytes":   iotest.OneByteReader,
	"dataErr": iotest.DataErrReader,
}

// decoded are the items of a body, one a line, then the rest or the error. It reads the body in several ways, which must come
// to the same.
func decoded(t *testing.T, c Config, body string) string {
	t.Helper()
	d, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	first := ""
	for name, reading := range readings {
		got := items(t, d.Open(reading(strings.NewReader(body))))
		if first == "" {
			first = got
		} else if got != first {
			t.Fatalf("read as %s: %s\nbefore: %s", name, got, first)
		}
	}
	return first
}

func items(t *testing.T, x *Items) string {
	t.Helper()
	var b strings.Builder
	for {
		item, err := x.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			var wrong *Error
			if !errors.As(err, &wrong) {
				t.Fatalf("%T is no Error: %v", err, err)
			}
			fmt.Fprintf(&b, "%s: %v\n", wrong.Code, err)
			if _, again := x.Next(); !errors.Is(again, err) {
				t.Fatalf("after %v comes %v", err, again)
			}
			return b.String()
		}
		if _, _, err := rawjson.Check(item.JSON, nil); err != nil || isSpace(item.JSON[0]) || isSpace(item.JSON[len(item.JSON)-1]) {
			t.Fatalf("item %q: %v", item.JSON, err)
		}
		if item.Member != "" {
			fmt.Fprintf(&b, "%s ", item.Member)
		}
		if item.Line > 0 {
			fmt.Fprintf(&b, "%d ", item.Line)
		}
		fmt.Fprintf(&b, "%s\n", item.JSON)
	}
	if rest := x.Rest(); rest != nil {
		if _, _, err := rawjson.Check(rest, nil); err != nil {
			t.Fatalf("rest %q: %v", rest, err)
		}
		fmt.Fprintf(&b, "rest %s", rest)
		if !x.found {
			b.WriteString(" without a list")
		}
		b.WriteString("\n")
	}
	return b.String()
}

type decodeCase struct{ body, want string }

func decodes(t *testing.T, c Config, cases []decodeCase) {
	t.Helper()
	for _, one := range cases {
		if got, want := decoded(t, c, one.body), strings.TrimPrefix(one.want, "\n"); got != want {
			t.Errorf("%q\ngives %q\nwants %q", one.body, got, want)
		}
	}
}

func TestJSON(t *testing.T) {
	decodes(t, Config{}, []decodeCase{
		{` {"a": [1, 2]} `, "{\"a\": [1, 2]}\n"},
		{"\uFEFF1", "1\n"}, {`"a\"]"`, "\"a\\\"]\"\n"}, {"null", "null\n"}, {"[]", "[]\n"},
		{"", "decode.syntax: byte 0: nothing where a JSON value is expected\n"},
		{" \n", "decode.syntax: byte 2: nothing where a JSON value is expected\n"},
		{`{"a":1`, "decode.syntax: byte 6: the JSON document ends too early\n"},
		{`{"a":"`, "decode.syntax: byte 6: the JSON document ends too early\n"},
		{`{"a"=1}`, "decode.syntax: byte 4: no colon after a member name\n"},
		{`1 2`, "decode.syntax: byte 2: more text after the JSON document\n"},
		{`[1]]`, "decode.syntax: byte 3: more text after the JSON document\n"},
		{`[1}`, "decode.syntax: byte 2: no comma or ] after an element\n"},
		{"\"\xff\"", "decode.utf8: byte 1: invalid UTF-8\n"},
		{`]`, "decode.syntax: byte 0: nothing where a JSON value is expected\n"},
	})
	decodes(t, Config{Limits: Limits{Depth: 2}}, []decodeCase{
		{`[[1]]`, "[[1]]\n"}, {`[[[1]]]`, "decode.depth: byte 2: nested too deep\n"},
	})
	decodes(t, Config{Limits: Limits{Item: 4}}, []decodeCase{
		{`[12]`, "[12]\n"}, {`[123]`, "decode.too_large: byte 0: an item of more than 4 bytes; the limit of an item allows more\n"},
	})
}

func TestJSONList(t *testing.T) {
	decodes(t, Config{List: true, Path: []string{"data", "items"}}, []decodeCase{
		{`{"n":"a","data":{"x":1,"items":[{"a":1}, 2 ,"x]"],"y":[{}]},"m":[1]}`, `
{"a":1}
2
"x]"
rest {"n":"a","data":{"x":1,"items":[],"y":[{}]},"m":[1]}
`},
		{` { "data" : { "items" : [ ] } } `, "rest {\"data\":{\"items\":[]}}\n"},
		{`{"d\u0061ta":{"items":[1]}}`, "1\nrest {\"d\\u0061ta\":{\"items\":[]}}\n"},
		{`{"data":{"items":null},"a":1}`, "rest {\"data\":{\"items\":null},\"a\":1} without a list\n"},
		{`{"data":{},"a":1}`, "rest {\"data\":{},\"a\":1} without a list\n"},
		{`{"data":[{"items":[1]}]}`, "rest {\"data\":[{\"items\":[1]}]} without a list\n"},
		{`{}`, "rest {} without a list\n"}, {`null`, "rest null without a list\n"}, {`[1]`, "rest [1] without a list\n"},
		{`{"data":{"items":{}}}`, "decode.list: byte 17: no list where the items should be; the path of the records must lead to an array\n"},
		{`{"data":{"items":[1,2}`, "1\n2\ndecode.syntax: byte 21: no comma or ] after an element\n"},
		{`{"data":{"items":[1,]}}`, "1\ndecode.syntax: byte 20: nothing where a JSON value is expected\n"},
		{`{"data":{"items":[1 2]}}`, "1\ndecode.syntax: byte 20: no comma or ] after an element\n"},
		{`{"data":{"items":[1]}`, "1\ndecode.syntax: byte 21: the JSON document ends too early\n"},
		{`{"data":{"items":[1`, "1\ndecode.syntax: byte 19: the JSON document ends too early\n"},
		{`{"data":{"items":[1]}} 1`, "1\ndecode.syntax: byte 23: more text after the JSON document\n"},
		{`{"data":{"items":[1],"items":[2]}}`, "1\ndecode.syntax: byte 29: the list of items comes twice\n"},
		{`{"data":{"items":[1]},}`, "1\ndecode.syntax: byte 22: no member name where one is expected\n"},
		{`{"data":{"items":[01]}}`, "decode.syntax: byte 18: a number that is not JSON\n"},
		{`{"a":{"b":tru},"data":{"items":[1]}}`, "decode.syntax: byte 10: no JSON value where one is expected\n"},
		{`{"data"{}}`, "decode.syntax: byte 7: no colon after a member name\n"},
		{`{"data":{"items":[1]} "x":1}`, "1\ndecode.syntax: byte 22: no comma or } after a member\n"},
		{`{"a":`, "decode.syntax: byte 5: the JSON document ends too early\n"},
	})
	decodes(t, Config{List: true}, []decodeCase{
		{` [1,[2],"" ] `, "1\n[2]\n\"\"\nrest []\n"}, {`[]`, "rest []\n"}, {"null", "rest null without a list\n"},
		{`{}`, "decode.list: byte 0: no list where the items should be; the path of the records must lead to an array\n"},
		{`[1]x`, "1\ndecode.syntax: byte 3: more text after the JSON document\n"},
	})
	decodes(t, Config{List: true, Path: []string{"i"}, Limits: Limits{Item: 12, Depth: 3}}, []decodeCase{
		{`{"i":["123456789",[[[]]]],"a":1}`, "\"123456789\"\n[[[]]]\ndecode.too_large: byte 30: more than 12 bytes around the list of items; the limit of an item allows more\n"},
		{`{"i":["12345678901"]}`, "decode.too_large: byte 6: an item of more than 12 bytes; the limit of an item allows more\n"},
		{`{"i":[[[[[1]]]]]}`, "decode.depth: byte 9: nested too deep\n"},
		{`{"a":[[[1]]]}`, "decode.depth: byte 7: nested too deep\n"},
	})
}

func TestNDJSON(t *testing.T) {
	decodes(t, Config{Format: NDJSON}, []decodeCase{
		{"\uFEFF{\"a\":1}\r\n\n  \n [2] \n3", "1 {\"a\":1}\n4 [2]\n5 3\n"},
		{"", ""}, {"\n", ""},
		{"1\n{\"a\":}\n2", "1 1\ndecode.syntax: line 2, byte 7: no JSON value where one is expected\n"},
		{"1\n{\"a\":\n1}", "1 1\ndecode.syntax: line 2, byte 7: nothing where a JSON value is expected\n"},
		{"1 2\n", "decode.syntax: line 1, byte 2: more text after the JSON value\n"},
	})
	decodes(t, Config{Format: NDJSON, Limits: Limits{Item: 3, Depth: 1}}, []decodeCase{
		{"123\n[1]\n{}\n1234", "1 123\n2 [1]\n3 {}\ndecode.too_large: line 4, byte 11: an item of more than 3 bytes; the limit of an item allows more\n"},
	})
}

func TestLinesAndText(t *testing.T) {
	decodes(t, Config{Format: Lines}, []decodeCase{
		{"a\r\n\n\"b\n", "1 \"a\"\n2 \"\"\n3 \"\\\"b\"\n"}, {"", ""}, {"x", "1 \"x\"\n"},
		{"a\n\xff\n", "1 \"a\"\ndecode.utf8: line 2: a text that is not UTF-8; invalid_utf8 allows it: replace or latin1\n"},
	})
	decodes(t, Config{Format: Lines, Separator: "||", Invalid: InvalidReplace}, []decodeCase{
		{"a|b||c\n||\xff", "1 \"a|b\"\n2 \"c\\n\"\n3 \"\uFFFD\"\n"},
	})
	decodes(t, Config{Format: Text, Invalid: InvalidLatin1}, []decodeCase{
		{"a\n\xe9\x80", "\"a\\né€\"\n"}, {"", "\"\"\n"},
	})
	decodes(t, Config{Format: Text, Limits: Limits{Item: 3}}, []decodeCase{
		{"abc", "\"abc\"\n"}, {"abcd", "decode.too_large: byte 0: an item of more than 3 bytes; the limit of an item allows more\n"},
		{"a\xff", "decode.utf8: a text that is not UTF-8; invalid_utf8 allows it: replace or latin1\n"},
	})
}

func TestCSV(t *testing.T) {
	decodes(t, Config{Format: CSV}, []decodeCase{
		{"\uFEFFname,n\r\n\"a \"\"b\"\"\",1\r\n\r\nb,\n", "2 {\"name\":\"a \\\"b\\\"\",\"n\":\"1\"}\n4 {\"name\":\"b\",\"n\":\"\"}\n"},
		{"a,b\n\"x\ny\",\"\"\nlast,\"q\"", "2 {\"a\":\"x\\ny\",\"b\":\"\"}\n4 {\"a\":\"last\",\"b\":\"q\"}\n"},
		{"a\nx\"y\n", "2 {\"a\":\"x\\\"y\"}\n"},
		{"", ""}, {"a,b\n", ""}, {"a,b\n1\n", "2 {\"a\":\"1\",\"b\":\"\"}\n"},
		{"a\n\"1", "decode.syntax: line 2: a quoted field is not closed; if nothing is quoted, switch quotes off\n"},
		{"a\n\"1\"x\n", "decode.syntax: line 2: text behind the closing quote of a field; a quote inside of quotes is doubled; if nothing is quoted, switch quotes off\n"},
		{"a\n1,2\n", "decode.columns: line 2: 2 fields for 1 columns; extra: ignore or keep allows it; a wrong delimiter or quote looks like this too\n"},
		{"a,a\n", "decode.columns: line 1: column 2 has the name of one before it; columns gives names of your own; without a row of names it is needed\n"},
		{"a\n\xff\n", "decode.utf8: line 2: a text that is not UTF-8; invalid_utf8 allows it: replace or latin1\n"},
	})
	decodes(t, Config{Format: CSV, Table: Table{Delimiter: ';', Quote: '\'', Columns: []string{"x", "y"}, Empty: EmptyNull, Short: ShortError, Extra: ExtraKeep}, Invalid: InvalidLatin1}, []decodeCase{
		{"1;\n'';'a;b';c;\xe9\n", "1 {\"x\":\"1\",\"y\":null}\n2 {\"x\":\"\",\"y\":\"a;b\",\"$extra\":[\"c\",\"é\"]}\n"},
		{"1\n", "decode.columns: line 1: 1 fields for 2 columns; short: pad allows it\n"},
	})
	decodes(t, Config{Format: CSV, Table: Table{Empty: EmptyOmit, Extra: ExtraIgnore}, Invalid: InvalidReplace}, []decodeCase{
		{"a,b,c\n,1\n,,,\n\xff,,\n", "2 {\"b\":\"1\"}\n3 {}\n4 {\"a\":\"\uFFFD\"}\n"},
	})
	decodes(t, Config{Format: TSV}, []decodeCase{
		{"a\tb\n\"x\t,\n", "2 {\"a\":\"\\\"x\",\"b\":\",\"}\n"},
	})
	decodes(t, Config{Format: CSV, Limits: Limits{Item: 8}}, []decodeCase{
		{"a\n\"1234567890\"\n", "decode.too_large: line 2, byte 2: an item of more than 8 bytes; the limit of an item allows more\n"},
		{"a\n12345678\n123456789\n", "2 {\"a\":\"12345678\"}\ndecode.too_large: line 3, byte 11: an item of more than 8 bytes; the limit of an item allows more\n"},
	})
}

func TestGzip(t *testing.T) {
	c := Config{Format: NDJSON, Packing: Gzip, Limits: Limits{Unpacked: 1000}}
	whole := decodetest.Gzip(t, "1\n2\n")
	decodes(t, c, []decodeCase{
		{whole, "1 1\n2 2\n"},
		{whole + decodetest.Gzip(t, "3\n"), "1 1\n2 2\n3 3\n"},
		{whole[:len(whole)-3], "1 1\n2 2\ndecode.syntax: line 3: the gzip data end too early\n"},
		{"1\n2\n3\n4\n5\n6\n7\n", "decode.syntax: line 1: the body is no gzip\n"},
		{decodetest.Gzip(t, strings.Repeat(" ", 1001)), "decode.too_large: line 1: more than 1000 bytes come out when the body is unpacked; the limit of what is unpacked allows more\n"},
	})
}

func TestZip(t *testing.T) {
	body := decodetest.Zip(t, "a.csv", "x\n1\n", "dir/", "", "dir/b.csv", "x\n2\n", "c.txt", "y\n")
	decodes(t, Config{Format: CSV, Packing: Zip, Members: "*.csv"}, []decodeCase{
		{body, "a.csv 2 {\"x\":\"1\"}\ndir/b.csv 2 {\"x\":\"2\"}\n"},
		{"no zip", "decode.syntax: the body is no zip\n"},
	})
	decodes(t, Config{Format: CSV, Packing: Zip, Members: "dir/*.csv"}, []decodeCase{{body, "dir/b.csv 2 {\"x\":\"2\"}\n"}})
	decodes(t, Config{Format: Lines, Packing: Zip, Members: "c.txt"}, []decodeCase{{body, "c.txt 1 \"y\"\n"}})
	decodes(t, Config{Format: CSV, Packing: Zip, Members: "*.xml"}, []decodeCase{
		{body, "decode.member: no member of the zip is picked by the pattern \"*.xml\"; * stops at a slash\n"},
	})
	decodes(t, Config{List: true, Packing: Zip}, []decodeCase{
		{decodetest.Zip(t, "a", "[1]", "b", "[2"), "a 1\nb 2\ndecode.syntax: member \"b\", byte 2: the JSON document ends too early\n"},
		{decodetest.Zip(t, "a", "[1]"), "a 1\nrest []\n"},
		{decodetest.Zip(t), ""},
	})
	decodes(t, Config{Format: Text, Packing: Zip, Limits: Limits{Unpacked: 5}}, []decodeCase{
		{decodetest.Zip(t, "a", "123", "b", "456"), "a \"123\"\ndecode.too_large: member \"b\": more than 5 bytes come out when the body is unpacked; the limit of what is unpacked allows more\n"},
	})
	decodes(t, Config{Format: Text, Packing: Zip, Limits: Limits{Packed: 100}}, []decodeCase{
		{decodetest.Zip(t, "a", strings.Repeat("123", 100)), "decode.too_large: a zip of more than 100 bytes; the limit of a packed body allows more\n"},
	})
}

// An error of the body's own reader comes out as it is, whatever reads above it.
func TestReaderErrors(t *testing.T) {
	broken := errors.New("broken")
	for _, f := range []Format{JSON, NDJSON, CSV, Lines, Text} {
		for _, p := range []Packing{Plain, Gzip, Zip} {
			d, err := New(Config{Format: f, Packing: p})
			if err != nil {
				t.Fatal(err)
			}
			for _, body := range []string{"", "a", "\"a", "\xEF\xBB", decodetest.Gzip(t, "a,b")[:20]} {
				x := d.Open(io.MultiReader(strings.NewReader(body), iotest.ErrReader(broken)))
				var got error
				for got == nil {
					_, got = x.Next()
				}
				var wrong *Error
				if !errors.Is(got, broken) && !errors.As(got, &wrong) {
					t.Errorf("%s %d %q: %v", f, p, body, got)
				}
				if p == Zip && !errors.Is(got, broken) {
					t.Errorf("%s of a zip, %q: %v", f, body, got)
				}
			}
		}
	}
}

func TestWrongConfigs(t *testing.T) {
	for want, c := range map[string]Config{
		"ndjson has none":                   {Format: NDJSON, List: true},
		"members are picked in a zip only":  {Members: "a"},
		"the pattern of members":            {Packing: Zip, Members: "["},
		"outside of 1 to":                   {Limits: Limits{Item: -1}},
		"a depth of 1001":                   {Limits: Limits{Depth: 1001}},
		"column 2 has the name":             {Format: CSV, Table: Table{Columns: []string{"a", "a"}}},
		"columns are empty":                 {Format: CSV, Table: Table{Columns: []string{}}},
		"delimiter and quote are the same":  {Format: CSV, Table: Table{Delimiter: '"'}},
		"delimiter and quote are one ASCII": {Format: CSV, Table: Table{Delimiter: 0xA7}},
	} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}
