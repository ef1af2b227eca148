package sliver

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/model/slice"
)

func TestDangerousDevicesAreKnown(t *testing.T) {
	for what, n := range map[string]number{
		"disk": {true, 8, 0}, "mem": {false, 1, 1}, "port": {false, 1, 4}, "kmsg": {false, 1, 11},
		"console": {false, 5, 1}, "tty1": {false, 4, 1}, "vcs": {false, 7, 0}, "mapper/control": {false, 10, 236},
		"input/event0": {false, 13, 64}, "sg0": {false, 21, 0}, "cpu/0/msr": {false, 202, 0},
		"userio": {false, 10, 240},
	} {
		if n.danger() == "" {
			t.Errorf("%s is not", what)
		}
	}
	for what, n := range map[string]number{
		"null": {false, 1, 3}, "tun": {false, 10, 200}, "kvm": {false, 10, 232}, "fuse": {false, 10, 229},
		"ppp": {false, 108, 0},
	} {
		if why := n.danger(); why != "" {
			t.Errorf("%s %s", what, why)
		}
	}
}

// A serial terminal is for nodes, unless it is a console.
func TestConsolesAreKnown(t *testing.T) {
	active := activeConsoles()
	all, err := filepath.Glob("/sys/class/tty/ttyS*/dev")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range active { // which may be others
		all = append(all, "/sys/class/tty/"+name+"/dev")
	}
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var n number
		if _, err := fmt.Sscanf(string(text), "%d:%d", &n.major, &n.minor); err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(filepath.Dir(path))
		if why := n.danger(); (why != "") != slices.Contains(active, name) {
			t.Errorf("%s %q, consoles are %s", name, why, active)
		}
	}
}

func TestMissingDevicesAreNamed(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n := &slice.Node{Name: "a", Kind: slice.Host, Devices: []slice.Device{
		{Source: "/dev/null", Target: "/dev/null"}, {Source: "/dev/no-such", Target: "/dev/x"},
		{Source: plain, Target: "/dev/y"},
	}}
	certain, _ := (&Runtime{}).Lacks([]*slice.Node{n})
	want := "device /dev/no-such: no such file or directory; device " + plain + ": it is not a device"
	if got := strings.Join(whats(certain), "; "); got != want {
		t.Errorf("lacks %s, want %s", got, want)
	}
	if got := bringer("/dev/vhost-net"); got != " (modprobe vhost_net brings it)" {
		t.Error(got)
	}
}

// What a sliver gets of the machine's devices is these, to be opened as the spec has it, and no more, whatever its root
// does.
func TestSliversGetTheDevicesOfTheirSpec(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	s := spec("denver")
	for _, d := range []struct{ target, access string }{
		{"/dev/both", ""}, {"/dev/more/read", "r"}, {"/dev/write", "w"},
	} {
		s.Devices = append(s.Devices, slice.Device{Source: "/dev/zero", Target: d.target, Access: d.access})
	}
	id, _ := up(t, r, s)
	for command, want := range map[string]string{
		"head -c 4 /dev/both | wc -c":                           "4",
		"echo x >/dev/both && echo ok":                          "ok",
		"head -c 4 /dev/more/read | wc -c":                      "4",
		"echo x >/dev/write && echo ok":                         "ok",
		"(echo x >/dev/more/read) 2>/dev/null || echo no":       "no",
		"head -c 4 /dev/write 2>/dev/null | wc -c":              "0",
		"chmod 666 /dev/write 2>/dev/null || echo no":           "no",
		"chown 0:0 /dev/write 2>/dev/null || echo no":           "no",
		"stat -c %t:%T /dev/both":                               "1:5",
		"mknod /tmp/zero c 1 5 2>/dev/null || echo no":          "no",
		"su nobody -s /bin/sh -c 'head -c 4 /dev/both' | wc -c": "4",
	} {
		if got := sh(t, r, id, command); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat("/dev/zero", &st); err != nil || st.Uid != 0 {
		t.Errorf("/dev/zero of the machine belongs to %d, %v", st.Uid, err)
	}

	// One that is dangerous has to be named by the machine's operator.
	disk := filepath.Join(r.fsDir(testSlice), "..", "disk") // not on a file system without devices
	if err := unix.Mknod(disk, unix.S_IFBLK|0o600, int(unix.Mkdev(259, 4095))); err != nil {
		t.Fatal(err)
	}
	s = spec("disk")
	s.Devices = []slice.Device{{Source: disk, Target: "/dev/disk"}}
	if _, err := r.Create(t.Context(), s); err == nil || !strings.Contains(err.Error(), "is a disk") {
		t.Errorf("a disk: %v", err)
	}
	s.Named = []string{disk}
	id, _ = up(t, r, s)
	if got := sh(t, r, id, "stat -c %F:%t /dev/disk"); got != "block special file:103" {
		t.Errorf("the disk is %q", got)
	}
}

// Capabilities are the node's own: they open no system call that the filter forbids, and nothing of the machine's.
func TestSliversGetTheCapabilitiesOfTheirSpec(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	plain, _ := up(t, r, spec("plain"))
	s := spec("denver")
	s.CapAdd = strings.Fields("IPC_LOCK IPC_OWNER LEASE MKNOD SETFCAP SYS_NICE SYS_RESOURCE SYS_TIME")
	id, _ := up(t, r, s)
	const bits = 1<<14 | 1<<15 | 1<<28 | 1<<27 | 1<<31 | 1<<23 | 1<<24 | 1<<25 // as in linux/capability.h
	for _, set := range []string{"CapEff", "CapBnd"} {
		had, has := capsOf(t, r, plain, set), capsOf(t, r, id, set)
		if has != had|bits || had&bits != 0 {
			t.Errorf("%s is %x, and %x without", set, has, had)
		}
	}
	for what, command := range map[string]string{
		"time": "date -s 2000-01-01", "mknod": "mknod /tmp/zero c 1 5", "mount": "mount -t tmpfs none /mnt",
		"hard limit": "ulimit -H -n 1000000", "user namespace": "unshare -U true",
		"real time": "chrt -f 1 true",
		"oom score": "echo -900 >/proc/self/oom_score_adj",
	} {
		if got := sh(t, r, id, command+" 2>&1"); !strings.Contains(got, "exit ") {
			t.Errorf("%s: %q worked: %s", what, command, got)
		}
	}
}

func capsOf(t *testing.T, r *Runtime, id ID, set string) (bits uint64) {
	t.Helper()
	text := sh(t, r, id, "awk '/"+set+"/ {print $2}' /proc/self/status")
	bits, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return bits
}
