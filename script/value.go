package script

import (
	"math/big"
	"reflect"
	"strconv"
	"strings"

	"github.com/dop251/goja"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

// values makes JavaScript values of JSON texts, and remembers what it made of which text, so that what a script leaves
// alone is written as it came.
//
// In the plain representation objects are ordinary ones; otherwise they are lazy (lazy.go). Arrays are ordinary in both.
// origins says for the ordinary ones what they were made of. It lasts for one call.
type values struct {
	rt      *goja.Runtime
	plain   bool
	parse   bool     // as JSON.parse does: all numbers are doubles, and nothing is remembered
	bigs    []string // names of the members that came as BigInt in this call
	origins map[*goja.Object]*origin
	slab    []lazyObject
	changes []change
	recent  [recentSize]recentLazy
	next    int
	value   lent // msg.value and state, where the body cannot get hold of them
	state   lent
	words   [wordSlots]word
	yes, no goja.Value
}

// origin is what an ordinary object or array was made of.
type origin struct {
	raw   []byte // the whole text, or nil if only parts came from texts
	names []string
	parts []originPart // of an array by index, of an object as names
	index map[string]int
}

type originPart struct {
	raw   []byte // nil if the part came from no text
	value goja.Value
}

const recentSize = 4

// recentLazy saves the way from goja's object back to ours.
type recentLazy struct {
	object *goja.Object
	lazy   *lazy
}

// word is a short string that was met before.
type word struct {
	text  string
	value goja.Value
	met   uint32 // the hash of the last one that was not kept
}

const (
	wordSlots  = 256
	wordSize   = 16
	slabSize   = 32
	changeSlab = 128
	maxSafe    = 1<<53 - 1
)

func newValues(rt *goja.Runtime, plain bool) values {
	return values{rt: rt, plain: plain, origins: map[*goja.Object]*origin{}, yes: rt.ToValue(true), no: rt.ToValue(false)}
}

// begin forgets what the last call made.
func (vs *values) begin() {
	if len(vs.origins) > 0 {
		clear(vs.origins)
	}
	vs.bigs = vs.bigs[:0]
}

// decode is the value of a JSON text that was checked and has no white space around it.
func (vs *values) decode(raw []byte) goja.Value { return vs.member("", raw) }

// member is the value of a member called name; the name is for errors.
func (vs *values) member(name string, raw []byte) goja.Value {
	switch rawjson.KindOf(raw[0]) {
	case rawjson.Number:
		return vs.number(name, raw)
	case rawjson.String:
		return vs.text(raw)
	case rawjson.Null:
		return goja.Null()
	case rawjson.True:
		return vs.yes
	case rawjson.False:
		return vs.no
	case rawjson.Array:
		return vs.array(raw)
	default:
		return vs.object(&text{raw: raw})
	}
}

func (vs *values) number(name string, raw []byte) goja.Value {
	f := rawjson.Float(raw)
	if (f > maxSafe || f < -maxSafe) && !vs.parse && len(raw) <= maxDigits && rawjson.IsInteger(raw) {
		if b, ok := new(big.Int).SetString(string(raw), 10); ok {
			if name != "" && len(vs.bigs) < 16 {
				vs.bigs = append(vs.bigs, name)
			}
			return vs.rt.ToValue(b)
		}
	}
	return vs.rt.ToValue(f)
}

func (vs *values) text(raw []byte) goja.Value {
	t, _ := rawjson.Text(raw)
	return vs.string(t)
}

// string is the value of a string that may share memory with a record. Short ones are shared among records.
func (vs *values) string(t string) goja.Value {
	if len(t) > wordSize {
		return vs.rt.ToValue(t)
	}
	h := uint32(2166136261)
	for i := 0; i < len(t); i++ {
		h = (h ^ uint32(t[i])) * 16777619
	}
	w := &vs.words[(h^h>>8)%wordSlots]
	if w.value != nil && w.text == t {
		return w.value
	}
	if w.met != h { // one that comes once is not worth a copy
		w.met = h
		return vs.rt.ToValue(t)
	}
	w.text = strings.Clone(t)
	w.value = vs.rt.ToValue(w.text)
	return w.value
}

func (vs *values) array(raw []byte) *goja.Object {
	spans := rawjson.Elements(raw, nil)
	items := make([]any, len(spans))
	if vs.parse {
		for i, s := range spans {
			items[i] = vs.decode(raw[s.Start:s.End])
		}
		return vs.rt.NewArray(items...)
	}
	o := &origin{raw: raw, parts: make([]originPart, len(spans))}
	for i, s := range spans {
		v := vs.decode(raw[s.Start:s.End])
		items[i] = v
		o.parts[i] = originPart{raw[s.Start:s.End], v}
	}
	array := vs.rt.NewArray(items...)
	vs.origins[array] = o
	return array
}

// object makes an object of a text.
func (vs *values) object(t *text) *goja.Object {
	if !vs.plain {
		return vs.lazy(t, nil)
	}
	if vs.parse {
		return vs.ordinary(t.raw)
	}
	t.scan()
	object := vs.rt.NewObject()
	o := &origin{raw: t.raw}
	for i := range t.members {
		m := &t.members[i]
		name, raw := m.Name(t.raw), t.raw[m.Start:m.End]
		v := vs.member(name, raw)
		define(object, name, v)
		o.add(name, originPart{raw, v})
	}
	o.names = object.Keys()
	vs.origins[object] = o
	return object
}

// ordinary makes an ordinary object of a text, whose own members alone are lazy.
func (vs *values) ordinary(raw []byte) *goja.Object {
	object := vs.rt.NewObject()
	for _, m := range rawjson.Members(raw, nil) {
		name := m.Name(raw)
		define(object, name, vs.member(name, raw[m.Start:m.End]))
	}
	return object
}

func (o *origin) add(name string, part originPart) {
	if o.index == nil {
		o.index = map[string]int{}
	}
	if i, ok := o.index[name]; ok {
		o.parts[i] = part
		return
	}
	o.index[name] = len(o.parts)
	o.parts = append(o.parts, part)
}

var lazyType = reflect.TypeFor[*lazy]()

// lazyOf is the lazy object behind o, or nil.
func (vs *values) lazyOf(o *goja.Object) *lazy {
	switch o {
	case vs.value.object:
		return vs.value.lazy
	case vs.state.object:
		return vs.state.lazy
	}
	for i := range vs.recent {
		if vs.recent[i].object == o {
			return vs.recent[i].lazy
		}
	}
	if vs.plain || o.ExportType() != lazyType {
		return nil
	}
	return o.Export().(*lazy)
}

// elements are the elements of an array; a hole is nil.
func (vs *values) elements(array *goja.Object) []goja.Value {
	n := array.Get("length").ToInteger()
	if n > maxElements {
		panic(vs.rt.NewGoError(refuse(CodeRefused, "split it into several messages", "an array of %d elements is too long to be written", n)))
	}
	list := make([]goja.Value, n)
	for i := range list {
		list[i] = array.Get(strconv.Itoa(i))
	}
	return list
}

// untouched tells whether a value that was made of a text is still what the text says.
func (vs *values) untouched(value goja.Value) bool {
	o, ok := value.(*goja.Object)
	if !ok {
		return true
	}
	if l := vs.lazyOf(o); l != nil {
		return l.untouched()
	}
	from := vs.origins[o]
	if from == nil || from.raw == nil {
		return false
	}
	if from.names == nil && o.ClassName() == "Array" {
		list := vs.elements(o)
		if len(list) != len(from.parts) {
			return false
		}
		for i, element := range list {
			if element == nil || !vs.same(from.parts[i], element) {
				return false
			}
		}
		return len(o.Keys()) == len(list)
	}
	names := o.Keys()
	if len(names) != len(from.names) {
		return false
	}
	for i, name := range names {
		if name != from.names[i] || !vs.same(from.parts[from.index[name]], o.Get(name)) {
			return false
		}
	}
	return true
}

// same tells whether value is what part was made as, inside too.
func (vs *values) same(part originPart, value goja.Value) bool {
	return part.raw != nil && value.SameAs(part.value) && vs.untouched(value)
}

// rawMember is the text of a member that is still what the text says, or nil.
func (vs *values) rawMember(o *goja.Object, name string, value goja.Value) []byte {
	if l := vs.lazyOf(o); l != nil {
		return l.rawMember(name)
	}
	if from := vs.origins[o]; from != nil {
		if i, ok := from.index[name]; ok && vs.same(from.parts[i], value) {
			return from.parts[i].raw
		}
	}
	return nil
}

// define makes an ordinary member of o, whatever its prototypes say.
func define(o *goja.Object, name string, value goja.Value) {
	must(o.DefineDataProperty(name, value, goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_TRUE))
}

// must is for calls into goja that cannot fail on the objects of this package. An exception goes on as one.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// isIndex tells whether a member name is an array index, which JavaScript orders before all others.
func isIndex(name string) bool {
	if name == "" || len(name) > 10 || name[0] == '0' && len(name) > 1 {
		return false
	}
	n := uint64(0)
	for i := 0; i < len(name); i++ {
		d := name[i] - '0'
		if d > 9 {
			return false
		}
		n = n*10 + uint64(d)
	}
	return n < 1<<32-1
}
