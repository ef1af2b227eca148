package outside

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/model/slice"
)

// craft is what the programs of craftedBy have.
const craft = `
import ipaddress, os, socket, struct, subprocess
def checksum(data):
    data += b"\0" * (len(data) % 2)
    n = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while n >> 16: n = (n & 0xffff) + (n >> 16)
    return ~n & 0xffff
def ip(source, to, protocol, payload, offset=0, number=1):
    a, b = (ipaddress.ip_address(x).packed for x in (source, to))
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), number, offset, 64, protocol, 0, a, b)
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload
def transport(source, to, protocol, head, at):
    a, b = (ipaddress.ip_address(x).packed for x in (source, to))
    sum = checksum(a + b + struct.pack("!BBH", 0, protocol, len(head)) + head)
    return head[:at] + struct.pack("!H", sum) + head[at + 2:]
def tcp(source, to, sport, dport, flags):
    return transport(source, to, 6, struct.pack("!HHIIBBHHH", sport, dport, 1, 1, 0x50, flags, 1024, 0, 0), 16)
def udp(source, to, sport, dport, payload=b"x"):
    return transport(source, to, 17, struct.pack("!HHHH", sport, dport, 8 + len(payload), 0) + payload, 6)
def unreachable(about):
    head = struct.pack("!BBHI", 3, 3, 0, 0) + about
    return head[:2] + struct.pack("!H", checksum(head)) + head[4:]
def send(packet, device="outside"):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0x800)
    s.bind((device, 0x800))
    to = [line.split()[4] for line in subprocess.check_output(["ip", "neigh"], text=True).splitlines()
        if "lladdr" in line and device in line and "." in line.split()[0]]
    s.sendto(packet, (device, 0x800, 0, 0, bytes.fromhex(to[0].replace(":", ""))))
def ping(to): subprocess.run(["ping", "-c1", "-W2", to], check=True, stdout=subprocess.DEVNULL)
`

// craftedBy lists the packets of IPv4 that arrive in the network namespace of one process, but for pings, while another
// one runs a program in its own: "198.19.0.1 > 192.0.2.2: 6". The program has the functions of craft, and ends with a
// ping that is answered, behind which nothing is under way.
func (w *world) craftedBy(from, at int, program string) string {
	w.Helper()
	watch := []string{"timeout", "20", "python3", "-c", `
import ipaddress, socket, subprocess, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x800))
subprocess.run(["nsenter", "--net=" + sys.argv[1], "python3", "-c", sys.argv[2]], check=True)
s.setblocking(False)
seen = set()
try:
    while True:
        p, whence = s.recvfrom(65535)
        echo = p[9] == 1 and p[20] in (0, 8)
        if whence[2] != socket.PACKET_OUTGOING and not echo:
            seen.add("%s > %s: %d" % (ipaddress.ip_address(p[12:16]), ipaddress.ip_address(p[16:20]), p[9]))
except BlockingIOError: pass
print(", ".join(sorted(seen)))
`, fmt.Sprintf("/proc/%d/ns/net", from), craft + program}
	return strings.TrimSpace(w.run(at, watch...))
}

func TestWhatConntrackTakesForInvalidGoesNowhere(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.process(), w.process()
		w.check(w.set(a, Node{Owner: "1/a", NAT: true}))
		w.check(w.set(b, Node{Owner: "2/b", NAT: true}))
		// TCP without flags: a scanner's.
		null := func(to string) string {
			return fmt.Sprintf(`
ping("192.0.2.1")
send(ip("198.19.0.1", "%s", 6, tcp("198.19.0.1", "%[1]s", 4000, 4001, 0)))
ping("192.0.2.1")
`, to)
		}
		w.expect("at the host outside", w.craftedBy(a, w.away, null("192.0.2.2")), "")
		w.expect("at another sliver", w.craftedBy(a, b, null("198.19.0.3")), "")
		w.expect("what the machine answers", w.craftedBy(a, a, null("192.0.2.1")), "")
		w.run(w.away, "ip", "route", "add", "198.19.0.0/16", "via", "192.0.2.1")
		w.expect("from outside, at a sliver", w.craftedBy(w.away, a, `
ping("192.0.2.1")
send(ip("192.0.2.2", "198.19.0.1", 6, tcp("192.0.2.2", "198.19.0.1", 4000, 4001, 0)), "eth0")
ping("192.0.2.1")
`), "")
	})
}

func TestASliverSpeaksOfItsOwnConnectionsAlone(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.process(), w.process()
		dns := slice.HostPort{Protocol: slice.UDP, Port: 5300}
		w.check(w.set(a, Node{Owner: "1/a", NAT: true, Ports: []slice.HostPort{dns}}))
		w.check(w.set(b, Node{Owner: "2/b", NAT: true}))
		// One of the machine, which conntrack knows.
		w.run(0, "python3", "-c", `
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("192.0.2.1", 7000))
s.sendto(b"x", ("192.0.2.2", 7001))
`)
		unreachable := func() string {
			lines := strings.Split(w.run(0, "cat", "/proc/net/snmp"), "\n")
			for i, line := range lines {
				if at := slices.Index(strings.Fields(line), "InDestUnreachs"); at >= 0 {
					return strings.Fields(lines[i+1])[at]
				}
			}
			w.Fatal("the kernel counts no errors")
			return ""
		}
		before := unreachable()
		w.craftedBy(a, a, `
ping("192.0.2.1")
about = ip("192.0.2.1", "192.0.2.2", 17, udp("192.0.2.1", "192.0.2.2", 7000, 7001))
send(ip("198.19.0.1", "192.0.2.1", 1, unreachable(about)))
ping("192.0.2.1")
`)
		w.expect("errors that the machine hears of its own connections", unreachable(), before)

		// Of another sliver's connection with the outside, which is its machine's address there.
		w.run(b, "python3", "-c", `
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("198.19.0.3", 7000))
s.sendto(b"x", ("192.0.2.2", 7001))
`)
		all, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
		w.check(err)
		i := slices.IndexFunc(all, func(f *netlink.ConntrackFlow) bool {
			return f.Forward.SrcPort == 7000 &&
				f.Forward.SrcIP.String() == "198.19.0.3"
		})
		w.expect("errors that another sliver hears", w.craftedBy(a, b, fmt.Sprintf(`
ping("192.0.2.1")
about = ip("192.0.2.1", "192.0.2.2", 17, udp("192.0.2.1", "192.0.2.2", %d, 7001))
send(ip("198.19.0.1", "192.0.2.1", 1, unreachable(about)))
about = ip("198.19.0.3", "192.0.2.2", 17, udp("198.19.0.3", "192.0.2.2", 7000, 7001))
send(ip("198.19.0.1", "198.19.0.3", 1, unreachable(about)))
ping("192.0.2.1")
`, all[i].Reverse.DstPort)), "")

		// Its own errors arrive: nobody listens at the port.
		w.expect("what a client of its port hears", strings.TrimSpace(w.run(w.away, "python3", "-c", `
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(5)
s.connect(("192.0.2.1", 5300))
s.send(b"x")
try: s.recv(9)
except ConnectionRefusedError: print("refused")
`)), "refused")
	})
}

func TestCredentialsOfTheMachineAreOutOfReach(t *testing.T) {
	inWorld(t, func(w *world) {
		w.six()
		a := w.process()
		w.check(w.set(a, Node{Owner: "1/a", NAT: true}))
		w.serve(w.away, "80", "credentials")
		w.serve6(w.away, "8080", "credentials")
		for _, at := range []string{"169.254.169.254", "100.100.100.200", "168.63.129.16", "192.0.0.192"} {
			w.run(w.away, "ip", "address", "add", at+"/32", "dev", "eth0")
			w.run(0, "ip", "route", "add", at, "via", "192.0.2.2")
			w.expect(at+" for the machine", w.fetch(0, at+":80"), "credentials")
			w.expect(at+" for a sliver", w.fetch(a, at+":80", "--max-time", "1"), "")
		}
		for _, at := range []string{"fd00:ec2::254", "fd20:ce::254", "fd00:42::42"} {
			w.run(w.away, "ip", "address", "add", at+"/128", "dev", "eth0", "nodad")
			w.run(0, "ip", "route", "add", at, "via", "2001:db8::2")
			w.expect(at+" for the machine", w.fetch(0, "["+at+"]:8080"), "credentials")
			w.expect(at+" for a sliver", w.fetch(a, "["+at+"]:8080", "--max-time", "1"), "")
		}
		w.expect("other addresses for a sliver", w.fetch(a, "192.0.2.2:80"), "credentials")
	})
}

func TestNobodyElseIsMasqueraded(t *testing.T) {
	inWorld(t, func(w *world) {
		a, far := w.process(), w.process()
		w.run(0, "ip", "link", "add", "nic2", "type", "veth", "peer", "name", "eth0", "netns", fmt.Sprint(far))
		w.run(0, "ip", "address", "add", "203.0.113.1/24", "dev", "nic2")
		w.run(0, "ip", "link", "set", "nic2", "up")
		w.run(far, "ip", "address", "add", "203.0.113.2/24", "dev", "eth0")
		w.run(far, "ip", "link", "set", "eth0", "up")
		w.run(far, "ip", "route", "add", "default", "via", "203.0.113.1")
		w.check(os.WriteFile(forwarding, []byte("1"), 0)) // a router before
		w.check(os.WriteFile("/proc/sys/net/ipv4/conf/all/rp_filter", []byte("0"), 0))
		w.check(os.WriteFile("/proc/sys/net/ipv4/conf/nic/rp_filter", []byte("0"), 0))
		w.check(w.set(a, Node{Owner: "1/a", NAT: true}))
		w.expect("of a neighbour", w.craftedBy(w.away, far, `
ping("192.0.2.1")
for source in "198.19.0.1", "198.19.0.9", "192.0.2.2":
    send(ip(source, "203.0.113.2", 17, udp(source, "203.0.113.2", 4000, 4001)), "eth0")
ping("192.0.2.1")
`), "192.0.2.2 > 203.0.113.2: 17")
		w.expect("of the sliver", w.craftedBy(a, far, `
ping("192.0.2.1")
for source in "192.0.2.1", "192.0.2.2", "198.19.0.0", "127.0.0.1", "198.19.0.1":
    send(ip(source, "203.0.113.2", 17, udp(source, "203.0.113.2", 4000, 4001)))
ping("192.0.2.1")
`), "203.0.113.1 > 203.0.113.2: 17")
	})
}

func TestFragmentsDoNotHideTunnelsPackets(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.process()
		w.check(w.set(a, Node{Owner: "1/a", NAT: true}))
		fragments := func(port int) string {
			return w.craftedBy(a, w.away, fmt.Sprintf(`
ping("192.0.2.1")
whole = udp("198.19.0.1", "192.0.2.2", 4000, %d, b"x" * 56)
for i in (0, 8, 16, 24, 32, 40, 48, 56):
    offset = i // 8 | (0 if i == 56 else 0x2000)
    send(ip("198.19.0.1", "192.0.2.2", 17, whole[i:i + 8], offset, 99))
ping("192.0.2.1")
`, port))
		}
		w.expect("to the port of tunnels", fragments(4789), "")
		w.expect("to another port", fragments(4790), "192.0.2.1 > 192.0.2.2: 17")
	})
}

func TestASliverSpoilsNoFragmentsOfOthers(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.process()
		w.check(w.set(a, Node{Owner: "1/a", NAT: true}))
		got := w.run(0, "timeout", "20", "python3", "-c", `
import socket, subprocess, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 6000))
for ns, program in (sys.argv[1:3], sys.argv[3:5]):
    subprocess.run(["nsenter", "--net=" + ns, "python3", "-c", program], check=True)
s.setblocking(False)
try: print(len(s.recv(99)))
except BlockingIOError: print("nothing")
`, fmt.Sprintf("/proc/%d/ns/net", a), craft+`
ping("192.0.2.1")
send(ip("192.0.2.2", "192.0.2.1", 17, b"x" * 24, 1 | 0x2000, 99)) # overlaps both
ping("192.0.2.1")
`, fmt.Sprintf("/proc/%d/ns/net", w.away), craft+`
ping("192.0.2.1")
whole = udp("192.0.2.2", "192.0.2.1", 4000, 6000, b"x" * 24)
send(ip("192.0.2.2", "192.0.2.1", 17, whole[:16], 0x2000, 99), "eth0")
send(ip("192.0.2.2", "192.0.2.1", 17, whole[16:], 2, 99), "eth0")
ping("192.0.2.1")
`)
		w.expect("bytes that the machine gets of a datagram in fragments", strings.TrimSpace(got), "24")
	})
}

func TestASliverReachesNoServiceOfTheMachine(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.process()
		// As kube-proxy does.
		w.check(os.WriteFile("/proc/sys/net/ipv4/conf/all/route_localnet", []byte("1"), 0))
		w.check(w.set(a, Node{Owner: "1/a", NAT: true}))
		got := w.run(0, "timeout", "20", "python3", "-c", `
import socket, subprocess, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 6000))
subprocess.run(["nsenter", "--net=" + sys.argv[1], "python3", "-c", sys.argv[2]], check=True)
s.setblocking(False)
try: print(s.recvfrom(99))
except BlockingIOError: print("nothing")
`, fmt.Sprintf("/proc/%d/ns/net", a), craft+`
ping("192.0.2.1")
for to in "192.0.2.1", "198.19.0.0", "127.0.0.1", "255.255.255.255", "224.0.0.1", "192.0.2.255", "0.0.0.0":
    send(ip("198.19.0.1", to, 17, udp("198.19.0.1", to, 4000, 6000)))
ping("192.0.2.1")
`)
		w.expect("a service of the machine gets", strings.TrimSpace(got), "nothing")
	})
}

func TestASliverReachesItsOwnPortByTheMachinesAddressOrNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.process()
		w.serve(a, "8080", "of the sliver")
		w.serve(0, "8081", "of the machine")
		w.check(w.set(a, Node{Owner: "1/a", NAT: true, Ports: []slice.HostPort{web}}))
		if got := w.fetch(a, "192.0.2.1:8080"); got != "" && got != "of the sliver" {
			t.Errorf("its own port is %q", got)
		}
		w.expect("another port of the machine", w.fetch(a, "192.0.2.1:8081"), "")
	})
}

func TestOneServerOfAMachineHasTheOutside(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.process(), w.process()
		w.serve(a, "8080", "of the first server's sliver")
		w.check(w.set(a, Node{Owner: "1/a", NAT: true, Ports: []slice.HostPort{web}}))
		first, rules := w.g, w.run(0, "nft", "--stateless", "list", "ruleset")
		settings := w.settings()
		dir := w.TempDir()
		w.g = New(dir, nil, nil)
		err := w.set(b, Node{Owner: "1/a", NAT: true})
		want := "connect 1/a with the outside: another server of this machine, whose state directory has the " +
			"id " + first.id
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("the second server: %v", err)
		}
		all, err := w.g.Nodes(context.Background())
		w.check(err)
		w.expect("what the second server has", len(all), 0)
		w.check(w.g.Delete(context.Background(), "1/a"))
		w.check(Remove(dir))
		w.expect("the rules", w.run(0, "nft", "--stateless", "list", "ruleset"), rules)
		w.expect("the machine's settings", w.settings(), settings)
		w.expect("the first server's", w.fetch(w.away, "192.0.2.1:8080"), "of the first server's sliver")

		// Also where somebody has removed the table.
		w.run(0, "nft", "flush", "ruleset")
		w.g = New(dir, nil, nil)
		if err := w.set(b, Node{Owner: "1/a", NAT: true}); err == nil {
			t.Error("the second server takes what has no table")
		}
		_, err = first.Nodes(context.Background())
		w.check(err)
		w.expect("the rules of the first, again", w.run(0, "nft", "--stateless", "list", "ruleset"), rules)

		// When the first one is done, it is free.
		w.check(Remove(w.dir))
		w.check(w.set(b, Node{Owner: "1/a", NAT: true}))
		w.expect("a ping of the second server's", w.ping(b, "192.0.2.2"), true)
	})
}
