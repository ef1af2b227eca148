package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// NIC is the name of every machine's interface.
const NIC = "eth0"

// Machine is one of a testbed.
type Machine struct {
	testbed *Testbed
	Name    string
	Number  int // from 1
}

// Addresses are those of the machine's interface.
func (m *Machine) Addresses() (v4, v6 netip.Prefix) { return Addresses(m.Number) }

// Socket is where its Pergola answers, from the real machine's view.
func (m *Machine) Socket() string { return m.testbed.path(m.Name, "run/pergola/pergola.sock") }

// Log is where its Pergola writes, from the real machine's view.
func (m *Machine) Log() string {
	return m.testbed.path(m.Name, "var/log/pergola", filepath.Base(logFile))
}

// Boot starts the machine's first process, and plugs its wire in. program is a path of Pergola itself, and its
// arguments up to the words that make it call Build.
func (m *Machine) Boot(ctx context.Context, program ...string) error {
	if err := m.makeDirs(); err != nil {
		return fmt.Errorf("boot machine %s: %w", m.Name, err)
	}
	pid, err := m.launch(ctx, program)
	if err == nil {
		err = m.plug(pid)
	}
	if err != nil {
		return fmt.Errorf("boot machine %s: %w", m.Name, err)
	}
	return nil
}

// makeDirs makes what will be the machine's /run and /var.
func (m *Machine) makeDirs() error {
	for dir, mode := range map[string]os.FileMode{
		"run": 0o755, "run/lock": 0o777 | os.ModeSticky, "var/lib": 0o755, "var/log/pergola": 0o755,
		"var/cache": 0o755,
		"var/tmp":   0o777 | os.ModeSticky,
	} {
		path := m.testbed.path(m.Name, dir)
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
		if err := os.Chmod(path, mode); err != nil {
			return err
		}
	}
	for link, to := range map[string]string{"var/run": "/run", "var/lock": "/run/lock"} {
		if err := os.Symlink(to, m.testbed.path(m.Name, link)); err != nil {
			return err
		}
	}
	id := fmt.Sprintf("%s%016x\n", m.testbed.digest(16), m.Number) // machine-id(5): 32 hexadecimal digits
	return os.WriteFile(m.testbed.path(m.Name, "machine-id"), []byte(id), 0o444)
}

// launch starts the first process, and waits until it listens.
func (m *Machine) launch(ctx context.Context, program []string) (pid int, err error) {
	told, tell, err := os.Pipe() // its messages until it listens; then it closes its end
	if err != nil {
		return 0, err
	}
	defer func() { _ = told.Close() }()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program[0],
		append(program[1:], m.testbed.dir, m.Name)...)
	alive, err := cmd.StdinPipe() // until it bears the testbed's mark, it ends with us
	if err != nil {
		return 0, errors.Join(err, tell.Close())
	}
	cmd.Stdout, cmd.Stderr = tell, tell
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true, // Ctrl-C is for the command that makes the testbed
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS,
	}
	err = cmd.Start()
	_ = tell.Close()
	if err != nil {
		return 0, err
	}
	go func() { _ = cmd.Wait() }() // it ends after us, as a rule
	if _, err := io.WriteString(alive, goAhead); err != nil {
		return 0, fmt.Errorf("start its first process: %w", err)
	}
	defer func() { _ = alive.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = told.Close() })
	defer stop()
	text, err := io.ReadAll(told)
	switch {
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case err != nil:
		return 0, err
	case !strings.HasSuffix(string(text), ready):
		return 0, fmt.Errorf("start its first process: %s",
			strings.TrimSpace(strings.TrimPrefix(string(text), "error: ")))
	}
	return cmd.Process.Pid, nil
}

// PID is that of the machine's first process, from the caller's view. The kernel tells which process listens at
// the machine's socket: no number is kept that could be another process's meanwhile.
func (m *Machine) PID() (int, error) {
	c, err := m.connect()
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("find machine %s: %w", m.Name, err)
	}
	var who *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		who, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, failed); err != nil {
		return 0, fmt.Errorf("find machine %s: %w", m.Name, err)
	}
	return int(who.Pid), nil
}

func (m *Machine) connect() (*net.UnixConn, error) {
	c, err := net.DialUnix("unix", nil,
		&net.UnixAddr{Name: m.testbed.path(m.Name, "run", filepath.Base(controlSocket)), Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("find machine %s: it does not run: %w", m.Name, err)
	}
	return c, nil
}

// Start starts the machine's Pergola, with arguments.
func (m *Machine) Start(args ...string) error {
	_, err := m.ask(request{Do: doStart, Args: args})
	return err
}

// Restart ends the machine's Pergola, if it runs, in order, and starts it again with the arguments that it had.
func (m *Machine) Restart() error {
	_, err := m.ask(request{Do: doRestart})
	return err
}

// Kill ends the machine's Pergola by SIGKILL. Nodes run on.
func (m *Machine) Kill() error {
	_, err := m.ask(request{Do: doKill})
	return err
}

// Status says what the machine's Pergola does.
func (m *Machine) Status() (Status, error) { return m.ask(request{Do: doStatus}) }

// Command is the command line that runs a command in the machine, in the caller's working directory if that is there.
func (m *Machine) Command(args ...string) ([]string, error) {
	pid, err := m.PID()
	if err != nil {
		return nil, err
	}
	dir, err := os.Getwd()
	if err != nil {
		dir = "/"
	}
	// --root: a caller in a chroot is to find the machine's root, not that of its mount namespace.
	return append([]string{
		"nsenter", fmt.Sprintf("--target=%d", pid), "--mount", "--uts", "--net", "--pid", "--cgroup",
		"--root", "--",
		"env", "--unset=PERGOLA_SOCKET", "PATH=" + binDir + ":" + os.Getenv("PATH") + ":/usr/sbin:/sbin",
		"sh", "-c", `cd "$0" 2>/dev/null || cd /; exec "$@"`, dir,
	}, args...), nil
}
