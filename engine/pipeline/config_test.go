package pipeline

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flechtwerk/flechtwerk/engine/expr"
)

func TestDefaultsFillWhatAConfigDoesNotSay(t *testing.T) {
	for _, c := range []struct{ name, defaults, config, want string }{
		{"nothing to fill", `{"a":1}`, `{ "a" : 2 }`, `{ "a" : 2 }`},
		{"no defaults", ``, `{ "a" : 2 }`, `{ "a" : 2 }`},
		{"missing", `{"a":1,"b":"x"}`, `{"c":[1, 2]}`, `{"c":[1,2],"a":1,"b":"x"}`},
		{"null counts", `{"a":1}`, `{"a":null}`, `{"a":null}`},
		{"deep", `{"a":{"b":1,"c":{"d":2}}}`, `{"a":{"c":{},"b":5}}`, `{"a":{"c":{"d":2},"b":5}}`},
		{"another type counts", `{"a":{"b":1}}`, `{"a":[]}`, `{"a":[]}`},
		{"lists are whole", `{"a":[1,2]}`, `{"a":[]}`, `{"a":[]}`},
		{"empty", `{"a":1}`, `{}`, `{"a":1}`},
		{"digits stay", `{"a":1e3}`, `{"b":1.50}`, `{"b":1.50,"a":1e3}`},
		{"escaped names", `{"ä\"":1}`, `{"\u00e4\"":2,"b":0}`, `{"\u00e4\"":2,"b":0}`},
	} {
		spec := &ConfigSpec{}
		if c.defaults != "" {
			spec.Defaults = []byte(c.defaults)
		}
		before := c.config
		got, err := spec.Complete([]byte(c.config))
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s becomes %s, %v; want %s", c.name, c.config, got, err, c.want)
		}
		if c.config != before {
			t.Errorf("%s: the config has changed", c.name)
		}
	}
	for _, text := range []string{`[]`, `"a"`, `null`, `{`, ``} {
		for _, spec := range []*ConfigSpec{nil, {}, {Defaults: []byte(`{"a":1}`)}} {
			if got, err := spec.Complete([]byte(text)); err == nil {
				t.Errorf("%q becomes %s", text, got)
			}
		}
	}
}

// specOf is the ConfigSpec of a schema that stands in a file.
func specOf(t *testing.T, schema, defaults string) *ConfigSpec {
	t.Helper()
	files := fstest.MapFS{"s.json": {Data: []byte(schema)}}
	set, problems := loadText(t, "pipeline: p\nextractors:\n  e: { every: 5s, config_topics: a, config: { schema: s.json, defaults: "+defaults+" }, poll: yield State(1); }\n", Options{ReadFile: files.ReadFile})
	if len(problems) > 0 {
		t.Fatal(texts(problems))
	}
	return set.Pipelines[0].Extractors[0].Config
}

// TestC0ConfigIsChecked also shows that no value of a config is told (V2).
func TestC0ConfigIsChecked(t *testing.T) {
	spec := specOf(t, `{
		"type": "object",
		"required": ["region"],
		"additionalProperties": false,
		"properties": {
			"region": { "enum": ["DE", "FR"] },
			"rate": { "type": "integer", "minimum": 1 },
			"mail": { "format": "email" },
			"code": { "type": "string", "pattern": "^[0-9]+$", "minLength": 3 },
			"kind": { "const": "feed" },
			"deep": { "type": "array", "items": { "type": "object", "required": ["x"] } }
		}
	}`, `{ rate: 5 }`)
	for _, c := range []struct{ config, want string }{
		{`{"region":"DE"}`, ""},
		{`{"region":"FR","rate":7,"suspended":true}`, ""},
		{`{}`, "region is missing"},
		{`{"region":"s3cr3t"}`, `region is none of "DE" and "FR"`},
		{`{"region":"DE","rate":0.5}`, "rate is a number, and the schema wants a whole number"},
		{`{"region":"DE","rate":-7}`, "rate is less than 1"},
		{`{"region":"DE","rate":null}`, "rate is null, and the schema wants a whole number"},
		{`{"region":"DE","mail":"s3cr3t"}`, "mail is not of the format email"},
		{`{"region":"DE","code":"s3cr3t"}`, "code does not match ^[0-9]+$"},
		{`{"region":"DE","code":"12"}`, "code is shorter than 3 characters"},
		{`{"region":"DE","kind":"s3cr3t"}`, `kind is not "feed"`},
		{`{"region":"DE","other":"s3cr3t"}`, "other is none of the members that the schema names"},
		{`{"region":"DE","deep":[{"x":1},{}]}`, "deep.1.x is missing"},
		{`{"region":"DE","suspended":"s3cr3t"}`, "suspended is true or false"},
		{`{"a":1,"b":1,"c":1,"d":1,"e":1}`, "a is none of the members that the schema names; b is none of the members that the schema names; c is none of the members that the schema names; " +
			"d is none of the members that the schema names; e is none of the members that the schema names; 1 more"},
	} {
		_, err := spec.Complete([]byte(c.config))
		got := ""
		if err != nil {
			got = err.Error()
			var wrong *SchemaError
			if !errors.As(err, &wrong) {
				t.Errorf("%s: %T", c.config, err)
			}
		}
		if got != c.want {
			t.Errorf("%s: %s\nwant %s", c.config, got, c.want)
		}
		if strings.Contains(got, "s3cr3t") {
			t.Errorf("the error shows a value: %s", got)
		}
	}
}

// TestNoKeywordTellsAValue tries every keyword on values that must not come up in an error.
func TestNoKeywordTellsAValue(t *testing.T) {
	const secret = "s3cr3t-12345678"
	for _, schema := range []string{
		`{"type":"number"}`, `{"enum":["x"]}`, `{"const":1}`, `{"format":"date-time"}`, `{"format":"uri"}`, `{"format":"ipv4"}`, `{"pattern":"^$"}`, `{"maxLength":1}`, `{"minLength":99}`,
		`{"not":{"type":"string"}}`, `{"anyOf":[{"type":"number"},{"maxLength":1}]}`, `{"oneOf":[{"type":"number"},{"maxLength":1}]}`, `{"oneOf":[{},{}]}`,
		`{"allOf":[{"type":"number"},{"maxLength":1}]}`, `false`, `{"if":{"type":"string"},"then":{"maxLength":1}}`, `{"$ref":"#/$defs/short"}`,
	} {
		spec := specOf(t, `{"$defs":{"short":{"maxLength":1}},"properties":{"a":`+schema+`,"b":{"items":`+schema+`,"contains":{"const":1},"uniqueItems":true,"maxItems":1}}}`, `{}`)
		_, err := spec.Complete([]byte(`{"a":"` + secret + `","b":["` + secret + `","` + secret + `"]}`))
		if err == nil || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", schema, err)
		}
	}
	for _, schema := range []string{`{"maximum":1}`, `{"minimum":99999999}`, `{"exclusiveMaximum":1}`, `{"exclusiveMinimum":99999999}`, `{"multipleOf":1000}`, `{"type":"string"}`} {
		spec := specOf(t, `{"properties":{"a":`+schema+`}}`, `{}`)
		if _, err := spec.Complete([]byte(`{"a":12345678}`)); err == nil || strings.Contains(err.Error(), "12345678") {
			t.Errorf("%s: %v", schema, err)
		}
	}
}

func TestPeriodOfAConfig(t *testing.T) {
	set, problems := loadText(t, `
pipeline: p
vars: { factor: 2 }
extractors:
  fixed: { every: 30s, poll: yield State(1); }
  own: { every: config.every ?? state.pause, config_topics: a, poll: yield State(1); }
  sum: { every: config.n * vars.factor, config_topics: a, poll: yield State(1); }
`, Options{})
	if len(problems) > 0 {
		t.Fatal(texts(problems))
	}
	stages := set.Pipelines[0].Extractors
	doc := func(text string) expr.Doc {
		d, err := expr.NewDoc([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for _, c := range []struct {
		stage         int
		config, state string
		want          time.Duration
		fails         string
	}{
		{0, `{}`, `{}`, 30 * time.Second, ""},
		{1, `{"every":"7d"}`, `{}`, 7 * 24 * time.Hour, ""},
		{1, `{"every":250}`, `{}`, 250 * time.Millisecond, ""},
		{1, `{"every":1e3}`, `{}`, time.Second, ""},
		{1, `{}`, `{"pause":"1m"}`, time.Minute, ""},
		{2, `{"n":500}`, `{}`, time.Second, ""},
		{1, `{}`, `{}`, 0, "nothing"},
		{1, `{"every":"often"}`, `{}`, 0, "no duration"},
		{1, `{"every":"0s"}`, `{}`, 0, "not longer than nothing"},
		{1, `{"every":-5}`, `{}`, 0, "not longer than nothing"},
		{1, `{"every":9223372036854775807}`, `{}`, 0, "too long"},
		{1, `{"every":1.5}`, `{}`, 0, "whole number"},
		{1, `{"every":true}`, `{}`, 0, "neither"},
		{2, `{"n":"5"}`, `{}`, 0, "cannot take"},
	} {
		e := stages[c.stage]
		env := &expr.Env{Config: doc(c.config), State: doc(c.state), Vars: doc(`{"factor":2}`)}
		got, err := e.Period(env)
		switch {
		case c.fails == "":
			if err != nil || got != c.want {
				t.Errorf("%s %s %s: %s, %v; want %s", e.Name, c.config, c.state, got, err, c.want)
			}
		case err == nil || !strings.Contains(err.Error(), c.fails):
			t.Errorf("%s %s %s: %s, %v; want an error with %q", e.Name, c.config, c.state, got, err, c.fails)
		default:
			var f *expr.Failure
			if !errors.As(err, &f) {
				t.Errorf("%s: %T is no failure", c.config, err)
				continue
			}
			if at, ok := e.At(f); !ok || at.File != "x.yaml" || at.Line != 6+c.stage-1 {
				t.Errorf("%s: the failure is at %v, %t", c.config, at, ok)
			}
		}
	}
}

func TestBackoffs(t *testing.T) {
	set, problems := loadText(t, `
pipeline: p
extractors:
  a: { every: 5s, on_error: retry, poll: yield State(1); }
  b: { every: 5s, on_error: { retry: 250ms..10s }, poll: yield State(1); }
  c: { every: 5s, on_error: skip, poll: yield State(1); }
  d: { every: 5s, poll: yield State(1); }
`, Options{})
	if len(problems) > 0 {
		t.Fatal(texts(problems))
	}
	type policy struct {
		Policy
		Backoff
	}
	var got []policy
	for _, e := range set.Pipelines[0].Extractors {
		got = append(got, policy{e.OnError, e.Retry})
	}
	want := []policy{{Retry, Backoff{time.Second, 5 * time.Minute}}, {Retry, Backoff{250 * time.Millisecond, 10 * time.Second}}, {Skip, Backoff{}}, {Fail, Backoff{}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Judge has against a config what validate has against an inline one: schema, where and every.
func TestJudge(t *testing.T) {
	const text = `
pipeline: feeds
vars: { kind: news }
extractors:
  read:
    every: config.every ?? "5s"
    config_topics: feeds
    where: config.kind == vars.kind
    config:
      schema: { type: object, required: [url], properties: { url: { type: string } } }
      defaults: { kind: news }
    poll: |
      yield State({ url: config.url });
`
	set, problems := Load([]string{"feeds.yaml"}, Options{ReadFile: func(string) ([]byte, error) { return []byte(text), nil }})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	p := set.Pipelines[0]
	for _, c := range []struct {
		config string
		own    bool
		err    string
	}{
		{`{"url":"a"}`, true, ""},
		{`{"url":"a","kind":"weather","every":"never"}`, false, ""},
		{`{"kind":"news"}`, true, "url is missing"},
		{`{"url":"a","every":"never"}`, true, "`every` fails: it gives a text that is no duration"},
		{`[]`, true, ErrNotObject.Error()},
		{`{`, true, "not closed"},
	} {
		own, err := p.Extractors[0].Judge(p, "a", []byte(c.config))
		if own != c.own || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, %v", c.config, own, err)
		}
	}
}
