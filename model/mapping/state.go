package mapping

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// state is a mapping in progress. Hosts, nodes and links are referred to by their index in the sorted inputs.
type state struct {
	hosts    []Host
	nodes    []unit
	total    int // nodes in all units
	links    []Link
	linksOf  [][]int          // by unit
	at       []int            // by unit: its host, or nowhere
	on       []ends           // by link
	reserves []map[int]uint64 // by link and unit: bit/s that its nodes have reserved of it together
	reserved []map[int]uint64 // by link and host: bit/s that the nodes there have reserved of it together
	used     []Resources
	ports    []map[string]string // by host: ports that nodes have, and whose they are
	rate     []uint64            // by host: bit/s of the links that leave it
	count    []int               // by host: nodes of this request
	strategy Strategy
}

// ends counts a link's units on each host that has some.
type ends map[int]int

const nowhere = -1

// newState checks the request and sorts it by name, so that the result does not depend on the order of the input.
func newState(s Substrate, r Request) (*state, error) {
	st := &state{hosts: slices.Clone(s.Hosts), total: len(r.Nodes), links: r.Links,
		strategy: cmp.Or(r.Strategy, Spread)}
	if st.strategy != Spread && st.strategy != Pack {
		return nil, fmt.Errorf("map nodes to hosts: unknown strategy %q: spread or pack", r.Strategy)
	}
	slices.SortFunc(st.hosts, func(a, b Host) int { return cmp.Compare(a.Name, b.Name) })
	for i := range len(st.hosts) - 1 {
		if st.hosts[i].Name == st.hosts[i+1].Name {
			return nil, fmt.Errorf("map nodes to hosts: two hosts are called %s", st.hosts[i].Name)
		}
	}
	var err error
	if st.nodes, err = unitsOf(r.Nodes, r.Together); err != nil {
		return nil, err
	}
	if err := st.joinNodes(); err != nil {
		return nil, err
	}
	st.at = slices.Repeat([]int{nowhere}, len(st.nodes))
	st.used, st.rate = make([]Resources, len(st.hosts)), make([]uint64, len(st.hosts))
	st.count, st.ports = make([]int, len(st.hosts)), make([]map[string]string, len(st.hosts))
	for i, h := range st.hosts {
		st.used[i], st.rate[i] = h.Used, h.UsedRate
		st.ports[i] = map[string]string{}
		maps.Copy(st.ports[i], h.Ports)
	}
	return st, nil
}

// joinNodes finds the links of each unit.
func (st *state) joinNodes() error {
	index := map[string]int{}
	for i := range st.nodes {
		for _, m := range st.nodes[i].members {
			index[m.Name] = i
		}
	}
	st.linksOf, st.on = make([][]int, len(st.nodes)), make([]ends, len(st.links))
	st.reserves, st.reserved = make([]map[int]uint64, len(st.links)), make([]map[int]uint64, len(st.links))
	for l, link := range st.links {
		st.on[l], st.reserves[l], st.reserved[l] = ends{}, map[int]uint64{}, map[int]uint64{}
		for i, name := range link.Nodes {
			n, known := index[name]
			if !known {
				return fmt.Errorf("map nodes to hosts: a link ends at %s, which is no node", name)
			}
			st.reserves[l][n] += link.Reserved[name]
			of := st.linksOf[n]
			switch {
			case len(of) == 0 || of[len(of)-1] != l:
				st.linksOf[n] = append(of, l)
			case slices.Contains(link.Nodes[:i], name):
				return fmt.Errorf("map nodes to hosts: a link ends at %s twice", name)
			}
		}
	}
	return nil
}

// carriers lists the hosts that carry link l: none while its placed nodes are on one host.
func (st *state) carriers(l int) ends {
	if len(st.on[l]) < 2 {
		return nil
	}
	return st.on[l]
}

// carried is the rate of link l that leaves host c, if its nodes there have reserved so much more of it.
func (st *state) carried(l, c int, more uint64) uint64 {
	return st.links[l].Carries(st.reserved[l][c] + more)
}

// put places node n on host h, or takes it off its host (nowhere). It does not check whether h can take it.
func (st *state) put(n, h int) {
	old := st.at[n]
	for _, l := range st.linksOf[n] {
		for c := range st.carriers(l) {
			st.rate[c] -= st.carried(l, c, 0)
		}
		reserved := st.reserves[l][n]
		if old != nowhere {
			if st.on[l][old]--; st.on[l][old] == 0 {
				delete(st.on[l], old)
			}
			st.reserved[l][old] -= reserved
		}
		if h != nowhere {
			st.on[l][h]++
			st.reserved[l][h] += reserved
		}
		for c := range st.carriers(l) {
			st.rate[c] += st.carried(l, c, 0)
		}
	}
	demand := st.nodes[n].Demand
	if old != nowhere {
		st.used[old] = st.used[old].Minus(demand)
		st.rate[old] -= st.nodes[n].Rate
		st.count[old] -= len(st.nodes[n].members)
		for _, m := range st.nodes[n].members {
			for _, p := range m.Ports {
				delete(st.ports[old], p)
			}
		}
	}
	if h != nowhere {
		st.used[h] = st.used[h].Plus(demand)
		st.rate[h] += st.nodes[n].Rate
		st.count[h] += len(st.nodes[n].members)
		for _, m := range st.nodes[n].members {
			for _, p := range m.Ports {
				st.ports[h][p] = "node " + m.Name
			}
		}
	}
	st.at[n] = h
}

// whyForbidden says why unit n may not be on host h, independently of others; empty where it may. Nodes that are on
// that host now stay there also if it takes no new nodes.
func (st *state) whyForbidden(n, h int, now Mapping) string {
	u, host := &st.nodes[n], &st.hosts[h]
	for i := range u.members {
		m := &u.members[i]
		switch why := m.whyForbidden(host, now[m.Name] == host.Name, u.Host == host.Name); {
		case m.Host != "" && m.Host != host.Name && len(u.members) > 1:
			return fmt.Sprintf("node %s is pinned to %s", m.Name, m.Host)
		case why != "":
			return why
		}
	}
	return ""
}

// whyForbidden says why a node may not be on a host. present: it is there now; pinned: its unit stays if host drains.
func (node *Node) whyForbidden(host *Host, present, pinned bool) string {
	switch {
	case node.Host != "" && node.Host != host.Name:
		return "the node is pinned to " + node.Host
	case host.Draining && (!present || !pinned):
		return "is being drained"
	case host.Closed != "" && !present:
		return host.Closed
	case host.Cordoned && !present:
		return "is cordoned"
	}
	for _, need := range node.Needs {
		if !slices.Contains(host.Features, need) {
			return "its kernel lacks " + need
		}
	}
	for _, name := range slices.Sorted(maps.Keys(node.Labels)) {
		if value, has := host.Labels[name]; !has {
			return fmt.Sprintf("has no label %s", name)
		} else if value != node.Labels[name] {
			return fmt.Sprintf("its label %s is %s, not %s", name, value, node.Labels[name])
		}
	}
	return node.Barred[host.Name]
}

// whyFull says why host h has no room for unit n, which is not placed; empty where it has.
func (st *state) whyFull(n, h int) string {
	if why := st.nodes[n].Demand.WhyFull(st.used[h], st.hosts[h].Capacity); why != "" {
		return why
	}
	own := map[string]string{}
	for _, m := range st.nodes[n].members {
		for _, p := range m.Ports {
			if whose := cmp.Or(st.ports[h][p], own[p]); whose != "" {
				return fmt.Sprintf("its port %s is reserved for %s", p, whose)
			}
			own[p] = "node " + m.Name
		}
	}
	return st.whySlow(n, h)
}

// whySlow says which host's links, and nodes that reach the outside, would need more than the rate of its interface if
// node n, which is not placed, were on host h; empty where all have enough.
func (st *state) whySlow(n, h int) string {
	own := st.nodes[n].Rate
	added := map[int]uint64{h: own} // by host
	for _, l := range st.linksOf[n] {
		for _, c := range st.carriersWith(l, h) {
			more := uint64(0)
			if c == h {
				more = st.reserves[l][n]
			}
			added[c] += st.carried(l, c, more)
			if len(st.on[l]) > 1 && st.on[l][c] > 0 { // it carries the link already
				added[c] -= st.carried(l, c, 0)
			}
		}
	}
	if rate, here := st.rate[h]+added[h], &st.hosts[h]; here.Rate > 0 && own > 0 && rate > here.Rate {
		return fmt.Sprintf("what leaves %s would need %s of %s", here.Name, bits(rate), bits(here.Rate))
	}
	for _, l := range st.linksOf[n] {
		for _, c := range st.carriersWith(l, h) {
			rate := st.rate[c] + added[c]
			if over := &st.hosts[c]; over.Rate > 0 && st.links[l].Rate > 0 && rate > over.Rate {
				return fmt.Sprintf("links that leave %s would need %s of %s", over.Name, bits(rate),
					bits(over.Rate))
			}
		}
	}
	return ""
}

// carriersWith lists, sorted, the hosts that would carry link l if another of its nodes were on host h.
func (st *state) carriersWith(l, h int) []int {
	hosts := maps.Clone(st.on[l])
	if hosts[h]++; len(hosts) < 2 {
		return nil
	}
	return slices.Sorted(maps.Keys(hosts))
}

// whyNarrow says which link of node n a host could not carry if n were on host h; empty where all can be carried.
func (st *state) whyNarrow(n, h int) string {
	for _, l := range st.linksOf[n] {
		for _, c := range st.carriersWith(l, h) {
			if narrow := &st.hosts[c]; narrow.MTU > 0 && narrow.MTU < st.links[l].MTU {
				return fmt.Sprintf("a link from it would need packets of %d bytes, %s has %d",
					st.links[l].MTU, narrow.Name, narrow.MTU)
			}
		}
	}
	return ""
}

// bits prints a rate as iproute2 does.
func bits(rate uint64) string {
	for _, unit := range []struct {
		size uint64
		name string
	}{{1e9, "Gbit/s"}, {1e6, "Mbit/s"}, {1e3, "kbit/s"}} {
		if rate >= unit.size {
			return fmt.Sprintf("%.4g %s", float64(rate)/float64(unit.size), unit.name)
		}
	}
	return fmt.Sprintf("%d bit/s", rate)
}
