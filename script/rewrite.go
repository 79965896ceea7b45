package script

import (
	"fmt"
	"strings"

	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/file"
	"github.com/dop251/goja/token"
)

// mode is how a script is compiled. Compilation begins with the one that runs fastest, and begins again whenever the walk meets
// what does not go with it (join).
type mode struct {
	plain    bool // leave object literals and Message({…}) to JavaScript
	flat     bool // msg.value and msg.key are arguments of their own
	async    bool // the body waits: its function and that of helpers are asynchronous
	straight bool // the script makes no promise by itself
	loops    bool // the body's function runs one record after the other
}

// next is the mode that what was met goes with. waits says that the body may wait.
func (r *rewriter) next(m mode, waits bool) mode {
	return mode{m.plain || r.exotic, m.flat && !r.whole, m.async || waits, m.straight && !r.forked, m.loops && !r.single}
}

// rewriter walks a tree once, resolves every name, reports what is refused and replaces what runs natively. Nodes are
// changed in place; a method that answers a node answers the one to stand in its place.
type rewriter struct {
	compilation *compilation
	program     *Program
	src         *source
	report      func(offset int, code, message, hint string)
	known       map[string]bool // built-ins
	mode
	catches   bool // catch clauses let the cancel sentinel pass
	enrich    bool // the body returns a config and yields nothing
	stateless bool // the body can have no state

	// Where the walk is.
	scope      *scope
	unit       *unit
	own        bool              // in the body itself or a helper that yields, not in a function inside it
	body       bool              // in the body itself
	answers    bool              // in an asynchronous function that is no helper
	inFunction bool              // arguments can be read; goja panics where an arrow function reads those of the function around it
	inEnrich   bool              // in the body of an enrich, functions inside it included
	yielding   bool              // the function that is walked next is a helper that yields
	missed     []*ast.Identifier // members that the body reads of msg, and msg does not have
	made       map[string]bool   // and those that it makes
	finally    int               // how many finally blocks of the body are around what is walked
	spared     ast.Expression    // vars.name where its absence is provided for

	// What it has met that the mode may not go with.
	exotic bool // the script names something that only ordinary objects can do
	whole  bool // the body uses msg as an object
	forked bool // the script makes a promise by itself
	single bool // the body's function cannot run one record after the other

	// What else it has met.
	value   bool // the body uses msg.value
	key     bool // and msg.key
	uses    loans
	lent    loans
	aliases map[*ast.Binding]bool  // declarations of constants that stand for msg.value
	besides map[string]bool        // which of the further arguments the body names
	reached map[string]bool        // built-ins that the script names
	lifted  []*ast.FunctionLiteral // the JavaScript of formulas
}

func (r *rewriter) refuse(idx file.Idx, code, hint, format string, args ...any) {
	r.report(int(idx)-1, code, fmt.Sprintf(format, args...), hint)
}

// unit is the body, or one statement of what functions declare: whether it may wait, and what it names of the others.
type unit struct {
	waits bool
	names map[string]bool
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
				p.Key = anchoredLiteral(p.Key)
				p.Value = r.target(p.Value, declaring)
			}
		}
		t.Rest = r.target(t.Rest, declaring)
	case *ast.ArrayPattern:
		for i, el := range t.Elements {
			if el != nil {
				t.Elements[i] = r.target(el, declaring)
			}
		}
		t.Rest = r.target(t.Rest, declaring)
	case *ast.AssignExpression:
		t.Left = r.target(t.Left, declaring)
		t.Right = r.expr(t.Right)
	case *ast.Binding:
		r.binding(t)
	case *ast.DotExpression:
		r.checkAssigned(e)
		r.noteMsg(t, true)
		r.member(t.Identifier.Name.String())
		r.lends(t.Left)
		return r.owner(e)
	default:
		r.checkAssigned(e)
		return r.expr(e)
	}
	return e
}

// owner walks an expression that works on the object that a member is read from: a call, an assignment or a delete.
func (r *rewriter) owner(e ast.Expression) ast.Expression {
	if dot, ok := e.(*ast.DotExpression); ok {
		if i := r.namespaceMember(e); i != nil && i.isHelper() {
			r.refuseHelper(e.Idx0(), dot.Identifier.Name.String())
		}
		dot.Left = r.expr(dot.Left)
		r.reads(dot)
		return dot
	}
	return r.expr(e)
}

// reads notes the name of a member that the script reads.
func (r *rewriter) reads(dot *ast.DotExpression) {
	name := dot.Identifier.Name.String()
	r.namesMember(name)
	r.exotic = r.exotic || exoticNames[name]
	r.forked = r.forked || name == "constructor"
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
		b.Initializer = identifier(nameValue, b.Initializer.Idx0())
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

func (r *rewriter) block(b *ast.BlockStatement) {
	if b == nil {
		return
	}
	r.push()
	r.declareBlock(b.List, local)
	b.List = r.statements(b.List)
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
		s.Consequent = r.nested(s.Consequent)
		if s.Alternate != nil {
			s.Alternate = r.nested(s.Alternate)
		}
	case *ast.ForStatement:
		r.loop(s)
	case *ast.ForInStatement:
		s.Source, s.Body = r.each(s.Source, s.Into, s.Body)
	case *ast.ForOfStatement:
		s.Source, s.Body = r.each(s.Source, s.Into, s.Body)
	case *ast.WhileStatement:
		s.Test = unfoldedLoop(r.expr(s.Test))
		s.Body = r.nested(s.Body)
	case *ast.DoWhileStatement:
		s.Body = r.nested(s.Body)
		s.Test = r.expr(s.Test)
	case *ast.LabelledStatement:
		s.Statement = r.statement(s.Statement)
	case *ast.ReturnStatement:
		return r.returned(s)
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
			c.Consequent = r.statements(c.Consequent)
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

// loop walks for (…; …; …).
func (r *rewriter) loop(s *ast.ForStatement) {
	r.push()
	defer r.pop()
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
	s.Body = r.nested(s.Body)
}

// each walks for (into of source) body, or with in.
func (r *rewriter) each(source ast.Expression, into ast.ForInto, body ast.Statement) (ast.Expression, ast.Statement) {
	source = r.expr(source)
	r.push()
	defer r.pop()
	r.forInto(into)
	return source, r.nested(body)
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

// returned walks a return. Of the body it hands over what is returned, which is refused at run time but in an enrich.
func (r *rewriter) returned(s *ast.ReturnStatement) ast.Statement {
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
	return s
}

// catch makes the clause pass the sentinel on before anything of the user's runs, the parameter's pattern included. That becomes
// a declaration, whose place is known.
func (r *rewriter) catch(c *ast.CatchStatement) {
	r.push()
	if c.Parameter != nil {
		r.declare(c.Parameter, local)
		r.target(c.Parameter, true)
	}
	r.declareBlock(c.Body.List, local)
	c.Body.List = r.statements(c.Body.List)
	r.pop()
	id, ok := c.Parameter.(*ast.Identifier)
	pattern := c.Parameter != nil && !ok
	if !r.catches && !pattern {
		return
	}
	if !ok {
		id = identifier(nameCaught, c.Catch)
	}
	caught := identifier(id.Name.String(), c.Catch)
	var first []ast.Statement
	if r.catches {
		first = append(first, &ast.ExpressionStatement{Expression: call(namePass, c.Catch, caught)})
	}
	if pattern {
		first = append(first, declaration(token.LET, c.Parameter, c.Catch, caught))
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
		f.Function = firstPattern(f.ParameterList, f.Function)
		r.declareVars(f.DeclarationList, local)
		r.declareBlock(f.Body.List, local)
		r.own, r.answers = yielding, f.Async && !yielding && r.async
		f.Body.List = r.statements(f.Body.List)
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
		f.Start = firstPattern(f.ParameterList, f.Start)
		r.answers = f.Async && r.async
		switch body := f.Body.(type) {
		case *ast.BlockStatement:
			r.declareVars(f.DeclarationList, local)
			r.declareBlock(body.List, local)
			body.List = r.statements(body.List)
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
				el.Block.List = r.statements(el.Block.List)
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
			return identifier(nameValue, e.Idx)
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
		e.Expression = anchoredLiteral(r.expr(e.Expression))
	case *ast.AssignExpression:
		e.Left = r.target(e.Left, false)
		if e.Operator != token.ASSIGN {
			r.noteMember(e.Left)
		}
		e.Right = r.expr(e.Right)
		if id, ok := e.Left.(*ast.Identifier); ok && mayBeLarge(e.Operator, e.Right) {
			e.Right = bounded(e.Idx0(), e.Operator, identifier(id.Name.String(), id.Idx), e.Right)
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
		if mayThrow(e) {
			return anchored(e)
		}
	case *ast.BracketExpression:
		r.lends(e.Left)
		r.checkVars(e)
		e.Left = r.expr(e.Left)
		e.Member = r.expr(e.Member)
	case *ast.DotExpression:
		r.reads(e)
		if part := r.part(e); part != nil {
			return part
		}
		r.checkVars(e)
		r.noteMsg(e, false)
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
		r.checkCallee(e.Callee)
		r.checkOptions(e)
		r.noteMsg(e.Callee, false)
		r.checkProtobuf(e)
		e.Callee = r.owner(e.Callee)
		r.noteMember(e.Callee)
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
		return r.unary(e)
	}
	return e
}

func (r *rewriter) unary(e *ast.UnaryExpression) ast.Expression {
	switch id, named := e.Operand.(*ast.Identifier); {
	case named && e.Operator == token.TYPEOF:
		if _, ok := r.look(id.Name.String()); ok || r.known[id.Name.String()] {
			r.reference(id)
		}
	case e.Operator == token.INCREMENT || e.Operator == token.DECREMENT:
		e.Operand = r.target(e.Operand, false)
		r.noteMember(e.Operand)
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
		if mayThrow(e) {
			return anchored(e)
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
		return anchored(y)
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
