package server

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pergola-net/pergola/lab/testkit"
)

// asNobody runs the client role with another user's rights, and with one group.
func asNobody(t *testing.T, gid uint32, env ...string) string {
	t.Helper()
	self := filepath.Join(t.TempDir(), "client")
	copyProgram(t, self)
	cmd := exec.Command(self)
	cmd.Env = append(env, "PERGOLA_TEST_ROLE=client")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: gid}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// copyProgram copies the test's program to where everybody can run it.
func copyProgram(t *testing.T, to string) {
	t.Helper()
	for dir := filepath.Dir(to); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	in, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestGroupMayUseTheServerButNotTheHost(t *testing.T) {
	testkit.Root(t) // it becomes another user
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	_, cfg := serve(t, func(c *Config) {
		c.StateDir, c.Group = filepath.Join(dir, "run"), "nogroup"
	})
	socket := "PERGOLA_TEST_SOCKET=" + cfg.Socket
	const nogroup, other = 65534, 65533
	if out := asNobody(t, nogroup, socket, "PERGOLA_TEST_BIND=1"); !strings.Contains(out, "problem: 403") ||
		!strings.Contains(out, "nodes.a.binds") {
		t.Errorf("a member that binds a host path gets %q", out)
	}
	if out := asNobody(t, nogroup, socket); !strings.Contains(out, "generation: 1") {
		t.Errorf("a member gets %q", out)
	}
	if out := asNobody(t, other, socket); !strings.Contains(out, "permission denied") ||
		!strings.Contains(out, "group pergola") {
		t.Errorf("somebody else gets %q", out)
	}
}
