// Package decodetest has what tests and benchmarks of bodies need, whichever room they are in: bodies that are packed, and
// what it took of the process to read one.
package decodetest

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// Zip packs members, each a name and a text.
func Zip(t testing.TB, members ...string) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i := 0; i < len(members); i += 2 {
		m, err := w.Create(members[i])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(m, members[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Gzip packs a text.
func Gzip(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// CPU is what the process has used of all processors, garbage collection included; 0 where the system does not tell.
func CPU() time.Duration {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		return 0
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

var highest = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// Peak is the most memory that the process has held since the last call, in MB; 0 where the system does not tell.
func Peak() float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	m := highest.FindSubmatch(status)
	if m == nil || os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) != nil {
		return 0
	}
	kilobytes, _ := strconv.ParseFloat(string(m[1]), 64)
	return kilobytes / 1024
}
