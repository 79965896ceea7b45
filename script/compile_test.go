package script

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

func compileProblems(s Source) string {
	_, err := Compile(s)
	if err == nil {
		return ""
	}
	var problems Problems
	if !errors.As(err, &problems) {
		return err.Error()
	}
	var lines []string
	for _, p := range problems {
		line := fmt.Sprintf("%s:%d:%d: %s: %s", p.File, p.Line, p.Column, p.Code, p.Message)
		if p.Hint != "" {
			line += " → " + p.Hint
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestProblemsOfBodies(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"parenthesis":       {"const a = 1;\nif (a > 85)) yield Message({ value: a });", "f.yaml:11:12: script.syntax: unexpected token ) → remove the extra parenthesis, or open one"},
		"first line":        {"if (é > 85)) x", "f.yaml:10:16: script.syntax: unexpected token ) → remove the extra parenthesis, or open one"},
		"characters":        {"const a = 'é😀'; )", "f.yaml:10:21: script.syntax: unexpected token ) → remove the extra parenthesis, or open one"},
		"unclosed":          {"if (true) {\n  yield", "f.yaml:10:15: script.syntax: this { is not closed → it is open at the end of the text"},
		"unclosed outside":  {"for (const x of msg.value) {\n  if (x) {\n    yield Message({ value: x });\n}\n", "f.yaml:10:32: script.syntax: this { is not closed → it is open at the end of the text"},
		"unclosed bracket":  {"const é = [1, 2;\nfoo()", "f.yaml:10:20: script.syntax: unexpected token ;"},
		"unclosed call":     {"foo(1, [2, 3", "f.yaml:10:12: script.syntax: this [ is not closed → it is open at the end of the text"},
		"unclosed template": {"const a = `${'}'} b", "f.yaml:10:15: script.syntax: this template is not closed → it is open at the end of the text"},
		"unclosed hole":     {"const a = `a ${ b", "f.yaml:10:19: script.syntax: this { is not closed → it is open at the end of the text"},
		"unclosed comment":  {"foo() /* bar", "f.yaml:10:11: script.syntax: this comment is not closed → it is open at the end of the text"},
		"brackets in texts": {"const r = /[/)}]{2}/.test('{') || `}${'`'}`; const s = 4 / 2 / '('.length; // {\nif (r) {", "f.yaml:11:8: script.syntax: this { is not closed → it is open at the end of the text"},
		"closed twice":      {"yield Message({ value: 1 }) }", "f.yaml:10:33: script.syntax: this closes more than was opened → remove the extra }"},
		"closed and opened": {"} async function* more() {", "f.yaml:10:7: script.syntax: unexpected token async"},
		"two unknown": {"mgs.value; yield Mesage({ value: vras.a })", `f.yaml:10:5: script.unknown_name: nothing is called "mgs" here → did you mean "msg"?
f.yaml:10:22: script.unknown_name: nothing is called "Mesage" here → did you mean "Message"?
f.yaml:10:38: script.unknown_name: nothing is called "vras" here → did you mean "vars"?`},
		"unknown built-in":        {"Maht.max(1)", `f.yaml:10:5: script.unknown_name: nothing is called "Maht" here → did you mean "Math"?`},
		"typeof is no use":        {"yield Message({ value: typeof nothing })", ""},
		"for await":               {"for await (const x of []) ;", "f.yaml:10:9: script.await: for await is not there → await the list, then loop: for (const x of await list)"},
		"await in a function":     {"[1].map(x => { await x })", "f.yaml:10:20: script.await: await stands where nothing can wait → write async before the function around it, and await what that answers; functions do no I/O while they load"},
		"await as a function":     {"function f() { return await(1) }", "f.yaml:10:27: script.await: await stands where nothing can wait → write async before the function around it, and await what that answers; functions do no I/O while they load"},
		"helper as a value":       {"async function* f() {}\nconst g = f;", "f.yaml:11:11: script.helper: f is an async function*, which runs only as yield* f(…) → write yield* f(…) in the body, or in another async function*"},
		"helper in a generator":   {"async function* f() {}\nfunction* g() { yield* f() }", "f.yaml:11:24: script.helper: f is an async function*, which runs only as yield* f(…) → write yield* f(…) in the body, or in another async function*"},
		"helper as an expression": {"const f = async function*() {}", "f.yaml:10:15: script.helper: an async function* stands only as a declaration → declare it: async function* name(…) { … }, and run it with yield* name(…)"},
		"import":                  {"import x from 'y'", "f.yaml:10:5: script.import: import stands only at the top of a file → put the body into a file ({ script: file.js }), or what is imported into functions"},
		"export":                  {"export function* transform() {}", "f.yaml:10:5: script.syntax: export stands only in a file of its own → a body is written without a function around it"},
		"tables":                  {"tables.x.get('a')", "f.yaml:10:5: script.not_supported: tables is not supported yet"},
		"eval":                    {"eval('1')", "f.yaml:10:5: script.unknown_name: eval is not there → write the code where it runs"},
		"Function":                {"new Function('1')", "f.yaml:10:9: script.unknown_name: Function is not there → write the function where it is used"},
		"setTimeout":              {"setTimeout(() => 1)", "f.yaml:10:5: script.unknown_name: setTimeout is not there → there are no timers in a body"},
		"regexp property": {`/\p{L}/u.test('a'); /\\p{L}/u; /\p{L}/; new RegExp('\\p{L}', 'u')`, `f.yaml:10:5: script.regexp: \p{…} never matches here → write the characters as a class, such as [a-zà-ÿ]
f.yaml:10:56: script.regexp: \p{…} never matches here → write the characters as a class, such as [a-zà-ÿ]`},
		"bad regexp":     {"/(/.test('a')", "f.yaml:10:5: script.syntax: regular expression: unterminated group"},
		"declared twice": {"const a = 1; let a = 2", "f.yaml:10:22: script.syntax: identifier 'a' has already been declared"},
		"msg declared":   {"const msg = 1", "f.yaml:10:11: script.declared_twice: msg is already there → take another name"},
		"msg declared otherwise": {"if (1) { var msg = 1 } const { a: [state] } = {}", `f.yaml:10:18: script.declared_twice: msg is already there → take another name
f.yaml:10:40: script.declared_twice: state is already there → take another name`},
		"assigned API": {"Message = 1; vars = 2; Math = 3; msg = {}; state = {}", `f.yaml:10:5: script.shared_assignment: Message cannot be assigned → declare a variable of your own with another name
f.yaml:10:18: script.shared_assignment: vars cannot be assigned → declare a variable of your own with another name
f.yaml:10:28: script.shared_assignment: the built-in Math cannot be assigned → declare a variable of your own with another name`},
		"with":                                   {"with (msg) {}", "f.yaml:10:5: script.syntax: with is not allowed in strict mode → name the object in each place"},
		"octal":                                  {"yield Message({ value: 010 })", "f.yaml:10:28: script.syntax: octal literals are not allowed in strict mode"},
		"a Message that is not yielded":          {"Message({ value: 1 });", "f.yaml:10:5: script.yield: Message(…) alone does nothing: it is not yielded → write `yield Message(…)`"},
		"a State that is not yielded":            {"if (msg.key) State({ n: 1 });", "f.yaml:10:18: script.yield: State(…) alone does nothing: it is not yielded → write `yield State(…)`"},
		"a body in a function":                   {"function one() { return 1 }\nfunction* transform(msg, state) { yield Message({ value: one() }) }", "f.yaml:11:1: script.module: nobody runs the function transform: only that of a file is → a body is written without a function around it"},
		"a generator that is not run":            {"function* g() {}\n{ g(); const h = g(); for (const m of g()) yield m; yield* h; yield* g(); { const g = () => 1; g(); } }", "f.yaml:11:3: script.yield: g is a function*: to call it alone runs nothing of it → write `yield* g(…)`"},
		"yield in an inner function":             {"[1].map(x => { yield x })", "f.yaml:10:20: script.yield: yield stands in a function inside the body → loop with for (const x of list), or make it a function* and run it with yield*"},
		"yield of an array in an inner function": {"msg.value.forEach(x => yield [x])", "f.yaml:10:28: script.yield: yield stands in a function inside the body → loop with for (const x of list), or make it a function* and run it with yield*"},
		"generated names":                        {"@yield(1)", "f.yaml:10:5: script.syntax: unexpected token ILLEGAL → a string or a regular expression may not be closed, or a character is not JavaScript"},
		"message member": {"yield Message({ vlaue: 1 })", `f.yaml:10:11: script.message: a Message needs a value → value: null is a tombstone
f.yaml:10:21: script.message: a Message has no "vlaue" → did you mean "value"?`},
		"break outside": {"break", "f.yaml:10:5: script.syntax: illegal break statement"},
		"sourcemap":     {"yield Message({ value: 1 })\n//# sourceMappingURL=/etc/passwd", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := compileProblems(Source{Body: stream.Text{File: "f.yaml", Line: 10, Column: 5, Indent: 0, Text: c.body}})
			if got != c.want {
				t.Errorf("%s\n got %s\nwant %s", c.body, got, c.want)
			}
		})
	}
}

func TestProblemsOfFunctions(t *testing.T) {
	for name, c := range map[string]struct{ functions, body, want string }{
		"let":        {"let n = 0", ";", "f.yaml:101:1: script.shared_variable: let is shared by all calls here → declare it with const, or inside a function; what one call may keep for the next is its State"},
		"var":        {"var n = 0", ";", "f.yaml:101:1: script.shared_variable: var is shared by all calls here → declare it with const, or inside a function; what one call may keep for the next is its State"},
		"let inside": {"function f() { let n = 0; var m; return n }", "f()", ""},
		"Map":        {"const m = new Map()", ";", "f.yaml:101:11: script.shared_variable: a Map is shared by all calls here and cannot be frozen → make it inside a function, or use an object or an array"},
		"nested Set": {"const m = { a: [new Set([1])] }", ";", "f.yaml:101:17: script.shared_variable: a Set is shared by all calls here and cannot be frozen → make it inside a function, or use an object or an array"},
		"used Set":   {"const m = [...new Set([1])]", ";", ""},
		"g":          {"const r = /x/g", ";", "f.yaml:101:11: script.shared_variable: a regular expression with the flag g or y remembers where it stopped, and is shared by all calls here → write the expression where it is used"},
		"no g":       {"const r = /x/i; const s = 'a-b'.replace(/-/g, '')", ";", ""},
		"assigned": {"function f() {} const c = 1; class K {}", "f = 1; K = 2", `f.yaml:1:1: script.shared_assignment: f is shared by all calls and cannot be assigned → what one call may keep for the next is its State
f.yaml:1:8: script.shared_assignment: K is shared by all calls and cannot be assigned → what one call may keep for the next is its State`},
		"assigned by a function": {"function f() { f = 2 }", ";", "f.yaml:101:16: script.shared_assignment: f is shared by all calls and cannot be assigned → what one call may keep for the next is its State"},
		"shadowed":               {"function f() {}", "const f = 1; { let f; f = 2 }", ""},
		"return":                 {"return 1", ";", "f.yaml:101:1: script.functions: return stands outside of a function → functions only declare; a body may return"},
		"msg":                    {"const f = () => msg.value", ";", `f.yaml:101:17: script.unknown_name: nothing is called "msg" here → only the body knows msg: give it to the function as an argument`},
		"Message declared":       {"const Message = 1", ";", "f.yaml:101:7: script.declared_twice: Message is already there → take another name"},
		"all at once":            {"const f = ;", "mgs", "f.yaml:101:11: script.syntax: unexpected token ;"},
		"both wrong":             {"const f = ;", "if (", "f.yaml:1:4: script.syntax: this ( is not closed → it is open at the end of the text\nf.yaml:101:11: script.syntax: unexpected token ;"},
	} {
		t.Run(name, func(t *testing.T) {
			got := compileProblems(Source{
				Body:      stream.Text{File: "f.yaml", Line: 1, Column: 1, Text: c.body},
				Functions: []stream.Text{{File: "f.yaml", Line: 101, Column: 1, Text: c.functions}},
			})
			if got != c.want {
				t.Errorf("%s | %s\n got %s\nwant %s", c.functions, c.body, got, c.want)
			}
		})
	}
}

// What fails each time that it runs is found before.
func TestWhatAlwaysFailsIsFoundInTime(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"returned name":         {"const x = 1;\nif (x) return x", "f.yaml:2:8: script.yield: a value was returned, but a body says everything by yield → write yield Message({ value: … }), and return alone to end"},
		"returned member":       {"return msg.value", "f.yaml:1:1: script.yield: a value was returned, but a body says everything by yield → write yield Message({ value: … }), and return alone to end"},
		"returned number":       {"return 5", "f.yaml:1:1: script.yield: a number was returned, but a body says everything by yield → write yield Message({ value: … }), and return alone to end"},
		"returned Message":      {"return Message({ value: 1 })", "f.yaml:1:1: script.yield: a plain object was returned, but a body says everything by yield → write yield Message({ value: … }), and return alone to end"},
		"returned condition":    {"return msg.key ? undefined : [1]", "f.yaml:1:1: script.yield: an array was returned, but a body says everything by yield → write yield Message({ value: … }), and return alone to end"},
		"returned nothing":      {"function f() { return 1 } if (msg.key) return; if (f()) return undefined; if (f()) return void f(); if (msg.value) return f(); return yield Message({ topic: 'out', value: 1 })", ""},
		"helper returns":        {"async function* f() { return 1 } yield Message({ topic: 'out', value: yield* f() })", ""},
		"yielded number":        {"yield 5", "f.yaml:1:1: script.yield: a number was yielded, which is neither a Message nor a State → write yield Message({ value: … }) or yield State(…)"},
		"yielded string":        {"if (msg.key)\n  yield \"x\"", "f.yaml:2:3: script.yield: a string was yielded, which is neither a Message nor a State → write yield Message({ value: … }) or yield State(…)"},
		"yielded object":        {"yield { value: 1 }", "f.yaml:1:1: script.yield: a plain object was yielded, which is neither a Message nor a State → write yield Message({ value: … }) or yield State(…)"},
		"yielded array":         {"yield [Message({ value: 1 })]", "f.yaml:1:1: script.yield: an array was yielded, which is neither a Message nor a State → yield* yields each element of an array"},
		"yielded in generator":  {"function* g() { yield 5 } yield Message({ topic: 'out', value: [...g()] })", ""},
		"new Message":           {"yield new Message({ value: 1 }); yield new State({})", "f.yaml:1:7: script.new: Message is a function, not a class → write Message(…) without new\nf.yaml:1:40: script.new: State is a function, not a class → write State(…) without new"},
		"topic":                 {"yield Message({ value: 1, topic: 'alrets' })", `f.yaml:1:34: script.topic: the topic "alrets" is not among output_topics → did you mean "alerts"?`},
		"topic of a variable":   {"const m = Message({ topic: 'xyz', value: 1 }); yield m", `f.yaml:1:28: script.topic: the topic "xyz" is not among output_topics → output_topics are alerts, out`},
		"no topic":              {"yield Message({ value: 1 })", "f.yaml:1:7: script.topic: the Message names no topic, and the stage has 2 → give one of alerts, out"},
		"topics that are there": {"const topic = 'x'; yield Message({ topic: 'out', value: 1 }); yield Message({ topic, value: 2 }); const m = Message({ value: 1 }); m.topic = 'out'; yield m; yield Message({ ...m })", ""},
		"vars":                  {"const a = vars.limt + vars.limit;\nconst b = vars['x'].y; vars.f()", "f.yaml:1:16: script.vars: vars has no \"limt\" → did you mean \"limit\"?\nf.yaml:2:16: script.vars: vars has no \"x\" → declare it under vars:, which has limit\nf.yaml:2:29: script.vars: vars has no \"f\" → declare it under vars:, which has limit"},
		"vars that may lack":    {"const a = vars.limt ?? 5, b = vars['x'] || 1, c = typeof vars.z, d = vars.hasOwnProperty('q'), e = vars[msg.key]; { const vars = {}; vars.q = vars.r }", ""},
		"vars assigned":         {"vars.limit = 1; vars.limit++; ({ a: vars['limit'] } = {}); delete vars.limit", "f.yaml:1:1: script.shared_assignment: vars.limit is shared by all calls and cannot be assigned → copy it before you change it: const copy = { ...vars }\nf.yaml:1:17: script.shared_assignment: vars.limit is shared by all calls and cannot be assigned → copy it before you change it: const copy = { ...vars }\nf.yaml:1:37: script.shared_assignment: vars.limit is shared by all calls and cannot be assigned → copy it before you change it: const copy = { ...vars }\nf.yaml:1:67: script.shared_assignment: vars.limit is shared by all calls and cannot be assigned → copy it before you change it: const copy = { ...vars }"},
	} {
		t.Run(name, func(t *testing.T) {
			got := compileProblems(Source{
				Body: stream.Text{File: "f.yaml", Line: 1, Column: 1, Text: c.body}, Vars: []byte(`{"limit":85}`), Outputs: []string{"alerts", "out"},
			})
			if got != c.want {
				t.Errorf("%s\n got %s\nwant %s", c.body, got, c.want)
			}
		})
	}
}

func TestModules(t *testing.T) {
	module := func(text string) Source {
		return Source{Module: true, Body: stream.Text{File: "t.js", Line: 1, Column: 1, Text: text}}
	}
	for name, c := range map[string]struct{ text, want string }{
		"plain":          {"const K = 2;\nexport function* transform(msg, state) {\n  yield Message({ value: twice(msg.value.a) });\n}\nexport function twice(x) { return K * x }\n", ""},
		"async":          {"export async function* transform(msg) { yield Message({ value: msg.value.a * 2 }) }", ""},
		"own names":      {"export function* transform({ value: { a } }, s) { yield Message({ value: a * 2 }) }", ""},
		"exported const": {"export const K = 2\nexport function* transform(m) { const v = 'export x'; yield Message({ value: m.value.a * K }) }", ""},
		"none":           {"function* other() {}", "t.js:1:1: script.module: the file exports no function* transform → write export function* transform(msg, state)"},
		"no generator":   {"\nexport function transform() {}", "t.js:2:8: script.module: the file exports no function* transform → write export function* transform(msg, state)"},
		"default":        {"export default function* transform(msg) { yield Message({ value: 8 }) }", ""},
		"anonymous":      {"export default function* () {}", "t.js:1:1: script.module: the file exports no function* transform → write export function* transform(msg, state)"},
		"as a clause":    {"function* transform(msg) { yield Message({ value: 8 }) }\nexport { transform }", ""},
		"await":          {"export async function* transform(msg) {\n  yield Message({ value: await msg.value.a * 2 })\n}", ""},
		"syntax":         {"export function* transform() {\n  )\n}", "t.js:2:3: script.syntax: unexpected token ) → remove the extra parenthesis, or open one"},
		"let":            {"let n = 0\nexport function* transform() { n++ }", "t.js:1:1: script.shared_variable: let is shared by all calls here → declare it with const, or inside a function; what one call may keep for the next is its State\nt.js:2:32: script.shared_assignment: n is shared by all calls and cannot be assigned → what one call may keep for the next is its State"},
		"unknown":        {"export function* transform(msg) { yield Message({ value: mgs.value }) }", `t.js:1:58: script.unknown_name: nothing is called "mgs" here → did you mean "msg"?`},
	} {
		t.Run(name, func(t *testing.T) {
			got := compileProblems(module(c.text))
			if got != c.want {
				t.Errorf("%s\n got %s\nwant %s", c.text, got, c.want)
			}
			if c.want != "" {
				return
			}
			tr, err := mustCompile(t, module(c.text)).NewTransform(Env{Outputs: out})
			if err != nil {
				t.Fatal(err)
			}
			expect(t, runBatch(t, tr, storeMap{}, input{"k", `{"a":4}`}), "out k=8")
		})
	}
}

func TestModuleErrorsShowTheirPlace(t *testing.T) {
	p := mustCompile(t, Source{Module: true, Body: stream.Text{File: "t.js", Line: 1, Column: 1, Text: "const f = x => x.y.z;\nexport function* transform(msg) {\n  f(msg)\n}"}})
	tr, err := p.NewTransform(Env{Outputs: out})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, recordFails(t, tr, `{}`).Detail(), "TypeError: Cannot read property 'z' of undefined\n    at f (t.js:1:20)\n    at transform (t.js:3:4)")
}

func TestProgramsSayWhatTheyNeed(t *testing.T) {
	p := mustCompile(t, Source{Body: bodyText("yield State({})")})
	if p.YieldsMessage() || !p.NamesState() {
		t.Error("a State only")
	}
	p = mustCompile(t, Source{Body: bodyText("yield* make()"), Functions: []stream.Text{bodyText("function* make() { yield Message({ value: 1 }) }")}})
	if !p.YieldsMessage() || p.NamesState() {
		t.Error("a Message only")
	}
}

func FuzzCompile(f *testing.F) {
	for _, s := range []string{"yield Message({value: {...msg.value, a: 1}})", "} {", "for await (x of y) {}", "`${", "/\\p{L}/u", "class A { static { yield } }", "import('x')", "a?.b`c`", "export default 1",
		"import d, { a as b } from './a.js'\nexport { b, d as default }; export * as c from './a.js'; export function* transform() { b(d.e) }", "import * as n from './a.js'; n.f; if (1) import './a.js'"} {
		f.Add(s, false)
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, body string, module bool) {
		read := files{"a.js": "export const a = 1; export default { e: 2 }; export async function* f() {}"}.read
		_, err := Compile(Source{Module: module, Read: read, Body: stream.Text{File: "f", Line: 3, Column: 5, Indent: 4, Text: body}})
		if err == nil {
			return
		}
		var problems Problems
		if !errors.As(err, &problems) {
			t.Fatal(err)
		}
		for _, p := range problems {
			if p.Line < 3 || p.Column < 1 || p.Code == "" || p.Message == "" {
				t.Errorf("%q: %+v", body, p)
			}
		}
	})
}

// Bodies that goja's compiler fails on ("compiler bug") where it sees by itself that something never runs.
func TestWhatNeverRunsCompiles(t *testing.T) {
	for _, never := range []string{
		"if (2.5) return; else if (((msg.value.a ? vars.inner.c : NaN) - '')) { return }", "if (2.5) return; else if (msg.value.a ? vars.inner : 1) { return }", "if (false) { if (msg.value?.a) { msg.key } }", "if (!1) { if (msg.key) return; else if (msg.value) return }",
		"while (0) { if (msg.key ? msg : 1) break }", "for (; false;) { if (msg.key ? msg : 1) break }", "if (1 || msg.key) return; else if (msg.key ? msg : 1) { return }",
	} {
		for _, rest := range []string{"await msg.value.a;", "const f = () => msg; f();", "yield Message({ value: msg.key });"} {
			if _, err := Compile(Source{Body: bodyText(never + "\n" + rest)}); err != nil {
				t.Errorf("%s %s: %v", never, rest, err)
			}
		}
	}
}

// A misspelt name is found before the first record, and what is there, or may be, is left alone.
func TestMisspeltMembers(t *testing.T) {
	for name, c := range map[string]struct {
		kind            Kind
		push            bool
		body, functions string
		want            string
	}{
		"msg":                {body: "yield Message({ value: msg.vlaue })", want: `1:28: script.member: msg has no "vlaue" → did you mean "value"?`},
		"msg, deeper":        {body: "if (msg.valeu.a) yield Message({ value: msg.value })", want: `1:9: script.member: msg has no "valeu" → did you mean "value"?`},
		"msg in a function":  {body: "const f = () => msg.offest; yield Message({ value: f() })", want: `1:21: script.member: msg has no "offest" → did you mean "offset"?`},
		"msg, called":        {body: "msg.headres()", want: `1:5: script.member: msg has no "headres" → did you mean "headers"?`},
		"msg of MQTT":        {kind: Relay, push: true, body: "yield Message({ value: msg.level })", want: `1:28: script.member: msg has no "level" → did you mean "levels"?`},
		"msg of HTTP":        {kind: Relay, body: "yield Message({ value: msg.valu })", want: `1:28: script.member: msg has no "valu" → did you mean "value"?`},
		"made later":         {body: "for (const n of [1, 2]) { if (msg.values) yield Message({ value: 1 }); msg.values = n }"},
		"made by a function": {body: "mark(msg); yield Message({ value: msg.marked })", functions: "function mark(m) { m.marked = true }"},
		"another msg":        {body: "for (const msg of [{ vlaue: 1 }]) yield Message({ value: msg.vlaue })"},
		"of all objects":     {body: "yield Message({ value: [msg.toString(), msg.hasOwnProperty('value')] })"},
		"input":              {body: "yield Message({ value: msg.input })"},
		"config":             {kind: Poll, body: "yield Message({ value: config.vlaue })"},
		"Math":               {body: "Math.mx(1)", want: `1:6: script.member: Math has no "mx" → did you mean "max"?`},
		"json":               {body: "json.prase('1')", want: `1:6: script.member: json has no "prase" → did you mean "parse"?`},
		"hex":                {body: "hex.toText('1')", want: `1:5: script.member: hex has no "toText" → it has decode and encode`},
		"class":              {body: "Object.entires({})", want: `1:8: script.member: Object has no "entires" → did you mean "entries"?`},
		"in functions":       {functions: "const f = x => Number.isInterger(x);", body: "f(1)", want: `1:23: script.member: Number has no "isInterger" → did you mean "isInteger"?`},
		"fetch":              {body: "await fetch('x', { timeuot: 1, 'expct': 200 })", want: "1:20: script.member: fetch has no option \"timeuot\" → did you mean \"timeout\"?\n1:32: script.member: fetch has no option \"expct\" → did you mean \"expect\"?"},
		"csv.parse":          {body: "csv.parse('a', { sep: ';' })", want: `1:18: script.member: csv.parse has no option "sep" → it has delimiter, quote, columns, empty, short, extra and invalid_utf8`},
		"open options":       {body: "const o = { timeuot: 1 }; await fetch('x', { ...o, ['expct']: 1 })"},
		"one's own Math":     {body: "const Math = { mx: () => 1 }; Math.mx()"},
		"asked for":          {body: "if (Array.fromAsync) yield Message({ value: 1 }); Array.fromAsync?.([])"},
		"asked for before":   {body: "if (Error.captureStackTrace) Error.captureStackTrace({})"},
		"of a function":      {body: "Math.max.apply(null, [1]); structuredClone.call(null, {}); Date.now.bind(Date)"},
		"computed":           {body: "Math['mx']"},
	} {
		t.Run(name, func(t *testing.T) {
			s := Source{Kind: c.kind, Push: c.push, Body: stream.Text{File: "f.yaml", Line: 1, Column: 1, Text: c.body}}
			if c.functions != "" {
				s.Functions = []stream.Text{{File: "f.js", Line: 1, Column: 1, Text: c.functions}}
			}
			got := strings.NewReplacer("f.yaml:", "", "f.js:", "").Replace(compileProblems(s))
			if got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}
