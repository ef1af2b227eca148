package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/lab/testkit"
)

// Where Pergola keeps its things by default is replaced by empty directories, seen by this script alone.
const autostart = `set -eu
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=755 tmpfs /var/lib
mount -t tmpfs -o mode=755 tmpfs /var/log
unset PERGOLA_SOCKET
pergola up "$1"
pergola exec alice -- ping -c1 -W5 bob
server=$(pergola version --json | tr -d ' \n' | sed 's/.*"pid":\([0-9]*\).*/\1/')
kill -0 "$server"
pergola down hello
tail -f /dev/null --pid="$server"
echo "left: $(find /run /var/lib /var/log -mindepth 1 ! -path /run/mount \
  ! -path '/var/lib/pergola*' ! -path '/var/log/pergola*' | tr '\n' ' ')"
`

// TestUpStartsAServerThatEndsWithTheLastSlice is the first thing that a newcomer sees, and the last.
func TestUpStartsAServerThatEndsWithTheLastSlice(t *testing.T) {
	testkit.Root(t)
	if _, err := os.Stat("/run/pergola/pergola.sock"); err == nil {
		why := "a server of this machine is running: its cgroups have the names that the test's would have"
		if os.Getenv("CI") != "" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	testkit.LeakCheck(t, "/run/pergola") // and Main, in CI, looks for everything else
	binary := pergola(t)
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", autostart, "sh",
		filepath.Join(testkit.ModuleRoot(t), "examples", "hello.yaml"))
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH")+":/usr/sbin:/sbin")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "\nleft: \n") {
		t.Errorf("files are left after the last slice:\n%s", out)
	}
}
