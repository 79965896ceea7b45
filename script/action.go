package script

import (
	"fmt"

	"github.com/dop251/goja"
	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/file"
	"github.com/dop251/goja/token"
)

// An action is a statement of the body that is carried out in Go:
//
//	state.count += 1;                                       an assignment of a formula to a member of state or msg.value
//	yield State(state);                                     a State of one of them
//	yield Message({ value: { ...msg.value, n: state.n } }); a Message of them, formulas and literals
//
// Actions that follow each other are one call out of JavaScript.
//
//  1. An action is carried out whole or not at all: one that meets what a formula does not know, or what only JavaScript
//     can do right, has changed nothing, and runs as the JavaScript that it was made of. An error comes from there, too, with its own place.
//  2. An action runs no code of the script's. So msg.value and state must have no members that are objects which the script made
//     or got hold of: those may have a toJSON.
type action struct {
	do     func(*vm) bool
	single bool // in JavaScript it is one call out of it as well
	number int  // of the JavaScript, in vm.formulas
}

// assignment is the action of an assignment, or nil.
func (r *rewriter) assignment(s ast.Statement) *action {
	statement, ok := s.(*ast.ExpressionStatement)
	if !ok {
		return nil
	}
	var target ast.Expression
	var value formula
	f := &formulas{rewriter: r}
	switch e := statement.Expression.(type) {
	case *ast.AssignExpression:
		target, value = e.Left, f.of(e.Right)
		if value != nil && e.Operator != token.ASSIGN {
			value = f.updated(e.Left, e.Operator, value)
		}
	case *ast.UnaryExpression:
		one := constantFormula(operand{kind: isNumber, number: 1})
		switch target = e.Operand; e.Operator {
		case token.INCREMENT:
			value = f.updated(target, token.MINUS, constantFormula(operand{kind: isNumber, number: -1}))
		case token.DECREMENT:
			value = f.updated(target, token.MINUS, one)
		default:
		}
	}
	if value == nil {
		return nil
	}
	of, name := memberOf(target)
	if name == "" || objectMembers[name] {
		return nil
	}
	id, isValue := r.argument(of)
	if id == nil {
		return nil
	}
	return &action{do: func(v *vm) bool {
		c := &v.glance.calculation
		l := c.state
		if isValue {
			l = c.value
		}
		if l == nil {
			return false
		}
		o := value(c)
		made := v.made(&o)
		return made != nil && l.Set(name, made)
	}}
}

// memberOf takes a member expression apart; the name is "" if it is none whose name is known.
func memberOf(e ast.Expression) (of ast.Expression, name string) {
	switch e := e.(type) {
	case *ast.DotExpression:
		return e.Left, e.Identifier.Name.String()
	case *ast.BracketExpression:
		if text, ok := e.Member.(*ast.StringLiteral); ok {
			return e.Left, text.Value.String()
		}
	}
	return nil, ""
}

// updated is the formula of target op by.
func (f *formulas) updated(target ast.Expression, op token.Token, by formula) formula {
	before := f.of(target)
	switch op {
	case token.PLUS, token.MINUS, token.MULTIPLY, token.SLASH, token.REMAINDER:
		if before != nil {
			return binaryFormula(op, before, by)
		}
	default:
	}
	return nil
}

// made is an operand as a value, or nil if only JavaScript knows it.
func (v *vm) made(o *operand) goja.Value {
	switch o.kind {
	case isUndefined:
		return goja.Undefined()
	case isNull:
		return goja.Null()
	case isBoolean:
		if o.number != 0 {
			return v.values.yes
		}
		return v.values.no
	case isNumber:
		return v.rt.ToValue(o.number)
	case isText:
		return v.values.string(o.text)
	default:
		return nil
	}
}

// called is the action of a statement that was rewritten to a call of a native function, or nil.
func (r *rewriter) called(s ast.Statement) *action {
	statement, ok := s.(*ast.ExpressionStatement)
	if !ok {
		return nil
	}
	c, ok := statement.Expression.(*ast.CallExpression)
	if !ok {
		return nil
	}
	callee, ok := c.Callee.(*ast.Identifier)
	if !ok {
		return nil
	}
	args := make([]argument, len(c.ArgumentList))
	for i, e := range c.ArgumentList {
		if args[i] = r.constantArgument(e); args[i] == nil {
			return nil
		}
	}
	run := func(f func(*vm, goja.FunctionCall) goja.Value) *action {
		return &action{single: true, do: func(v *vm) bool { return v.attempt(args, f) }}
	}
	if callee.Name == nameKeep {
		return run((*vm).yieldState)
	}
	var number int
	if n, err := fmt.Sscanf(callee.Name.String(), nameEmit+"%d", &number); n != 1 || err != nil {
		return nil
	}
	return run(func(v *vm, call goja.FunctionCall) goja.Value { return v.emitters[number](call) })
}

// argument is what an action hands to a native function; nil is not known.
type argument func(*vm) goja.Value

func (r *rewriter) constantArgument(e ast.Expression) argument {
	if id, ok := e.(*ast.Identifier); ok {
		switch id.Name {
		case nameValue:
			return func(v *vm) goja.Value { return v.given[0] }
		case "state":
			if b, declared := r.look("state"); declared && b == state {
				return func(v *vm) goja.Value { return v.given[1] }
			}
		}
		return nil
	}
	f := &formulas{rewriter: r}
	run := f.of(e)
	if run == nil {
		return nil
	}
	return func(v *vm) goja.Value {
		o := run(&v.glance.calculation)
		return v.made(&o)
	}
}

// attempt calls a native function, and answers false if that has thrown: then it has done nothing.
func (v *vm) attempt(args []argument, f func(*vm, goja.FunctionCall) goja.Value) (done bool) {
	for _, given := range v.given {
		if _, ok := given.(*goja.Object); !ok {
			continue
		}
		if l := v.lent(given); l == nil || !l.scalars() {
			return false
		}
	}
	call := goja.FunctionCall{Arguments: v.args[:0]}
	for _, arg := range args {
		value := arg(v)
		if value == nil {
			return false
		}
		call.Arguments = append(call.Arguments, value)
	}
	v.args = call.Arguments
	defer func() {
		if thrown := recover(); thrown != nil {
			if _, ok := thrown.(*goja.Object); !ok {
				panic(thrown)
			}
			done = false
		}
	}()
	f(v, call)
	return true
}

// scalars tells whether no member is an object that the script made or got hold of.
func (l *lazy) scalars() bool {
	if l.text.children != nil {
		return false
	}
	for i := range l.changes {
		if _, ok := l.changes[i].value.(*goja.Object); ok {
			return false
		}
	}
	return true
}

// actions rewrites the statements of the body. Those that are actions are called together.
func (r *rewriter) actions(list []ast.Statement) []ast.Statement {
	var kept []ast.Statement
	var run []action
	var statements []ast.Statement // as they are in JavaScript
	var at file.Idx
	end := func() {
		if len(run) == 0 {
			return
		}
		if len(run) == 1 && run[0].single {
			kept = append(kept, statements...)
		} else {
			for i := range run {
				run[i].number = r.lift(statements[i])
			}
			name := fmt.Sprint(nameRun, len(r.program.runs))
			r.program.runs = append(r.program.runs, run)
			kept = append(kept, &ast.ExpressionStatement{Expression: call(name, at, identifier(nameValue, at), identifier("state", at))})
		}
		run, statements = nil, nil
	}
	for _, s := range list {
		a := r.assignment(s)
		from, anchor := s.Idx0(), anchorOf(s)
		if s = r.statement(s); a == nil {
			a = r.called(s)
		}
		if a == nil {
			end()
			if anchor != nil {
				kept = append(kept, anchor)
			}
			kept = append(kept, s)
			continue
		}
		if len(run) == 0 {
			at = from
		}
		run, statements = append(run, *a), append(statements, s)
	}
	end()
	return kept
}

// run carries actions out.
func (v *vm) run(list []action) func(goja.FunctionCall) goja.Value {
	return func(call goja.FunctionCall) goja.Value {
		v.given[0], v.given[1] = call.Argument(0), call.Argument(1)
		c := &v.glance.calculation
		c.value, c.state = v.lent(v.given[0]), v.lent(v.given[1])
		for i := range list {
			if a := &list[i]; !a.do(v) {
				if _, err := v.formulas[a.number](goja.Undefined(), call.Argument(0), call.Argument(1)); err != nil {
					panic(err)
				}
			}
		}
		return goja.Undefined()
	}
}
