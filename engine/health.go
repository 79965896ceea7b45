package engine

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// health is how the configs stand that this instance polls of an extractor.
type health struct {
	mu     sync.Mutex
	states map[string]ConfigStatus // by key
}

func newHealth() *health { return &health{states: map[string]ConfigStatus{}} }

// ok is for a config whose polling begins, and after each poll that did not fail.
func (h *health) ok(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.states[key] = ConfigStatus{Config: key}
}

// forget is for a config that this instance polls no more.
func (h *health) forget(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.states, key)
}

func (h *health) failed(key string, state ConfigState, err error, failures int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	since := time.Now()
	if before := h.states[key]; before.Failures > 0 {
		since = before.Since
	}
	h.states[key] = ConfigStatus{Config: key, State: state, Error: err.Error(), Since: since, Failures: failures}
}

// status answers how many configs are polled, and those in trouble, by key.
func (h *health) status() (polled int, trouble []ConfigStatus) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.states {
		if c.Failures > 0 {
			trouble = append(trouble, c)
		}
	}
	slices.SortFunc(trouble, func(a, b ConfigStatus) int { return cmp.Compare(a.Config, b.Config) })
	return len(h.states), trouble
}
