package rootless

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// held is a holder, as the note has it.
type held struct {
	pid    int
	begun  string // as startOf
	userns uint64 // inode of its user namespace
}

func noteIn(dir string) string { return filepath.Join(dir, "namespaces") }

// locked calls f while no other process changes the note: so two agents that start at the same time do not have
// namespaces of their own each.
func locked(dir string, f func() error) error {
	for {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("note namespaces: %w", err)
		}
		if err := Safe(dir); err != nil {
			return err
		}
		note, err := os.OpenFile(noteIn(dir), os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
		if errors.Is(err, os.ErrNotExist) { // the directory was removed meanwhile
			continue
		}
		if err != nil {
			return fmt.Errorf("note namespaces: %w", err)
		}
		if err := unix.Flock(int(note.Fd()), unix.LOCK_EX); err != nil {
			return errors.Join(fmt.Errorf("lock %s: %w", note.Name(), err), note.Close())
		}
		if !isAt(note, noteIn(dir)) { // it was removed meanwhile
			_ = note.Close()
			continue
		}
		defer note.Close() // and unlocked
		return f()
	}
}

func isAt(f *os.File, path string) bool {
	have, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(have, there)
}

// read gives the holder that a directory notes, and whether it lives: a later process with its number began at another
// time.
func read(dir string) (h held, lives bool) {
	text, err := os.ReadFile(noteIn(dir))
	if err != nil {
		return h, false
	}
	if _, err := fmt.Sscan(string(text), &h.pid, &h.begun, &h.userns); err != nil {
		return held{}, false
	}
	begun, err := startOf(h.pid)
	return h, err == nil && begun == h.begun
}

// startOf is when a process that has not ended began: field 22 of proc(5) stat.
func startOf(pid int) (string, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return "", err
	}
	stat, err := p.Stat()
	if err != nil {
		return "", err
	}
	if stat.State == "Z" {
		return "", unix.ESRCH
	}
	return strconv.FormatUint(stat.Starttime, 10), nil
}

// findOrStart gives the holder that the directory notes, or starts one: where that was killed, in its namespaces, if an
// agent is still in them. If none is, nobody can find the nodes there any more, and they are ended.
func findOrStart(ctx context.Context, dir string, hold []string) (held, error) {
	h, lives := read(dir)
	if lives {
		return h, nil
	}
	if h.userns != 0 {
		const most = 100 // each is found alive, and ends before it is entered: it was killed, too
		for range most {
			member := memberOf(h.userns)
			if member == 0 {
				break
			}
			if in, err := startIn(ctx, dir, member, hold); err == nil {
				return in, nil
			}
		}
		endBelow(h.userns)
	}
	c := exec.CommandContext(context.WithoutCancel(ctx), "/proc/self/exe", hold...) // it outlives ctx
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET |
			syscall.CLONE_NEWCGROUP,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	return start(dir, c)
}

// startIn starts a holder in the namespaces of a process.
func startIn(ctx context.Context, dir string, pid int, hold []string) (held, error) {
	self, err := os.Executable()
	if err != nil {
		return held{}, fmt.Errorf("hold namespaces: find this program's file: %w", err)
	}
	args := []string{"--preserve-credentials", "--target", strconv.Itoa(pid)}
	for _, ns := range namespaces {
		args = append(args, ns.option)
	}
	args = append(append(args, "--", self), hold...)
	return start(dir, exec.CommandContext(context.WithoutCancel(ctx), "nsenter", args...))
}

// start starts a holder by a command, and notes it. The caller has locked the note.
func start(dir string, c *exec.Cmd) (h held, err error) {
	out, in, err := os.Pipe()
	if err != nil {
		return h, fmt.Errorf("make namespaces: %w", err)
	}
	defer out.Close()
	defer in.Close()
	c.Args[0] = "pergola" // for ps(1)
	c.Dir, c.Stdout = "/", in
	if c.SysProcAttr == nil {
		c.SysProcAttr = &syscall.SysProcAttr{}
	}
	c.SysProcAttr.Setsid = true
	if err := c.Start(); err != nil {
		return h, denied(err)
	}
	in.Close()
	if err := ready(out); err != nil {
		_ = c.Process.Kill()
		_ = c.Wait() // killed: always an error
		return h, err
	}
	h.pid = c.Process.Pid
	h.begun, err = startOf(h.pid)
	if err == nil {
		h.userns, err = usernsOf(h.pid)
	}
	if err == nil { // in place: the file is locked
		err = os.WriteFile(noteIn(dir), fmt.Appendf(nil, "%d %s %d\n", h.pid, h.begun, h.userns), 0o600)
	}
	if err != nil {
		_ = c.Process.Kill()
		_ = c.Wait() // likewise
		return h, fmt.Errorf("make namespaces: %w", err)
	}
	return h, c.Process.Release()
}

// isReady is what a holder prints when its namespaces are there and can be used, or else the number of the error.
const isReady = "ready"

func ready(out *os.File) error {
	buffer := make([]byte, 64)
	n, err := out.Read(buffer)
	if err != nil {
		return fmt.Errorf("make namespaces: the process that holds them ended: %w", err)
	}
	text := strings.TrimSpace(string(buffer[:n]))
	if text == isReady {
		return nil
	}
	if number, err := strconv.Atoi(text); err == nil {
		return denied(unix.Errno(number))
	}
	return fmt.Errorf("make namespaces: the process that holds them printed %q", text)
}

// Hold is the holder's work: nothing, until it is told to end. First it does what takes rights in the namespaces: there
// are machines that let users make some, and do nothing in them.
func Hold(ctx context.Context) error {
	// It is no part of a session that ends, and no Ctrl-C is for it.
	signal.Ignore(unix.SIGHUP, unix.SIGINT)
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, "")
	var errno unix.Errno
	if errors.As(err, &errno) {
		fmt.Println(int(errno))
		return err
	}
	fmt.Println(isReady)
	_ = os.Stdout.Close()
	<-ctx.Done()
	return nil
}

func usernsOf(pid int) (inode uint64, err error) {
	var st unix.Stat_t
	err = unix.Stat("/proc/"+strconv.Itoa(pid)+"/ns/user", &st)
	return st.Ino, err
}

// memberOf finds a process that is in a user namespace; 0: none is.
func memberOf(userns uint64) (pid int) {
	all, _ := procfs.AllProcs() // without /proc, there is no holder either
	for _, p := range all {
		if inode, err := usernsOf(p.PID); err == nil && inode == userns {
			return p.PID
		}
	}
	return 0
}

// endBelow kills what is in user namespaces that were made in this one: nodes. With the mounts of this one, all by
// which they are found again has ended.
func endBelow(userns uint64) {
	all, _ := procfs.AllProcs() // likewise
	for _, p := range all {
		if parent, err := parentOf(p.PID); err == nil && parent == userns {
			_ = unix.Kill(p.PID, unix.SIGKILL) // else it has ended
		}
	}
}

// parentOf gives the inode of the user namespace in which that of a process was made.
func parentOf(pid int) (inode uint64, err error) {
	ns, err := os.Open("/proc/" + strconv.Itoa(pid) + "/ns/user")
	if err != nil {
		return 0, err
	}
	defer ns.Close()
	fd, err := unix.IoctlRetInt(int(ns.Fd()), unix.NS_GET_PARENT)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	return st.Ino, err
}
