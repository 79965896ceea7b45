package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flechtwerk/flechtwerk/engine/decode/decodetest"
)

// outcome is what a start of the program left.
type outcome struct {
	status         int
	stdout, stderr string
}

// flechtwerk starts the program in this process, in an environment of its own.
func flechtwerk(t testing.TB, env []string, args ...string) outcome {
	t.Helper()
	var stdout, stderr safeBuffer
	p := &program{env: env, stdout: &stdout, stderr: &stderr}
	status := p.start(t.Context(), args)
	return outcome{status, stdout.String(), stderr.String()}
}

// safeBuffer is a buffer that goroutines share.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

const goodPipeline = `
pipeline: good
topics:
  in: { partitions: 2 }
  out: { partitions: 2 }
transformers:
  copy:
    input_topics: in
    output_topics: out
    transform: |
      yield Message({ value: msg.value });
  plain:
    input_topics: in
    output_topics: out
    filter: value.a > 1
    message: { value: { a: value.a } }
`

func TestUsage(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		args   string
		status int
		want   string // in stderr, or in stdout for status 0
	}{
		{"", 0, "flechtwerk validate pipelines/"},
		{"--help", 0, "Exit status"},
		{"validat", 2, `unknown verb "validat"; did you mean "validate"?`},
		{"frobnicate x", 2, `unknown verb "frobnicate"`},
		{"validate", 2, "flechtwerk validate needs at least one pipeline file or folder"},
		{"run", 2, "flechtwerk run needs at least one pipeline file or folder"},
		{"run x --nope", 2, "unknown flag: --nope"},
		{"run x --from y", 2, "--from of run is not supported yet"},
		{"validate x --online", 2, "--online of validate is not supported yet"},
		{"topics", 2, "topics needs plan or apply"},
		{"topics alter", 2, `topics has no verb "alter"; it has plan and apply`},
		{"topics plan", 2, "needs at least one pipeline"},
		{"version x", 2, "flechtwerk version takes no argument"},
		{"explain no.such", 2, `there is no code "no.such"`},
		{"explain field.unknwn", 2, `did you mean "field.unknown"?`},
		{"test x --junit y", 2, "test is not supported yet"},
		{"doctor", 2, "doctor is not supported yet"},
		{"state", 2, "state needs list or get"},
		{"state list", 2, "flechtwerk state list takes a pipeline file or folder, and a stage"},
		{"state export x y", 2, "state export is not supported yet"},
		{"config", 2, "config needs get, list, put or delete"},
		{"config pot", 2, `config has no verb "pot"; did you mean "put"?`},
		{"config list", 2, "flechtwerk config list needs at least one pipeline"},
		{"config get x", 2, "flechtwerk config get takes a pipeline file or folder, and a key"},
		{"config put x k", 2, "flechtwerk config put takes a pipeline file or folder, a key, and a config"},
		{"config put x --file y", 2, "--file needs --key"},
		{"config put x k {} --key y", 2, "--key is the column of --file"},
		{"config put x k {} --file y --key z", 2, "only a pipeline file or folder beside --file"},
		{"config delete x", 2, "flechtwerk config delete takes a pipeline file or folder, and keys"},
		{"run x -e none.env", 2, "none.env"},
		{"run x -c none.yaml", 2, "none.yaml"},
		{"run x -s kafka.broker=y", 2, `did you mean "kafka.brokers"?`},
		{"run x --log-level loud", 2, `"loud" is not one of debug, info, warn, error`},
		{"run x --log-format xml", 2, `"xml" is not one of logfmt, json`},
	} {
		got := flechtwerk(t, nil, strings.Fields(c.args)...)
		text := got.stderr
		if c.status == 0 {
			text = got.stdout
		}
		if got.status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("flechtwerk %s: status %d, want %d with %q:\n%s%s", c.args, got.status, c.status, c.want, got.stdout, got.stderr)
		}
		if c.status != 0 && !strings.HasPrefix(got.stderr, "flechtwerk: ") {
			t.Errorf("flechtwerk %s: the message begins with %q", c.args, got.stderr)
		}
	}
}

// What is documented and not there is refused, all of it.
func TestLaterVerbsAreRefused(t *testing.T) {
	for _, verb := range laterVerbs {
		if got := flechtwerk(t, nil, verb); got.status != exitWrong || !strings.Contains(got.stderr, verb+" is not supported yet") {
			t.Errorf("%s: %+v", verb, got)
		}
	}
}

func TestValidateGood(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir, "good.yaml", goodPipeline)
	for _, args := range [][]string{{"validate", path}, {"lint", dir}} {
		got := flechtwerk(t, nil, args...)
		if diff := cmp.Diff(outcome{0, "0 errors, 0 warnings in 1 file\n", ""}, got, cmp.AllowUnexported(outcome{})); diff != "" {
			t.Errorf("%v: %s", args, diff)
		}
	}
	if got := flechtwerk(t, nil, "validate", "-q", path); got != (outcome{}) {
		t.Errorf("quiet: %+v", got)
	}
}

// Problems of YAML, of expressions and of scripts come together, in the order of the file.
func TestValidateTellsAllAtOnce(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "bad.yaml", `pipeline: bad
transformers:
  a:
    input_topic: in
    output_topics: out
    transform: |
      const x = 1);
      yield Message({ value: x });
  b:
    input_topics: in
    output_topics: out
    filter: value.a >
    message: { value: value }
`)
	t.Chdir(dir)
	got := flechtwerk(t, nil, "validate", "bad.yaml")
	if got.status != exitWrong || got.stderr != "" {
		t.Errorf("status %d, stderr %q", got.status, got.stderr)
	}
	var at []string
	for line := range strings.Lines(got.stdout) {
		if strings.HasPrefix(line, "bad.yaml:") {
			fields := strings.Fields(line)
			at = append(at, fields[0]+" "+fields[2])
		}
	}
	for _, want := range []string{"bad.yaml:4:5: field.unknown:", "bad.yaml:7:18: script.syntax:", "bad.yaml:12:"} {
		if !strings.Contains(strings.Join(at, "\n"), want) {
			t.Errorf("no problem at %s in\n%s", want, got.stdout)
		}
	}
	if !strings.Contains(got.stdout, `did you mean "input_topics"?`) || !strings.Contains(got.stdout, "const x = 1);") {
		t.Errorf("neither hint nor source in\n%s", got.stdout)
	}

	got = flechtwerk(t, nil, "validate", "--json", "bad.yaml")
	var report struct {
		Problems []struct {
			File, Code string
			Line       int
		}
		Errors, Files int
	}
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || got.status != exitWrong {
		t.Fatalf("%v: %+v", err, got)
	}
	if report.Errors != len(report.Problems) || report.Errors < 3 || report.Files != 1 {
		t.Errorf("got %+v", report)
	}
}

func TestValidateEnvironment(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir, "env.yaml", "vars: { x: '${MY_LIMIT}' }\n"+goodPipeline)
	if got := flechtwerk(t, nil, "validate", path); got.status != exitWrong || !strings.Contains(got.stdout, "MY_LIMIT") {
		t.Errorf("missing: %+v", got)
	}
	if got := flechtwerk(t, nil, "validate", "--no-env", path); got.status != exitOK {
		t.Errorf("--no-env: %+v", got)
	}
	if got := flechtwerk(t, []string{"MY_LIMIT=3"}, "validate", path); got.status != exitOK {
		t.Errorf("environment: %+v", got)
	}
	if got := flechtwerk(t, nil, "validate", "-e", write(t, dir, "my.env", "MY_LIMIT=3\n"), path); got.status != exitOK {
		t.Errorf("--env-file: %+v", got)
	}
}

func TestVersionAndExplain(t *testing.T) {
	got := flechtwerk(t, nil, "version", "--json")
	var v Version
	if err := json.Unmarshal([]byte(got.stdout), &v); err != nil {
		t.Fatal(err)
	}
	if v.Version == "" || v.Commit == "" || v.Goja == "" || v.Schema == "" || !strings.HasPrefix(v.Go, "go1") {
		t.Errorf("got %+v", v)
	}
	if got := flechtwerk(t, nil, "version"); got.status != 0 || !strings.HasPrefix(got.stdout, "flechtwerk ") || !strings.Contains(got.stdout, "goja ") {
		t.Errorf("got %+v", got)
	}
	if got := flechtwerk(t, nil, "explain", "field.unknown"); got.status != 0 || !strings.HasPrefix(got.stdout, "field.unknown (error)\n") {
		t.Errorf("got %+v", got)
	}
	if got := flechtwerk(t, nil, "explain"); !strings.Contains(got.stdout, "yaml.syntax\n") {
		t.Errorf("got %+v", got)
	}
}

// What is wrong in a file that a script imports, and what is wrong with importing it, is told with its place and its line.
func TestValidateReadsImportedFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "p.yaml", `pipeline: p
functions: lib.js
transformers:
  a:
    input_topics: in
    output_topics: out
    transform: { script: a.js }
  b:
    input_topics: in
    output_topics: out2
    transform: |
      yield Message({ value: half(msg.value) });
`)
	write(t, dir, "a.js", "import { twice } from './lib.js';\nimport _ from 'lodash';\nexport function* transform(msg) { yield Message({ value: twice(msg.value) }); }\n")
	write(t, dir, "lib.js", "import { two } from './two.js';\nexport const half = x => x / two;\n")
	write(t, dir, "two.js", "export const two = 1 +;\n")
	t.Chdir(dir)
	got := flechtwerk(t, nil, "validate", "p.yaml")
	for _, want := range []string{
		"a.js:1:10: error script.import: ./lib.js exports no \"twice\"\n      1 | import { twice } from './lib.js';\n",
		"a.js:2:15: error script.import: \"lodash\" is no file beside this one\n",
		"two.js:1:23: error script.syntax: unexpected token ;\n      1 | export const two = 1 +;\n",
		"3 errors, 0 warnings in 1 file\n",
	} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("no %q in\n%s", want, got.stdout)
		}
	}
	write(t, dir, "two.js", "export const two = 2;\n")
	write(t, dir, "a.js", "import { half as f } from './lib.js';\nexport function* transform(msg) { yield Message({ value: f(msg.value) }); }\n")
	if got := flechtwerk(t, nil, "validate", "p.yaml"); got.status != 0 {
		t.Errorf("%+v", got)
	}
}

// validate knows the settings file and flags that run would have.
func TestValidateTellsOfSettings(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir, "good.yaml", goodPipeline)
	t.Chdir(dir)
	for _, c := range []struct{ args, want string }{
		{"-c nope.yaml", "nope.yaml"},
		{"-s no.such=1", "no.such"},
		{"-s batch.records=many", "batch.records"},
	} {
		got := flechtwerk(t, nil, append([]string{"validate", path}, strings.Fields(c.args)...)...)
		if got.status != exitWrong || !strings.Contains(got.stderr, c.want) || !strings.Contains(got.stdout, "0 errors") {
			t.Errorf("%s: %+v", c.args, got)
		}
	}
}

// What a stage's script says is compared with the topics and vars of its pipeline.
func TestValidateComparesScriptsWithTheirPipeline(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, dir, "p.yaml", `pipeline: p
vars: { limit: 85 }
transformers:
  a:
    input_topics: in
    output_topics: [tank-alerts, tank-means]
    transform: |
      if (msg.value.t > vars.limt) yield Message({ topic: 'tank-alert', value: 1 });
      yield Message({ topic: 'tank-means', value: vars.limit });
  b:
    input_topics: in
    output_topics: "${OUT}"
    transform: |
      yield Message({ topic: 'any', value: 1 });
`)
	got := flechtwerk(t, nil, "validate", "--no-env", "p.yaml")
	for _, want := range []string{
		"p.yaml:8:30: error script.vars: vars has no \"limt\"\n", "did you mean \"limit\"?",
		"p.yaml:8:59: error script.topic: the topic \"tank-alert\" is not among output_topics\n", "did you mean \"tank-alerts\"?",
		"2 errors, 0 warnings in 1 file\n",
	} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("no %q in\n%s", want, got.stdout)
		}
	}
}

// Every code that a script can have is known to explain.
func TestExplainKnowsTheCodesOfScripts(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir, "bad.yaml", strings.Replace(goodPipeline, "yield Message({ value: msg.value });", "await x;", 1))
	got := flechtwerk(t, nil, "validate", "--json", path)
	var report struct{ Problems []struct{ Code string } }
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || len(report.Problems) == 0 {
		t.Fatalf("%v: %+v", err, got)
	}
	for _, problem := range report.Problems {
		if got := flechtwerk(t, nil, "explain", problem.Code); got.status != 0 {
			t.Errorf("%s: %+v", problem.Code, got)
		}
	}
}

func TestSchema(t *testing.T) {
	got := flechtwerk(t, nil, "schema")
	var schema map[string]any
	if err := json.Unmarshal([]byte(got.stdout), &schema); err != nil || schema["$schema"] == nil {
		t.Errorf("%v: %.200s", err, got.stdout)
	}
}

// BenchmarkValidate20 validates a folder of 20 pipelines of five stages, as `flechtwerk validate` does. The target is 100 ms.
func BenchmarkValidate20(b *testing.B) {
	dir := b.TempDir()
	text, err := os.ReadFile("testdata/large.yaml")
	if err != nil {
		b.Fatal(err)
	}
	for i := range 20 {
		name := string(rune('a' + i))
		write(b, dir, name+".yaml", strings.ReplaceAll(string(text), "large", "large-"+name))
	}
	began := decodetest.CPU()
	for b.Loop() {
		var stdout, stderr bytes.Buffer
		p := &program{stdout: &stdout, stderr: &stderr}
		if status := p.start(context.Background(), []string{"validate", filepath.Clean(dir)}); status != 0 {
			b.Fatalf("status %d\n%s%s", status, stdout.String(), stderr.String())
		}
	}
	// What a machine that is busy with other things cannot change much.
	b.ReportMetric(float64((decodetest.CPU()-began).Milliseconds())/float64(b.N), "cpu-ms/op")
}
