package script

import (
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/dop251/goja"
	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/parser"
	"github.com/dop251/goja/unistring"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// Compile parses, checks and compiles a script. Its error is Problems: all that was found. A text that does not parse
// hides what else may be wrong in it, but not in the others.
func Compile(s Source) (*Program, error) {
	c := compilation{Source: s, blanked: map[*stream.Text]string{}}
	c.parseEach()
	if len(c.problems) > 0 {
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
	blanked  map[*stream.Text]string // module text without its export keywords
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
		c.parseAlone(&c.Functions[i], "", "", false)
	}
	if c.Module {
		c.parseAlone(&c.Body, "", "", true)
	} else {
		c.parseAlone(&c.Body, functionHead, functionTail, false)
	}
}

func (c *compilation) parseAlone(text *stream.Text, head, tail string, module bool) {
	blanked := text.Text
	for {
		src := &source{}
		src.glue(head)
		src.add(text, blanked)
		src.glue(tail)
		program, err := parse(src.text.String())
		if err == nil {
			c.blanked[text] = blanked
			if end := src.parts[0].end + len(tail); head != "" && (len(program.Body) != 1 || bodyEnd(program) != end) {
				c.report(src.place(bodyEnd(program)-len(tail)), "script.syntax", "this closes more than was opened", "remove the extra }")
			}
			return
		}
		var list parser.ErrorList
		if !errors.As(err, &list) {
			c.report(src.place(src.parts[0].start), "script.syntax", err.Error(), "")
			return
		}
		offset := src.offset(list[0].Position.Line, list[0].Position.Column)
		if module && offset >= 0 && strings.HasPrefix(blanked[min(offset, len(blanked)):], "export") {
			rest := strings.TrimLeft(blanked[offset+len("export"):], " \t")
			if strings.HasPrefix(rest, "default") || strings.HasPrefix(rest, "*") || strings.HasPrefix(rest, "{") {
				c.report(src.place(offset), "script.module", "this form of export is not supported",
					fmt.Sprintf("write export function* %s(%s)", c.Kind, strings.Join(c.arguments(), ", ")))
				return
			}
			blanked = blanked[:offset] + strings.Repeat(" ", len("export")) + blanked[offset+len("export"):]
			continue
		}
		c.reportSyntax(src, list)
		return
	}
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

// reportSyntax reports what the parser found. Only the first error of a line counts: the parser stumbles on.
func (c *compilation) reportSyntax(src *source, list parser.ErrorList) {
	text := src.text.String()
	lines := map[int]bool{}
	for _, e := range list {
		offset := src.offset(e.Position.Line, e.Position.Column)
		if offset < 0 {
			offset = len(text)
		}
		if lines[e.Position.Line] {
			continue
		}
		lines[e.Position.Line] = true
		if len(lines) > 1 && e.Message == "Unexpected end of input" {
			continue
		}
		word := text[min(offset, len(text)):]
		at := src.place(offset)
		switch {
		case strings.HasPrefix(word, "await") && strings.HasSuffix(strings.TrimRight(text[:offset], " \t"), "for"):
			c.report(at, "script.await", "for await is not there", "await the list, then loop: for (const x of await list)")
			return
		case strings.HasPrefix(word, "await"):
			c.report(at, "script.await", awaitMessage, awaitHint)
			return
		case strings.HasSuffix(strings.TrimRight(text[:min(offset, len(text))], " \t"), "await"):
			c.report(src.place(strings.LastIndex(text[:offset], "await")), "script.await", awaitMessage, awaitHint)
			return
		case strings.HasPrefix(word, "import"):
			c.report(at, "script.import_not_supported", "import is not supported yet", "put shared code into functions")
			return
		case strings.HasPrefix(word, "export"):
			c.report(at, "script.syntax", "export stands only in a file of its own", "a body is written without a function around it")
			return
		case strings.HasSuffix(strings.TrimRight(text[:min(offset, len(text))], " \t"), "yield"):
			c.innerYield(src, strings.LastIndex(text[:offset], "yield"))
			return
		case e.Message == "Illegal return statement":
			c.report(at, "script.functions", "return stands outside of a function", "functions only declare; a body may return")
			return
		case src.find(offset) == nil && strings.HasSuffix(e.Message, "token }") && extraBrace(src) >= 0:
			c.report(src.place(extraBrace(src)), "script.syntax", "this closes more than was opened", "remove the extra }")
			return
		case strings.HasPrefix(word, "/"):
			c.report(at, "script.syntax", "regular expression: "+plainSyntax(e.Message), "")
			continue
		case src.find(offset) == nil && offset >= src.parts[0].end:
			c.report(at, "script.syntax", "the text ends where more is expected", "close what is open: a bracket, a string or a comment")
			return
		}
		c.report(at, "script.syntax", plainSyntax(e.Message), syntaxHint(e.Message))
	}
}

// extraBrace is the offset of the last } if the text parses without it, or -1.
func extraBrace(src *source) int {
	text, p := src.text.String(), &src.parts[len(src.parts)-1]
	i := strings.LastIndexByte(text[p.start:p.end], '}')
	if i < 0 {
		return -1
	}
	i += p.start
	if _, err := parse(text[:i] + " " + text[i+1:]); err != nil {
		return -1
	}
	return i
}

// innerYield reports a yield in a function that is no generator, the usual mistake with forEach and map.
func (c *compilation) innerYield(src *source, offset int) {
	c.report(src.place(offset), "script.yield", innerYieldMessage, innerYieldHint)
}

const (
	innerYieldMessage = "yield stands in a function inside the body"
	innerYieldHint    = "loop with for (const x of list), or make it a function* and run it with yield*"
)

const (
	awaitMessage = "await stands where nothing can wait"
	awaitHint    = "write async before the function around it, and await what that answers; functions do no I/O while they load"
)

func plainSyntax(message string) string {
	if message == "" {
		return "syntax error"
	}
	return strings.ToLower(message[:1]) + message[1:]
}

func syntaxHint(message string) string {
	switch {
	case strings.HasSuffix(message, "token )"):
		return "remove the extra parenthesis, or open one"
	case strings.HasSuffix(message, "token }"):
		return "close what was opened before it, or remove it"
	case strings.HasSuffix(message, "token ILLEGAL"):
		return "a string or a regular expression may not be closed, or a character is not JavaScript"
	}
	return ""
}

// join makes one program of all texts.
//
//	(function(natives and built-ins){ functions… ; return function(msg, state){ body } })
func (c *compilation) join() *Program {
	src := &source{}
	src.glue("(function(){")
	for i := range c.Functions {
		src.add(&c.Functions[i], c.Functions[i].Text)
		src.glue("\n")
	}
	if c.Module {
		src.add(&c.Body, c.blanked[&c.Body])
		src.glue("\n})")
	} else {
		src.glue("return async function*(){")
		src.add(&c.Body, c.Body.Text)
		src.glue("\n}})")
	}
	var tree *ast.Program
	var outer *ast.FunctionLiteral
	var p *Program
	var r *rewriter
	plain, flat, async := false, c.Kind != Poll && !c.Module, false
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
		p = &Program{kind: c.Kind, src: src, plain: plain, async: async}
		outer = tree.Body[0].(*ast.ExpressionStatement).Expression.(*ast.FunctionLiteral)
		r = &rewriter{
			program: p, src: src, stateless: c.Kind == Relay && c.Push, catches: c.Kind == Poll || async, plain: plain, flat: flat, async: async, unit: &unit{},
			known: builtinNames(), reached: map[string]bool{},
			report: func(offset int, code, message, hint string) { c.report(src.place(offset), code, message, hint) },
		}
		waits := c.top(r, outer)
		if plain == (plain || r.exotic) && flat == (flat && !r.whole) && async == (async || waits) {
			break
		}
		plain, flat, async = plain || r.exotic, flat && !r.whole, async || waits
	}
	if len(c.problems) > 0 {
		return nil
	}
	for name := range r.reached {
		p.builtins = append(p.builtins, name)
	}
	sort.Strings(p.builtins)
	outer.ParameterList = parameters(p.parameters())
	var err error
	if p.code, err = goja.CompileAST(tree, true); err != nil {
		c.reportCompiler(src, err)
		return nil
	}
	src.index() // from now on it is shared
	return p
}

// top walks the functions and finds the body. It answers whether the body, or something that it can reach, may wait.
func (c *compilation) top(r *rewriter, outer *ast.FunctionLiteral) (waits bool) {
	list := outer.Body.List
	var body *ast.FunctionLiteral
	if !c.Module {
		last := list[len(list)-1].(*ast.ReturnStatement)
		body = last.Argument.(*ast.FunctionLiteral)
		list = list[:len(list)-1]
	}
	r.push()
	defer r.pop()
	for _, name := range []string{"Message", "State", "vars", "console"} {
		r.scope.names[name] = fixed
	}
	r.declareVars(outer.DeclarationList, shared)
	r.declareBlock(list, shared)
	var names []string
	for name, b := range r.scope.names {
		if b == shared {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	c.checkReserved(r, list)
	kept := list[:0]
	units := map[string]*unit{}
	for _, s := range list {
		r.unit = &unit{}
		for _, name := range declared(s) {
			units[name] = r.unit
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
		case *ast.FunctionDeclaration:
			if c.Module && s.Function.Name != nil && s.Function.Name.Name.String() == c.Kind.String() {
				body = s.Function
				kept = append(kept, s)
				continue
			}
		}
		kept = append(kept, r.statement(s))
	}
	if body == nil || !body.Generator {
		at := place{file: c.Body.File, line: c.Body.Line, column: c.Body.Column}
		if body != nil {
			at = r.src.place(int(body.Function) - 1)
		}
		c.report(at, "script.module", fmt.Sprintf("the file exports no function* %s", c.Kind),
			fmt.Sprintf("write export function* %s(%s)", c.Kind, strings.Join(c.arguments(), ", ")))
		return false
	}
	r.unit = &unit{}
	c.body(r, body)
	waits = r.unit.reaches(units, map[string]bool{})
	// What functions declare is frozen before the first call.
	freeze := call(nameFreeze, body.Function)
	for _, name := range names {
		if name == c.Kind.String() && c.Module {
			continue
		}
		r.program.shared = append(r.program.shared, name)
		freeze.ArgumentList = append(freeze.ArgumentList, &ast.Identifier{Name: unistring.NewFromString(name), Idx: body.Function})
	}
	if len(freeze.ArgumentList) > 0 {
		kept = append(kept, &ast.ExpressionStatement{Expression: freeze})
	}
	var handler ast.Expression = body
	if c.Module {
		handler = &ast.Identifier{Name: body.Name.Name, Idx: body.Function}
	}
	outer.Body.List = append(kept, &ast.ReturnStatement{Return: body.Function, Argument: handler})
	return waits
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
	r.declareVars(body.DeclarationList, local)
	for _, s := range body.Body.List {
		c.checkArguments(r, s)
	}
	r.declareBlock(body.Body.List, local)
	r.own, r.body = true, true
	r.statements(body.Body.List)
	r.own, r.body = false, false
	if !c.Module {
		names := args
		if p := r.program; r.flat && !r.whole {
			p.flat, p.readsValue, p.readsKey = true, r.value, r.key
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
}

// checkArguments refuses a body that declares its own arguments again.
func (c *compilation) checkArguments(r *rewriter, s ast.Statement) {
	if c.Module {
		return
	}
	check := func(id *ast.Identifier) {
		if b, ok := r.scope.names[id.Name.String()]; ok && (b == given || b == beside || b == state) {
			r.refuse(id.Idx, "script.declared_twice", "take another name", "%s is already there", id.Name.String())
		}
	}
	switch s := s.(type) {
	case *ast.LexicalDeclaration:
		for _, b := range s.List {
			if id, ok := b.Target.(*ast.Identifier); ok {
				check(id)
			}
		}
	case *ast.ClassDeclaration:
		check(s.Class.Name)
	case *ast.FunctionDeclaration:
		check(s.Function.Name)
	}
}

// checkReserved refuses functions that declare a name of the API.
func (c *compilation) checkReserved(r *rewriter, list []ast.Statement) {
	check := func(id *ast.Identifier) {
		switch name := id.Name.String(); name {
		case "Message", "State", "vars", "console":
			r.refuse(id.Idx, "script.declared_twice", "take another name", "%s is already there", name)
		}
	}
	for _, s := range list {
		switch s := s.(type) {
		case *ast.LexicalDeclaration:
			for _, b := range s.List {
				if id, ok := b.Target.(*ast.Identifier); ok {
					check(id)
				}
			}
		case *ast.ClassDeclaration:
			check(s.Class.Name)
		case *ast.FunctionDeclaration:
			check(s.Function.Name)
		}
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

// reportCompiler reports what goja's compiler refuses.
func (c *compilation) reportCompiler(src *source, err error) {
	var syntax *goja.CompilerSyntaxError
	if errors.As(err, &syntax) && syntax.File != nil {
		if strings.HasPrefix(src.text.String()[min(syntax.Offset, src.text.Len()):], "yield") {
			c.innerYield(src, syntax.Offset)
			return
		}
		message := plainSyntax(syntax.Message)
		if strings.HasPrefix(src.text.String()[min(syntax.Offset, src.text.Len()):], "/") {
			message = "regular expression: " + message
		}
		c.report(src.place(syntax.Offset), "script.syntax", message, "")
		return
	}
	c.report(src.place(src.parts[0].start), "script.syntax", err.Error(), "")
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
	names := []string{nameYield, nameKeep, nameOver, nameReturned, namePass, nameSnap, nameFreeze, nameAwait, nameExecutor, nameThrown, "Message", "State", "vars", "console"}
	for i := range p.objects {
		names = append(names, fmt.Sprint(nameObject, i))
	}
	for i := range p.messages {
		names = append(names, fmt.Sprint(nameEmit, i))
	}
	return append(names, p.builtins...)
}
