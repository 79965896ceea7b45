package script

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/dop251/goja"
	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/file"
	"github.com/dop251/goja/unistring"

	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// binding is what a name stands for.
type binding uint8

const (
	local   binding = iota // declared by the script inside a function: its own
	shared                 // declared by functions or at the top of a module: frozen, one for all calls
	given                  // msg, or config of a poll: the body's first argument
	beside                 // config and response of a relay
	aliased                // a constant of the body that stands for msg.value
	state                  // the body's argument state
	fixed                  // Message, State, vars, console
	linked                 // imported from a file: frozen as well
)

// fixedNames are those of the API that are arguments of every program.
var fixedNames = map[string]bool{"Message": true, "State": true, "vars": true, "console": true}

type scope struct {
	outer   *scope
	names   map[string]binding
	helpers map[string]bool      // those of names that are an async function*
	makers  map[string]bool      // those that are a function*
	imports map[string]*imported // what the linked ones stand for
	prefix  string               // of the units of the shared ones
}

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

// isHelper tells whether a name stands for an async function*.
func (r *rewriter) isHelper(name string) bool {
	for s := r.scope; s != nil; s = s.outer {
		if _, ok := s.names[name]; ok {
			return s.helpers[name]
		}
	}
	return false
}

// named notes that the unit under way names something that functions declare.
func (r *rewriter) named(name string) {
	for s := r.scope; s != nil; s = s.outer {
		b, ok := s.names[name]
		if !ok {
			continue
		}
		var keys []string
		if b == shared {
			r.single = r.single || r.compilation.Module && s.prefix == "" && name == r.program.kind.String()
			keys = []string{s.prefix + name}
		} else if b == linked {
			keys = s.imports[name].keys()
		}
		for _, key := range keys {
			if r.unit.names == nil {
				r.unit.names = map[string]bool{}
			}
			r.unit.names[key] = true
		}
		return
	}
}

// declaredHere tells whether the block under way declares a name.
func (r *rewriter) declaredHere(name string) bool {
	s := r.scope
	for s.imports != nil {
		s = s.outer // a text's imports lie around its declarations
	}
	_, ok := s.names[name]
	return ok
}

// rename makes a name that is imported the one that it stands for.
func (r *rewriter) rename(id *ast.Identifier) {
	if i := r.imported(id.Name.String()); i != nil {
		id.Name = unistring.NewFromString(i.identifier())
	}
}

// isMaker tells whether a name stands for a function*.
func (r *rewriter) isMaker(name string) bool {
	for s := r.scope; s != nil; s = s.outer {
		if _, ok := s.names[name]; ok {
			return s.makers[name]
		}
	}
	return false
}

func (r *rewriter) refuseHelper(at file.Idx, name string) {
	r.refuse(at, "script.helper", "write yield* "+name+"(…) in the body, or in another async function*", "%s is an async function*, which runs only as yield* %s(…)", name, name)
}

// reference resolves a name that is read.
func (r *rewriter) reference(id *ast.Identifier) {
	name := id.Name.String()
	if r.isHelper(name) {
		r.refuseHelper(id.Idx, name)
		return
	}
	r.named(name)
	r.exotic = r.exotic || exoticNames[name]
	b, ok := r.look(name)
	if hint := enrichNames[name]; hint != "" && r.inEnrich && (!ok || b == fixed) {
		r.refuse(id.Idx, CodeEnrich, hint, "%s is not there in an enrich", name)
		return
	}
	if ok {
		switch {
		case b == given:
			r.whole = true
		case b == aliased:
			r.uses.value++
		case b == beside:
			if r.besides == nil {
				r.besides = map[string]bool{}
			}
			r.besides[name] = true
		case r.stateless && b == fixed && name == "State":
			r.refuse(id.Idx, "script.no_state", noStateHint, noStateMessage)
		case b == state:
			r.program.namesState = true
			r.uses.state++
		case b == fixed && name == "State":
			r.program.namesState = true
		case b == fixed && name == "Message":
			r.program.yieldsMessage = true
		case b == linked:
			r.rename(id)
		}
		return
	}
	if name == "arguments" && r.inFunction {
		return
	}
	r.unit.waits = r.unit.waits || name == "Promise" || name == "fetch"
	r.forked = r.forked || name == "Promise"
	if r.known[name] {
		r.reached[name] = true
		if name == "protobuf" {
			r.namesProtobuf(id.Idx)
		}
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
	if name == "await" {
		r.refuse(id.Idx, "script.await", awaitHint, awaitMessage)
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
	if r.stateless && name == "state" {
		r.refuse(id.Idx, "script.no_state", noStateHint, noStateMessage)
		return
	}
	var names []string
	for s := r.scope; s != nil; s = s.outer {
		for n := range s.names {
			names = append(names, n)
		}
	}
	hint := wording.DidYouMean(name, names)
	switch {
	case hint != "":
	case name == "msg" || name == "state" || name == "config" || name == "response":
		hint = fmt.Sprintf("only the body knows %s: give it to the function as an argument", name)
		if r.own {
			hint = "a body of this kind has no " + name
		}
	default:
		hint = cmp.Or(wording.DidYouMean(name, slices.Collect(maps.Keys(r.known))), "declare it, or pass a setting in through vars")
	}
	r.refuse(id.Idx, "script.unknown_name", hint, "nothing is called %q here", name)
}

// assigned resolves a name that is written.
func (r *rewriter) assigned(id *ast.Identifier) {
	name := id.Name.String()
	b, ok := r.look(name)
	switch {
	case ok && (b == shared || b == linked):
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
	eachName(target, func(id *ast.Identifier) { r.scope.names[id.Name.String()] = b })
}

// eachName calls f for the names that a binding target declares.
func eachName(target ast.Expression, f func(*ast.Identifier)) {
	switch t := target.(type) {
	case *ast.Identifier:
		f(t)
	case *ast.ObjectPattern:
		for _, p := range t.Properties {
			switch p := p.(type) {
			case *ast.PropertyShort:
				f(&p.Name)
			case *ast.PropertyKeyed:
				eachName(p.Value, f)
			}
		}
		eachName(t.Rest, f)
	case *ast.ArrayPattern:
		for _, e := range t.Elements {
			eachName(e, f)
		}
		eachName(t.Rest, f)
	case *ast.AssignExpression:
		eachName(t.Left, f)
	case *ast.Binding:
		eachName(t.Target, f)
	}
}

// declares calls f for the names that a statement declares where it stands.
func declares(s ast.Statement, f func(*ast.Identifier)) {
	switch s := s.(type) {
	case *ast.LexicalDeclaration:
		for _, b := range s.List {
			eachName(b.Target, f)
		}
	case *ast.ClassDeclaration:
		if s.Class.Name != nil {
			f(s.Class.Name)
		}
	case *ast.FunctionDeclaration:
		if s.Function.Name != nil {
			f(s.Function.Name)
		}
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
		declares(s, func(id *ast.Identifier) { r.declare(id, b) })
		if isHelper(s) {
			if r.scope.helpers == nil {
				r.scope.helpers = map[string]bool{}
			}
			r.scope.helpers[s.(*ast.FunctionDeclaration).Function.Name.Name.String()] = true
		} else if f, ok := s.(*ast.FunctionDeclaration); ok && f.Function.Generator && f.Function.Name != nil {
			if r.scope.makers == nil {
				r.scope.makers = map[string]bool{}
			}
			r.scope.makers[f.Function.Name.Name.String()] = true
		}
	}
}

// enrichNames are what other bodies know and an enrich does not.
var enrichNames = map[string]string{
	"Message": enrichHint, "State": enrichHint,
	"state":   "a config is completed before it is polled, and has no state then",
	"configs": "what an enrich returns is kept until its own config changes, so that it may hang on no other",
}

// builtinNames are the names that every VM has, and those of the standard library.
var builtinNames = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	for _, name := range goja.New().GlobalObject().GetOwnPropertyNames() {
		if _, refused := refusedNames[name]; !refused {
			names[name] = true
		}
	}
	for name := range library {
		names[name] = true
	}
	return names
})

// exoticNames let a script run code in, or forbid, plain reads and writes of an object's members. A script that has one of
// them works on ordinary objects.
var exoticNames = map[string]bool{
	"freeze": true, "seal": true, "preventExtensions": true, "defineProperty": true, "defineProperties": true, "__defineGetter__": true,
	"__defineSetter__": true, "Proxy": true, "Reflect": true, "Symbol": true, "setPrototypeOf": true, "__proto__": true, "toPrimitive": true,
}

// refusedNames are built-ins that are taken away, with what to do instead.
var refusedNames = map[string]string{
	"eval":       "write the code where it runs",
	"Function":   "write the function where it is used",
	"setTimeout": "there are no timers in a body", "setInterval": "there are no timers in a body",
	"process": "settings come in through vars",
	"require": `write import { name } from "./file.js" at the top of a file, or put shared code into functions`,
	"window":  "a body runs on a server", "document": "a body runs on a server",
}

const (
	noStateMessage = "a relay of messages that come by themselves has no State: they may be spread over several processes"
	noStateHint    = "keep state in a transformer that reads the output topic"
)

// laterNames belong to the language but not yet to the engine.
var laterNames = map[string]string{
	"tables": "", "timer": "", "Timer": "", "window": "", "result": "",
}
