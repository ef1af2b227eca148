package outside

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/model/constants"
	"github.com/pergola-net/pergola/model/unit"
)

// rules is what the table is made from:
//
//	sources      from slivers, nothing with another source address than their own, or faster than their rate;
//	             from elsewhere, nothing with one of theirs
//	prerouting   a reserved port of an address of the machine -> the sliver
//	output       the same, of connections that processes of the machine make, but for those by loopback addresses
//	postrouting  what slivers send to elsewhere -> an address of the machine, source ports of the NAT range
//	forward      from slivers, nothing that a tunnel of another machine would take, or to what clouds tell their
//	             machines
//	             connections that are there, and errors about a sliver's own
//	             new ones within the bound: slivers with leave, to all but other slivers; what came to a
//	             reserved port
//	             guard: nothing else
//	input        from slivers: echo requests, and answers
//
// Connections that are there go on when it is written again: conntrack knows them. What must be dropped is what no rule
// accepts: conntrack knows nothing of packets that it takes for invalid, so comparisons with what it knows do not match
// them, whichever way they are meant.
type rules struct {
	owner   string // of the table
	devices []device
	exits   []exit
	guard   guard
	most    uint32 // connections from a sliver, and to it
}

// guard says of which families the machine forwarded nothing before: then it is to forward nothing but what slivers
// send and get.
type guard struct{ ipv4, ipv6 bool }

// Bits of the kernel's nf_conntrack_common.h.
const (
	isConfirmed = 1 << 3 // IPS_CONFIRMED: its first packet has passed
	isDNAT      = 1 << 5 // IPS_DST_NAT
)

const forwardChain = "forward"

// Sets that count, by device. The names of others follow from what they count.
const (
	refusedSet = "refused" // new connections beyond a bound
	droppedSet = "dropped" // packets beyond the rate
)

// Sets that do not.
const leaveSet = "leave" // devices of slivers that may make connections

var countingPrefixes = []string{refusedSet, droppedSet, "new_", "connections_", "limit_"}

// isCounting reports whether a set has something counted, which stays when the table is written again.
func isCounting(set string) bool {
	return slices.ContainsFunc(countingPrefixes, func(p string) bool { return strings.HasPrefix(set, p) })
}

// family is IPv4 or IPv6 as rules see it.
type family struct {
	number                      byte
	source, destination, length uint32 // of addresses in the header
	own                         string // the set of devices with their slivers' addresses
	pool                        netip.Prefix
	loopback                    netip.Prefix
	icmp, echo                  byte
	// about is where, behind the header, an ICMP error has the destination of the packet that it is about.
	about uint32
	// credentials is where clouds give out what belongs to the machine; link-local addresses of IPv4 are there for
	// nothing else that is routed.
	credentials []netip.Prefix
}

var families = []family{
	{
		number: unix.NFPROTO_IPV4, source: 12, destination: 16, length: 4, own: "addresses4", pool: pool,
		loopback: netip.MustParsePrefix("127.0.0.0/8"), icmp: unix.IPPROTO_ICMP, echo: 8, about: 8 + 16,
		credentials: []netip.Prefix{
			netip.MustParsePrefix("169.254.0.0/16"),     // most
			netip.MustParsePrefix("100.100.100.200/32"), // Alibaba Cloud
			netip.MustParsePrefix("168.63.129.16/32"),   // Azure
			netip.MustParsePrefix("192.0.0.192/32"),     // Oracle Cloud
		},
	},
	{
		number: unix.NFPROTO_IPV6, source: 8, destination: 24, length: 16, own: "addresses6", pool: pool6,
		loopback: netip.MustParsePrefix("::1/128"), icmp: unix.IPPROTO_ICMPV6, echo: 128, about: 8 + 24,
		credentials: []netip.Prefix{
			netip.MustParsePrefix("fe80::/10"),
			netip.MustParsePrefix("fd00:ec2::/32"),    // Amazon EC2
			netip.MustParsePrefix("fd20:ce::254/128"), // Google Cloud
			netip.MustParsePrefix("fd00:42::42/128"),  // Scaleway
		},
	},
}

// familyOf gives the family of an address.
func familyOf(a netip.Addr) family {
	if a.Is6() {
		return families[1]
	}
	return families[0]
}

// addressIn is a sliver's address of the family, if it has one.
func (d device) addressIn(f family) (netip.Addr, bool) {
	if f.number == unix.NFPROTO_IPV6 {
		return d.inner6(), d.ipv6
	}
	return d.inner(), true
}

// writer adds the rules of a table to a transaction.
type writer struct {
	rules
	conn     *nftables.Conn
	counting map[string]*nftables.Set // that are there, by name
	used     map[string]bool          // of these, by name
	holds    map[string]int           // rules of chains, elements of sets
}

func (w *writer) all() error {
	w.used = map[string]bool{}
	w.conn.AddChain(&nftables.Chain{Name: ownerPrefix + w.owner, Table: ourTable})
	w.holds[ownerPrefix+w.owner] = 0
	if err := w.addSets(); err != nil {
		return err
	}
	for _, add := range []func() error{w.sources, w.toPorts, w.masquerade, w.forward, w.input} {
		if err := add(); err != nil {
			return err
		}
	}
	return nil
}

// addSets adds the sets of devices and addresses.
func (w *writer) addSets() error {
	var leave []nftables.SetElement
	for _, d := range w.devices {
		if d.node.NAT {
			leave = append(leave, nftables.SetElement{Key: nameOf(d.name())})
		}
	}
	if err := w.set(leaveSet, nftables.TypeIFName, leave); err != nil {
		return err
	}
	for _, f := range families {
		var own []nftables.SetElement
		for _, d := range w.devices {
			if a, has := d.addressIn(f); has {
				own = append(own, nftables.SetElement{Key: append(nameOf(d.name()), a.AsSlice()...)})
			}
		}
		address := nftables.TypeIPAddr
		if f.number == unix.NFPROTO_IPV6 {
			address = nftables.TypeIP6Addr
		}
		err := w.set(f.own, nftables.MustConcatSetType(nftables.TypeIFName, address), own)
		if err != nil {
			return err
		}
	}
	return nil
}

// sources drops what slivers send with addresses of others, before fragments are put together and conntrack sees it:
// fragments of several devices can become one packet. The devices' rp_filter is not enough: the kernel takes the
// greater one of it and conf/all/rp_filter, and 2 is the looser check.
func (w *writer) sources() error {
	c := w.chain("sources", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, beforeFragments())
	elsewhere := sliverDevice(expr.MetaKeyIIFNAME, expr.CmpOpNeq)
	for _, f := range families {
		w.rule(c, elsewhere, notDevice(expr.MetaKeyIIFNAME, "lo"), f.is(), f.from(f.pool), drop)
	}
	w.rule(c, elsewhere, accept)
	if err := w.policers(c); err != nil {
		return err
	}
	for _, f := range families {
		w.rule(c, f.is(), f.fromOwn(), accept)
	}
	w.rule(c, drop)
	return nil
}

// policers drops what slivers send beyond their rates: one rule for each rate that there is.
func (w *writer) policers(c *nftables.Chain) error {
	with := map[unit.Rate][]nftables.SetElement{}
	for _, d := range w.devices {
		if rate := d.node.Rate; rate != 0 {
			with[rate] = append(with[rate], nftables.SetElement{Key: nameOf(d.name())})
		}
	}
	for _, rate := range sortedRates(with) {
		members, bytes := fmt.Sprintf("rate_%d", rate), rate.BytesPerSecond()
		if err := w.set(members, nftables.TypeIFName, with[rate]); err != nil {
			return err
		}
		beyond, err := w.each(expr.MetaKeyIIFNAME, fmt.Sprintf("limit_%d", rate), &expr.Limit{
			Type: expr.LimitTypePktBytes, Rate: bytes, Unit: expr.LimitTimeSecond, Over: true,
			Burst: burst(rate),
		})
		if err != nil {
			return err
		}
		counted, err := w.each(expr.MetaKeyIIFNAME, droppedSet, &expr.Counter{})
		if err != nil {
			return err
		}
		w.rule(c, inSet(expr.MetaKeyIIFNAME, members, false), beyond, counted, drop)
	}
	return nil
}

// toPorts leads what comes to reserved ports of the machine to slivers.
func (w *writer) toPorts() error {
	dnat := w.chain("prerouting", nftables.ChainTypeNAT, nftables.ChainHookPrerouting,
		nftables.ChainPriorityNATDest)
	local := w.chain("output", nftables.ChainTypeNAT, nftables.ChainHookOutput, nftables.ChainPriorityNATDest)
	for _, d := range w.devices {
		for _, p := range d.node.Ports {
			for _, f := range families {
				to, has := d.addressIn(f)
				if !has {
					continue
				}
				match := join(f.is(), toThisMachine(), port(p))
				w.rule(dnat, match, dnatTo(to))
				w.rule(local, match, f.notTo(f.loopback), dnatTo(to))
			}
		}
	}
	return nil
}

// masquerade gives connections of slivers an address of the machine, and a port of the range. (The library's Masq
// cannot say a range in a way that the kernel heeds.) The last rule is for other protocols, and for an exit that has
// got its address since. Of what does not come from a sliver's device, nothing is changed.
func (w *writer) masquerade() error {
	snat := w.chain("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting,
		nftables.ChainPriorityNATSource)
	for _, e := range w.exits {
		f := familyOf(e.address)
		leaving := join(deviceNamed(expr.MetaKeyOIFNAME, e.device), f.is(), f.fromOwn())
		w.rule(snat, leaving, protocol(unix.IPPROTO_TCP), snatTo(e.address))
		w.rule(snat, leaving, protocol(unix.IPPROTO_UDP), snatTo(e.address))
	}
	for _, f := range families {
		w.rule(snat, sliverDevice(expr.MetaKeyOIFNAME, expr.CmpOpNeq), f.is(), f.fromOwn(),
			[]expr.Any{&expr.Masq{}})
	}
	return nil
}

func (w *writer) forward() error {
	c := w.chain(forwardChain, nftables.ChainTypeFilter, nftables.ChainHookForward, before())
	from, to := sliverDevice(expr.MetaKeyIIFNAME, expr.CmpOpEq), sliverDevice(expr.MetaKeyOIFNAME, expr.CmpOpEq)
	// A peer takes tunnels' packets by their outer address, which is this machine's after masquerading.
	w.rule(c, from, protocol(unix.IPPROTO_UDP), toPort(constants.VXLANPort), drop)
	w.rule(c, from, protocol(unix.IPPROTO_GRE), drop)
	for _, f := range families {
		for _, p := range f.credentials {
			w.rule(c, from, f.is(), f.to(p), drop)
		}
	}
	w.rule(c, from, state(expr.CtStateBitESTABLISHED), accept)
	w.errors(c)
	w.rule(c, from, notState(expr.CtStateBitNEW), drop)
	w.rule(c, to, state(expr.CtStateBitESTABLISHED|expr.CtStateBitRELATED), accept)
	w.rule(c, to, notState(expr.CtStateBitNEW), drop)
	w.rule(c, to, notStatus(isDNAT), drop)
	w.rule(c, from, inSet(expr.MetaKeyIIFNAME, leaveSet, true), drop)
	if err := w.bound(c, from, expr.MetaKeyIIFNAME, "from"); err != nil {
		return err
	}
	if err := w.bound(c, to, expr.MetaKeyOIFNAME, "to"); err != nil {
		return err
	}
	w.rule(c, to, accept)
	w.rule(c, from, protocol(unix.IPPROTO_TCP), accept)
	w.rule(c, from, protocol(unix.IPPROTO_UDP), accept)
	for _, f := range families {
		w.rule(c, from, f.isEcho(), accept)
	}
	w.rule(c, from, drop)
	for i, guarded := range []bool{w.guard.ipv4, w.guard.ipv6} {
		if guarded {
			w.rule(c, families[i].dropAll())
		}
	}
	return nil
}

// errors lets ICMP errors of slivers pass about connections of their own: conntrack would take one about any.
func (w *writer) errors(c *nftables.Chain) {
	for _, f := range families {
		w.rule(c, sliverDevice(expr.MetaKeyIIFNAME, expr.CmpOpEq), state(expr.CtStateBitRELATED), f.is(),
			protocol(f.icmp), f.aboutOwn(), accept)
	}
}

// input is what slivers send to the machine itself.
func (w *writer) input() error {
	c := w.chain("input", nftables.ChainTypeFilter, nftables.ChainHookInput, before())
	from := sliverDevice(expr.MetaKeyIIFNAME, expr.CmpOpEq)
	w.rule(c, from, state(expr.CtStateBitESTABLISHED), accept)
	w.errors(c)
	w.rule(c, from, notState(expr.CtStateBitNEW), drop)
	if err := w.bound(c, from, expr.MetaKeyIIFNAME, "from"); err != nil {
		return err
	}
	for _, f := range families {
		w.rule(c, from, f.isEcho(), accept)
	}
	w.rule(c, from, drop)
	return nil
}

// bound drops, and counts, new connections of slivers beyond those that one may have, and beyond those that it may
// begin in a second.
func (w *writer) bound(c *nftables.Chain, device []expr.Any, key expr.MetaKey, way string) error {
	counted, err := w.each(key, refusedSet, &expr.Counter{})
	if err != nil {
		return err
	}
	begins, err := w.each(key, "new_"+way, &expr.Limit{
		Type: expr.LimitTypePkts, Rate: newConnections, Unit: expr.LimitTimeSecond, Over: true,
		Burst: newConnectionsBurst,
	})
	if err != nil {
		return err
	}
	has, err := w.each(key, fmt.Sprintf("connections_%s_%d", way, w.most),
		&expr.Connlimit{Count: w.most, Flags: expr.NFT_CONNLIMIT_F_INV})
	if err != nil {
		return err
	}
	first := join(device, notStatus(isConfirmed)) // a connection is new until there is an answer
	w.rule(c, first, begins, counted, drop)
	w.rule(c, first, has, counted, drop)
	return nil
}

// beforeFragments is a priority ahead of where conntrack puts fragments together.
func beforeFragments() *nftables.ChainPriority {
	return nftables.ChainPriorityRef(*nftables.ChainPriorityConntrackDefrag - 10)
}

// before is a priority ahead of other tables' filters: what is dropped here is dropped; what is accepted may still be
// dropped there.
func before() *nftables.ChainPriority {
	return nftables.ChainPriorityRef(*nftables.ChainPriorityFilter - 10)
}

func (w *writer) chain(name string, kind nftables.ChainType, hook *nftables.ChainHook,
	priority *nftables.ChainPriority) *nftables.Chain {
	w.holds[name] = 0
	return w.conn.AddChain(&nftables.Chain{
		Name: name, Table: ourTable, Type: kind, Hooknum: hook, Priority: priority,
	})
}

func (w *writer) rule(c *nftables.Chain, parts ...[]expr.Any) {
	w.holds[c.Name]++
	w.conn.AddRule(&nftables.Rule{Table: ourTable, Chain: c, Exprs: join(parts...)})
}

// set adds a set in place of the one that was there.
func (w *writer) set(name string, key nftables.SetDatatype, elements []nftables.SetElement) error {
	w.holds[name] = len(elements)
	if err := w.conn.AddSet(&nftables.Set{Table: ourTable, Name: name, KeyType: key}, elements); err != nil {
		return fmt.Errorf("add nftables' set %s: %w", name, err)
	}
	return nil
}

// each applies a part of a rule to each device on its own: a set that counts has the state of each.
func (w *writer) each(key expr.MetaKey, set string, what expr.Any) ([]expr.Any, error) {
	if !w.used[set] && w.counting[set] == nil {
		err := w.conn.AddSet(&nftables.Set{
			Table: ourTable, Name: set, KeyType: nftables.TypeIFName, Dynamic: true, Size: maxDevices,
		}, nil)
		if err != nil {
			return nil, fmt.Errorf("add nftables' set %s: %w", set, err)
		}
	}
	w.used[set], w.holds[set] = true, 0
	return []expr.Any{
		&expr.Meta{Key: key, Register: 1},
		&expr.Dynset{SrcRegKey: 1, SetName: set, Operation: unix.NFT_DYNSET_OP_ADD, Exprs: []expr.Any{what}},
	}, nil
}
