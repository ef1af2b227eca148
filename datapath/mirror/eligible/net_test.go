package eligible

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	ebpflink "github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/kernel/rtnl"
	"github.com/pergola-net/pergola/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// watched is a namespace that is watched: a router with eth0 and eth1, joined to each other.
type watched struct {
	t  *testing.T
	w  *Watcher
	ns *os.File

	mu      sync.Mutex // guards what follows
	verdict *Verdict
	reports int
}

// quick is for tests that wait for what is polled.
var quick = Config{Interval: 50 * time.Millisecond}

func newWatched(t *testing.T, w *Watcher) *watched {
	t.Helper()
	b := &watched{t: t, w: w, ns: newNamespace(t)}
	b.run("ip link set lo up && ip link add eth0 type veth peer name eth1 && ip link set eth0 up && ip link set " +
		"eth1 up")
	b.run("echo 1 >/proc/sys/net/ipv4/ip_forward && echo 1 >/proc/sys/net/ipv6/conf/all/forwarding")
	b.watch()
	return b
}

// watch starts to watch, and waits until there is no reason.
func (b *watched) watch() {
	b.t.Helper()
	t := b.t
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.w.Watch(ctx, b.ns, b.report) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Watch: %v", err)
		}
	})
	b.await("", "")
}

func newWatcher(t *testing.T, c Config) *Watcher {
	t.Helper()
	w, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func newNamespace(t testing.TB) *os.File {
	t.Helper()
	var ns *os.File
	err := netns.New(func() (err error) {
		ns, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}

func (b *watched) report(v Verdict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.verdict = &v
	b.reports++
}

// run has a shell do something in the namespace.
func (b *watched) run(script string) {
	b.t.Helper()
	var out []byte
	err := netns.In(b.ns, func() (err error) {
		out, err = exec.CommandContext(context.Background(), "/bin/sh", "-ec", script).CombinedOutput()
		return err
	})
	if err != nil {
		b.t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// start starts a program in the namespace, and gives what ends it.
func (b *watched) start(command ...string) (stop func()) {
	b.t.Helper()
	cmd := exec.CommandContext(context.Background(), command[0], command[1:]...)
	if err := netns.In(b.ns, cmd.Start); err != nil {
		b.t.Fatalf("start %v: %v", command, err)
	}
	return sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// await waits until the verdict has one reason for each family, with these words; "" is no reason.
func (b *watched) await(ipv4, ipv6 string) {
	b.t.Helper()
	testkit.Eventually(b.t, func() error { return b.is(ipv4, ipv6) }, 10*time.Second,
		fmt.Sprintf("reasons %q for IPv4, %q for IPv6", ipv4, ipv6))
}

func (b *watched) is(ipv4, ipv6 string) error {
	is := func(reasons []string, want string) bool {
		if want == "" {
			return len(reasons) == 0
		}
		return len(reasons) == 1 && strings.Contains(reasons[0], want)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.verdict == nil {
		return errors.New("no verdict yet")
	}
	if !is(b.verdict.IPv4, ipv4) || !is(b.verdict.IPv6, ipv6) {
		return fmt.Errorf("IPv4: %q, IPv6: %q", b.verdict.IPv4, b.verdict.IPv6)
	}
	return nil
}

func TestConditionsThatAnnounceThemselves(t *testing.T) {
	testkit.Root(t)
	testkit.LeakCheck(t)
	b := newWatched(t, newWatcher(t, Config{Interval: time.Hour})) // nothing is polled
	for _, c := range []struct{ name, set, ipv4, ipv6, lift string }{
		{"policy rule", "ip rule add pref 100 from 10.0.0.0/8 iif eth1 lookup 200", "policy rule 100: from 10.0.0.0/8 iif eth1 lookup 200", "", "ip rule del pref 100"},
		{"IPv6 policy rule", "ip -6 rule add pref 7 to 2001:db8::/32 fwmark 1 prohibit", "", "policy rule 7: from all to 2001:db8::/32 fwmark 0x1", "ip -6 rule del pref 7"},
		{"a rule that goes", "ip rule del pref 32766", "policy rule 32766 (lookup main) is missing", "", "ip rule add pref 32766 lookup main"},
		{"the last rule", "ip rule del pref 32767", "", "", "ip rule add pref 32767 lookup default"},
		{"not", "ip rule add not pref 32765 lookup main", "policy rule 32765: from not all lookup main", "", "ip rule del pref 32765"},
		{"no forwarding", "echo 0 >/proc/sys/net/ipv4/ip_forward", "net.ipv4.ip_forward", "", "echo 1 >/proc/sys/net/ipv4/ip_forward"},
		{"no IPv6 forwarding", "echo 0 >/proc/sys/net/ipv6/conf/all/forwarding", "", "net.ipv6.conf.all.forwarding", "echo 1 >/proc/sys/net/ipv6/conf/all/forwarding"},
		{"qdisc", "tc qdisc add dev eth0 root tbf rate 1mbit burst 10k latency 50ms", "qdisc tbf on eth0", "qdisc tbf on eth0", "tc qdisc del dev eth0 root"},
		{"a tree of qdiscs", "tc qdisc add dev eth0 root handle 1: htb; tc class add dev eth0 parent 1: classid 1:1 htb rate 1mbit; tc qdisc add dev eth0 parent 1:1 pfifo", "qdisc htb on eth0", "qdisc htb on eth0", "tc qdisc del dev eth0 root"},
		{"clsact", "tc qdisc add dev eth1 clsact", "qdisc clsact on eth1", "qdisc clsact on eth1", "tc qdisc del dev eth1 clsact"},
		{"mirred", "tc qdisc add dev eth1 ingress && tc filter add dev eth1 ingress u32 match u32 0 0 action mirred egress mirror dev eth0", "qdisc ingress on eth1", "qdisc ingress on eth1", "tc qdisc del dev eth1 ingress"},
		{"noqueue is the default", "tc qdisc add dev eth0 root noqueue", "", "", "true"},
		{"bridge", "ip link add br0 type bridge && ip link set eth1 master br0", "eth1 belongs to bridge br0", "eth1 belongs to bridge br0", "ip link del br0"},
		{"macvlan", "ip link add mv0 link eth0 type macvlan mode passthru", "macvlan mv0 takes frames of eth0", "macvlan mv0 takes frames of eth0", "ip link del mv0"},
		{"a bridge of nothing", "ip link add br0 type bridge", "", "", "ip link del br0"},
		{"nftables rule", "nft add table inet f && nft 'add chain inet f passing { type filter hook forward priority 0; }' && nft add rule inet f passing counter", "nftables chain inet f passing (forward: 1 rules)", "nftables chain inet f passing (forward: 1 rules)", "nft flush chain inet f passing"},
		{"policy", "nft 'add chain inet f passing { policy drop; }'", "policy drop", "policy drop", "nft delete table inet f"},
		{"nat", "nft add table ip n && nft 'add chain ip n post { type nat hook postrouting priority 100; }'", "nftables chain ip n post (postrouting: 0 rules)", "", "nft delete table ip n"},
		{"IPv6 prerouting", "nft add table ip6 f && nft 'add chain ip6 f pre { type filter hook prerouting priority 0; }' && nft add rule ip6 f pre counter", "", "nftables chain ip6 f pre (prerouting: 1 rules)", "nft delete table ip6 f"},
		{"netdev ingress", "nft add table netdev f && nft 'add chain netdev f in { type filter hook ingress device eth0 priority 0; }' && nft add rule netdev f in counter", "nftables chain netdev f in (ingress: 1 rules)", "nftables chain netdev f in (ingress: 1 rules)", "nft delete table netdev f"},
		{"what is for the node itself", "nft add table inet f && nft 'add chain inet f in { type filter hook input priority 0; policy drop; }' && nft add rule inet f in ct state established accept && nft 'add chain inet f out { type filter hook output priority 0; }' && nft add rule inet f out counter && nft add chain inet f other && nft add rule inet f other drop", "", "", "nft delete table inet f"},
		{"bridge and arp", "nft add table bridge f && nft 'add chain bridge f passing { type filter hook forward priority 0; }' && nft add rule bridge f passing counter && nft add table arp f && nft 'add chain arp f in { type filter hook input priority 0; policy drop; }'", "", "", "nft delete table bridge f; nft delete table arp f"},
		{"xfrm policy", "ip xfrm policy add src 10.0.0.0/8 dst 10.9.0.0/16 dir fwd action block", "xfrm policy (fwd): 10.0.0.0/8 to 10.9.0.0/16", "", "ip xfrm policy flush"},
		{"xfrm policy of IPv6", "ip xfrm policy add src 2001:db8::/32 dst ::/0 dir out action block", "", "xfrm policy (out): 2001:db8::/32 to ::/0", "ip xfrm policy flush"},
		{"xfrm policy for the node itself", "ip xfrm policy add src 10.0.0.0/8 dst 10.9.0.0/16 dir in action block", "", "", "ip xfrm policy flush"},
		{"xfrm default", "ip xfrm policy setdefault fwd block", "xfrm default policy blocks", "xfrm default policy blocks", "ip xfrm policy setdefault fwd accept"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.t = t
			b.run(c.set)
			b.await(c.ipv4, c.ipv6)
			b.run(c.lift)
			if c.ipv4 == "" && c.ipv6 == "" {
				b.examined()
			}
			b.await("", "")
		})
	}
}

// examined waits until something later than all before has been seen.
func (b *watched) examined() {
	b.t.Helper()
	b.run("ip rule add pref 99 lookup main")
	testkit.Eventually(b.t, func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !strings.Contains(fmt.Sprint(b.verdict.IPv4), "policy rule 99") {
			return fmt.Errorf("%q", b.verdict.IPv4)
		}
		return nil
	}, 10*time.Second, "a rule to be seen")
	b.run("ip rule del pref 99")
}

func TestStormOfChanges(t *testing.T) {
	testkit.Root(t)
	testkit.LeakCheck(t)
	b := newWatched(t, newWatcher(t, Config{Interval: time.Hour}))
	b.run("for i in $(seq 3000); do echo rule add pref 500 lookup 200; echo rule del pref 500; " +
		"done | ip -batch - && ip rule add pref 501 lookup 200")
	b.await("policy rule 501", "")
	b.run("ip rule del pref 501")
	b.await("", "")
	b.mu.Lock()
	defer b.mu.Unlock()
	t.Logf("6000 changes: %d reports", b.reports)
}

// Root in a node may send to the groups that are listened to. That is no change, whatever it says, and has nothing
// looked at.
func TestForgedAnnouncements(t *testing.T) {
	testkit.Root(t)
	testkit.LeakCheck(t)
	b := &watched{t: t, ns: newNamespace(t)}
	route := sources[0]
	var listening, forger *rtnl.Conn
	err := netns.In(b.ns, func() (err error) {
		if listening, err = route.listen(); err != nil {
			return err
		}
		forger, err = rtnl.Open(route.protocol)
		return err
	})
	t.Cleanup(func() {
		_ = listening.Close()
		_ = forger.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	forged := rtnl.Request(unix.RTM_NEWRULE, 0, make([]byte, ruleHeader))
	for range 10 { // fewer than the socket has room for: what is lost might have been the kernel's
		to := unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (unix.RTNLGRP_IPV4_RULE - 1)}
		if err := unix.Sendto(forger.FD(), forged, 0, &to); err != nil {
			t.Fatal(err)
		}
	}
	if size, from, err := unix.Recvfrom(listening.FD(), make([]byte, 1),
		unix.MSG_PEEK|unix.MSG_DONTWAIT); err != nil || rtnl.FromKernel(from) {
		t.Errorf("the forged announcement did not arrive, or as the kernel's: %d bytes, %v, %v", size, from,
			err)
	}
	if changed := drain(listening, route); changed != 0 {
		t.Errorf("forged announcements have areas %b looked at", changed)
	}
	b.run("ip rule add pref 99 lookup main")
	if changed := drain(listening, route); changed != rules.alone() {
		t.Errorf("the kernel's announcement has areas %b looked at, want %b", changed, rules.alone())
	}
}

func TestXDP(t *testing.T) {
	testkit.Root(t)
	testkit.LeakCheck(t)
	b := newWatched(t, newWatcher(t, Config{Interval: time.Hour}))
	pass := newXDP(t)
	set := func(fd int) {
		err := netns.In(b.ns, func() error {
			eth0, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			return netlink.LinkSetXdpFd(eth0, fd)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	set(pass.FD())
	b.await("XDP program on eth0", "XDP program on eth0")
	set(-1)
	b.await("", "")
}

// TestAuditFindsWhatIsNotAnnounced: a program attached by a BPF link is not.
func TestAuditFindsWhatIsNotAnnounced(t *testing.T) {
	testkit.Root(t)
	testkit.LeakCheck(t)
	b := newWatched(t, newWatcher(t, Config{Interval: 20 * time.Millisecond, Audit: 100 * time.Millisecond}))
	pass := newXDP(t)
	var attached ebpflink.Link
	err := netns.In(b.ns, func() error {
		eth0, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		attached, err = ebpflink.AttachXDP(ebpflink.XDPOptions{Program: pass, Interface: eth0.Index})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	b.await("XDP program on eth0", "XDP program on eth0")
	_ = attached.Close()
	b.await("", "")
}

// newXDP loads a program that passes every frame.
func newXDP(t *testing.T) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type:         ebpf.XDP,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}
