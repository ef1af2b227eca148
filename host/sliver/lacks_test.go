package sliver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/host/lack"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
)

// whats are the first words of lacks, and their packages.
func whats(lacks []lack.Lack) (all []string) {
	for _, l := range lacks {
		what, _, _ := strings.Cut(l.What, " of the node")
		all = append(all, strings.TrimSpace(what+" "+l.Package))
	}
	return all
}

func TestProgramsThatANodeWillNotHaveAreNamed(t *testing.T) {
	tools := t.TempDir()
	for name, mode := range map[string]os.FileMode{"run": 0o755, "text": 0o644} {
		if err := os.WriteFile(filepath.Join(tools, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	binds := []slice.Bind{{Source: tools, Target: "/srv/tools"}}
	files := []slice.File{{Path: "/bin/own", Data: []byte("#!/bin/sh")}}
	const inPath = " in PATH /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	for _, c := range []struct {
		node     slice.Node
		certain  []string
		doubtful []string
	}{
		{slice.Node{Command: []string{"sh", "-c", "nosuch"}}, nil, nil},
		{slice.Node{Command: []string{"/bin/sh"}}, nil, nil},
		{slice.Node{Command: []string{"usr/bin/env"}}, nil, nil},
		{slice.Node{Command: []string{"no-such-program"}}, []string{`find command "no-such-program"` + inPath}, nil},
		{slice.Node{Command: []string{"/opt/none/iperf3"}},
			[]string{`find command "/opt/none/iperf3" in the node iperf3`}, nil},
		{slice.Node{Command: []string{tools + "/run"}}, // the machine's, and not to be seen
			[]string{`find command "` + tools + `/run" in the node`}, nil},
		{slice.Node{Command: []string{"/srv/tools/run"}, Binds: binds}, nil, nil},
		{slice.Node{Command: []string{"/srv/tools/text"}, Binds: binds},
			[]string{`find command "/srv/tools/text" in the node`}, nil},
		{slice.Node{Command: []string{"run"}, Binds: binds, Env: map[string]string{"PATH": "/bin:/srv/tools"}}, nil, nil},
		{slice.Node{Command: []string{"own"}, Files: files}, nil, nil},
		{slice.Node{Command: []string{"/usr/bin/own"}, Files: files}, nil, nil},
		{slice.Node{Command: []string{"no-such-program"}, Rootfs: slice.Rootfs{Kind: slice.RootfsRegistry}}, nil, nil},
		{slice.Node{Kind: slice.Switch, Command: []string{"no-such-program"}}, nil, nil},
		{slice.Node{Binds: []slice.Bind{{Source: tools + "/none", Target: "/srv"}}},
			[]string{"bind " + tools + "/none: no such file or directory"}, nil},
		{slice.Node{Exec: []string{
			"no-such-program -x", "  /opt/none/tool&", "no-such-program|cat", // which are not there
			"true", "cd /tmp", "if no-such-program; then :; fi", "X=1 no-such-program", "f() { :; }",
			"f () { :; }", `"no-such-program"`, "$X", "./here", "[ -e /tmp ]", "", "ls -l", "/bin/ls",
			"env", "# words", "own x",
		}, Files: files}, nil, []string{
			`exec "no-such-program -x": find "no-such-program"` + inPath,
			`exec "  /opt/none/tool&": find "/opt/none/tool" in the node`,
			`exec "no-such-program|cat": find "no-such-program"` + inPath,
		}},
	} {
		c.node.Name = "a"
		if c.node.Kind == "" {
			c.node.Kind = slice.Host
		}
		certain, doubtful := (&Runtime{}).Lacks([]*slice.Node{&c.node})
		if diff := cmp.Diff(c.certain, whats(certain)) + cmp.Diff(c.doubtful, whats(doubtful)); diff != "" {
			t.Errorf("%v %v: -want +have:\n%s", c.node.Command, c.node.Exec, diff)
		}
	}
}

func TestSysctlsThatTheKernelDoesNotHaveAreNamed(t *testing.T) {
	testkit.Root(t)
	n := &slice.Node{Name: "a", Kind: slice.Host, Sysctls: map[string]string{
		"net.ipv4.ip_forward": "1", "net.ipv4.conf.eth1/7.rp_filter": "0", "net/ipv6/conf/all/forwarding": "1",
		"net.ipv4.neigh.eth1.gc_stale_time": "9", "kernel.msgmax": "8192", "fs.mqueue.msg_max": "9",
		"net.ipv4.no_such_setting": "1", "net.ipv4.conf.eth1.no_such_setting": "1",
		"net.bridge.no_such_setting": "1", "net.core.rmem_default_of_no_kernel": "1",
	}}
	other := &slice.Node{Name: "b", Kind: slice.Host, Sysctls: map[string]string{
		"net.ipv4.no_such_setting": "2", "net.ipv4.ip_forward": "0",
	}}
	certain, doubtful := (&Runtime{}).Lacks([]*slice.Node{n, other})
	const text = "the kernel gives a node no sysctl net."
	want := []string{
		text + "bridge.no_such_setting (modprobe br_netfilter brings it)",
		text + "core.rmem_default_of_no_kernel",
		text + "ipv4.conf.eth1.no_such_setting", text + "ipv4.no_such_setting",
		text + "ipv4.no_such_setting", // of the other node
	}
	if diff := cmp.Diff(want, whats(certain)); diff != "" || len(doubtful) > 0 {
		t.Errorf("-want +have, %v:\n%s", doubtful, diff)
	}
}
