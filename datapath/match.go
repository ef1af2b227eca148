package datapath

import (
	"math/bits"
	"net/netip"
)

// Match is what a rule asks of a packet. All that it names must hold.
type Match struct {
	DSCP                int          // 0 to 63; -1: any
	Protocol            uint8        // of IP; 0: any
	Source, Destination netip.Prefix // the zero value: any
	// Ports of TCP, UDP, UDP-Lite, SCTP and DCCP. Any is of the source or the destination; with it, the others are
	// not asked.
	SourcePorts, DestinationPorts, AnyPort PortRange
}

// PortRange has both its ends. The zero value is all ports.
type PortRange struct{ First, Last uint16 }

// Flags of rules (bpf/rule.h).
const (
	ruleDSCP = 1 << iota
	ruleProtocol
	rulePorts
	rulePort
	ruleSource
	ruleDestination
)

type bits128 = struct{ High, Low uint64 }

// object is a rule with this class, or FTN.
func (m Match) object(class uint32) (o objectRule) {
	o.Class, o.Protocol = class, m.Protocol
	if m.Protocol != 0 {
		o.Flags |= ruleProtocol
	}
	if m.DSCP >= 0 {
		o.Flags |= ruleDSCP
		o.Dscp = uint8(m.DSCP)
	}
	if m.Source.IsValid() {
		o.Flags |= ruleSource
		a, mask := masked(m.Source)
		o.Source.High, o.Source.Low = a.High, a.Low
		o.SourceMask.High, o.SourceMask.Low = mask.High, mask.Low
	}
	if m.Destination.IsValid() {
		o.Flags |= ruleDestination
		a, mask := masked(m.Destination)
		o.Destination.High, o.Destination.Low = a.High, a.Low
		o.DestinationMask.High, o.DestinationMask.Low = mask.High, mask.Low
	}
	all := func(p PortRange) PortRange {
		if p == (PortRange{}) {
			return PortRange{0, 1<<16 - 1}
		}
		return p
	}
	switch s, d := all(m.SourcePorts), all(m.DestinationPorts); {
	case m.AnyPort != PortRange{}:
		o.Flags |= rulePort
		o.Sport.First, o.Sport.Last = m.AnyPort.First, m.AnyPort.Last
	case m.SourcePorts != PortRange{} || m.DestinationPorts != PortRange{}:
		o.Flags |= rulePorts
		o.Sport.First, o.Sport.Last, o.Dport.First, o.Dport.Last = s.First, s.Last, d.First, d.Last
	}
	return o
}

func matchOf(o objectRule) Match {
	m := Match{DSCP: -1, Protocol: o.Protocol}
	if o.Flags&ruleDSCP != 0 {
		m.DSCP = int(o.Dscp)
	}
	if o.Flags&ruleSource != 0 {
		m.Source = prefix(bits128{o.Source.High, o.Source.Low}, bits128{o.SourceMask.High, o.SourceMask.Low})
	}
	if o.Flags&ruleDestination != 0 {
		m.Destination = prefix(bits128{o.Destination.High, o.Destination.Low},
			bits128{o.DestinationMask.High, o.DestinationMask.Low})
	}
	some := func(first, last uint16) PortRange {
		if first == 0 && last == 1<<16-1 {
			return PortRange{}
		}
		return PortRange{first, last}
	}
	switch {
	case o.Flags&rulePort != 0:
		m.AnyPort = PortRange{o.Sport.First, o.Sport.Last}
	case o.Flags&rulePorts != 0:
		m.SourcePorts, m.DestinationPorts = some(o.Sport.First, o.Sport.Last), some(o.Dport.First, o.Dport.Last)
	}
	return m
}

// masked gives a prefix as address and mask, an IPv4 one as ::ffff:a.b.c.d.
func masked(p netip.Prefix) (address, mask bits128) {
	length := p.Bits()
	if p.Addr().Is4() {
		length += 96
	}
	mask.High = ^uint64(0) << max(64-length, 0)
	mask.Low = ^uint64(0) << min(max(128-length, 0), 64)
	b := p.Addr().As16()
	for i := range 8 {
		address.High = address.High<<8 | uint64(b[i])
		address.Low = address.Low<<8 | uint64(b[8+i])
	}
	address.High, address.Low = address.High&mask.High, address.Low&mask.Low
	return address, mask
}

func prefix(address, mask bits128) netip.Prefix {
	var b [16]byte
	for i := range 8 {
		b[7-i] = byte(address.High >> (8 * i))
		b[15-i] = byte(address.Low >> (8 * i))
	}
	length := bits.OnesCount64(mask.High) + bits.OnesCount64(mask.Low)
	if a := netip.AddrFrom16(b); a.Is4In6() && length >= 96 {
		return netip.PrefixFrom(a.Unmap(), length-96)
	}
	return netip.PrefixFrom(netip.AddrFrom16(b), length)
}
