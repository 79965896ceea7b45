package script

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/file"

	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// Files that are imported become functions of their own, in front of the text that has the functions and the body:
//
//	(function(natives and built-ins){
//		const @module1 = (function(){ …; return { a, b } })();
//		const @1.a = @module1.a; …
//		return (function(){ functions…; return function(msg, state){ body } })();
//	})
//
//  1. A file stands behind those that it imports; a circle is refused. So each is evaluated once, and whole, before
//     anybody reads what it exports.
//  2. What a file declares cannot change (rewrite.go), so that a name that is imported is as good as a constant: each
//     reference to it becomes one to @1.a.
//  3. A file sees the names that it declares and imports, the API and the built-ins, and nothing of functions.

// linker reads the files that are imported.
type linker struct {
	*compilation
	files map[string]*module
	path  []string // the files that import one another, up to the one under way
}

// link reads what the texts import, and checks that it is there.
func (c *compilation) link() {
	l := &linker{compilation: c, files: map[string]*module{}}
	for _, m := range c.texts {
		l.visit(m)
	}
	for _, m := range append(slices.Clone(c.texts), c.modules...) {
		c.checkClauses(m)
	}
}

func (l *linker) visit(m *module) {
	l.path = append(l.path, filepath.Clean(m.text.File))
	for _, clause := range m.clauses {
		if clause.from != "" {
			clause.module = l.open(m, clause)
		}
	}
	l.path = l.path[:len(l.path)-1]
	m.exports()
}

// open is the module behind a clause, or nil if something is wrong with it, which is reported.
func (l *linker) open(m *module, clause *clause) *module {
	at := m.place(clause.fromAt)
	name := clause.from
	switch {
	case !strings.HasPrefix(name, "./") && !strings.HasPrefix(name, "../"):
		hint := `import takes a .js file by its relative path, as in "./lib.js"; what the standard library has needs no import`
		if _, known := library[name]; known || builtinNames()[name] {
			hint = name + " is there without an import"
		}
		l.report(at, "script.import", fmt.Sprintf("%q is no file beside this one", name), hint)
		return nil
	case strings.HasSuffix(name, ".ts"):
		l.report(at, "script.import", "a TypeScript file is not supported yet", "import a .js file")
		return nil
	case !strings.HasSuffix(name, ".js"):
		l.report(at, "script.import", fmt.Sprintf("%q is not the name of a .js file", name), fmt.Sprintf("write %q, if that is the file", name+".js"))
		return nil
	}
	path := filepath.Join(filepath.Dir(m.text.File), filepath.FromSlash(name))
	if i := slices.Index(l.path, path); i >= 0 {
		circle := append(slices.Clone(l.path[i:]), path)
		for i := range circle {
			circle[i] = filepath.Base(circle[i])
		}
		l.report(at, "script.import", "the files import each other in a circle: "+strings.Join(circle, " → "), "put what both need into a file of its own")
		return nil
	}
	if found, ok := l.files[path]; ok {
		return found
	}
	if l.Read == nil {
		l.report(at, "script.import", fmt.Sprintf("%q cannot be read here", name), "")
		return nil
	}
	text, err := l.Read(path)
	l.files[path] = nil
	if err != nil {
		l.report(at, "script.import", fmt.Sprintf("%q cannot be read: %v", name, err), "the path is relative to the file that imports")
		return nil
	}
	found := newModule(&text)
	if !l.parseFile(found) {
		return nil
	}
	l.files[path] = found
	l.visit(found)
	found.number = len(l.modules)
	l.modules = append(l.modules, found)
	return found
}

// exports completes what a module exports by its clauses.
func (m *module) exports() {
	for _, c := range m.clauses {
		if !c.exports {
			continue
		}
		for _, n := range c.names {
			switch {
			case n.name == "*" && n.as == "":
				m.stars = append(m.stars, c.module)
			case c.from != "":
				m.exported[n.as] = export{from: c.module, name: n.name}
			default:
				m.exported[n.as] = m.local(n.name)
			}
		}
	}
}

// local is a name of the module's own as an export of its: a declaration, or what it imports under that name.
func (m *module) local(name string) export {
	for _, c := range m.clauses {
		for _, n := range c.names {
			if !c.exports && n.as == name {
				return export{from: c.module, name: n.name}
			}
		}
	}
	return export{local: name}
}

// find is where an export of a module is declared, or "*" of a module that is exported as an object. The module is nil where
// there is none, and where one of the files is not there, which is reported already.
func (m *module) find(name string) (owner *module, found string) {
	if m == nil {
		return nil, ""
	}
	if name == "*" {
		return m, "*"
	}
	if e, ok := m.exported[name]; ok {
		if e.local != "" {
			return m, name
		}
		return e.from.find(e.name)
	}
	if name == "default" {
		return nil, ""
	}
	for _, star := range m.stars {
		if owner, found = star.find(name); owner != nil {
			return owner, found
		}
	}
	return nil, ""
}

// names are all that a module exports, sorted.
func (m *module) names() []string {
	var names []string
	for name := range m.exported {
		names = append(names, name)
	}
	for _, star := range m.stars {
		if star == nil {
			continue
		}
		for _, name := range star.names() {
			if name != "default" {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// incomplete tells whether a file that the module exports from is not there.
func (m *module) incomplete() bool {
	return slices.ContainsFunc(m.stars, func(star *module) bool { return star == nil || star.incomplete() })
}

// checkClauses reports names that are not there, or twice.
func (c *compilation) checkClauses(m *module) {
	local := map[string]bool{}
	for _, clause := range m.clauses {
		for _, n := range clause.names {
			switch {
			case clause.from != "" && clause.module != nil && n.name != "*":
				if owner, _ := clause.module.find(n.name); owner == nil {
					c.missing(m.place(n.at), clause.module, clause.from, n.name)
				}
			case clause.from == "":
				if e := m.exported[n.as]; e.local != "" && !m.declared[e.local] {
					c.report(m.place(n.at), "script.import", fmt.Sprintf("the file declares no %q that it could export", n.name), "")
				}
			}
			if clause.exports {
				continue
			}
			switch {
			case fixedNames[n.as]:
				c.report(m.place(n.at), "script.declared_twice", n.as+" is already there", "write import { "+n.name+" as name }")
			case m.declared[n.as] || local[n.as]:
				c.report(m.place(n.at), "script.declared_twice", fmt.Sprintf("%s is declared twice in this file", n.as), "write import { "+n.name+" as name }")
			}
			local[n.as] = true
		}
	}
}

// missing reports an export that a file does not have.
func (c *compilation) missing(at place, of *module, from, name string) {
	if e, ok := of.exported[name]; ok && e.local == "" && e.from == nil || of.incomplete() {
		return
	}
	hint := "write export before what it declares"
	names := of.names()
	switch near := wording.DidYouMean(name, names); {
	case name == "default":
		hint = "it has no export default; write import { name }"
	case near != "":
		hint = near
	case of.declared[name]:
		hint = "it declares it; write export before that"
	case len(names) > 0:
		hint = "it exports " + strings.Join(names, ", ")
	}
	c.report(at, "script.import", fmt.Sprintf("%s exports no %q", from, name), hint)
}

// imported is what a name stands for that a text imports.
type imported struct {
	owner *module
	name  string // of an export that owner declares, or "*"
	from  string
}

func (i *imported) identifier() string {
	if i.name == "*" {
		return fmt.Sprint(nameModule, i.owner.number)
	}
	return fmt.Sprint("@", i.owner.number, ".", i.name)
}

// isHelper tells whether it is an async function*.
func (i *imported) isHelper() bool {
	return i.name != "*" && i.owner.helpers[i.owner.exported[i.name].local]
}

// keys are the units behind it.
func (i *imported) keys() (keys []string) {
	if i.name != "*" {
		return []string{i.owner.prefix() + i.owner.exported[i.name].local}
	}
	for _, name := range i.owner.names() {
		if owner, name := i.owner.find(name); owner != nil {
			keys = append(keys, (&imported{owner: owner, name: name}).keys()...)
		}
	}
	return keys
}

// prefix tells the units of a module from all others.
func (m *module) prefix() string { return fmt.Sprint("@", m.number, ":") }

// imports enters what a text imports into the scope.
func (r *rewriter) imports(m *module) {
	r.scope.imports = map[string]*imported{}
	for _, c := range m.clauses {
		for _, n := range c.names {
			if c.exports || c.module == nil {
				continue
			}
			if owner, name := c.module.find(n.name); owner != nil {
				i := &imported{owner, name, c.from}
				r.scope.names[n.as], r.scope.imports[n.as] = linked, i
				if i.isHelper() {
					if r.scope.helpers == nil {
						r.scope.helpers = map[string]bool{}
					}
					r.scope.helpers[n.as] = true
				}
			}
		}
	}
}

// imported is what a name stands for, if it is imported.
func (r *rewriter) imported(name string) *imported {
	for s := r.scope; s != nil; s = s.outer {
		if _, ok := s.names[name]; ok {
			return s.imports[name]
		}
	}
	return nil
}

// namespaceMember is what an expression like lib.name stands for, where lib is imported as a whole.
func (r *rewriter) namespaceMember(e ast.Expression) *imported {
	dot, ok := e.(*ast.DotExpression)
	if !ok {
		return nil
	}
	id, ok := dot.Left.(*ast.Identifier)
	if !ok {
		return nil
	}
	i := r.imported(id.Name.String())
	if i == nil || i.name != "*" {
		return nil
	}
	name := dot.Identifier.Name.String()
	owner, found := i.owner.find(name)
	if owner == nil {
		r.compilation.missing(r.src.place(int(dot.Identifier.Idx)-1), i.owner, i.from, name)
		return nil
	}
	return &imported{owner, found, i.from}
}

// evaluate is what stands in place of the function that a module's text was parsed in: it runs it and names what it exports.
func (c *compilation) evaluate(r *rewriter, m *module, f *ast.FunctionLiteral, names []string) []ast.Statement {
	at := f.Function
	object := &ast.ObjectLiteral{LeftBrace: at, RightBrace: at}
	member := func(name string, value ast.Expression) {
		object.Value = append(object.Value, &ast.PropertyKeyed{Key: stringLiteral(name, at), Kind: ast.PropertyKindValue, Value: value})
	}
	member("__proto__", &ast.NullLiteral{Idx: at})
	self := &imported{owner: m, name: "*"}
	var constants []ast.Statement
	for _, name := range m.names() {
		owner, found := m.find(name)
		switch {
		case owner == nil:
			continue
		case owner != m || found == "*":
			member(name, identifier((&imported{owner: owner, name: found}).identifier(), at))
			continue
		}
		member(name, identifier(m.exported[name].local, at))
		export := &imported{owner: m, name: name}
		constants = append(constants, constant(export.identifier(), at, &ast.BracketExpression{
			Left: identifier(self.identifier(), at), Member: stringLiteral(name, at),
			LeftBracket: at, RightBracket: at,
		}))
	}
	f.Body.List = append(f.Body.List, &ast.ReturnStatement{Return: at, Argument: r.frozen(at, names, object)})
	run := &ast.CallExpression{Callee: f, LeftParenthesis: at, RightParenthesis: at}
	return append([]ast.Statement{constant(self.identifier(), at, run)}, constants...)
}

// frozen is a call that freezes what the names stand for, and the last argument, if there is one, which it answers.
func (r *rewriter) frozen(at file.Idx, names []string, last ...ast.Expression) *ast.CallExpression {
	list := []ast.Expression{integer(len(r.program.shared), at)}
	r.program.shared = append(r.program.shared, append(slices.Clone(names), "the exports"))
	for _, name := range names {
		list = append(list, identifier(name, at))
	}
	return call(nameFreeze, at, append(list, last...)...)
}
