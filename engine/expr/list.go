package expr

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/expr-lang/expr/ast"
)

// listFunctions are the functions of lists and maps that take no predicate.
var listFunctions = map[string]*function{
	"len": {min: 1, max: 1, takes: []types{tText | tBytes | tList | tMap | tNil}, result: tNumber, call: func(_ *Env, a []Value, _ int) Value {
		switch v := a[0]; v.kind {
		case kText:
			return intValue(int64(utf8.RuneCountInString(v.str)))
		case kBytes:
			return intValue(int64(len(v.str)))
		default:
			return intValue(int64(length(v)))
		}
	}},
	"type": {min: 1, max: 1, takes: []types{tAny}, result: tText, call: func(_ *Env, a []Value, _ int) Value {
		return textValue(typeName(a[0]))
	}},
	"get": {min: 2, max: 2, takes: []types{tAny, tText | tNumber}, result: tAny, call: func(env *Env, a []Value, _ int) Value {
		return env.index(a[0], a[1])
	}},
	"first": {min: 1, max: 1, takes: []types{tList}, result: tAny, call: func(env *Env, a []Value, _ int) Value {
		return env.element(a[0], 0)
	}},
	"last": {min: 1, max: 1, takes: []types{tList}, result: tAny, call: func(env *Env, a []Value, _ int) Value {
		return env.element(a[0], -1)
	}},
	"take": {min: 2, max: 2, takes: []types{tList, tNumber}, result: tList, call: func(env *Env, a []Value, pos int) Value {
		n, ok := a[1].whole()
		if !ok || n < 0 {
			return env.fail(pos, CodeOperand, "take takes a whole number that is not negative")
		}
		items := env.items(a[0])
		end := int(min(n, int64(len(items))))
		return env.list(items[:end:end], pos)
	}},
	"keys": {min: 1, max: 1, takes: []types{tMap}, result: tList, call: func(env *Env, a []Value, pos int) Value {
		b := env.distinct(a[0])
		items := make([]Value, len(b.names))
		for i, name := range b.names {
			items[i] = textValue(name)
		}
		return env.list(items, pos)
	}},
	"values": {min: 1, max: 1, takes: []types{tMap}, result: tList, call: func(env *Env, a []Value, pos int) Value {
		return env.list(env.distinct(a[0]).items, pos)
	}},
	"toPairs": {min: 1, max: 1, takes: []types{tMap}, result: tList, call: func(env *Env, a []Value, pos int) Value {
		b := env.distinct(a[0])
		if !env.spend(3 * costVisit * len(b.items)) {
			return Value{}
		}
		items := make([]Value, len(b.items))
		for i, name := range b.names {
			items[i] = env.list([]Value{textValue(name), b.items[i]}, pos)
		}
		return env.list(items, pos)
	}},
	"fromPairs": {min: 1, max: 1, takes: []types{tList}, result: tMap, call: fromPairs},
	"reverse": {min: 1, max: 1, takes: []types{tList}, result: tList, call: func(env *Env, a []Value, pos int) Value {
		items := slices.Clone(env.items(a[0]))
		slices.Reverse(items)
		return env.list(items, pos)
	}},
	"uniq": {min: 1, max: 1, takes: []types{tList}, result: tList, call: func(env *Env, a []Value, pos int) Value {
		seen := make(map[string]bool)
		var items []Value
		var buf []byte
		for it := elementsOf(a[0]); it.next(); {
			buf = env.appendCanonical(buf[:0], it.value, pos)
			if !env.spend(costVisit + len(buf)) {
				return Value{}
			}
			if !seen[string(buf)] {
				seen[string(buf)] = true
				items = append(items, it.value)
			}
		}
		return env.list(items, pos)
	}},
	"concat": {min: 1, max: -1, takes: []types{tList | tNil}, result: tList, call: func(env *Env, a []Value, pos int) Value {
		var items []Value
		for _, v := range a {
			if v.kind != kNil {
				more := env.items(v)
				if !env.spend(costVisit * len(more)) {
					return Value{}
				}
				items = append(items, more...)
			}
		}
		return env.list(items, pos)
	}},
	"flatten": {min: 1, max: 1, takes: []types{tList}, result: tList, call: func(env *Env, a []Value, pos int) Value {
		var items []Value
		flatten(env, a[0], &items)
		return env.list(items, pos)
	}},
	"sort": {min: 1, max: 2, takes: []types{tList, tText}, result: tList, check: checkOrder(1), call: func(env *Env, a []Value, pos int) Value {
		items := slices.Clone(env.items(a[0]))
		return env.sorted(items, slices.Clone(items), optionalText(a, 1, "asc"), pos)
	}},
	"equal": {min: 2, max: 2, takes: []types{tAny}, result: tBool, call: func(env *Env, a []Value, _ int) Value {
		return boolValue(env.equal(a[0], a[1]))
	}},
}

func checkOrder(i int) func([]node) (int, string) { return oneOf(i, "the order", "asc", "desc") }

// distinct is distinct, paid for.
func (env *Env) distinct(v Value) *box {
	b := distinct(v)
	env.spend(costVisit * len(b.items))
	return b
}

func typeName(v Value) string {
	switch v.kind {
	case kNil:
		return "nil"
	case kBool:
		return "bool"
	case kInt:
		return "int"
	case kFloat:
		return "float"
	case kBig:
		if strings.ContainsAny(v.str, ".eE") {
			return "float"
		}
		return "int"
	case kText:
		return "string"
	case kBytes:
		return "bytes"
	case kList, kRawList:
		return "array"
	default:
		return "map"
	}
}

func fromPairs(env *Env, a []Value, pos int) Value {
	var names []string
	var values []Value
	at := make(map[string]int)
	for it := elementsOf(a[0]); it.next(); {
		if !env.spend(3 * costVisit) {
			return Value{}
		}
		if !it.value.isList() || length(it.value) != 2 {
			return env.fail(pos, CodeOperand, "fromPairs takes a list of pairs [name, value]")
		}
		name, value := env.resolve(env.element(it.value, 0)), env.element(it.value, 1)
		if name.kind == kNil {
			continue
		}
		text := env.textOf(name, pos)
		if i, ok := at[text]; ok {
			values[i] = value
			continue
		}
		at[text] = len(names)
		names, values = append(names, text), append(values, value)
	}
	return env.mapOf(names, values, pos)
}

func flatten(env *Env, list Value, items *[]Value) {
	for it := elementsOf(list); it.next(); {
		if !env.spend(costVisit) {
			return
		}
		if it.value.isList() {
			flatten(env, it.value, items)
			continue
		}
		*items = append(*items, it.value)
	}
}

// sorted orders items by their keys, stably: numbers by value, then texts, then all else as it stood, then nil. Descending is
// the reverse of that, save that nil stays last.
func (env *Env) sorted(items, keys []Value, order string, pos int) Value {
	if order != "asc" && order != "desc" {
		return env.fail(pos, CodeValue, `an order is "asc" or "desc"`)
	}
	n := len(items)
	if !env.spend(costVisit * n * 2) {
		return Value{}
	}
	at := make([]int, n)
	for i := range keys {
		at[i] = i
		keys[i] = env.resolve(keys[i])
	}
	slices.SortStableFunc(at, func(i, j int) int {
		a, b := keys[i], keys[j]
		if a.kind == kNil || b.kind == kNil {
			return cmp.Compare(sortRank(a), sortRank(b))
		}
		c := cmp.Compare(sortRank(a), sortRank(b))
		if c == 0 {
			c, _ = env.compare(a, b)
		}
		if order == "desc" {
			return -c
		}
		return c
	})
	out := make([]Value, n)
	for i, j := range at {
		out[i] = items[j]
	}
	return env.list(out, pos)
}

func sortRank(v Value) int {
	switch v.types() {
	case tNumber:
		return 0
	case tText:
		return 1
	case tNil:
		return 3
	default:
		return 2
	}
}

// predicates are expr's functions that take an expression to be evaluated for each element.
var predicates = map[string]bool{
	"all": true, "none": true, "any": true, "one": true, "filter": true, "map": true, "count": true, "sum": true, "find": true, "findIndex": true,
	"findLast": true, "findLastIndex": true, "groupBy": true, "sortBy": true, "reduce": true,
}

// predicate compiles a call of one of them.
func (c *compiler) predicate(n *ast.BuiltinNode, pos int) node {
	name := n.Name
	over := c.node(n.Arguments[0])
	if c.err != nil {
		return over
	}
	if over.types&(tList|tNil) == 0 {
		return c.errorAt(over.pos, CodeType, fmt.Sprintf("%s takes a list, and this is %s", name, over.types), "")
	}
	var body *node
	if len(n.Arguments) > 1 {
		p, ok := n.Arguments[1].(*ast.PredicateNode)
		if !ok {
			return c.errorAt(start(n.Arguments[1]), CodeSyntax, "a predicate is wanted here", "")
		}
		c.depth++
		c.walks = append(c.walks, name)
		c.program.frames = max(c.program.frames, c.depth)
		b := c.node(p.Node)
		c.depth--
		c.walks = c.walks[:c.depth]
		if c.err != nil {
			return b
		}
		switch name {
		case "all", "none", "any", "one", "filter", "count", "find", "findIndex", "findLast", "findLastIndex":
			if b.types&(tBool|tNil) == 0 {
				return c.errorAt(b.pos, CodeType, fmt.Sprintf("%s takes a condition, and this is %s", name, b.types), "")
			}
		case "sum":
			if b.types&(tNumber|tNil) == 0 {
				return c.errorAt(b.pos, CodeType, fmt.Sprintf("sum takes numbers, and this is %s", b.types), "")
			}
		}
		body = &b
	}
	var extra *node
	if len(n.Arguments) > 2 {
		e := c.node(n.Arguments[2])
		if c.err != nil {
			return e
		}
		extra = &e
		if name == "sortBy" {
			if e.types&tText == 0 {
				return c.errorAt(e.pos, CodeType, fmt.Sprintf("an order is a text, and this is %s", e.types), "")
			}
			if e.constant && e.value.str != "asc" && e.value.str != "desc" {
				return c.errorAt(e.pos, CodeArguments, "the order is asc or desc", "")
			}
		}
	}
	walk := &walk{name: name, over: over.eval, body: body, extra: extra, slot: c.depth, pos: pos}
	r := node{pos: pos, types: walk.types(over.types)}
	switch name {
	case "all":
		r.eval = walk.quantifier(func(yes, no int) (bool, bool) { return no == 0, no > 0 })
	case "none":
		r.eval = walk.quantifier(func(yes, no int) (bool, bool) { return yes == 0, yes > 0 })
	case "any":
		r.eval = walk.quantifier(func(yes, no int) (bool, bool) { return yes > 0, yes > 0 })
	case "one":
		r.eval = walk.quantifier(func(yes, no int) (bool, bool) { return yes == 1, yes > 1 })
	case "filter":
		r.eval = walk.filter
	case "map":
		r.eval = walk.mapped
	case "count":
		r.eval = walk.count
	case "sum":
		r.eval = walk.sum
	case "find", "findIndex":
		r.eval = walk.find(name == "findIndex")
	case "findLast", "findLastIndex":
		r.eval = walk.findLast(name == "findLastIndex")
	case "groupBy":
		r.eval = walk.groupBy
	case "sortBy":
		r.eval = walk.sortBy
	case "reduce":
		r.eval = walk.reduce
	}
	return finish(r)
}

// walk is a predicate function over a list.
type walk struct {
	name  string
	over  func(*Env) Value
	body  *node
	extra *node
	slot  int // of the frame
	pos   int
}

func (w *walk) types(over types) types {
	missing := over & tNil
	switch w.name {
	case "all", "none", "any", "one":
		return tBool | missing
	case "filter", "map", "sortBy":
		return tList
	case "count":
		return tNumber
	case "sum":
		return tNumber | missing
	case "findIndex", "findLastIndex":
		return tNumber | tNil
	case "groupBy":
		return tMap | missing
	}
	return tAny
}

// begin answers the list to walk over; ok is false where there is none, because it is nil or because that is a failure.
func (w *walk) begin(env *Env) (it elements, ok bool) {
	v := w.over(env)
	if v.kind == kNil || env.failure.code != "" {
		return elements{}, false
	}
	if !v.isList() {
		env.fail(w.pos, CodeOperand, w.name+" takes a list, and here is "+v.types().String())
		return elements{}, false
	}
	return elementsOf(v), true
}

// enter puts an element into the frame. It is false when the walk should stop.
func (w *walk) enter(env *Env, it *elements) bool {
	if !env.spend(costVisit) {
		return false
	}
	if w.body != nil {
		f := &env.frames[w.slot]
		f.item, f.index = it.value, it.index
	}
	return true
}

// quantifier makes all, none, any and one: verdict says what the counts of the elements that hold and do not hold mean, and
// whether more elements would change nothing.
func (w *walk) quantifier(verdict func(yes, no int) (result, final bool)) func(*Env) Value {
	return func(env *Env) Value {
		it, ok := w.begin(env)
		if !ok {
			return Value{}
		}
		yes, no := 0, 0
		for it.next() {
			if !w.enter(env, &it) {
				return Value{}
			}
			if w.body.cond(env) {
				yes++
			} else {
				no++
			}
			if result, final := verdict(yes, no); final {
				return boolValue(result)
			}
		}
		result, _ := verdict(yes, no)
		return boolValue(result)
	}
}

func (w *walk) filter(env *Env) Value {
	it, ok := w.begin(env)
	if !ok {
		return listValue(nil)
	}
	var items []Value
	for it.next() {
		if !w.enter(env, &it) {
			return Value{}
		}
		if w.body.cond(env) {
			items = append(items, it.value)
		}
	}
	return env.list(items, w.pos)
}

func (w *walk) mapped(env *Env) Value {
	it, ok := w.begin(env)
	if !ok {
		return listValue(nil)
	}
	var items []Value
	for it.next() {
		if !w.enter(env, &it) {
			return Value{}
		}
		items = append(items, w.body.eval(env))
	}
	return env.list(items, w.pos)
}

func (w *walk) count(env *Env) Value {
	it, ok := w.begin(env)
	n := int64(0)
	for ok && it.next() {
		if !w.enter(env, &it) {
			return Value{}
		}
		var holds bool
		if w.body != nil {
			holds = w.body.cond(env)
		} else {
			holds = env.truth(it.value, w.pos)
		}
		if holds {
			n++
		}
	}
	return intValue(n)
}

func (w *walk) sum(env *Env) Value {
	it, ok := w.begin(env)
	if !ok {
		return Value{}
	}
	total := intValue(0)
	for it.next() {
		if !w.enter(env, &it) {
			return Value{}
		}
		v := it.value
		if w.body != nil {
			v = w.body.eval(env)
		}
		switch v = env.resolve(v); {
		case v.kind == kNil:
			continue
		case v.kind == kBig:
			return env.bigNumber(w.pos)
		case v.types() != tNumber:
			return env.fail(w.pos, CodeOperand, "sum takes numbers, and here is "+v.types().String())
		}
		total = env.combine("+", combines["+"], total, v, w.pos)
	}
	return total
}

func (w *walk) find(index bool) func(*Env) Value {
	return func(env *Env) Value {
		it, ok := w.begin(env)
		for ok && it.next() {
			if !w.enter(env, &it) {
				return Value{}
			}
			if w.body.cond(env) {
				if index {
					return intValue(int64(it.index))
				}
				return it.value
			}
		}
		return Value{}
	}
}

func (w *walk) findLast(index bool) func(*Env) Value {
	return func(env *Env) Value {
		it, ok := w.begin(env)
		if !ok {
			return Value{}
		}
		var items []Value
		for it.next() {
			if !env.spend(costVisit) {
				return Value{}
			}
			items = append(items, it.value)
		}
		for i := len(items) - 1; i >= 0; i-- {
			if !w.enter(env, &elements{value: items[i], index: i}) {
				return Value{}
			}
			if w.body.cond(env) {
				if index {
					return intValue(int64(i))
				}
				return items[i]
			}
		}
		return Value{}
	}
}

// groupBy is a map from the text of the key to the list of its elements, in the order of first appearance; elements whose key
// is nil are left out.
func (w *walk) groupBy(env *Env) Value {
	it, ok := w.begin(env)
	if !ok {
		return Value{}
	}
	var names []string
	var groups [][]Value
	at := make(map[string]int)
	for it.next() {
		if !w.enter(env, &it) {
			return Value{}
		}
		key := w.body.eval(env)
		if key.kind == kNil {
			continue
		}
		text := env.textOf(key, w.pos)
		if !env.spend(costVisit + len(text)) {
			return Value{}
		}
		i, ok := at[text]
		if !ok {
			i = len(names)
			at[text] = i
			names, groups = append(names, text), append(groups, nil)
		}
		groups[i] = append(groups[i], it.value)
	}
	items := make([]Value, len(groups))
	for i := range groups {
		items[i] = env.list(groups[i], w.pos)
	}
	return env.mapOf(names, items, w.pos)
}

func (w *walk) sortBy(env *Env) Value {
	it, ok := w.begin(env)
	if !ok {
		return listValue(nil)
	}
	var items, keys []Value
	for it.next() {
		if !w.enter(env, &it) {
			return Value{}
		}
		items = append(items, it.value)
		keys = append(keys, w.body.eval(env))
	}
	order := "asc"
	if w.extra != nil {
		order = resolve(w.extra.eval(env)).str
	}
	return env.sorted(items, keys, order, w.pos)
}

func (w *walk) reduce(env *Env) Value {
	it, ok := w.begin(env)
	if !ok {
		return Value{}
	}
	f := &env.frames[w.slot]
	var acc Value
	if w.extra != nil {
		acc = w.extra.eval(env)
	} else if it.next() {
		acc = it.value
	}
	for it.next() {
		if !w.enter(env, &it) {
			return Value{}
		}
		f.acc = acc
		acc = w.body.eval(env)
	}
	return acc
}
