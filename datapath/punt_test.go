package datapath

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
)

// puntCase is a frame into a line of two routers, of which one must see it.
type puntCase struct {
	name   string
	packet packet
	edit   func(frame []byte) []byte // after it was built
	ctx    skbuff
	world  func(w *world, l line)
	at     int // position of the router that must see it
	why    string
	judged bool // by the kernel: the frame is not for the router's address
}

func both(name, why string, v4, v6 packet) []puntCase {
	v6.v6 = true
	return []puntCase{{name: name, why: why, packet: v4}, {name: name + ", IPv6", why: why, packet: v6}}
}

// Frames that are a router's own business, or that every router refuses.
var headerPunts = slices.Concat(
	[]puntCase{
		{name: "other station", why: "other station", packet: packet{to: macOther}, judged: true},
		{name: "broadcast", why: "local", packet: packet{to: broadcast, dest: "255.255.255.255"}, judged: true},
		{name: "ARP", why: "not ip", edit: func(f []byte) []byte { return replace(f, 12, 8, 6) }},
		{name: "IS-IS", why: "not ip", judged: true, edit: func([]byte) []byte { return ethernet(allISs, macA, 1497, 1511) }},
		{name: "VLAN tag in the frame", why: "not ip", edit: func(f []byte) []byte { return slices.Insert(f, 12, 0x81, 0, 0, 5) }},
		{name: "version 5", why: "malformed", edit: func(f []byte) []byte { return resum(replace(f, 14, 0x55)) }},
		{name: "version 4 in IPv6", why: "malformed", packet: packet{v6: true}, edit: func(f []byte) []byte { return replace(f, 14, 0x45) }},
		{name: "header of 16 bytes", why: "malformed", edit: func(f []byte) []byte { return resum(replace(f, 14, 0x44)) }},
		{name: "wrong checksum", why: "malformed", edit: func(f []byte) []byte { return replace(f, 24, 0x12, 0x34) }},
		{name: "shorter than it says", why: "malformed", edit: func(f []byte) []byte { return f[:len(f)-1] }},
		{name: "shorter than it says, IPv6", why: "malformed", packet: packet{v6: true}, edit: func(f []byte) []byte { return f[:len(f)-1] }},
		{name: "padding", why: "malformed", edit: func(f []byte) []byte { return append(f, 0, 0) }},
		{name: "padding, IPv6", why: "malformed", packet: packet{v6: true}, edit: func(f []byte) []byte { return append(f, 0, 0) }},
		{name: "options", why: "options", packet: packet{options: []layers.IPv4Option{{OptionType: 7, OptionLength: 7, OptionData: make([]byte, 5)}}}},
		{name: "hop-by-hop header", why: "options", packet: packet{v6: true, hop: true}},
		{name: "first fragment", why: "fragment", packet: packet{flags: layers.IPv4MoreFragments}},
		{name: "last fragment", why: "fragment", packet: packet{offset: 100}},
		{name: "fragment, IPv6", why: "fragment", packet: packet{v6: true}, edit: func(f []byte) []byte { return replace(f, 20, 44) }},
	},
	both("TTL 1", "ttl", packet{ttl: 1}, packet{ttl: 1}),
	each("source", "source", packet{}, "0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.5", "239.1.1.1",
		"255.255.255.255", "::", "::1", "::ffff:192.0.2.1", "fe80::1", "febf::1", "ff02::5"),
	each("destination", "scope", packet{}, "0.0.0.0", "127.0.0.1", "224.0.0.5", "255.255.255.255", "::", "::1",
		"fe80::2", "ff02::5", "ff0e::1"),
)

// each makes a case of every address, as source or destination.
func each(what, why string, p packet, addrs ...string) []puntCase {
	all := make([]puntCase, 0, len(addrs))
	for _, a := range addrs {
		p.v6 = netip.MustParseAddr(a).Is6()
		p.source, p.dest = "", ""
		if what == "source" {
			p.source = a
		} else {
			p.dest = a
		}
		all = append(all, puntCase{name: what + " " + a, why: why, packet: p})
	}
	return all
}

// destinationOptions puts an IPv6 header of 200 bytes, of which all is padding, before the one above IP.
func destinationOptions(f []byte) []byte {
	options := make([]byte, 200) // of Pad1
	options[0], options[1] = f[20], 200/8-1
	f[20] = 60
	binary.BigEndian.PutUint16(f[18:], binary.BigEndian.Uint16(f[18:])+200)
	return slices.Insert(f, 54, options...)
}

func replace(f []byte, at int, with ...byte) []byte {
	copy(f[at:], with)
	return f
}

// resum makes the IPv4 checksum right.
func resum(f []byte) []byte {
	f[24], f[25] = 0, 0
	var sum uint32
	for i := 14; i < 34; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(f[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(f[24:], ^uint16(sum))
	return f
}

// Frames that a router's state keeps from going on.
var statePunts = slices.Concat(
	atBoth("TTL 2", "ttl", packet{ttl: 2}, func(*world, line) {}, 1),
	atBoth("for the router", "local", packet{}, becomes(local), 0, 1),
	atBoth("no route", "no route", packet{}, becomes(none), 0, 1),
	atBoth("blackhole, unreachable, prohibit", "reject", packet{}, becomes(reject), 0, 1),
	atBoth("no neighbour", "unresolved", packet{}, becomes(unresolved), 0, 1),
	atBoth("encap", "route kind", packet{}, becomes(other), 0, 1),
	atBoth("kind of the future", "inconsistent", packet{}, becomes(other+1), 0, 1),
	atBoth("stale neighbour", "stale neighbour", packet{}, becomes(stale), 0, 1),
	atBoth("no neighbour on the link", "unresolved", packet{}, becomes(onLink), 0, 1),
	atBoth("too big", "too big", packet{payload: 1000}, func(w *world, l line) {
		w.leg(l.out[1], func(l *objectLeg) { l.Mtu = 1000 })
	}, 1),
	atBoth("leaves as it came", "redirect", packet{}, func(w *world, l line) {
		w.setNexthop(l.next[1], gateway, l.in[1], mac(1))
	}, 1),
	atBoth("out of no leg", "inconsistent", packet{}, func(w *world,
		l line) {
		w.leg(l.out[1], func(l *objectLeg) { *l = objectLeg{} })
	}, 1),
	atBoth("out of another's leg", "inconsistent", packet{}, func(w *world, l line) {
		w.setNexthop(l.next[1], gateway, l.out[0], macB)
	}, 1),
	atBoth("out leg down", "unresolved", packet{}, func(w *world,
		l line) {
		w.leg(l.out[1], func(l *objectLeg) { l.Flags &^= legUp })
	}, 1),
	atBoth("in leg down", "ineligible", packet{}, func(w *world,
		l line) {
		w.leg(l.in[1], func(l *objectLeg) { l.Flags &^= legUp })
	}, 1),
	atBoth("in leg does not forward", "ineligible", packet{},
		func(w *world, l line) { w.leg(l.in[1], func(l *objectLeg) { l.Flags = legUp }) }, 1),
	atBoth("router off the fast path", "ineligible", packet{},
		func(w *world, l line) { w.check(w.d.maps.Routers.Put(l.routers[1], make([]byte, 16))) }, 1),
	atBoth("lease over", "lease", packet{}, func(w *world, _ line) { w.lease(-time.Second) }, 0),
	[]puntCase{
		{name: "source is the router's", why: "source", at: 1, world: func(w *world, l line) { w.source(host4[0], l.routers[1]) }},
		{name: "source is several routers'", why: "source", at: 0, world: func(w *world, _ line) { w.source(host4[0], many) }},
		{name: "super-frame of TCP, too big", why: "too big", at: 1, packet: packet{tcp: true, payload: 3000}, ctx: skbuff{GSOSize: 1161}, world: mtu1200},
		{name: "super-frame of TCP, too big, IPv6", why: "too big", at: 1, packet: packet{v6: true, tcp: true, payload: 3000}, ctx: skbuff{GSOSize: 1141}, world: mtu1200},
		{
			name: "super-frame, before a queue", why: "super frame", at: 1, packet: packet{tcp: true,
				payload: 3000}, ctx: skbuff{GSOSize: 1460},
			world: func(w *world, l line) { w.change(l.out[1], func(p *Port) { p.Mode = Queue }) },
		},
		{
			name: "super-frame, before a slow policer", why: "super frame", at: 1,
			packet: packet{tcp: true, payload: 3000}, ctx: skbuff{GSOSize: 1460},
			world: func(w *world, l line) {
				w.change(l.out[1], func(p *Port) {
					p.Police = Policer{Rate: 1e6, Burst: 1e6,
						Single: true}
				})
			},
		},
		{
			name: "super-frame of TCP behind long options", why: "too big", packet: packet{v6: true,
				tcp: true, payload: 3000}, ctx: skbuff{GSOSize: 1000},
			edit: destinationOptions, world: func(w *world,
				l line) {
				w.leg(l.out[0], func(l *objectLeg) { l.Mtu = 1200 })
			},
		},
		{name: "super-frame of UDP: headers unknown", why: "too big", at: 1, packet: packet{payload: 3000}, ctx: skbuff{GSOSize: 1100}, world: mtu1200},
	},
)

func mtu1200(w *world, l line) { w.leg(l.out[1], func(l *objectLeg) { l.Mtu = 1200 }) }

// becomes makes the routers' next hops of that kind.
func becomes(k byte) func(*world, line) {
	return func(w *world, l line) { // of both: which router the case is about, the other's is replaced again
		for i := range l.routers {
			w.setNexthop(l.next[i], k, l.out[i], mac(2*(i+1)))
		}
	}
}

// atBoth makes cases for both families, at each of the routers.
func atBoth(name, why string, p packet, change func(*world, line), positions ...int) []puntCase {
	var all []puntCase
	for _, at := range positions {
		for _, v6 := range []bool{false, true} {
			c := puntCase{name: fmt.Sprintf("%s at router %d, IPv6: %v", name, at, v6), why: why, packet: p,
				at: at}
			c.packet.v6 = v6
			c.world = func(w *world, l line) {
				change(w, l)
				if at == 1 && len(positions) == 2 { // the change was to all
					w.setNexthop(l.next[0], gateway, l.out[0], mac(2))
				}
			}
			all = append(all, c)
		}
	}
	return all
}

func TestWalkPunts(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, c := range slices.Concat(headerPunts, statePunts) {
			w.name = c.name
			w.punts(c)
		}
	})
}

// A reason that is new in bpf/punt.h needs a case, too.
func TestEveryPuntHasACase(t *testing.T) {
	all, err := Punts()
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{
		"walk on": true, // none
		"loop":    true, // takes more routers: TestWalkEndsAfter64Routers

		"agent": true, "withheld": true, // of labels: TestAgentIsToldSoOften
	}
	for _, c := range slices.Concat(headerPunts, statePunts) {
		have[c.why] = true
	}
	for _, why := range all {
		if !have[why] {
			t.Errorf("no case of TestWalkPunts is punted for this reason: %q", why)
		}
	}
}

func (w *world) punts(c puntCase) {
	w.lease(time.Hour)
	w.clearSources()
	l := w.line(2)
	if c.world != nil {
		c.world(w, l)
	}
	in, out := c.packet.bytes(), c.packet.bytes()
	if c.at == 1 {
		out = c.packet.after(mac(2), mac(1), 1)
	}
	if c.edit != nil {
		in = c.edit(in)
		out = bytes.Clone(in)
	}
	counted := l.passed(c.at, fmt.Sprintf("%s: router %d", c.why, l.routers[c.at]))
	if !c.judged {
		counted[fmt.Sprintf("handed %d", l.in[c.at])] = 1
	}
	w.expect(w.send(in, c.ctx), verdictRedirect, out, counted)
}

func (w *world) clearSources() {
	for _, a := range host4 {
		_ = w.d.maps.Sources.Delete(append(binary.NativeEndian.AppendUint32(nil, slice), a.AsSlice()...))
	}
}
