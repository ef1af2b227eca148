package datapath

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// entry is a label as a frame carries it.
type entry struct {
	label uint32
	ttl   uint8
	class uint8
}

// labelled puts labels on an IP frame, the outermost first.
func labelled(ip []byte, stack ...entry) []byte {
	if len(stack) == 0 {
		return ip
	}
	list := []gopacket.SerializableLayer{&layers.Ethernet{DstMAC: ip[:6], SrcMAC: ip[6:12],
		EthernetType: layers.EthernetTypeMPLSUnicast}}
	for i, e := range stack {
		list = append(list, &layers.MPLS{Label: e.label, TTL: e.ttl, TrafficClass: e.class,
			StackBottom: i == len(stack)-1})
	}
	out := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(out, gopacket.SerializeOptions{},
		append(list, gopacket.Payload(ip[14:]))...); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// space gives routers of a line label spaces: each its place in the line, from 1.
func (w *world) space(l line) {
	for i, id := range l.routers {
		var r objectRouter
		w.check(w.d.maps.Routers.Lookup(id, &r))
		r.Space = uint32(i + 1)
		w.check(w.d.maps.Routers.Put(id, r))
	}
}

// ahead is an NHLFE of a router of the line: to the next one, or the host at the end.
func (l line) ahead(router int, push ...Label) NHLFE {
	to := macB
	if router+1 < len(l.routers) {
		to = mac(2 * (router + 1))
	}
	return NHLFE{Port: l.out[router], MAC: to, Push: push}
}

func (w *world) label(router int, label uint32, n NHLFE) {
	w.Helper()
	w.check(w.d.SetLabel(uint32(router+1), label, n))
}

// ftn gives all routes of a router of the line an FTN.
func (w *world) ftn(l line, router int, n NHLFE) {
	w.Helper()
	const number = 7
	w.check(w.d.SetFTN(uint32(router+1), number, n))
	hop := must(w.d.maps.Nexthops.LookupBytes(l.next[router]))
	binary.NativeEndian.PutUint32(hop[12:], number) // struct nexthop in bpf/fib.h
	w.check(w.d.maps.Nexthops.Put(l.next[router], hop))
}

func (n NHLFE) uniform() NHLFE {
	n.Uniform = true
	return n
}

// behind is the IP packet behind so many routers that lower its TTL, in a frame between these stations.
func (p packet) behind(routers int, to, from [6]byte) []byte { return p.after(to, from, routers) }

// Each operation, at one router between two hosts: the bytes are those that gopacket writes.
func TestLabelOperations(t *testing.T) {
	const in, out = 100, 200
	swap := func(l line) NHLFE { return l.ahead(0, Label{Label: out}) }
	for _, v6 := range []bool{false, true} {
		p := packet{v6: v6}
		null := uint32(explicitNull4)
		if v6 {
			null = explicitNull6
		}
		ip := func(ttl int) []byte {
			q := p
			q.ttl = ttl
			return q.behind(0, macB, mac(1))
		}
		cases := []struct {
			name string
			came []entry
			of   func(l line) NHLFE // label 100
			ftn  func(l line) NHLFE
			want []byte
		}{
			{name: "swap", came: []entry{{in, 64, 6}}, of: swap, want: labelled(ip(64), entry{out, 63, 0})},
			{name: "swap, uniform", came: []entry{{in, 64, 6}},
				of:   func(l line) NHLFE { return swap(l).uniform() },
				want: labelled(ip(64), entry{out, 63, 0})},
			{name: "swap, class kept", came: []entry{{in, 64, 6}}, of: func(l line) NHLFE {
				n := swap(l)
				n.KeepClass = true
				return n
			}, want: labelled(ip(64), entry{out, 63, 6})},
			{name: "swap above others", came: []entry{{in, 64, 0}, {50, 9, 1}, {51, 8, 2}}, of: swap,
				want: labelled(ip(64), entry{out, 63, 0}, entry{50, 9, 1}, entry{51, 8, 2})},
			{name: "swap for explicit null", came: []entry{{in, 64, 0}},
				of:   func(l line) NHLFE { return l.ahead(0, Label{Label: null}) },
				want: labelled(ip(64), entry{null, 63, 0})},
			{name: "swap for three", came: []entry{{in, 64, 0}, {50, 9, 0}}, of: func(l line) NHLFE {
				return l.ahead(0, Label{Label: out}, Label{Label: 201, Class: 3}, Label{Label: 202})
			}, want: labelled(ip(64), entry{202, 255, 0}, entry{201, 255, 3}, entry{out, 63, 0},
				entry{50, 9, 0})},
			{name: "swap for three, uniform", came: []entry{{in, 64, 0}}, of: func(l line) NHLFE {
				return l.ahead(0, Label{Label: out}, Label{Label: 201}, Label{Label: 202}).uniform()
			}, want: labelled(ip(64), entry{202, 63, 0}, entry{201, 63, 0}, entry{out, 63, 0})},

			{name: "penultimate hop", came: []entry{{in, 10, 0}},
				of: func(l line) NHLFE { return l.ahead(0) }, want: ip(63)},
			{name: "penultimate hop, uniform", came: []entry{{in, 10, 0}},
				of: func(l line) NHLFE { return l.ahead(0).uniform() }, want: ip(9)},
			{name: "penultimate hop, uniform, greater TTL", came: []entry{{in, 200, 0}},
				of: func(l line) NHLFE { return l.ahead(0).uniform() }, want: ip(64)},
			{name: "penultimate hop above another label", came: []entry{{in, 10, 0}, {50, 9, 3}},
				of: func(l line) NHLFE { return l.ahead(0) }, want: labelled(ip(64), entry{50, 8, 3})},
			{name: "penultimate hop above another label, uniform", came: []entry{{in, 5, 0}, {50, 9, 3}},
				of:   func(l line) NHLFE { return l.ahead(0).uniform() },
				want: labelled(ip(64), entry{50, 4, 3})},
			{name: "penultimate hop above three labels", came: []entry{{in, 10, 0}, {50, 9, 3}, {51, 1, 0},
				{52, 1, 0}}, of: func(l line) NHLFE { return l.ahead(0) },
				want: labelled(ip(64), entry{50, 8, 3}, entry{51, 1, 0}, entry{52, 1, 0})},

			{name: "ultimate hop", came: []entry{{in, 10, 0}},
				of: func(line) NHLFE { return NHLFE{Pop: true} }, want: ip(63)},
			{name: "ultimate hop, uniform", came: []entry{{in, 10, 0}},
				of: func(line) NHLFE { return NHLFE{Pop: true}.uniform() }, want: ip(9)},
			{name: "explicit null", came: []entry{{null, 10, 0}}, want: ip(9)},
			{name: "explicit null of a pipe", came: []entry{{null, 253, 0}}, want: ip(63)},
			{name: "several labels that come off", came: []entry{{null, 40, 0}, {in, 30, 0}, {null, 20, 0}},
				of: func(line) NHLFE { return NHLFE{Pop: true} }, want: ip(19)},
			{name: "pop, then swap", came: []entry{{null, 40, 0}, {in, 50, 2}}, of: swap,
				want: labelled(ip(64), entry{out, 39, 0})},

			{name: "first label", ftn: func(l line) NHLFE { return l.ahead(0, Label{Label: in, Class: 6}) },
				want: labelled(ip(63), entry{in, 255, 6})},
			{name: "first label, TTL chosen", ftn: func(l line) NHLFE {
				n := l.ahead(0, Label{Label: in})
				n.TTL = 33
				return n
			}, want: labelled(ip(63), entry{in, 33, 0})},
			{name: "first label, uniform",
				ftn:  func(l line) NHLFE { return l.ahead(0, Label{Label: in}).uniform() },
				want: labelled(ip(63), entry{in, 63, 0})},
			{name: "three labels", ftn: func(l line) NHLFE {
				return l.ahead(0, Label{Label: null}, Label{Label: 51}, Label{Label: 52, Class: 7})
			}, want: labelled(ip(63), entry{52, 255, 7}, entry{51, 255, 0}, entry{null, 255, 0})},
			{name: "off, and a first one on", came: []entry{{null, 20, 0}},
				ftn:  func(l line) NHLFE { return l.ahead(0, Label{Label: in}).uniform() },
				want: labelled(ip(19), entry{in, 19, 0})},
		}
		inWorld(t, func(w *world) {
			for _, c := range cases {
				l := w.line(1)
				w.space(l)
				w.name = fmt.Sprintf("%s, IPv6 %v", c.name, v6)
				if c.of != nil {
					w.label(0, in, c.of(l))
				}
				if c.ftn != nil {
					w.ftn(l, 0, c.ftn(l))
				}
				came := labelled(p.bytes(), c.came...)
				counted := l.passed(1)
				if len(came) == len(c.want) { // else a device reads it again
					counted[fmt.Sprintf("handed %d", l.end)] = 1
				}
				w.expectLabelled(w.send(came, skbuff{}), verdictRedirect, c.want, counted)
				w.check(w.d.DeleteLabel(1, in))
			}
		})
	}
}

// expectLabelled tells frames apart as gopacket reads them, too.
func (w *world) expectLabelled(have outcome, verdict uint32, frame []byte, counted map[string]uint64) {
	w.Helper()
	w.expect(have, verdict, frame, counted)
	if !bytes.Equal(have.Frame, frame) {
		for what, f := range map[string][]byte{"want": frame, "have": have.Frame} {
			w.Logf("%s: %s", what, gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default))
		}
	}
}

// lsp is an LSP through all routers of the line: the first one puts labels on, the last but one takes them off. All
// other packets to the line's end go that way, too.
func (w *world) lsp(l line, uniform bool) {
	w.Helper()
	last := len(l.routers) - 1
	w.space(l)
	for i := range last {
		n := l.ahead(i, Label{Label: uint32(100 + i + 1)})
		n.Uniform = uniform
		switch i {
		case 0:
			w.ftn(l, i, n)
			continue
		case last - 1:
			n.Push = nil
		}
		w.label(i, uint32(100+i), n)
	}
}

// An LSP is walked in one run, and IP behind it. What comes out is what as many routers of the model make of it.
func TestWalkPassesAnLSP(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, routers := range []int{3, 4, 16, 63} {
			for _, v6 := range []bool{false, true} {
				for _, uniform := range []bool{false, true} {
					l := w.line(routers)
					w.lsp(l, uniform)
					w.name = fmt.Sprintf("%d routers, IPv6 %v, uniform %v", routers, v6, uniform)
					p, lower := packet{v6: v6, ttl: 255}, routers
					if !uniform { // labels hide IP's TTL from those between
						lower = 3
					}
					want := p.behind(lower, macB, mac(2*routers-1))
					w.expectLabelled(w.send(p.bytes(), skbuff{}), verdictRedirect, want,
						l.passed(routers, fmt.Sprintf("handed %d", l.end)))
				}
			}
		}
	})
}

// In the pipe, IP's TTL counts the routers that see IP: with the least one that suffices, the packet passes.
func TestTTLOfIPIsThatOfRoutersThatSeeIt(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.line(6)
		w.lsp(l, false)
		p := packet{ttl: 4}
		w.expectLabelled(w.send(p.bytes(), skbuff{}), verdictRedirect, p.behind(3, macB, mac(11)),
			l.passed(6, fmt.Sprintf("handed %d", l.end)))
		p.ttl = 3
		w.expectLabelled(w.send(p.bytes(), skbuff{}), verdictRedirect, p.behind(2, mac(10), mac(9)),
			l.passed(5, "ttl: router 6", fmt.Sprintf("handed %d", l.in[5])))
		p.ttl = 2
		have := w.send(p.bytes(), skbuff{})
		w.expect(have, verdictShot, have.Frame, l.passed(4, fmt.Sprintf("label ttl %d", l.out[3]),
			fmt.Sprintf("agent: router %d", l.routers[4])))
	})
}

// A walk that ends within an LSP leaves the frame as the last router sends it: to a node, a queue, a bridge.
func TestWalkEndsWithinAnLSP(t *testing.T) {
	inWorld(t, func(w *world) {
		for name, change := range map[string]func(w *world, l line){
			"node":   func(w *world, l line) { w.leg(l.in[2], func(g *objectLeg) { *g = objectLeg{} }) },
			"queue":  func(w *world, l line) { w.change(l.out[1], func(p *Port) { p.Mode = Queue }) },
			"bridge": func(w *world, l line) { w.change(l.out[1], func(p *Port) { p.Mode = Kernel }) },
		} {
			for _, v6 := range []bool{false, true} {
				l := w.line(5)
				w.lsp(l, true)
				w.name = fmt.Sprintf("%s, IPv6 %v", name, v6)
				change(w, l)
				p := packet{v6: v6}
				want := labelled(p.behind(1, mac(4), mac(3)), entry{102, 62, 0})
				w.expectLabelled(w.send(p.bytes(), skbuff{}), verdictRedirect, want, l.passed(2))
			}
		}
	})
}

// Rules for IP are for frames without labels, whatever frames had when they came: a label is no address.
func TestRulesSeeIPWhereThereIsNoLabel(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, v6 := range []bool{false, true} {
			all := netip.MustParsePrefix(map[bool]string{false: "0.0.0.0/0", true: "::/0"}[v6])
			rules := []Rule{{classVoice, Match{DSCP: -1, Destination: all}}}
			frame := packet{v6: v6}.bytes()
			for name, c := range map[string]struct {
				at    int // the router behind which there is a queue
				frame []byte
				want  uint32
			}{
				"with a label that was put on": {1, frame, classNone},
				"without the label again":      {4, frame, classVoice},
				"without the label it came by": {4, labelled(frame, entry{100, 64, 0}), classVoice},
				"with the label it came by":    {1, labelled(frame, entry{100, 64, 0}), classNone},
			} {
				l := w.line(5)
				w.lsp(l, true)
				w.label(0, 100, l.ahead(0, Label{Label: 101}))
				w.change(l.out[c.at], func(p *Port) { p.Mode, p.Classified = Queue, true })
				w.check(w.d.SetRules(l.out[c.at], rules))
				if have := w.priority(w.a, c.frame); have != c.want {
					t.Errorf("IPv6 %v, %s: class %x, want %x", v6, name, have, c.want)
				}
			}
		}
	})
}

// What does not lead on is dropped, and counted by its reason at the port by which it left the node before.
func TestLabelsThatDoNotLeadOn(t *testing.T) {
	const in = 100
	ip := packet{}.bytes()
	cases := []struct {
		name   string
		came   []byte
		change func(w *world, l line)
		why    string
	}{
		{name: "unknown", came: labelled(ip, entry{101, 64, 0}), why: "unknown label"},
		{name: "of another space", came: labelled(ip, entry{102, 64, 0}), why: "unknown label",
			change: func(w *world, _ line) { w.check(w.d.SetLabel(9, 102, NHLFE{Pop: true})) }},
		{name: "from another interface", came: labelled(ip, entry{in, 64, 0}), why: "unknown label",
			change: func(w *world, l line) {
				n := l.ahead(0)
				n.In = l.out[0]
				w.label(0, in, n)
			}},
		{name: "special", came: labelled(ip, entry{7, 64, 0}), why: "unknown label"},
		{name: "implicit null", came: labelled(ip, entry{3, 64, 0}), why: "unknown label"},
		{name: "router alert", came: labelled(ip, entry{1, 64, 0}, entry{in, 64, 0}), why: "router alert"},
		{name: "TTL 1", came: labelled(ip, entry{in, 1, 0}), why: "label ttl"},
		{name: "TTL 0", came: labelled(ip, entry{in, 0, 0}), why: "label ttl"},
		{name: "five labels that come off", why: "label stack",
			came: labelled(ip, entry{0, 64, 0}, entry{0, 64, 0}, entry{0, 64, 0}, entry{0, 64, 0},
				entry{in, 64, 0})},
		{name: "no bottom", came: labelled(ip, entry{0, 64, 0}, entry{0, 64, 0})[:18], why: "label stack"},
		{name: "half a label", came: append(ethernet(macA, macA, 0x8847, 14), 0, 6), why: "label stack"},
		{name: "nothing behind", came: labelled(ip, entry{in, 64, 0})[:18], why: "label stack",
			change: func(w *world, l line) { w.label(0, in, l.ahead(0)) }},
		{name: "neither IPv4 nor IPv6", why: "label stack",
			came:   replace(labelled(ip, entry{in, 64, 0}), 18, 0x01),
			change: func(w *world, l line) { w.label(0, in, l.ahead(0)) }},
		{name: "IPv4 behind IPv6's null", came: labelled(ip, entry{2, 64, 0}), why: "label stack"},
		{name: "IPv6 behind IPv4's null", came: labelled(packet{v6: true}.bytes(), entry{0, 64, 0}),
			why: "label stack"},
		{name: "too many on", why: "label stack",
			came: labelled(ip, entry{0, 64, 0}, entry{in, 64, 0}, entry{50, 64, 0}),
			change: func(w *world, l line) {
				three := []Label{{Label: 16}, {Label: 17}, {Label: 18}}
				w.label(0, in, l.ahead(0, three...))
				// At the second router, three more for the topmost.
				w.label(1, 18, l.ahead(1, three...))
			}},
		{name: "interface down", came: labelled(ip, entry{in, 64, 0}), why: "lsp down",
			change: func(w *world, l line) { w.leg(l.out[0], func(g *objectLeg) { g.Flags &^= legUp }) }},
		{name: "port of another router", came: labelled(ip, entry{in, 64, 0}), why: "lsp down",
			change: func(w *world, l line) {
				n := l.ahead(0, Label{Label: 16})
				n.Port = l.out[1]
				w.label(0, in, n)
			}},
		{name: "too big", came: labelled(packet{payload: 1472}.bytes(), entry{in, 64, 0}), why: "too big",
			change: func(w *world, _ line) { w.change(w.a, func(p *Port) { p.MTU = 1600 }) }},
	}
	inWorld(t, func(w *world) {
		for _, c := range cases {
			w.name = c.name
			l := w.line(2)
			w.space(l)
			w.label(0, in, l.ahead(0, Label{Label: 16}))
			if c.change != nil {
				c.change(w, l)
			}
			copy(c.came, packet{}.bytes()[:12]) // to the first router
			passed, at := 0, w.a
			if c.name == "too many on" {
				passed, at = 1, l.out[0]
			}
			if c.name == "too big" {
				w.change(l.in[0], func(p *Port) { p.MTU = 1600 })
			}
			have := w.send(c.came, skbuff{})
			counted := l.passed(passed, fmt.Sprintf("%s %d", c.why, at))
			if c.why == "label ttl" || c.why == "too big" || c.why == "router alert" {
				counted[fmt.Sprintf("agent: router %d", l.routers[0])] = 1
			}
			w.expect(have, verdictShot, have.Frame, counted)
			w.check(w.d.DeleteLabel(1, in))
			w.check(w.d.DeleteLabel(2, 18))
		}
	})
}

// What is not for the router's labels goes to its kernel as it came.
func TestLabelsThatAreNotTheRoutersBusiness(t *testing.T) {
	cases := []struct {
		name   string
		to     [6]byte
		change func(w *world, l line)
		why    string
	}{
		{name: "no label space", to: mac(0), why: "not ip",
			change: func(w *world, l line) { w.setRoutes(l.routers[0], table{}) }},
		{name: "down", to: mac(0), why: "not ip",
			change: func(w *world, l line) { w.leg(l.in[0], func(g *objectLeg) { g.Flags &^= legUp }) }},
		{name: "other station", to: macOther, why: "other station"},
		{name: "broadcast", to: broadcast, why: "local"},
	}
	inWorld(t, func(w *world) {
		for _, c := range cases {
			w.name = c.name
			l := w.line(1)
			w.space(l)
			w.label(0, 100, l.ahead(0))
			if c.change != nil {
				c.change(w, l)
			}
			came := labelled(packet{to: c.to}.bytes(), entry{100, 64, 0})
			counted := map[string]uint64{fmt.Sprintf("%s: router %d", c.why, l.routers[0]): 1}
			if c.to == mac(0) {
				counted[fmt.Sprintf("handed %d", l.in[0])] = 1
			}
			w.expectLabelled(w.send(came, skbuff{}), verdictRedirect, came, counted)
		}
	})
}

// The packet for the router at the LSP's end comes to its kernel without labels.
func TestUltimateHopIsHandedWhatIsItsOwn(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, v6 := range []bool{false, true} {
			for _, hops := range []int{0, 1} {
				l := w.line(hops + 1)
				w.space(l)
				w.name = fmt.Sprintf("IPv6 %v, %d before", v6, hops)
				w.setNexthop(l.next[hops], local, 0, [6]byte{})
				w.label(0, 100, l.ahead(0, Label{Label: 101}).uniform())
				w.label(hops, uint32(100+hops), NHLFE{Pop: true}.uniform())
				p := packet{v6: v6}
				want := packet{v6: v6, ttl: 20 - hops}.bytes()
				if hops > 0 {
					want = packet{v6: v6, ttl: 20 - hops}.behind(0, mac(2), mac(1))
				}
				came := labelled(p.bytes(), entry{100, 20, 0})
				w.expectLabelled(w.send(came, skbuff{}), verdictRedirect, want,
					l.passed(hops, fmt.Sprintf("local: router %d", l.routers[hops])))
			}
		}
	})
}

// Where an LSP begins, what cannot go its way goes by IP: the router's kernel has it.
func TestFirstRouterOfAnLSPPunts(t *testing.T) {
	cases := []struct {
		name   string
		packet packet
		ctx    skbuff
		change func(w *world, l line)
		why    string
	}{
		{name: "no such FTN", why: "inconsistent",
			change: func(w *world, _ line) { w.check(w.d.DeleteFTN(1, 7)) }},
		{name: "interface down", why: "unresolved",
			change: func(w *world, l line) { w.leg(l.out[0], func(g *objectLeg) { g.Flags &^= legUp }) }},
		{name: "too big with labels", packet: packet{payload: 1472}, why: "too big"},
		{name: "TTL 1", packet: packet{ttl: 1}, why: "ttl"},
		{name: "super-frame before a queue", packet: packet{tcp: true, payload: 3000},
			ctx: skbuff{GSOSize: 1400}, why: "super frame",
			change: func(w *world, l line) { w.change(l.out[0], func(p *Port) { p.Mode = Queue }) }},
	}
	inWorld(t, func(w *world) {
		for _, c := range cases {
			w.name = c.name
			l := w.line(3)
			w.lsp(l, true)
			if c.change != nil {
				c.change(w, l)
			}
			w.expect(w.send(c.packet.bytes(), c.ctx), verdictRedirect, c.packet.bytes(), l.passed(0,
				fmt.Sprintf("%s: router %d", c.why, l.routers[0]), fmt.Sprintf("handed %d", l.in[0])))
		}
		w.name = "just not too big"
		l := w.line(3)
		w.lsp(l, true)
		p := packet{payload: 1468}
		w.expect(w.send(p.bytes(), skbuff{}), verdictRedirect, p.behind(3, macB, mac(5)),
			l.passed(3, fmt.Sprintf("handed %d", l.end)))
	})
}

// A super-frame whose labels go off again on its way stays one. One that would leave with them goes to the device that
// cuts it, or is dropped: the kernel could not cut it any more.
func TestSuperFramesAndLabels(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, v6 := range []bool{false, true} {
			w.name = fmt.Sprintf("IPv6 %v", v6)
			p := packet{v6: v6, tcp: true, payload: 3000}
			l := w.line(4)
			w.lsp(l, true)
			w.expect(w.send(p.bytes(), skbuff{GSOSize: 1400}), verdictRedirect, p.behind(4, macB, mac(7)),
				l.passed(4, fmt.Sprintf("handed %d", l.end)))
			have := w.send(p.bytes(), skbuff{GSOSize: 1460}) // no room for the label
			if have.Counted[fmt.Sprintf("too big: router %d", l.routers[0])] != 1 {
				w.Errorf("segments that do not fit: %v", have.Counted)
			}
			w.leg(l.in[2], func(g *objectLeg) { *g = objectLeg{} })
			have = w.send(p.bytes(), skbuff{GSOSize: 1400})
			w.expect(have, verdictShot, p.bytes(),
				map[string]uint64{fmt.Sprintf("super frame %d", l.out[1]): 1})
			w.change(w.a, func(r *Port) { r.Plain = w.b })
			w.expect(w.send(p.bytes(), skbuff{GSOSize: 1400}), verdictRedirect, p.bytes(),
				map[string]uint64{})

			came := labelled(p.bytes(), entry{100, 64, 0})
			w.expect(w.send(came, skbuff{GSOSize: 1400}), verdictShot, came,
				map[string]uint64{fmt.Sprintf("super frame %d", w.a): 1})
		}
	})
}

// XDP does what needs no other room, with the same bytes as tc, and leaves all else as it came.
func TestLineCardSwitchesLabels(t *testing.T) {
	inUplinkedWorld(t, func(w *world) {
		for _, v6 := range []bool{false, true} {
			w.name = fmt.Sprintf("IPv6 %v", v6)
			p := packet{v6: v6}
			l := w.line(4)
			w.lsp(l, true)
			w.check(w.d.AllowXDPToPort(l.end, w.b))
			w.expectLabelled(w.lineCard(p.bytes()), xdpRedirect, p.behind(4, macB, mac(7)), l.passed(4))

			s := w.line(1)
			w.space(s)
			w.check(w.d.AllowXDPToPort(s.end, w.b))
			w.label(0, 100, s.ahead(0, Label{Label: 200}))
			came := labelled(p.bytes(), entry{100, 64, 0})
			w.expectLabelled(w.lineCard(came), xdpRedirect,
				labelled(p.behind(0, macB, mac(1)), entry{200, 63, 0}), s.passed(1))
			for name, n := range map[string]NHLFE{
				"two on": s.ahead(0, Label{Label: 200}, Label{Label: 201}), "off": s.ahead(0),
			} {
				w.name = name
				w.label(0, 100, n)
				w.expectLabelled(w.lineCard(came), xdpPass, came, map[string]uint64{})
			}
			w.name = "unknown"
			w.check(w.d.DeleteLabel(1, 100))
			w.expectLabelled(w.lineCard(came), xdpPass, came, map[string]uint64{})
			w.name = "on"
			w.ftn(s, 0, s.ahead(0, Label{Label: 200}))
			w.expectLabelled(w.lineCard(p.bytes()), xdpPass, p.bytes(), map[string]uint64{})
		}
	})
}

func TestLabelsAreListedAsTheyWereSet(t *testing.T) {
	inBench(t, func(b *bench) {
		d := b.open()
		defer func() { b.check(d.Close()) }()
		labels := map[uint32]NHLFE{
			16:        {Pop: true, In: 5},
			LastLabel: {Port: 7, MAC: macA, TTL: 255, Push: []Label{{Label: 17, Class: 7}, {Label: 0}}},
			100:       {Port: 7, MAC: macB, TTL: 9, In: 6, Uniform: true, KeepClass: true},
		}
		ftns := map[uint32]NHLFE{1: {Port: 7, MAC: macA, TTL: 255, Push: []Label{{Label: 18}}}}
		for label, n := range labels {
			b.check(d.SetLabel(3, label, n))
		}
		for ftn, n := range ftns {
			b.check(d.SetFTN(3, ftn, n))
		}
		b.check(d.SetLabel(4, 16, NHLFE{Pop: true}))
		haveLabels, haveFTNs, err := labelsOf(d, 3)
		b.check(err)
		if diff := cmp.Diff(labels, haveLabels) + cmp.Diff(ftns, haveFTNs); diff != "" {
			b.Error(diff)
		}
		for range 2 {
			b.check(d.DeleteLabel(3, 100))
			b.check(d.DeleteFTN(3, 1))
		}
		haveLabels, haveFTNs, err = labelsOf(d, 3)
		b.check(err)
		delete(labels, 100)
		if diff := cmp.Diff(labels, haveLabels); diff != "" || len(haveFTNs) != 0 {
			b.Errorf("%v\n%s", haveFTNs, diff)
		}
	})
}

func TestLabelsThatCannotBeAreRefused(t *testing.T) {
	inBench(t, func(b *bench) {
		d := b.open()
		defer func() { b.check(d.Close()) }()
		way := NHLFE{Port: 7, MAC: macA}
		push := func(labels ...Label) NHLFE {
			n := way
			n.Push = labels
			return n
		}
		for name, set := range map[string]func() error{
			"a special label":      func() error { return d.SetLabel(1, 15, way) },
			"label of 21 bits":     func() error { return d.SetLabel(1, LastLabel+1, way) },
			"no space":             func() error { return d.SetLabel(0, 16, way) },
			"no port":              func() error { return d.SetLabel(1, 16, NHLFE{MAC: macA}) },
			"port out of range":    func() error { return d.SetLabel(1, 16, NHLFE{Port: MaxPorts}) },
			"pop with a port":      func() error { return d.SetLabel(1, 16, NHLFE{Pop: true, Port: 7}) },
			"four pushes":          func() error { return d.SetLabel(1, 16, push(make([]Label, 4)...)) },
			"implicit null pushed": func() error { return d.SetLabel(1, 16, push(Label{Label: 3})) },
			"class 8":              func() error { return d.SetLabel(1, 16, push(Label{Class: 8})) },
			"FTN 0":                func() error { return d.SetFTN(1, 0, push(Label{Label: 16})) },
			"FTN without labels":   func() error { return d.SetFTN(1, 1, way) },
		} {
			if set() == nil {
				b.Errorf("%s was taken", name)
			}
		}
		labels, ftns, err := labelsOf(d, 1)
		if err != nil || len(labels)+len(ftns) != 0 || d.needs != 0 {
			b.Errorf("%v, %v, %v, needs %v", labels, ftns, err, d.needs)
		}
	})
}

// labelsOf gives what is set of a label space, by label, and by FTN.
func labelsOf(d *DataPath, space uint32) (labels, ftns map[uint32]NHLFE, err error) {
	labels, ftns = map[uint32]NHLFE{}, map[uint32]NHLFE{}
	for e, err := range d.AllLabels() {
		switch {
		case err != nil:
			return nil, nil, err
		case e.Space != space:
		case e.FTN:
			ftns[e.Number] = e.NHLFE
		default:
			labels[e.Number] = e.NHLFE
		}
	}
	return labels, ftns, nil
}
