// Package ovs runs an Open vSwitch to compare with, beside one that the machine may have. Its data path is the one in
// user space, which needs no kernel module: it takes and gives frames through packet sockets, makes and takes
// tunnels' packets itself, and has a core of its own while others have none.
package ovs

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/kernel/netns"
)

// Switches are an Open vSwitch's database and daemon, in a directory and a network namespace of their own.
type Switches struct {
	dir  string
	ns   *os.File
	undo undo.Steps
}

// Installed says what is missing.
func Installed() error {
	for _, program := range []string{"ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl",
		"ovs-appctl"} {
		if _, err := exec.LookPath(program); err != nil {
			return err
		}
	}
	return nil
}

// Start starts both. The directory is the caller's, and empty.
func Start(ctx context.Context, dir string, ns *os.File) (_ *Switches, err error) {
	s := &Switches{dir: dir, ns: ns}
	defer s.undo.OnError(&err)
	database := filepath.Join(dir, "conf.db")
	if err := s.run(ctx, "ovsdb-tool", "create", database, "/usr/share/openvswitch/vswitch.ovsschema"); err != nil {
		return nil, err
	}
	if err := s.daemon("ovsdb-server", database, "--remote=punix:"+s.socket(),
		"--unixctl="+filepath.Join(dir, "ovsdb.ctl")); err != nil {
		return nil, err
	}
	if err := appears(ctx, s.socket()); err != nil {
		return nil, err
	}
	if err := s.Set(ctx, "--no-wait", "init"); err != nil {
		return nil, err
	}
	return s, s.daemon("ovs-vswitchd", "unix:"+s.socket(), "--disable-system", "--unixctl="+s.control())
}

// Stop ends them; nothing of them lasts but files.
func (s *Switches) Stop() error { return s.undo.Run() }

func (s *Switches) socket() string  { return filepath.Join(s.dir, "db.sock") }
func (s *Switches) control() string { return filepath.Join(s.dir, "vswitchd.ctl") }

func (s *Switches) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "OVS_RUNDIR="+s.dir, "OVS_LOGDIR="+s.dir, "OVS_DBDIR="+s.dir)
	return cmd
}

func (s *Switches) run(ctx context.Context, name string, args ...string) error {
	return finish(s.command(ctx, name, args...))
}

// finish runs a command; its error has the last line of what it said.
func finish(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		lines := strings.Split(string(bytes.TrimSpace(out)), "\n")
		return fmt.Errorf("run %s: %w: %s", filepath.Base(cmd.Path), err, lines[len(lines)-1])
	}
	return nil
}

// Set changes the database, in the words of ovs-vsctl(8), and waits until the daemon has done what it says.
func (s *Switches) Set(ctx context.Context, words ...string) error {
	return s.run(ctx, "ovs-vsctl", append([]string{"--timeout=10", "--db=unix:" + s.socket()}, words...)...)
}

// Control tells the daemon something, in the words of ovs-vswitchd(8).
func (s *Switches) Control(ctx context.Context, words ...string) error {
	return s.run(ctx, "ovs-appctl", append([]string{"--target=" + s.control()}, words...)...)
}

// Flows gives a bridge its flows. Its management socket is there when it is.
func (s *Switches) Flows(ctx context.Context, bridge string, flows []string) error {
	socket := filepath.Join(s.dir, bridge+".mgmt")
	if err := appears(ctx, socket); err != nil {
		return err
	}
	cmd := s.command(ctx, "ovs-ofctl", "add-flows", "unix:"+socket, "-")
	cmd.Stdin = strings.NewReader(strings.Join(flows, "\n") + "\n")
	if err := finish(cmd); err != nil {
		return fmt.Errorf("add flows to %s: %w", bridge, err)
	}
	return nil
}

// daemon starts a daemon in the namespace.
func (s *Switches) daemon(name string, args ...string) error {
	// Not bound to a context: it is ended in order.
	cmd := s.command(context.Background(), name, append(args, "-vconsole:off", "-vsyslog:off")...)
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL} // Ctrl-C is for us alone
	if err := netns.In(s.ns, cmd.Start); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	s.undo.Push(func() error {
		_ = cmd.Process.Kill() // nothing of it shall last
		_ = cmd.Wait()
		return nil
	})
	return nil
}

// appears waits for a socket of a daemon.
func appears(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		if _, err := os.Stat(socket); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", socket, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}
