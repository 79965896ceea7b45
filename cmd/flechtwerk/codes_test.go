package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Whatever looks like a code in the sources of scripts, expressions and the engine is known to explain.
func TestEveryCodeIsExplained(t *testing.T) {
	code := regexp.MustCompile(`"((?:script|http|mqtt|decode|state|state_key|value|record|message|kafka|expr|input|poll|config|store)\.[a-z_]+)"`)
	found := 0
	for _, pattern := range []string{"../../script/*.go", "../../engine/*.go", "../../engine/expr/*.go", "../../engine/decode/*.go", "../../connectors/http/*.go", "../../connectors/mqtt/*.go", "*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") || filepath.Base(file) == "settings.go" || filepath.Base(file) == "run.go" {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range code.FindAllStringSubmatch(string(text), -1) {
				found++
				if _, ok := explanation(m[1]); !ok {
					t.Errorf("%s: nothing explains %s", file, m[1])
				}
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d codes were found", found)
	}
	for _, c := range allCodes() {
		if e, _ := explanation(c); e.Text == "" || e.Severity == "" {
			t.Errorf("%s is not explained", c)
		}
	}
}
