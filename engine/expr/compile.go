package expr

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
)

// node is a compiled part of an expression. eval is always there; cond (the value as a condition) and json (the value
// appended as JSON) are made from it where a part has no better way. number is there only where a part has a quick way to
// its value as a number.
type node struct {
	eval   func(*Env) Value
	cond   func(*Env) bool
	json   func([]byte, *Env) []byte
	number func(*Env) number

	pos   int   // in characters, where the part begins
	types types // what the value may be
	// constant says that eval answers value whatever the Env.
	constant bool
	value    Value
	// path is set where the part is a member of the record's value, or of a member of it, by name.
	path []string
	// textVar is the name of a var that is known to be a text of the environment, when the part is just that.
	textVar   string
	isHeaders bool
}

// TextVar is a place where a var that is a text of the environment meets an ordering or arithmetic.
type TextVar struct {
	Name         string
	Line, Column int
}

// compiler turns the tree of one text into nodes. The first error is kept and ends the rest.
type compiler struct {
	text     string
	scope    Scope
	err      *Error
	program  program
	depth    int      // of predicates
	walks    []string // the functions whose predicates these are
	nesting  int      // of lists and maps that are written out
	locals   []local
	textVars []TextVar
	reads    [][]string
	within   bool // a path that reads has already
	path     []string
}

type local struct {
	name  string
	slot  int
	types types
}

// aMap is wanted of headers.
const aMap Want = 255

var wants = map[Want]struct {
	types types
	what  string
}{
	Condition: {tBool, "a condition is wanted here: true or false"},
	AText:     {tText, "a text is wanted here"},
	ANumber:   {tNumber, "a number is wanted here"},
	AList:     {tList, "a list is wanted here"},
	aMap:      {tMap, "a map of names and values is wanted here"},
}

func compile(text string, scope Scope, want Want) (*Expr, *Error) {
	c := &compiler{text: text, scope: scope}
	root := c.compileText()
	if w, ok := wants[want]; ok && c.err == nil && root.types&w.types == 0 && (root.types&^tNil != 0 || want == Condition) {
		hint := ""
		if want == Condition {
			hint = "compare it with something, as in value.count > 0"
		}
		c.errorAt(root.pos, CodeType, fmt.Sprintf("%s, and this is %s", w.what, root.types), hint)
	}
	if c.err != nil {
		return nil, c.err
	}
	e := &Expr{text: text, root: root, program: c.program, textVars: c.textVars, reads: c.reads, path: c.path}
	return e, nil
}

func (c *compiler) compileText() node {
	switch {
	case len(c.text) > MaxText:
		return c.errorAt(0, CodeTooLarge, fmt.Sprintf("the expression has more than %d bytes", MaxText), "a script can hold more")
	case !utf8.ValidString(c.text):
		return c.errorAt(0, CodeSyntax, "the expression is not UTF-8", "")
	case strings.TrimSpace(c.text) == "":
		return c.errorAt(0, CodeSyntax, "an expression is missing", "")
	}
	if i := strings.Index(c.text, "${"); i >= 0 {
		return c.errorAt(utf8.RuneCountInString(c.text[:i]), CodeEnvironment, "${…} is not replaced in expressions",
			"put it into vars and read it as vars.name")
	}
	config := &conf.Config{MaxNodes: conf.DefaultMaxNodes}
	tree, err := parser.ParseWithConfig(c.text, config)
	if err != nil {
		return c.syntax(err)
	}
	c.path = c.pathOf(tree.Node)
	return c.node(tree.Node)
}

// syntax is the parser's error in this package's words.
func (c *compiler) syntax(err error) node {
	var e *file.Error
	if !errors.As(err, &e) {
		return c.errorAt(0, CodeSyntax, err.Error(), "")
	}
	message := e.Message
	hint := ""
	switch {
	case strings.HasPrefix(message, "unexpected token EOF"), message == "unexpected end of expression":
		message, hint = "the expression ends too early", ""
	case strings.HasPrefix(message, "unexpected token "):
		// The token is printed as Kind("text").
		token := strings.TrimPrefix(message, "unexpected token ")
		if open := strings.Index(token, `("`); open >= 0 {
			token = token[open+1 : len(token)-1]
		}
		message = "unexpected " + token
		switch token {
		case `"="`:
			hint = "equality is =="
		case `"&"`:
			hint = "write && or and"
		case `"==="`, `"!=="`:
			hint = "equality is == and !="
		}
	case strings.Contains(message, "exceeds maximum allowed nodes"):
		return c.errorAt(e.From, CodeTooLarge, "the expression is too large", "a script can hold more")
	case strings.Contains(message, "invalid integer literal"), strings.Contains(message, "invalid hex literal"), strings.Contains(message, "integer literal is too large"):
		message = "a whole number beyond 64 bits"
	case strings.HasPrefix(message, "unrecognized character"):
		message = "unrecognized character" + strings.TrimPrefix(message, "unrecognized character:")
	}
	if message != "" {
		r, size := utf8.DecodeRuneInString(message)
		if !(len(message) > size && message[size] >= 'A' && message[size] <= 'Z') {
			message = strings.ToLower(string(r)) + message[size:]
		}
	}
	return c.errorAt(e.From, CodeSyntax, message, hint)
}

// errorAt notes an error. The node that it answers stands for anything, so that nothing else is complained about.
func (c *compiler) errorAt(pos int, code, message, hint string) node {
	if c.err == nil {
		line, column := place(c.text, pos)
		c.err = &Error{line, column, code, message, hint}
	}
	return constant(Value{}, pos)
}

// start is where the text of a tree begins; the parser's own location of an operator is the operator.
func start(n ast.Node) int {
	switch n := n.(type) {
	case *ast.BinaryNode:
		return start(n.Left)
	case *ast.ConditionalNode:
		return start(n.Cond)
	case *ast.ChainNode:
		return start(n.Node)
	case *ast.MemberNode:
		return start(n.Node)
	case *ast.SliceNode:
		return start(n.Node)
	case *ast.CallNode:
		return start(n.Callee)
	case *ast.SequenceNode:
		return start(n.Nodes[0])
	}
	return n.Location().From
}

func constant(v Value, pos int) node {
	n := node{eval: func(*Env) Value { return v }, pos: pos, types: v.types(), constant: true, value: v}
	if v.kind == kInt || v.kind == kFloat {
		fixed := number{v.kind, v.num}
		n.number = func(*Env) number { return fixed }
	}
	var env Env
	if text := env.appendJSON(nil, v, pos); env.failure.code == "" {
		n.json = func(dst []byte, _ *Env) []byte { return append(dst, text...) }
	}
	return finish(n)
}

// finish makes the ways of a node that it does not have.
func finish(n node) node {
	eval, pos := n.eval, n.pos
	if n.cond == nil {
		n.cond = func(env *Env) bool { return env.truth(eval(env), pos) }
	}
	if n.json == nil {
		n.json = func(dst []byte, env *Env) []byte { return env.appendJSON(dst, eval(env), pos) }
	}
	return n
}

// truth is v as a condition.
func (env *Env) truth(v Value, pos int) bool {
	switch v.kind {
	case kBool:
		return v.num != 0
	case kNil:
		return false
	default:
		env.fail(pos, CodeCondition, "a condition must be true, false or nil, and this is "+v.types().String())
		return false
	}
}

// pure makes a node whose value depends on parts alone: it is computed now where they are all constant.
func (c *compiler) pure(n node, parts ...node) node {
	n = finish(n)
	for i := range parts {
		if !parts[i].constant {
			return n
		}
	}
	if c.err != nil {
		return n
	}
	env := &Env{}
	env.left = budget
	v := n.eval(env)
	if f := env.failure; f.code != "" {
		if f.code == CodeBudget {
			return n
		}
		return c.errorAt(f.pos, CodeConstant, f.message, "")
	}
	if size := heldBy(v); size > 4<<10 {
		return n
	}
	return constant(v, n.pos)
}

// heldBy is roughly how many bytes a value holds.
func heldBy(v Value) int {
	size := len(v.str) + 40
	if v.box != nil {
		for i, item := range v.box.items {
			size += heldBy(item)
			if v.box.names != nil {
				size += len(v.box.names[i])
			}
		}
	}
	return size
}

func (c *compiler) node(n ast.Node) node {
	if c.err != nil {
		return constant(Value{}, 0)
	}
	pos := start(n)
	switch n := n.(type) {
	case *ast.NilNode:
		return constant(Value{}, pos)
	case *ast.BoolNode:
		return constant(boolValue(n.Value), pos)
	case *ast.IntegerNode:
		return constant(intValue(int64(n.Value)), pos)
	case *ast.FloatNode:
		if math.IsInf(n.Value, 0) {
			return c.errorAt(pos, CodeConstant, "a number that is too large", "")
		}
		return constant(floatValue(n.Value), pos)
	case *ast.StringNode:
		if !utf8.ValidString(n.Value) {
			return c.errorAt(pos, CodeConstant, "a text that is not UTF-8", `bytes are written b"…"`)
		}
		return constant(textValue(n.Value), pos)
	case *ast.BytesNode:
		return constant(bytesValue(n.Value), pos)
	case *ast.IdentifierNode:
		return c.name(n, pos)
	case *ast.UnaryNode:
		return c.unary(n, pos)
	case *ast.BinaryNode:
		return c.binary(n, pos)
	case *ast.ChainNode:
		return c.node(n.Node)
	case *ast.MemberNode:
		return c.member(n, pos)
	case *ast.SliceNode:
		return c.slice(n, pos)
	case *ast.CallNode:
		return c.call(n, pos)
	case *ast.BuiltinNode:
		return c.builtin(n, pos)
	case *ast.PointerNode:
		return c.pointer(n, pos)
	case *ast.ConditionalNode:
		return c.conditional(n, pos)
	case *ast.VariableDeclaratorNode:
		return c.let(n, pos)
	case *ast.SequenceNode:
		return c.sequence(n, pos)
	case *ast.ArrayNode:
		return c.array(n, pos)
	case *ast.MapNode:
		return c.mapLiteral(n, pos)
	}
	return c.errorAt(pos, CodeNotSupported, "this form of expression is not supported", "")
}

// meets notes which operands of an ordering or of arithmetic are texts of the environment.
func (c *compiler) meets(operands ...node) {
	for i := range operands {
		if n := &operands[i]; n.textVar != "" {
			line, column := place(c.text, n.pos)
			c.textVars = append(c.textVars, TextVar{n.textVar, line, column})
		}
	}
}

func (c *compiler) pointer(n *ast.PointerNode, pos int) node {
	slot := c.depth - 1
	switch n.Name {
	case "":
		return finish(node{eval: func(env *Env) Value { return env.frames[slot].item }, pos: pos, types: tAny})
	case "index":
		return finish(node{eval: func(env *Env) Value { return intValue(int64(env.frames[slot].index)) }, pos: pos, types: tNumber})
	case "acc":
		if c.walks[slot] != "reduce" {
			return c.errorAt(pos, CodeUnknownName, "#acc belongs to reduce, and this is the predicate of "+c.walks[slot], "keep it with let before an inner function")
		}
		return finish(node{eval: func(env *Env) Value { return env.frames[slot].acc }, pos: pos, types: tAny})
	}
	return c.errorAt(pos, CodeUnknownName, fmt.Sprintf("unknown pointer #%s", n.Name), "there are #, #index and, in reduce, #acc")
}

func (c *compiler) conditional(n *ast.ConditionalNode, pos int) node {
	test := c.condition(n.Cond)
	yes, no := c.node(n.Exp1), c.node(n.Exp2)
	if c.err != nil {
		return yes
	}
	cond := test.cond
	r := node{pos: pos, types: yes.types | no.types}
	r.eval = func(env *Env) Value {
		if cond(env) {
			return yes.eval(env)
		}
		return no.eval(env)
	}
	r.cond = func(env *Env) bool {
		if cond(env) {
			return yes.cond(env)
		}
		return no.cond(env)
	}
	r.json = func(dst []byte, env *Env) []byte {
		if cond(env) {
			return yes.json(dst, env)
		}
		return no.json(dst, env)
	}
	return finish(r)
}

// condition compiles an operand that is used as a condition.
func (c *compiler) condition(n ast.Node) node {
	r := c.node(n)
	if c.err == nil && r.types&(tBool|tNil) == 0 {
		return c.errorAt(r.pos, CodeType, fmt.Sprintf("a condition is wanted here, and this is %s", r.types), "")
	}
	return r
}

func (c *compiler) let(n *ast.VariableDeclaratorNode, pos int) node {
	value := c.node(n.Value)
	if c.err != nil {
		return value
	}
	if slices.Contains(c.scope.names, n.Name) || n.Name == "null" || namespaces[n.Name] || c.isLocal(n.Name) {
		return c.errorAt(n.Location().From, CodeUnknownName, fmt.Sprintf("let cannot rename %q", n.Name), "choose another name")
	}
	slot := len(c.locals)
	c.locals = append(c.locals, local{n.Name, slot, value.types})
	c.program.locals = max(c.program.locals, len(c.locals))
	body := c.node(n.Expr)
	c.locals = c.locals[:slot]
	r := node{pos: pos, types: body.types}
	r.eval = func(env *Env) Value {
		env.locals[slot] = value.eval(env)
		return body.eval(env)
	}
	r.cond = func(env *Env) bool {
		env.locals[slot] = value.eval(env)
		return body.cond(env)
	}
	r.json = func(dst []byte, env *Env) []byte {
		env.locals[slot] = value.eval(env)
		return body.json(dst, env)
	}
	return finish(r)
}

func (c *compiler) sequence(n *ast.SequenceNode, pos int) node {
	return c.errorAt(start(n.Nodes[1]), CodeSyntax, "an expression has one value; ; belongs to let alone", "")
}
