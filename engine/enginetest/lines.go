package enginetest

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Lines is a growing list of lines that tests wait on. The zero value is empty and ready.
type Lines struct {
	mu    sync.Mutex
	lines []string
	grown chan struct{} // closed at the next line, or at the end; nil while nobody waits
	ended bool
}

// Add appends a line.
func (l *Lines) Add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	l.wake()
}

// End says that no more lines come: who waits for one fails at once.
func (l *Lines) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.wake()
}

// wake needs the lock.
func (l *Lines) wake() {
	if l.grown != nil {
		close(l.grown)
		l.grown = nil
	}
}

// All returns a copy of the lines so far.
func (l *Lines) All() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

// Len is the number of lines so far: a mark for Wait.
func (l *Lines) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lines)
}

func (l *Lines) String() string { return strings.Join(l.All(), "\n") }

// Last is the last lines, as many as help to see why a test failed.
func (l *Lines) Last() string {
	all := l.All()
	return strings.Join(all[max(0, len(all)-30):], "\n")
}

// Wait returns the index of the first line at or after from that contains text. After a minute, or when no more lines come,
// the test fails and shows the last lines.
func (l *Lines) Wait(t testing.TB, from int, text string) int {
	t.Helper()
	return l.WaitFor(t, from, text, func(line string) bool { return strings.Contains(line, text) })
}

// WaitFor is Wait for any condition; what names it.
func (l *Lines) WaitFor(t testing.TB, from int, what string, is func(line string) bool) int {
	t.Helper()
	limit := time.After(patience)
	for at := from; ; {
		l.mu.Lock()
		fresh := slices.Clone(l.lines[min(at, len(l.lines)):])
		if l.grown == nil {
			l.grown = make(chan struct{})
		}
		grown, ended := l.grown, l.ended
		l.mu.Unlock()
		for _, line := range fresh {
			if is(line) {
				return at
			}
			at++
		}
		if ended {
			t.Fatalf("there is no line %q, and no more come; the last lines are\n%s", what, l.Last())
		}
		select {
		case <-grown:
		case <-limit:
			t.Fatalf("waited %v for a line %q; the last lines are\n%s", patience, what, l.Last())
		}
	}
}
