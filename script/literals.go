package script

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/file"
	"github.com/dop251/goja/token"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

func (r *rewriter) isFixed(e ast.Expression, name string) bool {
	id, ok := e.(*ast.Identifier)
	if !ok || id.Name.String() != name {
		return false
	}
	b, ok := r.look(name)
	return ok && b == fixed
}

// checkYielded refuses a Message, a State or a generator that is made and let go: what it says would be lost without a word.
func (r *rewriter) checkYielded(e ast.Expression) {
	c, ok := e.(*ast.CallExpression)
	if !ok {
		return
	}
	for _, name := range []string{"Message", "State"} {
		if r.isFixed(c.Callee, name) {
			r.refuse(c.Idx0(), CodeYield, "write `yield "+name+"(…)`", "%s(…) alone does nothing: it is not yielded", name)
		}
	}
	if id, ok := c.Callee.(*ast.Identifier); ok && r.isMaker(id.Name.String()) {
		r.refuse(c.Idx0(), CodeYield, "write `yield* "+id.Name.String()+"(…)`", "%s is a function*: to call it alone runs nothing of it", id.Name)
	}
}

// checkMessage refuses members of Message({…}) that mean nothing.
func (r *rewriter) checkMessage(c *ast.CallExpression) {
	if !r.isFixed(c.Callee, "Message") || len(c.ArgumentList) != 1 {
		return
	}
	literal, ok := c.ArgumentList[0].(*ast.ObjectLiteral)
	if !ok {
		return
	}
	named, open := false, false
	for _, p := range literal.Value {
		name, _, ok := plainMember(p)
		if !ok {
			open = true
			continue
		}
		if name == "value" {
			named = true
		}
		if fieldOf(name) == 0 {
			r.refuse(p.Idx0(), "script.message", fieldHint(name), "a Message has no %q", name)
		}
	}
	if !named && !open {
		r.refuse(c.Callee.Idx0(), "script.message", "value: null is a tombstone", "a Message needs a value")
	}
}

// plainMember is the name and expression of an object literal's member that is written name: expression, or name alone.
func plainMember(p ast.Property) (string, ast.Expression, bool) {
	switch p := p.(type) {
	case *ast.PropertyShort:
		if p.Initializer == nil {
			name := p.Name
			return name.Name.String(), &name, true
		}
	case *ast.PropertyKeyed:
		if key, ok := p.Key.(*ast.StringLiteral); ok && !p.Computed && p.Kind == ast.PropertyKindValue {
			return key.Value.String(), p.Value, true
		}
	}
	return "", nil, false
}

// object turns a literal that spreads something into a native call. What it cannot take stays a literal.
func (r *rewriter) object(o *ast.ObjectLiteral) ast.Expression {
	if !r.plain {
		if s, args := r.shape(o, true, false); s != nil {
			r.program.objects = append(r.program.objects, s)
			return call(fmt.Sprint(nameObject, len(r.program.objects)-1), o.LeftBrace, args...)
		}
	}
	for i, p := range o.Value {
		switch p := p.(type) {
		case *ast.PropertyShort:
			if name := p.Name; r.imported(name.Name.String()) != nil {
				value := name
				r.reference(&value)
				o.Value[i] = &ast.PropertyKeyed{Key: &ast.StringLiteral{Idx: name.Idx, Literal: name.Name.String(), Value: name.Name}, Kind: ast.PropertyKindValue, Value: &value}
				continue
			}
			r.reference(&p.Name)
			if p.Initializer != nil {
				p.Initializer = r.expr(p.Initializer)
			}
		case *ast.PropertyKeyed:
			if p.Computed {
				p.Key = r.expr(p.Key)
			}
			r.memberKey(p.Key, p.Kind)
			if f, ok := p.Value.(*ast.FunctionLiteral); ok {
				r.function(f)
			} else {
				p.Value = r.expr(p.Value)
			}
		case *ast.SpreadElement:
			p.Expression = r.expr(p.Expression)
		}
	}
	return o
}

// shape is an object literal as a list of members, and the expressions that fill it, rewritten. It is nil when the literal
// spreads nothing though it should, has one name twice, or has a member that must stay JavaScript: an accessor, a method, a computed or index-like name,
// __proto__, or a function that takes its name from the member.
//
// With native set, members that are formulas are not among the expressions.
func (r *rewriter) shape(o *ast.ObjectLiteral, spreading, native bool) (*shape, []ast.Expression) {
	s := &shape{}
	spreads := false
	var exprs []ast.Expression
	for _, p := range o.Value {
		if spread, ok := p.(*ast.SpreadElement); ok {
			spreads = true
			s.names = append(s.names, "")
			s.spread = append(s.spread, true)
			exprs = append(exprs, spread.Expression)
			continue
		}
		name, e, ok := plainMember(p)
		if !ok || name == "__proto__" || isIndex(name) || takesName(e) {
			return nil, nil
		}
		r.member(name)
		s.names = append(s.names, name)
		s.spread = append(s.spread, false)
		exprs = append(exprs, e)
	}
	if !spreads {
		if spreading {
			return nil, nil
		}
		s.quoted = []string{}
		for i, name := range s.names {
			if slices.Contains(s.names[:i], name) {
				return nil, nil
			}
			s.quoted = append(s.quoted, string(append(rawjson.AppendString(nil, name), ':')))
		}
	} else if s.spread[0] {
		for i, name := range s.names[1:] {
			if s.spread[1+i] || name == "" || name[0]-'0' <= 9 || slices.Contains(s.names[1:1+i], name) {
				s.added = nil
				break
			}
			s.added = append(s.added, ","+string(append(rawjson.AppendString(nil, name), ':')))
		}
	}
	if native && r.flat && r.body && allPure(exprs) {
		r.formulas(s, exprs)
	}
	// A later expression that can run code may change a spread object before the copy is made.
	quiet := true
	for i := len(exprs) - 1; i >= 0; i-- {
		pure := isPure(exprs[i])
		if s.spread[i] {
			r.lends(exprs[i])
		}
		exprs[i] = r.expr(exprs[i])
		if s.spread[i] && !quiet {
			exprs[i] = call(nameSnap, exprs[i].Idx0(), exprs[i])
		}
		quiet = quiet && pure
	}
	if s.formulas == nil {
		return s, exprs
	}
	var rest []ast.Expression
	for i, e := range exprs {
		if f := &s.formulas[i]; f.run == nil {
			rest = append(rest, e)
		} else if !f.constant {
			f.number = r.lift(&ast.ReturnStatement{Return: e.Idx0(), Argument: e})
		}
	}
	return s, rest
}

// formulas finds the members of a literal that are formulas. All are worked out when the literal is written: after the others,
// which therefore must change nothing, and of those behind a formula none may throw, since a formula may do so before it.
func (r *rewriter) formulas(s *shape, exprs []ast.Expression) {
	list := make([]memberFormula, len(exprs))
	for i := len(exprs) - 1; i >= 0; i-- {
		e := exprs[i]
		f := &formulas{rewriter: r}
		if run := f.of(e); run != nil && !s.spread[i] {
			list[i] = memberFormula{run: run, constant: isLiteral(e)}
			s.formulas, s.state = list, s.state || f.state
		} else if _, name := e.(*ast.Identifier); !name && !isLiteral(e) && !f.isValue(e) {
			break
		}
	}
}

// lift makes a statement the function (@value, state) => { statement }, and answers its number among those.
func (r *rewriter) lift(s ast.Statement) int {
	at := s.Idx0()
	r.lifted = append(r.lifted, &ast.FunctionLiteral{
		Function: at, ParameterList: parameters([]string{nameValue, "state"}),
		Body: &ast.BlockStatement{LeftBrace: at, RightBrace: at, List: []ast.Statement{s}},
	})
	return len(r.lifted) - 1
}

func isLiteral(e ast.Expression) bool {
	switch e.(type) {
	case *ast.NumberLiteral, *ast.StringLiteral, *ast.BooleanLiteral, *ast.NullLiteral:
		return true
	}
	return false
}

func takesName(e ast.Expression) bool {
	switch e := e.(type) {
	case *ast.FunctionLiteral:
		return e.Name == nil
	case *ast.ClassLiteral:
		return e.Name == nil
	case *ast.ArrowFunctionLiteral:
		return true
	}
	return false
}

// emit turns yield Message({…}) into a call that encodes the members at once, and yield State(…) likewise.
func (r *rewriter) emit(at file.Idx, c *ast.CallExpression) ast.Expression {
	if r.isFixed(c.Callee, "State") && len(c.ArgumentList) == 1 {
		if _, spread := c.ArgumentList[0].(*ast.SpreadElement); !spread {
			if r.stateless {
				r.refuse(at, "script.no_state", noStateHint, noStateMessage)
			}
			r.program.namesState = true
			r.lends(c.ArgumentList[0])
			return call(nameKeep, at, r.expr(c.ArgumentList[0]))
		}
	}
	if !r.isFixed(c.Callee, "Message") || len(c.ArgumentList) != 1 {
		return nil
	}
	literal, ok := c.ArgumentList[0].(*ast.ObjectLiteral)
	if !ok {
		return nil
	}
	m := &messageShape{}
	seen := map[field]bool{}
	for _, p := range literal.Value {
		name, _, ok := plainMember(p)
		f := fieldOf(name)
		if !ok || f == 0 || seen[f] {
			return nil
		}
		seen[f] = true
	}
	if !seen[fieldValue] {
		return nil
	}
	r.program.yieldsMessage = true
	var args []ast.Expression
	for i, p := range literal.Value {
		name, e, _ := plainMember(p)
		member := messageMember{field: fieldOf(name)}
		// A value is taken apart only where nothing that is evaluated after it can change it.
		if o, ok := e.(*ast.ObjectLiteral); ok && member.field == fieldValue && pureFrom(literal.Value[i+1:]) {
			if s, exprs := r.shape(o, false, true); s != nil {
				member.object = s
				args = append(args, exprs...)
				m.lends, m.lendsState = s.formulas != nil, s.state
			}
		}
		if member.object == nil {
			r.lends(e)
			args = append(args, r.expr(e))
		}
		m.members = append(m.members, member)
	}
	if m.lendsState {
		args = append([]ast.Expression{identifier("state", at)}, args...)
	}
	if m.lends {
		args = append([]ast.Expression{identifier(nameValue, at)}, args...)
	}
	r.program.messages = append(r.program.messages, m)
	return call(fmt.Sprint(nameEmit, len(r.program.messages)-1), at, args...)
}

func pureFrom(list []ast.Property) bool {
	for _, p := range list {
		if _, e, _ := plainMember(p); !isPure(e) {
			return false
		}
	}
	return true
}

// isPure tells whether an expression, without accessors and conversions of the user's own, can run no code but its own
// and changes nothing.
func isPure(e ast.Expression) bool {
	switch e := e.(type) {
	case nil, *ast.Identifier, *ast.BooleanLiteral, *ast.NullLiteral, *ast.NumberLiteral, *ast.StringLiteral, *ast.RegExpLiteral,
		*ast.ThisExpression, *ast.FunctionLiteral, *ast.ArrowFunctionLiteral:
		return true
	case *ast.DotExpression:
		return isPure(e.Left)
	case *ast.BracketExpression:
		return isPure(e.Left) && isPure(e.Member)
	case *ast.OptionalChain:
		return isPure(e.Expression)
	case *ast.Optional:
		return isPure(e.Expression)
	case *ast.BinaryExpression:
		return isPure(e.Left) && isPure(e.Right)
	case *ast.ConditionalExpression:
		return isPure(e.Test) && isPure(e.Consequent) && isPure(e.Alternate)
	case *ast.UnaryExpression:
		return e.Operator != token.INCREMENT && e.Operator != token.DECREMENT && e.Operator != token.DELETE && isPure(e.Operand)
	case *ast.TemplateLiteral:
		return e.Tag == nil && allPure(e.Expressions)
	case *ast.ArrayLiteral:
		return allPure(e.Value)
	case *ast.SequenceExpression:
		return allPure(e.Sequence)
	case *ast.ObjectLiteral:
		for _, p := range e.Value {
			if spread, ok := p.(*ast.SpreadElement); ok {
				if !isPure(spread.Expression) {
					return false
				}
			} else if _, v, ok := plainMember(p); !ok || !isPure(v) {
				return false
			}
		}
		return true
	}
	return false
}

func allPure(list []ast.Expression) bool {
	for _, e := range list {
		if _, spread := e.(*ast.SpreadElement); spread || !isPure(e) {
			return false
		}
	}
	return true
}

func (r *rewriter) refuseProperty(idx file.Idx) {
	r.refuse(idx, "script.regexp", `write the characters as a class, such as [a-zà-ÿ]`, `\p{…} never matches here`)
}

func (r *rewriter) checkRegExp(callee ast.Expression, args []ast.Expression) {
	id, ok := callee.(*ast.Identifier)
	if !ok || id.Name != "RegExp" || len(args) != 2 {
		return
	}
	pattern, ok1 := args[0].(*ast.StringLiteral)
	flags, ok2 := args[1].(*ast.StringLiteral)
	if ok1 && ok2 && strings.Contains(flags.Value.String(), "u") && namesProperty(pattern.Value.String()) {
		r.refuseProperty(args[0].Idx0())
	}
}

// namesProperty tells whether a pattern has \p{…} or \P{…}.
func namesProperty(pattern string) bool {
	for i := 0; i+2 < len(pattern); i++ {
		if pattern[i] == '\\' {
			if pattern[i+1]|0x20 == 'p' && pattern[i+2] == '{' {
				return true
			}
			i++
		}
	}
	return false
}
