package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// recordPrinter writes a record as one line of JSON:
//
//	{"topic":"t","partition":0,"offset":7,"timestamp":1767225600000,"key":"k","value":{"a":1},"headers":{"h":"x"}}
//
// Key and value are written as their topic has them: JSON as it is, a string as a string. What is not that, and bytes, is
// base64 under the name key_base64 or value_base64. A null is null; headers stand there only if the record has some.
type recordPrinter struct {
	w      io.Writer
	topics map[string]*pipeline.Topic
	line   []byte
}

func newRecordPrinter(w io.Writer, topics []*pipeline.Topic) *recordPrinter {
	p := &recordPrinter{w: w, topics: map[string]*pipeline.Topic{}}
	for _, t := range topics {
		p.topics[t.Name] = t
	}
	return p
}

// Print is called by one goroutine.
func (p *recordPrinter) Print(r engine.TailRecord) error {
	key, value := stream.String, stream.JSON
	if t := p.topics[r.Topic]; t != nil {
		key, value = t.Key, t.Value
	}
	b := append(p.line[:0], `{"topic":`...)
	b = rawjson.AppendString(b, r.Topic)
	b = append(b, `,"partition":`...)
	b = strconv.AppendInt(b, int64(r.Partition), 10)
	b = append(b, `,"offset":`...)
	b = strconv.AppendInt(b, r.Offset, 10)
	b = append(b, `,"timestamp":`...)
	b = strconv.AppendInt(b, r.Timestamp, 10)
	b = appendField(b, "key", key, r.Key)
	b = appendField(b, "value", value, r.Value)
	for i, h := range r.Headers {
		if b = append(b, `,`...); i == 0 {
			b = append(b, `"headers":{`...)
		}
		b = rawjson.AppendString(b, h.Key)
		b = append(b, ':')
		b = appendHeader(b, h.Value)
		if i == len(r.Headers)-1 {
			b = append(b, '}')
		}
	}
	b = append(b, '}', '\n')
	p.line = b
	if _, err := p.w.Write(b); err != nil {
		return fmt.Errorf("print record: %w", err)
	}
	return nil
}

func appendField(b []byte, name string, format stream.Format, data []byte) []byte {
	b = append(b, `,"`...)
	b = append(b, name...)
	if data == nil {
		return append(b, `":null`...)
	}
	if format == stream.JSON {
		if _, _, err := rawjson.Check(data, nil); err == nil {
			return rawjson.Compact(append(b, `":`...), data)
		}
	}
	if format != stream.Bytes && utf8.Valid(data) {
		return rawjson.AppendString(append(b, `":`...), string(data))
	}
	b = append(b, `_base64":`...)
	text, _ := json.Marshal(data)
	return append(b, text...)
}

func appendHeader(b, value []byte) []byte {
	if value == nil {
		return append(b, "null"...)
	}
	return rawjson.AppendString(b, string(value))
}
