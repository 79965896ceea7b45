package script

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// fail runs a body over one record and answers what it fails with.
func fail(t *testing.T, body, value string) *Error {
	t.Helper()
	return recordFails(t, newTransform(t, Env{}, body), value)
}

// recordFails is what a transform fails with for one record.
func recordFails(t *testing.T, tr stream.Transform, value string) *Error {
	t.Helper()
	var e *Error
	if err := tr.Run(t.Context(), newBatch(t, nil, input{"k", value})); !errors.As(err, &e) {
		t.Fatal(err)
	}
	return e
}

func TestErrorsTellNullAndRemindOfTombstones(t *testing.T) {
	for _, c := range []struct{ body, value, want string }{
		{"msg.value.x", "", "TypeError: Cannot read property 'x' of null (f.yaml:1:11) tombstone"},
		{"await 0; msg.value.x.y", "", "TypeError: Cannot read property 'x' of null (f.yaml:1:20) tombstone"},
		{"const v = msg.value;\nv.x", "", "TypeError: Cannot read property 'x' of undefined or null (f.yaml:2:3) tombstone"},
		{"const { x } = msg.value", "", "TypeError: Cannot destructure undefined or null (f.yaml:1:15) tombstone"},
		{"const { a: { x } } = msg.value", `{"a":1}`, ""},
		{"msg.value.x", "null", "TypeError: Cannot read property 'x' of null (f.yaml:1:11)"},
		{"msg.value.a.b", `{"a":null}`, "TypeError: Cannot read property 'b' of null (f.yaml:1:13)"},
		{"msg.value?.a.b.c", `{"a":{"b":null}}`, "TypeError: Cannot read property 'c' of null (f.yaml:1:16)"},
		{"msg.value.a.trim()", `{"a":null}`, "TypeError: Cannot read property 'trim' of null (f.yaml:1:13)"},
		{"msg.value.a.trim()", `{}`, "TypeError: Cannot read property 'trim' of undefined or null (f.yaml:1:13)"},
		{"msg.value.trim()", "", "TypeError: Cannot read property 'trim' of null (f.yaml:1:11) tombstone"},
		{"msg.value\n  .a // why\n  ?.b\n  .trim()", `{"a":{"b":null}}`, "TypeError: Cannot read property 'trim' of undefined or null (f.yaml:4:4)"},
		{"msg.value\n  .a\n  ?.b\n  .trim()", `{"a":{"b":null}}`, "TypeError: Cannot read property 'trim' of null (f.yaml:4:4)"},
		{"msg.value.a.b", `{}`, "TypeError: Cannot read property 'b' of undefined (f.yaml:1:13)"},
		{"const o = {}; o.value = {}; o.value.a.b", `{"a":null}`, "TypeError: Cannot read property 'b' of undefined (f.yaml:1:39)"},
	} {
		if c.want == "" {
			expect(t, runBatch(t, newTransform(t, Env{}, c.body), nil, input{"k", c.value}), "")
			continue
		}
		e := fail(t, c.body, c.value)
		got := e.Error()
		if strings.Contains(e.Hint(), "tombstone") {
			got += " tombstone"
		}
		if got != c.want {
			t.Errorf("%s of %s\n got %s\nwant %s", c.body, c.value, got, c.want)
		}
	}
}

func TestStacksAreShownInPart(t *testing.T) {
	e := fail(t, "function f(n) {\n  return g(n);\n}\nconst g = n => f(n + 1);\nf(0)", "{}")
	if e.Code() != CodeStack || len(e.Stack()) != maxStackLines || e.Omitted() < 900 {
		t.Errorf("%s: %d lines and %d left out", e.Code(), len(e.Stack()), e.Omitted())
	}
	if lines := strings.Split(e.Detail(), "\n"); len(lines) > maxStackLines+3 || !strings.Contains(e.Detail(), "calls more") {
		t.Errorf("%s", e.Detail())
	}
}

// What is thrown keeps its name, code and message, and the causes behind it, whatever it is.
func TestThrownValuesOfAnyKind(t *testing.T) {
	for body, want := range map[string]string{
		"throw new RangeError('far', { cause: new Error('deep', { cause: { n: 1 } }) })": "RangeError: far; Error: deep (f.yaml:1:38); thrown: {\"n\":1}",
		"throw Object.assign(new Error('no'), { name: 'Mine', code: 'E_NO' })":           "Mine: no [E_NO]",
		"throw 'text'":                     "thrown: \"text\"",
		"throw 5":                          "thrown: 5",
		"throw 'é😀'":                       "thrown: \"é😀\"",
		"throw NaN":                        "thrown: NaN",
		"throw -0":                         "thrown: 0",
		"throw null":                       "thrown: null",
		"throw undefined":                  "thrown: undefined",
		"throw { code: 'x', a: 1 }":        "thrown: {\"code\":\"x\",\"a\":1} [x]",
		"throw [1, 2]":                     "thrown: [1,2]",
		"throw Symbol('s')":                "thrown: Symbol(s)",
		"throw true":                       "thrown: true",
		"throw new Map([[1, 2]])":          "thrown: [Map]",
		"throw new Uint8Array(3)":          "thrown: [byte array]",
		"throw new Date(0)":                "thrown: Thu Jan 01 1970",
		"throw 10n":                        "thrown: 10n",
		"throw () => 1":                    "thrown: [function]",
		"hash('none', 'x')":                "TypeError: hash: the algorithm is a string that does not fit; md5, sha1, sha256 or sha512 is expected [argument]",
		"JSON.parse('{')":                  "SyntaxError",
		"await 0; throw new Error('late')": "Error: late",
		"const e = new Error('a'); e.cause = e; throw e": "Error: a",
		"throw { a: 1, get b() { throw 1 } }":            `thrown: {"a":1,"b":[cannot be read]}`,
		"throw new (class E extends Error { get message() { throw 1 } get cause() { throw 1 } get code() { throw 1 } })": "Error: its message cannot be shown",
		"throw new (class E extends Error { toString() { throw 1 } })('down')":                                           "Error: down",
		"throw new (class E extends Error { get name() { return 'Busy' } get code() { return 429 } })('down')":           "Busy: down [429]",
		"throw Object.setPrototypeOf(new Error('bare'), null)":                                                           "Error: bare",
		"throw Object.freeze(Object.assign(new Error('cold'), { code: 'E' }))":                                           "Error: cold [E]",
		"throw Object.freeze({ a: 1 })": `thrown: {"a":1}`,
		"class Lost { constructor() { this.a = 1 } get b() { throw 1 } } throw new Lost":                                             `thrown: {"a":1}`,
		"function Old(m) { this.name = 'Old'; this.message = m } Old.prototype = Object.create(Error.prototype); throw new Old('m')": "Old: m",
		"throw new Proxy({}, { ownKeys() { throw 1 } })":                                                                             "thrown: what cannot be shown",
		"throw new AggregateError([new Error('one'), Object.assign(new TypeError('two'), { code: 'X' }), 3], 'all')":                 "AggregateError: all; Error: one (f.yaml:1:27); TypeError: two [X] (f.yaml:1:59); thrown: 3",
		"await Promise.any([Promise.reject(new Error('one')), Promise.reject(2)])":                                                   "AggregateError; Error: one (f.yaml:1:35); thrown: 2",
		"throw new Error('o', { cause: new AggregateError([new Error('i', { cause: 'deep' })], 'agg') })":                            "Error: o; AggregateError: agg (f.yaml:1:31); Error: i (f.yaml:1:51); thrown: \"deep\"",
		"try { hash('none', 'x') } catch (cause) { throw new Error('no sum', { cause }) }":                                           "Error: no sum; TypeError: hash: the algorithm is a string that does not fit; md5, sha1, sha256 or sha512 is expected [argument] (f.yaml:1:11)",
		"throw new Error('two\\nlines \\u001b[31m')":                                                                                 `Error: two\nlines \x1b[31m`,
	} {
		for _, before := range []string{"", "await 0;\n"} {
			e := fail(t, before+body, "{}")
			got := strings.Join(append([]string{e.Message()}, e.Causes()...), "; ")
			if e.ThrownCode() != "" {
				got += " [" + e.ThrownCode() + "]"
			}
			if before != "" {
				want = strings.ReplaceAll(want, "f.yaml:1:", "f.yaml:2:")
			}
			if !strings.HasPrefix(got, want) || e.Code() != CodeError {
				t.Errorf("%s\n got %s\nwant %s", before+body, got, want)
			}
		}
	}
}

// What is thrown may run code while it is shown: that ends too, and the next record is not harmed.
func TestThrownValuesThatDoNotEnd(t *testing.T) {
	for _, wait := range []string{"", "await 0; "} {
		for thrown, want := range map[string]string{
			"{ get a() { for (;;); }, get code() { for (;;); }, get cause() { for (;;); } }":                               "thrown: {\"a\":[cannot be read]",
			"new (class extends Error { get message() { for (;;); } get code() { for (;;); } get cause() { for (;;); } })": "Error: its message cannot be shown",
			"new Proxy(new Error('x'), { get() { for (;;); }, ownKeys() { for (;;); } })":                                  "Error: its message cannot be shown",
		} {
			t.Run(wait+thrown, func(t *testing.T) {
				t.Parallel()
				tr := newTransform(t, Env{Timeout: 50 * time.Millisecond}, wait+"if (msg.key === 'bad') throw "+thrown+"; yield Message({ value: 1 })")
				b := newBatch(t, nil, input{"a", `{}`}, input{"bad", `{}`}, input{"b", `{}`})
				var failures []string
				b.Fail = func(i int, err error) error {
					failures = append(failures, fmt.Sprint(i, " ", err))
					return nil
				}
				if err := tr.Run(t.Context(), b); err != nil {
					t.Fatal(err)
				}
				if len(failures) != 1 || !strings.HasPrefix(failures[0], "1 "+want) {
					t.Errorf("%q", failures)
				}
				expect(t, effects(b), "out a=1\nout b=1\n")
			})
		}
	}
}

// What nobody awaits has the place where it was rejected, whatever it was rejected with.
func TestRejectedScalarsHaveTheirPlace(t *testing.T) {
	e := fail(t, "1;\nconst f = () => Promise.reject(5);\nf()", "{}")
	if e.Code() != CodeUnhandled || e.Error() != "a promise was rejected and nothing awaits it: thrown: 5 (f.yaml:2:31)" {
		t.Error(e.Code(), e)
	}
}
