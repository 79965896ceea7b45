package script

import (
	"fmt"
	"math"
	"math/big"
	"reflect"
	"runtime"
	"strings"

	"github.com/dop251/goja"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

// An interrupt ends a script between two of its own instructions, never inside of a built-in function, and nothing bounds
// what a built-in allocates. So here stands what each may be given.
//
//  1. What walks a list walks maxWalk elements at most, however long the list says that it is.
//  2. What makes a string, a byte array or a BigInt looks at the size before it makes it.
//  3. Chains that goja follows by recursion in Go, where no call of the script's is counted, are short: of proxies, and of
//     prototypes that lead through them.
//
// What grows by instructions of the script's, and so can be interrupted, is bounded by the watch over memory (heap.go).

const (
	// maxString is the longest string, in UTF-16 units, that built-in functions make.
	maxString = 32 << 20
	// maxText is the longest text, in UTF-16 units, that is taken apart or normalized in one go.
	maxText = 8 << 20
	// maxWalk is the longest list that built-in functions walk. One that has holes takes goja about 2 µs an element.
	maxWalk = 1 << 20
	// maxElements is the longest array that is written. It is far above what a record can hold.
	maxElements = 4 << 20
	// maxArguments is the longest list that apply makes arguments of.
	maxArguments = 1 << 20
	// maxBuffer is the largest byte array, in bytes. It is as much as gunzip unpacks at most.
	maxBuffer = 256 << 20
	// maxBits is the largest BigInt that **, <<, asIntN and asUintN make, in bits.
	maxBits = 1 << 24
	// maxDigits is the longest integer that is read as a BigInt: reading takes the square of it.
	maxDigits = 10_000
	// maxProxies is how deep proxies may stand in each other.
	maxProxies = 100
)

// limitBuiltins takes away what builds code from text, and bounds the rest.
func limitBuiltins(v *vm) {
	l := &limiter{vm: v, global: v.rt.GlobalObject()}
	l.code()
	l.strings()
	l.lists()
	l.numbers()
	l.buffers()
	l.chains()
}

type limiter struct {
	*vm
	global *goja.Object
	depth  int     // nested arrays join by joining their elements:
	joined float64 // these have so many characters so far
}

func (l *limiter) class(name string) *goja.Object { return l.global.Get(name).(*goja.Object) }

func (l *limiter) prototype(name string) *goja.Object {
	return l.class(name).Get("prototype").(*goja.Object)
}

// around puts f in the place of a built-in function; original calls that.
func (l *limiter) around(holder *goja.Object, name string, f func(call goja.FunctionCall, original func(goja.FunctionCall) goja.Value) goja.Value) {
	value := holder.Get(name).(*goja.Object)
	callable, _ := goja.AssertFunction(value)
	original := func(call goja.FunctionCall) goja.Value {
		defer l.noteFault()
		result, err := callable(call.This, call.Arguments...)
		must(err)
		return result
	}
	limited := l.native(name, 0, func(call goja.FunctionCall) goja.Value { return f(call, original) })
	must(limited.DefineDataProperty("length", value.Get("length"), goja.FLAG_FALSE, goja.FLAG_TRUE, goja.FLAG_FALSE))
	must(holder.DefineDataProperty(name, limited, goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))
}

// noteFault notes where a run-time panic of a built-in function comes from, as long as that can be told.
func (v *vm) noteFault() {
	if r := recover(); r != nil {
		if _, ok := r.(runtime.Error); ok && v.faultAt == nil {
			v.faultAt = v.rt.CaptureCallStack(0, nil)
		}
		panic(r)
	}
}

// before lets check look at the arguments of a built-in function, and throw.
func (l *limiter) before(holder *goja.Object, name string, check func(call goja.FunctionCall)) {
	l.around(holder, name, func(call goja.FunctionCall, original func(goja.FunctionCall) goja.Value) goja.Value {
		check(call)
		return original(call)
	})
}

// tooLarge throws a RangeError that can be caught.
func (v *vm) tooLarge(hint, format string, args ...any) {
	v.throw(refuse(CodeError, hint, "RangeError: "+format, args...))
}

// code takes away what runs text.
func (l *limiter) code() {
	none := func(what string) func(goja.FunctionCall) goja.Value {
		return func(goja.FunctionCall) goja.Value {
			panic(l.rt.NewTypeError("%s is not there: write the code where it runs", what))
		}
	}
	kinds, err := l.rt.RunProgram(functionKindsProgram)
	must(err)
	var prototypes []*goja.Object
	must(l.rt.ExportTo(kinds, &prototypes))
	for i, prototype := range prototypes {
		constructor := l.native("Function", 1, none("the Function constructor"))
		must(constructor.DefineDataProperty("prototype", prototype, goja.FLAG_FALSE, goja.FLAG_FALSE, goja.FLAG_FALSE))
		must(prototype.DefineDataProperty("constructor", constructor, goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))
		if i == 0 {
			must(l.global.Set("Function", constructor))
			l.before(prototype, "apply", func(call goja.FunctionCall) { l.list("apply", call.Argument(1), maxArguments) })
		}
	}
	must(l.global.Set("eval", l.native("eval", 1, none("eval"))))
}

var functionKindsProgram = goja.MustCompile("kinds", `[
	Function.prototype, Object.getPrototypeOf(function*(){}), Object.getPrototypeOf(async function(){}),
]`, true)

// fits throws if a string of n UTF-16 units is too long.
func (l *limiter) fits(name string, n float64) {
	if n > maxString {
		l.tooLarge("build it in parts", "%s would make a string of %.0f characters; %d are the most", name, n, maxString)
	}
}

func (l *limiter) strings() {
	prototype := l.prototype("String")
	l.before(prototype, "repeat", func(call goja.FunctionCall) {
		l.fits("repeat", lengthOf(call.This)*call.Argument(0).ToFloat())
	})
	for _, name := range []string{"padStart", "padEnd"} {
		l.before(prototype, name, func(call goja.FunctionCall) { l.fits(name, call.Argument(0).ToFloat()) })
	}
	l.before(prototype, "concat", func(call goja.FunctionCall) {
		n := lengthOf(call.This)
		for _, part := range call.Arguments {
			if goja.IsString(part) {
				n += lengthOf(part)
			}
		}
		l.fits("concat", n)
	})
	for _, name := range []string{"replace", "replaceAll"} {
		l.around(prototype, name, l.replace(name))
	}
	l.around(prototype, "split", func(call goja.FunctionCall, original func(goja.FunctionCall) goja.Value) goja.Value {
		if lengthOf(call.This) <= maxWalk || !goja.IsUndefined(call.Argument(1)) {
			return original(call)
		}
		list := original(goja.FunctionCall{This: call.This, Arguments: []goja.Value{call.Argument(0), l.rt.ToValue(maxWalk + 1)}})
		l.list("split", list, maxWalk)
		return list
	})
	for _, name := range []string{"normalize", "localeCompare"} {
		l.before(prototype, name, func(call goja.FunctionCall) { l.short(name, call.This, maxText) })
	}
	for _, name := range []string{"match", "split"} {
		l.before(prototype, name, func(call goja.FunctionCall) {
			if _, ok := call.Argument(0).(*goja.Object); ok {
				l.short(name, call.This, maxText)
			}
		})
	}
	l.before(l.class("Object"), "assign", func(call goja.FunctionCall) {
		for _, from := range call.Arguments {
			l.short("Object.assign", from, maxWalk)
		}
	})
	l.before(l.class("String"), "raw", func(call goja.FunctionCall) {
		if o, ok := call.Argument(0).(*goja.Object); ok {
			raw := o.Get("raw")
			l.list("String.raw", raw, maxWalk)
			l.short("String.raw", raw, maxWalk)
		}
	})
	l.around(l.prototype("Array"), "join", l.join)
	l.around(l.prototype("Int8Array").Prototype(), "join", l.join)
}

// short throws if a text is too long.
func (l *limiter) short(name string, text goja.Value, most int) {
	if text != nil && goja.IsString(text) && lengthOf(text) > float64(most) {
		l.tooLarge("go through it in parts", "%s would walk %.0f characters; %d are the most", name, lengthOf(text), most)
	}
}

// replace bounds what a replacement by a text may make of a text. A replacement by a function runs code of the script's each
// time, and needs no bound.
func (l *limiter) replace(name string) func(goja.FunctionCall, func(goja.FunctionCall) goja.Value) goja.Value {
	return func(call goja.FunctionCall, original func(goja.FunctionCall) goja.Value) goja.Value {
		by := call.Argument(1)
		if isFunction(by) || !goja.IsString(call.This) {
			return original(call)
		}
		by = by.ToString()
		pattern, text, n := call.Argument(0), by.String(), lengthOf(call.This)
		each, special := lengthOf(by), strings.Contains(text, "$")
		if special {
			each *= max(1, n) // each $' may stand for nearly all of the text
		}
		with := func(by goja.Value) goja.Value {
			return original(goja.FunctionCall{This: call.This, Arguments: []goja.Value{pattern, by}})
		}
		if (n+1)*each <= maxString {
			return with(by)
		}
		// How much of the text matches is not known before, so what comes of it is counted, as if by a function.
		total := n
		count := l.rt.ToValue(func(match goja.FunctionCall) goja.Value {
			total += l.substituted(text, match.Arguments, n)
			l.fits(name, total)
			return by
		})
		if !special {
			return with(count)
		}
		o, _ := pattern.(*goja.Object)
		var last goja.Value
		if o != nil {
			last = o.Get("lastIndex")
		}
		with(count)
		if o != nil && last != nil {
			must(o.Set("lastIndex", last))
		}
		return with(by)
	}
}

// substituted is how long a replacement is that stands for a match (ECMA-262, GetSubstitution). args are those of a function
// that replaces: the match, its groups, its place, the text and the groups by name.
func (l *limiter) substituted(text string, args []goja.Value, n float64) float64 {
	length := float64(len(text))
	if !strings.Contains(text, "$") {
		return lengthOf(l.rt.ToValue(text))
	}
	at := len(args) - 1
	for ; at > 0; at-- {
		if goja.IsNumber(args[at]) {
			break
		}
	}
	match, before := lengthOf(args[0]), args[at].ToFloat()
	for i := 0; i+1 < len(text); i++ {
		if text[i] != '$' {
			continue
		}
		i++
		switch c := text[i]; {
		case c == '&':
			length += match
		case c == '`':
			length += before
		case c == '\'':
			length += n - before - match
		case c == '<':
			// A name stands for one group: no longer than the longest.
			longest := 0.0
			for _, group := range args[1:at] {
				longest = max(longest, groupLength(group))
			}
			length += longest
		case c >= '0' && c <= '9':
			group := int(c - '0')
			if i+1 < len(text) && text[i+1] >= '0' && text[i+1] <= '9' && group*10+int(text[i+1]-'0') < at {
				group = group*10 + int(text[i+1]-'0')
			}
			if group > 0 && group < at {
				length += groupLength(args[group])
			}
		}
	}
	return length
}

func groupLength(group goja.Value) float64 {
	if group == nil || !goja.IsString(group) {
		return 0
	}
	return lengthOf(group)
}

// join bounds what the join of a list may make. Arrays in it are joined in turn.
func (l *limiter) join(call goja.FunctionCall, original func(goja.FunctionCall) goja.Value) goja.Value {
	if l.depth++; l.depth > rawjson.MaxDepth {
		l.depth = 0
		l.fail("RangeError", "join: nested too deep")
	}
	defer func() { l.depth = max(0, l.depth-1) }()
	if l.depth == 1 {
		l.joined = 0
	}
	if o, ok := call.This.(*goja.Object); ok {
		separator := 1.0
		if s := call.Argument(0); !goja.IsUndefined(s) {
			separator = lengthOf(s)
		}
		total := float64(l.list("join", o, math.MaxInt64)) * separator
		l.fits("join", total)
		l.list("join", o, maxWalk)
		if o.ClassName() == "Array" {
			for _, e := range l.values.elements(o) {
				if e != nil && goja.IsString(e) {
					total += lengthOf(e)
				}
			}
		}
		l.fits("join", total)
	}
	result := original(call)
	if l.depth > 1 {
		l.joined += lengthOf(result)
		l.fits("join", l.joined)
	}
	return result
}

// list is the length of what is used as a list. It throws if that is more than most.
func (l *limiter) list(name string, value goja.Value, most int64) int64 {
	o, ok := value.(*goja.Object)
	if !ok {
		return 0
	}
	length := o.Get("length")
	if length == nil {
		return 0
	}
	n := length.ToInteger()
	if n > most {
		l.tooLarge("go through it in parts", "%s would walk a list of %d elements; %d are the most", name, n, most)
	}
	return n
}

// walkers are the functions of arrays that walk them.
var walkers = []string{
	"concat", "copyWithin", "every", "fill", "filter", "find", "findIndex", "findLast", "findLastIndex", "flatMap", "forEach", "includes", "indexOf",
	"lastIndexOf", "map", "reduce", "reduceRight", "reverse", "shift", "slice", "some", "sort", "splice", "toLocaleString", "toReversed", "toSorted", "toSpliced",
	"unshift", "with",
}

func (l *limiter) lists() {
	prototype := l.prototype("Array")
	for _, name := range walkers {
		if name == "concat" {
			continue
		}
		l.before(prototype, name, func(call goja.FunctionCall) { l.list(name, call.This, maxWalk) })
	}
	l.before(prototype, "concat", func(call goja.FunctionCall) {
		n := l.list("concat", call.This, maxWalk)
		for _, part := range call.Arguments {
			n += l.list("concat", part, maxWalk)
		}
		if n > maxWalk {
			l.tooLarge("go through them in parts", "concat would make a list of %d elements; %d are the most", n, maxWalk)
		}
	})
	l.around(prototype, "flat", func(call goja.FunctionCall, original func(goja.FunctionCall) goja.Value) goja.Value {
		levels := 1.0
		if !goja.IsUndefined(call.Argument(0)) {
			levels = call.Argument(0).ToFloat()
		}
		levels = min(levels, rawjson.MaxDepth)
		if most := l.flattened(call.This, levels, maxWalk); most < 0 {
			l.tooLarge("go through it in parts", "flat would walk more than %d elements", maxWalk)
		}
		return original(goja.FunctionCall{This: call.This, Arguments: []goja.Value{l.rt.ToValue(levels)}})
	})
	l.around(l.class("Array"), "from", func(call goja.FunctionCall, original func(goja.FunctionCall) goja.Value) goja.Value {
		l.list("Array.from", call.Argument(0), maxWalk)
		return original(l.complete(call))
	})
	typed := l.class("Int8Array").Prototype()
	l.around(typed, "from", func(call goja.FunctionCall, original func(goja.FunctionCall) goja.Value) goja.Value {
		l.list("from", call.Argument(0), maxBuffer)
		return original(l.complete(call))
	})
	l.before(l.prototype("Int8Array").Prototype(), "set", func(call goja.FunctionCall) { l.list("set", call.Argument(0), maxBuffer) })
	mirror := l.class("Reflect")
	l.before(mirror, "apply", func(call goja.FunctionCall) { l.list("Reflect.apply", call.Argument(2), maxArguments) })
	l.before(mirror, "construct", func(call goja.FunctionCall) { l.list("Reflect.construct", call.Argument(1), maxArguments) })
}

// complete makes sure that the function that from maps with is given a value: goja gives it nothing for an element that is not
// there, which a native function stumbles on.
func (l *limiter) complete(call goja.FunctionCall) goja.FunctionCall {
	f, ok := goja.AssertFunction(call.Argument(1))
	if !ok {
		return call
	}
	whole := l.rt.ToValue(func(inner goja.FunctionCall) goja.Value {
		args := inner.Arguments
		if len(args) > 0 && args[0] == nil {
			args[0] = goja.Undefined()
		}
		result, err := f(inner.This, args...)
		must(err)
		return result
	})
	args := append([]goja.Value(nil), call.Arguments...)
	args[1] = whole
	return goja.FunctionCall{This: call.This, Arguments: args}
}

// flattened is what is left of most after the elements of a list and those of the lists in it, or negative.
func (l *limiter) flattened(value goja.Value, levels float64, most int64) int64 {
	o, ok := value.(*goja.Object)
	if !ok {
		return most
	}
	if most -= l.list("flat", o, maxWalk); most < 0 || levels < 1 || o.ClassName() != "Array" {
		return most
	}
	for _, e := range l.values.elements(o) {
		if inner, ok := e.(*goja.Object); ok && inner.ClassName() == "Array" {
			if most = l.flattened(inner, levels-1, most); most < 0 {
				return most
			}
		}
	}
	return most
}

func (l *limiter) numbers() {
	for _, name := range []string{"asIntN", "asUintN"} {
		l.before(l.class("BigInt"), name, func(call goja.FunctionCall) {
			if bits := call.Argument(0).ToFloat(); bits > maxBits {
				l.tooLarge("", "BigInt.%s of %.0f bits; %d are the most", name, bits, maxBits)
			}
		})
	}
	original := l.class("BigInt")
	f, _ := goja.AssertFunction(original)
	l.put("BigInt", original, l.native("BigInt", 1, func(call goja.FunctionCall) goja.Value {
		if text := call.Argument(0); goja.IsString(text) && lengthOf(text) > maxDigits {
			l.tooLarge("", "a BigInt of %.0f digits; %d are the most", lengthOf(text), maxDigits)
		}
		result, err := f(call.This, call.Arguments...)
		must(err)
		return result
	}))
}

// put makes a function the global class called name. It takes over what the original one has.
func (l *limiter) put(name string, original, limited *goja.Object) {
	must(limited.SetPrototype(original.Prototype()))
	for _, member := range original.GetOwnPropertyNames() {
		if member == "prototype" {
			must(limited.DefineDataProperty(member, original.Get(member), goja.FLAG_FALSE, goja.FLAG_NOT_SET, goja.FLAG_NOT_SET))
			continue
		}
		must(limited.DefineDataProperty(member, original.Get(member), goja.FLAG_FALSE, goja.FLAG_TRUE, goja.FLAG_FALSE))
	}
	prototype := original.Get("prototype").(*goja.Object)
	must(prototype.DefineDataProperty("constructor", limited, goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))
	must(l.global.DefineDataProperty(name, limited, goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))
}

// byteArrays are the classes that make byte arrays, with the size of an element in bytes.
var byteArrays = map[string]float64{
	"ArrayBuffer": 1, "Uint8Array": 1, "Int8Array": 1, "Uint8ClampedArray": 1, "Uint16Array": 2, "Int16Array": 2, "Uint32Array": 4, "Int32Array": 4,
	"Float32Array": 4, "Float64Array": 8, "BigInt64Array": 8, "BigUint64Array": 8,
}

func (l *limiter) buffers() {
	for name, size := range byteArrays {
		value, ok := l.global.Get(name).(*goja.Object)
		if !ok {
			continue
		}
		construct, _ := goja.AssertConstructor(value)
		limited := l.rt.ToValue(func(call goja.ConstructorCall) *goja.Object {
			n := 0.0
			if o, ok := call.Argument(0).(*goja.Object); !ok {
				n = call.Argument(0).ToFloat()
			} else if length := o.Get("length"); length != nil {
				n = length.ToFloat()
			}
			if n*size > maxBuffer {
				l.tooLarge("go through it in parts", "%s of %.0f bytes; %d are the most", name, n*size, maxBuffer)
			}
			o, err := construct(call.NewTarget, call.Arguments...)
			must(err)
			return o
		}).(*goja.Object)
		l.put(name, value, limited)
		if name == "Uint8Array" {
			l.bytesClass = value
		}
	}
	if species := l.class("ArrayBuffer"); species.GetSymbol(goja.SymSpecies) == nil {
		this := l.rt.ToValue(func(call goja.FunctionCall) goja.Value { return call.This }).(*goja.Object)
		must(species.DefineAccessorPropertySymbol(goja.SymSpecies, this, nil, goja.FLAG_TRUE, goja.FLAG_FALSE))
	}
}

// chains bounds what goja follows by recursion: a chain of proxies, and one of prototypes that may be a circle through a proxy.
func (l *limiter) chains() {
	value := l.class("Proxy")
	construct, _ := goja.AssertConstructor(value)
	limited := l.rt.ToValue(func(call goja.ConstructorCall) *goja.Object {
		for _, o := range call.Arguments {
			l.shallow(o)
		}
		o, err := construct(call.NewTarget, call.Arguments...)
		must(err)
		return o
	}).(*goja.Object)
	must(limited.SetPrototype(value.Prototype()))
	must(limited.DefineDataProperty("name", l.rt.ToValue("Proxy"), goja.FLAG_FALSE, goja.FLAG_TRUE, goja.FLAG_FALSE))
	must(limited.DefineDataProperty("length", l.rt.ToValue(2), goja.FLAG_FALSE, goja.FLAG_TRUE, goja.FLAG_FALSE))
	must(limited.DefineDataProperty("revocable", value.Get("revocable"), goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))
	must(limited.DefineDataProperty("prototype", goja.Undefined(), goja.FLAG_FALSE, goja.FLAG_NOT_SET, goja.FLAG_NOT_SET))
	must(l.global.DefineDataProperty("Proxy", limited, goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))
	l.before(limited, "revocable", func(call goja.FunctionCall) {
		for _, o := range call.Arguments {
			l.shallow(o)
		}
	})
	for _, class := range []string{"Object", "Reflect"} {
		l.before(l.class(class), "setPrototypeOf", func(call goja.FunctionCall) { l.noProxies(call.Argument(1)) })
	}
	object := l.prototype("Object")
	lookup, _ := goja.AssertFunction(l.class("Object").Get("getOwnPropertyDescriptor"))
	found, err := lookup(goja.Undefined(), object, l.rt.ToValue("__proto__"))
	must(err)
	accessor := found.(*goja.Object)
	set, _ := goja.AssertFunction(accessor.Get("set"))
	setter := l.native("set __proto__", 1, func(call goja.FunctionCall) goja.Value {
		l.noProxies(call.Argument(0))
		result, err := set(call.This, call.Arguments...)
		must(err)
		return result
	})
	must(object.DefineAccessorProperty("__proto__", accessor.Get("get"), setter, goja.FLAG_TRUE, goja.FLAG_FALSE))
}

// shallow throws where proxies stand in each other too deep.
func (l *limiter) shallow(value goja.Value) {
	for depth := 0; ; depth++ {
		o, ok := value.(*goja.Object)
		if !ok {
			return
		}
		p, ok := o.Export().(goja.Proxy)
		if !ok {
			return
		}
		if depth >= maxProxies {
			l.tooLarge("", "more than %d proxies of each other", maxProxies)
		}
		value = p.Target()
	}
}

// noProxies throws where a chain of prototypes has a proxy: it may lead back to what it is to be the prototype of.
func (l *limiter) noProxies(value goja.Value) {
	for o, ok := value.(*goja.Object); ok && o != nil; o = o.Prototype() {
		if o.ExportType() == proxyType {
			panic(l.rt.NewTypeError("a Proxy cannot be made the prototype of an object that exists; use Object.create"))
		}
	}
}

var proxyType = reflect.TypeFor[goja.Proxy]()

// bounded is what ** and << call where they may make a large BigInt: with the operator and its operands.
func (v *vm) bounded(call goja.FunctionCall) goja.Value {
	x, y := call.Argument(1), call.Argument(2)
	if goja.IsBigInt(x) && goja.IsBigInt(y) {
		a, b := x.Export().(*big.Int), y.Export().(*big.Int)
		bits := new(big.Int).SetInt64(int64(a.BitLen()))
		if shift := call.Argument(0).String() == "<<"; shift {
			bits.Add(bits, b)
		} else if a.BitLen() > 1 {
			bits.Mul(bits, b)
		}
		if a.BitLen() > 0 && bits.Cmp(big.NewInt(maxBits)) > 0 {
			v.tooLarge("", "a BigInt of more than %d bits", maxBits)
		}
	}
	f := v.power
	if call.Argument(0).String() == "<<" {
		f = v.shift
	}
	result, err := f(goja.Undefined(), x, y)
	must(err)
	return result
}

var operatorsProgram = goja.MustCompile("operators", `[(a, b) => a ** b, (a, b) => a << b]`, true)

// operators makes the functions that bounded goes on with.
func (v *vm) operators() {
	value, err := v.rt.RunProgram(operatorsProgram)
	must(err)
	list := value.(*goja.Object)
	v.power, _ = goja.AssertFunction(list.Get("0"))
	v.shift, _ = goja.AssertFunction(list.Get("1"))
}

// lengthOf is the length of a string value in UTF-16 units.
func lengthOf(value goja.Value) float64 {
	if s, ok := value.(goja.String); ok {
		return float64(s.Length())
	}
	return float64(len(fmt.Sprint(value)))
}
