package outside

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/model/slice"
)

// Pairs of devices have addresses of 198.19.0.0/16, the upper half of what RFC 2544 reserves for benchmarks: two each,
// the even one at the machine's end. They are seen nowhere else.
var pool = netip.MustParsePrefix("198.19.0.0/16")

const (
	prefix     = "pgo" // of the machine's ends; the number follows
	maxDevices = 1 << 15
	word       = "pergola"
	role       = "outside"
	bindKey    = "b="

	// In the sliver, what is sent from the interface's address goes out by it, whatever other default route there
	// is. Other traffic takes the interface where the sliver has no better default route.
	table    = 4096
	priority = 1000
	metric   = 4096
)

// device is one pair.
type device struct {
	index int
	node  Node
}

func (d device) name() string { return prefix + strconv.Itoa(d.index) }

// at gives the address of the machine's end.
func (d device) at() netip.Addr {
	a := pool.Addr().As4()
	a[2], a[3] = byte(d.index>>7), byte(d.index<<1)
	return netip.AddrFrom4(a)
}

// inner gives the address of the sliver's end.
func (d device) inner() netip.Addr { return d.at().Next() }

// alias is what marks the device, when it is complete: pergola outside OWNER digest=D [nat] [b=8000-8099]
// [tcp/8080...]. The kernel takes 255 bytes.
func (d device) alias() string {
	words := []string{word, role, d.node.Owner, "digest=" + d.node.Digest}
	if d.node.NAT {
		words = append(words, "nat")
	}
	if d.node.binds() {
		words = append(words, bindKey+d.node.Bind.String())
	}
	for _, p := range d.node.Ports {
		words = append(words, p.String())
	}
	return strings.Join(words, " ")
}

// parse is the reverse of alias; ok is false where the device is none, or was left half made.
func parse(alias string) (n Node, ok bool) {
	words := strings.Fields(alias)
	if len(words) < 4 || words[0] != word || words[1] != role {
		return n, false
	}
	n.Owner = words[2]
	n.Digest, ok = strings.CutPrefix(words[3], "digest=")
	for _, w := range words[4:] {
		if w == "nat" {
			n.NAT = true
		} else if ports, ok := strings.CutPrefix(w, bindKey); ok {
			n.Bind, _ = slice.ParsePorts(ports)
		} else if p, err := slice.ParseHostPort(w); err == nil {
			n.Ports = append(n.Ports, p)
		}
	}
	return n, ok
}

// devices lists those of slivers, in the order of their numbers, and deletes what was left half made.
func (g *Gateway) devices() (all []device, err error) {
	var links []netlink.Link
	err = again(func() (err error) { links, err = netlink.LinkList(); return err })
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	at := map[int]device{}
	for _, l := range links {
		number, ours := strings.CutPrefix(l.Attrs().Name, prefix)
		index, err := strconv.Atoi(number)
		if !ours || err != nil || index < 0 || index >= maxDevices || l.Type() != "veth" {
			continue
		}
		d := device{index: index}
		var whole bool
		if d.node, whole = parse(l.Attrs().Alias); whole {
			at[index] = d
		} else if l.Attrs().Alias == "" {
			if err := d.delete(); err != nil {
				g.log.Error("cannot delete what is left half made", "error", err)
			}
		}
	}
	for index := 0; len(all) < len(at); index++ {
		if d, there := at[index]; there {
			all = append(all, d)
		}
	}
	return all, nil
}

// freeIndex is the least that no device has.
func freeIndex(used []device) int {
	index := 0
	for _, d := range used { // which are in order
		if d.index == index {
			index++
		}
	}
	return index
}

// make makes the pair, with addresses and routes. The alias comes last. What is to be undone is pushed.
func (d device) make(pid int, steps *undo.Steps) error {
	if d.index >= maxDevices {
		return fmt.Errorf("%d nodes of this machine reach the outside already", maxDevices)
	}
	ns, err := netns.Open(netns.Path(pid))
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: d.name(), MTU: slice.DefaultMTU},
		PeerName:  Inner, PeerNamespace: netlink.NsFd(ns.Fd()),
	}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("make device %s: %w", d.name(), err) // perhaps it is another sliver's
	}
	steps.Push(d.delete)
	// No IPv6. A strict reverse path is beside the table's rules of source addresses.
	for key, value := range map[string]string{
		"ipv6/conf/" + d.name() + "/disable_ipv6": "1", "ipv4/conf/" + d.name() + "/rp_filter": "1",
		"ipv4/conf/" + d.name() + "/accept_redirects": "0", "ipv4/conf/" + d.name() + "/send_redirects": "0",
	} {
		err := os.WriteFile(filepath.Join("/proc/sys/net", key), []byte(value), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // a machine without IPv6
			return fmt.Errorf("set net/%s: %w", key, err)
		}
	}
	if err := configure(d.name(), d.at()); err != nil {
		return err
	}
	if err := in(pid, func() error { return d.configureInner() }); err != nil {
		return fmt.Errorf("configure interface %s in the node: %w", Inner, err)
	}
	return d.mark()
}

// mark writes what the device is for into its alias.
func (d device) mark() error {
	l, err := netlink.LinkByName(d.name())
	if err == nil {
		err = netlink.LinkSetAlias(l, d.alias())
	}
	if err != nil {
		return fmt.Errorf("mark device %s: %w", d.name(), err)
	}
	return nil
}

// configure gives a device its address, and sets it up.
func configure(name string, at netip.Addr) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find device %s: %w", name, err)
	}
	address := &netlink.Addr{IPNet: network(netip.PrefixFrom(at, 31))}
	if err := netlink.AddrAdd(l, address); err != nil {
		return fmt.Errorf("give device %s the address %s: %w", name, at, err)
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return fmt.Errorf("set device %s up: %w", name, err)
	}
	return nil
}

func (d device) configureInner() error {
	if err := configure(Inner, d.inner()); err != nil {
		return err
	}
	l, err := netlink.LinkByName(Inner)
	if err != nil {
		return err
	}
	for _, r := range []netlink.Route{{Table: table}, {Table: unix.RT_TABLE_MAIN, Priority: metric}} {
		r.LinkIndex, r.Gw = l.Attrs().Index, d.at().AsSlice()
		r.Dst = network(netip.MustParsePrefix("0.0.0.0/0"))
		if r.Table == unix.RT_TABLE_MAIN && !d.node.NAT {
			continue // it has nothing to send there but answers
		}
		if err := netlink.RouteAdd(&r); err != nil {
			return fmt.Errorf("add a default route: %w", err)
		}
	}
	rule := netlink.NewRule()
	rule.Family, rule.Table, rule.Priority = unix.AF_INET, table, priority
	// An older pair's rule stays when its devices go. Processes of the sliver may add such rules meanwhile.
	for range 16 {
		if netlink.RuleDel(rule) != nil {
			break
		}
	}
	rule.Src = network(netip.PrefixFrom(d.inner(), 32))
	if err := netlink.RuleAdd(rule); err != nil {
		return fmt.Errorf("add a rule for %s: %w", d.inner(), err)
	}
	return nil
}

func network(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), 32)}
}

// delete deletes the pair, and its connections. It is no error if it is not there.
func (d device) delete() error {
	l, err := netlink.LinkByName(d.name())
	if err == nil {
		err = netlink.LinkDel(l)
	}
	var none netlink.LinkNotFoundError
	if err != nil && !errors.As(err, &none) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("delete device %s: %w", d.name(), err)
	}
	return d.deleteConnections()
}

// deleteConnections makes conntrack forget what the sliver's end sends and gets: the next sliver with its address is to
// get none of it.
func (d device) deleteConnections() error {
	err := again(func() error {
		_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET, connectionsOf(d.inner()))
		return err
	})
	if err != nil {
		return fmt.Errorf("delete connections of device %s: %w", d.name(), err)
	}
	return nil
}

// deleteConnectionsTo makes conntrack forget connections that lead to the sliver by some of the machine's ports.
func (d device) deleteConnectionsTo(ports []slice.HostPort) error {
	if len(ports) == 0 {
		return nil
	}
	err := again(func() error {
		_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET,
			connectionsTo{d.inner(), ports})
		return err
	})
	if err != nil {
		return fmt.Errorf("delete connections to ports of device %s: %w", d.name(), err)
	}
	return nil
}

// connectionsTo selects conntrack's entries of connections that NAT leads to an address, by their ports before it.
type connectionsTo struct {
	inner netip.Addr
	ports []slice.HostPort
}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (c connectionsTo) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	protocol := map[uint8]string{unix.IPPROTO_TCP: slice.TCP, unix.IPPROTO_UDP: slice.UDP}[f.Forward.Protocol]
	return f.Reverse.SrcIP.Equal(c.inner.AsSlice()) &&
		slices.Contains(c.ports, slice.HostPort{Protocol: protocol, Port: f.Forward.DstPort})
}

// connectionsOf selects conntrack's entries of an address, whichever side it is on, before or after NAT.
type connectionsOf netip.Addr

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (c connectionsOf) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	for _, ip := range []net.IP{f.Forward.SrcIP, f.Forward.DstIP, f.Reverse.SrcIP, f.Reverse.DstIP} {
		if ip.Equal(netip.Addr(c).AsSlice()) {
			return true
		}
	}
	return false
}

// again repeats a request until the kernel's answer is complete: what changes meanwhile interrupts it.
func again(f func() error) (err error) {
	for range 10 {
		if err = f(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return err
		}
	}
	return err
}

// exit is a device of the machine by which packets leave, and the address that they have then.
type exit struct {
	device  string
	address netip.Addr
}

// exits lists those that have an address.
func exits() (all []exit, err error) {
	var addresses []netlink.Addr
	err = again(func() (err error) { addresses, err = netlink.AddrList(nil, netlink.FAMILY_V4); return err })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	seen := map[int]bool{}
	for _, a := range addresses {
		at, ok := netip.AddrFromSlice(a.IP.To4())
		if !ok || seen[a.LinkIndex] || a.Scope != unix.RT_SCOPE_UNIVERSE {
			continue
		}
		l, err := netlink.LinkByIndex(a.LinkIndex)
		if err != nil || strings.HasPrefix(l.Attrs().Name, prefix) {
			continue // it has gone meanwhile, or leads to a sliver
		}
		seen[a.LinkIndex] = true
		all = append(all, exit{l.Attrs().Name, at})
	}
	return all, nil
}
