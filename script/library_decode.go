package script

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/dop251/goja"
	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/file"

	"github.com/flechtwerk/flechtwerk/engine/decode"
	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

// content is what readers read: the body of an answer, or a member of a zip. noJSON throws that it is no JSON; nil says so as
// json.parse does.
type content struct {
	data   func() []byte
	noJSON func()
}

// reader reads a content in a format.
type reader struct {
	name   string
	length int
	read   func(v *vm, c *content, call goja.FunctionCall) goja.Value
}

// contentReaders are the readers that every content has, in the order of its members.
func contentReaders() []reader {
	return []reader{
		{"bytes", 0, func(v *vm, c *content, _ goja.FunctionCall) goja.Value { return v.bytes(c.data()) }},
		{"text", 0, func(v *vm, c *content, _ goja.FunctionCall) goja.Value {
			return v.rt.ToValue(strings.ToValidUTF8(string(withoutMark(c.data())), "\uFFFD"))
		}},
		{"json", 0, func(v *vm, c *content, _ goja.FunctionCall) goja.Value {
			raw := c.data()
			if c.noJSON == nil {
				return v.parseJSON("json", raw)
			}
			raw = withoutMark(raw)
			if _, _, err := rawjson.Check(raw, nil); err != nil {
				c.noJSON()
			}
			return v.values.decode(trim(raw))
		}},
		{"ndjson", 0, func(v *vm, c *content, _ goja.FunctionCall) goja.Value {
			return v.walkItems("ndjson", c.data(), decode.Config{Format: decode.NDJSON})
		}},
		{"lines", 1, func(v *vm, c *content, call goja.FunctionCall) goja.Value { return v.lines(c.data(), call.Argument(0)) }},
		{"csv", 1, func(v *vm, c *content, call goja.FunctionCall) goja.Value {
			const function = "csv"
			next := v.csvRows(function, bytes.NewReader(c.data()), v.csvOptions(function, call.Argument(0)))
			return v.walk(func() goja.Value {
				if row := next(); row != nil {
					return row
				}
				return goja.Undefined()
			})
		}},
		{"xml", 1, func(v *vm, c *content, call goja.FunctionCall) goja.Value {
			return v.tree("xml", c.data(), call.Argument(0), false)
		}},
		{"protobuf", 2, func(v *vm, c *content, call goja.FunctionCall) goja.Value {
			const function = "protobuf"
			return v.decodeMessage(function, v.messageType(function, call.Argument(0)), c.data(), call.Argument(1))
		}},
		{"unzip", 1, func(v *vm, c *content, call goja.FunctionCall) goja.Value {
			return v.entries(c.data(), call.Argument(0))
		}},
	}
}

// misread throws what engine/decode says of a body.
func (v *vm) misread(function string, err error) {
	var wrong *decode.Error
	if !errors.As(err, &wrong) {
		must(err)
	}
	said := *wrong
	said.Hint = "" // it speaks of the keys of a pipeline
	class, code := "SyntaxError", codeSyntax
	switch wrong.Code {
	case decode.CodeTooLarge:
		class, code = "RangeError", codeTooLarge
	case decode.CodeDepth:
		class, code = "RangeError", codeDepth
	case decode.CodeUTF8:
		class, code = "TypeError", codeUTF8
	}
	v.raise(class, code, "%s: %v", function, &said)
}

// itemsOf answers a function that answers the next item of a body, and nil at the end.
func (v *vm) itemsOf(function string, data []byte, c decode.Config) func() goja.Value {
	d, err := decode.New(c)
	must(err)
	items := d.Open(bytes.NewReader(data))
	return func() goja.Value {
		item, err := items.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			v.misread(function, err)
		}
		return v.values.decode(bytes.Clone(item.JSON))
	}
}

func (v *vm) walkItems(function string, data []byte, c decode.Config) goja.Value {
	next := v.itemsOf(function, data, c)
	return v.walk(func() goja.Value {
		if item := next(); item != nil {
			return item
		}
		return goja.Undefined()
	})
}

func newXML(v *vm) goja.Value {
	return v.functions("xml", map[string]func(goja.FunctionCall) goja.Value{
		"parse": func(call goja.FunctionCall) goja.Value {
			text := goja.IsString(call.Argument(0))
			return v.tree("xml.parse", v.dataOf("xml.parse", "the first argument", call.Argument(0)), call.Argument(1), text)
		},
	})
}

// tree is a document of XML as an object. A text is in no encoding any more, whatever it says of itself.
func (v *vm) tree(function string, data []byte, settings goja.Value, text bool) goja.Value {
	c := decode.Config{Format: decode.XML, Tree: decode.Tree{UTF8: text}}
	if lists := option(v.options(function, settings, "lists"), "lists"); lists != nil {
		c.Tree.Lists = v.texts(function, "lists", lists)
	}
	return v.itemsOf(function, data, c)()
}

// texts is an option that is an array of texts.
func (v *vm) texts(function, name string, value goja.Value) []string {
	list, ok := value.(*goja.Object)
	if !ok || list.ClassName() != "Array" {
		v.wrong(function, "the option %s is %s; an array of texts is expected", name, kindName(value))
	}
	texts := []string{}
	for _, element := range v.values.elements(list) {
		texts = append(texts, v.textOf(function, "an element of "+name, present(element)))
	}
	return texts
}

// unzip is the function unzip.
func (v *vm) unzip(call goja.FunctionCall) goja.Value {
	return v.entries(v.bytesOf("unzip", call.Argument(0)), call.Argument(1))
}

// bytesOf is an argument that must be bytes; they are shared with the script.
func (v *vm) bytesOf(function string, value goja.Value) []byte {
	if o, ok := value.(*goja.Object); ok {
		if data, ok := v.viewOf(o); ok {
			return data
		}
	}
	v.wrong(function, "the first argument is %s; bytes are expected", kindName(value))
	return nil
}

// entries are the members of a zip. Each is unpacked when it is read, so that those that nobody reads cost nothing.
func (v *vm) entries(packed []byte, settings goja.Value) goja.Value {
	const function = "unzip"
	limit := v.limit(function, v.options(function, settings, "limit"))
	list, err := decode.Unzip(bytes.Clone(packed)) // the script may change what it gave
	if err != nil {
		v.misread(function, err)
	}
	entries := make([]any, len(list))
	for i := range list {
		e := &list[i]
		o := v.rt.NewObject()
		fixedMember(o, "name", v.rt.ToValue(e.Name))
		fixedMember(o, "size", v.rt.ToValue(e.Size))
		c := &content{data: func() []byte {
			data, err := e.Unpack(limit)
			if err != nil {
				v.misread(function, err)
			}
			return data
		}}
		entries[i] = v.withReaders(o, func(r *reader) *goja.Object {
			return v.native(r.name, r.length, func(call goja.FunctionCall) goja.Value { return r.read(v, c, call) })
		})
	}
	return v.rt.NewArray(entries...)
}

// protobuf is the function protobuf.
func (v *vm) protobuf(call goja.FunctionCall) goja.Value {
	const function = "protobuf"
	m := v.messageType(function, call.Argument(0))
	return v.functions("protobuf("+m.Name()+")", map[string]func(goja.FunctionCall) goja.Value{
		"decode": func(call goja.FunctionCall) goja.Value {
			const function = "protobuf.decode"
			return v.decodeMessage(function, m, v.bytesOf(function, call.Argument(0)), call.Argument(1))
		},
	})
}

// messageType is the message type that an argument names.
func (v *vm) messageType(function string, name goja.Value) *decode.Message {
	schema := v.program.schema
	if schema == nil {
		v.wrong(function, "%s", noProtobuf)
	}
	m, err := schema.Message(v.textOf(function, "the first argument", name))
	if err != nil {
		v.wrong(function, "%v", err)
	}
	return m
}

const (
	noProtobuf     = "the pipeline has no `protobuf:`"
	noProtobufHint = "name the .proto file at the top of the pipeline: protobuf: feed.proto"
)

// decodeMessage is a message as an object, or all messages of a stream as an array.
func (v *vm) decodeMessage(function string, m *decode.Message, data []byte, settings goja.Value) goja.Value {
	o := v.options(function, settings, "defaults", "delimited", "invalid_utf8")
	flag := func(name string) bool {
		value := option(o, name)
		if value != nil && value != v.values.yes && value != v.values.no {
			v.unfit(function, "the option "+name, value, "true or false")
		}
		return value == v.values.yes
	}
	c := decode.Config{Format: decode.Protobuf, Message: m, Defaults: flag("defaults"), Delimited: flag("delimited")}
	if v.choice(function, o, "invalid_utf8", "error", "replace") == "replace" {
		c.Invalid = decode.InvalidReplace
	}
	next := v.itemsOf(function, data, c)
	if !c.Delimited {
		return next()
	}
	list := []any{}
	for item := next(); item != nil; item = next() {
		if len(list) >= maxRows {
			v.raise("RangeError", codeTooLarge, "%s: more than %d messages", function, maxRows)
		}
		list = append(list, item)
	}
	return v.rt.NewArray(list...)
}

// namesProtobuf notes that the script names protobuf, which needs a schema.
func (r *rewriter) namesProtobuf(at file.Idx) {
	r.program.namesProtobuf = true
	if r.compilation.Protobuf == nil {
		r.refuse(at, "script.protobuf", noProtobufHint, noProtobuf)
	}
}

// namesMember notes a member that the script reads.
func (r *rewriter) namesMember(name string) {
	r.program.namesProtobuf = r.program.namesProtobuf || name == "protobuf"
}

// checkProtobuf finds message types that are not there, where they are named by a literal.
func (r *rewriter) checkProtobuf(c *ast.CallExpression) {
	id, ok := c.Callee.(*ast.Identifier)
	if !ok || id.Name != "protobuf" || len(c.ArgumentList) == 0 || r.compilation.Protobuf == nil {
		return
	}
	if _, own := r.look("protobuf"); own {
		return
	}
	name, ok := c.ArgumentList[0].(*ast.StringLiteral)
	if !ok {
		return
	}
	if _, err := r.compilation.Protobuf.Message(name.Value.String()); err != nil {
		what, hint, _ := strings.Cut(err.Error(), "; ")
		r.refuse(name.Idx, "script.protobuf", hint, "%s", what)
	}
}
