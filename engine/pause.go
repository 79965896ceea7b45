package engine

import (
	"context"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/pipeline"
)

// backoff is the pause before the n-th retry of a request: short at first, since most retries wait for markers or a new
// leader, and at most a second, so that a broker that comes back is used at once.
func backoff(n int) time.Duration {
	return min(5*time.Millisecond<<min(n, 10), time.Second)
}

// restart is the pause before a task begins again that has failed so often in a row.
func restart(failures int) time.Duration {
	return min(100*time.Millisecond<<min(failures, 6), 5*time.Second)
}

// growing is the pause after so many failures in a row: Min at first, twice as long each time, at most Max.
func growing(b pipeline.Backoff, failures int) time.Duration {
	d := b.Min
	for ; failures > 0 && d < b.Max; failures-- {
		d *= 2
	}
	return min(d, b.Max)
}

// wait waits until due. It answers true when the configs have changed meanwhile, so that due may be another.
func wait(ctx context.Context, due time.Time, changed <-chan struct{}) (again bool) {
	d := time.Until(due)
	if d <= 0 {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-changed:
		return true
	case <-timer.C:
		return false
	}
}

// pause waits, and answers false if ctx is done. A pause below nothing is none.
func pause(ctx context.Context, d time.Duration) bool {
	wait(ctx, time.Now().Add(d), nil)
	return ctx.Err() == nil
}
