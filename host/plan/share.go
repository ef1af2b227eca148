package plan

import (
	"net/netip"
	"slices"

	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

// Place is one host among the others, as far as it decides what the host must hold. The zero value, but for Host, is
// that of a machine in no cluster.
type Place struct {
	Host     string                // its name in the cluster
	Joined   bool                  // a cluster that began elsewhere: a node without a host is another host's
	Address  netip.Addr            // of its ends of tunnels
	Peers    map[string]netip.Addr // of the other hosts' ends, by host
	PathMTUs map[string]int        // bytes of an IP packet that pass to other hosts, by host, as far as known
	Fenced   bool                  // may not have nodes that are rescheduled when the host is lost
	Card     unit.Rate             // what the card carries by which tunnels leave; 0: not known
	// Reservable is what nodes can reserve here, beside cores and memory.
	Reservable slice.Reserve
	Terms      *hosts.Terms // what its root grants to slices; nil: whatever they ask for
	// Allows is what its operator allows to every slice, wherever it is: of devices, some are for these alone.
	Allows hosts.Allowance
}

// is reports whether a host, as nodes and package slice name it, is this one.
func (p Place) is(host string) bool {
	return host == p.Host || host == "" && !p.Joined
}

// Owns reports whether a node is to be on this host.
func (p Place) Owns(n *slice.Node) bool { return p.is(n.Host) }

// Share says which parts of a slice are here.
type Share struct {
	Place
	nodes map[string]*slice.Node
	span  *slice.Span
}

// NewShare finds the parts of a slice that are at a place.
func NewShare(s *slice.Slice, at Place) *Share {
	y := &Share{Place: at, nodes: make(map[string]*slice.Node, len(s.Nodes)), span: s.Span()}
	for i := range s.Nodes {
		y.nodes[s.Nodes[i].Name] = &s.Nodes[i]
	}
	return y
}

// OwnsNamed reports whether the slice has a node of that name that is to be on this host.
func (y *Share) OwnsNamed(node string) bool {
	n := y.nodes[node]
	return n != nil && y.Owns(n)
}

func (y *Share) isSwitch(node string) bool { return y.nodes[node].Kind == slice.Switch }

func isLAN(l *slice.Link) bool { return l.LAN || len(l.Ends) > 2 }

// hosts gives the hosts that have a node, or a bridge of a switch.
func (y *Share) hosts(n *slice.Node) []string {
	if n.Kind != slice.Switch {
		return []string{n.Host}
	}
	if hosts := y.span.Switch(n.Name); len(hosts) > 0 {
		return hosts
	}
	return []string{""} // nothing is plugged in: it is where the cluster began
}

// hasNode reports whether a node is here, or a bridge of a switch.
func (y *Share) hasNode(n *slice.Node) bool { return slices.ContainsFunc(y.hosts(n), y.is) }

// ReportsOn reports whether it is this host that reports the status of a node.
func (y *Share) ReportsOn(n *slice.Node) bool { return y.is(y.hosts(n)[0]) }

// hasEnd reports whether an end of a link is plugged in here.
func (y *Share) hasEnd(e slice.End) bool { return y.is(y.span.Host(e)) }

// HasPart reports whether a part of a link is here.
func (y *Share) HasPart(l *slice.Link) bool { return slices.ContainsFunc(y.span.Link(l.Name), y.is) }

// Holds reports whether anything of the slice is here.
func (y *Share) Holds() bool {
	for _, n := range y.nodes {
		if y.hasNode(n) {
			return true
		}
	}
	return len(y.nodes) == 0 && !y.Joined // somebody has to have it
}

// mtu is that of the widest end of some links: a bridge must take frames of all of them.
func (y *Share) mtu(links ...*slice.Link) (widest int) {
	for _, l := range links {
		for _, e := range l.Ends {
			widest = max(widest, y.nodes[e.Node].Interface(e.Interface).MTU)
		}
	}
	return widest
}
