package sliver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// launcher runs the OCI runtime where the mounts that a sliver needs are invisible to all other processes: on a thread
// with a mount namespace of its own, a slave of the machine's. The thread ends with the launch, and the namespace with
// the thread; the mounts that the container has copied by then exist in the container alone. A crash at any point
// leaves no mount behind.
type launcher struct {
	chrooted bool // our root is not the root of our mount namespace
	mask     bool // cover /sys/fs/cgroup with a pure cgroup2 mount: crun refuses hybrid machines
	slots    chan struct{}
}

// run calls join, while the thread still sees the machine's mounts, and then do, when it has its own. What these fork
// starts in this thread's namespace and cgroups; goroutines that they start do not run there. do may call launched when
// everything is forked and it only waits: then the next launch may begin.
func (l *launcher) run(ctx context.Context, join func() error, do func(launched func()) error) error {
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	launched := sync.OnceFunc(func() { <-l.slots })
	defer launched()
	return onThread(func() error {
		for _, step := range []func() error{join, l.enter, func() error { return do(launched) }} {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	})
}

// onThread calls do on a thread that ends afterwards, so do may change the thread's namespaces. It is not the main
// thread, which ends only with the process: that would keep do's namespaces, and show them in /proc/self.
func onThread(do func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // a goroutine that ends while it is locked takes its thread with it
		if unix.Gettid() != unix.Getpid() {
			result <- do()
			return
		}
		defer runtime.UnlockOSThread()
		result <- onThread(do) // cannot get the main thread as long as we sit on it
	}()
	return <-result
}

func (l *launcher) enter() error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare mount namespace: %w", err)
	}
	if l.chrooted {
		if err := becomeRoot(); err != nil {
			return err
		}
	} else if err := mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return err
	}
	if l.mask {
		const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
		if err := mount("cgroup2", "/sys/fs/cgroup", "cgroup2", flags, ""); err != nil {
			return err
		}
	}
	return nil
}

// protect makes the runtime's binary read-only for processes of this launch thread. crun would otherwise do so itself,
// against containers that overwrite it (CVE-2019-5736), and execute itself a second time, at twice the cost.
func (r *Runtime) protect() error { return bind(r.oci.path, r.oci.path, unix.MOUNT_ATTR_RDONLY) }

// becomeRoot makes the directory that this thread was chrooted to the root of its mount namespace: in a chroot, the
// kernel refuses to make user namespaces (current_chrooted; EPERM in user_namespaces(7)). Setns to the namespace that
// the thread is in already resets its root to the topmost mount there; a copy of the chroot's tree is put on top
// between two such calls.
func becomeRoot() error {
	ns, err := unix.Open("/proc/thread-self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open mount namespace: %w", err)
	}
	defer unix.Close(ns)
	ours, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open root: %w", err)
	}
	defer unix.Close(ours)
	if err := unix.Setns(ns, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("leave chroot: %w", err)
	}
	if err := mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return err
	}
	tree, err := unix.OpenTree(ours, "",
		unix.AT_EMPTY_PATH|unix.AT_RECURSIVE|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("copy mounts of chroot: %w", err)
	}
	defer unix.Close(tree)
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, "/", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount chroot on /: %w", err)
	}
	if err := unix.Setns(ns, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter mounted chroot: %w", err)
	}
	return nil
}

func mount(source, target, kind string, flags uintptr, options string) error {
	if err := unix.Mount(source, target, kind, flags, options); err != nil {
		return fmt.Errorf("mount %s %s: %w", kind, target, err)
	}
	return nil
}

// bind shows source, with everything mounted below it, at target; attr restricts all of it.
func bind(source, target string, attr uint64) error {
	return bindAt(unix.AT_FDCWD, source, source, target, attr)
}

// bindAt is bind for a path relative to an open one, which source names in errors.
func bindAt(fd int, path, source, target string, attr uint64) error {
	tree, err := unix.OpenTree(fd, path,
		unix.AT_EMPTY_PATH|unix.AT_RECURSIVE|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("bind %s: %w", source, err)
	}
	defer unix.Close(tree)
	set := unix.MountAttr{Attr_set: attr}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &set); err != nil {
		return fmt.Errorf("restrict mount of %s: %w", source, err)
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("bind %s on %s: %w", source, target, err)
	}
	return nil
}

// probeLaunch finds out whether this process is in a chroot, and tries what every launch does.
func (r *Runtime) probeLaunch(ctx context.Context) error {
	l := &r.launch
	l.slots = make(chan struct{}, parallel())
	l.mask = r.oci.maskCgroups && !unifiedCgroups()
	var err error
	if l.chrooted, err = inChroot(); err != nil {
		return fmt.Errorf("examine root directory: %w", err)
	}
	err = l.run(ctx, func() error { return nil }, func(func()) error {
		c := exec.CommandContext(ctx, r.init, "--version")
		c.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET |
				syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}},
		}
		return c.Run()
	})
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) ||
		errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return &Unsupported{"user namespaces", err,
			"check sysctl user.max_user_namespaces, CONFIG_USER_NS, " +
				"and the rights of this container if it is one"}
	}
	if err != nil {
		return fmt.Errorf("try a container's namespaces: %w", err)
	}
	if err := l.run(ctx, func() error { return nil }, func(func()) error { return r.tryOverlay() }); err != nil {
		return &Unsupported{
			"overlay file systems", err,
			"a kernel of 6.1 or newer with CONFIG_OVERLAY_FS; modprobe overlay",
		}
	}
	return nil
}

// tryOverlay mounts what every sliver needs, in a mount namespace that no other process sees.
func (r *Runtime) tryOverlay() error {
	dir := r.slicesDir()
	if err := mount("pergola", dir, "tmpfs", 0, ""); err != nil {
		return err
	}
	lower := "/etc"
	if isRootless() {
		lower = filepath.Join(dir, "lower") // see etcOf
	}
	for _, name := range []string{"lower", "upper", "work", "root"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			return err
		}
	}
	return mountOverlay(lower, filepath.Join(dir, "upper"), filepath.Join(dir, "work"), filepath.Join(dir, "root"))
}

// inChroot compares the root of a thread with the root that the kernel gives a thread that enters the namespace again.
func inChroot() (bool, error) {
	var before, after unix.Statx_t
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
		if err := unix.Statx(unix.AT_FDCWD, "/", 0, unix.STATX_INO|unix.STATX_MNT_ID, &before); err != nil {
			return err
		}
		ns, err := unix.Open("/proc/thread-self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(ns)
		if err := unix.Setns(ns, unix.CLONE_NEWNS); err != nil {
			return err
		}
		return unix.Statx(unix.AT_FDCWD, "/", 0, unix.STATX_INO|unix.STATX_MNT_ID, &after)
	})
	return before.Mnt_id != after.Mnt_id || before.Ino != after.Ino, err
}

func unifiedCgroups() bool {
	var s unix.Statfs_t
	return unix.Statfs("/sys/fs/cgroup", &s) == nil && s.Type == unix.CGROUP2_SUPER_MAGIC
}

func totalMemory() int64 {
	var s unix.Sysinfo_t
	if err := unix.Sysinfo(&s); err != nil {
		return 8 << 30
	}
	return int64(s.Totalram) * int64(s.Unit)
}
