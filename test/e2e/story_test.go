// Package e2e tells stories with the real binary: every file of testdata is one, run against a server of its own, and
// after each the machine must be as before.
//
// Beside the commands of testscript (`go doc github.com/rogpeppe/go-internal/testscript`) a story has those of
// commands_test.go. The binary is the one that the environment variable PERGOLA names, or else built on the spot.
package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/pergola-net/pergola/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestStories(t *testing.T) { tell(t, "testdata/stories") }

// TestShapedStories needs netem: delay, jitter, loss.
func TestShapedStories(t *testing.T) {
	testkit.KernelModule(t, "sch_netem")
	tell(t, "testdata/shaped")
}

// TestStoriesOnStockKernel repeats what depends most on the kernel: the data path's hooks and cgroups differ there.
func TestStoriesOnStockKernel(t *testing.T) {
	testkit.OnlyInVM(t, "repeats stories that TestStories tells on this kernel")
	tell(t, "testdata/stories", "hello", "link", "restart", "ospf")
}

// tell runs the stories of a directory one after the other, or those named.
func tell(t *testing.T, dir string, names ...string) {
	t.Helper()
	testkit.Root(t)
	files, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	binary, root := pergola(t), testkit.ModuleRoot(t)
	gid, err := user.LookupGroup(group)
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		if len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		told++
		t.Run(name, func(t *testing.T) {
			s := newServer(t, binary)
			testscript.Run(t, testscript.Params{
				Files:               []string{file},
				RequireExplicitExec: true,
				RequireUniqueNames:  true,
				Cmds:                commands(s),
				Condition: func(cond string) (bool, error) {
					if cond != "netem" {
						return false, fmt.Errorf("no such condition: %s", cond)
					}
					return testkit.HasModule(t.Context(), "sch_netem"), nil
				},
				Setup: func(env *testscript.Env) error {
					env.Setenv("PATH", filepath.Dir(binary)+":"+os.Getenv("PATH")+
						":/usr/sbin:/sbin")
					env.Setenv("PERGOLA_SOCKET", s.socket)
					env.Setenv("EXAMPLES", filepath.Join(root, "examples"))
					env.Setenv("GID", gid.Gid)
					env.Setenv("NO_COLOR", "1")
					env.Setenv("PATIENCE", testkit.Patience(time.Minute).String())
					if cache, err := os.UserCacheDir(); err == nil { // a story compiles an example
						env.Setenv("GOCACHE", filepath.Join(cache, "go-build"))
					}
					// Stories have other users, who must be able to read what lies there for all.
					return os.Chmod(filepath.Dir(env.WorkDir), 0o755)
				},
			})
		})
	}
	if told == 0 || len(names) > 0 && told != len(names) {
		t.Errorf("%d stories of %s were told, wanted %v", told, dir, names)
	}
}

var build sync.Once

// pergola gives the path of the binary.
func pergola(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("PERGOLA"); path != "" {
		return path
	}
	root := testkit.ModuleRoot(t)
	path := filepath.Join(root, "bin", "pergola")
	build.Do(func() {
		cmd := exec.CommandContext(t.Context(), "make", "-s", "build")
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatal(fmt.Errorf("build pergola: %w\n%s", err, out))
		}
	})
	return path
}
