package script

import (
	"math/big"
	"strconv"

	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/file"
	"github.com/dop251/goja/token"
	"github.com/dop251/goja/unistring"
)

// The generated names. No script can write them.
const (
	nameValue    = "@value" // msg.value and msg.key, where the body reads nothing else of msg
	nameKey      = "@key"
	nameYield    = "@yield"
	nameKeep     = "@keep"
	nameOver     = "@over"
	nameReturned = "@returned"
	nameAwait    = "@await"
	nameAnswer   = "@answer"
	nameReady    = "@ready"
	nameSettled  = "@settled"
	nameMemo     = "@memo"
	nameExecutor = "@executor"
	nameThrown   = "@thrown"
	nameBounded  = "@bounded"
	namePass     = "@pass"
	nameSnap     = "@snap"
	nameFreeze   = "@freeze"
	nameFormulas = "@formulas"
	nameRun      = "@run"    // one for each run of actions, with its number
	nameModule   = "@module" // one for each file that is imported, with its number
	nameCaught   = "@caught"
	nameHere     = "@here"
	nameObject   = "@object" // one for each object shape, with its number
	nameEmit     = "@emit"   // one for each message shape, with its number
)

// call is a generated call of a native function. at is the place that errors in it are shown at.
func call(name string, at file.Idx, args ...ast.Expression) *ast.CallExpression {
	return &ast.CallExpression{
		Callee:           identifier(name, at),
		LeftParenthesis:  at,
		ArgumentList:     args,
		RightParenthesis: at,
	}
}

func identifier(name string, at file.Idx) *ast.Identifier {
	return &ast.Identifier{Name: unistring.NewFromString(name), Idx: at}
}

func stringLiteral(text string, at file.Idx) *ast.StringLiteral {
	return &ast.StringLiteral{Idx: at, Value: unistring.NewFromString(text)}
}

func integer(n int, at file.Idx) *ast.NumberLiteral {
	return &ast.NumberLiteral{Idx: at, Literal: strconv.Itoa(n), Value: int64(n)}
}

// site is a place in the joined text, for native functions that must tell where they were called without a look at the stack.
func site(at file.Idx) ast.Expression {
	return integer(int(at)-1, at)
}

// mayBeLarge tells whether an operator may make a BigInt of any size. A literal number shifts by little.
func mayBeLarge(operator token.Token, by ast.Expression) bool {
	if operator != token.EXPONENT && operator != token.SHIFT_LEFT {
		return false
	}
	n, ok := by.(*ast.NumberLiteral)
	if !ok {
		return true
	}
	_, big := n.Value.(*big.Int)
	return big
}

// bounded is an operator as a call that looks at its operands first.
func bounded(at file.Idx, operator token.Token, left, right ast.Expression) ast.Expression {
	return call(nameBounded, at, stringLiteral(operator.String(), at), left, right)
}

// unfolded is a condition that goja's compiler does not work out. It stumbles over names in what it then knows never to run
// ("compiler bug: Unsupported instruction for binding").
func unfolded(test ast.Expression) ast.Expression {
	if !isConstant(test) {
		return test
	}
	return anchored(test)
}

// unfoldedLoop is the condition of a loop likewise. One that is simply true leaves nothing out.
func unfoldedLoop(test ast.Expression) ast.Expression {
	if yes, ok := test.(*ast.BooleanLiteral); ok && yes.Value {
		return test
	}
	return unfolded(test)
}

// isConstant tells whether an expression is made of literals alone.
func isConstant(e ast.Expression) bool {
	switch e := e.(type) {
	case *ast.UnaryExpression:
		return isConstant(e.Operand)
	case *ast.BinaryExpression:
		return isConstant(e.Left) // && and || are constant by their left side alone
	default:
		return isLiteral(e)
	}
}

// constant declares a name.
func constant(name string, at file.Idx, value ast.Expression) ast.Statement {
	return declaration(token.CONST, identifier(name, at), at, value)
}

// declaration declares what target names, with const or let. Without a value it is undefined.
func declaration(word token.Token, target ast.BindingTarget, at file.Idx, value ast.Expression) ast.Statement {
	return &ast.LexicalDeclaration{Idx: at, Token: word, List: []*ast.Binding{{Target: target, Initializer: value}}}
}

func undefined(at file.Idx) ast.Expression {
	return &ast.UnaryExpression{Operator: token.VOID, Idx: at, Operand: integer(0, at)}
}
