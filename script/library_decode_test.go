package script

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"testing"

	"github.com/flechtwerk/flechtwerk/engine/decode"
	"github.com/flechtwerk/flechtwerk/engine/decode/decodetest"
)

// ridesProto declares what the examples and tests decode.
const ridesProto = `syntax = "proto3";
package rides.v1;
import "google/protobuf/timestamp.proto";
message Ride { string id = 1; uint64 meters = 2; repeated int32 stops = 3; google.protobuf.Timestamp at = 4; State state = 5; }
enum State { STATE_OPEN = 0; STATE_DONE = 1; }
`

func ridesSchema(t testing.TB) *decode.Schema {
	t.Helper()
	s, err := decode.ReadSchema("rides.proto", func(name string) ([]byte, error) {
		if name == "rides.proto" {
			return []byte(ridesProto), nil
		}
		return nil, fs.ErrNotExist
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestLibraryXML(t *testing.T) {
	expressions(t, `{"text":"<a id='1'>t<b/><b>2</b></a>"}`, map[string]string{
		`xml.parse(msg.value.text)`:                                          `{"a":{"@id":"1","b":["","2"],"#text":"t"}}`,
		`xml.parse('<a><b>1</b></a>', { lists: ['b'] }).a.b[0]`:              `"1"`,
		`xml.parse(hex.decode('3c612f3e'))`:                                  `{"a":""}`,
		"xml.parse('<?xml version=\"1.0\" encoding=\"latin1\"?><a>é</a>').a": `"é"`,
		`xml.parse(hex.decode('3c3f786d6c2076657273696f6e3d22312e302220656e636f64696e673d2249534f2d383835392d31223f3e3c613ee93c2f613e')).a`: `"é"`,
		`thrown(() => xml.parse('<a>\n<b></a>'))`:                 `"true SyntaxError syntax xml.parse: line 2: a closing tag of another element than the one that is open"`,
		`thrown(() => xml.parse(hex.decode('3c613eff3c2f613e')))`: `"true TypeError utf8 xml.parse: line 1: a text that is not UTF-8"`,
		`thrown(() => xml.parse('<a>'.repeat(600)))`:              `"true RangeError depth xml.parse: line 1: nested too deep"`,
		`thrown(() => xml.parse('<a/>', { lists: 'b' }))`:         `"true TypeError argument xml.parse: the option lists is a string; an array of texts is expected"`,
		`thrown(() => xml.parse('<a/>', { list: 1 }))`:            `"true TypeError argument xml.parse: there is no option \"list\"; lists is expected"`,
	})
}

func TestLibraryUnzip(t *testing.T) {
	ride := "\x0a\x01a\x10\x05"
	packed := decodetest.Zip(t, "dir/", "", "dir/a.json", `{"n":9007199254740993}`, "b.csv", "x;y\n1;2\n", "c.txt", "l1\r\nl2\n", "d.xml", "<a>1</a>", "e.pb", ride, "f.ndjson", "1\n[2]\n", "g.zip", decodetest.Zip(t, "inner.txt", "deep"))
	in, err := json.Marshal(map[string]any{"hex": fmt.Sprintf("%x", packed)})
	if err != nil {
		t.Fatal(err)
	}
	schema := ridesSchema(t)
	for expression, want := range map[string]string{
		`all.map(e => [e.name, e.size])`:                     `[["dir/a.json",22],["b.csv",8],["c.txt",7],["d.xml",8],["e.pb",5],["f.ndjson",6],["g.zip",` + fmt.Sprint(len(decodetest.Zip(t, "inner.txt", "deep"))) + `]]`,
		`all[0].json()`:                                      `{"n":9007199254740993}`,
		`all[0].text()`:                                      `"{\"n\":9007199254740993}"`,
		`all[0].bytes().length`:                              `22`,
		`[...all[1].csv({ delimiter: ';' })]`:                `[{"x":"1","y":"2"}]`,
		`[...all[2].lines()]`:                                `["l1","l2"]`,
		`all[3].xml()`:                                       `{"a":"1"}`,
		`all[4].protobuf('rides.v1.Ride')`:                   `{"id":"a","meters":5}`,
		`[...all[5].ndjson()]`:                               `[1,[2]]`,
		`all[6].unzip()[0].text()`:                           `"deep"`,
		`thrown(() => all[2].json())`:                        `"true SyntaxError syntax json: no JSON value where one is expected at byte 0"`,
		`thrown(() => [...all[2].ndjson()])`:                 `"true SyntaxError syntax ndjson: line 1, byte 0: no JSON value where one is expected"`,
		`thrown(() => unzip(bytes, { limit: 7 })[1].text())`: `"true RangeError too_large unzip: more than 7 bytes come out when the body is unpacked"`,
		`thrown(() => unzip(bytes.slice(0, 40)))`:            `"true SyntaxError syntax unzip: the body is no zip"`,
		`thrown(() => unzip('text'))`:                        `"true TypeError argument unzip: the first argument is a string; bytes are expected"`,
	} {
		c := conform{functions: try, in: []string{string(in)}, protobuf: schema, want: "→ [" + want + "]",
			body: "const bytes = hex.decode(msg.value.hex), all = unzip(bytes); yield Message({ value: [" + expression + "] })"}
		if got := c.run(t); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", expression, got, c.want)
		}
	}
}

func TestLibraryProtobuf(t *testing.T) {
	schema := ridesSchema(t)
	cases := map[string]conform{}
	for expression, want := range map[string]string{
		`protobuf('rides.v1.Ride').decode(hex.decode('0a0161108180808080808010'))`:                               `{"id":"a","meters":9007199254740993}`,
		`protobuf('rides.v1.Ride').decode(hex.decode('0a0161108180808080808010')).meters + 1n`:                   `9007199254740994`,
		`protobuf('rides.v1.Ride').decode(hex.decode('1a02010222060880f2d6ca062801'))`:                           `{"stops":[1,2],"at":"2026-01-01T00:00:00Z","state":"STATE_DONE"}`,
		`protobuf('rides.v1.Ride').decode(new Uint8Array(0), { defaults: true })`:                                `{"id":"","meters":0,"stops":[],"state":"STATE_OPEN"}`,
		`protobuf('rides.v1.Ride').decode(hex.decode('030a01610010000a0162'.slice(0, 10)), { delimited: true })`: `[{"id":"a"},{}]`,
		`thrown(() => protobuf('rides.v1.Ride').decode(hex.decode('0a05')))`:                                     `"true SyntaxError syntax protobuf.decode: byte 0: the message ends too early in rides.v1.Ride"`,
		`thrown(() => protobuf('rides.v1.Ride').decode(hex.decode('0a01ff')))`:                                   `"true TypeError utf8 protobuf.decode: byte 0: a text that is not UTF-8 in id of rides.v1.Ride"`,
		`protobuf('rides.v1.Ride').decode(hex.decode('0a01ff'), { invalid_utf8: 'replace' }).id`:                 "\"\uFFFD\"",
		`thrown(() => protobuf('rides.v1.Ride').decode('text'))`:                                                 `"true TypeError argument protobuf.decode: the first argument is a string; bytes are expected"`,
		`thrown(() => protobuf('Ri' + 'de'))`:                                                                    `"true TypeError argument protobuf: the file declares no message \"Ride\"; did you mean \"rides.v1.Ride\"?"`,
	} {
		cases[expression] = conform{functions: try, protobuf: schema, body: "yield Message({ value: [" + expression + "] })", want: "→ [" + want + "]"}
	}
	cases["unknown name"] = conform{protobuf: schema, body: "protobuf('Ride')", want: `script.protobuf 1:10 the file declares no message "Ride"`}
	cases["no schema"] = conform{body: "protobuf('Ride')", want: "script.protobuf 1:1 the pipeline has no `protobuf:`"}
	cases["an own name"] = conform{body: "const protobuf = (x) => x; yield Message({ value: protobuf('Ride') })", want: `→ "Ride"`}
	conformAll(t, cases)

	for body, want := range map[string]bool{"yield Message({ value: protobuf('rides.v1.Ride') })": true, "msg.value.x.protobuf('y')": true, "msg.value.x": false} {
		p := mustCompile(t, Source{Body: bodyText(body), Protobuf: schema})
		if p.NamesProtobuf() != want {
			t.Errorf("%s: %v", body, p.NamesProtobuf())
		}
	}
}
