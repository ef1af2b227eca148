package resolve

import (
	"cmp"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
	"github.com/pergola-net/pergola/model/topology/file"
)

// resolver is a topology on its way to a slice.
type resolver struct {
	diagnostic.Report
	t        *file.Topology
	prev     *slice.Slice
	complete bool // the files that the topology names must be present
	nodes    []*node
	byName   map[string]*node
	links    []*link // in the order of the file
	segments []*segment
	pools    pools
	out      *slice.Slice
}

// node is a node with its defaults and groups worked in.
type node struct {
	name string
	at   *diagnostic.Path
	own  file.Node       // as written
	all  file.Attributes // with groups and defaults
	kind slice.Kind
	prev *slice.Node // the node in the running version, or nil
	// Interfaces in the order of the file's links.
	interfaces []*port
	byName     map[string]*port
	protocols  []slice.Protocol
	routing    *slice.Routing
	loopbacks  []netip.Prefix
	routerID   netip.Addr
	out        slice.Node
}

// link is a link whose ends are known.
type link struct {
	index int
	at    *diagnostic.Path
	file.LinkAttributes
	in   file.Link
	name string
	key  string // names the link independently of chosen interface names: addresses hash it
	ends []*port
	prev *slice.Link
}

// port is one end of a link: an interface of a node.
type port struct {
	node    *node
	link    *link
	at      *diagnostic.Path // of the end
	name    string
	prev    *slice.Interface
	number  uint16
	in      file.Interface // what the node says about it
	shape   slice.Shape
	segment *segment
	written []writtenAddress
	out     slice.Interface
}

func (p *port) String() string { return p.node.name + ":" + p.name }

// lan reports whether a link is an Ethernet segment of its own, not a cable.
func (l *link) lan() bool { return l.in.LAN || len(l.in.Ends) > 2 }

// Slice turns a topology into a slice; nil where anything is wrong. Without complete, the files that the topology
// names need not be there. The diagnostics have paths, and no positions.
func Slice(t *file.Topology, prev *slice.Slice, complete bool) (*slice.Slice, diagnostic.Diagnostics) {
	r := &resolver{t: t, prev: prev, complete: complete,
		out: &slice.Slice{Name: t.Name, Attribution: t.Attribution}}
	if t.Placement == slice.Pack {
		r.out.Strategy = slice.Pack
	}
	if len(t.Nodes) > slice.MaxNodes {
		r.Add(diagnostic.Root.At("nodes"), "", "%d nodes: one network can have %d", len(t.Nodes),
			slice.MaxNodes)
		return nil, r.Found
	}
	if len(t.Links) > slice.MaxInterfaces/2 {
		r.Add(diagnostic.Root.At("links"), "", "%d links: one network can have %d", len(t.Links),
			slice.MaxInterfaces/2)
		return nil, r.Found
	}
	r.checkValues(reflect.ValueOf(t).Elem(), nil)
	r.checkName(diagnostic.Root.At("name"), "network", t.Name)
	if len(t.Nodes) == 0 {
		r.Add(diagnostic.Root.At("nodes"), "write nodes: [a, b]", "the topology has no nodes")
	}
	r.pools = r.makePools()
	r.makeNodes()
	r.makeLinks()
	r.nameInterfaces()
	r.shapeLinks()
	r.makeSegments()
	r.address()
	r.makeSlivers()
	r.tunnelSwitches()
	r.makeInterfaces()
	for _, n := range r.nodes {
		r.reserveRates(n)
		n.fitQueues()
	}
	r.route()
	r.makeChecks()
	if len(r.Found) > 0 {
		return nil, r.Found
	}
	s := r.result()
	r.makeLSPs(s)
	if r.checkQueueing(s); len(r.Found) > 0 {
		return nil, r.Found
	}
	return s, nil
}

// checkName wants a DNS label, for a node's name is also its host name.
func (r *resolver) checkName(at *diagnostic.Path, what, name string) {
	switch {
	case name == "" && what == "network":
		r.Add(nil, "write name: lab", "the network has no name")
	case len(name) > 63:
		r.Add(at, "", "%s name %.20q… has %d characters: at most 63", what, name, len(name))
	case !file.NamePattern.MatchString(name):
		r.Add(at, "letters, digits, - and _; first and last a letter or digit",
			"%q is not a name of a %s", name, what)
	}
}

// result writes the slice out: nodes, interfaces and links sorted by name.
func (r *resolver) result() *slice.Slice {
	for _, n := range r.nodes {
		out := n.out
		out.Loopbacks, out.Routing = n.loopbacks, n.routing
		for _, p := range n.interfaces {
			out.Interfaces = append(out.Interfaces, p.out)
		}
		slices.SortFunc(out.Interfaces, func(a, b slice.Interface) int { return cmp.Compare(a.Name, b.Name) })
		r.out.Nodes = append(r.out.Nodes, out)
	}
	for _, l := range r.links {
		out := slice.Link{Name: l.name, LAN: l.lan(), Tunnel: l.tunnel()}
		for _, p := range l.ends {
			out.Ends = append(out.Ends, slice.End{Node: p.node.name, Interface: p.name, Shape: p.shape})
		}
		r.out.Links = append(r.out.Links, out)
	}
	slices.SortFunc(r.out.Links, func(a, b slice.Link) int { return cmp.Compare(a.Name, b.Name) })
	return r.out
}

// unknownNode reports a name that no node has.
func (r *resolver) unknownNode(at *diagnostic.Path, name string) {
	hint := ""
	if len(r.Found) < diagnostic.MaxPrinted { // the search takes time in proportion to the nodes
		hint = diagnostic.Suggest(name, slices.Sorted(maps.Keys(r.t.Nodes)))
	}
	if hint == "" {
		hint = "add it under nodes:"
	}
	r.Add(at, hint, "no node is called %q", name)
}
