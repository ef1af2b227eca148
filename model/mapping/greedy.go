package mapping

import (
	"math"
	"slices"
)

// Greedy maps a request onto a substrate. A node keeps the host that it has in now while that is allowed. Nodes that
// have to be on one host are placed, and move, as one: where they are on several, to the one that has most. The others
// are placed one after the other: first those that are pinned to a host, then always the node with the most link rate
// to placed nodes. Each goes to the host of its neighbours where strategy and capacity allow. Then nodes are moved
// while that reduces the cut, the sum of the rates of links between hosts. If a node finds no host in this order,
// Greedy starts again with the greatest demands first, as bin packing does. The error is an *Impossible, or says what
// is wrong with the request.
//
// Time: O(nodes × (nodes + hosts) × links of a node). It is a heuristic: it can fail where a mapping exists.
func Greedy(s Substrate, r Request, now Mapping) (Mapping, error) {
	var err error
	for _, order := range []order{byTies, byDemand} {
		var st *state
		if st, err = newState(s, r); err != nil {
			return nil, err
		}
		free := st.keep(now)
		if err = st.place(free, order); err == nil {
			st.improve(free)
			return st.mapping(), nil
		}
	}
	return nil, err
}

// keep leaves every node that may stay on its host, and returns the others.
func (st *state) keep(now Mapping) (free []int) {
	host := map[string]int{}
	for h := range st.hosts {
		host[st.hosts[h].Name] = h
	}
	for n := range st.nodes {
		for _, home := range st.nodes[n].homes(now) {
			h, exists := host[home]
			if exists && st.whyForbidden(n, h, now) == "" && st.whyFull(n, h) == "" {
				st.put(n, h)
				break
			}
		}
		if st.at[n] == nowhere {
			free = append(free, n)
		}
	}
	return free
}

// order chooses the next of the nodes that are not placed.
type order func(st *state, free []int) (at int)

// place puts the free nodes; the error is an *Impossible.
func (st *state) place(free []int, next order) error {
	left := slices.Clone(free)
	parts := st.parts()
	for len(left) > 0 {
		i := next(st, left)
		n := left[i]
		left = slices.Delete(left, i, i+1)
		h, reasons := st.best(n, parts)
		if h == nowhere {
			return &Impossible{Node: st.nodes[n].Name, With: st.nodes[n].others(), Reasons: reasons}
		}
		st.put(n, h)
	}
	return nil
}

// parts is, by host, a number of nodes that is not exceeded while another host is below its own: with Spread, in
// proportion to its cores; equal parts where cores are not known. With Pack it is all nodes.
func (st *state) parts() []int {
	parts, sum := slices.Repeat([]int{st.total}, len(st.hosts)), 0.0
	if st.strategy == Pack {
		return parts
	}
	weights := make([]float64, len(st.hosts))
	for h, host := range st.hosts {
		if !host.Cordoned && !host.Draining && host.Closed == "" {
			weights[h] = max(host.Capacity[Cores], 1e-3)
			sum += weights[h]
		}
	}
	for h, w := range weights {
		if w > 0 {
			parts[h] = int(math.Ceil(float64(st.total)*w/sum - 1e-9))
		}
	}
	return parts
}

// best is the host for node n; or nowhere, and for each host the reason.
func (st *state) best(n int, parts []int) (int, map[string]string) {
	reasons, found := map[string]string{}, nowhere
	var chosen rank
	for h := range st.hosts {
		why := st.whyForbidden(n, h, nil)
		if why == "" {
			why = st.whyFull(n, h)
		}
		if why == "" {
			why = st.whyNarrow(n, h)
		}
		if why != "" {
			reasons[st.hosts[h].Name] = why
			continue
		}
		if r := st.rank(n, h, parts[h]); found == nowhere || r.better(chosen) {
			found, chosen = h, r
		}
	}
	return found, reasons
}

// rank compares hosts for one node; fields in the order in which they count.
type rank struct {
	over    bool    // the host would have more than its part
	tied    float64 // the weight of the node's links that would not leave the host
	filling float64 // preferred: low with Spread, high with Pack
	busy    float64
}

func (st *state) rank(n, h, part int) rank {
	over := st.count[h]+len(st.nodes[n].members) > part
	r := rank{over: over, tied: st.ties(n, h), filling: st.filling(h), busy: st.hosts[h].Busy}
	if st.strategy == Pack {
		r.filling = -r.filling
	}
	return r
}

func (r rank) better(than rank) bool {
	switch {
	case r.over != than.over:
		return than.over
	case r.tied != than.tied:
		return r.tied > than.tied
	case r.filling != than.filling:
		return r.filling < than.filling
	default:
		return r.busy < than.busy // of equal hosts, the first by name is kept
	}
}

// ties sums the weight of the links between node n and other nodes on host h.
func (st *state) ties(n, h int) float64 {
	sum := 0.0
	for _, l := range st.linksOf[n] {
		others := st.on[l][h]
		if st.at[n] == h {
			others--
		}
		if others > 0 {
			sum += weight(st.links[l].Rate)
		}
	}
	return sum
}

// weight is a link's rate in Mbit/s, and 1 where none is reserved.
func weight(rate uint64) float64 { return max(float64(rate)/1e6, 1) }

// filling is how full host h is, 0 to 1: the greatest of the shares of what it has that are used, and of its share of
// the request's nodes, which counts nodes without a demand.
func (st *state) filling(h int) float64 {
	full := float64(st.count[h]) / float64(st.total)
	for kind, capacity := range st.hosts[h].Capacity {
		if capacity > 0 {
			full = max(full, st.used[h][kind]/capacity)
		}
	}
	return full
}

// byTies chooses a pinned node, else the one with the strongest ties to placed nodes, else the one with the greatest
// demand.
func byTies(st *state, free []int) int {
	return first(free, func(a, b int) bool {
		if pa, pb := st.nodes[a].Host != "", st.nodes[b].Host != ""; pa != pb {
			return pa
		}
		if ta, tb := st.placedTies(a), st.placedTies(b); ta != tb {
			return ta > tb
		}
		return st.greater(a, b)
	})
}

// byDemand chooses a pinned node, else the one with the greatest demand.
func byDemand(st *state, free []int) int {
	return first(free, func(a, b int) bool {
		if pa, pb := st.nodes[a].Host != "", st.nodes[b].Host != ""; pa != pb {
			return pa
		}
		return st.greater(a, b)
	})
}

// first is the index of the least element; of equal ones the first.
func first(list []int, less func(a, b int) bool) int {
	at := 0
	for i := range list {
		if less(list[i], list[at]) {
			at = i
		}
	}
	return at
}

// placedTies sums the weight of the links between node n, which is not placed, and placed nodes.
func (st *state) placedTies(n int) float64 {
	sum := 0.0
	for _, l := range st.linksOf[n] {
		if len(st.on[l]) > 0 {
			sum += weight(st.links[l].Rate)
		}
	}
	return sum
}

func (st *state) greater(a, b int) bool {
	da, db := st.nodes[a].Demand, st.nodes[b].Demand
	for kind := range da {
		if da[kind] != db[kind] {
			return da[kind] > db[kind]
		}
	}
	return false
}

// improve moves the given nodes, one at a time, where that reduces the cut and the strategy allows it (Kernighan and
// Lin 1970, with single moves as in Fiduccia and Mattheyses 1982). Each move reduces the cut, so improve ends; ten
// rounds bound its time.
func (st *state) improve(movable []int) {
	const rounds = 10
	parts := st.parts()
	for range rounds {
		moved := false
		for _, n := range movable {
			from := st.at[n]
			st.put(n, nowhere)
			to, _ := st.best(n, parts)
			if to != nowhere && to != from && st.ties(n, to) > st.ties(n, from) {
				st.put(n, to)
				moved = true
			} else {
				st.put(n, from)
			}
		}
		if !moved {
			return
		}
	}
}

func (st *state) mapping() Mapping {
	m := Mapping{}
	for n, h := range st.at {
		for _, node := range st.nodes[n].members {
			m[node.Name] = st.hosts[h].Name
		}
	}
	return m
}
