package wire_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

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
