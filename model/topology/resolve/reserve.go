package resolve

import (
	"maps"
	"slices"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
)

// reserve writes out what a node has of its host for itself.
func (r *resolver) reserve(n *node) slice.Reserve {
	in := n.all.Reserve
	if in == nil {
		return slice.Reserve{}
	}
	out := slice.Reserve{
		FastPath: in.FastPath, Filters: in.Filters, Masks: in.Masks, Memory: checked(in.Memory.Count()),
		Queues: in.Queues, Buffer: checked(in.Buffer.Count()),
	}
	if out.Memory > slice.MaxProgramMemory {
		r.Add(
			n.at.At("reserve").At("memory"),
			"",
			"%s of memory are reserved, and a packet program has at most %d MiB",
			in.Memory,
			slice.MaxProgramMemory>>20,
		)
	}
	return out
}

// reserveRates writes out what interfaces have of the cards of their hosts. What a node asked for while it ran, it
// keeps.
func (r *resolver) reserveRates(n *node) {
	for _, p := range n.interfaces {
		if p.prev != nil && (p.shape.Rate == 0 || p.prev.Claim <= p.shape.Rate) {
			p.out.Claim = p.prev.Claim
		}
	}
	if n.kind != slice.Program || n.all.Reserve == nil {
		return
	}
	at := n.at.At("reserve").At("bandwidth")
	for _, name := range slices.Sorted(maps.Keys(n.all.Reserve.Bandwidth)) {
		p, rate := n.byName[name], checked(n.all.Reserve.Bandwidth[name].Bits())
		switch {
		case p == nil:
			r.Add(at.At(name), diagnostic.SuggestOr(name, slices.Sorted(maps.Keys(n.byName))),
				"no link ends at %s:%s", n.name, name)
		case p.shape.Rate != 0 && rate > p.shape.Rate:
			r.Add(
				at.At(name),
				"raise the rate, or reserve less",
				"%s are reserved, and the link has a rate of %s",
				rate,
				p.shape.Rate,
			)
		default:
			p.out.Reserve = rate
		}
	}
}

// checkQueueing compares the queues of packet programs with what their nodes may have.
func (r *resolver) checkQueueing(s *slice.Slice) {
	queueing := s.Queueing(nil)
	for _, n := range r.nodes {
		why := n.out.Reserve.WhyTooMany(queueing[n.name])
		if why == "" {
			continue
		}
		at, hint := n.at, "write a length: in the queues, or reserve more, such as reserve: {queues: 2000, "+
			"buffer: 256MiB}"
		if n.all.Reserve != nil {
			at = at.At("reserve")
		}
		r.Add(at, hint, "%q has more than it may: %s", n.name, why)
	}
}
