package path

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/agent/wire"
)

// directory is one of a run. As long as the run lives, it holds a lock on it: whoever gets the lock knows that the run was killed, and
// what it left belongs to nobody.
type directory struct {
	path string
	lock *os.File
}

const pattern = "pgpath-*"

func newDirectory() (directory, error) {
	for {
		path, err := os.MkdirTemp(os.TempDir(), pattern)
		if err != nil {
			return directory{}, err
		}
		d, err := lock(path)
		if errors.Is(err, errTaken) { // another run, which is about to remove it
			continue
		}
		if err != nil {
			return directory{}, errors.Join(err, os.RemoveAll(path))
		}
		return d, nil
	}
}

var errTaken = errors.New("it is in use, or gone")

// lock takes a directory that nobody holds.
func lock(path string) (directory, error) {
	f, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return directory{}, errTaken
	}
	if err != nil {
		return directory{}, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return directory{}, errTaken
		}
		return directory{}, fmt.Errorf("lock %s: %w", path, err)
	}
	// It may have been removed before the lock was there.
	held, err := f.Stat()
	if err == nil {
		var there os.FileInfo
		if there, err = os.Lstat(path); err == nil && os.SameFile(held, there) {
			return directory{path, f}, nil
		}
	}
	_ = f.Close()
	if err == nil || errors.Is(err, os.ErrNotExist) {
		err = errTaken
	}
	return directory{}, err
}

func (d directory) remove() error { return errors.Join(os.RemoveAll(d.path), d.lock.Close()) }

// collect removes what runs left that were killed: their namespaces and devices, programs and maps, files. What they had started died
// with them.
func collect(ctx context.Context) error {
	paths, err := filepath.Glob(filepath.Join(os.TempDir(), pattern))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range paths {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() {
			continue // somebody else's
		}
		d, err := lock(path)
		if errors.Is(err, errTaken) {
			continue
		}
		if err == nil && wire.Present(path) {
			err = wire.Remove(ctx, path)
		}
		if err == nil {
			err = d.remove()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
