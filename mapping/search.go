package mapping

import (
	"cmp"
	"slices"
)

// search looks for the best mapping: it builds many, and changes the best.
type search struct {
	*builder
	o      Options
	effort int
	best   *state
	kept   *state // where the next change begins
	out    []int  // nodes that a change takes off their hosts
}

func newSearch(p *problem, o Options) *search {
	return &search{builder: newBuilder(p, o.Seed), o: o, effort: cmp.Or(o.Effort, DefaultEffort), best: newState(p)}
}

func (s *search) run() *state {
	for i := range s.o.Known {
		s.state.copyFrom(newState(s.problem))
		s.restore(&s.o.Known[i])
		s.note()
	}
	s.buildAll()
	s.improve()
	return s.best
}

// spent reports whether a share of the effort is spent, or the caller wants an end.
func (s *search) spent(share float64) bool {
	return float64(s.find.looks) >= share*float64(s.effort) || s.o.Stop != nil && s.o.Stop()
}

// note keeps the state if it is the best so far.
func (s *search) note() bool {
	if !s.state.better(s.best) {
		return false
	}
	s.best.copyFrom(s.state)
	return true
}

// buildAll builds a mapping from each host, the most promising first, for at most half of the effort.
func (s *search) buildAll() {
	starts := make([]int, len(s.strength))
	for h := range starts {
		starts[h] = h
	}
	slices.SortStableFunc(starts, func(a, b int) int { return cmp.Compare(s.strength[b], s.strength[a]) })
	empty := newState(s.problem)
	for i, h := range starts {
		if i > 0 && s.spent(0.5) {
			return
		}
		s.state.copyFrom(empty)
		s.build(h)
		s.note()
	}
}

// improve takes some nodes of the best mapping off their hosts and places them again, over and over. What is worse than
// the best by a little is kept too (record-to-record travel: Dueck, "New Optimization Heuristics", 1993), the less the
// more of the effort is spent.
func (s *search) improve() {
	if len(s.at) == 0 {
		return
	}
	s.kept = newState(s.problem)
	s.state.copyFrom(s.best)
	s.kept.copyFrom(s.best)
	const slack = 0.04
	idle, most := 0, 200+40*len(s.at)
	for begun := s.find.looks; idle < most && !s.spent(1); idle++ {
		s.ruin()
		s.recreate()
		done := float64(s.find.looks-begun) / float64(max(s.effort-begun, 1))
		limit := s.best.cost * (1 + slack*max(1-done, 0))
		switch {
		case s.note():
			idle = 0
			s.kept.copyFrom(s.state)
		case s.missing < s.kept.missing, s.missing == s.kept.missing && (s.missing > 0 || s.cost <= limit):
			s.kept.copyFrom(s.state)
		default:
			s.state.copyFrom(s.kept)
		}
	}
}

// ruin takes nodes off their hosts: one that costs much or has no host, and some around it.
func (s *search) ruin() {
	s.out = s.out[:0]
	first := s.pick()
	s.remove(first)
	most := min(len(s.at), 3+len(s.at)/4)
	for more := s.random.IntN(most); more > 0; more-- {
		n := s.out[s.random.IntN(len(s.out))]
		if links := s.linksOf[n]; len(links) > 0 && s.random.IntN(4) > 0 {
			n = s.other(links[s.random.IntN(len(links))], n)
		} else {
			n = s.random.IntN(len(s.at))
		}
		if !slices.Contains(s.out, n) {
			s.remove(n)
		}
	}
	for n, h := range s.at { // those that had none
		if h == nowhere && !slices.Contains(s.out, n) {
			s.out = append(s.out, n)
		}
	}
}

func (s *search) remove(n int) {
	s.out = append(s.out, n)
	if s.at[n] != nowhere {
		s.take(n)
	}
}

// pick chooses a node without a host, else of two nodes the one whose links are longer.
func (s *search) pick() int {
	if s.missing > 0 && s.random.IntN(4) > 0 {
		for n, skip := 0, s.random.IntN(s.missing); ; n++ {
			if s.at[n] != nowhere {
				continue
			}
			if skip == 0 {
				return n
			}
			skip--
		}
	}
	a, b := s.random.IntN(len(s.at)), s.random.IntN(len(s.at))
	if s.excess(a) > s.excess(b) {
		return a
	}
	return b
}

// excess is what the links of a node cost beyond one hop each.
func (s *search) excess(n int) float64 {
	sum := 0.0
	for _, l := range s.linksOf[n] {
		sum += s.worth[l] * float64(len(s.paths[l])-1)
	}
	return sum
}

// recreate places the nodes that ruin took: by their ties, with noise or without, or in any order, of which some begin
// with the node for whose sake the others were taken. Noise leads to other hosts than before.
func (s *search) recreate() {
	order := [...]float64{0, 1, anyOrder}[s.random.IntN(3)]
	noise := [...]float64{0, 0.1, 0.3}[s.random.IntN(3)]
	if s.random.IntN(3) == 0 {
		s.insert(s.out[0], noise)
		s.out = slices.Delete(s.out, 0, 1)
	}
	for len(s.out) > 0 {
		s.insert(s.next(&s.out, order), noise)
	}
}
