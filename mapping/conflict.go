package mapping

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
)

// constraint is a kind of what a request asks, and the same request without it.
type constraint struct {
	what string
	lift func(r *Request)
}

// is tells whether another one is of the same kind.
func (c constraint) is(other constraint) bool { return c.what == other.what }

// Conflict names constraints of a request that cannot be kept together: the fewest kinds of them that there are. It is
// nil where a mapping is found with all of them, and empty where none is found without any. What Map does not find
// counts as impossible.
//
// It leaves out one kind after another for as long as no mapping is found: none of those that remain can be left out.
// Others may be fewer: so it tries all that are, the fewest first. There are a dozen kinds, and mostly one or two are
// in conflict.
func Conflict(s Substrate, r Request, o Options) ([]string, error) {
	all := r.constraints()
	impossible := func(some []constraint) (bool, error) {
		only := r
		for i := range all {
			if !slices.ContainsFunc(some, all[i].is) {
				all[i].lift(&only)
			}
		}
		_, err := Map(s, only, o)
		if errors.Is(err, ErrImpossible) {
			return true, nil
		}
		return false, err
	}
	if is, err := impossible(all); !is || err != nil {
		return nil, err
	}
	if is, err := impossible(nil); is || err != nil {
		return []string{}, err
	}
	few := slices.Clone(all)
	for _, c := range all {
		without := slices.DeleteFunc(slices.Clone(few), c.is)
		is, err := impossible(without)
		if err != nil {
			return nil, err
		}
		if is {
			few = without
		}
	}
	for size := 1; size < len(few); size++ {
		for some := range choices(all, size) {
			is, err := impossible(some)
			if err != nil {
				return nil, err
			}
			if is {
				return namesOf(some), nil
			}
		}
	}
	return namesOf(few), nil
}

func namesOf(some []constraint) (names []string) {
	for _, c := range some {
		names = append(names, c.what)
	}
	return names
}

// choices gives every way to choose so many of a list, in the order of the list.
func choices[T any](list []T, size int) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		chosen := make([]T, 0, size)
		var choose func(from int) bool
		choose = func(from int) bool {
			if len(chosen) == size {
				return yield(slices.Clone(chosen))
			}
			for i := from; i <= len(list)-(size-len(chosen)); i++ {
				chosen = append(chosen, list[i])
				if !choose(i + 1) {
					return false
				}
				chosen = chosen[:len(chosen)-1]
			}
			return true
		}
		choose(0)
	}
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
