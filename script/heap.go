package script

import (
	"runtime/metrics"
	"sync"
	"time"
)

// goja has no limit of memory, and a script that doubles a text in a loop would take the process down. Whose a byte is, Go does
// not say: so a call that runs for a while is watched, and if the process holds far more than when it began, it is to blame.
//
//  1. What counts is what was alive at the last collection; and of what is there in all, what is more than the garbage
//     that may gather until the next.
//  2. Only a call that has run without a break since it was seen first is looked at. One that waits is not.
//  3. Of several calls at work the one that has run for longest is blamed, and the others only for what is more after that. One that was
//     short and had to wait for a processor meanwhile is over by then.
//
// An interrupt comes between two instructions, so the last one before it may make as much again.

const (
	// maxGrowth is how much more the process may hold, in bytes, than when a call began.
	maxGrowth = 512 << 20
	heapLook  = 10 * time.Millisecond // between two looks while a call runs,
	heapRest  = 50 * time.Millisecond // and while none does
	heapDefer = 5                     // looks, at most, that one call leaves the blame to another
)

// suspects are the calls of the process that run, with the time at which each was seen first.
var suspects = struct {
	sync.Mutex
	since  map[*heapWatch]time.Time
	blamed int // how many of them were, until now
}{since: map[*heapWatch]time.Time{}}

// heapWatch watches the memory of the process while a VM is at work.
type heapWatch struct {
	calls     *calls
	measure   func() heapSize
	interrupt func(*refusal)

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
	seen    uint64
	began   heapSize
	blamed  int // of suspects, when began was measured
	left    int // looks at which the blame was left to another
}

type heapSize struct{ live, all, garbage uint64 }

// watchHeap interrupts a call that makes the process hold much more.
func watchHeap(v *vm, calls *calls) (stop func()) {
	w := &heapWatch{calls: calls, measure: heapMeter(), interrupt: v.interrupt}
	w.mu.Lock()
	w.timer = time.AfterFunc(heapLook, w.look)
	w.mu.Unlock()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.stopped = true
		w.timer.Stop()
		w.acquit()
	}
}

// acquit ends the suspicion: the call is over, or waits.
func (w *heapWatch) acquit() {
	suspects.Lock()
	defer suspects.Unlock()
	delete(suspects.since, w)
}

// suspect begins it anew for a call that is seen first, and answers how many calls have been blamed until now.
func (w *heapWatch) suspect(first bool) (blamed int) {
	suspects.Lock()
	defer suspects.Unlock()
	if first {
		suspects.since[w] = time.Now()
	}
	return suspects.blamed
}

// blame tells whether this call is the one that has run for longest.
func (w *heapWatch) blame() bool {
	suspects.Lock()
	defer suspects.Unlock()
	for other, since := range suspects.since {
		if other != w && since.Before(suspects.since[w]) && w.left < heapDefer {
			w.left++
			return false
		}
	}
	delete(suspects.since, w)
	suspects.blamed++
	return true
}

func (w *heapWatch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	now := w.calls.Load()
	if now&1 == 0 {
		w.acquit()
		w.timer.Reset(heapRest)
		return
	}
	size := w.measure()
	blamed := w.suspect(now != w.seen)
	switch {
	case now != w.seen || blamed != w.blamed:
		w.seen, w.began, w.blamed, w.left = now, size, blamed, 0
	case (size.live > w.began.live+maxGrowth || size.all > w.began.all+w.began.garbage+maxGrowth) && w.blame():
		reason := refuse(CodeMemory, "keep less at once: yield in parts, or go through what is large piece by piece", "the script made the process hold %d MiB more", maxGrowth>>20)
		reason.call = now >> 1
		w.interrupt(reason)
		return
	}
	w.timer.Reset(heapLook)
}

// heapMeter measures the heap of the process. It is for one goroutine at a time.
func heapMeter() func() heapSize {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/gogc:percent"}}
	return func() heapSize {
		metrics.Read(samples)
		live, all, percent := samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64()
		if percent > 1000 { // collections are off, or as good as that: what is there says nothing
			return heapSize{live: live, all: all, garbage: 1 << 60}
		}
		return heapSize{live: live, all: all, garbage: live / 100 * percent}
	}
}
