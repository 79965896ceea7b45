package pipeline

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// BenchmarkLoad reads a folder of twenty pipelines, each with an extractor, two scripts and expressions.
func BenchmarkLoad(b *testing.B) {
	one := `
pipeline: tanks-%d
description: Levels from the tanks, and an alert when one runs hot.
vars:
  limit: ${LIMIT:85|number}
topics:
  tank-levels-%[1]d: { partitions: 8 }
  tank-alerts-%[1]d: { partitions: 8, config: { retention.ms: -1 } }
extractors:
  source:
    every: 60s
    configs:
      de: { region: DE }
      fr: { region: FR }
    output_topics: tank-levels-%[1]d
    poll: |
      const next = (state.n ?? 0) + 1;
      yield Message({ key: config.region, value: { temperature: next % 100 } });
      yield State({ n: next });
transformers:
  alerts:
    input_topics: tank-levels-%[1]d
    output_topics: tank-alerts-%[1]d
    filter: value.temperature != nil && value.temperature > -50
    state: { count: 0, sum: 0 }
    transform: |
      state.count += 1;
      state.sum += msg.value.temperature;
      yield State(state);
      const mean = state.sum / state.count;
      if (mean > vars.limit) yield Message({ value: { tank: msg.key, mean } });
  hot:
    input_topics: tank-levels-%[1]d
    filter: value.temperature > vars.limit
    message:
      topic: "tank-{{ value.temperature > 95 ? 'fire' : 'hot' }}"
      key: key
      value: { tank: key, fahrenheit: "value.temperature * 9 / 5 + 32", alert: true }
    output_topics: [tank-hot, tank-fire]
`
	files := map[string][]byte{}
	var names []string
	for i := range 20 {
		name := fmt.Sprintf("p%02d.yaml", i)
		files[name], names = []byte(strings.ReplaceAll(strings.TrimLeft(one, "\n"), "%[1]d", strconv.Itoa(i))), append(names, name)
	}
	o := Options{LookupEnv: func(string) (string, bool) { return "", false }, ReadFile: func(name string) ([]byte, error) { return files[name], nil }}
	b.ReportAllocs()
	for b.Loop() {
		if _, problems := Load(names, o); len(problems) > 0 {
			b.Fatal(problems[0].String())
		}
	}
}
