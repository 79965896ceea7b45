package enginetest

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// refusing is a test that notes why it failed.
type refusing struct {
	testing.TB
	why string
}

func (r *refusing) Helper() {}

func (r *refusing) Fatalf(format string, args ...any) {
	r.why = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// Who waits for a line of a process that has ended is told at once, and finds what was said before.
func TestWaitEndsWithTheLines(t *testing.T) {
	p := Start(t, Command{Path: "sh", Args: []string{"-c", "echo one; echo two"}})
	p.Stdout.Wait(t, 0, "two")
	p.Status()
	p.Stdout.Wait(t, 0, "one")
	r := &refusing{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Stdout.Wait(r, 0, "three")
	}()
	<-done
	if !strings.Contains(r.why, `no line "three"`) || !strings.HasSuffix(r.why, "one\ntwo") {
		t.Error(r.why)
	}
}
