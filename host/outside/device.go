package outside

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

// Pairs of devices have addresses of 198.19.0.0/16, the upper half of what RFC 2544 reserves for benchmarks, and of a
// prefix of RFC 4193, whose number was drawn once: two each, the even one at the machine's end. They are seen nowhere
// else.
var (
	pool  = netip.MustParsePrefix("198.19.0.0/16")
	pool6 = netip.MustParsePrefix("fd4c:9a17:b2e6:1::/64")
)

const (
	prefix     = "pgo" // of the machine's ends; the number follows
	maxDevices = 1 << 15
	word       = "pergola"
	role       = "outside"
	bindKey    = "b="
	portsKey   = "p="
	rateKey    = "r="
	ipv6Word   = "6"

	// In the sliver, what is sent from the interface's address goes out by it, whatever other default route there
	// is. Other traffic takes the interface where the sliver has no better default route.
	ownRoutes = 4096 // table
	priority  = 1000
	metric    = 4096
)

// device is one pair.
type device struct {
	index int
	node  Node
	ipv6  bool // it has addresses of IPv6, too
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

// at6 and inner6 are those of IPv6.
func (d device) at6() netip.Addr {
	a := pool6.Addr().As16()
	a[14], a[15] = byte(d.index>>7), byte(d.index<<1)
	return netip.AddrFrom16(a)
}

func (d device) inner6() netip.Addr { return d.at6().Next() }

// isInner reports whether an address may be that of a sliver's end.
func isInner(a netip.Addr) bool { return pool.Contains(a) || pool6.Contains(a) }

// alias is what marks the device, when it is complete: pergola outside OWNER digest=D [nat] [6] [r=100000000]
// [b=8000-8099] [p=t8080,u53]. The kernel takes 255 bytes.
func (d device) alias() string {
	words := []string{word, role, d.node.Owner, "digest=" + d.node.Digest}
	if d.node.NAT {
		words = append(words, "nat")
	}
	if d.ipv6 {
		words = append(words, ipv6Word)
	}
	if d.node.Rate != 0 {
		words = append(words, rateKey+strconv.FormatUint(uint64(d.node.Rate), 10))
	}
	if d.node.binds() {
		words = append(words, bindKey+d.node.Bind.String())
	}
	if len(d.node.Ports) > 0 {
		words = append(words, portsKey+joinPorts(d.node.Ports))
	}
	return strings.Join(words, " ")
}

// parse is the reverse of alias; ok is false where the device is none, or was left half made.
func parse(alias string) (d device, ok bool) {
	words := strings.Fields(alias)
	if len(words) < 4 || words[0] != word || words[1] != role {
		return d, false
	}
	d.node.Owner = words[2]
	d.node.Digest, ok = strings.CutPrefix(words[3], "digest=")
	for _, w := range words[4:] {
		key, value, _ := strings.Cut(w, "=")
		switch key += "="; {
		case w == "nat":
			d.node.NAT = true
		case w == ipv6Word:
			d.ipv6 = true
		case key == rateKey:
			bits, _ := strconv.ParseUint(value, 10, 64)
			d.node.Rate = unit.Rate(bits)
		case key == bindKey:
			d.node.Bind, _ = slice.ParsePorts(value)
		case key == portsKey:
			d.node.Ports = splitPorts(value)
		default: // an older version wrote each port as a word
			if p, err := slice.ParseHostPort(w); err == nil {
				d.node.Ports = append(d.node.Ports, p)
			}
		}
	}
	return d, ok
}

// joinPorts writes t8080,u53, which is shorter than users write it.
func joinPorts(ports []slice.HostPort) string {
	all := make([]string, len(ports))
	for i, p := range ports {
		all[i] = p.Protocol[:1] + strconv.Itoa(int(p.Port))
	}
	return strings.Join(all, ",")
}

// splitPorts is the reverse of joinPorts.
func splitPorts(text string) (all []slice.HostPort) {
	for _, w := range strings.Split(text, ",") {
		for _, protocol := range []string{slice.TCP, slice.UDP} {
			number, ok := strings.CutPrefix(w, protocol[:1])
			if p, err := slice.ParseHostPort(protocol + "/" + number); ok && err == nil {
				all = append(all, p)
			}
		}
	}
	return all
}

// devices lists those of slivers, in the order of their numbers, and deletes what was left half made. It lists none
// where another server of the machine has the outside.
func (g *Gateway) devices() (all []device, err error) {
	links, err := outsideLinks()
	if err != nil || len(links) == 0 {
		return nil, err
	}
	if other, err := g.otherServer(links); other != "" || err != nil {
		return nil, err
	}
	at := map[int]device{}
	for index, l := range links {
		if d, whole := parse(l.Attrs().Alias); whole {
			d.index = index
			at[index] = d
		} else if l.Attrs().Alias == "" {
			if err := (device{index: index}).delete(); err != nil {
				g.log.Error("cannot delete what is left half made", "error", err)
			}
		}
	}
	for _, index := range slices.Sorted(maps.Keys(at)) {
		all = append(all, at[index])
	}
	return all, nil
}

// outsideLinks lists the machine's ends of pairs, whole or not, by number.
func outsideLinks() (map[int]netlink.Link, error) {
	var links []netlink.Link
	err := again(func() (err error) { links, err = netlink.LinkList(); return err })
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	all := map[int]netlink.Link{}
	for _, l := range links {
		number, ours := strings.CutPrefix(l.Attrs().Name, prefix)
		index, err := strconv.Atoi(number)
		if ours && err == nil && index >= 0 && index < maxDevices && l.Type() == "veth" {
			all[index] = l
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
	// A strict reverse path is beside the table's rules of source addresses.
	err = set("net", map[string]string{
		"ipv4/conf/" + d.name() + "/rp_filter": "1", "ipv4/conf/" + d.name() + "/accept_redirects": "0",
		"ipv4/conf/" + d.name() + "/send_redirects":      "0",
		"ipv4/conf/" + d.name() + "/accept_source_route": "0",
		"ipv6/conf/" + d.name() + "/disable_ipv6":        "1",
	})
	if err != nil {
		return err
	}
	if err := configure(d.name(), d.at()); err != nil {
		return err
	}
	if err := in(pid, func() error { return d.configureInner() }); err != nil {
		return fmt.Errorf("configure interface %s in the node: %w", Inner, err)
	}
	if d.ipv6 {
		if err := d.addIPv6(pid); err != nil {
			return err
		}
	}
	if err := d.shape(pid); err != nil {
		return err
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
	if err := addAddress(l, netip.PrefixFrom(at, 31)); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return fmt.Errorf("set device %s up: %w", name, err)
	}
	return nil
}

func addAddress(l netlink.Link, p netip.Prefix) error {
	address := &netlink.Addr{IPNet: network(p)}
	if p.Addr().Is6() {
		address.Flags = unix.IFA_F_NODAD // nobody else is on the pair
	}
	if err := netlink.AddrReplace(l, address); err != nil {
		return fmt.Errorf("give device %s the address %s: %w", l.Attrs().Name, p.Addr(), err)
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
	return d.route(l, d.at(), d.inner())
}

// route makes what the sliver sends from the address inner go out by the device, to the address at, and whatever has no
// better default route.
func (d device) route(l netlink.Link, at, inner netip.Addr) error {
	for _, r := range []netlink.Route{{Table: ownRoutes}, {Table: unix.RT_TABLE_MAIN, Priority: metric}} {
		r.LinkIndex, r.Gw = l.Attrs().Index, at.AsSlice()
		r.Dst = network(netip.PrefixFrom(at, 0).Masked())
		if r.Table == unix.RT_TABLE_MAIN && !d.node.NAT {
			continue // it has nothing to send there but answers
		}
		if err := netlink.RouteReplace(&r); err != nil {
			return fmt.Errorf("add a default route: %w", err)
		}
	}
	deleteRules(at)
	rule := ruleOf(at)
	rule.Src = network(netip.PrefixFrom(inner, inner.BitLen()))
	if err := netlink.RuleAdd(rule); err != nil {
		return fmt.Errorf("add a rule for %s: %w", inner, err)
	}
	return nil
}

// ruleOf is the rule of the family of an address.
func ruleOf(a netip.Addr) *netlink.Rule {
	rule := netlink.NewRule()
	rule.Family, rule.Table, rule.Priority = unix.AF_INET, ownRoutes, priority
	if a.Is6() {
		rule.Family = unix.AF_INET6
	}
	return rule
}

// deleteRules deletes those of an older pair: they stay when its devices go. Processes of the sliver may add such rules
// meanwhile.
func deleteRules(a netip.Addr) {
	for range 16 {
		if netlink.RuleDel(ruleOf(a)) != nil {
			return
		}
	}
}

func network(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
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

// again repeats a request until the kernel's answer is complete: what changes meanwhile interrupts it.
func again(f func() error) (err error) {
	for range 10 {
		if err = f(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return err
		}
	}
	return err
}
