package program

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/pergola-net/pergola/i3/chord"
	"github.com/pergola-net/pergola/i3/fastpath/layout"
	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/wire"
)

// i3Server is where randomI3 sends most packets.
var i3Server = netip.MustParseAddrPort("198.51.100.7:5610")

// i3Memory is what i3d would write for a server with the keys below 2^127, and two others; one is not reached.
func i3Memory() []byte {
	key := func(first byte) ident.Key { return ident.KeyFrom([ident.KeySize]byte{first}) }
	other := func(a string) chord.Peer { return chord.Peer{Addr: netip.MustParseAddrPort(a)} }
	routes := chord.Routes{Own: chord.OwnInterval, From: key(0), To: key(0x80), Hops: []chord.Hop{
		{From: key(0x80), To: key(0xc0), Next: other("198.51.100.8:5610")},
		{From: key(0xc0), To: key(0xe0), Next: other("203.0.113.1:5610")},
		{From: key(0xe0), To: key(0), Next: other("198.51.100.9:5611")},
	}}
	mac := layout.MAC(macB)
	n := layout.Node{Addr: i3Server, MACs: []layout.MAC{mac, mac, mac, mac}}
	n.Reach = func(a netip.Addr) (layout.Neighbor, bool) {
		return layout.Neighbor{Interface: 2, To: layout.MAC(macC), From: mac}, a.As4()[0] == 198
	}
	memory := make([]byte, 2*layout.Size)
	binary.NativeEndian.PutUint64(memory, 1) // the ring in use
	copy(memory[layout.Size:], n.Ring(&routes))
	binary.NativeEndian.PutUint64(memory[layout.Size:], 7) // its version
	return memory
}

// randomI3 is a frame with an I3 packet, often with some bytes changed.
func randomI3(t *testing.T, random *rand.Rand) Frame {
	t.Helper()
	var id ident.ID
	for i := range 8 {
		id[i] = byte(random.Uint32())
	}
	p := wire.New(wire.Data, []ident.ID{id, {}, {}}[:1+random.IntN(3)], make([]byte, random.IntN(1000)))
	p.SetHopLimit(random.IntN(10))
	if random.IntN(8) == 0 {
		p.SetCopies(0)
	}
	ip := &layers.IPv4{Version: 4, IHL: 5, TTL: byte(1 + random.IntN(255)), Protocol: layers.IPProtocolUDP,
		SrcIP: []byte{192, 0, 2, byte(random.Uint32())}, DstIP: i3Server.Addr().AsSlice()}
	udp := &layers.UDP{SrcPort: layers.UDPPort(random.Uint32()), DstPort: layers.UDPPort(i3Server.Port())}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	data := serialize(t, &layers.Ethernet{SrcMAC: macA, DstMAC: macB, EthernetType: layers.EthernetTypeIPv4}, ip,
		udp, gopacket.Payload(p))
	if random.IntN(3) == 0 {
		data = bytes.Clone(data)
		for range 1 + random.IntN(3) {
			data[random.IntN(90)] ^= byte(1 << random.IntN(8))
		}
	}
	return Frame{Data: data, Interface: uint32(1 + random.IntN(4)), Interfaces: 0x1e, Time: 1}
}
