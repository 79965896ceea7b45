package main_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/enginetest"
)

// stepper is a server that computes a step of a chain. It takes up to four milliseconds for each, and one in ten
// requests it answers with a status of 500.
type stepper struct {
	*httptest.Server
	failed atomic.Int64

	mu     sync.Mutex
	now    int           // requests under way
	signal chan struct{} // closed when at least `at` are under way
	at     int
}

func newStepper(t *testing.T) *stepper {
	t.Helper()
	s := &stepper{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.change(1)
		defer s.change(-1)
		h, err := strconv.ParseUint(r.FormValue("h"), 10, 32)
		x, err2 := strconv.ParseUint(r.FormValue("x"), 10, 32)
		if err != nil || err2 != nil {
			t.Errorf("asked for %s", r.URL)
		}
		pause := time.NewTimer(time.Duration(rand.IntN(4000)) * time.Microsecond)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-r.Context().Done():
			return
		}
		if rand.IntN(10) == 0 {
			s.failed.Add(1)
			http.Error(w, "not now", http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprintf(w, `{"h":%d}`, enginetest.Step(uint32(h), uint32(x)))
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *stepper) change(by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now += by
	if s.signal != nil && s.now >= s.at {
		close(s.signal)
		s.signal = nil
	}
}

// busy waits until n requests are under way at once.
func (s *stepper) busy(t *testing.T, n int) {
	t.Helper()
	signal := make(chan struct{})
	s.mu.Lock()
	s.at, s.signal = n, signal
	s.mu.Unlock()
	select {
	case <-signal:
	case <-time.After(time.Minute):
		t.Fatalf("there never were %d requests under way at once", n)
	}
}

// TestKillAwaiting is the crash matrix for a body that waits for a server: state is read before the wait and written after it,
// records of other keys overlap, the server fails now and then, on_error runs those records again, and the process is killed at
// named points and while requests are under way. The chains are as if nothing of that had happened.
func TestKillAwaiting(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the binary some fifteen times: left out by -short")
	}
	s := newStepper(t)
	k := &killTest{partitions: 4, batch: 100, chain: enginetest.Chain{Keys: 60, Records: 40, Seed: 3,
		Stage: "timeout: 20s\non_error: { retry: 5ms..20ms }",
		Body: `const answer = await fetch('` + s.URL + `', { query: { h: state.h, x: msg.value.x }, expect: 200 });
const { h } = await answer.json();
const n = state.n + 1;
yield State({ n, h });
yield Message({ value: { i: msg.value.i, n, h } });
`}}
	k.addr = anyKafka(t)
	if realTier() {
		k.chain.Records = 300
	}
	k.prepare(t)
	for _, p := range []killPoint{{"after-run", 2, false}, {"after-produce", 2, false}, {"end-sent", 7, false}, {"before-apply", 2, true}, {"after-apply", 2, false}} {
		k.killAt(t, p)
	}
	k.killOnRevoke(t)
	for range 6 {
		p := k.start(t, nil)
		p.Stderr.Wait(t, 0, "task running")
		s.busy(t, 5+rand.IntN(10))
		p.Kill()
		if status := p.Status(); status != -int(syscall.SIGKILL) {
			t.Fatalf("the process ended with %d before it was killed:\n%s", status, p.Stderr)
		}
	}
	if done := len(enginetest.ReadCommitted(t, enginetest.At(k.addr), k.out)); done == 0 || done == k.chain.Keys*k.chain.Records {
		t.Errorf("%d records were done at the last kill: the kills prove nothing", done)
	}
	k.finish(t)
	k.check(t)
	if s.failed.Load() == 0 {
		t.Error("the server never failed")
	}
}
