package probe_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/host/probe"
	"github.com/pergola-net/pergola/lab/daemons"
	"github.com/pergola-net/pergola/model/slice"
)

// converge computes the tables that shortest paths give: what a perfect routing protocol would install.
func converge(s *slice.Slice, up func(string) bool) map[string]probe.Table {
	type hop struct{ port, node, via4, via6 string }
	neighbours := map[string][]hop{}
	for _, l := range s.Links {
		if !up(l.Name) {
			continue
		}
		for _, a := range l.Ends {
			for _, b := range l.Ends {
				if a.Node != b.Node {
					far := s.Node(b.Node).Interface(b.Interface).Addresses
					neighbours[a.Node] = append(neighbours[a.Node], hop{
						a.Interface, b.Node, far[0].Addr().String(), far[1].Addr().String(),
					})
				}
			}
		}
	}
	tables := map[string]probe.Table{}
	for _, n := range s.Nodes {
		lo := probe.Interface{Name: "lo", Index: 1, Up: true, Addresses: n.Loopbacks}
		t := probe.Table{Interfaces: []probe.Interface{lo}}
		for i, p := range n.Interfaces {
			t.Interfaces = append(t.Interfaces, probe.Interface{
				Name: p.Name, Index: i + 2, Up: true, MTU: p.MTU, Addresses: p.Addresses,
			})
		}
		tables[n.Name] = t
	}
	for _, n := range s.Nodes { // towards n, breadth first
		queue, distance := []string{n.Name}, map[string]int{n.Name: 0}
		prefixes := append([]netip.Prefix{}, n.Loopbacks...)
		for _, p := range n.Interfaces {
			if up(p.Link) {
				prefixes = append(prefixes, p.Addresses...)
			}
		}
		for len(queue) > 0 {
			at := queue[0]
			queue = queue[1:]
			for _, h := range neighbours[at] {
				if _, seen := distance[h.node]; !seen {
					distance[h.node] = distance[at] + 1
					queue = append(queue, h.node)
				}
			}
		}
		for name, d := range distance {
			if d == 0 {
				continue
			}
			t := tables[name]
			for _, p := range prefixes {
				r := probe.Route{To: p.Masked(), Type: probe.Unicast, Metric: uint32(d)}
				for _, h := range neighbours[name] {
					if distance[h.node] == d-1 {
						via := h.via4
						if p.Addr().Is6() {
							via = h.via6
						}
						r.Hops = append(r.Hops, probe.Hop{
							Via: netip.MustParseAddr(via), Interface: h.port,
						})
					}
				}
				t.Routes = append(t.Routes, r)
			}
			tables[name] = t
		}
	}
	return tables
}

func grid(wide, high int, protocols ...slice.Protocol) *slice.Slice {
	b := &daemons.Topology{}
	name := func(x, y int) string { return fmt.Sprintf("r%03d", y*wide+x+1) }
	for i := range wide * high {
		b.Router(fmt.Sprintf("r%03d", i+1), slice.FRR, protocols...)
	}
	for y := range high {
		for x := range wide {
			if x+1 < wide {
				b.Link(name(x, y), name(x+1, y))
			}
			if y+1 < high {
				b.Link(name(x, y), name(x, y+1))
			}
		}
	}
	return b.Done()
}

func all(string) bool { return true }

func TestConvergedWhenEverybodyReachesEverything(t *testing.T) {
	s := grid(3, 3, slice.OSPF)
	v := probe.Converged(s, converge(s, all), nil)
	// 9 routers and 9 loopbacks: 72 pairs; 12 links of which each router has some: 9*12 - 24 ends; both families.
	if want := 2 * (72 + 9*12 - 24); !v.Converged || v.Pairs != want || v.Routers != 9 {
		t.Errorf("got %+v, want converged with %d pairs", v, want)
	}
}

func TestConvergedTakesAnyRouterWithAnAnycastAddress(t *testing.T) {
	s := grid(3, 1, slice.OSPF)
	anycast := netip.MustParsePrefix("192.0.2.53/32")
	ends := []string{"r001", "r003"}
	for _, name := range ends {
		n := s.Node(name)
		n.Loopbacks = append(n.Loopbacks, anycast)
	}
	tables := converge(s, all)
	for _, name := range ends { // the address is its own: there is no route to it
		table := tables[name]
		table.Routes = slices.DeleteFunc(table.Routes, func(r probe.Route) bool { return r.To == anycast })
		tables[name] = table
	}
	if v := probe.Converged(s, tables, nil); !v.Converged {
		t.Errorf("got %+v", v)
	}
}

func TestConvergedLeavesOutNetworksOfInterfacesWithoutACarrier(t *testing.T) {
	s := grid(3, 1, slice.OSPF)
	tables := converge(s, func(link string) bool { return link != s.Links[1].Name })
	delete(tables, "r003") // it is off, so the last interface of r002 has no carrier
	for i := range tables["r002"].Interfaces {
		if at := &tables["r002"].Interfaces[i]; s.Node("r002").Interface(at.Name) != nil &&
			s.Node("r002").Interface(at.Name).Link == s.Links[1].Name {
			at.Up = false
		}
	}
	if v := probe.Converged(s, tables, nil); !v.Converged || v.Routers != 2 {
		t.Errorf("got %+v", v)
	}
}

func TestConvergedNamesAMissingRoute(t *testing.T) {
	s := grid(3, 1, slice.OSPF)
	tables := converge(s, all)
	gone := netip.MustParsePrefix("10.0.0.3/32")
	for name, table := range tables {
		var left []probe.Route
		for _, r := range table.Routes {
			if name != "r002" || r.To != gone {
				left = append(left, r)
			}
		}
		table.Routes = left
		tables[name] = table
	}
	v := probe.Converged(s, tables, nil)
	if v.Converged || v.Pairs-v.Reached != 2 || !strings.Contains(v.Missing[0], "r002 has no route to it") ||
		!strings.Contains(v.Missing[0], "loopback of r003") {
		t.Errorf("got %+v", v)
	}
}

func TestConvergedNamesALoop(t *testing.T) {
	s := grid(3, 1, slice.OSPF)
	tables := converge(s, all)
	back := tables["r001"].Interfaces[1].Addresses[0].Addr()
	for i, r := range tables["r002"].Routes {
		if r.To == netip.MustParsePrefix("10.0.0.3/32") {
			tables["r002"].Routes[i].Hops = []probe.Hop{{Via: back, Interface: "eth1"}}
		}
	}
	v := probe.Converged(s, tables, nil)
	if v.Converged || !strings.Contains(strings.Join(v.Missing, "\n"), "loops: r001 -> r002 -> r001") {
		t.Errorf("got %+v", v)
	}
}

func TestConvergedJudgesEachComponentAlone(t *testing.T) {
	s := grid(4, 1, slice.ISIS)
	down := func(link string) bool { return link != "l2" } // r2-r3
	if v := probe.Converged(s, converge(s, down), down); !v.Converged || v.Routers != 4 || v.Pairs != 8 {
		t.Errorf("split network: got %+v, want two pairs of routers, each with its neighbour's loopbacks", v)
	}
	if v := probe.Converged(s, converge(s, down), nil); v.Converged {
		t.Errorf("link is up and carries nothing: got %+v", v)
	}
}

func TestConvergedLeavesOutWhoTakesNoPart(t *testing.T) {
	s := grid(3, 1, slice.OSPF)
	s.Node("r002").Routing = nil
	if v := probe.Converged(s, converge(s, all), nil); v.Pairs != 0 || !v.Converged {
		t.Errorf("no two speakers are neighbours: got %+v", v)
	}
	s = grid(3, 1, slice.OSPF)
	tables := converge(s, all)
	delete(tables, "r003")
	if v := probe.Converged(s, tables, nil); !v.Converged || v.Routers != 2 {
		t.Errorf("r003 does not run: got %+v", v)
	}
}

// What users configured themselves, their daemons tell: package sessions.
func TestConvergedLeavesOutUsersOwnConfigurations(t *testing.T) {
	s := grid(3, 1, slice.OSPF)
	s.Node("r002").Routing = &slice.Routing{Daemon: slice.FRR, Config: map[string][]byte{"frr.conf": nil}}
	v := probe.Converged(s, converge(s, all), nil)
	if !v.Converged || v.Routers != 2 || v.Pairs != 0 {
		t.Errorf("got %+v", v)
	}
}

func TestConvergedFollowsBGPBetweenSystems(t *testing.T) {
	s := grid(2, 1, slice.BGP)
	for i := range s.Nodes {
		s.Nodes[i].Routing.BGP = &slice.BGPNode{AS: uint32(65001 + i), Networks: s.Nodes[i].Loopbacks}
		other := &s.Nodes[1-i]
		for _, p := range other.Interfaces[0].Addresses {
			nb := slice.BGPNeighbor{Node: other.Name, Address: p.Addr(), AS: uint32(65002 - i)}
			s.Nodes[i].Routing.BGP.Neighbors = append(s.Nodes[i].Routing.BGP.Neighbors, nb)
		}
	}
	if v := probe.Converged(s, converge(s, all), nil); !v.Converged || v.Pairs != 4 {
		t.Errorf("got %+v, want the loopbacks of both systems, both families", v)
	}
	down := func(string) bool { return false }
	if v := probe.Converged(s, converge(s, down), down); !v.Converged || v.Pairs != 0 {
		t.Errorf("without the link: got %+v, want nothing to judge", v)
	}
}

func TestConvergedWantsStaticRoutesInTheKernel(t *testing.T) {
	s := grid(2, 1, slice.Static)
	to := netip.MustParsePrefix("192.0.2.0/24")
	s.Node("r001").Routing.Static = []slice.Route{{To: to, Blackhole: true}}
	if v := probe.Converged(s, converge(s, all), nil); v.Converged || v.Pairs != 1 {
		t.Errorf("before: got %+v", v)
	}
	tables := converge(s, all)
	table := tables["r001"]
	table.Routes = append(table.Routes, probe.Route{To: to, Type: probe.Blackhole})
	tables["r001"] = table
	if v := probe.Converged(s, tables, nil); !v.Converged || v.Pairs != 1 {
		t.Errorf("after: got %+v", v)
	}
}

func TestConvergedOfManyRouters(t *testing.T) {
	s := grid(25, 20, slice.OSPF)
	tables := converge(s, all)
	if v := probe.Converged(s, tables, nil); !v.Converged {
		t.Errorf("got %+v", v)
	}
	for name := range tables {
		tables[name] = probe.Table{Interfaces: tables[name].Interfaces}
	}
	if v := probe.Converged(s, tables, nil); v.Reached != 0 {
		t.Errorf("empty tables: got %d", v.Reached)
	}
}

// A look at 500 routers is to take less than 5 s on one core: `pergola wait` repeats it.
func BenchmarkConverged(b *testing.B) {
	s := grid(25, 20, slice.OSPF)
	tables := converge(s, all)
	for b.Loop() {
		if v := probe.Converged(s, tables, nil); !v.Converged {
			b.Fatalf("got %+v", v)
		}
	}
}
