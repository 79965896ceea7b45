package enginetest

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

var builds sync.Map // of sync.OnceValues functions by package and tags

// Build compiles a main package of this module and returns the binary's path. A test binary builds each only once; the file
// stays in the temporary folder for the next run.
func Build(t testing.TB, importPath string, tags ...string) string {
	t.Helper()
	path, err := build(importPath, tags...)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func build(importPath string, tags ...string) (string, error) {
	list := strings.Join(tags, ",")
	once, _ := builds.LoadOrStore(importPath+" "+list, sync.OnceValues(func() (string, error) {
		module, err := exec.Command("go", "env", "GOMOD").Output()
		if err != nil {
			return "", fmt.Errorf("ask go where the module is: %w", err)
		}
		sum := sha256.Sum256(fmt.Append(nil, string(module), importPath, list))
		dir := filepath.Join(os.TempDir(), fmt.Sprintf("flechtwerk-build-%x", sum[:6]))
		path := filepath.Join(dir, filepath.Base(importPath))
		// Only one process writes the file, and none while another has just opened it to run.
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return "", fmt.Errorf("build %s: %w", importPath, err)
		}
		work, err := os.MkdirTemp(dir, "build-")
		if err != nil {
			return "", fmt.Errorf("build %s: %w", importPath, err)
		}
		defer os.RemoveAll(work)
		fresh := filepath.Join(work, filepath.Base(importPath))
		if out, err := exec.Command("go", "build", "-tags", list, "-o", fresh, importPath).CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", importPath, err, out)
		}
		if err := os.Rename(fresh, path); err != nil {
			return "", fmt.Errorf("build %s: %w", importPath, err)
		}
		return path, nil
	}))
	return once.(func() (string, error))()
}

// Command says how a Process is started.
type Command struct {
	Path string
	Args []string
	Dir  string
	Env  []string // added to this process's own
}

// Process is a running subprocess whose output is kept as lines. It is killed at the end of the test.
type Process struct {
	Stdout, Stderr *Lines

	cmd   *exec.Cmd
	stdin io.Closer
	ended chan struct{}
	err   error // of Wait; read it after ended
}

// Start starts a subprocess.
func Start(t testing.TB, c Command) *Process {
	t.Helper()
	p := &Process{Stdout: &Lines{}, Stderr: &Lines{}, cmd: exec.Command(c.Path, c.Args...), ended: make(chan struct{})}
	p.cmd.Dir = c.Dir
	p.cmd.Env = append(os.Environ(), c.Env...)
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatalf("start %s: %v", c.Path, err)
	}
	p.stdin = stdin
	var readers sync.WaitGroup
	for _, pipe := range []struct {
		open  func() (io.ReadCloser, error)
		lines *Lines
	}{{p.cmd.StdoutPipe, p.Stdout}, {p.cmd.StderrPipe, p.Stderr}} {
		r, err := pipe.open()
		if err != nil {
			t.Fatalf("start %s: %v", c.Path, err)
		}
		readers.Go(func() {
			lines := bufio.NewScanner(r)
			lines.Buffer(nil, 16<<20)
			for lines.Scan() {
				pipe.lines.Add(lines.Text())
			}
			_, _ = io.Copy(io.Discard, r)
			pipe.lines.End()
		})
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", c.Path, err)
	}
	go func() {
		readers.Wait()
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("the last that %s said:\n%s", filepath.Base(c.Path), p.Stderr.Last())
		}
	})
	return p
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// PeakMemory is the most that the process has held so far, in MiB, or 0 where the system does not say.
func (p *Process) PeakMemory() (mib int) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			_, _ = fmt.Sscan(rest, &mib)
		}
	}
	return mib >> 10
}

// Signal sends a signal; one to a process that has ended is no error.
func (p *Process) Signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatalf("send %v to process %d: %v", s, p.PID(), err)
	}
}

// Kill ends the process by SIGKILL and returns when it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// CloseInput ends the process's standard input.
func (p *Process) CloseInput() { _ = p.stdin.Close() }

// Ended is closed when the process has ended and its output is complete.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Status waits for the end and returns the exit status, or minus the number of the signal that ended the process.
func (p *Process) Status() int {
	<-p.ended
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return -int(status.Signal())
	}
	return status.ExitStatus()
}

// StartFakeProcess starts a fake Kafka in another process, which ends with the test, and returns its bootstrap address.
// Settings are written "name=value".
func StartFakeProcess(t testing.TB, settings ...string) string {
	t.Helper()
	_, addr := StartFake(t, settings...)
	return addr
}

// StartFake is StartFakeProcess for who sends signals to the process.
func StartFake(t testing.TB, settings ...string) (p *Process, addr string) {
	t.Helper()
	var args []string
	for name, value := range pairs(t, settings) {
		args = append(args, "-set", name+"="+value)
	}
	p = Start(t, Command{Path: Build(t, "github.com/flechtwerk/flechtwerk/engine/enginetest/fakebroker"), Args: args})
	at := p.Stdout.WaitFor(t, 0, "an address", func(line string) bool { return strings.Contains(line, ":") })
	return p, p.Stdout.All()[at]
}
