package sliver

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pergola-net/pergola/model/slice"
)

// TestIsolation tries from inside what must not work, as the sliver's root.
func TestIsolation(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	// Things outside that a sliver must not see: a second sliver, and a file of the server.
	secret := filepath.Join(r.cfg.StateDir, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	other := spec("other")
	other.Files = []slice.File{{Path: "/root/secret", Data: []byte("secret")}}
	up(t, r, other)
	id, _ := up(t, r, spec("denver"))
	denied := map[string]string{
		"passwords":        "grep -v '^[^:]*:[*]:' /etc/shadow",
		"ssh keys":         "ls /etc/ssh",
		"private keys":     "ls /etc/ssl/private",
		"state directory":  "cat " + secret,
		"machine id":       "cat /etc/machine-id",
		"sysrq":            "echo h > /proc/sysrq-trigger",
		"core pattern":     "echo x > /proc/sys/kernel/core_pattern",
		"global sysctl":    "echo 1 > /proc/sys/vm/drop_caches",
		"sysfs":            "echo 1 > /sys/kernel/mm/ksm/run",
		"sysfs of devices": "echo 0 > /sys/class/net/lo/queues/rx-0/rps_cpus",
		"program":          "touch /usr/bin/true",
		"passwd":           "echo x >> /etc/passwd",
		"hosts":            "echo x >> /etc/hosts",
		"init":             "echo x >> /.pergola/init",
		"mknod":            "mknod /tmp/sda b 8 0",
		"mknod of memory":  "mknod /tmp/mem c 1 1",
		"mount":            "mount -t tmpfs none /mnt",
		"bind mount":       "mount --bind /usr /mnt",
		"unmount":          "umount /etc/hosts",
		"remount":          "mount -o remount,rw /usr",
		"unshare":          "unshare -m true",
		"user namespace":   "unshare -U true",
		"enter namespace":  "nsenter -t 1 -m true",
		"kexec":            "grep -q . /proc/kcore",
		"kernel log":       "dmesg",
		"chmod /dev/null":  "chmod 600 /dev/null",
		"chown /dev/null":  "chown 0:0 /dev/null",
		"time":             "date -s 2000-01-01",
		"keys":             "grep -q . /proc/keys",
	}
	for what, command := range denied {
		if got := sh(t, r, id, command+" 2>&1"); !strings.Contains(got, "exit ") {
			t.Errorf("%s: %q worked: %s", what, command, got)
		}
	}
	for what, c := range map[string]struct{ command, want string }{
		"nothing of the machine":   {"ls -A /root /home /var/lib /var/log | grep -v ^/ | tr -d 'a\\n'", "frrfrr"},
		"accounts are locked":      {"grep -c '^root:[*]:' /etc/shadow", "1"},
		"accounts are valid":       {"/usr/sbin/unix_chkpwd root chkexpiry >/dev/null && echo ok", "ok"},
		"processes":                {"ps ax | grep -c '[p]ergola/init'", "1"},
		"interfaces":               {"ls /sys/class/net", "lo"},
		"nobody else's root files": {"find / -xdev -name secret 2>/dev/null", ""},
		"own directories":          {"touch /run/a /var/lib/a /tmp/a /root/a /home/a /etc/a /a && echo ok", "ok"},
		"seccomp":                  {"grep Seccomp: /proc/self/status | tr -d '\\t'", "Seccomp:2"},
		"no new privileges":        {"grep NoNew /proc/self/status | tr -d '\\t'", "NoNewPrivs:1"},
		"devices": {
			"ls /dev | grep -v core | tr '\\n' ' '",
			"fd full mqueue net null ptmx pts random shm stderr stdin stdout tty urandom zero",
		},
		"ping for everybody": {"sysctl -n net.ipv4.ping_group_range | tr '\\t' ' '", "0 65535"},
		"other user":         {"touch /tmp/b && chown frr /tmp/b && stat -c %U /tmp/b", "frr"},
	} {
		if got := sh(t, r, id, c.command); got != c.want {
			t.Errorf("%s: got %q, want %q", what, got, c.want)
		}
	}
	if fi, err := os.Stat("/dev/null"); err != nil || fi.Mode().Perm() != 0o666 ||
		fi.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("/dev/null of the machine changed: %v %v", fi, err)
	}
}

func TestLimits(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	s := spec("denver")
	s.PIDs, s.Memory, s.CPU, s.CPUPeriod = 20, 32<<20, 0.5, 10*time.Millisecond
	id, _ := up(t, r, s)
	if have := quotaOf(t, r, id); have != "5000 10000" {
		t.Errorf("the processor's quota and period are %q", have)
	}
	// The shell ends what it started: there may be no room for another command.
	got := sh(t, r, id, "trap 'kill $all; wait' EXIT; "+
		"for i in $(seq 50); do sleep 100 >/dev/null 2>&1 & all=\"$all $!\"; done")
	if !strings.Contains(got, "Cannot fork") {
		t.Errorf("fifty processes: %q", got)
	}
	if got := sh(t, r, id, "pgrep -c sleep || true"); got != "0" {
		t.Errorf("%s sleep on", got)
	}
	if got := sh(t, r, id, "head -c 100M /dev/zero | tail -c 100M | wc -c"); got == "104857600" {
		t.Error("could use 100 MiB of 32")
	}
	if o := observe(t, r, id, Running); o.PID == 0 {
		t.Error("no process")
	}
}

// quotaOf reads a sliver's processor time and the period of that, in us.
func quotaOf(t *testing.T, r *Runtime, id ID) string {
	t.Helper()
	var files []string
	switch g := r.groups.(type) {
	case *cgroups1:
		dir := g.dir("cpu", r.groupOf(id))
		files = []string{filepath.Join(dir, "cpu.cfs_quota_us"), filepath.Join(dir, "cpu.cfs_period_us")}
	case *cgroups2:
		files = []string{filepath.Join(g.dir(r.groupOf(id)), "cpu.max")}
	}
	var words []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		words = append(words, strings.Fields(string(text))...)
	}
	return strings.Join(words, " ")
}

// TestFullDisk fills the file system of a slice: its slivers suffer, new ones fail and leave nothing, and all can be
// removed.
func TestFullDisk(t *testing.T) {
	r := newRuntime(t)
	r.cfg.SliceBytes = 1 << 20
	prepare(t, r)
	id, _ := up(t, r, spec("denver"))
	if got := sh(t, r, id, "cat /dev/zero > /tmp/fill"); !strings.Contains(got, "No space left") {
		t.Errorf("filling: %q", got)
	}
	s := spec("boston")
	s.Files = []slice.File{{Path: "/etc/big", Data: make([]byte, 1<<20)}}
	if _, err := r.Create(t.Context(), s); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("new sliver: %v", err)
	}
	if exists(r.nodeDir(s.ID)) || exists(r.filesDir(s.ID)) {
		t.Error("the failed sliver left something")
	}
	if err := r.Note(id, "a", "b"); err != nil {
		t.Errorf("note: %v", err)
	}
}

func TestWriteFilesStaysInside(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	id, _ := up(t, r, spec("denver"))
	outside := filepath.Join(r.cfg.StateDir, "outside")
	if err := os.Mkdir(outside, 0o777); err != nil {
		t.Fatal(err)
	}
	sh(t, r, id, "ln -s "+outside+" /tmp/abs; ln -s ../../../../../../../.."+outside+" /tmp/rel; "+
		"ln -s /proc/1/root"+outside+" /tmp/magic; ln -s "+outside+"/f /tmp/f")
	for _, path := range []string{
		"/tmp/abs/f", "/tmp/rel/f", "/tmp/magic/f", "/tmp/f", "/../../../../.." + outside + "/f",
	} {
		err := r.WriteFiles(t.Context(), id, []slice.File{{Path: path, Data: []byte("x")}})
		if exists(filepath.Join(outside, "f")) {
			t.Fatalf("%s: escaped (%v)", path, err)
		}
	}
	if err := r.WriteFiles(t.Context(), id, []slice.File{
		{Path: "/etc/frr/frr.conf", Mode: 0o640, Data: []byte("hostname denver\n")},
		{Path: "/new/dir/file", Data: []byte("x")},
	}); err != nil {
		t.Fatal(err)
	}
	got := sh(t, r, id, "stat -c '%U %a' /etc/frr/frr.conf /new/dir/file | tr '\\n' ' '; "+
		"ls -A /tmp /etc/frr | grep pergola")
	if !strings.HasPrefix(got, "frr 640 root 644") || strings.Contains(got, ".pergola-") {
		t.Errorf("files: %q", got)
	}
}
