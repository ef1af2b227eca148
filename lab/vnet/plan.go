package vnet

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/model/slice"
)

// Plan is what a network is to be.
type Plan struct {
	Slice uint16 // names the network's devices: no two networks on the same platform have the same
	Nodes []NodePlan
	Links []LinkPlan
}

// NodePlan is a router or a host.
type NodePlan struct {
	Name       string
	Router     bool
	Sysctls    map[string]string // set before there are interfaces: use "default" for those of interfaces
	Loopbacks  []netip.Prefix
	Objects    []Object
	Routes     []Route
	Neighbours []Neighbour
	LabelSpace uint32 // of a router that switches labels; 0: it does not
}

// LinkPlan joins two interfaces, or, with a switch between them, any number. One end alone the caller joins with
// something else.
type LinkPlan struct {
	LAN  bool
	Ends []End
}

// End is a node's interface.
type End struct {
	Node, Interface string
	MTU             int // 1500 where it is 0
	MAC             net.HardwareAddr
	Addresses       []netip.Prefix
	Shape           slice.Shape // of what the node sends
	// behind it is a line card, as where frames come in from outside; for hosts, on links of two
	NIC bool
}

// Route is one of the main table.
type Route struct {
	To     netip.Prefix
	Kind   uint8  // RTN_BLACKHOLE, ...; 0 stands for RTN_UNICAST
	Hops   []Hop  // more than one: ECMP
	Object uint32 // the next hop object, in place of Hops; 0: none
	Metric int
	Source netip.Addr // preferred, if valid
}

// Hop is a route's next hop.
type Hop struct {
	Via       netip.Addr // invalid: the destination is on the link; an IPv4 route's may be IPv6 (RFC 8950)
	Interface string
	Weight    int // 0 stands for 1
}

// Neighbour is an entry of a neighbour table.
type Neighbour struct {
	Interface string
	Address   netip.Addr
	MAC       net.HardwareAddr
	State     int // NUD_STALE, ...; 0 stands for NUD_PERMANENT
}

func (p *Plan) check() error {
	known := map[string]bool{}
	for _, n := range p.Nodes {
		if known[n.Name] {
			return fmt.Errorf("there are two nodes %s", n.Name)
		}
		known[n.Name] = true
	}
	for i, l := range p.Links {
		if n := len(l.Ends); !l.LAN && n != 1 && n != 2 {
			return fmt.Errorf("link %d has %d ends", i, len(l.Ends))
		}
		for _, e := range l.Ends {
			if !known[e.Node] {
				return fmt.Errorf("link %d ends at %s, which is no node", i, e.Node)
			}
		}
	}
	return nil
}

// Node finds a node's plan.
func (p *Plan) Node(name string) *NodePlan {
	for i := range p.Nodes {
		if p.Nodes[i].Name == name {
			return &p.Nodes[i]
		}
	}
	return nil
}

// String is in the words of ip-route(8).
func (r Route) String() string {
	var b strings.Builder
	if r.Kind != 0 && r.Kind != unix.RTN_UNICAST {
		b.WriteString(kindNames[r.Kind] + " ")
	}
	b.WriteString(r.To.String())
	if r.Object != 0 {
		fmt.Fprintf(&b, " nhid %d", r.Object)
	}
	for _, h := range r.Hops {
		if len(r.Hops) > 1 {
			b.WriteString(" nexthop")
		}
		if h.Via.IsValid() {
			b.WriteString(" via " + inet6(r, h) + h.Via.String())
		}
		if h.Interface != "" {
			b.WriteString(" dev " + h.Interface)
		}
		if h.Weight > 1 {
			fmt.Fprintf(&b, " weight %d", h.Weight)
		}
	}
	if r.Metric != 0 {
		fmt.Fprintf(&b, " metric %d", r.Metric)
	}
	if r.Source.IsValid() {
		b.WriteString(" src " + r.Source.String())
	}
	return b.String()
}

// inet6 is the word for a gateway of another family than the route's.
func inet6(r Route, h Hop) string {
	if r.To.Addr().Is4() && h.Via.Is6() {
		return "inet6 "
	}
	return ""
}

var kindNames = map[uint8]string{
	unix.RTN_BLACKHOLE: "blackhole", unix.RTN_UNREACHABLE: "unreachable", unix.RTN_PROHIBIT: "prohibit",
	unix.RTN_THROW: "throw",
	unix.RTN_LOCAL: "local",
}

// String is in the words of ip-neighbour(8).
func (n Neighbour) String() string {
	state := "nud permanent"
	if n.State != 0 {
		state = fmt.Sprintf("nud %#x", n.State)
	}
	return fmt.Sprintf("%s dev %s lladdr %s %s", n.Address, n.Interface, n.MAC, state)
}
