package pipeline

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// seedOf reads a seed file that exists only here.
func seedOf(name, text, key string, topic stream.Topic) *Seed {
	return &Seed{File: name, Key: key, topic: &topic, open: func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
}

func seedLines(s *Seed) []string {
	var out []string
	for r, err := range s.Records() {
		if err != nil {
			out = append(out, err.Error())
			continue
		}
		key := "-"
		if r.Key != nil {
			key = string(r.Key)
		}
		out = append(out, fmt.Sprintf("%d %s %s", r.Line, key, r.Value))
	}
	return out
}

func TestSeedFiles(t *testing.T) {
	str := stream.Topic{Name: "t", Key: stream.String}
	for _, c := range []struct {
		name, text, key string
		topic           stream.Topic
		want            []string
	}{
		{"a.ndjson", "\uFEFF{\"id\": 1, \"x\": [1, 2]}\r\n\r\n{\"id\":\"ä\"}", "id", str, []string{`1 1 {"id":1,"x":[1,2]}`, `3 ä {"id":"ä"}`}},
		{"a.jsonl", `{"id": {"b": 1.0, "a": null}}`, "id", str, []string{`1 {"a":null,"b":1} {"id":{"b":1.0,"a":null}}`}},
		{"a.ndjson", `{"id": "x"}`, "id", stream.Topic{Key: stream.JSON}, []string{`1 "x" {"id":"x"}`}},
		{"a.ndjson", `{"id": 5}`, "id", stream.Topic{Key: stream.Bytes}, []string{`read seed a.ndjson:1: member "id": a key of bytes is taken from a text`}},
		{"a.ndjson", "\"one\"\n5", "", stream.Topic{Name: "t", Value: stream.String}, []string{"1 - one", "read seed a.ndjson:2: the values of topic t are string, so a record of its seed is a JSON text"}},
		{"a.ndjson", `"one"`, "id", str, []string{`read seed a.ndjson:1: the record is no object, so it has no member "id" for its key`}},
		{"a.ndjson", `{"id": null}`, "id", str, []string{`read seed a.ndjson:1: the record has no "id" for its key`}},
		{"a.ndjson", "", "", str, nil},
		{"a.json", "[\n {\"a\":\n 1},\n\n 2 ]", "", str, []string{`2 - {"a":1}`, "5 - 2"}},
		{"a.json", "[]", "", str, nil},
		{"a.json", "[\n1,\n}", "", str, []string{"read seed a.json:3: no JSON value where one is expected at byte 5"}},
		{"a.csv", "id;x\n1;2\n", "", str, []string{`2 - {"id;x":"1;2"}`}},
		{"a.csv", "id,x\n\"a\nb\",\"\"\n", "id", str, []string{"2 a\nb {\"id\":\"a\\nb\",\"x\":\"\"}"}},
		{"a.csv", "id,id\n1,2\n", "", str, []string{`read seed a.csv:1: the column "id" is there twice`}},
		{"a.csv", "", "", str, []string{"read seed a.csv:1: a header line with the names of the columns is expected"}},
		{"a.csv", "id\n\"x\n", "", str, []string{"read seed a.csv:2: extraneous or missing \" in quoted-field"}},
	} {
		if diff := cmp.Diff(c.want, seedLines(seedOf(c.name, c.text, c.key, c.topic))); diff != "" {
			t.Errorf("%s %q:\n%s", c.name, c.text, diff)
		}
	}
}

func TestSeedIsReadAgain(t *testing.T) {
	s := seedOf("a.ndjson", "1\n2\n3\n", "", stream.Topic{})
	for range s.Records() {
		break
	}
	if got := len(seedLines(s)); got != 3 {
		t.Errorf("the second reading has %d records", got)
	}
}

func TestSeedWithLongLines(t *testing.T) {
	long := `"` + strings.Repeat("x", 300_000) + `"`
	var sizes []int
	for r, err := range seedOf("a.ndjson", long+"\n"+long+"\n1", "", stream.Topic{}).Records() {
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(r.Value))
	}
	if diff := cmp.Diff([]int{300_002, 300_002, 1}, sizes); diff != "" {
		t.Error(diff)
	}
	got := seedLines(seedOf("a.ndjson", "1\n"+strings.Repeat("x", maxSeedLine+100_000), "", stream.Topic{}))
	if diff := cmp.Diff([]string{"1 - 1", "read seed a.ndjson:2: the line is longer than 16777216 bytes"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestSeedFileThatIsNotThere(t *testing.T) {
	s := &Seed{File: "a.csv", topic: &stream.Topic{}, open: func(name string) (io.ReadCloser, error) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}}
	for _, err := range s.Records() {
		var se *SeedError
		if !errors.As(err, &se) || err.Error() != "read seed a.csv: file does not exist" {
			t.Error(err)
		}
	}
}
