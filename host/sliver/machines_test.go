package sliver

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/pergola-net/pergola/lab/testkit"
)

// inChrootScript makes a machine as container builders and debootstrap users have it: a chroot, on an overlay, in a
// mount namespace whose root is elsewhere. $1 is an empty directory, $2 the program to run.
const inChrootScript = `set -e
mkdir "$1/upper" "$1/work" "$1/root"
mount -t tmpfs tmpfs "$1/upper" # an upper directory may not lie on an overlay
mkdir "$1/upper/u" "$1/upper/w"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper/u,workdir=$1/upper/w" "$1/root"
cp "$2" "$1/root/sliver.test"
cd "$1/root"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
mkdir -p var/tmp
exec chroot . /usr/bin/env SLIVER_IN_CHROOT=1 TMPDIR=/var/tmp /sliver.test -test.v -test.run "$3"`

// TestUnifiedCgroups repeats tests where version 2 of cgroups is all there is. On a hybrid machine it has no
// controllers there, but killing, pausing and being born in a group are the same.
func TestUnifiedCgroups(t *testing.T) {
	testkit.Root(t)
	if unifiedCgroups() {
		t.Skip("the other tests do it")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c",
		`mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec "$1" -test.v -test.run "$2"`, "sh", self,
		"^(TestLifeOfCommand|TestExec|TestExitIsTold|TestManyAtOnce|TestServerDies)$").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("%s", out)
}

// TestInChroot repeats tests in a chroot, where the kernel makes no user namespaces unless one gets out first.
func TestInChroot(t *testing.T) {
	testkit.Root(t)
	if os.Getenv("SLIVER_IN_CHROOT") != "" {
		t.Skip("already there")
	}
	chrooted, err := inChroot()
	if err != nil {
		t.Fatal(err)
	}
	if chrooted {
		t.Skip("the other tests do it: this machine is a chroot")
	}
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte(inChrootScript), 0o700); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private",
		"sh", script, dir, self,
		"^(TestLifeOf.*|TestExec|TestExecTerminal|TestRootFromTar|TestIsolation|TestFRR)$",
	).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("%s", out)
}
