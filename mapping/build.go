package mapping

import (
	"math"
	"math/rand/v2"
)

// builder places the nodes of a state.
type builder struct {
	*state
	find   *finder
	random *rand.Rand
	score  []float64 // by host: what the node that is being placed would cost there
}

func newBuilder(p *problem, seed uint64) *builder {
	return &builder{state: newState(p), find: newFinder(p), random: rand.New(rand.NewPCG(seed, 0)),
		score: make([]float64, len(p.s.Hosts))}
}

// build places all nodes that have no host, and that find one. The first goes to the given host, if it may.
func (b *builder) build(first int) {
	var waiting []int
	for n, h := range b.at {
		if h == nowhere {
			waiting = append(waiting, n)
		}
	}
	begun := false
	for len(waiting) > 0 {
		n := b.next(&waiting, 0)
		if !begun && b.ties(n) == 0 && b.fits(n, first) && b.settle(n, first) {
			begun = true
			continue
		}
		b.insert(n, 0)
	}
}

// next takes a node off the list: one that only one host can have, else the one with the most bandwidth to nodes that
// have a host, else the one with the most bandwidth. Noise makes the order vary; anyOrder is random.
func (b *builder) next(waiting *[]int, noise float64) int {
	list, at, most := *waiting, 0, -1.0
	for i, n := range list {
		rank := b.ties(n) + b.weight[n]*1e-3
		switch {
		case noise == anyOrder:
			rank = b.random.Float64()
		case noise > 0:
			rank *= 1 + noise*b.random.Float64()
		}
		if b.r.Nodes[n].Host != "" {
			rank = math.MaxFloat64
		}
		if rank > most {
			at, most = i, rank
		}
	}
	n := list[at]
	*waiting = append(list[:at], list[at+1:]...)
	return n
}

const anyOrder = math.MaxFloat64

// ties is the worth of the links from node n to nodes that have a host.
func (b *builder) ties(n int) float64 {
	sum := 0.0
	for _, l := range b.linksOf[n] {
		if b.at[b.other(l, n)] != nowhere {
			sum += b.worth[l]
		}
	}
	return sum
}

// insert places node n where it costs least, and routes its links; false if none of the cheapest hosts can have it.
func (b *builder) insert(n int, noise float64) bool {
	const tries = 8
	b.rate(n, noise)
	for range tries {
		h := b.cheapest(n)
		if h == nowhere {
			return false
		}
		if b.settle(n, h) {
			return true
		}
		b.score[h] = math.Inf(1)
	}
	return false
}

// rate finds out what node n would cost on each host; infinite where a link has no path. The paths are found one by
// one, so several together may not have the bandwidth.
func (b *builder) rate(n int, noise float64) {
	for h := range b.score {
		b.score[h] = b.hostCost(n, h) + b.wakeCost(h)
	}
	alone := true
	for _, l := range b.linksOf[n] {
		host := b.at[b.other(l, n)]
		if host == nowhere {
			continue
		}
		alone = false
		b.find.spread(b.left, l, host, nowhere)
		worth, dist := b.worth[l], b.find.dist
		for h := range b.score {
			b.score[h] += worth * dist[h]
		}
	}
	if alone {
		for h := range b.score {
			b.score[h] = 1/(1+b.strength[h]) + b.wakeCost(h)
		}
		noise = max(noise, 1e-9) // of equal hosts, any
	}
	if noise == 0 {
		return
	}
	for h := range b.score {
		b.score[h] *= 1 + noise*b.random.Float64()
	}
}

func (b *builder) cheapest(n int) int {
	found, least := nowhere, math.Inf(1)
	for h, score := range b.score {
		if score < least && b.fits(n, h) {
			found, least = h, score
		}
	}
	return found
}

// settle places node n on host h and routes its links to nodes that have a host; false if that cannot be done.
func (b *builder) settle(n, h int) bool {
	b.put(n, h)
	for _, l := range b.linksOf[n] {
		if b.at[b.other(l, n)] != nowhere && !b.find.connect(b.state, l) {
			b.take(n)
			return false
		}
	}
	return true
}
