package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// What a script fails with is told alike in the log and in what ends the process: message, place, code, causes and calls.
func TestFailuresInLogAndExitMessage(t *testing.T) {
	document, err := os.ReadFile(filepath.Join("..", "..", "docs", "scripts.md"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		body    string // from line 14 on, column 7
		message string // with its place
		code    string
		thrown  string
		causes  []string
		calls   []string
	}{
		"text":    {body: "throw 'no ' + 1", message: `thrown: "no 1" (p.yaml:14:7)`, code: "script.error"},
		"object":  {body: "throw Object.freeze({ a: 1, code: 'E_A' })", message: `thrown: {"a":1,"code":"E_A"} (p.yaml:14:7)`, code: "script.error", thrown: "E_A"},
		"nothing": {body: "throw undefined", message: `thrown: undefined (p.yaml:14:7)`, code: "script.error"},
		"native":  {body: "1;\n  hash('none', 'x')", message: "TypeError: hash: the algorithm is a string that does not fit; md5, sha1, sha256 or sha512 is expected (p.yaml:15:13)", code: "script.error", thrown: "argument"},
		"causes": {
			body:    "try { JSON.parse('{') } catch (cause) { throw new RangeError('no config', { cause: new Error('no file', { cause }) }) }",
			message: "RangeError: no config (p.yaml:14:53)", code: "script.error", causes: []string{"Error: no file (p.yaml:14:90)", "SyntaxError: "},
		},
		"several": {
			body:    "throw new AggregateError([new Error('one'), Object.assign(new Error('two'), { code: 2 })], 'both')",
			message: "AggregateError: both (p.yaml:14:13)", code: "script.error", causes: []string{"Error: one (p.yaml:14:33)", "Error: two [2] (p.yaml:14:65)"},
		},
		"deadline":          {body: "let n = 0;\nfor (;;)\n  n++;", message: "the script ran longer than 300ms (p.yaml:16:9)", code: "script.timeout"},
		"literals":          {body: "let a = 1;\na = [\n  1n + a, 1n + 1];", message: "TypeError: Cannot mix BigInt and other types, use explicit conversions (p.yaml:16:9)", code: "script.error"},
		"nothing in a loop": {body: "let a = 1;\nfor (;;) ;", message: "the script ran longer than 300ms (p.yaml:15:7)", code: "script.timeout"},
		"method of nothing": {body: "msg.value.none\n  .trim()", message: "TypeError: Cannot read property 'trim' of undefined or null (p.yaml:15:10)", code: "script.error"},
		"recursion":         {body: "const f = n =>\n  f(n + 1);\nf(0)", message: "calls nest deeper than 1000 (p.yaml:15:10)", code: "script.recursion", calls: []string{"f (p.yaml:15:10)"}},
		"stuck":             {body: "await 1;\nawait new Promise(() => {})", message: "the script awaits a promise that nothing can settle (p.yaml:15:7)", code: "script.stuck"},
		"files": {
			body: "yield Message({ value: twice(msg.value.n) })", message: "Error: 3 is odd (odd.js:3:26)", code: "script.error",
			calls: []string{"check (odd.js:3:26)", "twice (twice.js:4:8)", "p.yaml:14:35"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "odd.js", "// Even numbers only.\nexport const check = n => {\n  if (n % 2 !== 0) throw new Error(`${n} is odd`);\n};\n")
			write(t, dir, "twice.js", "import { check } from \"./odd.js\";\n\nexport function twice(n) {\n  check(n);\n  return n * 2;\n}\n")
			path := write(t, dir, "p.yaml", `pipeline: p
functions: twice.js
topics:
  in:
    partitions: 1
    seed: { key: k, records: [{ k: a, n: 3 }] }
  out: { partitions: 1 }
transformers:
  t:
    input_topics: in
    output_topics: out
    timeout: 300ms
    transform: |
      `+strings.ReplaceAll(c.body+"\nyield Message({ value: 1 });", "\n", "\n      ")+"\n")
			said := func(args ...string) string {
				s := start(t, append([]string{"run", "--dev", "-s", "http.listen=off", path}, args...)...)
				if status := s.wait(); status != 1 {
					t.Errorf("exit status %d", status)
				}
				return strings.ReplaceAll(s.stderr.String(), dir+"/", "")
			}
			// As text: the line of the log, then the end of the process.
			log, end, ok := strings.Cut(said(), "\nflechtwerk: ")
			if !ok {
				t.Fatal(log)
			}
			if name == "files" && !strings.Contains(string(document), "```\nflechtwerk: "+strings.TrimSpace(end)+"\n```\n") {
				t.Errorf("docs/scripts.md does not show this end:\n%s", end)
			}
			line := regexp.MustCompile(`(?m)^.*msg="record failed".*$`).FindString(log)
			for _, want := range append(append([]string{c.message, "code=" + c.code}, c.causes...), c.calls...) {
				if !strings.Contains(strings.ReplaceAll(line, `\"`, `"`), want) {
					t.Errorf("the log does not say %s:\n%s", want, line)
				}
			}
			if (c.thrown != "") != strings.Contains(line, "thrown_code="+c.thrown+" ") {
				t.Errorf("the log says another code than %q:\n%s", c.thrown, line)
			}
			wants := []string{`p/t/0: in/0 at offset 0, key "a": ` + c.message + "\n", c.code}
			for _, cause := range c.causes {
				wants = append(wants, "     caused by "+cause)
			}
			for _, call := range c.calls {
				wants = append(wants, "     at "+call)
			}
			if c.thrown != "" {
				wants = append(wants, "     its code is "+c.thrown+"\n")
			}
			for _, want := range wants {
				if !strings.Contains(end, want) {
					t.Errorf("the end does not say %s:\n%s", want, end)
				}
			}
			// As JSON: the same, in fields.
			var failed, ended map[string]any
			for line := range strings.Lines(said("-s", "log.format=json")) {
				var fields map[string]any
				if err := json.Unmarshal([]byte(line), &fields); err != nil {
					t.Fatal(err, line)
				}
				switch fields["msg"] {
				case "record failed":
					failed = fields
				case "run ended":
					ended = fields
				}
			}
			if failed["error"] != c.message || ended["error"] != `p/t/0: in/0 at offset 0, key "a": `+c.message {
				t.Errorf("the errors are %v and %v", failed["error"], ended["error"])
			}
			if failed["code"] != c.code || ended["code"] != c.code || ended["thrown_code"] != c.thrown {
				t.Errorf("the codes are %v, %v and %v", failed["code"], ended["code"], ended["thrown_code"])
			}
		})
	}
}

// The place of an error is that of the file, however the body stands in it.
func TestPlacesInEveryStyleOfYAML(t *testing.T) {
	const here, lines = "/*here*/", "let a = 1;\n      /*é😀*/ a.b./*here*/c;\n"
	styles := map[string]string{
		"block": "transform: |\n      " + lines, "kept": "transform: |+\n      " + lines + "\n\n", "stripped": "transform: |-\n      " + lines, "with a comment": "transform: | # why\n      " + lines,
		"indented": "transform: |2\n          let b = 2;\n      " + lines, "after empty lines": "transform: |\n\n\n      " + lines, "tagged": "transform: &body |\n      " + lines,
		"bare": "transform: let a = 1; a.b./*here*/c;\n", "in quotes": "transform: 'let a = 1; a.b./*here*/c;'\n", "in double quotes": "transform: \"/*é😀*/ let a = 1; a.b./*here*/c;\"\n",
		"on a line of its own": "transform:\n      'let a = 1; a.b./*here*/c;'\n", "key in quotes": "'transform': |\n      " + lines,
	}
	for name, style := range styles {
		for _, end := range []string{"\n", "\r\n"} {
			t.Run(name+fmt.Sprintf(" %q", end), func(t *testing.T) {
				text := "pipeline: p\ntopics:\n  in: { partitions: 1, seed: { key: k, records: [{ k: a }] } }\n  out: { partitions: 1 }\ntransformers:\n  t:\n    input_topics: in\n    output_topics: out\n    " + style
				before, _, _ := strings.Cut(text, here)
				before += here
				column := utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1
				want := fmt.Sprintf("Cannot read property 'c' of undefined (p.yaml:%d:%d)\n", strings.Count(before, "\n")+1, column)
				dir := t.TempDir()
				s := start(t, "run", "--dev", "-s", "http.listen=off", write(t, dir, "p.yaml", strings.ReplaceAll(text, "\n", end)))
				if status := s.wait(); status != 1 {
					t.Errorf("exit status %d", status)
				}
				if said := strings.ReplaceAll(s.stderr.String(), dir+"/", ""); !strings.Contains(said, want) {
					t.Errorf("%s\nwants %s\n%s", text, want, said)
				}
			})
		}
	}
}

// In a log of JSON lines, what validate finds is lines of JSON too.
func TestProblemsInALogOfJSON(t *testing.T) {
	s := start(t, "run", "--dev", "-s", "http.listen=off", "-s", "log.format=json", write(t, t.TempDir(), "p.yaml", `pipeline: p
topics: { in: { partitions: 1 }, out: { partitions: 1 } }
transformers:
  t:
    input_topics: in
    output_topics: out
    transform: |
      yield Mesage({ value: 1 });
`))
	if status := s.wait(); status != exitWrong {
		t.Errorf("exit status %d", status)
	}
	var fields struct {
		Level, Msg, Code, Hint string
		Line, Column           int
	}
	lines := s.stderr.All()
	if err := json.Unmarshal([]byte(lines[0]), &fields); err != nil {
		t.Fatal(err, lines)
	}
	if got := fmt.Sprint(fields); got != `{error nothing is called "Mesage" here script.unknown_name did you mean "Message"? 8 13}` {
		t.Error(got)
	}
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Errorf("no JSON: %s", line)
		}
	}
}
