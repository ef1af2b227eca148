package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/slice"
)

// NodeVerb is what can be asked of a node.
type NodeVerb string

// The verbs.
const (
	NodeStart   NodeVerb = "start"
	NodeStop    NodeVerb = "stop"
	NodePause   NodeVerb = "pause"
	NodeResume  NodeVerb = "resume"
	NodeRestart NodeVerb = "restart"
)

// LinkPatch changes a running link. What is nil stays as it is.
type LinkPatch struct {
	// End, as node:interface, limits the change to what leaves that end; empty means all ends.
	End    string         `json:"end,omitempty" doc:"node:interface: change only what leaves this end."`
	Rate   *uint64        `json:"rate,omitempty" doc:"bit/s; 0: not limited"`
	Delay  *time.Duration `json:"delay,omitempty" doc:"ns, one way"`
	Jitter *time.Duration `json:"jitter,omitempty" doc:"ns"`
	Loss   *float64       `json:"loss,omitempty" doc:"per cent of frames"`
	Queue  *int           `json:"queue,omitempty" doc:"frames; 0: the kernel's default"`
}

// SetPower starts, stops, pauses, resumes or restarts a node.
func (c *Controller) SetPower(ctx context.Context, name, node string, verb NodeVerb) error {
	if _, _, err := c.Node(ctx, name, node); err != nil {
		return err
	}
	err := c.store.UpdateOverrides(ctx, name, func(o *slice.Overrides) error {
		_, n, err := c.Node(ctx, name, node)
		if err != nil {
			return err
		}
		return setPower(o, n, verb)
	})
	if err != nil {
		return c.explainMissing(ctx, name, err)
	}
	c.events.Publish(events.Event{Slice: name, Node: node, Kind: events.NodeWanted, Message: string(verb) + " asked for"})
	return nil
}

// setPower edits the overrides for a verb; it refuses what does not fit the node's present state.
func setPower(o *slice.Overrides, n *slice.Node, verb NodeVerb) error {
	if !n.HasSliver() && verb != NodeStart && verb != NodeStop {
		return refuse(Invalid, "node %s is a %s: it has no processes to %s", n.Name, n.Kind, verb)
	}
	if o.Power == nil {
		o.Power = map[string]slice.Power{}
	}
	if o.Restarts == nil {
		o.Restarts = map[string]int{}
	}
	off := o.Power[n.Name] == slice.PowerOff
	switch verb {
	case NodeStop:
		o.Power[n.Name] = slice.PowerOff
	case NodeStart:
		if o.Power[n.Name] == slice.PowerFrozen {
			return refuse(Conflict, "node %s is paused: resume it", n.Name)
		}
		delete(o.Power, n.Name)
	case NodePause, NodeResume:
		if off {
			return refuse(Conflict, "node %s is stopped: start it first", n.Name)
		}
		if verb == NodePause {
			o.Power[n.Name] = slice.PowerFrozen
		} else {
			delete(o.Power, n.Name)
		}
	case NodeRestart:
		delete(o.Power, n.Name)
		if !off { // one that is stopped starts anyway
			o.Restarts[n.Name]++
		}
	default:
		return refuse(Invalid, "a node cannot %q: the verbs are start, stop, pause, resume, restart", verb)
	}
	return nil
}

// SetLinkUp connects a link, or cuts it.
func (c *Controller) SetLinkUp(ctx context.Context, name, link string, up bool) error {
	return c.changeLink(ctx, name, link, map[bool]string{true: "up asked for", false: "down asked for"}[up],
		func(_ *slice.Slice, l *slice.Link, o *slice.Overrides) error {
			if up {
				delete(o.Down, l.Name)
				return nil
			}
			if o.Down == nil {
				o.Down = map[string]bool{}
			}
			o.Down[l.Name] = true
			return nil
		})
}

// ResetLink gives a link the file's values again, and connects it.
func (c *Controller) ResetLink(ctx context.Context, name, link string) error {
	return c.changeLink(ctx, name, link, "reset to the file's values", func(_ *slice.Slice, l *slice.Link, o *slice.Overrides) error {
		delete(o.Down, l.Name)
		for _, e := range l.Ends {
			delete(o.Shapes, e.String())
		}
		return nil
	})
}

// SetLink changes how a link treats frames.
func (c *Controller) SetLink(ctx context.Context, name, link string, patch LinkPatch) error {
	if err := patch.check(); err != nil {
		return err
	}
	return c.changeLink(ctx, name, link, "other treatment of frames asked for", func(s *slice.Slice, l *slice.Link, o *slice.Overrides) error {
		trial := *l
		trial.Ends = append([]slice.End(nil), l.Ends...)
		if err := patch.apply(s.Name, l, &trial, o); err != nil {
			return err
		}
		return c.canTreat(ctx, s, &trial)
	})
}

// canTreat refuses what a host's kernel cannot do to a link's frames.
func (c *Controller) canTreat(ctx context.Context, s *slice.Slice, l *slice.Link) error {
	part := *s
	part.Links, part.Nodes = []slice.Link{*l}, nil // the nodes are there
	if c.cluster == nil {
		if err := c.host.Supports(ctx, &part); err != nil {
			return refuse(Unsupported, "this machine cannot do that to link %s: %v", l.Name, err)
		}
		return nil
	}
	hosts, err := c.cluster.Hosts(ctx)
	if err != nil {
		return fmt.Errorf("list hosts: %w", err)
	}
	span := s.Span()
	for _, e := range l.Ends {
		i := slices.IndexFunc(hosts, func(h store.HostState) bool { return h.Name == span.Host(e) })
		for _, feature := range features(e.Shape) {
			if i >= 0 && !slices.Contains(hosts[i].Features, feature) {
				return refuse(Unsupported, "host %s cannot do that to link %s: its kernel lacks %s", hosts[i].Name, l.Name, feature)
			}
		}
	}
	return nil
}

func (c *Controller) changeLink(ctx context.Context, name, link, message string, change func(*slice.Slice, *slice.Link, *slice.Overrides) error) error {
	err := c.store.UpdateOverrides(ctx, name, func(o *slice.Overrides) error {
		s, _, err := c.Slice(ctx, name)
		if err != nil {
			return err
		}
		l := s.Link(link)
		if l == nil {
			names := make([]string, len(s.Links))
			for i := range s.Links {
				names[i] = s.Links[i].Name
			}
			return unknown("link", link, name, names)
		}
		return change(s, l, o)
	})
	if err != nil {
		return c.explainMissing(ctx, name, err)
	}
	c.events.Publish(events.Event{Slice: name, Link: link, Kind: events.LinkWanted, Message: message})
	return nil
}

func (p LinkPatch) check() error {
	switch {
	case p.Rate == nil && p.Delay == nil && p.Jitter == nil && p.Loss == nil && p.Queue == nil:
		return refuse(Invalid, "nothing to set: give rate, delay, jitter, loss or queue")
	case p.Delay != nil && *p.Delay < 0:
		return refuse(Invalid, "delay %v: it cannot be negative", *p.Delay)
	case p.Jitter != nil && *p.Jitter < 0:
		return refuse(Invalid, "jitter %v: it cannot be negative", *p.Jitter)
	case p.Loss != nil && !(*p.Loss >= 0 && *p.Loss <= 100): // NaN, too
		return refuse(Invalid, "loss %v: it is a percentage, 0 to 100", *p.Loss)
	case p.Queue != nil && *p.Queue < 0:
		return refuse(Invalid, "queue %d: it is a number of frames", *p.Queue)
	}
	return nil
}

// apply writes the patch into the overrides, and into trial for those who look whether it can be done.
func (p LinkPatch) apply(name string, l, trial *slice.Link, o *slice.Overrides) error {
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
		shape = p.merge(shape)
		if shape.Jitter > 0 && shape.Delay == 0 {
			return refuse(Invalid, "link %s: jitter needs a delay to vary", l.Name)
		}
		trial.Ends[i].Shape = shape
		if shape == e.Shape {
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

func (p LinkPatch) merge(s slice.Shape) slice.Shape {
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
