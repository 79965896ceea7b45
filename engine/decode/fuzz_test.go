package decode

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

// outcome are the items of a body, its rest and its error.
type outcome struct {
	items []string
	rest  string
	err   error
}

// read reads a body at once and byte by byte, which must come to the same, and checks what every body must hold to.
func read(t *testing.T, c Config, body []byte) outcome {
	t.Helper()
	d, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	var both [2]outcome
	for i, in := range []io.Reader{bytes.NewReader(body), iotest.OneByteReader(bytes.NewReader(body))} {
		x, o := d.Open(in), &both[i]
		for {
			item, err := x.Next()
			if err != nil {
				if !errors.Is(err, io.EOF) {
					var wrong *Error
					if !errors.As(err, &wrong) {
						t.Fatalf("%T is no Error: %v", err, err)
					}
					o.err = err
				}
				break
			}
			if _, _, err := rawjson.Check(item.JSON, nil); err != nil {
				t.Fatalf("item %q: %v", item.JSON, err)
			}
			o.items = append(o.items, string(item.JSON))
		}
		if rest := x.Rest(); rest != nil {
			if _, _, err := rawjson.Check(rest, nil); err != nil {
				t.Fatalf("rest %q: %v", rest, err)
			}
			o.rest = string(rest)
		}
	}
	if !reflect.DeepEqual(both[0].items, both[1].items) || both[0].rest != both[1].rest || (both[0].err == nil) != (both[1].err == nil) {
		t.Fatalf("at once %+v, byte by byte %+v", both[0], both[1])
	}
	return both[0]
}

// A list in a document is what encoding/json finds there.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{`{"a":{"b":[1,{"c":"]"},null]},"n":1}`, `{"a":{"b":null}}`, `{"a":{"b":[`, `{"a":{"x":[1,2],"b":[ ]}} `, `{"\u0061":{"b":["\\\""]}}`, "null", "[]"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got := read(t, Config{List: true, Path: []string{"a", "b"}}, body)
		whole := read(t, Config{}, body)
		if whole.err != nil {
			if got.err == nil {
				t.Fatalf("%q is no JSON (%v), and still %+v", body, whole.err, got)
			}
			return
		}
		var wrong *Error
		if errors.As(got.err, &wrong) && wrong.Code != CodeList && !strings.Contains(wrong.What, "comes twice") {
			t.Fatalf("%q: %v", body, got.err)
		}
		if got.err != nil || bytes.Count(body, []byte(`"`)) > 40 {
			return
		}
		var document any
		if json.Unmarshal([]byte(whole.items[0]), &document) != nil {
			return
		}
		outer, _ := document.(map[string]any)
		inner, _ := outer["a"].(map[string]any)
		list, _ := inner["b"].([]any)
		if len(list) == len(got.items) {
			for i, item := range got.items {
				var v any
				if json.Unmarshal([]byte(item), &v) == nil && !reflect.DeepEqual(v, list[i]) {
					t.Fatalf("%q: item %d is %s", body, i, item)
				}
			}
		} else if !doubled(body) {
			t.Fatalf("%q: %d items, and encoding/json has %d", body, len(got.items), len(list))
		}
	})
}

// doubled tells whether a name may come twice in one object; then encoding/json merges them.
func doubled(body []byte) bool {
	return bytes.Count(body, []byte("a")) > 1 || bytes.Count(body, []byte("b")) > 1 || bytes.Contains(body, []byte(`\u`))
}

// Rows are those of encoding/csv where that takes the text.
func FuzzCSV(f *testing.F) {
	for _, seed := range []string{"a,b\n1,2\n", "\"a\"\"\n,\",b\r\n\r\nx", "\uFEFFa\n", "a,,\n", "\"", "\"a\"b", "a\"b,c\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		read(t, Config{Format: CSV, Invalid: InvalidReplace, Table: Table{Extra: ExtraKeep}}, body)
		rows, err := NewRows(iotest.OneByteReader(bytes.NewReader(body)), Table{}, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		official := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(body, []byte("\uFEFF"))))
		official.FieldsPerRecord, official.LazyQuotes = -1, false
		for {
			want, err := official.Read()
			if err != nil && !errors.Is(err, io.EOF) {
				return // a quote inside of a field, which we take
			}
			got, mine := rows.Next()
			if err != nil {
				if !errors.Is(mine, io.EOF) && !bytes.Contains(body, []byte("\r")) {
					t.Fatalf("%q: at the end %+v, %v", body, got, mine)
				}
				return
			}
			if bytes.Contains(body, []byte("\r")) {
				return // what a lone carriage return means is not agreed on
			}
			if mine != nil || len(got) != len(want) {
				t.Fatalf("%q: %+v, %v; want %q", body, got, mine, want)
			}
			for i := range want {
				if string(got[i].Text) != want[i] {
					t.Fatalf("%q: field %q, want %q", body, got[i].Text, want[i])
				}
			}
		}
	})
}

func FuzzXML(f *testing.F) {
	for _, seed := range []string{`<a><b c="1">x</b><b/>y</a>`, `<?xml version="1.0" encoding="latin1"?><a>` + "\xff</a>", "<!DOCTYPE a [<!ENTITY b 'c'>]><a/>", "<a><![CDATA[]]></a>", "<a", "<a:b:c/>"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		whole := read(t, Config{Format: XML}, body)
		listed := read(t, Config{Format: XML, List: true, Path: []string{"a", "b"}}, body)
		if (whole.err == nil) != (listed.err == nil) {
			t.Fatalf("%q: whole %v, as a list %v", body, whole.err, listed.err)
		}
	})
}

// Messages are those of the official library, wherever that takes the bytes.
func FuzzProtobuf(f *testing.F) {
	text, file := everything()
	d, _ := linked(f, file)
	official := d.Messages().ByName("Everything")
	m := messageOf(f, schemaOf(f, files{"everything.proto": text}, "everything.proto"), "test.v1.Everything")
	for _, seed := range [][]byte{feedWire(), {0x0a, 0}, {0x08, 1, 0x08, 2}, {0x13, 0x14}} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got := read(t, Config{Format: Protobuf, Message: m}, body)
		read(t, Config{Format: Protobuf, Message: m, Delimited: true}, body)
		read(t, Config{Format: Protobuf, Message: m, List: true, Path: []string{"oneA10", "manyA10"}}, body)
		whole := dynamicpb.NewMessage(official)
		if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(body, whole); err != nil {
			return
		}
		if _, err := protojson.Marshal(whole); err != nil {
			return
		}
		if got.err != nil {
			t.Fatalf("%x: %v", body, got.err)
		}
		// A default that stands on the wire is written, and protojson leaves it out: so it is compared without them.
		plain, err := proto.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		again, err := m.AppendJSON(nil, plain)
		if err != nil {
			t.Fatalf("%x: %v", plain, err)
		}
		alike(t, again, whole)
	})
}
