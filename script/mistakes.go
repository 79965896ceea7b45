package script

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/dop251/goja"
	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/file"
	"github.com/dop251/goja/token"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// What fails each time that it runs is reported before it does.

const codeMember = "script.member" // something is read or called that is not there

// checkReturned refuses that a body returns a value. What may be undefined is left to its run.
func (r *rewriter) checkReturned(at file.Idx, e ast.Expression) {
	what := "a value"
	switch x := e.(type) {
	case *ast.CallExpression:
		if !r.isFixed(x.Callee, "Message") && !r.isFixed(x.Callee, "State") {
			return
		}
		what = "a plain object"
	case *ast.YieldExpression, *ast.AwaitExpression, *ast.OptionalChain:
		return
	case *ast.Identifier:
		if x.Name == "undefined" {
			return
		}
	case *ast.UnaryExpression:
		if x.Operator == token.VOID {
			return
		}
	case *ast.ConditionalExpression:
		r.checkReturned(at, x.Consequent)
		r.checkReturned(at, x.Alternate)
		return
	case *ast.BinaryExpression:
		if x.Operator == token.LOGICAL_AND || x.Operator == token.LOGICAL_OR || x.Operator == token.COALESCE {
			return
		}
	case *ast.SequenceExpression:
		r.checkReturned(at, x.Sequence[len(x.Sequence)-1])
		return
	}
	if k := literalKind(e); k != "" {
		what = k
	}
	r.refuse(at, CodeYield, "write yield Message({ value: … }), and return alone to end", "%s was returned, but a body says everything by yield", what)
}

// checkYield refuses to yield what is neither a Message nor a State.
func (r *rewriter) checkYield(y *ast.YieldExpression) {
	what := "undefined"
	if y.Argument != nil {
		what = literalKind(y.Argument)
	}
	switch {
	case what == "":
	case y.Delegate:
		if what == "an array" || mayIterate(y.Argument) {
			return
		}
		r.refuse(y.Yield, CodeYield, "yield* takes an array, a generator or another iterable of Messages and States", "yield* was given %s", what)
	default:
		hint := "write yield Message({ value: … }) or yield State(…)"
		if what == "an array" {
			hint = "yield* yields each element of an array"
		}
		r.refuse(y.Yield, CodeYield, hint, "%s was yielded, which is neither a Message nor a State", what)
	}
}

// mayIterate tells whether an object literal may have a member that makes it an iterable.
func mayIterate(e ast.Expression) bool {
	o, ok := e.(*ast.ObjectLiteral)
	return ok && slices.ContainsFunc(o.Value, func(p ast.Property) bool {
		_, _, plain := plainMember(p)
		return !plain
	})
}

// literalKind names what an expression always gives, or is "".
func literalKind(e ast.Expression) string {
	switch e.(type) {
	case *ast.NumberLiteral:
		return "a number"
	case *ast.StringLiteral, *ast.TemplateLiteral:
		return "a string"
	case *ast.BooleanLiteral:
		return "a boolean"
	case *ast.NullLiteral:
		return "null"
	case *ast.ObjectLiteral:
		return "a plain object"
	case *ast.ArrayLiteral:
		return "an array"
	case *ast.RegExpLiteral:
		return "a RegExp"
	case *ast.FunctionLiteral, *ast.ArrowFunctionLiteral, *ast.ClassLiteral:
		return "a Function"
	}
	return ""
}

// checkNew refuses new Message(…) and new State(…).
func (r *rewriter) checkNew(n *ast.NewExpression) {
	for _, name := range []string{"Message", "State"} {
		if r.isFixed(n.Callee, name) {
			r.refuse(n.New, "script.new", "write "+name+"(…) without new", "%s is a function, not a class", name)
		}
	}
}

// checkTopic refuses a topic that is no output of the stage. Functions may serve several stages, so that only the body is
// looked at. yielded says that the Message goes out as it stands.
func (r *rewriter) checkTopic(c *ast.CallExpression, yielded bool) {
	outputs := r.compilation.Outputs
	if outputs == nil || !r.isFixed(c.Callee, "Message") || len(c.ArgumentList) != 1 || !r.inBody(c.Idx0()) {
		return
	}
	literal, ok := c.ArgumentList[0].(*ast.ObjectLiteral)
	if !ok {
		return
	}
	open := false
	for _, p := range literal.Value {
		name, e, plain := plainMember(p)
		if open = open || !plain; name != "topic" {
			continue
		}
		text, ok := e.(*ast.StringLiteral)
		if !ok || slices.Contains(outputs, text.Value.String()) {
			return
		}
		r.refuse(text.Idx, CodeTopic, topicHint(text.Value.String(), outputs), "the topic %q is not among output_topics", text.Value.String())
		return
	}
	if yielded && !open && len(outputs) > 1 {
		r.refuse(c.Idx0(), CodeTopic, "give one of "+strings.Join(outputs, ", "), "the Message names no topic, and the stage has %d", len(outputs))
	}
}

// topicHint says what to do about a topic that is not among outputs.
func topicHint(name string, outputs []string) string {
	if len(outputs) == 0 {
		return "declare output_topics"
	}
	return cmp.Or(wording.DidYouMean(name, outputs), "output_topics are "+strings.Join(outputs, ", "))
}

// inBody tells whether a place is in the text of the body.
func (r *rewriter) inBody(at file.Idx) bool {
	p := r.src.find(int(at) - 1)
	return p != nil && p.text == &r.compilation.Body
}

// varsMember is the name of the member of vars that an expression reads, or "".
func (r *rewriter) varsMember(e ast.Expression) (id *ast.Identifier, name string) {
	switch e := e.(type) {
	case *ast.DotExpression:
		if r.isFixed(e.Left, "vars") {
			return &e.Identifier, e.Identifier.Name.String()
		}
	case *ast.BracketExpression:
		if text, ok := e.Member.(*ast.StringLiteral); ok && r.isFixed(e.Left, "vars") {
			return identifier(text.Value.String(), text.Idx), text.Value.String()
		}
	}
	return nil, ""
}

// checkVars refuses to read a member of vars that the pipeline does not declare.
func (r *rewriter) checkVars(e ast.Expression) {
	id, name := r.varsMember(e)
	known := r.compilation.varNames
	if id == nil || known == nil || e == r.spared || slices.Contains(known, name) || objectMembers[name] {
		return
	}
	hint := "declare it under vars:"
	if len(known) > 0 {
		hint += ", which has " + strings.Join(known, ", ")
	}
	r.refuse(id.Idx, "script.vars", cmp.Or(wording.DidYouMean(name, known), hint), "vars has no %q", name)
}

// noteMsg notes a member that the body reads of msg, or makes, and that msg does not have.
func (r *rewriter) noteMsg(e ast.Expression, makes bool) {
	dot, ok := e.(*ast.DotExpression)
	if !ok {
		return
	}
	id, ok := dot.Left.(*ast.Identifier)
	if !ok {
		return
	}
	name := dot.Identifier.Name.String()
	if b, ok := r.look(id.Name.String()); !ok || b != given || slices.Contains(r.compilation.msgNames(), name) {
		return
	}
	if makes {
		if r.made == nil {
			r.made = map[string]bool{}
		}
		r.made[name] = true
	} else {
		r.missed = append(r.missed, &dot.Identifier)
	}
}

// checkMsg refuses to read a member that msg does not have, that the body does not make, and that is almost called as one that
// it has: what other code makes of msg is not known.
func (r *rewriter) checkMsg() {
	for _, id := range r.missed {
		name := id.Name.String()
		if hint := wording.DidYouMean(name, r.compilation.msgNames()); hint != "" && !r.made[name] {
			r.refuse(id.Idx, codeMember, hint, "msg has no %q", name)
		}
	}
}

// msgNames are the members of msg, nil where there is no msg.
func (c *compilation) msgNames() []string {
	switch {
	case c.Kind == Transform:
		return messageNamesInput
	case c.Kind == Relay && c.Push:
		return deliveryNames
	case c.Kind == Relay:
		return itemNames
	}
	return nil
}

// checkCallee refuses to call what an object of the standard library does not have, and what is almost called as a member of
// another built-in object. JavaScript that was written for other engines may look whether something is there before it calls it.
func (r *rewriter) checkCallee(e ast.Expression) {
	dot, ok := e.(*ast.DotExpression)
	if !ok {
		return
	}
	id, ok := dot.Left.(*ast.Identifier)
	if !ok {
		return
	}
	object, name := id.Name.String(), dot.Identifier.Name.String()
	if _, declared := r.look(object); declared || !r.known[object] {
		return
	}
	if members := builtinMembers()[object]; members != nil && !slices.Contains(members, name) {
		hint := wording.DidYouMean(name, members)
		if hint == "" {
			if library[object] == nil {
				return
			}
			hint = "it has " + wording.List(builtinOwn(members), "and")
		}
		r.refuse(dot.Identifier.Idx, codeMember, hint, "%s has no %q", object, name)
	}
}

// writtenOptions are the options of functions that take an object of them as their second argument.
var writtenOptions = map[string][]string{"fetch": optionNames, "csv.parse": csvOptionNames}

// checkOptions refuses an option that a function does not have, where the options stand in the call.
func (r *rewriter) checkOptions(c *ast.CallExpression) {
	var name, object string
	switch callee := c.Callee.(type) {
	case *ast.Identifier:
		object = callee.Name.String()
		name = object
	case *ast.DotExpression:
		if id, ok := callee.Left.(*ast.Identifier); ok {
			object = id.Name.String()
			name = object + "." + callee.Identifier.Name.String()
		}
	}
	known := writtenOptions[name]
	if known == nil || len(c.ArgumentList) < 2 {
		return
	}
	if _, declared := r.look(object); declared {
		return
	}
	literal, ok := c.ArgumentList[1].(*ast.ObjectLiteral)
	if !ok {
		return
	}
	for _, p := range literal.Value {
		if option, _, plain := plainMember(p); plain && !slices.Contains(known, option) {
			r.refuse(p.Idx0(), codeMember, cmp.Or(wording.DidYouMean(option, known), "it has "+wording.List(known, "and")), "%s has no option %q", name, option)
		}
	}
}

// builtinMembers are the names of the members that built-in objects have, their own and those of their prototypes.
var builtinMembers = sync.OnceValue(func() map[string][]string {
	v := bareVM()
	v.env = &Env{Memory: NewMemory()}
	all := map[string][]string{}
	for name := range builtinNames() {
		object, ok := v.named(name, v.freezer).(*goja.Object)
		for ok && object != nil {
			all[name] = append(all[name], object.GetOwnPropertyNames()...)
			object = object.Prototype()
		}
	}
	return all
})

// builtinOwn are those of members that not every object or function has, in the order of the alphabet.
func builtinOwn(members []string) (own []string) {
	for _, name := range members {
		if !objectMembers[name] && !slices.Contains([]string{"apply", "bind", "call", "length", "name", "prototype", "caller", "arguments"}, name) {
			own = append(own, name)
		}
	}
	slices.Sort(own)
	return own
}

// objectMembers are what every object has.
var objectMembers = map[string]bool{
	"constructor": true, "hasOwnProperty": true, "isPrototypeOf": true, "propertyIsEnumerable": true, "toLocaleString": true, "toString": true, "valueOf": true,
	"__proto__": true, "__defineGetter__": true, "__defineSetter__": true, "__lookupGetter__": true, "__lookupSetter__": true,
}

// checkAssigned refuses to change vars.
func (r *rewriter) checkAssigned(e ast.Expression) {
	if id, name := r.varsMember(e); id != nil {
		r.refuse(e.Idx0(), "script.shared_assignment", "copy it before you change it: const copy = { ...vars }", "vars.%s is shared by all calls and cannot be assigned", name)
	}
}

// namesOf are the names of a JSON object, or nil if it is not known.
func namesOf(object []byte) []string {
	if object == nil {
		return nil
	}
	names := []string{}
	for _, m := range rawjson.Members(object, nil) {
		names = append(names, m.Name(object))
	}
	return names
}
