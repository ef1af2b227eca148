package resolve

import (
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
)

// number gives each its ID, and those that are signalled a number that is another one where something else is asked
// for.
func (r *lspResolver) number() {
	ids := newNumbers(1, slice.MaxTunnel)
	for _, was := range r.before {
		ids.before[was.ID] = true
	}
	for i := range r.out {
		if was := r.before[r.out[i].Name]; was != nil {
			r.out[i].ID = was.ID
			ids.used[was.ID] = true
		}
	}
	for i := range r.out {
		l := &r.out[i]
		if l.ID == 0 {
			l.ID = ids.take()
		}
		if l.Signal == nil {
			continue
		}
		l.Signal.Number = l.NumberAfter(r.before[l.Name])
		if l.ID > slice.MaxTunnel {
			r.Add(diagnostic.Root.At("lsps"), "", "%q is one LSP too many: a network can have %d where "+
				"some are signalled", l.Name, slice.MaxTunnel)
		}
	}
}

// label chooses the labels, for each router from its own space. A label stays where packets come by the same interface.
func (r *lspResolver) label() {
	spaces := map[string]*numbers{}
	for _, l := range r.before {
		for _, h := range l.Hops {
			spaceOf(spaces, h.Node).before[h.Label] = true
		}
	}
	each := func(do func(name string, h *slice.Hop)) {
		for i := range r.out {
			l := &r.out[i]
			for j := range l.Hops {
				if l.Hops[j].Label == unchosen {
					do(l.Name, &l.Hops[j])
				}
			}
		}
	}
	each(func(name string, h *slice.Hop) {
		was := r.before[name]
		if was == nil {
			return
		}
		for _, old := range was.Hops {
			if old.Node == h.Node && old.In == h.In && old.Label >= slice.FirstLabel {
				h.Label = old.Label
				spaceOf(spaces, h.Node).used[h.Label] = true
			}
		}
	})
	each(func(_ string, h *slice.Hop) {
		if h.Label = spaceOf(spaces, h.Node).take(); h.Label > slice.LastStatic {
			r.Add(diagnostic.Root.At("lsps"), "", "%q has no labels left: it has %d, from %d to %d", h.Node,
				slice.LastStatic-slice.FirstLabel+1, slice.FirstLabel, slice.LastStatic)
		}
	})
}

// numbers are those that are given out for one purpose: the labels of a router, or the IDs of LSPs.
type numbers struct {
	last   uint32
	used   map[uint32]bool
	before map[uint32]bool // in the version before: hosts that have not read this one yet still use them
	next   uint32          // none below is free but of those of before
	again  uint32          // none below is free
}

func newNumbers(first, last uint32) *numbers {
	return &numbers{last: last, used: map[uint32]bool{}, before: map[uint32]bool{}, next: first, again: first}
}

func spaceOf(all map[string]*numbers, node string) *numbers {
	if all[node] == nil {
		all[node] = newNumbers(slice.FirstLabel, slice.LastStatic)
	}
	return all[node]
}

// take gives the least number that is not used: one of those that this version has freed only where there is no other.
// Above the last one there is none.
func (s *numbers) take() uint32 {
	for s.next <= s.last {
		if n := free(s.used, &s.next); n <= s.last && !s.before[n] {
			s.used[n] = true
			return n
		}
	}
	return free(s.used, &s.again)
}

// free takes the least number from next on that is not used.
func free(used map[uint32]bool, next *uint32) uint32 {
	for used[*next] {
		*next++
	}
	*next++
	return *next - 1
}
