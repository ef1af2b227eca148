package mirror

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/fib"
	"github.com/pergola-net/pergola/kernel/rtnl"
)

// table of routes, in the order in which the kernel asks them as long as nobody has added rules.
type table uint8

const (
	tableLocal table = iota
	tableMain
	tableDefault // IPv4 only
)

// route is one of the kernel's.
type route struct {
	table      table
	tos        uint8
	metric     uint32
	generation uint32 // of the dump that confirmed it last, or of the event
	hops       *hops
}

// hops is where a route leads. Thousands of routes lead the same way: they share it.
type hops struct {
	// all that a message says of it: hops with the same key are the same. Empty: taken together from several
	// messages
	key           string
	kind          fib.Kind
	paths         []path     // of kind Unicast
	source        netip.Addr // the route goes when this address goes
	object        uint32     // next-hop object that the route names
	expires       bool       // see expires
	bySource      bool       // only frames from some sources take it
	ruleSensitive bool       // see ruleSensitive
	answer        *answer    // what follows from it: see rib.answer
}

type path struct {
	link    int // ifindex
	gateway netip.Addr
	weight  int
	dead    bool
}

func (h *hops) same(o *hops) bool { return h == o || h.key != "" && h.key == o.key }

// within reports whether all paths of h are paths of o. IPv6 joins only paths with gateways, and none of next-hop
// objects, into one route (rt6_qualify_for_ecmp()).
func (h *hops) within(o *hops) bool {
	if h.kind != o.kind || len(h.paths) == 0 || h.object != 0 || o.object != 0 {
		return false
	}
	for _, p := range h.paths {
		if !p.gateway.IsValid() || !slices.ContainsFunc(o.paths, p.same) {
			return false
		}
	}
	return true
}

func (p path) same(o path) bool { return p.link == o.link && p.gateway == o.gateway }

// without is h less the paths of o.
func (h *hops) without(o *hops) *hops {
	less := *h
	less.key, less.answer = "", nil
	less.paths = slices.DeleteFunc(slices.Clone(h.paths),
		func(p path) bool { return slices.ContainsFunc(o.paths, p.same) })
	return &less
}

// routeParser reads route messages. What they have in common it decodes once.
type routeParser struct {
	known map[string]*hops
	key   []byte
}

// maxKnown bounds the memory for ways that are no longer used.
const maxKnown = 1 << 16

// forget makes hops anew: those of old routes keep what was concluded from them.
func (p *routeParser) forget() { clear(p.known) }

// parse reads RTM_NEWROUTE and RTM_DELROUTE. It is false for routes that forward nothing here: other tables, cached
// exceptions.
func (p *routeParser) parse(m rtnl.Message) (netip.Prefix, route, bool, error) {
	var r route
	if len(m.Data) < unix.SizeofRtMsg {
		return netip.Prefix{}, r, false, rtnl.ErrMalformed
	}
	family, bits, sourceBits := m.Data[0], int(m.Data[1]), m.Data[2]
	flags := binary.NativeEndian.Uint32(m.Data[8:])
	number := uint32(m.Data[4])
	r.tos = m.Data[3]
	destination := netip.IPv4Unspecified()
	if family == unix.AF_INET6 {
		destination = netip.IPv6Unspecified()
	} else if family != unix.AF_INET {
		return netip.Prefix{}, r, false, nil
	}
	if flags&unix.RTM_F_CLONED != 0 {
		return netip.Prefix{}, r, false, nil
	}
	kind, protocol := m.Data[7], m.Data[5]
	p.key = append(p.key[:0], family, kind, byte(flags&unix.RTNH_F_DEAD), sourceBits, 0, 0)
	for a := m.Attributes(unix.SizeofRtMsg); a.Next(); {
		switch a.Kind {
		case unix.RTA_DST:
			destination = a.Address()
		case unix.RTA_TABLE:
			number = a.U32()
		case unix.RTA_PRIORITY:
			r.metric = a.U32()
		case unix.RTA_CACHEINFO:
			p.key[keyExpires] = b2i(expires(a.Value))
		case unix.RTA_PREF, unix.RTA_EXPIRES, unix.RTA_PAD, unix.RTA_UID, unix.RTA_MARK, unix.RTA_IIF:
		default:
			p.key = append(p.key, a.Whole...)
			p.key = append(p.key, "\x00\x00\x00"[:rtnl.Align(len(a.Whole))-len(a.Whole)]...)
		}
	}
	var ok bool
	if r.table, ok = tableOf(number, family); !ok {
		return netip.Prefix{}, r, false, nil
	}
	prefix, err := destination.Prefix(bits)
	if err != nil || !prefix.IsValid() || destination.Is4() != (family == unix.AF_INET) {
		return netip.Prefix{}, r, false, rtnl.ErrMalformed
	}
	p.key[keyRuleSensitive] = b2i(ruleSensitive(prefix, r.table, kind, protocol))
	r.hops = p.hops()
	return prefix, r, true, nil
}

// ruleSensitive reports whether an IPv4 route makes a difference once there was a policy rule, or a route of type
// local that somebody added: from then on, for as long as the node lives, the kernel asks table local before main, and
// drops frames whose source has a route of another type than unicast (fib_has_custom_rules, fib_unmerge(),
// fib_validate_source()). What it makes itself for each address, and for loopback, makes none: such sources are
// dropped before, or by addresses.
func ruleSensitive(p netip.Prefix, t table, kind, protocol byte) bool {
	if !p.Addr().Is4() {
		return false
	}
	own := protocol == unix.RTPROT_KERNEL && t == tableLocal &&
		(p.IsSingleIP() || p.Addr().IsLoopback() && p.Bits() >= 8)
	return !own && (t == tableLocal || kindOf(kind) == fib.Local)
}

// expires reads struct rta_cacheinfo: has the route a time? IPv6 does not use it after that. The event comes with the
// garbage collection, perhaps a minute later (fib6_check_expired()).
func expires(cache []byte) bool {
	const at = 8 // rta_expires
	return len(cache) >= at+4 && binary.NativeEndian.Uint32(cache[at:]) != 0
}

func tableOf(number uint32, family byte) (table, bool) {
	switch {
	case number == unix.RT_TABLE_LOCAL:
		return tableLocal, true
	case number == unix.RT_TABLE_MAIN:
		return tableMain, true
	case number == unix.RT_TABLE_DEFAULT && family == unix.AF_INET:
		return tableDefault, true
	}
	return 0, false
}

func b2i(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// What golang.org/x/sys/unix does not have of linux/rtnetlink.h.
const rtaNHID = 30

// What the key has before the attributes: family, type, whether it is dead, bits of the source, and these.
const (
	keyRuleSensitive = 4
	keyExpires       = 5
	keyHeader        = 6
)

func (p *routeParser) hops() *hops {
	if h := p.known[string(p.key)]; h != nil {
		return h
	}
	if p.known == nil {
		p.known = map[string]*hops{}
	}
	if len(p.known) >= maxKnown {
		p.forget()
	}
	h := newHops(bytes.Clone(p.key))
	p.known[h.key] = h
	return h
}

func newHops(key []byte) *hops {
	h := &hops{key: string(key), kind: kindOf(key[1]), bySource: key[3] != 0,
		ruleSensitive: key[keyRuleSensitive] != 0, expires: key[keyExpires] != 0}
	if h.bySource || h.expires {
		h.kind = fib.Other
	}
	single := path{weight: 1, dead: key[2] != 0}
	for a := rtnl.Attributes(key[keyHeader:]); a.Next(); {
		switch a.Kind {
		case unix.RTA_OIF:
			single.link = int(a.U32())
		case unix.RTA_GATEWAY, unix.RTA_VIA:
			if single.gateway = gateway(a); !single.gateway.IsValid() {
				h.kind = fib.Other
			}
		case unix.RTA_MULTIPATH:
			if !h.multipath(a.Value) {
				h.kind = fib.Other
			}
		case unix.RTA_PREFSRC:
			h.source = a.Address()
		case rtaNHID:
			h.object = a.U32()
		case unix.RTA_METRICS:
			if limitsMTU(a.Value) {
				h.kind = fib.Other
			}
		default: // encapsulation, realms, and what is not yet invented
			h.kind = fib.Other
		}
	}
	if single.link != 0 && len(h.paths) == 0 {
		h.paths = []path{single}
	}
	if h.kind != fib.Unicast {
		h.paths = nil
	}
	return h
}

func kindOf(kind byte) fib.Kind {
	switch kind {
	case unix.RTN_UNICAST:
		return fib.Unicast
	case unix.RTN_LOCAL, unix.RTN_BROADCAST, unix.RTN_ANYCAST, unix.RTN_MULTICAST:
		return fib.Local
	case unix.RTN_BLACKHOLE, unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT:
		return fib.Reject
	default: // throw, nat, xresolve
		return fib.Other
	}
}

// multipath reads the paths of a route that has several. It is false if one of them does more than to lead somewhere.
func (h *hops) multipath(b []byte) bool {
	plain := true
	for len(b) >= unix.SizeofRtNexthop {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofRtNexthop || size > len(b) {
			return false
		}
		p := path{
			dead:   b[2]&unix.RTNH_F_DEAD != 0,
			weight: int(b[3]) + 1,
			link:   int(binary.NativeEndian.Uint32(b[4:])),
		}
		for a := rtnl.Attributes(b[unix.SizeofRtNexthop:size]); a.Next(); {
			switch a.Kind {
			case unix.RTA_GATEWAY, unix.RTA_VIA:
				p.gateway = gateway(a)
				plain = plain && p.gateway.IsValid()
			default:
				plain = false
			}
		}
		h.paths = append(h.paths, p)
		b = b[min(rtnl.Align(size), len(b)):]
	}
	return plain
}

// gateway reads one of the route's family, or struct rtvia: one of another family.
func gateway(a rtnl.Attrs) netip.Addr {
	if a.Kind == unix.RTA_VIA && len(a.Value) >= 2 {
		a.Value = a.Value[2:]
	}
	return a.Address()
}

// limitsMTU reports whether a route's metrics change how it forwards: its own MTU counts, locked or not, and a lock
// without one makes it 576 (ip_dst_mtu_maybe_forward() in the kernel). The others are for what the router itself
// sends.
func limitsMTU(metrics []byte) bool {
	for a := rtnl.Attributes(metrics); a.Next(); {
		if a.Kind == unix.RTAX_MTU || a.Kind == unix.RTAX_LOCK && a.U32()&(1<<unix.RTAX_MTU) != 0 {
			return true
		}
	}
	return false
}
