package script

import (
	"io/fs"
	"testing"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// files are script files by their path.
type files map[string]string

func (f files) read(path string) (stream.Text, error) {
	text, ok := f[path]
	if !ok {
		return stream.Text{}, fs.ErrNotExist
	}
	return stream.Text{File: path, Line: 1, Column: 1, Text: text}, nil
}

// source is the script of a file called js/t.js, or, without it, of the file functions.js and the body of f.yaml.
func (f files) source() Source {
	s := Source{Read: f.read, Body: stream.Text{File: "f.yaml", Line: 1, Column: 1, Text: f["f.yaml"]}}
	if text, ok := f["js/t.js"]; ok {
		s.Module, s.Body = true, stream.Text{File: "js/t.js", Line: 1, Column: 1, Text: text}
	}
	if text, ok := f["functions.js"]; ok {
		s.Functions = []stream.Text{{File: "functions.js", Line: 1, Column: 1, Text: text}}
	}
	return s
}

func TestImports(t *testing.T) {
	for name, c := range map[string]struct {
		files files
		want  string
	}{
		"named":              {files{"js/t.js": "import { a, b as c } from './lib.js'\nexport function* transform(msg) { yield Message({ value: [a(1), c, { a: 1, c }.c] }) }", "js/lib.js": "export const b = 2\nexport function a(x) { return x + b }"}, "out k=[3,2,2]"},
		"default":            {files{"js/t.js": "import d, { a } from './lib.js'\nexport function* transform(msg) { yield Message({ value: [d(1), a, d.name] }) }", "js/lib.js": "export const a = 1; export default x => x + 1"}, `out k=[2,1,"default"]`},
		"default with name":  {files{"js/t.js": "import d from './lib.js'\nexport function* transform(msg) { yield Message({ value: d(1) }) }", "js/lib.js": "export default function twice(x) { return 2 * x }; export const four = twice(2)"}, "out k=2"},
		"default class":      {files{"js/t.js": "import D from './lib.js'\nexport function* transform(msg) { yield Message({ value: new D().n }) }", "js/lib.js": "export default class extends Object { n = 7 }"}, "out k=7"},
		"default condition":  {files{"js/t.js": "import d from './lib.js'\nexport function* transform(msg) { yield Message({ value: d }) }", "js/lib.js": "const t = true\nexport default t ? [1, 2] : 3\nexport const z = 1"}, "out k=[1,2]"},
		"namespace":          {files{"js/t.js": "import * as lib from './lib.js'\nexport function* transform(msg) { yield Message({ value: [lib.a, Object.keys(lib), 'b' in lib] }) }", "js/lib.js": "export const a = 1; export { a as z, b as default }; const b = 3"}, `out k=[1,["a","default","z"],false]`},
		"default and all":    {files{"js/t.js": "import d, * as lib from './lib.js'\nexport function* transform(msg) { yield Message({ value: [d, lib.default] }) }", "js/lib.js": "export default 5"}, "out k=[5,5]"},
		"other folder":       {files{"js/t.js": "import { a } from '../shared/lib.js'\nexport function* transform(msg) { yield Message({ value: a }) }", "shared/lib.js": "import { a } from './deep/b.js'; export { a }", "shared/deep/b.js": "export const a = 'deep'"}, `out k="deep"`},
		"exported again":     {files{"js/t.js": "import { a, b, c, all, d } from './lib.js'\nexport function* transform(msg) { yield Message({ value: [a, b, c, all.c, d] }) }", "js/lib.js": "export { a, default as b } from './x.js'; export * from './y.js'; export * as all from './y.js'; import * as d from './z.js'; export { d }", "js/x.js": "export const a = 1; export default 2", "js/y.js": "export const c = 3; export default 9", "js/z.js": "export const e = 4"}, `out k=[1,2,3,3,{"e":4}]`},
		"names of their own": {files{"js/t.js": "import { a } from './lib.js'\nconst JSON2 = 1, x = 'mine'\nexport function* transform(msg) { yield Message({ value: [a(), x] }) }", "js/lib.js": "const x = 'theirs'; export const a = () => x", "functions.js": "const hash = 1, x2 = 1"}, `out k=["theirs","mine"]`},
		"built-ins":          {files{"js/t.js": "import { a } from './lib.js'\nexport function* transform(msg) { yield Message({ value: [a, hash] }) }", "js/lib.js": "export const a = hash('md5', 'abc').length", "functions.js": "const hash = 'own'"}, `out k=[32,"own"]`},
		"shadowed":           {files{"js/t.js": "import { a } from './lib.js'\nexport function* transform(msg) { const f = a => a; { const a = 2; yield Message({ value: [f(1), a] }) } }", "js/lib.js": "export const a = 9"}, "out k=[1,2]"},
		"of functions":       {files{"f.yaml": "yield Message({ value: twice(msg.value.n) })", "functions.js": "import { factor } from './lib.js'\nexport function twice(x) { return factor * x }", "lib.js": "export const factor = 2"}, "out k=8"},
		"not of the body":    {files{"f.yaml": "yield Message({ value: factor })", "functions.js": "import { factor } from './lib.js'", "lib.js": "export const factor = 2"}, `f.yaml:1:24: script.unknown_name: nothing is called "factor" here → declare it, or pass a setting in through vars`},
		"generator":          {files{"f.yaml": "yield* all([1, 2])", "functions.js": "import * as lib from './lib.js'\nfunction* all(list) { yield* lib.all(list) }", "lib.js": "export function* all(list) { for (const value of list) yield Message({ value }) }"}, "out k=1\nout k=2"},
		"helper that awaits": {files{"js/t.js": "import { all } from './lib.js'; import * as lib from './lib.js'\nexport async function* transform() { yield* all(1); yield* lib.all(2) }", "js/lib.js": "export async function* all(n) { yield Message({ value: await n }) }"}, "out k=1\nout k=2"},
		"async function":     {files{"js/t.js": "import { later } from './lib.js'\nexport async function* transform() { yield Message({ value: await later(1) }) }", "js/lib.js": "import * as deep from './deep.js'; export const later = x => deep.later(x)", "js/deep.js": "export async function later(n) { return await n }"}, "out k=1"},
		"for what it does":   {files{"js/t.js": "import './lib.js'\nexport function* transform() { yield Message({ value: 1 }) }", "js/lib.js": "const a = 1"}, "out k=1"},
		"comments":           {files{"js/t.js": "import /* é */ {\n  a, // first\n  b,\n} /**/ from /* x */ \"./lib.js\";export function* transform() { yield Message({ value: a + b }) }", "js/lib.js": "export /* é */ const a = 1;export\nconst b = 2"}, "out k=3"},
		"evaluated once":     {files{"js/t.js": "import { o as a } from './a.js'; import { o as b } from './b.js'\nexport function* transform() { yield Message({ value: a === b }) }", "js/a.js": "export * from './o.js'", "js/b.js": "export { o } from '../js/o.js'", "js/o.js": "export const o = { n: 1 }"}, "out k=true"},

		"frozen":               {files{"js/t.js": "import { a } from './lib.js'; import * as lib from './lib.js'\nexport function* transform() { for (const f of [() => { a.b.c = 1 }, () => { Object.assign(lib, { x: 1 }) }]) try { f() } catch (e) { yield Message({ value: e.name }) } }", "js/lib.js": "export const a = { b: {} }"}, "out k=\"TypeError\"\nout k=\"TypeError\""},
		"assigned":             {files{"js/t.js": "import { a } from './lib.js'\nexport function* transform() { a = 1 }", "js/lib.js": "export const a = 1"}, "js/t.js:2:32: script.shared_assignment: a is shared by all calls and cannot be assigned → what one call may keep for the next is its State"},
		"bare":                 {files{"js/t.js": "import _ from 'lodash'\nexport function* transform() {}"}, `js/t.js:1:15: script.import: "lodash" is no file beside this one → import takes a .js file by its relative path, as in "./lib.js"; what the standard library has needs no import`},
		"bare but there":       {files{"js/t.js": "import { fetch } from 'fetch'\nexport function* transform() {}"}, `js/t.js:1:23: script.import: "fetch" is no file beside this one → fetch is there without an import`},
		"absolute":             {files{"js/t.js": "import a from '/etc/a.js'\nexport function* transform() {}"}, `js/t.js:1:15: script.import: "/etc/a.js" is no file beside this one → import takes a .js file by its relative path, as in "./lib.js"; what the standard library has needs no import`},
		"URL":                  {files{"js/t.js": "import a from 'https://x/a.js'\nexport function* transform() {}"}, `js/t.js:1:15: script.import: "https://x/a.js" is no file beside this one → import takes a .js file by its relative path, as in "./lib.js"; what the standard library has needs no import`},
		"no ending":            {files{"js/t.js": "import a from './lib'\nexport function* transform() {}"}, `js/t.js:1:15: script.import: "./lib" is not the name of a .js file → write "./lib.js", if that is the file`},
		"TypeScript":           {files{"js/t.js": "import a from './lib.ts'\nexport function* transform() {}"}, "js/t.js:1:15: script.import: a TypeScript file is not supported yet → import a .js file"},
		"no file":              {files{"js/t.js": "import { a } from './gone.js'\nexport function* transform() { yield Message({ value: a }) }"}, `js/t.js:1:19: script.import: "./gone.js" cannot be read: file does not exist → the path is relative to the file that imports`},
		"no file, twice":       {files{"js/t.js": "import { a } from './lib.js'\nimport './gone.js'\nexport function* transform() {}", "js/lib.js": "export { a } from './gone.js'"}, `js/lib.js:1:19: script.import: "./gone.js" cannot be read: file does not exist → the path is relative to the file that imports`},
		"no export":            {files{"js/t.js": "import { frist, d } from './lib.js'\nexport function* transform() {}", "js/lib.js": "export const first = 1; const d = 2"}, "js/t.js:1:10: script.import: ./lib.js exports no \"frist\" → did you mean \"first\"?\njs/t.js:1:17: script.import: ./lib.js exports no \"d\" → it declares it; write export before that"},
		"no default":           {files{"js/t.js": "import lib from './lib.js'\nexport function* transform() {}", "js/lib.js": "export const first = 1"}, `js/t.js:1:8: script.import: ./lib.js exports no "default" → it has no export default; write import { name }`},
		"no member":            {files{"js/t.js": "import * as lib from './lib.js'\nexport function* transform() { lib.frist() }", "js/lib.js": "export const first = 1"}, `js/t.js:2:36: script.import: ./lib.js exports no "frist" → did you mean "first"?`},
		"exports nothing":      {files{"js/t.js": "import './lib.js'\nexport function* transform() {}", "js/lib.js": "export { a }"}, `js/lib.js:1:10: script.import: the file declares no "a" that it could export`},
		"circle":               {files{"js/t.js": "import { a } from './a.js'\nexport function* transform() { yield Message({ value: a }) }", "js/a.js": "\nimport { b } from './b.js'; export const a = b", "js/b.js": "import { a } from './a.js'; export const b = 1"}, "js/b.js:1:19: script.import: the files import each other in a circle: a.js → b.js → a.js → put what both need into a file of its own"},
		"circle with itself":   {files{"js/t.js": "import { transform as t } from './t.js'\nexport function* transform() {}"}, "js/t.js:1:32: script.import: the files import each other in a circle: t.js → t.js → put what both need into a file of its own"},
		"dynamic":              {files{"js/t.js": "export function* transform() { const a = import('./a.js') }"}, "js/t.js:1:42: script.import: import stands only as a declaration at the top of a file → write import { name } from \"./file.js\" there"},
		"inside":               {files{"js/t.js": "export function* transform() { if (1) { import { a } from './a.js'; export const b = 1 } }", "js/a.js": "export const a = 1"}, "js/t.js:1:41: script.import: import stands only at the top of a file → move it out of what is around it\njs/t.js:1:69: script.import: export stands only at the top of a file → move it out of what is around it"},
		"in a condition":       {files{"js/t.js": "if (1) import { a } from './a.js'\nexport function* transform() {}", "js/a.js": "export const a = 1"}, "js/t.js:1:8: script.import: import stands only at the top of a file → move it out of what is around it"},
		"nonsense":             {files{"js/t.js": "import { a } form './a.js'\nexport function* transform() {}"}, `js/t.js:1:14: script.syntax: this is no import → write import { name } from "./file.js", and export before a declaration`},
		"keyword":              {files{"js/t.js": "import { if } from './a.js'\nexport function* transform() {}", "js/a.js": "const a = 1"}, "js/t.js:1:10: script.syntax: if is no name that can be declared → write import { if as name }"},
		"twice":                {files{"js/t.js": "import { a } from './a.js'; import { b as a, b as Message } from './a.js'; const b = 1\nexport function* transform() {}", "js/a.js": "export const a = 1, b = 2"}, "js/t.js:1:38: script.declared_twice: a is declared twice in this file → write import { b as name }\njs/t.js:1:46: script.declared_twice: Message is already there → write import { b as name }"},
		"syntax in a file":     {files{"js/t.js": "import { a } from './a.js'\nexport function* transform() {}", "js/a.js": "export const a = 1;\nconst é = );"}, "js/a.js:2:11: script.syntax: unexpected token ) → remove the extra parenthesis, or open one"},
		"let in a file":        {files{"js/t.js": "import { a } from './a.js'\nexport function* transform() {}", "js/a.js": "export let a = 1"}, "js/a.js:1:8: script.shared_variable: let is shared by all calls here → declare it with const, or inside a function; what one call may keep for the next is its State"},
		"unknown in a file":    {files{"js/t.js": "import { a } from './a.js'\nexport function* transform() {}", "js/a.js": "const x = 1\nexport const a = () => msg + y", "functions.js": "const y = 1"}, "js/a.js:2:24: script.unknown_name: nothing is called \"msg\" here → only the body knows msg: give it to the function as an argument\njs/a.js:2:30: script.unknown_name: nothing is called \"y\" here → declare it, or pass a setting in through vars"},
		"await in a file":      {files{"js/t.js": "import { a } from './a.js'\nexport function* transform() {}", "js/a.js": "export const a = await 1"}, "js/a.js:1:18: script.await: await stands where nothing can wait → write async before the function around it, and await what that answers; functions do no I/O while they load"},
		"helper as a value":    {files{"js/t.js": "import { a } from './a.js'; import * as lib from './a.js'\nexport function* transform() { a(); lib.a(); const f = lib.a }", "js/a.js": "export async function* a() {}"}, "js/t.js:2:32: script.helper: a is an async function*, which runs only as yield* a(…) → write yield* a(…) in the body, or in another async function*\njs/t.js:2:37: script.helper: a is an async function*, which runs only as yield* a(…) → write yield* a(…) in the body, or in another async function*\njs/t.js:2:56: script.helper: a is an async function*, which runs only as yield* a(…) → write yield* a(…) in the body, or in another async function*"},
		"default of functions": {files{"f.yaml": ";", "functions.js": "export default 5"}, "functions.js:1:1: script.module: functions are known by their names, and export default has none → write const name = … or function name(…) { … }"},
	} {
		t.Run(name, func(t *testing.T) {
			got := compileProblems(c.files.source())
			if got == "" {
				tr, err := mustCompile(t, c.files.source()).NewTransform(Env{Outputs: out})
				if err != nil {
					t.Fatal(err)
				}
				got = runBatch(t, tr, nil, input{"k", `{"n":4}`})
			}
			expect(t, got, c.want)
		})
	}
}

func TestErrorsInImportedFilesShowTheirPlace(t *testing.T) {
	f := files{"js/t.js": "import { f } from './a.js'\nexport function* transform(msg) {\n  f(msg.value)\n}", "js/a.js": "// é\nexport const f = v => v.é.x\n"}
	tr, err := mustCompile(t, f.source()).NewTransform(Env{Outputs: out})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, recordFails(t, tr, `{}`).Detail(), "TypeError: Cannot read property 'x' of undefined\n    at f (js/a.js:2:27)\n    at transform (js/t.js:3:4)")
}

func TestImportedFilesThatCannotBeFrozen(t *testing.T) {
	f := files{"js/t.js": "import { all } from './a.js'\nexport function* transform() {}", "js/a.js": "export const all = [new Map()].concat()"}
	_, err := mustCompile(t, f.source()).NewTransform(Env{Outputs: out})
	expect(t, showError(err), "script.shared_variable 1:1 all.0 is a Map, which is shared by all calls and cannot be frozen")
}
