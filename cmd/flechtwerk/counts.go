package main

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// maxCounts is how many names one stage may count under. Names come from scripts, perhaps from their data, and each is a
// series that the process and Prometheus keep.
const maxCounts = 100

// otherCounts is the name that all further ones are counted under.
const otherCounts = "other"

// ScriptCounts answers the function that a stage's scripts count with. It is safe for concurrent use.
func (m *Metrics) ScriptCounts(pipeline, stage string) func(name string, n float64) {
	var mu sync.Mutex
	counters := map[string]prometheus.Counter{}
	return func(name string, n float64) {
		mu.Lock()
		c := counters[name]
		if c == nil && len(counters) >= maxCounts {
			name = otherCounts
			c = counters[name]
		}
		if c == nil {
			c = m.scriptCounts.WithLabelValues(pipeline, stage, name)
			counters[name] = c
		}
		mu.Unlock()
		c.Add(n)
	}
}
