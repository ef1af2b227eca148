package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/pergola-net/pergola/lab/testkit"
)

// group exists on every Debian; its members may use the socket.
const group = "users"

// server is a Pergola server with directories of its own, so that many can run side by side on a machine.
type server struct {
	binary, state, socket, log string
	process                    *exec.Cmd // nil while it is not running
}

// newServer prepares a server and sees to it that nothing is left of it, or of its slices, when the test ends.
func newServer(t *testing.T, binary string) *server {
	t.Helper()
	state := testkit.TempState(t)
	testkit.LeakCheck(t, state)
	s := &server{binary: binary, state: state, socket: filepath.Join(state, "run", "pergola.sock"),
		log: filepath.Join(state, "server.log")}
	t.Cleanup(func() { s.cleanUp(t) })
	return s
}

// cleanUp takes down what a story that failed left running. A story that passed must have done so itself.
func (s *server) cleanUp(t *testing.T) {
	t.Helper()
	if t.Failed() {
		if log, err := os.ReadFile(s.log); err == nil {
			t.Logf("the server's log:\n%s", tail(log, 64<<10))
		}
		if s.process == nil {
			if err := s.start(); err != nil {
				t.Errorf("start the server to clean up: %v", err)
			}
		}
		s.explain(t)
		if out, err := s.command("down", "--all").CombinedOutput(); err != nil {
			t.Errorf("clean up: %v\n%s", err, out)
		}
	}
	if err := s.stop(syscall.SIGTERM); err != nil {
		t.Errorf("stop the server: %v", err)
	}
}

// routes shows a router's view of its network, and the routes in its kernel.
const routes = `exec 2>&1
ip route; ip -6 route; ip -br link
if [ -S /run/bird/bird.ctl ]; then
	birdc "show protocols"; birdc "show route all"; birdc "show ospf neighbors"
	for protocol in ospf4 ospf6; do birdc "show ospf state $protocol"; birdc "show ospf lsadb $protocol"; done
elif [ -d /run/frr ]; then
	for about in neighbor route "database router" "database external"; do
		for family in ip ipv6; do
			version=ospf; [ $family = ip ] || version=ospf6
			[ -e /run/frr/${version}d.pid ] && vtysh -c "show $family $version $about"
		done
	done
	vtysh -c "show running-config"
fi`

// explain logs the state of every router of a story that failed, before it is removed.
func (s *server) explain(t *testing.T) {
	t.Helper()
	out, err := s.command("ls", "--json").Output()
	var slices []struct{ Name string }
	if err := errors.Join(err, json.Unmarshal(out, &slices)); err != nil {
		t.Errorf("list the slices: %v", err)
	}
	for _, slice := range slices {
		cmd := s.command("exec", "--all", "-s", slice.Name, "--", "timeout", "5", "sh", "-c", routes)
		out, err := cmd.CombinedOutput()
		t.Logf("the nodes of %s (%v):\n%s", slice.Name, err, tail(out, 64<<10))
	}
}

func tail(text []byte, n int) []byte {
	return text[max(0, len(text)-n):]
}

// start starts the server and waits until it answers.
func (s *server) start(flags ...string) error {
	if s.process != nil {
		return errors.New("the server is running already")
	}
	log, err := os.OpenFile(s.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	s.process = s.command(append([]string{"server", "--listen", "none", "--group", group, "--state-dir",
		filepath.Join(s.state, "run"), "--data-dir", filepath.Join(s.state, "lib"), "--log-dir",
		filepath.Join(s.state, "log")}, flags...)...)
	s.process.Stdout, s.process.Stderr = log, log
	if err := s.process.Start(); err != nil {
		s.process = nil
		return fmt.Errorf("start the server: %w", err)
	}
	if err := testkit.Poll(func() error { return s.command("ls").Run() }, 30*time.Second); err != nil {
		text, _ := os.ReadFile(s.log)
		return fmt.Errorf("the server did not answer within 30 s; its log:\n%s", tail(text, 4<<10))
	}
	return nil
}

// stop ends the server by a signal; its slices go on.
func (s *server) stop(signal syscall.Signal) error {
	if s.process == nil {
		return nil
	}
	p := s.process
	s.process = nil
	if err := p.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	late := time.AfterFunc(20*time.Second, func() { _ = p.Process.Kill() })
	err := p.Wait()
	switch {
	case !late.Stop():
		return errors.New("the server did not end within 20 s of its signal")
	case signal == syscall.SIGKILL:
		return nil
	}
	return err
}

// command is a call of the binary against this server.
func (s *server) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.binary, args...)
	cmd.Env = append(os.Environ(), "PERGOLA_SOCKET="+s.socket, "NO_COLOR=1")
	return cmd
}
