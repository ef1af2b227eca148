package differential

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
)

// frame is one to send from a host's interface.
type frame struct {
	id      uint32
	host    string
	data    []byte
	offload []byte // struct virtio_net_hdr for super-frames, or nil
	note    string
}

// magic marks what was sent by us, and its answers: it is followed by the frame's number.
var magic = []byte("PgDf")

// number finds which frame a received one belongs to.
func number(b []byte) (uint32, bool) {
	i := slices.IndexFunc(b, func(c byte) bool { return c == magic[0] })
	for ; i >= 0 && i+8 <= len(b); i++ {
		if string(b[i:i+4]) == string(magic) {
			return binary.BigEndian.Uint32(b[i+4:]), true
		}
	}
	return 0, false
}

// sender draws frames that hosts of a network send.
type sender struct {
	*graph
	rng   *rand.Rand
	next  uint32
	hosts []*node
}

func newSender(g *graph) *sender {
	s := &sender{graph: g, rng: g.rng}
	for _, n := range g.nodes {
		if !n.router {
			s.hosts = append(s.hosts, n)
		}
	}
	return s
}

func pick[T any](rng *rand.Rand, all ...T) T { return all[rng.IntN(len(all))] }

// some is true for one in n.
func (s *sender) some(n int) bool { return s.rng.IntN(n) == 0 }

// draft is a frame while it is being made.
type draft struct {
	*frame
	e        *end // of the host
	gateway  *end
	family   int
	from, to netip.Addr
	payload  []byte
}

// frames draws one frame, or the fragments of one packet. plain frames have nothing odd: where there is
// a route, they can be walked.
func (s *sender) frames(plain bool) []frame {
	host := s.hosts[s.rng.IntN(len(s.hosts))]
	s.next++
	d := &draft{frame: &frame{id: s.next, host: host.name}, e: host.ends[0], family: pick(s.rng, 4, 6)}
	d.gateway = d.e
	for _, other := range d.e.link.ends {
		if other != d.e && (other.node.router || d.gateway == d.e) {
			d.gateway = other
		}
	}
	if !d.e.link.prefix(d.family).IsValid() {
		d.family = 4
	}
	d.from = d.e.address(d.family)
	d.to = s.destination(d.family)
	if plain {
		other := s.hosts[s.rng.IntN(len(s.hosts)-1)]
		if other == host {
			other = s.hosts[len(s.hosts)-1]
		}
		d.to = other.ends[0].address(d.family)
	}
	d.payload = s.payload(d)
	switch {
	case plain:
		s.valid(d, 64)
	case s.some(8):
		s.oddEthernet(d)
	case s.some(24) && !d.e.nic && d.from.Is4() == d.to.Is4():
		// Not at a NIC: what comes in there is no longer than a link's MTU.
		s.super(d)
	case s.some(8):
		return s.train(d)
	case s.rng.IntN(4) > 0:
		s.valid(d, s.ttl(d))
	case d.family == 4:
		return s.odd4(d)
	default:
		return s.odd6(d)
	}
	return []frame{*d.frame}
}

// payload has the frame's number, and a size that is about nothing, some, or just around an MTU.
func (s *sender) payload(d *draft) []byte {
	size := s.rng.IntN(200)
	switch s.rng.IntN(8) {
	case 0:
		size = d.e.mtu - 20*(d.family/2-1) - 8 - s.rng.IntN(20)
	case 1:
		size = pick(s.rng, 572, 600, 1252, 1280, 1300, 1372, 1400, 1472, 1500) - s.rng.IntN(60)
	case 2:
		size = s.rng.IntN(1400)
	}
	size = min(max(8, size), d.e.mtu-60)
	if d.family == 6 && !s.isHost(d.to) {
		// A router whose long answer met a smaller MTU remembers that, and then also refuses what it forwards
		// (ip6_finish_output asks dst_mtu); the fast path, to which the kernel does not say so, lets the router
		// with the small MTU answer.
		size = min(size, 1000)
	}
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i)
	}
	copy(b, magic)
	binary.BigEndian.PutUint32(b[4:], d.id)
	return b
}

// train is several frames of one flow, which must arrive in this order.
func (s *sender) train(d *draft) []frame {
	const sport = 3000
	dport := uint16(s.rng.IntN(60000) + 1024)
	var all []frame
	for i := range 3 + s.rng.IntN(6) {
		if i > 0 {
			s.next++
			d.frame = &frame{id: s.next, host: d.host}
			d.payload = s.payload(d)
		}
		d.note = fmt.Sprintf("train, %d", i+1)
		segment := udp(d.from, d.to, sport, dport, d.payload)
		if d.family == 4 {
			s.send(d, etherIPv4, ipv4{from: d.from, to: d.to, proto: protoUDP, ttl: 64,
				id: uint16(s.rng.Uint32())}.packet(segment))
		} else {
			s.send(d, etherIPv6, ipv6{from: d.from, to: d.to, next: protoUDP, hop: 64}.packet(segment))
		}
		all = append(all, *d.frame)
	}
	return all
}

// isHost reports whether an address is a host's.
func (s *sender) isHost(a netip.Addr) bool {
	return slices.ContainsFunc(s.hosts, func(n *node) bool {
		l := n.ends[0].link
		// which all routers on the link have, too
		return l.v6.IsValid() && n.ends[0].address(6) == a && l.v6.Addr() != a
	})
}

// destination is mostly a node's address.
func (s *sender) destination(family int) netip.Addr {
	if s.some(25) {
		return s.unused(family)
	}
	if s.some(4) { // a router's loopback
		if n := s.nodes[s.rng.IntN(len(s.nodes))]; n.router {
			return n.loopback(family).Addr()
		}
	}
	for range 100 {
		l := s.links[s.rng.IntN(len(s.links))]
		e := l.ends[s.rng.IntN(len(l.ends))]
		// Where paths differ, a router's own address on a link is nearer by some of them.
		if l.prefix(family).IsValid() && (!e.node.router || s.ecmp != spread && s.some(3)) {
			return e.address(family)
		}
	}
	return s.nodes[0].loopback(family).Addr()
}

// unused is an address that no node has.
func (s *sender) unused(family int) netip.Addr {
	if l := s.links[s.rng.IntN(len(s.links))]; s.some(2) && l.prefix(family).IsValid() &&
		l.prefix(family).Bits() < 30*family/4 {
		if s.ecmp == spread { // 0 is all routers' on the link (RFC 4291, 2.6.1)
			return nth(l.prefix(family), 77)
		}
		return nth(l.prefix(family), pick(s.rng, 0, 77, 255))
	}
	if family == 4 {
		return netip.MustParseAddr(pick(s.rng, "203.0.113.1", "255.255.255.255", "224.0.0.5", "224.0.1.1",
			"239.1.2.3", "127.0.0.1", "127.1.2.3", "0.0.0.0", "0.1.2.3", "169.254.1.1", "240.0.0.1",
			"10.1.200.200"))
	}
	return netip.MustParseAddr(pick(s.rng, "2001:db8:ffff::1", "ff02::1", "ff02::5", "ff05::1", "ff0e::1", "::1",
		"::", "fe80::1", "fec0::1", "fc00::1", "::ffff:10.0.0.1", "::10.0.0.1", "2002:a00:1::1"))
}

// source is one that a host should not have.
func (s *sender) source(family int) netip.Addr {
	// another host's; where paths differ, it depends on the path whether its owner sees it
	if s.some(2) && s.ecmp != spread {
		return s.destination(family)
	}
	if family == 4 {
		return netip.MustParseAddr(pick(s.rng, "0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255",
			"240.1.1.1", "169.254.3.4", "203.0.113.9", "0.1.1.1"))
	}
	return netip.MustParseAddr(pick(s.rng, "::", "::1", "ff02::1", "fe80::99", "2001:db8:ffff::9",
		"::ffff:10.0.0.9", "fec0::9"))
}

// segment is a valid one of a common protocol.
func (s *sender) segment(d *draft) (proto byte, b []byte) {
	sport, dport := uint16(s.rng.IntN(60000)+1024), uint16(s.rng.IntN(60000)+1024)
	switch s.rng.IntN(3) {
	case 0:
		proto = protoICMP
		if d.family == 6 {
			proto = protoICMPv6
		}
		return proto, echo(d.from, d.to, sport, d.payload)
	case 1:
		return protoTCP, tcp(d.from, d.to, sport, dport, s.rng.Uint32(),
			pick(s.rng, byte(2), 0x10, 0x18, 0x12), d.payload)
	default:
		return protoUDP, udp(d.from, d.to, sport, dport, d.payload)
	}
}

func (s *sender) ttl(d *draft) byte {
	ttl := byte(pick(s.rng, 64, 64, 64, 64, 255, 128, 32))
	if s.some(10) { // traceroute
		ttl = byte(s.rng.IntN(8))
		d.note = fmt.Sprintf("TTL %d", ttl)
	}
	return ttl
}

// valid is what most traffic is like.
func (s *sender) valid(d *draft, ttl byte) {
	proto, segment := s.segment(d)
	if d.family == 4 {
		h := ipv4{from: d.from, to: d.to, proto: proto, ttl: ttl, id: uint16(s.rng.Uint32()),
			tos: pick(s.rng, byte(0), 0, 0x10, 0xb8, 3)}
		if s.some(2) {
			h.flags = dontFragment
		}
		s.send(d, etherIPv4, h.packet(segment))
		return
	}
	h := ipv6{from: d.from, to: d.to, next: proto, hop: ttl, class: pick(s.rng, 0, 0, s.rng.Uint32())}
	s.send(d, etherIPv6, h.packet(segment))
}

// send completes the frame, for the host's gateway.
func (s *sender) send(d *draft, kind uint16, packet []byte) {
	d.data = ethernet(mac(d.e.link.number, d.gateway.place), mac(d.e.link.number, d.e.place), kind, packet)
	if len(d.data) < 60 && s.some(2) {
		d.data = append(d.data, make([]byte, 60-len(d.data))...) // as a network card pads it
	}
}
