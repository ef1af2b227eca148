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
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/unit"
)

// Reserve gives a node, while it runs, ports of its host and bandwidth of its host's card, or takes back what it was
// given so: all of the change, or nothing. It is part of the slice from then on, and newer versions keep it. It is
// admitted as that of a topology is; and root of the host must have allowed the ports to all slices, because the caller
// is a process of the node, and not root.
func (c *Controller) Reserve(ctx context.Context, name, node string, change api.ReservationChange) error {
	return untilNoConflict(ctx, func() error { return c.reserve(ctx, name, node, change, "by the node itself") })
}

// Release takes back what a node was given while it ran, because a user asks for it. What the topology gives, the
// topology has to take back; a port that a process has bound is the node's as long as it is bound.
func (c *Controller) Release(ctx context.Context, name, node string, what api.ReservationRelease) error {
	change := api.ReservationChange{Release: what.Ports, Bandwidth: map[string]unit.Rate{}}
	for _, i := range what.Interfaces {
		change.Bandwidth[i] = 0
	}
	if len(what.Ports)+len(what.Interfaces) == 0 {
		return refuse(Invalid, "nothing to release: name ports, or interfaces")
	}
	_, n, err := c.Node(ctx, name, node)
	if err != nil {
		return err
	}
	if err := hasClaims(n, what.Interfaces); err != nil {
		return err
	}
	return untilNoConflict(ctx, func() error { return c.reserve(ctx, name, node, change, "by a user") })
}

// hasClaims refuses interfaces for which the node has asked for no bandwidth.
func hasClaims(n *slice.Node, interfaces []string) error {
	for _, name := range interfaces {
		switch i := n.Interface(name); {
		case i == nil || i.Claim != 0: // claimBandwidth says that there is none
		case i.Reserve != 0:
			return refuse(Invalid, "the bandwidth of %s:%s is that of the topology: take it out of "+
				"reserve: there", n.Name, name)
		default:
			return refuse(NotFound, "%s has not reserved bandwidth for %s", n.Name, name)
		}
	}
	return nil
}

// reserve makes a change; whose says who asks for it.
func (c *Controller) reserve(ctx context.Context, name, node string, change api.ReservationChange, whose string) error {
	changed, err := c.edit(ctx, name, func(prev, next *slice.Slice) error {
		n := next.Node(node)
		if n == nil {
			return refuse(NotFound, "network %s has no node %q", name, node)
		}
		added, err := claim(next, n, change)
		if err != nil || Diff(prev, next).Empty() {
			return err
		}
		return c.admitClaims(ctx, prev, next, n, added)
	})
	if err != nil || !changed {
		return err
	}
	c.events.Publish(events.Event{Slice: name, Node: node, Kind: events.NodeWanted,
		Message: "reservations changed " + whose + ": " + describeClaims(change)})
	return nil
}

func describeClaims(change api.ReservationChange) string {
	var all []string
	reserved, released := " reserved", " released"
	if change.Bound {
		reserved, released = " is bound", " is bound no longer"
	}
	for _, p := range change.Reserve {
		all = append(all, p+reserved)
	}
	for _, p := range change.Release {
		all = append(all, p+released)
	}
	for _, name := range slices.Sorted(maps.Keys(change.Bandwidth)) {
		if rate := change.Bandwidth[name]; rate != 0 {
			all = append(all, fmt.Sprintf("%s %s", name, rate))
		} else {
			all = append(all, "bandwidth of "+name+" released")
		}
	}
	return strings.Join(all, ", ")
}

// claim writes a change into a node, and gives the ports that it did not have.
func claim(s *slice.Slice, n *slice.Node, change api.ReservationChange) (added []slice.HostPort, err error) {
	claims := &n.Claims
	if change.Bound {
		claims = &n.BoundPorts
	}
	release, err := parsePorts(change.Release)
	if err != nil {
		return nil, err
	}
	if err := canRelease(n, *claims, release, change.Bound); err != nil {
		return nil, err
	}
	reserve, err := parsePorts(change.Reserve)
	if err != nil {
		return nil, err
	}
	*claims = slices.DeleteFunc(slices.Clone(*claims), func(p slice.HostPort) bool {
		return slices.Contains(release, p)
	})
	for _, p := range reserve {
		if slices.Contains(n.HostPorts(), p) {
			continue
		}
		for i := range s.Nodes {
			if other := &s.Nodes[i]; other.Host == n.Host && slices.Contains(other.HostPorts(), p) {
				return nil, refuse(Conflict, "port %s is reserved for %s/%s", p, s.Name, other.Name)
			}
		}
		if change.Bound && !n.BindPorts.Has(p.Port) {
			return nil, refuse(Forbidden, "port %s is not one of those that %s may bind: write ports: "+
				"[{bind: %d}] in the topology", p, n.Name, p.Port)
		}
		*claims = append(*claims, p)
		added = append(added, p)
	}
	slices.SortFunc(*claims, slice.HostPort.Compare)
	switch {
	case len(added) > 0 && n.Kind != slice.Host && n.Kind != slice.Program:
		return nil, refuse(Invalid, "node %s is a %s, which no port can lead to", n.Name, n.Kind)
	case len(added) > 0 && n.Interface(slice.OutsideInterface) != nil:
		return nil, refuse(
			Invalid,
			"interface %q of %s has the name of the one by which ports lead to a node: give it "+
				"another one in the topology",
			slice.OutsideInterface,
			n.Name,
		)
	case len(n.HostPorts()) > slice.MaxHostPorts:
		return nil, refuse(Full, "%s would have %d ports, and may have %d", n.Name, len(n.HostPorts()),
			slice.MaxHostPorts)
	}
	return added, claimBandwidth(s, n, change.Bandwidth)
}

// canRelease refuses to release ports that are not among claims: what a node asked for while it ran, or what its
// processes have bound.
func canRelease(n *slice.Node, claims, release []slice.HostPort, bound bool) error {
	for _, p := range release {
		switch {
		case slices.Contains(n.Ports, p):
			return refuse(Invalid, "port %s of %s is one of the topology: take it out of ports: there", p,
				n.Name)
		case slices.Contains(claims, p), bound: // it was released by an earlier call
		case slices.Contains(n.BoundPorts, p):
			return refuse(Conflict, "a process of %s has bound port %s: the port is released when the "+
				"process closes it", n.Name, p)
		default:
			return refuse(NotFound, "%s has not reserved port %s", n.Name, p)
		}
	}
	return nil
}

func parsePorts(texts []string) (all []slice.HostPort, err error) {
	for _, text := range texts {
		p, err := slice.ParseHostPort(text)
		if err != nil {
			return nil, refuse(Invalid, "%v", err)
		}
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all, nil
}

func claimBandwidth(s *slice.Slice, n *slice.Node, bandwidth map[string]unit.Rate) error {
	for _, name := range slices.Sorted(maps.Keys(bandwidth)) {
		i, rate := n.Interface(name), bandwidth[name]
		if i == nil {
			names := make([]string, len(n.Interfaces))
			for j := range n.Interfaces {
				names[j] = n.Interfaces[j].Name
			}
			return unknown("interface of node "+n.Name, name, s.Name, names)
		}
		if err := rate.Check(); err != nil {
			return refuse(Invalid, "bandwidth of %s: %v", name, err)
		}
		if l := s.Link(i.Link); l != nil {
			for _, e := range l.Ends {
				if n.Name == e.Node && name == e.Interface && e.Shape.Rate != 0 && rate > e.Shape.Rate {
					return refuse(
						Invalid,
						"%s are reserved by %s, and its link has a rate of %s",
						rate,
						e,
						e.Shape.Rate,
					)
				}
			}
		}
		i.Claim = rate
	}
	return nil
}

// admitClaims admits what a node, which stays where it is, was given beyond what prev gives it: ports of its host, and
// bandwidth of the cards by which its links leave hosts.
func (c *Controller) admitClaims(ctx context.Context, prev, next *slice.Slice, n *slice.Node,
	added []slice.HostPort) error {
	all, err := c.hosts(ctx)
	if err != nil {
		return err
	}
	others, err := c.usedByOthers(ctx, next.Name)
	if err != nil {
		return fmt.Errorf("sum what networks use of hosts: %w", err)
	}
	i := slices.IndexFunc(all, func(h store.HostState) bool { return h.Name == n.Host })
	if i < 0 && len(added) > 0 {
		return refuse(Conflict, "%s is on no host of the cluster at the moment, whose ports it could have",
			n.Name)
	}
	if len(added) > 0 {
		if err := c.admitPorts(ctx, next, n, &all[i], added, others[n.Host].ports); err != nil {
			return err
		}
	}
	was, is := usageOf(prev), usageOf(next)
	for i := range all {
		name := all[i].Name
		if is[name].rate <= was[name].rate {
			continue
		}
		if err := admitRate(&all[i], name == n.Host, others[name].rate+is[name].rate); err != nil {
			return err
		}
	}
	return nil
}

// admitPorts admits ports of a host, some of which are others'.
func (c *Controller) admitPorts(ctx context.Context, s *slice.Slice, n *slice.Node, h *store.HostState,
	added []slice.HostPort, others map[string]string) error {
	here, where := h.Name == c.self || c.cluster == nil, "host "+h.Name
	if c.cluster == nil {
		where = "this machine"
	}
	if err := c.allowPorts(s.Name, where, h.Allows, here, added); err != nil {
		return err
	}
	for _, p := range added {
		if whose := others[p.String()]; whose != "" {
			return refuse(Conflict, "port %s of %s is reserved for %s", p, where, whose)
		}
	}
	if !here {
		return nil
	}
	part := *s
	part.Links = nil
	one := *n
	one.Program, one.Interfaces = nil, nil // they are there, and so is what follows
	one.Command, one.Exec, one.Binds, one.Volumes, one.Sysctls = nil, nil, nil, nil, nil
	one.Devices, one.Rootfs, one.Reserve = nil, slice.Rootfs{}, slice.Reserve{}
	part.Nodes = []slice.Node{one}
	if _, err := c.host.Supports(ctx, &part); err != nil {
		return refuseUnsupported(err)
	}
	return nil
}

// admitRate admits that links which leave a host need this rate of its card, and more than before. A machine that is in
// no cluster has no card that tunnels share. own: it is the host of the node whose reservation makes it more.
func admitRate(h *store.HostState, own bool, rate uint64) error {
	card, _ := underlay(h)
	switch {
	case card.Rate != 0 && rate > card.Rate:
		return refuse(Full, "host %s has not enough bandwidth left: links that leave it would need %s of %s "+
			"(`pergola reserve ls` shows which nodes have it)", h.Name, unit.Rate(rate),
			unit.Rate(card.Rate))
	case own && !slices.Contains(h.Features, hosts.FeatureHTB):
		return refuse(Unsupported, "host %s cannot keep bandwidth of its card for a node: its kernel lacks %s",
			h.Name, hosts.FeatureHTB)
	}
	return nil
}

// refuseUnsupported words what a machine lacks for a claim.
func refuseUnsupported(err error) error {
	var found topology.Diagnostics
	if errors.As(err, &found) {
		return faulty(found)
	}
	return refuse(Conflict, "%v", err)
}

// allowPorts refuses ports that root of a host has not allowed to every slice. here: it is this machine, whose terms
// are known.
func (c *Controller) allowPorts(name, host string, allows hosts.Allowance, here bool, ports []slice.HostPort) error {
	covers := func(h slice.Hold) bool { _, ok := allows.Covers(h); return ok }
	if here && c.holds != nil {
		terms := c.holds.Terms()
		allows = terms.Allowance
		covers = func(h slice.Hold) bool { _, ok := terms.Covers(name, h); return ok }
	}
	var missing []slice.Hold
	for _, p := range ports {
		if h := (slice.Hold{Port: p.String()}); !covers(h) {
			missing = append(missing, h)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return refuse(Forbidden,
		"%s %s: root can start Pergola there with %s, or apply the network with ports: of the topology",
		host, allows.WhyNot(missing...), strings.Join(hosts.Flags(allows, missing...), " "))
}
