package rsvp

import (
	"container/heap"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// victims is a heap of the LSPs that hold bandwidth of a link; the first one is pre-empted first.
type victims []*lsp

func (v victims) Len() int           { return len(v) }
func (v victims) Less(i, j int) bool { return worse(v[i], v[j]) }
func (v victims) Swap(i, j int) {
	v[i], v[j] = v[j], v[i]
	v[i].victim, v[j].victim = i+1, j+1
}
func (v *victims) Push(x any) {
	*v = append(*v, x.(*lsp))
	(*v)[len(*v)-1].victim = len(*v)
}
func (v *victims) Pop() any {
	last := len(*v) - 1
	s := (*v)[last]
	(*v)[last], *v = nil, (*v)[:last]
	s.victim = 0
	return s
}

// worse is the order in which LSPs are pre-empted: by priority, then the largest, then any fixed order.
func worse(a, b *lsp) bool {
	switch {
	case a.path.priority.Holding != b.path.priority.Holding:
		return a.path.priority.Holding > b.path.priority.Holding
	case a.resv.bandwidth != b.resv.bandwidth:
		return a.resv.bandwidth > b.resv.bandwidth
	}
	return a.key.compare(b.key) > 0
}

// hold notes what an LSP holds of its link, after its reservation or its holding priority has changed; nil: nothing.
func (r *Router) hold(s *lsp, h *hold) {
	l := s.out
	l.set(s.key, h)
	r.mark(l)
	switch {
	case h == nil || h.bandwidth == 0:
		if s.victim > 0 {
			heap.Remove(&l.victims, s.victim-1)
		}
	case s.victim == 0:
		heap.Push(&l.victims, s)
	default:
		heap.Fix(&l.victims, s.victim-1)
	}
}

// preempt takes LSPs of lower priority away until there is room again, those with the lowest first. The winner is none
// of them: its own holding priority is at least as good as its set-up priority.
func (r *Router) preempt(winner *lsp) {
	for l := winner.out; l.excess() > 0 && len(l.victims) > 0; {
		victim := l.victims[0]
		if victim.path.priority.Holding <= winner.path.priority.Setup {
			return
		}
		e := message.ErrorSpec{Node: r.config.ID, Flags: message.PathStateRemoved, Code: message.PolicyFailure,
			Value: message.FlowPreempted}
		if victim.in == nil {
			r.event(Failed, victim.key, e, nil)
			r.unreserve(victim)
			continue
		}
		r.pathErrs(victim, e)
		r.remove(victim, true, true)
	}
}
