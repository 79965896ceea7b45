package script

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/file"
	"github.com/dop251/goja/token"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// module is a text whose declarations stand at its top: functions, a body's file, or a file that one of them imports.
//
// goja knows no modules. So import and export are taken out of the text before it is parsed, byte for byte, so that nothing
// else moves: each becomes blanks with two semicolons where the keyword ended. The first ends what stands before, as a line
// end would have done. The second is an empty statement, which is found again in the tree and tells what stood there; one
// that is not at the top of the tree stood where it must not.
type module struct {
	text    *stream.Text
	blanked string
	src     *source        // of blanked alone
	marks   map[int]string // what each second semicolon stands for, by its offset
	clauses []*clause

	// What it declares at its top, and which of that is an async function*.
	declared, helpers map[string]bool
	exported          map[string]export
	stars             []*module // of export * from

	number int // among the files that are imported
}

// clause is import … from, export … from or export { … }.
type clause struct {
	at             int // where its keyword is
	exports        bool
	names          []clauseName
	from           string // "" for export { … }
	fromAt, fromTo int
	module         *module // that from names, once linked
}

// clauseName is one name of a clause: "*" for all of a module. as is the name here of an import, and the name outside of an export.
type clauseName struct {
	name, as string
	at       int
}

// export is what a name that a module exports stands for: a declaration of its own, or the export called name of another
// module, "*" for that module as an object.
type export struct {
	local string
	from  *module
	name  string
}

const (
	markImport      = "import"
	markClause      = "export clause"
	markDeclaration = "export"
	markDefault     = "export default"            // of a declaration that has a name
	markExpression  = "export default expression" // becomes a declaration of default
)

// nameDefault is what an anonymous default export is declared as. No script can write it.
const nameDefault = "default"

func newModule(text *stream.Text) *module {
	return &module{text: text, blanked: text.Text, marks: map[int]string{}, declared: map[string]bool{}, helpers: map[string]bool{}, exported: map[string]export{}}
}

func (m *module) place(offset int) place { return m.src.place(offset) }

// isFile tells whether a text is that of a file of its own.
func (m *module) isFile() bool { return strings.HasSuffix(m.text.File, ".js") }

// blank replaces a stretch of the text by blanks, with two semicolons at the end of the keyword, which it begins with.
func (m *module) blank(from, to int, mark string) {
	b := []byte(m.blanked)
	for i := from; i < to; i++ {
		if b[i] != '\n' && b[i] != '\r' {
			b[i] = ' '
		}
	}
	at := from + len("import") - 1 // as long as export
	b[at-1], b[at] = ';', ';'
	m.marks[at] = mark
	m.blanked = string(b)
}

// take takes out the import or export at offset, which the parser stumbled over. It answers false if it reported a problem.
func (c *compilation) take(m *module, offset int) bool {
	s := &clauseScanner{text: m.blanked, at: offset}
	before := len(c.problems)
	var ok bool
	if s.word() == "import" {
		ok = c.takeImport(m, s, offset)
	} else {
		ok = c.takeExport(m, s, offset)
	}
	if !ok && len(c.problems) == before {
		c.report(m.place(min(s.at, len(m.blanked))), "script.syntax", "this is no "+m.blanked[offset:offset+len("import")], `write import { name } from "./file.js", and export before a declaration`)
	}
	return ok
}

func (c *compilation) takeImport(m *module, s *clauseScanner, offset int) bool {
	s.skip()
	if s.is('(') || s.is('.') {
		c.report(m.place(offset), "script.import", "import stands only as a declaration at the top of a file", `write import { name } from "./file.js" there`)
		return false
	}
	clause := &clause{at: offset}
	ok := true
	if !s.is('"') && !s.is('\'') {
		at := s.at
		if name := s.word(); name != "" {
			clause.names = append(clause.names, clauseName{"default", name, at})
			s.skip()
			if s.is(',') {
				s.at++
				s.skip()
				ok = s.star(clause) || s.list(clause)
			}
		} else {
			ok = s.star(clause) || s.list(clause)
		}
		s.skip()
		ok = ok && s.keyword("from")
		s.skip()
	}
	if !ok || !s.specifier(clause) {
		return false
	}
	for _, n := range clause.names {
		if keyword, _ := token.IsKeyword(n.as); keyword != 0 {
			c.report(m.place(n.at), "script.syntax", n.as+" is no name that can be declared", "write import { "+n.name+" as name }")
			return false
		}
	}
	return c.end(m, s, clause, markImport)
}

func (c *compilation) takeExport(m *module, s *clauseScanner, offset int) bool {
	s.skip()
	at := s.at
	switch word := s.word(); {
	case word == "default":
		s.skip()
		mark := markExpression
		if s.namesDeclaration() {
			mark = markDefault
		}
		m.blank(offset, offset+len("export"), mark)
		with := "       "
		if mark == markExpression {
			with = "[].e  =" // as long as default; the tree has the declaration in its place
		}
		m.blanked = m.blanked[:at] + with + m.blanked[at+len(with):]
		return true
	case word == "function" || word == "async" || word == "class" || word == "const" || word == "let" || word == "var":
		m.blank(offset, offset+len("export"), markDeclaration)
		return true
	case word != "":
		s.at = at
		return false
	}
	clause := &clause{at: offset, exports: true}
	if s.is('*') {
		clause.names = append(clause.names, clauseName{"*", "", s.at})
		s.at++
		s.skip()
		if s.keyword("as") {
			s.skip()
			clause.names[0].as = s.word()
			s.skip()
		}
		if !s.keyword("from") {
			return false
		}
		s.skip()
		return s.specifier(clause) && c.end(m, s, clause, markClause)
	}
	if !s.list(clause) {
		return false
	}
	back := s.at
	s.skip()
	if s.keyword("from") {
		s.skip()
		return s.specifier(clause) && c.end(m, s, clause, markClause)
	}
	s.at = back
	return c.end(m, s, clause, markClause)
}

func (c *compilation) end(m *module, s *clauseScanner, clause *clause, mark string) bool {
	m.clauses = append(m.clauses, clause)
	m.blank(clause.at, s.at, mark)
	return true
}

// clauseScanner reads what stands between import or export and the end of its declaration.
type clauseScanner struct {
	text string
	at   int
}

func (s *clauseScanner) is(c byte) bool { return s.at < len(s.text) && s.text[s.at] == c }

// skip passes over white space and comments.
func (s *clauseScanner) skip() {
	for s.at < len(s.text) {
		rest := s.text[s.at:]
		r, size := utf8.DecodeRuneInString(rest)
		switch {
		case unicode.IsSpace(r) || r == '\uFEFF':
			s.at += size
		case strings.HasPrefix(rest, "//"):
			if n := strings.IndexAny(rest, "\n\r\u2028\u2029"); n >= 0 {
				s.at += n
			} else {
				s.at = len(s.text)
			}
		case strings.HasPrefix(rest, "/*"):
			n := strings.Index(rest[2:], "*/")
			if n < 0 {
				s.at = len(s.text)
				return
			}
			s.at += 2 + n + 2
		default:
			return
		}
	}
}

// word is the identifier or keyword that comes next, or "".
func (s *clauseScanner) word() string {
	from := s.at
	for i, r := range s.text[from:] {
		if r != '_' && r != '$' && !unicode.IsLetter(r) && (i == 0 || !unicode.IsDigit(r)) {
			return s.text[from:s.at]
		}
		s.at += utf8.RuneLen(r)
	}
	return s.text[from:s.at]
}

// keyword passes over a word if it comes next.
func (s *clauseScanner) keyword(word string) bool {
	from := s.at
	if s.word() == word {
		return true
	}
	s.at = from
	return false
}

// star reads * as name.
func (s *clauseScanner) star(c *clause) bool {
	if !s.is('*') {
		return false
	}
	s.at++
	s.skip()
	if !s.keyword("as") {
		return false
	}
	s.skip()
	at := s.at
	name := s.word()
	c.names = append(c.names, clauseName{"*", name, at})
	return name != ""
}

// list reads { name, name as other }.
func (s *clauseScanner) list(c *clause) bool {
	if !s.is('{') {
		return false
	}
	s.at++
	for {
		s.skip()
		if s.is('}') {
			s.at++
			return true
		}
		n := clauseName{at: s.at}
		n.name = s.word()
		n.as = n.name
		s.skip()
		if s.keyword("as") {
			s.skip()
			n.as = s.word()
			s.skip()
		}
		if n.name == "" || n.as == "" {
			return false
		}
		c.names = append(c.names, n)
		if s.is(',') {
			s.at++
		} else if !s.is('}') {
			return false
		}
	}
}

// specifier reads the text that says which file.
func (s *clauseScanner) specifier(c *clause) bool {
	if !s.is('"') && !s.is('\'') {
		return false
	}
	quote := s.text[s.at]
	n := strings.IndexAny(s.text[s.at+1:], string(quote)+"\\\n")
	if n < 0 || s.text[s.at+1+n] != quote {
		return false
	}
	c.fromAt = s.at
	c.from = s.text[s.at+1 : s.at+1+n]
	s.at += n + 2
	c.fromTo = s.at
	return true
}

// namesDeclaration tells whether a function or class with a name comes next.
func (s *clauseScanner) namesDeclaration() bool {
	next := *s
	word := next.word()
	next.skip()
	if word == "async" {
		word = next.word()
		next.skip()
	}
	if word != "function" && word != "class" {
		return false
	}
	if word == "function" && next.is('*') {
		next.at++
		next.skip()
	}
	name := next.word()
	return name != "" && !(word == "class" && name == "extends")
}

// note finds in the tree what a module declares and exports.
func (c *compilation) note(m *module, program *ast.Program) {
	top := map[int]bool{}
	for i, s := range program.Body {
		for _, name := range declared(s) {
			m.declared[name] = true
		}
		if isHelper(s) {
			m.helpers[s.(*ast.FunctionDeclaration).Function.Name.Name.String()] = true
		}
		empty, ok := s.(*ast.EmptyStatement)
		if !ok {
			continue
		}
		mark, ok := m.marks[int(empty.Semicolon)-1]
		if !ok || i > 0 && endsInEmpty(program.Body[i-1], empty.Semicolon-1) {
			continue
		}
		top[int(empty.Semicolon)-1] = true
		if i+1 == len(program.Body) {
			continue
		}
		switch mark {
		case markDeclaration:
			for _, name := range declared(program.Body[i+1]) {
				m.exported[name] = export{local: name}
			}
		case markDefault:
			for _, name := range declared(program.Body[i+1]) {
				m.exported["default"] = export{local: name}
			}
		case markExpression:
			m.declared[nameDefault] = true
			m.exported["default"] = export{local: nameDefault}
		}
	}
	for at, mark := range m.marks {
		if !top[at] {
			word := "export"
			if mark == markImport {
				word = "import"
			}
			c.report(m.place(at+1-len(word)), "script.import", word+" stands only at the top of a file", "move it out of what is around it")
		}
	}
}

// endsInEmpty tells whether a statement holds as its last part an empty one: as `if (x) import …` does.
func endsInEmpty(s ast.Statement, at file.Idx) bool {
	for first := true; ; first = false {
		switch inner := s.(type) {
		case *ast.EmptyStatement:
			return !first && inner.Semicolon == at
		case *ast.IfStatement:
			if s = inner.Consequent; inner.Alternate != nil {
				s = inner.Alternate
			}
		case *ast.ForStatement:
			s = inner.Body
		case *ast.ForInStatement:
			s = inner.Body
		case *ast.ForOfStatement:
			s = inner.Body
		case *ast.WhileStatement:
			s = inner.Body
		case *ast.LabelledStatement:
			s = inner.Statement
		default:
			return false
		}
	}
}

// declareDefault puts the declaration of default in the place of what an anonymous default export was parsed as.
func (m *module) declareDefault(list []ast.Statement, start int) {
	for i, s := range list {
		empty, ok := s.(*ast.EmptyStatement)
		if !ok || m.marks[int(empty.Semicolon)-1-start] != markExpression || i+1 == len(list) {
			continue
		}
		if e, ok := list[i+1].(*ast.ExpressionStatement); ok {
			if a, ok := e.Expression.(*ast.AssignExpression); ok {
				list[i+1] = constant(nameDefault, empty.Semicolon, a.Right)
			}
		}
	}
}
