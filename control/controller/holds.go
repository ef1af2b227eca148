package controller

import (
	"fmt"
	"slices"

	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

// HoldStore stores which holds on this machine its root has given to slices.
type HoldStore interface {
	// Give gives a slice these holds on the machine, in place of those that it had, and then calls put, which
	// stores the slice. Until put has returned, no hold is dropped because the slice does not exist yet.
	Give(slice string, holds []slice.Hold, put func() error) error
}

// WithHolds sets where to store the holds that root of this machine gives by applying a slice here.
func WithHolds(to HoldStore) Option { return func(c *Controller) { c.holds = to } }

// give stores the holds that root of this machine gives to a slice, and the slice.
func (c *Controller) give(s *slice.Slice, put func() error) error {
	if c.holds == nil {
		return put()
	}
	var given []slice.Hold
	for i := range s.Nodes {
		if n := &s.Nodes[i]; c.cluster == nil || n.Host == c.self {
			given = append(given, n.Holds()...)
		}
	}
	return c.holds.Give(s.Name, given, put)
}

// askHosts refuses holds that hosts do not allow. The hosts themselves decide; this check gives the user the answer
// before anything is stored, from what the hosts published to the cluster. A hold that a node had before is not checked
// again.
func (p *placing) askHosts() error {
	var faults []Fault
	for i := range p.next.Nodes {
		n := &p.next.Nodes[i]
		host := p.byName[n.Host]
		if host == nil || n.Host == p.home {
			continue
		}
		var had []slice.Hold
		if was := p.was[n.Name]; was != nil && was.Host == n.Host {
			had = was.Holds()
		}
		for _, h := range n.Holds() {
			if _, ok := host.Allows.Covers(h); !ok && !slices.ContainsFunc(had, h.Within) {
				faults = append(faults, Fault{
					Location: "nodes." + n.Name + "." + h.Field,
					Message: fmt.Sprintf("host %s does not allow node %s to use %s: %s", n.Host,
						n.Name, h, hosts.Advice(n.Host, h)),
				})
			}
		}
	}
	if len(faults) == 0 {
		return nil
	}
	r := refuse(Forbidden, "slice %s: %s", p.next.Name, faults[0].Message)
	if more := len(faults) - 1; more > 0 {
		r.Message += fmt.Sprintf(" (and %d more)", more)
	}
	r.Faults = faults
	return r
}
