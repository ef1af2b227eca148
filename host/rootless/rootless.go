// Package rootless gives an ordinary user's agent the rights that it needs, in namespaces of the user's own: in a user
// namespace (user_namespaces(7)), where the user is root, with a mount, a network and a cgroup namespace that belong to
// it. No setuid program takes part, and nothing on the machine is changed.
//
// The namespaces are held by a process that only sleeps, the holder. So they outlive the agent, and the next agent of
// the user enters them, and finds there what runs.
package rootless

import (
	"bytes"
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

	"golang.org/x/sys/unix"
)

// variable is set in the environment of what runs inside: the process id of the holder.
const variable = "PERGOLA_NAMESPACES"

// Held reports whether namespaces are held for a directory: a server runs there, or has left something.
func Held(dir string) bool {
	_, ok := read(dir)
	return ok
}

// Inside reports whether this process was started by Enter.
func Inside() bool { return os.Getenv(variable) != "" }

// User is the user id of this process on the machine: inside, its own is 0.
func User() int {
	text, err := os.ReadFile("/proc/self/uid_map") // lines of: first id here, first id outside, how many
	if fields := strings.Fields(string(text)); err == nil && Inside() && len(fields) == 3 {
		if uid, err := strconv.Atoi(fields[1]); err == nil {
			return uid
		}
	}
	return os.Getuid()
}

// Enter makes this process run the same command line in the user's namespaces: those that are held for the directory,
// or new ones, for which hold are the arguments by which this program becomes the holder (Hold). It returns only with an error: *DeniedError if the
// machine lets users make no such namespaces.
func Enter(ctx context.Context, dir string, hold []string) error {
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		return fmt.Errorf("enter namespaces: find nsenter, of the package util-linux: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("enter namespaces: find the own program: %w", err)
	}
	pid, err := holder(ctx, dir, hold)
	if err != nil {
		return err
	}
	connect(ctx, dir, pid)
	command := append([]string{nsenter, "--preserve-credentials", "--user", "--mount", "--net", "--cgroup",
		"--wdns=/", "--target", strconv.Itoa(pid), "--", self}, os.Args[1:]...)
	environment := append(os.Environ(), variable+"="+strconv.Itoa(pid))
	return fmt.Errorf("enter namespaces: %w", syscall.Exec(nsenter, command, environment))
}

// holder gives the process that holds the namespaces of a directory, and starts it if there is none. The lock keeps two
// agents that start at the same time from having namespaces of their own each.
func holder(ctx context.Context, dir string, args []string) (pid int, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, fmt.Errorf("make namespaces: %w", err)
	}
	if err := Safe(dir); err != nil {
		return 0, err
	}
	note, err := os.OpenFile(noteIn(dir), os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return 0, fmt.Errorf("make namespaces: %w", err)
	}
	defer note.Close()
	if err := unix.Flock(int(note.Fd()), unix.LOCK_EX); err != nil {
		return 0, fmt.Errorf("make namespaces: lock %s: %w", note.Name(), err)
	}
	if pid, ok := read(dir); ok {
		return pid, nil
	}
	pid, err = start(ctx, args)
	if err != nil {
		return 0, err
	}
	begun, err := startOf(pid)
	if err == nil {
		err = note.Truncate(0)
	}
	if err == nil {
		_, err = fmt.Fprintf(note, "%d %s\n", pid, begun)
	}
	if err != nil {
		_ = unix.Kill(pid, unix.SIGKILL)
		return 0, fmt.Errorf("make namespaces: %w", err)
	}
	return pid, nil
}

// Safe refuses a directory that another user has made, who could see and change all that is put there: in /tmp anybody
// makes one. It is no error that there is none.
func Safe(dir string) error {
	var st unix.Stat_t
	err := unix.Lstat(dir, &st)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return fmt.Errorf("use directory %s: %w", dir, err)
	case st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Getuid() || st.Mode&0o022 != 0:
		return fmt.Errorf("use directory %s: it is another user's, or others may write there: remove it", dir)
	}
	return nil
}

func noteIn(dir string) string { return filepath.Join(dir, "namespaces") }

// read gives the holder that a directory notes, if it lives: a later process with its number began at another time.
func read(dir string) (pid int, ok bool) {
	text, err := os.ReadFile(noteIn(dir))
	fields := strings.Fields(string(text))
	if err != nil || len(fields) != 2 {
		return 0, false
	}
	if pid, err = strconv.Atoi(fields[0]); err != nil {
		return 0, false
	}
	begun, err := startOf(pid)
	return pid, err == nil && begun == fields[1]
}

// startOf is when a process that has not ended began: field 22 of proc(5) stat.
func startOf(pid int) (string, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" {
		return "", unix.ESRCH
	}
	return fields[19], nil
}

// start starts a holder. It says by its output that it has begun: before that, its namespaces may not be there.
func start(ctx context.Context, args []string) (pid int, err error) {
	read, write, err := os.Pipe()
	if err != nil {
		return 0, fmt.Errorf("make namespaces: %w", err)
	}
	defer read.Close()
	defer write.Close()
	c := exec.CommandContext(context.WithoutCancel(ctx), "/proc/self/exe", args...) // it outlives ctx
	c.Args[0] = "pergola"                                                           // for ps(1)
	c.Dir, c.Stdout = "/", write
	c.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true,
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET |
			syscall.CLONE_NEWCGROUP,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	if err := c.Start(); err != nil {
		return 0, denied(err)
	}
	write.Close()
	if _, err := read.Read(make([]byte, 1)); err != nil {
		_ = c.Process.Kill()
		return 0, fmt.Errorf("make namespaces: the process that holds them ended: %w", errors.Join(err, c.Wait()))
	}
	pid = c.Process.Pid
	return pid, c.Process.Release()
}

// Hold is the holder's work: nothing, until it is told to end.
func Hold(ctx context.Context) error {
	// It is no part of a session that ends, and no Ctrl-C is for it.
	signal.Ignore(unix.SIGHUP, unix.SIGINT)
	if _, err := os.Stdout.WriteString("\n"); err != nil {
		return err
	}
	_ = os.Stdout.Close()
	<-ctx.Done()
	return nil
}

// Leave ends the holder of the namespaces that this process is in, and removes the note of it. The namespaces end with
// the last process in them.
func Leave(dir string) error {
	pid, ok := read(dir)
	if !ok || strconv.Itoa(pid) != os.Getenv(variable) {
		return nil
	}
	disconnect(dir)
	if err := unix.Kill(pid, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("end the process that holds the namespaces: %w", err)
	}
	if err := os.Remove(noteIn(dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// DeniedError says that the machine lets users make no namespaces. It has the remedy, for the administrator.
type DeniedError struct {
	Cause  error
	Remedy string
}

func (e *DeniedError) Error() string {
	return fmt.Sprintf("make a user namespace: %v: this machine lets ordinary users make none", e.Cause)
}

func (e *DeniedError) Unwrap() error { return e.Cause }

// settings by which machines deny namespaces to users, the value that allows them, and where they are.
var settings = []struct{ file, denies, name, allows string }{
	{"/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces", "15000"},
	{"/proc/sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone", "1"},
	{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns",
		"0"},
}

func denied(err error) error {
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EACCES) &&
		!errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("make namespaces: %w", err)
	}
	for _, s := range settings {
		text, readErr := os.ReadFile(s.file)
		if readErr == nil && strings.TrimSpace(string(text)) == s.denies {
			return &DeniedError{err, "an administrator allows it by: sysctl -w " + s.name + "=" + s.allows}
		}
	}
	if errors.Is(err, unix.EINVAL) {
		return &DeniedError{err, "the kernel was built without them (CONFIG_USER_NS)"}
	}
	return &DeniedError{err, "this process may be in a container whose seccomp profile denies them " +
		"(Docker: --security-opt seccomp=unconfined --security-opt systempaths=unconfined)"}
}
