package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// handover is how long a new server waits for one that is about to end.
const handover = 10 * time.Second

// lock takes the lock of a state directory, so that one server uses it. The lock is the kernel's: it ends with the
// process. A server that holds the lock and answers on the socket is an error at once; one that does not answer is
// about to end, or hangs.
func lock(ctx context.Context, dir, socket string) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	ctx, cancel := context.WithTimeout(ctx, handover)
	defer cancel()
	for {
		if err := os.MkdirAll(dir, 0o755); err != nil { // the other server may have removed it
			return nil, err
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o644)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		held, err := flock(ctx, f, socket)
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
		if held && same(f, path) {
			return f, write(f)
		}
		f.Close() // it was freed or removed meanwhile: try again
	}
}

// flock takes the lock if it is free. If not, it waits for the server that holds it to end and reports false.
func flock(ctx context.Context, f *os.File, socket string) (held bool, err error) {
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return err == nil, err
	}
	owner, _ := io.ReadAll(io.LimitReader(f, 32)) // for the error message only
	running := fmt.Errorf("another server runs here (process %s)", strings.TrimSpace(string(owner)))
	if answers(ctx, socket) {
		return false, running
	}
	// There is no wait with a timeout: a helper waits, on a descriptor of its own.
	other, err := os.Open(f.Name())
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	freed := make(chan error, 1)
	go func() {
		err := unix.Flock(int(other.Fd()), unix.LOCK_EX)
		other.Close() // releases the lock: only the moment counts
		freed <- err
	}()
	select {
	case err := <-freed:
		return false, err
	case <-ctx.Done():
		return false, running
	}
}

func answers(ctx context.Context, socket string) bool {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", socket)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

func same(f *os.File, path string) bool {
	held, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(held, there)
}

func write(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := fmt.Fprintf(f, "%d\n", os.Getpid())
	return err
}
