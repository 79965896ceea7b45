package expr

import (
	"fmt"
	"slices"
)

// TreeKind is what a Tree is.
type TreeKind uint8

// The kinds of trees.
const (
	Leaf TreeKind = iota // an expression
	Map
	List
)

// Tree is a structure of expressions as it stands in the pipeline file, with its order.
type Tree struct {
	Kind  TreeKind
	Text  string   // of a Leaf: the expression's text
	Names []string // of a Map: the names of its Items
	Items []*Tree
	// Ref is the caller's own mark of where the tree stands; this package does not look at it.
	Ref any
}

// TreeError is an Error and the tree that it is in. Its place is in the Text of a Leaf; otherwise it is about the whole tree.
type TreeError struct {
	Tree *Tree
	Err  *Error
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
