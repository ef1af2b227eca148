package datapath

import (
	"bytes"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Addresses of the two hosts (documentation ranges).
var (
	host4 = [2]netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("198.51.100.20")}
	host6 = [2]netip.Addr{netip.MustParseAddr("2001:db8:a::10"), netip.MustParseAddr("2001:db8:b::20")}
)

// packet says what a test's frame is; what is not set is ordinary.
type packet struct {
	to      [6]byte // Ethernet; the first router if zero
	v6      bool
	source  string
	dest    string
	ttl     int // 64
	tos     uint8
	options []layers.IPv4Option
	flags   layers.IPv4Flag
	offset  uint16
	hop     bool // hop-by-hop header
	tcp     bool
	sport   uint16
	payload int // 18, the least that needs no padding
}

func (p packet) bytes() []byte {
	eth := &layers.Ethernet{SrcMAC: macA[:], DstMAC: p.to[:], EthernetType: layers.EthernetTypeIPv4}
	if p.to == ([6]byte{}) {
		m := mac(0)
		eth.DstMAC = m[:]
	}
	if p.ttl == 0 {
		p.ttl = 64
	}
	list := []gopacket.SerializableLayer{eth}
	var network gopacket.NetworkLayer
	if p.v6 {
		eth.EthernetType = layers.EthernetTypeIPv6
		ip := &layers.IPv6{
			Version: 6, HopLimit: uint8(p.ttl), TrafficClass: p.tos, NextHeader: p.protocol(),
			SrcIP: orElse(p.source, host6[0]).AsSlice(), DstIP: orElse(p.dest, host6[1]).AsSlice(),
		}
		list, network = append(list, ip), ip
	} else {
		ip := &layers.IPv4{
			Version: 4, TTL: uint8(p.ttl), TOS: p.tos, Protocol: p.protocol(), Options: p.options,
			Flags: p.flags, FragOffset: p.offset,
			SrcIP: orElse(p.source, host4[0]).AsSlice(), DstIP: orElse(p.dest, host4[1]).AsSlice(),
		}
		list, network = append(list, ip), ip
	}
	if p.payload == 0 {
		p.payload = 18
	}
	if p.sport == 0 {
		p.sport = 1024
	}
	if p.tcp {
		l := &layers.TCP{SrcPort: layers.TCPPort(p.sport), DstPort: 80, ACK: true}
		_ = l.SetNetworkLayerForChecksum(network)
		list = append(list, l)
	} else {
		l := &layers.UDP{SrcPort: layers.UDPPort(p.sport), DstPort: 9}
		_ = l.SetNetworkLayerForChecksum(network)
		list = append(list, l)
	}
	out := gopacket.NewSerializeBuffer()
	list = append(list, gopacket.Payload(bytes.Repeat([]byte{0x5a}, p.payload)))
	if err := gopacket.SerializeLayers(out, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		list...); err != nil {
		panic(err)
	}
	f := out.Bytes()
	if p.hop { // an empty one
		ip := append([]byte{}, f[14:54]...)
		rest := append([]byte{ip[6], 0, 1, 4, 0, 0, 0, 0}, f[54:]...)
		ip[6] = 0
		ip[4], ip[5] = byte(len(rest)>>8), byte(len(rest))
		f = append(append(append([]byte{}, f[:14]...), ip...), rest...)
	}
	return f
}

func (p packet) protocol() layers.IPProtocol {
	if p.tcp {
		return layers.IPProtocolTCP
	}
	return layers.IPProtocolUDP
}

func orElse(text string, a netip.Addr) netip.Addr {
	if text == "" {
		return a
	}
	return netip.MustParseAddr(text)
}

// after is the frame as it is behind so many routers.
func (p packet) after(to, from [6]byte, hops int) []byte {
	if p.ttl == 0 {
		p.ttl = 64
	}
	p.ttl -= hops
	f := p.bytes()
	copy(f, to[:])
	copy(f[6:], from[:])
	return f
}
