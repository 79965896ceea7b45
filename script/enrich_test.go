package script

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

func complete(t *testing.T, source Source, env Env, config string) (string, error) {
	t.Helper()
	env.Fetch = echo
	e, err := mustCompile(t, source).NewEnrich(env)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	got, err := e.Complete(t.Context(), stream.Config{Key: "k", Value: []byte(config)})
	return string(got), err
}

func enrichBody(text string) Source {
	return Source{Kind: Enrich, Body: stream.Text{File: "f.yaml", Line: 3, Column: 5, Indent: 4, Text: text}}
}

func TestEnrichReturnsTheCompletedConfig(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"spread", "return { ...config, b: 2 }", `{"big":18446744073709551615,"x":1,"b":2}`},
		{"changed", "config.b = vars.v; delete config.x; return config;", `{"big":18446744073709551615,"b":"set"}`},
		{"key", "return { key: config.$key }", `{"key":"k"}`},
		{"fetched", "const a = await fetch(':{\"n\": 7}');\nreturn { ...config, ...(await a.json()) };", `{"big":18446744073709551615,"x":1,"n":7}`},
		{"a promise", "return fetch(':{\"n\": 7}').then((a) => a.json());", `{"n":7}`},
		{"members called as those of a message", "return { ...config, value: config.value ?? 1, key: config.key ?? 2 };", `{"big":18446744073709551615,"x":1,"value":1,"key":2}`},
		{"early", "if (config.x) return {};\nreturn config;", `{}`},
		{"several", "const [a, b] = await Promise.all([fetch(':1'), fetch(':2')]);\nreturn { a: await a.json(), b: await b.json() };", `{"a":1,"b":2}`},
		{"inner returns", "const twice = (n) => { return 2 * n; };\nreturn { n: twice(config.x) };", `{"n":2}`},
		{"a state of its own", "const state = 1;\nreturn { state };", `{"state":1}`},
		{"caught", "try { await fetch(4); } catch (e) { return { code: e.code }; }\nreturn config", `{"code":"script.fetch"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := complete(t, enrichBody(c.body), Env{Vars: []byte(`{"v":"set"}`)}, `{ "big": 18446744073709551615, "x": 1 }`)
			if err != nil || got != c.want {
				t.Errorf("got %s, %v, want %s", got, err, c.want)
			}
		})
	}
}

func TestEnrichModule(t *testing.T) {
	source := Source{Kind: Enrich, Module: true, Body: stream.Text{File: "e.js", Line: 1, Column: 1,
		Text: "const add = (n) => n + 1;\nexport async function enrich(config) {\n  return { n: add((await (await fetch(':7')).json())) };\n}\n"}}
	if got, err := complete(t, source, Env{}, "{}"); err != nil || got != `{"n":8}` {
		t.Errorf("got %s, %v", got, err)
	}
	source.Body.Text = "export function* enrich(config) { yield 1; }"
	_, err := Compile(source)
	if err == nil || !strings.Contains(err.Error(), "e.js:1:8") || !strings.Contains(err.Error(), "no function enrich") {
		t.Errorf("a generator: %v", err)
	}
}

func TestEnrichRefusesOtherAnswers(t *testing.T) {
	for _, c := range []struct{ name, body, code, at string }{
		{"nothing", "if (config.never) return config;", CodeEnrich, ""},
		{"undefined", "return config.x.y;", CodeEnrich, "f.yaml:3:5"},
		{"an array", "\nreturn [config];", CodeEnrich, "f.yaml:4:5"},
		{"null, late", "await fetch(':1');\nreturn null;", CodeEnrich, "f.yaml:4:5"},
		{"a map", "return new Map();", CodeRefused, "f.yaml:3:5"},
		{"what JSON has not", "return { ...config, n: NaN };", CodeRefused, "f.yaml:3:5"},
		{"thrown", "throw new Error('no');\nreturn config;", CodeError, "f.yaml:3:11"},
		{"rejected", "return fetch(':x').then((a) => a.json());", CodeError, "f.yaml:3:42"},
		{"forgotten", "fetch(':1');\nreturn config;", CodeForgotten, "f.yaml:3:1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := complete(t, enrichBody(c.body), Env{}, `{"x":1}`)
			var failed *Error
			if !errors.As(err, &failed) || failed.Code() != c.code || c.at != "" && !strings.Contains(err.Error(), c.at) {
				t.Errorf("got %s, %#v, want %s at %s", got, err, c.code, c.at)
			}
		})
	}
}

// An enrich has neither outputs nor state nor other configs, and says so before anything runs.
func TestEnrichKnowsItsConfigOnly(t *testing.T) {
	for body, want := range map[string]string{
		"yield Message({ value: 1 });\nreturn config;":           "f.yaml:3:5",
		"const f = () => Message({ value: 1 });\nreturn config;": "Message is not there in an enrich",
		"return { ...config, n: state.n };":                      "state is not there in an enrich",
		"return { ...config, o: configs.get('other') };":         "configs is not there in an enrich",
		"config.n = 1;": "the body returns nothing",
		"const f = () => { return config; };\nf();":                     "the body returns nothing",
		"async function* g() { yield 1; }\nyield* g();\nreturn config;": "an enrich yields nothing",
	} {
		_, err := Compile(enrichBody(body))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
}

// What functions: declare may speak of Messages; it serves other bodies as well.
func TestEnrichUsesFunctions(t *testing.T) {
	source := enrichBody("return { ...config, n: twice(config.x) };")
	source.Functions = []stream.Text{{File: "f.yaml", Line: 1, Column: 1, Text: "const twice = (n) => 2 * n;\nfunction* both() { yield Message({ value: 1 }); yield State({}); }"}}
	if got, err := complete(t, source, Env{}, `{"x":2}`); err != nil || got != `{"x":2,"n":4}` {
		t.Errorf("got %s, %v", got, err)
	}
}

// The digest tells whether a config may come out otherwise: it hangs on the body, on functions and on imports.
func TestEnrichDigest(t *testing.T) {
	digest := func(body, functions, lib string) string {
		t.Helper()
		e, err := mustCompile(t, Source{Kind: Enrich, Module: true, Body: stream.Text{File: "e.js", Line: 1, Column: 1, Text: body},
			Functions: []stream.Text{{File: "f.yaml", Line: 1, Column: 1, Text: functions}},
			Read: func(string) (stream.Text, error) {
				return stream.Text{File: "lib.js", Line: 1, Column: 1, Text: lib}, nil
			},
		}).NewEnrich(Env{})
		if err != nil {
			t.Fatal(err)
		}
		return string(e.Digest())
	}
	const body, functions, lib = "import { n } from './lib.js'\nexport function enrich(config) { return { n }; }", "const a = 1;", "export const n = 1;"
	first := digest(body, functions, lib)
	if digest(body, functions, lib) != first {
		t.Error("the digest of the same is another")
	}
	for name, other := range map[string]string{
		"body": digest(body+" ", functions, lib), "functions": digest(body, "const a = 2;", lib), "import": digest(body, functions, "export const n = 2;"),
	} {
		if other == first {
			t.Errorf("the digest does not hang on the %s", name)
		}
	}
}

func TestEnrichIsBoundedAndCancelled(t *testing.T) {
	e, err := mustCompile(t, enrichBody("for (;;);\nreturn config;")).NewEnrich(Env{Timeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	var failed *Error
	if _, err = e.Complete(t.Context(), stream.Config{}); !errors.As(err, &failed) || failed.Code() != CodeTimeout {
		t.Errorf("an endless loop: %v", err)
	}
	cause := errors.New("the stage is stopping")
	ctx, cancel := context.WithCancelCause(t.Context())
	e, err = mustCompile(t, enrichBody("try { await fetch('x'); } finally { console.log('cleaned up'); }\nreturn config;")).NewEnrich(Env{
		Fetch: func(ctx context.Context, _ *FetchRequest) (*FetchResponse, error) {
			cancel(cause)
			<-ctx.Done()
			return nil, context.Cause(ctx)
		},
		Console: func(_, text string) { cause = errors.Join(cause, errors.New(text)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = e.Complete(ctx, stream.Config{}); err == nil || !strings.Contains(cause.Error(), "cleaned up") {
		t.Errorf("a cancelled call: %v, %v", err, cause)
	}
}

func TestEnrichCallsRunSideBySide(t *testing.T) {
	const n = 4
	var gate sync.WaitGroup
	gate.Add(n)
	e, err := mustCompile(t, enrichBody("return (await fetch(':' + config.n)).json();")).NewEnrich(Env{Fetch: func(ctx context.Context, r *FetchRequest) (*FetchResponse, error) {
		gate.Done()
		gate.Wait()
		r.URL = `:{"key":` + r.URL[1:] + `}`
		return echo(ctx, r)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() {
			digit := string(rune('0' + i))
			got, err := e.Complete(t.Context(), stream.Config{Value: []byte(`{"n":` + digit + `}`)})
			if want := `{"key":` + digit + `}`; err != nil || string(got) != want {
				t.Errorf("got %s, %v, want %s", got, err, want)
			}
		})
	}
	calls.Wait()
}
