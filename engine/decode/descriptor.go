package decode

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// descriptors reads a FileDescriptorSet. The numbers are those of google/protobuf/descriptor.proto.
func (l *linker) descriptors(file string) error {
	data, err := l.read(file)
	if err != nil {
		return err
	}
	wrong := fmt.Errorf("%s: the file is no descriptor set; protoc --include_imports --descriptor_set_out writes one, and a text is called .proto", file)
	files := 0
	err = eachField(data, func(number int, b []byte, _ uint64) error {
		if number != 1 || b == nil {
			return errNoDescriptor
		}
		files++
		return l.fileDescriptor(file, b)
	})
	if errors.Is(err, errNoDescriptor) || err == nil && files == 0 {
		return wrong
	}
	return err
}

var errNoDescriptor = errors.New("no descriptor")

// eachField visits the fields of a message: what a length-delimited one holds, or the number of any other.
func eachField(wire []byte, visit func(number int, b []byte, v uint64) error) error {
	for len(wire) > 0 {
		number, t, n := protowire.ConsumeTag(wire)
		if n < 0 {
			return errNoDescriptor
		}
		wire = wire[n:]
		var b []byte
		var v uint64
		switch t {
		case protowire.BytesType:
			if b, n = protowire.ConsumeBytes(wire); b == nil {
				b = []byte{}
			}
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(wire)
		default:
			n = protowire.ConsumeFieldValue(number, t, wire)
		}
		if n < 0 {
			return errNoDescriptor
		}
		wire = wire[n:]
		if err := visit(int(number), b, v); err != nil {
			return err
		}
	}
	return nil
}

// described is one FileDescriptorProto.
type described struct {
	linker   *linker
	file     string
	implicit bool
}

func (l *linker) fileDescriptor(file string, wire []byte) error {
	f := &described{linker: l, file: file}
	name, pack := "", ""
	err := eachField(wire, func(number int, b []byte, _ uint64) error {
		switch number {
		case 1:
			name = string(b)
		case 2:
			pack = string(b)
		case 8: // options
			return eachField(b, func(number int, b []byte, _ uint64) error {
				if number == 50 {
					return f.presence(b, &f.implicit)
				}
				return nil
			})
		case 12: // syntax
			f.implicit = string(b) == "proto3"
		}
		return nil
	})
	if err != nil {
		return err
	}
	if l.done[name] {
		return nil
	}
	l.done[name] = true
	return eachField(wire, func(number int, b []byte, _ uint64) error {
		switch number {
		case 4:
			return f.message(b, pack)
		case 5:
			return f.enum(b, pack)
		case 7:
			return f.field(b, nil, pack)
		}
		return nil
	})
}

// presence reads the feature field_presence of a FeatureSet.
func (f *described) presence(wire []byte, implicit *bool) error {
	return eachField(wire, func(number int, _ []byte, v uint64) error {
		if number == 1 {
			*implicit = v == 2
		}
		return nil
	})
}

func (f *described) message(wire []byte, scope string) error {
	name, entry := "", false
	err := eachField(wire, func(number int, b []byte, _ uint64) error {
		switch number {
		case 1:
			name = within(scope, string(b))
		case 7: // options
			return eachField(b, func(number int, _ []byte, v uint64) error {
				entry = entry || number == 7 && v != 0
				return nil
			})
		}
		return nil
	})
	if err != nil {
		return err
	}
	m, err := f.linker.message(name, f.file)
	if err != nil {
		return err
	}
	m.entry = entry
	return eachField(wire, func(number int, b []byte, _ uint64) error {
		switch number {
		case 2:
			return f.field(b, m, name)
		case 3:
			return f.message(b, name)
		case 4:
			return f.enum(b, name)
		case 6:
			return f.field(b, nil, name)
		}
		return nil
	})
}

func (f *described) enum(wire []byte, scope string) error {
	var declared *enum
	return eachField(wire, func(number int, b []byte, _ uint64) (err error) {
		switch {
		case number == 1 && declared == nil:
			declared, err = f.linker.enum(within(scope, string(b)), f.file)
		case number == 2 && declared != nil:
			label, value := "", uint64(0)
			err = eachField(b, func(number int, b []byte, v uint64) error {
				switch number {
				case 1:
					label = string(b)
				case 2:
					value = v
				}
				return nil
			})
			declared.add(label, int32(value))
		}
		return err
	})
}

func (f *described) field(wire []byte, owner *Message, scope string) error {
	d := &declaration{owner: owner, scope: scope, place: f.file}
	d.implicit = f.implicit
	const labelRepeated = 3
	explicit := false
	err := eachField(wire, func(number int, b []byte, v uint64) error {
		switch number {
		case 1:
			d.name = string(b)
		case 2:
			d.extendee = string(b)
		case 3:
			d.number = int(int32(v))
		case 4:
			d.repeated = v == labelRepeated
		case 5:
			d.kind = kind(v)
		case 6:
			d.typeName = string(b)
		case 8: // options
			return eachField(b, func(number int, b []byte, _ uint64) error {
				if number == 21 {
					return f.presence(b, &d.implicit)
				}
				return nil
			})
		case 9:
			d.oneof = int(int32(v)) + 1
		case 10:
			d.json = string(b)
		case 17: // proto3_optional, which is a oneof of its own
			explicit = v != 0
		}
		return nil
	})
	if err != nil {
		return err
	}
	if owner == nil && d.extendee == "" {
		return errNoDescriptor
	}
	if d.json == "" {
		d.json = jsonName(d.name)
	}
	if d.extendee != "" {
		d.json = "[" + within(scope, d.name) + "]"
	}
	if d.typeName != "" && !strings.HasPrefix(d.typeName, ".") {
		d.typeName = "." + d.typeName
	}
	d.implicit = d.repeated || d.implicit && !explicit && d.oneof == 0 && d.extendee == ""
	f.linker.loose = append(f.linker.loose, d)
	return nil
}
