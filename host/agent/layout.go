package agent

import (
	"net/netip"
	"slices"

	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

// place is a host, as it matters to what it must hold. The zero value but for the name is that of a machine in no cluster.
type place struct {
	host    string
	joined  bool                  // a cluster that began elsewhere: what was not placed is another's
	address netip.Addr            // of its ends of tunnels
	peers   map[string]netip.Addr // of the other hosts' ends, by host
	ways    map[string]int        // how long an IP packet may be to them, as far as they tell
	fenced  bool                  // may not have nodes that start elsewhere when it is lost; see fence.go
	terms   *hosts.Terms          // what its root lets slices have of it; nil: whatever they ask for
}

// is reports whether a host, as nodes and package slice name it, is this one.
func (p place) is(host string) bool {
	return host == p.host || host == "" && !p.joined
}

func (p place) owns(n *slice.Node) bool { return p.is(n.Host) }

// layout says which parts of a slice are here.
type layout struct {
	place
	nodes map[string]*slice.Node
	span  *slice.Span
}

func newLayout(s *slice.Slice, at place) *layout {
	y := &layout{place: at, nodes: make(map[string]*slice.Node, len(s.Nodes)), span: s.Span()}
	for i := range s.Nodes {
		y.nodes[s.Nodes[i].Name] = &s.Nodes[i]
	}
	return y
}

func (y *layout) isSwitch(node string) bool { return y.nodes[node].Kind == slice.Switch }

func isLAN(l *slice.Link) bool { return l.LAN || len(l.Ends) > 2 }

// hosts gives the hosts that have a node, or a bridge of a switch.
func (y *layout) hosts(n *slice.Node) []string {
	if n.Kind != slice.Switch {
		return []string{n.Host}
	}
	if hosts := y.span.Switch(n.Name); len(hosts) > 0 {
		return hosts
	}
	return []string{""} // nothing is plugged in: it is where the cluster began
}

// hasNode reports whether a node is here, or a bridge of a switch.
func (y *layout) hasNode(n *slice.Node) bool { return slices.ContainsFunc(y.hosts(n), y.is) }

// tells reports whether it is this host that tells how a node is.
func (y *layout) tells(n *slice.Node) bool { return y.is(y.hosts(n)[0]) }

// hasEnd reports whether an end of a link is plugged in here.
func (y *layout) hasEnd(e slice.End) bool { return y.is(y.span.Host(e)) }

// hasPart reports whether a part of a link is here.
func (y *layout) hasPart(l *slice.Link) bool { return slices.ContainsFunc(y.span.Link(l.Name), y.is) }

// holds reports whether anything of the slice is here.
func (y *layout) holds() bool {
	for _, n := range y.nodes {
		if y.hasNode(n) {
			return true
		}
	}
	return len(y.nodes) == 0 && !y.joined // somebody has to have it
}

// mtu is that of the widest end of some links: a bridge must take frames of all of them.
func (y *layout) mtu(links ...*slice.Link) (widest int) {
	for _, l := range links {
		for _, e := range l.Ends {
			widest = max(widest, y.nodes[e.Node].Interface(e.Interface).MTU)
		}
	}
	return widest
}
