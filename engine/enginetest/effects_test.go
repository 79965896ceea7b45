package enginetest

import (
	"slices"
	"sync"
	"testing"
)

func TestEffectsKeepTheOrderOfEachTask(t *testing.T) {
	var e Effects
	var all sync.WaitGroup
	for _, task := range []string{"b/1", "a/0"} {
		all.Go(func() {
			for range 3 {
				e.Add(task, "begin")
				e.Add(task, "offsets levels/%d=%d", 1, 42)
			}
		})
	}
	e.Wait(t, "b/1", "levels/1=42")
	all.Wait()
	if got, want := e.Of("a/0"), []string{"begin", "offsets levels/1=42"}; !slices.Equal(got[:2], want) || len(got) != 6 {
		t.Errorf("a/0 has %q", got)
	}
	first := e.Take()
	if want := "a/0:\n  begin\n  offsets levels/1=42\n"; len(first) < len(want) || first[:len(want)] != want {
		t.Errorf("first\n%s", first)
	}
	go e.Add("b/1", "commit")
	e.Wait(t, "b/1", "commit") // and not the earlier ones
	if got, want := e.Take(), "b/1:\n  commit\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := e.Take(); got != "" {
		t.Errorf("got %q after nothing happened", got)
	}
}
