package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/pergola-net/pergola/lab/testbed"
	"github.com/pergola-net/pergola/lab/testkit"
)

// TestCluster tells stories of several machines, each with a testbed of its own (`pergola dev cluster`).
//
// Beside those of testscript and `eventually`, they have the commands of cluster_commands_test.go, and a program:
//
//	on HOST CMD ARG...   runs CMD in a machine
func TestCluster(t *testing.T) {
	testkit.Root(t)
	files, err := filepath.Glob("testdata/cluster/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	binary := pergola(t)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			c := newCluster(t, binary)
			testscript.Run(t, testscript.Params{
				Files:               []string{file},
				RequireExplicitExec: true,
				RequireUniqueNames:  true,
				Cmds:                c.commands(),
				Setup:               c.setUp,
			})
		})
	}
}

// cluster is a testbed, which the story makes.
type cluster struct {
	binary, dir, examples string
	copies                []*copies // being watched
}

// newCluster sees to it that nothing is left of the testbed when the test ends.
func newCluster(t *testing.T, binary string) *cluster {
	t.Helper()
	state := testkit.TempState(t)
	testkit.LeakCheck(t, state)
	c := &cluster{binary: binary, dir: filepath.Join(state, "bed"),
		examples: filepath.Join(testkit.ModuleRoot(t), "examples")}
	t.Cleanup(func() { c.cleanUp(t) })
	return c
}

// cleanUp removes what a story that failed left. A story that passed must have done so itself.
func (c *cluster) cleanUp(t *testing.T) {
	t.Helper()
	for _, w := range c.copies {
		w.end()
	}
	b, err := testbed.Open(c.dir)
	if errors.Is(err, testbed.ErrNone) {
		return
	}
	if err != nil || !t.Failed() {
		t.Errorf("the story left its machines: %v", err)
	}
	if err == nil {
		c.explain(t, b)
	}
	if out, err := c.dev("down").CombinedOutput(); err != nil {
		t.Errorf("clean up: %v\n%s", err, out)
	}
}

// explain logs the state of a story that failed, before it is removed.
func (c *cluster) explain(t *testing.T, b *testbed.Testbed) {
	t.Helper()
	out, err := c.dev("ls").CombinedOutput()
	t.Logf("the machines (%v):\n%s", err, out)
	for _, m := range b.Machines() {
		if log, err := os.ReadFile(m.Log()); err == nil {
			t.Logf("the log of %s:\n%s", m.Name, tail(log, 8<<10))
		}
	}
	out, err = c.dev("exec", b.Machines()[0].Name, "--", "timeout", "10", "pergola", "host", "ls").CombinedOutput()
	t.Logf("the hosts (%v):\n%s", err, out)
}

// dev is a call of `pergola dev cluster` for this testbed.
func (c *cluster) dev(args ...string) *exec.Cmd {
	cmd := exec.Command(c.binary, append([]string{"dev", "cluster"}, args...)...)
	cmd.Env = append(os.Environ(), "PERGOLA_DEV_DIR="+c.dir, "NO_COLOR=1")
	return cmd
}

// on is the program of that name.
const on = `#!/bin/sh
host=$1
shift
exec pergola dev cluster exec "$host" -- "$@"
`

func (c *cluster) setUp(env *testscript.Env) error {
	bin := filepath.Join(env.WorkDir, ".bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	if err := os.WriteFile(filepath.Join(bin, "on"), []byte(on), 0o755); err != nil {
		return fmt.Errorf("write on: %w", err)
	}
	env.Setenv("PATH", bin+":"+filepath.Dir(c.binary)+":"+os.Getenv("PATH")+":/usr/sbin:/sbin")
	env.Setenv("PERGOLA_DEV_DIR", c.dir)
	env.Setenv("PERGOLA_SOCKET", filepath.Join(env.WorkDir, "no-server-here"))
	env.Setenv("NO_COLOR", "1")
	env.Setenv("EXAMPLES", c.examples)
	return os.Chmod(filepath.Dir(env.WorkDir), 0o755)
}
