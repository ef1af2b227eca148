package differential

import (
	"encoding/binary"
	"net/netip"
)

// Packets by hand: most of them are to be wrong in ways that no library lets one be.

const (
	etherIPv4 = 0x0800
	etherARP  = 0x0806
	etherVLAN = 0x8100
	etherIPv6 = 0x86dd

	protoICMP    = 1
	protoTCP     = 6
	protoUDP     = 17
	protoICMPv6  = 58
	protoNone    = 59
	protoHop     = 0
	protoRouting = 43
	protoFrag    = 44
	protoESP     = 50
	protoAH      = 51
	protoOptions = 60
	protoMobile  = 135
)

func ethernet(to, from []byte, kind uint16, payload []byte) []byte {
	f := append(append([]byte{}, to...), from...)
	return append(binary.BigEndian.AppendUint16(f, kind), payload...)
}

// sum is the internet checksum, not yet complemented.
func sum(b []byte, start uint32) uint32 {
	s := start
	for ; len(b) > 1; b = b[2:] {
		s += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) > 0 {
		s += uint32(b[0]) << 8
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return s
}

// ipv4 is a header's fields; those that are zero are computed.
type ipv4 struct {
	from, to           netip.Addr
	proto, ttl, tos    byte
	id                 uint16
	flags              uint16 // with the fragment offset
	options            []byte // a multiple of four bytes
	version, words     byte
	length, checkError uint16
}

const (
	dontFragment = 0x4000
	moreFrags    = 0x2000
)

func (h ipv4) packet(payload []byte) []byte {
	b := make([]byte, 20, 20+len(h.options)+len(payload))
	version, words := h.version, h.words
	if version == 0 {
		version = 4
	}
	if words == 0 {
		words = byte(5 + len(h.options)/4)
	}
	b[0] = version<<4 | words
	b[1] = h.tos
	length := h.length
	if length == 0 {
		length = uint16(20 + len(h.options) + len(payload))
	}
	binary.BigEndian.PutUint16(b[2:], length)
	binary.BigEndian.PutUint16(b[4:], h.id)
	binary.BigEndian.PutUint16(b[6:], h.flags)
	b[8], b[9] = h.ttl, h.proto
	copy(b[12:], h.from.AsSlice())
	copy(b[16:], h.to.AsSlice())
	b = append(b, h.options...)
	binary.BigEndian.PutUint16(b[10:], ^uint16(sum(b, 0))+h.checkError)
	return append(b, payload...)
}

// ipv6 is a header's fields; those that are zero are computed.
type ipv6 struct {
	from, to  netip.Addr
	next, hop byte
	class     uint32 // traffic class and flow label
	version   byte
	length    uint16
}

func (h ipv6) packet(payload []byte) []byte {
	version := uint32(h.version)
	if version == 0 {
		version = 6
	}
	length := h.length
	if length == 0 {
		length = uint16(len(payload))
	}
	b := binary.BigEndian.AppendUint32(nil, version<<28|h.class&0xfffffff)
	b = binary.BigEndian.AppendUint16(b, length)
	b = append(b, h.next, h.hop)
	b = append(b, h.from.AsSlice()...)
	b = append(b, h.to.AsSlice()...)
	return append(b, payload...)
}

// transport puts the right checksum into a segment, at an offset; proto 1 has no pseudo header.
func transport(from, to netip.Addr, proto byte, segment []byte, at int) []byte {
	start := uint32(0)
	if proto != protoICMP {
		start = sum(append(from.AsSlice(), to.AsSlice()...), uint32(proto)+uint32(len(segment)))
	}
	c := ^uint16(sum(segment, start))
	if c == 0 && proto == protoUDP {
		c = 0xffff
	}
	binary.BigEndian.PutUint16(segment[at:], c)
	return segment
}

func udp(from, to netip.Addr, sport, dport uint16, payload []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, sport)
	b = binary.BigEndian.AppendUint16(b, dport)
	b = binary.BigEndian.AppendUint16(b, uint16(8+len(payload)))
	b = append(b, 0, 0)
	return transport(from, to, protoUDP, append(b, payload...), 6)
}

func tcp(from, to netip.Addr, sport, dport uint16, seq uint32, flags byte, payload []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, sport)
	b = binary.BigEndian.AppendUint16(b, dport)
	b = binary.BigEndian.AppendUint32(b, seq)
	b = binary.BigEndian.AppendUint32(b, seq^0x5a5a5a5a)
	b = append(b, 5<<4, flags, 0xff, 0xff, 0, 0, 0, 0)
	return transport(from, to, protoTCP, append(b, payload...), 16)
}

// echo is an echo request of the addresses' family.
func echo(from, to netip.Addr, id uint16, payload []byte) []byte {
	kind, proto := byte(8), byte(protoICMP)
	if to.Is6() {
		kind, proto = 128, protoICMPv6
	}
	b := []byte{kind, 0, 0, 0}
	b = binary.BigEndian.AppendUint16(b, id)
	b = append(b, 0, 1)
	return transport(from, to, proto, append(b, payload...), 2)
}
