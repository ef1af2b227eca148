package topology

import (
	"cmp"
	"net/netip"
	"reflect"
	"slices"

	"github.com/pergola-net/pergola/model/slice"
)

// Resolve turns what a user wrote into a slice in which every default is written out, every name and address is
// chosen and every file is present. Prev is the version of the slice that runs now, or nil: what it chose is kept
// where the same thing still exists. The slice is nil where anything is wrong.
func (t *Topology) Resolve(prev *slice.Slice) (*slice.Slice, Diagnostics) {
	s, found := t.resolve(prev, true)
	if len(found) > 0 {
		return nil, t.Locate(found)
	}
	return s, nil
}

// resolver is a topology on its way to a slice.
type resolver struct {
	report
	t        *Topology
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
	at   *place
	own  Node       // as written
	all  Attributes // with groups and defaults
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
	at    *place
	LinkAttributes
	in   Link
	name string
	key  string // names the link independently of chosen interface names: addresses hash it
	ends []*port
	prev *slice.Link
}

// port is one end of a link: an interface of a node.
type port struct {
	node    *node
	link    *link
	at      *place // of the end
	name    string
	prev    *slice.Interface
	number  uint16
	in      Interface // what the node says about it
	shape   slice.Shape
	segment *segment
	written []writtenAddress
	out     slice.Interface
}

func (p *port) String() string { return p.node.name + ":" + p.name }

// lan reports whether a link is an Ethernet segment of its own, not a cable.
func (l *link) lan() bool { return l.in.LAN || len(l.in.Ends) > 2 }

func (t *Topology) resolve(prev *slice.Slice, complete bool) (*slice.Slice, Diagnostics) {
	r := &resolver{t: t, prev: prev, complete: complete, out: &slice.Slice{Name: t.Name, Attribution: t.Attribution}}
	if t.Placement == slice.Pack {
		r.out.Strategy = slice.Pack
	}
	if len(t.Nodes) > slice.MaxNodes {
		r.add((*place)(nil).at("nodes"), "", "%d nodes: one network can have %d", len(t.Nodes), slice.MaxNodes)
		return nil, r.found
	}
	if len(t.Links) > slice.MaxInterfaces/2 {
		r.add((*place)(nil).at("links"), "", "%d links: one network can have %d", len(t.Links), slice.MaxInterfaces/2)
		return nil, r.found
	}
	r.checkValues(reflect.ValueOf(t).Elem(), nil)
	r.checkName((*place)(nil).at("name"), "network", t.Name)
	if len(t.Nodes) == 0 {
		r.add((*place)(nil).at("nodes"), "write nodes: [a, b]", "the topology has no nodes")
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
	r.route()
	r.makeChecks()
	if len(r.found) > 0 {
		return nil, r.found
	}
	return r.result(), nil
}

// checkName wants a DNS label, for a node's name is also its host name.
func (r *resolver) checkName(at *place, what, name string) {
	switch {
	case name == "" && what == "network":
		r.add(nil, "write name: lab", "the network has no name")
	case len(name) > 63:
		r.add(at, "", "%s name %.20q… has %d characters: at most 63", what, name, len(name))
	case !namePattern.MatchString(name):
		r.add(at, "letters, digits, - and _; first and last a letter or digit", "%q is not a name of a %s", name, what)
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
func (r *resolver) unknownNode(at *place, name string) {
	hint := ""
	if len(r.found) < maxPrinted { // the search takes time in proportion to the nodes
		hint = suggest(name, sortedKeys(r.t.Nodes))
	}
	if hint == "" {
		hint = "add it under nodes:"
	}
	r.add(at, hint, "no node is called %q", name)
}
