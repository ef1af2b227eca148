// Package probe looks into the network namespaces of running nodes, from outside and without starting a process in
// them: routing tables, convergence, ping, path and capture.
//
// Everything begins with the pid of a process of the node. Sockets are opened inside the node's namespace and used
// from outside it. A socket keeps its namespace alive, so nothing here holds one for longer than the node lives.
//
// What "converged" means is written down in docs/convergence.md; converged.go is its implementation.
package probe

import (
	"net/netip"
	"slices"
)

// Table is what the kernel of one node knows, at one moment.
type Table struct {
	Interfaces []Interface `json:"interfaces"`
	Routes     []Route     `json:"routes"` // of the main table, both families

	// Elsewhere marks a node of another host, of which the slice's word is all that is known here; see Expected.
	Elsewhere bool `json:"-"`
}

// Interface is a network device of a node.
type Interface struct {
	Name      string         `json:"name"`
	Index     int            `json:"index"`
	Up        bool           `json:"up"` // set up, and has a carrier
	MTU       int            `json:"mtu"`
	Addresses []netip.Prefix `json:"addresses,omitempty"` // link-local ones too
}

// RouteType says what a route does with a packet.
type RouteType string

// The types of route; the words are those of iproute2.
const (
	Unicast     RouteType = "unicast"
	Blackhole   RouteType = "blackhole"
	Unreachable RouteType = "unreachable"
	Prohibit    RouteType = "prohibit"
)

// Route is one route. Where the kernel has several of one prefix, the one with the smallest metric counts.
type Route struct {
	To       netip.Prefix `json:"to"`
	Type     RouteType    `json:"type"`
	Metric   uint32       `json:"metric,omitempty"`
	Protocol string       `json:"protocol"` // that installed it, as in rtnetlink(7) and iproute2's rt_protos
	Hops     []Hop        `json:"hops,omitempty"`
}

// Hop is one next hop of a route. Hops over a link without a carrier are left out.
type Hop struct {
	Via       netip.Addr `json:"via,omitzero"` // not valid: the destination is on the link itself
	Interface string     `json:"interface"`
}

// Equal reports whether two looks at a node saw the same.
func (t Table) Equal(other Table) bool {
	return slices.EqualFunc(t.Interfaces, other.Interfaces, func(a, b Interface) bool {
		return a.Name == b.Name && a.Index == b.Index && a.Up == b.Up && a.MTU == b.MTU &&
			slices.Equal(a.Addresses, b.Addresses)
	}) && slices.EqualFunc(t.Routes, other.Routes, func(a, b Route) bool {
		return a.To == b.To && a.Type == b.Type && a.Metric == b.Metric && slices.Equal(a.Hops, b.Hops)
	})
}

// Interface gives the interface of that name, or nil.
func (t Table) Interface(name string) *Interface {
	for i := range t.Interfaces {
		if t.Interfaces[i].Name == name {
			return &t.Interfaces[i]
		}
	}
	return nil
}
