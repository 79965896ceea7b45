package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/cockroachdb/datadriven"

	"github.com/flechtwerk/flechtwerk/engine/decode"
	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// Every case runs over lazy objects, of known shape and not, and over ordinary ones: a script must not be able to tell them
// apart.
func bothWays(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	for _, way := range []string{"lazy", "shapeless", "plain"} {
		t.Run(way, func(t *testing.T) {
			plainValues, shapeless = way == "plain", way == "shapeless"
			defer func() { plainValues, shapeless = false, false }()
			f(t)
		})
	}
}

type conform struct {
	functions string
	body      string
	initial   string
	vars      string
	store     storeMap
	in        []string // values; the key is k
	protobuf  *decode.Schema
	console   *string // takes what was printed, of a run that fails too
	want      string  // effects, or "code line:column message"
}

func (c conform) run(t *testing.T) string {
	t.Helper()
	s := Source{Body: stream.Text{File: "f.yaml", Line: 1, Column: 1, Text: c.body}, Protobuf: c.protobuf}
	if c.functions != "" {
		s.Functions = []stream.Text{{File: "f.yaml", Line: 101, Column: 1, Text: c.functions}}
	}
	p, err := Compile(s)
	if err != nil {
		return showError(err)
	}
	env := Env{Stage: "s", Outputs: out, Timeout: 5 * time.Second, Now: func() time.Time { return time.UnixMilli(1767225600000) }}
	var printed strings.Builder
	env.Console = func(level, text string) { fmt.Fprintf(&printed, "%s: %s\n", level, text) }
	if c.console != nil {
		defer func() { *c.console = printed.String() }()
	}
	if c.initial != "" {
		env.Initial = []byte(c.initial)
	}
	if c.vars != "" {
		env.Vars = []byte(c.vars)
	}
	tr, err := p.NewTransform(env)
	if err != nil {
		return showError(err)
	}
	defer tr.Close()
	store := c.store
	if store == nil && p.NamesState() {
		store = storeMap{}
	}
	var inputs []input
	for _, v := range c.in {
		inputs = append(inputs, input{"k", v})
	}
	if inputs == nil {
		inputs = []input{{"k", `{}`}}
	}
	b := newBatch(t, store, inputs...)
	if err := tr.Run(context.Background(), b); err != nil {
		return showError(err)
	}
	return strings.ReplaceAll(strings.TrimSpace(printed.String()+effects(b)), "out k=", "→ ")
}

func showError(err error) string {
	var problems Problems
	if errors.As(err, &problems) {
		var lines []string
		for _, p := range problems {
			lines = append(lines, fmt.Sprintf("%s %d:%d %s", p.Code, p.Line, p.Column, p.Message))
		}
		return strings.Join(lines, "\n")
	}
	var e *Error
	if errors.As(err, &e) {
		_, line, column := e.Position()
		return fmt.Sprintf("%s %d:%d %s", e.Code(), line, column, e.Message())
	}
	return err.Error()
}

func conformAll(t *testing.T, cases map[string]conform) {
	t.Helper()
	bothWays(t, func(t *testing.T) {
		for name, c := range cases {
			t.Run(name, func(t *testing.T) {
				if got := c.run(t); got != c.want {
					t.Errorf("%s\n got %s\nwant %s", c.body, got, c.want)
				}
			})
		}
	})
}

func TestLanguage(t *testing.T) {
	conformAll(t, map[string]conform{
		"yield in a loop":                         {body: `for (const x of [1,2]) yield Message({value: x})`, want: "→ 1\n→ 2"},
		"yield as expression":                     {body: `const r = (yield Message({value: 1})); yield Message({value: r === undefined})`, want: "→ 1\n→ true"},
		"early return":                            {body: `if (msg.value.stop) return; yield Message({value: 1})`, in: []string{`{"stop":true}`, `{}`}, want: "→ 1"},
		"yield* array":                            {body: `yield* [1,2].map(x => Message({value: x}))`, want: "→ 1\n→ 2"},
		"yield* generator":                        {body: `function* g(n) { yield Message({value: n}); return n + 1 } const r = yield* g(1); yield Message({value: r})`, want: "→ 1\n→ 2"},
		"yield* method":                           {body: `const o = { *g() { yield Message({value: 1}) } }; yield* o.g()`, want: "→ 1"},
		"generator of its own":                    {body: `function* g() { yield 1; yield 2 } yield Message({value: [...g()]})`, want: "→ [1,2]"},
		"yield in a nested generator is not ours": {body: `function* g() { yield {a:1} } for (const x of g()) yield Message({value: x})`, want: `→ {"a":1}`},
		"finally in a helper":                     {body: `function* g() { try { yield Message({value: 1}); yield 5 } finally { console.log('done') } } try { yield* g() } catch (e) { yield Message({value: 2}) }`, want: "info: done\n→ 1\n→ 2"},
		"closures and classes":                    {body: `class A { #n = 1; get n() { return this.#n } static make() { return new A } } yield Message({value: A.make().n})`, want: "→ 1"},
		"try and catch":                           {body: `try { null.x } catch { yield Message({value: 1}) } finally { yield Message({value: 2}) }`, want: "→ 1\n→ 2"},
		"catch with a pattern":                    {body: `try { throw {a: 1} } catch ({a}) { yield Message({value: a}) }`, want: "→ 1"},
		"labels":                                  {body: `outer: for (;;) { for (;;) { break outer } } yield Message({value: 1})`, want: "→ 1"},
		"destructuring":                           {body: "const {a, b: [c, ...d], ...e} = msg.value; yield Message({value: {a, c, d, e}})", in: []string{`{"a":1,"b":[2,3,4],"x":5}`}, want: `→ {"a":1,"c":2,"d":[3,4],"e":{"x":5}}`},
		"optional chaining":                       {body: "yield Message({value: msg.value.a?.b?.c ?? 'none'})", want: `→ "none"`},
		"template":                                {body: "yield Message({value: `${msg.key}-${msg.value.a}`})", in: []string{`{"a":1}`}, want: `→ "k-1"`},
		"body ends in comment":                    {body: "yield Message({value: 1}) // done", want: "→ 1"},
		"functions":                               {functions: "const double = x => 2 * x;\nfunction* both(x) { yield Message({value: x}); yield Message({value: double(x)}) }", body: "yield* both(msg.value.a)", in: []string{`{"a":4}`}, want: "→ 4\n→ 8"},
		"vars":                                    {body: "yield Message({value: vars.limit + 1})", vars: `{"limit":85}`, want: "→ 86"},
		"console":                                 {body: "console.log('a', 1, {b: [2]}, null, undefined); console.warn('w')", want: "info: a 1 {\"b\":[2]} null undefined\nwarn: w"},
		"message is a value":                      {body: "const m = Message({value: {a: 1}}); yield m; yield Message({value: m.value.a})", want: "→ {\"a\":1}\n→ 1"},
		"taken at the yield":                      {body: "const v = {a: 1}; const m = Message({value: v}); v.a = 2; yield m; v.a = 3", want: `→ {"a":2}`},
		"strict mode":                             {body: "undeclared = 1", want: `script.unknown_name 1:1 nothing is called "undeclared" here`},
		"dates":                                   {body: "yield Message({value: [new Date(), Date.now(), new Date(0).getTimezoneOffset()]})", want: `→ ["2026-01-01T00:00:00.000Z",1767225600000,0]`},
		"msg members":                             {body: "const {value, ...rest} = msg; yield Message({value: rest})", want: `→ {"key":"k","topic":"in","partition":0,"offset":0,"timestamp":1000,"headers":{}}`},
		"msg may be changed":                      {body: "msg.key = 'x'; msg.extra = 1; delete msg.topic; yield Message({value: Object.keys(msg)})", in: []string{`{}`, `{}`}, want: "→ [\"key\",\"value\",\"partition\",\"offset\",\"timestamp\",\"headers\",\"extra\"]\n→ [\"key\",\"value\",\"partition\",\"offset\",\"timestamp\",\"headers\",\"extra\"]"},
		"own names on errors":                     {body: "class E extends Error { constructor(m) { super(m); this.name = 'E'; this.message = m + '!' } } try { throw new E('a') } catch (e) { yield Message({value: String(e)}) }", want: `→ "E: a!"`},
		"own toString":                            {body: "const o = {}; o.toString = () => 'x'; o.constructor = 1; yield Message({value: `${o}`})", want: `→ "x"`},
		"members like those of Object":            {body: "msg.value.toString = 1; msg.value.constructor = 2; msg.value.hasOwnProperty = 3; yield Message({value: msg.value})", want: `→ {"toString":1,"constructor":2,"hasOwnProperty":3}`},
		"regular expressions":                     {body: "yield Message({value: 'a1b2'.replace(/[0-9]/g, '') + /(?<=a)b/.test('ab')})", want: `→ "abtrue"`},
		"sorting":                                 {body: "yield Message({value: [3,1,2].sort((a, b) => b - a)})", want: "→ [3,2,1]"},
		"arguments stay ours":                     {body: "yield Message({value: arguments.length})", want: `script.unknown_name 1:23 arguments is not there`},
		"arguments of functions":                  {body: "function f() { return arguments.length } yield Message({value: f(1, 2)})", want: "→ 2"},
		"arguments in arrows":                     {body: "function f() { return () => arguments.length }", want: `script.unknown_name 1:29 arguments is not there`},
		"msg in closures":                         {body: "const f = () => msg.value.a + msg.key; yield Message({value: f()})", in: []string{`{"a":"x"}`}, want: `→ "xk"`},
		"msg.value assigned":                      {body: "msg.value = {a: 1}; yield Message({value: msg.value}); msg.value.a++; yield Message({value: msg.value})", want: "→ {\"a\":1}\n→ {\"a\":2}"},
		"msg.key assigned":                        {body: "msg.key += '!'; yield Message({value: msg.key})", want: `→ "k!"`},
		"msg.value deleted":                       {body: "delete msg.value.a; delete msg.value; yield Message({value: [msg.value, Object.keys(msg)]})", in: []string{`{"a":1}`}, want: `→ [null,["key","topic","partition","offset","timestamp","headers"]]`},
		"msg destructured":                        {body: "const {value: {a}, key} = msg; yield Message({value: [a, key]})", in: []string{`{"a":1}`}, want: `→ [1,"k"]`},
		"msg.value called":                        {body: "msg.value.f = function () { return this.a }; yield Message({value: msg.value.f()})", in: []string{`{"a":1}`}, want: "→ 1"},
		"msg of one's own":                        {body: "const f = msg => msg.value; yield Message({value: f({value: 5})})", want: "→ 5"},
		"msg assigned whole":                      {body: "msg = {value: 7}; yield Message({value: msg.value})", want: "→ 7"},
		"msg optional":                            {body: "yield Message({value: [msg?.value?.a, msg.value?.b?.c ?? 0]})", in: []string{`{"a":1}`}, want: "→ [1,0]"},
		"tombstones":                              {body: "yield Message({value: msg.value === null})", in: []string{``}, want: "→ true"},
	})
}

func TestT10YieldsThatAreNoMessage(t *testing.T) {
	conformAll(t, map[string]conform{
		"plain object":                 {body: "let x;\nyield { a: 1 }", want: "script.yield 2:1 a plain object was yielded, which is neither a Message nor a State"},
		"array":                        {body: "yield [Message({value: 1})]", want: "script.yield 1:1 an array was yielded, which is neither a Message nor a State"},
		"nothing":                      {body: "yield", want: "script.yield 1:1 undefined was yielded, which is neither a Message nor a State"},
		"in a generator":               {body: "function* g() { yield 1 }\n yield* g()", want: "script.yield 2:2 a number was yielded, which is neither a Message nor a State"},
		"no iterable":                  {body: "yield* 5", want: "script.yield 1:1 yield* was given a number"},
		"a string":                     {body: "yield* 'abc'", want: "script.yield 1:1 yield* was given a string"},
		"returned":                     {body: "if (msg.key)\n  return Message({value: 1})", want: "script.yield 2:3 a plain object was returned, but a body says everything by yield"},
		"unknown topic":                {body: "yield Message({ topic: 'ouf', value: 1 })", want: `script.topic 1:1 the topic "ouf" is not among output_topics`},
		"no value":                     {body: "const v = undefined; yield Message({ value: v })", want: "script.message 1:22 the Message has no value"},
		"no value at all":              {body: "yield Message({ key: 'a' })", want: "script.message 1:7 a Message needs a value"},
		"unknown member":               {body: "yield Message({ vaule: 1, value: 2 })", want: `script.message 1:17 a Message has no "vaule"`},
		"unknown member of a variable": {body: "const m = { vaule: 1 }; yield Message(m)", want: `script.message 1:25 a Message has no "vaule"`},
		"Message of a number":          {body: "yield Message(5)", want: "script.message 1:14 Message takes an object"},
		"State of a number":            {body: "yield State(5)", want: "script.state 1:1 a State is an object, not a number"},
		"State of an array":            {body: "yield State([1])", want: "script.state 1:1 a State is an object, not an array"},
		"timestamp":                    {body: "yield Message({ value: 1, timestamp: 'now' })", want: "script.message 1:1 the timestamp of a Message is not a time"},
		"partition":                    {body: "yield Message({ value: 1, partition: -1 })", want: "script.message 1:1 the partition of a Message is not a whole number from 0"},
	})
}

func TestRefusedValues(t *testing.T) {
	refused := func(value, what string) conform {
		return conform{body: "yield Message({ value: " + value + " })", want: "value.refused 1:1 " + what}
	}
	conformAll(t, map[string]conform{
		"NaN":               refused("{ a: [0, NaN] }", "the value's a[1] cannot be written as JSON: it is NaN"),
		"Infinity":          refused("{ a: { b: 1 / 0 } }", "the value's a.b cannot be written as JSON: it is Infinity"),
		"NaN alone":         refused("NaN", "the value cannot be written as JSON: it is NaN"),
		"Map":               refused("{ m: new Map }", "the value's m cannot be written as JSON: it is a Map"),
		"Set":               refused("{ 'a b': new Set }", `the value's ["a b"] cannot be written as JSON: it is a Set`),
		"bytes":             refused("{ a: new Uint8Array(3) }", "the value's a cannot be written as JSON: it is a byte array"),
		"buffer":            refused("{ a: new ArrayBuffer(3) }", "the value's a cannot be written as JSON: it is a byte array"),
		"function":          refused("{ a: () => 1 }", "the value's a cannot be written as JSON: it is a function"),
		"symbol":            refused("{ a: Symbol('x') }", "the value's a cannot be written as JSON: it is a symbol"),
		"error":             refused("{ a: new Error('x') }", "the value's a cannot be written as JSON: it is an error"),
		"regexp":            refused("{ a: /x/ }", "the value's a cannot be written as JSON: it is a RegExp"),
		"invalid date":      refused("{ a: new Date('x') }", "the value's a cannot be written as JSON: it is an invalid Date"),
		"spread":            refused("{ ...msg.value, a: NaN }", "the value's a cannot be written as JSON: it is NaN"),
		"spread and set":    refused("{ ...msg.value, a: new Set([1]) }", "the value's a cannot be written as JSON: it is a Set"),
		"cyclic":            {body: "const o = {}; o.o = { o }; yield Message({ value: o })", want: "value.refused 1:28 the value's o.o cannot be written as JSON: it contains itself"},
		"cyclic in lazy":    {body: "msg.value.self = msg.value; yield Message({ value: msg.value })", want: "value.refused 1:29 the value's self cannot be written as JSON: it contains itself"},
		"deep":              {body: "let o = {}; for (let i = 0; i < 2000; i++) o = {o}; yield Message({ value: o })", want: "value.refused 1:53 the value's " + strings.Repeat("o.", 999) + "o cannot be written as JSON: it is nested too deep"},
		"in a state":        {body: "state.a = NaN; yield State(state)", want: "value.refused 1:16 the value's a cannot be written as JSON: it is NaN"},
		"undefined drops":   {body: "yield Message({ value: { a: undefined, b: [undefined, 1], c: null } })", want: `→ {"b":[null,1],"c":null}`},
		"date":              {body: "yield Message({ value: { a: new Date(1.5) } })", want: `→ {"a":"1970-01-01T00:00:00.001Z"}`},
		"toJSON":            {body: "class P { toJSON() { return { p: 1 } } } yield Message({ value: { a: new P } })", want: `→ {"a":{"p":1}}`},
		"boxed":             {body: "yield Message({ value: [Object(1), Object('a'), Object(true), Object(5n)] })", want: `→ [1,"a",true,5]`},
		"twice is no cycle": {body: "const o = {a: 1}; yield Message({ value: [o, o] })", want: `→ [{"a":1},{"a":1}]`},
		"sparse":            {body: "const a = [1]; a[3] = 2; yield Message({ value: a })", want: `→ [1,null,null,2]`},
		"class instance":    {body: "class P { constructor() { this.x = 1 } get y() { return 2 } } yield Message({ value: new P })", want: `→ {"x":1}`},
		"getter":            {body: "yield Message({ value: { get x() { return 3 } } })", want: `→ {"x":3}`},
		"null prototype":    {body: "const o = Object.create(null); o.a = 1; yield Message({ value: o })", want: `→ {"a":1}`},
	})
}

func TestNumbers(t *testing.T) {
	conformAll(t, map[string]conform{
		"arithmetic":             {body: "yield Message({ value: msg.value.a + 1 })", in: []string{`{"a":41}`}, want: "→ 42"},
		"big arrives as BigInt":  {body: "yield Message({ value: [typeof msg.value.a, msg.value.a + 1n, typeof msg.value.b] })", in: []string{`{"a":9007199254740993,"b":9007199254740991}`}, want: `→ ["bigint",9007199254740994,"number"]`},
		"negative big":           {body: "yield Message({ value: { x: msg.value.a } })", in: []string{`{"a":-9223372036854775808}`}, want: `→ {"x":-9223372036854775808}`},
		"beyond 64 bits":         {body: "yield Message({ value: { x: msg.value.a } })", in: []string{`{"a":123456789012345678901234567890}`}, want: `→ {"x":123456789012345678901234567890}`},
		"big float is a number":  {body: "yield Message({ value: typeof msg.value.a })", in: []string{`{"a":1e300}`}, want: `→ "number"`},
		"mixing names the field": {body: "yield Message({ value: msg.value.id + 1 })", in: []string{`{"other":1,"id":9007199254740993}`}, want: `script.error 1:24 TypeError: Cannot mix BigInt and other types, use explicit conversions: "id" is an integer beyond 2^53 and came as a BigInt`},
		"minus zero":             {body: "yield Message({ value: [-0, 0 * -1] })", want: "→ [0,0]"},
		"shortest":               {body: "yield Message({ value: [0.1 + 0.2, 1e21, 1e-7, 5e-324, 100, 1/3, 123456789012345680000] })", want: "→ [0.30000000000000004,1e+21,1e-7,5e-324,100,0.3333333333333333,123456789012345680000]"},
		"infinite text":          {body: "yield Message({ value: msg.value.a })", in: []string{`{"a":1e400}`}, want: "value.refused 1:1 the value cannot be written as JSON: it is Infinity"},
	})
}

// W5: what a script does not change keeps its digits and its spelling.
func TestW5UntouchedPartsKeepTheirBytes(t *testing.T) {
	const odd = `{"a":1e-06,"b":200.0,"c":9223372036854775808,"d":"\u00e9\/","e":[1.0,{"f":1E2}],"g":{"h":-0,"i":1.50}}`
	conformAll(t, map[string]conform{
		"as it is":                    {body: "yield Message({ value: msg.value })", in: []string{odd}, want: "→ " + odd},
		"read":                        {body: "msg.value.a + msg.value.e[1].f + msg.value.g.i; yield Message({ value: msg.value })", in: []string{odd}, want: "→ " + odd},
		"spaces inside":               {body: "msg.value.a; yield Message({ value: msg.value })", in: []string{`{"a": 1,"b" :[ 2 ]}`}, want: `→ {"a": 1,"b" :[ 2 ]}`},
		"one set":                     {body: "msg.value.x = 1; yield Message({ value: msg.value })", in: []string{odd}, want: "→ " + odd[:len(odd)-1] + `,"x":1}`},
		"spread":                      {body: "yield Message({ value: { ...msg.value, x: 1 } })", in: []string{odd}, want: "→ " + odd[:len(odd)-1] + `,"x":1}`},
		"spread in a variable":        {body: "const v = { ...msg.value, x: 1 }; v.g.h; yield Message({ value: v })", in: []string{odd}, want: "→ " + odd[:len(odd)-1] + `,"x":1}`},
		"spread second":               {body: "yield Message({ value: { x: 1, ...msg.value } })", in: []string{odd}, want: `→ {"x":1,` + odd[1:]},
		"spread twice":                {body: "yield Message({ value: { ...msg.value.g, ...msg.value } })", in: []string{odd}, want: `→ {"h":-0,"i":1.50,` + odd[1:]},
		"set to the same":             {body: "msg.value.b = 200; msg.value.d = 'é/'; msg.value.g = msg.value.g; yield Message({ value: msg.value })", in: []string{odd}, want: "→ " + odd},
		"set to another":              {body: "msg.value.b = 201; yield Message({ value: msg.value })", in: []string{`{"b":200.0,"c":1.0}`}, want: `→ {"b":201,"c":1.0}`},
		"inside":                      {body: "msg.value.e[1].x = 1; yield Message({ value: msg.value })", in: []string{odd}, want: `→ {"a":1e-06,"b":200.0,"c":9223372036854775808,"d":"\u00e9\/","e":[1.0,{"f":1E2,"x":1}],"g":{"h":-0,"i":1.50}}`},
		"element":                     {body: "msg.value.e[2] = 5; yield Message({ value: msg.value.e })", in: []string{odd}, want: `→ [1.0,{"f":1E2},5]`},
		"moved":                       {body: "yield Message({ value: { y: msg.value.g, z: msg.value.e } })", in: []string{odd}, want: `→ {"y":{"h":-0,"i":1.50},"z":[1.0,{"f":1E2}]}`},
		"a moved number is a new one": {body: "yield Message({ value: { y: msg.value.b } })", in: []string{odd}, want: `→ {"y":200}`},
		"state":                       {body: "state.n = 1; yield State(state)", store: storeMap{"k": `{"a":1.0,"b":{"c":2.50}}`}, want: `state k={"a":1.0,"b":{"c":2.50},"n":1}`},
		"into a state":                {body: "state.last = msg.value.g; yield State(state)", in: []string{odd, odd}, want: `state k={"last":{"h":-0,"i":1.50}}`},
	})
}

func TestObjectsBehaveAsObjects(t *testing.T) {
	const v = `{"b":1,"a":{"x":[1,2]},"c":null,"d":"text","e":true}`
	one := func(body, want string) conform {
		return conform{body: body, in: []string{v}, want: want}
	}
	conformAll(t, map[string]conform{
		"keys":                        one("yield Message({value: Object.keys(msg.value)})", `→ ["b","a","c","d","e"]`),
		"values":                      one("yield Message({value: Object.values(msg.value)})", `→ [1,{"x":[1,2]},null,"text",true]`),
		"entries":                     one("yield Message({value: Object.entries(msg.value.a)})", `→ [["x",[1,2]]]`),
		"in":                          one("yield Message({value: ['a' in msg.value, 'z' in msg.value, 'toString' in msg.value]})", `→ [true,false,true]`),
		"hasOwn":                      one("yield Message({value: [Object.hasOwn(msg.value, 'a'), msg.value.hasOwnProperty('toString')]})", `→ [true,false]`),
		"delete":                      one("delete msg.value.a; delete msg.value.zzz; yield Message({value: msg.value})", `→ {"b":1,"c":null,"d":"text","e":true}`),
		"delete and add":              one("delete msg.value.b; msg.value.b = 2; yield Message({value: msg.value}); yield Message({value: Object.keys(msg.value)})", "→ {\"a\":{\"x\":[1,2]},\"c\":null,\"d\":\"text\",\"e\":true,\"b\":2}\n→ [\"a\",\"c\",\"d\",\"e\",\"b\"]"),
		"add and delete":              one("msg.value.n = 1; delete msg.value.n; msg.value.m = 2; yield Message({value: 'n' in msg.value}); yield Message({value: msg.value})", "→ false\n→ "+v[:len(v)-1]+`,"m":2}`),
		"delete twice":                one("delete msg.value.b; msg.value.b = 2; delete msg.value.b; yield Message({value: [msg.value.b === undefined, 'b' in msg.value, Object.keys(msg.value).length]})", "→ [true,false,4]"),
		"set keeps place":             one("msg.value.a = 5; yield Message({value: msg.value})", `→ {"b":1,"a":5,"c":null,"d":"text","e":true}`),
		"set undefined":               one("msg.value.a = undefined; yield Message({value: msg.value}); yield Message({value: 'a' in msg.value})", "→ {\"b\":1,\"c\":null,\"d\":\"text\",\"e\":true}\n→ true"),
		"for in":                      one("const k = []; for (const n in msg.value) k.push(n); yield Message({value: k})", `→ ["b","a","c","d","e"]`),
		"JSON.stringify":              one("yield Message({value: JSON.stringify(msg.value)})", `→ "{\"b\":1,\"a\":{\"x\":[1,2]},\"c\":null,\"d\":\"text\",\"e\":true}"`),
		"identity":                    one("yield Message({value: [msg.value === msg.value, msg.value.a === msg.value.a, msg.value.a.x === msg.value.a.x]})", `→ [true,true,true]`),
		"identity over a spread":      one("const s = {...msg.value, z: 1}; yield Message({value: [s === msg.value, s.a === msg.value.a]})", `→ [false,true]`),
		"shared child":                one("const s = {...msg.value, z: 1}; s.a.x.push(3); yield Message({value: msg.value.a})", `→ {"x":[1,2,3]}`),
		"spread is a copy":            one("const s = {...msg.value, z: 1}; s.b = 2; msg.value.d = 'x'; yield Message({value: [msg.value.b, s.d, msg.value.z === undefined]})", `→ [1,"text",true]`),
		"spread before a call":        one("const f = () => { msg.value.b = 9; return 1 }; yield Message({value: {...msg.value, z: f()}})", `→ {"b":1,"a":{"x":[1,2]},"c":null,"d":"text","e":true,"z":1}`),
		"spread before an assignment": one("yield Message({value: {...msg.value, z: (msg.value.b = 9)}})", `→ {"b":1,"a":{"x":[1,2]},"c":null,"d":"text","e":true,"z":9}`),
		"spread of a spread":          one("yield Message({value: {...{...msg.value.a, q: 1}, r: 2}})", `→ {"x":[1,2],"q":1,"r":2}`),
		"spread of nothing":           one("yield Message({value: {...null, ...undefined, ...5, ...true, a: 1}})", `→ {"a":1}`),
		"spread of a string":          one("yield Message({value: {...'ab', c: 1}})", `→ {"0":"a","1":"b","c":1}`),
		"spread of an array":          one("yield Message({value: {...msg.value.a.x, c: 1}})", `→ {"0":1,"1":2,"c":1}`),
		"spread overridden":           one("yield Message({value: {b: 0, ...msg.value.a, b: 2}})", `→ {"b":2,"x":[1,2]}`),
		"spread with a computed name": one("yield Message({value: {...msg.value.a, [msg.key]: 1}})", `→ {"x":[1,2],"k":1}`),
		"spread of the value's array": {body: "yield Message({value: {...msg.value, a: 1}})", in: []string{`[5]`}, want: `→ {"0":5,"a":1}`},
		"spread of a tombstone":       {body: "yield Message({value: {...msg.value, a: 1}})", in: []string{``}, want: `→ {"a":1}`},
		"spread and drop":             one("yield Message({value: {...msg.value, a: undefined}})", `→ {"b":1,"c":null,"d":"text","e":true}`),
		"assign":                      one("yield Message({value: Object.assign({}, msg.value.a, {y: 1})})", `→ {"x":[1,2],"y":1}`),
		"assign into":                 one("Object.assign(msg.value.a, {y: 1}); yield Message({value: msg.value.a})", `→ {"x":[1,2],"y":1}`),
		"array methods":               one("msg.value.a.x.push(3); yield Message({value: msg.value.a.x.map(x => x * 2)}); yield Message({value: msg.value.a})", "→ [2,4,6]\n→ {\"x\":[1,2,3]}"),
		"array length":                one("msg.value.a.x.length = 1; yield Message({value: msg.value.a})", `→ {"x":[1]}`),
		"array reversed":              one("msg.value.a.x.reverse(); yield Message({value: msg.value.a})", `→ {"x":[2,1]}`),
		"isArray":                     one("yield Message({value: [Array.isArray(msg.value.a.x), Array.isArray(msg.value)]})", `→ [true,false]`),
		"instanceof":                  one("yield Message({value: [msg.value instanceof Object, msg.value.constructor === Object]})", `→ [true,true]`),
		"descriptor":                  one("yield Message({value: Object.getOwnPropertyDescriptor(msg.value, 'b')})", `→ {"value":1,"writable":true,"enumerable":true,"configurable":true}`),
		"frozen":                      one("Object.freeze(msg.value); try { msg.value.b = 2 } catch (e) { yield Message({value: e.name}) }", `→ "TypeError"`),
		"accessor":                    one("Object.defineProperty(msg.value, 'q', {get() { return 7 }, enumerable: true}); yield Message({value: {...msg.value.a, q: msg.value.q}})", `→ {"x":[1,2],"q":7}`),
		"symbol members":              one("const s = Symbol(); msg.value[s] = 1; yield Message({value: msg.value[s]})", "→ 1"),
		"Map of objects":              one("const m = new Map([[msg.value.a, 1]]); yield Message({value: m.get(msg.value.a)})", "→ 1"),
		"string":                      one("yield Message({value: String(msg.value)})", `→ "[object Object]"`),
		"typeof":                      one("yield Message({value: [typeof msg.value, typeof msg.value.a.x, typeof msg.value.c]})", `→ ["object","object","object"]`),
		"names with escapes":          {body: "msg.value['é\"'] += 1; yield Message({value: msg.value})", in: []string{`{"\u00e9\"":1,"z":2}`}, want: `→ {"é\"":2,"z":2}`},
		"doubled names":               {body: "yield Message({value: [msg.value.a, Object.keys(msg.value)]}); msg.value.x = 1; yield Message({value: msg.value})", in: []string{`{"a":1,"b":2,"a":3}`}, want: "→ [3,[\"a\",\"b\"]]\n→ {\"a\":3,\"b\":2,\"x\":1}"},
		"doubled and changed":         {body: "msg.value.a = 9; yield Message({value: msg.value})", in: []string{`{"a":1,"b":2,"a":3}`}, want: `→ {"a":9,"b":2}`},
		"doubled and deleted":         {body: "delete msg.value.a; yield Message({value: msg.value})", in: []string{`{"a":1,"b":2,"a":3}`}, want: `→ {"b":2}`},
		"index names":                 {body: "yield Message({value: Object.keys(msg.value)}); msg.value.y = 1; yield Message({value: msg.value})", in: []string{`{"z":1,"10":2,"9":3,"01":4}`}, want: "→ [\"9\",\"10\",\"z\",\"01\"]\n→ {\"9\":3,\"10\":2,\"z\":1,\"01\":4,\"y\":1}"},
		"index names set":             {body: "msg.value[7] = 1; msg.value.x = 2; msg.value[3] = 3; yield Message({value: msg.value}); yield Message({value: msg.value['7']})", in: []string{`{"z":1}`}, want: "→ {\"3\":3,\"7\":1,\"z\":1,\"x\":2}\n→ 1"},
		"__proto__ in a text":         {body: "yield Message({value: [Object.keys(msg.value), msg.value.a]})", in: []string{`{"__proto__":{"a":1},"b":2}`}, want: `→ [["__proto__","b"],null]`},
		"empty name":                  {body: "msg.value[''] += 1; yield Message({value: msg.value})", in: []string{`{"":1}`}, want: `→ {"":2}`},
		"scalars":                     {body: "yield Message({value: [msg.value]})", in: []string{`1`, `"a"`, `null`, `true`, `[1]`, ` 5 `}, want: "→ [1]\n→ [\"a\"]\n→ [null]\n→ [true]\n→ [[1]]\n→ [5]"},
		"many members":                {body: "for (let i = 0; i < 100; i++) msg.value['m' + i] = i; for (let i = 0; i < 100; i += 2) delete msg.value['m' + i]; msg.value.m0 = 'again'; yield Message({value: [Object.keys(msg.value).length, msg.value.m1, msg.value.m2 === undefined, msg.value.m0, JSON.stringify(msg.value) === JSON.stringify({...msg.value})]})", want: `→ [51,1,true,"again",true]`},
		"many members of a text":      {body: "delete msg.value.m5; msg.value.m5 = 'x'; delete msg.value.m6; msg.value.m7 = 1; for (let i = 10; i < 40; i++) msg.value['m' + i] = 0; yield Message({value: msg.value})", in: []string{manyMembersText(40)}, want: "→ " + manyMembersWant()},
		"unicode":                     {body: "yield Message({value: msg.value.a.length + msg.value.a})", in: []string{`{"a":"é😀\u0000"}`}, want: `→ "4é😀\u0000"`},
	})
}

func manyMembersText(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"m%d":%d.0`, i, i)
	}
	return "{" + b.String()[1:] + "}"
}

func manyMembersWant() string {
	var b strings.Builder
	for i := range 40 {
		switch {
		case i == 5 || i == 6:
		case i == 7:
			b.WriteString(`,"m7":1`)
		case i >= 10:
			fmt.Fprintf(&b, `,"m%d":0`, i)
		default:
			fmt.Fprintf(&b, `,"m%d":%d.0`, i, i)
		}
	}
	return "{" + b.String()[1:] + `,"m5":"x"}`
}

// The recorded cases: testdata/conformance/README.md says what a case file is and how Node fills it in. Each case runs
// in every way that values and batches can be handled, and all must give what is recorded.
func TestRecordedInNode(t *testing.T) {
	differences := documentedDifferences(t)
	used := map[string]bool{}
	index, err := os.ReadFile(filepath.Join("testdata", "conformance", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	cases := 0
	datadriven.Walk(t, filepath.Join("testdata", "conformance"), func(t *testing.T, path string) {
		if filepath.Ext(path) != ".txt" {
			t.Skip("no case file")
		}
		if !strings.Contains(string(index), "\n| `"+strings.TrimSuffix(filepath.Base(path), ".txt")+"` |") {
			t.Errorf("README.md does not say what %s is about", path)
		}
		var list []*recorded
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "case" || len(d.CmdArgs) != 1 {
				d.Fatalf(t, "a case begins with `case name`")
			}
			c := readRecorded(t, d)
			list = append(list, c)
			if d.Rewrite && c.differs != "" {
				return c.node + "own:\n" + strings.Join(c.run(t, recordedWays[0]), "\n") + "\n"
			}
			return d.Expected
		})
		names := map[string]bool{}
		for _, c := range list {
			cases++
			if names[c.name] {
				t.Errorf("%s: there are two cases called %s", c.at, c.name)
			}
			names[c.name] = true
			if c.differs != "" {
				used[c.differs] = true
				if !differences[c.differs] {
					t.Errorf("%s: docs/scripts.md has no difference called %s", c.at, c.differs)
				}
			}
			t.Run(c.name, func(t *testing.T) {
				for _, w := range recordedWays {
					if w.split && len(c.in) < 2 || w.plain && !w.bare && !strings.Contains(c.functions+c.body, "...") {
						continue
					}
					t.Run(w.name, func(t *testing.T) {
						if got := c.run(t, w); !agree(c.want, got) && !(w.bare && c.rewritten() && agree(c.nodes(), got)) {
							t.Errorf("%s\n%s\ngot\n%s\nwant\n%s", c.at, c.body, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
						}
					})
				}
			})
		}
	})
	if cases < 880 {
		t.Errorf("%d cases were found, and docs/scripts.md speaks of more than 880", cases)
	}
	for name := range differences {
		if !used[name] {
			t.Errorf("no case shows the difference %s that docs/scripts.md lists", name)
		}
	}
}

// What is recorded is what Node gives.
func TestRecordingsAreThoseOfNode(t *testing.T) {
	version, err := exec.CommandContext(t.Context(), "node", "--version").Output()
	if err != nil || !strings.HasPrefix(string(version), "v20.") {
		t.Skip("there is no Node 20")
	}
	said, err := exec.CommandContext(t.Context(), "node", filepath.Join("testdata", "conformance", "record.mjs"), "--check").CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, said)
	}
}

// recordedWay is one way to run a case.
type recordedWay struct {
	name  string
	plain bool // ordinary objects; with bare only for scripts that spread something, the others hardly differ
	bare  bool // object literals and Message({…}) are left to JavaScript
	split bool // a batch for each record
	waits bool // as a body that awaits
	calls bool // with a call of its own for each record
}

var recordedWays = []recordedWay{
	{name: "fast"},
	{name: "fast-split", split: true},
	{name: "plain-objects", plain: true},
	{name: "plain", plain: true, bare: true},
	{name: "waits", waits: true},
	{name: "waits-split", waits: true, split: true},
	{name: "waits-calls", waits: true, calls: true},
}

// singleCalls behind a body that awaits makes it one that has a call for each record.
const singleCalls = "\n;if (false) { try {} finally { return } }"

// recorded is one case.
type recorded struct {
	name, at        string
	in              []input
	headers         []stream.Header
	store           storeMap
	initial, vars   string
	topics          []*stream.Topic
	functions, body string
	differs, node   string
	want            []string
}

// nullKey stands for an absent key in an input.
const nullKey = "\x00null"

var repeated = regexp.MustCompile(`@\{(.+?)\*(\d+)\}`)

func readRecorded(t *testing.T, d *datadriven.TestData) *recorded {
	t.Helper()
	c := &recorded{name: d.CmdArgs[0].Key, at: d.Pos, store: storeMap{}, topics: out}
	lines := strings.Split(d.Input, "\n")
	for len(lines) > 0 && strings.HasPrefix(lines[0], "@") {
		name, rest, _ := strings.Cut(lines[0], " ")
		lines = lines[1:]
		switch name {
		case "@in":
			in := input{key: "k"}
			if key, ok := strings.CutPrefix(rest, "key="); ok {
				key, rest, _ = strings.Cut(key, " ")
				if in.key = nullKey; key != "null" {
					if err := json.Unmarshal([]byte(key), &in.key); err != nil {
						d.Fatalf(t, "%s: %v", name, err)
					}
				}
			}
			in.value = repeated.ReplaceAllStringFunc(rest, func(s string) string {
				m := repeated.FindStringSubmatch(s)
				n, _ := strconv.Atoi(m[2])
				return strings.Repeat(m[1], n)
			})
			c.in = append(c.in, in)
		case "@headers":
			for _, m := range rawjson.Members([]byte(rest), nil) {
				text, _ := rawjson.Text([]byte(rest)[m.Start:m.End])
				c.headers = append(c.headers, stream.Header{Key: m.Name([]byte(rest)), Value: []byte(text)})
			}
		case "@state":
			key, value, _ := strings.Cut(rest, " ")
			c.store[key] = value
		case "@initial":
			c.initial = rest
		case "@vars":
			c.vars = rest
		case "@topics":
			c.topics = nil
			for _, name := range strings.Fields(rest) {
				topic := &stream.Topic{Name: name, Key: stream.String}
				if strings.HasPrefix(name, "json") {
					topic.Key = stream.JSON
				}
				c.topics = append(c.topics, topic)
			}
		case "@differs":
			c.differs = rest
		case "@functions":
			end := slices.Index(lines, "@body")
			c.functions = strings.Join(lines[:end], "\n")
			lines = lines[end+1:]
		default:
			d.Fatalf(t, "there is no %s", name)
		}
	}
	if len(c.in) == 0 {
		c.in = []input{{"k", "{}"}}
	}
	c.body = strings.Join(lines, "\n")
	want := d.Expected
	if c.differs != "" {
		node, own, ok := strings.Cut(want, "own:\n")
		if !ok || !strings.HasPrefix(node, "node:\n") {
			d.Fatalf(t, "a case that differs has what Node gives after node: and what is right here after own:")
		}
		c.node, want = node, own
	}
	c.want = strings.Split(strings.TrimSuffix(want, "\n"), "\n")
	return c
}

// rewritten tells whether the case is about the spelling of what a script leaves alone. A spread that JavaScript itself makes
// writes its members anew.
func (c *recorded) rewritten() bool { return strings.HasPrefix(c.differs, "untouched-") }

// nodes is what Node gives.
func (c *recorded) nodes() []string {
	return strings.Split(strings.TrimSuffix(strings.TrimPrefix(c.node, "node:\n"), "\n"), "\n")
}

// run answers what the case gives, as the recorder writes it.
func (c *recorded) run(t *testing.T, w recordedWay) []string {
	t.Helper()
	plainValues = w.plain
	defer func() { plainValues = false }()
	s := Source{Body: stream.Text{File: "body", Line: 1, Column: 1, Text: c.body}}
	if c.functions != "" {
		s.Functions = []stream.Text{{File: "functions", Line: 1, Column: 1, Text: c.functions}}
	}
	p, err := Compile(s)
	if err != nil {
		return c.showFailure(err)
	}
	if w.waits {
		s.Body.Text += "\n;await 0"
		if p, err = Compile(s); err != nil || !p.async {
			t.Fatalf("the script was not compiled as one that awaits: %v", err)
		}
	}
	if w.calls {
		// No worker runs a body that has this.
		s.Body.Text += singleCalls
		if p, err = Compile(s); err != nil || p.loops {
			t.Fatalf("the script was compiled for workers: %v", err)
		}
	}
	if w.bare {
		// A script that names this is compiled without shortcuts.
		s.Body.Text += "\n;'freeze'"
		if p, err = Compile(s); err != nil || !p.plain {
			t.Fatalf("the script was not compiled without shortcuts: %v", err)
		}
	}
	env := Env{Stage: "s", Outputs: c.topics, Timeout: 5 * time.Second, Now: func() time.Time { return time.UnixMilli(1767225600000) }}
	if c.initial != "" {
		env.Initial = []byte(c.initial)
	}
	if c.vars != "" {
		env.Vars = []byte(c.vars)
	}
	tr, err := p.NewTransform(env)
	if err != nil {
		return c.showFailure(err)
	}
	defer tr.Close()
	store := maps.Clone(c.store)
	var lines []string
	for from := 0; from < len(c.in); {
		upto := len(c.in)
		if w.split {
			upto = from + 1
		}
		lines = append(lines, c.runBatch(t, tr, p, store, from, upto)...)
		from = upto
	}
	keys := map[string]bool{}
	for key := range store {
		keys[key] = true
	}
	for key := range c.store {
		keys[key] = true
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		now, there := store[key]
		if before, was := c.store[key]; was && !there {
			now = "deleted"
		} else if was && before == now {
			continue
		}
		lines = append(lines, "state "+key+" "+now)
	}
	if len(lines) == 0 {
		return []string{"nothing"}
	}
	for i, line := range lines {
		lines[i] = shorten(line)
	}
	return lines
}

func (c *recorded) runBatch(t *testing.T, tr stream.Transform, p *Program, store storeMap, from, upto int) []string {
	t.Helper()
	inputs := slices.Clone(c.in[from:upto])
	b := newBatch(t, store, inputs...)
	if !p.NamesState() {
		b.States = nil
	}
	for i := range b.Records {
		r := &b.Records[i]
		r.Offset, r.Timestamp, r.Headers = int64(from+i), int64(1000+from+i), c.headers
		if inputs[i].key == nullKey {
			r.Key = nil
		}
	}
	failures := map[int][]string{}
	b.Fail = func(i int, err error) error {
		failures[i] = c.showFailure(err)
		return nil
	}
	if err := tr.Run(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	var lines []string
	next := 0
	for i := range b.Records {
		for ; next < len(b.Messages) && b.Messages[next].From == i; next++ {
			lines = append(lines, c.showMessage(&b.Messages[next], &b.Records[i]))
		}
		lines = append(lines, failures[i]...)
	}
	if next != len(b.Messages) {
		t.Error("messages are not in the order of their records")
	}
	store.apply(b)
	return lines
}

func (c *recorded) showMessage(m *stream.Message, r *stream.Record) string {
	var s strings.Builder
	s.WriteString("message")
	if len(c.topics) > 1 {
		s.WriteString(" topic=" + m.Topic.Name)
	}
	key, was := m.Key, r.Key
	if m.Topic.Key != stream.JSON && key != nil {
		key = rawjson.AppendString(nil, string(key))
	}
	if was != nil {
		was = rawjson.AppendString(nil, string(was))
	}
	if key == nil && was != nil {
		s.WriteString(" key=null")
	} else if string(key) != string(was) {
		s.WriteString(" key=" + string(key))
	}
	if m.Partition != stream.AnyPartition {
		fmt.Fprintf(&s, " partition=%d", m.Partition)
	}
	if m.Timestamp != r.Timestamp {
		fmt.Fprintf(&s, " timestamp=%d", m.Timestamp)
	}
	for i, h := range m.Headers {
		s.WriteString(map[bool]string{true: " headers={", false: ","}[i == 0])
		s.Write(append(rawjson.AppendString(nil, h.Key), ':'))
		if h.Value == nil {
			s.WriteString("null")
		} else {
			s.Write(rawjson.AppendString(nil, string(h.Value)))
		}
		if i == len(m.Headers)-1 {
			s.WriteByte('}')
		}
	}
	if m.Value == nil {
		s.WriteString(" tombstone")
	} else {
		s.WriteString(" " + string(m.Value))
	}
	return s.String()
}

// showFailure is an error as the recorder writes one: name or code, line, message.
func (c *recorded) showFailure(err error) []string {
	var problems Problems
	if errors.As(err, &problems) {
		p := problems[0]
		return []string{fmt.Sprintf("error %s %s: %s", p.Code, placeIn(p.File, p.Line), p.Message)}
	}
	var e *Error
	if !errors.As(err, &e) {
		return []string{"error " + err.Error()}
	}
	file, line, _ := e.Position()
	name, message := e.Code(), e.Message()
	if e.Code() == CodeError {
		if before, after, ok := strings.Cut(message, ": "); ok {
			name, message = before, after
		} else {
			name, message = message, ""
		}
	}
	return []string{fmt.Sprintf("error %s %s: %s", name, placeIn(file, line), message)}
}

func placeIn(file string, line int) string {
	if file == "functions" {
		return fmt.Sprintf("functions:%d", line)
	}
	return strconv.Itoa(line)
}

// agree tells whether got is what is wanted. An error of the engine's own making is recorded without its message, which every
// engine words in its own way; a place may be unknown.
func agree(want, got []string) bool {
	return slices.EqualFunc(want, got, func(want, got string) bool {
		if want == got || !strings.HasPrefix(want, "error ") {
			return want == got
		}
		wantName, wantRest, _ := strings.Cut(strings.TrimPrefix(want, "error "), " ")
		gotName, gotRest, _ := strings.Cut(strings.TrimPrefix(got, "error "), " ")
		wantPlace, wantMessage, worded := strings.Cut(wantRest, ": ")
		gotPlace, gotMessage, _ := strings.Cut(gotRest, ": ")
		return (wantName == gotName || wantName == "SyntaxError" && gotName == "script.syntax") &&
			(wantPlace == gotPlace || wantPlace == "?") && (!worded || wantMessage == gotMessage)
	})
}

// shorten cuts a long line and gives its hash (FNV-1a, 32 bits), as the recorder does.
func shorten(line string) string {
	const longLine = 2000
	if len(utf16.Encode([]rune(line))) <= longLine {
		return line
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(line))
	return fmt.Sprintf("%s… %d bytes, hash %d", string(utf16.Decode(utf16.Encode([]rune(line))[:60])), len(line), h.Sum32())
}

// documentedDifferences are the names in the first column of the table of docs/scripts.md.
func documentedDifferences(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", "scripts.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## Differences from Node\n")
	if !ok {
		t.Fatal("docs/scripts.md has no section on differences from Node")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	names := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9-]+)` \\|").FindAllStringSubmatch(section, -1) {
		names[m[1]] = true
	}
	return names
}
