package decode

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

// Schema is what a .proto file, or a descriptor set, declares, with all that it imports. It never changes once it is read.
type Schema struct {
	messages map[string]*Message
	enums    map[string]*enum
	missing  []string // imports that are not there
}

// ReadSchema reads a .proto file with what it imports, or a binary FileDescriptorSet as protoc --descriptor_set_out
// --include_imports writes it: a text has a name that ends in .proto. read opens a file by its name; an import is looked for
// beside the file, then in the folders above it. The types of google/protobuf are known without being there.
//
// Errors are for whoever wrote the file: in a .proto they begin with file:line:column.
func ReadSchema(file string, read func(name string) ([]byte, error)) (*Schema, error) {
	return ReadSchemas([]string{file}, read)
}

// ReadSchemas reads several files as one schema.
func ReadSchemas(list []string, read func(name string) ([]byte, error)) (*Schema, error) {
	l := linker{schema: &Schema{messages: map[string]*Message{}, enums: map[string]*enum{}}, read: read, done: map[string]bool{}}
	for _, file := range list {
		load := l.descriptors
		if strings.HasSuffix(file, ".proto") {
			load = l.proto
		}
		if err := load(file); err != nil {
			return nil, err
		}
	}
	if err := l.link(); err != nil {
		return nil, err
	}
	return l.schema, nil
}

// Message finds a type by its full name, such as transit_realtime.FeedMessage.
func (s *Schema) Message(name string) (*Message, error) {
	if m := s.messages[strings.TrimPrefix(name, ".")]; m != nil {
		return m, nil
	}
	hint := ""
	var names []string
	for full, m := range s.messages {
		if m.entry || strings.HasPrefix(full, wellKnownPackage) {
			continue
		}
		if strings.HasSuffix(full, "."+name) {
			hint = fmt.Sprintf("; did you mean %q?", full)
		}
		names = append(names, full)
	}
	if slices.Sort(names); hint == "" && len(names) > 0 && len(names) <= 12 {
		hint = "; there are " + strings.Join(names, ", ")
	}
	return nil, fmt.Errorf("the file declares no message %q%s", name, hint)
}

// Message is a message type.
type Message struct {
	name     string
	fields   []field   // by number
	dense    [64]int32 // from 1
	sparse   map[int]int32
	entry    bool // of a map: fields 1 and 2 are the key and the value
	form     wellKnown
	implicit bool // some field has a default that is not on the wire
	schema   *Schema
}

// Name is the full name.
func (m *Message) Name() string { return m.name }

type enum struct {
	name   string
	labels map[int32][]byte // with quotes
	first  int32
	null   bool // google.protobuf.NullValue, which is null
}

// kind is the type of a field, as descriptors number it.
type kind uint8

const (
	kindDouble kind = iota + 1
	kindFloat
	kindInt64
	kindUint64
	kindInt32
	kindFixed64
	kindFixed32
	kindBool
	kindString
	kindGroup
	kindMessage
	kindBytes
	kindUint32
	kindEnum
	kindSfixed32
	kindSfixed64
	kindSint32
	kindSint64
)

var kindNames = map[string]kind{
	"double": kindDouble, "float": kindFloat, "int64": kindInt64, "uint64": kindUint64, "int32": kindInt32,
	"fixed64": kindFixed64, "fixed32": kindFixed32, "bool": kindBool, "string": kindString, "bytes": kindBytes,
	"uint32": kindUint32, "sfixed32": kindSfixed32, "sfixed64": kindSfixed64, "sint32": kindSint32, "sint64": kindSint64,
}

type field struct {
	name, json string
	label      []byte // the name in JSON, with quotes and colon
	number     int
	index      int // in Message.fields
	kind       kind
	repeated   bool // maps too
	oneof      int  // from 1; 0 is none
	implicit   bool // what is not on the wire has the default
	message    *Message
	enum       *enum
}

func (f *field) isMap() bool { return f.message != nil && f.message.entry && f.repeated }

// look finds a field by its number.
func (m *Message) look(number int) *field {
	i := int32(-1)
	if number < len(m.dense) {
		i = m.dense[number] - 1
	} else if at, ok := m.sparse[number]; ok {
		i = at
	}
	if i < 0 {
		return nil
	}
	return &m.fields[i]
}

// inJSON finds a field by its name in JSON.
func (m *Message) inJSON(name string) *field {
	for i := range m.fields {
		if f := &m.fields[i]; f.json == name {
			return f
		}
	}
	return nil
}

// linker collects what files declare, then ties names to types.
type linker struct {
	schema *Schema
	read   func(string) ([]byte, error)
	done   map[string]bool // files, by their names and by the names that they have in import statements
	loose  []*declaration
}

// declaration is a field whose type is not resolved.
type declaration struct {
	field
	owner    *Message // nil for an extension
	extendee string
	typeName string // of a message or enum, as written
	scope    string // where names are looked for first
	place    string // for errors
}

func (l *linker) message(name, place string) (*Message, error) {
	if l.schema.messages[name] != nil || l.schema.enums[name] != nil {
		return nil, fmt.Errorf("%s: %s is declared twice", place, name)
	}
	m := &Message{name: name, form: wellKnownForms[name], schema: l.schema}
	l.schema.messages[name] = m
	return m, nil
}

func (l *linker) enum(name, place string) (*enum, error) {
	if l.schema.messages[name] != nil || l.schema.enums[name] != nil {
		return nil, fmt.Errorf("%s: %s is declared twice", place, name)
	}
	e := &enum{name: name, labels: map[int32][]byte{}, null: name == wellKnownPackage+"NullValue"}
	l.schema.enums[name] = e
	return e, nil
}

func (e *enum) add(label string, number int32) {
	if len(e.labels) == 0 {
		e.first = number
	}
	if e.labels[number] == nil { // the first of several names of a number counts
		e.labels[number] = rawjson.AppendString(nil, label)
	}
}

// open reads an import.
func (l *linker) open(name, from string) (data []byte, file string, err error) {
	for dir := path.Dir(from); ; dir = path.Dir(dir) {
		file = path.Join(dir, name)
		if data, err = l.read(file); err == nil || !errors.Is(err, fs.ErrNotExist) {
			return data, file, err
		}
		if dir == "." || dir == "/" || dir == ".." || strings.HasSuffix(dir, "/..") {
			return nil, "", err
		}
	}
}

// link resolves the types of all fields and makes the tables of all messages.
func (l *linker) link() error {
	for i := 0; i < len(l.loose); i++ { // which may grow
		d := l.loose[i]
		if d.extendee != "" {
			if d.owner = l.schema.messages[resolve(d.extendee, d.scope, l.declared)]; d.owner == nil {
				continue // custom options mostly, which no message carries
			}
		}
		if d.typeName != "" {
			full := resolve(d.typeName, d.scope, l.declared)
			if !l.declared(full) && strings.HasPrefix(full, wellKnownPackage) {
				if err := l.wellKnown(); err != nil {
					return err
				}
			}
			d.message, d.enum = l.schema.messages[full], l.schema.enums[full]
			switch {
			case d.enum != nil:
				d.kind = kindEnum
			case d.message != nil:
				if d.kind = kindMessage; !d.repeated {
					d.implicit = false
				}
			default:
				return fmt.Errorf("%s: there is no type %s%s", d.place, d.typeName, l.absent())
			}
		}
		switch {
		case d.number < 1 || d.number > 1<<29-1:
			return fmt.Errorf("%s: the number %d of field %s is outside of 1 to %d", d.place, d.number, d.name, 1<<29-1)
		case d.kind < kindDouble || d.kind > kindSint64:
			return fmt.Errorf("%s: field %s has no type", d.place, d.name)
		}
		d.label = append(rawjson.AppendString(nil, d.json), ':')
		if d.owner.numbered(d.number) {
			return fmt.Errorf("%s: %s has two fields with the number %d", d.place, d.owner.name, d.number)
		}
		d.owner.fields = append(d.owner.fields, d.field)
	}
	for _, m := range l.schema.messages {
		m.index()
	}
	return nil
}

func (l *linker) declared(name string) bool {
	return l.schema.messages[name] != nil || l.schema.enums[name] != nil
}

func (l *linker) absent() string {
	if len(l.schema.missing) == 0 {
		return ""
	}
	return "; these imports are not there: " + strings.Join(l.schema.missing, ", ")
}

func (m *Message) numbered(number int) bool {
	return slices.ContainsFunc(m.fields, func(f field) bool { return f.number == number })
}

func (m *Message) index() {
	slices.SortFunc(m.fields, func(a, b field) int { return a.number - b.number })
	for i := range m.fields {
		f := &m.fields[i]
		m.implicit, f.index = m.implicit || f.implicit, i
		if f.number < len(m.dense) {
			m.dense[f.number] = int32(i + 1)
			continue
		}
		if m.sparse == nil {
			m.sparse = map[int]int32{}
		}
		m.sparse[f.number] = int32(i)
	}
}

// resolve finds the full name that name stands for in scope: the innermost one that is declared.
func resolve(name, scope string, declared func(string) bool) string {
	if full, ok := strings.CutPrefix(name, "."); ok {
		return full
	}
	for scope != "" {
		if full := scope + "." + name; declared(full) {
			return full
		}
		i := strings.LastIndexByte(scope, '.')
		scope = scope[:max(i, 0)]
	}
	return name
}

// jsonName is the name of a field in JSON, as protoc makes it.
func jsonName(name string) string {
	b := make([]byte, 0, len(name))
	upper := false
	for i := range len(name) {
		c := name[i]
		if c == '_' {
			upper = true
			continue
		}
		if upper && 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		upper = false
		b = append(b, c)
	}
	return string(b)
}
