package pipeline

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flechtwerk/flechtwerk/engine/expr"
)

// loadText loads one file that exists only here.
func loadText(t testing.TB, text string, o Options) (*Set, Problems) {
	t.Helper()
	read := o.ReadFile
	o.ReadFile = func(name string) ([]byte, error) {
		if name == "x.yaml" {
			return []byte(text), nil
		}
		if read == nil {
			return nil, fs.ErrNotExist
		}
		return read(name)
	}
	if o.LookupEnv == nil {
		o.LookupEnv = func(string) (string, bool) { return "", false }
	}
	return Load([]string{"x.yaml"}, o)
}

func texts(problems Problems) []string {
	var out []string
	for _, p := range problems {
		out = append(out, p.String())
	}
	return out
}

func TestFolderHoldsPipelinesOnly(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b.yml", "a.yaml", "a.test.yaml", "flechtwerk.yaml", ".hidden.yaml", "notes.txt", "sub.yaml/x.yaml"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		text := "pipeline: " + strings.TrimSuffix(name, filepath.Ext(name)) + "\ntopics: { t: {} }\n"
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	set, problems := Load([]string{dir, filepath.Join(dir, "a.yaml"), filepath.Join(dir, ".", "b.yml")}, Options{})
	if len(problems) > 0 {
		t.Error(texts(problems))
	}
	if want := []string{filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yml")}; !slices.Equal(set.Files, want) {
		t.Errorf("files are %v, want %v", set.Files, want)
	}
	if len(set.Pipelines) != 2 || len(set.Topics) != 1 || set.Pipelines[0].Topics[0] != set.Pipelines[1].Topics[0] {
		t.Error("the topic of both pipelines is not one")
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	_, problems := Load([]string{"testdata/absent.yaml", "testdata/x.test.yaml", "testdata/bad/empty-folder"}, Options{})
	want := []string{
		"testdata/absent.yaml: error file.unreadable: the file cannot be read: no such file or directory",
		"testdata/bad/empty-folder: error file.none: the folder holds no pipeline",
		"testdata/x.test.yaml: error file.test: this is a test of a pipeline, not a pipeline",
	}
	if diff := cmp.Diff(want, texts(problems)); diff != "" {
		t.Error(diff)
	}
}

// TestFormatsOfAnotherFile shows that a topic which one file declares has its formats in all that are loaded with it.
func TestFormatsOfAnotherFile(t *testing.T) {
	files := fstest.MapFS{
		"a.yaml": {Data: []byte("pipeline: a\ntransformers:\n  t:\n    input_topics: shared\n    output_topics: out\n    message: { value: value }\n")},
		"b.yaml": {Data: []byte("pipeline: b\ntopics:\n  shared: { value: string, partitions: 3 }\n")},
	}
	set, problems := Load([]string{"a.yaml", "b.yaml"}, Options{ReadFile: files.ReadFile})
	if len(problems) > 0 {
		t.Fatal(texts(problems))
	}
	in := set.Pipelines[0].Transformers[0]
	if got := in.Inputs[0].Value.String(); got != "string" {
		t.Errorf("the input is read as %s", got)
	}
	if in.InputTopics[0].Partitions != 3 || in.InputTopics[0] != set.Pipelines[1].Topics[0] {
		t.Error("the input is not the topic of the other file")
	}
}

func TestNoEnvLooksNothingUp(t *testing.T) {
	o := Options{NoEnv: true, LookupEnv: func(name string) (string, bool) {
		t.Errorf("%s was looked up", name)
		return "", false
	}, ReadFile: func(name string) ([]byte, error) {
		t.Errorf("%s was read", name)
		return nil, fs.ErrNotExist
	}}
	set, problems := loadText(t, `
pipeline: ${NAME}
vars:
  a: ${A}
  b: ${B|int}
  c: ${file:/run/secrets/c}
  d: ${D:5|int}
topics:
  ${TOPIC}: { partitions: "${N}", value: "${FORMAT}", config: { retention.ms: "${R}" } }
extractors:
  e:
    every: ${EVERY}
    tokens: ${TOKENS}
    workers: ${WORKERS}
    on_error: { retry: "${RETRY}..5m" }
    config: { schema: { properties: { a: { pattern: "${PATTERN}" } } }, defaults: { b: "${B}" } }
    where: vars.a == config.a
    configs: { x: { a: "${A}" } }
    output_topics: ${TOPIC}
    poll: |
      yield Message({ value: vars.a });
  f:
    cron: ${CRON}
    config_topics: ["${TOPIC2}"]
    config: { schema: "${SCHEMA}" }
    on_invalid: ${POLICY}
    poll: |
      yield State({ a: 1 });
  g:
    cron: { at: "${CRON}", zone: "${ZONE}" }
    poll: |
      yield State({ a: 1 });
transformers:
  e2:
    application_id: ${ID}
    input_topics: ${TOPIC}
    output_topics: ${OUT}
    timeout: ${TIMEOUT}
    on_error: ${POLICY}
    transform: |
      yield Message({});
`, o)
	if len(problems) > 0 {
		t.Error(texts(problems))
	}
	if got := string(set.Pipelines[0].Vars); got != `{"a":"${A}","b":null,"c":"${file:/run/secrets/c}","d":5}` {
		t.Errorf("vars are %s", got)
	}
	if set.Pipelines[0].Transformers[0].InputTopics[0] != set.Pipelines[0].Extractors[0].OutputTopics[0] {
		t.Error("the topic with one unknown name is not one topic")
	}
}

// TestNoProblemShowsTheEnvironment sets every value to a marker that must not come up in any problem.
func TestNoProblemShowsTheEnvironment(t *testing.T) {
	const secret = "s3cr3t/!"
	_, problems := loadText(t, `
pipeline: ${A}
description: ${A}
functions: ["${A}.js", "${A}"]
fetch: { base_url: "${A}", timeout: "${A}", rate: "${A}", max_bytes: "${A}", max_redirects: "${A}", breaker: { failures: "${A}", pause: "${A}" } }
vars: { a: "${A|int}", b: "x ${A|bool}", c: "${file:x}", d: "${file:absent}" }
topics:
  ${A}: { partitions: "${A}", key: "${A}", config: { x: "${A}" }, seed: { file: "${A}", key: "${A}" } }
  b: { seed: { file: "${A}.csv" } }
extractors:
  e: { every: "${A}", tokens: "${A}", application_id: "${A}", output_topics: "${A}", poll: { script: "${A}.js" }, on_error: "${A}", timeout: "${A}" }
  f: { every: 1s, application_id: "${A}", poll: "yield State({});" }
  g: { cron: "${A}", config_topics: ["${A}", "${A}"], config: { schema: "${A}" }, on_invalid: "${A}", poll: "yield State({});" }
  h: { cron: { at: "${A}", zone: UTC }, workers: "${A}", on_error: { retry: "${A}..5m" }, config: { schema: "${A}.json" }, poll: "yield State({});" }
  i:
    cron: { at: "0 6 * * *", zone: "${A}" }
    config:
      schema: { properties: { a: { enum: [a, b] }, b: { pattern: x, format: email, maxLength: 2 }, c: { const: 5 } }, minProperties: 9 }
      defaults: { b: "${A}" }
    configs: { a: { a: "${A}", b: "${A}", c: "${A}" } }
    poll: "yield State({});"
  j: { every: config.a + 1, where: "config.a matches vars.x", configs: { a: { a: "${A}", b: "[" } }, poll: "yield State({});" }
  k: { every: config.a, configs: { a: { a: "${A}" } }, poll: "yield State({});" }
transformers:
  t:
    application_id: ${A}
    input_topics: ["${A}", "${A}"]
    output_topics: { x: "${A}" }
    on_invalid: ${A}
    message: { topic: "${A} {{ x }}", value: value }
`, Options{LookupEnv: func(string) (string, bool) { return secret, true }, ReadFile: func(name string) ([]byte, error) {
		if name == "x" {
			return []byte(secret), nil
		}
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}})
	if len(problems) < 40 {
		t.Errorf("only %d problems: %v", len(problems), texts(problems))
	}
	for _, p := range problems {
		if strings.Contains(p.String()+p.Hint, "s3cr3t") {
			t.Errorf("%s → %s", p.String(), p.Hint)
		}
	}
}

func TestEmptyVariableIsNotMissing(t *testing.T) {
	set, problems := loadText(t, "pipeline: p\nvars: { a: \"<${A:default}>\", b: \"<${B:default}>\" }\ntopics: { t: {} }\n", Options{LookupEnv: func(name string) (string, bool) {
		return "", name == "A"
	}})
	if len(problems) > 0 || string(set.Pipelines[0].Vars) != `{"a":"<>","b":"<default>"}` {
		t.Errorf("%v %s", texts(problems), set.Pipelines[0].Vars)
	}
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"250ms": 250 * time.Millisecond, "30s": 30 * time.Second, "5m": 5 * time.Minute, "48h": 48 * time.Hour, "7d": 7 * 24 * time.Hour, "0s": 0,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%s is %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "5", "s", "5S", "1.5s", "1h30m", "-5s", "5 s", "106752d", "99999999999999999999s", "5us", "５s"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q is taken as %s", text, got)
		}
	}
}

// TestPlacesAreThoseOfTheFile reads each scalar of each file of the corpus back from where it is said to stand.
func TestPlacesAreThoseOfTheFile(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	scalars := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		l := &loader{set: &Set{lines: map[string][]string{}}}
		src, root := l.parse(file, text)
		var walk func(n *node)
		walk = func(n *node) {
			for _, e := range n.entries {
				walk(e.key)
				walk(e.value)
			}
			for _, item := range n.items {
				walk(item)
			}
			if n.kind != scalar {
				return
			}
			scalars++
			at := src.from(n.line, n.column)
			switch n.style {
			case bare:
				if first, _, _ := strings.Cut(n.text, " "); !strings.HasPrefix(at, first) {
					t.Errorf("%s:%d:%d is %q, not %q", file, n.line, n.column, at, n.text)
				}
			case single, double:
				if !strings.HasPrefix(at, "'") && !strings.HasPrefix(at, `"`) && !strings.HasPrefix(at, "!!") && n.text != at {
					t.Errorf("%s:%d:%d is %q, not %q in quotes", file, n.line, n.column, at, n.text)
				}
			case block:
				for i, line := range strings.Split(n.text, "\n") {
					fileLine, column := n.block.Position(i+1, 1)
					if line != "" && src.from(fileLine, column) != line {
						t.Errorf("%s:%d:%d is %q, not %q", file, fileLine, column, src.from(fileLine, column), line)
					}
				}
			default: // the lines of a folded block are no more what the file has
			}
		}
		if root != nil {
			walk(root)
		}
	}
	if scalars < 1000 {
		t.Errorf("only %d scalars were looked at", scalars)
	}
}

func TestFailureIsFoundInTheFile(t *testing.T) {
	set, problems := loadText(t, "pipeline: p\ntransformers:\n  t:\n    input_topics: a\n    output_topics: b\n    filter: |\n      value.a > 0 &&\n        value.b\n    message: { value: { x: \"value.x\" } }\n", Options{})
	if len(problems) > 0 {
		t.Fatal(texts(problems))
	}
	tr := set.Pipelines[0].Transformers[0]
	for _, c := range []struct {
		failure expr.Failure
		want    Place
	}{
		{expr.Failure{Text: tr.Filter.Text(), Line: 2, Column: 3}, Place{"x.yaml", 8, 9}},
		{expr.Failure{Text: "value.x", Line: 1, Column: 7}, Place{"x.yaml", 9, 35}},
	} {
		if got, ok := tr.At(&c.failure); !ok || got != c.want {
			t.Errorf("%v is at %v, %t; want %v", c.failure, got, ok, c.want)
		}
	}
	if _, ok := tr.At(&expr.Failure{Text: "nothing"}); ok {
		t.Error("an expression of nobody is found")
	}
}

// TestD1RolesOfStages: a transformer without inputs, an extractor without a source, a topic that is input and config.
func TestD1RolesOfStages(t *testing.T) {
	_, problems := loadText(t, `
pipeline: p
extractors:
  e: { every: 5s, output_topics: a }
transformers:
  t: { output_topics: b, message: { value: value } }
  u: { input_topics: [c, d], config_topics: d, output_topics: b, transform: "yield Message(configs.get(1));" }
`, Options{})
	codes := map[string]bool{}
	for _, p := range problems {
		codes[p.Code] = true
	}
	want := []string{"stage.no_input", "stage.no_source", "topic.input_and_config"}
	if got := slices.Sorted(maps.Keys(codes)); !slices.Equal(got, want) {
		t.Errorf("codes are %v, want %v", got, want)
	}
}

// TestT5bStateKeyThatIsNotTheRecordsKey is warned about unless there is one partition.
func TestT5bStateKeyThatIsNotTheRecordsKey(t *testing.T) {
	for _, c := range []struct{ partitions, key, want string }{
		{"{ partitions: 8 }", `value.device`, "state_key.split"},
		{"{ partitions: 8 }", `key.device`, "state_key.split"},
		{"{}", `vars.x`, "state_key.constant"},
		{"{ partitions: 2 }", `'"all"'`, "state_key.constant"},
		{"{ partitions: 1 }", `'"all"'`, ""},
		{"{ partitions: 1 }", `value.device`, ""},
		{"{ partitions: 8 }", `key`, ""},
	} {
		_, problems := loadText(t, "pipeline: p\nvars: { x: 1 }\ntopics:\n  a: "+c.partitions+"\ntransformers:\n  t:\n    input_topics: a\n    output_topics: b\n    state_key: "+c.key+"\n    transform: yield Message(state)\n", Options{})
		got := ""
		for _, p := range problems {
			got += p.Code
		}
		if got != c.want || problems.Failed() {
			t.Errorf("state_key: %s over %s gives %q, want %q", c.key, c.partitions, got, c.want)
		}
	}
}

// TestAliasesCannotGrowWithoutEnd expands the well-known bomb of nested aliases.
func TestAliasesCannotGrowWithoutEnd(t *testing.T) {
	text := "pipeline: p\ntopics: { t: {} }\nvars:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := '1'; i < '9'; i++ {
		one := "*a" + string(i-1)
		text += "  a" + string(i) + ": &a" + string(i) + " [" + strings.TrimSuffix(strings.Repeat(one+", ", 10), ", ") + "]\n"
	}
	_, problems := loadText(t, text, Options{})
	if len(problems) != 1 || problems[0].Code != "yaml.too_large" {
		t.Error(texts(problems))
	}
}

// TestKeysThatAreReadBeforeTheyAreSupported shows what a pipeline holds of the keys that are refused for now.
func TestKeysThatAreReadBeforeTheyAreSupported(t *testing.T) {
	set, problems := loadText(t, `
pipeline: p
fetch:
  user_agent: tanks/1
  base_url: https://api.example.com/v1
  timeout: 5s
  rate: 100/m
  breaker: { failures: 5, pause: 1m }
  max_bytes: 16MiB
  max_redirects: 0
extractors:
  e:
    every: 5s
    enrich: |
      return { ...config, at: 1 };
    poll: yield State({});
transformers:
  t: { input_topics: a, output_topics: b, concurrency: 8, transform: yield Message(1); }
  u: { input_topics: a, output_topics: b, transform: yield Message(1); }
`, Options{})
	for _, p := range problems {
		t.Error(p.String())
	}
	p := set.Pipelines[0]
	want := FetchDefaults{"tanks/1", "https://api.example.com/v1", 5 * time.Second, FetchRate{100, time.Minute}, FetchBreaker{5, time.Minute}, 16 << 20, 0}
	if p.Fetch != want {
		t.Errorf("fetch is %+v", p.Fetch)
	}
	if got := p.Extractors[0].Enrich; !got.Present() || got.Line != 15 || got.Column != 7 {
		t.Errorf("enrich is %+v", got)
	}
	if a, b := p.Transformers[0].Concurrency, p.Transformers[1].Concurrency; a != 8 || b != DefaultConcurrency {
		t.Errorf("concurrency is %d and %d", a, b)
	}
	set, _ = loadText(t, "pipeline: p\ntopics: { t: {} }\n", Options{})
	if set.Pipelines[0].Fetch != DefaultFetch {
		t.Errorf("without fetch it is %+v", set.Pipelines[0].Fetch)
	}
	set, _ = loadText(t, "pipeline: p\nfetch: { breaker: { failures: 2 } }\ntopics: { t: {} }\n", Options{})
	if got := set.Pipelines[0].Fetch.Breaker; got != (FetchBreaker{2, 30 * time.Second}) {
		t.Errorf("a breaker without pause is %+v", got)
	}
}

// TestConfigTopicOfAnotherFile: a topic is compacted because a stage of any file reads configs from it, unless it says
// otherwise wherever it is declared.
func TestConfigTopicOfAnotherFile(t *testing.T) {
	files := fstest.MapFS{
		"a.yaml": {Data: []byte("pipeline: a\nextractors:\n  e: { every: 5s, config_topics: [shared, kept], poll: yield State(1); }\n")},
		"b.yaml": {Data: []byte("pipeline: b\ntopic_defaults: { config: { retention.ms: -1 } }\ntopics:\n  shared: {}\n  kept: { config: { cleanup.policy: delete } }\n  other: {}\n")},
	}
	set, problems := Load([]string{"a.yaml", "b.yaml"}, Options{ReadFile: files.ReadFile})
	if len(problems) > 0 {
		t.Fatal(texts(problems))
	}
	var got []string
	for _, topic := range set.Topics {
		got = append(got, topic.Name+"="+topic.Config["cleanup.policy"])
	}
	if want := []string{"shared=compact", "kept=delete", "other="}; !slices.Equal(got, want) {
		t.Errorf("cleanup policies are %v, want %v", got, want)
	}
}
