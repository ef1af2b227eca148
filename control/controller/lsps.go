package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
)

// AddLSP adds a label-switched path to a slice that runs, and gives it as it is stored. Newer versions of the topology
// keep it. The hosts set it up afterwards.
func (c *Controller) AddLSP(ctx context.Context, name string, l topology.LSP) (added slice.LSP, err error) {
	err = c.changeLSPs(ctx, name, func(prev *slice.Slice) (lspChange, error) {
		to := lspChange{written: written(prev), byHand: byHand(prev)}
		l.Name = topology.NameOfLSP(&l)
		if prev.LSP(l.Name) != nil {
			return to, refuse(Conflict, "there is an LSP %q already: give this one another name, or "+
				"change that one (`pergola lsp set`)", l.Name)
		}
		to.name, to.message = l.Name, "asked for by a user"
		to.written, to.byHand[l.Name] = append(to.written, l), true
		return to, nil
	}, &added)
	return added, err
}

// SetLSP changes a label-switched path. One of the topology is as that says again when it is applied the next time.
func (c *Controller) SetLSP(ctx context.Context, name, lsp string, p api.LSPPatch) error {
	return c.changeLSPs(ctx, name, func(prev *slice.Slice) (lspChange, error) {
		to := lspChange{written: written(prev), byHand: byHand(prev), name: lsp, message: "changed by a user"}
		i := slices.IndexFunc(to.written, named(lsp))
		if i < 0 {
			return to, unknown("LSP", lsp, name, lspNames(prev))
		}
		l := &to.written[i]
		if p.Path != nil {
			if ends := prev.LSP(lsp); topology.NameOfLSP(&topology.LSP{Path: p.Path}) !=
				ends.Ingress()+"--"+ends.Egress() {
				return to, refuse(Invalid, "LSP %s leads from %s to %s, and so does each path of it: "+
					"add another LSP", lsp, ends.Ingress(), ends.Egress())
			}
			l.Path = p.Path
		}
		if p.To != nil || p.Match != nil {
			l.To, l.Match = p.To, p.Match
		}
		if err := patchReservation(l, lsp, p); err != nil {
			return to, err
		}
		if p.Protect != nil {
			l.Protect = *p.Protect
		}
		if p.Setup != nil {
			l.Setup = p.Setup
			if l.Holding != nil && *l.Holding > *p.Setup { // it is never worse
				l.Holding = p.Setup
			}
		}
		if p.Holding != nil {
			l.Holding = p.Holding
		}
		return to, nil
	}, nil)
}

// patchReservation changes what an LSP reserves, and what becomes of what exceeds it.
func patchReservation(l *topology.LSP, name string, p api.LSPPatch) error {
	if p.Bandwidth != nil {
		if l.Signalling != topology.SignallingRSVP {
			return refuse(Invalid, "LSP %s is a static one, for which nothing is reserved: add it anew "+
				"with signalling rsvp", name)
		}
		l.Bandwidth = topology.RateOf(*p.Bandwidth)
	}
	if p.Excess != nil {
		if l.Bandwidth == "" {
			return refuse(Invalid, "LSP %s reserves no bandwidth that could be exceeded", name)
		}
		l.Excess = *p.Excess
	}
	return nil
}

// RerouteLSP has the ingress of a label-switched path look for its way again.
func (c *Controller) RerouteLSP(ctx context.Context, name, lsp string) error {
	return c.changeLSPs(ctx, name, func(prev *slice.Slice) (lspChange, error) {
		to := lspChange{written: written(prev), byHand: byHand(prev), name: lsp,
			message: "another way asked for"}
		switch l := prev.LSP(lsp); {
		case l == nil:
			return to, unknown("LSP", lsp, name, lspNames(prev))
		case l.Signal == nil:
			return to, refuse(Invalid, "LSP %s is a static one, which goes where its path says", lsp)
		}
		to.finish = func(l *slice.LSP) { l.Signal.Number = prev.LSP(lsp).Signal.Next() }
		return to, nil
	}, nil)
}

// RemoveLSP removes a label-switched path that was added by hand.
func (c *Controller) RemoveLSP(ctx context.Context, name, lsp string) error {
	return c.changeLSPs(ctx, name, func(prev *slice.Slice) (lspChange, error) {
		to := lspChange{byHand: byHand(prev), name: lsp, message: "removed by a user"}
		switch l := prev.LSP(lsp); {
		case l == nil:
			return to, unknown("LSP", lsp, name, lspNames(prev))
		case !l.ByHand:
			return to, refuse(Invalid, "LSP %s is one of the topology: take it out of lsps: there", lsp)
		}
		to.written = slices.DeleteFunc(written(prev), named(lsp))
		return to, nil
	}, nil)
}

// lspChange is what the LSPs of a slice are to be.
type lspChange struct {
	written []topology.LSP
	byHand  map[string]bool
	name    string // of the LSP that is other than before
	message string // what was asked for
	finish  func(*slice.LSP)
}

// changeLSPs changes the LSPs of a slice that runs. into, unless it is nil, gets the one that is other than before.
func (c *Controller) changeLSPs(ctx context.Context, name string, change func(prev *slice.Slice) (lspChange, error),
	into *slice.LSP) error {
	var to lspChange
	changed := false
	err := untilNoConflict(ctx, func() (err error) {
		changed, err = c.edit(ctx, name, func(prev, next *slice.Slice) error {
			if to, err = change(prev); err != nil {
				return err
			}
			if found := topology.SetLSPs(next, prev, to.written, to.byHand); found.Err() != nil {
				return refuse(Invalid, "%s", textOf(found))
			}
			if err := c.canSwitch(ctx, next); err != nil {
				return err
			}
			if to.finish != nil {
				to.finish(next.LSP(to.name))
			}
			if into != nil {
				*into = *next.LSP(to.name)
			}
			return nil
		})
		return err
	})
	if err != nil || !changed {
		return err
	}
	c.events.Publish(events.Event{Slice: name, Kind: events.LSPWanted,
		Message: fmt.Sprintf("LSP %s: %s", to.name, to.message)})
	return nil
}

// canSwitch refuses LSPs where this machine has none. (Hosts of a cluster all have.)
func (c *Controller) canSwitch(ctx context.Context, s *slice.Slice) error {
	if c.cluster != nil || len(s.LSPs) == 0 {
		return nil
	}
	part := *s
	part.Links, part.Nodes = nil, nil // they are there
	if _, err := c.host.Supports(ctx, &part); err != nil {
		return refuse(Unsupported, "this machine cannot do that: %v", err)
	}
	return nil
}

func written(s *slice.Slice) (all []topology.LSP) {
	for i := range s.LSPs {
		all = append(all, topology.LSPOf(&s.LSPs[i]))
	}
	return all
}

func named(name string) func(topology.LSP) bool {
	return func(l topology.LSP) bool { return topology.NameOfLSP(&l) == name }
}

func byHand(s *slice.Slice) map[string]bool {
	all := map[string]bool{}
	for i := range s.LSPs {
		if s.LSPs[i].ByHand {
			all[s.LSPs[i].Name] = true
		}
	}
	return all
}

func lspNames(s *slice.Slice) (all []string) {
	for i := range s.LSPs {
		all = append(all, s.LSPs[i].Name)
	}
	return all
}

// textOf is what is wrong with LSPs that are in no file.
func textOf(found topology.Diagnostics) string {
	var all []string
	for _, d := range found {
		text := d.Message
		if d.Hint != "" {
			text += " (" + d.Hint + ")"
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}
