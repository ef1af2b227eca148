package outside

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/model/slice"
)

// six gives the world IPv6: the machine is 2001:db8::1, the host outside 2001:db8::2, by which there is a default
// route.
func (w *world) six() {
	w.Helper()
	for pid, command := range map[int]string{
		0:      "ip address add 2001:db8::1/64 dev nic nodad",
		w.away: "ip address add 2001:db8::2/64 dev eth0 nodad",
	} {
		w.run(pid, strings.Fields(command)...)
	}
	w.run(0, "ip", "route", "add", "default", "via", "2001:db8::2")
}

func (w *world) setting(path string) string {
	w.Helper()
	text, err := os.ReadFile("/proc/sys/net/" + path)
	w.check(err)
	return strings.TrimSpace(string(text))
}

func TestASliverHasIPv6WhereItsMachineHas(t *testing.T) {
	inWorld(t, func(w *world) {
		w.six()
		w.check(os.WriteFile("/proc/sys/net/ipv6/conf/nic/accept_ra", []byte("1"), 0))
		a, b := w.process(), w.process()
		w.serve6(a, "8080", "of the sliver")
		w.serve6(w.away, "80", "away")
		w.serve6(0, "9000", "of the machine")
		w.check(w.set(a, Node{Owner: "1/a", Ports: []slice.HostPort{web}}))
		w.check(w.set(b, Node{Owner: "2/b", NAT: true}))
		w.expect("forwarding", w.setting("ipv6/conf/all/forwarding"), "1")
		w.expect("accept_ra of a device that took routes", w.setting("ipv6/conf/nic/accept_ra"), "2")

		w.expect("a web server outside", w.fetch(b, "[2001:db8::2]:80"), "away")
		w.expect("a ping", w.ping(b, "2001:db8::2"), true)
		w.expect("a ping of the machine", w.ping(b, "2001:db8::1"), true)
		for from, pid := range map[string]int{"outside": w.away, "the machine": 0, "another sliver": b} {
			w.expect("a port, from "+from, w.fetch(pid, "[2001:db8::1]:8080"), "of the sliver")
			w.expect("another port, from "+from, w.fetch(pid, "[2001:db8::1]:8081"), "")
		}
		w.expect("a sliver without leave", w.ping(a, "2001:db8::2"), false)
		w.expect("a server of the machine itself", w.fetch(b, "[2001:db8::1]:9000"), "")
		inner := device{index: 0}.inner6().String()
		w.expect("another sliver's own address", w.fetch(b, "["+inner+"]:8080"), "")
		w.run(w.away, "ip", "route", "add", pool6.String(), "via", "2001:db8::1")
		w.expect("the same, from outside", w.fetch(w.away, "["+inner+"]:8080"), "")

		// The machine forwards for nobody else.
		far := w.process()
		w.run(0, "ip", "link", "add", "nic2", "type", "veth", "peer", "name", "eth0", "netns", fmt.Sprint(far))
		for pid, commands := range map[int][]string{
			0: {"ip link set nic2 up", "ip address add 2001:db8:1::1/64 dev nic2 nodad"},
			far: {"ip link set eth0 up", "ip address add 2001:db8:1::2/64 dev eth0 nodad",
				"ip route add default via 2001:db8:1::1"},
			w.away: {"ip route add 2001:db8:1::/64 via 2001:db8::1"},
		} {
			for _, command := range commands {
				w.run(pid, strings.Fields(command)...)
			}
		}
		w.expect("a sliver to another network", w.pings(b, "2001:db8:1::2"), true)
		w.expect("others through the machine", w.ping(w.away, "2001:db8:1::2"), false)

		w.check(Remove(w.dir))
		w.expect("forwarding at the end", w.setting("ipv6/conf/all/forwarding"), "0")
		w.expect("accept_ra at the end", w.setting("ipv6/conf/nic/accept_ra"), "1")
	})
}

// pings waits until a ping is answered: a device that has just been set up finds its neighbours first.
func (w *world) pings(pid int, to string) bool {
	w.wait("a ping of "+to, func() bool { return w.ping(pid, to) })
	return true
}

func TestIPv6ComesAndGoesWithTheMachines(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.process()
		w.check(w.set(a, Node{Owner: "1/a", NAT: true}))
		node := func() Node {
			all, err := w.g.Nodes(context.Background())
			w.check(err)
			w.expect("nodes", len(all), 1)
			return all[0]
		}
		w.expect("why there is none", node().NoIPv6, noRoute)
		w.expect("it is as it is to be", node().Digest, "1")
		w.six()
		w.expect("it is to be set again", node().Digest, "")
		w.check(w.set(a, Node{Owner: "1/a", NAT: true}))
		w.pings(a, "2001:db8::2")
		w.expect("why there is none then", node().NoIPv6, "")
		w.expect("it is as it is to be then", node().Digest, "1")

		w.run(0, "ip", "-6", "route", "del", "default")
		w.expect("it is to be set once more", node().Digest, "")
		w.check(w.set(a, Node{Owner: "1/a", NAT: true}))
		w.expect("IPv6 routes of the sliver", w.run(a, "ip", "-6", "route", "show", "default"), "")
		w.expect("IPv6 rules of the sliver", strings.Contains(w.run(a, "ip", "-6", "rule"), "4096"), false)
		w.expect("IPv4 goes on", w.ping(a, "192.0.2.2"), true)
	})
}

func TestNoOtherSourceOfIPv6Leaves(t *testing.T) {
	inWorld(t, func(w *world) {
		w.six()
		a, b := w.process(), w.process()
		w.check(w.set(a, Node{Owner: "1/a", NAT: true}))
		w.check(w.set(b, Node{Owner: "2/b", NAT: true}))
		// Of somebody far away, of the other sliver, and at last its own.
		var from []string
		for _, at := range []netip.Addr{
			netip.MustParseAddr("2001:db8:9::9"), device{index: 1}.inner6(), device{}.inner6(),
		} {
			from = append(from, at.String())
		}
		seen := w.run(w.away, "timeout", "5", "python3", "-c", fmt.Sprintf(`
import socket, subprocess
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.bind(("", 5000))
subprocess.run(["nsenter", "--net", "--target", "%d", "python3", "-c", """
import socket, subprocess
all = '%s'.split()
for at in all[:2]:
    subprocess.run(["ip", "address", "add", at + "/128", "dev", "lo", "nodad"], check=True)
for at in all:
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.bind((at, 0))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"outside")
    s.sendto(at.encode(), ("2001:db8::2", 5000))
"""], check=True)
print(s.recv(99).decode())
`, a, strings.Join(from, " ")))
		w.expect("the first that arrives", strings.TrimSpace(seen), from[2])
	})
}

func TestConnectionsOfIPv6EndWithTheirSliver(t *testing.T) {
	inWorld(t, func(w *world) {
		w.six()
		a := w.process()
		w.check(w.set(a, Node{Owner: "1/a", NAT: true}))
		known := func() (n int) {
			all, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET6)
			w.check(err)
			for _, f := range all {
				if f.Forward.SrcIP.String() == (device{}).inner6().String() {
					n++
				}
			}
			return n
		}
		w.expect("a ping", w.ping(a, "2001:db8::2"), true)
		w.expect("connections", known(), 1)
		w.check(w.g.Delete(context.Background(), "1/a"))
		w.expect("connections of a sliver that is disconnected", known(), 0)
	})
}

// serve6 is serve, by IPv6.
func (w *world) serve6(pid int, port, text string) {
	w.Helper()
	w.serveAt(pid, "::", port, text)
}

// Packets leave by an address that reaches the whole internet, where there is one.
func TestUniqueLocalAddressesAreTheLastToLeaveBy(t *testing.T) {
	inWorld(t, func(w *world) {
		// The kernel lists the last one first.
		for _, address := range []string{"2001:db8::7/64", "fd00::7/64"} {
			w.run(0, "ip", "address", "add", address, "dev", "nic", "nodad")
		}
		all, err := exits()
		w.check(err)
		var six []string
		for _, e := range all {
			if e.address.Is6() {
				six = append(six, e.address.String())
			}
		}
		w.expect("exits of IPv6", strings.Join(six, " "), "2001:db8::7")
	})
}
