package script

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/dop251/goja"
)

// The standard library is native. A VM gets only those of its names that the script reads, each made when the VM is and
// deeply frozen (names.go finds them, newVM passes them in). No function keeps anything between calls but what
// library_memory.go says it keeps.
//
// Errors are JavaScript errors with a name, a code and a message; the message never holds the data that was given.

// The codes of errors that library functions throw.
const (
	codeArgument = "argument"  // an argument is of the wrong kind, or out of its range
	codeSyntax   = "syntax"    // a text or bytes are not what they should be
	codeTooLarge = "too_large" // the result would be larger than the limit
	codeUTF8     = "utf8"      // bytes that should be a text are not UTF-8
	codeDepth    = "depth"     // a value nests too deep
	codeClone    = "clone"     // a value cannot be cloned
)

// maxBytes is the largest byte array, in bytes, that a library function makes unless it is told otherwise.
const maxBytes = 64 << 20

// library makes what each name of the standard library stands for.
var library = map[string]func(v *vm) goja.Value{
	"json":            newJSON,
	"URL":             func(v *vm) goja.Value { return v.urlClasses()[0] },
	"URLSearchParams": func(v *vm) goja.Value { return v.urlClasses()[1] },
	"TextEncoder":     newTextEncoder,
	"TextDecoder":     newTextDecoder,
	"structuredClone": func(v *vm) goja.Value { return v.native("structuredClone", 1, v.structuredClone) },
	"equal":           func(v *vm) goja.Value { return v.native("equal", 2, v.equal) },
	"hash":            func(v *vm) goja.Value { return v.native("hash", 2, v.hash) },
	"hmac":            func(v *vm) goja.Value { return v.native("hmac", 3, v.hmac) },
	"murmur2":         func(v *vm) goja.Value { return v.native("murmur2", 1, v.murmur2) },
	"hex":             newHex,
	"base64":          newBase64,
	"gunzip":          func(v *vm) goja.Value { return v.native("gunzip", 1, v.inflater("gunzip", openGzip)) },
	"inflate":         func(v *vm) goja.Value { return v.native("inflate", 1, v.inflater("inflate", openZlib)) },
	"inflateRaw":      func(v *vm) goja.Value { return v.native("inflateRaw", 1, v.inflater("inflateRaw", openDeflate)) },
	"unzip":           func(v *vm) goja.Value { return v.native("unzip", 1, v.unzip) },
	"csv":             newCSV,
	"xml":             newXML,
	"protobuf":        func(v *vm) goja.Value { return v.native("protobuf", 1, v.protobuf) },
	"num":             func(v *vm) goja.Value { return v.native("num", 1, v.num) },
	"time":            newTime,
	"memory":          newMemoryObject,
	"fetch":           func(v *vm) goja.Value { return v.native("fetch", 2, v.fetch) },
	"memo":            func(v *vm) goja.Value { return v.native("memo", 3, v.memo) },
	"log":             newLog,
	"metrics":         newMetrics,
	"configs":         newConfigs,
}

// named is what a name that the script reads stands for: one of the library, or a built-in.
func (v *vm) named(name string, f *freezer) goja.Value {
	build, ok := library[name]
	if !ok {
		return v.rt.GlobalObject().Get(name)
	}
	value := build(v)
	f.deep(name, value)
	return value
}

// NamesConfigs tells whether the script names configs.
func (p *Program) NamesConfigs() bool { return slices.Contains(p.builtins, "configs") }

// NamesProtobuf tells whether the script names protobuf, or a member of that name, which an answer of fetch has.
func (p *Program) NamesProtobuf() bool { return p.namesProtobuf }

// functions makes an object of native functions.
func (v *vm) functions(name string, list map[string]func(goja.FunctionCall) goja.Value) *goja.Object {
	o := v.rt.NewObject()
	for member, f := range list {
		define(o, member, v.native(name+"."+member, 0, f))
	}
	return o
}

// raise throws an error of a built-in class with a code.
func (v *vm) raise(class, code, format string, args ...any) {
	o, err := v.rt.New(v.rt.GlobalObject().Get(class), v.rt.ToValue(fmt.Sprintf(format, args...)))
	must(err)
	define(o, "code", v.rt.ToValue(code))
	panic(o)
}

// wrong throws that an argument of function is not what it should be.
func (v *vm) wrong(function, format string, args ...any) {
	v.raise("TypeError", codeArgument, "%s: %s", function, fmt.Sprintf(format, args...))
}

// unfit throws that an argument is not what is wanted.
func (v *vm) unfit(function, what string, value goja.Value, wanted string) {
	v.wrong(function, "%s is %s; %s is expected", what, unfitting(value), wanted)
}

// unfitting is what a value is that does not fit, without the value.
func unfitting(value goja.Value) string {
	kind := kindName(value)
	if value != nil && (goja.IsString(value) || goja.IsNumber(value)) {
		kind += " that does not fit"
	}
	return kind
}

// textOf is an argument that must be a string.
func (v *vm) textOf(function, what string, value goja.Value) string {
	if !goja.IsString(value) {
		v.wrong(function, "%s is %s; a text is expected", what, kindName(value))
	}
	return value.String()
}

// integerOf is an argument that must be an integer from least to most.
func (v *vm) integerOf(function, what string, value goja.Value, least, most int64) int64 {
	if goja.IsNumber(value) {
		if n := value.ToInteger(); float64(n) == value.ToFloat() && n >= least && n <= most {
			return n
		}
	}
	v.unfit(function, what, value, fmt.Sprintf("an integer from %d to %d", least, most))
	return 0
}

// dataOf is an argument that may be a text, then taken as UTF-8, or bytes, then shared with the script.
func (v *vm) dataOf(function, what string, value goja.Value) []byte {
	if goja.IsString(value) {
		return []byte(value.String())
	}
	if o, ok := value.(*goja.Object); ok {
		if data, ok := v.viewOf(o); ok {
			return data
		}
	}
	v.wrong(function, "%s is %s; a text or bytes are expected", what, kindName(value))
	return nil
}

// viewOf is the function viewOf, for a DataView too.
func (v *vm) viewOf(o *goja.Object) ([]byte, bool) {
	if class, ok := v.rt.GlobalObject().Get("DataView").(*goja.Object); ok && o.Prototype() == class.Get("prototype") {
		return windowOf(o)
	}
	return viewOf(o)
}

// viewOf are the bytes of an array buffer or of a typed array of any kind; they are shared with the script.
func viewOf(o *goja.Object) ([]byte, bool) {
	t := o.ExportType()
	switch {
	case t == exportedBuffer:
		buffer, _ := o.Export().(goja.ArrayBuffer)
		return buffer.Bytes(), true
	case !isByteArray(o):
		return nil, false
	}
	if data, ok := o.Export().([]byte); ok {
		return data, true
	}
	return windowOf(o)
}

// windowOf are the bytes of a buffer that a view shows.
func windowOf(o *goja.Object) ([]byte, bool) {
	owner, ok := o.Get("buffer").(*goja.Object)
	if !ok {
		return nil, false
	}
	buffer, ok := owner.Export().(goja.ArrayBuffer)
	if !ok {
		return nil, false
	}
	data := buffer.Bytes()
	start, length := o.Get("byteOffset").ToInteger(), o.Get("byteLength").ToInteger()
	if start < 0 || length < 0 || start+length > int64(len(data)) {
		return nil, true
	}
	return data[start : start+length], true
}

// isByteArray tells whether o is a typed array.
func isByteArray(o *goja.Object) bool {
	t := o.ExportType()
	if t == nil || t.Kind() != reflect.Slice {
		return false
	}
	return t.Elem().Kind() != reflect.Interface // arrays and sets
}

// array makes a byte array of b, which is its own from now on.
func (v *vm) array(b []byte) goja.Value {
	array, err := v.rt.New(v.rt.GlobalObject().Get("Uint8Array"), v.rt.ToValue(v.rt.NewArrayBuffer(b)))
	must(err)
	return array
}

// options is an argument that may be an object with members among known; nil if it is not there.
func (v *vm) options(function string, value goja.Value, known ...string) *goja.Object {
	if value == nil || goja.IsUndefined(value) || goja.IsNull(value) {
		return nil
	}
	o, ok := value.(*goja.Object)
	if !ok || o.ClassName() != "Object" {
		v.wrong(function, "the options are %s; an object is expected", kindName(value))
	}
	for _, name := range o.Keys() {
		if !slices.Contains(known, name) {
			v.wrong(function, "there is no option %q; %s is expected", name, oneOf(known))
		}
	}
	return o
}

// oneOf names what one of is meant.
func oneOf(names []string) string {
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// option is a member of options, or nil.
func option(o *goja.Object, name string) goja.Value {
	if o == nil {
		return nil
	}
	if value := o.Get(name); value != nil && !goja.IsUndefined(value) {
		return value
	}
	return nil
}

// choice is an option that is one of a few texts, the first of which is the default.
func (v *vm) choice(function string, o *goja.Object, name string, among ...string) string {
	value := option(o, name)
	if value == nil {
		return among[0]
	}
	if !goja.IsString(value) || !slices.Contains(among, value.String()) {
		v.unfit(function, "the option "+name, value, oneOf(among))
	}
	return value.String()
}

// wants tells whether the last argument, at place i, is the word; anything else there is refused.
func (v *vm) wants(function string, call goja.FunctionCall, i int, word string) bool {
	value := call.Argument(i)
	if goja.IsUndefined(value) {
		return false
	}
	if !goja.IsString(value) || value.String() != word {
		v.unfit(function, "the last argument", value, fmt.Sprintf("%q, or nothing,", word))
	}
	return true
}

// ttlOf is a time to live: milliseconds, or a text like "5m". Left out it is 0, which is for ever.
func (v *vm) ttlOf(function string, value goja.Value) time.Duration {
	if goja.IsUndefined(value) || goja.IsNull(value) {
		return 0
	}
	d := durationOf(value)
	if d == 0 {
		v.unfit(function, "the time to live", value, `a positive number of milliseconds or a text like "5m"`)
	}
	return d
}

// durationOf is a positive number of milliseconds, or a duration as the language writes it. It is 0 if it is neither.
func durationOf(value goja.Value) time.Duration {
	switch {
	case goja.IsNumber(value):
		if ms := value.ToFloat(); ms > 0 && ms <= float64(math.MaxInt64/int64(time.Millisecond)) {
			return max(1, time.Duration(ms*float64(time.Millisecond)))
		}
	case goja.IsString(value):
		text, days := strings.CutSuffix(value.String(), "d")
		if days {
			text += "h"
		}
		d, err := time.ParseDuration(text)
		if days && d <= math.MaxInt64/24 {
			d *= 24
		}
		if err == nil && d > 0 {
			return d
		}
	}
	return 0
}

// running throws where functions are evaluated, before any call.
func (v *vm) running(function string) {
	if v.handler == nil {
		v.raise("Error", "not_running", "%s works while a record or a poll runs; here functions are only declared", function)
	}
}
