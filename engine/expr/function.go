package expr

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// function is one that takes values. Arguments are resolved and checked against takes before call, and where one is nil that
// does not take nil, call is not reached: the result is nil, or the empty list if result is a list alone.
type function struct {
	min, max int     // numbers of arguments; max < 0 is any number
	takes    []types // per argument; the last stands for all further ones
	result   types   // nil is added where a nil argument makes it
	call     func(env *Env, args []Value, pos int) Value
	// check, if set, looks at constant arguments at compile; it answers what is wrong with one of them, or "".
	check func(args []node) (arg int, problem string)
	// variesWith says that the result is not a matter of the arguments alone.
	variesWith bool
}

func (f *function) takesAt(i int) types { return f.takes[min(i, len(f.takes)-1)] }

// namespaces are the names in front of the functions with a dot.
var namespaces = map[string]bool{"hex": true, "base64": true, "json": true, "time": true, "csv": true, "xml": true, "protobuf": true, "log": true, "metrics": true, "memory": true, "configs": true}

// notYet are functions that expr or the standard library of scripts has and that expressions do not have yet.
var notYet = map[string]string{
	"now":         "now is a number of milliseconds and is written without ( )",
	"date":        "timestamps are numbers of milliseconds",
	"timezone":    "timestamps are numbers of milliseconds in UTC",
	"time.parse":  "a script can do it",
	"time.format": "a script can do it; time.iso(ms) is there",
	"csv.parse":   "", "xml.parse": "", "gunzip": "", "inflate": "", "inflateRaw": "", "unzip": "", "protobuf": "", "memo": "",
	"memory.get": "", "memory.set": "", "configs.get": "", "log.info": "", "log.warn": "", "log.once": "", "metrics.count": "",
	"structuredClone": "", "fetch": "",
}

// javascript maps what a writer of JavaScript may try to what there is.
var javascript = map[string]string{
	"toString": "string(x)", "toUpperCase": "upper(x)", "toLowerCase": "lower(x)", "includes": "x contains y, or y in x", "startsWith": "x startsWith y",
	"endsWith": "x endsWith y", "indexOf": "indexOf(x, y)", "substring": "x[from:to]", "slice": "x[from:to]", "toFixed": `format("%.2f", x)`, "join": "join(x, y)",
	"split": "split(x, y)", "replace": "replace(x, y, z)", "trim": "trim(x)", "map": "map(x, #)", "filter": "filter(x, # > 0)", "length": "len(x)", "push": "concat(x, [y])",
	"Year": "time.iso(ms)", "Unix": "timestamps are numbers of milliseconds",
}

// call compiles a call of what expr does not know as its own.
func (c *compiler) call(n *ast.CallNode, pos int) node {
	switch callee := n.Callee.(type) {
	case *ast.IdentifierNode:
		return c.apply(callee.Value, n.Arguments, pos)
	case *ast.MemberNode:
		property, ok := callee.Property.(*ast.StringNode)
		if !ok {
			break
		}
		if id, ok := callee.Node.(*ast.IdentifierNode); ok && namespaces[id.Value] {
			return c.apply(id.Value+"."+property.Value, n.Arguments, pos)
		}
		hint := "functions stand in front: upper(value.name)"
		if instead, ok := javascript[property.Value]; ok {
			hint = "write " + instead
		}
		return c.errorAt(property.Location().From, CodeUnknownFunc, fmt.Sprintf("values have no methods such as .%s( )", property.Value), hint)
	}
	return c.errorAt(pos, CodeUnknownFunc, "only a function by its name can be called", "")
}

// builtin compiles a call of a function that expr knows.
func (c *compiler) builtin(n *ast.BuiltinNode, pos int) node {
	if predicates[n.Name] {
		return c.predicate(n, pos)
	}
	return c.apply(n.Name, n.Arguments, pos)
}

// apply compiles a call of a function of the table.
func (c *compiler) apply(name string, arguments []ast.Node, pos int) node {
	f, ok := functions[name]
	if !ok {
		return c.unknownFunction(name, pos)
	}
	if len(arguments) < f.min || f.max >= 0 && len(arguments) > f.max {
		return c.errorAt(pos, CodeArguments, fmt.Sprintf("%s takes %s, and here %s", name, arity(f.min, f.max), amount(len(arguments))), "")
	}
	args := make([]node, len(arguments))
	never := false // a constant nil makes the result known
	for i, a := range arguments {
		args[i] = c.node(a)
		if c.err != nil {
			return args[i]
		}
		takes := f.takesAt(i)
		if args[i].types&(takes|tNil) == 0 {
			return c.errorAt(args[i].pos, CodeType, fmt.Sprintf("%s takes %s here, and this is %s", name, takes, args[i].types), "")
		}
		never = never || args[i].constant && args[i].value.kind == kNil && takes&tNil == 0
	}
	if f.check != nil && !never {
		if i, problem := f.check(args); problem != "" {
			return c.errorAt(args[i].pos, CodeArguments, problem, "")
		}
	}
	result := f.result
	if result != tList {
		for i := range args {
			if args[i].types&tNil != 0 && f.takesAt(i)&tNil == 0 {
				result |= tNil
			}
		}
	}
	n := node{pos: pos, types: result, eval: func(env *Env) Value {
		base := len(env.args)
		for i := range args {
			v := args[i].eval(env)
			env.args = append(env.args, v)
		}
		v := f.invoke(env, name, env.args[base:], pos)
		env.args = env.args[:base]
		return v
	}}
	if f.variesWith {
		return finish(n)
	}
	return c.pure(n, args...)
}

func (f *function) invoke(env *Env, name string, args []Value, pos int) Value {
	if env.failure.code != "" {
		return Value{}
	}
	for i := range args {
		args[i] = env.resolve(args[i])
		takes := f.takesAt(i)
		if t := args[i].types(); t&takes == 0 {
			if t == tNil {
				if f.result == tList {
					return listValue(nil)
				}
				return Value{}
			}
			return env.fail(pos, CodeOperand, fmt.Sprintf("%s takes %s, and here is %s", name, takes, t))
		}
	}
	return f.call(env, args, pos)
}

func (c *compiler) unknownFunction(name string, pos int) node {
	if hint, ok := notYet[name]; ok {
		return c.errorAt(pos, CodeNotSupported, name+" is not supported yet in expressions", hint)
	}
	known := slices.AppendSeq(slices.Collect(maps.Keys(functions)), maps.Keys(predicates))
	hint := wording.DidYouMean(name, known)
	if instead, ok := javascript[name]; ok && hint == "" {
		hint = "write " + instead
	}
	return c.errorAt(pos, CodeUnknownFunc, fmt.Sprintf("unknown function %q", name), hint)
}

func arity(low, high int) string {
	switch {
	case high < 0:
		return fmt.Sprintf("at least %s", wording.Count(low, "argument"))
	case low == high:
		return wording.Count(low, "argument")
	}
	return fmt.Sprintf("%d to %s", low, wording.Count(high, "argument"))
}

func amount(n int) string {
	if n == 1 {
		return "is 1"
	}
	return fmt.Sprintf("are %d", n)
}

// functions is the table of all functions, by name.
var functions = tableOf(textFunctions, numberFunctions, listFunctions, codecFunctions)

func tableOf(parts ...map[string]*function) map[string]*function {
	all := make(map[string]*function)
	for _, part := range parts {
		maps.Copy(all, part)
	}
	return all
}

// constantText is the text of a constant argument.
func constantText(args []node, i int) (string, bool) {
	if i >= len(args) || !args[i].constant || args[i].value.kind != kText {
		return "", false
	}
	return args[i].value.str, true
}

// oneOf checks that argument i, where it is constant, is one of the words.
func oneOf(i int, what string, words ...string) func([]node) (int, string) {
	return func(args []node) (int, string) {
		if text, ok := constantText(args, i); ok && !slices.Contains(words, text) {
			return i, fmt.Sprintf("%s is %s", what, strings.Replace(list(words), " and ", " or ", 1))
		}
		return 0, ""
	}
}
