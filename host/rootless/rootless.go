// Package rootless gives an ordinary user's agent the rights that it needs, in namespaces of the user's own: in a user
// namespace (user_namespaces(7)), where the user is root, with a mount, a network and a cgroup namespace that belong to
// it. No setuid program takes part, and nothing on the machine is changed.
//
// The namespaces are held by a process that only sleeps, the holder. So they outlive the agent, and the next agent of
// the user enters them, and finds there what runs. A file in the agent's state directory, the note, names the holder.
package rootless

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// variable is set in the environment of what Enter starts: to the file descriptors of the namespaces.
const variable = "PERGOLA_NAMESPACES"

// Inside reports whether this process was started by Enter. The variable alone does not tell: it may have come along
// with sudo.
func Inside() bool {
	_, single := outsideID()
	return os.Getenv(variable) != "" && single
}

// User is the user id of this process on the machine: inside, its own is 0.
func User() int {
	if id, _ := outsideID(); Inside() {
		return id
	}
	return os.Getuid()
}

// outsideID gives the machine's id of this user namespace's root, if that is its only user and is not the machine's.
func outsideID() (id int, single bool) {
	text, err := os.ReadFile("/proc/self/uid_map") // lines of: first id here, first id outside, how many
	fields := strings.Fields(string(text))
	if err != nil || len(fields) != 3 || fields[0] != "0" || fields[2] != "1" {
		return 0, false
	}
	id, err = strconv.Atoi(fields[1])
	return id, err == nil && id != 0
}

// namespaces are those that a user has, as nsenter(1) and /proc/PID/ns call them.
var namespaces = []struct{ option, file string }{
	{"--user", "user"}, {"--mount", "mnt"}, {"--net", "net"}, {"--cgroup", "cgroup"},
}

// Enter makes this process run the program anew, with the arguments, in the user's namespaces: those that the directory
// notes, or new ones. hold are the arguments by which the program becomes a holder (Hold). It returns only with an
// error: a *DeniedError if the machine lets users make no such namespaces.
func Enter(ctx context.Context, dir string, hold, args []string) error {
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		return fmt.Errorf("enter namespaces: find nsenter, of the package util-linux: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("enter namespaces: find this program's file: %w", err)
	}
	command, held := []string{nsenter, "--preserve-credentials"}, []string{}
	err = locked(dir, func() error {
		h, err := findOrStart(ctx, dir, hold)
		if err != nil {
			return err
		}
		connect(ctx, dir, h)
		for _, ns := range namespaces { // open, they stay, whoever ends the holder meanwhile
			fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/%s", h.pid, ns.file), unix.O_RDONLY, 0)
			if err != nil {
				return fmt.Errorf("enter namespaces: open that of process %d: %w", h.pid, err)
			}
			held = append(held, strconv.Itoa(fd))
			command = append(command, ns.option+"=/proc/self/fd/"+strconv.Itoa(fd))
		}
		return nil
	})
	if err != nil {
		return err
	}
	command = append(append(command, "--", self), args...)
	environment := append(os.Environ(), variable+"="+strings.Join(held, ","))
	return fmt.Errorf("enter namespaces: %w", syscall.Exec(nsenter, command, environment))
}

// Keep makes sure that the namespaces that this process has entered are held, now that the directory is its alone: the
// agent before may have ended the holder meanwhile. hold are the arguments by which this program becomes one.
func Keep(ctx context.Context, dir string, hold []string) error {
	for text := range strings.SplitSeq(os.Getenv(variable), ",") {
		if fd, err := strconv.Atoi(text); err == nil {
			_ = unix.Close(fd) // we are in it
		}
	}
	here, err := usernsOf(os.Getpid())
	if err != nil {
		return fmt.Errorf("hold namespaces: %w", err)
	}
	return locked(dir, func() error {
		h, lives := read(dir)
		switch {
		case lives && h.userns != here:
			return errors.New("hold namespaces: another server of this user has made new ones; try again")
		case lives:
			return nil
		}
		_, err := start(dir, exec.CommandContext(context.WithoutCancel(ctx), "/proc/self/exe", hold...))
		return err
	})
}

// Leave ends the holder of the namespaces that this process is in, and removes the note of it. The namespaces end with
// the last process in them.
func Leave(dir string) error {
	here, err := usernsOf(os.Getpid())
	if err != nil {
		return fmt.Errorf("leave namespaces: %w", err)
	}
	return locked(dir, func() error {
		h, lives := read(dir)
		if h.userns != here {
			return nil
		}
		disconnect(dir)
		if lives {
			if err := unix.Kill(h.pid, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("end the process that holds the namespaces: %w", err)
			}
		}
		return os.Remove(noteIn(dir))
	})
}

// Held reports whether the directory notes a holder: a server runs there, or has left something.
func Held(dir string) bool {
	_, lives := read(dir)
	return lives
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
	case int(st.Uid) != os.Getuid():
		return fmt.Errorf("use directory %s: it is another user's: set XDG_RUNTIME_DIR to a directory of yours",
			dir)
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("use directory %s: it is none: remove it", dir)
	case st.Mode&0o022 != 0:
		return fmt.Errorf("use directory %s: others may write there: chmod go-w %[1]s", dir)
	}
	return nil
}
