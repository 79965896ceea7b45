package script

import (
	"math"
	"math/big"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/dop251/goja"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

// encoder writes one value as JSON. It is reused.
type encoder struct {
	vm    *vm
	dst   []byte
	path  []string // member names and indexes down to the value under way
	open  []*goja.Object
	limit int // the largest text, in bytes

	entries []entry // of the lazy objects under way
}

// maxValue is the largest value that is encoded, in bytes. It is far above what Kafka takes.
const maxValue = 64 << 20

// encode appends value as compact JSON. It throws a refusal that names the field where a value cannot leave.
func (e *encoder) encode(dst []byte, value goja.Value) []byte {
	e.dst, e.path, e.open, e.entries = dst, e.path[:0], e.open[:0], e.entries[:0]
	if !e.value(value) {
		e.refuse("it is undefined", "value: null is a tombstone")
	}
	dst, e.dst = e.dst, nil
	return dst
}

// encodeLazy appends a lazy object.
func (e *encoder) encodeLazy(dst []byte, l *lazy) []byte {
	e.dst, e.path, e.open, e.entries = dst, e.path[:0], e.open[:0], e.entries[:0]
	e.lazy(l)
	dst, e.dst = e.dst, nil
	return dst
}

// encodeMember is the JSON of a member, or nil if it is undefined.
func (e *encoder) encodeMember(name string, value goja.Value) []byte {
	e.dst, e.path, e.open, e.entries = nil, e.path[:0], e.open[:0], e.entries[:0]
	ok := e.member(name, value)
	dst := e.dst
	if e.dst = nil; !ok {
		return nil
	}
	return dst
}

// members appends the members that a draft's literal has behind what it spreads first, and the brace that ends the object.
func (e *encoder) members(dst []byte, d *draft) []byte {
	e.dst, e.path, e.open, e.entries = dst, e.path[:0], e.open[:0], e.entries[:0]
	for i, prefix := range d.object.added {
		start := len(e.dst)
		if e.dst = append(e.dst, prefix...); !e.part(d, i+1) {
			e.dst = e.dst[:start]
		}
	}
	dst, e.dst = append(e.dst, '}'), nil
	return dst
}

// part appends the value of a member of a draft's literal, and answers false if it is undefined.
func (e *encoder) part(d *draft, i int) bool {
	if d.operands != nil && d.operands[i].kind != isUnknown {
		return e.operand(&d.operands[i])
	}
	return e.member(d.object.names[i], d.parts[i])
}

// operand appends a known operand that is no NaN and no infinity, and answers false if it is undefined.
func (e *encoder) operand(o *operand) bool {
	switch o.kind {
	case isUndefined:
		return false
	case isNull:
		e.dst = append(e.dst, "null"...)
	case isBoolean:
		e.dst = strconv.AppendBool(e.dst, o.number != 0)
	case isNumber:
		if o.text != "" && rawjson.IsShortest(rawjson.Bytes(o.text)) {
			e.dst = append(e.dst, o.text...)
		} else {
			e.dst = rawjson.AppendFloat(e.dst, o.number)
		}
	case isText:
		e.dst = rawjson.AppendString(e.dst, o.text)
	default:
		e.dst = append(e.dst, o.text...)
	}
	return true
}

// literal appends the object of a draft's literal without making it.
func (e *encoder) literal(dst []byte, d *draft) []byte {
	e.dst, e.path, e.open, e.entries = append(dst, '{'), e.path[:0], e.open[:0], e.entries[:0]
	first := true
	for i, name := range d.object.quoted {
		start := len(e.dst)
		if !first {
			e.dst = append(e.dst, ',')
		}
		e.dst = append(e.dst, name...)
		if e.part(d, i) {
			first = false
		} else {
			e.dst = e.dst[:start]
		}
	}
	dst, e.dst = append(e.dst, '}'), nil
	return dst
}

func (e *encoder) refuse(what, hint string) {
	where := "the value"
	if len(e.path) > 0 {
		where = "the value's " + joinPath(e.path)
	}
	e.dst = nil
	e.vm.throw(refuse(CodeRefused, hint, "%s cannot be written as JSON: %s", where, what))
}

// joinPath writes a path as JavaScript does: a.b[2]["c d"].
func joinPath(path []string) string {
	var b strings.Builder
	for i, p := range path {
		switch {
		case strings.HasPrefix(p, "["):
			b.WriteString(p)
		case !isName(p):
			b.WriteString("[" + strconv.Quote(p) + "]")
		default:
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(p)
		}
	}
	return b.String()
}

func isName(s string) bool {
	for i := 0; i < len(s); i++ {
		if !isNameByte(s[i]) || i == 0 && s[0] >= '0' && s[0] <= '9' {
			return false
		}
	}
	return s != ""
}

func isNameByte(b byte) bool {
	return b == '_' || b == '$' || b >= '0' && b <= '9' || b|0x20 >= 'a' && b|0x20 <= 'z'
}

// value appends a value and answers false, having written nothing, if it is undefined.
func (e *encoder) value(value goja.Value) bool {
	e.vm.look()
	switch o, ok := value.(*goja.Object); {
	case ok:
		return e.object(o)
	case value == nil || goja.IsUndefined(value):
		return false
	case goja.IsNumber(value):
		f := value.ToFloat()
		switch {
		case f != f:
			e.refuse("it is NaN", "check the numbers that it was made from; null is a value for nothing")
		case math.IsInf(f, 0):
			e.refuse("it is Infinity", "check for a division by zero; null is a value for nothing")
		}
		e.dst = rawjson.AppendFloat(e.dst, f)
	case goja.IsString(value):
		e.dst = rawjson.AppendString(e.dst, value.String())
	case goja.IsNull(value):
		e.dst = append(e.dst, "null"...)
	case goja.IsBigInt(value):
		e.dst = append(e.dst, value.String()...)
	default:
		if _, ok := value.(*goja.Symbol); ok {
			e.refuse("it is a symbol", "write its description as a string")
		}
		e.dst = strconv.AppendBool(e.dst, value.ToBoolean())
	}
	if len(e.dst) > e.limit {
		e.refuse("it is too large", "split it into several messages")
	}
	return true
}

func (e *encoder) object(o *goja.Object) bool {
	if len(e.open) >= rawjson.MaxDepth {
		e.refuse("it is nested too deep", "")
	}
	if l := e.vm.values.lazyOf(o); l != nil {
		e.enter(o)
		if i := l.changed("toJSON"); i >= 0 && isFunction(l.changes[i].value) {
			ok := e.plain(o)
			e.leave()
			return ok
		}
		e.lazy(l)
		e.leave()
		return true
	}
	switch class := o.ClassName(); class {
	case "Array":
		e.enter(o)
		e.array(o)
		e.leave()
	case "Object", "Arguments", "Generator":
		if what, hint := notPlain(o); what != "" {
			e.refuse("it is "+what, hint)
		}
		if isArray(o) {
			e.enter(o)
			e.array(o)
			e.leave()
			break
		}
		if primitive := unbox(o); primitive != nil {
			return e.value(primitive)
		}
		e.enter(o)
		ok := e.plain(o)
		e.leave()
		return ok
	case "Date":
		e.date(o)
	case "Number", "String", "Boolean", "BigInt":
		return e.value(unbox(o))
	case "Function":
		e.refuse("it is a function", "call it, or leave the member out")
	case "Error":
		e.refuse("it is an error", "write its message")
	case "Symbol":
		e.refuse("it is a symbol", "write its description as a string")
	default:
		e.refuse("it is a "+class, "write its parts as members of an object")
	}
	return true
}

// isArray is Array.isArray: a Proxy of an array is one, too.
func isArray(o *goja.Object) bool {
	for o != nil && o.ExportType() == proxyType {
		p, _ := o.Export().(goja.Proxy)
		o = p.Target()
	}
	return o != nil && o.ClassName() == "Array"
}

func (e *encoder) enter(o *goja.Object) {
	for _, above := range e.open {
		if above == o {
			e.refuse("it contains itself", "write a key in place of the object")
		}
	}
	e.open = append(e.open, o)
}

func (e *encoder) leave() { e.open = e.open[:len(e.open)-1] }

func (e *encoder) array(o *goja.Object) {
	from := e.vm.values.origins[o]
	if from != nil && e.vm.values.untouched(o) {
		e.dst = append(e.dst, from.raw...)
		return
	}
	e.dst = append(e.dst, '[')
	for i, element := range e.vm.values.elements(o) {
		if i > 0 {
			e.dst = append(e.dst, ',')
		}
		if from != nil && i < len(from.parts) && element != nil && e.vm.values.same(from.parts[i], element) {
			e.dst = append(e.dst, from.parts[i].raw...)
			continue
		}
		e.path = append(e.path, indexName(i))
		if !e.value(element) {
			e.dst = append(e.dst, "null"...)
		}
		e.path = e.path[:len(e.path)-1]
	}
	e.dst = append(e.dst, ']')
}

// plain appends the own enumerable members of an object; its toJSON comes first, as in JSON.stringify.
func (e *encoder) plain(o *goja.Object) bool {
	from := e.vm.values.origins[o]
	if from != nil && from.raw != nil && e.vm.values.untouched(o) {
		e.dst = append(e.dst, from.raw...)
		return true
	}
	if toJSON, ok := goja.AssertFunction(o.Get("toJSON")); ok {
		value, err := toJSON(o)
		must(err)
		return e.value(value)
	}
	e.dst = append(e.dst, '{')
	first := true
	for _, name := range o.Keys() {
		start := len(e.dst)
		if !first {
			e.dst = append(e.dst, ',')
		}
		e.dst = append(rawjson.AppendString(e.dst, name), ':')
		value := o.Get(name)
		if from != nil {
			if raw := e.vm.values.rawMember(o, name, value); raw != nil {
				e.dst = append(e.dst, raw...)
				first = false
				continue
			}
		}
		if e.member(name, value) {
			first = false
		} else {
			e.dst = e.dst[:start]
		}
	}
	e.dst = append(e.dst, '}')
	return true
}

func isFunction(value goja.Value) bool {
	_, ok := goja.AssertFunction(value)
	return ok
}

func (e *encoder) date(o *goja.Object) {
	t, ok := o.Export().(time.Time)
	if !ok || t.IsZero() && !(o.ToFloat() == o.ToFloat()) {
		e.refuse("it is an invalid Date", "check the text that it was made from")
	}
	e.dst = append(e.dst, '"')
	e.dst = appendISO(e.dst, t)
	e.dst = append(e.dst, '"')
}

// appendISO appends a time as Date.prototype.toISOString writes it (ECMA-262, 21.4.1.32).
func appendISO(dst []byte, t time.Time) []byte {
	t = t.UTC()
	if year := t.Year(); year < 0 || year > 9999 {
		sign := byte('+')
		if year < 0 {
			sign, year = '-', -year
		}
		dst = append(dst, sign)
		digits := strconv.Itoa(year)
		for range 6 - len(digits) {
			dst = append(dst, '0')
		}
		dst = append(dst, digits...)
		return t.AppendFormat(dst, "-01-02T15:04:05.000Z")
	}
	return t.AppendFormat(dst, "2006-01-02T15:04:05.000Z")
}

// What goja exports objects as tells the kinds apart that have the class Object.
var (
	exportedMap     = reflect.TypeFor[[][2]any]()
	exportedSet     = reflect.TypeFor[[]any]()
	exportedBuffer  = reflect.TypeFor[goja.ArrayBuffer]()
	exportedPlain   = reflect.TypeFor[map[string]any]()
	exportedPromise = reflect.TypeFor[*goja.Promise]()
	exportedBigInt  = reflect.TypeFor[*big.Int]()
	messageBoxType  = reflect.TypeFor[*messageBox]()
	stateBoxType    = reflect.TypeFor[*stateBox]()
)

// notPlain names what an object of the class Object is if it is no plain one, with a hint.
func notPlain(o *goja.Object) (what, hint string) {
	switch t := o.ExportType(); t {
	case nil, exportedPlain, lazyType:
	case exportedMap:
		return "a Map", "Object.fromEntries(map) makes an object of it, [...map] an array"
	case exportedSet:
		if o.ClassName() != "Arguments" {
			return "a Set", "[...set] makes an array of it"
		}
	case exportedPromise:
		return "a Promise", awaitIt
	case messageBoxType:
		return "a Message", "yield it"
	case stateBoxType:
		return "a State", "yield it"
	default:
		if t == exportedBuffer || t.Kind() == reflect.Slice {
			return "a byte array", "write it as text, with base64 for example, or declare the topic with value: bytes"
		}
	}
	return "", ""
}

// unbox is the primitive inside a Number, String, Boolean or BigInt object, or nil.
func unbox(o *goja.Object) goja.Value {
	t := o.ExportType()
	if t == nil {
		return nil
	}
	switch o.ClassName() {
	case "Number", "String", "Boolean", "BigInt":
		t = exportedBigInt
	}
	switch {
	case t == exportedBigInt, t.Kind() == reflect.String, t.Kind() == reflect.Bool, t.Kind() == reflect.Int64, t.Kind() == reflect.Float64:
		if value, ok := goja.AssertFunction(o.Get("valueOf")); ok {
			primitive, err := value(o)
			must(err)
			if _, object := primitive.(*goja.Object); !object {
				return primitive
			}
		}
	}
	return nil
}

// bytesOf are the bytes of an array buffer or byte array; they are shared with the script.
func bytesOf(o *goja.Object) ([]byte, bool) {
	switch b := o.Export().(type) {
	case []byte:
		return b, true
	case goja.ArrayBuffer:
		return b.Bytes(), true
	}
	return nil, false
}
