package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/lab/testkit"
)

// Where Pergola keeps its things by default is replaced by empty directories, seen by a script alone.
const alone = `set -eu
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=755 tmpfs /var/lib
mount -t tmpfs -o mode=755 tmpfs /var/log
unset PERGOLA_SOCKET
server() { pergola version --json | tr -d ' \n' | sed 's/.*"pid":\([0-9]*\).*/\1/'; }
left() {
  echo "left: $(find /run /var/lib /var/log -mindepth 1 ! -path /run/mount \
    ! -path '/var/lib/pergola*' ! -path '/var/log/pergola*' | tr '\n' ' ')"
}
`

const autostart = alone + `
pergola up "$1"
pergola exec alice -- ping -c1 -W5 bob
server=$(server)
kill -0 "$server"
pergola down hello
tail -f /dev/null --pid="$server"
left
`

// TestUpStartsAServerThatEndsWithTheLastSlice is the first thing that a newcomer sees, and the last.
func TestUpStartsAServerThatEndsWithTheLastSlice(t *testing.T) {
	if out := runAlone(t, autostart); !strings.Contains(out, "\nleft: \n") {
		t.Errorf("files are left after the last slice:\n%s", out)
	}
}

const bare = alone + `
if PATH="$(dirname "$(command -v pergola)")" pergola up "$1" 2>&1; then echo "up succeeded"; fi
`

// TestUpNamesAllThatAServerNeeds starts one where nothing is installed.
func TestUpNamesAllThatAServerNeeds(t *testing.T) {
	out := runAlone(t, bare)
	for _, want := range []string{
		"2 things are missing:\n", "find crun or runc: not in PATH\n", "find catatonit: not in PATH\n",
		" catatonit crun\n", "its log is /var/log/pergola",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("up did not print %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "up succeeded") || strings.Count(out, "start the server:") != 1 ||
		strings.Count(out, "error: ") != 1 {
		t.Errorf("up succeeded, or says twice what it did:\n%s", out)
	}
}

const killed = alone + `
pergola up "$1"
server=$(server)
kill -9 "$server"
tail -f /dev/null --pid="$server"
if pergola ls 2>&1; then echo "ls succeeded"; fi
pergola exec alice -- ping -c1 -W5 bob
server=$(server)
kill -9 "$server"
tail -f /dev/null --pid="$server"
pergola down
left
pergola down
`

// TestKilledServerIsNoEmptyMachine kills the server under a network: commands that ask name the network, those that
// change it start the server again.
func TestKilledServerIsNoEmptyMachine(t *testing.T) {
	out := runAlone(t, killed)
	for _, want := range []string{
		"no server is running", "but a network runs on without one: hello\n", "; starting the server\n",
		"\nleft: \n", "nothing to do",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the commands did not print %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "ls succeeded") {
		t.Errorf("ls succeeded without a server:\n%s", out)
	}
}

// runAlone runs a script with the real binary, and gives what it printed.
func runAlone(t *testing.T, script string) string {
	t.Helper()
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
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", script, "sh",
		filepath.Join(testkit.ModuleRoot(t), "examples", "hello.yaml"))
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH")+":/usr/sbin:/sbin")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}
