package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/model/slice"
)

func placeOf(host string) Place {
	peers := maps.Clone(plantest.Hosts)
	delete(peers, host)
	return Place{Host: host, Joined: host != "A", Address: plantest.Hosts[host], Peers: peers}
}

// wantedBy gives what each host of the cluster must hold.
func wantedBy(t interface{ Fatal(...any) }, w Input) map[string]*Wanted {
	all := make(map[string]*Wanted)
	for host := range plantest.Hosts {
		one, broken := New(placeOf(host), []Input{w})
		if len(broken) > 0 || len(one.cut) > 0 {
			t.Fatal(host, broken, one.cut)
		}
		all[host] = one
	}
	return all
}

// tunnels lists the proxy ports by their names.
func (w *Wanted) tunnels() map[string]Tunnel {
	all := make(map[string]Tunnel)
	for k, detail := range w.details {
		if t, is := detail.(Tunnel); is {
			all[k.Name] = t
		}
	}
	return all
}

func TestEachHostHoldsItsPart(t *testing.T) {
	lan, sw := switchDevice(7, "link h1:eth1 h2:eth1 h3:eth1 "), switchDevice(7, "s1")
	to := func(device, host string) string { return tunnelDevice(7, device, host) + ">" + device }
	for name, c := range map[string]struct {
		links [][]string
		hosts map[string]string
		want  map[string][]string // wires by host
	}{
		"one host": {
			[][]string{{"h1", "h2"}}, map[string]string{"h1": "B", "h2": "B"},
			map[string][]string{"B": {"s7p1=s7p2"}},
		},
		"two hosts": {
			[][]string{{"h1", "h2"}}, map[string]string{"h1": "A", "h2": "B"},
			map[string][]string{"A": {"s7p1=s7p2"}, "B": {"s7p1=s7p2"}},
		},
		"a LAN on three": {
			[][]string{{"h1", "h2", "h3"}}, map[string]string{"h1": "A", "h2": "B", "h3": "C"},
			map[string][]string{
				"A": {"s7p1>" + lan, to(lan, "B"), to(lan, "C")},
				"B": {"s7p2>" + lan, to(lan, "A"), to(lan, "C")},
				"C": {"s7p3>" + lan, to(lan, "A"), to(lan, "B")},
			},
		},
		"a switch on two": {
			[][]string{{"h1", "s1"}, {"h2", "s1"}}, map[string]string{"h1": "A", "h2": "C"},
			map[string][]string{"A": {"s7p1>" + sw, to(sw, "C")}, "C": {"s7p3>" + sw, to(sw, "A")}},
		},
		"a cable at one of its switches' hosts": {
			[][]string{{"h1", "s1"}, {"h2", "s2"}, {"s1", "s2"}}, map[string]string{"h1": "A", "h2": "B"},
			map[string][]string{
				"A": {"s7p1>" + sw, "s7p5#s7p6", to(switchDevice(7, "s2"), "B")},
				"B": {"s7p3>" + switchDevice(7, "s2"), to(switchDevice(7, "s2"), "A")},
			},
		},
		"nobody's": {[][]string{{"h1", "h2"}}, nil, map[string][]string{"A": {"s7p1=s7p2"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got := make(map[string][]string)
			for host, w := range wantedBy(t, Input{
				Spec: plantest.Spread(plantest.Slice(7, c.links...), c.hosts),
			}) {
				if wires := w.names(KindWire); wires != nil {
					got[host] = wires
				}
				if c.want[host] == nil && len(w.Resources) > 0 {
					t.Errorf("%s has nothing to hold, and is to hold %v", host, w.Resources)
				}
			}
			for _, wires := range c.want {
				slices.Sort(wires)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAShapeIsAtTheHostThatSends(t *testing.T) {
	there, back := slice.Shape{Rate: 1e6}, slice.Shape{Rate: 2e6}
	s := plantest.Slice(7, []string{"h1", "h2"})
	s.Links[0].Ends[0].Shape, s.Links[0].Ends[1].Shape = there, back
	all := wantedBy(t, Input{Spec: plantest.Spread(s, map[string]string{"h1": "A", "h2": "B"})})
	end := func(port string, shape slice.Shape) wiring.End {
		return wiring.End{Port: port, MTU: 1500, Shape: shape}
	}
	for host, want := range map[string]wiring.Link{
		"A": {A: end("s7p1", there), B: end("s7p2", slice.Shape{})},
		"B": {A: end("s7p2", back), B: end("s7p1", slice.Shape{})},
	} {
		var got []wiring.Link
		for _, detail := range all[host].details {
			if l, is := detail.(wiring.Link); is {
				got = append(got, l)
			}
		}
		if diff := cmp.Diff([]wiring.Link{want}, got); diff != "" {
			t.Errorf("%s: %s", host, diff)
		}
	}
}

func TestATunnelThatCannotBeIsTheLinksTroubleAlone(t *testing.T) {
	s := plantest.Spread(plantest.Slice(7, []string{"h1", "h2"}, []string{"h1", "h3"}), map[string]string{
		"h1": "A", "h2": "B", "h3": "C",
	})
	for why, at := range map[string]Place{
		"no such host": {
			Host: "A", Address: plantest.Hosts["A"], Peers: map[string]netip.Addr{"C": plantest.Hosts["C"]},
		},
		"has not said where": {
			Host: "A", Address: plantest.Hosts["A"],
			Peers: map[string]netip.Addr{"B": {}, "C": plantest.Hosts["C"]},
		},
		"--advertise": {
			Host: "A", Address: plantest.Hosts["A"],
			Peers: map[string]netip.Addr{"B": plantest.Hosts["A"], "C": plantest.Hosts["C"]},
		},
		"of two families": {
			Host: "A", Address: plantest.Hosts["A"],
			Peers: map[string]netip.Addr{"B": netip.MustParseAddr("2001:db8::2"), "C": plantest.Hosts["C"]},
		},
	} {
		w, broken := New(at, []Input{{Spec: s}})
		if len(broken) > 0 {
			t.Fatal(broken)
		}
		if got := w.names(KindWire); !slices.Equal(got, []string{"s7p3=s7p4"}) {
			t.Errorf("%s: wires %v", why, got)
		}
		if got := w.Problems(s); len(got) != 1 || !strings.Contains(got[0], why) ||
			!strings.Contains(got[0], "h1:eth1 h2:eth1") {
			t.Errorf("problems %q, want one that says %q", got, why)
		}
	}
}

func TestAFencedHostHasNoNodesThatMayStartElsewhere(t *testing.T) {
	s := plantest.Spread(plantest.Slice(7, []string{"h1", "h2"}), map[string]string{"h1": "A", "h2": "A"})
	s.Node("h1").Placement.Reschedule = slice.RescheduleAlways
	at := placeOf("A")
	at.Fenced = true
	w, _ := New(at, []Input{{Spec: s}})
	if got := w.names(KindSliver, KindPort, KindWire); !slices.Equal(got, []string{"h2", "s7p2"}) {
		t.Errorf("wants %v", got)
	}
	w, _ = New(placeOf("A"), []Input{{Spec: s, Awaited: map[string]string{"h2": "B"}}})
	if !slices.Equal(w.names(KindSliver), []string{"h1"}) {
		t.Errorf("starts %v, and B may still run h2", w.names(KindSliver))
	}
}

// A peer that is somewhere else now is followed without taking anything down.
func TestAPeersNewAddressAmendsItsTunnels(t *testing.T) {
	s := plantest.Spread(plantest.Slice(7, []string{"h1", "h2"}), map[string]string{"h1": "A", "h2": "B"})
	at := placeOf("A")
	before, _ := New(at, []Input{{Spec: s}})
	at.Peers = map[string]netip.Addr{"B": netip.MustParseAddr("198.51.100.2")}
	after, _ := New(at, []Input{{Spec: s}})
	var seen []reconcile.Observed
	for _, r := range before.Resources {
		seen = append(seen, reconcile.Observed{Key: r.Key, Digest: r.Digest, Needs: r.Needs, Falls: r.Falls})
	}
	plan, err := reconcile.Plan(after.Resources, seen, nil)
	if err != nil || len(plan) != 1 || plan[0].Op != reconcile.OpUpdate || plan[0].Key.Name != "s7p2" {
		t.Errorf("plan %v, %v", plan, err)
	}
}

// What all hosts hold together is what one machine would hold: each node and each wire once, but for links that reach
// over two hosts, which are at both; and what each host has of a switch, a LAN or such a link is joined to the rest by
// tunnels that fit.
func TestHostsTogetherHoldTheWholeNetwork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawNetwork(t, 7)
		w.Ended = nil
		hosts := make(map[string]string)
		for _, n := range w.Spec.Nodes {
			hosts[n.Name] = rapid.SampledFrom([]string{"A", "B", "C"}).Draw(t, "host")
		}
		whole, broken := New(Place{}, []Input{w})
		if len(broken) > 0 {
			t.Fatal(broken)
		}
		w.Spec = plantest.Spread(w.Spec, hosts)
		parts := wantedBy(t, w)
		for host, part := range parts {
			if plan, err := reconcile.Plan(part.Resources, nil, nil); err != nil ||
				len(plan) != len(part.Resources) {
				t.Fatalf("%s: %d actions for %d resources, %v", host, len(plan), len(part.Resources),
					err)
			}
		}
		for _, kind := range []reconcile.Kind{
			KindSliver, KindPort, KindNodeNet, KindProcess, KindBoot, KindWire, KindQueue,
		} {
			compareParts(t, w.Spec, kind, whole, parts)
		}
		compareTunnels(t, parts)
		compareBridges(t, whole, parts)
	})
}

// compareParts checks that the hosts together have what one machine would have of a kind, but for proxy ports.
func compareParts(t *rapid.T, s *slice.Slice, kind reconcile.Kind, whole *Wanted, parts map[string]*Wanted) {
	count := make(map[string]int)
	for _, part := range parts {
		tunnels := part.tunnels()
		for _, name := range part.names(kind) {
			port, _, _ := strings.Cut(name, ">")
			if _, isProxy := tunnels[port]; !isProxy {
				count[name]++
			}
		}
	}
	want := make(map[string]int)
	for _, name := range whole.names(kind) {
		want[name] = 1
		if j, is := whole.details[reconcile.Key{Kind: kind, Slice: 7, Name: name}].(Join); is &&
			hostOfPort(s, j.A) != hostOfPort(s, j.B) {
			want[name] = 2
		}
		l, is := whole.details[reconcile.Key{Kind: kind, Slice: 7, Name: name}].(wiring.Link)
		if is && l.B.Port != "" && !l.Cable && hostOfPort(s, l.A.Port) != hostOfPort(s, l.B.Port) {
			want[name] = 0 // each direction is treated where it begins
			for _, end := range []wiring.End{l.A, l.B} {
				if !end.Shape.IsZero() {
					want[name]++
				}
			}
		}
	}
	if diff := cmp.Diff(want, count); diff != "" {
		t.Fatalf("%s: -one machine +all hosts\n%s", KindName(kind), diff)
	}
}

func hostOfPort(s *slice.Slice, port string) string {
	for _, n := range s.Nodes {
		for _, i := range n.Interfaces {
			if slice.PortName(s.ID, i.Port) == port {
				return n.Host
			}
		}
	}
	return ""
}

// compareTunnels checks that each tunnel has a counterpart, and is told from all others.
func compareTunnels(t *rapid.T, parts map[string]*Wanted) {
	type end struct {
		key         uint32
		local, peer netip.Addr
	}
	ends := make(map[end]Tunnel)
	for host, part := range parts {
		for _, tun := range part.tunnels() {
			e := end{tun.Key, tun.Local, tun.Peer}
			if other, twice := ends[e]; twice || tun.Local != plantest.Hosts[host] {
				t.Fatalf("%s: %+v beside %+v", host, tun, other)
			}
			ends[e] = tun
		}
	}
	for e, tun := range ends {
		back, there := ends[end{e.key, e.peer, e.local}]
		if !there || back.Kind != tun.Kind || back.MTU != tun.MTU || back.Isolated != tun.Isolated ||
			back.DSCP != tun.DSCP || back.CountsMet != tun.CountsMet ||
			back.StormControl != tun.StormControl || tun.Isolated != (tun.StormControl > 0) {
			t.Fatalf("%+v has the counterpart %+v (%v)", tun, back, there)
		}
	}
}

// compareBridges checks that the bridges of one switch or LAN lead to one another, and only isolated: then nothing goes
// round.
func compareBridges(t *rapid.T, whole *Wanted, parts map[string]*Wanted) {
	for _, device := range whole.names(KindSwitch) {
		var at []string
		for host, part := range parts {
			if part.Has(reconcile.Key{Kind: KindSwitch, Slice: 7, Name: device}) {
				at = append(at, host)
			}
		}
		want := make(map[string]int)
		for _, host := range at {
			for _, peer := range at {
				if peer != host {
					want[fmt.Sprint(host, plantest.Hosts[peer])] = 1
				}
			}
		}
		got := make(map[string]int)
		for _, host := range at {
			for name, tun := range parts[host].tunnels() {
				if parts[host].Has(reconcile.Key{
					Kind: KindWire, Slice: 7, Name: Plug{name, device}.Name(),
				}) {
					got[fmt.Sprint(host, tun.Peer)]++
					if !tun.Isolated {
						t.Fatalf("%s leads from a bridge to another one, and is not isolated",
							name)
					}
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s: tunnels between its bridges:\n%s", device, diff)
		}
	}
}
