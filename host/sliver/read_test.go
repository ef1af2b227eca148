package sliver

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/model/slice"
)

func TestFilesOfSliversAreReadInBounds(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	id, _ := up(t, r, spec("denver"))
	sh(t, r, id, `echo text >/root/file; chmod 640 /root/file; ln -s /root/file /root/link
ln -s ../../../../../etc/shadow /root/out; mkfifo /root/fifo; head -c 100 /dev/zero >/root/large
mkdir /root/dir; touch /root/dir/b /root/dir/a`)
	for _, name := range []string{"/root/file", "/root/link"} {
		f, err := r.ReadFile(id, name, 100)
		if err != nil || string(f.Data) != "text\n" || f.Mode != 0o640 {
			t.Errorf("%s is %q, mode %o, %v", name, f.Data, f.Mode, err)
		}
	}
	// The node's own /etc/shadow, which has no passwords.
	if f, err := r.ReadFile(id, "/root/out", 1<<20); err != nil || !strings.HasPrefix(string(f.Data), "root:*:") {
		t.Errorf("a link led out of the node: %d bytes, %v", len(f.Data), err)
	}
	if _, err := r.ReadFile(id, "/root/fifo", 100); err == nil {
		t.Error("a FIFO was read")
	}
	if _, err := r.ReadFile(id, "/root/large", 99); !errors.Is(err, ErrTooLarge) {
		t.Errorf("more was read than asked for: %v", err)
	}
	// To read the kernel's messages waits for the next one; and root may read more than the node.
	sh(t, r, id, "ln -s /proc/kmsg /root/kmsg; ln -s /sys/kernel/mm/transparent_hugepage/enabled /root/sys")
	for _, name := range []string{"/root/kmsg", "/root/sys", "/proc/uptime"} {
		if f, err := r.ReadFile(id, name, 1<<20); err == nil {
			t.Errorf("%s was read: %q", name, f.Data)
		}
	}
	if names, err := r.ReadDir(id, "/root/dir"); err != nil || strings.Join(names, " ") != "a b" {
		t.Errorf("the directory has %q, %v", names, err)
	}
	if names, err := r.ReadDir(id, "/root/none"); err != nil || len(names) != 0 {
		t.Errorf("a directory that is not there has %q, %v", names, err)
	}
}

func TestEtcFilesAreThoseThatWereWritten(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	id, _ := up(t, r, spec("denver"))
	none := func(string) bool { return false }
	before, err := r.EtcFiles(id, 1<<20, none)
	if err != nil {
		t.Fatal(err)
	}
	sh(t, r, id, "echo one >/etc/new; mkdir /etc/own /etc/aside; echo two >/etc/own/file; "+
		"echo x >/etc/aside/file; ln -s /etc/shadow /etc/own/link; mkfifo /etc/own/fifo; "+
		"rm /etc/debian_version")
	all, err := r.EtcFiles(id, 1<<20, func(name string) bool { return name == "/etc/aside" })
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range all {
		got[f.Path] = string(f.Data)
	}
	for _, f := range before {
		delete(got, f.Path)
	}
	if len(got) != 2 || got["/etc/new"] != "one\n" || got["/etc/own/file"] != "two\n" {
		t.Errorf("what was written is %q", got)
	}
	if _, err := r.EtcFiles(id, 6, none); !errors.Is(err, ErrTooLarge) {
		t.Errorf("more was read than asked for: %v", err)
	}
}

func TestDialConnectsToSocketsOfSlivers(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	needProgram(t, "/usr/sbin/bird")
	s := spec("denver")
	s.Command = []string{"bird", "-f", "-c", "/etc/bird/bird.conf", "-s", "/run/bird/bird.ctl"}
	const config = "router id 192.0.2.1;\nprotocol device {}\n"
	s.Files = []slice.File{{Path: "/etc/bird/bird.conf", Data: []byte(config)}}
	id, _ := up(t, r, s)
	var got string
	await(t, "BIRD's socket", func() bool {
		c, err := r.Dial(t.Context(), id, "/run/bird/bird.ctl")
		if err != nil {
			return false
		}
		defer c.Close()
		buf := make([]byte, 100)
		n, err := io.ReadAtLeast(c, buf, 4)
		got = string(buf[:n])
		return err == nil
	})
	if !strings.HasPrefix(got, "0001 BIRD") {
		t.Errorf("it says %q", got)
	}
	if _, err := r.Dial(t.Context(), id, "/etc/passwd"); err == nil {
		t.Error("connected to a file")
	}
}
