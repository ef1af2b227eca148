package speakers

import (
	"cmp"
	"net/netip"

	"github.com/pergola-net/pergola/host/agent/labels"
	"github.com/pergola-net/pergola/host/agent/observe"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/routing"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

// Router is a router that is to speak RSVP-TE.
type Router struct {
	Name       string
	NetNS      uint64 // inode of its network namespace
	PID        int    // of a process in it
	ID         netip.Addr
	Space      uint32                // of its labels
	Interfaces map[int]Interface     // by their ifindexes in the router
	LSPs       []*slice.LSP          // that begin here
	Tunnels    map[uint32]*slice.LSP // all of the network that are signalled, by ID
	Guard      bool                  // some of them want to be sent round a link that fails
	Network    *slice.Slice
	Overrides  *slice.Overrides
	Elsewhere  slice.LinkState // of the links at routers of other hosts
	// FloodsLinks says that its daemons are to be told what is unreserved.
	FloodsLinks bool
}

// Interface is an interface of such a router.
type Interface struct {
	Name       string
	Port       int                    // the substrate's end of it
	Prefix     netip.Prefix           // the router's own address
	Bandwidth  unit.Rate              // that LSPs can reserve
	Neighbours map[netip.Addr][6]byte // by the addresses by which they speak
	Down       bool
	Afar       bool // routers of other hosts are at it
	MTU        int  // of IP
}

// DefaultBandwidth is what LSPs can reserve of a link without a rate: the speed that the kernel gives veth devices.
const DefaultBandwidth unit.Rate = 10_000_000_000

// Of works out which routers of a host are to speak: all that have labels, of networks with an LSP that is signalled,
// as any of them may come to be on its path. It is pure.
func Of(at plan.Place, inputs []plan.Input, seen *observe.Snapshot) map[sliver.ID]*Router {
	all := map[sliver.ID]*Router{}
	for i := range inputs {
		w := &inputs[i]
		if w.Corrupt != nil || !w.Spec.IsSignalled() {
			continue
		}
		n := newNetwork(w, at, seen)
		for j := range w.Spec.Nodes {
			node := &w.Spec.Nodes[j]
			if r := n.router(node); r != nil {
				all[sliver.ID{Slice: w.Spec.ID, Node: node.Name}] = r
			}
		}
	}
	return all
}

// network is one with signalled LSPs.
type network struct {
	*plan.Input
	at       plan.Place
	seen     *observe.Snapshot
	nodes    map[string]*slice.Node
	segments map[string]*slice.Segment // by link
	tunnels  map[uint32]*slice.LSP
	begin    map[string][]*slice.LSP // by ingress
	guard    bool                    // see Router
}

func newNetwork(w *plan.Input, at plan.Place, seen *observe.Snapshot) *network {
	n := &network{Input: w, at: at, seen: seen, nodes: make(map[string]*slice.Node, len(w.Spec.Nodes)),
		segments: make(map[string]*slice.Segment, len(w.Spec.Links)), tunnels: map[uint32]*slice.LSP{},
		begin: map[string][]*slice.LSP{}}
	for i := range w.Spec.LSPs {
		if l := &w.Spec.LSPs[i]; l.Signal != nil {
			n.tunnels[l.ID] = l
			n.begin[l.Ingress()] = append(n.begin[l.Ingress()], l)
			n.guard = n.guard || l.Signal.Protect != ""
		}
	}
	for i := range w.Spec.Nodes {
		n.nodes[w.Spec.Nodes[i].Name] = &w.Spec.Nodes[i]
	}
	for _, seg := range w.Spec.Segments() {
		for _, l := range seg.Links {
			n.segments[l.Name] = seg
		}
	}
	return n
}

// router gives a router as it is to speak; nil: it does not.
func (n *network) router(node *slice.Node) *Router {
	id := sliver.ID{Slice: n.Spec.ID, Node: node.Name}
	address, ok := node.Address(false)
	if !n.at.Owns(node) || !node.SwitchesLabels() || !ok || n.seen.NetNS[id] == 0 {
		return nil
	}
	r := &Router{Name: node.Name, NetNS: n.seen.NetNS[id], PID: n.seen.Slivers[id].PID, ID: address,
		Space: labels.SpaceOf(id.Slice, node), Interfaces: map[int]Interface{}, Network: n.Spec,
		Overrides: &n.Overrides, Tunnels: n.tunnels, Guard: n.guard, Elsewhere: n.LinkState,
		FloodsLinks: routing.FloodsLinks(node)}
	index := make(map[int]int, len(n.seen.Legs[id])) // of an interface, by its port
	for inner, port := range n.seen.Legs[id] {
		index[port] = inner
	}
	for i := range node.Interfaces {
		at := &node.Interfaces[i]
		port := n.seen.Ports[slice.PortName(n.Spec.ID, at.Port)]
		inner := index[port]
		if is, ok := n.iface(node, at); ok && port != 0 && inner != 0 {
			is.Port = port
			r.Interfaces[inner] = is
		}
	}
	r.LSPs = n.begin[node.Name]
	return r
}

// iface gives an interface that other routers may be at; false: there are none, or it has no IPv4 address.
func (n *network) iface(node *slice.Node, at *slice.Interface) (is Interface, ok bool) {
	seg := n.segments[at.Link]
	address, has := ipv4Of(at)
	if seg == nil || !has {
		return is, false
	}
	is = Interface{Name: at.Name, Prefix: address, Bandwidth: bandwidth(n.Spec, &n.Overrides, node.Name, at),
		Neighbours: map[netip.Addr][6]byte{}, Down: n.Overrides.Down[at.Link], MTU: at.MTU}
	others, gone := 0, 0
	for _, l := range seg.Links {
		for _, e := range l.Ends {
			other := n.nodes[e.Node]
			if other == nil || other == node || !other.SwitchesLabels() {
				continue
			}
			others++
			is.Afar = is.Afar || !n.at.Owns(other)
			if n.isGone(other) {
				gone++
			}
			n.addNeighbour(&is, other, e.Interface)
		}
	}
	is.Down = is.Down || others > 0 && others == gone
	return is, others > 0
}

func (n *network) addNeighbour(to *Interface, other *slice.Node, name string) {
	at := other.Interface(name)
	mac, ok := labels.MACOf(other, name)
	if at == nil || !ok {
		return
	}
	if address, ok := ipv4Of(at); ok { // by which it speaks
		to.Neighbours[address.Addr()] = mac
	}
}

// isGone reports whether a node is switched off, or is one of this host that does not run. What else ends nodes of
// other hosts is not known here.
func (n *network) isGone(node *slice.Node) bool {
	id := sliver.ID{Slice: n.Spec.ID, Node: node.Name}
	return n.Overrides.Power[node.Name] == slice.PowerOff || n.at.Owns(node) && n.seen.NetNS[id] == 0
}

func ipv4Of(at *slice.Interface) (netip.Prefix, bool) {
	for _, p := range at.Addresses {
		if p.Addr().Is4() {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// bandwidth is what LSPs can reserve of a link in the direction away from a node: its rate, as it is changed by hand,
// without what classes have reserved.
func bandwidth(s *slice.Slice, o *slice.Overrides, node string, at *slice.Interface) unit.Rate {
	l := s.Link(at.Link)
	if l == nil {
		return 0
	}
	for _, e := range l.Ends {
		if e.Node != node || e.Interface != at.Name {
			continue
		}
		shape, changed := o.Shapes[e.String()]
		if !changed {
			shape = e.Shape
		}
		return reservable(shape)
	}
	return DefaultBandwidth
}

func reservable(s slice.Shape) unit.Rate {
	rate := cmp.Or(s.Rate, DefaultBandwidth)
	if s.Police.Rate != 0 {
		rate = min(rate, s.Police.Rate)
	}
	for _, c := range s.Classes {
		rate -= min(rate, c.Reserve)
	}
	return rate
}
