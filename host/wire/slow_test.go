package wire_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	programs "github.com/pergola-net/pergola/datapath/node"
	"github.com/pergola-net/pergola/datapath/program"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/kernel/netns"
	taps "github.com/pergola-net/pergola/kernel/tap"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
)

// A tap device that an earlier node left is no way into a new one of its number, which runs but is not tidied up.
func TestStaleSlowPathIsDeletedWhereWhatWasBeforeCannotBe(t *testing.T) {
	l := newLab(t)
	place := filepath.Join(l.dir, "bpf", "nodes", "1-7-p")
	l.must(os.MkdirAll(place, 0o700))
	l.must(unix.Mount("none", place, "tmpfs", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(place, unix.MNT_DETACH) })
	substrate, err := netns.Open(filepath.Join(l.dir, "netns", "substrate"))
	l.must(err)
	defer func() { l.must(substrate.Close()) }()
	const name = "slow1"
	stale := func() (there bool) {
		l.must(netns.In(substrate, func() error {
			_, err := os.Stat("/proc/thread-self/net/dev_snmp6/" + name)
			there = err == nil
			return nil
		}))
		return there
	}
	l.must(netns.In(substrate, func() error {
		f, err := taps.Open(name, programs.FirstTap+1)
		if err != nil {
			return err
		}
		return f.Close()
	}))
	if !stale() {
		t.Error("the device is not there")
	}
	object, err := program.Build(l.ctx, filepath.Join(testkit.ModuleRoot(l), "examples", "programs", "l2.c"))
	l.must(err)
	set := wire.Program{Slice: 7, File: "l2.c", Object: object, Digest: "1", SlowPath: slice.SlowSocket}
	var tidy *programs.TidyError
	if err := l.SetProgram(l.ctx, "7-p", set); !errors.As(err, &tidy) {
		t.Errorf("set: %v", err)
	}
	if stale() {
		t.Error("the device of the earlier node is there")
	}
	l.must(unix.Unmount(place, 0))
	l.must(l.DeleteProgram(l.ctx, "7-p"))
}

// A device that is made anew has not handed out what the one before has: that is not unread for ever.
func TestUnreadFramesAreThoseOfTheDeviceThatIsThere(t *testing.T) {
	const frames = 100
	l := newLab(t)
	source := filepath.Join(t.TempDir(), "punt.c")
	l.must(os.WriteFile(source, []byte("#include <pergola/program.h>\n"+
		"PERGOLA_PARSE(packet) { return packet ? PERGOLA_PUNT : PERGOLA_DROP; }\n"), 0o600))
	l.switchedBy(func(set wire.Program) (err error) {
		if set.Object, err = program.Build(l.ctx, source); err != nil {
			return err
		}
		set.SlowPath = slice.SlowSocket
		return l.SetProgram(l.ctx, "7-p", set)
	})
	if out, err := l.exec("a", "ip", "neigh", "replace", "192.0.2.1", "lladdr", "02:00:00:00:00:01", "dev",
		"eth0"); err != nil {
		t.Fatal(out, err)
	}
	open := func() *os.File {
		t.Helper()
		f, err := l.OpenSlowPath(l.ctx, "7-p", "p")
		l.must(err)
		read := 0
		testkit.Eventually(l, func() error { // the first ones may be lost
			l.sendsTo("a", "192.0.2.1", 7, 10)
			if read += readable(t, f); read < frames {
				return fmt.Errorf("%d frames were read", read)
			}
			return nil
		}, 10*time.Second, "frames to be read")
		return f
	}
	f := open()
	unread := func() uint64 { return l.counts()["slow path unread"] }
	l.must(unix.IoctlSetInt(int(f.Fd()), unix.TUNSETPERSIST, 0))
	l.must(f.Close())
	gone := l.counts()["slow path handed"]
	f, err := l.OpenSlowPath(l.ctx, "7-p", "p")
	l.must(err)
	if is, since := unread(), l.counts()["slow path handed"]-gone; is > since {
		t.Errorf("%d frames are unread, of %d that were handed to the device", is, since)
	}
	l.must(f.Close())
	f = open()
	l.reopen()
	if is := unread(); is >= frames {
		t.Errorf("%d frames are unread for another process", is)
	}
	l.must(f.Close())
	l.must(l.DeleteProgram(l.ctx, "7-p"))
}

// readable reads the frames that wait.
func readable(t *testing.T, f *os.File) (frames int) {
	t.Helper()
	buffer := make([]byte, 2048)
	for {
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}, 50)
		if err != nil && !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
		if ready <= 0 {
			return frames
		}
		if _, err := f.Read(buffer); err != nil {
			t.Fatal(err)
		}
		frames++
	}
}
