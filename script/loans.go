package script

import (
	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/token"
)

// A body that only reads and writes members of msg.value, spreads it or yields it as a State cannot get hold of the object
// itself, and so cannot tell whether the next record has another. Then one object serves all records (values.again). The same
// goes for state.
//
//  1. Every use is counted where the name is resolved; lends counts those that are known to let go of the object. Where the
//     two counts are equal, and calls do not overlap, nobody holds it.
//  2. What a function inside the body does may run later, so it counts as a hold.
//  3. msg.value and msg.key are arguments of their own in a body that uses nothing else of msg (part). A constant at the
//     beginning of a body that stands for msg.value is as good as msg.value (findAliases).

// loans counts uses of msg.value and of state.
type loans struct{ value, state int }

// add counts one use of msg.value, or else of state.
func (l *loans) add(value bool) {
	if value {
		l.value++
	} else {
		l.state++
	}
}

// lends is called with an expression whose value is let go of once it was read, written or copied.
func (r *rewriter) lends(e ast.Expression) {
	if id, value := r.argument(e); id != nil && r.body {
		r.lent.add(value)
	}
}

// receiver is called with what is called: a method gets hold of the object that it is called on.
func (r *rewriter) receiver(e ast.Expression) {
	var on ast.Expression
	switch e := e.(type) {
	case *ast.Optional:
		r.receiver(e.Expression)
	case *ast.OptionalChain:
		r.receiver(e.Expression)
	case *ast.DotExpression:
		on = e.Left
	case *ast.BracketExpression:
		on = e.Left
	}
	if o, ok := on.(*ast.Optional); ok {
		on = o.Expression
	}
	if id, value := r.argument(on); id != nil {
		r.uses.add(value)
	}
}

// argument tells whether e is msg.value or state.
func (r *rewriter) argument(e ast.Expression) (id *ast.Identifier, value bool) {
	if dot, ok := e.(*ast.DotExpression); ok && dot.Identifier.Name == "value" {
		if id, ok := dot.Left.(*ast.Identifier); ok {
			if b, ok := r.look(id.Name.String()); ok && b == given {
				return id, true
			}
		}
		return nil, false
	}
	if id, ok := e.(*ast.Identifier); ok {
		switch b, ok := r.look(id.Name.String()); {
		case ok && b == state:
			return id, false
		case ok && b == aliased:
			return id, true
		}
	}
	return nil, false
}

// part is what stands in place of a read of msg.value or msg.key.
func (r *rewriter) part(e *ast.DotExpression) ast.Expression {
	id, ok := e.Left.(*ast.Identifier)
	if !ok || !r.flat {
		return nil
	}
	if b, ok := r.look(id.Name.String()); !ok || b != given {
		return nil
	}
	switch e.Identifier.Name {
	case "value":
		r.value = true
		r.uses.value++
		return identifier(nameValue, id.Idx)
	case "key":
		r.key = true
		return identifier(nameKey, id.Idx)
	}
	return nil
}

// findAliases finds the constants at the beginning of a body that stand for msg.value: const v = msg.value, and
// const { value } = msg, which it writes out. They are used as msg.value is. No function may stand before them, which
// could name them before they have a value.
func (r *rewriter) findAliases(body []ast.Statement) {
	for _, s := range body {
		d, ok := s.(*ast.LexicalDeclaration)
		if !ok {
			return
		}
		var list []*ast.Binding
		for _, b := range d.List {
			list = append(list, r.writtenOut(b)...)
		}
		d.List = list
		for _, b := range d.List {
			if !isPure(b.Initializer) {
				return
			}
			dot, ok := b.Initializer.(*ast.DotExpression)
			if _, named := b.Target.(*ast.Identifier); !named || !ok || d.Token != token.CONST {
				continue
			}
			if id, value := r.argument(dot); id != nil && value {
				if r.aliases == nil {
					r.aliases = map[*ast.Binding]bool{}
				}
				r.aliases[b] = true
			}
		}
	}
}

// writtenOut is const { value, key } = msg as two bindings, and any other binding as it is.
func (r *rewriter) writtenOut(b *ast.Binding) []*ast.Binding {
	pattern, ok := b.Target.(*ast.ObjectPattern)
	id, named := b.Initializer.(*ast.Identifier)
	if !ok || !named || pattern.Rest != nil || len(pattern.Properties) == 0 {
		return []*ast.Binding{b}
	}
	if of, ok := r.look(id.Name.String()); !ok || of != given {
		return []*ast.Binding{b}
	}
	var list []*ast.Binding
	for _, p := range pattern.Properties {
		name, local, ok := plainPart(p)
		if !ok || name != "value" && name != "key" {
			return []*ast.Binding{b}
		}
		at := p.Idx0()
		list = append(list, &ast.Binding{
			Target:      identifier(local, at),
			Initializer: &ast.DotExpression{Left: identifier(id.Name.String(), at), Identifier: *identifier(name, at)},
		})
	}
	return list
}
