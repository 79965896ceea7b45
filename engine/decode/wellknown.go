package decode

import (
	"bytes"
	"math"
	"strconv"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

const wellKnownPackage = "google.protobuf."

// wellKnown is how a type of google/protobuf stands in JSON where it is no plain object
// (https://protobuf.dev/programming-guides/json/).
type wellKnown uint8

const (
	ordinary wellKnown = iota
	timestamp
	duration
	wrapper
	structure
	dynamic
	dynamicList
	fieldMask
	anything
)

var wellKnownForms = map[string]wellKnown{
	wellKnownPackage + "Timestamp": timestamp, wellKnownPackage + "Duration": duration,
	wellKnownPackage + "Struct": structure, wellKnownPackage + "Value": dynamic, wellKnownPackage + "ListValue": dynamicList,
	wellKnownPackage + "FieldMask": fieldMask, wellKnownPackage + "Any": anything,
	wellKnownPackage + "DoubleValue": wrapper, wellKnownPackage + "FloatValue": wrapper, wellKnownPackage + "Int64Value": wrapper,
	wellKnownPackage + "UInt64Value": wrapper, wellKnownPackage + "Int32Value": wrapper, wellKnownPackage + "UInt32Value": wrapper,
	wellKnownPackage + "BoolValue": wrapper, wellKnownPackage + "StringValue": wrapper, wellKnownPackage + "BytesValue": wrapper,
}

const wellKnownHead = `syntax = "proto3"; package google.protobuf; `

// wellKnownFiles are the files that may be imported without being there.
var wellKnownFiles = map[string]string{
	"google/protobuf/timestamp.proto":  wellKnownHead + `message Timestamp { int64 seconds = 1; int32 nanos = 2; }`,
	"google/protobuf/duration.proto":   wellKnownHead + `message Duration { int64 seconds = 1; int32 nanos = 2; }`,
	"google/protobuf/empty.proto":      wellKnownHead + `message Empty {}`,
	"google/protobuf/any.proto":        wellKnownHead + `message Any { string type_url = 1; bytes value = 2; }`,
	"google/protobuf/field_mask.proto": wellKnownHead + `message FieldMask { repeated string paths = 1; }`,
	"google/protobuf/struct.proto": wellKnownHead + `message Struct { map<string, Value> fields = 1; }
		message Value { oneof kind { NullValue null_value = 1; double number_value = 2; string string_value = 3; bool bool_value = 4; Struct struct_value = 5; ListValue list_value = 6; } }
		message ListValue { repeated Value values = 1; } enum NullValue { NULL_VALUE = 0; }`,
	"google/protobuf/wrappers.proto": wellKnownHead + `message DoubleValue { double value = 1; } message FloatValue { float value = 1; }
		message Int64Value { int64 value = 1; } message UInt64Value { uint64 value = 1; } message Int32Value { int32 value = 1; }
		message UInt32Value { uint32 value = 1; } message BoolValue { bool value = 1; } message StringValue { string value = 1; } message BytesValue { bytes value = 1; }`,
}

// special appends a message of a type that is no plain object.
func (e *encoder) special(dst []byte, m *Message, wire []byte, depth int) ([]byte, error) {
	switch m.form {
	case timestamp, duration:
		seconds, nanos, err := e.clock(m, wire)
		if err != nil {
			return dst, err
		}
		if m.form == timestamp {
			return e.timestamp(dst, m, seconds, int32(nanos))
		}
		return e.duration(dst, m, seconds, int32(nanos))
	case fieldMask:
		return e.mask(dst, m, wire)
	case anything:
		return e.anything(dst, m, wire, depth)
	default:
	}
	// The others are what their only field is.
	found, err := e.find(m, wire)
	if err != nil {
		return dst, err
	}
	switch m.form {
	case wrapper:
		if len(found) == 0 {
			return e.zero(dst, &m.fields[0]), nil
		}
		o := &found[len(found)-1]
		return e.value(dst, m, o.field, o.span, depth)
	case dynamic:
		if len(found) == 0 {
			return append(dst, "null"...), nil
		}
		return e.merged(dst, m, found, depth)
	case structure, dynamicList:
		if len(found) == 0 {
			if m.form == structure {
				return append(dst, "{}"...), nil
			}
			return append(dst, "[]"...), nil
		}
		return e.merged(dst, m, found, depth)
	default:
		return dst, e.wrong(m, nil, CodeSyntax, "a type that cannot be read")
	}
}

// joined are all parts of a message, one after another: that is how protobuf merges them.
func joined(found []occurrence, f *field) []byte {
	var b []byte
	for i := range found {
		if found[i].field == f {
			b = append(b, found[i].span...)
		}
	}
	return b
}

// clock reads seconds and nanoseconds.
func (e *encoder) clock(m *Message, wire []byte) (seconds, nanos int64, err error) {
	found, err := e.find(m, wire)
	if err != nil {
		return 0, 0, err
	}
	for _, o := range found {
		v, n := varint(o.span)
		if n == 0 {
			return 0, 0, e.wrong(m, o.field, CodeSyntax, endsEarly)
		}
		if o.field.number == 1 {
			seconds = int64(v)
		} else {
			nanos = int64(int32(v))
		}
	}
	return seconds, nanos, nil
}

func (e *encoder) timestamp(dst []byte, m *Message, seconds int64, nanos int32) ([]byte, error) {
	const first, last = -62135596800, 253402300799 // the years 1 to 9999
	if seconds < first || seconds > last || nanos < 0 || nanos > 999_999_999 {
		return dst, e.wrong(m, nil, CodeSyntax, "a time outside of the years 1 to 9999")
	}
	dst = time.Unix(seconds, 0).UTC().AppendFormat(append(dst, '"'), "2006-01-02T15:04:05")
	return append(appendNanos(dst, nanos), `Z"`...), nil
}

func (e *encoder) duration(dst []byte, m *Message, seconds int64, nanos int32) ([]byte, error) {
	const most = 315_576_000_000
	if seconds < -most || seconds > most || nanos < -999_999_999 || nanos > 999_999_999 || seconds > 0 && nanos < 0 || seconds < 0 && nanos > 0 {
		return dst, e.wrong(m, nil, CodeSyntax, "a duration of more than 10,000 years, or whose parts have different signs")
	}
	dst = append(dst, '"')
	if seconds < 0 || nanos < 0 {
		dst, seconds, nanos = append(dst, '-'), -seconds, -nanos
	}
	dst = strconv.AppendInt(dst, seconds, 10)
	return append(appendNanos(dst, nanos), `s"`...), nil
}

// appendNanos appends a fraction of 0, 3, 6 or 9 digits.
func appendNanos(dst []byte, nanos int32) []byte {
	if nanos == 0 {
		return dst
	}
	digits := 9
	for digits > 3 && nanos%1000 == 0 {
		nanos /= 1000
		digits -= 3
	}
	text := strconv.Itoa(int(nanos))
	dst = append(dst, '.')
	for range digits - len(text) {
		dst = append(dst, '0')
	}
	return append(dst, text...)
}

// mask appends a FieldMask: its paths in camel case, between commas.
func (e *encoder) mask(dst []byte, m *Message, wire []byte) ([]byte, error) {
	found, err := e.find(m, wire)
	if err != nil {
		return dst, err
	}
	var text []byte
	for i, o := range found {
		if i > 0 {
			text = append(text, ',')
		}
		for _, part := range bytes.SplitAfter(o.span, []byte{'.'}) {
			text = append(text, jsonName(string(part))...)
		}
	}
	dst, ok := appendText(dst, text, e.invalid)
	if !ok {
		return dst, e.wrong(m, &m.fields[0], CodeUTF8, "a text that is not UTF-8")
	}
	return dst, nil
}

// anything appends an Any: the message with its type, where the schema has it, or its bytes in base64.
func (e *encoder) anything(dst []byte, m *Message, wire []byte, depth int) ([]byte, error) {
	found, err := e.find(m, wire)
	if err != nil {
		return dst, err
	}
	var url, value []byte
	for _, o := range found {
		if o.field.number == 1 {
			url = o.span
		} else {
			value = o.span
		}
	}
	if len(url) == 0 && len(value) == 0 {
		return append(dst, "{}"...), nil
	}
	dst = append(dst, `{"@type":`...)
	dst, ok := appendText(dst, url, e.invalid)
	if !ok {
		return dst, e.wrong(m, &m.fields[0], CodeUTF8, "a text that is not UTF-8")
	}
	inner := m.schema.messages[string(url[bytes.LastIndexByte(url, '/')+1:])]
	switch {
	case inner == nil:
		dst = appendBase64(append(dst, `,"value":`...), value)
	case inner.form != ordinary:
		if dst, err = e.message(append(dst, `,"value":`...), inner, value, depth+1); err != nil {
			return dst, err
		}
	default:
		start := len(dst)
		if dst, err = e.message(dst, inner, value, depth); err != nil {
			return dst, err
		}
		if dst[start+1] == '}' {
			return append(dst[:start], '}'), nil
		}
		dst[start] = ','
		return dst, nil
	}
	return append(dst, '}'), nil
}

// appendDouble appends a double or float; those that JSON has no number for are strings.
func appendDouble(dst []byte, f float64, bits int) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(dst, `"-Infinity"`...)
	case bits == 64 || f == math.Trunc(f) && math.Abs(f) < 1<<24:
		return rawjson.AppendFloat(dst, f)
	}
	if abs := math.Abs(f); abs >= 1e-6 && abs < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 32)
	}
	return strconv.AppendFloat(dst, f, 'e', -1, 32)
}
