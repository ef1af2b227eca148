package differential

import (
	"encoding/binary"
	"fmt"
)

// Frames that are odd: rare, deprecated or broken. All are for the gateway unless the oddity is in the Ethernet header.

// oddEthernet is a frame whose Ethernet header leads it past the gateway's IP stack, or another protocol.
func (s *sender) oddEthernet(d *draft) {
	s.valid(d, 64)
	switch d.note = pick(s.rng, "other station", "broadcast", "multicast", "VLAN", "EtherType", "ARP", "LLC",
		"short", "wrong EtherType", "own MAC"); d.note {
	case "other station":
		d.data[5] ^= 0x55
	case "broadcast":
		copy(d.data, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	case "multicast":
		copy(d.data, pick(s.rng, []byte{1, 0, 0x5e, 0, 0, 5}, []byte{0x33, 0x33, 0, 0, 0, 1},
			[]byte{1, 0x80, 0xc2, 0, 0, 0x14}))
	case "VLAN":
		tagged := append(append([]byte{}, d.data[:12]...), 0x81, 0, 0, byte(pick(s.rng, 0, 1, 100)))
		d.data = append(tagged, d.data[12:]...)
	case "EtherType":
		binary.BigEndian.PutUint16(d.data[12:], pick(s.rng, uint16(0x88b5), 0x8847, 0x0842, 0x9000))
	case "ARP":
		s.arp(d)
	case "LLC":
		binary.BigEndian.PutUint16(d.data[12:], uint16(min(1500, len(d.data)-14)))
	case "short":
		d.data = d.data[:14+s.rng.IntN(40)]
	case "wrong EtherType":
		binary.BigEndian.PutUint16(d.data[12:], etherIPv4+etherIPv6-binary.BigEndian.Uint16(d.data[12:]))
	case "own MAC":
		copy(d.data, d.data[6:12])
	}
}

// arp asks for the gateway, or for an address that no node has; the frame's number is in the padding.
func (s *sender) arp(d *draft) {
	b := []byte{0, 1, 8, 0, 6, 4, 0, 1}
	b = append(b, mac(d.e.link.number, d.e.place)...)
	b = append(b, d.e.address(4).AsSlice()...)
	b = append(b, 0, 0, 0, 0, 0, 0)
	b = append(b, nth(d.e.link.v4, pick(s.rng, 1, 2, 77)).AsSlice()...)
	b = append(b, d.payload[:8]...)
	s.send(d, etherARP, b)
	if s.some(2) {
		copy(d.data, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	}
}

func (s *sender) odd4(d *draft) []frame {
	d.note = pick(s.rng, "options", "fragment", "fragments", "checksum", "length", "header length", "version",
		"padding", "source", "protocol", "reserved bit", "cut short", "TTL", "segment", "noise", "too big",
		"AH", "ESP")
	if d.note == "source" {
		d.from = s.source(4)
	}
	proto, segment := s.segment(d)
	h := ipv4{from: d.from, to: d.to, proto: proto, ttl: 64, id: uint16(s.rng.Uint32())}
	tail := 0
	switch d.note {
	case "options":
		h.options = s.options()
	case "fragment":
		h.flags = pick(s.rng, uint16(moreFrags), 1, 100, moreFrags|3, 0x1fff, dontFragment|moreFrags)
	case "fragments":
		return s.fragments4(d, h, segment)
	case "checksum":
		h.checkError = pick(s.rng, uint16(1), 0x100, 0xffff)
	case "length":
		h.length = uint16(pick(s.rng, 0xffff, 19, 20, 10, 20+len(segment)+1, max(20, 20+len(segment)-5)))
	case "header length":
		h.words = byte(pick(s.rng, 1, 4, 6, 15))
	case "version":
		h.version = byte(pick(s.rng, 6, 5, 15, 1))
	case "padding":
		tail = 1 + s.rng.IntN(100)
	case "protocol":
		h.proto = byte(s.rng.IntN(256))
	case "AH", "ESP":
		h.proto, segment = s.secured(d.note, proto, segment)
	case "reserved bit":
		h.flags = 0x8000
	case "TTL":
		h.ttl = byte(s.rng.IntN(3))
	case "segment":
		segment[s.rng.IntN(len(segment))] ^= 0xff
	case "too big":
		h.flags = pick(s.rng, uint16(0), dontFragment)
		segment = udp(d.from, d.to, 1000, 2000,
			append(d.payload, make([]byte, max(0, d.e.mtu-28-len(d.payload)))...))
	}
	b := append(h.packet(segment), make([]byte, tail)...)
	s.spoil(d, &b)
	s.send(d, etherIPv4, b)
	return []frame{*d.frame}
}

// spoil does what can be done to any packet.
func (s *sender) spoil(d *draft, b *[]byte) {
	switch d.note {
	case "cut short":
		*b = (*b)[:len(*b)-1-s.rng.IntN(min(60, len(*b)-1))]
	case "noise":
		for range 1 + s.rng.IntN(4) {
			(*b)[s.rng.IntN(min(len(*b), 60))] = byte(s.rng.Uint32())
		}
	}
}

// options of IPv4: none, a record of the route, time stamps that are full (others hold the time), a source route, an
// alert, and broken ones.
func (s *sender) options() []byte {
	if s.ecmp != single { // the rest records, or chooses, the path
		return pick(s.rng, []byte{1, 1, 1, 0}, []byte{148, 4, 0, 0}, []byte{222, 4, 1, 2})
	}
	return pick(s.rng,
		[]byte{1, 1, 1, 1},
		[]byte{1, 1, 1, 0},
		append([]byte{7, 39, 4}, make([]byte, 37)...),
		[]byte{7, 7, 4, 0, 0, 0, 0, 0},
		[]byte{68, 4, 5, 0},
		[]byte{131, 7, 4, 10, 0, 0, 1, 0},
		[]byte{148, 4, 0, 0},
		[]byte{7, 0, 4, 0},
		[]byte{7, 200, 4, 0},
		[]byte{222, 4, 1, 2},
	)
}

func (s *sender) fragments4(d *draft, h ipv4, segment []byte) []frame {
	size := 8 * (1 + s.rng.IntN(80))
	var all []frame
	for at := 0; at < len(segment); at += size {
		part := segment[at:min(at+size, len(segment))]
		h.flags = uint16(at / 8)
		if at+size < len(segment) {
			h.flags |= moreFrags
		}
		s.send(d, etherIPv4, h.packet(part))
		f := *d.frame
		f.note = fmt.Sprintf("fragment at %d of %d", at, len(segment))
		all = append(all, f)
	}
	if s.some(3) && len(all) > 1 { // one is lost
		all = all[1:]
	}
	return all
}

func (s *sender) odd6(d *draft) []frame {
	d.note = pick(s.rng, "hop-by-hop", "destination options", "routing", "fragment", "fragments", "no next header",
		"length", "version", "padding", "source", "protocol", "cut short", "hop limit", "segment", "noise",
		"too big", "chain", "AH", "ESP", "mobility", "jumbo payload")
	if d.note == "source" {
		d.from = s.source(6)
	}
	proto, segment := s.segment(d)
	h := ipv6{from: d.from, to: d.to, next: proto, hop: 64}
	tail := 0
	switch d.note {
	case "hop-by-hop":
		h.next, segment = protoHop, append(s.options6(proto), segment...)
	case "destination options":
		h.next, segment = protoOptions, append(s.options6(proto), segment...)
	case "routing":
		h.next, segment = protoRouting,
			append(append([]byte{proto, 2, byte(pick(s.rng, 0, 2, 4, 253)), byte(s.rng.IntN(2)), 0, 0, 0,
				0}, d.to.AsSlice()...), segment...)
	case "fragment":
		h.next, segment = protoFrag,
			append([]byte{proto, 0, 0, byte(pick(s.rng, 0, 1, 8, 9)), 0, 0, 0,
				byte(s.rng.Uint32())}, segment...)
	case "fragments":
		return s.fragments6(d, h, segment)
	case "no next header":
		h.next = protoNone
	case "length":
		h.length = uint16(pick(s.rng, 1, len(segment)+1, max(1, len(segment)-3), 0xffff))
	case "version":
		h.version = byte(pick(s.rng, 4, 5, 15))
	case "padding":
		tail = 1 + s.rng.IntN(100)
	case "protocol":
		h.next = byte(s.rng.IntN(256))
	case "hop limit":
		h.hop = byte(s.rng.IntN(3))
	case "segment":
		segment[s.rng.IntN(len(segment))] ^= 0xff
	case "too big":
		segment = udp(d.from, d.to, 1000, 2000,
			append(d.payload, make([]byte, max(0, d.e.mtu-48-len(d.payload)))...))
	case "AH", "ESP":
		h.next, segment = s.secured(d.note, proto, segment)
	case "mobility":
		h.next, segment = protoMobile,
			append([]byte{protoNone, 0, byte(s.rng.IntN(9)), 0, 0, 0, 0, 0}, segment...)
	case "jumbo payload": // RFC 2675; no packet of ours is one
		segment = append(binary.BigEndian.AppendUint32([]byte{proto, 0, 0xc2, 4},
			uint32(8+len(segment))), segment...)
		h.next = protoHop
	case "chain":
		h.next, segment = protoOptions,
			append(append([]byte{protoOptions, 0, 1, 4, 0, 0, 0, 0}, proto, 0, 1, 4, 0, 0, 0,
				0), segment...)
	}
	b := append(h.packet(segment), make([]byte, tail)...)
	s.spoil(d, &b)
	s.send(d, etherIPv6, b)
	return []frame{*d.frame}
}

// options6 are padding, an alert, an unknown one that must be skipped, or answered, and a broken one.
func (s *sender) options6(next byte) []byte {
	return append([]byte{next, 0}, pick(s.rng,
		[]byte{1, 4, 0, 0, 0, 0},
		[]byte{5, 2, 0, 0, 0, 0},
		[]byte{0x1e, 4, 0, 0, 0, 0},
		[]byte{0x9e, 4, 0, 0, 0, 0},
		[]byte{0xde, 4, 0, 0, 0, 0},
		[]byte{1, 200, 0, 0, 0, 0},
		[]byte{0xc2, 4, 0, 0, 0, 1},
	)...)
}

// secured puts a header of IPsec before the segment.
func (s *sender) secured(which string, next byte, segment []byte) (proto byte, b []byte) {
	spi := binary.BigEndian.AppendUint64(nil, s.rng.Uint64())
	if which == "ESP" {
		return protoESP, append(spi, segment...)
	}
	header := append([]byte{next, 4, 0, 0}, spi...)
	return protoAH, append(append(header, make([]byte, 12)...), segment...)
}

func (s *sender) fragments6(d *draft, h ipv6, segment []byte) []frame {
	size, proto, id := 8*(1+s.rng.IntN(80)), h.next, s.rng.Uint32()
	h.next = protoFrag
	var all []frame
	for at := 0; at < len(segment); at += size {
		offset := uint16(at)
		if at+size < len(segment) {
			offset |= 1
		}
		head := binary.BigEndian.AppendUint16([]byte{proto, 0}, offset)
		head = binary.BigEndian.AppendUint32(head, id)
		s.send(d, etherIPv6, h.packet(append(head, segment[at:min(at+size, len(segment))]...)))
		f := *d.frame
		f.note = fmt.Sprintf("fragment at %d of %d", at, len(segment))
		all = append(all, f)
	}
	if s.some(3) && len(all) > 1 {
		all = all[1:]
	}
	return all
}

// super is a frame as a socket sends it with segmentation offload: longer than any MTU, its checksum left to the
// network card.
func (s *sender) super(d *draft) {
	size := 1 + s.rng.IntN(1400)
	payload := append(d.payload[:8:8], make([]byte, size*(2+s.rng.IntN(20)))...)
	payload = payload[:min(len(payload), 60000)]
	segment := tcp(d.from, d.to, 1024, 2048, s.rng.Uint32(), 0x18, payload)
	head, kind := 14+20, byte(1) // VIRTIO_NET_HDR_GSO_TCPV4
	if d.family == 6 {
		head, kind = 14+40, 4
	}
	// The checksum of the pseudo header, as linux/virtio_net.h asks for.
	partial := sum(append(d.from.AsSlice(), d.to.AsSlice()...), uint32(protoTCP)+uint32(len(segment)))
	binary.BigEndian.PutUint16(segment[16:], uint16(partial))
	d.note = fmt.Sprintf("super-frame of %d", size)
	if d.family == 4 {
		h := ipv4{from: d.from, to: d.to, proto: protoTCP, ttl: 64, id: uint16(s.rng.Uint32()),
			flags: pick(s.rng, uint16(0), dontFragment)}
		s.send(d, etherIPv4, h.packet(segment))
	} else {
		next := byte(protoTCP)
		if s.some(4) { // behind options, which count towards the MTU
			options := make([]byte, 8*(1+s.rng.IntN(30)))
			options[0], options[1] = next, byte(len(options)/8-1)
			next, segment = protoOptions, append(options, segment...)
			head += len(options)
		}
		s.send(d, etherIPv6, ipv6{from: d.from, to: d.to, next: next, hop: 64}.packet(segment))
	}
	d.offload = []byte{1, kind}                          // VIRTIO_NET_HDR_F_NEEDS_CSUM
	for _, v := range []int{head + 20, size, head, 16} { // header, segment, where the checksum starts, where it is
		d.offload = binary.NativeEndian.AppendUint16(d.offload, uint16(v))
	}
}
