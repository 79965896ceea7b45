package pipeline

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var shownProblems = Problems{
	{"b.yaml", 2, 4, Warning, "a.b", "second", ""},
	{"a.yaml", 31, 21, Error, "script.syntax", "unexpected token ')'", "remove the extra parenthesis\nor add one"},
	{"a.yaml", 12, 3, Error, "field.unknown", "no such field", "did you mean \"x\"?"},
	{"a.yaml", 12, 3, Error, "field.unknown", "no such field", "did you mean \"x\"?"},
	{"a.yaml", 0, 0, Error, "file.none", "nothing", ""},
}

func shownLine(file string, line int) (string, bool) {
	switch line {
	case 31:
		return "      if (mean > 85)) yield Message({ value: mean });", true
	case 12:
		return "\tä\x1b: " + strings.Repeat("x", 300), true
	}
	return "", false
}

func TestPrint(t *testing.T) {
	problems := append(Problems(nil), shownProblems...)
	problems.Sort()
	var out strings.Builder
	if err := (&Printer{Source: shownLine}).Print(&out, problems, 2); err != nil {
		t.Fatal(err)
	}
	want := `a.yaml: error file.none: nothing
a.yaml:12:3: error field.unknown: no such field
     12 | ` + "\tä\uFFFD: " + strings.Repeat("x", 154) + `…
        | ` + "\t ^" + `
     → did you mean "x"?
a.yaml:31:21: error script.syntax: unexpected token ')'
     31 |       if (mean > 85)) yield Message({ value: mean });
        |                     ^
     → remove the extra parenthesis
       or add one
b.yaml:2:4: warning a.b: second

3 errors, 1 warning in 2 files
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestPrintLongLine(t *testing.T) {
	var out strings.Builder
	line := strings.Repeat("a", 300) + "!" + strings.Repeat("b", 300)
	p := Printer{Source: func(string, int) (string, bool) { return line, true }}
	if err := p.Print(&out, Problems{{"a", 1, 301, Error, "c", "m", ""}}, 1); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	caret := strings.Index(lines[2], "^")
	if runes := []rune(lines[1]); len(runes) > 180 || runes[caret] != '!' {
		t.Errorf("the caret does not stand under its place:\n%s\n%s", lines[1], lines[2])
	}
}

func TestPrintWithColour(t *testing.T) {
	var out strings.Builder
	if err := (&Printer{Color: true}).Print(&out, shownProblems[:2], 1); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "\x1b[31merror\x1b[0m") || !strings.Contains(out.String(), "\x1b[33mwarning\x1b[0m") {
		t.Errorf("%q", out.String())
	}
}

func TestPrintNothing(t *testing.T) {
	var out strings.Builder
	if err := (&Printer{}).Print(&out, nil, 1); err != nil || out.String() != "0 errors, 0 warnings in 1 file\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestProblemsAsJSON(t *testing.T) {
	text, err := shownProblems[:1].JSON(3)
	if err != nil {
		t.Fatal(err)
	}
	want := `{
  "problems": [
    {
      "file": "b.yaml",
      "line": 2,
      "column": 4,
      "severity": "warning",
      "code": "a.b",
      "message": "second"
    }
  ],
  "errors": 0,
  "warnings": 1,
  "files": 3
}
`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Error(diff)
	}
	if text, err := Problems(nil).JSON(0); err != nil || !strings.Contains(string(text), `"problems": []`) {
		t.Errorf("%s, %v", text, err)
	}
}
