package differential

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
)

// describe decodes a frame for a person.
func describe(b []byte) string {
	if len(b) < 14 {
		return hex.EncodeToString(b)
	}
	text := fmt.Sprintf("%s > %s %04x", net.HardwareAddr(b[6:12]), net.HardwareAddr(b[:6]),
		binary.BigEndian.Uint16(b[12:]))
	h := parse(b)
	switch {
	case h.v4:
		from, _ := netip.AddrFromSlice(b[26:30])
		to, _ := netip.AddrFromSlice(b[30:34])
		text += fmt.Sprintf(" IPv4 %s > %s ttl %d id %04x fragment %04x length %d sum %04x proto %d", from, to,
			b[22], b[18:20], b[20:22], binary.BigEndian.Uint16(b[16:]), b[24:26], b[23])
	case h.kind == etherIPv6 && len(b) >= 54:
		from, _ := netip.AddrFromSlice(b[22:38])
		to, _ := netip.AddrFromSlice(b[38:54])
		text += fmt.Sprintf(" IPv6 %s > %s hops %d length %d next %d", from, to, b[21],
			binary.BigEndian.Uint16(b[18:]), b[20])
	}
	if isError(h, b) || h.proto == protoICMP || h.proto == protoICMPv6 {
		text += fmt.Sprintf(" ICMP %d,%d", b[h.at], b[min(h.at+1, len(b)-1)])
	}
	if id, ok := number(b); ok {
		text += fmt.Sprintf(" #%d", id)
	}
	return text + fmt.Sprintf(" (%d bytes) %x", len(b), b[14:min(len(b), 120)])
}
