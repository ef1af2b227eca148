package controller

import (
	"fmt"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
)

// checkPatch refuses values that no link can have.
func checkPatch(p api.LinkPatch) error {
	if p.Rate == nil && p.Delay == nil && p.Jitter == nil && p.Loss == nil && p.Queue == nil {
		return refuse(Invalid, "nothing to set: give rate, delay, jitter, loss or queue")
	}
	if err := mergePatch(p, slice.Shape{}).Check(); err != nil {
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
	return s
}
