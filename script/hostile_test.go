package script

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/dlclark/regexp2/v2"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// hostile is a piece of a script that means no good.
type hostile struct {
	name, code string
	// want is the code of the error that it ends with and the beginning of the message; "" is no error.
	want string
}

// The list that docs/scripts.md speaks of under "Limits", each with its documented end. They run in every place that code
// of a script can stand in.
var hostiles = []hostile{
	{"endless loop", "let i = 0; for (;;) i++;", CodeTimeout + " the script ran longer than"},
	{"deep recursion", "const f = () => f() + 1; f();", CodeStack + " calls nest deeper than 1000"},
	{"long text", "'x'.repeat(2 ** 28);", CodeError + " RangeError: repeat would make a string of 268435456 characters"},
	{"regular expression", "/^(?=(a+)+$)a/.test('a'.repeat(40) + '!');", CodeTimeout + " the script ran longer than"},
	{"throwing getter", "const o = { get a() { throw new RangeError('no') } }; o.a;", CodeError + " RangeError: no"},
	{"prototype pollution", "const o = {}; o.__proto__.polluted = 1;", CodeError + " TypeError: Cannot add property polluted, object is not extensible"},
	{"merged pollution", "const merge = (a, b) => { for (const k in b) if (typeof b[k] === 'object') merge(a[k], b[k]); else a[k] = b[k]; }; const from = {}; Object.defineProperty(from, '__proto__', { value: { polluted: 1 }, enumerable: true }); merge({}, from);", CodeError + " TypeError: Cannot add property polluted, object is not extensible"},
	{"eval", "const e = globalThis['eval']; e('1');", CodeError + " TypeError: eval is not there"},
	{"Function", "(() => 1).constructor('return 1')();", CodeError + " TypeError: the Function constructor is not there"},
	{"sourceMappingURL", "throw new Error('as it stands');\n//# sourceMappingURL=file:///etc/passwd", CodeError + " Error: as it stands"},
}

// hostilePlaces are where code of a script can stand: CODE stands for it. Each lies in a body that is harmless but for the records of bad.
var hostilePlaces = map[string]struct{ functions, body string }{
	"body":                  {"", "CODE"},
	"after await":           {"", "await fetch('x/1'); CODE"},
	"after a yield":         {"", "yield Message({ value: 'taken back' }); CODE"},
	"generator":             {"", "function* g() { yield Message({ value: 'taken back' }); CODE } yield* g();"},
	"generator that waits":  {"", "async function* g() { yield Message({ value: 'taken back' }); await fetch('x/1'); CODE } yield* g();"},
	"yield* of an iterable": {"", "yield* { [Symbol.iterator]() { return { next() { CODE } } } };"},
	"functions":             {"function f() { CODE }", "f();"},
	"functions that wait":   {"async function f() { await fetch('x/1'); CODE }", "await f();"},
	"memo":                  {"", "memo('key', '1m', () => { CODE });"},
	"memo that waits":       {"", "await memo('key', '1m', async () => { await fetch('x/1'); CODE });"},
	"getter of a value":     {"", "yield Message({ value: { get a() { CODE } } });"},
	"getter of a header":    {"", "yield Message({ value: 1, headers: { get a() { CODE } } });"},
	"toJSON":                {"", "yield Message({ value: { toJSON() { CODE } } });"},
	"conversion":            {"", "yield Message({ value: 1, timestamp: { valueOf() { CODE } } });"},
	"state":                 {"", "state.n = 1; yield State({ get a() { CODE } });"},
	"comparison":            {"", "[2, 1].sort(() => { CODE });"},
	"catch":                 {"", "try { throw 1 } catch { CODE }"},
	"finally":               {"", "try { await fetch('x/1') } finally { CODE }"},
	"promise":               {"", "await new Promise(() => { CODE });"},
	"thenable":              {"", "await { then() { CODE } };"},
	"proxy":                 {"", "new Proxy({}, { get() { CODE } }).a;"},
	"species":               {"", "class A extends Array { static get [Symbol.species]() { CODE } } new A(1, 2).map(x => x);"},
}

// hostileTimeout is how long what never ends may take, and shortMatch how long a match that never ends.
const (
	hostileTimeout = 150 * time.Millisecond
	shortMatch     = 400 * time.Millisecond
)

// rarely leaves most places out where there is no time.
func rarely(t *testing.T, place string) {
	t.Helper()
	if testing.Short() && place != "body" && place != "after await" && place != "generator" {
		t.Skip("left out by -short")
	}
}

// shortMatches bounds matches for a test.
func shortMatches(t *testing.T) {
	t.Helper()
	regexp2.DefaultMatchTimeout = shortMatch
	t.Cleanup(func() { regexp2.DefaultMatchTimeout = longestMatch })
}

// timeoutFor is the timeout of a body that ends with want: short if it is the timeout that ends it.
func timeoutFor(want string) time.Duration {
	if strings.HasPrefix(want, CodeTimeout) {
		return hostileTimeout
	}
	return time.Minute
}

// spoilt is a script with a harmless body that does what bad says only where a condition is true.
func spoilt(kind Kind, condition, functions, bad, body string) Source {
	s := Source{Kind: kind, Body: stream.Text{File: "f.yaml", Line: 1, Column: 1, Text: "if (" + condition + ") {\n" + bad + "\n}\n" + body}}
	if functions != "" {
		s.Functions = []stream.Text{{File: "f.js", Line: 1, Column: 1, Text: "\n" + functions}}
	}
	return s
}

// failsWith checks what an error begins with, code and message, and answers it, or nil if it is another.
func failsWith(t *testing.T, err error, want string) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || !strings.HasPrefix(e.Code()+" "+e.Message(), want) {
		t.Errorf("got %s, want %s", showError(err), want)
		return nil
	}
	return e
}

// unharmed runs a body over records of other keys around two that are bad, and checks that these fail with want, and that the others are as
// ever: their outputs and their states. With no want none fails.
func unharmed(t *testing.T, functions, bad, want string) {
	t.Helper()
	s := spoilt(Transform, "msg.key === 'bad'", functions, bad, "state.n = (state.n ?? 0) + 1; yield State(state); yield Message({ value: [msg.value.i, state.n] });")
	server := &server{}
	tr, err := mustCompile(t, s).NewTransform(Env{Outputs: out, Fetch: server.fetch, Timeout: timeoutFor(want)})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	b := newBatch(t, storeMap{}, records("a", "bad", "b", "bad", "a")...)
	var failed []error
	b.Fail = func(_ int, err error) error { failed = append(failed, err); return nil }
	began := time.Now()
	if err := tr.Run(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
	if want == "" {
		if len(failed) > 0 {
			t.Fatalf("failed: %s", showError(failed[0]))
		}
		return
	}
	expect(t, effects(b), "out a=[0,1]\nout b=[2,1]\nout a=[4,2]\nstate a={\"n\":2}\nstate b={\"n\":1}")
	if len(failed) != 2 {
		t.Fatalf("%d records failed: %v", len(failed), failed)
	}
	for _, err := range failed {
		e := failsWith(t, err, want)
		if e == nil {
			continue
		}
		file, line, _ := e.Position()
		if e.Code() == CodeEngine && line == 0 {
			continue // the engine does not say where it was
		}
		if line != 2 || functions == "" && file != "f.yaml" {
			t.Errorf("it is shown at %s:%d", file, line)
		}
	}
}

// inEveryPlace calls run with each of hostiles in each of hostilePlaces.
func inEveryPlace(t *testing.T, run func(t *testing.T, functions, bad, want string)) {
	shortMatches(t)
	for place, p := range hostilePlaces {
		t.Run(place, func(t *testing.T) {
			rarely(t, place)
			for _, h := range hostiles {
				t.Run(h.name, func(t *testing.T) {
					if strings.Contains(h.code, "a+") && !strings.Contains(p.body, "g()") && place != "body" {
						t.Skip("a match takes its time: one in the body and in generators is enough")
					}
					code := h.code + "\n"
					run(t, strings.ReplaceAll(p.functions, "CODE", code), strings.ReplaceAll(p.body, "CODE", code), h.want)
				})
			}
		})
	}
}

func TestHostileCodeInEveryPlace(t *testing.T) { inEveryPlace(t, unharmed) }

// TestHostileCodeInPolls is the same for polls: the poll of the config ends as it should, and one that runs beside it goes on.
func TestHostileCodeInPolls(t *testing.T) {
	inEveryPlace(t, func(t *testing.T, functions, bad, want string) {
		if strings.Contains(bad, "State(") {
			t.Skip("a State ends a page")
		}
		s := spoilt(Poll, "config.bad", functions, bad, "await fetch('x/1'); yield Message({ value: config.n }); yield State({ n: config.n });")
		server := &server{}
		source, err := mustCompile(t, s).NewSource(Env{Outputs: out, Fetch: server.fetch, Timeout: timeoutFor(want)})
		if err != nil {
			t.Fatal(err)
		}
		defer source.Close()
		poll := func(config string) (pages int, err error) {
			err = source.Poll(context.Background(), &stream.Poll{Config: stream.Config{Key: "c", Value: []byte(config)}, Commit: func(_ context.Context, page *stream.Page) error {
				if pages++; len(page.Messages) != 1 || string(page.Cursor) != `{"n":1}` {
					t.Errorf("a page of %d messages with the cursor %s", len(page.Messages), page.Cursor)
				}
				return nil
			}})
			return pages, err
		}
		beside := make(chan error, 1)
		go func() {
			pages, err := poll(`{"n":1}`)
			if err == nil && pages != 1 {
				err = fmt.Errorf("%d pages", pages)
			}
			beside <- err
		}()
		pages, err := poll(`{"bad":true}`)
		if failsWith(t, err, want); pages != 0 {
			t.Errorf("%d pages", pages)
		}
		if err := <-beside; err != nil {
			t.Errorf("the poll beside it: %v", err)
		}
	})
}

// What stands before a yield is taken at the yield; what a catch takes, is not the end of the stage; and what a letter is, is not known.
func TestHostileCodeWithAnEndOfItsOwn(t *testing.T) {
	for name, h := range map[string]hostile{
		"never settles":           {code: "await new Promise(() => {});", want: CodeStuck + " the script awaits a promise that nothing can settle"},
		"never settles in all":    {code: "await Promise.all([new Promise(() => {}), 1]);", want: CodeStuck},
		"never settles in race":   {code: "await Promise.race([new Promise(() => {})]);", want: CodeStuck},
		"never settles in any":    {code: "await Promise.any([new Promise(() => {}), Promise.reject(1)]);", want: CodeStuck},
		"allSettled":              {code: "await Promise.allSettled([new Promise(() => {})]);", want: CodeStuck},
		"any of none":             {code: "await Promise.any([]);", want: CodeError + " AggregateError"},
		"catches the end":         {code: "for (;;) { try { await fetch('never') } catch { } }", want: CodeTimeout},
		"finally swallows":        {code: "for (;;) { try { await fetch('never') } finally { continue } }", want: CodeTimeout},
		"finally returns":         {code: "const f = () => { for (;;) try { return 1 } finally { continue } }; f();", want: CodeTimeout},
		"finally yields":          {code: "let i = 0; try { for (;;) i++; } finally { yield Message({ value: 'late' }) }", want: CodeTimeout},
		"unhandled later":         {code: "(async () => { await 0; throw new Error('late') })(); await fetch('x/1');", want: CodeUnhandled},
		"resolves twice":          {code: "const v = await { then(f, g) { f(1); f(2); g(3); throw 4 } }; if (v !== 1) throw v;"},
		"resolves with itself":    {code: "const t = { then(f) { f(t) } }; await t;", want: CodeTimeout},
		"resolves without end":    {code: "const next = () => ({ then(f) { f(next()) } }); await next();", want: CodeTimeout},
		"microtasks":              {code: "const f = () => Promise.resolve().then(f); f(); await 0;", want: CodeTimeout},
		"microtasks alone":        {code: "const f = () => Promise.resolve().then(f); f();", want: CodeTimeout},
		"recursion that waits":    {code: "const f = async () => { await 0; await f() }; await f();", want: CodeTimeout},
		"message after its yield": {code: "const v = { list: [1] }; yield Message({ value: v }); v.list.push(2); msg.value.i = 9; yield State({ v }); v.list.push(3);"},
		"labels":                  {code: "let i = 0; a: for (;;) { b: for (;;) { i++; continue a } }", want: CodeTimeout},
		"generator runs itself":   {code: "const g = (function* () { g.next() })(); g.next();", want: CodeError + " TypeError: Illegal generator state"},
		"generator is left":       {code: "function* g() { try { yield Message({ value: 1 }); } finally { for (;;) ; } } for (const m of g()) break;", want: CodeTimeout},
		"prototype is a circle":   {code: "const a = {}; Object.setPrototypeOf(a, Object.create(a));", want: CodeError + " TypeError: Cyclic"},
		"proxy is its prototype":  {code: "const a = {}; const p = new Proxy(a, {}); Object.setPrototypeOf(a, p); p.x;", want: CodeError + " TypeError: a Proxy cannot be made the prototype"},
		"__proto__ is a proxy":    {code: "const a = {}; a.__proto__ = Object.create(new Proxy(a, {})); 'x' in a;", want: CodeError + " TypeError: a Proxy cannot be made the prototype"},
		"proxies in proxies":      {code: "let p = {}; for (let i = 0; i < 4e6; i++) p = new Proxy(p, {}); p.a;", want: CodeError + " RangeError: more than 100 proxies"},
		"proxy without end":       {code: "const p = new Proxy({}, { getPrototypeOf() { return p } }); p instanceof Array;", want: CodeTimeout},
		"names of a proxy":        {code: "Object.keys(new Proxy({}, { ownKeys() { return { length: 2 ** 31 } } }));", want: CodeEngine},
		"conversion":              {code: "`${{ [Symbol.toPrimitive]() { for (;;) ; } }}`;", want: CodeTimeout},
		"instanceof":              {code: "class A { static [Symbol.hasInstance]() { for (;;) ; } } 1 instanceof A;", want: CodeTimeout},
		"iterator without end":    {code: "[...{ [Symbol.iterator]() { return { next() { return { done: false } } } } }];", want: CodeTimeout},

		"Promise.all without end": {code: "Promise.all({ [Symbol.iterator]() { return { next() { return { value: 1 } } } } });", want: CodeTimeout},
		"circle":                  {code: "const o = {}; o.o = [o]; yield Message({ value: o });", want: CodeRefused + " the value's o[0]"},
		"circle in the state":     {code: "state.s = state; yield State(state);", want: CodeRefused},
		"toJSON is a circle":      {code: "const o = { toJSON() { return { o } } }; yield Message({ value: o });", want: CodeRefused},
		"deep value":              {code: "let a = []; for (let i = 0; i < 2e3; i++) a = [a]; yield Message({ value: a });", want: CodeRefused},
		"deep state":              {code: "let a = []; for (let i = 0; i < 2e3; i++) a = [a]; yield State({ a });", want: CodeRefused},
		"deep copy":               {code: "let a = []; for (let i = 0; i < 2e3; i++) a = [a]; structuredClone(a);", want: CodeError + " RangeError: structuredClone: nested too deep"},
		"deep comparison":         {code: "let a = [], b = []; for (let i = 0; i < 2e3; i++) { a = [a]; b = [b] } equal(a, b);", want: CodeError + " RangeError: equal: nested too deep"},
		"deep cause":              {code: "let e = new Error('x'); for (let i = 0; i < 2e3; i++) e = new Error('x', { cause: e }); throw e;", want: CodeError + " Error: x"},
		"wide value":              {code: "let a = 'x'.repeat(1000); for (let i = 0; i < 40; i++) a = [a, a]; yield Message({ value: a });", want: CodeRefused},
		"getter that changes":     {code: "let n = 0; yield Message({ value: { get a() { return n++ }, get b() { return n++ } } });"},
		"getter that takes away":  {code: "const o = { get a() { delete o.b; o.c = 1; return 1 }, b: 2 }; yield Message({ value: o });"},
		"array that shrinks":      {code: "const a = [1, 2, 3]; Object.defineProperty(a, 0, { get() { a.length = 0; return 1 } }); yield Message({ value: a });"},
		"array that grows":        {code: "const a = [1]; Object.defineProperty(a, 0, { get() { a.push(1); return 1 } }); yield Message({ value: a });"},
		"huge proxy array":        {code: "yield Message({ value: new Proxy([], { get(t, k) { return k === 'length' ? 2 ** 53 - 1 : 0 } }) });", want: CodeRefused},
		"constants":               {code: "Math.PI = 3;", want: CodeError + " TypeError"},
		"built-ins":               {code: "Array.prototype.map = 1;", want: CodeError + " TypeError"},
		"global":                  {code: "globalThis.kept = msg;", want: CodeError + " TypeError"},
		"vars":                    {code: "const v = vars; v.x = 1;", want: CodeError + " TypeError"},
		"templates":               {code: "const t = s => s; t`a`.push(1);", want: CodeError + " TypeError"},
		"nothing in Array.from":   {code: "yield Message({ value: Array.from({ length: 3 }, String) });"},
		"a fault of the engine":   {code: "[].find.call({ length: 2 }, Boolean);", want: CodeEngine + " the JavaScript engine failed"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "wide value" && testing.Short() {
				t.Skip("writes 64 MiB")
			}
			unharmed(t, "", h.code, h.want)
			if !strings.Contains(h.code, "await ") && h.want != "" {
				t.Run("after await", func(t *testing.T) { unharmed(t, "", "await fetch('x/1'); "+h.code, h.want) })
			}
		})
	}
}

// What one built-in function does cannot be interrupted: so what it is given is bounded.
func TestHostileArgumentsOfBuiltIns(t *testing.T) {
	const list = CodeError + " RangeError: "
	for code, want := range map[string]string{
		"[].indexOf.call({ length: 2 ** 53 - 1 }, 1)": list + "indexOf would walk a list of 9007199254740991 elements; 1048576 are the most",
		"[].fill.call({ length: 2 ** 53 - 1 }, 0)":    list, "Array(2 ** 32 - 1).fill(0)": list, "[].reverse.call({ length: 2 ** 53 - 1 })": list,
		"[].sort.call({ length: 2 ** 32 - 1 })": list, "[].concat({ length: 2 ** 32, [Symbol.isConcatSpreadable]: true })": list, "[].join.call({ length: 2 ** 53 - 1 }, '')": list,
		"[].some.call({ length: 2 ** 53 - 1 }, Boolean)": list, "[].map.call({ length: 2 ** 32 - 1 }, x => x)": list, "[].flatMap.call({ length: 2 ** 53 - 1 }, Array)": list,
		"const a = []; a.length = 1e9; [a].flat()": list, "let a = ['x']; for (let i = 0; i < 40; i++) a = [a, a]; a.flat(Infinity)": list,
		"const a = []; a[4e9] = 1; a.filter(Boolean)": list, "[].copyWithin.call({ length: 2 ** 53 - 1 }, 0, 1)": list, "[].splice.call({ length: 2 ** 53 - 1 }, 0, 5)": list,
		"Array.from({ length: 2 ** 32 - 1 })": list, "Array.from({ length: 2 ** 53 - 1 }, Math.abs)": list, "Uint8Array.from({ length: 2 ** 32 })": list,
		"new Uint8Array(10).set({ length: 2 ** 53 - 1 })": list, "Math.max.apply(null, { length: 2 ** 31 })": list, "Reflect.apply(Math.max, null, { length: 2 ** 31 })": list,
		"Reflect.construct(Array, { length: 2 ** 31 })": list, "String.raw({ raw: { length: 2 ** 53 - 1 } })": list, "'x'.padEnd(2 ** 30)": list, "''.concat(...Array(100).fill('x'.repeat(1 << 20)))": list,
		"'a'.repeat(1e6).replace(/a/g, 'x'.repeat(1e6))": list + "replace would make a string of", "'a'.repeat(1e6).replaceAll('a', 'x'.repeat(1e6))": list, "'a'.repeat(1e4).replace(/a/g, \"$'\")": list, "'a'.repeat(1e4).replace(/a(?=(.*))/g, '$1')": list, "'a'.repeat(1e4).replace(/(?<n>a)(?=(?<m>.*))/g, '$<m>')": list,
		"'x'.repeat(9 << 20).split('')": list, "'x'.repeat(9 << 20).match(/x/g)": list, "'é'.repeat(9 << 20).normalize('NFD')": list, "Object.assign({}, 'x'.repeat(2 << 20))": list,
		"String(Array(64).fill(['x'.repeat(1 << 20)]))": list + "join would make", "new Uint8Array(2 ** 31)": list, "new ArrayBuffer(1e12)": list, "new Float64Array({ length: 1e9 })": list, "new BigInt64Array(1e9)": list,
		"2n ** 100000000n": list + "a BigInt of more than 16777216 bits", "2n ** (10n ** 12n)": list, "let x = 10n; x **= 10000000n": list, "1n << (10n ** 10n)": list, "let x = 1n; x <<= 10n ** 30n": list,
		"BigInt.asUintN(2 ** 40, -1n)": list, "BigInt('9'.repeat(1e6))": list, "new RegExp('('.repeat(1e5) + ')'.repeat(1e5))": CodeError + " SyntaxError", "xml.parse('<a>'.repeat(1e5))": CodeError,
		"const s = 'x'.repeat(30 << 20); yield State({ a: s, b: s, c: s })": CodeRefused, "const s = 'x'.repeat(30 << 20); state.a = s; state.b = s; state.c = s; yield State(state)": CodeState + " the State has", "throw new Error('x'.repeat(20 << 20))": CodeError,
	} {
		t.Run(code, func(t *testing.T) {
			unharmed(t, "", code, want)
		})
	}
}

// What is bounded is not in the way of what is not.
func TestBoundedBuiltInsDoWhatTheyDid(t *testing.T) {
	for _, c := range []struct{ expression, want string }{
		{"'a1b22'.replace(/\\d/g, '<$&>')", `"a<1>b<2><2>"`}, {"'x-y'.replace('-', '$$')", `"x$y"`}, {"'aaa'.replaceAll('a', (m, at) => at)", `"012"`}, {"'a'.replace('a', undefined)", `"undefined"`},
		{"'ab'.repeat(200000).replace(/(b)/g, '$1'.repeat(40) + 'x').length", `8400000`}, {"'ab'.repeat(200000).replace(/b/g, 'x'.repeat(100)).length", `20200000`},
		{"'ab'.repeat(200000).replace(/c/g, 'x'.repeat(1000)).length", `400000`}, {"'a,b'.split(',')", `["a","b"]`}, {"'a,b'.split(/,/, 1)", `["a"]`},
		{"[3, 1, 2].sort()", `[1,2,3]`}, {"[1, [2, [3, [4]]]].flat()", `[1,2,[3,[4]]]`}, {"[1, [2, [3, [4]]]].flat(2)", `[1,2,3,[4]]`}, {"[1, [2]].flat(0)", `[1,[2]]`}, {"[1].concat(2, [3], [[4]])", `[1,2,3,[4]]`},
		{"[[1, 2], [3, null]].join(';')", `"1,2;3,"`}, {"[1, 2].join()", `"1,2"`}, {"Array.from('abc', x => x + x)", `["aa","bb","cc"]`}, {"Array.from({ length: 2 })", `[null,null]`}, {"Array.from({ length: 2 }, String)", `["undefined","undefined"]`},
		{"Array.from(new Set([1, 1, 2]))", `[1,2]`}, {"[...Uint8Array.from([1, 2], x => x * 2)]", `[2,4]`}, {"[...new Uint8Array([1, 2, 300])]", `[1,2,44]`}, {"new Uint8Array(3).length", `3`}, {"[...new Uint8Array(new Uint16Array([1, 2]))]", `[1,2]`},
		{"new Uint8Array(new ArrayBuffer(8), 4, 2).length", `2`}, {"[Uint8Array.BYTES_PER_ELEMENT, Float64Array.BYTES_PER_ELEMENT, Uint8Array.name, Uint8Array.length]", `[1,8,"Uint8Array",3]`}, {"new Uint8Array(1) instanceof Uint8Array", `true`},
		{"[...new Uint8Array([1, 2, 3]).map(x => x * 2).subarray(1)]", `[4,6]`}, {"new Uint8Array(2).constructor === Uint8Array", `true`}, {"new ArrayBuffer(8).slice(2).byteLength", `6`}, {"ArrayBuffer.isView(new DataView(new ArrayBuffer(1)))", `true`},
		{"Object.prototype.toString.call(new Uint8Array(1))", `"[object Uint8Array]"`}, {"[BigInt(5), BigInt('7'), typeof BigInt, BigInt.name, BigInt.asIntN(8, 255n)]", `[5,7,"function","BigInt",-1]`}, {"5n instanceof BigInt", `false`},
		{"[2 ** 10, 2n ** 10n, 1 << 5, 1n << 5n, (-2) ** 3]", `[1024,1024,32,32,-8]`}, {"(() => { let x = 2; x **= 3; x <<= 1; let y = 2n; y **= 3n; y <<= 1n; return [x, y] })()", `[16,16]`}, {"(() => { const o = { x: 2 }; const n = 3; o.x **= n; o.x <<= n; return o.x })()", `64`},
		{"(() => { let log = ''; const f = (n, v) => { log += n; return v }; f('a', 2) ** f('b', 3) << f('c', 1); return log })()", `"abc"`}, {"2 ** '3'", `8`}, {"1n << -1n", `0`}, {"Math.max.apply(null, [1, 3, 2])", `3`}, {"Reflect.apply(Math.max, null, [1, 2])", `2`},
		{"Reflect.construct(Array, [1, 2])", `[1,2]`}, {"new Proxy({ a: 1 }, { get: (t, k) => k }).b", `"b"`}, {"(() => { const r = Proxy.revocable({}, {}); r.revoke(); return typeof r.proxy })()", `"object"`}, {"[typeof Proxy, Proxy.name, Proxy.prototype === undefined]", `["function","Proxy",true]`},
		{"Object.getPrototypeOf(Object.setPrototypeOf({}, Array.prototype)) === Array.prototype", `true`}, {"(() => { const o = {}; o.__proto__ = { x: 1 }; return [o.x, Object.keys(o)] })()", `[1,[]]`}, {"(() => { for (const k in {}) return k; return 'none' })()", `"none"`},
		{"String.raw`a\\n${1}`", `"a\\n1"`}, {"'é'.normalize('NFD').length", `2`}, {"'a'.localeCompare('b')", `-1`}, {"'x1y2'.match(/\\d/g)", `["1","2"]`}, {"[[].map.length, [].fill.length, ''.replace.length, Array.from.length, [].map.name]", `[1,1,2,1,"map"]`},
		{"(() => { class A extends Uint8Array { }; const a = new A(2); return [a instanceof A, a.map(x => 1) instanceof A, a.length] })()", `[true,true,2]`},
	} {
		t.Run(c.expression, func(t *testing.T) {
			bothWays(t, func(t *testing.T) {
				tr := newTransform(t, Env{}, "yield Message({ value: "+c.expression+" })")
				expect(t, runBatch(t, tr, nil, input{"k", `{}`}), "out k="+c.want)
			})
		})
	}
}

// A script that keeps more and more ends long before its time is up and the memory with it. The test runs itself, since what a process
// took at most tells nothing of one test among many.
func TestHostileMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a gigabyte or two for a while: left out by -short")
	}
	for name, code := range map[string]string{
		"text that doubles": "let s = 'x'; for (;;) s += s;", "texts in a list": "const a = []; let s = 'x'.repeat(1 << 20); for (;;) a.push(s += 1);",
		"list":     "const a = []; for (;;) a.push({ a: 1 });",
		"messages": "const s = 'x'.repeat(1e6); for (;;) yield Message({ value: s });", "prototypes": "let o = {}; for (;;) o = Object.create(o);", "replacements": "'a'.repeat(1e6).replace(/a/g, () => 'x'.repeat(1e5));",
		"members of msg": "for (let i = 0; ; i++) msg.value['k' + i] = { i };", "promises": "const a = []; for (;;) a.push(Promise.resolve({}));", "closures": "const a = []; for (let i = 0; ; i++) a.push(() => i);",
	} {
		t.Run(name, func(t *testing.T) {
			s := spoilt(Transform, "msg.key === 'bad'", "", code, "yield Message({ value: msg.value.i })")
			tr, err := mustCompile(t, s).NewTransform(Env{Outputs: out, Timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			before := resetPeak(t)
			b := newBatch(t, nil, records("a", "bad", "b")...)
			var failed error
			b.Fail = func(_ int, err error) error { failed = err; return nil }
			if err := tr.Run(context.Background(), b); err != nil {
				t.Fatal(err)
			}
			expect(t, effects(b), "out a=0\nout b=2")
			if e := failsWith(t, failed, CodeMemory); e == nil {
				t.FailNow()
			} else if _, line, _ := e.Position(); line != 2 {
				t.Errorf("it is shown in line %d", line)
			}
			if peak := peakMiB("VmHWM:") - before; peak > 2500 {
				t.Errorf("the process held %d MiB more", peak)
			} else {
				t.Logf("the process held %d MiB more at most", peak)
			}
			tr.Close()
			runtime.GC()
		})
	}
}

// resetPeak makes the process's peak of memory what it holds now, and answers that in MiB; 0 where the system does not say.
func resetPeak(t *testing.T) int {
	t.Helper()
	debug.FreeOSMemory()
	if os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) != nil {
		t.Skip("the system does not tell the peak of memory")
	}
	return peakMiB("VmRSS:")
}

// peakMiB is a size that the system tells of the process.
func peakMiB(name string) (mib int) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			_, _ = fmt.Sscan(rest, &mib)
		}
	}
	return mib >> 10
}
