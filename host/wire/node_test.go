package wire_test

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/model/slice"
)

func (l *lab) wantIn(name, command string, lines ...string) {
	l.Helper()
	out, err := l.exec(name, "sh", "-c", command)
	if err != nil {
		l.Fatalf("%s in %s: %v\n%s", command, name, err, out)
	}
	for _, line := range lines {
		want := !strings.HasPrefix(line, "!")
		if strings.Contains(out, strings.TrimPrefix(line, "!")) != want {
			l.Errorf("%s in %s: %q\n%s", command, name, line, out)
		}
	}
}

func TestConfigureNode(t *testing.T) {
	l := newLab(t)
	a := l.port("a", func(p *wire.Port) { p.Down = true }) // as when a sliver is made
	b := l.port("b", nil, "192.0.2.1/24", "2001:db8::2/64")
	l.must(l.Join(l.ctx, a, b))
	n := wire.Node{
		Router: true,
		Sysctls: map[string]string{
			"net.ipv4.conf.eth0.rp_filter": "2", "net.ipv4.fib_multipath_hash_policy": "1",
		},
		Loopbacks:  prefixes("198.51.100.1/32", "2001:db8:ff::1/128"),
		Interfaces: []wire.Interface{{Name: "eth0", Addresses: prefixes("192.0.2.2/24", "2001:db8::1/64")}},
		Routes: []slice.Route{
			{To: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("192.0.2.1")},
			{To: netip.MustParsePrefix("::/0"), Via: netip.MustParseAddr("2001:db8::2"), Interface: "eth0"},
			{To: netip.MustParsePrefix("203.0.113.0/24"), Blackhole: true},
			{To: netip.MustParsePrefix("2001:db8:dead::/48"), Blackhole: true},
			{To: netip.MustParsePrefix("198.51.100.128/25"), Interface: "eth0"},
		},
	}
	pid := l.node("a").pid
	for range 2 { // the second time, nothing is left to do
		l.must(l.ConfigureNode(l.ctx, pid, n))
		l.wantIn("a", "ip -o address", "192.0.2.2/24 brd 192.0.2.255", "2001:db8::1/64", "198.51.100.1/32",
			"2001:db8:ff::1/128", "!tentative")
		l.wantIn("a", "ip route; ip -6 route",
			"default via 192.0.2.1 dev eth0 proto static", "default via 2001:db8::2 dev eth0 proto static",
			"blackhole 203.0.113.0/24 proto static", "blackhole 2001:db8:dead::/48",
			"198.51.100.128/25 dev eth0 proto static scope link")
		l.wantIn("a", "sysctl net.ipv4.ip_forward net.ipv6.conf.all.forwarding net.ipv4.conf.eth0.rp_filter",
			"ip_forward = 1", "all.forwarding = 1", "rp_filter = 2")
		l.wantIn("a", "sysctl net.ipv4.igmp_max_memberships", "= 4096") // OSPF at more than 20 interfaces
	}
	l.must(l.SetUp(l.ctx, a, true))
	l.ping("a", "192.0.2.1")
	l.ping("a", "2001:db8::2")
	// Changed by the node's own processes: stays. Not wanted any more: goes.
	l.wantIn("a", "ip address add 10.9.9.9/32 dev lo; ip route add 10.8.0.0/16 dev eth0")
	n.Interfaces[0].Addresses = prefixes("192.0.2.3/24", "2001:db8::1/64")
	n.Loopbacks = n.Loopbacks[1:]
	n.Routes = n.Routes[1:3]
	n.Router = false
	l.must(l.ConfigureNode(l.ctx, pid, n))
	l.wantIn("a", "ip -o address", "192.0.2.3/24", "!192.0.2.2/24", "!198.51.100.1/32", "2001:db8::1/64",
		"10.9.9.9/32")
	l.wantIn("a", "ip route; ip -6 route", "!default via 192.0.2.1", "default via 2001:db8::2",
		"!198.51.100.128/25",
		"10.8.0.0/16", "!dead")
	l.wantIn("a", "sysctl net.ipv4.ip_forward", "ip_forward = 0")
}

func TestConfigureNodeRefusesForeignSysctls(t *testing.T) {
	l := newLab(t)
	for _, name := range []string{
		"kernel.panic", "net..", "net/../kernel/panic", "net.ipv4/../../kernel/panic", "/etc/passwd", "",
	} {
		err := l.ConfigureNode(l.ctx, l.node("a").pid, wire.Node{Sysctls: map[string]string{name: "1"}})
		if err == nil {
			t.Errorf("sysctl %q was accepted", name)
		}
	}
	err := l.ConfigureNode(l.ctx, l.node("a").pid, wire.Node{Sysctls: map[string]string{
		"net.ipv4.no_such_thing": "1",
	}})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestNodeThatIsGone(t *testing.T) {
	l := newLab(t)
	p := l.portOf("a")
	l.kill(l.node("a"))
	for what, err := range map[string]error{
		"AddPort":       l.AddPort(l.ctx, p),
		"ConfigureNode": l.ConfigureNode(l.ctx, p.PID, wire.Node{}),
	} {
		if !errors.Is(err, netns.ErrGone) {
			t.Errorf("%s: %v, want ErrGone", what, err)
		}
	}
}
