package script

import (
	"strings"
	"unicode/utf8"

	"github.com/dop251/goja"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"
)

// class makes a class of a constructor and the methods of its prototype.
func (v *vm) class(name string, length int, construct func(goja.ConstructorCall) *goja.Object, methods map[string]func(goja.FunctionCall) goja.Value) *goja.Object {
	class := v.rt.ToValue(construct).(*goja.Object)
	must(class.DefineDataProperty("name", v.rt.ToValue(name), goja.FLAG_FALSE, goja.FLAG_TRUE, goja.FLAG_FALSE))
	must(class.DefineDataProperty("length", v.rt.ToValue(length), goja.FLAG_FALSE, goja.FLAG_TRUE, goja.FLAG_FALSE))
	prototype := class.Get("prototype").(*goja.Object)
	for method, f := range methods {
		must(prototype.DefineDataProperty(method, v.native(method, 0, f), goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))
	}
	return class
}

// fixed gives an object a member that the script cannot change.
func fixedMember(o *goja.Object, name string, value goja.Value) {
	must(o.DefineDataProperty(name, value, goja.FLAG_FALSE, goja.FLAG_FALSE, goja.FLAG_TRUE))
}

func newTextEncoder(v *vm) goja.Value {
	return v.class("TextEncoder", 0, func(call goja.ConstructorCall) *goja.Object {
		fixedMember(call.This, "encoding", v.rt.ToValue("utf-8"))
		return nil
	}, map[string]func(goja.FunctionCall) goja.Value{
		"encode": func(call goja.FunctionCall) goja.Value {
			if goja.IsUndefined(call.Argument(0)) {
				return v.array(nil)
			}
			return v.array([]byte(call.Argument(0).String()))
		},
		"encodeInto": func(call goja.FunctionCall) goja.Value {
			target, ok := call.Argument(1).(*goja.Object)
			var room []byte
			if ok && isByteArray(target) {
				room, ok = target.Export().([]byte)
			}
			if !ok {
				v.unfit("TextEncoder.encodeInto", "the second argument", call.Argument(1), "a byte array")
			}
			read, written := 0, 0
			for _, r := range call.Argument(0).String() {
				n := utf8.RuneLen(r)
				if written+n > len(room) {
					break
				}
				written += utf8.EncodeRune(room[written:], r)
				if read++; r > 0xffff {
					read++
				}
			}
			result := v.rt.NewObject()
			define(result, "read", v.rt.ToValue(read))
			define(result, "written", v.rt.ToValue(written))
			return result
		},
	})
}

// charsets are the labels of TextDecoder beside UTF-8. What the Encoding Standard reads as windows-1252 is read so here.
var charsets = map[string]encoding.Encoding{
	"utf-16le": unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM), "utf-16": unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM),
	"utf-16be":     unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM),
	"windows-1250": charmap.Windows1250, "windows-1251": charmap.Windows1251, "windows-1252": charmap.Windows1252,
	"latin1": charmap.Windows1252, "iso-8859-1": charmap.Windows1252, "ascii": charmap.Windows1252, "us-ascii": charmap.Windows1252,
	"iso-8859-2": charmap.ISO8859_2, "iso-8859-5": charmap.ISO8859_5, "iso-8859-15": charmap.ISO8859_15,
	"ibm866": charmap.CodePage866, "koi8-r": charmap.KOI8R, "macintosh": charmap.Macintosh,
}

func newTextDecoder(v *vm) goja.Value {
	return v.class("TextDecoder", 0, func(call goja.ConstructorCall) *goja.Object {
		label := "utf-8"
		if value := call.Argument(0); !goja.IsUndefined(value) {
			label = strings.ToLower(strings.TrimSpace(v.textOf("TextDecoder", "the label", value)))
		}
		if label == "utf8" {
			label = "utf-8"
		}
		if _, ok := charsets[label]; !ok && label != "utf-8" {
			v.raise("RangeError", codeArgument, "TextDecoder: the encoding is not known; utf-8, utf-16le, utf-16be, windows-1250, windows-1251, windows-1252, iso-8859-1, -2, -5, -15, koi8-r, ibm866 and macintosh are")
		}
		switch label {
		case "latin1", "iso-8859-1", "ascii", "us-ascii":
			label = "windows-1252"
		case "utf-16":
			label = "utf-16le"
		}
		o := v.options("TextDecoder", call.Argument(1), "fatal", "ignoreBOM")
		flag := func(name string) goja.Value {
			value := option(o, name)
			return v.rt.ToValue(value != nil && value.ToBoolean())
		}
		fixedMember(call.This, "encoding", v.rt.ToValue(label))
		fixedMember(call.This, "fatal", flag("fatal"))
		fixedMember(call.This, "ignoreBOM", flag("ignoreBOM"))
		return nil
	}, map[string]func(goja.FunctionCall) goja.Value{"decode": v.decodeText})
}

func (v *vm) decodeText(call goja.FunctionCall) goja.Value {
	const function = "TextDecoder.decode"
	this, ok := call.This.(*goja.Object)
	if !ok || this.Get("encoding") == nil || this.Get("fatal") == nil {
		v.wrong(function, "it is called on %s", kindName(call.This))
	}
	if stream := option(v.options(function, call.Argument(1), "stream"), "stream"); stream != nil && stream.ToBoolean() {
		v.wrong(function, "the option stream is not supported; join the parts first")
	}
	if goja.IsUndefined(call.Argument(0)) {
		return v.rt.ToValue("")
	}
	data := v.dataOf(function, "the argument", call.Argument(0))
	fatal, keep := this.Get("fatal").ToBoolean(), this.Get("ignoreBOM").ToBoolean()
	var text string
	if set, ok := charsets[this.Get("encoding").String()]; ok {
		var decoded []byte
		var err error
		if single, ok := set.(*charmap.Charmap); ok {
			decoded = decodeSingle(single, data)
		} else {
			decoded, err = set.NewDecoder().Bytes(data)
		}
		if text = string(decoded); fatal && (err != nil || strings.ContainsRune(text, utf8.RuneError)) {
			v.raise("TypeError", codeSyntax, "%s: the bytes are not valid %s", function, this.Get("encoding"))
		}
	} else {
		if fatal && !utf8.Valid(data) {
			v.raise("TypeError", codeSyntax, "%s: the bytes are not valid UTF-8", function)
		}
		text = replaceInvalid(data)
	}
	if !keep {
		text = strings.TrimPrefix(text, "\uFEFF")
	}
	if len(text) > maxString {
		v.raise("RangeError", codeTooLarge, "%s: the text would have %d bytes; %d are the most", function, len(text), maxString)
	}
	return v.rt.ToValue(text)
}

// decodeSingle decodes a set of one byte a character. Where the set leaves a byte from 0x80 to 0x9f out, the Encoding Standard
// has the control character of that number.
func decodeSingle(set *charmap.Charmap, data []byte) []byte {
	text := make([]byte, 0, len(data)+len(data)/4)
	for _, b := range data {
		r := set.DecodeByte(b)
		if r == utf8.RuneError && b >= 0x80 && b < 0xa0 {
			r = rune(b)
		}
		text = utf8.AppendRune(text, r)
	}
	return text
}

// replaceInvalid is data as text, with U+FFFD for each maximal part of what is not UTF-8 (Unicode 15, 3.9, U+FFFD
// Substitution of Maximal Subparts).
func replaceInvalid(data []byte) string {
	if utf8.Valid(data) {
		return string(data)
	}
	decoded, err := unicode.UTF8.NewDecoder().Bytes(data)
	if err != nil {
		return strings.ToValidUTF8(string(data), "\uFFFD")
	}
	return string(decoded)
}
