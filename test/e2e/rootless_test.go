package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pergola-net/pergola/lab/testkit"
)

// ordinary is the id of a user and a group that no machine has.
const ordinary = 61501

// asUser runs a script with the real binary as an ordinary user, with a home and a session of its own, and gives what
// it printed. Nothing of the user may run afterwards, and nothing may be left in the session's directory.
func asUser(t *testing.T, script string, args ...string) string {
	t.Helper()
	return asUserOn(t, "", script, args...)
}

// asUserOn is asUser on a machine of its own, as far as network and mounts go, which root's script sets up.
func asUserOn(t *testing.T, setUp, script string, args ...string) string {
	t.Helper()
	testkit.Root(t)
	testkit.UserNamespaces(t)
	dir := testkit.TempState(t)
	testkit.LeakCheck(t, dir)
	home, session := filepath.Join(dir, "home"), filepath.Join(dir, "session")
	for _, d := range []string{home, session} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(d, ordinary, ordinary); err != nil {
			t.Fatal(err)
		}
	}
	// The checkout may be where other users do not get.
	data, err := os.ReadFile(pergola(t))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "pergola"), data, 0o755)
	}
	if err == nil {
		examples := os.DirFS(filepath.Join(testkit.ModuleRoot(t), "examples"))
		err = os.CopyFS(filepath.Join(dir, "examples"), examples)
	}
	if err != nil {
		t.Fatal(err)
	}
	command := func(ctx context.Context, setUp, script string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", script, "sh"}, args...)...)
		cmd.Dir = home
		cmd.Env = []string{"HOME=" + home, "XDG_RUNTIME_DIR=" + session, "NO_COLOR=1",
			"EXAMPLES=" + filepath.Join(dir, "examples"), "PATH=" + dir + ":/usr/sbin:/usr/bin:/sbin:/bin"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinary, Gid: ordinary}}
		cmd.WaitDelay = 10 * time.Second // of a script that failed, something may hold the output
		if setUp != "" {
			id := strconv.Itoa(ordinary)
			user := append([]string{"setpriv", "--reuid", id, "--regid", id, "--clear-groups"}, cmd.Args...)
			cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", setUp + "\n\"$@\"", "sh"}, user...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
		}
		return cmd
	}
	t.Cleanup(func() {
		if out, err := command(context.Background(), "", "pergola down --all").CombinedOutput(); t.Failed() {
			log, _ := os.ReadFile(filepath.Join(home, ".local/state/pergola/log/server.log"))
			t.Logf("clean up: %v\n%s\nthe server's log:\n%s", err, out, log)
		}
		if left := processesOf(t, ordinary); len(left) > 0 {
			t.Errorf("of the user still run: %v", left)
		}
		if left, err := os.ReadDir(session); err != nil || len(left) > 0 {
			t.Errorf("left in the session's directory: %v (%v)", left, err)
		}
	})
	out, err := command(t.Context(), setUp, "set -eu\n"+script, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// processesOf lists the processes of a user, once those that end have ended.
func processesOf(t *testing.T, uid uint32) (left []string) {
	t.Helper()
	_ = testkit.Poll(func() error {
		left = nil
		all, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well formed
		for _, dir := range all {
			info, err := os.Stat(dir)
			if err != nil || info.Sys().(*syscall.Stat_t).Uid != uid {
				continue
			}
			line, err := os.ReadFile(dir + "/cmdline") // of a zombie, it is empty
			if err == nil && len(line) > 0 {
				words := strings.ReplaceAll(string(line), "\x00", " ")
				left = append(left, filepath.Base(dir)+" "+words)
			}
		}
		if len(left) > 0 {
			return errors.New("some run")
		}
		return nil
	}, 10*time.Second) // the caller says what is left
	return left
}

const rootlessRouters = `
pergola up "$EXAMPLES/abilene.graphml" --name abilene --daemon frr --routing ospf --wait
pergola check abilene --all-pairs
test "$(pergola exec denver -- hostname)" = denver
pergola link down denver:eth1--seattle:eth2
pergola wait
pergola check abilene --all-pairs
pergola link up denver:eth1--seattle:eth2
pergola link set denver:eth2--sunnyvale:eth3 --rate 10Mbit
pergola inspect | grep 'denver:eth2.*10 Mbit/s'
pergola exec denver -- timeout 60 sh -c 'while :; do date >/tmp/now; done' >/dev/null 2>&1 &
until pergola exec denver -- test -e /tmp/now; do :; done
first=$(pergola node ls --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["denver"]["pid"])')
pergola node pause denver
pergola node ls | grep 'denver .*paused'
for process in /proc/[0-9]*; do # what exec has brought there, too
	[ "$(readlink $process/ns/pid)" != "$(readlink /proc/$first/ns/pid)" ] || cut -d' ' -f3 $process/stat
done | grep -v '[ZD]' | sort | uniq -c | sed 's/^ *[0-9]*/in state/'
pergola node resume denver
pergola exec denver -- pkill timeout
pergola node stop seattle
pergola node start seattle
pergola wait
pergola check abilene --all-pairs

# Killed, the server is found again with all that it left.
kill -9 "$(pergola version --json | tr -d ' \n' | sed 's/.*"pid":\([0-9]*\).*/\1/')"
if pergola ls; then echo "ls started a server"; fi
test "$(pergola exec denver -- hostname)" = denver
pergola ls | grep 'abilene .*up .*11/11'
pergola check abilene --all-pairs
pergola down
`

// TestAnOrdinaryUserHasRouters: no root, no group, no setuid program.
func TestAnOrdinaryUserHasRouters(t *testing.T) {
	out := asUser(t, rootlessRouters)
	for _, want := range []string{
		"without root's rights", "all 220 checks hold", "but its networks may run on", "abilene is down",
		"in state T\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the commands did not print %q:\n%s", want, out)
		}
	}
	if strings.Count(out, "in state") != 1 {
		t.Errorf("not all processes of a paused node were stopped:\n%s", out)
	}
}

// frames sends a frame of an EtherType that nobody else has out of each interface, or waits for one on each.
const frames = `import socket, sys
what, names = sys.argv[1], sys.argv[2:]
for name in names:
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88b5))
    s.bind((name, 0x88b5))
    frame = b"\xff" * 6 + b"\x02\x00\x00\x00\x00\x01" + b"\x88\xb5" + name.encode().ljust(60, b".")
    if what == "wait":
        s.settimeout(20)
        print("got", name, s.recv(2000)[14:].rstrip(b".\x00").decode(), flush=True)
    else:
        s.send(frame)
`

const rootlessFrames = `
printf '%s' "$1" >frames.py
cat >any.yaml <<END
name: any
nodes:
  hub: {kind: host, files: {/frames.py: {source: frames.py}}}
  a: {kind: host, files: {/frames.py: {source: frames.py}}}
  b: {kind: host, files: {/frames.py: {source: frames.py}}}
  c: {kind: host, files: {/frames.py: {source: frames.py}}}
  sw: {kind: switch}
links: [[hub, a], [hub, b], [hub, sw], [sw, c]]
END
pergola up any.yaml
for node in a b c; do
	pergola exec $node -- python3 /frames.py wait eth1 >$node.out &
done
for try in $(seq 100); do
	pergola exec hub -- python3 /frames.py send eth1 eth2 eth3
	grep -qs got a.out && grep -qs got b.out && grep -qs got c.out && break
	sleep 0.1
done
wait
cat a.out b.out c.out
pergola down
`

// TestAnyProtocolCrossesLinksOfAnOrdinaryUser: RiaS, sections 1 and 2, on three interfaces, one of them into a switch.
func TestAnyProtocolCrossesLinksOfAnOrdinaryUser(t *testing.T) {
	out := asUser(t, rootlessFrames, frames)
	if !strings.Contains(out, "got eth1 eth1\ngot eth1 eth2\ngot eth1 eth3\n") {
		t.Errorf("not all frames came:\n%s", out)
	}
}

const rootlessRefusals = `
refused() { if pergola "$@" 2>&1; then echo "$* succeeded"; fi; }
refused up "$EXAMPLES/program.yaml"
refused up "$EXAMPLES/rsvp.yaml"
refused up "$EXAMPLES/classes.yaml"
refused up "$EXAMPLES/outside.yaml"
refused server --listen 192.0.2.1
pergola up "$EXAMPLES/hello.yaml"
refused link set alice:eth1--gateway:eth1 --police 10Mbit
pergola exec alice -- ping -c1 -W5 bob
pergola down --purge
find "$HOME" -name '*pergola*'
`

// TestAnOrdinaryUserIsToldWhatThereIsNot: what takes root's rights is refused before anything is made.
func TestAnOrdinaryUserIsToldWhatThereIsNot(t *testing.T) {
	out := asUser(t, rootlessRefusals)
	if n := strings.Count(out, "this host is an ordinary user's, without root's rights"); n < 5 {
		t.Errorf("said %d times why not:\n%s", n, out)
	}
	for _, not := range []string{"succeeded", strconv.Itoa(ordinary) + "/.local"} {
		if strings.Contains(out, not) {
			t.Errorf("the commands printed %q:\n%s", not, out)
		}
	}
	if !strings.Contains(out, "can be no member of a cluster") || !strings.Contains(out, "bytes from bob") {
		t.Errorf("the commands printed:\n%s", out)
	}
}

const rootlessRunc = `
pergola server --runtime runc --exit-when-idle 2>server.log &
server=$!
for try in $(seq 100); do [ -S "$XDG_RUNTIME_DIR/pergola/pergola.sock" ] && break; sleep 0.1; done
cat server.log
pergola up "$EXAMPLES/hello.yaml"
pergola exec alice -- ping -c1 -W5 bob
pergola down
wait $server
`

// TestAnOrdinaryUserHasRunc: crun is preferred where it is there.
func TestAnOrdinaryUserHasRunc(t *testing.T) {
	if out := asUser(t, rootlessRunc); !strings.Contains(out, "bytes from bob") {
		t.Errorf("alice does not reach bob:\n%s", out)
	}
}

// outsideOfUser makes /dev/net/tun what udev makes it, and another machine, which has a server.
const outsideOfUser = `set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /mnt
mknod -m 666 /mnt/tun c 10 200
mount --bind /mnt/tun /dev/net/tun
ip link set lo up
unshare --net sleep 60 &
other=$!
while [ "$(readlink /proc/$other/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do :; done
ip link add e0 type veth peer name e1 netns $other
ip addr add 198.51.100.2/24 dev e0
ip link set e0 up
nsenter --net --target $other ip addr add 198.51.100.1/24 dev e1
nsenter --net --target $other ip link set e1 up
ip route add default via 198.51.100.1
echo hello from outside >/mnt/hello
nsenter --net --target $other timeout 60 busybox nc -l -p 7777 </mnt/hello >/dev/null &
server=$!
trap 'kill $other $server 2>/dev/null || :' EXIT
`

const rootlessOutside = `
cat >out.yaml <<END
name: out
nodes: {client: {outside: true}, lonely: {kind: host}}
links: [[client, lonely]]
END
pergola up out.yaml
pergola exec client -- python3 -c 'import socket
print("the client reads:", socket.create_connection(("198.51.100.1", 7777), 20).recv(99).decode())'
if pergola exec lonely -- ping -c1 -W1 198.51.100.1; then echo "lonely gets out"; fi
pergola down
`

// TestNodesOfAnOrdinaryUserReachTheOutside by pasta.
func TestNodesOfAnOrdinaryUserReachTheOutside(t *testing.T) {
	out := asUserOn(t, outsideOfUser, rootlessOutside)
	if !strings.Contains(out, "the client reads: hello from outside") || strings.Contains(out, "lonely gets out") {
		t.Errorf("the commands printed:\n%s", out)
	}
}

const rootlessFiles = `
mkdir -p root/bin root/proc root/sys root/dev root/etc root/keep
cp "$(command -v busybox)" root/bin/
for applet in sh cat ls ping sleep touch; do ln -s busybox root/bin/$applet; done
tar --owner=1000 --group=1000 -C root -cf image.tar .
echo "the user's file" >file
cat >files.yaml <<END
name: files
nodes:
  dir: {rootfs: root, cmd: [sleep, "600"], binds: ["file:/file:ro"]}
  tar: {rootfs: image.tar, cmd: [sleep, "600"], volumes: ["kept:/keep"]}
links: [[dir, tar]]
END
pergola up files.yaml
pergola exec dir -- cat /file
pergola exec tar -- ls -lnd /bin
pergola exec tar -- touch /keep/me
pergola exec tar -- ping -c1 -W5 dir
pergola down
pergola up files.yaml
pergola exec tar -- ls /keep
pergola down --volumes
find "$HOME/.local" -name me
`

// TestFilesOfAnOrdinaryUser: root file systems, whose files all belong to the node's root, binds and volumes.
func TestFilesOfAnOrdinaryUser(t *testing.T) {
	out := asUser(t, rootlessFiles)
	for _, want := range []string{"\nthe user's file\n", " 0        0 ", "bytes from ", "\nme\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("the commands did not print %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "/me\n") {
		t.Errorf("the volume is still there:\n%s", out)
	}
}

const rootlessKilled = `
server() { pergola version --json | tr -d ' \n' | sed 's/.*"pid":\([0-9]*\).*/\1/'; }
holder() { cut -d' ' -f1 "$XDG_RUNTIME_DIR/pergola/namespaces"; }
pergola up "$EXAMPLES/hello.yaml"

# The server alone holds the namespaces. A second one does not start, but there is a holder again.
server=$(server)
kill -9 $(holder)
if pergola server 2>&1; then echo "two servers"; fi
kill -9 $server
pergola exec alice -- ping -c1 -W5 bob
pergola ls | grep 'hello .*up'

# Both: nobody finds the nodes any more. The next server ends them.
kill -9 $(holder) $(server)
pergola up "$EXAMPLES/hello.yaml"
for try in $(seq 100); do pergola exec alice -- ping -c1 -W5 bob && break; done
pergola down
`

// TestKilledProcessesOfAnOrdinaryUser: whichever is killed, what runs is found again, or ended.
func TestKilledProcessesOfAnOrdinaryUser(t *testing.T) {
	out := asUser(t, rootlessKilled)
	if strings.Contains(out, "two servers") || strings.Count(out, "bytes from bob") != 2 {
		t.Errorf("the commands printed:\n%s", out)
	}
}

const rootlessTurns = `
echo '{name: other, nodes: {a: {kind: host}}}' >other.yaml
pergola up other.yaml
# The next server starts while the one before ends.
pergola down other & pergola up "$EXAMPLES/hello.yaml" || pergola up "$EXAMPLES/hello.yaml"
wait
kill -9 "$(pergola version --json | tr -d ' \n' | sed 's/.*"pid":\([0-9]*\).*/\1/')"
pergola exec alice -- ping -c1 -W5 bob
pergola down --all
mkdir bin
for program in nsenter sh; do ln -s "$(command -v $program)" bin/; done
if PATH=$PWD/bin:$(dirname "$(command -v pergola)") pergola up "$EXAMPLES/hello.yaml"; then echo "up without crun"; fi
pergola ls
pergola up "$EXAMPLES/hello.yaml"
pergola down --all
`

// TestServersOfAnOrdinaryUserTakeTurns: none is without a holder, and one that could not start leaves none.
func TestServersOfAnOrdinaryUserTakeTurns(t *testing.T) {
	out := asUser(t, "set +e\n"+rootlessTurns+"true")
	if !strings.Contains(out, "bytes from bob") || strings.Contains(out, "up without crun") ||
		!strings.Contains(out, "find crun or runc: not in PATH") || strings.Contains(out, "may run on") {
		t.Errorf("the commands printed:\n%s", out)
	}
}

// TestAnOrdinaryUserWhereSomethingIsMountedBelowEtc, as it is in containers.
func TestAnOrdinaryUserWhereSomethingIsMountedBelowEtc(t *testing.T) {
	out := asUserOn(t, "mount --make-rprivate /; mount --bind /etc/hostname /etc/hostname; ip link set lo up", `
pergola up "$EXAMPLES/hello.yaml"
pergola exec alice -- ping -c1 -W5 bob
pergola exec gateway -- sh -c 'test -e /etc/passwd; test ! -e /etc/frr/daemons; cat /etc/hostname'
pergola down
`)
	if !strings.Contains(out, "bytes from bob") || !strings.Contains(out, "\ngateway\n") {
		t.Errorf("the commands printed:\n%s", out)
	}
}
