package engine

import "context"

// places bound how much an extractor does at once in this process.
//
//  1. At most `workers` polls are at work. A poll that waits for the commit of a page does no work: it leaves its place to
//     another, so that more pages come together in one transaction where commits are slow.
//  2. At most waitersPerWorker times as many have begun, since each holds on to what it runs in (E8).
type places struct{ work, begun chan struct{} }

const waitersPerWorker = 2

func newPlaces(workers int) *places {
	return &places{work: make(chan struct{}, workers), begun: make(chan struct{}, waitersPerWorker*workers)}
}

// place is that of one poll, or of one run of enrich. It is used by one goroutine.
type place struct {
	of *places
	at bool // at work
}

// take waits for a place to begin in; nil means that ctx is done. leave gives it back.
func (p *places) take(ctx context.Context) *place {
	if !enter(ctx, p.begun) {
		return nil
	}
	at := &place{of: p}
	if !at.work(ctx) {
		at.leave()
		return nil
	}
	return at
}

// work waits until the poll may work; false means that ctx is done.
func (p *place) work(ctx context.Context) bool {
	p.at = enter(ctx, p.of.work)
	return p.at
}

// rest lets another work, until work is called again.
func (p *place) rest() {
	if p.at {
		<-p.of.work
		p.at = false
	}
}

func (p *place) leave() {
	p.rest()
	<-p.of.begun
}

func enter(ctx context.Context, places chan struct{}) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}
