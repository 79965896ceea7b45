package script

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/file"
	"github.com/dop251/goja/token"
	"github.com/dop251/goja/unistring"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

// binding is what a name stands for.
type binding uint8

const (
	local  binding = iota // declared by the script inside a function: its own
	shared                // declared by functions or at the top of a module: frozen, one for all calls
	given                 // msg, config: the body's arguments
	state                 // the body's argument state
	fixed                 // Message, State, vars, console
)

type scope struct {
	outer *scope
	names map[string]binding
}

// rewriter walks a tree once, resolves every name, reports what is refused and replaces what runs natively. Nodes are
// changed in place; a method that answers a node answers the one to stand in its place.
type rewriter struct {
	program    *Program
	src        *source
	report     func(offset int, code, message, hint string)
	scope      *scope
	own        bool // in the body itself, not in a function inside it
	inFunction bool // arguments can be read; goja panics where an arrow function reads those of the function around it
	catches    bool // catch clauses let the cancel sentinel pass
	plain      bool // leave object literals and Message({…}) to JavaScript
	flat       bool // msg.value and msg.key are arguments of their own
	whole      bool // the body uses msg as an object
	value      bool // and these, which parts of it
	key        bool
	exotic     bool // the script names something that only ordinary objects can do
	known      map[string]bool
	reached    map[string]bool // built-ins that the script names
}

// The generated names. No script can write them.
const (
	nameValue    = "@value" // msg.value and msg.key, where the body reads nothing else of msg
	nameKey      = "@key"
	nameYield    = "@yield"
	nameKeep     = "@keep"
	nameOver     = "@over"
	nameReturned = "@returned"
	namePass     = "@pass"
	nameSnap     = "@snap"
	nameFreeze   = "@freeze"
	nameCaught   = "@caught"
	nameObject   = "@object" // one for each object shape, with its number
	nameEmit     = "@emit"   // one for each message shape, with its number
)

func (r *rewriter) push() { r.scope = &scope{outer: r.scope, names: map[string]binding{}} }
func (r *rewriter) pop()  { r.scope = r.scope.outer }

func (r *rewriter) look(name string) (binding, bool) {
	for s := r.scope; s != nil; s = s.outer {
		if b, ok := s.names[name]; ok {
			return b, true
		}
	}
	return 0, false
}

func (r *rewriter) refuse(idx file.Idx, code, hint, format string, args ...any) {
	r.report(int(idx)-1, code, fmt.Sprintf(format, args...), hint)
}

func (r *rewriter) refuseAwait(idx file.Idx, what string) {
	r.refuse(idx, "script.await_not_supported", "write the body without it; a helper that yields is a function*", "%s is not supported yet", what)
}

// reference resolves a name that is read.
func (r *rewriter) reference(id *ast.Identifier) {
	name := id.Name.String()
	r.exotic = r.exotic || exoticNames[name]
	if b, ok := r.look(name); ok {
		switch {
		case b == given:
			r.whole = true
		case b == state || b == fixed && name == "State":
			r.program.namesState = true
		case b == fixed && name == "Message":
			r.program.yieldsMessage = true
		}
		return
	}
	if name == "arguments" && r.inFunction {
		return
	}
	if name == "Promise" {
		r.refuseAwait(id.Idx, "Promise")
		return
	}
	if r.known[name] {
		r.reached[name] = true
		return
	}
	r.unknown(id)
}

func (r *rewriter) unknown(id *ast.Identifier) {
	name := id.Name.String()
	if name == "yield" {
		r.refuse(id.Idx, "script.yield", innerYieldHint, innerYieldMessage)
		return
	}
	if name == "arguments" {
		r.refuse(id.Idx, "script.unknown_name", "name them: (...args) =>", "arguments is not there")
		return
	}
	if hint, ok := laterNames[name]; ok {
		r.refuse(id.Idx, "script.not_supported", hint, "%s is not supported yet", name)
		return
	}
	if hint, ok := refusedNames[name]; ok {
		r.refuse(id.Idx, "script.unknown_name", hint, "%s is not there", name)
		return
	}
	hint := "declare it, or pass a setting in through vars"
	var names []string
	for s := r.scope; s != nil; s = s.outer {
		for n := range s.names {
			names = append(names, n)
		}
	}
	if near := nearest(name, names); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	} else if name == "msg" || name == "state" || name == "config" {
		hint = fmt.Sprintf("only the body knows %s: give it to the function as an argument", name)
	} else {
		names = names[:0]
		for n := range r.known {
			names = append(names, n)
		}
		if near := nearest(name, names); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
	}
	r.refuse(id.Idx, "script.unknown_name", hint, "nothing is called %q here", name)
}

// assigned resolves a name that is written.
func (r *rewriter) assigned(id *ast.Identifier) {
	name := id.Name.String()
	b, ok := r.look(name)
	switch {
	case ok && b == shared:
		r.refuse(id.Idx, "script.shared_assignment", "what one call may keep for the next is its State", "%s is shared by all calls and cannot be assigned", name)
	case ok && b == fixed:
		r.refuse(id.Idx, "script.shared_assignment", "declare a variable of your own with another name", "%s cannot be assigned", name)
	case !ok && r.known[name]:
		r.refuse(id.Idx, "script.shared_assignment", "declare a variable of your own with another name", "the built-in %s cannot be assigned", name)
	default:
		r.reference(id)
	}
}

// declare enters the names of a binding target into the scope.
func (r *rewriter) declare(target ast.Expression, b binding) {
	switch t := target.(type) {
	case *ast.Identifier:
		r.scope.names[t.Name.String()] = b
	case *ast.ObjectPattern:
		for _, p := range t.Properties {
			switch p := p.(type) {
			case *ast.PropertyShort:
				r.scope.names[p.Name.Name.String()] = b
			case *ast.PropertyKeyed:
				r.declare(p.Value, b)
			}
		}
		if t.Rest != nil {
			r.declare(t.Rest, b)
		}
	case *ast.ArrayPattern:
		for _, e := range t.Elements {
			if e != nil {
				r.declare(e, b)
			}
		}
		if t.Rest != nil {
			r.declare(t.Rest, b)
		}
	case *ast.AssignExpression:
		r.declare(t.Left, b)
	case *ast.Binding:
		r.declare(t.Target, b)
	}
}

func (r *rewriter) declareVars(list []*ast.VariableDeclaration, b binding) {
	for _, v := range list {
		for _, item := range v.List {
			r.declare(item.Target, b)
		}
	}
}

// declareBlock enters what a block's own statements declare.
func (r *rewriter) declareBlock(list []ast.Statement, b binding) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.LexicalDeclaration:
			for _, item := range s.List {
				r.declare(item.Target, b)
			}
		case *ast.FunctionDeclaration:
			if s.Function.Name != nil {
				r.declare(s.Function.Name, b)
			}
		case *ast.ClassDeclaration:
			if s.Class.Name != nil {
				r.declare(s.Class.Name, b)
			}
		}
	}
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
		r.member(t.Identifier.Name.String())
		return r.owner(e)
	default:
		return r.expr(e)
	}
	return e
}

// owner walks an expression that works on the object that a member is read from: a call, an assignment or a delete.
func (r *rewriter) owner(e ast.Expression) ast.Expression {
	if dot, ok := e.(*ast.DotExpression); ok {
		dot.Left = r.expr(dot.Left)
		r.exotic = r.exotic || exoticNames[dot.Identifier.Name.String()]
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
		s.Expression = r.expr(s.Expression)
	case *ast.IfStatement:
		s.Test = r.expr(s.Test)
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
			s.Test = r.expr(s.Test)
		}
		if s.Update != nil {
			s.Update = r.expr(s.Update)
		}
		s.Body = r.statement(s.Body)
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
		s.Test = r.expr(s.Test)
		s.Body = r.statement(s.Body)
	case *ast.DoWhileStatement:
		s.Body = r.statement(s.Body)
		s.Test = r.expr(s.Test)
	case *ast.LabelledStatement:
		s.Statement = r.statement(s.Statement)
	case *ast.ReturnStatement:
		if s.Argument != nil {
			s.Argument = r.expr(s.Argument)
			if r.own {
				s.Argument = call(nameReturned, s.Return, s.Argument)
			}
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
	case *ast.TryStatement:
		r.block(s.Body)
		if s.Catch != nil {
			r.catch(s.Catch)
		}
		r.block(s.Finally)
	case *ast.VariableStatement:
		for _, b := range s.List {
			r.binding(b)
		}
	case *ast.LexicalDeclaration:
		for _, b := range s.List {
			r.binding(b)
		}
	case *ast.FunctionDeclaration:
		r.function(s.Function)
	case *ast.ClassDeclaration:
		r.class(s.Class)
	case *ast.WithStatement:
		r.refuse(s.With, "script.syntax", "name the object in each place", "with is not allowed in strict mode")
	case *ast.DebuggerStatement:
		return &ast.EmptyStatement{Semicolon: s.Debugger}
	}
	return s
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

func (r *rewriter) function(f *ast.FunctionLiteral) {
	if f.Async {
		r.refuseAwait(f.Function, "async")
	}
	inFunction := r.inFunction
	r.inFunction = true
	defer func() { r.inFunction = inFunction }()
	r.inside(func() {
		if f.Name != nil {
			if _, ok := r.scope.names[f.Name.Name.String()]; !ok {
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
		r.statements(f.Body.List)
	})
}

// inside walks the inside of a function that is not the body.
func (r *rewriter) inside(walk func()) {
	own := r.own
	r.own = false
	walk()
	r.own = own
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
		r.refuseAwait(f.Start, "async")
	}
	inFunction := r.inFunction
	r.inFunction = false
	defer func() { r.inFunction = inFunction }()
	r.inside(func() {
		r.push()
		defer r.pop()
		r.parameters(f.ParameterList)
		switch body := f.Body.(type) {
		case *ast.BlockStatement:
			r.declareVars(f.DeclarationList, local)
			r.declareBlock(body.List, local)
			r.statements(body.List)
		case *ast.ExpressionBody:
			body.Expression = r.expr(body.Expression)
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
	case *ast.YieldExpression:
		return r.yield(e)
	case *ast.AwaitExpression:
		r.refuseAwait(e.Await, "await")
		e.Argument = r.expr(e.Argument)
	case *ast.ArrayLiteral:
		r.exprs(e.Value)
	case *ast.SpreadElement:
		e.Expression = r.expr(e.Expression)
	case *ast.AssignExpression:
		e.Left = r.target(e.Left, false)
		e.Right = r.expr(e.Right)
	case *ast.BinaryExpression:
		e.Left = r.expr(e.Left)
		e.Right = r.expr(e.Right)
	case *ast.BracketExpression:
		e.Left = r.expr(e.Left)
		e.Member = r.expr(e.Member)
	case *ast.DotExpression:
		r.exotic = r.exotic || exoticNames[e.Identifier.Name.String()]
		if part := r.part(e); part != nil {
			return part
		}
		e.Left = r.expr(e.Left)
	case *ast.StringLiteral:
		r.member(e.Value.String())
	case *ast.PrivateDotExpression:
		e.Left = r.expr(e.Left)
	case *ast.OptionalChain:
		e.Expression = r.expr(e.Expression)
	case *ast.Optional:
		e.Expression = r.expr(e.Expression)
	case *ast.CallExpression:
		r.checkRegExp(e.Callee, e.ArgumentList)
		r.checkMessage(e)
		e.Callee = r.owner(e.Callee)
		r.exprs(e.ArgumentList)
	case *ast.NewExpression:
		r.checkRegExp(e.Callee, e.ArgumentList)
		e.Callee = r.expr(e.Callee)
		r.exprs(e.ArgumentList)
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
		case e.Operator == token.DELETE:
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
	if !r.own {
		if y.Argument != nil {
			y.Argument = r.expr(y.Argument)
		}
		return y
	}
	if y.Argument == nil {
		return call(nameYield, y.Yield)
	}
	if y.Delegate {
		return call(nameOver, y.Yield, r.expr(y.Argument))
	}
	if c, ok := y.Argument.(*ast.CallExpression); ok && !r.plain {
		if emit := r.emit(y.Yield, c); emit != nil {
			return emit
		}
	}
	return call(nameYield, y.Yield, r.expr(y.Argument))
}

func (r *rewriter) isFixed(e ast.Expression, name string) bool {
	id, ok := e.(*ast.Identifier)
	if !ok || id.Name.String() != name {
		return false
	}
	b, ok := r.look(name)
	return ok && b == fixed
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
			hint := "a Message has topic, key, value, headers, timestamp and partition"
			if near := nearest(name, fieldNames); near != "" {
				hint = fmt.Sprintf("did you mean %q?", near)
			}
			r.refuse(p.Idx0(), "script.message", hint, "a Message has no %q", name)
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
		if s, args := r.shape(o, true); s != nil {
			r.program.objects = append(r.program.objects, s)
			return call(fmt.Sprint(nameObject, len(r.program.objects)-1), o.LeftBrace, args...)
		}
	}
	for _, p := range o.Value {
		switch p := p.(type) {
		case *ast.PropertyShort:
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
func (r *rewriter) shape(o *ast.ObjectLiteral, spreading bool) (*shape, []ast.Expression) {
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
	}
	// A later expression that can run code may change a spread object before the copy is made.
	quiet := true
	for i := len(exprs) - 1; i >= 0; i-- {
		pure := isPure(exprs[i])
		exprs[i] = r.expr(exprs[i])
		if s.spread[i] && !quiet {
			exprs[i] = call(nameSnap, exprs[i].Idx0(), exprs[i])
		}
		quiet = quiet && pure
	}
	return s, exprs
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
			r.program.namesState = true
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
			if s, exprs := r.shape(o, false); s != nil {
				member.object = s
				args = append(args, exprs...)
			}
		}
		if member.object == nil {
			args = append(args, r.expr(e))
		}
		m.members = append(m.members, member)
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

// call is a generated call of a native function. at is the place that errors in it are shown at.
func call(name string, at file.Idx, args ...ast.Expression) *ast.CallExpression {
	return &ast.CallExpression{
		Callee:           &ast.Identifier{Name: unistring.String(name), Idx: at},
		LeftParenthesis:  at,
		ArgumentList:     args,
		RightParenthesis: at,
	}
}
