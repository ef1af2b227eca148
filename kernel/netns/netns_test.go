package netns_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestNewIsEmptyAndDoReturnsToItsNamespace(t *testing.T) {
	testkit.Root(t)
	dir := testkit.TempState(t)
	testkit.LeakCheck(t, dir)
	at := filepath.Join(dir, "ns")
	if err := os.WriteFile(at, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := netns.New(func() error { return unix.Mount("/proc/thread-self/ns/net", at, "", unix.MS_BIND, "") })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	home := inode(t, "/proc/thread-self/ns/net")
	err = netns.Do(at, func() error {
		if links, err := net.Interfaces(); err != nil || len(links) != 1 {
			t.Errorf("interfaces of a new namespace: %v, %v; want lo alone", links, err)
		}
		if in, want := inode(t, "/proc/thread-self/ns/net"), inode(t, at); in != want {
			t.Errorf("inside is namespace %d, want %d", in, want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if now := inode(t, "/proc/thread-self/ns/net"); now != home {
		t.Errorf("left in namespace %d, want %d", now, home)
	}
}

func TestDoReturnsToItsNamespaceAfterAPanic(t *testing.T) {
	testkit.Root(t)
	home := inode(t, "/proc/thread-self/ns/net")
	func() {
		defer func() { _ = recover() }()
		_ = netns.Do(netns.Path(os.Getpid()), func() error { panic("inside") })
	}()
	if now := inode(t, "/proc/thread-self/ns/net"); now != home {
		t.Errorf("left in namespace %d, want %d", now, home)
	}
}

func TestMissingNamespaceIsErrGone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "no-namespace")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/proc/0/ns/net", file, file + ".none"} {
		if err := netns.Do(path, func() error { return nil }); !errors.Is(err, netns.ErrGone) {
			t.Errorf("Do(%s) = %v, want ErrGone", path, err)
		}
		if netns.Mounted(path) {
			t.Errorf("Mounted(%s)", path)
		}
	}
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

func TestHereIsTheCallersNamespace(t *testing.T) {
	testkit.Root(t)
	testkit.LeakCheck(t)
	home := inode(t, "/proc/thread-self/ns/net")
	err := netns.New(func() error {
		here, err := netns.Here()
		if err != nil {
			return err
		}
		defer func() { _ = here.Close() }()
		if inode(t, here.Name()) == home {
			t.Error("here is the namespace of the process")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Goroutines would take turns on the main thread, and the process would seem to be where they are.
func TestTheProcessStaysInItsNamespace(t *testing.T) {
	testkit.Root(t)
	testkit.LeakCheck(t)
	home := inode(t, netns.Path(os.Getpid()))
	for range 100 {
		done := make(chan error)
		go func() {
			done <- netns.New(func() error {
				if now := inode(t, netns.Path(os.Getpid())); now != home {
					return errors.New("the process has moved")
				}
				return nil
			})
		}()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}
