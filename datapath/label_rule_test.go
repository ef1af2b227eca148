package datapath

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// ruled gives the first router of a line rules, and two LSPs to the second one: FTN 9 pushes label 209, and FTN 10 210.
func (w *world) ruled(l line, rules ...LabelRule) {
	w.Helper()
	w.space(l)
	w.leg(l.in[0], func(g *objectLeg) { g.Flags |= legLabelRules })
	for _, ftn := range []uint32{9, 10} {
		w.check(w.d.SetFTN(1, ftn, l.ahead(0, Label{Label: 200 + ftn}).uniform()))
	}
	w.check(w.d.SetLabelRules(1, rules))
	w.change(l.out[0], func(p *Port) { p.Mode = Kernel })
}

func TestRulesChooseTheLSP(t *testing.T) {
	const tcp, udp = 6, 17
	at := netip.MustParsePrefix
	rule := func(ftn uint32, edit func(*Match)) LabelRule {
		r := LabelRule{ftn, Match{DSCP: -1}}
		edit(&r.Match)
		return r
	}
	protocol := func(ftn uint32, p uint8) LabelRule { return rule(ftn, func(m *Match) { m.Protocol = p }) }
	some, six := packet{sport: 4000}, packet{v6: true}
	low := rule(9, func(m *Match) { m.AnyPort = PortRange{1, 3} })
	any4 := rule(9, func(m *Match) { m.Source = at("0.0.0.0/0") })
	any6 := rule(9, func(m *Match) { m.Destination = at("::/0") })
	three := []LabelRule{protocol(9, tcp), protocol(10, udp), protocol(9, udp)}
	from4000 := rule(9, func(m *Match) { m.SourcePorts = PortRange{4000, 4000} })
	for name, c := range map[string]struct {
		packet packet
		rules  []LabelRule
		change func(w *world, l line)
		want   uint32 // label; 0: none
	}{
		"protocol":            {some, []LabelRule{protocol(9, udp)}, nil, 209},
		"another protocol":    {some, []LabelRule{protocol(9, tcp)}, nil, 0},
		"the first":           {some, three, nil, 210},
		"source port":         {some, []LabelRule{from4000}, nil, 209},
		"another port":        {some, []LabelRule{low}, nil, 0},
		"port of IPv6":        {packet{v6: true, sport: 4000}, []LabelRule{from4000}, nil, 209},
		"any IPv4, and IPv6":  {six, []LabelRule{any4}, nil, 0},
		"destination of IPv6": {six, []LabelRule{any6}, nil, 209},
		"the first LSP is down": {some, []LabelRule{protocol(9, udp), protocol(10, udp)},
			func(w *world, _ line) { w.check(w.d.DeleteFTN(1, 9)) }, 210},
		"the link of the first LSP is down": {some, []LabelRule{protocol(9, udp), protocol(10, udp)},
			func(w *world, _ line) {
				down := w.port(mac(99))
				w.leg(down, func(g *objectLeg) { *g = objectLeg{Router: 1, Mtu: 1500} })
				w.check(w.d.SetFTN(1, 9, NHLFE{Port: down, MAC: macA, Push: []Label{{Label: 209}}}))
			}, 210},
		"no LSP is up": {some, []LabelRule{protocol(8, udp)}, nil, 0},
		"it leads back": {some, []LabelRule{protocol(9, udp)}, func(w *world, l line) {
			w.check(w.d.SetFTN(1, 9, NHLFE{Port: l.in[0], MAC: macA, Push: []Label{{Label: 209}}}))
		}, 0},
		"a router that asks no rules": {some, []LabelRule{protocol(9, udp)}, func(w *world, l line) {
			w.leg(l.in[0], func(g *objectLeg) { g.Flags &^= legLabelRules })
		}, 0},
		"before the route's own": {some, []LabelRule{protocol(9, udp)},
			func(w *world, l line) { w.ftn(l, 0, l.ahead(0, Label{Label: 300})) }, 209},
		"the route's own, else": {some, []LabelRule{protocol(9, tcp)},
			func(w *world, l line) { w.ftn(l, 0, l.ahead(0, Label{Label: 300}).uniform()) }, 300},
	} {
		inWorld(t, func(w *world) {
			w.name = name
			l := w.line(3)
			w.ruled(l, c.rules...)
			if c.change != nil {
				c.change(w, l)
			}
			have, want := w.send(c.packet.bytes(), skbuff{}), c.packet.behind(1, mac(2), mac(1))
			if c.want != 0 {
				want = labelled(want, entry{c.want, 63, 0})
			}
			w.expectLabelled(have, verdictRedirect, want, l.passed(1))
		})
	}
}

// What the router would not send to another one is none of the rules' business.
func TestRulesAreForWhatIsForwarded(t *testing.T) {
	for kind, why := range map[uint8]string{
		gateway + 2: "unresolved", gateway + 4: "local", gateway + 5: "reject",
	} {
		inWorld(t, func(w *world) {
			w.name = fmt.Sprintf("next hop of kind %d", kind)
			l := w.line(3)
			w.ruled(l, LabelRule{9, Match{DSCP: -1}})
			hop := must(w.d.maps.Nexthops.LookupBytes(l.next[0]))
			hop[6] = kind // struct adjacency in bpf/fib.h
			w.check(w.d.maps.Nexthops.Put(l.next[0], hop))
			p := packet{}
			w.expect(w.send(p.bytes(), skbuff{}), verdictRedirect, p.bytes(), l.passed(0,
				fmt.Sprintf("%s: router %d", why, l.routers[0]), fmt.Sprintf("handed %d", l.in[0])))
		})
	}
}

func TestLabelRulesAreReadBack(t *testing.T) {
	inWorld(t, func(w *world) {
		two := []LabelRule{
			{1, Match{DSCP: 46, Protocol: 17, Destination: netip.MustParsePrefix("10.9.0.0/24")}},
			{2, Match{DSCP: -1, AnyPort: PortRange{1, 2}}},
		}
		w.check(w.d.SetLabelRules(5, two))
		w.check(w.d.SetLabelRules(6, two[:1]))
		read := func(want map[uint32][]LabelRule) {
			w.Helper()
			have, err := w.d.LabelRules()
			w.check(err)
			if diff := cmp.Diff(want, have, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		}
		read(map[uint32][]LabelRule{5: two, 6: two[:1]})
		for range 2 {
			w.check(w.d.SetLabelRules(5, nil))
		}
		read(map[uint32][]LabelRule{6: two[:1]})
		for name, rules := range map[string][]LabelRule{
			"too many": make([]LabelRule, MaxLabelRules+1), "no FTN": {{}},
			"an FTN too large": {{FTN: maxFTN + 1}},
		} {
			if w.d.SetLabelRules(6, rules) == nil {
				t.Errorf("%s: no error", name)
			}
		}
	})
}
