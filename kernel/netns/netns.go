// Package netns enters network namespaces. No other package does.
//
// A network namespace is a property of a kernel thread, not of a goroutine. Do locks the calling goroutine to its
// thread, moves that thread, and moves it back. Consequences:
//
//   - Goroutines started inside run on other threads, in the namespace of the process. Do not start any.
//   - Sockets and /proc/sys/net files opened inside belong to the namespace for good; they may be used afterwards,
//     anywhere. Opening what is needed and leaving is the best use of this package.
package netns

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// The main thread never moves: /proc/PID/ns/net and /proc/net show the namespace of that thread. It is locked to the
// main goroutine, so no other goroutine runs on it.
func init() { runtime.LockOSThread() }

// ErrGone means that there is no such namespace (any more): its first process ended, or nothing is mounted at its path.
var ErrGone = errors.New("network namespace is gone")

// Path is where the kernel shows the network namespace of a process.
func Path(pid int) string { return "/proc/" + strconv.Itoa(pid) + "/ns/net" }

// Open holds the namespace of a process, or the one mounted at a path. It lives at least as long as the file.
func Open(path string) (*os.File, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil, fmt.Errorf("open network namespace %s: %w", path, ErrGone)
	}
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	if !isNamespace(f) {
		_ = f.Close()
		return nil, fmt.Errorf("open network namespace %s: %w", path, ErrGone)
	}
	return f, nil
}

// OpenSame holds the namespace of a process, if its inode is the one that was observed; else the error is ErrGone.
func OpenSame(pid int, inode uint64) (*os.File, error) {
	ns, err := Open(Path(pid))
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(ns.Fd()), &st); err != nil || st.Ino != inode {
		err = fmt.Errorf("open the network namespace of process %d: %w", pid, errors.Join(ErrGone, err))
		return nil, errors.Join(err, ns.Close())
	}
	return ns, nil
}

// Here opens the namespace of the calling goroutine: that of the process, unless it was called by In, Do or New.
func Here() (*os.File, error) { return Open("/proc/thread-self/ns/net") }

// Do calls f in the namespace at path (see Open and Path).
func Do(path string, f func() error) error {
	ns, err := Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	return In(ns, f)
}

// In calls f in an open namespace.
func In(ns *os.File, f func() error) error {
	return away(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", ns.Name(), err)
		}
		return f()
	})
}

// New makes a network namespace and calls f in it. The namespace ends with f, unless f gave it another holder: a
// process, an open file or a mount.
func New(f func() error) error {
	return away(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make network namespace: %w", err)
		}
		return f()
	})
}

// away calls f, which moves the thread to another namespace, and moves it back. A thread that cannot be moved back
// stays locked, and the runtime ends it together with its goroutine. A thread is ended for no lesser reason: child
// processes with PR_SET_PDEATHSIG get their signal when the thread that started them ends.
func away(f func() error) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open own network namespace: %w", err)
	}
	defer func() {
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		_ = home.Close()
	}()
	return f()
}

// Mounted reports whether a network namespace is mounted at path.
func Mounted(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	return isNamespace(f)
}

func isNamespace(f *os.File) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &st) == nil && st.Type == unix.NSFS_MAGIC
}
