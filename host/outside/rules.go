package outside

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/model/constants"
	"github.com/pergola-net/pergola/model/slice"
)

// tableName is that of the one table. Its name is the mark of its owner.
const tableName = "pergola_outside"

// Bits of the kernel's nf_conntrack_common.h.
const (
	establishedOrRelated = 1<<1 | 1<<2 // NF_CT_STATE_BIT
	newConnection        = 1 << 3
	isDNAT               = 1 << 5 // IPS_DST_NAT
)

const echoRequest = 8 // ICMP

// writeTable makes the table in place of the one that is there, in one transaction:
//
//	sources      from slivers, nothing with another source address than their own
//	prerouting   a reserved port of an address of the machine -> the sliver
//	output       the same, of connections that processes of the machine make, but for those by 127.0.0.0/8
//	postrouting  what slivers send to elsewhere -> an address of the machine, source ports of the NAT range
//	forward      from slivers, nothing that a tunnel of another machine would take
//	             slivers with leave, to all but other slivers; answers; what came to a reserved port
//	             guard: nothing else
//	input        from slivers: echo requests, and answers
//
// Connections that are there go on: conntrack knows them. It returns how many rules each chain has.
func writeTable(all []device, exits []exit, guard bool) (rules map[string]int, err error) {
	c, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	t := &nftables.Table{Name: tableName, Family: nftables.TableFamilyIPv4}
	c.AddTable(t) // so that there is one to delete
	c.DelTable(t)
	t = c.AddTable(t)
	w := writer{conn: c, table: t, rules: map[string]int{}}
	w.sources(all)
	dnat := w.chain("prerouting", nftables.ChainTypeNAT, nftables.ChainHookPrerouting,
		nftables.ChainPriorityNATDest)
	local := w.chain("output", nftables.ChainTypeNAT, nftables.ChainHookOutput, nftables.ChainPriorityNATDest)
	for _, d := range all {
		for _, p := range d.node.Ports {
			match := join(toThisMachine(), port(p))
			w.rule(dnat, match, dnatTo(d.inner()))
			w.rule(local, notLoopback(), match, dnatTo(d.inner()))
		}
	}
	w.masquerade(exits)
	w.forward(all, guard)
	in := w.chain("input", nftables.ChainTypeFilter, nftables.ChainHookInput, before())
	w.rule(in, sliverDevice(expr.MetaKeyIIFNAME, expr.CmpOpEq), echo(), verdict(expr.VerdictAccept))
	w.rule(in, sliverDevice(expr.MetaKeyIIFNAME, expr.CmpOpEq), state(newConnection), verdict(expr.VerdictDrop))
	if err := c.Flush(); err != nil {
		return nil, fmt.Errorf("write nftables' table %s: %w", tableName, err)
	}
	return w.rules, nil
}

// tableHolds reports whether the table is there, with as many rules in each chain: others can remove it (nft flush
// ruleset, a reload of nftables.service), or change it.
func tableHolds(rules map[string]int) (bool, error) {
	c, err := nftables.New()
	if err != nil {
		return false, fmt.Errorf("open nftables: %w", err)
	}
	chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyIPv4)
	if err != nil {
		return false, fmt.Errorf("list nftables' chains: %w", err)
	}
	held := map[string]int{}
	for _, chain := range chains {
		if chain.Table.Name != tableName {
			continue
		}
		there, err := c.GetRules(chain.Table, chain)
		if err != nil {
			return false, nil // it went meanwhile, or has rules that are not ours: it is to be written
		}
		held[chain.Name] = len(there)
	}
	return maps.Equal(held, rules), nil
}

// sources drops what slivers send with addresses of others, before conntrack sees it. The devices' rp_filter is not
// enough: the kernel takes the greater one of it and conf/all/rp_filter, and 2 is the looser check.
func (w writer) sources(all []device) {
	c := w.chain("sources", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityRaw)
	w.rule(c, sliverDevice(expr.MetaKeyIIFNAME, expr.CmpOpNeq), verdict(expr.VerdictAccept))
	for _, d := range all {
		w.rule(c, deviceNamed(expr.MetaKeyIIFNAME, d.name()), source(d.inner().AsSlice()),
			verdict(expr.VerdictAccept))
	}
	w.rule(c, verdict(expr.VerdictDrop))
}

// masquerade gives connections of slivers an address of the machine, and a port of the range. (The library's Masq
// cannot say a range in a way that the kernel heeds.) The last rule is for other protocols, and for an exit that has
// got its address since.
func (w writer) masquerade(exits []exit) {
	snat := w.chain("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting,
		nftables.ChainPriorityNATSource)
	for _, e := range exits {
		leaving := join(fromPool(), deviceNamed(expr.MetaKeyOIFNAME, e.device))
		w.rule(snat, leaving, protocol(unix.IPPROTO_TCP), snatTo(e.address))
		w.rule(snat, leaving, protocol(unix.IPPROTO_UDP), snatTo(e.address))
	}
	w.rule(snat, fromPool(), sliverDevice(expr.MetaKeyOIFNAME, expr.CmpOpNeq), []expr.Any{&expr.Masq{}})
}

func (w writer) forward(all []device, guard bool) {
	f := w.chain("forward", nftables.ChainTypeFilter, nftables.ChainHookForward, before())
	from, to := sliverDevice(expr.MetaKeyIIFNAME, expr.CmpOpEq), sliverDevice(expr.MetaKeyOIFNAME, expr.CmpOpEq)
	// A peer takes tunnels' packets by their outer address, which is this machine's after masquerading.
	w.rule(f, from, protocol(unix.IPPROTO_UDP), toPort(constants.VXLANPort), verdict(expr.VerdictDrop))
	w.rule(f, from, protocol(unix.IPPROTO_GRE), verdict(expr.VerdictDrop))
	w.rule(f, from, state(establishedOrRelated), verdict(expr.VerdictAccept))
	w.rule(f, to, state(establishedOrRelated), verdict(expr.VerdictAccept))
	w.rule(f, from, to, notStatus(isDNAT), verdict(expr.VerdictDrop))
	for _, d := range all {
		if !d.node.NAT {
			continue
		}
		own := deviceNamed(expr.MetaKeyIIFNAME, d.name())
		w.rule(f, own, protocol(unix.IPPROTO_TCP), verdict(expr.VerdictAccept))
		w.rule(f, own, protocol(unix.IPPROTO_UDP), verdict(expr.VerdictAccept))
		w.rule(f, own, echo(), verdict(expr.VerdictAccept))
	}
	w.rule(f, from, verdict(expr.VerdictDrop))
	w.rule(f, to, notStatus(isDNAT), verdict(expr.VerdictDrop))
	if guard {
		w.rule(f, sliverDevice(expr.MetaKeyOIFNAME, expr.CmpOpNeq), verdict(expr.VerdictDrop))
	}
}

// removeTable removes the table, if it is there.
func removeTable() error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	c.DelTable(&nftables.Table{Name: tableName, Family: nftables.TableFamilyIPv4})
	if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove nftables' table %s: %w", tableName, err)
	}
	return nil
}

type writer struct {
	conn  *nftables.Conn
	table *nftables.Table
	rules map[string]int // by chain
}

// before is a priority ahead of other tables' filters: what is dropped here is dropped; what is accepted may still be
// dropped there.
func before() *nftables.ChainPriority {
	return nftables.ChainPriorityRef(*nftables.ChainPriorityFilter - 10)
}

func (w writer) chain(name string, kind nftables.ChainType, hook *nftables.ChainHook,
	priority *nftables.ChainPriority) *nftables.Chain {
	w.rules[name] = 0
	return w.conn.AddChain(&nftables.Chain{
		Name: name, Table: w.table, Type: kind, Hooknum: hook, Priority: priority,
	})
}

func (w writer) rule(c *nftables.Chain, parts ...[]expr.Any) {
	w.rules[c.Name]++
	w.conn.AddRule(&nftables.Rule{Table: w.table, Chain: c, Exprs: join(parts...)})
}

func join(parts ...[]expr.Any) (all []expr.Any) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func equal(data []byte) *expr.Cmp { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data} }

func verdict(kind expr.VerdictKind) []expr.Any { return []expr.Any{&expr.Verdict{Kind: kind}} }

// sliverDevice compares the beginning of a device's name with that of slivers' devices.
func sliverDevice(key expr.MetaKey, op expr.CmpOp) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: op, Register: 1, Data: []byte(prefix)},
	}
}

// deviceNamed matches one device.
func deviceNamed(key expr.MetaKey, name string) []expr.Any {
	data := make([]byte, unix.IFNAMSIZ)
	copy(data, name)
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, equal(data)}
}

func protocol(number byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equal([]byte{number})}
}

func port(p slice.HostPort) []expr.Any {
	number := byte(unix.IPPROTO_TCP)
	if p.Protocol == slice.UDP {
		number = unix.IPPROTO_UDP
	}
	return join(protocol(number), toPort(p.Port))
}

// toPort compares the destination port of TCP or UDP.
func toPort(number uint16) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		equal(binaryutil.BigEndian.PutUint16(number)),
	}
}

func echo() []expr.Any {
	return join(protocol(unix.IPPROTO_ICMP), []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 1},
		equal([]byte{echoRequest}),
	})
}

func toThisMachine() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true},
		equal(binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)),
	}
}

func notLoopback() []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{127}},
	}
}

func fromPool() []expr.Any { return source(pool.Addr().AsSlice()[:2]) }

// source compares the source address, or its first bytes.
func source(address []byte) []expr.Any {
	return []expr.Any{
		&expr.Payload{
			DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: uint32(len(address)),
		},
		equal(address),
	}
}

func state(bits uint32) []expr.Any { return bit(expr.CtKeySTATE, bits, expr.CmpOpNeq) }

func notStatus(bits uint32) []expr.Any { return bit(expr.CtKeySTATUS, bits, expr.CmpOpEq) }

// bit compares some bits of what conntrack knows of the connection with zero.
func bit(key expr.CtKey, bits uint32, op expr.CmpOp) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: key, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(bits),
			Xor: binaryutil.NativeEndian.PutUint32(0)},
		&expr.Cmp{Op: op, Register: 1, Data: binaryutil.NativeEndian.PutUint32(0)},
	}
}

// dnatTo sends a connection to a sliver, at the same port.
func dnatTo(to netip.Addr) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: to.AsSlice()},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1},
	}
}

// snatTo gives a connection this source address, and a port of the range.
func snatTo(address netip.Addr) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: address.AsSlice()},
		&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(slice.FirstNATPort)},
		&expr.Immediate{Register: 3, Data: binaryutil.BigEndian.PutUint16(slice.LastNATPort)},
		&expr.NAT{
			Type: expr.NATTypeSourceNAT, Family: unix.NFPROTO_IPV4,
			RegAddrMin: 1, RegProtoMin: 2, RegProtoMax: 3,
		},
	}
}
