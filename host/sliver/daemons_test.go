package sliver

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/model/slice"
)

// needProgram skips where a program is not installed, and fails in CI.
func needProgram(t *testing.T, path string) {
	t.Helper()
	if _, err := exec.LookPath(path); err != nil {
		skipOutsideCI(t, err.Error())
	}
}

// TestFRR runs zebra and ospfd unmodified, changes the configuration and writes it, as users do.
func TestFRR(t *testing.T) {
	needProgram(t, "/usr/lib/frr/zebra")
	r := newRuntime(t)
	prepare(t, r)
	s := spec("denver")
	s.Sysctls = map[string]string{"net.ipv4.ip_forward": "1"}
	s.Files = []slice.File{
		{Path: "/etc/frr/frr.conf", Mode: 0o640, Data: []byte("hostname denver\nrouter ospf\n ospf router-id 192.0.2.1\n")},
		{Path: "/etc/frr/vtysh.conf", Mode: 0o640, Data: []byte("service integrated-vtysh-config\n")},
		{Path: "/etc/frr/start", Mode: 0o755, Data: []byte("#!/bin/sh\n" +
			"/usr/lib/frr/zebra -d && /usr/lib/frr/staticd -d && /usr/lib/frr/ospfd -d && vtysh -b\n" +
			"exec sleep 1000\n")},
	}
	s.Command = []string{"/etc/frr/start"}
	id, _ := up(t, r, s)
	var got string
	await(t, "OSPF in FRR", func() bool {
		got = sh(t, r, id, "vtysh -c 'show ip ospf' 2>&1")
		return strings.Contains(got, "192.0.2.1")
	})
	got = sh(t, r, id, `vtysh -c 'configure terminal' -c 'ip route 198.51.100.0/24 blackhole' -c end \
	-c 'write memory' 2>&1;
		until ip route show | grep blackhole; do sleep 0.01; done
		cat /etc/frr/frr.conf; stat -c %U:%G /etc/frr/frr.conf; ps -eo user:12,args | grep [f]rr/`)
	for _, want := range []string{
		"ip route 198.51.100.0/24 blackhole", "blackhole 198.51.100.0/24", "frr:",
		"frr          /usr/lib/frr/zebra",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
}

func TestBIRD(t *testing.T) {
	needProgram(t, "/usr/sbin/bird")
	r := newRuntime(t)
	prepare(t, r)
	s := spec("denver")
	s.Files = []slice.File{{Path: "/etc/bird/bird.conf", Mode: 0o640, Data: []byte(
		"router id 192.0.2.1;\nprotocol device {}\n" +
			"protocol static { ipv4; route 198.51.100.0/24 blackhole; }\n" +
			"protocol kernel { ipv4 { export all; }; }\n")}}
	s.Command = []string{
		"bird", "-f", "-u", "bird", "-g", "bird", "-c", "/etc/bird/bird.conf", "-s", "/run/bird/bird.ctl",
	}
	id, _ := up(t, r, s)
	await(t, "BIRD's route in the kernel", func() bool {
		return strings.Contains(sh(t, r, id, "ip route"), "blackhole 198.51.100.0/24")
	})
	if got := sh(t, r, id, "birdc show status"); !strings.Contains(got, "up and running") {
		t.Error(got)
	}
}

// TestTools runs what users look at networks with.
func TestTools(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	id, _ := up(t, r, spec("denver"))
	for what, c := range map[string]struct{ command, want string }{
		"tcpdump": {
			"timeout 5 tcpdump -i lo -c 1 icmp 2>&1 & sleep 0.3; ping -c 1 127.0.0.1 >/dev/null; wait",
			"ICMP echo request",
		},
		"ping":      {"ping -c 1 -W 1 127.0.0.1", "1 received"},
		"netfilter": {"nft add table inet t && nft list tables", "table inet t"},
		"veth":      {"ip link add v0 type veth peer v1 && ip link show v0", "v0@v1"},
		"tun":       {"ip tuntap add dev tap0 mode tap && ip link show tap0", "tap0"},
		"qdisc": {
			"tc qdisc add dev lo root tbf rate 1mbit burst 10k latency 10ms && tc qdisc show dev lo; " +
				"tc qdisc del dev lo root",
			"tbf",
		},
		"iperf3":  {"iperf3 -s -1 -D; sleep 0.2; iperf3 -c 127.0.0.1 -n 1M 2>&1", "receiver"},
		"sockets": {"ss -tlnp >/dev/null && echo ok", "ok"},
	} {
		if got := sh(t, r, id, c.command); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", what, got)
		}
	}
	code, err := r.Exec(t.Context(), id, ExecRequest{
		Args: []string{"ping", "-c", "1", "127.0.0.1"}, User: "nobody",
	})
	if err != nil || code != 0 {
		t.Errorf("ping as nobody: %d, %v", code, err)
	}
}
