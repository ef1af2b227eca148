package e2e

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/pergola-net/pergola/lab/testkit"
)

// ring is a network with every kind of thing that the agent makes: slivers, wires, a switch, a queue, a daemon.
const ring = `
name: ring
nodes:
  r1: {routing: static, daemon: bird}
  r2:
  r3:
  h1:
  h2:
  s: {kind: switch}
links:
  - [r1, r2]
  - {ends: [r2, r3], rate: 100Mbit}
  - [r3, r1]
  - [r1, s]
  - [h1, s]
  - [h2, s]
`

// TestKilledAtAnyMoment kills the server without warning while it brings a network up and while it takes it down.
// Started again, it must end in the state that was wanted.
func TestKilledAtAnyMoment(t *testing.T) {
	testkit.Root(t)
	s := newServer(t, pergola(t))
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	file := filepath.Join(s.state, "ring.yaml")
	if err := os.WriteFile(file, []byte(ring), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		s.killDuring(t, time.Duration(random.IntN(600))*time.Millisecond, "up", file)
		s.mustSucceed(t, "up", file)
		s.mustSucceed(t, "exec", "-s", "ring", "h1", "--", "ping", "-c1", "-W5", "h2")
		s.killDuring(t, time.Duration(random.IntN(400))*time.Millisecond, "down", "ring")
		if out, err := s.command("down", "--all").CombinedOutput(); err != nil {
			t.Fatalf("down: %v\n%s", err, out)
		}
	}
}

// killDuring starts a command, kills the server after a while, and starts the server again.
func (s *server) killDuring(t *testing.T, after time.Duration, args ...string) {
	t.Helper()
	cmd := s.command(args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(after) // the moment of the crash is the point: there is nothing to wait for
	if err := s.stop(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it fails or not, as far as it came
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
}

func (s *server) mustSucceed(t *testing.T, args ...string) {
	t.Helper()
	if out, err := s.command(args...).CombinedOutput(); err != nil {
		t.Fatalf("pergola %v: %v\n%s", args, err, out)
	}
}
