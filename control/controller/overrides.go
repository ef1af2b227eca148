package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/slice"
)

// SetPower starts, stops, pauses, resumes or restarts a node.
func (c *Controller) SetPower(ctx context.Context, name, node string, verb api.NodeVerb) error {
	if _, _, err := c.Node(ctx, name, node); err != nil {
		return err
	}
	err := c.updateOverrides(ctx, name, func(o *slice.Overrides) (takes bool, err error) {
		_, n, err := c.Node(ctx, name, node)
		if err != nil {
			return false, err
		}
		return false, setPower(o, n, verb)
	})
	if err != nil {
		return err
	}
	c.events.Publish(events.Event{Slice: name, Node: node, Kind: events.NodeWanted,
		Message: string(verb) + " asked for"})
	return nil
}

// updateOverrides edits the overrides of a slice by change: see store.UpdateOverrides.
func (c *Controller) updateOverrides(ctx context.Context, name string,
	change func(*slice.Overrides) (takes bool, err error)) error {
	err := untilNoConflict(ctx, func() error { return c.store.UpdateOverrides(ctx, name, change) })
	if errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("change network %s by hand: %w", name, err)
	}
	return c.explainMissing(ctx, name, err)
}

// setPower edits the overrides for a verb; it refuses what does not fit the node's present state.
func setPower(o *slice.Overrides, n *slice.Node, verb api.NodeVerb) error {
	if !n.HasSliver() && verb != api.NodeStart && verb != api.NodeStop {
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
	case api.NodeStop:
		o.Power[n.Name] = slice.PowerOff
	case api.NodeStart:
		if o.Power[n.Name] == slice.PowerFrozen {
			return refuse(Conflict, "node %s is paused: resume it", n.Name)
		}
		delete(o.Power, n.Name)
	case api.NodePause, api.NodeResume:
		if off {
			return refuse(Conflict, "node %s is stopped: start it first", n.Name)
		}
		if verb == api.NodePause {
			o.Power[n.Name] = slice.PowerFrozen
		} else {
			delete(o.Power, n.Name)
		}
	case api.NodeRestart:
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
	return c.changeLink(ctx, name, link, "reset to the file's values",
		func(_ *slice.Slice, l *slice.Link, o *slice.Overrides) error {
			delete(o.Down, l.Name)
			for _, e := range l.Ends {
				delete(o.Shapes, e.String())
			}
			return nil
		})
}

// SetLink changes how a link treats frames.
func (c *Controller) SetLink(ctx context.Context, name, link string, patch api.LinkPatch) error {
	if err := checkPatch(patch); err != nil {
		return err
	}
	return c.changeLink(ctx, name, link, "other treatment of frames asked for",
		func(s *slice.Slice, l *slice.Link, o *slice.Overrides) error {
			trial := *l
			trial.Ends = append([]slice.End(nil), l.Ends...)
			if err := applyPatch(patch, s, l, &trial, o); err != nil {
				return err
			}
			if err := canPolice(s, &trial); err != nil {
				return err
			}
			if err := canQueue(s, l, o); err != nil {
				return err
			}
			return c.canTreat(ctx, s, &trial)
		})
}

// keepsOverrides refuses a version of a slice that contradicts what was changed by hand, and so stays: otherwise the
// hosts would refuse its nodes, which run.
func keepsOverrides(o slice.Overrides, prev, next *slice.Slice) error {
	if prev == nil {
		return nil
	}
	shapes := o.ShapesFor(prev, next)
	changed := slices.Sorted(maps.Keys(shapes))
	for _, end := range changed {
		if err := checkShape(shapes[end]); err != nil {
			return refuse(Invalid, "frames that leave %s: with what was changed by hand: %v (`pergola "+
				"link reset %s -s %s` takes the change back)", end, err, end, next.Name)
		}
	}
	queueing := next.Queueing(shapes)
	for _, end := range changed {
		node, _, _ := strings.Cut(end, ":")
		n := next.Node(node)
		if n == nil || len(shapes[end].Queues) == 0 {
			continue
		}
		if why := n.Reserve.WhyTooMany(queueing[node]); why != "" {
			return refuse(Full, "node %s would have more than it may, with queues of %s that were "+
				"changed by hand or by the node: %s (reserve more, or take the change back: "+
				"`pergola link reset %s -s %s`)", node, end, why, end, next.Name)
		}
	}
	return nil
}

// canTreat refuses what a host's kernel cannot do to a link's frames.
func (c *Controller) canTreat(ctx context.Context, s *slice.Slice, l *slice.Link) error {
	part := *s
	part.Links, part.Nodes = []slice.Link{*l}, nil // the nodes are there
	if c.cluster == nil {
		if _, err := c.host.Supports(ctx, &part); err != nil {
			return refuse(Unsupported, "this machine cannot do that to link %s: %v", l.Name, err)
		}
		return nil
	}
	hosts, err := c.hosts(ctx)
	if err != nil {
		return err
	}
	span := s.Span()
	for _, e := range l.Ends {
		i := slices.IndexFunc(hosts, func(h store.HostState) bool { return h.Name == span.Host(e) })
		for _, feature := range features(e.Shape) {
			if i >= 0 && !slices.Contains(hosts[i].Features, feature) {
				return refuse(Unsupported, "host %s cannot do that to link %s: its kernel lacks %s",
					hosts[i].Name, l.Name, feature)
			}
		}
	}
	return nil
}

// changeLink changes what was changed by hand of a link. Where a node has more queues then, or longer ones, its host
// must have room for them.
func (c *Controller) changeLink(ctx context.Context, name, link, message string,
	change func(*slice.Slice, *slice.Link, *slice.Overrides) error) error {
	err := c.updateOverrides(ctx, name, func(o *slice.Overrides) (takes bool, err error) {
		s, _, err := c.Slice(ctx, name)
		if err != nil {
			return false, err
		}
		l := s.Link(link)
		if l == nil {
			return false, unknown("link", link, name, linkNames(s))
		}
		had := s.Queueing(o.Shapes)
		if err := change(s, l, o); err != nil {
			return false, err
		}
		for node, has := range s.Queueing(o.Shapes) {
			takes = takes || has.Exceeds(had[node])
		}
		if takes {
			err = c.hasRoom(ctx, s, l, o)
		}
		return takes, err
	})
	if err != nil {
		return err
	}
	c.events.Publish(events.Event{Slice: name, Link: link, Kind: events.LinkWanted, Message: message})
	return nil
}
