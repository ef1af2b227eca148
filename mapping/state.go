package mapping

import "slices"

// state is a mapping in progress.
type state struct {
	*problem
	at      []int       // by node: its host, or nowhere
	paths   [][]int32   // by link: trunks, from the host of its first end to that of its second
	routed  []bool      // by link: it has a path, which is empty where both ends are on one host
	free    [][]float64 // by host and kind: room that is left
	left    []float64   // by trunk: bandwidth
	nodesAt []int       // by host: nodes of this request
	nodesIn []int       // by site
	moved   int         // nodes on another host than their home
	missing int         // nodes without a host
	cost    float64     // of the links that are routed and the nodes that are placed: bit/s times hops
}

const nowhere = -1

func newState(p *problem) *state {
	st := &state{
		problem: p,
		at:      slices.Repeat([]int{nowhere}, len(p.r.Nodes)),
		paths:   make([][]int32, len(p.r.Links)), routed: make([]bool, len(p.r.Links)),
		left:    slices.Clone(p.spare),
		nodesAt: make([]int, len(p.s.Hosts)), nodesIn: make([]int, p.sites),
		missing: len(p.r.Nodes),
	}
	for _, room := range p.room {
		st.free = append(st.free, slices.Clone(room))
	}
	return st
}

// copyFrom makes a state the same as another one of the same problem.
func (st *state) copyFrom(other *state) {
	copy(st.at, other.at)
	copy(st.routed, other.routed)
	copy(st.left, other.left)
	copy(st.nodesAt, other.nodesAt)
	copy(st.nodesIn, other.nodesIn)
	for h, free := range other.free {
		copy(st.free[h], free)
	}
	for l, path := range other.paths {
		st.paths[l] = append(st.paths[l][:0], path...)
	}
	st.moved, st.missing, st.cost = other.moved, other.missing, other.cost
}

// better reports whether a state is nearer to what is wanted: fewer nodes without a host, then less cost. What differs
// by less than a rounding error is equal.
func (st *state) better(than *state) bool {
	if st.missing != than.missing {
		return st.missing < than.missing
	}
	return st.cost < than.cost-than.cost*1e-9
}

// fits reports whether node n, which has no host, can be on host h as far as the host is concerned.
func (st *state) fits(n, h int) bool {
	return st.may[n][h] && st.hasRoom(n, st.free[h]) && !st.crowded(h) && !st.joinsRival(n, h) && !st.strays(n, h)
}

// strays reports whether node n would be one more of those that leave their homes than may.
func (st *state) strays(n, h int) bool {
	return st.leaves(n, h) && st.moves != unbounded && st.moved >= st.moves
}

func (p *problem) leaves(n, h int) bool { return p.home[n] != nowhere && p.home[n] != h }

// crowded reports whether a host or its site has as many nodes of the request as it may.
func (st *state) crowded(h int) bool {
	return st.r.PerHost > 0 && st.nodesAt[h] >= st.r.PerHost ||
		st.r.PerSite > 0 && st.nodesIn[st.site[h]] >= st.r.PerSite
}

// joinsRival reports whether a node that n has to be apart from is on a host.
func (st *state) joinsRival(n, h int) bool {
	if len(st.apart[n]) == 0 || st.nodesAt[h] == 0 {
		return false
	}
	return slices.ContainsFunc(st.apart[n], func(m int) bool { return st.at[m] == h })
}

// put places node n, which has no host, on a host that it fits.
func (st *state) put(n, h int) {
	st.count(n, h, 1)
	st.at[n] = h
}

// take removes node n from its host, and the paths of its links.
func (st *state) take(n int) {
	for _, l := range st.linksOf[n] {
		if st.routed[l] {
			st.unroute(l)
		}
	}
	st.count(n, st.at[n], -1)
	st.at[n] = nowhere
}

func (st *state) count(n, h, by int) {
	for k, wanted := range st.demand[n] {
		st.free[h][k] -= float64(by) * wanted
	}
	if st.leaves(n, h) {
		st.moved += by
	}
	if by < 0 {
		st.nodesAt[h] += by
	}
	st.cost += float64(by) * (st.hostCost(n, h) + st.wakeCost(h))
	if by > 0 {
		st.nodesAt[h] += by
	}
	st.nodesIn[st.site[h]] += by
	st.missing -= by
}

// wakeCost is what the first node on a host costs.
func (st *state) wakeCost(h int) float64 {
	if st.nodesAt[h] == 0 && st.s.Hosts[h].Asleep {
		return st.wake
	}
	return 0
}

// hostCost is what a node's host adds to the cost.
func (p *problem) hostCost(n, h int) float64 { return crowdedHosts * p.filled[h] * p.weight[n] }

// route gives link l a path, which a finder has found.
func (st *state) route(l int, path []int32) {
	st.paths[l] = append(st.paths[l][:0], path...)
	st.routed[l] = true
	st.hold(l, 1)
}

func (st *state) unroute(l int) {
	st.hold(l, -1)
	st.paths[l], st.routed[l] = st.paths[l][:0], false
}

func (st *state) hold(l int, by float64) {
	bandwidth, worth := by*st.r.Links[l].Bandwidth, by*st.worth[l]
	for _, t := range st.paths[l] {
		st.left[t] -= bandwidth
		st.cost += worth * st.price[t]
	}
}

// other is the node at the other end of a link of node n.
func (p *problem) other(l, n int) int {
	return p.ends[l][0] + p.ends[l][1] - n
}

// mapping gives the state with names.
func (st *state) mapping() Mapping {
	m := Mapping{Hosts: make(map[string]string, len(st.at)), Paths: make([][]int, len(st.paths))}
	for n, h := range st.at {
		m.Hosts[st.r.Nodes[n].Name] = st.s.Hosts[h].Name
	}
	for l, path := range st.paths {
		for _, t := range path {
			m.Paths[l] = append(m.Paths[l], int(t))
		}
	}
	return m
}
