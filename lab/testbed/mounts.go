package testbed

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// What Boot and Build send each other.
const (
	goAhead = "go\n"
	ready   = "ready\n"
)

// Build makes a machine of the process that calls it, the first in a PID, mount, network and UTS namespace of its
// own, and executes program (a path of Pergola itself and the words that make it call Init) in its place.
func Build(dir, name string, program ...string) error {
	b, err := Open(dir)
	if err != nil {
		return err
	}
	if err := b.joinGroups(name); err != nil {
		return err
	}
	// From here on, Remove finds this process. If the process that started it was killed, Remove may have run
	// before.
	if word := make([]byte, len(goAhead)); !reads(os.Stdin, word) || string(word) != goAhead {
		return errors.New("the command that started this machine has ended")
	}
	runtime.LockOSThread() // a cgroup namespace is a thread's; execve makes this thread the process
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("make cgroup namespace: %w", err)
	}
	if err := unix.Sethostname([]byte(name)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	if err := b.mount(name); err != nil {
		return err
	}
	if _, err := os.Stat(program[0]); err != nil {
		program[0] = "/proc/1/exe" // ours: it lies in a directory of the real machine that is covered here
	}
	if err := linkProgram(program[0]); err != nil {
		return err
	}
	// A machine outlives the command that made it, and must not keep the files that this command inherited, such as
	// a lock that flock(1) holds for it.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close inherited files: %w", err)
	}
	return fmt.Errorf("execute %s: %w", program[0], unix.Exec(program[0], program, environment()))
}

func reads(f *os.File, into []byte) bool {
	n, err := f.Read(into)
	return err == nil && n == len(into)
}

// mount gives the machine its own view of what must differ between machines.
func (b *Testbed) mount(name string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	// Not private: what the real machine unmounts must not live on here.
	if err := mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return err
	}
	if err := mountKernel(all); err != nil {
		return err
	}
	if err := leaveRoot(all); err != nil {
		return err
	}
	// The trees are opened before the first is mounted: it may cover the directory that the others are in.
	targets := map[string]string{"run": "/run", "var": "/var", "machine-id": "/etc/machine-id",
		"../hosts": "/etc/hosts"}
	trees := map[string]int{}
	for source, target := range targets {
		if _, err := os.Stat(target); err != nil {
			continue // it has none, and so they have none
		}
		tree, err := unix.OpenTree(unix.AT_FDCWD, b.path(name, source),
			unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return fmt.Errorf("bind %s: %w", target, err)
		}
		trees[target] = tree
	}
	for target, tree := range trees {
		if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("bind %s: %w", target, err)
		}
		_ = unix.Close(tree)
	}
	return nil
}

// mountKernel mounts the kernel's file systems again: they show the namespaces of the process that mounts them.
func mountKernel(hierarchies []hierarchy) error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	const groups = "/sys/fs/cgroup"
	// With version 1, a tmpfs holds the mount points: without what is mounted there, for no file system can be
	// mounted over itself.
	points, err := unix.OpenTree(unix.AT_FDCWD, groups, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("copy the mount of %s: %w", groups, err)
	}
	defer func() { _ = unix.Close(points) }()
	if err := errors.Join(mount("proc", "/proc", "proc", flags, ""),
		mount("sysfs", "/sys", "sysfs", flags, "")); err != nil {
		return err
	}
	if !slices.ContainsFunc(hierarchies, func(h hierarchy) bool { return h.point == groups }) {
		if err := unix.MoveMount(points, "", unix.AT_FDCWD, groups, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("mount %s: %w", groups, err)
		}
	}
	for _, h := range hierarchies {
		if err := mount("cgroup", h.point, h.kind, flags, h.options); err != nil {
			return err
		}
	}
	if _, err := os.Stat("/sys/fs/bpf"); err == nil {
		return mount("bpf", "/sys/fs/bpf", "bpf", flags, "mode=0700")
	}
	return nil
}

func mount(source, target, kind string, flags uintptr, options string) error {
	if err := unix.Mount(source, target, kind, flags, options); err != nil {
		return fmt.Errorf("mount %s: %w", target, err)
	}
	return nil
}

// binDir, in a machine, holds a link to Pergola, whatever its file is called.
const binDir = "/run/pergola-dev"

func linkProgram(path string) error {
	if err := os.MkdirAll(binDir, 0o755); err != nil {
		return fmt.Errorf("link pergola: %w", err)
	}
	if err := os.Symlink(path, filepath.Join(binDir, "pergola")); err != nil {
		return fmt.Errorf("link pergola: %w", err)
	}
	return nil
}

// environment is that of a machine's processes: ours, without what leads to services of the real machine.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		switch name {
		case "PERGOLA_SOCKET", "NOTIFY_SOCKET", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR":
			return true
		}
		return false
	})
}
