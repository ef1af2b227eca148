package datapath

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"

	"github.com/cilium/ebpf"
)

// Rule says which class of a qdisc frames wait in that enter a link at a port. All that it names must hold; of a port's
// rules, the first that matches counts.
type Rule struct {
	Class               uint32       // major and minor number
	DSCP                int          // 0 to 63; -1: any
	Protocol            uint8        // of IP; 0: any
	Source, Destination netip.Prefix // the zero value: any
	// Ports of TCP, UDP, UDP-Lite, SCTP and DCCP. Any is of the source or the destination; with it, the others are
	// not asked.
	SourcePorts, DestinationPorts, AnyPort PortRange
}

// PortRange has both its ends. The zero value is all ports.
type PortRange struct{ First, Last uint16 }

// MaxRules bounds the rules of a port.
const MaxRules = len(objectClassifier{}.Rules)

// Flags of rules (bpf/class.h).
const (
	ruleDSCP = 1 << iota
	ruleProtocol
	rulePorts
	rulePort
	ruleSource
	ruleDestination
)

// SetRules writes the rules of a port, all at once; none: they are deleted. Whether they are asked the port's record
// says.
func (d *DataPath) SetRules(ifindex int, rules []Rule) error {
	if len(rules) == 0 {
		if err := d.maps.Classifiers.Delete(uint32(ifindex)); err != nil &&
			!errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("delete rules of port %d: %w", ifindex, err)
		}
		return nil
	}
	if len(rules) > MaxRules {
		return fmt.Errorf("write rules of port %d: %d of them, at most %d", ifindex, len(rules), MaxRules)
	}
	c := objectClassifier{Number: uint64(len(rules))}
	for i, r := range rules {
		c.Rules[i] = r.object()
	}
	if err := d.maps.Classifiers.Put(uint32(ifindex), c); err != nil {
		return fmt.Errorf("write rules of port %d: %w", ifindex, err)
	}
	return nil
}

// Rules reads the rules of a port.
func (d *DataPath) Rules(ifindex int) ([]Rule, error) {
	var c objectClassifier
	err := d.maps.Classifiers.Lookup(uint32(ifindex), &c)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read rules of port %d: %w", ifindex, err)
	}
	return rulesOf(&c), nil
}

func rulesOf(c *objectClassifier) []Rule {
	rules := make([]Rule, min(int(c.Number), MaxRules))
	for i := range rules {
		rules[i] = ruleOf(c.Rules[i])
	}
	return rules
}

type bits128 = struct{ High, Low uint64 }

func (r Rule) object() (o objectRule) {
	o.Class, o.Protocol = r.Class, r.Protocol
	if r.Protocol != 0 {
		o.Flags |= ruleProtocol
	}
	if r.DSCP >= 0 {
		o.Flags |= ruleDSCP
		o.Dscp = uint8(r.DSCP)
	}
	if r.Source.IsValid() {
		o.Flags |= ruleSource
		a, m := masked(r.Source)
		o.Source.High, o.Source.Low, o.SourceMask.High, o.SourceMask.Low = a.High, a.Low, m.High, m.Low
	}
	if r.Destination.IsValid() {
		o.Flags |= ruleDestination
		a, m := masked(r.Destination)
		o.Destination.High, o.Destination.Low = a.High, a.Low
		o.DestinationMask.High, o.DestinationMask.Low = m.High, m.Low
	}
	all := func(p PortRange) PortRange {
		if p == (PortRange{}) {
			return PortRange{0, 1<<16 - 1}
		}
		return p
	}
	switch s, d := all(r.SourcePorts), all(r.DestinationPorts); {
	case r.AnyPort != PortRange{}:
		o.Flags |= rulePort
		o.Sport.First, o.Sport.Last = r.AnyPort.First, r.AnyPort.Last
	case r.SourcePorts != PortRange{} || r.DestinationPorts != PortRange{}:
		o.Flags |= rulePorts
		o.Sport.First, o.Sport.Last, o.Dport.First, o.Dport.Last = s.First, s.Last, d.First, d.Last
	}
	return o
}

func ruleOf(o objectRule) Rule {
	r := Rule{Class: o.Class, DSCP: -1, Protocol: o.Protocol}
	if o.Flags&ruleDSCP != 0 {
		r.DSCP = int(o.Dscp)
	}
	if o.Flags&ruleSource != 0 {
		r.Source = prefix(bits128{o.Source.High, o.Source.Low}, bits128{o.SourceMask.High, o.SourceMask.Low})
	}
	if o.Flags&ruleDestination != 0 {
		r.Destination = prefix(bits128{o.Destination.High, o.Destination.Low},
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
		r.AnyPort = PortRange{o.Sport.First, o.Sport.Last}
	case o.Flags&rulePorts != 0:
		r.SourcePorts, r.DestinationPorts = some(o.Sport.First, o.Sport.Last), some(o.Dport.First, o.Dport.Last)
	}
	return r
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
