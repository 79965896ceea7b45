package script

import (
	"github.com/dop251/goja"
	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/token"
)

// To call an asynchronous function is dear: it makes a promise, and with it two functions that settle the promise. So one call
// of the function of a body that awaits runs one record after the other, as long as nobody can tell:
//
//	async function(@next, @keyOf, …) {
//		@records: for (;;) {
//			let @value = @next(), …;
//			if (@value === void 0) return;
//			body, in which return is continue @records
//		}
//	}
//
// Such a call is a worker. It has one record at a time, and waits where the body of that record does.
//
//  1. A worker goes on to the next record only where the calls of records that end and begin have nothing in common but the
//     order in which they do: where the next record would begin anyway, and when nothing of the record before can run any
//     more, since it left no operation, no rejected promise and no promise job. @next decides it, and otherwise ends the worker;
//     then the record is settled from outside, as one that failed is.
//  2. What the body declares is new for each record. What var declares belongs to the function, so it is set back.
//  3. A body whose declarations do not fit into a block, and one that returns in a finally block, runs in a call for each record.

// The generated names of the loop.
const (
	nameNext       = "@next"
	nameKeyOf      = "@keyOf"
	nameStateOf    = "@stateOf"
	nameConfigOf   = "@configOf"
	nameResponseOf = "@responseOf"
	nameRecords    = "@records"
)

// sources are what the body's further arguments are asked from.
var sources = map[string]string{"state": nameStateOf, "config": nameConfigOf, "response": nameResponseOf}

// loops tells whether what the body declares can be declared in a block.
func (c *compilation) loops(body *ast.FunctionLiteral) bool {
	r := &rewriter{}
	r.push()
	taken := r.scope.names
	fits := true
	// add enters what is declared at one place. Nothing may be declared at two.
	add := func(declare func()) {
		r.push()
		declare()
		for name := range r.scope.names {
			_, twice := taken[name]
			fits = fits && !twice
			taken[name] = local
		}
		r.pop()
	}
	if c.Module {
		for _, b := range body.ParameterList.List {
			_, plain := b.Target.(*ast.Identifier)
			fits = fits && plain && b.Initializer == nil
			add(func() { r.declare(b.Target, local) })
		}
		fits = fits && body.ParameterList.Rest == nil
	} else {
		for _, name := range c.arguments() {
			taken[name] = local
		}
	}
	// One name may stand in several declarations of var.
	add(func() { r.declareVars(body.DeclarationList, local) })
	for _, s := range body.Body.List {
		add(func() { r.declareBlock([]ast.Statement{s}, local) })
	}
	return fits
}

// onward is what stands in place of a return of the body.
func (r *rewriter) onward(s *ast.ReturnStatement) ast.Statement {
	r.single = r.single || r.finally > 0
	list := []ast.Statement{&ast.BranchStatement{Idx: s.Return, Token: token.CONTINUE, Label: identifier(nameRecords, s.Return)}}
	if s.Argument != nil {
		list = append([]ast.Statement{&ast.ExpressionStatement{Expression: s.Argument}}, list...)
	}
	return &ast.BlockStatement{LeftBrace: s.Return, List: list, RightBrace: s.Return}
}

// repeat makes the body's function one that runs one record after the other.
func (r *rewriter) repeat(body *ast.FunctionLiteral) {
	at, p := body.Function, r.program
	p.loops = true
	from := []string{nameNext}
	if p.readsKey {
		from = append(from, nameKeyOf)
	}
	for _, name := range p.further {
		from = append(from, sources[name])
	}
	var names []string
	for _, b := range body.ParameterList.List {
		names = append(names, b.Target.(*ast.Identifier).Name.String())
	}
	if len(names) == 0 {
		names = []string{nameValue}
	}
	var list []ast.Statement
	for i, name := range names {
		var value ast.Expression
		if i < len(from) && from[i] != "" {
			value = call(from[i], at)
		}
		list = append(list, declaration(token.LET, identifier(name, at), at, value))
		if i == 0 {
			list = append(list, &ast.IfStatement{
				If:         at,
				Test:       &ast.BinaryExpression{Operator: token.STRICT_EQUAL, Left: identifier(name, at), Right: undefined(at)},
				Consequent: &ast.ReturnStatement{Return: at},
			})
		}
	}
	v := &rewriter{}
	v.push()
	v.declareVars(body.DeclarationList, shared)
	for _, name := range v.sharedNames() {
		list = append(list, &ast.ExpressionStatement{Expression: &ast.AssignExpression{
			Operator: token.ASSIGN, Left: identifier(name, at), Right: undefined(at),
		}})
	}
	body.Body.List = []ast.Statement{&ast.LabelledStatement{
		Label: identifier(nameRecords, at),
		Colon: at,
		Statement: &ast.ForStatement{
			For:  at,
			Body: &ast.BlockStatement{LeftBrace: at, List: append(list, body.Body.List...), RightBrace: body.Body.RightBrace},
		},
	}}
	body.ParameterList = parameters([]string{nameNext, nameKeyOf, nameStateOf, nameConfigOf, nameResponseOf})
}

// natives are what a worker is called with.
func (t *overlapping) natives() []goja.Value {
	v := t.vm
	state := func(goja.FunctionCall) goja.Value {
		if v.turn.entry == nil {
			return goja.Undefined()
		}
		return t.states.value(v.turn.entry)
	}
	return []goja.Value{
		v.native("next", 0, t.follow),
		v.native("key", 0, func(goja.FunctionCall) goja.Value { return v.recordKey(v.record()) }),
		v.native("state", 0, state),
		v.native("config", 0, func(goja.FunctionCall) goja.Value { return v.beside("config") }),
		v.native("response", 0, func(goja.FunctionCall) goja.Value { return v.beside("response") }),
	}
}

// follow begins a record in a worker, the one that the worker was made for or the one that follows a record that is over. It
// answers the body's first argument, or undefined when the worker is to end.
func (t *overlapping) follow(goja.FunctionCall) goja.Value {
	v := t.vm
	c := v.turn
	if t.begun {
		t.begun = false
		return t.first(&t.batch.Records[c.record])
	}
	if !t.onward || !t.pause.IsZero() || !c.quiet() {
		return goja.Undefined()
	}
	promise := c.promise
	c.bigs, v.turn = v.values.bigs, nil
	if t.failure = t.finish(c, nil); t.failure != nil || t.ctx.Err() != nil {
		return goja.Undefined()
	}
	i, ok := t.take()
	if !ok {
		return goja.Undefined()
	}
	if c, t.failure = t.open(i); t.failure != nil {
		return goja.Undefined()
	}
	c.promise = promise
	v.work(c)
	t.calls.Store((t.calls.Load()>>1+1)<<1 | 1)
	return t.first(&t.batch.Records[i])
}

// quiet tells whether a call whose body has come to its end is over, and nothing of it can run any more.
func (c *turn) quiet() bool {
	return !c.reacted && c.over == nil && !c.dropped && len(c.operations) == 0 && len(c.executors) == 0 && len(c.unhandled) == 0 && len(c.landings) == 0
}
