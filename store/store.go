// Package store keeps the state of stages on the local disk: one Pebble database per process, divided into partitions.
// What it holds is a copy. The truth is the changelog in Kafka, so losing the copy costs a restore and nothing else.
//
// Invariants:
//
//  1. A partition's state and its checkpoint change together, in one atomic batch, or not at all.
//  2. Batches become durable in the order in which they were applied. Nothing is synced, so a crash of the machine takes
//     the newest ones away; what is left is the store as it was after some earlier Apply. A crash of the process alone
//     takes away at most what had not yet been handed to the operating system, from the end as well.
//  3. One process owns a folder. It holds a lock from Open until Close, or until it ends.
//  4. After a write failed or bytes turned out corrupt, the DB answers that error to every call: files whose state is in
//     doubt are neither read nor written, and the lock stays. The process opens the store again when it starts again.
//  5. Corrupt files are renamed, never repaired and never deleted while they are the newest of their kind. The partitions
//     are then empty and without checkpoint, which is what a restore from the beginning looks like.
//
// On disk, in the folder of Config:
//
//	LOCK              held by the owner
//	data/             the database
//	data.bad          exists once corrupt bytes were read: the next Open sets data aside
//	data.corrupt-…/   a database that was set aside
package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Config says where a store is and what it may use.
type Config struct {
	// Dir is the folder. It is made if it is missing. Ignored when InMemory.
	Dir string
	// Memory is the budget in bytes for the block cache and the memtables of all partitions together; 0 means 64 MiB and
	// anything below 8 MiB means 8 MiB.
	Memory int64
	// InMemory keeps everything in memory: the store is gone when it is closed.
	InMemory bool

	fs vfs.FS // of tests
}

const (
	defaultMemory = 64 << 20
	leastMemory   = 8 << 20

	lockName      = "LOCK"
	dataName      = "data"
	badName       = "data.bad"
	corruptPrefix = "data.corrupt-"
)

// DB is the store of a process. It is safe for concurrent use.
type DB struct {
	*folder
	pebble   *pebble.DB
	setAside *SetAside
	keys     sync.Pool // of *[]byte, for the keys of reads

	// users is read-locked by each call for as long as it uses pebble, and locked for ever by Close.
	users   sync.RWMutex
	closing sync.Once

	// failure is written once, by whichever goroutine of ours or of Pebble's meets it first; then failed is closed.
	failure atomic.Pointer[failure]
	failed  chan struct{}
}

// SetAside tells of a corrupt database that Open found and replaced by an empty one.
type SetAside struct {
	Path  string // where the old files are now
	Cause error
}

func (s *SetAside) String() string {
	return fmt.Sprintf("the state store was corrupt and is rebuilt from the changelogs; its files are in %s: %v", s.Path, s.Cause)
}

// Metrics are the figures of a store.
type Metrics struct {
	MemoryBytes int64 // held by the block cache and the memtables
	DiskBytes   int64 // of all files, live or waiting to be deleted
}

// Open opens the store and makes it if there is none. It answers ErrInUse, ErrNotWritable or ErrFull when the surroundings
// are wrong. A corrupt store is set aside and replaced by an empty one; SetAside tells.
func Open(config Config) (*DB, error) {
	dir, files := config.Dir, config.fs
	switch {
	case config.InMemory:
		dir = "memory"
		if files == nil {
			files = vfs.NewMem()
		}
	case files == nil:
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, fmt.Errorf("open state store %s: %w", dir, err)
		}
		dir, files = abs, vfs.Default
	}
	f := folder{dir: dir, fs: files}
	if err := f.acquire(); err != nil {
		return nil, fmt.Errorf("open state store %s: %w", dir, err)
	}
	db, err := f.open(config.Memory)
	if err != nil {
		return nil, fmt.Errorf("open state store %s: %w", dir, err)
	}
	return db, nil
}

// folder is the place of a store, owned from acquire on.
type folder struct {
	dir  string
	fs   vfs.FS
	lock io.Closer
}

// acquire makes the folder and locks it (invariant 3). That another owner exists shows as an error of the lock call; an
// error that names a path comes from making the lock's file.
func (f *folder) acquire() error {
	err := f.create()
	if err != nil {
		return notWritable(err)
	}
	if f.lock, err = f.fs.Lock(f.path(lockName)); err == nil {
		return nil
	}
	var path *fs.PathError
	var errno syscall.Errno
	switch {
	case errors.As(err, &path):
		return notWritable(err)
	case !errors.As(err, &errno), errno == syscall.EAGAIN, errno == syscall.EACCES:
		return fmt.Errorf("%w (%w); stop that process or give each its own folder", ErrInUse, err)
	default:
		return fmt.Errorf("lock: %w", err)
	}
}

// create makes the folder. A folder that is new is also written into its parents, or a crash of the machine would take it
// away with all that was synced inside.
func (f *folder) create() error {
	var parents []string
	for dir := f.dir; ; dir = f.fs.PathDir(dir) {
		_, err := f.fs.Stat(dir)
		if !errors.Is(err, fs.ErrNotExist) || dir == f.fs.PathDir(dir) {
			break
		}
		parents = append(parents, f.fs.PathDir(dir))
	}
	if err := f.fs.MkdirAll(f.dir, 0o755); err != nil {
		return err
	}
	for _, parent := range parents {
		dir, err := f.fs.OpenDir(parent)
		if err != nil {
			return err
		}
		if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
			return err
		}
	}
	return nil
}

// notWritable is what an error of making the folder or its lock means.
func notWritable(err error) error {
	if err = classify(err); errors.Is(err, ErrFull) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNotWritable, err)
}

func (f *folder) path(name string) string { return f.fs.PathJoin(f.dir, name) }

// open opens the database, setting a corrupt one aside first. When it fails the folder is given free, unless Pebble is
// stuck in it.
func (f *folder) open(memory int64) (*DB, error) {
	d := f.newDB()
	err := f.knownBad()
	if err == nil {
		err = d.openPebble(memory)
	}
	if errors.Is(err, ErrCorrupt) {
		cause := err
		d = f.newDB()
		if d.setAside, err = f.putAside(cause); err == nil {
			err = d.openPebble(memory)
		}
	}
	if err != nil && d.failure.Load() == nil {
		_ = f.lock.Close()
	}
	return d, err
}

func (f *folder) newDB() *DB {
	d := &DB{folder: f, failed: make(chan struct{})}
	d.keys.New = func() any { return new([]byte) }
	return d
}

// knownBad answers ErrCorrupt if an earlier run met corrupt bytes.
func (f *folder) knownBad() error {
	note, err := f.fs.Open(f.path(badName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", badName, err)
	}
	defer func() { _ = note.Close() }()
	reason, err := io.ReadAll(note)
	if err != nil {
		return fmt.Errorf("read %s: %w", badName, err)
	}
	return fmt.Errorf("%w: found by an earlier run: %s", ErrCorrupt, reason)
}

// noteBad leaves the note that knownBad reads: a block that cannot be read does not keep Pebble from opening. If the note
// cannot be written, the next run meets the same block and tries again.
func (f *folder) noteBad(cause error) {
	note, err := f.fs.Create(f.path(badName), vfs.WriteCategoryUnspecified)
	if err != nil {
		return
	}
	_, _ = io.WriteString(note, cause.Error())
	_ = note.Sync()
	_ = note.Close()
}

// putAside renames the database (invariant 5). Only the newest one is kept, so that a disk that goes bad again and again
// does not fill up with them.
func (f *folder) putAside(cause error) (*SetAside, error) {
	names, err := f.fs.List(f.dir)
	if err != nil {
		return nil, fmt.Errorf("set corrupt files aside: %w", err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, corruptPrefix) {
			if err := f.fs.RemoveAll(f.path(name)); err != nil {
				return nil, fmt.Errorf("remove corrupt files set aside earlier: %w", err)
			}
		}
	}
	path := f.path(corruptPrefix + time.Now().UTC().Format("20060102T150405Z"))
	if err := f.fs.Rename(f.path(dataName), path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("set corrupt files aside: %w", err)
	}
	if err := f.fs.Remove(f.path(badName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove %s: %w", badName, err)
	}
	return &SetAside{Path: path, Cause: cause}, nil
}

func (d *DB) openPebble(memory int64) error {
	if memory == 0 {
		memory = defaultMemory
	}
	memory = max(memory, leastMemory)
	options := &pebble.Options{
		FS:                 disk{d.fs, func(err error) { _ = d.fail("write", err) }},
		FormatMajorVersion: pebble.FormatNewest,
		// Pebble takes the memtables' room out of the cache's, so this is the budget of both.
		CacheSize:                   memory,
		MemTableSize:                uint64(min(memory/8, 64<<20)),
		MemTableStopWritesThreshold: 4,
		Logger:                      logger{d},
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) {
				if err = classify(err); errors.Is(err, ErrFull) || errors.Is(err, ErrCorrupt) {
					_ = d.fail("background work", err)
				}
			},
			DataCorruption: func(info pebble.DataCorruptionInfo) {
				_ = d.fail("read "+info.Path, fmt.Errorf("%w: %w", ErrCorrupt, info.Details))
			},
		},
	}
	for i := range options.Levels {
		// State is often asked for keys that it does not have.
		options.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	err := d.guard("open", func() (err error) {
		d.pebble, err = pebble.Open(d.path(dataName), options)
		return err
	})
	var f *failure
	if errors.As(err, &f) {
		err = f.cause // Open names the store itself
	}
	return classifyOpen(err)
}

// SetAside tells whether Open replaced a corrupt store; nil if it did not.
func (d *DB) SetAside() *SetAside { return d.setAside }

// Metrics reads the store's figures. They are zero once the store has failed or is closed.
func (d *DB) Metrics() Metrics {
	if d.enter() != nil {
		return Metrics{}
	}
	defer d.leave()
	result := make(chan Metrics, 1)
	_ = d.guard("metrics", func() error {
		m := d.pebble.Metrics()
		result <- Metrics{
			MemoryBytes: m.BlockCache.Size + int64(m.MemTable.Size+m.MemTable.ZombieSize),
			DiskBytes:   int64(m.DiskSpaceUsage()),
		}
		return nil
	})
	select {
	case m := <-result:
		return m
	default:
		return Metrics{}
	}
}

// Close waits for the calls that are under way, writes out what the operating system has not got yet, and gives the
// folder free. It must not be called from within a loop over All. Later calls of Close do nothing.
func (d *DB) Close() error {
	var err error
	d.closing.Do(func() {
		d.users.Lock()
		if d.failure.Load() != nil {
			// Pebble may be stuck, and it may still write: the files and the lock stay as they are until the process ends.
			return
		}
		if err = d.wrap("close", d.guard("close", d.pebble.Close)); d.failure.Load() == nil {
			err = errors.Join(err, d.wrap("close", d.lock.Close()))
		}
	})
	return err
}

// enter begins a use of pebble; leave ends it.
func (d *DB) enter() error {
	if f := d.failure.Load(); f != nil {
		return f
	}
	if !d.users.TryRLock() { // fails only once Close has begun
		return fmt.Errorf("state store %s: %w", d.dir, ErrClosed)
	}
	return nil
}

func (d *DB) leave() { d.users.RUnlock() }

// guard runs a call of Pebble's that may write or wait for a lock. A write that fails for good ends in d.failed (see disk and
// logger) and never returns. So the call runs beside the caller, who gets away with the failure, and the call's goroutine and
// its locks stay behind (invariant 4).
func (d *DB) guard(operation string, call func() error) error {
	result := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				err, is := r.(error)
				if !is {
					err = fmt.Errorf("panic: %v", r)
				}
				result <- d.fail(operation, err)
			}
		}()
		result <- call()
	}()
	select {
	case err := <-result:
		return err
	case <-d.failed:
		return d.failure.Load()
	}
}

// wrap names the operation in an error of Pebble's; one that puts the files in doubt becomes the DB's failure.
func (d *DB) wrap(operation string, err error) error {
	if err == nil {
		return nil
	}
	if f := d.failure.Load(); f != nil {
		return f
	}
	if err = classify(err); errors.Is(err, ErrFull) || errors.Is(err, ErrCorrupt) {
		return d.fail(operation, err)
	}
	return fmt.Errorf("state store %s: %s: %w", d.dir, operation, err)
}

// fail makes err the answer of every later call, unless there is one already, and answers the one that holds.
func (d *DB) fail(operation string, err error) error {
	f := &failure{store: d.dir, operation: operation, cause: classify(err)}
	if !d.failure.CompareAndSwap(nil, f) {
		return d.failure.Load()
	}
	if errors.Is(f, ErrCorrupt) {
		d.noteBad(f)
	}
	close(d.failed)
	return f
}

// logger keeps Pebble quiet and turns its fatal errors into failures of the DB.
type logger struct{ db *DB }

func (logger) Infof(string, ...any)  {}
func (logger) Errorf(string, ...any) {}

// Fatalf never returns, as Pebble expects of it: the goroutine stays here with the locks that it holds.
func (l logger) Fatalf(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	for _, arg := range args {
		if cause, is := arg.(error); is {
			err = cause
		}
	}
	_ = l.db.fail("write", err)
	select {}
}
