package routing_test

import (
	"net/netip"

	"github.com/pergola-net/pergola/lab/daemons"
	"github.com/pergola-net/pergola/model/slice"
)

// square is four routers in a ring.
func square(kinds [4]slice.Daemon, p slice.Protocol) *slice.Slice {
	b := &daemons.Topology{}
	for i, name := range []string{"r1", "r2", "r3", "r4"} {
		b.Router(name, kinds[i], p)
	}
	b.Link("r1", "r2")
	b.Link("r2", "r3")
	b.Link("r3", "r4")
	b.Link("r4", "r1")
	return b.Done()
}

var (
	allFRR  = [4]slice.Daemon{slice.FRR, slice.FRR, slice.FRR, slice.FRR}
	allBIRD = [4]slice.Daemon{slice.BIRD, slice.BIRD, slice.BIRD, slice.BIRD}
	mixed   = [4]slice.Daemon{slice.FRR, slice.BIRD, slice.FRR, slice.BIRD}
)

// systems is AS 65001 with r1 (route reflector), r2 and r3, which run OSPF inside, and AS 65002, which is r4 behind
// r3. r4 also originates a prefix that nobody has.
func systems(kinds [4]slice.Daemon) *slice.Slice {
	b := &daemons.Topology{}
	for i, name := range []string{"r1", "r2", "r3", "r4"} {
		if b.Router(name, kinds[i], slice.OSPF, slice.BGP); name == "r4" {
			b.Slice.Node(name).Routing.Protocols = []slice.Protocol{slice.BGP}
		}
	}
	b.Link("r1", "r2")
	b.Link("r1", "r3")
	b.Link("r3", "r4")
	s := b.Done()
	for i := range s.Nodes {
		n := &s.Nodes[i]
		n.Routing.BGP = &slice.BGPNode{AS: 65001, Networks: n.Loopbacks}
	}
	four := s.Node("r4").Routing.BGP
	four.AS = 65002
	four.Networks = append([]netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}, four.Networks...)
	for _, client := range []string{"r2", "r3"} {
		for i, loopback := range s.Node(client).Loopbacks {
			hub := s.Node("r1").Loopbacks[i].Addr()
			add(s, "r1", slice.BGPNeighbor{
				Node: client, Address: loopback.Addr(), AS: 65001, Source: hub, Client: true,
			})
			add(s, client, slice.BGPNeighbor{
				Node: "r1", Address: hub, AS: 65001, Source: loopback.Addr(), NextHopSelf: true,
			})
		}
	}
	for i := range 2 {
		three := s.Node("r3").Interface("eth2").Addresses[i].Addr()
		four := s.Node("r4").Interface("eth1").Addresses[i].Addr()
		add(s, "r3", slice.BGPNeighbor{Node: "r4", Address: four, AS: 65002, PointToPoint: true})
		add(s, "r4", slice.BGPNeighbor{Node: "r3", Address: three, AS: 65001, PointToPoint: true})
	}
	return s
}

func add(s *slice.Slice, node string, n slice.BGPNeighbor) {
	bgp := s.Node(node).Routing.BGP
	bgp.Neighbors = append(bgp.Neighbors, n)
}

// office has what the others lack: a LAN with three routers, one of them in another area, a host's LAN, a passive
// interface, costs, static routes, fast hellos, and a link with a small MTU.
func office(daemon slice.Daemon, p slice.Protocol) *slice.Slice {
	b := &daemons.Topology{}
	for _, name := range []string{"r1", "r2", "r3", "r4"} {
		b.Router(name, daemon, p)
	}
	b.Host("h5")
	b.Link("r1", "r2", "r3")
	b.Link("r3", "r4")
	b.Link("r1", "h5")
	b.Slice.Node("r1").Interface("eth2").Passive = true
	b.Slice.Node("r1").Interface("eth1").Cost = 100
	for _, name := range []string{"r3", "r4"} {
		n := b.Slice.Node(name)
		last := &n.Interfaces[len(n.Interfaces)-1]
		last.Area, last.MTU = "0.0.0.1", 1400
		n.Routing.Timers.FastHellos = true
	}
	b.Slice.Node("r1").Routing.Static = []slice.Route{
		{To: netip.MustParsePrefix("192.0.2.0/24"), Blackhole: true},
		{To: netip.MustParsePrefix("198.51.100.0/24"), Interface: "eth2"},
		{To: netip.MustParsePrefix("2001:db8:ffff::/48"), Via: netip.MustParseAddr("2001:db8:1:3::1")},
	}
	return b.Done()
}
