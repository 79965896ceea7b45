package script

import (
	"math"
	"strings"
	"unicode/utf8"

	"github.com/dop251/goja"
	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/token"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// A formula is an expression that is worked out in Go, on the bytes of the record, where JavaScript would make values only to
// look at them once: msg.value.temperature * 9 / 5 + 32, or msg.value.status === 'ok' && msg.value.level > 3.
//
//  1. It is made of literals, members of msg.value and state, arithmetic, comparisons and logic. So it runs no code of
//     anybody's, changes nothing, and may be worked out early, late or not at all.
//  2. It answers what JavaScript would answer, or that it does not know: an operand is a string in a sum, an integer beyond
//     2^53, an object that the script got hold of. Then the expression runs in JavaScript; so it fails there, too, and at its own place.
//  3. Formulas stand for conditions that end a body before it has done anything (guard.go), and for members of Messages (literals.go).
//     The plain representation has none.
type formula func(c *calculation) operand

// calculation is what a formula looks at. value and state are nil where they are no lazy objects, record is nil but in a guard.
type calculation struct {
	value, state, vars *lazy
	record             *stream.Record
	members            []rawjson.Member // of a nested object, while it is looked at
}

// operand is a value on the way.
type operand struct {
	kind   operandKind
	number float64 // also 1 for true
	// text is a string, the JSON of an object or an array, or that of a number which was read, else "".
	text string
}

type operandKind uint8

const (
	isUnknown operandKind = iota
	isUndefined
	isNull
	isBoolean
	isNumber
	isText
	isObject // or an array
)

func booleanOf(b bool) operand {
	if b {
		return operand{kind: isBoolean, number: 1}
	}
	return operand{kind: isBoolean}
}

// truth is whether JavaScript takes a known operand for true.
func (o *operand) truth() bool {
	switch o.kind {
	case isBoolean:
		return o.number != 0
	case isNumber:
		return o.number != 0 && o.number == o.number
	case isText:
		return o.text != ""
	default:
		return o.kind == isObject
	}
}

// float is what JavaScript converts an operand to in arithmetic, where no string has to be read for it.
func (o *operand) float() (f float64, ok bool) {
	switch o.kind {
	case isNumber, isBoolean:
		return o.number, true
	case isNull:
		return 0, true
	case isUndefined:
		return math.NaN(), true
	default:
		return 0, false
	}
}

// member is a member of msg.value or state.
func (c *calculation) member(l *lazy, name string) operand {
	if l == nil {
		return operand{}
	}
	var at int32
	if len(l.changes) == 0 {
		at = l.text.find(name)
	} else {
		change, member := l.look(name)
		if change >= 0 {
			return l.changes[change].operand()
		}
		at = member
	}
	if at < 0 {
		return operand{kind: isUndefined}
	}
	o := operandOf(l.text.span(at))
	if o.kind == isObject && l.text.child(at) != nil {
		return operand{}
	}
	return o
}

func (c *change) operand() operand {
	switch value := c.value; {
	case c.gone:
		return operand{kind: isUndefined}
	case value == nil:
		return operandOf(c.raw)
	case goja.IsNumber(value):
		return operand{kind: isNumber, number: value.ToFloat()}
	case goja.IsUndefined(value):
		return operand{kind: isUndefined}
	case goja.IsNull(value):
		return operand{kind: isNull}
	default:
		return operand{}
	}
}

// operandOf is the operand of a JSON text that was checked and has no white space around it.
func operandOf(raw []byte) operand {
	switch raw[0] {
	case '"':
		text := rawjson.View(raw[1 : len(raw)-1])
		if strings.IndexByte(text, '\\') >= 0 {
			return operand{}
		}
		return operand{kind: isText, text: text}
	case '{', '[':
		return operand{kind: isObject, text: rawjson.View(raw)}
	case 'n':
		return operand{kind: isNull}
	case 't':
		return operand{kind: isBoolean, number: 1}
	case 'f':
		return operand{kind: isBoolean}
	}
	f := rawjson.Float(raw)
	if (f > maxSafe || f < -maxSafe) && rawjson.IsInteger(raw) {
		return operand{}
	}
	return operand{kind: isNumber, number: f, text: rawjson.View(raw)}
}

// inside is a member of an operand.
func (c *calculation) inside(o operand, name string) operand {
	if o.kind != isObject || o.text[0] != '{' {
		return operand{}
	}
	raw := rawjson.Bytes(o.text)
	c.members = rawjson.Members(raw, c.members[:0])
	span := rawjson.Find(raw, c.members, name)
	if span == nil {
		return operand{kind: isUndefined}
	}
	return operandOf(span)
}

// formulas makes formulas of expressions, and notes what they look at.
type formulas struct {
	*rewriter
	// aliases are local names that stand for msg.value (nil) or for a formula.
	aliases map[string]formula
	guard   bool // it is for a guard, which knows the record, but no state
	state   bool // some formula looks at state
}

// of is the formula of an expression as the user wrote it, or nil if it is none.
func (f *formulas) of(e ast.Expression) formula {
	switch e := e.(type) {
	case *ast.NumberLiteral:
		return numberFormula(e)
	case *ast.StringLiteral:
		text := e.Value.String()
		if strings.ContainsRune(text, utf8.RuneError) { // it may stand for half a surrogate pair
			return nil
		}
		return constantFormula(operand{kind: isText, text: text})
	case *ast.BooleanLiteral:
		return constantFormula(booleanOf(e.Value))
	case *ast.NullLiteral:
		return constantFormula(operand{kind: isNull})
	case *ast.Identifier:
		return f.name(e)
	case *ast.OptionalChain:
		return f.of(e.Expression)
	case *ast.DotExpression:
		return f.dot(e.Left, e.Identifier.Name.String())
	case *ast.BracketExpression:
		if name, ok := e.Member.(*ast.StringLiteral); ok {
			return f.dot(e.Left, name.Value.String())
		}
	case *ast.UnaryExpression:
		if on := f.of(e.Operand); on != nil {
			return unaryFormula(e.Operator, on)
		}
	case *ast.BinaryExpression:
		if a := f.of(e.Left); a != nil {
			if b := f.of(e.Right); b != nil {
				return binaryFormula(e.Operator, a, b)
			}
		}
	case *ast.ConditionalExpression:
		test, yes, no := f.of(e.Test), f.of(e.Consequent), f.of(e.Alternate)
		if test != nil && yes != nil && no != nil {
			return func(c *calculation) operand {
				t := test(c)
				switch {
				case t.kind == isUnknown:
					return t
				case t.truth():
					return yes(c)
				}
				return no(c)
			}
		}
	}
	return nil
}

func constantFormula(o operand) formula { return func(*calculation) operand { return o } }

func numberFormula(e *ast.NumberLiteral) formula {
	switch n := e.Value.(type) {
	case int64:
		if n <= maxSafe && n >= -maxSafe {
			return constantFormula(operand{kind: isNumber, number: float64(n)})
		}
	case float64:
		return constantFormula(operand{kind: isNumber, number: n})
	}
	return nil
}

// name is the formula of a name.
func (f *formulas) name(id *ast.Identifier) formula {
	name := id.Name.String()
	if alias := f.aliases[name]; alias != nil {
		return alias
	}
	if _, declared := f.look(name); declared {
		return nil
	}
	switch name {
	case "undefined":
		return constantFormula(operand{kind: isUndefined})
	case "NaN":
		return constantFormula(operand{kind: isNumber, number: math.NaN()})
	case "Infinity":
		return constantFormula(operand{kind: isNumber, number: math.Inf(1)})
	}
	return nil
}

// isValue tells whether an expression is msg.value.
func (f *formulas) isValue(e ast.Expression) bool {
	if id, ok := e.(*ast.Identifier); ok {
		if alias, known := f.aliases[id.Name.String()]; known && alias == nil || id.Name == nameValue { // as it was rewritten
			return true
		}
	}
	id, value := f.argument(e)
	return id != nil && value
}

// dot is the formula of a member.
func (f *formulas) dot(of ast.Expression, name string) formula {
	if objectMembers[name] {
		return nil // Object.prototype has it
	}
	optional := false
	if o, ok := of.(*ast.Optional); ok {
		of, optional = o.Expression, true
	}
	if f.isValue(of) {
		return func(c *calculation) operand { return c.member(c.value, name) }
	}
	if f.isFixed(of, "vars") {
		return func(c *calculation) operand { return c.member(c.vars, name) }
	}
	if id, ok := of.(*ast.Identifier); ok {
		switch b, declared := f.look(id.Name.String()); {
		case !declared:
		case b == given && f.guard:
			return recordFormulas[name]
		case b == state && !f.guard:
			f.state = true
			return func(c *calculation) operand { return c.member(c.state, name) }
		}
	}
	outer := f.of(of)
	if outer == nil {
		return nil
	}
	return func(c *calculation) operand {
		o := outer(c)
		if optional && (o.kind == isNull || o.kind == isUndefined) {
			return operand{kind: isUndefined}
		}
		return c.inside(o, name)
	}
}

// recordFormulas are members of msg.
var recordFormulas = map[string]formula{
	"topic":     func(c *calculation) operand { return operand{kind: isText, text: c.record.Input.Topic.Name} },
	"input":     func(c *calculation) operand { return operand{kind: isText, text: c.record.Input.Name} },
	"partition": func(c *calculation) operand { return operand{kind: isNumber, number: float64(c.record.Partition)} },
	"offset":    func(c *calculation) operand { return operand{kind: isNumber, number: float64(c.record.Offset)} },
	"timestamp": func(c *calculation) operand { return operand{kind: isNumber, number: float64(c.record.Timestamp)} },
	"key": func(c *calculation) operand {
		switch key := c.record.Key; {
		case key == nil:
			return operand{kind: isNull}
		case c.record.Input.Key == stream.String:
			return operand{kind: isText, text: rawjson.View(key)}
		case c.record.Input.Key == stream.JSON && len(key) > 0:
			return operandOf(trim(key))
		}
		return operand{}
	},
}

func unaryFormula(op token.Token, on formula) formula {
	switch op {
	case token.NOT:
		return func(c *calculation) operand {
			o := on(c)
			if o.kind == isUnknown {
				return o
			}
			return booleanOf(!o.truth())
		}
	case token.MINUS, token.PLUS:
		sign := 1.0
		if op == token.MINUS {
			sign = -1
		}
		return func(c *calculation) operand {
			o := on(c)
			n, ok := o.float()
			if !ok {
				return operand{}
			}
			return operand{kind: isNumber, number: sign * n}
		}
	case token.TYPEOF:
		return func(c *calculation) operand {
			o := on(c)
			if o.kind == isUnknown {
				return o
			}
			return operand{kind: isText, text: [...]string{isUndefined: "undefined", isNull: "object", isBoolean: "boolean", isNumber: "number", isText: "string", isObject: "object"}[o.kind]}
		}
	default:
		return nil
	}
}

func binaryFormula(op token.Token, a, b formula) formula {
	switch op {
	case token.LOGICAL_AND, token.LOGICAL_OR, token.COALESCE:
		return func(c *calculation) operand {
			o := a(c)
			var settled bool
			switch {
			case o.kind == isUnknown:
				settled = true
			case op == token.COALESCE:
				settled = o.kind != isNull && o.kind != isUndefined
			default:
				settled = o.truth() == (op == token.LOGICAL_OR)
			}
			if settled {
				return o
			}
			return b(c)
		}
	case token.STRICT_EQUAL, token.STRICT_NOT_EQUAL, token.EQUAL, token.NOT_EQUAL:
		strict := op == token.STRICT_EQUAL || op == token.STRICT_NOT_EQUAL
		wanted := op == token.STRICT_EQUAL || op == token.EQUAL
		return func(c *calculation) operand {
			equal, ok := equalOperands(a(c), b(c), strict)
			if !ok {
				return operand{}
			}
			return booleanOf(equal == wanted)
		}
	case token.LESS, token.GREATER, token.LESS_OR_EQUAL, token.GREATER_OR_EQUAL:
		return func(c *calculation) operand { return compareOperands(op, a(c), b(c)) }
	case token.PLUS, token.MINUS, token.MULTIPLY, token.SLASH, token.REMAINDER:
		return func(c *calculation) operand {
			left, right := a(c), b(c)
			x, ok1 := left.float()
			y, ok2 := right.float()
			if !ok1 || !ok2 {
				return operand{}
			}
			return operand{kind: isNumber, number: arithmetic(op, x, y)}
		}
	default:
		return nil
	}
}

// arithmetic rounds every result, as the conversions say: Go may otherwise fuse two operations, and JavaScript never does.
func arithmetic(op token.Token, x, y float64) float64 {
	switch op {
	case token.PLUS:
		return float64(x + y)
	case token.MINUS:
		return float64(x - y)
	case token.MULTIPLY:
		return float64(x * y)
	case token.SLASH:
		return float64(x / y)
	default:
		return math.Mod(x, y)
	}
}

// equalOperands compares as === does, or as == where that needs no conversion.
func equalOperands(a, b operand, strict bool) (equal, ok bool) {
	switch {
	case a.kind == isUnknown || b.kind == isUnknown || a.kind == isObject && b.kind == isObject:
		return false, false
	case a.kind == b.kind:
		if a.kind == isText {
			return a.text == b.text, true
		}
		return a.kind == isUndefined || a.kind == isNull || a.number == b.number, true
	case strict:
		return false, true
	}
	nothing := func(o operand) bool { return o.kind == isUndefined || o.kind == isNull }
	if nothing(a) || nothing(b) {
		return nothing(a) && nothing(b), true
	}
	return false, false
}

func compareOperands(op token.Token, a, b operand) operand {
	if a.kind == isText && b.kind == isText {
		// JavaScript compares UTF-16 units, which is the same for ASCII.
		if !isASCII(a.text) || !isASCII(b.text) {
			return operand{}
		}
		return compared(op, strings.Compare(a.text, b.text), 0)
	}
	x, ok1 := a.float()
	y, ok2 := b.float()
	if !ok1 || !ok2 {
		return operand{}
	}
	return compared(op, x, y)
}

func compared[T int | float64](op token.Token, x, y T) operand {
	switch op {
	case token.LESS:
		return booleanOf(x < y)
	case token.GREATER:
		return booleanOf(x > y)
	case token.LESS_OR_EQUAL:
		return booleanOf(x <= y)
	default:
		return booleanOf(x >= y)
	}
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// takeFormulas takes the functions that formulas were made of, once for each VM.
func (v *vm) takeFormulas(call goja.FunctionCall) goja.Value {
	for _, arg := range call.Arguments {
		run, _ := goja.AssertFunction(arg)
		v.formulas = append(v.formulas, run)
	}
	return goja.Undefined()
}

// workOut fills the parts and operands of a draft's literal. It takes the parts that are no formulas from args and answers
// the rest of those.
func (v *vm) workOut(d *draft, args []goja.Value) []goja.Value {
	c := &v.glance.calculation
	c.value, c.state = v.lent(d.lent), v.lent(d.lentState)
	list := d.object.formulas
	d.parts, d.operands = v.parts[:0], v.operands[:0]
	for i := range list {
		f := &list[i]
		if f.run == nil {
			d.parts, d.operands = append(d.parts, args[0]), append(d.operands, operand{})
			args = args[1:]
			continue
		}
		o := f.run(c)
		var value goja.Value
		switch {
		case o.kind == isUnknown:
			value = v.inScript(d, f)
		case o.kind == isNumber && o.number-o.number != 0: // the encoder says what is wrong with it
			value, o = v.rt.ToValue(o.number), operand{}
		}
		d.parts, d.operands = append(d.parts, value), append(d.operands, o)
	}
	v.parts, v.operands = d.parts, d.operands
	return args
}

// lent is the lazy object behind a value, or nil.
func (v *vm) lent(value goja.Value) *lazy {
	if o, ok := value.(*goja.Object); ok {
		return v.values.lazyOf(o)
	}
	return nil
}

// inScript works a formula out in JavaScript.
func (v *vm) inScript(d *draft, f *memberFormula) goja.Value {
	state := d.lentState
	if state == nil {
		state = goja.Undefined()
	}
	value, err := v.formulas[f.number](goja.Undefined(), d.lent, state)
	must(err)
	return value
}

// materialised are the parts of a draft's literal, all as values.
func (v *vm) materialised(d *draft) []goja.Value {
	for i := range d.operands {
		if d.parts[i] != nil {
			continue
		}
		if f := &d.object.formulas[i]; f.constant {
			d.parts[i] = v.made(&d.operands[i])
		} else {
			d.parts[i] = v.inScript(d, f)
		}
	}
	return d.parts
}
