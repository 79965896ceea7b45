package script

import (
	"errors"
	"strings"
	"testing"
)

// fail runs a body over one record and answers what it fails with.
func fail(t *testing.T, body, value string) *Error {
	t.Helper()
	var e *Error
	if err := newTransform(t, Env{}, body).Run(t.Context(), newBatch(t, nil, input{"k", value})); !errors.As(err, &e) {
		t.Fatalf("%s: %v", body, err)
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
		"throw null":                       "thrown: null",
		"throw undefined":                  "thrown: undefined",
		"throw { code: 'x', a: 1 }":        "thrown: {\"code\":\"x\",\"a\":1} [x]",
		"throw [1, 2]":                     "thrown: [1,2]",
		"throw Symbol('s')":                "thrown: s",
		"throw 10n":                        "thrown: 10n",
		"throw () => 1":                    "thrown: [function]",
		"hash('none', 'x')":                "TypeError: hash: the algorithm is none of md5, sha1, sha256, sha512 [argument]",
		"JSON.parse('{')":                  "SyntaxError",
		"await 0; throw new Error('late')": "Error: late",
		"const e = new Error('a'); e.cause = e; throw e":                "Error: a",
		"throw { get message() { throw 1 } }":                           "an error that cannot be shown",
		"throw new (class extends Error { get message() { throw 1 } })": "an error that cannot be shown",
	} {
		e := fail(t, body, "{}")
		got := strings.Join(append([]string{e.Message()}, e.Causes()...), "; ")
		if e.ThrownCode() != "" {
			got += " [" + e.ThrownCode() + "]"
		}
		if !strings.HasPrefix(got, want) || e.Code() != CodeError {
			t.Errorf("%s\n got %s\nwant %s", body, got, want)
		}
	}
}
