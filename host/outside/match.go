package outside

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

// Verdicts.
var (
	accept = []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}
	drop   = []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}
)

func join(parts ...[]expr.Any) (all []expr.Any) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func sortedRates(all map[unit.Rate][]nftables.SetElement) []unit.Rate {
	return slices.Sorted(maps.Keys(all))
}

func equal(data []byte) *expr.Cmp { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data} }

// sliverDevice compares the beginning of a device's name with that of slivers' devices.
func sliverDevice(key expr.MetaKey, op expr.CmpOp) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: op, Register: 1, Data: []byte(prefix)},
	}
}

// deviceNamed matches one device, and notDevice all others.
func deviceNamed(key expr.MetaKey, name string) []expr.Any {
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, equal(nameOf(name))}
}

func notDevice(key expr.MetaKey, name string) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: nameOf(name)},
	}
}

// inSet matches devices that are in a set, or, inverted, those that are not.
func inSet(key expr.MetaKey, set string, inverted bool) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: key, Register: 1}, &expr.Lookup{SourceRegister: 1, SetName: set, Invert: inverted},
	}
}

// is matches packets of the family. What looks into headers has it before.
func (f family) is() []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, equal([]byte{f.number})}
}

// dropAll is the rule that guards a family.
func (f family) dropAll() []expr.Any { return join(f.is(), drop) }

func (f family) from(p netip.Prefix) []expr.Any { return f.within(f.source, p, expr.CmpOpEq) }

func (f family) to(p netip.Prefix) []expr.Any { return f.within(f.destination, p, expr.CmpOpEq) }

func (f family) notTo(p netip.Prefix) []expr.Any { return f.within(f.destination, p, expr.CmpOpNeq) }

// within compares an address of the header with a prefix.
func (f family) within(offset uint32, p netip.Prefix, op expr.CmpOp) []expr.Any {
	mask := make([]byte, f.length)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: f.length},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: f.length, Mask: mask,
			Xor: make([]byte, f.length)},
		&expr.Cmp{Op: op, Register: 1, Data: p.Masked().Addr().AsSlice()},
	}
}

// fromOwn matches what comes from a sliver's device with that sliver's address.
func (f family) fromOwn() []expr.Any {
	return f.lookUp(&expr.Payload{Base: expr.PayloadBaseNetworkHeader, Offset: f.source})
}

// aboutOwn matches ICMP errors from a sliver's device about a packet that was sent to that sliver's address.
func (f family) aboutOwn() []expr.Any {
	return f.lookUp(&expr.Payload{Base: expr.PayloadBaseTransportHeader, Offset: f.about})
}

// lookUp looks the incoming device up, with the address that is read, among those of slivers.
func (f family) lookUp(address *expr.Payload) []expr.Any {
	address.DestRegister, address.Len = 2, f.length // a register has 16 bytes: the name has the first
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, address,
		&expr.Lookup{SourceRegister: 1, SetName: f.own},
	}
}

func (f family) isEcho() []expr.Any {
	return join(f.is(), protocol(f.icmp), []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 1},
		equal([]byte{f.echo}),
	})
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

func toThisMachine() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true},
		equal(binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)),
	}
}

// state matches packets in one of these states of their connection.
func state(bits uint32) []expr.Any { return bit(expr.CtKeySTATE, bits, expr.CmpOpNeq) }

func notState(bits uint32) []expr.Any { return bit(expr.CtKeySTATE, bits, expr.CmpOpEq) }

// notStatus matches nothing where there is no connection.
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
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(familyOf(to).number), RegAddrMin: 1},
	}
}

// snatTo gives a connection this source address, and a port of the range.
func snatTo(address netip.Addr) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: address.AsSlice()},
		&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(slice.FirstNATPort)},
		&expr.Immediate{Register: 3, Data: binaryutil.BigEndian.PutUint16(slice.LastNATPort)},
		&expr.NAT{
			Type: expr.NATTypeSourceNAT, Family: uint32(familyOf(address).number),
			RegAddrMin: 1, RegProtoMin: 2, RegProtoMax: 3,
		},
	}
}
