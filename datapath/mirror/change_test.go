package mirror

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pergola-net/pergola/datapath/fib"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/testkit"
)

// What the kernel does to IPv4 routes when a link or an address goes, it does not announce.
func TestWhatTheKernelDoesWithoutAWord(t *testing.T) {
	const static = "ip route add 192.0.2.0/24 via 10.0.0.2; ip -6 route add 2001:db8:a::/48 via 2001:db8::2"
	for title, s := range map[string]story{
		"link down and up": {
			{static, []string{"192.0.2.1 10.0.0.2@100", "2001:db8:a::1 2001:db8::2@100"}},
			{"ip link set eth0 down", []string{"192.0.2.1 nowhere", "10.0.0.7 nowhere", "10.0.0.1 local", "2001:db8:a::1 nowhere"}},
			{"ip link set eth0 up", []string{"192.0.2.1 nowhere", "10.0.0.7 link@100"}},
			{static, []string{"192.0.2.1 10.0.0.2@100", "2001:db8:a::1 2001:db8::2@100"}},
			{"ip link set eth0 down; ip link set eth0 up", []string{"192.0.2.1 nowhere", "10.0.0.7 link@100"}},
		},
		"one path of several": {
			{"ip route add 192.0.2.0/24 nexthop via 10.0.0.2 nexthop via 10.0.1.2; ip route add 192.0.2.0/24 via 10.0.2.2 metric 9", []string{"192.0.2.1 10.0.0.2@100*128 10.0.1.2@101*128"}},
			{"ip link set eth0 down", []string{"192.0.2.1 10.0.1.2@101"}},
			{"ip link set eth0 up", []string{"192.0.2.1 10.0.0.2@100*128 10.0.1.2@101*128"}},
			{"ip link set eth0 down; ip link set eth1 down", []string{"192.0.2.1 10.0.2.2@102"}},
		},
		"address deleted": {
			{"ip addr add 172.16.0.1/32 dev eth2; ip route add 192.0.2.0/24 via 10.0.0.2 src 172.16.0.1; ip route add 192.0.2.0/24 via 10.0.1.2 metric 7", []string{"192.0.2.1 10.0.0.2@100", "172.16.0.1 local"}},
			{"ip addr del 172.16.0.1/32 dev eth2", []string{"192.0.2.1 10.0.1.2@101", "172.16.0.1 nowhere"}},
			{"ip addr add 10.9.0.1/24 dev eth1; ip addr del 10.0.1.1/24 dev eth1", []string{"192.0.2.1 10.0.1.2@101", "10.0.1.7 nowhere", "10.0.1.1 nowhere"}},
			{"ip addr del 10.9.0.1/24 dev eth1", []string{"192.0.2.1 nowhere"}}, // the last one
		},
		"address back": {
			{"ip route add 192.0.2.0/24 nexthop via 10.0.0.2 nexthop via 10.0.1.2", []string{"192.0.2.1 10.0.0.2@100*128 10.0.1.2@101*128"}},
			{"ip addr del 10.0.1.1/24 dev eth1", []string{"192.0.2.1 10.0.0.2@100"}},
			{"ip addr add 10.0.1.1/24 dev eth1", []string{"192.0.2.1 10.0.0.2@100*128 10.0.1.2@101*128"}},
		},
		"MTU too small for a protocol": {
			{static, []string{"192.0.2.1 10.0.0.2@100", "2001:db8:a::1 2001:db8::2@100"}},
			{"ip link set eth0 mtu 1000", []string{"192.0.2.1 10.0.0.2@100", "2001:db8:a::1 nowhere"}},
			// its addresses went
			{"ip link set eth0 mtu 1500", []string{"192.0.2.1 10.0.0.2@100", "2001:db8::7 nowhere"}},
		},
		"renamed": {
			{static, []string{"192.0.2.1 10.0.0.2@100"}},
			{"ip link set eth0 down; ip link set eth0 name uplink; ip link set uplink up", []string{"10.0.0.7 link@100"}},
			{"ip route add 192.0.2.0/24 via 10.0.0.2", []string{"192.0.2.1 10.0.0.2@100"}},
		},
		"IPv6 off": {
			{static, []string{"2001:db8:a::1 2001:db8::2@100"}},
			{"sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1", []string{"2001:db8:a::1 nowhere", "2001:db8::7 nowhere"}},
		},
	} {
		t.Run(title, func(t *testing.T) { s.run(newLab(t)) })
	}
}

func TestLossOfCarrier(t *testing.T) {
	l := newLab(t)
	l.script("sysctl -qw net.ipv4.conf.all.ignore_routes_with_linkdown=1; " +
		"ip route add 192.0.2.0/24 via 10.0.0.2; ip route add 192.0.2.0/24 via 10.0.1.2 metric 9")
	story{{"true", []string{"192.0.2.1 10.0.0.2@100"}}}.run(l)
	l.inFar("ip link set port0 down")
	l.leads("192.0.2.1", "10.0.1.2@101")
	l.synced()
	l.inFar("ip link set port0 up")
	l.leads("192.0.2.1", "10.0.0.2@100")
	l.synced()
}

func (l *lab) inFar(s string) {
	l.Helper()
	if err := netns.In(l.far, func() error { return sh(s) }); err != nil {
		l.Fatal(err)
	}
}

// A user may make an interface with the ifindex of one that he deleted. It leads nowhere that the mirror knows.
func TestInterfaceDeletedOrMovedByTheUser(t *testing.T) {
	for title, away := range map[string]string{
		"deleted": "ip link del eth0",
		"moved":   "unshare -n sleep 60 & pid=$!; sleep 0.2; ip link set eth0 netns $pid; kill $pid",
	} {
		t.Run(title, func(t *testing.T) {
			l := newLab(t)
			l.synced()
			index := 0
			for i, port := range l.legs {
				if port == l.ports[0] {
					index = i
				}
			}
			l.leads("10.0.0.7", "link@100")
			l.script(away)
			l.leads("10.0.0.7", "nowhere")
			l.script(fmt.Sprintf("ip link add forged index %d type veth peer name other; "+
				"ip link set forged up; ip link set other up; "+
				"ip addr add 10.0.0.1/24 dev forged", index))
			l.leads("10.0.0.7", "link@0")
			l.synced()
		})
	}
}

// An interface that was away, in a namespace within the node, is a leg again when the owner of its other end says
// that it is the same.
func TestInterfaceThatReturns(t *testing.T) {
	l := newLab(t)
	l.synced()
	l.leads("10.0.0.7", "link@100")
	l.script(`
		unshare -n sleep 60 & pid=$!
		while [ "$(readlink /proc/$pid/ns/net)" = "$(readlink /proc/$$/ns/net)" ]; do sleep 0.01; done
		ip link set eth0 netns $pid; nsenter -t $pid -n ip link set eth0 netns $$
		kill $pid; ip link set eth0 up; ip addr add 10.0.0.1/24 dev eth0`)
	l.leads("10.0.0.7", "link@0")
	testkit.Eventually(t, func() error {
		const why = "it was deleted, or moved to another namespace"
		if s, err := l.mirror.Status(l.name); err != nil || !slices.Equal(s.Lost, []int{100}) ||
			l.whyOff("eth0") != why+"; "+why {
			return fmt.Errorf("%+v, %w", s, err)
		}
		return nil
	}, 5*time.Second, "the port to be lost")
	l.set(Router{})
	l.leads("10.0.0.7", "link@100")
	l.synced()
	if s, err := l.mirror.Status(l.name); err != nil || len(s.Lost) > 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestLegs(t *testing.T) {
	l := newLab(t)
	l.synced()
	for _, c := range []struct {
		do   string
		want func(*fib.Leg)
		why  string // frames that come in here are the kernel's
	}{
		{"true", func(*fib.Leg) {}, ""},
		{"ip link set eth0 mtu 1400", func(g *fib.Leg) { g.MTU = 1400 }, ""},
		{"ip link set eth0 mtu 1500", func(*fib.Leg) {}, ""},
		{"ip link set eth0 address 02:00:00:00:00:07", func(g *fib.Leg) { g.MAC = [6]byte{2, 0, 0, 0, 0, 7} }, ""},
		{"sysctl -qw net.ipv4.conf.eth0.forwarding=0", func(g *fib.Leg) { g.IPv4 = false }, "net.ipv4.conf.eth0.forwarding is 0"},
		{"sysctl -qw net.ipv4.ip_forward=0", func(g *fib.Leg) { g.IPv4 = false }, "net.ipv4.conf.eth0.forwarding is 0"},
		{"sysctl -qw net.ipv4.ip_forward=1", func(*fib.Leg) {}, ""},
		{"sysctl -qw net.ipv4.conf.all.rp_filter=2", func(g *fib.Leg) { g.IPv4 = false }, "net.ipv4.conf.all.rp_filter is not 0"},
		{"sysctl -qw net.ipv4.conf.all.rp_filter=0; sysctl -qw net.ipv4.conf.eth0.rp_filter=1", func(g *fib.Leg) { g.IPv4 = false }, "net.ipv4.conf.eth0.rp_filter is not 0"},
		{"sysctl -qw net.ipv4.conf.eth0.rp_filter=0; sysctl -qw net.ipv6.conf.all.forwarding=0", func(g *fib.Leg) { g.IPv6 = false }, "net.ipv6.conf.all.forwarding is 0"},
		{"sysctl -qw net.ipv6.conf.all.forwarding=1; sysctl -qw net.ipv6.conf.eth0.proxy_ndp=1", func(g *fib.Leg) { g.IPv6 = false }, "net.ipv6.conf.eth0.proxy_ndp is 1"},
		{"sysctl -qw net.ipv6.conf.eth0.proxy_ndp=0; sysctl -qw net.ipv4.conf.eth0.proxy_arp=1", func(*fib.Leg) {}, ""},
		{"ip link add br7 type bridge; ip link set eth0 master br7", func(g *fib.Leg) { g.IPv4, g.IPv6 = false, false }, "a bridge, a bond or an XDP program takes its frames; a bridge, a bond or an XDP program takes its frames"},
		{"ip link set eth0 nomaster", func(*fib.Leg) {}, ""},
		{"ip link set eth0 down", func(g *fib.Leg) { g.Up = false }, ""},
		{"ip link set eth0 up", func(*fib.Leg) {}, ""},
	} {
		l.script(c.do)
		want := fib.Leg{MTU: 1500, Up: true, IPv4: true, IPv6: true, MAC: l.leg(0).MAC}
		c.want(&want)
		testkit.Eventually(t, func() error {
			have, why := l.leg(0), l.whyOff("eth0")
			if have != want || why != c.why {
				return fmt.Errorf("%s: %+v (%s), want %+v (%s)", c.do, have, why, want, c.why)
			}
			return nil
		}, 5*time.Second, "the leg to change")
		l.synced()
	}
}

// whyOff joins the reasons that an interface is off the fast path.
func (l *lab) whyOff(name string) string {
	l.Helper()
	s, err := l.mirror.Status(l.name)
	if err != nil {
		l.Fatal(err)
	}
	var all []string
	for _, g := range s.Off {
		if g.Interface == name {
			all = slices.Concat(all, g.IPv4, g.IPv6)
		}
	}
	return strings.Join(all, "; ")
}

// leg is what the mirror has written of a port.
func (l *lab) leg(i int) fib.Leg {
	s := l.session()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view.links.published[l.ports[i]]
}

func (l *lab) session() *session {
	l.Helper()
	n, err := l.mirror.node(l.name)
	if err != nil {
		l.Fatal(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.session == nil {
		l.Fatal("no session: " + n.failure)
	}
	return n.session
}

func TestNeighbours(t *testing.T) {
	l := newLab(t)
	l.synced()
	for _, c := range []struct{ do, addr, want string }{
		{"ip neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev eth0 nud permanent", "10.0.0.2", "020000000002"},
		{"ip neigh replace 10.0.0.2 lladdr 02:00:00:00:00:03 dev eth0 nud reachable", "10.0.0.2", "020000000003"},
		{"ip neigh replace 10.0.0.2 lladdr 02:00:00:00:00:03 dev eth0 nud stale", "10.0.0.2", "020000000003 stale"},
		{"ip neigh replace 10.0.0.2 lladdr 02:00:00:00:00:03 dev eth0 nud noarp", "10.0.0.2", "020000000003"},
		{"ip neigh replace 10.0.0.2 dev eth0 nud failed", "10.0.0.2", "none"},
		{"ip neigh add 2001:db8::2 lladdr 02:00:00:00:00:04 dev eth0 nud reachable router", "2001:db8::2", "020000000004"},
		{"ip neigh del 2001:db8::2 dev eth0", "2001:db8::2", "none"},
		{"ip neigh add proxy 10.0.0.9 dev eth0", "10.0.0.9", "none"},
		{"ip neigh add 10.0.0.3 lladdr 00:00:00:00:00:00 dev eth0 nud permanent; ip neigh add 10.0.0.4 lladdr 01:00:5e:00:00:01 dev eth0 nud permanent", "10.0.0.3", "none"},
		{"true", "10.0.0.4", "none"},
	} {
		l.script(c.do)
		testkit.Eventually(t, func() error {
			n, ok := l.session().out.LookupNeighbour(l.ports[0], netip.MustParseAddr(c.addr))
			have := fmt.Sprintf("%x", n.MAC)
			if n.Stale {
				have += " stale"
			}
			if !ok {
				have = "none"
			}
			if have != c.want {
				return fmt.Errorf("%s: %s, want %s", c.do, have, c.want)
			}
			return nil
		}, 5*time.Second, "the neighbour to change")
		l.synced()
	}
}

// A tiny buffer overruns: the maps are not used until all has been read anew, and then all is right.
func TestOverrun(t *testing.T) {
	l := newLab(t, func(c *Config) { c.buffer = 4 << 10 })
	l.synced()
	resyncs := func() int {
		s, err := l.mirror.Status(l.name)
		if err != nil {
			t.Fatal(err)
		}
		return s.Resyncs
	}
	// On a busy machine a round may be so slow that the mirror keeps up.
	for round := 0; round < 5 || resyncs() == 0; round++ {
		if round == 50 {
			t.Fatal("50 rounds of 3000 changes, and no overrun of 4 KiB")
		}
		var b strings.Builder
		for i := range 3000 {
			fmt.Fprintf(&b, "route replace 172.%d.%d.0/24 via 10.0.%d.2\n", 16+i/256, i%256, (round+i)%3)
		}
		l.batch(b.String())
		l.synced()
		l.leads("172.16.1.1", fmt.Sprintf("10.0.%d.2@%d", (round+1)%3, 100+(round+1)%3))
	}
}

// A node that changes without end is left to its kernel, and returns when it is calm.
func TestFlappingIsLimited(t *testing.T) {
	l := newLab(t, func(c *Config) { c.EventRate, c.EventBurst = 100, 500 })
	l.synced()
	l.batch(strings.Repeat("route add 192.0.2.0/24 via 10.0.0.2\nroute del 192.0.2.0/24\n", 1000))
	testkit.Eventually(t, func() error {
		s, err := l.mirror.Status(l.name)
		if err != nil || s.IPv4.FastPath || len(s.IPv4.Why) == 0 ||
			!strings.Contains(s.IPv4.Why[0], "more than 100 times a second") {
			return fmt.Errorf("%+v, %w", s, err)
		}
		return nil
	}, 5*time.Second, "the router to leave the fast path")
	l.script("ip route add 198.51.100.0/24 via 10.0.1.2")
	l.leads("198.51.100.1", "10.0.1.2@101")
	l.synced()
}

func TestEligibilityAndOff(t *testing.T) {
	reports := make(chan func(ipv4, ipv6 []string), 1)
	l := newLab(t, func(c *Config) {
		c.Watch = func(ctx context.Context, _ *os.File, report func(ipv4, ipv6 []string)) error {
			reports <- report
			<-ctx.Done()
			return nil
		}
	})
	report := <-reports
	l.fastPath(false, false, "being examined")
	report(nil, nil)
	l.fastPath(true, true, "")
	report([]string{"tcpdump"}, nil)
	l.fastPath(false, true, "tcpdump")
	report(nil, nil)
	l.set(Router{Off: true})
	l.fastPath(false, false, "switched off")
	l.set(Router{})
	l.fastPath(true, true, "")
	l.script("ip route add local 192.0.2.0/24 dev lo")
	l.fastPath(false, true, "table local")
	l.script("ip route del local 192.0.2.0/24 dev lo")
	l.fastPath(true, true, "")
	l.synced()
}

// Once there was a policy rule, the kernel asks table local before main, and looks sources up: `ip route get` says so
// here. The programs do neither, so what makes a difference then keeps the router off the fast path.
func TestWhatAPolicyRuleLeavesBehind(t *testing.T) {
	for title, add := range map[string]string{
		"address of lo with a subnet": "addr add 192.0.2.1/24 dev lo",
		"local, like the kernel's":    "route add local 192.0.2.0/24 dev lo proto kernel",
		"table local leads elsewhere": "route add 192.0.2.0/24 via 10.0.1.2 table local",
		"local, in table main":        "route add local 192.0.2.0/24 dev lo table main",
		"multicast":                   "route add multicast 192.0.2.0/24 dev eth1",
	} {
		t.Run(title, func(t *testing.T) {
			l := newLab(t)
			l.synced()
			l.script("ip route add 192.0.2.128/25 via 10.0.0.2; " +
				"ip route add 198.51.100.0/24 via 10.0.0.2; " +
				"ip rule add pref 9 from 203.0.113.1 lookup 9; ip rule del pref 9")
			l.fastPath(true, true, "")
			forwards := func(to, from string) bool {
				return strings.Contains(l.output(fmt.Sprintf("ip route get %s from %s iif eth2 2>&1 "+
					"|| true", to, from)), "via 10.0.0.2 ")
			}
			if !forwards("192.0.2.200", "10.0.2.7") || !forwards("198.51.100.1", "192.0.2.7") {
				t.Fatal("the kernel does not forward")
			}
			l.script("ip " + add)
			if forwards("192.0.2.200", "10.0.2.7") && forwards("198.51.100.1", "192.0.2.7") {
				t.Fatal("the kernel does as before")
			}
			l.fastPath(false, true, "table local")
			l.synced()
			l.script("ip " + strings.Replace(add, " add ", " del ", 1))
			l.fastPath(true, true, "")
		})
	}
}

// An IPv6 route ends when its time is over, though the event comes only with the garbage collection.
func TestRouteThatExpires(t *testing.T) {
	l := newLab(t)
	l.synced()
	l.script("ip -6 route add 2001:db8:a::/48 via 2001:db8::2 expires 1")
	testkit.Eventually(t, func() error {
		if out := l.output("ip -6 route get 2001:db8:a::1 from 2001:db8:2::7 iif eth2 2>&1 || " +
			"true"); !strings.Contains(out, "unreachable") {
			return errors.New(out)
		}
		return nil
	}, 5*time.Second, "the kernel to forget the route")
	if have := brief(l.lookup("2001:db8:a::1")); have != "other" && have != "nowhere" {
		t.Errorf("the mirror has %s", have)
	}
	l.synced()
}

func (l *lab) fastPath(ipv4, ipv6 bool, why string) {
	l.Helper()
	testkit.Eventually(l, func() error {
		s, err := l.mirror.Status(l.name)
		if err != nil {
			return err
		}
		if s.IPv4.FastPath != ipv4 || s.IPv6.FastPath != ipv6 ||
			!strings.Contains(strings.Join(s.IPv4.Why, ";"), why) {
			return fmt.Errorf("%+v", s)
		}
		return nil
	}, 5*time.Second, "the fast path to be "+why)
}

// A full map keeps one router in its kernel, which says so; when there is room again it returns.
func TestFullMap(t *testing.T) {
	l := newLab(t)
	l.synced()
	l.fib.Limit(1)
	var b strings.Builder
	for i := range 10000 { // no two nodes alike
		fmt.Fprintf(&b, "route add 172.%d.%d.0/26 via 10.0.0.%d\n", 16+i/256, i%256, 2+i%200)
		fmt.Fprintf(&b, "route add 172.%d.%d.64/26 via 10.0.1.%d\n", 16+i/256, i%256, 2+i/200)
	}
	l.batch(b.String())
	testkit.Eventually(t, func() error {
		s, err := l.mirror.Status(l.name)
		if err != nil || len(s.IPv4.Why) == 0 || !strings.Contains(s.IPv4.Why[0], "full") {
			return fmt.Errorf("%+v, %w", s, err)
		}
		return nil
	}, 10*time.Second, "the map to be full")
	l.fib.Limit(1 << 30)
	testkit.Eventually(t, func() error {
		if s, err := l.mirror.Status(l.name); err != nil || !s.IPv4.FastPath {
			return errors.Join(err, errors.New("not on the fast path"))
		}
		return nil
	}, 20*time.Second, "the router to return")
	l.synced()
	l.leads("172.16.0.1", "10.0.0.2@100")
}
