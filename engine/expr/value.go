package expr

import (
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

// kind says how a Value holds what it is. The raw kinds are spans of JSON that nobody has looked into.
type kind uint8

const (
	kNil kind = iota
	kBool
	kInt
	kFloat
	kBig // a number that is neither an int64 nor a finite double; str has its digits
	kText
	kBytes
	kList
	kMap
	kRawNumber
	kRawText
	kRawList
	kRawMap
)

// Value is what an expression answers. The zero Value is nil. A Value may share memory with the record it came from.
type Value struct {
	kind kind
	num  uint64 // of a bool, an int64 or a double
	// str is the text or the bytes, or the span of JSON of a raw kind. A number that came from JSON keeps its digits here.
	str string
	box *box
}

// box is a list, or a map with its names in order.
type box struct {
	names []string
	items []Value
	depth int // how deep boxes nest in it, itself included
}

func boolValue(b bool) Value {
	if b {
		return Value{kind: kBool, num: 1}
	}
	return Value{kind: kBool}
}
func intValue(i int64) Value     { return Value{kind: kInt, num: uint64(i)} }
func floatValue(f float64) Value { return Value{kind: kFloat, num: math.Float64bits(f)} }
func textValue(s string) Value   { return Value{kind: kText, str: s} }
func bytesValue(b []byte) Value  { return Value{kind: kBytes, str: rawjson.View(b)} }
func listValue(items []Value) Value {
	return Value{kind: kList, box: &box{items: items}}
}

// rawValue is the value of a span of checked JSON without space around it; "" is nil.
func rawValue(s string) Value {
	if s == "" {
		return Value{}
	}
	switch s[0] {
	case '{':
		return Value{kind: kRawMap, str: s}
	case '[':
		return Value{kind: kRawList, str: s}
	case '"':
		return Value{kind: kRawText, str: s}
	case 't':
		return Value{kind: kBool, num: 1}
	case 'f':
		return Value{kind: kBool}
	case 'n':
		return Value{}
	}
	return Value{kind: kRawNumber, str: s}
}

// rawRoot is the value of checked JSON that may have space around it.
func rawRoot(text []byte) Value {
	s := rawjson.View(text)
	start := skipSpace(s, 0)
	if start == len(s) {
		return Value{}
	}
	end := len(s)
	for {
		switch s[end-1] {
		case ' ', '\t', '\n', '\r':
			end--
			continue
		}
		return rawValue(s[start:end])
	}
}

// resolve decodes a raw scalar. Lists and maps stay as they are.
func resolve(v Value) Value {
	switch v.kind {
	case kRawNumber:
		return parseNumber(v.str)
	case kRawText:
		text, _ := rawjson.Text(rawjson.Bytes(v.str))
		return textValue(text)
	default:
		return v
	}
}

// resolve is resolve, paid for.
func (env *Env) resolve(v Value) Value {
	if v.kind <= kFloat {
		return v
	}
	return env.decode(v)
}

func (env *Env) decode(v Value) Value {
	env.left -= len(v.str) / bytesPerUnit
	return resolve(v)
}

// parseNumber reads a JSON number. The digits are kept.
func parseNumber(s string) Value {
	i := 0
	if s[0] == '-' {
		i = 1
	}
	if len(s)-i <= 18 {
		var n int64
		for ; i < len(s); i++ {
			d := s[i] - '0'
			if d > 9 {
				goto double
			}
			n = n*10 + int64(d)
		}
		if s[0] == '-' {
			n = -n
		}
		return Value{kind: kInt, num: uint64(n), str: s}
	}
	if len(s)-i > 18 && rawjson.IsInteger(rawjson.Bytes(s)) {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return Value{kind: kBig, str: s}
		}
		return Value{kind: kInt, num: uint64(n), str: s}
	}
double:
	var f float64
	if len(s) <= quickDigits {
		f = quickFloat(s)
	} else {
		f = rawjson.Float(rawjson.Bytes(s))
	}
	if math.IsInf(f, 0) {
		return Value{kind: kBig, str: s}
	}
	return Value{kind: kFloat, num: math.Float64bits(f), str: s}
}

// quickDigits is how many digits a double holds, whatever they are.
const quickDigits = 15

var tens = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// quickFloat is a JSON number of at most quickDigits characters as the nearest double. Without an exponent its digits and the
// power of ten of its fraction are both exact doubles, so that one division rounds right (W. Clinger, How to read floating
// point numbers accurately, 1990).
func quickFloat(s string) float64 {
	i, point := 0, -1
	if s[0] == '-' {
		i = 1
	}
	var digits int64
	for ; i < len(s); i++ {
		d := s[i] - '0'
		if d <= 9 {
			digits = digits*10 + int64(d)
			continue
		}
		if s[i] != '.' {
			f, _ := strconv.ParseFloat(s, 64)
			return f
		}
		point = i
	}
	f := float64(digits)
	if point >= 0 {
		f /= tens[len(s)-point-1]
	}
	if s[0] == '-' {
		return -f
	}
	return f
}

func (v Value) int() int64     { return int64(v.num) }
func (v Value) float() float64 { return math.Float64frombits(v.num) }
func (v Value) isList() bool   { return v.kind == kList || v.kind == kRawList }
func (v Value) isMap() bool    { return v.kind == kMap || v.kind == kRawMap }

// double is a resolved int or double as a double.
func (v Value) double() float64 {
	if v.kind == kInt {
		return float64(v.int())
	}
	return v.float()
}

// whole is a resolved number that is a whole one within 64 bits.
func (v Value) whole() (int64, bool) {
	switch v.kind {
	case kInt:
		return v.int(), true
	case kFloat:
		f := v.float()
		if f == math.Trunc(f) && f >= -(1<<63) && f < 1<<63 {
			return int64(f), true
		}
	default:
	}
	return 0, false
}

// Nil tells whether v is nil.
func (v Value) Nil() bool { return v.kind == kNil }

// Bool is v if it is a boolean.
func (v Value) Bool() (b, ok bool) { return v.kind == kBool && v.num != 0, v.kind == kBool }

// Int is v if it is a whole number within 64 bits.
func (v Value) Int() (n int64, ok bool) { return resolve(v).whole() }

// Text is v if it is a text. It may share memory with the record.
func (v Value) Text() (text string, ok bool) {
	v = resolve(v)
	return v.str, v.kind == kText
}

// IsMap and IsList tell what v is.
func (v Value) IsMap() bool { return v.isMap() }

// IsList tells whether v is a list.
func (v Value) IsList() bool { return v.isList() }

// types is a set of types: what a value may turn out to be.
type types uint8

const (
	tNil types = 1 << iota
	tBool
	tNumber
	tText
	tBytes
	tList
	tMap

	tAny types = 1<<iota - 1
)

var kindTypes = [...]types{
	kNil: tNil, kBool: tBool, kInt: tNumber, kFloat: tNumber, kBig: tNumber, kText: tText, kBytes: tBytes, kList: tList, kMap: tMap,
	kRawNumber: tNumber, kRawText: tText, kRawList: tList, kRawMap: tMap,
}

func (v Value) types() types { return kindTypes[v.kind] }

var typeNames = []struct {
	t    types
	name string
}{{tBool, "true or false"}, {tNumber, "a number"}, {tText, "a text"}, {tBytes, "bytes"}, {tList, "a list"}, {tMap, "a map"}, {tNil, "nil"}}

// String names the types, without nil where there are others: "a number", "a text or a list".
func (t types) String() string {
	var names []string
	for _, n := range typeNames {
		if t&n.t != 0 && (n.t != tNil || len(names) == 0) {
			names = append(names, n.name)
		}
	}
	switch n := len(names); n {
	case 0:
		return "nothing"
	case 1:
		return names[0]
	default:
		return strings.Join(names[:n-1], ", ") + " or " + names[n-1]
	}
}

// elements walks over a list, raw or not.
type elements struct {
	raw   rawElements
	items []Value
	value Value
	index int // of value
	isRaw bool
}

func elementsOf(list Value) elements {
	if list.kind == kRawList {
		return elements{raw: rawElements{s: list.str}, isRaw: true, index: -1}
	}
	return elements{items: list.box.items, index: -1}
}

func (e *elements) next() bool {
	e.index++
	if e.isRaw {
		if !e.raw.next() {
			return false
		}
		e.value = rawValue(e.raw.s[e.raw.start:e.raw.end])
		return true
	}
	if e.index >= len(e.items) {
		return false
	}
	e.value = e.items[e.index]
	return true
}

// members walks over a map, raw or not. A name that stands twice in raw JSON is met twice.
type members struct {
	raw   rawMembers
	box   *box
	value Value
	index int
}

func membersOf(m Value) members {
	if m.kind == kRawMap {
		return members{raw: rawMembers{s: m.str}}
	}
	return members{box: m.box, index: -1}
}

func (m *members) next() bool {
	if m.box == nil {
		if !m.raw.next() {
			return false
		}
		m.value = rawValue(m.raw.s[m.raw.start:m.raw.end])
		return true
	}
	m.index++
	if m.index >= len(m.box.items) {
		return false
	}
	m.value = m.box.items[m.index]
	return true
}

func (m *members) name() string {
	if m.box == nil {
		return m.raw.name()
	}
	return m.box.names[m.index]
}

// member is the property of a value, or nil.
func (env *Env) member(v Value, name string) Value {
	switch v.kind {
	case kRawMap:
		env.left -= len(v.str) / bytesPerUnit
		return rawValue(findMember(v.str, name))
	case kMap:
		for i, n := range v.box.names {
			if n == name {
				return v.box.items[i]
			}
		}
	default:
	}
	return Value{}
}

// element is element n of a list, counted from the end where n is negative, or nil.
func (env *Env) element(v Value, n int64) Value {
	if v.kind == kRawList {
		env.left -= len(v.str)
	}
	if n < 0 && v.isList() {
		n += int64(length(v))
	}
	if n < 0 {
		return Value{}
	}
	switch v.kind {
	case kRawList:
		return rawValue(findElement(v.str, n))
	case kList:
		if n < int64(len(v.box.items)) {
			return v.box.items[n]
		}
	default:
	}
	return Value{}
}

// index is v[i]: a member by text, an element by whole number, else nil.
func (env *Env) index(v, i Value) Value {
	switch i = env.resolve(i); i.kind {
	case kText:
		return env.member(v, i.str)
	case kInt, kFloat:
		if n, ok := i.whole(); ok {
			return env.element(v, n)
		}
	default:
	}
	return Value{}
}

// length is the number of elements of a list or of members of a map.
func length(v Value) int {
	switch v.kind {
	case kRawList:
		return countElements(v.str)
	case kList, kMap:
		return len(v.box.items)
	case kRawMap:
		return len(distinct(v).items)
	default:
		return 0
	}
}

// distinct is a map as a box in which each name stands once, with its last value, where it stood first.
func distinct(v Value) *box {
	if v.kind == kMap {
		return v.box
	}
	b := &box{}
	var at map[string]int
	for m := membersOf(v); m.next(); {
		name := m.name()
		if at == nil && len(b.names) >= 16 {
			at = make(map[string]int, 64)
			for i, n := range b.names {
				at[n] = i
			}
		}
		i := -1
		if at != nil {
			if j, ok := at[name]; ok {
				i = j
			}
		} else {
			for j, n := range b.names {
				if n == name {
					i = j
				}
			}
		}
		if i >= 0 {
			b.items[i] = m.value
			continue
		}
		if at != nil {
			at[name] = len(b.names)
		}
		b.names, b.items = append(b.names, name), append(b.items, m.value)
	}
	return b
}

// equal compares deeply; unlike types are not equal, whole numbers and doubles are compared by value.
func (env *Env) equal(a, b Value) bool {
	a, b = env.resolve(a), env.resolve(b)
	t := a.types()
	if t != b.types() {
		return false
	}
	switch t {
	case tNil:
		return true
	case tBool:
		return a.num == b.num
	case tNumber:
		c, ok := compareNumbers(a, b)
		return ok && c == 0
	case tText, tBytes:
		return a.str == b.str
	case tList:
		return env.equalLists(a, b)
	default:
		return env.equalMaps(a, b)
	}
}

func (env *Env) equalLists(a, b Value) bool {
	x, y := elementsOf(a), elementsOf(b)
	for {
		more := x.next()
		if more != y.next() {
			return false
		}
		if !more {
			return true
		}
		if !env.spend(costVisit) || !env.equal(x.value, y.value) {
			return false
		}
	}
}

func (env *Env) equalMaps(a, b Value) bool {
	x, y := distinct(a), distinct(b)
	if !env.spend(costVisit*(len(x.items)+len(y.items))) || len(x.items) != len(y.items) {
		return false
	}
	at := make(map[string]int, len(y.names))
	for i, n := range y.names {
		at[n] = i
	}
	for i, name := range x.names {
		j, ok := at[name]
		if !ok || !env.equal(x.items[i], y.items[j]) {
			return false
		}
	}
	return true
}

// compare orders two numbers or two texts; ok is false for anything else and for NaN.
func (env *Env) compare(a, b Value) (c int, ok bool) {
	a, b = env.resolve(a), env.resolve(b)
	switch {
	case a.types() == tNumber && b.types() == tNumber:
		return compareNumbers(a, b)
	case a.kind == kText && b.kind == kText:
		return strings.Compare(a.str, b.str), true
	}
	return 0, false
}

// compareNumbers compares resolved numbers by value: an int64 and a double exactly, and a big one exactly as well, save that
// one beyond the doubles that is written with an exponent counts as infinite.
func compareNumbers(a, b Value) (int, bool) {
	switch {
	case a.kind == kInt && b.kind == kInt:
		return order(a.int(), b.int()), true
	case a.kind == kBig || b.kind == kBig:
		return compareBig(a, b)
	case a.kind == kFloat && b.kind == kFloat:
		return compareFloats(a.float(), b.float())
	case a.kind == kInt:
		return compareIntFloat(a.int(), b.float())
	}
	c, ok := compareIntFloat(b.int(), a.float())
	return -c, ok
}

func order[T int | int64 | float64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func compareFloats(a, b float64) (int, bool) { return order(a, b), a == a && b == b }

func compareIntFloat(i int64, f float64) (int, bool) {
	const exact = 1 << 53
	switch {
	case f != f:
		return 0, false
	case i > -exact && i < exact:
		return order(float64(i), f), true
	case f >= 1<<63:
		return -1, true
	case f < -(1 << 63):
		return 1, true
	}
	// f is within int64, and where its fraction matters it is below 2^53 and the whole parts differ.
	return order(i, int64(f)), true
}

// compareBig compares numbers of which at least one is big.
func compareBig(a, b Value) (int, bool) {
	if a.kind == kFloat && math.IsNaN(a.float()) || b.kind == kFloat && math.IsNaN(b.float()) {
		return 0, false
	}
	x, y := sizeOf(a), sizeOf(b)
	switch {
	case x != y:
		return order(x, y), true
	case a.kind == kBig && b.kind == kBig && x != endless && x != -endless:
		// Integers of equal length and sign: their digits decide.
		return strings.Compare(a.str, b.str) * order(x, 0), true
	case x == endless || x == -endless:
		return 0, true
	}
	return rational(a).Cmp(rational(b)), true
}

// endless is the size of what is beyond the doubles.
const endless = math.MaxInt64

// sizeOf orders numbers roughly: by sign, then by the number of digits before the point, from 19 on.
func sizeOf(v Value) int64 {
	switch v.kind {
	case kInt:
		if v.int() <= -1e18 || v.int() >= 1e18 {
			return int64(order(v.int(), 0)) * 19
		}
		return 0
	case kFloat:
		f := math.Abs(v.float())
		switch {
		case math.IsInf(f, 0):
			return int64(order(v.float(), 0)) * endless
		case f < 1e18:
			return 0
		}
		n, _ := new(big.Float).SetFloat64(f).Int(nil)
		return int64(order(v.float(), 0)) * int64(len(n.String()))
	default:
		sign, digits := int64(1), len(v.str)
		if v.str[0] == '-' {
			sign, digits = -1, digits-1
		}
		if !rawjson.IsInteger(rawjson.Bytes(v.str)) {
			return sign * endless
		}
		return sign * int64(digits)
	}
}

// rational is a number of at most some 309 digits exactly.
func rational(v Value) *big.Rat {
	switch v.kind {
	case kInt:
		return new(big.Rat).SetInt64(v.int())
	case kFloat:
		return new(big.Rat).SetFloat64(v.float())
	default:
		n, _ := new(big.Int).SetString(v.str, 10)
		return new(big.Rat).SetInt(n)
	}
}
