package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	_ "google.golang.org/protobuf/types/known/wrapperspb" // imported by a descriptor

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

// files is a folder in memory.
type files map[string]string

func (f files) read(name string) ([]byte, error) {
	if text, ok := f[name]; ok {
		return []byte(text), nil
	}
	return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
}

func schemaOf(t testing.TB, f files, name string) *Schema {
	t.Helper()
	s, err := ReadSchema(name, f.read)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func messageOf(t testing.TB, s *Schema, name string) *Message {
	t.Helper()
	m, err := s.Message(name)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// everything is a file with a field of every kind in every shape, as text and as a descriptor.
func everything() (text string, file *descriptorpb.FileDescriptorProto) {
	var b strings.Builder
	message := &descriptorpb.DescriptorProto{Name: proto.String("Everything"), OneofDecl: []*descriptorpb.OneofDescriptorProto{{Name: proto.String("choice")}}}
	file = &descriptorpb.FileDescriptorProto{
		Name: proto.String("everything.proto"), Package: proto.String("test.v1"), Syntax: proto.String("proto3"),
		Dependency: []string{"google/protobuf/timestamp.proto", "google/protobuf/duration.proto", "google/protobuf/struct.proto",
			"google/protobuf/wrappers.proto", "google/protobuf/any.proto", "google/protobuf/field_mask.proto"},
		EnumType: []*descriptorpb.EnumDescriptorProto{{Name: proto.String("Color"), Value: []*descriptorpb.EnumValueDescriptorProto{
			{Name: proto.String("COLOR_NONE"), Number: proto.Int32(0)}, {Name: proto.String("COLOR_RED"), Number: proto.Int32(1)},
			{Name: proto.String("COLOR_ODD"), Number: proto.Int32(-7)}}}},
		MessageType: []*descriptorpb.DescriptorProto{message},
	}
	b.WriteString("syntax = \"proto3\"; // all of it\npackage test.v1;\n")
	for _, name := range file.Dependency {
		fmt.Fprintf(&b, "import %q;\n", name)
	}
	b.WriteString("enum Color { COLOR_NONE = 0; COLOR_RED = 1; COLOR_ODD = -7; }\nmessage Everything {\n")
	number := int32(0)
	var oneof []string
	var later []func()
	add := func(name string, kind descriptorpb.FieldDescriptorProto_Type, typeName string) *descriptorpb.FieldDescriptorProto {
		number += 1 + number%3
		f := &descriptorpb.FieldDescriptorProto{Name: proto.String(name), Number: proto.Int32(number), Type: kind.Enum(), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
		if typeName != "" {
			f.TypeName = proto.String(typeName)
		}
		message.Field = append(message.Field, f)
		return f
	}
	mapOf := func(name string, key, value descriptorpb.FieldDescriptorProto_Type, keyText, valueText, typeName string) {
		entry := strings.ToUpper(name[:1]) + name[1:] + "Entry"
		f := add(name, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE, ".test.v1.Everything."+entry)
		f.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
		v := &descriptorpb.FieldDescriptorProto{Name: proto.String("value"), Number: proto.Int32(2), Type: value.Enum(), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
		if typeName != "" {
			v.TypeName = proto.String(typeName)
		}
		message.NestedType = append(message.NestedType, &descriptorpb.DescriptorProto{Name: proto.String(entry), Options: &descriptorpb.MessageOptions{MapEntry: proto.Bool(true)},
			Field: []*descriptorpb.FieldDescriptorProto{{Name: proto.String("key"), Number: proto.Int32(1), Type: key.Enum(), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}, v}})
		fmt.Fprintf(&b, "  map<%s, %s> %s = %d;\n", keyText, valueText, name, *f.Number)
	}
	types := []string{"double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "", "test.v1.Everything", "bytes", "uint32", "Color",
		"sfixed32", "sfixed64", "sint32", "sint64", "google.protobuf.Timestamp", "google.protobuf.Duration", "google.protobuf.Value", ".google.protobuf.Struct",
		"google.protobuf.Int64Value", "google.protobuf.StringValue", "google.protobuf.FieldMask"}
	for i, text := range types {
		if text == "" {
			continue
		}
		kind, typeName := descriptorpb.FieldDescriptorProto_TYPE_MESSAGE, ""
		if i < 18 {
			kind = descriptorpb.FieldDescriptorProto_Type(i + 1)
		}
		switch {
		case text == "Color":
			typeName = ".test.v1.Color"
		case kind == descriptorpb.FieldDescriptorProto_TYPE_MESSAGE:
			typeName = "." + strings.TrimPrefix(text, ".")
		}
		word := fmt.Sprintf("a_%d", i)
		fmt.Fprintf(&b, "  %s one_%s = %d;\n", text, word, *add("one_"+word, kind, typeName).Number)
		f := add("many_"+word, kind, typeName)
		f.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
		options := ""
		if i%2 == 0 && kind != descriptorpb.FieldDescriptorProto_TYPE_MESSAGE && i < 8 {
			f.Options, options = &descriptorpb.FieldOptions{Packed: proto.Bool(false)}, " [packed = false]"
		}
		fmt.Fprintf(&b, "  repeated %s many_%s = %d%s;\n", text, word, *f.Number, options)
		mapOf("mapped"+strconv.Itoa(i), descriptorpb.FieldDescriptorProto_TYPE_STRING, kind, "string", text, typeName)
		if i > 1 && i < 18 && !slices.Contains([]string{"test.v1.Everything", "bytes", "Color"}, text) {
			mapOf("keyed"+strconv.Itoa(i), kind, descriptorpb.FieldDescriptorProto_TYPE_BOOL, text, "bool", "")
		}
		later = append(later, func() {
			f := add("choice_"+word, kind, typeName)
			f.OneofIndex = proto.Int32(0)
			oneof = append(oneof, fmt.Sprintf("    %s choice_%s = %d;\n", text, word, *f.Number))
		})
	}
	for _, choice := range later {
		choice()
	}
	for i, kind := range []descriptorpb.FieldDescriptorProto_Type{descriptorpb.FieldDescriptorProto_TYPE_INT32, descriptorpb.FieldDescriptorProto_TYPE_STRING} {
		f := add(fmt.Sprintf("maybe_%d", i), kind, "")
		f.Proto3Optional, f.OneofIndex = proto.Bool(true), proto.Int32(int32(len(message.OneofDecl)))
		message.OneofDecl = append(message.OneofDecl, &descriptorpb.OneofDescriptorProto{Name: proto.String("_" + *f.Name)})
		fmt.Fprintf(&b, "  optional %s maybe_%d = %d;\n", types[kind-1], i, *f.Number)
	}
	f := add("renamed", descriptorpb.FieldDescriptorProto_TYPE_BOOL, "")
	f.JsonName = proto.String("new \"name\"")
	fmt.Fprintf(&b, "  bool renamed = %d [json_name = \"new \\\"name\\\"\"];\n", *f.Number)
	b.WriteString("  oneof choice {\n" + strings.Join(oneof, "") + "  }\n}\n")
	return b.String(), file
}

func linked(t testing.TB, file *descriptorpb.FileDescriptorProto) (protoreflect.FileDescriptor, []byte) {
	t.Helper()
	d, err := protodesc.NewFile(file, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	set := &descriptorpb.FileDescriptorSet{}
	for i := range d.Imports().Len() {
		set.File = append(set.File, protodesc.ToFileDescriptorProto(d.Imports().Get(i)))
	}
	set.File = append(set.File, protodesc.ToFileDescriptorProto(d))
	b, err := proto.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return d, b
}

// randomMessage fills some fields of a message.
func randomMessage(r *rand.Rand, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if r.IntN(6) > 0 || f.Message() != nil && depth > 3 {
			continue
		}
		switch {
		case f.IsMap():
			for range r.IntN(4) {
				m.Mutable(f).Map().Set(randomValue(r, f.MapKey(), nil, depth).MapKey(), randomValue(r, f.MapValue(), m.Mutable(f).Map().NewValue, depth))
			}
		case f.IsList():
			for range r.IntN(4) {
				m.Mutable(f).List().Append(randomValue(r, f, m.Mutable(f).List().NewElement, depth))
			}
		default:
			m.Set(f, randomValue(r, f, func() protoreflect.Value { return m.NewField(f) }, depth))
		}
	}
}

func randomValue(r *rand.Rand, f protoreflect.FieldDescriptor, empty func() protoreflect.Value, depth int) protoreflect.Value {
	texts := []string{"", "a", "é\"\\\n", "\x00\u2028😀", strings.Repeat("long ", 30)}
	bits := r.Uint64() >> r.IntN(64)
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(bits&1 > 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum([]protoreflect.EnumNumber{0, 1, -7, 99}[r.IntN(4)])
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(bits))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(bits))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(int64(bits))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(bits)
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32([]float32{0, 1.5, -0.1, 1e-9, 3e38, 16777217, float32(math.Inf(1)), float32(math.NaN())}[r.IntN(8)])
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64([]float64{0, 1.5, -0.1, 1e-9, 1e300, 1 << 60, math.Inf(-1), math.NaN()}[r.IntN(8)])
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(texts[r.IntN(len(texts))])
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(texts[r.IntN(len(texts))]))
	default:
	}
	v := empty()
	wire := func(m proto.Message) protoreflect.Value {
		b, err := proto.Marshal(m)
		if err != nil {
			panic(err)
		}
		if err := proto.Unmarshal(b, v.Message().Interface()); err != nil {
			panic(err)
		}
		return v
	}
	switch v.Message().Descriptor().FullName() {
	case "google.protobuf.Timestamp":
		return wire(&timestamppb.Timestamp{Seconds: []int64{0, -62135596800, 253402300799, 1767225600}[r.IntN(4)], Nanos: []int32{0, 1, 1000, 1_000_000, 999_999_999}[r.IntN(5)]})
	case "google.protobuf.Duration":
		sign := int32(1 - 2*r.IntN(2))
		return wire(&durationpb.Duration{Seconds: int64(sign) * []int64{0, 1, 315_576_000_000}[r.IntN(3)], Nanos: sign * []int32{0, 1, 1000, 500_000_000}[r.IntN(4)]})
	case "google.protobuf.Value":
		value, err := structpb.NewValue([]any{nil, 1.5, "x", true, []any{1.0, nil, []any{}}, map[string]any{"a": map[string]any{}, "b": "c"}}[r.IntN(6)])
		if err != nil {
			panic(err)
		}
		return wire(value)
	case "google.protobuf.Struct":
		value, err := structpb.NewStruct(map[string]any{"a": 1.0, "b": []any{"x", nil}})
		if err != nil {
			panic(err)
		}
		return wire(value)
	case "google.protobuf.FieldMask":
		return wire(&fieldmaskpb.FieldMask{Paths: []string{"a.b_c", "d"}[:r.IntN(3)]})
	}
	randomMessage(r, v.Message(), depth+1)
	return v
}

// alike compares our JSON with that of protojson, in which 64-bit integers are strings.
func alike(t *testing.T, got []byte, message proto.Message) {
	t.Helper()
	if _, _, err := rawjson.Check(got, nil); err != nil {
		t.Fatalf("%s: %v", got, err)
	}
	want, err := protojson.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(plainValue(t, want), plainValue(t, got)); diff != "" {
		t.Fatalf("protojson has (-), and we (+): %s", diff)
	}
}

func plainValue(t *testing.T, text []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return loose(v)
}

// loose makes numbers of texts that are some, and one form of all numbers.
func loose(v any) any {
	switch v := v.(type) {
	case json.Number:
		if f, err := v.Float64(); err == nil && strings.ContainsAny(v.String(), ".eE") {
			return strconv.FormatFloat(f, 'g', -1, 64)
		}
		return v.String()
	case []any:
		for i := range v {
			v[i] = loose(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = loose(v[name])
		}
	}
	return v
}

// Whatever a message holds, and in whatever order it stands on the wire, the JSON is that of the official library: with the
// schema of a .proto file and with that of a descriptor set.
func TestProtobufAsOfficial(t *testing.T) {
	text, file := everything()
	d, set := linked(t, file)
	official := d.Messages().ByName("Everything")
	schemas := map[string]*Message{
		"text": messageOf(t, schemaOf(t, files{"everything.proto": text}, "everything.proto"), "test.v1.Everything"),
		"set":  messageOf(t, schemaOf(t, files{"everything.desc": string(set)}, "everything.desc"), "test.v1.Everything"),
	}
	r := rand.New(rand.NewPCG(1, 2))
	outOfOrder := 0
	for range 120 {
		var wire []byte
		for range 1 + r.IntN(3) {
			m := dynamicpb.NewMessage(official)
			randomMessage(r, m, 0)
			b, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			if wire != nil {
				outOfOrder++
			}
			wire = append(wire, b...)
		}
		whole := dynamicpb.NewMessage(official)
		if err := proto.Unmarshal(wire, whole); err != nil {
			t.Fatal(err)
		}
		for name, m := range schemas {
			got, err := m.AppendJSON(nil, wire)
			if _, refused := protojson.Marshal(whole); refused != nil {
				if err == nil { // a duration that was merged out of two of different signs
					t.Fatalf("%s: %s, and protojson refuses it: %v", name, got, refused)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			alike(t, got, whole)
		}
	}
	if outOfOrder < 50 {
		t.Errorf("%d messages were out of order", outOfOrder)
	}
}

// The descriptor of descriptors is a proto2 file with many nested types; a set of it is read with itself.
func TestProtobufOfDescriptors(t *testing.T) {
	file := protodesc.ToFileDescriptorProto(descriptorpb.File_google_protobuf_descriptor_proto)
	wire, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{file}})
	if err != nil {
		t.Fatal(err)
	}
	m := messageOf(t, schemaOf(t, files{"d.pb": string(wire)}, "d.pb"), "google.protobuf.FileDescriptorSet")
	got, err := m.AppendJSON(nil, wire)
	if err != nil {
		t.Fatal(err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(wire, &set); err != nil {
		t.Fatal(err)
	}
	alike(t, got, &set)
}

const feedProto = `syntax = "proto2";
package transit;
import "common/place.proto";
option java_package = "com.example";
message Feed {
  required Header header = 1;
  repeated Entity entity = 2;
  extensions 1000 to 1999;
  message Header { required string version = 1; optional uint64 timestamp = 2; repeated int32 counts = 3; }
}
message Entity {
  required string id = 1;
  optional common.Place place = 2;
  optional group Extra = 3 { optional int32 n = 1; }
  enum State { option allow_alias = true; ON = 0; AN = 0; OFF = 1; }
  repeated State states = 4;
}
extend Feed { optional string note = 1001; }
`

var feedFiles = files{"protos/feed.proto": feedProto, "protos/common/place.proto": `syntax = "proto3"; package common; message Place { double lat = 1; double lon = 2; int32 zoom = 3; repeated string tags = 4; map<string, int64> by = 5; }`}

func tagged(number protowire.Number, value any) []byte {
	switch v := value.(type) {
	case int:
		return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), uint64(v))
	case string:
		return protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), v)
	case []byte:
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), v)
	}
	panic("no such kind")
}

func wireOf(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func feedWire() []byte {
	group := append(protowire.AppendTag(nil, 3, protowire.StartGroupType), tagged(1, 5)...)
	group = protowire.AppendTag(group, 3, protowire.EndGroupType)
	return wireOf(
		tagged(1, wireOf(tagged(1, "2.0"), tagged(2, -1), tagged(3, 7), tagged(3, []byte{8, 9}))),
		tagged(2, wireOf(tagged(1, "a"), tagged(4, 0), tagged(4, 1), tagged(4, 7))),
		tagged(1001, "hello"),
		tagged(2, wireOf(tagged(1, "b"), tagged(2, wireOf(tagged(3, 4), tagged(5, wireOf(tagged(1, "k"), tagged(2, 1))), tagged(5, wireOf(tagged(2, 2))))), group, tagged(99, "unknown"))),
	)
}

const (
	feedHeader   = `"header":{"version":"2.0","timestamp":18446744073709551615,"counts":[7,8,9]}`
	feedEntities = `{"id":"a","states":["ON","OFF",7]},{"id":"b","place":{"zoom":4,"by":{"k":1,"":2}},"extra":{"n":5}}`
)

func TestProtobufMessage(t *testing.T) {
	m := messageOf(t, schemaOf(t, feedFiles, "protos/feed.proto"), "transit.Feed")
	decodes(t, Config{Format: Protobuf, Message: m}, []decodeCase{
		{string(feedWire()), "{" + feedHeader + `,"entity":[` + feedEntities + `],"[transit.note]":"hello"}` + "\n"},
		{"", "{}\n"},
		{"<html>", "decode.syntax: byte 0: bytes that are no field in transit.Feed\n"},
		{"\x0a\x05ab", "decode.syntax: byte 0: the message ends too early in transit.Feed\n"},
		{"\x0a\x03\x0a\x01\xff", "decode.utf8: byte 0: a text that is not UTF-8 in version of transit.Feed.Header\n"},
		{"\x00\x00", "decode.syntax: byte 0: a field number that there cannot be in transit.Feed\n"},
	})
	decodes(t, Config{Format: Protobuf, Message: m, Invalid: InvalidReplace}, []decodeCase{
		{"\x0a\x03\x0a\x01\xff", `{"header":{"version":"` + "\uFFFD\"}}\n"},
	})
	decodes(t, Config{Format: Protobuf, Message: messageOf(t, m.schema, "common.Place"), Defaults: true}, []decodeCase{
		{"", `{"lat":0,"lon":0,"zoom":0,"tags":[],"by":{}}` + "\n"},
		{string(tagged(3, 1)), `{"lat":0,"lon":0,"zoom":1,"tags":[],"by":{}}` + "\n"},
		{string(wireOf(tagged(4, "x"), tagged(3, 1))), `{"lat":0,"lon":0,"zoom":1,"tags":["x"],"by":{}}` + "\n"},
		{string(wireOf(tagged(5, ""), tagged(5, tagged(2, 3)))), `{"lat":0,"lon":0,"zoom":0,"tags":[],"by":{"":3}}` + "\n"},
	})
	decodes(t, Config{Format: Protobuf, Message: m, Limits: Limits{Item: 40, Depth: 2}}, []decodeCase{
		{string(tagged(1, tagged(1, strings.Repeat("\x01", 20)))), "decode.too_large: byte 0: an item of more than 40 bytes as JSON; the limit of an item allows more\n"},
		{string(tagged(1, tagged(1, strings.Repeat("a", 50)))), "decode.too_large: byte 0: an item of more than 40 bytes; the limit of an item allows more\n"},
		{string(tagged(2, tagged(2, ""))), "decode.depth: byte 0: nested too deep\n"},
	})
}

func TestProtobufList(t *testing.T) {
	m := messageOf(t, schemaOf(t, feedFiles, "protos/feed.proto"), "transit.Feed")
	c := Config{Format: Protobuf, Message: m, List: true, Path: []string{"entity"}}
	decodes(t, c, []decodeCase{
		{string(feedWire()), strings.Replace(feedEntities, "},{", "}\n{", 1) + "\nrest {" + feedHeader + `,"[transit.note]":"hello"}` + "\n"},
		{"", "rest {}\n"},
		{string(tagged(2, tagged(1, "a"))) + "\x12\x04\x0a", "{\"id\":\"a\"}\ndecode.syntax: byte 8: the message ends too early\n"},
		{string(tagged(2, "\x0f")), "decode.syntax: byte 0: bytes that are no field in transit.Entity\n"},
		{"{\"error\":1}", "decode.syntax: byte 11: the message ends too early\n"},
		{"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "decode.syntax: byte 0: bytes that are no field in transit.Feed\n"},
	})
	c.Path = []string{"header", "counts"}
	decodes(t, c, []decodeCase{
		{string(feedWire()), "7\n8\n9\nrest {" + `"header":{"version":"2.0","timestamp":18446744073709551615},"entity":[` + feedEntities + `],"[transit.note]":"hello"}` + "\n"},
		{string(tagged(1, "\x18")), "decode.syntax: byte 3: the message ends too early\n"},
		{"\x0a\x01\x1a\x01\x01", "decode.syntax: byte 2: a field that reaches beyond its message in transit.Feed\n"},
		{string(tagged(1, "")), "rest {\"header\":{}}\n"},
	})
	c.Limits.Item = 10
	decodes(t, c, []decodeCase{
		{string(tagged(1001, strings.Repeat("x", 20))), "decode.too_large: byte 0: an item of more than 10 bytes; the limit of an item allows more\n"},
		{string(bytes.Repeat(tagged(1001, "x"), 4)), "decode.too_large: byte 12: more than 10 bytes around the list of items; the limit of an item allows more\n"},
	})
}

func TestProtobufDelimited(t *testing.T) {
	m := messageOf(t, schemaOf(t, feedFiles, "protos/feed.proto"), "transit.Entity")
	one := protowire.AppendBytes(nil, tagged(1, "a"))
	decodes(t, Config{Format: Protobuf, Message: m, Delimited: true}, []decodeCase{
		{string(wireOf(one, []byte{0}, one)), "{\"id\":\"a\"}\n{}\n{\"id\":\"a\"}\n"},
		{"", ""},
		{string(one) + "\x03\x0a", "{\"id\":\"a\"}\ndecode.syntax: byte 6: the message ends too early\n"},
		{string(one) + "\x01\x0f", "{\"id\":\"a\"}\ndecode.syntax: byte 4: bytes that are no field in transit.Entity\n"},
		{"\xff\xff\xff\xff\x0f", "decode.too_large: byte 0: an item of more than 64 MiB; the limit of an item allows more\n"},
	})
}

func TestProtobufAny(t *testing.T) {
	s := schemaOf(t, files{"a.proto": `syntax = "proto3"; import "google/protobuf/any.proto"; import "google/protobuf/duration.proto";
		message Box { google.protobuf.Any content = 1; } message Ball { int32 size = 1; }`}, "a.proto")
	m := messageOf(t, s, "Box")
	duration, err := anypb.New(durationpb.New(1500000000))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want string
		any  *anypb.Any
	}{
		{`{"content":{"@type":"type.googleapis.com/Ball","size":3}}`, &anypb.Any{TypeUrl: "type.googleapis.com/Ball", Value: tagged(1, 3)}},
		{`{"content":{"@type":"type.googleapis.com/Ball"}}`, &anypb.Any{TypeUrl: "type.googleapis.com/Ball"}},
		{`{"content":{"@type":"type.googleapis.com/google.protobuf.Duration","value":"1.500s"}}`, duration},
		{`{"content":{"@type":"x/Unknown","value":"CAM="}}`, &anypb.Any{TypeUrl: "x/Unknown", Value: tagged(1, 3)}},
		{`{"content":{}}`, &anypb.Any{}},
	} {
		b, err := proto.Marshal(c.any)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := m.AppendJSON(nil, tagged(1, b)); err != nil || string(got) != c.want {
			t.Errorf("got %s, %v; want %s", got, err, c.want)
		}
	}
}

func TestProtobufFilesThatAreWrong(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"syntax = \"proto3\";\nmessage A { int32 a 1; }", "x.proto:2:21: "},
		{"syntax = \"proto3\";\nmessage A { Missing a = 1; }", "x.proto:2:13: there is no type Missing"},
		{"import \"other.proto\";\nmessage A { optional Missing a = 1; }", "there is no type Missing; these imports are not there: other.proto"},
		{"message A { optional int32 a = 1; optional int32 b = 1; }", "x.proto:1:44: A has two fields with the number 1"},
		{"message A {} message A {}", "A is declared twice"},
		{"message A { optional int32 a = 0; }", "the number 0 of field a is outside of 1 to 536870911"},
		{"enum A { B = 4294967296; }", "the number of B has more than 32 bits"},
		{"message A {", "x.proto:1:12: "},
	} {
		if _, err := ReadSchema("x.proto", files{"x.proto": c.text}.read); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.text, err, c.want)
		}
	}
	for name, text := range (files{"x.desc": "text", "y.desc": "", "z.desc": feedProto}) {
		if _, err := ReadSchema(name, files{name: text}.read); err == nil || !strings.Contains(err.Error(), "the file is no descriptor set") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := ReadSchema("no.proto", files{}.read); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	s, err := ReadSchemas([]string{"protos/feed.proto", "protos/common/place.proto", "protos/feed.proto"}, feedFiles.read)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"Feed":  `did you mean "transit.Feed"?`,
		"other": "there are common.Place, transit.Entity, transit.Entity.Extra, transit.Feed, transit.Feed.Header",
	} {
		if _, err := s.Message(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	feed := messageOf(t, s, "transit.Feed")
	for want, c := range map[string]Config{
		"needs a message type":                                 {},
		"names a repeated field of transit.Feed":               {Message: feed, List: true},
		`transit.Feed has no field "e"; it has header, entity`: {Message: feed, List: true, Path: []string{"e"}},
		`the field "header" of transit.Feed is not repeated`:   {Message: feed, List: true, Path: []string{"header"}},
		`the field "entity" of transit.Feed is not a single`:   {Message: feed, List: true, Path: []string{"entity", "id"}},
		"a stream of messages is a list already":               {Message: feed, List: true, Delimited: true},
	} {
		c.Format = Protobuf
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}
