package probe

import "github.com/pergola-net/pergola/model/slice"

// network is a slice as convergence sees it: nodes and the Ethernet segments that join them.
type network struct {
	nodes []member
	index map[string]int // of a node, by name
	// segment numbers every interface's segment; interfaces that are down have none.
	segment map[attachment]int
	members [][]attachment // by segment
}

// member is a node that runs.
type member struct {
	node  *slice.Node
	table Table
	next  map[Hop]int // routers alone: the node that receives a packet that is sent there
}

// attachment is an interface of a node: the node's number and the interface's name.
type attachment struct {
	node int
	port string
}

// newNetwork joins what the slice says and what the kernels say. Nodes without a table do not run.
func newNetwork(s *slice.Slice, tables map[string]Table, up func(link string) bool) *network {
	w := &network{
		index:   map[string]int{},
		segment: map[attachment]int{},
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		t, runs := tables[n.Name]
		if !runs || !n.HasSliver() {
			continue
		}
		w.index[n.Name] = len(w.nodes)
		w.nodes = append(w.nodes, member{node: n, table: t})
	}
	w.join(s, up)
	for _, members := range w.members {
		for _, a := range members {
			if w.nodes[a.node].node.Kind == slice.Router {
				w.meet(a, members)
			}
		}
	}
	return w
}

// meet notes whom a router finds at an interface, by the addresses that their kernels have there.
func (w *network) meet(a attachment, members []attachment) {
	m := &w.nodes[a.node]
	if m.next == nil {
		m.next = map[Hop]int{}
	}
	for _, b := range members {
		i := w.nodes[b.node].table.Interface(b.port)
		if b == a || i == nil {
			continue
		}
		for _, p := range i.Addresses {
			m.next[Hop{Via: p.Addr(), Interface: a.port}] = b.node
		}
	}
}

// join numbers the segments. A segment is a link, or all links that switches join.
func (w *network) join(s *slice.Slice, up func(link string) bool) {
	groups := union{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Kind != slice.Switch {
			continue
		}
		first := ""
		for _, p := range n.Interfaces {
			if !up(p.Link) {
				continue
			}
			if first == "" {
				first = p.Link
			}
			groups.join(first, p.Link)
		}
	}
	numbers := map[string]int{}
	for i := range s.Links {
		l := &s.Links[i]
		if !up(l.Name) {
			continue
		}
		root := groups.root(l.Name)
		number, ok := numbers[root]
		if !ok {
			number = len(w.members)
			numbers[root] = number
			w.members = append(w.members, nil)
		}
		for _, e := range l.Ends {
			if n, ok := w.index[e.Node]; ok && w.nodes[n].hasCarrier(e.Interface) {
				a := attachment{n, e.Interface}
				w.segment[a] = number
				w.members[number] = append(w.members[number], a)
			}
		}
	}
}

// hasCarrier reports whether an interface is up. It is not where the node at its other end is off; nobody announces its
// network then.
func (m member) hasCarrier(port string) bool {
	i := m.table.Interface(port)
	return i == nil || i.Up
}

// union is a forest of names: two names belong together when their roots are one.
type union map[string]string

func (u union) root(name string) string {
	for {
		up, ok := u[name]
		if !ok || up == name {
			return name
		}
		if above, ok := u[up]; ok {
			u[name] = above // halve the path
		}
		name = up
	}
}

func (u union) join(a, b string) {
	if a, b = u.root(a), u.root(b); a != b {
		u[a] = b
	}
}
