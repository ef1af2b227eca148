package differential

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// received is a frame at a host.
type received struct {
	offload [vnetHeader]byte
	data    []byte
}

// header is what is looked at to compare a received frame.
type header struct {
	kind  uint16 // EtherType
	v4    bool
	proto byte // the last header's
	first bool // of the packet's fragments, or its only part
	at    int  // where the last header begins
}

func parse(b []byte) header {
	h := header{kind: binary.BigEndian.Uint16(b[12:]), first: true}
	switch {
	case h.kind == etherIPv4 && len(b) >= 34:
		h.v4, h.proto = true, b[23]
		h.first = binary.BigEndian.Uint16(b[20:])&0x1fff == 0
		h.at = 14 + int(b[14]&15)*4
	case h.kind == etherIPv6 && len(b) >= 54:
		h.proto, h.at = b[20], 54
		for h.at+8 <= len(b) && (h.proto == protoHop || h.proto == protoOptions || h.proto == protoRouting ||
			h.proto == protoFrag) {
			length := 8 + 8*int(b[h.at+1])
			if h.proto == protoFrag {
				length = 8
				h.first = h.first && binary.BigEndian.Uint16(b[h.at+2:])&^7 == 0
			}
			h.proto, h.at = b[h.at], h.at+length
		}
	}
	if h.at == 0 || h.at >= len(b) {
		h.proto = protoNone
	}
	return h
}

// ICMP types.
const (
	icmpReply        = 0
	icmpUnreachable  = 3
	icmpRedirect     = 5
	icmpExceeded     = 11
	icmpParameter    = 12
	icmp6Unreachable = 1
	icmp6Parameter   = 4
	icmp6QueryMLD    = 130
	icmp6DoneMLD     = 132
	icmp6SolicitRA   = 133
	icmp6Redirect    = 137
	icmp6ReportMLD   = 143
	icmp6EchoReply   = 129
)

// idle reports whether a frame is what kernels say to each other when they like: it has no counterpart in the other
// network.
func idle(b []byte) bool {
	h := parse(b)
	_, ours := number(b)
	switch {
	case h.kind == etherARP:
		return !ours
	case h.v4 && h.proto == protoICMP && h.first:
		return b[h.at] == icmpRedirect // as often as the kernel pleases
	case !h.v4 && h.proto == protoICMPv6 && h.first:
		kind := b[h.at]
		talk := kind >= icmp6QueryMLD && kind <= icmp6DoneMLD || kind >= icmp6SolicitRA &&
			kind < icmp6Redirect || kind == icmp6ReportMLD
		return kind == icmp6Redirect || talk && !ours
	}
	return false
}

// normal gives what must be the same in both networks. What depends on the path is left out: where routes spread,
// which of several routers, equally far away, sent the frame or an ICMP error; on parallel links, from which of its
// addresses a router sends an ICMPv6 error, as that may be the address of the interface by which the cause came (RFC
// 4443, 2.2).
func normal(r received, paths ecmp) string {
	b := append([]byte{}, r.data...)
	h := parse(b)
	if paths == spread {
		copy(b[6:12], make([]byte, 6))
	}
	if paths == spread && isError(h, b) {
		id, _ := number(b)
		return fmt.Sprintf("ICMP error %d, %d about %d", b[h.at], b[h.at+1], id)
	}
	if isError(h, b) && h.at+8 < len(b) {
		right := !h.v4 || sum(b[h.at:min(len(b), 14+int(binary.BigEndian.Uint16(b[16:])))], 0) == 0xffff
		quoted := append(append([]byte{}, b[:14]...), b[h.at+8:]...)
		unnumber(quoted)
		copy(b[h.at+8:], quoted[14:])
		if h.v4 {
			b[h.at+2], b[h.at+3] = 0, 0
		}
		if !right {
			b[h.at+2] = 1
		}
	}
	if paths == parallel && !h.v4 && isError(h, b) && h.at == 54 && len(b) >= 62 {
		// with the pseudo header (RFC 8200, 8.1)
		right := sum(r.data[22:], protoICMPv6+uint32(len(b)-h.at)) == 0xffff
		clear(b[22:38])
		clear(b[56:58])
		if !right {
			b[56] = 1
		}
	}
	unnumber(b)
	r.offload[0] &^= dataValid
	return string(r.offload[:]) + string(b)
}

// dataValid says that the receiver's interface has looked at the checksum, as it does to frames from XDP:
// VIRTIO_NET_HDR_F_DATA_VALID.
const dataValid = 2

// unnumber takes away from a frame what is not the same in both networks: kernels number the IPv4 packets that they
// make themselves, and fragments, as they like (RFC 6864). Of the header's checksum remains whether it was right.
func unnumber(b []byte) {
	h := parse(b)
	switch {
	case h.v4 && h.at >= 34 &&
		(h.proto == protoTCP || h.proto == protoICMP && (!h.first || h.at < len(b) && b[h.at] != 8)):
		right := sum(b[14:min(h.at, len(b))], 0) == 0xffff
		b[18], b[19], b[24], b[25] = 0, 0, 0, 0
		if !right {
			b[24] = 1
		}
	case h.kind == etherIPv6 && h.proto == protoICMPv6 && b[20] == protoFrag:
		copy(b[54+4:54+8], "id??")
	}
}

func isError(h header, b []byte) bool {
	if !h.first || h.at+1 >= len(b) {
		return false
	}
	if h.v4 {
		kind := b[h.at]
		return h.proto == protoICMP && (kind == icmpUnreachable || kind == icmpExceeded ||
			kind == icmpParameter)
	}
	return h.proto == protoICMPv6 && b[h.at] >= icmp6Unreachable && b[h.at] <= icmp6Parameter
}

// difference is what one host received in one network only.
type difference struct {
	host                 string
	kernelOnly, fastOnly []received
	order                []string // flows whose frames came in another order
}

// compare takes frames as multisets, and the frames of a flow as a sequence where they keep their order.
func compare(host string, kernel, fast []received, c *testcase) *difference {
	count := map[string]int{}
	for _, r := range fast {
		if !idle(r.data) {
			count[normal(r, c.paths)]++
		}
	}
	d := &difference{host: host}
	for _, r := range kernel {
		if idle(r.data) {
			continue
		}
		if k := normal(r, c.paths); count[k] > 0 {
			count[k]--
		} else {
			d.kernelOnly = append(d.kernelOnly, r)
		}
	}
	for _, r := range fast {
		if idle(r.data) {
			continue
		}
		if k := normal(r, c.paths); count[k] > 0 {
			count[k]--
			d.fastOnly = append(d.fastOnly, r)
		}
	}
	if len(d.kernelOnly)+len(d.fastOnly) == 0 && c.ordered {
		d.order = reordered(sequences(kernel), sequences(fast))
	}
	if len(d.kernelOnly)+len(d.fastOnly)+len(d.order) == 0 {
		return nil
	}
	return d
}

// sequences are the numbers of the frames of each flow of UDP, in the order in which they came.
func sequences(all []received) map[string][]uint32 {
	flows := map[string][]uint32{}
	for _, r := range all {
		h := parse(r.data)
		id, ours := number(r.data)
		if h.proto != protoUDP || !h.first || !ours || h.at+4 > len(r.data) {
			continue
		}
		from, to := 26, 34 // the addresses
		if !h.v4 {
			from, to = 22, 54
		}
		flow := string(r.data[from:to]) + string(r.data[h.at:h.at+4])
		flows[flow] = append(flows[flow], id)
	}
	return flows
}

func reordered(kernel, fast map[string][]uint32) (all []string) {
	for flow, want := range kernel {
		if have := fast[flow]; !slices.Equal(have, want) {
			all = append(all, fmt.Sprintf("by the kernels %d, by the fast path %d", want, have))
		}
	}
	return all
}

// String shows the frames side by side, as far as a person needs it.
func (d *difference) String() string {
	var b strings.Builder
	show := func(what string, all []received) {
		for i, r := range all {
			if i == 5 {
				fmt.Fprintf(&b, "  %s: and %d more\n", what, len(all)-i)
				break
			}
			fmt.Fprintf(&b, "  %s: %s\n", what, describe(r.data))
			if r.offload != [vnetHeader]byte{} {
				fmt.Fprintf(&b, "    offload %x\n", r.offload)
			}
		}
	}
	fmt.Fprintf(&b, "%s received:\n", d.host)
	show("by the kernels only", d.kernelOnly)
	show("by the fast path only", d.fastOnly)
	for _, flow := range d.order {
		fmt.Fprintf(&b, "  in another order: %s\n", flow)
	}
	return b.String()
}
