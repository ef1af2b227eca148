package mirror

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/rtnl"
)

// kroute is a route as the kernel has it.
type kroute struct {
	prefix netip.Prefix
	table  byte
	tos    byte
	metric uint32
	kind   byte
	paths  []path
	source netip.Addr
	object uint32 // of next hops, which leads by paths
	bare   bool   // of an object, messages have the number alone (net.ipv4.nexthop_compat_mode=0)
}

func netlinkMessage(kind, flags uint16, body []byte) rtnl.Message {
	return rtnl.Message{Kind: kind, Flags: flags, Data: body}
}

// encode gives a message as it comes from a socket.
func encode(m rtnl.Message) []byte {
	b := rtnl.Request(m.Kind, 0, m.Data)
	binary.NativeEndian.PutUint32(b, uint32(unix.NLMSG_HDRLEN+len(m.Data)))
	binary.NativeEndian.PutUint16(b[6:], m.Flags)
	return b
}

func (r kroute) message(kind, flags uint16) rtnl.Message {
	family := byte(unix.AF_INET)
	if r.prefix.Addr().Is6() {
		family = unix.AF_INET6
	}
	b := []byte{family, byte(r.prefix.Bits()), 0, r.tos, r.table, unix.RTPROT_BOOT, 0, r.kind, 0, 0, 0, 0}
	if r.table == unix.RT_TABLE_LOCAL {
		b[5] = unix.RTPROT_KERNEL
	}
	b = append(b, rtnl.U32(unix.RTA_TABLE, uint32(r.table))...)
	if r.prefix.Bits() > 0 {
		b = append(b, rtnl.Bytes(unix.RTA_DST, r.prefix.Addr().AsSlice())...)
	}
	if r.metric != 0 {
		b = append(b, rtnl.U32(unix.RTA_PRIORITY, r.metric)...)
	}
	if r.source.IsValid() {
		b = append(b, rtnl.Bytes(unix.RTA_PREFSRC, r.source.AsSlice())...)
	}
	if r.object != 0 {
		b = append(b, rtnl.U32(rtaNHID, r.object)...)
	}
	if r.bare {
		return netlinkMessage(kind, flags, b)
	}
	if len(r.paths) == 1 {
		p := r.paths[0]
		b[8] = b2i(p.dead)
		b = append(b, rtnl.U32(unix.RTA_OIF, uint32(p.link))...)
		b = append(b, gatewayAttribute(p)...)
	} else if len(r.paths) > 1 {
		var all []byte
		for _, p := range r.paths {
			hop := make([]byte, unix.SizeofRtNexthop)
			hop[2], hop[3] = b2i(p.dead), byte(p.weight-1)
			binary.NativeEndian.PutUint32(hop[4:], uint32(p.link))
			hop = append(hop, gatewayAttribute(p)...)
			binary.NativeEndian.PutUint16(hop, uint16(len(hop)))
			all = append(all, hop...)
		}
		b = append(b, rtnl.Bytes(unix.RTA_MULTIPATH, all)...)
	}
	return netlinkMessage(kind, flags, b)
}

func gatewayAttribute(p path) []byte {
	if !p.gateway.IsValid() {
		return nil
	}
	return rtnl.Bytes(unix.RTA_GATEWAY, p.gateway.AsSlice())
}

func objectMessage(kind uint16, id uint32, p path) rtnl.Message {
	b := append(make([]byte, sizeofNHMsg), rtnl.U32(unix.NHA_ID, id)...)
	b = append(b, rtnl.U32(unix.NHA_OIF, uint32(p.link))...)
	return netlinkMessage(kind, 0, append(b, rtnl.Bytes(unix.NHA_GATEWAY, p.gateway.AsSlice())...))
}

func linkMessage(kind uint16, index int, up bool) rtnl.Message {
	b := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	if up {
		binary.NativeEndian.PutUint32(b[8:], unix.IFF_UP|unix.IFF_RUNNING|unix.IFF_LOWER_UP)
	}
	b = append(b, rtnl.U32(unix.IFLA_MTU, 1500)...)
	return netlinkMessage(kind, 0, append(b, rtnl.Bytes(unix.IFLA_ADDRESS, []byte{2, 0, 0, 0, 0, byte(index)})...))
}

func addressMessage(kind uint16, index int, addr netip.Addr) rtnl.Message {
	b := make([]byte, unix.SizeofIfAddrmsg)
	b[0], b[1] = unix.AF_INET, 24
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	return netlinkMessage(kind, 0, append(b, rtnl.Bytes(unix.IFA_LOCAL, addr.AsSlice())...))
}
