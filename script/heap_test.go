package script

import (
	"testing"
	"time"
)

// grown is a process of several calls, whose heap is as large as the test says.
type grown struct {
	t    *testing.T
	live uint64
}

// call is one that begins to run now.
func (g *grown) call() (w *heapWatch, blamed *int) {
	blamed = new(int)
	w = &heapWatch{calls: new(calls), measure: func() heapSize { return heapSize{live: g.live, all: g.live} }, interrupt: func(*refusal) { *blamed++ }}
	w.timer = time.AfterFunc(time.Hour, func() {})
	g.t.Cleanup(func() {
		w.timer.Stop()
		w.acquit()
	})
	w.calls.Store(1)
	w.look()
	return w, blamed
}

// Whose a byte is nobody knows, so what a call takes must not be blamed on those that run beside it for a moment.
func TestMemoryIsBlamedOnTheCallThatRanForLongest(t *testing.T) {
	g := &grown{t: t}
	hog, hogBlamed := g.call()
	other, otherBlamed := g.call()
	expect := func(when string, hog, other int) {
		t.Helper()
		if *hogBlamed != hog || *otherBlamed != other {
			t.Fatalf("%s: the older call is blamed %d times, the younger %d; want %d and %d", when, *hogBlamed, *otherBlamed, hog, other)
		}
	}
	g.live = maxGrowth
	hog.look()
	other.look()
	expect("at the limit", 0, 0)
	g.live++
	other.look()
	expect("the younger is looked at first", 0, 0)
	hog.look()
	expect("the older is looked at", 1, 0)
	other.look()
	other.look()
	expect("what has grown until then is paid for", 1, 0)
	g.live += maxGrowth + 1
	other.look()
	expect("it grows further", 1, 1)
}

func TestMemoryIsBlamedOnNoCallThatIsOver(t *testing.T) {
	g := &grown{t: t}
	first, firstBlamed := g.call()
	second, secondBlamed := g.call()
	first.calls.Store(2)
	first.look()
	g.live = maxGrowth + 1
	first.look()
	second.look()
	if *firstBlamed != 0 || *secondBlamed != 1 {
		t.Errorf("the call that is over is blamed %d times, the one that runs %d", *firstBlamed, *secondBlamed)
	}
}

// An older call that has not grown, or is not looked at for long, does not save the younger one for ever.
func TestMemoryIsBlamedOnSomebody(t *testing.T) {
	g := &grown{t: t, live: maxGrowth}
	old, oldBlamed := g.call()
	g.live = 0
	young, youngBlamed := g.call()
	g.live = maxGrowth + 1
	for range heapDefer {
		old.look()
		young.look()
	}
	if *youngBlamed != 0 {
		t.Error("the younger is blamed at once")
	}
	young.look()
	if *oldBlamed != 0 || *youngBlamed != 1 {
		t.Errorf("the call that has not grown is blamed %d times, the one that has %d", *oldBlamed, *youngBlamed)
	}
}
