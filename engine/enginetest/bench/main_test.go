//go:build linux

package main

import (
	"os/exec"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	cpu := func(f figure) float64 { return f.cpu }
	if got := median([]figure{{cpu: 9}, {cpu: 1}, {cpu: 2}}, cpu); got != 2 {
		t.Errorf("of three: %v", got)
	}
	if got := median([]figure{{cpu: 9}, {cpu: 1}, {cpu: 2}, {cpu: 4}}, cpu); got != 3 {
		t.Errorf("of four: %v", got)
	}
}

// The clock counts the process that it is asked about, and that process alone.
func TestCPUIsTheProcesss(t *testing.T) {
	busy := &process{cmd: exec.Command("sh", "-c", "while :; do :; done")}
	idle := &process{cmd: exec.Command("sh", "-c", "read forever")}
	for _, p := range []*process{busy, idle} {
		if _, err := p.cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		if err := p.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
	}
	cpu := func(p *process) time.Duration {
		used, err := p.cpu()
		if err != nil {
			t.Fatal(err)
		}
		return used
	}
	limit := time.After(30 * time.Second)
	for cpu(busy) < 100*time.Millisecond {
		select {
		case <-limit:
			t.Fatalf("a busy process used %v", cpu(busy))
		case <-time.After(time.Millisecond):
		}
	}
	if used := cpu(idle); used == 0 || used > 50*time.Millisecond {
		t.Errorf("an idle process used %v", used)
	}
	if rss := idle.peakRSS(); rss < 0.1 || rss > 100 {
		t.Errorf("a shell had %v MB", rss)
	}
}
