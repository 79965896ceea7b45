package script

import (
	"math/big"

	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/file"
	"github.com/dop251/goja/token"
)

// Goja notes places for most instructions, but for literals, jumps and what takes patterns apart it does not: an error in these,
// and a loop that is made of them, would be shown where the instruction before them comes from. So what begins with such an
// instruction has an anchor before it: the name of a variable of the outermost function. To read that and let it go is no
// instruction at all, but goja notes the place of the name.

// anchor makes what follows stand at a place.
func anchor(at file.Idx) *ast.Identifier { return identifier(nameHere, at) }

// anchored is an expression behind an anchor. Goja's compiler does not work it out.
func anchored(e ast.Expression) ast.Expression {
	return &ast.SequenceExpression{Sequence: []ast.Expression{anchor(e.Idx0()), e}}
}

// anchoredLiteral is a literal that is used where it may be wrong, and any other expression as it is.
func anchoredLiteral(e ast.Expression) ast.Expression {
	if isLiteral(e) {
		return anchored(e)
	}
	return e
}

// declareAnchor declares the variable of anchors.
func declareAnchor(outer *ast.FunctionLiteral) {
	outer.DeclarationList = append(outer.DeclarationList, &ast.VariableDeclaration{List: []*ast.Binding{{Target: anchor(outer.Function)}}})
}

// mayThrow tells whether an operation on literals may throw, which goja's compiler finds out. Those in it are anchored already.
func mayThrow(e ast.Expression) bool {
	switch e := e.(type) {
	case *ast.UnaryExpression:
		return e.Operator == token.PLUS && isBig(e.Operand)
	case *ast.BinaryExpression:
		return isConstant(e) && (e.Operator == token.IN || e.Operator == token.INSTANCEOF || isBig(e))
	}
	return false
}

// isBig tells whether an operation on literals has a BigInt among them.
func isBig(e ast.Expression) bool {
	switch e := e.(type) {
	case *ast.NumberLiteral:
		_, is := e.Value.(*big.Int)
		return is
	case *ast.UnaryExpression:
		return isBig(e.Operand)
	case *ast.BinaryExpression:
		return isBig(e.Left) || isBig(e.Right)
	}
	return false
}

// anchorOf is the anchor of a statement, or nil if it needs none.
func anchorOf(s ast.Statement) ast.Statement {
	switch e := s.(type) {
	case *ast.FunctionDeclaration, *ast.EmptyStatement, *ast.BlockStatement:
		return nil
	case *ast.LabelledStatement:
		return anchorOf(e.Statement)
	case *ast.ExpressionStatement:
		if _, directive := e.Expression.(*ast.StringLiteral); directive {
			return nil
		}
	}
	return &ast.ExpressionStatement{Expression: anchor(s.Idx0())}
}

// statements walks a list of statements and answers what stands in its place.
func (r *rewriter) statements(list []ast.Statement) []ast.Statement {
	anchoredList := make([]ast.Statement, 0, 2*len(list))
	for _, s := range list {
		if a := anchorOf(s); a != nil {
			anchoredList = append(anchoredList, a)
		}
		anchoredList = append(anchoredList, r.statement(s))
	}
	return anchoredList
}

// nested walks a statement that stands alone where a block could stand.
func (r *rewriter) nested(s ast.Statement) ast.Statement {
	a := anchorOf(s)
	if s = r.statement(s); a == nil {
		return s
	}
	return &ast.BlockStatement{LeftBrace: a.Idx0(), List: []ast.Statement{a, s}, RightBrace: a.Idx0()}
}

// firstPattern is the place of a function's first parameter that is a pattern, or otherwise at. Goja takes patterns apart at the
// place of the function.
func firstPattern(list *ast.ParameterList, at file.Idx) file.Idx {
	if list == nil {
		return at
	}
	for _, b := range list.List {
		if pattern, ok := b.Target.(ast.Pattern); ok {
			return pattern.Idx0()
		}
	}
	return at
}

// member is the member of an object that is called or counted up, by the place that goja shows when there is no such object:
// that of the object.
type member struct {
	name string
	at   int // an offset of the joined text
}

// noteMember notes a member expression whose object goja looks at before it notes the place of the member.
func (r *rewriter) noteMember(e ast.Expression) {
	switch chain := e.(type) {
	case *ast.Optional:
		e = chain.Expression
	case *ast.OptionalChain:
		e = chain.Expression
	}
	dot, ok := e.(*ast.DotExpression)
	if !ok {
		return
	}
	if at := lastPlace(dot.Left); at > 0 {
		if r.program.members == nil {
			r.program.members = map[int]member{}
		}
		r.program.members[int(at)-1] = member{dot.Identifier.Name.String(), int(dot.Identifier.Idx) - 1}
	}
}

// lastPlace is the place that goja notes last for an expression, or 0 if it cannot be told.
func lastPlace(e ast.Expression) file.Idx {
	switch e := e.(type) {
	case *ast.Identifier:
		return e.Idx
	case *ast.ThisExpression:
		return e.Idx
	case *ast.DotExpression:
		return e.Identifier.Idx
	case *ast.PrivateDotExpression:
		return e.Identifier.Idx
	case *ast.BracketExpression:
		return e.LeftBracket
	case *ast.CallExpression:
		return e.LeftParenthesis
	case *ast.NewExpression:
		return e.New
	case *ast.Optional:
		return lastPlace(e.Expression)
	case *ast.OptionalChain:
		return lastPlace(e.Expression)
	case *ast.AwaitExpression:
		return lastPlace(e.Argument)
	case *ast.ConditionalExpression:
		return lastPlace(e.Alternate)
	}
	return 0
}
