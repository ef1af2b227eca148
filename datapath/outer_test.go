package datapath

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Addresses of machines, and of their network cards.
var (
	here4  = netip.MustParseAddr("203.0.113.1")
	there4 = netip.MustParseAddr("203.0.113.2")
	third4 = netip.MustParseAddr("203.0.113.3")
	here6  = netip.MustParseAddr("2001:db8:f::1")
	there6 = netip.MustParseAddr("2001:db8:f::2")
	third6 = netip.MustParseAddr("2001:db8:f::3")

	macHere  = [6]byte{2, 9, 0, 0, 0, 1}
	macThere = [6]byte{2, 9, 0, 0, 0, 2}
)

// sorts are the tunnels that tests try: all kinds, over both families.
var sorts = []Tunnel{
	{Kind: EGRE, Key: 0x7abcdef, Local: here4, Peer: there4},
	{Kind: VXLAN, Key: 0xabcdef, Local: here4, Peer: there4},
	{Kind: EGRE, Key: 0xfffffffe, Local: here6, Peer: there6},
	{Kind: VXLAN, Key: 0x7001, Local: here6, Peer: there6},
}

func (t Tunnel) named() string { return fmt.Sprintf("%v, IPv6 %v", t.Kind, t.Local.Is6()) }

// turned is the tunnel as the other side has it.
func (t Tunnel) turned() Tunnel {
	t.Local, t.Peer = t.Peer, t.Local
	return t
}

// around says what is special of an outer packet.
type around struct {
	to, from [6]byte // Ethernet; zero as the substrate sends it
	class    uint8   // DSCP and ECN
	ttl      uint8   // 64
	sport    uint16  // of VXLAN
	label    uint32  // flow label
	greFlags uint16  // beside the key
	noKey    bool    // VXLAN without the I bit
}

// outer is the packet that a tunnel makes of a frame, as gopacket has it: with its lengths and its checksum.
func (t Tunnel) outer(inner []byte, a around) []byte {
	if a.ttl == 0 {
		a.ttl = 64
	}
	protocol, above := layers.IPProtocolGRE, t.gre(a)
	if t.Kind == VXLAN {
		protocol, above = layers.IPProtocolUDP, t.vxlan(a, len(inner))
	}
	var network gopacket.SerializableLayer
	kind := layers.EthernetTypeIPv4
	if t.Local.Is6() {
		kind = layers.EthernetTypeIPv6
		network = &layers.IPv6{
			Version: 6, HopLimit: a.ttl, NextHeader: protocol, TrafficClass: a.class, FlowLabel: a.label,
			SrcIP: t.Local.AsSlice(), DstIP: t.Peer.AsSlice(),
		}
	} else {
		network = &layers.IPv4{
			Version: 4, TTL: a.ttl, Protocol: protocol, TOS: a.class, Flags: layers.IPv4DontFragment,
			SrcIP: t.Local.AsSlice(), DstIP: t.Peer.AsSlice(),
		}
	}
	out := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(out, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		network, gopacket.Payload(above), gopacket.Payload(inner))
	if err != nil {
		panic(err)
	}
	// gopacket would pad an Ethernet frame.
	return append(append(append(bytes.Clone(a.to[:]), a.from[:]...), byte(kind>>8), byte(kind)), out.Bytes()...)
}

func (t Tunnel) gre(a around) []byte {
	g := binary.BigEndian.AppendUint16(nil, 0x2000|a.greFlags)
	g = binary.BigEndian.AppendUint16(g, 0x6558)
	if a.greFlags&0x8000 != 0 {
		g = append(g, 0x12, 0x34, 0, 0)
	}
	g = binary.BigEndian.AppendUint32(g, t.Key)
	if a.greFlags&0x1000 != 0 {
		g = append(g, 0, 0, 0, 9)
	}
	return g
}

func (t Tunnel) vxlan(a around, inner int) []byte {
	u := binary.BigEndian.AppendUint16(nil, a.sport)
	u = binary.BigEndian.AppendUint16(u, 4789)
	u = binary.BigEndian.AppendUint16(u, uint16(16+inner))
	u = append(u, 0, 0, 8, 0, 0, 0)
	if a.noKey {
		u[8] = 0
	}
	return binary.BigEndian.AppendUint32(u, t.Key<<8)
}

// entropyOf reads what a packet says of its flow: the source port of VXLAN, and the flow label.
func entropyOf(t Tunnel, p []byte) around {
	var a around
	at := 14 + 20
	if t.Local.Is6() {
		a.label = binary.BigEndian.Uint32(p[14:]) & 0xfffff
		at = 14 + 40
	}
	if t.Kind == VXLAN {
		a.sport = binary.BigEndian.Uint16(p[at:])
	}
	return a
}

// tagged is the frame with a VLAN tag in it.
func tagged(f []byte, protocol, tci uint16) []byte {
	out := append([]byte{}, f[:12]...)
	out = binary.BigEndian.AppendUint16(out, protocol)
	out = binary.BigEndian.AppendUint16(out, tci)
	return append(out, f[12:]...)
}

// odd are frames of all sorts that a link carries.
func odd(to [6]byte) map[string][]byte {
	lone := ethernet(to, macA, 0x88b5, 14)
	jumbo := packet{to: to, payload: 3000}.bytes()
	return map[string][]byte{
		"IPv4":         packet{to: to}.bytes(),
		"IPv6":         packet{to: to, v6: true}.bytes(),
		"TCP":          packet{to: to, tcp: true, payload: 1200}.bytes(),
		"ARP":          ethernet(broadcast, macA, 0x0806, 42),
		"IS-IS":        ethernet(allISs, macA, 1497, 1511),
		"short LLC":    ethernet(allISs, macA, 17, 31),
		"MPLS":         labelled(packet{to: to}.bytes(), entry{0x5a5a5, 90, 4}, entry{16, 64, 7}),
		"VLAN":         tagged(packet{to: to}.bytes(), 0x8100, 7),
		"QinQ":         tagged(tagged(packet{to: to, v6: true}.bytes(), 0x8100, 7), 0x88a8, 8),
		"jumbo":        jumbo,
		"nothing":      lone,
		"runt of IPv4": ethernet(to, macA, 0x0800, 20),
		"runt of IPv6": ethernet(to, macA, 0x86dd, 40),
		"to a group":   packet{to: [6]byte{1, 0, 0x5e, 0, 0, 5}}.bytes(),
	}
}
