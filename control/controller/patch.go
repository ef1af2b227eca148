package controller

import (
	"fmt"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

// checkPatch refuses values that no link can have.
func checkPatch(p api.LinkPatch) error {
	shaped := p.Rate != nil || p.Delay != nil || p.Jitter != nil || p.Loss != nil || p.Queue != nil
	if !shaped && p.Police == nil && p.Burst == nil {
		return refuse(Invalid, "nothing to set: give rate, delay, jitter, loss, queue, police or burst")
	}
	trial := mergePatch(p, slice.Shape{Police: slice.Policer{Rate: unit.MinPolicedRate}}) // which has a burst
	if err := trial.Check(); err != nil {
		return refuse(Invalid, "%v", err)
	}
	return nil
}

// applyPatch writes the patch into the overrides, and into trial, which the caller checks against what kernels can do.
func applyPatch(p api.LinkPatch, name string, l, trial *slice.Link, o *slice.Overrides) error {
	if o.Shapes == nil {
		o.Shapes = map[string]slice.Shape{}
	}
	var ends []string
	found := false
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
		shape = mergePatch(p, shape)
		if shape.Jitter > 0 && shape.Delay == 0 {
			return refuse(Invalid, "link %s: jitter needs a delay to vary", l.Name)
		}
		if err := shape.Check(); err != nil { // the file's classes, beside the patch's rate
			return refuse(Invalid, "link %s: %v", l.Name, err)
		}
		trial.Ends[i].Shape = shape
		if shape.Equal(e.Shape) {
			delete(o.Shapes, end)
		} else {
			o.Shapes[end] = shape
		}
	}
	if !found {
		return unknown(fmt.Sprintf("end at link %s", l.Name), p.End, name, ends)
	}
	return nil
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
