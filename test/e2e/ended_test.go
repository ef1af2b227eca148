package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pergola-net/pergola/lab/testkit"
)

// stuck is a network in which routing never converges, because r1 drops what is for r2, with a check that takes long.
const stuck = `
name: stuck
nodes:
  r1: {routing: ospf, daemon: bird, exec: [ip route add blackhole 192.0.2.2/32]}
  r2: {routing: ospf, daemon: bird, loopbacks: 192.0.2.2}
links:
  - [r1, r2]
checks:
  - {exec: touch /tmp/checked && sleep 300, node: r1, timeout: 5m}
`

// TestServerThatDiesUnderCommands kills the server while commands wait for it. They say so, where its log is and that
// the nodes run on, which they do; `pergola up` goes on with them once a server is there.
func TestServerThatDiesUnderCommands(t *testing.T) {
	testkit.Root(t)
	s := newServer(t, pergola(t))
	file := filepath.Join(s.state, "stuck.yaml")
	if err := os.WriteFile(file, []byte(stuck), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	up := s.background(t, "up", file, "--wait")
	up.await(t, "still waiting: ") // for routing
	check := s.background(t, "check", "stuck")
	wait := s.background(t, "wait", "stuck")
	wait.await(t, "still waiting: ")
	if err := testkit.Poll(func() error {
		return s.command("exec", "-s", "stuck", "r1", "--", "test", "-e", "/tmp/checked").Run()
	}, 20*time.Second); err != nil {
		t.Fatalf("check did not begin: %v", err)
	}
	before := s.mustHavePIDs(t, "stuck")
	if err := s.stop(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*background{up, wait, check} {
		text := c.end(t)
		for _, want := range []string{"the server ended", "nodes run on", "its log", "`pergola up` goes on"} {
			if !strings.Contains(text, want) {
				t.Errorf("%v does not say %q:\n%s", c.Args[1:], want, text)
			}
		}
	}
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	s.mustSucceed(t, "up", file)
	if after := s.mustHavePIDs(t, "stuck"); after != before {
		t.Errorf("nodes ran as\n%s, and run now as\n%s", before, after)
	}
	s.mustSucceed(t, "down", "stuck")
}

func (s *server) mustHavePIDs(t *testing.T, slice string) string {
	t.Helper()
	text, err := s.pids(slice)
	if err != nil || text == "" {
		t.Fatalf("list the nodes of %s: %q, %v", slice, text, err)
	}
	return text
}

// background is a command that runs beside the test, with a file of all that it prints.
type background struct {
	*exec.Cmd
	said  string
	ended chan error
}

func (s *server) background(t *testing.T, args ...string) *background {
	t.Helper()
	b := &background{s.command(args...), filepath.Join(t.TempDir(), "said"), make(chan error, 1)}
	said, err := os.Create(b.said)
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	b.Stdout, b.Stderr = said, said
	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { b.ended <- b.Wait() }()
	return b
}

// await waits until the command has printed a text.
func (b *background) await(t *testing.T, text string) {
	t.Helper()
	if err := testkit.Poll(func() error {
		said, err := os.ReadFile(b.said)
		if err == nil && !bytes.Contains(said, []byte(text)) {
			err = fmt.Errorf("%v has not said %q, but\n%s", b.Args[1:], text, said)
		}
		return err
	}, time.Minute); err != nil {
		_ = b.Process.Kill()
		t.Fatal(err)
	}
}

// end waits for the command to fail, and gives what it printed.
func (b *background) end(t *testing.T) string {
	t.Helper()
	select {
	case err := <-b.ended:
		if exit := new(exec.ExitError); !errors.As(err, &exit) || !exit.Exited() {
			t.Errorf("%v ended with %v", b.Args[1:], err)
		}
	case <-time.After(30 * time.Second):
		_ = b.Process.Kill()
		t.Fatalf("%v does not end", b.Args[1:])
	}
	said, err := os.ReadFile(b.said)
	if err != nil {
		t.Fatal(err)
	}
	return string(said)
}
