package script

import (
	"bytes"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/dop251/goja"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

// textOfObject is the JSON text that an object was made of if it is still what the text says, or nil.
func (vs *values) textOfObject(o *goja.Object) []byte {
	if l := vs.lazyOf(o); l != nil {
		if l.copied || !l.untouched() {
			return nil
		}
		return l.text.raw
	}
	if from := vs.origins[o]; from != nil && from.raw != nil && vs.untouched(o) {
		return from.raw
	}
	return nil
}

// structuredClone is the algorithm of the HTML standard (2.7.3), without transfer.
func (v *vm) structuredClone(call goja.FunctionCall) goja.Value {
	if len(call.Arguments) == 0 {
		v.wrong("structuredClone", "the argument is left out; a value is expected")
	}
	if o, ok := call.Argument(0).(*goja.Object); ok {
		if raw := v.values.textOfObject(o); raw != nil {
			return v.values.decode(trim(raw))
		}
	}
	c := cloner{vm: v, made: map[*goja.Object]*goja.Object{}}
	return c.clone(call.Argument(0), 0)
}

type cloner struct {
	vm   *vm
	made map[*goja.Object]*goja.Object
}

func (c *cloner) refuse(what string) {
	v := c.vm
	o, err := v.rt.New(v.rt.GlobalObject().Get("Error"), v.rt.ToValue("structuredClone: "+what+" cannot be cloned"))
	must(err)
	define(o, "name", v.rt.ToValue("DataCloneError"))
	define(o, "code", v.rt.ToValue(codeClone))
	panic(o)
}

func (c *cloner) clone(value goja.Value, depth int) goja.Value {
	v := c.vm
	v.look()
	o, ok := value.(*goja.Object)
	if !ok {
		if _, symbol := value.(*goja.Symbol); symbol {
			c.refuse("a symbol")
		}
		return value
	}
	if made := c.made[o]; made != nil {
		return made
	}
	if depth >= rawjson.MaxDepth {
		v.raise("RangeError", codeDepth, "structuredClone: nested too deep")
	}
	construct := func(class string, args ...goja.Value) *goja.Object {
		made, err := v.rt.New(v.rt.GlobalObject().Get(class), args...)
		must(err)
		c.made[o] = made
		return made
	}
	switch class := o.ClassName(); class {
	case "Array":
		list := v.values.elements(o)
		made := v.rt.NewArray()
		c.made[o] = made
		must(made.Set("length", len(list)))
		for i, e := range list {
			if e != nil {
				define(made, strconv.Itoa(i), c.clone(e, depth+1))
			}
		}
		return made
	case "Date":
		return construct("Date", v.rt.ToValue(o.ToFloat()))
	case "RegExp":
		return construct("RegExp", o.Get("source"), o.Get("flags"))
	case "Number", "String", "Boolean", "BigInt":
		return unbox(o).ToObject(v.rt)
	case "Error":
		return c.error(o, construct)
	case "Function":
		c.refuse("a function")
	case "Object", "Arguments":
	default:
		c.refuse("a " + class)
	}
	switch t := o.ExportType(); {
	case t == exportedBuffer:
		data, _ := viewOf(o)
		made := v.rt.ToValue(v.rt.NewArrayBuffer(bytes.Clone(data))).(*goja.Object)
		c.made[o] = made
		return made
	case isByteArray(o):
		made, err := v.rt.New(o.Prototype().Get("constructor"), o)
		must(err)
		c.made[o] = made
		return made
	case t == exportedMap:
		made := construct("Map")
		set, _ := goja.AssertFunction(made.Get("set"))
		v.rt.ForOf(o, func(pair goja.Value) bool {
			entry := pair.(*goja.Object)
			_, err := set(made, c.clone(entry.Get("0"), depth+1), c.clone(entry.Get("1"), depth+1))
			must(err)
			return true
		})
		return made
	case t == exportedSet && o.ClassName() == "Object":
		made := construct("Set")
		add, _ := goja.AssertFunction(made.Get("add"))
		v.rt.ForOf(o, func(e goja.Value) bool {
			_, err := add(made, c.clone(e, depth+1))
			must(err)
			return true
		})
		return made
	}
	if what, _ := notPlain(o); what != "" {
		c.refuse(what)
	}
	if primitive := unbox(o); primitive != nil {
		return primitive.ToObject(v.rt)
	}
	made := v.rt.NewObject()
	c.made[o] = made
	v.spread(made, o)
	for _, symbol := range made.Symbols() {
		must(made.DeleteSymbol(symbol))
	}
	for _, name := range made.Keys() {
		if member, ok := made.Get(name).(*goja.Object); ok {
			define(made, name, c.clone(member, depth+1))
			v.forget(made, name)
		} else if _, symbol := made.Get(name).(*goja.Symbol); symbol {
			c.refuse("a symbol")
		}
	}
	return made
}

// error clones an error with its name, message, cause and code.
func (c *cloner) error(o *goja.Object, construct func(string, ...goja.Value) *goja.Object) goja.Value {
	class := "Error"
	for p := o.Prototype(); p != nil && class == "Error"; p = p.Prototype() {
		for _, known := range []string{"EvalError", "RangeError", "ReferenceError", "SyntaxError", "TypeError", "URIError"} {
			if name := p.Get("name"); name != nil && name.String() == known {
				class = known
			}
		}
	}
	made := construct(class)
	for _, name := range []string{"message", "stack", "cause", "code"} {
		if hasOwn(o, name) {
			must(made.DefineDataProperty(name, c.clone(o.Get(name), len(c.made)), goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))
		}
	}
	return made
}

// equal compares two values deeply, as data: numbers by value (NaN equals NaN, 0 equals -0), objects by their own
// enumerable members in any order, dates by their time, byte arrays by their bytes. Prototypes do not count.
func (v *vm) equal(call goja.FunctionCall) goja.Value {
	c := comparison{vm: v}
	return v.rt.ToValue(c.equal(call.Argument(0), call.Argument(1)))
}

type comparison struct {
	vm   *vm
	open [][2]*goja.Object // the pairs under way: within themselves they are taken as equal
}

func (c *comparison) equal(a, b goja.Value) bool {
	c.vm.look()
	x, isObject := a.(*goja.Object)
	y, both := b.(*goja.Object)
	if !isObject || !both {
		if isObject != both {
			return false
		}
		return a.StrictEquals(b) || a.SameAs(b)
	}
	if x == y {
		return true
	}
	pair := [2]*goja.Object{x, y}
	if slices.Contains(c.open, pair) {
		return true
	}
	if len(c.open) >= rawjson.MaxDepth {
		c.vm.raise("RangeError", codeDepth, "equal: nested too deep")
	}
	c.open = append(c.open, pair)
	defer func() { c.open = c.open[:len(c.open)-1] }()
	return c.objects(x, y)
}

func (c *comparison) objects(x, y *goja.Object) bool {
	vs := &c.vm.values
	class := x.ClassName()
	if class != y.ClassName() {
		return false
	}
	if a, ok := viewOf(x); ok {
		b, ok := viewOf(y)
		return ok && bytes.Equal(a, b)
	}
	kind := exportedPlain
	for i, o := range []*goja.Object{x, y} {
		own := exportedPlain
		if t := o.ExportType(); class == "Object" && (t == exportedMap || t == exportedSet) {
			own = t
		}
		if i == 1 && own != kind {
			return false
		}
		kind = own
	}
	switch {
	case class == "Array":
		return slices.EqualFunc(vs.elements(x), vs.elements(y), func(a, b goja.Value) bool {
			return c.equal(present(a), present(b))
		})
	case class == "Date":
		a, b := x.ToFloat(), y.ToFloat()
		return a == b || a != a && b != b
	case class == "RegExp":
		return x.String() == y.String()
	case class == "Function" || class == "Symbol":
		return false
	case class == "Error":
		return x.String() == y.String()
	case kind == exportedMap || kind == exportedSet:
		return c.collections(x, y)
	}
	if a := unbox(x); a != nil {
		b := unbox(y)
		return b != nil && c.equal(a, b)
	}
	if a, b := vs.textOfObject(x), vs.textOfObject(y); a != nil && bytes.Equal(a, b) {
		return true
	}
	names := x.Keys()
	other := y.Keys()
	if len(names) != len(other) {
		return false
	}
	slices.Sort(other)
	for _, name := range names {
		if _, ok := slices.BinarySearch(other, name); !ok || !c.equal(present(x.Get(name)), present(y.Get(name))) {
			return false
		}
	}
	return true
}

func present(value goja.Value) goja.Value {
	if value == nil {
		return goja.Undefined()
	}
	return value
}

// collections compares Maps or Sets, whose elements may stand in any order.
func (c *comparison) collections(x, y *goja.Object) bool {
	list := func(o *goja.Object) (all []goja.Value) {
		c.vm.rt.ForOf(o, func(e goja.Value) bool {
			all = append(all, e)
			return true
		})
		return all
	}
	a, b := list(x), list(y)
	if len(a) != len(b) {
		return false
	}
	for _, e := range a {
		i := slices.IndexFunc(b, func(other goja.Value) bool { return c.equal(e, other) })
		if i < 0 {
			return false
		}
		b = slices.Delete(b, i, i+1)
	}
	return true
}

// num reads a decimal number strictly: no white space, no other notation, nothing beside it. An integer beyond 2^53 is a
// BigInt, as everywhere; what is no number, or beyond what one can hold, is null.
func (v *vm) num(call goja.FunctionCall) goja.Value {
	value := call.Argument(0)
	switch {
	case goja.IsBigInt(value):
		return value
	case goja.IsNumber(value):
		if f := value.ToFloat(); f-f != 0 {
			return goja.Null()
		}
		return value
	case !goja.IsString(value):
		return goja.Null()
	}
	text := value.String()
	digits, integer := decimal(text)
	if !digits {
		return goja.Null()
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return goja.Null()
	}
	if integer && (f > maxSafe || f < -maxSafe) {
		if b, ok := new(big.Int).SetString(strings.TrimPrefix(text, "+"), 10); ok {
			return v.rt.ToValue(b)
		}
	}
	return v.rt.ToValue(f)
}

// decimal tells whether a text is a sign, digits with or without a fraction, and an exponent; and whether it is an integer.
func decimal(text string) (ok, integer bool) {
	i := 0
	sign := func() {
		if i < len(text) && (text[i] == '+' || text[i] == '-') {
			i++
		}
	}
	run := func() bool {
		start := i
		for i < len(text) && text[i]-'0' <= 9 {
			i++
		}
		return i > start
	}
	sign()
	whole := run()
	integer = whole
	if i < len(text) && text[i] == '.' {
		i++
		integer = false
		if !run() {
			return false, false
		}
	} else if !whole {
		return false, false
	}
	if i < len(text) && text[i]|0x20 == 'e' {
		i++
		sign()
		integer = false
		if !run() {
			return false, false
		}
	}
	return i == len(text), integer
}
