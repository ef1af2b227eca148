package resolve

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/address"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
)

// Limits of BGP sessions: a full mesh grows with the square of its routers.
const (
	maxMesh     = 200
	maxSessions = 500_000
)

// bgp makes the sessions: between autonomous systems one on every link, inside one between loopbacks, either a full
// mesh or, where there are route reflectors, from each of them to all routers.
func (r *resolver) bgp(systems disjoint) {
	type system struct {
		root int
		as   uint32
	}
	groups := map[system][]*node{}
	var order []system
	for i, n := range r.nodes {
		if n.kind != slice.Router || !n.mayspeakBGP() || !r.checkAS(n) {
			continue
		}
		key := system{systems.find(i), n.all.AS}
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], n)
		if n.routing.BGP != nil {
			r.originate(n)
		}
	}
	sessions := 0
	for _, s := range r.segments {
		sessions += r.exterior(s, maxSessions-sessions)
	}
	for _, key := range order {
		sessions += r.interiorSessions(groups[key])
	}
	if sessions > maxSessions {
		r.Add(diagnostic.Root.At("nodes"), "use fewer route reflectors, or smaller systems",
			"more than %d BGP sessions", maxSessions)
	}
	for _, n := range r.nodes {
		if n.routing != nil && n.routing.BGP != nil {
			slices.SortStableFunc(n.routing.BGP.Neighbors, func(a, b slice.BGPNeighbor) int {
				return cmp.Or(cmp.Compare(a.Node, b.Node), a.Address.Compare(b.Address))
			})
		}
	}
}

// mayspeakBGP reports whether a router has sessions: by what the file says, or by its own configuration, of which the
// AS number is all that is known.
func (n *node) mayspeakBGP() bool { return n.speaks(slice.BGP) || n.ownConfig() && n.all.AS != 0 }

func (r *resolver) checkAS(n *node) bool {
	switch n.all.AS {
	case 0:
		r.Add(n.at.At("routing"), "write as: 65001", "%q is to speak BGP and has no AS number", n.name)
		return false
	case 23456, 65535, 4294967295: // RFC 6793, RFC 7300
		r.Add(n.at.At("as"), "64512 to 65534 are for private use", "AS number %d is reserved", n.all.AS)
		return false
	}
	return true
}

// originate announces a router's loopbacks, the networks of the hosts beside it and what is written.
func (r *resolver) originate(n *node) {
	networks := map[netip.Prefix]bool{}
	for _, p := range n.loopbacks {
		networks[p.Masked()] = true
	}
	for _, p := range n.interfaces {
		if !slices.ContainsFunc(p.segment.members, func(m *port) bool { return m.node.kind == slice.Host }) {
			continue
		}
		for _, a := range p.out.Addresses {
			networks[a.Masked()] = !a.Addr().IsLinkLocalUnicast()
		}
	}
	for i, text := range n.all.Networks {
		p, err := netip.ParsePrefix(text)
		if err != nil || p != p.Masked() {
			r.Add(n.at.At("networks").Item(i), "write such as 203.0.113.0/24", "%q is not a network", text)
			continue
		}
		networks[p] = true
	}
	for p, announced := range networks {
		if announced {
			n.routing.BGP.Networks = append(n.routing.BGP.Networks, p)
		}
	}
	slices.SortFunc(n.routing.BGP.Networks, netip.Prefix.Compare)
}

// exterior makes the sessions of a segment between different autonomous systems, and gives their number.
func (r *resolver) exterior(s *segment, room int) (sessions int) {
	var speakers []*port
	for _, p := range s.routers {
		if p.node.all.AS != 0 && p.node.mayspeakBGP() {
			speakers = append(speakers, p)
		}
	}
	for _, p := range speakers {
		if p.node.routing.BGP == nil {
			continue // its own files configure its sessions
		}
		for _, q := range speakers {
			if q.node.all.AS == p.node.all.AS {
				continue
			}
			for family := range address.Families {
				address := q.first(family)
				if !address.IsValid() || !p.first(family).IsValid() {
					continue
				}
				if sessions++; sessions > room {
					return sessions
				}
				p.node.routing.BGP.Neighbors = append(p.node.routing.BGP.Neighbors, slice.BGPNeighbor{
					Node: q.node.name, Address: address, AS: q.node.all.AS, PointToPoint: s.cable,
				})
			}
		}
	}
	return sessions
}

// interiorSessions makes the sessions inside one system, and gives their number.
func (r *resolver) interiorSessions(group []*node) (sessions int) {
	if len(group) == 1 {
		return 0
	}
	reflectors := 0
	for _, n := range group {
		if n.reflects() {
			reflectors++
		}
		if !n.speaksInterior() && !n.speaks(slice.Static) && !n.ownConfig() {
			r.Add(n.at.At("routing"), "write routing: [ospf, bgp]",
				"%q shares AS %d with other routers and speaks no interior protocol: sessions inside "+
					"an AS run between loopbacks, which need one", n.name, n.all.AS)
		}
	}
	if reflectors == 0 && len(group) > maxMesh {
		r.Add(group[0].at, "write reflector: true in one or two of them",
			"AS %d has %d routers: too many for a full mesh", group[0].all.AS, len(group))
		return 0
	}
	for _, n := range group {
		if n.routing.BGP == nil {
			continue
		}
		border := len(n.routing.BGP.Neighbors) > 0
		for _, peer := range group {
			if peer == n || reflectors > 0 && !n.reflects() && !peer.reflects() {
				continue
			}
			sessions += n.interiorSession(peer, border, reflectors > 0 && n.reflects() && !peer.reflects())
			if sessions > maxSessions {
				return sessions
			}
		}
	}
	return sessions
}

func (n *node) reflects() bool { return n.all.Reflector != nil && *n.all.Reflector }

// interiorSession makes n's side of its sessions with a peer, one for each family.
func (n *node) interiorSession(peer *node, border, client bool) (sessions int) {
	for family := range address.Families {
		to, from := peer.loopback(family), n.loopback(family)
		if !to.IsValid() || !from.IsValid() {
			continue
		}
		sessions++
		n.routing.BGP.Neighbors = append(n.routing.BGP.Neighbors, slice.BGPNeighbor{
			Node: peer.name, Address: to.Addr(), AS: peer.all.AS, Source: from.Addr(), Client: client,
			NextHopSelf: border,
		})
	}
	return sessions
}
