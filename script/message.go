package script

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dop251/goja"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
	"github.com/flechtwerk/flechtwerk/engine/wording"
)

type field uint8

const (
	fieldTopic field = iota + 1
	fieldKey
	fieldValue
	fieldHeaders
	fieldTimestamp
	fieldPartition
)

var fieldNames = []string{"topic", "key", "value", "headers", "timestamp", "partition"}

func fieldOf(name string) field {
	for i, n := range fieldNames {
		if n == name {
			return field(i + 1)
		}
	}
	return 0
}

// fieldHint says what to do about a member that a Message does not have.
func fieldHint(name string) string {
	return cmp.Or(wording.DidYouMean(name, fieldNames), "a Message has "+wording.List(fieldNames, "and"))
}

// shape is an object literal that runs natively: its members in order. A spread has no name.
type shape struct {
	names  []string
	spread []bool
	quoted []string // of a literal that spreads nothing: the names as JSON, with the colon
	added  []string // of a literal that spreads one object first: the other names as JSON, with comma and colon

	formulas []memberFormula // as names; nil if no member is one
	state    bool            // some formula looks at state
}

// memberFormula is the formula of a member; run is nil where the member is JavaScript.
type memberFormula struct {
	run      formula
	constant bool
	number   int // in vm.formulas, of one that is no constant
}

// messageShape is a Message({…}) literal: its members in order.
type messageShape struct {
	members []messageMember
	// msg.value, and state, are the first arguments, for formulas.
	lends, lendsState bool
}

type messageMember struct {
	field  field
	object *shape // the value's own literal, taken apart
}

// draft is a Message under way. A nil member was not given.
type draft struct {
	topic, key, headers, timestamp, partition goja.Value
	value                                     goja.Value
	object                                    *shape
	parts                                     []goja.Value // of object; nil where operands has a known one
	operands                                  []operand    // nil if object has no formulas
	lent, lentState                           goja.Value   // what formulas look at
	fresh                                     *fresh
}

// fresh remembers for a literal that spreads one object first whether what it adds is new to objects of a shape, so that their
// texts are copied as a whole.
type fresh struct {
	of *rawjson.Shape
	is bool
}

func (f *fresh) to(s *shape, l *lazy) bool {
	if s.added == nil || len(l.changes) > 0 || !l.text.wholesale() {
		return false
	}
	if f.of != l.text.shape {
		f.of = l.text.shape
		f.is = f.of.Ordered() && !slices.ContainsFunc(s.names[1:], func(name string) bool { return f.of.Find(name) >= 0 })
	}
	return f.is
}

func (d *draft) set(f field, value goja.Value) {
	if goja.IsUndefined(value) && f != fieldValue {
		return
	}
	switch f {
	case fieldTopic:
		d.topic = value
	case fieldKey:
		d.key = value
	case fieldValue:
		d.value = value
	case fieldHeaders:
		d.headers = value
	case fieldTimestamp:
		d.timestamp = value
	case fieldPartition:
		d.partition = value
	}
}

// messageBox is what Message(…) answers; stateBox what State(…) does.
type messageBox struct{ boxed }
type stateBox struct {
	boxed
	value goja.Value
}

// boxed shows the members of the object that was boxed.
type boxed struct{ inner *goja.Object }

func (b *boxed) Get(key string) goja.Value {
	if b.inner == nil {
		return nil
	}
	return b.inner.Get(key)
}
func (b *boxed) Set(key string, value goja.Value) bool {
	return b.inner != nil && b.inner.Set(key, value) == nil
}
func (b *boxed) Has(key string) bool    { return b.inner != nil && b.inner.Get(key) != nil }
func (b *boxed) Delete(key string) bool { return b.inner == nil || b.inner.Delete(key) == nil }
func (b *boxed) Keys() []string {
	if b.inner == nil {
		return nil
	}
	return b.inner.Keys()
}

// newMessage is the function Message.
func (v *vm) newMessage(call goja.FunctionCall) goja.Value {
	init, ok := call.Argument(0).(*goja.Object)
	if !ok || init.ClassName() == "Array" {
		v.throw(refuse(CodeMessage, "write Message({ value: … })", "Message takes an object"))
	}
	return v.rt.NewDynamicObject(&messageBox{boxed{init}})
}

// newState is the function State.
func (v *vm) newState(call goja.FunctionCall) goja.Value {
	box := &stateBox{value: call.Argument(0)}
	box.inner, _ = box.value.(*goja.Object)
	return v.rt.NewDynamicObject(box)
}

// yield takes a value that the body yields.
func (v *vm) yield(call goja.FunctionCall) goja.Value {
	v.proceed()
	o, _ := call.Argument(0).(*goja.Object)
	if o != nil {
		switch box := o.Export().(type) {
		case *messageBox:
			v.send(v.draftOf(box.inner))
			return goja.Undefined()
		case *stateBox:
			v.keep(box.value)
			return goja.Undefined()
		}
	}
	hint := "write yield Message({ value: … }) or yield State(…)"
	what := kindName(call.Argument(0))
	if o != nil && o.ExportType() == promiseType {
		what, hint = "a Promise", awaitIt
	} else if o != nil && o.ClassName() == "Array" {
		hint = "yield* yields each element of an array"
	} else if o != nil && o.ClassName() == "Generator" {
		hint = "yield* runs a generator"
	}
	v.throw(refuse(CodeYield, hint, "%s was yielded, which is neither a Message nor a State", what))
	return nil
}

// yieldState takes the state of yield State(…).
func (v *vm) yieldState(call goja.FunctionCall) goja.Value {
	v.proceed()
	v.keep(call.Argument(0))
	return goja.Undefined()
}

// returned takes what the body returns.
func (v *vm) returned(call goja.FunctionCall) goja.Value {
	if v.complete != nil {
		v.complete(call.Argument(0))
		return goja.Undefined()
	}
	if !goja.IsUndefined(call.Argument(0)) {
		v.throw(refuse(CodeYield, "yield it: yield Message({ value: … })", "%s was returned, but a body says everything by yield", kindName(call.Argument(0))))
	}
	return goja.Undefined()
}

// kindName names a kind of value with its article.
func kindName(value goja.Value) string {
	o, ok := value.(*goja.Object)
	switch {
	case value == nil || goja.IsUndefined(value):
		return "undefined"
	case goja.IsNull(value):
		return "null"
	case goja.IsString(value):
		return "a string"
	case goja.IsNumber(value):
		return "a number"
	case goja.IsBigInt(value):
		return "a BigInt"
	case !ok:
		if _, symbol := value.(*goja.Symbol); symbol {
			return "a symbol"
		}
		return "a boolean"
	}
	switch class := o.ClassName(); class {
	case "Object":
		if what, _ := notPlain(o); what != "" {
			return what
		}
		return "a plain object"
	case "Array", "Arguments", "Error":
		return "an " + strings.ToLower(class)
	default:
		return "a " + class
	}
}

func (v *vm) draftOf(o *goja.Object) *draft {
	d := &v.draft
	*d = draft{}
	for _, name := range o.Keys() {
		f := fieldOf(name)
		if f == 0 {
			v.throw(refuse(CodeMessage, fieldHint(name), "a Message has no %q", name))
		}
		d.set(f, o.Get(name))
	}
	if d.value == nil || goja.IsUndefined(d.value) {
		v.throw(missingValue())
	}
	return d
}

func missingValue() *refusal {
	return refuse(CodeMessage, "is a name misspelt, or a promise not awaited? value: null is a tombstone", "the Message has no value")
}

// awaitIt is what to do about a promise where something else is wanted.
const awaitIt = "await it, or several with await Promise.all([…])"

// emitter is the native function behind yield Message({…}).
func (v *vm) emitter(s *messageShape) func(goja.FunctionCall) goja.Value {
	var known fresh
	return func(call goja.FunctionCall) goja.Value {
		v.proceed()
		d := &v.draft
		*d = draft{}
		args := call.Arguments
		if s.lends {
			d.lent, args = args[0], args[1:]
		}
		if s.lendsState {
			d.lentState, args = args[0], args[1:]
		}
		for i := range s.members {
			m := &s.members[i]
			if m.object != nil {
				d.object, d.fresh = m.object, &known
				if m.object.formulas != nil {
					args = v.workOut(d, args)
					continue
				}
				n := len(m.object.names)
				d.parts, args = args[:n], args[n:]
				continue
			}
			d.set(m.field, args[0])
			args = args[1:]
		}
		if d.object == nil && (d.value == nil || goja.IsUndefined(d.value)) {
			v.throw(missingValue())
		}
		v.send(d)
		return goja.Undefined()
	}
}

// send encodes a draft into the messages of the call.
func (v *vm) send(d *draft) {
	topic := v.topic(d.topic)
	m := stream.Message{Topic: topic, Partition: stream.AnyPartition, Timestamp: v.defaultTimestamp(), From: v.index}
	if d.timestamp != nil {
		m.Timestamp = v.timestamp(d.timestamp)
	}
	if d.partition != nil && !goja.IsNull(d.partition) {
		m.Partition = v.partition(d.partition)
	}
	if d.headers != nil && !goja.IsNull(d.headers) {
		m.Headers = v.headers(d.headers)
	}
	if d.key != nil {
		m.Key = v.key(d.key, topic)
	} else {
		m.Key = v.defaultKey(topic)
	}
	switch {
	case d.object == nil:
		m.Value = v.value(d.value, topic)
	case topic.Value != stream.JSON:
		m.Value = v.value(v.literal(d.object, v.materialised(d)), topic)
	case d.object.quoted != nil:
		m.Value = v.arena.Keep(v.encoder.literal(v.arena.Grab(512), d))
	default:
		if l := v.firstLazy(d.object, d.parts); l != nil && d.fresh.to(d.object, l) {
			raw := l.text.raw
			dst := append(v.arena.Grab(512+len(raw)), raw[:len(raw)-1]...)
			m.Value = v.arena.Keep(v.encoder.members(dst, d))
		} else if l != nil {
			s := &v.scratch
			s.vs, s.text, s.index, s.copied = l.vs, l.text, nil, true
			s.changes = append(s.changes[:0], l.changes...)
			v.fill(s, d.object, v.materialised(d))
			m.Value = v.arena.Keep(v.encoder.encodeLazy(v.arena.Grab(512+len(l.text.raw)), s))
		} else {
			m.Value = v.value(v.literal(d.object, v.materialised(d)), topic)
		}
	}
	if topic.MaxMessage > 0 {
		if size := messageSize(&m); size > topic.MaxMessage {
			v.throw(refuse(CodeTooLarge, "send less, or raise max.message.bytes of the topic",
				"the Message to %s with key %s has %d bytes; the topic takes %d", topic.Name, showKey(m.Key), size, topic.MaxMessage))
		}
	}
	*v.messages = append(*v.messages, m)
}

// recordOverhead is what a record batch of one record adds to key, value and headers, at most (KIP-98: 61 bytes of batch
// header, varints of the record).
const recordOverhead = 61 + 21

func messageSize(m *stream.Message) int {
	size := recordOverhead + len(m.Key) + len(m.Value)
	for _, h := range m.Headers {
		size += 10 + len(h.Key) + len(h.Value)
	}
	return size
}

func showKey(key []byte) string {
	if key == nil {
		return "null"
	}
	if len(key) > 100 {
		return strconv.Quote(strings.ToValidUTF8(string(key[:100]), "")) + "…"
	}
	return strconv.Quote(string(key))
}

func (v *vm) topic(name goja.Value) *stream.Topic {
	outputs := v.env.Outputs
	if name == nil {
		switch len(outputs) {
		case 1:
			return outputs[0]
		case 0:
			v.throw(refuse(CodeTopic, "declare output_topics", "the stage has no output_topics"))
		}
		v.throw(refuse(CodeTopic, "give one of "+strings.Join(topicNames(outputs), ", "), "the Message names no topic, and the stage has %d", len(outputs)))
	}
	text := ""
	if goja.IsString(name) {
		text = name.String()
		for _, t := range outputs {
			if t.Name == text {
				return t
			}
		}
	} else {
		v.throw(refuse(CodeTopic, "", "the topic of a Message is %s, not a string", kindName(name)))
	}
	v.throw(refuse(CodeTopic, topicHint(text, topicNames(outputs)), "the topic %q is not among output_topics", text))
	return nil
}

func topicNames(topics []*stream.Topic) []string {
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t.Name
	}
	return names
}

func (v *vm) timestamp(value goja.Value) int64 {
	if o, ok := value.(*goja.Object); ok && o.ClassName() == "Date" {
		value = v.rt.ToValue(o.ToFloat())
	}
	f := value.ToFloat()
	if !goja.IsNumber(value) || !(f >= 0 && f <= math.MaxInt64/2) {
		v.throw(refuse(CodeMessage, "give milliseconds since 1970, or a Date", "the timestamp of a Message is not a time"))
	}
	return int64(f)
}

func (v *vm) partition(value goja.Value) int32 {
	f := value.ToFloat()
	if !goja.IsNumber(value) || f != math.Trunc(f) || f < 0 || f > math.MaxInt32 {
		v.throw(refuse(CodeMessage, "leave it out to place the Message by its key", "the partition of a Message is not a whole number from 0"))
	}
	return int32(f)
}

func (v *vm) headers(value goja.Value) []stream.Header {
	o, ok := value.(*goja.Object)
	if !ok || o.ClassName() != "Object" {
		v.throw(refuse(CodeMessage, "write headers: { name: 'text' }", "the headers of a Message are %s, not an object", kindName(value)))
	}
	if h, ok := o.Export().(*headers); ok && !h.changed {
		return h.list
	}
	var list []stream.Header
	for _, name := range o.Keys() {
		header := stream.Header{Key: strings.Clone(name)}
		switch value := o.Get(name); {
		case value == nil || goja.IsUndefined(value):
			continue
		case goja.IsNull(value):
		default:
			text, ok := v.text(v.arena.Grab(16), value, true)
			if !ok {
				v.throw(refuse(CodeMessage, "a header is a string, a byte array or null", "the header %q of a Message is %s", name, kindName(value)))
			}
			if header.Value = v.arena.Keep(text); header.Value == nil {
				header.Value = []byte{}
			}
		}
		list = append(list, header)
	}
	return list
}

// headers shows the headers of a record as an object: of several with one name the last.
type headers struct {
	vm      *vm
	list    []stream.Header
	object  *goja.Object // an ordinary object, once the script writes
	changed bool
}

func (h *headers) own() *goja.Object {
	if h.object == nil {
		h.object = h.vm.rt.NewObject()
		for _, header := range h.list {
			define(h.object, header.Key, h.value(header.Value))
		}
	}
	return h.object
}

func (h *headers) value(b []byte) goja.Value {
	if b == nil {
		return goja.Null()
	}
	return h.vm.rt.ToValue(strings.ToValidUTF8(string(b), "\uFFFD"))
}

func (h *headers) Get(key string) goja.Value {
	if h.object != nil {
		if !h.Has(key) {
			return nil
		}
		return h.object.Get(key)
	}
	for i := len(h.list) - 1; i >= 0; i-- {
		if h.list[i].Key == key {
			return h.value(h.list[i].Value)
		}
	}
	return nil
}

func (h *headers) Set(key string, value goja.Value) bool {
	define(h.own(), key, value)
	h.changed = true
	return true
}

func (h *headers) Delete(key string) bool {
	if h.Has(key) {
		must(h.own().Delete(key))
		h.changed = true
	}
	return true
}

func (h *headers) Has(key string) bool {
	for _, name := range h.Keys() {
		if name == key {
			return true
		}
	}
	return false
}

func (h *headers) Keys() []string { return h.own().Keys() }

// key encodes a key that the script gave.
func (v *vm) key(value goja.Value, topic *stream.Topic) []byte {
	if goja.IsNull(value) {
		return nil
	}
	switch topic.Key {
	case stream.JSON:
		text := v.encoder.encode(nil, value)
		return v.keepPiece(rawjson.Canonical(v.arena.Grab(len(text)), text))
	case stream.Bytes:
		if b, ok := v.text(v.arena.Grab(32), value, true); ok {
			return v.keepPiece(b)
		}
		v.throw(refuse(CodeRefused, "give a byte array or a string", "the key is %s, and %s takes bytes", kindName(value), topic.Name))
	default:
		if b, ok := v.text(v.arena.Grab(32), value, false); ok {
			return v.keepPiece(b)
		}
		v.throw(refuse(CodeRefused, fmt.Sprintf("give a string, or declare the topic %s with key: json", topic.Name), "the key is %s, and %s takes text", kindName(value), topic.Name))
	}
	return nil
}

// keepPiece keeps a piece of the arena that is never nil: an empty key or value is not an absent one.
func (v *vm) keepPiece(piece []byte) []byte {
	if len(piece) == 0 {
		return []byte{}
	}
	return v.arena.Keep(piece)
}

// text appends a scalar as text, or the bytes of a byte array if those are taken.
func (v *vm) text(dst []byte, value goja.Value, bytes bool) ([]byte, bool) {
	o, ok := value.(*goja.Object)
	if ok {
		if bytes {
			if b, ok := bytesOf(o); ok {
				return append(dst, b...), true
			}
		}
		return dst, false
	}
	if _, symbol := value.(*goja.Symbol); symbol || value == nil || goja.IsUndefined(value) || goja.IsNull(value) {
		return dst, false
	}
	return append(dst, strings.ToValidUTF8(value.String(), "\uFFFD")...), true
}

// value encodes a value that the script gave; null is a tombstone.
func (v *vm) value(value goja.Value, topic *stream.Topic) []byte {
	if goja.IsNull(value) {
		return nil
	}
	switch topic.Value {
	case stream.JSON:
		return v.keepPiece(v.encoder.encode(v.arena.Grab(512), value))
	case stream.Bytes:
		if b, ok := v.text(v.arena.Grab(256), value, true); ok {
			return v.keepPiece(b)
		}
		v.throw(refuse(CodeRefused, "give a byte array or a string", "the value is %s, and %s takes bytes", kindName(value), topic.Name))
	default:
		if b, ok := v.text(v.arena.Grab(256), value, false); ok {
			return v.keepPiece(b)
		}
		v.throw(refuse(CodeRefused, fmt.Sprintf("give a string, with JSON.stringify for example, or declare the topic %s with value: json", topic.Name), "the value is %s, and %s takes text", kindName(value), topic.Name))
	}
	return nil
}

// now is the engine's clock in milliseconds.
func (v *vm) now() int64 { return v.clock().UnixMilli() }

func (v *vm) clock() time.Time {
	if v.env.Now == nil {
		return time.Now()
	}
	return v.env.Now()
}
