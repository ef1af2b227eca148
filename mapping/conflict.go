package mapping

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// constraint is a kind of what a request asks, and the same request without it.
type constraint struct {
	what string
	lift func(r *Request)
}

// Conflict names constraints of a request that cannot be kept together, and of which none can be left out for that: it
// leaves out one kind after another for as long as no mapping is found. It is nil where a mapping is found with all of
// them, and empty where none is found without any. What Map does not find counts as impossible.
func Conflict(s Substrate, r Request, o Options) ([]string, error) {
	fits := func(r Request) (bool, error) {
		_, err := Map(s, r, o)
		if errors.Is(err, ErrImpossible) {
			return false, nil
		}
		return err == nil, err
	}
	if all, err := fits(r); all || err != nil {
		return nil, err
	}
	keep := r.constraints()
	bare := r
	for _, c := range keep {
		c.lift(&bare)
	}
	if some, err := fits(bare); !some || err != nil {
		return []string{}, err
	}
	without := r // those that were found not to matter
	names := []string{}
	for _, c := range keep {
		next := without
		c.lift(&next)
		possible, err := fits(next)
		if err != nil {
			return nil, err
		}
		if possible {
			names = append(names, c.what)
		} else {
			without = next
		}
	}
	return names, nil
}

// constraints lists what a request asks. To lift one changes no other request that shares its nodes and links.
func (r *Request) constraints() []constraint {
	var all []constraint
	eachNode := func(what string, has func(n *Node) bool, lift func(n *Node)) {
		if slices.ContainsFunc(r.Nodes, func(n Node) bool { return has(&n) }) {
			all = append(all, constraint{what, func(r *Request) {
				r.Nodes = slices.Clone(r.Nodes)
				for i := range r.Nodes {
					lift(&r.Nodes[i])
				}
			}})
		}
	}
	eachLink := func(what string, has func(l *Link) bool, lift func(l *Link)) {
		if slices.ContainsFunc(r.Links, func(l Link) bool { return has(&l) }) {
			all = append(all, constraint{what, func(r *Request) {
				r.Links = slices.Clone(r.Links)
				for i := range r.Links {
					lift(&r.Links[i])
				}
			}})
		}
	}
	eachNode("pinned hosts", func(n *Node) bool { return n.Host != "" }, func(n *Node) { n.Host = "" })
	eachNode("kinds of host", func(n *Node) bool { return n.Kinds != nil }, func(n *Node) { n.Kinds = nil })
	eachNode("labels of hosts", func(n *Node) bool { return n.Labels != nil }, func(n *Node) { n.Labels = nil })
	eachNode("features of hosts", func(n *Node) bool { return n.Features != nil },
		func(n *Node) { n.Features = nil })
	eachNode("locations", func(n *Node) bool { return n.Near != nil }, func(n *Node) { n.Near = nil })
	names := map[string]bool{}
	for i := range r.Nodes {
		for name := range r.Nodes[i].Demand {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		eachNode(name, func(n *Node) bool { return n.Demand[name] > 0 }, func(n *Node) {
			n.Demand = maps.Clone(n.Demand)
			delete(n.Demand, name)
		})
	}
	eachLink("bandwidth of links", func(l *Link) bool { return l.Bandwidth > 0 }, func(l *Link) { l.Bandwidth = 0 })
	eachLink("delay bounds of links", func(l *Link) bool { return l.Delay > 0 }, func(l *Link) { l.Delay = 0 })
	if r.Apart != nil {
		all = append(all, constraint{"nodes that are to be apart", func(r *Request) { r.Apart = nil }})
	}
	if r.PerHost > 0 {
		what := fmt.Sprintf("at most %d of the nodes on a host", r.PerHost)
		all = append(all, constraint{what, func(r *Request) { r.PerHost = 0 }})
	}
	if r.PerSite > 0 {
		what := fmt.Sprintf("at most %d of the nodes at a site", r.PerSite)
		all = append(all, constraint{what, func(r *Request) { r.PerSite = 0 }})
	}
	return all
}
