package script

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/dop251/goja"
	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/file"
	"github.com/dop251/goja/parser"
	"github.com/dop251/goja/unistring"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// Compile parses, checks and compiles a script. Its error is Problems: all that was found. A text that does not parse
// hides what else may be wrong in it, but not in the others.
func Compile(s Source) (*Program, error) {
	c := compilation{Source: s, varNames: namesOf(s.Vars)}
	c.parseEach()
	if c.link(); len(c.problems) > 0 {
		return nil, c.problems.sorted()
	}
	program := c.join()
	if len(c.problems) > 0 {
		return nil, c.problems.sorted()
	}
	return program, nil
}

type compilation struct {
	Source
	problems Problems
	varNames []string
	texts    []*module // functions, and the body if it is a file
	modules  []*module // what they import, each behind what it imports itself
	file     *module   // the body, if it is a file
}

func (c *compilation) report(at place, code, message, hint string) {
	for _, p := range c.problems {
		if p.Line == at.line && p.Column == at.column && p.File == at.file && p.Code == code {
			return
		}
	}
	c.problems = append(c.problems, &Problem{File: at.file, Line: at.line, Column: at.column, Code: code, Message: message, Hint: hint})
}

// The texts around a body. A body ends at a line of its own, since it may end in a comment.
const (
	functionHead = "(async function*(){"
	functionTail = "\n})"
)

// programName tells the frames of a script from those of this package's own JavaScript.
const programName = "script"

func parse(text string) (*ast.Program, error) {
	return parser.ParseFile(nil, programName, text, parser.IgnoreRegExpErrors, parser.WithDisableSourceMaps)
}

// parseEach finds the syntax errors of every text on its own.
func (c *compilation) parseEach() {
	for i := range c.Functions {
		c.parseFile(c.add(&c.Functions[i]))
	}
	if c.Module {
		c.file = c.add(&c.Body)
		c.parseFile(c.file)
	} else {
		c.parseBody(&c.Body)
	}
}

func (c *compilation) add(text *stream.Text) *module {
	m := newModule(text)
	c.texts = append(c.texts, m)
	return m
}

// parseBody parses a body as the inside of a function.
func (c *compilation) parseBody(text *stream.Text) {
	src := &source{}
	src.glue(functionHead)
	src.add(text, text.Text)
	src.glue(functionTail)
	program, err := parse(src.text.String())
	if list, failed := c.parserErrors(src, err); failed {
		c.reportSyntax(src, list)
		return
	}
	if end := src.parts[0].end + len(functionTail); len(program.Body) != 1 || bodyEnd(program) != end {
		c.report(src.place(bodyEnd(program)-len(functionTail)), "script.syntax", "this closes more than was opened", "remove the extra }")
	}
}

// parseFile parses a text of declarations, without its import and export declarations, which it takes out. It answers false
// if it is no JavaScript.
func (c *compilation) parseFile(m *module) bool {
	for {
		m.src = &source{}
		m.src.add(m.text, m.blanked)
		program, err := parse(m.blanked)
		list, failed := c.parserErrors(m.src, err)
		if !failed {
			c.note(m, program)
			return true
		}
		if len(list) == 0 {
			return false
		}
		offset := m.src.offset(list[0].Position.Line, list[0].Position.Column)
		if word := m.blanked[max(0, min(offset, len(m.blanked))):]; offset >= 0 && (startsWith(word, "import") || startsWith(word, "export") && m.mayExport(c)) {
			if c.take(m, offset) {
				continue
			}
			return false
		}
		c.reportSyntax(m.src, list)
		return false
	}
}

// mayExport tells whether a text may say export: functions that stand in a pipeline file are known all over it anyway.
func (m *module) mayExport(c *compilation) bool { return m == c.file || m.isFile() }

// startsWith tells whether text begins with a word.
func startsWith(text, word string) bool {
	rest, ok := strings.CutPrefix(text, word)
	s := clauseScanner{text: rest}
	return ok && s.word() == ""
}

// export is how the function of a module is declared.
func (s *Source) export() string {
	head := "export function* "
	if s.Kind == Enrich {
		head = "export async function "
	}
	return head + s.Kind.String() + "(" + strings.Join(s.arguments(), ", ") + ")"
}

// bodyEnd is the offset behind the first statement of a program.
func bodyEnd(p *ast.Program) int {
	if len(p.Body) == 0 {
		return 0
	}
	s, ok := p.Body[0].(*ast.ExpressionStatement)
	if !ok {
		return 0
	}
	f, ok := s.Expression.(*ast.FunctionLiteral)
	if !ok {
		return int(s.Idx1()) - 1
	}
	return int(f.Body.RightBrace) + 1 // the parenthesis behind it
}

// join makes one program of all texts. What it looks like with files that are imported stands in link.go.
//
//	(function(natives and built-ins){ functions… ; return function(msg, state){ body } })
func (c *compilation) join() *Program {
	src := &source{}
	src.glue("(function(){")
	for _, m := range c.modules {
		src.glue("(function(){")
		src.add(m.text, m.blanked)
		src.glue("\n})\n;")
	}
	if len(c.modules) > 0 {
		src.glue("return (function(){")
	}
	for _, m := range c.texts {
		src.add(m.text, m.blanked)
		src.glue("\n")
	}
	if !c.Module {
		src.glue("return async function*(){")
		src.add(&c.Body, c.Body.Text)
		src.glue("\n}")
	}
	if len(c.modules) > 0 {
		src.glue("})()")
	}
	src.glue("})")
	var tree *ast.Program
	var outer *ast.FunctionLiteral
	var p *Program
	var r *rewriter
	m := mode{flat: c.Kind != Poll && c.Kind != Enrich && !c.Module, straight: true, loops: c.Kind == Transform || c.Kind == Relay}
	for {
		var err error
		tree, err = parse(src.text.String())
		if err != nil {
			// Each text parses alone, so only their meeting is wrong.
			var list parser.ErrorList
			if errors.As(err, &list) {
				c.reportSyntax(src, list)
			} else {
				c.report(src.place(0), "script.syntax", err.Error(), "")
			}
			return nil
		}
		p = &Program{kind: c.Kind, schema: c.Protobuf, src: src, plain: m.plain, async: m.async}
		outer = tree.Body[0].(*ast.ExpressionStatement).Expression.(*ast.FunctionLiteral)
		r = &rewriter{
			compilation: c, program: p, src: src, mode: m, stateless: c.Kind == Relay && c.Push, catches: c.Kind == Poll || m.async, enrich: c.Kind == Enrich,
			unit: &unit{}, known: builtinNames(), reached: map[string]bool{},
			report: func(offset int, code, message, hint string) { c.report(src.place(offset), code, message, hint) },
		}
		r.loops = m.loops && m.async && m.straight
		next := r.next(m, c.top(r, outer))
		if next == m {
			break
		}
		m = next
	}
	if len(c.problems) > 0 {
		return nil
	}
	for name := range r.reached {
		p.builtins = append(p.builtins, name)
	}
	sort.Strings(p.builtins)
	outer.ParameterList = parameters(p.parameters())
	declareAnchor(outer)
	var err error
	if p.code, err = goja.CompileAST(tree, true); err != nil {
		c.reportCompiler(src, err)
		return nil
	}
	src.index() // from now on it is shared
	return p
}

// top walks the files that are imported and the functions, and finds the body. It answers whether the body, or something
// that it can reach, may wait.
func (c *compilation) top(r *rewriter, outer *ast.FunctionLiteral) (waits bool) {
	r.push()
	defer r.pop()
	for name := range fixedNames {
		r.scope.names[name] = fixed
	}
	units := map[string]*unit{}
	inner := outer
	if n := len(c.modules); n > 0 {
		var list []ast.Statement
		for i, m := range c.modules {
			f := outer.Body.List[i].(*ast.ExpressionStatement).Expression.(*ast.FunctionLiteral)
			list = append(list, c.imported(r, m, f, units)...)
		}
		last := outer.Body.List[n].(*ast.ReturnStatement)
		inner = last.Argument.(*ast.CallExpression).Callee.(*ast.FunctionLiteral)
		outer.Body.List = append(list, last)
	}
	return c.functions(r, inner, units)
}

// imported walks a file that is imported, and answers what stands in its place.
func (c *compilation) imported(r *rewriter, m *module, f *ast.FunctionLiteral, units map[string]*unit) []ast.Statement {
	r.push()
	defer r.pop()
	r.scope.prefix = m.prefix()
	start := c.start(r, m)
	m.declareDefault(f.Body.List, start)
	r.declareVars(f.DeclarationList, shared)
	r.declareBlock(f.Body.List, shared)
	names := r.sharedNames()
	r.push()
	defer r.pop()
	r.imports(m)
	c.checkReserved(r, f.Body.List)
	f.Body.List = c.declarations(r, f.Body.List, units, m.prefix())
	f.Function = file.Idx(start) + 1 // errors while it is evaluated as a whole are shown at its beginning
	return c.evaluate(r, m, f, names)
}

// start is where the text of a module begins in the joined text.
func (c *compilation) start(r *rewriter, m *module) int {
	for i := range r.src.parts {
		if r.src.parts[i].text == m.text {
			return r.src.parts[i].start
		}
	}
	return 0
}

// sharedNames are the names that the innermost scope declares, sorted.
func (r *rewriter) sharedNames() (names []string) {
	for name, b := range r.scope.names {
		if b == shared {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}

// declarations walks what stands at the top of functions or of a file.
func (c *compilation) declarations(r *rewriter, list []ast.Statement, units map[string]*unit, prefix string) (kept []ast.Statement) {
	for _, s := range list {
		r.unit = &unit{}
		for _, name := range declared(s) {
			units[prefix+name] = r.unit
		}
		switch s := s.(type) {
		case *ast.ReturnStatement:
			r.refuse(s.Return, "script.functions", "functions only declare; a body may return", "return stands outside of a function")
			continue
		case *ast.VariableStatement:
			r.refuse(s.Var, "script.shared_variable", "declare it with const, or inside a function; what one call may keep for the next is its State", "var is shared by all calls here")
		case *ast.LexicalDeclaration:
			if s.Token.String() == "let" {
				r.refuse(s.Idx, "script.shared_variable", "declare it with const, or inside a function; what one call may keep for the next is its State", "let is shared by all calls here")
			}
			for _, b := range s.List {
				c.checkShared(r, b.Initializer)
			}
		}
		kept = append(kept, r.statements([]ast.Statement{s})...)
	}
	return kept
}

// functions walks the functions and the body.
func (c *compilation) functions(r *rewriter, outer *ast.FunctionLiteral, units map[string]*unit) (waits bool) {
	list := outer.Body.List
	var body *ast.FunctionLiteral
	if !c.Module {
		last := list[len(list)-1].(*ast.ReturnStatement)
		body = last.Argument.(*ast.FunctionLiteral)
		list = list[:len(list)-1]
	}
	for _, m := range c.texts {
		start := c.start(r, m)
		if m.exported["default"].local == nameDefault && m != c.file {
			c.report(m.place(c.defaultOf(m)), "script.module", "functions are known by their names, and export default has none", "write const name = … or function name(…) { … }")
		}
		m.declareDefault(list, start)
	}
	r.push()
	defer r.pop()
	r.declareVars(outer.DeclarationList, shared)
	r.declareBlock(list, shared)
	names := r.sharedNames()
	c.checkReserved(r, list)
	kept, exported := c.walkTexts(r, list, units)
	if c.Module {
		body = exported
	}
	if body == nil || c.Module && body.Generator == (c.Kind == Enrich) {
		c.reportNoBody(r, body)
		return false
	}
	r.unit = &unit{}
	r.push()
	if c.file != nil {
		r.imports(c.file)
	} else {
		c.checkRuns(r, body)
	}
	c.body(r, body)
	r.pop()
	if c.Kind == Enrich && !r.program.returns {
		start := int(body.Function) - 1
		if !c.Module {
			start = r.src.parts[len(r.src.parts)-1].start
		}
		c.report(r.src.place(start), CodeEnrich, "the body returns nothing", enrichHint)
	}
	waits = r.unit.reaches(units, map[string]bool{})
	// What functions declare is frozen before the first call.
	if i := slices.Index(names, c.Kind.String()); i >= 0 && c.Module {
		names = slices.Delete(names, i, i+1)
	}
	if len(names) > 0 {
		kept = append(kept, &ast.ExpressionStatement{Expression: r.frozen(body.Function, names)})
	}
	if len(r.lifted) > 0 {
		args := make([]ast.Expression, len(r.lifted))
		for i, f := range r.lifted {
			args[i] = f
		}
		kept = append(kept, &ast.ExpressionStatement{Expression: call(nameFormulas, body.Function, args...)})
	}
	var handler ast.Expression = body
	if c.Module {
		handler = &ast.Identifier{Name: body.Name.Name, Idx: body.Function}
	}
	outer.Body.List = append(kept, &ast.ReturnStatement{Return: body.Function, Argument: handler})
	return waits
}

// walkTexts walks what functions declare and, where the body is a file, what stands in that, each text with what it imports. It
// answers the body of a file, which it leaves alone.
func (c *compilation) walkTexts(r *rewriter, list []ast.Statement, units map[string]*unit) (kept []ast.Statement, body *ast.FunctionLiteral) {
	for from := 0; from < len(list); {
		to, m := from+1, c.textOf(r, list[from])
		for to < len(list) && c.textOf(r, list[to]) == m {
			to++
		}
		r.push()
		r.imports(m)
		for _, s := range list[from:to] {
			if f, ok := s.(*ast.FunctionDeclaration); ok && c.Module && f.Function.Name != nil && f.Function.Name.Name.String() == c.Kind.String() {
				body = f.Function
				kept = append(kept, s)
				continue
			}
			kept = append(kept, c.declarations(r, []ast.Statement{s}, units, "")...)
		}
		r.pop()
		from = to
	}
	return kept, body
}

// reportNoBody reports a file without the function that it is there for; body is one of that name that is of another kind.
func (c *compilation) reportNoBody(r *rewriter, body *ast.FunctionLiteral) {
	at := place{file: c.Body.File, line: c.Body.Line, column: c.Body.Column}
	if body != nil {
		at = r.src.place(int(body.Function) - 1)
	}
	star := "*"
	if c.Kind == Enrich {
		star = ""
	}
	c.report(at, "script.module", fmt.Sprintf("the file exports no function%s %s", star, c.Kind), "write "+c.export())
}

// checkRuns refuses a body that declares the function that a file exports, and runs nothing.
func (c *compilation) checkRuns(r *rewriter, body *ast.FunctionLiteral) {
	for _, s := range body.Body.List {
		if _, declares := s.(*ast.FunctionDeclaration); !declares {
			return
		}
	}
	for _, s := range body.Body.List {
		if f := s.(*ast.FunctionDeclaration).Function; f.Name.Name.String() == c.Kind.String() {
			r.refuse(f.Function, "script.module", "a body is written without a function around it", "nobody runs the function %s: only that of a file is", c.Kind)
		}
	}
}

// textOf is the text that a statement of functions or of the body's file stands in.
func (c *compilation) textOf(r *rewriter, s ast.Statement) *module {
	offset := int(s.Idx0()) - 1
	for _, m := range c.texts {
		if start := c.start(r, m); offset >= start && offset <= start+len(m.blanked) {
			return m
		}
	}
	return &module{}
}

// defaultOf is where a module says export default.
func (c *compilation) defaultOf(m *module) int {
	for at, mark := range m.marks {
		if mark == markExpression {
			return at + 1 - len("export")
		}
	}
	return 0
}

// declared are the names that a statement declares.
func declared(s ast.Statement) (names []string) {
	r := &rewriter{}
	r.push()
	r.declareBlock([]ast.Statement{s}, shared)
	for name := range r.scope.names {
		names = append(names, name)
	}
	return names
}

// reaches tells whether a unit, or one that it names, may wait.
func (u *unit) reaches(units map[string]*unit, seen map[string]bool) bool {
	if u.waits {
		return true
	}
	for name := range u.names {
		if other := units[name]; other != nil && !seen[name] {
			seen[name] = true
			if other.reaches(units, seen) {
				return true
			}
		}
	}
	return false
}

func (c *compilation) body(r *rewriter, body *ast.FunctionLiteral) {
	args := c.arguments()
	r.push()
	defer r.pop()
	if c.Module {
		r.parameters(body.ParameterList)
		for i, name := range args {
			r.program.namesState = r.program.namesState || name == "state" && i < len(body.ParameterList.List)
		}
	} else {
		for i, name := range args {
			switch {
			case i == 0:
				r.scope.names[name] = given
			case name == "state":
				r.scope.names[name] = state
			default:
				r.scope.names[name] = beside
			}
		}
	}
	c.checkArguments(r, body)
	r.declareVars(body.DeclarationList, local)
	r.declareBlock(body.Body.List, local)
	r.loops = r.loops && c.loops(body)
	if r.flat && !c.Module {
		r.findAliases(body.Body.List)
	}
	if c.Kind == Transform && !c.Module && !r.plain {
		r.program.guard = r.guard(body.Body.List)
	}
	r.own, r.body, r.inEnrich = true, true, r.enrich
	if c.Kind == Transform && !c.Module && !r.plain && r.flat && !r.async {
		body.Body.List = r.actions(body.Body.List)
	} else {
		body.Body.List = r.statements(body.Body.List)
	}
	r.own, r.body, r.inEnrich = false, false, false
	r.checkMsg()
	if !c.Module {
		names := args
		r.program.lendsState = c.Kind == Transform && !r.async && r.uses.state == r.lent.state
		if p := r.program; r.flat && !r.whole {
			p.flat, p.readsValue, p.readsKey = true, r.value, r.key
			p.lendsValue = c.Kind == Transform && !r.async && r.uses.value == r.lent.value
			names = []string{nameValue}
			if p.readsKey {
				names = append(names, nameKey)
			}
			names = append(names, args[1:]...)
		}
		body.ParameterList = parameters(names)
	}
	for i, name := range args[1:] {
		needed := r.besides[name] || c.Module && i+1 < len(body.ParameterList.List)
		if name == "state" {
			needed = r.program.namesState
		}
		if !needed {
			name = ""
		}
		r.program.further = append(r.program.further, name)
	}
	body.Async, body.Generator = r.async, false
	if r.loops {
		r.repeat(body)
	}
}

// checkArguments refuses a body that declares its own arguments again.
func (c *compilation) checkArguments(r *rewriter, body *ast.FunctionLiteral) {
	if c.Module {
		return
	}
	check := func(id *ast.Identifier) {
		if b, ok := r.scope.names[id.Name.String()]; ok && (b == given || b == beside || b == state) {
			r.refuse(id.Idx, "script.declared_twice", "take another name", "%s is already there", id.Name.String())
		}
	}
	for _, v := range body.DeclarationList {
		for _, b := range v.List {
			eachName(b.Target, check)
		}
	}
	for _, s := range body.Body.List {
		declares(s, check)
	}
}

// checkReserved refuses functions that declare a name of the API.
func (c *compilation) checkReserved(r *rewriter, list []ast.Statement) {
	check := func(id *ast.Identifier) {
		if name := id.Name.String(); fixedNames[name] {
			r.refuse(id.Idx, "script.declared_twice", "take another name", "%s is already there", name)
		}
	}
	for _, s := range list {
		declares(s, check)
	}
}

// checkShared refuses values that cannot be frozen, as far as they show. What does not show is found in the VM.
func (c *compilation) checkShared(r *rewriter, e ast.Expression) {
	switch e := e.(type) {
	case *ast.NewExpression:
		if id, ok := e.Callee.(*ast.Identifier); ok && mutableClasses[id.Name.String()] {
			r.refuse(e.New, "script.shared_variable", "make it inside a function, or use an object or an array", "a %s is shared by all calls here and cannot be frozen", id.Name.String())
		}
	case *ast.RegExpLiteral:
		if strings.ContainsAny(e.Flags, "gy") {
			r.refuse(e.Idx, "script.shared_variable", "write the expression where it is used", "a regular expression with the flag g or y remembers where it stopped, and is shared by all calls here")
		}
	case *ast.ObjectLiteral:
		for _, p := range e.Value {
			if _, v, ok := plainMember(p); ok {
				c.checkShared(r, v)
			}
		}
	case *ast.ArrayLiteral:
		for _, v := range e.Value {
			c.checkShared(r, v)
		}
	case *ast.ConditionalExpression:
		c.checkShared(r, e.Consequent)
		c.checkShared(r, e.Alternate)
	}
}

var mutableClasses = map[string]bool{
	"Map": true, "Set": true, "WeakMap": true, "WeakSet": true, "Date": true, "ArrayBuffer": true, "DataView": true,
	"Int8Array": true, "Uint8Array": true, "Uint8ClampedArray": true, "Int16Array": true, "Uint16Array": true, "Int32Array": true,
	"Uint32Array": true, "Float32Array": true, "Float64Array": true, "BigInt64Array": true, "BigUint64Array": true,
}

func parameters(names []string) *ast.ParameterList {
	list := &ast.ParameterList{}
	for _, name := range names {
		list.List = append(list.List, &ast.Binding{Target: &ast.Identifier{Name: unistring.NewFromString(name), Idx: 1}})
	}
	return list
}

// parameters are the names that the joined program is called with, in order.
func (p *Program) parameters() []string {
	names := []string{nameYield, nameKeep, nameOver, nameReturned, namePass, nameSnap, nameFreeze, nameAwait, nameAnswer, nameReady, nameSettled, nameMemo, nameExecutor, nameThrown, nameBounded, nameFormulas, "Message", "State", "vars", "console"}
	for i := range p.objects {
		names = append(names, fmt.Sprint(nameObject, i))
	}
	for i := range p.messages {
		names = append(names, fmt.Sprint(nameEmit, i))
	}
	for i := range p.runs {
		names = append(names, fmt.Sprint(nameRun, i))
	}
	return append(names, p.builtins...)
}
