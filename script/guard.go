package script

import (
	"slices"

	"github.com/dop251/goja/ast"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// Most records of many streams are let pass: if (msg.value.temperature > 85) { … } around the whole body, or
// if (msg.value.status !== 'ok') return; at its beginning. Where such conditions are formulas, they are worked out before the body
// is called, and a record that the body would do nothing with is never shown to it.
//
//	const v = msg.value;              names what is looked at; what it says is worked out, too, since it could throw
//	if (v.kind !== 'reading') return; ends the body where it is true
//	if (v.temperature > 85) { … }     has to be followed by nothing else that does anything
//
// Whatever a formula does not know, and whatever stands between or behind, is left to the body.

// guard is the beginning of a body, up to the first statement that is not understood.
type guard struct {
	steps []step
	// open says that what follows does something, so that a record which no step ends goes to the body.
	open bool
}

// step is one condition. Where it is nil, or true and ends is not set, the body is called.
type step struct {
	condition formula
	ends      bool // the body ends where the condition is true
	looks     bool // the condition is worked out for what it throws
}

// passes tells whether the body would do nothing with what c looks at.
func (g *guard) passes(c *calculation) bool {
	for i := range g.steps {
		s := &g.steps[i]
		if s.condition == nil {
			return false
		}
		switch o := s.condition(c); {
		case o.kind == isUnknown:
			return false
		case s.looks || !o.truth():
		default:
			return s.ends
		}
	}
	return !g.open
}

// guard reads the beginning of a body, or answers nil if nothing can be told from it.
func (r *rewriter) guard(body []ast.Statement) *guard {
	f := &formulas{rewriter: r, aliases: map[string]formula{}, guard: true}
	g := &guard{}
	for _, s := range body {
		understood := false
		switch s := s.(type) {
		case *ast.EmptyStatement, *ast.FunctionDeclaration:
			understood = true
		case *ast.LexicalDeclaration:
			understood = g.names(f, s)
		case *ast.IfStatement:
			understood = g.condition(f, s)
		}
		if !understood {
			g.open = true
			break
		}
	}
	if g.open && !slices.ContainsFunc(g.steps, func(s step) bool { return s.ends }) {
		return nil
	}
	return g
}

// names reads a declaration.
func (g *guard) names(f *formulas, d *ast.LexicalDeclaration) bool {
	for _, b := range d.List {
		switch target := b.Target.(type) {
		case *ast.Identifier:
			if f.isValue(b.Initializer) {
				f.aliases[target.Name.String()] = nil
				continue
			}
			value := f.of(b.Initializer)
			if value == nil {
				return false
			}
			f.aliases[target.Name.String()] = value
			g.steps = append(g.steps, step{condition: value, looks: true})
		case *ast.ObjectPattern:
			if !f.isValue(b.Initializer) || target.Rest != nil {
				return false
			}
			for _, p := range target.Properties {
				name, local, ok := plainPart(p)
				if !ok {
					return false
				}
				value := f.dot(b.Initializer, name)
				if value == nil {
					return false
				}
				f.aliases[local] = value
			}
		default:
			return false
		}
	}
	return true
}

// plainPart is what a pattern takes from where: { name } or { name: local }.
func plainPart(p ast.Property) (name, local string, ok bool) {
	switch p := p.(type) {
	case *ast.PropertyShort:
		name = p.Name.Name.String()
		return name, name, p.Initializer == nil
	case *ast.PropertyKeyed:
		key, isString := p.Key.(*ast.StringLiteral)
		id, isName := p.Value.(*ast.Identifier)
		if isString && isName && !p.Computed {
			return key.Value.String(), id.Name.String(), true
		}
	}
	return "", "", false
}

// condition reads an if with all that hangs on it.
func (g *guard) condition(f *formulas, s *ast.IfStatement) bool {
	for {
		test := f.of(s.Test)
		if test == nil {
			return false
		}
		g.steps = append(g.steps, step{condition: test, ends: isReturn(s.Consequent)})
		switch next := s.Alternate.(type) {
		case nil:
			return true
		case *ast.IfStatement:
			s = next
		default:
			g.steps = append(g.steps, step{})
			return true
		}
	}
}

// isReturn tells whether a statement is a return of nothing.
func isReturn(s ast.Statement) bool {
	if block, ok := s.(*ast.BlockStatement); ok && len(block.List) == 1 {
		s = block.List[0]
	}
	ret, ok := s.(*ast.ReturnStatement)
	return ok && ret.Argument == nil
}

// glance looks at a record before the body does.
type glance struct {
	calculation
	lazy lazy
	text text
}

// at tells whether the body would do nothing with a record.
func (l *glance) at(g *guard, record *stream.Record) bool {
	if record.Kind != rawjson.Object || record.Input.Value != stream.JSON {
		return false
	}
	l.text = text{raw: record.Value, members: record.Members, shape: record.Shape, scanned: true}
	l.lazy.text, l.value, l.record = &l.text, &l.lazy, record
	return g.passes(&l.calculation)
}

// passes tells whether the body would do nothing with a record.
func (v *vm) passes(record *stream.Record) bool {
	g := v.program.guard
	return g != nil && !v.values.plain && v.relaying == nil && v.glance.at(g, record)
}
