package store

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
)

// What can be wrong with a store.
var (
	// ErrInUse is when another process, or this one, has the folder open already.
	ErrInUse = errors.New("in use by another process")
	// ErrNotWritable is when the folder cannot be made or written to.
	ErrNotWritable = errors.New("not writable")
	// ErrFailed is when a DB cannot be used any more, for ErrFull, ErrCorrupt or another failure of the disk. It answers the
	// same error to every call until the process ends.
	ErrFailed = errors.New("the store has failed")
	// ErrFull is when the disk has no room left.
	ErrFull = errors.New("the disk is full")
	// ErrCorrupt is when bytes on disk are not those that were written. The next Open sets the store aside.
	ErrCorrupt = errors.New("the files are corrupt")
	// ErrCheckpoint is when a partition's checkpoint cannot be read; Clear the partition and restore it.
	ErrCheckpoint = errors.New("the checkpoint cannot be read")
	// ErrClosed is when the DB is closed, or Close has begun.
	ErrClosed = errors.New("the store is closed")
)

// failure is what a DB answers once it has failed.
type failure struct {
	store, operation string
	cause            error
}

func (f *failure) Error() string {
	return fmt.Sprintf("state store %s: %s: %v", f.store, f.operation, f.cause)
}

func (f *failure) Unwrap() error { return f.cause }

func (f *failure) Is(target error) bool { return target == ErrFailed }

// classify wraps err with the sentinel that it is a case of, if any.
func classify(err error) error {
	switch {
	case err == nil, errors.Is(err, ErrFull), errors.Is(err, ErrCorrupt):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: %w", ErrFull, err)
	case pebble.IsCorruptionError(err):
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	default:
		return err
	}
}

// classifyOpen is classify for what opening the files answers. There, everything that is not the operating system's doing
// means that the files do not belong together, and so does a file that is missing or of the wrong kind.
func classifyOpen(err error) error {
	switch err = classify(err); {
	case err == nil, errors.Is(err, ErrFull), errors.Is(err, ErrCorrupt):
		return err
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: %w", ErrNotWritable, err)
	}
	var errno syscall.Errno
	if errors.As(err, &errno) && errno != syscall.ENOENT && errno != syscall.ENOTDIR && errno != syscall.EISDIR {
		return err
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, err)
}
