package expr

import (
	"fmt"
	"slices"

	"github.com/expr-lang/expr/ast"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

// array compiles a list literal.
func (c *compiler) array(n *ast.ArrayNode, pos int) node {
	if !c.nest(pos) {
		return constant(Value{}, pos)
	}
	defer func() { c.nesting-- }()
	items := make([]node, len(n.Nodes))
	for i := range n.Nodes {
		items[i] = c.node(n.Nodes[i])
	}
	if c.err != nil {
		return constant(Value{}, pos)
	}
	return c.listOf(items, pos)
}

// mapLiteral compiles {name: expression, …}.
func (c *compiler) mapLiteral(n *ast.MapNode, pos int) node {
	if !c.nest(pos) {
		return constant(Value{}, pos)
	}
	defer func() { c.nesting-- }()
	names := make([]string, len(n.Pairs))
	items := make([]node, len(n.Pairs))
	for i, p := range n.Pairs {
		pair := p.(*ast.PairNode)
		key := c.node(pair.Key)
		items[i] = c.node(pair.Value)
		if c.err != nil {
			return constant(Value{}, pos)
		}
		if !key.constant || key.value.kind != kText {
			return c.errorAt(key.pos, CodeNotSupported, "a computed name in a map is not supported", "fromPairs([[name, value]]) makes such a map")
		}
		names[i] = key.value.str
		if slices.Contains(names[:i], names[i]) {
			return c.errorAt(key.pos, CodeSyntax, fmt.Sprintf("%q stands twice in the map", names[i]), "")
		}
	}
	return c.mapOf(names, items, pos)
}

// maxNesting is how deep lists and maps may be written into each other.
const maxNesting = 100

func (c *compiler) nest(pos int) bool {
	if c.nesting++; c.nesting > maxNesting {
		c.errorAt(pos, CodeTooLarge, fmt.Sprintf("lists and maps nested deeper than %d", maxNesting), "")
		return false
	}
	return true
}

// listOf is a list of nodes; as JSON it is written without being made.
func (c *compiler) listOf(items []node, pos int) node {
	r := node{pos: pos, types: tList}
	r.eval = func(env *Env) Value {
		if !env.spend(costVisit * (1 + len(items))) {
			return Value{}
		}
		list := make([]Value, len(items))
		for i := range items {
			list[i] = items[i].eval(env)
		}
		return env.list(list, pos)
	}
	r.json = func(dst []byte, env *Env) []byte {
		dst = append(dst, '[')
		for i := range items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = items[i].json(dst, env)
		}
		return append(dst, ']')
	}
	return c.pure(r, items...)
}

// mapOf is a map of nodes; as JSON it is written without being made.
func (c *compiler) mapOf(names []string, items []node, pos int) node {
	r := node{pos: pos, types: tMap}
	r.eval = func(env *Env) Value {
		if !env.spend(costVisit * (1 + len(items))) {
			return Value{}
		}
		values := make([]Value, len(items))
		for i := range items {
			values[i] = items[i].eval(env)
		}
		return env.mapOf(names, values, pos)
	}
	heads := make([]string, len(names))
	for i, name := range names {
		head := ","
		if i == 0 {
			head = "{"
		}
		heads[i] = string(appendName([]byte(head), name))
	}
	r.json = func(dst []byte, env *Env) []byte {
		if len(items) == 0 {
			return append(dst, "{}"...)
		}
		for i := range items {
			dst = append(dst, heads[i]...)
			dst = items[i].json(dst, env)
		}
		return append(dst, '}')
	}
	return c.pure(r, items...)
}

// maxDepth is how deep lists and maps that an expression makes may nest.
const maxDepth = rawjson.MaxDepth

func (env *Env) list(items []Value, pos int) Value {
	return env.boxed(Value{kind: kList, box: &box{items: items}}, pos)
}

func (env *Env) mapOf(names []string, items []Value, pos int) Value {
	if names == nil {
		names = []string{}
	}
	return env.boxed(Value{kind: kMap, box: &box{names: names, items: items}}, pos)
}

func (env *Env) boxed(v Value, pos int) Value {
	depth := 0
	for i := range v.box.items {
		if b := v.box.items[i].box; b != nil {
			depth = max(depth, b.depth)
		}
	}
	if v.box.depth = depth + 1; depth >= maxDepth {
		return env.fail(pos, CodeBudget, fmt.Sprintf("lists and maps nested deeper than %d", maxDepth))
	}
	return v
}
