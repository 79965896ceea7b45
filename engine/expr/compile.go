package expr

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
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

// pathOf is the path of names from a name in scope that n is, or nil.
func (c *compiler) pathOf(n ast.Node) []string {
	switch n := n.(type) {
	case *ast.ChainNode:
		return c.pathOf(n.Node)
	case *ast.IdentifierNode:
		if slices.Contains(c.scope.names, n.Value) && !c.isLocal(n.Value) {
			return []string{n.Value}
		}
	case *ast.MemberNode:
		if name, ok := n.Property.(*ast.StringNode); ok {
			if path := c.pathOf(n.Node); path != nil {
				return append(path, name.Value)
			}
		}
	}
	return nil
}

// read notes what a part of the expression reads, the longest paths only.
func (c *compiler) read(n ast.Node) (leave func()) {
	path := c.pathOf(n)
	if path == nil || c.within {
		return func() {}
	}
	c.reads = append(c.reads, path)
	c.within = true
	return func() { c.within = false }
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

// rootNames are the names that scopes are made of.
var rootNames = map[string]struct {
	types types
	eval  func(*Env) Value
}{
	"key":        {tAny, func(env *Env) Value { return formatted(env.Key, env.KeyFormat) }},
	"value":      {tAny, func(env *Env) Value { return formatted(env.Value, env.ValueFormat) }},
	"headers":    {tMap, (*Env).headers},
	"levels":     {tList, (*Env).levels},
	"qos":        {tNumber, func(env *Env) Value { return intValue(int64(env.QoS)) }},
	"retained":   {tBool, func(env *Env) Value { return boolValue(env.Retained) }},
	"properties": {tMap, func(env *Env) Value { return env.pairs(env.Properties) }},
	"timestamp":  {tNumber, func(env *Env) Value { return intValue(env.Timestamp) }},
	"topic":      {tText, func(env *Env) Value { return textValue(env.Topic) }},
	"partition":  {tNumber, func(env *Env) Value { return intValue(int64(env.Partition)) }},
	"offset":     {tNumber, func(env *Env) Value { return intValue(env.Offset) }},
	"vars":       {tAny, func(env *Env) Value { return env.Vars.root }},
	"config":     {tAny, func(env *Env) Value { return env.Config.root }},
	"state":      {tAny, func(env *Env) Value { return env.State.root }},
	"now":        {tNumber, func(env *Env) Value { return intValue(env.Now) }},
	"body":       {tAny, func(env *Env) Value { return env.Body.root }},
	"status":     {tNumber, func(env *Env) Value { return intValue(int64(env.Status)) }},
	"item":       {tAny, func(env *Env) Value { return formatted(env.Value, env.ValueFormat) }},
	"index":      {tNumber, func(env *Env) Value { return intValue(env.Index) }},
	"page":       {tMap, (*Env).page},
}

func (env *Env) page() Value {
	return Value{kind: kMap, box: &box{
		names: []string{"first", "last", "count"},
		items: []Value{env.Page.First.root, env.Page.Last.root, intValue(env.Page.Count)},
	}}
}

// formatted is the value of the bytes of a key or a value.
func formatted(b []byte, format Format) Value {
	if b == nil {
		return Value{}
	}
	switch format {
	case Text:
		return textValue(rawjson.View(b))
	case Bytes:
		return bytesValue(b)
	default:
		return rawRoot(b)
	}
}

func (env *Env) levels() Value {
	items := make([]Value, len(env.Levels))
	for i, level := range env.Levels {
		items[i] = textValue(level)
	}
	return listValue(items)
}

func (env *Env) headers() Value { return env.pairs(env.Headers) }

// pairs is the map of all headers or properties; of those with one name the last counts.
func (env *Env) pairs(walk iter.Seq2[string, []byte]) Value {
	b := &box{names: []string{}}
	if walk != nil {
		for name, value := range walk {
			if !env.spend(costVisit + len(name)) {
				break
			}
			v := headerValue(value)
			if i := slices.Index(b.names, name); i >= 0 {
				b.items[i] = v
				continue
			}
			b.names, b.items = append(b.names, name), append(b.items, v)
		}
	}
	return Value{kind: kMap, box: b}
}

func headerValue(value []byte) Value {
	if value == nil {
		return Value{}
	}
	return textValue(rawjson.View(value))
}

// header is one header.
func (env *Env) header(name string) (v Value) {
	if env.Headers != nil {
		for n, value := range env.Headers {
			if n == name || env.FoldHeaders && strings.EqualFold(n, name) {
				v = headerValue(value)
			}
		}
	}
	return v
}

func (c *compiler) name(n *ast.IdentifierNode, pos int) node {
	name := n.Value
	for i := len(c.locals) - 1; i >= 0; i-- {
		if l := c.locals[i]; l.name == name {
			slot := l.slot
			return finish(node{eval: func(env *Env) Value { return env.locals[slot] }, pos: pos, types: l.types})
		}
	}
	if name == "null" {
		return constant(Value{}, pos)
	}
	if slices.Contains(c.scope.names, name) {
		defer c.read(n)()
		root := rootNames[name]
		r := node{eval: root.eval, pos: pos, types: root.types, isHeaders: name == "headers"}
		if name == "value" || name == "item" {
			r.path = []string{}
		}
		return finish(r)
	}
	if name == "$env" {
		return c.errorAt(pos, CodeNotSupported, "$env is not supported", "in scope: "+list(c.scope.names))
	}
	if _, ok := functions[name]; ok || predicates[name] {
		return c.errorAt(pos, CodeUnknownName, fmt.Sprintf("%s is a function and is called with ( )", name), "")
	}
	return c.errorAt(pos, CodeUnknownName, fmt.Sprintf("unknown name %q", name), hintForName(name, c.scope.names))
}

// isRoot tells whether n is the name of a scope, and no local that hides it.
func (c *compiler) isRoot(n ast.Node, name string) bool {
	id, ok := n.(*ast.IdentifierNode)
	if !ok || id.Value != name || !slices.Contains(c.scope.names, name) {
		return false
	}
	for _, l := range c.locals {
		if l.name == name {
			return false
		}
	}
	return true
}

func (c *compiler) member(n *ast.MemberNode, pos int) node {
	defer c.read(n)()
	if id, ok := n.Node.(*ast.IdentifierNode); ok && namespaces[id.Value] && !slices.Contains(c.scope.names, id.Value) && !c.isLocal(id.Value) {
		if p, ok := n.Property.(*ast.StringNode); ok {
			return c.errorAt(pos, CodeUnknownName, fmt.Sprintf("%s.%s is no value", id.Value, p.Value), "its functions are called with ( )")
		}
	}
	if name, ok := n.Property.(*ast.StringNode); ok {
		switch {
		case c.isRoot(n.Node, "vars"):
			return c.varNode(name.Value, n.Property.Location().From, pos)
		case c.isRoot(n.Node, "headers"):
			name := name.Value
			return finish(node{eval: func(env *Env) Value { return env.header(name) }, pos: pos, types: tText | tNil})
		case c.isRoot(n.Node, "config"):
			if name.Value == "$key" {
				return finish(node{eval: func(env *Env) Value { return textValue(env.ConfigKey) }, pos: pos, types: tText})
			}
			return docMember(func(env *Env) *Doc { return &env.Config }, name.Value, pos)
		case c.isRoot(n.Node, "state"):
			return docMember(func(env *Env) *Doc { return &env.State }, name.Value, pos)
		case c.isRoot(n.Node, "body"):
			return docMember(func(env *Env) *Doc { return &env.Body }, name.Value, pos)
		case c.isRoot(n.Node, "page"):
			return c.pageNode(name.Value, n.Property.Location().From, pos)
		}
	}
	base := c.node(n.Node)
	property := c.node(n.Property)
	if c.err != nil {
		return base
	}
	if base.types&(tList|tMap|tNil) == 0 {
		return c.errorAt(pos, CodeType, fmt.Sprintf("%s has no members", base.types), "")
	}
	if property.types&(tText|tNumber|tNil) == 0 {
		return c.errorAt(property.pos, CodeType, fmt.Sprintf("a member is named by a text or a number, and this is %s", property.types), "")
	}
	if property.constant && property.value.kind == kText {
		name := property.value.str
		if base.path != nil {
			return valuePath(append(slices.Clone(base.path), name), pos)
		}
		eval := base.eval
		return c.pure(node{eval: func(env *Env) Value { return env.member(eval(env), name) }, pos: pos, types: tAny}, base)
	}
	eval, at := base.eval, property.eval
	return c.pure(node{eval: func(env *Env) Value {
		v := eval(env)
		return env.index(v, at(env))
	}, pos: pos, types: tAny}, base, property)
}

func (c *compiler) isLocal(name string) bool {
	return slices.ContainsFunc(c.locals, func(l local) bool { return l.name == name })
}

// varNode is vars.name.
func (c *compiler) varNode(name string, namePos, pos int) node {
	n := docMember(func(env *Env) *Doc { return &env.Vars }, name, pos)
	if c.scope.vars == nil {
		return n
	}
	kind, ok := c.scope.vars[name]
	if !ok {
		known := make([]string, 0, len(c.scope.vars))
		for k := range c.scope.vars {
			known = append(known, k)
		}
		slices.Sort(known)
		hint := didYouMean(name, known)
		if hint == "" {
			hint = "vars has " + list(known)
		}
		return c.errorAt(namePos, CodeUnknownName, fmt.Sprintf("vars has no %q", name), hint)
	}
	if kind == VarText {
		n.textVar = name
	}
	return n
}

// pageNode is page.name.
func (c *compiler) pageNode(name string, namePos, pos int) node {
	switch name {
	case "first":
		return finish(node{eval: func(env *Env) Value { return env.Page.First.root }, pos: pos, types: tAny})
	case "last":
		return finish(node{eval: func(env *Env) Value { return env.Page.Last.root }, pos: pos, types: tAny})
	case "count":
		return finish(node{eval: func(env *Env) Value { return intValue(env.Page.Count) }, pos: pos, types: tNumber})
	}
	return c.errorAt(namePos, CodeUnknownName, fmt.Sprintf("page has no %q", name), "page has first, last and count")
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

func docMember(doc func(*Env) *Doc, name string, pos int) node {
	return finish(node{eval: func(env *Env) Value {
		d := doc(env)
		return rawValue(rawjson.View(rawjson.Find(d.raw, d.members, name)))
	}, pos: pos, types: tAny})
}

// rawPath is the span of a path of names under the record's value, or "" where there is none.
func (env *Env) rawPath(path []string) string {
	if env.ValueFormat != JSON {
		return ""
	}
	env.left -= len(env.Members)
	span := env.topMember(path[0])
	for _, name := range path[1:] {
		if span == "" || span[0] != '{' {
			return ""
		}
		env.left -= len(span) / bytesPerUnit
		span = findMember(span, name)
	}
	return span
}

// topMember is the span of a top-level member, or "".
func (env *Env) topMember(name string) string {
	if env.Shape == nil {
		return rawjson.View(rawjson.Find(env.Value, env.Members, name))
	}
	if i := env.Shape.Find(name); i >= 0 {
		return rawjson.View(env.Members[i].Of(env.Value))
	}
	return ""
}

// valuePath is a member of the record's value, however deep.
func valuePath(path []string, pos int) node {
	n := node{pos: pos, types: tAny, path: path}
	n.eval = func(env *Env) Value { return rawValue(env.rawPath(path)) }
	n.number = func(env *Env) number { return numberOf(env.rawPath(path)) }
	n.json = func(dst []byte, env *Env) []byte {
		if span := env.rawPath(path); span != "" {
			return append(dst, span...)
		}
		return append(dst, "null"...)
	}
	return finish(n)
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

// array compiles a list literal.
func (c *compiler) array(n *ast.ArrayNode, pos int) node {
	if !c.nest(pos) {
		return constant(Value{}, pos)
	}
	defer func() { c.nesting-- }()
	items := make([]node, len(n.Nodes))
	for i := range n.Nodes {
		items[i] = c.node(n.Nodes[i])
	}
	if c.err != nil {
		return constant(Value{}, pos)
	}
	return c.listOf(items, pos)
}

// maxNesting is how deep lists and maps may be written into each other.
const maxNesting = 100

func (c *compiler) nest(pos int) bool {
	if c.nesting++; c.nesting > maxNesting {
		c.errorAt(pos, CodeTooLarge, fmt.Sprintf("lists and maps nested deeper than %d", maxNesting), "")
		return false
	}
	return true
}

// listOf is a list of nodes; as JSON it is written without being made.
func (c *compiler) listOf(items []node, pos int) node {
	r := node{pos: pos, types: tList}
	r.eval = func(env *Env) Value {
		if !env.spend(costVisit * (1 + len(items))) {
			return Value{}
		}
		list := make([]Value, len(items))
		for i := range items {
			list[i] = items[i].eval(env)
		}
		return env.list(list, pos)
	}
	r.json = func(dst []byte, env *Env) []byte {
		dst = append(dst, '[')
		for i := range items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = items[i].json(dst, env)
		}
		return append(dst, ']')
	}
	return c.pure(r, items...)
}

// mapLiteral compiles {name: expression, …}.
func (c *compiler) mapLiteral(n *ast.MapNode, pos int) node {
	if !c.nest(pos) {
		return constant(Value{}, pos)
	}
	defer func() { c.nesting-- }()
	names := make([]string, len(n.Pairs))
	items := make([]node, len(n.Pairs))
	for i, p := range n.Pairs {
		pair := p.(*ast.PairNode)
		key := c.node(pair.Key)
		items[i] = c.node(pair.Value)
		if c.err != nil {
			return constant(Value{}, pos)
		}
		if !key.constant || key.value.kind != kText {
			return c.errorAt(key.pos, CodeNotSupported, "a computed name in a map is not supported", "fromPairs([[name, value]]) makes such a map")
		}
		names[i] = key.value.str
		if slices.Contains(names[:i], names[i]) {
			return c.errorAt(key.pos, CodeSyntax, fmt.Sprintf("%q stands twice in the map", names[i]), "")
		}
	}
	return c.mapOf(names, items, pos)
}

// mapOf is a map of nodes; as JSON it is written without being made.
func (c *compiler) mapOf(names []string, items []node, pos int) node {
	r := node{pos: pos, types: tMap}
	r.eval = func(env *Env) Value {
		if !env.spend(costVisit * (1 + len(items))) {
			return Value{}
		}
		values := make([]Value, len(items))
		for i := range items {
			values[i] = items[i].eval(env)
		}
		return env.mapOf(names, values, pos)
	}
	heads := make([]string, len(names))
	for i, name := range names {
		head := ","
		if i == 0 {
			head = "{"
		}
		heads[i] = string(appendName([]byte(head), name))
	}
	r.json = func(dst []byte, env *Env) []byte {
		if len(items) == 0 {
			return append(dst, "{}"...)
		}
		for i := range items {
			dst = append(dst, heads[i]...)
			dst = items[i].json(dst, env)
		}
		return append(dst, '}')
	}
	return c.pure(r, items...)
}

// maxDepth is how deep lists and maps that an expression makes may nest.
const maxDepth = rawjson.MaxDepth

func (env *Env) list(items []Value, pos int) Value {
	return env.boxed(Value{kind: kList, box: &box{items: items}}, pos)
}

func (env *Env) mapOf(names []string, items []Value, pos int) Value {
	if names == nil {
		names = []string{}
	}
	return env.boxed(Value{kind: kMap, box: &box{names: names, items: items}}, pos)
}

func (env *Env) boxed(v Value, pos int) Value {
	depth := 0
	for i := range v.box.items {
		if b := v.box.items[i].box; b != nil {
			depth = max(depth, b.depth)
		}
	}
	if v.box.depth = depth + 1; depth >= maxDepth {
		return env.fail(pos, CodeBudget, fmt.Sprintf("lists and maps nested deeper than %d", maxDepth))
	}
	return v
}

// compileTree compiles a tree of expressions into one. Errors are added to errs, and the answer is nil then.
func compileTree(tree *Tree, scope Scope, want Want, errs *[]TreeError) *Expr {
	if tree.Kind == Leaf {
		e, err := compile(tree.Text, scope, want)
		if err != nil {
			*errs = append(*errs, TreeError{tree, err})
			return nil
		}
		e.ref = tree.Ref
		return e
	}
	whole := &Expr{ref: tree.Ref}
	items := make([]node, 0, len(tree.Items))
	for i, item := range tree.Items {
		if tree.Kind == Map && slices.Contains(tree.Names[:i], tree.Names[i]) {
			*errs = append(*errs, TreeError{item, &Error{1, 1, CodeMessage, fmt.Sprintf("%q stands twice in the map", tree.Names[i]), ""}})
			continue
		}
		e := compileTree(item, scope, Any, errs)
		if e == nil {
			continue
		}
		whole.include(e.program)
		whole.textVars = append(whole.textVars, e.textVars...)
		whole.reads = append(whole.reads, e.reads...)
		if item.Kind != Leaf {
			items = append(items, e.root)
			continue
		}
		items = append(items, e.leaf())
	}
	if len(items) < len(tree.Items) {
		return nil
	}
	c := &compiler{}
	if tree.Kind == Map {
		whole.root = c.mapOf(slices.Clone(tree.Names), items, 0)
	} else {
		whole.root = c.listOf(items, 0)
	}
	return whole
}

// leaf is e's node as a part of a tree: its failures name e.
func (e *Expr) leaf() node {
	n := e.root
	if n.constant || n.path != nil {
		return n
	}
	eval, json := n.eval, n.json
	n.eval = func(env *Env) Value {
		v := eval(env)
		env.failedIn(e)
		return v
	}
	n.json = func(dst []byte, env *Env) []byte {
		dst = json(dst, env)
		env.failedIn(e)
		return dst
	}
	return n
}

func (env *Env) failedIn(e *Expr) {
	if env.failure.code != "" && env.failure.from == nil {
		env.failure.from = e
	}
}
