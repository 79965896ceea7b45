package store

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

func open(t testing.TB, config Config) *DB {
	t.Helper()
	db, err := Open(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeDB(t, db) })
	return db
}

func closeDB(t testing.TB, db *DB) {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// at is a checkpoint that says that next is the next offset.
func at(next int64) Checkpoint {
	return Checkpoint{
		Topic: [16]byte{1, 2, 3, 15: 16}, Next: next, LeaderEpoch: 3, Written: time.UnixMilli(1_700_000_000_123 + next),
		Inputs: []InputOffset{{"tank-levels", 2, next * 10}, {"größe", 0, 0}},
	}
}

func apply(t testing.TB, p *Partition, next int64, changes map[string][]byte) {
	t.Helper()
	if err := p.Apply(maps.All(changes), at(next)); err != nil {
		t.Fatal(err)
	}
}

func all(t testing.TB, p *Partition) map[string]string {
	t.Helper()
	got := map[string]string{}
	states, failure := p.All()
	for key, value := range states {
		got[key] = string(value)
	}
	if err := failure(); err != nil {
		t.Fatal(err)
	}
	return got
}

func next(t testing.TB, p *Partition) int64 {
	t.Helper()
	c, exists, err := p.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	if !exists {
		return -1
	}
	return c.Next
}

func TestS2RestartSeesWhatWasApplied(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "on demand")
	for run := range int64(3) {
		db, err := Open(Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		p := db.Partition("alerts", 0)
		if got, want := next(t, p), run*100-1; run > 0 && got != want || run == 0 && got != -1 {
			t.Fatalf("run %d begins at %d", run, got)
		}
		for i := range int64(100) {
			n := run*100 + i
			apply(t, p, n, map[string][]byte{fmt.Sprint("k", n): fmt.Append(nil, n), fmt.Sprint("k", n-10): nil})
		}
		if db.SetAside() != nil {
			t.Fatal("a healthy store was set aside")
		}
		closeDB(t, db)
	}
	got := all(t, open(t, Config{Dir: dir}).Partition("alerts", 0))
	if len(got) != 10 || got["k299"] != "299" || got["k290"] != "290" {
		t.Fatalf("after three runs: %v", got)
	}
}

func TestSecondOpenOfOneProcess(t *testing.T) {
	dir := t.TempDir()
	db := open(t, Config{Dir: dir})
	if _, err := Open(Config{Dir: dir}); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), dir) {
		t.Fatalf("second open: %v", err)
	}
	closeDB(t, db)
	open(t, Config{Dir: dir})
}

// TestD7TwoProcesses runs itself as the process that has the folder.
func TestD7TwoProcesses(t *testing.T) {
	if dir := os.Getenv("STORE_TEST_OWNER"); dir != "" {
		db := open(t, Config{Dir: dir})
		apply(t, db.Partition("alerts", 0), 1, map[string][]byte{"k": []byte("1")})
		fmt.Println("open")
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	dir := t.TempDir()
	owner := exec.Command(os.Args[0], "-test.run=^TestD7TwoProcesses$")
	owner.Env = append(os.Environ(), "STORE_TEST_OWNER="+dir)
	stdin, err := owner.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "open\n" {
		t.Fatalf("the owner said %q: %v", line, err)
	}
	if _, err := Open(Config{Dir: dir}); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), dir) {
		t.Errorf("open of a folder of another process: %v", err)
	}
	if err := owner.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_, _ = stdin, owner.Wait()
	open(t, Config{Dir: dir}) // a killed owner leaves no lock behind
}

func TestD7NotWritable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, config := range map[string]Config{
		"below a file":      {Dir: filepath.Join(file, "state")},
		"read-only":         {Dir: "state", fs: failing(vfs.NewMem(), syscall.EROFS, new(atomic.Int32), errorfs.OpMkdirAll)},
		"read-only inside":  {Dir: "state", fs: failing(vfs.NewMem(), syscall.EROFS, new(atomic.Int32), errorfs.OpCreate)},
		"no right to write": {Dir: "state", fs: failing(vfs.NewMem(), &os.PathError{Op: "open", Err: syscall.EACCES}, new(atomic.Int32), errorfs.OpLock)},
		"a foreign inside":  {Dir: "state", fs: failing(vfs.NewMem(), syscall.EACCES, new(atomic.Int32), errorfs.OpCreate)},
	} {
		db, err := Open(config)
		if !errors.Is(err, ErrNotWritable) || !strings.Contains(err.Error(), config.Dir) {
			t.Errorf("%s: %v", name, err)
		}
		if db != nil {
			t.Errorf("%s: there is a DB beside the error", name)
		}
	}
}

// failing is a file system on which operations of the given kinds answer err, once armed is not negative. It counts them in armed.
func failing(files vfs.FS, err error, armed *atomic.Int32, kinds ...errorfs.OpKind) vfs.FS {
	return errorfs.Wrap(files, errorfs.InjectorFunc(func(op errorfs.Op) error {
		for _, kind := range kinds {
			if op.Kind == kind && armed.Load() >= 0 {
				armed.Add(1)
				return err
			}
		}
		return nil
	}))
}

// TestFailedWriteStopsEveryCall breaks the disk under a busy store. No call may hang or end the process, and what is left
// on the disk opens again as it was after some Apply.
func TestFailedWriteStopsEveryCall(t *testing.T) {
	for _, test := range []struct {
		name  string
		err   syscall.Errno
		want  error
		kinds []errorfs.OpKind
	}{
		{"full at write", syscall.ENOSPC, ErrFull, []errorfs.OpKind{errorfs.OpFileWrite, errorfs.OpFileWriteAt}},
		{"full at create", syscall.ENOSPC, ErrFull, []errorfs.OpKind{errorfs.OpCreate, errorfs.OpReuseForWrite}},
		{"full at sync", syscall.ENOSPC, ErrFull, []errorfs.OpKind{errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo}},
		{"over quota", syscall.EDQUOT, ErrFull, []errorfs.OpKind{errorfs.OpFileWrite}},
		{"broken", syscall.EIO, syscall.EIO, []errorfs.OpKind{errorfs.OpFileWrite}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var armed atomic.Int32
			armed.Store(-1)
			mem := vfs.NewCrashableMem()
			db, err := Open(Config{Dir: "state", Memory: leastMemory, fs: failing(mem, test.err, &armed, test.kinds...)})
			if err != nil {
				t.Fatal(err)
			}
			p := db.Partition("alerts", 0)
			value, noise := make([]byte, 64<<10), rand.NewChaCha8([32]byte{})
			write := func(n int64) error {
				_, _ = noise.Read(value)
				return p.Apply(maps.All(map[string][]byte{"n": fmt.Append(nil, n), fmt.Sprint(n % 50): value}), at(n))
			}
			applied := int64(0)
			for ; applied < 60 && err == nil; applied++ { // enough for tables to exist
				err = write(applied + 1)
			}
			if err != nil {
				t.Fatal(err)
			}
			armed.Store(0)
			for ; err == nil && applied < 1000; applied++ {
				err = write(applied + 1)
			}
			if armed.Load() == 0 {
				t.Fatal("the fault did not fire")
			}
			if !errors.Is(err, test.want) {
				t.Fatalf("after %d applies: %v", applied, err)
			}
			_, getErr := p.Get("k")
			_, _, checkpointErr := p.Checkpoint()
			states, failure := p.All()
			for range states {
				t.Error("a failed store is read")
			}
			for call, err := range map[string]error{
				"get": getErr, "checkpoint": checkpointErr, "all": failure(), "clear": p.Clear(), "apply": write(9),
			} {
				if !errors.Is(err, test.want) || !errors.Is(err, ErrFailed) {
					t.Errorf("%s: %v", call, err)
				}
			}
			if got := db.Metrics(); got != (Metrics{}) {
				t.Errorf("metrics %+v", got)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}

			again := open(t, Config{Dir: "state", fs: mem.CrashClone(vfs.CrashCloneCfg{})})
			n := next(t, again.Partition("alerts", 0))
			got, err := again.Partition("alerts", 0).Get("n")
			if err != nil || again.SetAside() != nil || n < 1 || n > applied || string(got) != fmt.Sprint(n) {
				t.Errorf("after the next start: checkpoint %d, state of %s, %d applied, %v, %v", n, got, applied, again.SetAside(), err)
			}
		})
	}
}

func TestDiskFullAtOpen(t *testing.T) {
	var armed atomic.Int32
	_, err := Open(Config{Dir: "state", fs: failing(vfs.NewMem(), syscall.ENOSPC, &armed, errorfs.OpFileWrite)})
	if !errors.Is(err, ErrFull) || armed.Load() == 0 {
		t.Fatalf("open on a full disk: %v (faults: %d)", err, armed.Load())
	}
	if want := "open state store state: the disk is full: no space left on device"; err.Error() != want {
		t.Errorf("the error is %q, want %q", err, want)
	}
}

// fill makes a store with tables on disk and closes it.
func fill(t *testing.T, dir string) {
	t.Helper()
	db, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	p := db.Partition("alerts", 0)
	for i := range int64(200) {
		apply(t, p, i, map[string][]byte{fmt.Sprint("k", i): []byte(strings.Repeat("state ", 100))})
	}
	if err := db.pebble.Flush(); err != nil {
		t.Fatal(err)
	}
	closeDB(t, db)
}

// damage overwrites the middle of each file of the database with a suffix and tells how many there were.
func damage(t *testing.T, dir, glob string) int {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, dataName, glob))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range min(len(data), 200) {
			data[i] ^= 0x5a
		}
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return len(names)
}

func TestCorruptStoreIsSetAsideAtOpen(t *testing.T) {
	for name, harm := range map[string]func(dir string) int{
		"manifest": func(dir string) int { return damage(t, dir, "MANIFEST-*") },
		"a table is gone": func(dir string) int {
			names, _ := filepath.Glob(filepath.Join(dir, dataName, "*.sst"))
			for _, name := range names {
				if err := os.Remove(name); err != nil {
					t.Fatal(err)
				}
			}
			return len(names)
		},
		"data is a file": func(dir string) int {
			if err := os.RemoveAll(filepath.Join(dir, dataName)); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, dataName), []byte("?"), 0o600); err != nil {
				t.Fatal(err)
			}
			return 1
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			fill(t, dir)
			if harm(dir) == 0 {
				t.Fatal("nothing was damaged")
			}
			db := open(t, Config{Dir: dir})
			aside := db.SetAside()
			if aside == nil || !errors.Is(aside.Cause, ErrCorrupt) {
				t.Fatalf("set aside: %v", aside)
			}
			if _, err := os.Stat(aside.Path); err != nil || !strings.Contains(aside.String(), aside.Path) {
				t.Errorf("the files are not where %q says: %v", aside, err)
			}
			p := db.Partition("alerts", 0)
			if n := next(t, p); n != -1 {
				t.Errorf("the fresh store has a checkpoint at %d", n)
			}
			if got := all(t, p); len(got) != 0 {
				t.Errorf("the fresh store holds %d states", len(got))
			}
			apply(t, p, 1, map[string][]byte{"k": []byte("1")})
			closeDB(t, db)
			if again := open(t, Config{Dir: dir}); again.SetAside() != nil || next(t, again.Partition("alerts", 0)) != 1 {
				t.Error("the fresh store does not last")
			}
		})
	}
}

func TestCorruptTableStopsEveryCallAndIsSetAsideNextTime(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir)
	if damage(t, dir, "*.sst") == 0 {
		t.Fatal("nothing was damaged")
	}
	db, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if db.SetAside() != nil {
		t.Skip("Pebble noticed at once")
	}
	p := db.Partition("alerts", 0)
	for i := range 200 {
		if _, err = p.Get(fmt.Sprint("k", i)); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrCorrupt) {
		t.Fatalf("read of a damaged table: %v", err)
	}
	if err := p.Apply(maps.All(map[string][]byte{}), at(1)); !errors.Is(err, ErrCorrupt) || !errors.Is(err, ErrFailed) {
		t.Errorf("apply after it: %v", err)
	}
	// The process would end now, and with it the lock.
	closeDB(t, db)
	_ = db.pebble.Close()
	if err := db.lock.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, Config{Dir: dir})
	if again.SetAside() == nil || next(t, again.Partition("alerts", 0)) != -1 {
		t.Fatal("the damaged store was opened again")
	}
	closeDB(t, again)
	if open(t, Config{Dir: dir}).SetAside() != nil {
		t.Error("the fresh store was set aside too")
	}
}

func TestOnlyOneCorruptStoreIsKept(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, corruptPrefix+"20200101T000000Z")
	if err := os.MkdirAll(filepath.Join(old, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	fill(t, dir)
	damage(t, dir, "MANIFEST-*")
	open(t, Config{Dir: dir})
	names, err := filepath.Glob(filepath.Join(dir, corruptPrefix+"*"))
	if err != nil || len(names) != 1 || names[0] == old {
		t.Fatalf("kept: %v (%v)", names, err)
	}
}

// TestS1CrashLeavesAnAppliedPrefix takes the power away at random moments. Every Apply writes its number into some keys of
// its partition, so the state that belongs to each number is known.
func TestS1CrashLeavesAnAppliedPrefix(t *testing.T) {
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	lost, kept := 0, 0
	for seed := range uint64(rounds) {
		rng := rand.New(rand.NewPCG(seed, 1))
		disk := vfs.NewCrashableMem()
		history := [2][]map[string]string{{{}}, {{}}} // by partition, then by checkpoint
		for range 4 {
			db, err := Open(Config{Dir: "state", Memory: leastMemory, fs: disk})
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if aside := db.SetAside(); aside != nil {
				t.Fatalf("seed %d: a crash made the store corrupt: %v", seed, aside)
			}
			for i := range history {
				p := db.Partition("alerts", int32(i))
				n := max(next(t, p), 0)
				if n >= int64(len(history[i])) {
					t.Fatalf("seed %d: partition %d is at %d of %d", seed, i, n, len(history[i])-1)
				}
				if got := all(t, p); !maps.Equal(got, history[i][n]) {
					t.Fatalf("seed %d: partition %d at %d does not hold what was applied", seed, i, n)
				}
				lost += len(history[i]) - 1 - int(n)
				kept += int(n)
				history[i] = history[i][:n+1]
			}
			for range rng.IntN(120) {
				i := rng.IntN(2)
				state := maps.Clone(history[i][len(history[i])-1])
				changes := map[string][]byte{}
				for range 1 + rng.IntN(5) {
					key := fmt.Sprint("k", rng.IntN(20))
					if rng.IntN(5) == 0 {
						changes[key] = nil
						delete(state, key)
						continue
					}
					value := strings.Repeat(fmt.Sprint(len(history[i]), "."), 1+rng.IntN(6_000))
					changes[key] = []byte(value)
					state[key] = value
				}
				apply(t, db.Partition("alerts", int32(i)), int64(len(history[i])), changes)
				history[i] = append(history[i], state)
			}
			after := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
			closeDB(t, db)
			disk = after
		}
	}
	if lost == 0 || kept == 0 {
		t.Fatalf("the crashes took %d batches and left %d: nothing was tried", lost, kept)
	}
}

func TestCloseIsIdempotentAndEndsEveryCall(t *testing.T) {
	db := open(t, Config{InMemory: true})
	p := db.Partition("alerts", 0)
	apply(t, p, 1, map[string][]byte{"a": []byte("1"), "b": []byte("2")})
	closed := make(chan error)
	turns := 0
	states, failure := p.All()
	for range states {
		turns++
		if turns > 1 {
			continue
		}
		go func() { closed <- db.Close() }()
		for {
			if _, err := p.Get("a"); errors.Is(err, ErrClosed) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := <-closed; err != nil || failure() != nil || turns != 2 {
		t.Errorf("close: %v, loop: %v after %d turns", err, failure(), turns)
	}
	closeDB(t, db)
	if err := p.Apply(maps.All(map[string][]byte{}), at(1)); !errors.Is(err, ErrClosed) {
		t.Errorf("apply after close: %v", err)
	}
	if got := db.Metrics(); got != (Metrics{}) {
		t.Errorf("metrics after close: %+v", got)
	}
}

func TestMetricsStayWithinTheBudget(t *testing.T) {
	dir := t.TempDir()
	const memory = 16 << 20
	db := open(t, Config{Dir: dir, Memory: memory})
	p := db.Partition("alerts", 0)
	value, noise := make([]byte, 100<<10), rand.NewChaCha8([32]byte{})
	for i := range int64(300) {
		_, _ = noise.Read(value) // so that it cannot be compressed
		apply(t, p, i, map[string][]byte{fmt.Sprint("k", i): value})
		if m := db.Metrics(); m.MemoryBytes > memory+memory/8 {
			t.Fatalf("after %d applies the store holds %d bytes", i, m.MemoryBytes)
		}
	}
	all(t, p)
	m := db.Metrics()
	if m.MemoryBytes < 1<<20 || m.MemoryBytes > memory+memory/8 {
		t.Errorf("memory: %d bytes", m.MemoryBytes)
	}
	if m.DiskBytes < 20<<20 {
		t.Errorf("disk: %d bytes", m.DiskBytes)
	}
}
