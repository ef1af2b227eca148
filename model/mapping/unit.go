package mapping

import (
	"cmp"
	"fmt"
	"slices"
)

// unit is nodes that are placed as one, because they have to be on one host. Most units are a single node.
type unit struct {
	Name    string // of its first node
	Host    string // that a node of it is pinned to; empty: none is
	Demand  Resources
	Rate    uint64
	members []Node // sorted by name
}

// unitsOf makes units of nodes, sorted by name.
func unitsOf(nodes []Node, together [][]string) ([]unit, error) {
	byName := make(map[string]Node, len(nodes))
	for _, n := range nodes {
		if _, twice := byName[n.Name]; twice {
			return nil, fmt.Errorf("map nodes to hosts: two nodes are called %s", n.Name)
		}
		byName[n.Name] = n
	}
	units, joined := make([]unit, 0, len(nodes)), map[string]bool{}
	for _, names := range together {
		members := make([]Node, 0, len(names))
		for _, name := range names {
			n, known := byName[name]
			if !known || joined[name] {
				return nil, fmt.Errorf("map nodes to hosts: %q is no node, or is joined twice", name)
			}
			members, joined[name] = append(members, n), true
		}
		if len(members) > 0 {
			units = append(units, newUnit(members))
		}
	}
	for _, n := range nodes {
		if !joined[n.Name] {
			units = append(units, newUnit([]Node{n}))
		}
	}
	slices.SortFunc(units, func(a, b unit) int { return cmp.Compare(a.Name, b.Name) })
	return units, nil
}

func newUnit(members []Node) unit {
	slices.SortFunc(members, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	u := unit{Name: members[0].Name, members: members}
	for _, m := range members {
		u.Host = cmp.Or(u.Host, m.Host)
		u.Demand, u.Rate = u.Demand.Plus(m.Demand), u.Rate+m.Rate
	}
	return u
}

// others are the names of all nodes but the first.
func (u *unit) others() (names []string) {
	for _, m := range u.members[1:] {
		names = append(names, m.Name)
	}
	return names
}

// homes are the hosts that nodes of a unit are on now: first those that have most of them.
func (u *unit) homes(now Mapping) (hosts []string) {
	count := map[string]int{}
	for _, m := range u.members {
		h, runs := now[m.Name]
		if !runs {
			continue
		}
		if count[h]++; count[h] == 1 {
			hosts = append(hosts, h)
		}
	}
	slices.SortFunc(hosts, func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
	return hosts
}
