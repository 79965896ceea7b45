package expr

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// rootNames are the names that scopes are made of.
var rootNames = map[string]struct {
	types types
	eval  func(*Env) Value
}{
	"key":        {tAny, func(env *Env) Value { return formatted(env.Key, env.KeyFormat) }},
	"value":      {tAny, func(env *Env) Value { return formatted(env.Value, env.ValueFormat) }},
	"headers":    {tMap, (*Env).headers},
	"levels":     {tList, (*Env).levels},
	"qos":        {tNumber, func(env *Env) Value { return intValue(int64(env.QoS)) }},
	"retained":   {tBool, func(env *Env) Value { return boolValue(env.Retained) }},
	"properties": {tMap, func(env *Env) Value { return env.pairs(env.Properties) }},
	"timestamp":  {tNumber, func(env *Env) Value { return intValue(env.Timestamp) }},
	"topic":      {tText, func(env *Env) Value { return textValue(env.Topic) }},
	"partition":  {tNumber, func(env *Env) Value { return intValue(int64(env.Partition)) }},
	"offset":     {tNumber, func(env *Env) Value { return intValue(env.Offset) }},
	"vars":       {tAny, func(env *Env) Value { return env.Vars.root }},
	"config":     {tAny, func(env *Env) Value { return env.Config.root }},
	"state":      {tAny, func(env *Env) Value { return env.State.root }},
	"now":        {tNumber, func(env *Env) Value { return intValue(env.Now) }},
	"body":       {tAny, func(env *Env) Value { return env.Body.root }},
	"status":     {tNumber, func(env *Env) Value { return intValue(int64(env.Status)) }},
	"item":       {tAny, func(env *Env) Value { return formatted(env.Value, env.ValueFormat) }},
	"index":      {tNumber, func(env *Env) Value { return intValue(env.Index) }},
	"page":       {tMap, (*Env).page},
}

// formatted is the value of the bytes of a key or a value.
func formatted(b []byte, format Format) Value {
	if b == nil {
		return Value{}
	}
	switch format {
	case Text:
		return textValue(rawjson.View(b))
	case Bytes:
		return bytesValue(b)
	default:
		return rawRoot(b)
	}
}

// docs are the documents of an Env, whose members are found without a walk over the text.
var docs = map[string]func(*Env) *Doc{
	"vars":   func(env *Env) *Doc { return &env.Vars },
	"config": func(env *Env) *Doc { return &env.Config },
	"state":  func(env *Env) *Doc { return &env.State },
	"body":   func(env *Env) *Doc { return &env.Body },
}

func (env *Env) page() Value {
	return Value{kind: kMap, box: &box{
		names: []string{"first", "last", "count"},
		items: []Value{env.Page.First.root, env.Page.Last.root, intValue(env.Page.Count)},
	}}
}

func (env *Env) levels() Value {
	items := make([]Value, len(env.Levels))
	for i, level := range env.Levels {
		items[i] = textValue(level)
	}
	return listValue(items)
}

func (env *Env) headers() Value { return env.pairs(env.Headers) }

// pairs is the map of all headers or properties; of those with one name the last counts.
func (env *Env) pairs(walk iter.Seq2[string, []byte]) Value {
	b := &box{names: []string{}}
	if walk != nil {
		for name, value := range walk {
			if !env.spend(costVisit + len(name)) {
				break
			}
			v := headerValue(value)
			if i := slices.Index(b.names, name); i >= 0 {
				b.items[i] = v
				continue
			}
			b.names, b.items = append(b.names, name), append(b.items, v)
		}
	}
	return Value{kind: kMap, box: b}
}

func headerValue(value []byte) Value {
	if value == nil {
		return Value{}
	}
	return textValue(rawjson.View(value))
}

// header is one header.
func (env *Env) header(name string) (v Value) {
	if env.Headers != nil {
		for n, value := range env.Headers {
			if n == name || env.FoldHeaders && strings.EqualFold(n, name) {
				v = headerValue(value)
			}
		}
	}
	return v
}

func (c *compiler) name(n *ast.IdentifierNode, pos int) node {
	name := n.Value
	for i := len(c.locals) - 1; i >= 0; i-- {
		if l := c.locals[i]; l.name == name {
			slot := l.slot
			return finish(node{eval: func(env *Env) Value { return env.locals[slot] }, pos: pos, types: l.types})
		}
	}
	if name == "null" {
		return constant(Value{}, pos)
	}
	if slices.Contains(c.scope.names, name) {
		defer c.read(n)()
		root := rootNames[name]
		r := node{eval: root.eval, pos: pos, types: root.types, isHeaders: name == "headers"}
		if name == "value" || name == "item" {
			r.path = []string{}
		}
		return finish(r)
	}
	if name == "$env" {
		return c.errorAt(pos, CodeNotSupported, "$env is not supported", "in scope: "+list(c.scope.names))
	}
	if _, ok := functions[name]; ok || predicates[name] {
		return c.errorAt(pos, CodeUnknownName, fmt.Sprintf("%s is a function and is called with ( )", name), "")
	}
	return c.errorAt(pos, CodeUnknownName, fmt.Sprintf("unknown name %q", name), hintForName(name, c.scope.names))
}

// root is the name of a scope that n is, unless a local hides it, or "".
func (c *compiler) root(n ast.Node) string {
	if id, ok := n.(*ast.IdentifierNode); ok && slices.Contains(c.scope.names, id.Value) && !c.isLocal(id.Value) {
		return id.Value
	}
	return ""
}

func (c *compiler) isLocal(name string) bool {
	return slices.ContainsFunc(c.locals, func(l local) bool { return l.name == name })
}

func (c *compiler) member(n *ast.MemberNode, pos int) node {
	defer c.read(n)()
	name, named := n.Property.(*ast.StringNode)
	if id, ok := n.Node.(*ast.IdentifierNode); ok && named && namespaces[id.Value] && c.root(id) == "" && !c.isLocal(id.Value) {
		return c.errorAt(pos, CodeUnknownName, fmt.Sprintf("%s.%s is no value", id.Value, name.Value), "its functions are called with ( )")
	}
	if named {
		root, at := c.root(n.Node), n.Property.Location().From
		switch name := name.Value; {
		case root == "vars":
			return c.varNode(name, at, pos)
		case root == "page":
			return c.pageNode(name, at, pos)
		case root == "headers":
			return finish(node{eval: func(env *Env) Value { return env.header(name) }, pos: pos, types: tText | tNil})
		case root == "config" && name == "$key":
			return finish(node{eval: func(env *Env) Value { return textValue(env.ConfigKey) }, pos: pos, types: tText})
		case docs[root] != nil:
			return docMember(docs[root], name, pos)
		}
	}
	base := c.node(n.Node)
	property := c.node(n.Property)
	if c.err != nil {
		return base
	}
	if base.types&(tList|tMap|tNil) == 0 {
		return c.errorAt(pos, CodeType, fmt.Sprintf("%s has no members", base.types), "")
	}
	if property.types&(tText|tNumber|tNil) == 0 {
		return c.errorAt(property.pos, CodeType, fmt.Sprintf("a member is named by a text or a number, and this is %s", property.types), "")
	}
	if property.constant && property.value.kind == kText {
		name := property.value.str
		if base.path != nil {
			return valuePath(append(slices.Clone(base.path), name), pos)
		}
		eval := base.eval
		return c.pure(node{eval: func(env *Env) Value { return env.member(eval(env), name) }, pos: pos, types: tAny}, base)
	}
	eval, at := base.eval, property.eval
	return c.pure(node{eval: func(env *Env) Value {
		v := eval(env)
		return env.index(v, at(env))
	}, pos: pos, types: tAny}, base, property)
}

// varNode is vars.name.
func (c *compiler) varNode(name string, namePos, pos int) node {
	n := docMember(docs["vars"], name, pos)
	if c.scope.vars == nil {
		return n
	}
	kind, ok := c.scope.vars[name]
	if !ok {
		known := slices.Sorted(maps.Keys(c.scope.vars))
		return c.errorAt(namePos, CodeUnknownName, fmt.Sprintf("vars has no %q", name), cmp.Or(wording.DidYouMean(name, known), "vars has "+list(known)))
	}
	if kind == VarText {
		n.textVar = name
	}
	return n
}

// pageNode is page.name.
func (c *compiler) pageNode(name string, namePos, pos int) node {
	switch name {
	case "first":
		return finish(node{eval: func(env *Env) Value { return env.Page.First.root }, pos: pos, types: tAny})
	case "last":
		return finish(node{eval: func(env *Env) Value { return env.Page.Last.root }, pos: pos, types: tAny})
	case "count":
		return finish(node{eval: func(env *Env) Value { return intValue(env.Page.Count) }, pos: pos, types: tNumber})
	}
	return c.errorAt(namePos, CodeUnknownName, fmt.Sprintf("page has no %q", name), "page has first, last and count")
}

func docMember(doc func(*Env) *Doc, name string, pos int) node {
	return finish(node{eval: func(env *Env) Value {
		d := doc(env)
		return rawValue(rawjson.View(rawjson.Find(d.raw, d.members, name)))
	}, pos: pos, types: tAny})
}

// valuePath is a member of the record's value, however deep.
func valuePath(path []string, pos int) node {
	n := node{pos: pos, types: tAny, path: path}
	n.eval = func(env *Env) Value { return rawValue(env.rawPath(path)) }
	n.number = func(env *Env) number { return numberOf(env.rawPath(path)) }
	n.json = func(dst []byte, env *Env) []byte {
		if span := env.rawPath(path); span != "" {
			return append(dst, span...)
		}
		return append(dst, "null"...)
	}
	return finish(n)
}

// rawPath is the span of a path of names under the record's value, or "" where there is none.
func (env *Env) rawPath(path []string) string {
	if env.ValueFormat != JSON {
		return ""
	}
	env.left -= len(env.Members)
	span := env.topMember(path[0])
	for _, name := range path[1:] {
		if span == "" || span[0] != '{' {
			return ""
		}
		env.left -= len(span) / bytesPerUnit
		span = findMember(span, name)
	}
	return span
}

// topMember is the span of a top-level member, or "".
func (env *Env) topMember(name string) string {
	if env.Shape == nil {
		return rawjson.View(rawjson.Find(env.Value, env.Members, name))
	}
	if i := env.Shape.Find(name); i >= 0 {
		return rawjson.View(env.Members[i].Of(env.Value))
	}
	return ""
}

// pathOf is the path of names from a name in scope that n is, or nil.
func (c *compiler) pathOf(n ast.Node) []string {
	switch n := n.(type) {
	case *ast.ChainNode:
		return c.pathOf(n.Node)
	case *ast.IdentifierNode:
		if c.root(n) != "" {
			return []string{n.Value}
		}
	case *ast.MemberNode:
		if name, ok := n.Property.(*ast.StringNode); ok {
			if path := c.pathOf(n.Node); path != nil {
				return append(path, name.Value)
			}
		}
	}
	return nil
}

// read notes what a part of the expression reads, the longest paths only.
func (c *compiler) read(n ast.Node) (leave func()) {
	path := c.pathOf(n)
	if path == nil || c.within {
		return func() {}
	}
	c.reads = append(c.reads, path)
	c.within = true
	return func() { c.within = false }
}
