package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

func TestPrintedRecords(t *testing.T) {
	topics := []*pipeline.Topic{
		{Topic: stream.Topic{Name: "json", Key: stream.String}},
		{Topic: stream.Topic{Name: "text", Key: stream.JSON, Value: stream.String}},
		{Topic: stream.Topic{Name: "raw", Key: stream.Bytes, Value: stream.Bytes}},
	}
	for _, c := range []struct {
		record engine.TailRecord
		want   string
	}{
		{engine.TailRecord{Topic: "json", Partition: 1, Offset: 7, Timestamp: 1000, Key: []byte("k\"1"), Value: []byte(`{ "a": 1e-06, "b": "é\n" }`)},
			`{"topic":"json","partition":1,"offset":7,"timestamp":1000,"key":"k\"1","value":{"a":1e-06,"b":"é\n"}}`},
		{engine.TailRecord{Topic: "json"}, `{"topic":"json","partition":0,"offset":0,"timestamp":0,"key":null,"value":null}`},
		{engine.TailRecord{Topic: "json", Key: []byte{0xff}, Value: []byte(`{"a":`)},
			`{"topic":"json","partition":0,"offset":0,"timestamp":0,"key_base64":"/w==","value":"{\"a\":"}`},
		{engine.TailRecord{Topic: "text", Key: []byte(`{"a":1}`), Value: []byte("12\n")},
			`{"topic":"text","partition":0,"offset":0,"timestamp":0,"key":{"a":1},"value":"12\n"}`},
		{engine.TailRecord{Topic: "raw", Key: []byte("a"), Value: []byte("{}")},
			`{"topic":"raw","partition":0,"offset":0,"timestamp":0,"key_base64":"YQ==","value_base64":"e30="}`},
		{engine.TailRecord{Topic: "json", Value: []byte(`1`), Headers: []stream.Header{{Key: "h", Value: []byte("x")}, {Key: "n"}}},
			`{"topic":"json","partition":0,"offset":0,"timestamp":0,"key":null,"value":1,"headers":{"h":"x","n":null}}`},
		{engine.TailRecord{Topic: "unknown", Value: []byte(`[1]`)}, `{"topic":"unknown","partition":0,"offset":0,"timestamp":0,"key":null,"value":[1]}`},
	} {
		var out bytes.Buffer
		if err := newRecordPrinter(&out, topics).Print(c.record); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want+"\n", out.String()); diff != "" {
			t.Error(diff)
		}
		if !json.Valid(out.Bytes()) {
			t.Errorf("no JSON: %s", out.String())
		}
	}
}
