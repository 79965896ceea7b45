package http_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/flechtwerk/flechtwerk/engine/decode"
	"github.com/flechtwerk/flechtwerk/engine/decode/decodetest"
)

// Bodies in every format, each asked for by condition, so that a second poll finds nothing.
func TestFormats(t *testing.T) {
	schema, err := decode.ReadSchema("feed.proto", func(name string) ([]byte, error) {
		if name == "feed.proto" {
			return []byte(`syntax = "proto3"; message Feed { string version = 1; repeated Entity entity = 2; } message Entity { string id = 1; sint64 delay = 2; }`), nil
		}
		return nil, os.ErrNotExist
	})
	if err != nil {
		t.Fatal(err)
	}
	feed, err := schema.Message("Feed")
	if err != nil {
		t.Fatal(err)
	}
	const feedBody = "\x0a\x012\x12\x05\x0a\x01a\x10\x03\x12\x03\x0a\x01b"
	for _, c := range []struct {
		name, body string
		decode     decode.Config
		records    string
		key        string // an expression, which needs the whole body if it reads it
		want       []string
	}{
		{"csv", "id;n\n1;x\n2;\n", decode.Config{Format: decode.CSV, Table: decode.Table{Delimiter: ';', Empty: decode.EmptyNull}}, "", "", []string{`{"id":"1","n":"x"}`, `{"id":"2","n":null}`}},
		{"tsv", "1\t\"x\n", decode.Config{Format: decode.TSV, Table: decode.Table{Columns: []string{"id", "n"}}}, "", "", []string{`{"id":"1","n":"\"x"}`}},
		{"lines of gzip", decodetest.Gzip(t, "1\n2\n"), decode.Config{Format: decode.Lines, Packing: decode.Gzip}, "", "", []string{`"1"`, `"2"`}},
		{"csv in a zip", decodetest.Zip(t, "a.csv", "id\n1\n", "b.txt", "no", "c.csv", "id\n2\n"), decode.Config{Format: decode.CSV, Packing: decode.Zip, Members: "*.csv"}, "", "", []string{`{"id":"1"}`, `{"id":"2"}`}},
		{"json in a zip", decodetest.Zip(t, "a.json", `{"items":[1,2]}`), decode.Config{Packing: decode.Zip}, "body.items", "", []string{"1", "2"}},
		{"xml", "<feed><title>t</title><entry>1</entry><entry n=\"2\"/></feed>", decode.Config{Format: decode.XML}, "body.feed.entry", "", []string{`"1"`, `{"@n":"2"}`}},
		{"one element of xml", "<feed><title>t</title><entry>1</entry></feed>", decode.Config{Format: decode.XML}, "body.feed.entry", "", []string{`"1"`}},
		{"one element of xml, beside the rest", "<feed><title>t</title><entry>1</entry></feed>", decode.Config{Format: decode.XML}, "body.feed.entry", "body.feed.title", []string{`"1"`}},
		{"protobuf", feedBody, decode.Config{Format: decode.Protobuf, Message: feed}, "body.entity", "", []string{`{"id":"a","delay":-2}`, `{"id":"b"}`}},
		{"protobuf, beside the rest", feedBody, decode.Config{Format: decode.Protobuf, Message: feed}, "body.entity", "body.version", []string{`{"id":"a","delay":-2}`, `{"id":"b"}`}},
		{"a protobuf message", feedBody, decode.Config{Format: decode.Protobuf, Message: feed}, "", "", []string{`{"version":"2","entity":[{"id":"a","delay":-2},{"id":"b"}]}`}},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			r := newRig(t)
			r.Put("items", []byte(c.body))
			r.config.Decode = c.decode
			if c.records != "" {
				r.config.Records = records(t, c.records)
			}
			if c.key != "" {
				r.config.Message = message(t, "key", c.key, "value", "item")
			}
			l := &ledger{}
			if polls := l.drained(t, r.source(t)); polls != 2 {
				t.Errorf("%d polls committed something, and the body is the same", polls-1)
			}
			if got := l.values; !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
