package wire_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
)

// bed is several machines on this one: a namespace each, with a veth pair for a NIC whose other end is plugged into a
// switch. Nothing of it is seen from outside.
type bed struct {
	testing.TB
	wires    *os.File // namespace of the switch
	mtu      int
	machines []*machine
	keys     uint32
}

// machine is one of a bed's. Its interface is eth0.
type machine struct {
	*lab
	number   int
	ns       *os.File
	ip4, ip6 netip.Addr
}

const nic = "eth0"

// testAddress is a machine's.
func testAddress(machine int) netip.Addr { return netip.AddrFrom4([4]byte{10, 9, 0, byte(machine)}) }

func newBed(t testing.TB, machines, mtu int) *bed {
	t.Helper()
	testkit.Root(t)
	var dirs []string
	for range machines {
		dirs = append(dirs, testkit.TempState(t))
	}
	testkit.LeakCheck(t, dirs...)
	b := &bed{TB: t, mtu: mtu}
	b.wires = b.namespace()
	b.must(netns.In(b.wires, func() error {
		snooping := false
		return b.up(&netlink.Bridge{
			LinkAttrs: netlink.LinkAttrs{Name: "switch", MTU: mtu}, MulticastSnooping: &snooping,
		})
	}))
	for i, dir := range dirs {
		b.add(i+1, dir)
	}
	return b
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// namespace makes one that goes with the test.
func (b *bed) namespace() (ns *os.File) {
	b.Helper()
	b.must(netns.New(func() (err error) {
		ns, err = netns.Here()
		return err
	}))
	b.Cleanup(func() { _ = ns.Close() })
	return ns
}

// up makes a device and sets it up.
func (b *bed) up(l netlink.Link, addresses ...netip.Prefix) error {
	if err := netlink.LinkAdd(l); err != nil {
		return fmt.Errorf("make %s: %w", l.Attrs().Name, err)
	}
	return setUp(l.Attrs().Name, addresses...)
}

func setUp(name string, addresses ...netip.Prefix) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	for _, a := range addresses {
		address, err := netlink.ParseAddr(a.String())
		if err != nil {
			return err
		}
		if a.Addr().Is6() {
			address.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(l, address); err != nil {
			return fmt.Errorf("add %s to %s: %w", a, name, err)
		}
	}
	return netlink.LinkSetUp(l)
}

func (b *bed) add(number int, dir string) {
	b.Helper()
	m := &machine{number: number}
	m.ns, m.ip4, m.ip6 = b.nic(number)
	m.lab = newLabOn(b.TB, m.ns, dir)
	m.ports = 100 * number // the names of ports are the slice's
	b.machines = append(b.machines, m)
}

// nic makes a namespace with an interface that is plugged into the switch.
func (b *bed) nic(number int) (ns *os.File, ip4, ip6 netip.Addr) {
	b.Helper()
	ns = b.namespace()
	ip4, ip6 = testAddress(number), netip.MustParseAddr(fmt.Sprintf("fd09::%d", number))
	wireEnd := fmt.Sprint("w", number)
	b.must(netns.In(b.wires, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU, attrs.HardwareAddr, attrs.TxQLen = wireEnd, b.mtu, mac(0xff00+number), 1000
		pair := netlink.NewVeth(attrs)
		pair.PeerName, pair.PeerNamespace = nic, netlink.NsFd(ns.Fd())
		pair.PeerMTU, pair.PeerHardwareAddr = uint32(b.mtu), mac(0xfe00+number)
		if err := b.up(pair); err != nil {
			return err
		}
		sw, err := netlink.LinkByName("switch")
		if err != nil {
			return err
		}
		return netlink.LinkSetMaster(pair, sw)
	}))
	b.must(netns.In(ns, func() error {
		return setUp(nic, netip.PrefixFrom(ip4, 24), netip.PrefixFrom(ip6, 64))
	}))
	// On a wire, checksums are complete and no frame is longer than the MTU.
	for device, where := range map[string]*os.File{nic: ns, wireEnd: b.wires} {
		b.must(asAWire(where, device))
	}
	return ns, ip4, ip6
}

func asAWire(where *os.File, device string) error {
	return switchOffloads(where, device, map[string]bool{"tx-checksum-ip-generic": false, "rx-gro": true})
}

func switchOffloads(where *os.File, device string, to map[string]bool) error {
	return netns.In(where, func() error {
		e, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer e.Close()
		if err := e.Change(device, to); err != nil {
			return fmt.Errorf("switch offloads of %s: %w", device, err)
		}
		return nil
	})
}

func (b *bed) openUnderlays() {
	b.Helper()
	for _, m := range b.machines {
		m.openUnderlay()
	}
}

func (m *machine) openUnderlay() {
	m.Helper()
	m.must(m.OpenUnderlay(m.ctx, wire.UnderlayConfig{Interfaces: []string{nic}}))
}

// end is an interface of a node on a machine.
type end struct {
	*machine
	port string
}

// tunnelOf is how frames from one end, or all of a machine, get to the other.
type tunnelOf struct {
	kind slice.TunnelKind
	ipv6 bool
}

func (t tunnelOf) String() string {
	if t.ipv6 {
		return string(t.kind) + " over IPv6"
	}
	return string(t.kind) + " over IPv4"
}

var tunnelKinds = []tunnelOf{{slice.EGRE, false}, {slice.EGRE, true}, {slice.VXLAN, false}, {slice.VXLAN, true}}

// tunnel describes the proxy port, on machine at, of an interface on machine to.
func (t tunnelOf) tunnel(at, to *machine, name string, key uint32, mtu int) wire.Tunnel {
	w := wire.Tunnel{
		Name: name, Slice: 7, Owner: "lab/far:eth0", Digest: "d1", Kind: t.kind, Key: key,
		Local: at.ip4, Peer: to.ip4, MTU: mtu,
	}
	if t.ipv6 {
		w.Local, w.Peer = at.ip6, to.ip6
	}
	return w
}

// link joins two ends on different machines.
func (b *bed) link(t tunnelOf, a, c end) {
	b.Helper()
	b.keys++
	mtu := b.mtu - t.kind.Overhead(t.ipv6)
	for _, side := range [][2]end{{a, c}, {c, a}} {
		here, there := side[0], side[1]
		here.must(here.AddTunnel(here.ctx, t.tunnel(here.machine, there.machine, there.port, b.keys, mtu)))
		here.must(here.Join(here.ctx, here.port, there.port))
	}
}

// pair makes node a on the first machine and b on the second, linked.
func (b *bed) pair(t tunnelOf) (a, c end) {
	b.Helper()
	mtu := func(p *wire.Port) { p.MTU = b.mtu - t.kind.Overhead(t.ipv6) }
	a, c = end{machine: b.machines[0]}, end{machine: b.machines[1]}
	a.port = a.lab.port("a", mtu, "192.0.2.0/31", "2001:db8::/127")
	c.port = c.lab.port("b", mtu, "192.0.2.1/31", "2001:db8::1/127")
	b.link(t, a, c)
	return a, c
}

// counted reads the underlay's counters.
func (m *machine) counted() map[string]uint64 {
	m.Helper()
	state, err := m.Underlay(m.ctx)
	m.must(err)
	return state.Counters
}

// wantCounted waits until a counter has grown by at least n.
func (m *machine) wantCounted(before map[string]uint64, what string, n uint64) {
	m.Helper()
	testkit.Eventually(m, func() error {
		if now := m.counted(); now[what]-before[what] < n {
			return fmt.Errorf("%q went from %d to %d: %s", what, before[what], now[what], fmt.Sprint(now))
		}
		return nil
	}, 5*time.Second, what+" to be counted")
}

// run runs a command in the machine's namespace.
func (m *machine) run(command ...string) string {
	m.Helper()
	out, err := m.try(command...)
	if err != nil {
		m.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
	return out
}

func (m *machine) try(command ...string) (string, error) { return runIn(m.ns, command...) }

func runIn(ns *os.File, command ...string) (out string, err error) {
	err = netns.In(ns, func() error {
		text, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		out = string(text)
		return err
	})
	return out, err
}

func containsAll(text string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}
