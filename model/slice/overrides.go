package slice

import "slices"

// ShapesFor gives the shapes of the overrides as they hold for a newer version of the slice. What was changed by hand,
// and so differs from the older version, stays; all else follows the newer one. Shapes of ends that are no more are
// left out, as are those that the newer version has itself.
func (o *Overrides) ShapesFor(was, now *Slice) map[string]Shape {
	old, next := was.shapes(), now.shapes()
	all := make(map[string]Shape, len(o.Shapes))
	for end, set := range o.Shapes {
		theirs, there := next[end]
		if !there {
			continue
		}
		if ours, known := old[end]; known {
			set = set.rebased(ours, theirs)
		}
		if !set.Equal(theirs) {
			all[end] = set
		}
	}
	return all
}

// shapes gives the shape of each end, by node:interface.
func (s *Slice) shapes() map[string]Shape {
	all := map[string]Shape{}
	for i := range s.Links {
		for _, e := range s.Links[i].Ends {
			all[e.String()] = e.Shape
		}
	}
	return all
}

// rebased gives the next shape with what differs in s from the old one. Classes are not changed by hand.
func (s Shape) rebased(old, next Shape) Shape {
	next.Rate = kept(s.Rate, old.Rate, next.Rate)
	next.Delay = kept(s.Delay, old.Delay, next.Delay)
	next.Jitter = kept(s.Jitter, old.Jitter, next.Jitter)
	next.Loss = kept(s.Loss, old.Loss, next.Loss)
	next.Queue = kept(s.Queue, old.Queue, next.Queue)
	next.Police.Rate = kept(s.Police.Rate, old.Police.Rate, next.Police.Rate)
	next.Police.Burst = kept(s.Police.Burst, old.Police.Burst, next.Police.Burst)
	if next.Police.Rate == 0 {
		next.Police = Policer{}
	}
	next.Queues = rebasedQueues(s.Queues, old.Queues, next.Queues)
	return next
}

// kept gives what was set by hand, where that differs from the old value, or else the next value.
func kept[T comparable](set, old, next T) T {
	if set != old {
		return set
	}
	return next
}

// rebasedQueues does for queues what rebased does for a shape. Queues that were added by hand stay as long as there is
// no gap before them, and queues that were removed by hand stay away as long as the next version does not add some.
func rebasedQueues(set, old, next []Queue) []Queue {
	if len(next) == 0 || slices.Equal(set, old) {
		return next
	}
	all := slices.Clone(next)
	for i := range min(len(set), len(old), len(next)) {
		q := &all[i]
		q.Share = kept(set[i].Share, old[i].Share, q.Share)
		q.Reserve = kept(set[i].Reserve, old[i].Reserve, q.Reserve)
		q.Rate = kept(set[i].Rate, old[i].Rate, q.Rate)
		q.Length = kept(set[i].Length, old[i].Length, q.Length)
		q.Priority = kept(set[i].Priority, old[i].Priority, q.Priority)
	}
	for i := len(old); i < len(set) && i <= len(all); i++ {
		if i == len(all) {
			all = append(all, Queue{})
		}
		all[i] = set[i]
	}
	if len(set) < len(old) && len(next) <= len(old) {
		all = all[:min(len(set), len(all))]
	}
	return all
}
