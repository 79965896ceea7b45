package enginetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Effects is the ordered list of what tasks did to the world, such as
//
//	begin
//	produce alerts ×3
//	changelog k=t1
//	offsets levels/1=42
//	commit
//	apply
//
// Effects of one task are in order; those of different tasks have none, so they are shown task by task. The zero value is
// empty and ready; any goroutine may add.
type Effects struct {
	mu    sync.Mutex
	tasks map[string]*Lines
	taken map[string]int // how many lines of a task Take has shown
}

// Add appends an effect of a task.
func (e *Effects) Add(task, format string, args ...any) {
	e.task(task).Add(fmt.Sprintf(format, args...))
}

func (e *Effects) task(name string) *Lines {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.tasks == nil {
		e.tasks, e.taken = map[string]*Lines{}, map[string]int{}
	}
	if e.tasks[name] == nil {
		e.tasks[name] = &Lines{}
	}
	return e.tasks[name]
}

// Of returns the effects of one task so far.
func (e *Effects) Of(task string) []string { return e.task(task).All() }

// Wait returns when the task has an effect that contains text, among those that Take has not shown yet.
func (e *Effects) Wait(t testing.TB, task, text string) {
	t.Helper()
	e.task(task).Wait(t, e.shown(task), text)
}

// shown is how many effects of the task Take has shown.
func (e *Effects) shown(task string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.taken[task]
}

// Take returns what has happened since the last Take, task by task in the order of their names; "" is nothing.
func (e *Effects) Take() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var names []string
	for name := range e.tasks {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		fresh := e.tasks[name].All()[e.taken[name]:]
		e.taken[name] += len(fresh)
		if len(fresh) == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s:\n", name)
		for _, line := range fresh {
			fmt.Fprintf(&b, "  %s\n", line)
		}
	}
	return b.String()
}
