package enginetest

import "time"

// Pass lets d go by on the fake clock of a testing/synctest bubble, where no time is lost by it. It is for such bubbles only:
// on the real clock tests wait for what should happen, not for a while.
func Pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // on the fake clock
}
