package expr

import (
	"fmt"
	"math"
	"regexp"
	"strings"

	"github.com/expr-lang/expr/ast"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

func (c *compiler) unary(n *ast.UnaryNode, pos int) node {
	switch n.Operator {
	case "not", "!":
		operand := c.condition(n.Node)
		cond := operand.cond
		r := node{pos: pos, types: tBool, cond: func(env *Env) bool { return !cond(env) }}
		r.eval = func(env *Env) Value { return boolValue(!cond(env)) }
		return c.pure(r, operand)
	}
	operand := c.node(n.Node)
	if c.err != nil {
		return operand
	}
	if operand.types&(tNumber|tNil) == 0 {
		return c.errorAt(operand.pos, CodeType, fmt.Sprintf("%s takes a number, and this is %s", n.Operator, operand.types), "")
	}
	c.meets(operand)
	eval, minus, sign := operand.eval, n.Operator == "-", n.Operator
	return c.pure(node{pos: pos, types: operand.types & (tNumber | tNil), eval: func(env *Env) Value {
		v := env.resolve(eval(env))
		switch {
		case v.kind == kNil:
			return Value{}
		case v.kind == kBig:
			return env.bigNumber(pos)
		case v.types() != tNumber:
			return env.fail(pos, CodeOperand, sign+" takes a number, and this is "+v.types().String())
		case !minus:
			return v
		case v.kind == kFloat:
			return floatValue(-v.float())
		case v.int() == math.MinInt64:
			return env.overflow(pos)
		}
		return intValue(-v.int())
	}}, operand)
}

func (env *Env) bigNumber(pos int) Value {
	return env.fail(pos, CodeBigNumber, "arithmetic on a number beyond 64 bits")
}

func (env *Env) overflow(pos int) Value {
	return env.fail(pos, CodeBigNumber, "the result is beyond 64 bits; float(x) makes a double of a number")
}

func (c *compiler) binary(n *ast.BinaryNode, pos int) node {
	switch n.Operator {
	case "&&", "and", "||", "or":
		return c.logical(n, pos)
	}
	left, right := c.node(n.Left), c.node(n.Right)
	if c.err != nil {
		return left
	}
	at := n.Location().From // the operator
	switch op := n.Operator; op {
	case "??":
		return c.coalesce(left, right, pos)
	case "==", "!=":
		return c.equality(op, left, right, at, pos)
	case "<", ">", "<=", ">=":
		return c.ordering(op, left, right, at, pos)
	case "+", "-", "*", "/", "%", "**", "^":
		return c.arithmetic(op, left, right, at, pos)
	case "..":
		return c.span(left, right, at, pos)
	case "in":
		return c.in(left, right, at, pos)
	case "contains", "startsWith", "endsWith", "matches":
		return c.textTest(op, left, right, at, pos)
	}
	return c.errorAt(at, CodeSyntax, fmt.Sprintf("there is no operator %s", n.Operator), "")
}

func (c *compiler) logical(n *ast.BinaryNode, pos int) node {
	left, right := c.condition(n.Left), c.condition(n.Right)
	a, b := left.cond, right.cond
	r := node{pos: pos, types: tBool}
	if n.Operator == "&&" || n.Operator == "and" {
		r.cond = func(env *Env) bool { return a(env) && b(env) }
	} else {
		r.cond = func(env *Env) bool { return a(env) || b(env) }
	}
	cond := r.cond
	r.eval = func(env *Env) Value { return boolValue(cond(env)) }
	return c.pure(r, left, right)
}

func (c *compiler) coalesce(left, right node, pos int) node {
	a, b := left.eval, right.eval
	return c.pure(node{pos: pos, types: left.types&^tNil | right.types, eval: func(env *Env) Value {
		if v := a(env); v.kind != kNil {
			return v
		}
		return b(env)
	}}, left, right)
}

// comparable answers whether values of the two sets of types can ever be of one type out of most; nil goes with all.
func comparable(a, b, most types) bool { return a&b&most != 0 || (a|b)&tNil != 0 }

func (c *compiler) equality(op string, left, right node, at, pos int) node {
	if !comparable(left.types, right.types, tAny) {
		return c.errorAt(at, CodeType, fmt.Sprintf("%s and %s are never equal", left.types, right.types), "")
	}
	want := op == "=="
	r := node{pos: pos, types: tBool}
	a, b := left.eval, right.eval
	r.cond = func(env *Env) bool { return env.equal(a(env), b(env)) == want }
	if test := pathEquals(left, right); test != nil {
		r.cond = func(env *Env) bool { return test(env) == want }
	} else if test := pathEquals(right, left); test != nil {
		r.cond = func(env *Env) bool { return test(env) == want }
	}
	cond := r.cond
	r.eval = func(env *Env) Value { return boolValue(cond(env)) }
	return c.pure(r, left, right)
}

// pathEquals is the quick way for a member of the record against a constant text or nil.
func pathEquals(left, right node) func(*Env) bool {
	if len(left.path) == 0 || !right.constant {
		return nil
	}
	path := left.path
	switch right.value.kind {
	case kNil:
		return func(env *Env) bool {
			span := env.rawPath(path)
			return span == "" || span[0] == 'n'
		}
	case kText:
		want := right.value.str
		return func(env *Env) bool {
			span := env.rawPath(path)
			if span == "" || span[0] != '"' {
				return false
			}
			if len(span) == len(want)+2 && span[1:len(span)-1] == want && strings.IndexByte(want, '\\') < 0 {
				return true
			}
			// Only an escape sequence can make other bytes the same text.
			if len(span) < len(want)+2 || strings.IndexByte(span, '\\') < 0 {
				return false
			}
			text, _ := rawjson.Text(rawjson.Bytes(span))
			return text == want
		}
	default:
		return nil
	}
}

func (c *compiler) ordering(op string, left, right node, at, pos int) node {
	if !comparable(left.types, right.types, tNumber|tText) {
		return c.errorAt(at, CodeType, fmt.Sprintf("%s orders numbers or texts, and here are %s and %s", op, left.types, right.types), "")
	}
	c.meets(left, right)
	holds := holdsFor(op)
	r := node{pos: pos, types: tBool}
	a, b := left.eval, right.eval
	switch {
	case len(left.path) > 0 && right.constant && right.value.types() == tNumber && right.value.kind != kBig:
		r.cond = pathOrder(left.path, right.value, op)
	case len(right.path) > 0 && left.constant && left.value.types() == tNumber && left.value.kind != kBig:
		r.cond = pathOrder(right.path, left.value, mirrored[op])
	case left.number != nil && right.number != nil:
		x, y := left.number, right.number
		r.cond = func(env *Env) bool {
			m, n := x(env), y(env)
			if m.kind == kBig || n.kind == kBig {
				c, ok := env.compare(a(env), b(env))
				return ok && holds(c)
			}
			if m.kind == kNil || n.kind == kNil {
				return false
			}
			c, ok := compareNumbers(Value{kind: m.kind, num: m.bits}, Value{kind: n.kind, num: n.bits})
			return ok && holds(c)
		}
	default:
		r.cond = func(env *Env) bool {
			c, ok := env.compare(a(env), b(env))
			return ok && holds(c)
		}
	}
	cond := r.cond
	r.eval = func(env *Env) Value { return boolValue(cond(env)) }
	return c.pure(r, left, right)
}

var mirrored = map[string]string{"<": ">", ">": "<", "<=": ">=", ">=": "<="}

func holdsFor(op string) func(int) bool {
	switch op {
	case "<":
		return func(c int) bool { return c < 0 }
	case ">":
		return func(c int) bool { return c > 0 }
	case "<=":
		return func(c int) bool { return c <= 0 }
	default:
		return func(c int) bool { return c >= 0 }
	}
}

// pathOrder is the quick way for a member of the record against a constant number. Short numbers are doubles without loss,
// so that they are compared as such; long ones take the exact way.
func pathOrder(path []string, limit Value, op string) func(*Env) bool {
	double := limit.double()
	short := limit.kind == kFloat || double > -1e15 && double < 1e15
	holds := holdsFor(op)
	return func(env *Env) bool {
		span := env.rawPath(path)
		if span == "" || span[0] != '-' && span[0]-'0' > 9 {
			return false
		}
		if !short || len(span) > quickDigits {
			c, ok := compareNumbers(parseNumber(span), limit)
			return ok && holds(c)
		}
		f := quickFloat(span)
		switch op {
		case "<":
			return f < double
		case ">":
			return f > double
		case "<=":
			return f <= double
		default:
			return f >= double
		}
	}
}

// arithmetic compiles + - * / % ** ^. + also joins texts.
func (c *compiler) arithmetic(op string, left, right node, at, pos int) node {
	takes := tNumber
	if op == "+" {
		takes |= tText
	}
	if !comparable(left.types, right.types, takes) || left.types&(takes|tNil) == 0 || right.types&(takes|tNil) == 0 {
		hint := ""
		if op == "+" && (left.types|right.types)&tText != 0 {
			hint = "string(x) makes a text"
		}
		what := "numbers"
		if op == "+" {
			what = "two numbers or two texts"
		}
		return c.errorAt(at, CodeType, fmt.Sprintf("%s takes %s, and here are %s and %s", op, what, left.types, right.types), hint)
	}
	c.meets(left, right)
	sum := &arithmetic{op: op, combine: combines[op], takes: takes, left: left, right: right, at: at}
	n := node{pos: pos, types: left.types&right.types&takes | (left.types|right.types)&tNil, eval: sum.eval}
	if left.number != nil && right.number != nil {
		n.number = sum.number
		n.eval = func(env *Env) Value {
			if r := sum.number(env); r.kind != kBig {
				return Value{kind: r.kind, num: r.bits}
			}
			return sum.eval(env)
		}
	}
	return c.pure(n, left, right)
}

// number is a number that is worked with: an int or a double, nil, or kBig where the quick way ends and eval knows more (a
// big number, an overflow, no number at all).
type number struct {
	kind kind
	bits uint64
}

func intNumber(i int64) number     { return number{kInt, uint64(i)} }
func floatNumber(f float64) number { return number{kFloat, math.Float64bits(f)} }

func (n number) int() int64 { return int64(n.bits) }

func (n number) double() float64 {
	if n.kind == kInt {
		return float64(int64(n.bits))
	}
	return math.Float64frombits(n.bits)
}

// numberOf is a span of JSON, or "", as a number.
func numberOf(span string) number {
	switch {
	case span == "" || span[0] == 'n':
		return number{}
	case span[0] != '-' && span[0]-'0' > 9:
		return number{kind: kBig}
	}
	v := parseNumber(span)
	return number{v.kind, v.num}
}

// arithmetic is an operator and its operands.
type arithmetic struct {
	op          string
	combine     func(x, y number) number
	takes       types
	left, right node
	at          int
}

// number is the quick way. An operand that ends it is not evaluated again here, so that a chain of operators does not double
// its work with each of them.
func (a *arithmetic) number(env *Env) number {
	x, y := a.left.number(env), a.right.number(env)
	switch {
	case x.kind == kBig || y.kind == kBig:
		return number{kind: kBig}
	case x.kind == kNil || y.kind == kNil:
		return number{}
	}
	return a.combine(x, y)
}

func (a *arithmetic) eval(env *Env) Value {
	x, y := env.resolve(a.left.eval(env)), env.resolve(a.right.eval(env))
	if x.kind == kNil || y.kind == kNil {
		return Value{}
	}
	t := x.types()
	switch {
	case t != y.types() || t&a.takes == 0:
		return env.fail(a.at, CodeOperand, fmt.Sprintf("%s cannot take %s and %s", a.op, t, y.types()))
	case t == tText:
		if !env.spend(len(x.str) + len(y.str)) {
			return Value{}
		}
		return textValue(x.str + y.str)
	case x.kind == kBig || y.kind == kBig:
		return env.bigNumber(a.at)
	}
	return env.combine(a.op, a.combine, x, y, a.at)
}

// combine is an operator over resolved ints and doubles.
func (env *Env) combine(op string, by func(x, y number) number, x, y Value, at int) Value {
	r := by(number{x.kind, x.num}, number{y.kind, y.num})
	if r.kind != kBig {
		return Value{kind: r.kind, num: r.bits}
	}
	if op != "%" {
		return env.overflow(at)
	}
	if b, ok := y.whole(); ok && b == 0 {
		return env.fail(at, CodeValue, "% by zero")
	}
	return env.fail(at, CodeOperand, "% takes whole numbers")
}

// combines are the operators. They answer kBig where there is no result.
var combines = map[string]func(x, y number) number{
	"+": func(x, y number) number {
		if x.kind == kInt && y.kind == kInt {
			a, b := x.int(), y.int()
			sum := a + b
			if (sum > a) != (b > 0) && b != 0 {
				return number{kind: kBig}
			}
			return intNumber(sum)
		}
		return floatNumber(x.double() + y.double())
	},
	"-": func(x, y number) number {
		if x.kind == kInt && y.kind == kInt {
			a, b := x.int(), y.int()
			difference := a - b
			if (difference < a) != (b > 0) && b != 0 {
				return number{kind: kBig}
			}
			return intNumber(difference)
		}
		return floatNumber(x.double() - y.double())
	},
	"*": func(x, y number) number {
		if x.kind == kInt && y.kind == kInt {
			a, b := x.int(), y.int()
			if a == 0 || b == 0 {
				return intNumber(0)
			}
			product := a * b
			if product/b != a || a == -1 && b == math.MinInt64 || b == -1 && a == math.MinInt64 {
				return number{kind: kBig}
			}
			return intNumber(product)
		}
		return floatNumber(x.double() * y.double())
	},
	"/": func(x, y number) number { return floatNumber(x.double() / y.double()) },
	"%": func(x, y number) number {
		a, ok := Value{kind: x.kind, num: x.bits}.whole()
		b, ok2 := Value{kind: y.kind, num: y.bits}.whole()
		switch {
		case !ok || !ok2 || b == 0:
			return number{kind: kBig}
		case b == -1:
			return intNumber(0)
		}
		return intNumber(a % b)
	},
	"**": power,
	"^":  power,
}

func power(x, y number) number { return floatNumber(math.Pow(x.double(), y.double())) }

// span compiles a..b, the whole numbers from a to b.
func (c *compiler) span(left, right node, at, pos int) node {
	if left.types&(tNumber|tNil) == 0 || right.types&(tNumber|tNil) == 0 {
		return c.errorAt(at, CodeType, fmt.Sprintf(".. takes whole numbers, and here are %s and %s", left.types, right.types), "")
	}
	a, b := left.eval, right.eval
	return c.pure(node{pos: pos, types: tList, eval: func(env *Env) Value {
		x, y := resolve(a(env)), resolve(b(env))
		if x.kind == kNil || y.kind == kNil {
			return listValue(nil)
		}
		from, ok := x.whole()
		to, ok2 := y.whole()
		if !ok || !ok2 {
			return env.fail(at, CodeOperand, ".. takes whole numbers")
		}
		if from > to {
			return listValue(nil)
		}
		n := uint64(to) - uint64(from)
		if n >= budget/costVisit || !env.spend(costVisit*int(n+1)) {
			env.spend(budget + 1)
			return Value{}
		}
		items := make([]Value, n+1)
		for i := range items {
			items[i] = intValue(from + int64(i))
		}
		return listValue(items)
	}}, left, right)
}

// in compiles membership: an element of a list, a name of a map.
func (c *compiler) in(left, right node, at, pos int) node {
	if right.types&(tList|tMap|tNil) == 0 {
		hint := ""
		if right.types&tText != 0 {
			hint = "a text is looked for with contains"
		}
		return c.errorAt(at, CodeType, fmt.Sprintf("in looks into a list or a map, and this is %s", right.types), hint)
	}
	a, b := left.eval, right.eval
	test := func(env *Env) bool {
		x, within := env.resolve(a(env)), b(env)
		switch {
		case within.isList():
			for it := elementsOf(within); it.next(); {
				if !env.spend(costVisit) {
					return false
				}
				if env.equal(x, it.value) {
					return true
				}
			}
		case within.isMap() && x.kind == kText:
			for it := membersOf(within); it.next(); {
				if !env.spend(costVisit) {
					return false
				}
				if it.name() == x.str {
					return true
				}
			}
		}
		return false
	}
	if right.constant && right.value.isList() {
		if set, ok := textSet(right.value); ok {
			test = func(env *Env) bool {
				x := env.resolve(a(env))
				return x.kind == kText && set[x.str]
			}
		}
	}
	return c.pure(node{pos: pos, types: tBool, cond: test, eval: func(env *Env) Value { return boolValue(test(env)) }}, left, right)
}

// textSet is a constant list of texts alone as a set.
func textSet(v Value) (map[string]bool, bool) {
	set := make(map[string]bool)
	for it := elementsOf(v); it.next(); {
		item := resolve(it.value)
		if item.kind != kText {
			return nil, false
		}
		set[item.str] = true
	}
	return set, true
}

// textTest compiles contains, startsWith, endsWith and matches.
func (c *compiler) textTest(op string, left, right node, at, pos int) node {
	for _, operand := range []node{left, right} {
		if operand.types&(tText|tNil) == 0 {
			hint := ""
			if op == "contains" && operand.types&tList != 0 {
				hint = "an element is looked for with in"
			}
			return c.errorAt(at, CodeType, fmt.Sprintf("%s takes two texts, and here are %s and %s", op, left.types, right.types), hint)
		}
	}
	a, b := left.eval, right.eval
	var holds func(env *Env, text, part string) bool
	switch op {
	case "contains":
		holds = func(_ *Env, text, part string) bool { return strings.Contains(text, part) }
	case "startsWith":
		holds = func(_ *Env, text, part string) bool { return strings.HasPrefix(text, part) }
	case "endsWith":
		holds = func(_ *Env, text, part string) bool { return strings.HasSuffix(text, part) }
	default:
		holds = func(env *Env, text, part string) bool {
			re := env.pattern(part)
			if re == nil {
				env.fail(at, CodeValue, "the pattern of matches is no regular expression (RE2)")
				return false
			}
			return re.MatchString(text)
		}
		if right.constant && right.value.kind == kText {
			re, err := regexp.Compile(right.value.str)
			if err != nil {
				return c.errorAt(right.pos, CodeRegexp, strings.TrimPrefix(err.Error(), "error parsing regexp: "), "the syntax is RE2's: no look-around, no back-references")
			}
			holds = func(_ *Env, text, _ string) bool { return re.MatchString(text) }
		}
	}
	cond := func(env *Env) bool {
		x, y := env.resolve(a(env)), env.resolve(b(env))
		if x.kind != kText || y.kind != kText {
			return false
		}
		env.left -= len(x.str)
		return holds(env, x.str, y.str)
	}
	return c.pure(node{pos: pos, types: tBool, cond: cond, eval: func(env *Env) Value { return boolValue(cond(env)) }}, left, right)
}

// slice compiles x[from:to] of a list, or of a text by characters.
func (c *compiler) slice(n *ast.SliceNode, pos int) node {
	base := c.node(n.Node)
	parts := []node{base}
	var from, to func(*Env) Value
	for i, bound := range []ast.Node{n.From, n.To} {
		if bound == nil {
			continue
		}
		b := c.node(bound)
		if c.err != nil {
			return b
		}
		if b.types&(tNumber|tNil) == 0 {
			return c.errorAt(b.pos, CodeType, fmt.Sprintf("a slice is bounded by whole numbers, and this is %s", b.types), "")
		}
		parts = append(parts, b)
		if i == 0 {
			from = b.eval
		} else {
			to = b.eval
		}
	}
	if c.err != nil {
		return base
	}
	if base.types&(tList|tText|tNil) == 0 {
		return c.errorAt(pos, CodeType, fmt.Sprintf("a slice is taken of a list or a text, and this is %s", base.types), "")
	}
	eval := base.eval
	return c.pure(node{pos: pos, types: base.types&(tList|tText) | tNil, eval: func(env *Env) Value {
		v := env.resolve(eval(env))
		var items []Value
		var runes []rune
		var size int
		switch {
		case v.kind == kText:
			runes = []rune(v.str)
			size = len(runes)
		case v.isList():
			items = env.items(v)
			size = len(items)
		default:
			return Value{}
		}
		if !env.spend(len(v.str) + costVisit) {
			return Value{}
		}
		low, high := 0, size
		for i, bound := range []func(*Env) Value{from, to} {
			if bound == nil {
				continue
			}
			b := resolve(bound(env))
			if b.kind == kNil {
				return Value{}
			}
			at, ok := b.whole()
			if !ok {
				return env.fail(pos, CodeOperand, "a slice is bounded by whole numbers")
			}
			if at < 0 {
				at += int64(size)
			}
			at = min(max(at, 0), int64(size))
			if i == 0 {
				low = int(at)
			} else {
				high = int(at)
			}
		}
		low = min(low, high)
		if v.kind == kText {
			return textValue(string(runes[low:high]))
		}
		return env.list(items[low:high:high], pos)
	}}, parts...)
}

// items is a list as a slice that must not be changed.
func (env *Env) items(v Value) []Value {
	if v.kind == kList {
		return v.box.items
	}
	var items []Value
	for it := elementsOf(v); it.next(); {
		if !env.spend(costVisit) {
			return nil
		}
		items = append(items, it.value)
	}
	return items
}
