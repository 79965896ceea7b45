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
//
// An interrupt comes between two instructions, so the last one before it may make as much again.

const (
	// maxGrowth is how much more the process may hold, in bytes, than when a call began.
	maxGrowth = 512 << 20
	heapLook  = 10 * time.Millisecond // between two looks while a call runs,
	heapRest  = 50 * time.Millisecond // and while none does
)

// heapWatch watches the memory of the process while a VM is at work.
type heapWatch struct {
	vm    *vm
	calls *calls

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
	seen    uint64
	began   heapSize
	samples [3]metrics.Sample
}

type heapSize struct{ live, all, garbage uint64 }

// watchHeap interrupts a call that makes the process hold much more.
func watchHeap(v *vm, calls *calls) (stop func()) {
	w := &heapWatch{vm: v, calls: calls}
	w.samples[0].Name, w.samples[1].Name, w.samples[2].Name = "/gc/heap/live:bytes", "/memory/classes/heap/objects:bytes", "/gc/gogc:percent"
	w.mu.Lock()
	w.timer = time.AfterFunc(heapLook, w.look)
	w.mu.Unlock()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.stopped = true
		w.timer.Stop()
	}
}

func (w *heapWatch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	now := w.calls.Load()
	if now&1 == 0 {
		w.timer.Reset(heapRest)
		return
	}
	size := w.size()
	if now != w.seen {
		w.seen, w.began = now, size
	} else if size.live > w.began.live+maxGrowth || size.all > w.began.all+w.began.garbage+maxGrowth {
		reason := refuse(CodeMemory, "keep less at once: yield in parts, or go through what is large piece by piece", "the script made the process hold %d MiB more", maxGrowth>>20)
		reason.call = now >> 1
		w.vm.interrupt(reason)
		return
	}
	w.timer.Reset(heapLook)
}

func (w *heapWatch) size() heapSize {
	metrics.Read(w.samples[:])
	live, all, percent := w.samples[0].Value.Uint64(), w.samples[1].Value.Uint64(), w.samples[2].Value.Uint64()
	if percent > 1000 { // collections are off, or as good as that: what is there says nothing
		return heapSize{live: live, all: all, garbage: 1 << 60}
	}
	return heapSize{live: live, all: all, garbage: live / 100 * percent}
}
