// Package answer works out what a router says of a packet with labels that it could not send on: errors of ICMP
// (RFC 792) and ICMPv6 (RFC 4443) with the labels of the packet (RFC 4884, 4950). It is pure.
package answer

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// Refused is a packet as it came to the router.
type Refused struct {
	// TooBig: for the way on, where IP packets of MTU bytes fit, with the labels that they would leave with. Else
	// the packet's TTL ends.
	TooBig bool
	MTU    int
	Labels []Label // the outermost first
	Packet []byte  // IP, or the first bytes of it
}

// Label is an entry of a label stack (RFC 3032, 2.1).
type Label struct {
	Label uint32
	Class uint8
	TTL   uint8
}

// Answer is an error to be sent to a packet's source.
type Answer struct {
	To      netip.Addr
	message icmp.Message
}

// quoted is how many bytes of the packet are in the answer. So many are there at least where labels follow them
// (RFC 4884, 3), and tools that look for the labels without knowing of the length attribute look behind as many (5.3).
const quoted = 128

// Of gives the answer. There is none (false) where RFC 1122, 3.2.2 and RFC 4443, 2.4 want none: to errors of ICMP,
// fragments but the first, and what is from or for no single host. Nor is there one to packets of IPv4 that may be
// fragmented, which are dropped (RFC 3032, 3.4 allows both).
func Of(r Refused) (*Answer, bool) {
	const leastMTU = 68 // RFC 791, 3.2
	if len(r.Packet) == 0 || r.TooBig && r.MTU < leastMTU {
		return nil, false
	}
	labels := []icmp.Extension{stackOf(r.Labels)}
	switch r.Packet[0] >> 4 {
	case ipv4.Version:
		return of4(r, labels)
	case ipv6.Version:
		return of6(r, labels)
	}
	return nil, false
}

func stackOf(labels []Label) *icmp.MPLSLabelStack {
	const class, incoming = 1, 1 // RFC 4950
	s := &icmp.MPLSLabelStack{Class: class, Type: incoming}
	for i, l := range labels {
		s.Labels = append(s.Labels, icmp.MPLSLabel{
			Label: int(l.Label), TC: int(l.Class), TTL: int(l.TTL), S: i == len(labels)-1,
		})
	}
	return s
}

func of4(r Refused, labels []icmp.Extension) (*Answer, bool) {
	const fragmentationNeeded = 4
	p := gopacket.NewPacket(r.Packet, layers.LayerTypeIPv4, gopacket.NoCopy)
	ip, ok := p.NetworkLayer().(*layers.IPv4)
	if !ok || ip.FragOffset != 0 || !isHost4(ip.SrcIP) || !isHost4(ip.DstIP) || isError4(p, ip) {
		return nil, false
	}
	from, _ := netip.AddrFromSlice(ip.SrcIP)
	data := quote(r.Packet, int(ip.Length))
	switch {
	case !r.TooBig:
		return &Answer{from, icmp.Message{
			Type: ipv4.ICMPTypeTimeExceeded, Body: &icmp.TimeExceeded{Data: data, Extensions: labels},
		}}, true
	case ip.Flags&layers.IPv4DontFragment == 0:
		return nil, false
	}
	return &Answer{from, icmp.Message{
		Type: ipv4.ICMPTypeDestinationUnreachable, Code: fragmentationNeeded,
		Body: &tooBig4{icmp.DstUnreach{Data: data, Extensions: labels}, r.MTU},
	}}, true
}

func of6(r Refused, labels []icmp.Extension) (*Answer, bool) {
	const header = 40
	p := gopacket.NewPacket(r.Packet, layers.LayerTypeIPv6, gopacket.NoCopy)
	ip, ok := p.NetworkLayer().(*layers.IPv6)
	if !ok || !isHost6(ip.SrcIP) || isError6(p, ip) {
		return nil, false
	}
	from, _ := netip.AddrFromSlice(ip.SrcIP)
	data := quote(r.Packet, header+int(ip.Length))
	if r.TooBig { // it has no place for labels (RFC 4884, 4.6), and groups get it, too
		return &Answer{from, icmp.Message{
			Type: ipv6.ICMPTypePacketTooBig, Body: &icmp.PacketTooBig{MTU: r.MTU, Data: data},
		}}, true
	}
	if !isHost6(ip.DstIP) {
		return nil, false
	}
	return &Answer{from, icmp.Message{
		Type: ipv6.ICMPTypeTimeExceeded, Body: &icmp.TimeExceeded{Data: data, Extensions: labels},
	}}, true
}

// quote gives the part of the packet that is in the answer. Behind the packet may be padding of its frame.
func quote(packet []byte, length int) []byte { return packet[:min(len(packet), length, quoted)] }

// isHost4 reports whether an address is that of one host.
func isHost4(ip []byte) bool {
	a, ok := netip.AddrFromSlice(ip)
	const classE = 240
	return ok && a.Is4() && ip[0] != 0 && ip[0] < classE && !a.IsLoopback() && !a.IsMulticast()
}

// isHost6 reports whether an address is that of one host, which routers can reach.
func isHost6(ip []byte) bool {
	a, ok := netip.AddrFromSlice(ip)
	return ok && a.Is6() && !a.Is4In6() && a.IsGlobalUnicast()
}

// isError4 reports whether a packet is an error of ICMP, or may be one: its type is not there.
func isError4(p gopacket.Packet, ip *layers.IPv4) bool {
	if ip.Protocol != layers.IPProtocolICMPv4 {
		return false
	}
	l, ok := p.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
	if !ok {
		return true
	}
	switch l.TypeCode.Type() {
	case layers.ICMPv4TypeEchoRequest, layers.ICMPv4TypeEchoReply,
		layers.ICMPv4TypeTimestampRequest, layers.ICMPv4TypeTimestampReply:
		return false
	}
	return true
}

// isError6 reports whether a packet is an error of ICMPv6, a redirect, a fragment but the first, or one of which that
// is not known: its headers do not end in what is there.
func isError6(p gopacket.Packet, ip *layers.IPv6) bool {
	const firstInformational = 128 // RFC 4443, 2.1
	if f, ok := p.Layer(layers.LayerTypeIPv6Fragment).(*layers.IPv6Fragment); ok {
		known := f.NextHeader == layers.IPProtocolUDP || f.NextHeader == layers.IPProtocolTCP
		return f.FragmentOffset != 0 || !known // gopacket reads no further
	}
	if l, ok := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6); ok {
		t := l.TypeCode.Type()
		return t < firstInformational || t == layers.ICMPv6TypeRedirect
	}
	return slices.Contains([]layers.IPProtocol{
		layers.IPProtocolICMPv6, layers.IPProtocolIPv6HopByHop, layers.IPProtocolIPv6Routing,
		layers.IPProtocolIPv6Destination, layers.IPProtocolIPv6Fragment,
	}, lastHeader(p, ip))
}

// lastHeader gives the protocol behind the last header of IPv6 that could be read.
func lastHeader(p gopacket.Packet, ip *layers.IPv6) layers.IPProtocol {
	last := ip.NextHeader
	for _, l := range p.Layers() {
		switch l := l.(type) {
		case *layers.IPv6HopByHop:
			last = l.NextHeader
		case *layers.IPv6Routing:
			last = l.NextHeader
		case *layers.IPv6Destination:
			last = l.NextHeader
		}
	}
	return last
}

// Is6 reports whether it is one of IPv6.
func (a *Answer) Is6() bool { return a.To.Is6() }

// Message gives the bytes behind the IP header, without the checksum of ICMPv6: a raw socket adds it.
func (a *Answer) Message() ([]byte, error) { return a.message.Marshal(nil) }

// Packet gives the whole packet, from one of the router's addresses.
func (a *Answer) Packet(from netip.Addr) ([]byte, error) {
	const (
		ttl     = 255 // it goes on, and comes all the way back
		control = 0xc0
	)
	if a.Is6() {
		body, err := a.message.Marshal(icmp.IPv6PseudoHeader(from.AsSlice(), a.To.AsSlice()))
		if err != nil {
			return nil, err
		}
		return serialize(&layers.IPv6{
			Version: ipv6.Version, HopLimit: ttl, NextHeader: layers.IPProtocolICMPv6,
			SrcIP: from.AsSlice(), DstIP: a.To.AsSlice(),
		}, body)
	}
	body, err := a.message.Marshal(nil)
	if err != nil {
		return nil, err
	}
	return serialize(&layers.IPv4{
		Version: ipv4.Version, TTL: ttl, TOS: control, Protocol: layers.IPProtocolICMPv4,
		SrcIP: from.AsSlice(), DstIP: a.To.AsSlice(),
	}, body)
}

func serialize(ip gopacket.SerializableLayer, body []byte) ([]byte, error) {
	b := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	err := gopacket.SerializeLayers(b, options, ip, gopacket.Payload(body))
	return b.Bytes(), err
}

// tooBig4 is the error "fragmentation needed" with the MTU of the next hop (RFC 1191, 4), for which icmp.DstUnreach has
// no field.
type tooBig4 struct {
	icmp.DstUnreach
	mtu int
}

// Marshal implements icmp.MessageBody.
func (t *tooBig4) Marshal(proto int) ([]byte, error) {
	const nextHopMTU = 2 // offset in the body
	b, err := t.DstUnreach.Marshal(proto)
	if err == nil {
		binary.BigEndian.PutUint16(b[nextHopMTU:], uint16(t.mtu))
	}
	return b, err
}
