package engine

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// health is how the configs stand that an extractor of this instance polls.
type health struct {
	mu      sync.Mutex
	trouble map[string]ConfigStatus // by key; a config that is not here is ok
}

func newHealth() *health { return &health{trouble: map[string]ConfigStatus{}} }

func (h *health) ok(key string) { h.forget(key) }

// forget is for a config that this instance polls no more.
func (h *health) forget(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.trouble, key)
}

func (h *health) failed(key string, state ConfigState, err error, failures int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	since := time.Now()
	if before, ok := h.trouble[key]; ok {
		since = before.Since
	}
	h.trouble[key] = ConfigStatus{Config: key, State: state, Error: err.Error(), Since: since, Failures: failures}
}

// status answers the configs in trouble, by key.
func (h *health) status() []ConfigStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []ConfigStatus
	for _, c := range h.trouble {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b ConfigStatus) int { return cmp.Compare(a.Config, b.Config) })
	return out
}
