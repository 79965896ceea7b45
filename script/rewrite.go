package script

import (
	"fmt"
	"math/big"
	"strings"

	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/file"
	"github.com/dop251/goja/token"
	"github.com/dop251/goja/unistring"
)

// rewriter walks a tree once, resolves every name, reports what is refused and replaces what runs natively. Nodes are
// changed in place; a method that answers a node answers the one to stand in its place.
type rewriter struct {
	compilation *compilation
	program     *Program
	src         *source
	report      func(offset int, code, message, hint string)
	scope       *scope
	own         bool // in the body itself or a helper that yields, not in a function inside it
	body        bool // in the body itself
	answers     bool // in an asynchronous function that is no helper
	async       bool // the body waits: its function and that of helpers are asynchronous
	straight    bool // the script makes no promise by itself
	forked      bool // it does
	loops       bool // the body's function runs one record after the other
	single      bool // it cannot
	finally     int  // how many finally blocks of the body are around what is walked
	unit        *unit
	inFunction  bool // arguments can be read; goja panics where an arrow function reads those of the function around it
	yielding    bool // the function that is walked next is a helper that yields
	catches     bool // catch clauses let the cancel sentinel pass
	enrich      bool // the body returns a config and yields nothing
	inEnrich    bool // in such a body, functions inside it included
	plain       bool // leave object literals and Message({…}) to JavaScript
	flat        bool // msg.value and msg.key are arguments of their own
	whole       bool // the body uses msg as an object
	value       bool // and these, which parts of it
	key         bool
	uses        loans                 // of msg.value and state
	lent        loans                 // of these, those that keep no hold of the object
	aliases     map[*ast.Binding]bool // declarations of constants that stand for msg.value
	besides     map[string]bool       // and which of the further arguments it names
	stateless   bool                  // the body can have no state
	exotic      bool                  // the script names something that only ordinary objects can do
	spared      ast.Expression        // vars.name where its absence is provided for
	known       map[string]bool
	reached     map[string]bool        // built-ins that the script names
	lifted      []*ast.FunctionLiteral // the JavaScript of formulas
}

// The generated names. No script can write them.
const (
	nameValue    = "@value" // msg.value and msg.key, where the body reads nothing else of msg
	nameKey      = "@key"
	nameYield    = "@yield"
	nameKeep     = "@keep"
	nameOver     = "@over"
	nameReturned = "@returned"
	nameAwait    = "@await"
	nameAnswer   = "@answer"
	nameReady    = "@ready"
	nameSettled  = "@settled"
	nameMemo     = "@memo"
	nameExecutor = "@executor"
	nameThrown   = "@thrown"
	nameBounded  = "@bounded"
	namePass     = "@pass"
	nameSnap     = "@snap"
	nameFreeze   = "@freeze"
	nameFormulas = "@formulas"
	nameRun      = "@run"    // one for each run of actions, with its number
	nameModule   = "@module" // one for each file that is imported, with its number
	nameCaught   = "@caught"
	nameObject   = "@object" // one for each object shape, with its number
	nameEmit     = "@emit"   // one for each message shape, with its number
)

func (r *rewriter) refuse(idx file.Idx, code, hint, format string, args ...any) {
	r.report(int(idx)-1, code, fmt.Sprintf(format, args...), hint)
}

// unit is the body, or one statement of what functions declare: whether it may wait, and what it names of the others.
type unit struct {
	waits bool
	names map[string]bool
}

// site is a place in the joined text, for native functions that must tell where they were called without a look at the stack.
func site(at file.Idx) ast.Expression {
	return &ast.NumberLiteral{Idx: at, Literal: fmt.Sprint(int(at) - 1), Value: int64(at) - 1}
}

// target walks an assignment target or, when declaring, a binding target.
func (r *rewriter) target(e ast.Expression, declaring bool) ast.Expression {
	switch t := e.(type) {
	case nil:
		return nil
	case *ast.Identifier:
		if !declaring {
			r.assigned(t)
		}
	case *ast.ObjectPattern:
		for _, p := range t.Properties {
			switch p := p.(type) {
			case *ast.PropertyShort:
				if !declaring {
					r.assigned(&p.Name)
				}
				if p.Initializer != nil {
					p.Initializer = r.expr(p.Initializer)
				}
			case *ast.PropertyKeyed:
				if p.Computed {
					p.Key = r.expr(p.Key)
				}
				p.Value = r.target(p.Value, declaring)
			}
		}
		if t.Rest != nil {
			t.Rest = r.target(t.Rest, declaring)
		}
	case *ast.ArrayPattern:
		for i, el := range t.Elements {
			if el != nil {
				t.Elements[i] = r.target(el, declaring)
			}
		}
		if t.Rest != nil {
			t.Rest = r.target(t.Rest, declaring)
		}
	case *ast.AssignExpression:
		t.Left = r.target(t.Left, declaring)
		t.Right = r.expr(t.Right)
	case *ast.Binding:
		r.binding(t)
	case *ast.DotExpression:
		r.checkAssigned(e)
		r.member(t.Identifier.Name.String())
		r.lends(t.Left)
		return r.owner(e)
	default:
		r.checkAssigned(e)
		return r.expr(e)
	}
	return e
}

// loans counts uses of msg.value and of state.
type loans struct{ value, state int }

// A body that only reads and writes members of msg.value, spreads it or yields it as a State cannot get hold of the object
// itself, and so cannot tell whether the next record has another. Its objects are used again for all records (values.again).
// Every use is counted where the name is resolved; lends counts those that are known to let go of the object. What a function
// inside the body does may run later, so it counts as a hold.

// lends is called with an expression whose value is let go of once it was read, written or copied.
func (r *rewriter) lends(e ast.Expression) {
	if !r.body {
		return
	}
	switch id, value := r.argument(e); {
	case id == nil:
	case value:
		r.lent.value++
	default:
		r.lent.state++
	}
}

// argument tells whether e is msg.value or state.
func (r *rewriter) argument(e ast.Expression) (id *ast.Identifier, value bool) {
	if dot, ok := e.(*ast.DotExpression); ok && dot.Identifier.Name == "value" {
		if id, ok := dot.Left.(*ast.Identifier); ok {
			if b, ok := r.look(id.Name.String()); ok && b == given {
				return id, true
			}
		}
		return nil, false
	}
	if id, ok := e.(*ast.Identifier); ok {
		switch b, ok := r.look(id.Name.String()); {
		case ok && b == state:
			return id, false
		case ok && b == aliased:
			return id, true
		}
	}
	return nil, false
}

// findAliases finds the constants at the beginning of a body that stand for msg.value: const v = msg.value, and
// const { value } = msg, which it writes out. They are used as msg.value is. No function may stand before them, which
// could name them before they have a value.
func (r *rewriter) findAliases(body []ast.Statement) {
	for _, s := range body {
		d, ok := s.(*ast.LexicalDeclaration)
		if !ok {
			return
		}
		var list []*ast.Binding
		for _, b := range d.List {
			list = append(list, r.writtenOut(b)...)
		}
		d.List = list
		for _, b := range d.List {
			if !isPure(b.Initializer) {
				return
			}
			dot, ok := b.Initializer.(*ast.DotExpression)
			if _, named := b.Target.(*ast.Identifier); !named || !ok || d.Token != token.CONST {
				continue
			}
			if id, value := r.argument(dot); id != nil && value {
				if r.aliases == nil {
					r.aliases = map[*ast.Binding]bool{}
				}
				r.aliases[b] = true
			}
		}
	}
}

// writtenOut is const { value, key } = msg as two bindings, and any other binding as it is.
func (r *rewriter) writtenOut(b *ast.Binding) []*ast.Binding {
	pattern, ok := b.Target.(*ast.ObjectPattern)
	id, named := b.Initializer.(*ast.Identifier)
	if !ok || !named || pattern.Rest != nil || len(pattern.Properties) == 0 {
		return []*ast.Binding{b}
	}
	if of, ok := r.look(id.Name.String()); !ok || of != given {
		return []*ast.Binding{b}
	}
	var list []*ast.Binding
	for _, p := range pattern.Properties {
		name, local, ok := plainPart(p)
		if !ok || name != "value" && name != "key" {
			return []*ast.Binding{b}
		}
		at := p.Idx0()
		list = append(list, &ast.Binding{
			Target:      &ast.Identifier{Name: unistring.NewFromString(local), Idx: at},
			Initializer: &ast.DotExpression{Left: &ast.Identifier{Name: id.Name, Idx: at}, Identifier: ast.Identifier{Name: unistring.NewFromString(name), Idx: at}},
		})
	}
	return list
}

// receiver is called with what is called: a method gets hold of the object that it is called on.
func (r *rewriter) receiver(e ast.Expression) {
	var on ast.Expression
	switch e := e.(type) {
	case *ast.Optional:
		r.receiver(e.Expression)
	case *ast.OptionalChain:
		r.receiver(e.Expression)
	case *ast.DotExpression:
		on = e.Left
	case *ast.BracketExpression:
		on = e.Left
	}
	if o, ok := on.(*ast.Optional); ok {
		on = o.Expression
	}
	switch id, value := r.argument(on); {
	case id == nil:
	case value:
		r.uses.value++
	default:
		r.uses.state++
	}
}

// owner walks an expression that works on the object that a member is read from: a call, an assignment or a delete.
func (r *rewriter) owner(e ast.Expression) ast.Expression {
	if dot, ok := e.(*ast.DotExpression); ok {
		if i := r.namespaceMember(e); i != nil && i.isHelper() {
			r.refuseHelper(e.Idx0(), dot.Identifier.Name.String())
		}
		dot.Left = r.expr(dot.Left)
		r.namesMember(dot.Identifier.Name.String())
		r.exotic = r.exotic || exoticNames[dot.Identifier.Name.String()]
		r.forked = r.forked || dot.Identifier.Name == "constructor"
		return dot
	}
	return r.expr(e)
}

// part is what stands in place of a read of msg.value or msg.key.
func (r *rewriter) part(e *ast.DotExpression) ast.Expression {
	id, ok := e.Left.(*ast.Identifier)
	if !ok || !r.flat {
		return nil
	}
	if b, ok := r.look(id.Name.String()); !ok || b != given {
		return nil
	}
	switch e.Identifier.Name {
	case "value":
		r.value = true
		r.uses.value++
		return &ast.Identifier{Name: nameValue, Idx: id.Idx}
	case "key":
		r.key = true
		return &ast.Identifier{Name: nameKey, Idx: id.Idx}
	}
	return nil
}

// member notes the name of a member that the script makes.
func (r *rewriter) member(name string) {
	r.exotic = r.exotic || exoticNames[name] || name == "toString" || name == "valueOf"
}

func (r *rewriter) memberKey(key ast.Expression, kind ast.PropertyKind) {
	r.exotic = r.exotic || kind == ast.PropertyKindGet || kind == ast.PropertyKindSet
	switch key := key.(type) {
	case *ast.StringLiteral:
		r.member(key.Value.String())
	case *ast.Identifier:
		r.member(key.Name.String())
	}
}

func (r *rewriter) binding(b *ast.Binding) {
	if r.aliases[b] {
		id := b.Target.(*ast.Identifier)
		r.value, r.scope.names[id.Name.String()] = true, aliased
		b.Initializer = &ast.Identifier{Name: nameValue, Idx: b.Initializer.Idx0()}
		return
	}
	if pattern, ok := b.Target.(*ast.ObjectPattern); ok && pattern.Rest == nil {
		r.lends(b.Initializer)
	}
	r.target(b.Target, true)
	if b.Initializer != nil {
		b.Initializer = r.expr(b.Initializer)
	}
}

func (r *rewriter) statements(list []ast.Statement) {
	for i, s := range list {
		list[i] = r.statement(s)
	}
}

func (r *rewriter) block(b *ast.BlockStatement) {
	if b == nil {
		return
	}
	r.push()
	r.declareBlock(b.List, local)
	r.statements(b.List)
	r.pop()
}

func (r *rewriter) statement(s ast.Statement) ast.Statement {
	switch s := s.(type) {
	case *ast.BlockStatement:
		r.block(s)
	case *ast.ExpressionStatement:
		r.checkYielded(s.Expression)
		s.Expression = r.expr(s.Expression)
	case *ast.IfStatement:
		s.Test = unfolded(r.expr(s.Test))
		s.Consequent = r.statement(s.Consequent)
		if s.Alternate != nil {
			s.Alternate = r.statement(s.Alternate)
		}
	case *ast.ForStatement:
		r.push()
		switch init := s.Initializer.(type) {
		case *ast.ForLoopInitializerExpression:
			init.Expression = r.expr(init.Expression)
		case *ast.ForLoopInitializerVarDeclList:
			for _, b := range init.List {
				r.binding(b)
			}
		case *ast.ForLoopInitializerLexicalDecl:
			for _, b := range init.LexicalDeclaration.List {
				r.declare(b.Target, local)
			}
			for _, b := range init.LexicalDeclaration.List {
				r.binding(b)
			}
		}
		if s.Test != nil {
			s.Test = unfoldedLoop(r.expr(s.Test))
		}
		if s.Update != nil {
			s.Update = r.expr(s.Update)
		}
		s.Body = placed(s.For, r.statement(s.Body))
		r.pop()
	case *ast.ForInStatement:
		s.Source = r.expr(s.Source)
		r.push()
		r.forInto(s.Into)
		s.Body = r.statement(s.Body)
		r.pop()
	case *ast.ForOfStatement:
		s.Source = r.expr(s.Source)
		r.push()
		r.forInto(s.Into)
		s.Body = r.statement(s.Body)
		r.pop()
	case *ast.WhileStatement:
		s.Test = unfoldedLoop(r.expr(s.Test))
		s.Body = placed(s.While, r.statement(s.Body))
	case *ast.DoWhileStatement:
		s.Body = placed(s.Do, r.statement(s.Body))
		s.Test = r.expr(s.Test)
	case *ast.LabelledStatement:
		s.Statement = r.statement(s.Statement)
	case *ast.ReturnStatement:
		if s.Argument != nil {
			if r.body && !r.enrich {
				r.checkReturned(s.Return, s.Argument)
			}
			s.Argument = r.expr(s.Argument)
			if r.body && r.enrich && r.async {
				// What a promise gives is taken here, where the place of the return is known.
				s.Argument = r.await(s.Return, s.Argument)
			}
			if r.body {
				r.program.returns = true
				s.Argument = call(nameReturned, s.Return, s.Argument)
			}
			if r.answers {
				s.Argument = call(nameAnswer, s.Argument.Idx0(), s.Argument)
			}
		}
		if r.body && r.loops {
			return r.onward(s)
		}
	case *ast.SwitchStatement:
		s.Discriminant = r.expr(s.Discriminant)
		r.push()
		for _, c := range s.Body {
			r.declareBlock(c.Consequent, local)
		}
		for _, c := range s.Body {
			if c.Test != nil {
				c.Test = r.expr(c.Test)
			}
			r.statements(c.Consequent)
		}
		r.pop()
	case *ast.ThrowStatement:
		s.Argument = r.expr(s.Argument)
		if r.async {
			s.Argument = call(nameThrown, s.Throw, s.Argument, site(s.Throw))
		}
	case *ast.TryStatement:
		r.block(s.Body)
		if s.Catch != nil {
			r.catch(s.Catch)
		}
		r.finally++
		r.block(s.Finally)
		r.finally--
	case *ast.VariableStatement:
		for _, b := range s.List {
			r.binding(b)
		}
	case *ast.LexicalDeclaration:
		for _, b := range s.List {
			r.binding(b)
		}
	case *ast.FunctionDeclaration:
		if isHelper(s) {
			r.helper(s.Function)
		} else {
			r.function(s.Function)
		}
	case *ast.ClassDeclaration:
		r.class(s.Class)
	case *ast.WithStatement:
		r.refuse(s.With, "script.syntax", "name the object in each place", "with is not allowed in strict mode")
	case *ast.DebuggerStatement:
		return &ast.EmptyStatement{Semicolon: s.Debugger}
	}
	return s
}

// unfolded is a condition that goja's compiler does not work out. It stumbles over names in what it then knows never to run
// ("compiler bug: Unsupported instruction for binding").
func unfolded(test ast.Expression) ast.Expression {
	if !isConstant(test) {
		return test
	}
	return &ast.SequenceExpression{Sequence: []ast.Expression{&ast.NullLiteral{Idx: test.Idx0()}, test}}
}

// unfoldedLoop is the condition of a loop likewise. One that is simply true leaves nothing out.
func unfoldedLoop(test ast.Expression) ast.Expression {
	if yes, ok := test.(*ast.BooleanLiteral); ok && yes.Value {
		return test
	}
	return unfolded(test)
}

// isConstant tells whether an expression is made of literals alone.
func isConstant(e ast.Expression) bool {
	switch e := e.(type) {
	case *ast.UnaryExpression:
		return isConstant(e.Operand)
	case *ast.BinaryExpression:
		return isConstant(e.Left) // && and || are constant by their left side alone
	default:
		return isLiteral(e)
	}
}

func (r *rewriter) forInto(into ast.ForInto) {
	switch into := into.(type) {
	case *ast.ForIntoVar:
		r.binding(into.Binding)
	case *ast.ForDeclaration:
		r.declare(into.Target, local)
		r.target(into.Target, true)
	case *ast.ForIntoExpression:
		into.Expression = r.target(into.Expression, false)
	}
}

// catch makes the clause pass the sentinel on before anything of the user's runs, the parameter's pattern included.
func (r *rewriter) catch(c *ast.CatchStatement) {
	r.push()
	if c.Parameter != nil {
		r.declare(c.Parameter, local)
		r.target(c.Parameter, true)
	}
	r.declareBlock(c.Body.List, local)
	r.statements(c.Body.List)
	r.pop()
	if !r.catches {
		return
	}
	id, ok := c.Parameter.(*ast.Identifier)
	if !ok {
		id = &ast.Identifier{Name: nameCaught, Idx: c.Catch}
	}
	first := []ast.Statement{&ast.ExpressionStatement{Expression: call(namePass, c.Catch, &ast.Identifier{Name: id.Name, Idx: c.Catch})}}
	if c.Parameter != nil && !ok {
		first = append(first, &ast.LexicalDeclaration{Idx: c.Catch, Token: token.LET, List: []*ast.Binding{
			{Target: c.Parameter, Initializer: &ast.Identifier{Name: id.Name, Idx: c.Catch}},
		}})
	}
	c.Parameter = id
	c.Body.List = append(first, c.Body.List...)
}

// isHelper tells whether a statement declares an async function*.
func isHelper(s ast.Statement) bool {
	d, ok := s.(*ast.FunctionDeclaration)
	return ok && d.Function.Async && d.Function.Generator && d.Function.Name != nil
}

// helper walks an async function*, whose yields are those of the body that runs it.
func (r *rewriter) helper(f *ast.FunctionLiteral) {
	f.Generator = false
	r.yielding = true
	r.function(f)
}

func (r *rewriter) function(f *ast.FunctionLiteral) {
	yielding := r.yielding
	r.yielding = false
	if f.Async {
		r.unit.waits = true
		if f.Generator {
			r.refuse(f.Function, "script.helper", "declare it: async function* name(…) { … }, and run it with yield* name(…)", "an async function* stands only as a declaration")
		}
	}
	inFunction := r.inFunction
	r.inFunction = true
	defer func() { r.inFunction = inFunction }()
	r.inside(func() {
		if f.Name != nil {
			if !r.declaredHere(f.Name.Name.String()) {
				r.push()
				defer r.pop()
				r.declare(f.Name, local)
			}
		}
		r.push()
		defer r.pop()
		r.parameters(f.ParameterList)
		r.declareVars(f.DeclarationList, local)
		r.declareBlock(f.Body.List, local)
		r.own, r.answers = yielding, f.Async && !yielding && r.async
		r.statements(f.Body.List)
	})
}

// inside walks the inside of a function that is not the body.
func (r *rewriter) inside(walk func()) {
	own, body, answers := r.own, r.body, r.answers
	r.own, r.body, r.answers = false, false, false
	walk()
	r.own, r.body, r.answers = own, body, answers
}

func (r *rewriter) parameters(list *ast.ParameterList) {
	if list == nil {
		return
	}
	for _, b := range list.List {
		r.declare(b.Target, local)
	}
	if list.Rest != nil {
		r.declare(list.Rest, local)
	}
	for _, b := range list.List {
		r.binding(b)
	}
	if list.Rest != nil {
		list.Rest = r.target(list.Rest, true)
	}
}

func (r *rewriter) arrow(f *ast.ArrowFunctionLiteral) {
	if f.Async {
		r.unit.waits = true
	}
	inFunction := r.inFunction
	r.inFunction = false
	defer func() { r.inFunction = inFunction }()
	r.inside(func() {
		r.push()
		defer r.pop()
		r.parameters(f.ParameterList)
		r.answers = f.Async && r.async
		switch body := f.Body.(type) {
		case *ast.BlockStatement:
			r.declareVars(f.DeclarationList, local)
			r.declareBlock(body.List, local)
			r.statements(body.List)
		case *ast.ExpressionBody:
			body.Expression = r.expr(body.Expression)
			if r.answers {
				body.Expression = call(nameAnswer, body.Expression.Idx0(), body.Expression)
			}
		}
	})
}

func (r *rewriter) class(c *ast.ClassLiteral) {
	r.push()
	defer r.pop()
	if c.Name != nil {
		if b, ok := r.look(c.Name.Name.String()); !ok || b != shared {
			r.declare(c.Name, local)
		}
	}
	if c.SuperClass != nil {
		c.SuperClass = r.expr(c.SuperClass)
	}
	for _, el := range c.Body {
		switch el := el.(type) {
		case *ast.FieldDefinition:
			if el.Computed {
				el.Key = r.expr(el.Key)
			}
			if el.Initializer != nil {
				r.inside(func() { el.Initializer = r.expr(el.Initializer) })
			}
		case *ast.MethodDefinition:
			if el.Computed {
				el.Key = r.expr(el.Key)
			}
			r.memberKey(el.Key, el.Kind)
			r.function(el.Body)
		case *ast.ClassStaticBlock:
			r.inside(func() {
				r.push()
				defer r.pop()
				r.declareVars(el.DeclarationList, local)
				r.declareBlock(el.Block.List, local)
				r.statements(el.Block.List)
			})
		}
	}
}

func (r *rewriter) exprs(list []ast.Expression) {
	for i, e := range list {
		if e != nil {
			list[i] = r.expr(e)
		}
	}
}

func (r *rewriter) expr(e ast.Expression) ast.Expression {
	switch e := e.(type) {
	case *ast.Identifier:
		r.reference(e)
		if b, _ := r.look(e.Name.String()); b == aliased {
			return &ast.Identifier{Name: nameValue, Idx: e.Idx}
		}
	case *ast.YieldExpression:
		return r.yield(e)
	case *ast.AwaitExpression:
		r.unit.waits = true
		value := r.expr(e.Argument)
		r.awaitsMemo(value)
		return r.await(e.Await, value)
	case *ast.ArrayLiteral:
		r.exprs(e.Value)
	case *ast.SpreadElement:
		e.Expression = r.expr(e.Expression)
	case *ast.AssignExpression:
		e.Left = r.target(e.Left, false)
		e.Right = r.expr(e.Right)
		if id, ok := e.Left.(*ast.Identifier); ok && mayBeLarge(e.Operator, e.Right) {
			e.Right = bounded(e.Idx0(), e.Operator, &ast.Identifier{Name: id.Name, Idx: id.Idx}, e.Right)
			e.Operator = token.ASSIGN
		}
	case *ast.BinaryExpression:
		if e.Operator == token.COALESCE || e.Operator == token.LOGICAL_OR {
			r.spared = e.Left
		}
		e.Left = r.expr(e.Left)
		e.Right = r.expr(e.Right)
		if mayBeLarge(e.Operator, e.Right) {
			return bounded(e.Idx0(), e.Operator, e.Left, e.Right)
		}
	case *ast.BracketExpression:
		r.lends(e.Left)
		r.checkVars(e)
		e.Left = r.expr(e.Left)
		e.Member = r.expr(e.Member)
	case *ast.DotExpression:
		r.namesMember(e.Identifier.Name.String())
		r.exotic = r.exotic || exoticNames[e.Identifier.Name.String()]
		r.forked = r.forked || e.Identifier.Name == "constructor"
		if part := r.part(e); part != nil {
			return part
		}
		r.checkVars(e)
		if i := r.namespaceMember(e); i != nil && i.isHelper() {
			r.refuseHelper(e.Idx0(), e.Identifier.Name.String())
		}
		r.lends(e.Left)
		e.Left = r.expr(e.Left)
	case *ast.StringLiteral:
		r.member(e.Value.String())
		r.forked = r.forked || e.Value.String() == "constructor"
	case *ast.PrivateDotExpression:
		e.Left = r.expr(e.Left)
	case *ast.OptionalChain:
		e.Expression = r.expr(e.Expression)
	case *ast.Optional:
		e.Expression = r.expr(e.Expression)
	case *ast.CallExpression:
		r.checkRegExp(e.Callee, e.ArgumentList)
		r.checkMessage(e)
		r.receiver(e.Callee)
		r.checkTopic(e, false)
		r.checkVars(e.Callee)
		r.checkProtobuf(e)
		e.Callee = r.owner(e.Callee)
		r.exprs(e.ArgumentList)
	case *ast.NewExpression:
		r.checkNew(e)
		r.checkRegExp(e.Callee, e.ArgumentList)
		_, known := r.promise(e.Callee)
		e.Callee = r.expr(e.Callee)
		r.exprs(e.ArgumentList)
		if known && r.async && len(e.ArgumentList) == 1 {
			e.ArgumentList[0] = call(nameExecutor, e.New, e.ArgumentList[0])
		}
	case *ast.ConditionalExpression:
		e.Test = r.expr(e.Test)
		e.Consequent = r.expr(e.Consequent)
		e.Alternate = r.expr(e.Alternate)
	case *ast.FunctionLiteral:
		r.push()
		r.function(e)
		r.pop()
	case *ast.ArrowFunctionLiteral:
		r.arrow(e)
	case *ast.ClassLiteral:
		r.class(e)
	case *ast.ObjectLiteral:
		return r.object(e)
	case *ast.RegExpLiteral:
		if strings.Contains(e.Flags, "u") && namesProperty(e.Pattern) {
			r.refuseProperty(e.Idx)
		}
	case *ast.SequenceExpression:
		r.exprs(e.Sequence)
	case *ast.TemplateLiteral:
		if e.Tag != nil {
			r.receiver(e.Tag)
			e.Tag = r.expr(e.Tag)
		}
		r.exprs(e.Expressions)
	case *ast.UnaryExpression:
		switch id, named := e.Operand.(*ast.Identifier); {
		case named && e.Operator == token.TYPEOF:
			if _, ok := r.look(id.Name.String()); ok || r.known[id.Name.String()] {
				r.reference(id)
			}
		case e.Operator == token.INCREMENT || e.Operator == token.DECREMENT:
			e.Operand = r.target(e.Operand, false)
		case e.Operator == token.TYPEOF:
			r.spared = e.Operand
			e.Operand = r.expr(e.Operand)
		case e.Operator == token.DELETE:
			if dot, ok := e.Operand.(*ast.DotExpression); ok {
				r.lends(dot.Left)
			}
			r.checkAssigned(e.Operand)
			e.Operand = r.owner(e.Operand)
		default:
			e.Operand = r.expr(e.Operand)
		}
	}
	return e
}

// yield replaces a yield of the body itself.
func (r *rewriter) yield(y *ast.YieldExpression) ast.Expression {
	r.program.yields = true
	if r.own && r.enrich {
		r.refuse(y.Yield, CodeEnrich, enrichHint, "an enrich yields nothing")
		return y
	}
	if !r.own {
		if y.Argument != nil {
			y.Argument = r.expr(y.Argument)
		}
		return y
	}
	r.checkYield(y)
	if y.Argument == nil {
		return call(nameYield, y.Yield)
	}
	if y.Delegate {
		if helper := r.runHelper(y); helper != nil {
			return helper
		}
		return call(nameOver, y.Yield, r.expr(y.Argument))
	}
	if c, ok := y.Argument.(*ast.CallExpression); ok {
		r.checkTopic(c, true)
	}
	if c, ok := y.Argument.(*ast.CallExpression); ok && !r.plain {
		if emit := r.emit(y.Yield, c); emit != nil {
			return emit
		}
	}
	return call(nameYield, y.Yield, r.expr(y.Argument))
}

// promise tells whether e names the built-in Promise.
func (r *rewriter) promise(e ast.Expression) (*ast.Identifier, bool) {
	id, ok := e.(*ast.Identifier)
	if !ok || id.Name != "Promise" {
		return nil, false
	}
	_, declared := r.look("Promise")
	return id, !declared
}

// runHelper is what stands in place of yield* helper(…), or nil if it is something else that is run.
func (r *rewriter) runHelper(y *ast.YieldExpression) ast.Expression {
	c, ok := y.Argument.(*ast.CallExpression)
	if !ok {
		return nil
	}
	if i := r.namespaceMember(c.Callee); i != nil && i.isHelper() {
		r.reference(c.Callee.(*ast.DotExpression).Left.(*ast.Identifier))
	} else {
		id, ok := c.Callee.(*ast.Identifier)
		if !ok || !r.isHelper(id.Name.String()) {
			return nil
		}
		r.named(id.Name.String())
		r.rename(id)
	}
	r.unit.waits = true
	r.exprs(c.ArgumentList)
	return r.await(y.Yield, c)
}

// await waits for a value. Where nothing else of the call can run meanwhile, a value that is there already is not waited for:
// nobody can tell, and to suspend an asynchronous function is dear.
func (r *rewriter) await(at file.Idx, value ast.Expression) ast.Expression {
	if !r.async {
		return &ast.AwaitExpression{Await: at, Argument: value}
	}
	if !r.own || !r.straight {
		return &ast.AwaitExpression{Await: at, Argument: call(nameAwait, at, value, site(at))}
	}
	return &ast.ConditionalExpression{
		Test:       call(nameReady, at, value, site(at)),
		Consequent: call(nameSettled, at),
		Alternate:  &ast.AwaitExpression{Await: at, Argument: call(nameSettled, at)},
	}
}

// awaitsMemo spares a promise where what memo answers is awaited at once.
func (r *rewriter) awaitsMemo(e ast.Expression) {
	c, ok := e.(*ast.CallExpression)
	if !ok {
		return
	}
	if id, ok := c.Callee.(*ast.Identifier); ok && id.Name == "memo" {
		if _, declared := r.look("memo"); !declared {
			id.Name = nameMemo
		}
	}
}

// call is a generated call of a native function. at is the place that errors in it are shown at.
// mayBeLarge tells whether an operator may make a BigInt of any size. A literal number shifts by little.
func mayBeLarge(operator token.Token, by ast.Expression) bool {
	if operator != token.EXPONENT && operator != token.SHIFT_LEFT {
		return false
	}
	n, ok := by.(*ast.NumberLiteral)
	if !ok {
		return true
	}
	_, big := n.Value.(*big.Int)
	return big
}

// bounded is an operator as a call that looks at its operands first.
func bounded(at file.Idx, operator token.Token, left, right ast.Expression) ast.Expression {
	return call(nameBounded, at, &ast.StringLiteral{Idx: at, Value: unistring.NewFromString(operator.String())}, left, right)
}

// placed is the body of a loop that stands at a place. An empty one becomes a call that does nothing: goja knows the place of
// calls, and would name a loop without end by what ran before it.
func placed(at file.Idx, body ast.Statement) ast.Statement {
	if block, ok := body.(*ast.BlockStatement); ok && len(block.List) > 0 {
		return body
	} else if _, empty := body.(*ast.EmptyStatement); !ok && !empty {
		return body
	}
	return &ast.ExpressionStatement{Expression: call(nameSnap, at, &ast.NumberLiteral{Idx: at, Literal: "0", Value: int64(0)})}
}

func call(name string, at file.Idx, args ...ast.Expression) *ast.CallExpression {
	return &ast.CallExpression{
		Callee:           &ast.Identifier{Name: unistring.String(name), Idx: at},
		LeftParenthesis:  at,
		ArgumentList:     args,
		RightParenthesis: at,
	}
}
