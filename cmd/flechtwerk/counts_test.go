package main

import (
	"fmt"
	"slices"
	"testing"
)

func TestNamesThatScriptsCountUnderAreBounded(t *testing.T) {
	m := NewMetrics(Version{})
	count := m.ScriptCounts("p", "s")
	for i := range 10 * maxCounts {
		count(fmt.Sprint("n", i), 2)
	}
	count("n0", 0.5)
	m.ScriptCounts("p", "t")("n0", 1)
	lines := samples(t, m)
	if len(lines) != maxCounts+2 {
		t.Errorf("there are %d series, want %d", len(lines), maxCounts+2)
	}
	for _, want := range []string{
		`flechtwerk_script_count_total{name="n0",pipeline="p",stage="s"} 2.5`,
		fmt.Sprintf(`flechtwerk_script_count_total{name="other",pipeline="p",stage="s"} %d`, 2*9*maxCounts),
		`flechtwerk_script_count_total{name="n0",pipeline="p",stage="t"} 1`,
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("%s is missing in\n%s", want, lines)
		}
	}
}
