// Package scratch gives a run a directory of its own, and finds those of runs that were killed.
//
// As long as a run lives, it holds a lock on its directory: a process that gets the lock knows that the run was
// killed.
package scratch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/host/wire"
)

// Dir is a directory that its holder alone uses.
type Dir struct {
	Path string
	lock *os.File
}

// New makes a directory. The pattern is its path, with a star in the last part for what makes it unique.
func New(pattern string) (Dir, error) {
	for {
		path, err := os.MkdirTemp(filepath.Split(pattern))
		if err != nil {
			return Dir{}, err
		}
		d, err := lock(path)
		if errors.Is(err, errTaken) { // another run, which is about to remove it
			continue
		}
		if err != nil {
			return Dir{}, errors.Join(err, os.RemoveAll(path))
		}
		return d, nil
	}
}

// Remove deletes the directory with all that is in it.
func (d Dir) Remove() error { return errors.Join(os.RemoveAll(d.Path), d.lock.Close()) }

var errTaken = errors.New("it is in use, or gone")

// lock takes a directory that no run has locked.
func lock(path string) (Dir, error) {
	f, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return Dir{}, errTaken
	}
	if err != nil {
		return Dir{}, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return Dir{}, errTaken
		}
		return Dir{}, fmt.Errorf("lock %s: %w", path, err)
	}
	// It may have been removed before the lock was there.
	held, err := f.Stat()
	if err == nil {
		var there os.FileInfo
		if there, err = os.Lstat(path); err == nil && os.SameFile(held, there) {
			return Dir{path, f}, nil
		}
	}
	_ = f.Close()
	if err == nil || errors.Is(err, os.ErrNotExist) {
		err = errTaken
	}
	return Dir{}, err
}

// Collect removes the directories of a pattern whose runs were killed. Before one goes, clearUp takes away what the
// run had made on the machine; if that fails, the directory stays, and the next to collect tries again.
func Collect(ctx context.Context, pattern string, clearUp func(ctx context.Context, path string) error) error {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range paths {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR ||
			int(st.Uid) != os.Geteuid() {
			continue // another user's
		}
		d, err := lock(path)
		if errors.Is(err, errTaken) {
			continue
		}
		if err == nil {
			err = d.collect(ctx, clearUp)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (d Dir) collect(ctx context.Context, clearUp func(ctx context.Context, path string) error) error {
	if err := clearUp(ctx, d.Path); err != nil {
		return errors.Join(fmt.Errorf("clear up what %s is left of: %w", d.Path, err), d.lock.Close())
	}
	return d.Remove()
}

// HostNetwork is for Collect: it removes a host network whose state is in the directory, with all its devices, programs
// and maps.
func HostNetwork(ctx context.Context, path string) error {
	if !wire.Present(path) {
		return nil
	}
	return wire.Remove(ctx, path)
}
