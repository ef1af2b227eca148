package mapping

import (
	"fmt"
	"sort"
)

// state is a mapping that is being made. Hosts, nodes and links are indexes into the sorted inputs.
type state struct {
	hosts    []Host
	nodes    []Node
	links    []Link
	ends     [][]int // by link: its nodes
	linksOf  [][]int // by node
	at       []int   // by node: its host, or nowhere
	used     []Resources
	rate     []uint64 // by host: what links that leave it hold
	count    []int    // by host: nodes of this request
	strategy Strategy
}

const nowhere = -1

// newState checks the request and sorts it by name, so that the order of the input means nothing.
func newState(s Substrate, r Request) (*state, error) {
	st := &state{hosts: append([]Host(nil), s.Hosts...), nodes: append([]Node(nil), r.Nodes...), links: r.Links, strategy: r.Strategy}
	switch st.strategy {
	case "":
		st.strategy = Spread
	case Spread, Pack:
	default:
		return nil, fmt.Errorf("map nodes to hosts: unknown strategy %q: spread or pack", r.Strategy)
	}
	sort.Slice(st.hosts, func(i, j int) bool { return st.hosts[i].Name < st.hosts[j].Name })
	sort.Slice(st.nodes, func(i, j int) bool { return st.nodes[i].Name < st.nodes[j].Name })
	index := map[string]int{}
	for i, n := range st.nodes {
		if _, twice := index[n.Name]; twice {
			return nil, fmt.Errorf("map nodes to hosts: two nodes are called %s", n.Name)
		}
		index[n.Name] = i
	}
	st.linksOf, st.ends = make([][]int, len(st.nodes)), make([][]int, len(st.links))
	for l, link := range st.links {
		for _, name := range link.Nodes {
			n, known := index[name]
			if !known {
				return nil, fmt.Errorf("map nodes to hosts: a link ends at %s, which is no node", name)
			}
			st.ends[l] = append(st.ends[l], n)
			st.linksOf[n] = append(st.linksOf[n], l)
		}
	}
	st.at = make([]int, len(st.nodes))
	for i := range st.at {
		st.at[i] = nowhere
	}
	st.used, st.rate, st.count = make([]Resources, len(st.hosts)), make([]uint64, len(st.hosts)), make([]int, len(st.hosts))
	for i, h := range st.hosts {
		st.used[i], st.rate[i] = h.Used, h.UsedRate
	}
	return st, nil
}

// loads adds to the hosts' rates what the links of node n hold with every node where it is now; sign is 1 or -1. To move a node: take its links' loads away, change at, add them.
func (st *state) loads(n int, add bool) {
	for _, l := range st.linksOf[n] {
		for _, h := range st.carriers(l) {
			if add {
				st.rate[h] += st.links[l].Rate
			} else {
				st.rate[h] -= st.links[l].Rate
			}
		}
	}
}

// carriers lists the hosts that carry link l: none while all its nodes that have a place share one host.
func (st *state) carriers(l int) []int {
	var hosts []int
	for _, n := range st.ends[l] {
		if h := st.at[n]; h != nowhere && !contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	if len(hosts) < 2 {
		return nil
	}
	return hosts
}

func contains(list []int, x int) bool {
	for _, y := range list {
		if x == y {
			return true
		}
	}
	return false
}

// put gives node n the host h, or takes its host away (nowhere). It asks nobody whether h can.
func (st *state) put(n, h int) {
	st.loads(n, false)
	demand := st.nodes[n].Demand
	if old := st.at[n]; old != nowhere {
		st.used[old].Cores -= demand.Cores
		st.used[old].Memory -= demand.Memory
		st.count[old]--
	}
	st.at[n] = h
	if h != nowhere {
		st.used[h].Cores += demand.Cores
		st.used[h].Memory += demand.Memory
		st.count[h]++
	}
	st.loads(n, true)
}

// allowed says why node n may not be on host h whatever else is there; empty: it may. A node that is there already
// stays on a cordoned host.
func (st *state) allowed(n, h int, there bool) string {
	node, host := &st.nodes[n], &st.hosts[h]
	switch {
	case node.Host != "" && node.Host != host.Name:
		return "the node is pinned to " + node.Host
	case host.Draining && (!there || node.Host != host.Name):
		return "is being drained"
	case host.Cordoned && !there:
		return "is cordoned"
	}
	names := make([]string, 0, len(node.Labels))
	for name := range node.Labels {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if value, has := host.Labels[name]; !has {
			return fmt.Sprintf("has no label %s", name)
		} else if value != node.Labels[name] {
			return fmt.Sprintf("its label %s is %s, not %s", name, value, node.Labels[name])
		}
	}
	return ""
}

// room says why host h has no room for node n, which is nowhere; empty: it has.
func (st *state) room(n, h int) string {
	demand, host := st.nodes[n].Demand, &st.hosts[h]
	// Sums of fractions of a core are not exact: a millionth of a core is no reason to refuse.
	if free := host.Capacity.Cores - st.used[h].Cores; demand.Cores > 0 && demand.Cores > free+1e-6 {
		return fmt.Sprintf("%.4g cores wanted, %.4g of %.4g free", demand.Cores, max(free, 0), host.Capacity.Cores)
	}
	if free := host.Capacity.Memory - min(st.used[h].Memory, host.Capacity.Memory); demand.Memory > free {
		return fmt.Sprintf("%d MiB of memory wanted, %d of %d MiB free", demand.Memory>>20, free>>20, host.Capacity.Memory>>20)
	}
	st.put(n, h)
	defer st.put(n, nowhere)
	for _, l := range st.linksOf[n] {
		for _, c := range st.carriers(l) {
			if over := &st.hosts[c]; over.Rate > 0 && st.links[l].Rate > 0 && st.rate[c] > over.Rate {
				return fmt.Sprintf("links that leave %s would need %s of %s", over.Name, bits(st.rate[c]), bits(over.Rate))
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
