package tunnel

import (
	"encoding/binary"
	"net/netip"

	"github.com/pergola-net/pergola/bench/traffic"
	"github.com/pergola-net/pergola/model/constants"
)

// frameFormat is what frames must look like to get through.
type frameFormat struct {
	from, to [6]byte // MAC addresses of the frames, within tunnels where there are some
	outer    func(size int) []byte
	keys     traffic.Keys
}

// flow is what the left end sends.
func (r *frameFormat) flow(m *machine, size int) traffic.Flow {
	return traffic.Flow{
		Device: m.left.index, From: r.from, To: r.to, Source: inner(0, 2),
		Destinations: []netip.Addr{inner(1, 2)},
		Size:         size, Outer: r.outer(size), Keys: r.keys,
	}
}

// within is the format of frames in tunnels to the router whose addresses all variants have.
func within(outer func(size int) []byte) frameFormat {
	return frameFormat{from: [6]byte(mac(inner(0, 2))), to: [6]byte(mac(inner(0, 1))), outer: outer}
}

// Headers that come before a frame. What varies with the frame's size is written for it.
func noTunnel(int) []byte { return nil }

// greKeyAt is where the key is.
const greKeyAt = 14 + 20 + 4

func greHeaders(key uint32) func(size int) []byte {
	return func(size int) []byte {
		// RFC 2890: a key; transparent Ethernet
		gre := binary.BigEndian.AppendUint32([]byte{0x20, 0x00, 0x65, 0x58}, key)
		return append(ipHeaders(len(gre)+size, 47), gre...)
	}
}

func vxlanHeaders(vni uint32) func(size int) []byte {
	return func(size int) []byte {
		udp := binary.BigEndian.AppendUint16(nil, 50000)
		udp = binary.BigEndian.AppendUint16(udp, constants.VXLANPort)
		udp = binary.BigEndian.AppendUint16(udp, uint16(16+size))
		udp = append(udp, 0, 0)
		vxlan := binary.BigEndian.AppendUint32([]byte{8, 0, 0, 0}, vni<<8) // RFC 7348
		return append(append(ipHeaders(16+size, 17), udp...), vxlan...)
	}
}

// ipHeaders are Ethernet's and IPv4's from the left end to the machine.
func ipHeaders(payload int, protocol byte) []byte {
	b := append(append([]byte{}, mac(outside(0, 1))...), mac(outside(0, 2))...)
	b = append(b, 0x08, 0x00)
	ip := []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0}
	binary.BigEndian.PutUint16(ip[2:], uint16(20+payload))
	ip = append(append(ip, outside(0, 2).AsSlice()...), outside(0, 1).AsSlice()...)
	var sum uint32
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	return append(b, ip...)
}
