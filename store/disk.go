package store

import (
	"errors"
	"os"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// disk is the file system under Pebble. When a write fails for good, Pebble panics in places where that ends the process,
// or tries again for ever. So it never learns of it: disk tells stop, and the writing goroutine stays where it is
// (invariant 4). Nothing else is written by it either, and the next run finds what a crash at this point would have left.
type disk struct {
	vfs.FS
	stop func(error)
}

// check answers err unless it is one after which nothing more can be written.
func (d disk) check(err error) error {
	if err == nil {
		return nil
	}
	for _, lasting := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EROFS} {
		if errors.Is(err, lasting) {
			d.stop(err)
			select {}
		}
	}
	return err
}

func (d disk) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, d.check(err)
	}
	return diskFile{f, d}, nil
}

// Unwrap is part of vfs.FS.
func (d disk) Unwrap() vfs.FS { return d.FS }

// Create is part of vfs.FS, and so are the methods below.
func (d disk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return d.file(d.FS.Create(name, category))
}

func (d disk) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return d.file(d.FS.ReuseForWrite(from, to, category))
}

func (d disk) OpenReadWrite(name string, category vfs.DiskWriteCategory, options ...vfs.OpenOption) (vfs.File, error) {
	return d.file(d.FS.OpenReadWrite(name, category, options...))
}

func (d disk) OpenDir(name string) (vfs.File, error) { return d.file(d.FS.OpenDir(name)) }
func (d disk) Link(from, to string) error            { return d.check(d.FS.Link(from, to)) }
func (d disk) Rename(from, to string) error          { return d.check(d.FS.Rename(from, to)) }
func (d disk) MkdirAll(name string, perm os.FileMode) error {
	return d.check(d.FS.MkdirAll(name, perm))
}

type diskFile struct {
	vfs.File
	disk disk
}

func (f diskFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, f.disk.check(err)
}

func (f diskFile) WriteAt(p []byte, offset int64) (int, error) {
	n, err := f.File.WriteAt(p, offset)
	return n, f.disk.check(err)
}

func (f diskFile) SyncTo(length int64) (bool, error) {
	full, err := f.File.SyncTo(length)
	return full, f.disk.check(err)
}

func (f diskFile) Sync() error     { return f.disk.check(f.File.Sync()) }
func (f diskFile) SyncData() error { return f.disk.check(f.File.SyncData()) }
func (f diskFile) Close() error    { return f.disk.check(f.File.Close()) }
