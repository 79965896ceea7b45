package script

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// The mark of a body where its error is: the place itself stands behind the mark, or only the line counts.
const (
	here     = "/*here*/"
	thisLine = "/*line*/"
)

// failing are bodies that fail where the mark is. Those that name msg are for transforms.
var failing = map[string]string{
	"first statement":               "throw /*here*/new Error('x');\nlet a = 1;",
	"last statement":                "let a = 1;\nthrow /*here*/new Error('x')",
	"thrown scalar":                 "let a = 1;\n/*here*/throw 5;\na = 2;",
	"thrown scalar of the line":     "let a = 1; a = 2;\na = 3; /*here*/throw 5;",
	"thrown over lines":             "let a = 1;\nthrow /*here*/new Error(\n  'x',\n  { cause: a });",
	"member of undefined":           "const none = undefined;\nnone./*here*/x;",
	"member over lines":             "const none = {};\nnone\n  .a\n  ./*here*/b;",
	"element of undefined":          "const none = {};\nnone.a/*here*/['b' + none];",
	"method of undefined":           "const none = {};\nnone.a./*here*/b();",
	"method over lines":             "const none = {};\nnone\n  .a\n  ./*here*/b()\n  .c();",
	"method of null":                "const none = { a: null };\nnone.a./*here*/b(\n  1);",
	"method of what a call gives":   "const f = () => null;\nf(1)\n  ./*here*/b();",
	"method of an element":          "const list = [];\nlist[0]\n  ./*here*/b();",
	"optional method of undefined":  "const none = {};\nnone\n  ?.a\n  ./*here*/b();",
	"no function":                   "const o = {};\no\n  .a/*here*/();",
	"no function in arguments":      "const f = 5;\nisNaN(\n  f/*here*/());",
	"literal sum":                   "let a = 1;\na = {\n  b: 2,\n  c: /*here*/1n + 1,\n};",
	"literal sum alone":             "let a = 1;\na = 2;\n/*here*/1n + 1;",
	"literal sum as argument":       "let a = 1;\nisNaN(a,\n  /*line*/1n + 1);",
	"literal sum in a sum":          "let a = 1;\na = a +\n  (/*here*/1n + 1);",
	"literal sum returned":          "const f = () => {\n  let a = 1;\n  return /*line*/1n + 1;\n};\nf();",
	"literal sum of an arrow":       "const f = a =>\n  /*here*/1n + 1;\nf();",
	"literal sum in a condition":    "let a = 1;\nif (/*line*/1n + 1) a = 2;",
	"literal sum in a loop":         "let a = 1;\nwhile (/*line*/1n + 1) a = 2;",
	"literal sum in a do loop":      "let a = 1;\ndo {\n  a = 2;\n} while (/*line*/1n + 1);",
	"literal sum in a for loop":     "let a = 1;\nfor (;/*line*/1n + 1;) a = 2;",
	"literal sum in or":             "let a = 1;\na = a && (\n  /*here*/1n + 1);",
	"literal sum in an array":       "const a = [\n  1,\n  /*here*/1n + 1,\n];",
	"literal sum in a template":     "let a = 1;\na = `${a}\n${/*here*/1n + 1}`;",
	"literal sum as a key":          "const a = {\n  b: 1,\n  [/*here*/1n + 1]: 2,\n};",
	"literal sum as an index":       "let a = [];\na[\n  /*here*/1n + 1];",
	"literal sum in a switch":       "let a = 1;\nswitch (a) {\n  case 2: break;\n  case /*here*/1n + 1: a = 2;\n}",
	"literal sum in a choice":       "let a = 1;\na = a\n  ? /*here*/1n + 1\n  : 2;",
	"literal division by zero":      "let a = 1;\na = [1,\n  /*here*/1n / 0n];",
	"literal unary":                 "let a = 1;\na = [1,\n  /*here*/+1n];",
	"literal in":                    "let a = 1;\na = [1,\n  /*here*/1 in 2];",
	"literal instanceof":            "let a = 1;\na = [1,\n  /*here*/1 instanceof 2];",
	"literal call":                  "let a = 1;\na = [1,\n  5/*here*/()];",
	"literal member":                "let a = 1;\na = [1,\n  null./*here*/x];",
	"literal spread":                "let a = 1;\na = [1,\n  .../*line*/5];",
	"literal spread of arguments":   "let a = 1;\nisNaN(a,\n  .../*line*/5);",
	"literal that is walked":        "let a = 1;\nfor (const b of /*line*/5) a = b;",
	"literal that is taken apart":   "let a = 1;\nconst { b } = /*line*/null;",
	"list that is taken apart":      "let a = 1;\nconst [b] = /*line*/5;",
	"sum":                           "let a = 1n;\na = [1,\n  /*here*/a + 1];",
	"sum over lines":                "let a = 1n;\na = /*here*/a\n  + 1;", // it has one place for all of it
	"sum in an assignment":          "let a = 1n;\na += /*line*/1;",
	"increment of nothing":          "const a = {};\na.b./*line*/c++;",
	"increment over lines":          "const a = {};\na\n  .b\n  ./*line*/c += 1;",
	"symbol in a template":          "const s = Symbol();\nlet a = `\n${/*line*/s}`;",
	"toString in a template":        "let a = `\n${/*line*/Object.create(null)}`;",
	"constant":                      "const none = () => {}; const a = Object.freeze({ b: 1 });\na./*here*/b = none(\n  1);",
	"built-in":                      "let a = 1;\nJSON.parse/*here*/('{');\na = 2;",
	"built-in over lines":           "let a = 1;\n[3, 2]\n  .map(x => x)\n  .reduce/*here*/(\n    5);",
	"callback":                      "[1]\n  .map(x => x)\n  .map(x =>\n    x.a./*here*/b);",
	"callback of sort":              "[2, 1].sort((a, b) => {\n  throw /*here*/new Error('x');\n});",
	"before declared":               "let b = 1;\nb = [1,\n  /*here*/c];\nlet c = 1;",
	"nested functions":              "function f() {\n  const g = () => {\n    const h = function () {\n      throw /*here*/new Error('x');\n    };\n    return h();\n  };\n  return g();\n}\nf();",
	"hoisted function":              "f();\nfunction f() {\n  const none = null;\n  none./*here*/x;\n}",
	"immediate function":            "(() => {\n  const none = null;\n  none./*here*/x;\n})();",
	"default parameter":             "function f(a, b =\n  a./*here*/b.c) { return b }\nf();",
	"default parameter of literals": "function f(a,\n  b = /*here*/1n + 1) { return b }\nf();",
	"pattern of a parameter":        "function f(/*line*/{ a }) { return a }\nf();",
	"pattern of a later line":       "function f(\n  /*line*/{ a }) { return a }\nf();",
	"pattern of an arrow":           "const f = (\n  a,\n  /*line*/{ b }) => b;\nf();",
	"list of an arrow":              "const f = (\n  /*line*/[b]) => b;\nf();",
	"pattern":                       "const none = {};\nconst { a } = none./*line*/b;",
	"pattern over lines":            "const none = {};\nconst {\n  a,\n  b: { /*line*/c },\n  d,\n} = none;",
	"pattern in a pattern":          "const o = { a: 1, b: {} };\nconst {\n  a,\n  b: {\n    c: /*line*/{ d },\n  },\n} = o;",
	"default in a pattern":          "const none = {};\nconst {\n  a,\n  b = none.c./*here*/d,\n} = none;",
	"default of literals":           "const none = {};\nconst {\n  a,\n  b = /*here*/1n + 1,\n} = none;",
	"list in a list":                "const [\n  /*line*/a,\n  [b],\n] = [1];",                      // it has the place of the name before it
	"second pattern":                "function f({ /*line*/a },\n  { b }) { return a + b }\nf({});", // the same
	"assigned pattern":              "let a, b;\n({\n  a,\n  c: { /*line*/b },\n} = {});",
	"getter":                        "const o = {\n  get a() {\n    throw /*here*/new Error('x');\n  },\n};\no.a;",
	"getter of a method":            "const o = {\n  get a() {\n    throw /*here*/new Error('x');\n  },\n};\no.a();",
	"setter":                        "const o = {\n  set a(v) {\n    v.x./*here*/y;\n  },\n};\no.a = 1;",
	"getter in a spread":            "const o = {\n  get a() {\n    throw /*here*/new Error('x');\n  },\n};\nconst p = {\n  b: 1,\n  ...o,\n};",
	"class field":                   "const none = {};\nclass A {\n  a = 1;\n  b = none.c./*here*/d;\n}\nnew A();",
	"class field of literals":       "class A {\n  a = 1;\n  b = /*here*/1n + 1;\n}\nnew A();",
	"static field of literals":      "class A {\n  static a = 1;\n  static b = /*here*/1n + 1;\n}",
	"static block":                  "class A {\n  static {\n    const none = null;\n    none./*here*/x;\n  }\n}",
	"constructor":                   "class A {\n  constructor(o) {\n    this.a = o./*here*/a;\n  }\n}\nnew A();",
	"method":                        "class A {\n  f(o) {\n    return o./*here*/a;\n  }\n}\nnew A().f();",
	"private method":                "class A {\n  #f(o) {\n    return o./*here*/a;\n  }\n  g() { this.#f() }\n}\nnew A().g();",
	"super method":                  "class A {}\nclass B extends A {\n  f() {\n    let a = 1;\n    super.f/*here*/();\n  }\n}\nnew B().f();",
	"super that is not called":      "class A {}\nclass B extends A {\n  constructor() {\n    let a = 1;\n    /*here*/this.a = 2;\n  }\n}\nnew B();",
	"superclass":                    "const A = undefined;\nlet a = 1;\n/*here*/class B extends A {\n  f() {}\n}",
	"class without new":             "class A {}\nlet a = 1;\nA/*here*/();",
	"new of nothing":                "const A = undefined;\nlet a = 1;\n/*here*/new A(\n  a);",
	"new of no constructor":         "const f = () => 1;\nlet a = 1;\na = [\n  /*here*/new f()];",
	"generator":                     "function* g() {\n  let a = 1;\n  yield Message({ value: a });\n  throw /*here*/new Error('x');\n}\nyield* g();",
	"generator after yield":         "function* g() {\n  const none = yield 1;\n  none./*here*/x;\n}\nconst i = g();\ni.next();\ni.next();",
	"thrown into a generator":       "function* g() {\n  let a = 1;\n  a = [1,\n    /*line*/yield a];\n}\nconst i = g();\ni.next();\ni.throw(5);",
	"thrown into a bare yield":      "function* g() {\n  let a = 1;\n  a = [1,\n    /*line*/yield];\n}\nconst i = g();\ni.next();\ni.throw(5);",
	"thrown into a literal yield":   "function* g() {\n  let a = 1;\n  a = [1,\n    /*line*/yield 2];\n}\nconst i = g();\ni.next();\ni.throw(5);",
	"delegated to a literal":        "function* g() {\n  let a = 1;\n  a = [1,\n    yield* 2];\n}\n[\n  .../*line*/g()];",
	"spread generator":              "function* g() {\n  yield 1;\n  throw /*here*/new Error('x');\n}\nconst list = [\n  ...g(),\n];",
	"walked generator":              "function* g() {\n  yield 1;\n  throw /*here*/new Error('x');\n}\nfor (const x of g()) {\n  isNaN(x);\n}",
	"catch":                         "try {\n  throw 1;\n} catch (e) {\n  e.a./*here*/b;\n}",
	"catch alone":                   "try {\n  throw 1;\n} catch {\n  /*here*/1n + 1;\n}",
	"pattern of a catch":            "try {\n  let a = 1;\n  a = 2;\n  throw null;\n} /*line*/catch ({ message }) {\n  isNaN(message);\n}",
	"finally":                       "try {\n  let a = 1;\n  a = 2;\n} finally {\n  /*here*/1n + 1;\n}",
	"through finally":               "let a = 1;\ntry {\n  /*here*/throw 5;\n} finally {\n  a = 2;\n}\na = 3;",
	"through catch":                 "let a = 1;\ntry {\n  a = JSON.parse('{}').b./*line*/c;\n} catch (e) {\n  throw e;\n}",
	"thrown again as a scalar":      "let a = 1;\ntry {\n  throw 5;\n} catch (e) {\n  a = 2;\n  /*here*/throw e;\n}",
	"for":                           "for (let i = 0; i < 1; i++) {\n  let a = i;\n  a.b./*here*/c;\n}",
	"condition of for":              "const none = {};\nfor (let i = 0;\n  i < none.a./*here*/b;\n  i++) isNaN(i);",
	"step of for":                   "const none = {};\nfor (let i = 0;\n  i < 1;\n  i += none.a./*here*/b) isNaN(i);",
	"start of for":                  "const none = {};\nfor (let i = 0,\n  j = none.a./*here*/b;\n  i < 1;\n  i++) isNaN(j);",
	"for in":                        "const none = {};\nfor (const k in\n  none.a./*here*/b) isNaN(k);",
	"body of for in":                "for (const k in { a: 1 })\n  k.a./*here*/b;",
	"for of":                        "const list = [1];\nfor (const x of list) {\n  x.a./*here*/b;\n}",
	"pattern of for of":             "const list = [1, null];\nfor (const { a } of /*line*/list) isNaN(a);",
	"for of no list":                "const list = {};\nfor (const x of /*line*/list) isNaN(x);",
	"while":                         "let none = {};\nwhile (none)\n  none = none.a./*here*/b;",
	"condition of while":            "let none = {};\nwhile (none.a./*here*/b) {\n  none = 1;\n}",
	"do":                            "let none = {};\ndo {\n  none = none.a./*here*/b;\n} while (none);",
	"condition of do":               "let none = {};\ndo {\n  none = {};\n} while (none.a./*here*/b);",
	"labelled":                      "const none = {};\na: {\n  if (none.b) break a;\n  none.a./*here*/b;\n}",
	"if":                            "const none = {};\nif (none) none.a./*here*/b;",
	"if over lines":                 "const none = {};\nif (none)\n  none.a./*here*/b;\nelse\n  none.c;",
	"else":                          "const none = {};\nif (none.a)\n  none.b;\nelse\n  none.a./*here*/b;",
	"condition":                     "const none = {};\nif (none\n  && none.a./*here*/b) isNaN(1);",
	"else if":                       "const none = {};\nif (none.a) {\n  isNaN(1);\n} else if (none.b./*here*/c) {\n  isNaN(2);\n}",
	"switch":                        "const none = {};\nswitch (none.a./*here*/b) {\n  case 1:\n}",
	"case":                          "const none = {};\nswitch (1) {\n  case 2:\n  case none.a./*here*/b:\n}",
	"in a case":                     "const none = {};\nswitch (1) {\n  case 1:\n    none.a./*here*/b;\n}",
	"default of switch":             "const none = {};\nswitch (1) {\n  case 2:\n    isNaN(2);\n  default:\n    none.a./*here*/b;\n}",
	"optional chain":                "const none = { a: {} };\nnone?.c\n  ?.b\n  .c;\nnone?.a\n  .b\n  ./*here*/c;",
	"template":                      "const none = {};\nlet a = `1\n2 ${none}\n3 ${none.a./*here*/b}\n4`;",
	"tag":                           "const tag = (parts, x) => x.a./*here*/b;\nlet a = tag`1\n2 ${3}\n4`;",
	"tag that is none":              "const tag = 5;\nlet a = /*line*/tag`1\n2`;",
	"arguments":                     "const none = {};\nisNaN(\n  1,\n  none.a./*here*/b,\n  2);",
	"spread of arguments":           "const none = {};\nMath.max(\n  1,\n  .../*line*/none,\n  2);",
	"spread in an array":            "const none = {};\nconst list = [\n  1,\n  .../*line*/none,\n  2];",
	"member of an object":           "const none = {};\nconst o = {\n  a: 1,\n  b: none.a./*here*/b,\n  c: 2,\n};",
	"choice":                        "const none = {};\nlet a = none\n  ? none.a./*here*/b\n  : 1;",
	"comma":                         "const none = {};\nlet a = (1,\n  none.a./*here*/b,\n  2);",
	"void":                          "const none = {};\nvoid\n  none.a./*here*/b;",
	"delete":                        "const none = {};\ndelete none.a./*here*/b;",
	"typeof":                        "const none = {};\nlet a = typeof none.a./*here*/b;",
	"in":                            "const none = {};\nlet a = 'x' in\n  none.a./*here*/b;",
	"shift":                         "let a = 1n;\na = /*here*/a << (\n  10n ** 12n);",
	"cause":                         "try {\n  throw 1;\n} catch (cause) {\n  throw /*here*/new Error('x', { cause });\n}",
	"error of an own class":         "class E extends Error {}\nlet a = 1;\nthrow /*here*/new E('x');",
	"error made elsewhere":          "const make = () => /*here*/new Error('x');\nconst e = make();\nthrow e;",
	"value refused":                 "let a = 1;\n/*here*/yield Message({\n  value: {\n    a,\n    b: NaN,\n  },\n});",
	"value refused in a function":   "function* g() {\n  yield Message({ value: NaN });\n}\nlet a = 1;\n/*here*/yield* g();",
	"own value refused":             "const m = Message({ value: NaN });\nlet a = 1;\n/*here*/yield m;",
	"header refused":                "let a = 1;\n/*here*/yield Message({ value: 1,\n  headers: 5 + a });",
	"topic refused":                 "let a = 'none';\n/*here*/yield Message({\n  topic: a, value: 1 });",
	"other things yielded":          "let a = 1;\n/*here*/yield a;",
	"other things in a list":        "let a = 1;\n/*here*/yield* [a];",
	"other things returned":         "const a = () => 1;\nif (a) {\n  /*here*/return a();\n}",
	"not walked":                    "let a = 1;\n/*here*/yield* a;",
	"recursion":                     "const f = a =>\n  /*line*/f(a) + 1;\nlet a = 1;\nf(a);",
	"library":                       "let a = 1;\nhash/*here*/(\n  'none',\n  'x');",
	"memo":                          "let a = 1;\nmemo('k', '1m', () => {\n  throw /*here*/new Error('x');\n});",
	"comparison":                    "equal/*line*/({ get a() { return 1 } },\n  { get a() { return null./*here*/x } });",

	"member of the value":   "let a = 1;\na = msg.value.none./*here*/x;",
	"first member":          "msg.value.none./*here*/x;",
	"method of the value":   "let a = 1;\na = msg.value.none\n  ./*here*/trim();",
	"method of null there":  "let a = 1;\na = msg.value.zero./*here*/trim();",
	"formula":               "state.n = 1;\nstate.n = msg.value.none./*here*/x + 1;",
	"formula of a member":   "state.n = 1;\nyield Message({ value: {\n  ...msg.value,\n  n: msg.value.none./*here*/x,\n} });",
	"formula of big":        "state.n = 1;\nstate.n = /*here*/msg.value.big + 1;",
	"formula of big member": "state.n = 1;\nyield Message({ value: {\n  a: 1,\n  n: /*here*/msg.value.big * 2,\n} });",
	"condition formula":     "state.n = 1;\nif (msg.value.none./*here*/x > 1) {\n  state.n = 2;\n}",
	"first condition":       "if (msg.value.none./*here*/x > 1) {\n  state.n = 2;\n}",
	"alias":                 "const v = msg.value;\nlet a = v.none\n  ./*here*/x;",
	"spread of a member":    "let a = 1;\na = {\n  ...msg.value,\n  b: msg.value.none./*here*/x,\n};",
	"state":                 "state.n = 1;\n/*here*/yield State(\n  5 + msg.value.n);",
}

// waiting are bodies that await.
var waiting = map[string]string{
	"after await":             "let a = await 1;\na.b./*here*/c;",
	"await of a rejection":    "let a = 1;\n/*line*/await Promise.reject(5);\na = 2;",
	"await of literals":       "let a = 1;\nawait 0;\na = [1,\n  /*here*/1n + 1];",
	"awaited function":        "const f = async () => {\n  await 0;\n  null./*here*/x;\n};\nawait f();",
	"scalar after await":      "const f = async () => {\n  await 0;\n  /*here*/throw 5;\n};\nawait f();",
	"helper":                  "async function* g() {\n  await 0;\n  yield Message({ value: 1 });\n  null./*here*/x;\n}\nyield* g();",
	"helper after yield":      "async function* g() {\n  yield Message({ value: 1 });\n  await 0;\n  /*here*/1n + 1;\n}\nyield* g();",
	"then":                    "await Promise.resolve(1).then(x => {\n  x.a./*here*/b;\n});",
	"all":                     "await Promise.all([1, 2].map(async x => {\n  await 0;\n  x.a./*here*/b;\n}));",
	"catch that waits":        "try {\n  await 0;\n  throw 1;\n} catch (e) {\n  await 0;\n  e.a./*here*/b;\n}",
	"finally that waits":      "try {\n  await 0;\n} finally {\n  await 0;\n  /*here*/1n + 1;\n}",
	"forgotten":               "let a = 1;\nfetch/*here*/('x/1');\na = await 2;",
	"stuck":                   "let a = await 1;\n/*here*/await new Promise(() => {});\na = 2;",
	"unhandled":               "let a = await 1;\nPromise.reject/*here*/(5);\na = 2;\nawait fetch('x/1');",
	"executor":                "await new Promise(() => {\n  null./*here*/x;\n});",
	"thenable":                "await {\n  then() {\n    null./*here*/x;\n  },\n};",
	"memo that waits":         "await memo('k', '1m', async () => {\n  await 0;\n  null./*here*/x;\n});",
	"fetch":                   "let a = 1;\nawait fetch('fail/1')/*line*/;\na = 2;",
	"default that waits":      "const f = async (a =\n  null./*here*/x) => await a;\nawait f();",
	"for that waits":          "for (const x of [1]) {\n  await 0;\n  x.a./*here*/b;\n}",
	"argument that waits":     "isNaN(\n  await 1,\n  null./*here*/x,\n  await 2);",
	"list that waits":         "const list = [\n  await 1,\n  /*here*/1n + 1,\n];",
	"class that waits":        "class A {\n  async f() {\n    await 0;\n    this.a./*here*/b;\n  }\n}\nawait new A().f();",
	"return of what waits":    "const f = async () => {\n  await 0;\n  return (\n    null./*here*/x);\n};\nreturn await f();",
	"returned after it waits": "await 0;\nconst a = async () => 1;\n/*here*/return await a();",
}

// loopBodies are bodies that do not end, in the line of the mark.
var loopBodies = map[string]string{
	"for":                     "let a = 1;\n/*line*/for (;;) ;\na = 2;",
	"for first":               "/*line*/for (;;) ;",
	"for of nothing":          "let a = 1;\n/*line*/for (;;) { }\na = 2;",
	"for of blocks":           "let a = 1;\n/*line*/for (;;) { { } ; }\na = 2;",
	"for of literals":         "let a = 1;\n/*line*/for (;;) { 1; 'x'; null; }\na = 2;",
	"for with declarations":   "let a = 1;\n/*line*/for (;;) { let b; const c = 1; var d; }\na = 2;",
	"for with a function":     "let a = 1;\n/*line*/for (;;) { function f() {} }\na = 2;",
	"for with a class":        "let a = 1;\n/*line*/for (;;) { class A {} }\na = 2;",
	"for with a body of line": "let a = 1;\nfor (;;)\n  /*line*/a = 1;",
	"for with literal step":   "let a = 1;\n/*line*/for (;; 1) ;\na = 2;",
	"for with literal test":   "let a = 1;\n/*line*/for (; 1 + 1;) ;\na = 2;",
	"for with let":            "let a = 1;\n/*line*/for (let i = 0;;) ;\na = 2;",
	"for with let unset":      "let a = 1;\n/*line*/for (let i;;) ;\na = 2;",
	"for with continue":       "let a = 1;\n/*line*/for (;;) continue;\na = 2;",
	"for with a label":        "let a = 1;\n/*line*/b: for (;;) continue b;\na = 2;",
	"for with an if":          "let a = 1;\n/*line*/for (;;) if (a) ;\na = 2;",
	"for with a regexp":       "let a = 1;\n/*line*/for (;;) /x/;\na = 2;",
	"for with a template":     "let a = 1;\n/*line*/for (;;) `x`;\na = 2;",
	"for with try":            "let a = 1;\n/*line*/for (;;) try { } finally { }\na = 2;",
	"for with switch":         "let a = 1;\n/*line*/for (;;) switch (1) { case 2: }\na = 2;",
	"while":                   "let a = 1;\n/*line*/while (true) ;\na = 2;",
	"while 1":                 "let a = 1;\n/*line*/while (1) { }\na = 2;",
	"while text":              "let a = 1;\n/*line*/while ('x') { }\na = 2;",
	"while not false":         "let a = 1;\n/*line*/while (!0) { }\na = 2;",
	"while of a name":         "let a = 1;\n/*line*/while (a) ;\na = 2;",
	"while with continue":     "let a = 1;\n/*line*/while (true) { continue }\na = 2;",
	"do":                      "let a = 1;\n/*line*/do ; while (true);\na = 2;",
	"do of nothing":           "let a = 1;\n/*line*/do { } while (1);\na = 2;",
	"do with literals":        "let a = 1;\n/*line*/do { 1 } while (1);\na = 2;",
	"do with continue":        "let a = 1;\n/*line*/do continue; while (1);\na = 2;",
	"in an if":                "let a = 1;\nif (a)\n  /*line*/for (;;) ;\na = 2;",
	"in an else":              "let a = 1;\nif (!a)\n  a = 1;\nelse\n  /*line*/while (true) ;\na = 2;",
	"in a block":              "let a = 1;\n{\n  a = 2;\n  {\n    /*line*/for (;;) ;\n  }\n}\na = 2;",
	"in a loop":               "let a = 1;\nfor (const b of [1, 2]) {\n  a = b;\n  /*line*/while (true) ;\n}",
	"in a case":               "let a = 1;\nswitch (a) {\n  case 1:\n    /*line*/for (;;) ;\n}",
	"in a catch":              "try {\n  throw 1;\n} catch {\n  /*line*/for (;;) ;\n}",
	"in a finally":            "let a = 1;\ntry {\n  a = 2;\n} finally {\n  /*line*/for (;;) ;\n}",
	"in a function":           "function f() {\n  let a = 1;\n  a = 2;\n  /*line*/for (;;) ;\n}\nf();",
	"in an arrow":             "let a = 1;\nconst f = () => {\n  /*line*/for (;;) ;\n};\nf(\n  a);",
	"in a generator":          "function* g() {\n  yield Message({ value: 1 });\n  /*line*/for (;;) ;\n}\nyield* g();",
	"in a getter":             "const o = {\n  get a() {\n    /*line*/for (;;) ;\n  },\n};\nlet a = o.a;",
	"in a constructor":        "class A {\n  constructor() {\n    /*line*/for (;;) ;\n  }\n}\nnew A();",
	"in a static block":       "class A {\n  static {\n    /*line*/for (;;) ;\n  }\n}",
	"in a field":              "class A {\n  a = 1;\n  b = (() => {\n    /*line*/for (;;) ;\n  })();\n}\nnew A();",
	"in a default":            "function f(a = (() => {\n  /*line*/for (;;) ;\n})()) { }\nf();",
	"in a callback":           "[1].map(x => {\n  /*line*/for (;;) ;\n});",
	"in a memo":               "memo('k', '1m', () => {\n  /*line*/for (;;) ;\n});",
	"labelled block":          "let a = 1;\nb: {\n  a = 2;\n  /*line*/for (;;) ;\n}",
	"walked without end":      "const list = { [Symbol.iterator]: () => ({ next: isNaN.bind(0, 1), }) };\nlet a = 1;\n/*line*/for (const b of { [Symbol.iterator]: () => ({ next: () => ({ done: false }) }) }) ;\na = 2;",
}

// markOf is the place of the mark of a text, in characters from 1, and whether its column counts.
func markOf(text string) (line, column int, exact bool) {
	at := strings.Index(text, here)
	if exact = at >= 0; exact {
		at += len(here)
	} else {
		at = strings.Index(text, thisLine)
	}
	start := strings.LastIndexByte(text[:at], '\n') + 1
	return strings.Count(text[:at], "\n") + 1, utf8.RuneCountInString(text[start:at]) + 1, exact
}

// settings are how a body may stand in a file. The body is marked before it is changed.
var settings = map[string]func(body string) string{
	"after await":  func(body string) string { return "await 0; " + body },
	"with Windows": func(body string) string { return strings.ReplaceAll(body, "\n", "\r\n") },
	"after characters": func(body string) string {
		for _, mark := range []string{here, thisLine} {
			body = strings.ReplaceAll(body, mark, "/*é😀ü*/"+mark)
		}
		return "/*\u2028é😀*/ " + body
	},
}

// failureOf runs a script over one record, config or arrival, and answers how it fails.
func failureOf(t *testing.T, s Source, timeout time.Duration) error {
	t.Helper()
	env := Env{Outputs: out, Fetch: (&server{}).fetch, Timeout: timeout, Now: time.Now}
	p, err := Compile(s)
	if err != nil {
		return err
	}
	const value = `{"n":1,"zero":null,"big":9007199254740993}`
	switch s.Kind {
	case Poll:
		source, err := p.NewSource(env)
		if err != nil {
			return err
		}
		defer source.Close()
		return source.Poll(context.Background(), &stream.Poll{Config: stream.Config{Key: "k", Value: []byte(`{}`)}, Commit: func(context.Context, *stream.Page) error { return nil }})
	case Relay:
		r, err := p.NewRelay(env)
		if err != nil {
			return err
		}
		defer r.Close()
		var arena stream.Arena
		in := &stream.Relaying{Config: stream.Config{Key: "k", Value: []byte(`{}`)}, Arena: &arena, Arrivals: []stream.Arrival{arrived(t, "a", value)}, Fail: func(_ int, err error) error { return err }}
		return r.Run(context.Background(), in, &stream.Page{})
	default:
		tr, err := p.NewTransform(env)
		if err != nil {
			return err
		}
		defer tr.Close()
		return tr.Run(context.Background(), newBatch(t, storeMap{}, input{"k", value}))
	}
}

// checkPlace checks that a script fails where the mark in text is, a text of its that begins at a line and column.
func checkPlace(t *testing.T, s Source, text *stream.Text, timeout time.Duration) {
	t.Helper()
	err := failureOf(t, s, timeout)
	var e *Error
	if !errors.As(err, &e) {
		t.Errorf("%s\n%v", text.Text, err)
		return
	}
	line, column, exact := markOf(text.Text)
	line, column = text.Position(line, column)
	file, gotLine, gotColumn := e.Position()
	want := fmt.Sprintf("%s:%d", text.File, line)
	got := fmt.Sprintf("%s:%d", file, gotLine)
	if exact {
		want, got = fmt.Sprintf("%s:%d", want, column), fmt.Sprintf("%s:%d", got, gotColumn)
	}
	if (timeout < time.Minute) != (e.Code() == CodeTimeout) {
		t.Errorf("%s\n%v", text.Text, err)
	}
	if got != want {
		t.Errorf("%s\n%s\nis shown at %s, not at %s", text.Text, e, got, want)
	}
}

// waysOf are the ways in which a body can run: as each kind of script, as it stands in files, and in a function. Each has the text
// that the mark is in.
func waysOf(body string) map[string]func() (Source, *stream.Text) {
	ways := map[string]func() (Source, *stream.Text){}
	add := func(name string, kind Kind, text string) {
		ways[name] = func() (Source, *stream.Text) {
			s := Source{Kind: kind, Push: kind == Relay, Body: stream.Text{File: "f.yaml", Line: 7, Column: 12, Indent: 4, Text: text}}
			return s, &s.Body
		}
	}
	add("transform", Transform, body)
	for name, set := range settings {
		if name == "after await" && (strings.Contains(body, "await") || strings.Contains(body, ".throw(5)")) {
			continue // what is thrown into a generator and is no error has no place after an await
		}
		add(name, Transform, set(body))
	}
	named := strings.Contains(body, "msg") || strings.Contains(body, "state")
	if !named {
		add("poll", Poll, body)
		add("relay", Relay, body)
	}
	waits := ""
	if strings.Contains(body, "await") {
		waits = "async "
	}
	ways["file"] = func() (Source, *stream.Text) {
		s := Source{Module: true, Body: stream.Text{File: "f.js", Line: 1, Column: 1, Text: "export " + waits + "function* transform(msg, state) {\n" + body + "\n}"}}
		return s, &s.Body
	}
	if named || strings.Contains(body, "yield") || strings.Contains(body, "return a") || strings.Contains(body, "return await a") {
		return ways
	}
	function, called := waits+"function run() {\n"+body+"\n}", "1;\n2;\nrun();"
	if waits != "" {
		called = "1;\n2;\nawait run();"
	}
	ways["functions"] = func() (Source, *stream.Text) {
		s := Source{Functions: []stream.Text{{File: "g.yaml", Line: 3, Column: 5, Indent: 4, Text: "const first = 1;\n" + function}}, Body: bodyText(called)}
		return s, &s.Functions[0]
	}
	ways["import"] = func() (Source, *stream.Text) {
		imported := &stream.Text{File: "lib.js", Line: 1, Column: 1, Text: "const first = 1;\nexport " + function}
		return Source{
			Functions: []stream.Text{{File: "g.js", Line: 1, Column: 1, Text: "import { run as other } from './lib.js';\nexport const run = () => other();"}},
			Body:      bodyText(called),
			Read:      func(string) (stream.Text, error) { return *imported, nil },
		}, imported
	}
	return ways
}

func TestErrorsAreShownWhereTheyAre(t *testing.T) {
	for _, list := range []map[string]string{failing, waiting} {
		for name, body := range list {
			for way, source := range waysOf(body) {
				t.Run(name+" "+way, func(t *testing.T) {
					s, text := source()
					checkPlace(t, s, text, time.Minute)
				})
			}
		}
	}
}

// Each loop runs as a transform and in one other way.
func TestWhatDoesNotEndIsShownWhereItIs(t *testing.T) {
	n := 0
	for _, name := range slices.Sorted(maps.Keys(loopBodies)) {
		ways := waysOf(loopBodies[name])
		others := slices.Sorted(maps.Keys(ways))
		n++
		for _, way := range []string{"transform", others[n%len(others)]} {
			t.Run(name+" "+way, func(t *testing.T) {
				t.Parallel()
				s, text := ways[way]()
				checkPlace(t, s, text, hostileTimeout)
			})
		}
	}
}
