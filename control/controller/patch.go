package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

// checkPatch refuses values that no link can have.
func checkPatch(p api.LinkPatch) error {
	shaped := p.Rate != nil || p.Delay != nil || p.Jitter != nil || p.Loss != nil || p.Queue != nil
	if !shaped && p.Police == nil && p.Burst == nil && len(p.Queues) == 0 {
		return refuse(Invalid, "nothing to set: give rate, delay, jitter, loss, queue, police, burst or queues")
	}
	trial := mergePatch(p, slice.Shape{Police: slice.Policer{Rate: unit.MinPolicedRate}}) // which has a burst
	if err := trial.Check(); err != nil {
		return refuse(Invalid, "%v", err)
	}
	return nil
}

// applyPatch writes the patch into the overrides, and into trial, which the caller checks against what kernels can do.
func applyPatch(p api.LinkPatch, s *slice.Slice, l, trial *slice.Link, o *slice.Overrides) error {
	if o.Shapes == nil {
		o.Shapes = map[string]slice.Shape{}
	}
	var ends []string
	found, queued, resized := false, 0, 0
	var err error
	for i, e := range l.Ends {
		end := e.String()
		ends = append(ends, end)
		if p.End != "" && p.End != end {
			continue
		}
		found = true
		shape, overridden := o.Shapes[end]
		if !overridden {
			shape = e.Shape
		}
		before := len(shape.Queues)
		if shape, err = mergeQueues(p, l.Name, end, s.MTU(e), mergePatch(p, shape)); err != nil {
			return err
		}
		if before > 0 {
			queued++
		}
		if len(shape.Queues) != before {
			resized++
		}
		if err := checkShape(shape); err != nil { // the file's classes, beside the patch's rate
			return refuse(Invalid, "link %s: %v", l.Name, err)
		}
		trial.Ends[i].Shape = shape
		if shape.Equal(e.Shape) {
			delete(o.Shapes, end)
		} else {
			o.Shapes[end] = shape
		}
	}
	switch {
	case !found:
		return unknown(fmt.Sprintf("end at link %s", l.Name), p.End, s.Name, ends)
	case len(p.Queues) > 0 && queued == 0:
		return refuse(Invalid, "link %s: its ends have no queues: give them some in the topology (queues:)",
			l.Name)
	case resized != 0 && resized != queued: // a new queue for one end would be a change of an old one for the other
		return refuse(Invalid, "link %s: its ends have not the same number of queues: name one of %s", l.Name,
			strings.Join(ends, ", "))
	}
	return nil
}

// checkShape refuses what no direction of a link can have.
func checkShape(s slice.Shape) error {
	if s.Jitter > 0 && s.Delay == 0 {
		return errors.New("jitter needs a delay to vary")
	}
	return s.Check()
}

// mergeQueues gives the shape of an end with the changes of its queues, if it has some.
func mergeQueues(p api.LinkPatch, link, end string, mtu int, s slice.Shape) (slice.Shape, error) {
	if len(s.Queues) == 0 {
		return s, nil
	}
	s.Queues = slices.Clone(s.Queues) // the slice has the same
	for _, change := range p.Queues {
		if change.Remove {
			if why := whyStays(change, len(s.Queues)); why != "" {
				return s, refuse(Invalid, "link %s: queue %d of %s: %s", link, change.Number, end, why)
			}
			s.Queues = s.Queues[:change.Number]
			continue
		}
		switch next := len(s.Queues); {
		case change.Number < 0 || change.Number > next:
			return s, refuse(Invalid,
				"link %s: %s has no queue %d: it has 0 to %d, and %d would be the next one", link, end,
				change.Number, next-1, next)
		case change.Number == next:
			s.Queues = append(s.Queues, slice.Queue{Share: 1})
			change.Length = cmp.Or(change.Length, new(unit.Length))
		}
		q := &s.Queues[change.Number]
		set(&q.Share, change.Share)
		set(&q.Length, change.Length)
		set(&q.Rate, change.Rate)
		set(&q.Reserve, change.Reserve)
		if change.Priority != nil {
			q.Priority = slice.PriorityOf(*change.Priority)
		}
		if change.Length != nil && *change.Length == (unit.Length{}) {
			q.Length = q.DefaultLength(s.Rate, mtu)
		}
	}
	return s, nil
}

// whyStays says why a queue, of so many, cannot be removed; empty where it can. Numbers have no gaps.
func whyStays(q api.QueuePatch, queues int) string {
	switch {
	case q.Share != nil || q.Length != nil || q.Rate != nil || q.Reserve != nil || q.Priority != nil:
		return "a change removes a queue, or sets its values"
	case q.Number == 0:
		return "it is always there: it takes frames for which no queue is chosen"
	case q.Number != queues-1:
		return fmt.Sprintf("only the last one can be removed, and that is %d", queues-1)
	}
	return ""
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// mergePatch gives the shape s with the values that the patch sets.
func mergePatch(p api.LinkPatch, s slice.Shape) slice.Shape {
	if p.Rate != nil {
		s.Rate = *p.Rate
	}
	if p.Delay != nil {
		s.Delay = *p.Delay
	}
	if p.Jitter != nil {
		s.Jitter = *p.Jitter
	}
	if p.Loss != nil {
		s.Loss = *p.Loss
	}
	if p.Queue != nil {
		s.Queue = *p.Queue
	}
	if p.Burst != nil {
		s.Police.Burst = *p.Burst
	}
	if p.Police != nil {
		s.Police.Rate = *p.Police
		if *p.Police == 0 {
			s.Police = slice.Policer{}
		}
	}
	return s
}

// canPolice refuses policers where no program of the data path meets the frames.
func canPolice(s *slice.Slice, l *slice.Link) error {
	kinds := make([]slice.Kind, len(l.Ends))
	for i, e := range l.Ends {
		if n := s.Node(e.Node); n != nil {
			kinds[i] = n.Kind
		}
	}
	for i, e := range l.Ends {
		if e.Shape.Police.Rate != 0 && !slice.CanPolice(kinds[i], l.LAN || len(l.Ends) > 2, kinds) {
			return refuse(Invalid,
				"link %s: what a switch sends to another switch, or to a LAN, is not policed", l.Name)
		}
	}
	return nil
}

// canQueue refuses queues that take more than the nodes at a link's ends may have.
func canQueue(s *slice.Slice, l *slice.Link, o *slice.Overrides) error {
	queueing := s.Queueing(o.Shapes)
	for _, e := range l.Ends {
		n := s.Node(e.Node)
		if n == nil {
			continue
		}
		if why := n.Reserve.WhyTooMany(queueing[e.Node]); why != "" {
			return refuse(Full, "link %s: node %s would have more than it may: %s", l.Name, e.Node, why)
		}
	}
	return nil
}

// hasRoom refuses queues of which the hosts of the nodes at a link's ends have not enough left.
func (c *Controller) hasRoom(ctx context.Context, s *slice.Slice, l *slice.Link, o *slice.Overrides) error {
	all, err := c.hosts(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		here := func(e slice.End) bool {
			n := s.Node(e.Node)
			return n != nil && n.Host == all[i].Name
		}
		if !slices.ContainsFunc(l.Ends, here) {
			continue
		}
		if err := c.host.HaveRoom(ctx, &all[i].Host, s, o.Shapes); err != nil {
			return noRoom("link "+l.Name, err)
		}
	}
	return nil
}
