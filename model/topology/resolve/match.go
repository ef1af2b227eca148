package resolve

import (
	"cmp"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/model/slice"
)

// matchLinks finds, for every link, the link of the running version that is the same one, and gives its ends the
// interfaces that they have there. In order of certainty: the same written name; the same written interface; the
// same nodes in the same order; the same nodes, parallel links by their age; for a LAN, a common member.
//
// A link with other nodes is another link. Where one of several parallel links without names was removed, it is assumed
// to be the youngest.
func (r *resolver) matchLinks() {
	if r.prev == nil {
		return
	}
	m := newMatcher(r.prev)
	for _, find := range []func(*link) *slice.Link{m.byName, m.byInterface, m.byOrder, m.byNodes, m.byMember} {
		for _, l := range r.links {
			if l.prev != nil {
				continue
			}
			if l.prev = find(l); l.prev != nil {
				m.claimed[l.prev] = true
			}
		}
	}
	for _, l := range r.links {
		if l.prev == nil {
			continue
		}
		for _, p := range l.ends {
			for _, e := range l.prev.Ends {
				if e.Node == p.node.name && p.node.prev != nil {
					p.prev = p.node.prev.Interface(e.Interface)
				}
			}
		}
	}
}

// matcher indexes the links of a running slice.
type matcher struct {
	names      map[string]*slice.Link
	interfaces map[string]*slice.Link   // by node:interface
	ordered    map[string][]*slice.Link // by the names of all nodes
	nodes      map[string][]*slice.Link // by the sorted names of all nodes
	members    map[string][]*slice.Link // LANs by one node
	claimed    map[*slice.Link]bool
}

func newMatcher(prev *slice.Slice) *matcher {
	m := &matcher{
		names: map[string]*slice.Link{}, interfaces: map[string]*slice.Link{},
		ordered: map[string][]*slice.Link{}, nodes: map[string][]*slice.Link{},
		members: map[string][]*slice.Link{}, claimed: map[*slice.Link]bool{},
	}
	age := map[*slice.Link]uint16{} // the port numbers of older links are lower
	numbers := map[string]uint16{}
	for _, n := range prev.Nodes {
		for _, i := range n.Interfaces {
			numbers[n.Name+":"+i.Name] = i.Port
		}
	}
	for i := range prev.Links {
		l := &prev.Links[i]
		m.names[l.Name] = l
		for _, e := range l.Ends {
			m.interfaces[e.String()] = l
			if l.LAN {
				m.members[e.Node] = append(m.members[e.Node], l)
			}
		}
		age[l] = numbers[l.Ends[0].String()]
		nodes := runningNames(l)
		order := strings.Join(nodes, " ")
		m.ordered[order] = append(m.ordered[order], l)
		key := nodeKey(nodes)
		m.nodes[key] = append(m.nodes[key], l)
	}
	older := func(a, b *slice.Link) int { return cmp.Compare(age[a], age[b]) }
	for _, index := range []map[string][]*slice.Link{m.ordered, m.nodes, m.members} {
		for _, links := range index {
			slices.SortFunc(links, older)
		}
	}
	return m
}

func nodeKey(nodes []string) string {
	slices.Sort(nodes)
	return strings.Join(nodes, " ")
}

// runningNames are the nodes that a link of the running version joins.
func runningNames(l *slice.Link) []string {
	nodes := make([]string, len(l.Ends))
	for i, e := range l.Ends {
		nodes[i] = e.Node
	}
	return nodes
}

// free gives a link of the running version back unless it is taken or of another form.
func (m *matcher) free(old *slice.Link, l *link) *slice.Link {
	if old == nil || m.claimed[old] || old.LAN != l.lan() || !old.LAN &&
		nodeKey(runningNames(old)) != nodeKey(endNames(l)) {
		return nil
	}
	return old
}

func (m *matcher) byName(l *link) *slice.Link { return m.free(m.names[l.in.Name], l) }

func (m *matcher) byInterface(l *link) *slice.Link {
	for _, e := range l.in.Ends {
		if old := m.free(m.interfaces[string(e)], l); old != nil {
			return old
		}
	}
	return nil
}

func (m *matcher) byOrder(l *link) *slice.Link {
	return m.first(m.ordered[strings.Join(endNames(l), " ")], l)
}

func (m *matcher) byNodes(l *link) *slice.Link { return m.first(m.nodes[nodeKey(endNames(l))], l) }

func (m *matcher) byMember(l *link) *slice.Link {
	if !l.lan() {
		return nil
	}
	for _, p := range l.ends {
		if old := m.first(m.members[p.node.name], l); old != nil {
			return old
		}
	}
	return nil
}

func (m *matcher) first(candidates []*slice.Link, l *link) *slice.Link {
	for _, old := range candidates {
		if old = m.free(old, l); old != nil {
			return old
		}
	}
	return nil
}
