package eligible

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// frame is what is known of a frame before it has come: one of those that the fast path would take past a node's
// kernel.
//
// All of them are Ethernet frames without a VLAN tag, for the MAC address of the node (so no multicast), whose IPv4
// header has no options and whose destination is no multicast address. Everything else is punted, and a packet socket
// sees it as ever.
type frame struct {
	proto  uint32
	octets map[int]value // by offset from the Ethernet header; those not here may be anything
}

const (
	networkOffset = 14 // of the IP header
	transport4    = networkOffset + 20

	// BFD's echo packets (RFC 5881, section 4) come back to the router that sent them: they are addressed to the
	// router or leave by the interface they came by, and both are punted. So nobody misses one that is walked.
	// FRR's bfdd has a packet socket for them, always, and would otherwise keep every node with BFD off the fast
	// path.
	bfdEcho = 3785
)

// transit4 and transit6 are, each time taken together, all IPv4 and all IPv6 frames that are walked, but for BFD's
// echo packets.
var (
	transit4 = ipv4Frames()
	transit6 = []frame{newFrame(unix.ETH_P_IPV6, between(0x60, 0x6f),
		map[int]value{networkOffset + 24: between(0, 0xfe)})}
)

func newFrame(proto uint32, version value, octets map[int]value) frame {
	f := frame{proto: proto, octets: octets}
	f.octets[0] = value{known: 1, hi: 0xfe} // no group address
	f.octets[12] = exactly(proto >> 8)
	f.octets[13] = exactly(proto & 0xff)
	f.octets[networkOffset] = version
	return f
}

func ipv4Frames() []frame {
	destinations := []value{between(0, 223), between(240, 255)}
	others := []map[int]value{ // that are not UDP to port bfdEcho
		{9: between(0, unix.IPPROTO_UDP-1)},
		{9: between(unix.IPPROTO_UDP+1, 255)},
		{9: exactly(unix.IPPROTO_UDP), 22: between(0, bfdEcho>>8-1)},
		{9: exactly(unix.IPPROTO_UDP), 22: between(bfdEcho>>8+1, 255)},
		{9: exactly(unix.IPPROTO_UDP), 22: exactly(bfdEcho >> 8), 23: between(0, bfdEcho&0xff-1)},
		{9: exactly(unix.IPPROTO_UDP), 22: exactly(bfdEcho >> 8), 23: between(bfdEcho&0xff+1, 255)},
	}
	var frames []frame
	for _, destination := range destinations {
		for _, other := range others {
			octets := map[int]value{networkOffset + 16: destination}
			for at, v := range other {
				octets[networkOffset+at] = v
			}
			frames = append(frames, newFrame(unix.ETH_P_IP, exactly(0x45), octets))
		}
	}
	return frames
}

// Where a classic BPF program finds what is not at a plain offset (linux/filter.h): offsets from here on are relative
// to the network header, or to the Ethernet header.
const (
	fromNetwork = -0x100000
	fromLink    = -0x200000
)

// load gives what is known of size bytes at an offset as a program names it; start is what its offset 0 means.
func (f frame) load(offset uint32, size, start int) value {
	at := int(int32(offset))
	switch {
	case at >= 0:
		at += start
	case at >= fromNetwork:
		at += networkOffset - fromNetwork
	case at >= fromLink:
		at -= fromLink
	default:
		return anything
	}
	v := value{known: ^uint32(0)}
	for i := range size {
		b, ok := f.octets[at+i]
		if !ok {
			b = octet
		}
		v.known, v.bits = v.known<<8|b.known&0xff, v.bits<<8|b.bits&0xff
		v.lo, v.hi = v.lo<<8|b.lo, v.hi<<8|b.hi
	}
	if size < 4 {
		v.known |= ^uint32(0) << (8 * size)
	}
	v, _ = v.tighten()
	return v
}

// Linux's additions to classic BPF that x/net/bpf has no name for, or another one.
const (
	extensionVLANTag        bpf.Extension = 44
	extensionVLANTagPresent bpf.Extension = 48
)

// extension gives what is known of a frame's properties that are not in its bytes.
func (f frame) extension(number bpf.Extension) value {
	switch number {
	case bpf.ExtProto:
		return exactly(f.proto)
	case bpf.ExtType:
		// or PACKET_HOST, which is 0
		return value{known: ^uint32(unix.PACKET_OUTGOING), hi: unix.PACKET_OUTGOING}
	case bpf.ExtLinkLayerType:
		return exactly(unix.ARPHRD_ETHER)
	case extensionVLANTag, extensionVLANTagPresent:
		return exactly(0)
	default:
		return anything
	}
}
