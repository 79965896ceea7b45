package decode

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/emicklei/proto"
)

// protoFile is one .proto file while it is read.
type protoFile struct {
	linker   *linker
	name     string
	pack     string
	implicit bool // fields have no presence of their own, as in proto3
}

// proto reads a .proto file and all that it imports.
func (l *linker) proto(file string) error {
	data, err := l.read(file)
	if err != nil {
		return err
	}
	return l.protoText(file, file, data)
}

// protoText reads the text of a file, which import statements call name.
func (l *linker) protoText(name, file string, data []byte) error {
	if l.done[name] || l.done[path.Clean(file)] {
		return nil
	}
	l.done[name], l.done[path.Clean(file)] = true, true
	parser := proto.NewParser(bytes.NewReader(data))
	parser.Filename(file)
	tree, err := parser.Parse()
	if err != nil {
		return fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "proto: "))
	}
	f := &protoFile{linker: l, name: file}
	for _, e := range tree.Elements {
		switch e := e.(type) {
		case *proto.Syntax:
			f.implicit = e.Value == "proto3"
		case *proto.Option:
			if e.Name == "features.field_presence" {
				f.implicit = e.Constant.Source == "IMPLICIT"
			}
		case *proto.Package:
			f.pack = e.Name
		case *proto.Import:
			if err := l.imports(e.Filename, file); err != nil {
				return err
			}
		}
	}
	return f.elements(tree.Elements, f.pack)
}

// imports reads an import. One that is not there is an error only where a type of it is missed, since many declare nothing but
// options.
func (l *linker) imports(name, from string) error {
	if l.done[name] {
		return nil
	}
	data, file, err := l.open(name, from)
	if errors.Is(err, fs.ErrNotExist) {
		if text := wellKnownFiles[name]; text != "" {
			return l.protoText(name, name, []byte(text))
		}
		l.schema.missing = append(l.schema.missing, name)
		return nil
	}
	if err != nil {
		return err
	}
	return l.protoText(name, file, data)
}

// wellKnown declares those types of google/protobuf that no file has declared.
func (l *linker) wellKnown() error {
	for _, name := range slices.Sorted(maps.Keys(wellKnownFiles)) {
		if err := l.protoText(name, name, []byte(wellKnownFiles[name])); err != nil {
			return err
		}
	}
	return nil
}

func (f *protoFile) place(line, column int) string {
	return fmt.Sprintf("%s:%d:%d", f.name, line, column)
}

func within(scope, name string) string {
	if scope == "" {
		return name
	}
	return scope + "." + name
}

// elements declares what stands at the top of a file or in a message.
func (f *protoFile) elements(list []proto.Visitee, scope string) error {
	for _, e := range list {
		var err error
		switch e := e.(type) {
		case *proto.Message:
			if e.IsExtend {
				err = f.fields(e.Elements, nil, scope, e.Name)
			} else {
				err = f.message(e.Elements, within(scope, e.Name), f.place(e.Position.Line, e.Position.Column))
			}
		case *proto.Enum:
			err = f.enum(e, within(scope, e.Name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *protoFile) message(list []proto.Visitee, name, place string) error {
	m, err := f.linker.message(name, place)
	if err != nil {
		return err
	}
	if err := f.fields(list, m, name, ""); err != nil {
		return err
	}
	return f.elements(list, name)
}

func (f *protoFile) enum(e *proto.Enum, name string) error {
	declared, err := f.linker.enum(name, f.place(e.Position.Line, e.Position.Column))
	if err != nil {
		return err
	}
	for _, element := range e.Elements {
		if v, ok := element.(*proto.EnumField); ok {
			if v.Integer < math.MinInt32 || v.Integer > math.MaxInt32 {
				return fmt.Errorf("%s: the number of %s has more than 32 bits", f.place(v.Position.Line, v.Position.Column), v.Name)
			}
			declared.add(v.Name, int32(v.Integer))
		}
	}
	return nil
}

// fields declares the fields of a message, or those that extend another one.
func (f *protoFile) fields(list []proto.Visitee, owner *Message, scope, extendee string) error {
	oneof := 0
	for _, e := range list {
		switch e := e.(type) {
		case *proto.NormalField:
			f.field(e.Field, owner, scope, extendee, shape{repeated: e.Repeated, explicit: e.Optional || e.Required})
		case *proto.Oneof:
			oneof++
			for _, e := range e.Elements {
				switch e := e.(type) {
				case *proto.OneOfField:
					f.field(e.Field, owner, scope, extendee, shape{oneof: oneof, explicit: true})
				case *proto.Group:
					if err := f.group(e, owner, scope, extendee, shape{oneof: oneof, explicit: true}); err != nil {
						return err
					}
				}
			}
		case *proto.MapField:
			if err := f.mapping(e, owner, scope); err != nil {
				return err
			}
		case *proto.Group:
			if err := f.group(e, owner, scope, extendee, shape{repeated: e.Repeated, explicit: true}); err != nil {
				return err
			}
		}
	}
	return nil
}

// shape is how a field stands in its message.
type shape struct {
	repeated bool
	oneof    int
	explicit bool // it can be told from its default
}

func (f *protoFile) field(e *proto.Field, owner *Message, scope, extendee string, s shape) *declaration {
	d := &declaration{owner: owner, extendee: extendee, scope: scope, place: f.place(e.Position.Line, e.Position.Column)}
	d.name, d.json, d.number, d.repeated, d.oneof = e.Name, jsonName(e.Name), e.Sequence, s.repeated, s.oneof
	d.implicit = s.repeated || f.implicit && !s.explicit && extendee == ""
	for _, o := range e.Options {
		switch o.Name {
		case "json_name":
			if d.json = o.Constant.Source; strings.Contains(d.json, `\`) {
				if text, err := strconv.Unquote(`"` + d.json + `"`); err == nil {
					d.json = text
				}
			}
		case "features.field_presence":
			d.implicit = s.repeated || o.Constant.Source == "IMPLICIT"
		}
	}
	if extendee != "" {
		d.json = "[" + within(scope, e.Name) + "]"
	}
	// In a oneof the parser takes the semicolon before a name that begins with a dot for a part of it.
	if d.kind = kindNames[e.Type]; d.kind == 0 {
		d.typeName = strings.TrimPrefix(e.Type, ";")
	}
	f.linker.loose = append(f.linker.loose, d)
	return d
}

// group declares the type of a group and the field that holds it.
func (f *protoFile) group(e *proto.Group, owner *Message, scope, extendee string, s shape) error {
	f.field(&proto.Field{Position: e.Position, Name: strings.ToLower(e.Name), Type: e.Name, Sequence: e.Sequence}, owner, scope, extendee, s)
	return f.message(e.Elements, within(scope, e.Name), f.place(e.Position.Line, e.Position.Column))
}

// mapping declares a map, which on the wire is a repeated message of keys and values.
func (f *protoFile) mapping(e *proto.MapField, owner *Message, scope string) error {
	place := f.place(e.Position.Line, e.Position.Column)
	entry, err := f.linker.message(within(scope, "["+e.Name+"]"), place)
	if err != nil {
		return err
	}
	entry.entry = true
	value := &proto.Field{Position: e.Position, Name: "value", Type: e.Type, Sequence: 2}
	f.field(&proto.Field{Position: e.Position, Name: "key", Type: e.KeyType, Sequence: 1}, entry, scope, "", shape{})
	f.field(value, entry, scope, "", shape{})
	outer := *e.Field
	outer.Type = "." + entry.name
	f.field(&outer, owner, scope, "", shape{repeated: true})
	return nil
}
