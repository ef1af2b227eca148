package wire_test

import (
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/testkit"
)

// inNewNamespace runs f in a network namespace of its own, which is returned.
func inNewNamespace(t *testing.T, f func() error) (ns *os.File) {
	t.Helper()
	err := netns.New(func() (err error) {
		if ns, err = netns.Here(); err != nil {
			return err
		}
		return f()
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}

// A router between two machines has a link that takes less than their interfaces.
func TestPathMTUIsWhatRoutersSay(t *testing.T) {
	testkit.Root(t)
	const first, second = 1500, 1400
	nothing := func() error { return nil }
	a, r, b := inNewNamespace(t, nothing), inNewNamespace(t, nothing), inNewNamespace(t, nothing)
	at := func(ns *os.File) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.Fd()) }
	run := func(ns *os.File, format string, words ...any) {
		t.Helper()
		if out, err := runIn(ns, "sh", "-c", fmt.Sprintf(format, words...)); err != nil {
			t.Fatalf("%s: %v: %s", fmt.Sprintf(format, words...), err, out)
		}
	}
	for i, end := range []struct {
		ns  *os.File
		mtu int
	}{{a, first}, {b, second}} {
		run(r, "ip link add to%d mtu %d type veth peer name eth0 mtu %d netns %s", i, end.mtu, end.mtu,
			at(end.ns))
		run(r, "ip link set to%d up && ip addr add 198.51.100.%d/31 dev to%d && "+
			"ip addr add 2001:db8:%d::/127 dev to%d nodad",
			i, 2*i, i, i, i)
		run(end.ns, "ip link set lo up && ip link set eth0 up && ip addr add 198.51.100.%d/31 dev eth0 && "+
			"ip addr add 2001:db8:%d::1/127 dev eth0 nodad", 2*i+1, i)
		run(end.ns, "ip route add default via 198.51.100.%d && ip -6 route add default via 2001:db8:%d::", 2*i,
			i)
	}
	run(r, "echo 1 >/proc/sys/net/ipv4/ip_forward && echo 1 >/proc/sys/net/ipv6/conf/all/forwarding")
	run(b, "ip link set eth0 mtu %d", first) // nobody but the router knows

	wantMTU := func(what, local, peer string, want int) {
		t.Helper()
		err := netns.In(a, func() error {
			have, err := wire.PathMTU(netip.MustParseAddr(local), netip.MustParseAddr(peer))
			if err == nil && have != want {
				t.Errorf("%s: %d, want %d", what, have, want)
			}
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	wantMTU("to the router", "198.51.100.1", "198.51.100.0", first)
	wantMTU("past the router", "198.51.100.1", "198.51.100.3", second)
	wantMTU("past the router, again", "198.51.100.1", "198.51.100.3", second)
	wantMTU("to the router by IPv6", "2001:db8::1", "2001:db8::", first)
	wantMTU("past the router by IPv6", "2001:db8::1", "2001:db8:1::1", second)
	run(a, "ip route add 198.51.100.0/32 dev eth0 mtu 1300")
	wantMTU("by a route that says so", "198.51.100.1", "198.51.100.0", 1300)
	run(a, "ip route del default")
	err := netns.In(a, func() error {
		_, err := wire.PathMTU(netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("198.51.100.3"))
		return err
	})
	if err == nil {
		t.Error("there is no route, and no error")
	}
}
