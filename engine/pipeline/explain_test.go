package pipeline

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEveryCodeIsExplained reads the codes out of the source of the package and of what the corpus emits.
func TestEveryCodeIsExplained(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile(`"((?:mqtt|http|protobuf|yaml|file|field|env|name|topic|stage|state|state_key|body|script|seed|expression|message|duration|pipeline|application_id|value|retry|cron|config|schema)\.[a-z_]+|not_supported)"`)
	used := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || file == "explain.go" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range code.FindAllStringSubmatch(string(text), -1) {
			used[m[1]] = true
			if _, ok := Explain(m[1]); !ok {
				t.Errorf("%s: code %s is not explained", file, m[1])
			}
		}
	}
	if len(used) < 40 {
		t.Errorf("only %d codes were found in the source", len(used))
	}
	for _, c := range Codes() {
		if !used[c] && !strings.HasPrefix(c, "expr.") && !strings.HasPrefix(c, "template.") && c != "message.member" {
			t.Errorf("code %s is explained and never emitted", c)
		}
	}
}

// TestEveryCodeIsInTheCorpus demands an example of every code, save for those of the file system.
func TestEveryCodeIsInTheCorpus(t *testing.T) {
	elsewhere := []string{ // load_test.go shows them, or the compiler of expressions has tests of its own for them
		"file.unreadable", "file.test", "yaml.too_large", "expr.arguments", "expr.regexp", "expr.environment", "expr.not_supported", "expr.constant", "expr.too_large", "message.member",
	}
	files, err := filepath.Glob("testdata/bad/*.want")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	for _, c := range Codes() {
		if !strings.Contains(all.String(), " "+c+": ") && !slices.Contains(elsewhere, c) {
			t.Errorf("no wrong file shows %s", c)
		}
	}
}
