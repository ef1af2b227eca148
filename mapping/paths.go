package mapping

import (
	"math"
	"slices"
)

// finder finds cheapest paths. Its memory is used again for each.
type finder struct {
	*problem
	looks int // at trunks, so far

	dist   []float64 // by place: the price of a bit/s on the way there; infinite where there is none
	via    []step    // by place: how it is reached; valid where dist is finite, except at the beginning
	queue  []int32
	queued []bool

	bounded bool      // the labels, not via, say how places are reached
	labels  []label   // of places, in the order of hops
	first   []int32   // by place: its first label
	early   []float64 // by place: the least delay so far
	path    []int32
}

type step struct{ from, trunk int32 }

// label is one way to a place: the last of its steps, and the label before.
type label struct {
	place, trunk, before int32
	delay, price         float64
}

func newFinder(p *problem) *finder {
	n := len(p.arcs)
	return &finder{problem: p, dist: make([]float64, n), via: make([]step, n), queued: make([]bool, n),
		first: make([]int32, n), early: make([]float64, n)}
}

// spread finds the cheapest ways for link l from a place to one other, or to all (nowhere).
func (f *finder) spread(left []float64, l, from, to int) {
	for i := range f.dist {
		f.dist[i] = math.Inf(1)
	}
	f.dist[from] = 0
	link := &f.r.Links[l]
	f.bounded = link.Delay > 0
	if f.bounded {
		f.spreadWithin(left, link, from, to)
	} else {
		f.spreadFreely(left, link.Bandwidth, from, to)
	}
}

// spreadFreely is the algorithm of Bellman, Ford and Moore with a queue: prices differ little, so that nearly all
// places are reached first by their cheapest way.
func (f *finder) spreadFreely(left []float64, bandwidth float64, from, to int) {
	f.queue = append(f.queue[:0], int32(from))
	for i := 0; i < len(f.queue); i++ {
		here := f.queue[i]
		f.queued[here] = false
		sofar := f.dist[here]
		if to != nowhere && sofar >= f.dist[to] {
			continue
		}
		f.looks += len(f.arcs[here])
		for _, a := range f.arcs[here] {
			price := sofar + f.price[a.trunk]
			if price >= f.dist[a.to] || left[a.trunk]+tolerance < bandwidth {
				continue
			}
			f.dist[a.to], f.via[a.to] = price, step{here, a.trunk}
			if !f.queued[a.to] {
				f.queued[a.to] = true
				f.queue = append(f.queue, a.to)
			}
		}
	}
}

// spreadWithin finds the ways with the fewest hops among those that keep the link's delay bound. Of each place it keeps
// every way that has less delay than all with fewer hops.
func (f *finder) spreadWithin(left []float64, link *Link, from, to int) {
	for i := range f.first {
		f.first[i], f.early[i] = nowhere, math.Inf(1)
	}
	f.labels = append(f.labels[:0], label{place: int32(from), trunk: nowhere, before: nowhere})
	f.first[from], f.early[from] = 0, 0
	for i := 0; i < len(f.labels); i++ {
		here := f.labels[i]
		if here.delay > f.early[here.place] {
			continue
		}
		f.looks += len(f.arcs[here.place])
		for _, a := range f.arcs[here.place] {
			delay := here.delay + f.s.Trunks[a.trunk].Delay
			if delay >= f.early[a.to] || delay > link.Delay*(1+delayTolerance) ||
				left[a.trunk]+tolerance < link.Bandwidth {
				continue
			}
			f.early[a.to] = delay
			next := label{a.to, a.trunk, int32(i), delay, here.price + f.price[a.trunk]}
			f.labels = append(f.labels, next)
			if f.first[a.to] == nowhere {
				f.first[a.to], f.dist[a.to] = int32(len(f.labels)-1), next.price
				if int(a.to) == to {
					return
				}
			}
		}
	}
}

// way is the path that the last spread found from one place to another; it is valid until the next.
func (f *finder) way(from, to int) []int32 {
	f.path = f.path[:0]
	if f.bounded {
		for i := f.first[to]; f.labels[i].before != nowhere; i = f.labels[i].before {
			f.path = append(f.path, f.labels[i].trunk)
		}
	} else {
		for at := int32(to); int(at) != from; at = f.via[at].from {
			f.path = append(f.path, f.via[at].trunk)
		}
	}
	slices.Reverse(f.path)
	return f.path
}

// connect routes link l, both ends of which have a host; false if there is no path.
func (f *finder) connect(st *state, l int) bool {
	a, b := st.at[f.ends[l][0]], st.at[f.ends[l][1]]
	if a == b {
		st.route(l, nil)
		return true
	}
	f.spread(st.left, l, a, b)
	if math.IsInf(f.dist[b], 1) {
		return false
	}
	st.route(l, f.way(a, b))
	return true
}
