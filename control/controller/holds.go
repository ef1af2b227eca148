package controller

import (
	"fmt"
	"maps"
	"slices"

	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

// HoldStore stores which holds on this machine its root has given to slices.
type HoldStore interface {
	// Give gives a slice these holds on the machine, in place of those that it had, and then calls put, which
	// stores the slice. Until put has returned, no hold is dropped because the slice does not exist yet.
	Give(slice string, holds []slice.Hold, put func() error) error
	// Terms are all that root of this machine allows.
	Terms() *hosts.Terms
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

// missing lists what a node would hold of a host that the host does not allow, as far as it published that to the
// cluster. A hold that the node had there before is not in it, and nothing is where root of that machine asks.
func (p *placing) missing(n *slice.Node, host *store.HostState) (holds []slice.Hold) {
	if host.Name == p.home {
		return nil
	}
	var had []slice.Hold
	if was := p.was[n.Name]; was != nil && was.Host == host.Name {
		had = holdsOf(was)
	}
	for _, h := range holdsOf(n) {
		if _, ok := host.Allows.Covers(h); !ok && !slices.ContainsFunc(had, h.Within) {
			holds = append(holds, h)
		}
	}
	return holds
}

func holdsOf(n *slice.Node) []slice.Hold { return append(n.Holds(), n.ClaimHolds()...) }

// barred says, by host, why hosts cannot take a node that has no pin: they do not allow what it holds. What only one
// machine has, and what a pin asks for, askHosts refuses.
func (p *placing) barred(n *slice.Node) map[string]string {
	if n.Placement.Host != "" || len(holdsOf(n)) == 0 {
		return nil
	}
	hosts := map[string]string{}
	for name, host := range p.byName {
		missing := slices.DeleteFunc(p.missing(n, host), slice.Hold.OfOneMachine)
		if why := host.Allows.WhyNot(missing...); why != "" {
			hosts[name] = why
		}
	}
	return hosts
}

// consentFor advises what to do where nothing but the consent of a host is missing; empty where more is, everywhere.
func (p *placing) consentFor(n *slice.Node, reasons map[string]string) string {
	barred := p.barred(n)
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		if barred[name] != "" && reasons[name] == barred[name] {
			host := p.byName[name]
			return hosts.Advice(name, host.Allows, p.missing(n, host)...)
		}
	}
	return ""
}

// askHosts refuses holds that hosts do not allow. The hosts themselves decide; this check gives the user the answer
// before anything is stored.
func (p *placing) askHosts() error {
	var faults []Fault
	missing := map[string][]slice.Hold{}
	for i := range p.next.Nodes {
		n := &p.next.Nodes[i]
		if host := p.byName[n.Host]; host != nil {
			missing[n.Host] = append(missing[n.Host], p.missing(n, host)...)
		}
	}
	for i := range p.next.Nodes {
		n := &p.next.Nodes[i]
		host := p.byName[n.Host]
		if host == nil {
			continue
		}
		for _, h := range p.missing(n, host) {
			faults = append(faults, Fault{
				Location: "nodes." + n.Name + "." + h.Field,
				Message: fmt.Sprintf("host %s does not allow node %s to use %s: %s", n.Host, n.Name, h,
					hosts.Advice(n.Host, host.Allows, missing[n.Host]...)),
			})
		}
	}
	if len(faults) == 0 {
		return nil
	}
	r := refuse(Forbidden, "network %s: %s", p.next.Name, faults[0].Message)
	if more := len(faults) - 1; more > 0 {
		r.Message += fmt.Sprintf(" (and %d more)", more)
	}
	r.Faults = faults
	return r
}
