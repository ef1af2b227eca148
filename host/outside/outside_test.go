package outside

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// world is a machine, a host outside of it at 192.0.2.2, and slivers. The machine is 192.0.2.1.
type world struct {
	*testing.T
	g    *Gateway
	dir  string
	away int // process of the host outside
}

// inWorld calls f in the network namespace of the machine.
func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	testkit.Root(t)
	err := netns.New(func() error {
		w := &world{T: t, dir: t.TempDir()}
		w.g, w.away = New(w.dir, nil, nil), w.process()
		w.Cleanup(func() { w.check(w.g.Close()) })
		w.run(0, "ip", "link", "set", "lo", "up")
		w.run(0, "ip", "link", "add", "nic", "type", "veth", "peer", "name", "eth0", "netns",
			fmt.Sprint(w.away))
		w.run(0, "ip", "address", "add", "192.0.2.1/24", "dev", "nic")
		w.run(0, "ip", "link", "set", "nic", "up")
		w.run(w.away, "ip", "address", "add", "192.0.2.2/24", "dev", "eth0")
		w.run(w.away, "ip", "link", "set", "eth0", "up")
		f(w)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// process starts one with a network namespace of its own.
func (w *world) process() (pid int) {
	w.Helper()
	own, err := os.Readlink("/proc/thread-self/ns/net")
	w.check(err)
	c := exec.Command("unshare", "--net", "sleep", "infinity")
	w.check(c.Start())
	w.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	w.wait("a namespace", func() bool {
		there, err := os.Readlink(netns.Path(c.Process.Pid))
		return err == nil && there != own
	})
	w.run(c.Process.Pid, "ip", "link", "set", "lo", "up")
	return c.Process.Pid
}

// wait waits until something is so.
func (w *world) wait(what string, is func() bool) {
	w.Helper()
	w.check(testkit.Poll(func() error {
		if !is() {
			return fmt.Errorf("waited for %s", what)
		}
		return nil
	}, 10*time.Second))
}

func (w *world) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// try runs a command in the namespace of a process, or 0: the machine's.
func (w *world) try(pid int, command ...string) (string, error) {
	if pid != 0 {
		command = append([]string{"nsenter", "--net", "--target", fmt.Sprint(pid)}, command...)
	}
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	return string(out), err
}

func (w *world) run(pid int, command ...string) string {
	w.Helper()
	out, err := w.try(pid, command...)
	if err != nil {
		w.Fatalf("%s: %v: %s", strings.Join(command, " "), err, out)
	}
	return out
}

// serve starts Python's web server, which knows nothing of all this, on a port.
func (w *world) serve(pid int, port, text string) {
	w.Helper()
	w.serveAt(pid, "0.0.0.0", port, text)
}

func (w *world) serveAt(pid int, address, port, text string) {
	w.Helper()
	dir := w.TempDir()
	w.check(os.WriteFile(filepath.Join(dir, "index.html"), []byte(text), 0o600))
	args := []string{"python3", "-m", "http.server", "--bind", address, "--directory", dir, port}
	if pid != 0 {
		args = append([]string{"nsenter", "--net", "--target", fmt.Sprint(pid)}, args...)
	}
	c := exec.Command(args[0], args[1:]...)
	w.check(c.Start())
	w.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	w.wait("the server", func() bool {
		out, err := w.try(pid, "ss", "-lnt", "sport", "=", ":"+port)
		return err == nil && strings.Contains(out, "LISTEN")
	})
}

// fetch gives what a web server answers, or "".
func (w *world) fetch(pid int, at string, more ...string) string {
	out, err := w.try(pid, append([]string{"curl", "-sS", "--max-time", "2"}, append(more, "http://"+at)...)...)
	if err != nil {
		return ""
	}
	return out
}

func (w *world) ping(pid int, to string) bool {
	_, err := w.try(pid, "ping", "-c1", "-W2", to)
	return err == nil
}

func (w *world) set(pid int, n Node) error {
	n.Digest = "1"
	return w.g.Set(context.Background(), pid, n)
}

func (w *world) expect(what string, got, want any) {
	w.Helper()
	if got != want {
		w.Errorf("%s: %v, want %v", what, got, want)
	}
}

var web = slice.HostPort{Protocol: slice.TCP, Port: 8080}

// noRoute is why there is no IPv6 in a world, unless its machine has a default route.
const noRoute = "this machine has no default route of it"

func TestAReservedPortLeadsToTheSliver(t *testing.T) {
	inWorld(t, func(w *world) {
		server, other := w.process(), w.process()
		w.serve(server, "8080", "of the sliver")
		w.serve(server, "8081", "not reserved")
		w.check(w.set(server, Node{Owner: "1/web", Ports: []slice.HostPort{web}}))
		w.check(w.set(other, Node{Owner: "2/user", NAT: true}))
		for from, pid := range map[string]int{"outside": w.away, "the machine": 0, "another sliver": other} {
			w.expect("from "+from, w.fetch(pid, "192.0.2.1:8080"), "of the sliver")
			w.expect("from "+from+", another port", w.fetch(pid, "192.0.2.1:8081"), "")
		}
		inner := device{index: 0}.inner().String()
		w.run(w.away, "ip", "route", "add", "198.19.0.0/16", "via", "192.0.2.1")
		w.expect("by the sliver's own address, from outside", w.fetch(w.away, inner+":8080"), "")
		w.expect("by the sliver's own address, from another", w.fetch(other, inner+":8080"), "")
		w.serve(w.away, "80", "away")
		w.expect("a sliver without leave, to outside", w.fetch(server, "192.0.2.2:80", "--interface", Inner),
			"")
		w.expect("a sliver without leave pings", w.ping(server, "192.0.2.2"), false)
	})
}

func TestASliverWithLeaveReachesTheOutsideByTheMachinesAddress(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.process(), w.process()
		w.check(w.set(a, Node{Owner: "1/a", NAT: true}))
		w.serve(w.away, "80", "away")
		w.serve(0, "9000", "of the machine")
		w.expect("a web server outside", w.fetch(a, "192.0.2.2:80"), "away")
		w.expect("a ping", w.ping(a, "192.0.2.2"), true)
		w.expect("a ping of the machine", w.ping(a, "192.0.2.1"), true)
		w.expect("a server of the machine itself", w.fetch(a, "192.0.2.1:9000"), "")
		w.expect("a sliver that has nothing", w.fetch(b, "192.0.2.2:80"), "")

		// Source ports are of the range; another source address than its own does not leave.
		seen := w.run(w.away, "timeout", "5", "python3", "-c", `
import socket, subprocess
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 5000))
subprocess.run(["nsenter", "--net", "--target", "`+fmt.Sprint(a)+`", "python3", "-c", '''
import socket
for port in range(200):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("", 8000 + port))
    s.sendto(b"x", ("192.0.2.2", 5000))
'''])
all = [s.recvfrom(9)[1] for i in range(200)]
print(sorted(set(a for a, p in all)), len([p for a, p in all if not 61000 <= p <= 65095]), len(set(p for a, p in all)))
`)
		w.expect("200 datagrams come from", strings.TrimSpace(seen), "['192.0.2.1'] 0 200")
		w.run(a, "ip", "address", "add", "203.0.113.9/32", "dev", "lo")
		w.expect("another source", w.ping2(a, "203.0.113.9"), false)
	})
}

func TestASliverCannotWriteIntoTunnels(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.process()
		w.check(w.set(a, Node{Owner: "1/a", NAT: true}))
		// The same socket sends to the port of tunnels, GRE, and to another port at last. All arrive in order.
		send := func(ns string) string {
			return strings.TrimSpace(w.run(w.away, "timeout", "5", "python3", "-c", `
import select, socket, subprocess
at = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket(socket.AF_INET, socket.SOCK_RAW, 47),
      socket.socket(socket.AF_INET, socket.SOCK_DGRAM)]
at[0].bind(("", 4789))
at[2].bind(("", 4790))
subprocess.run(["nsenter", "--net=`+ns+`", "python3", "-c", """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.sendto(b"x", ("192.0.2.2", 4789))
socket.socket(socket.AF_INET, socket.SOCK_RAW, 47).sendto(b"\\0\\0\\x65\\x58", ("192.0.2.2", 0))
s.sendto(b"x", ("192.0.2.2", 4790))
"""], check=True)
select.select(at[2:], [], [])
got = select.select(at, [], [], 0)[0]
print([("vxlan", "gre", "other")[i] for i in range(3) if at[i] in got])
`))
		}
		machine := fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		w.expect("of what the machine sends arrives", send(machine), "['vxlan', 'gre', 'other']")
		w.expect("of what a sliver sends arrives", send(netns.Path(a)), "['other']")
	})
}

func TestNoOtherSourceAddressLeavesWithALooseReversePath(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.process(), w.process()
		w.check(os.WriteFile("/proc/sys/net/ipv4/conf/all/rp_filter", []byte("2"), 0))
		w.run(0, "ip", "route", "add", "default", "via", "192.0.2.2")
		w.check(w.set(a, Node{Owner: "1/a", NAT: true}))
		w.check(w.set(b, Node{Owner: "2/b", NAT: true}))
		// Of somebody far away, of the other sliver, and at last its own.
		seen := w.run(w.away, "timeout", "5", "python3", "-c", `
import socket, subprocess
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 5000))
subprocess.run(["nsenter", "--net", "--target", "`+fmt.Sprint(a)+`", "python3", "-c", """
import socket, subprocess
for at in "203.0.113.9", "198.19.0.3":
    subprocess.run(["ip", "address", "add", at + "/32", "dev", "lo"], check=True)
for at in "203.0.113.9", "198.19.0.3", "198.19.0.1":
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((at, 0))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"outside")
    s.sendto(at.encode(), ("192.0.2.2", 5000))
"""], check=True)
print(s.recv(99).decode())
`)
		w.expect("the first that arrives", strings.TrimSpace(seen), "198.19.0.1")
	})
}

func TestWhatOthersRemoveIsWrittenAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.process()
		w.serve(0, "9000", "of the machine")
		w.check(w.set(a, Node{Owner: "1/a", NAT: true}))
		// Sets that count stay, so they are listed in another order. Pings show what the others have.
		sets := regexp.MustCompile(`(?s)\tset .*?\n\t\}\n\n`)
		rules := func() string {
			return sets.ReplaceAllString(w.run(0, "nft", "--stateless", "list", "ruleset"), "")
		}
		was := rules()
		for _, command := range []string{
			"nft flush ruleset", "nft flush table inet " + tableName,
			"nft flush chain inet " + tableName + " input",
			"nft flush set inet " + tableName + " addresses4",
			"nft flush set inet " + tableName + " " + leaveSet, "sysctl -w net.ipv4.ip_forward=0",
		} {
			w.run(0, strings.Fields(command)...)
			_, err := w.g.Nodes(context.Background())
			w.check(err)
			w.expect("the rules after "+command, rules(), was)
			w.expect("a ping after "+command, w.ping(a, "192.0.2.2"), true)
			w.expect("a server of the machine itself after "+command, w.fetch(a, "192.0.2.1:9000"), "")
		}
	})
}

func TestConnectionsEndWithTheirSliver(t *testing.T) {
	for name, end := range map[string]func(w *world, a int){
		"disconnected": func(w *world, _ int) { w.check(w.g.Delete(context.Background(), "1/a")) },
		"without leave": func(w *world, a int) {
			w.check(w.set(a, Node{Owner: "1/a", Ports: []slice.HostPort{web}}))
		},
		"ended, and another one has its address": func(w *world, a int) {
			w.check(netnsEnd(a))
			w.wait("the device to go", func() bool {
				_, err := netlink.LinkByName(device{}.name())
				return err != nil
			})
			w.check(w.set(w.process(), Node{Owner: "2/b", NAT: true}))
		},
	} {
		inWorld(t, func(w *world) {
			a := w.process()
			w.check(w.set(a, Node{Owner: "1/a", NAT: true}))
			known := func() (n int) {
				all, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
				w.check(err)
				for _, f := range all {
					if f.Forward.SrcIP.String() == (device{}).inner().String() {
						n++
					}
				}
				return n
			}
			w.expect("a ping", w.ping(a, "192.0.2.2"), true)
			w.expect("connections before it is "+name, known(), 1)
			end(w, a) // which also changes a node in place, whose network namespace keeps the older rule
			w.expect("connections when it is "+name, known(), 0)
		})
	}
}

func TestNodesAreListedWhenTheTableCannotBeWritten(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.process(), w.process()
		w.check(w.set(a, Node{Owner: "1/a", NAT: true}))
		var log strings.Builder
		w.g = New(w.dir, nil, slog.New(slog.NewTextHandler(&log, nil)))
		w.check(os.WriteFile(filepath.Join(w.dir, "outside.json"), []byte("{"), 0o600))
		for range 2 {
			all, err := w.g.Nodes(context.Background())
			w.check(err)
			w.expect("nodes", fmt.Sprint(all), "[{1/a 1 true [] 0 0bit "+noRoute+"}]")
		}
		w.expect("times that it is logged", strings.Count(log.String(), "read the machine's settings"), 1)
		if err := w.set(b, Node{Owner: "2/b", NAT: true}); err == nil {
			w.Error("a node is connected without the table")
		}
	})
}

// ping2 pings the host outside from an address, which it would answer.
func (w *world) ping2(pid int, from string) bool {
	w.run(w.away, "ip", "route", "replace", from+"/32", "via", "192.0.2.1")
	_, err := w.try(pid, "ping", "-c1", "-W2", "-I", from, "192.0.2.2")
	return err == nil
}

func TestPortsThatOthersHaveAreRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.process(), w.process()
		w.serve(0, "9000", "of the machine")
		w.check(w.set(a, Node{Owner: "1/a", Ports: []slice.HostPort{web}}))
		for _, tt := range []struct {
			port slice.HostPort
			want string
		}{
			{web, "connect 2/b with the outside: port tcp/8080 is reserved for 1/a"},
			{slice.HostPort{Protocol: slice.TCP, Port: 9000},
				"connect 2/b with the outside: port tcp/9000 of this machine is in use by one of its " +
					"own processes"},
		} {
			err := w.set(b, Node{Owner: "2/b", Ports: []slice.HostPort{tt.port}})
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				w.Errorf("%s: %v", tt.port, err)
			}
		}
		udp := Node{Owner: "2/b", Ports: []slice.HostPort{{Protocol: slice.UDP, Port: 8080}}}
		w.check(w.set(b, udp))
		if err := w.set(b, Node{Owner: "2/b", Ports: []slice.HostPort{web}}); err == nil {
			w.Error("a change to a port that another sliver has is not refused")
		}
		w.serve(0, "8080", "that began later") // it keeps the sliver from nothing
		w.check(w.set(a, Node{Owner: "1/a", Ports: []slice.HostPort{web, {Protocol: slice.TCP, Port: 8082}}}))
		w.check(w.set(a, Node{Owner: "1/a", Ports: []slice.HostPort{web}}))
		all, err := w.g.Nodes(context.Background())
		w.check(err)
		w.expect("nodes", fmt.Sprint(all), "[{1/a 1 false [tcp/8080] 0 0bit "+noRoute+"} "+
			"{2/b 1 false [udp/8080] 0 0bit "+noRoute+"}]")
	})
}

func TestConnectionsOutliveTheAgentAndLeaveNothingBehind(t *testing.T) {
	inWorld(t, func(w *world) {
		before := w.settings()
		a, b, ended := w.process(), w.process(), w.process()
		dns := slice.HostPort{Protocol: slice.UDP, Port: 53}
		w.serve(a, "8080", "of the sliver")
		w.check(w.set(a, Node{Owner: "1/a", Ports: []slice.HostPort{web}}))
		w.check(w.set(b, Node{Owner: "1/b", NAT: true}))
		w.check(w.set(ended, Node{Owner: "2/ended", Ports: []slice.HostPort{dns}}))
		// What an agent left half made that was killed, and a table that is not as it should be.
		w.run(0, "ip", "link", "add", "pgo7", "type", "veth", "peer", "name", "x7")
		w.run(0, "nft", "delete", "table", "inet", tableName)
		w.expect("without the table", w.fetch(w.away, "192.0.2.1:8080"), "")
		w.g = New(w.dir, nil, nil)
		all, err := w.g.Nodes(context.Background())
		w.check(err)
		w.expect("nodes of another agent", fmt.Sprint(all),
			"[{1/a 1 false [tcp/8080] 0 0bit "+noRoute+"} {1/b 1 true [] 0 0bit "+noRoute+
				"} {2/ended 1 false [udp/53] 0 0bit "+noRoute+"}]")
		w.expect("by the next agent", w.fetch(w.away, "192.0.2.1:8080"), "of the sliver")
		w.expect("a ping", w.ping(b, "192.0.2.2"), true)

		// A sliver that ended took its device along, and the port is free again.
		w.check(netnsEnd(ended))
		c := w.process()
		w.wait("the device to go", func() bool {
			all, err := w.g.Nodes(context.Background())
			return err == nil && len(all) == 2
		})
		w.check(w.set(c, Node{Owner: "3/c", Ports: []slice.HostPort{dns}}))
		w.check(w.g.Delete(context.Background(), "1/b"))
		w.expect("a ping of what was disconnected", w.ping(b, "192.0.2.2"), false)
		w.check(Remove(w.dir))
		w.expect("the machine's settings", w.settings(), before)
		w.expect("the rules", w.run(0, "nft", "list", "ruleset"), "")
		links, err := netlink.LinkList()
		w.check(err)
		for _, l := range links {
			if strings.HasPrefix(l.Attrs().Name, prefix) {
				w.Errorf("%s is left", l.Attrs().Name)
			}
		}
	})
}

// sources counts the UDP packets that have come to a packet socket, by their source.
func (w *world) sources(fd int) map[netip.Addr]int {
	w.Helper()
	all, packet := map[netip.Addr]int{}, make([]byte, 100)
	for range 10_000 { // more may come as fast as they are read
		n, _, err := unix.Recvfrom(fd, packet, 0)
		if errors.Is(err, unix.EAGAIN) {
			return all
		}
		w.check(err)
		if n >= 20 && packet[9] == unix.IPPROTO_UDP {
			all[netip.AddrFrom4([4]byte(packet[12:16]))]++
		}
	}
	return all
}

func (w *world) settings() string {
	w.Helper()
	var all []string
	for _, path := range []string{forwarding, reservedPorts} {
		text, err := os.ReadFile(path)
		w.check(err)
		all = append(all, string(text))
	}
	return strings.Join(all, ";")
}

// netnsEnd ends a process by which a namespace is there.
func netnsEnd(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}

func TestTheMachineForwardsNothingElse(t *testing.T) {
	inWorld(t, func(w *world) {
		a, far := w.process(), w.process()
		w.run(0, "ip", "link", "add", "nic2", "type", "veth", "peer", "name", "eth0", "netns", fmt.Sprint(far))
		w.run(0, "ip", "address", "add", "203.0.113.1/24", "dev", "nic2")
		w.run(0, "ip", "link", "set", "nic2", "up")
		w.run(far, "ip", "address", "add", "203.0.113.2/24", "dev", "eth0")
		w.run(far, "ip", "link", "set", "eth0", "up")
		w.run(far, "ip", "route", "add", "default", "via", "203.0.113.1")
		w.run(w.away, "ip", "route", "add", "default", "via", "192.0.2.1")
		w.expect("before", w.ping(w.away, "203.0.113.2"), false)
		w.check(w.set(a, Node{Owner: "1/a", NAT: true}))
		w.expect("with a sliver", w.ping(w.away, "203.0.113.2"), false)
		w.expect("the sliver", w.ping(a, "203.0.113.2"), true)
	})
}

func TestForwardingStaysForAProgramThatBeganLater(t *testing.T) {
	for bridge, want := range map[string]string{"virbr0": "1", "br0": "0"} {
		inWorld(t, func(w *world) {
			a := w.process()
			w.check(os.WriteFile(forwarding, []byte("0"), 0))
			w.check(w.set(a, Node{Owner: "1/a", NAT: true}))
			w.run(0, "ip", "link", "add", bridge, "type", "bridge")
			w.check(w.g.Delete(context.Background(), "1/a"))
			text, err := os.ReadFile(forwarding)
			w.check(err)
			w.expect("ip_forward with "+bridge, strings.TrimSpace(string(text)), want)
			w.expect("what is saved is there", w.g.saved.exists(), false)
		})
	}
}

// A program that forwards IPv4 alone does not keep the machine a router of IPv6.
func TestEachFamilyIsForwardedForWhoNeedsIt(t *testing.T) {
	for address, want := range map[string]string{"": "0", "fd00:1::1/64": "1"} {
		inWorld(t, func(w *world) {
			w.six()
			w.check(w.set(w.process(), Node{Owner: "1/a", NAT: true}))
			w.expect("forwarding", w.setting("ipv6/conf/all/forwarding"), "1")
			w.run(0, "ip", "link", "add", "docker0", "type", "bridge")
			if address != "" {
				w.run(0, "ip", "address", "add", address, "dev", "docker0", "nodad")
			}
			w.check(w.g.Delete(context.Background(), "1/a"))
			w.expect("forwarding with docker0 "+address, w.setting("ipv6/conf/all/forwarding"), want)
		})
	}
}

// To write ip_forward makes the kernel write accept_redirects, too, both when it is set and when it is restored.
func TestRedirectsAreAcceptedAsBefore(t *testing.T) {
	for _, was := range []string{"0", "1"} {
		inWorld(t, func(w *world) {
			w.check(os.WriteFile(forwarding, []byte("0"), 0))
			w.check(os.WriteFile(redirects, []byte(was), 0))
			w.check(w.set(w.process(), Node{Owner: "1/a", NAT: true}))
			w.check(w.g.Delete(context.Background(), "1/a"))
			text, err := os.ReadFile(redirects)
			w.check(err)
			w.expect("accept_redirects afterwards", strings.TrimSpace(string(text)), was)
		})
	}
}

// A sliver that sends without a pause sends nothing before there are rules for it, also where the machine forwards.
func TestNothingLeavesASliverBeforeItsRules(t *testing.T) {
	inWorld(t, func(w *world) {
		w.check(os.WriteFile(forwarding, []byte("1"), 0))
		fd := -1
		w.check(in(w.away, func() (err error) {
			const ipv4 = unix.ETH_P_IP>>8 | unix.ETH_P_IP&0xff<<8
			const flags = unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC
			fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|flags, ipv4)
			return err
		}))
		defer func() { _ = unix.Close(fd) }()
		for range 3 {
			a := w.process()
			c := exec.Command("nsenter", "--net", "--target", fmt.Sprint(a), "python3", "-c", `
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print("sends", flush=True)
while True:
    try:
        s.sendto(b"x", ("192.0.2.2", 5000))
    except OSError:
        pass
`)
			out, err := c.StdoutPipe()
			w.check(err)
			w.check(c.Start())
			stop := sync.OnceFunc(func() { _ = c.Process.Kill(); _ = c.Wait() })
			w.Cleanup(stop)
			_, err = io.ReadFull(out, make([]byte, len("sends")))
			w.check(err)
			w.check(w.set(a, Node{Owner: "1/a", NAT: true}))
			w.wait("packets of the machine's address", func() bool {
				sources := w.sources(fd)
				for at, n := range sources {
					if at.String() != "192.0.2.1" {
						w.Fatalf("%d packets come from %s", n, at)
					}
				}
				return len(sources) > 0
			})
			stop()
			w.check(w.g.Delete(context.Background(), "1/a"))
		}
	})
}

func TestAliasesSayWhatTheyWereMadeFrom(t *testing.T) {
	full := Node{Owner: "4095/" + strings.Repeat("n", 63), Digest: strings.Repeat("d", 24), NAT: true,
		Bind: slice.Ports{First: 20000, Last: 20999}}
	for range slice.MaxHostPorts {
		full.Ports = append(full.Ports, slice.HostPort{Protocol: slice.TCP, Port: 60000})
	}
	for _, n := range []Node{
		{Owner: "1/a", Digest: "d"}, {Owner: "1/a", Digest: "d", Ports: []slice.HostPort{web}}, full,
		{Owner: "1/a", Digest: "d", Bind: slice.Ports{First: 80, Last: 80}},
	} {
		for _, d := range []device{{node: n}, {node: n, ipv6: true}} {
			d.node.Rate = unit.MaxRate
			alias := d.alias()
			if got, ok := parse(alias); !ok || fmt.Sprint(got) != fmt.Sprint(d) || len(alias) > 255 {
				t.Errorf("%s (%d bytes): %v, %t", alias, len(alias), got, ok)
			}
		}
	}
	older, ok := parse("pergola outside 1/a digest=d nat b=80 tcp/8080 udp/53")
	if want := "{1/a d true [tcp/8080 udp/53] 80 0bit }"; !ok || fmt.Sprint(older.node) != want {
		t.Errorf("of an older version: %v", older.node)
	}
	for _, alias := range []string{
		"", "pergola port 1/a digest=1", "pergola outside 1/a", "pergola outside 1/a x=1",
	} {
		if n, ok := parse(alias); ok {
			t.Errorf("%q is %v", alias, n)
		}
	}
	last := device{index: maxDevices - 1}
	if !isInner(last.inner()) || last.at() != netip.MustParseAddr("198.19.255.254") {
		t.Errorf("the last one is %s", last.at())
	}
	if !isInner(last.inner6()) || last.inner6() != netip.MustParseAddr("fd4c:9a17:b2e6:1::ffff") {
		t.Errorf("the last one is %s", last.inner6())
	}
}

func TestAnInterruptedListIsAskedForAgain(t *testing.T) {
	for _, tt := range []struct {
		interrupted, asked int
		want               error
	}{{0, 1, nil}, {3, 4, nil}, {100, 10, netlink.ErrDumpInterrupted}} {
		asked := 0
		err := again(func() error {
			if asked++; asked <= tt.interrupted {
				return fmt.Errorf("list: %w", netlink.ErrDumpInterrupted)
			}
			return nil
		})
		if asked != tt.asked || !errors.Is(err, tt.want) {
			t.Errorf("interrupted %d times: asked %d times, %v", tt.interrupted, asked, err)
		}
	}
}

func TestADeviceThatIsThereIsNotUndone(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.process(), w.process()
		w.check(w.set(a, Node{Owner: "1/a", NAT: true}))
		var steps undo.Steps
		if err := (device{node: Node{Owner: "2/b"}}).make(b, &steps); err == nil || len(steps) > 0 {
			w.Errorf("the same device again: %v, %d steps to undo", err, len(steps))
		}
	})
}

func TestThisKernelTakesTheTable(t *testing.T) {
	testkit.Root(t)
	if err := HaveNAT(); err != nil {
		t.Error(err)
	}
}
