package controller

import (
	"fmt"
	"slices"

	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

// Consents keeps what root of this machine lets slices have of it.
type Consents interface {
	// Give lets a slice have this of the machine, and of what it had before nothing else, and then calls put, which stores the slice. Until that
	// has ended, nothing is forgotten because there is no such slice yet.
	Give(slice string, holds []slice.Hold, put func() error) error
}

// WithConsents tells them what root of this machine asks for by applying a slice here.
func WithConsents(to Consents) Option { return func(c *Controller) { c.consents = to } }

// consent notes what root of this machine lets a slice have of it, and stores the slice.
func (c *Controller) consent(s *slice.Slice, put func() error) error {
	if c.consents == nil {
		return put()
	}
	var given []slice.Hold
	for i := range s.Nodes {
		if n := &s.Nodes[i]; c.cluster == nil || n.Host == c.self {
			given = append(given, n.Holds()...)
		}
	}
	return c.consents.Give(s.Name, given, put)
}

// askHosts refuses what hosts will not let nodes have of them. The hosts themselves decide: this is for the user, who is told before anything
// is stored, and goes by what they told the cluster. What a node had before is between its host and it.
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
					Message:  fmt.Sprintf("host %s does not let node %s have %s: %s", n.Host, n.Name, h, hosts.Advice(n.Host, h)),
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
