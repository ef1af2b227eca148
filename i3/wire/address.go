package wire

import (
	"encoding/binary"
	"net/netip"
)

// An address is 16 bytes, in which an IPv4 address is ::ffff:a.b.c.d, and a UDP port.
const addressSize = 18

// appendAddress writes an address. One that is not valid becomes 0.
func appendAddress(b []byte, a netip.AddrPort) []byte {
	if !a.IsValid() {
		return append(b, make([]byte, addressSize)...)
	}
	address := a.Addr().As16()
	return binary.BigEndian.AppendUint16(append(b, address[:]...), a.Port())
}

// parseAddress reads the address and port of one host. That of a group is refused: nothing is sent to many at once
// because a packet says so.
func parseAddress(b []byte) (netip.AddrPort, error) {
	a := netip.AddrFrom16([16]byte(b)).Unmap()
	port := binary.BigEndian.Uint16(b[16:])
	if a.IsUnspecified() || a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) || port == 0 {
		return netip.AddrPort{}, ErrPayload
	}
	return netip.AddrPortFrom(a, port), nil
}

// parseOptional reads an address, or 0 as one that is not valid.
func parseOptional(b []byte) (netip.AddrPort, error) {
	if [addressSize]byte(b) == ([addressSize]byte{}) {
		return netip.AddrPort{}, nil
	}
	return parseAddress(b)
}
