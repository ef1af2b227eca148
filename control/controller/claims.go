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
	for try := 1; ; try++ {
		err := c.reserve(ctx, name, node, change)
		if !errors.Is(err, store.ErrConflict) || try == attempts {
			return err
		}
	}
}

func (c *Controller) reserve(ctx context.Context, name, node string, change api.ReservationChange) error {
	c.placeMu.Lock()
	defer c.placeMu.Unlock()
	prev, record, err := c.Slice(ctx, name)
	if err != nil {
		return err
	}
	if record.Deleting {
		return fmt.Errorf("%s: %w", name, store.ErrDeleting)
	}
	next := copyForPlacing(prev)
	n := next.Node(node)
	if n == nil {
		return refuse(NotFound, "network %s has no node %q", name, node)
	}
	added, err := claim(next, n, change)
	if err != nil {
		return err
	}
	if Diff(prev, next).Empty() {
		return nil
	}
	if c.cluster == nil {
		err = c.admitAlone(ctx, next, n, added)
	} else {
		err = c.admitClaims(ctx, prev, next, n, record.Generation+1, added)
	}
	if err != nil {
		return err
	}
	if err := c.store.PutSlice(ctx, next, record.Generation); err != nil {
		return fmt.Errorf("store network %s: %w", name, err)
	}
	c.events.Publish(events.Event{Slice: name, Node: node, Kind: events.NodeWanted,
		Message: "reservations changed by the node itself: " + describeClaims(change)})
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
		all = append(all, fmt.Sprintf("%s %s", name, change.Bandwidth[name]))
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
	for _, p := range release {
		if slices.Contains(n.Ports, p) {
			return nil, refuse(
				Invalid,
				"port %s of %s is one of the topology: take it out of ports: there",
				p,
				n.Name,
			)
		}
		if !slices.Contains(*claims, p) && !change.Bound { // else it was released by an earlier call
			return nil, refuse(NotFound, "%s has not reserved port %s", n.Name, p)
		}
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

// admitAlone admits a node's ports on a machine that is in no cluster, and so has no card that tunnels share.
func (c *Controller) admitAlone(ctx context.Context, s *slice.Slice, n *slice.Node, added []slice.HostPort) error {
	if err := c.allowPorts(s.Name, "this machine", hosts.Allowance{}, true, added); err != nil {
		return err
	}
	if len(added) == 0 {
		return nil
	}
	part := *s
	part.Links = nil
	one := *n
	one.Program, one.Interfaces = nil, nil // they are there, and so is what follows
	one.Command, one.Exec, one.Binds, one.Sysctls = nil, nil, nil, nil
	part.Nodes = []slice.Node{one}
	if _, err := c.host.Supports(ctx, &part); err != nil {
		return refuseUnsupported(err)
	}
	return nil
}

// refuseUnsupported words what a machine lacks for a claim.
func refuseUnsupported(err error) *Refusal {
	var found topology.Diagnostics
	if errors.As(err, &found) {
		return faulty(found)
	}
	return refuse(Conflict, "%v", err)
}

// admitClaims admits a slice, whose nodes stay where they are, on the hosts of a cluster.
func (c *Controller) admitClaims(ctx context.Context, prev, next *slice.Slice, n *slice.Node, generation int64,
	added []slice.HostPort) error {
	p, err := c.placing(ctx, prev, next, generation)
	if err != nil {
		return err
	}
	used := usageOf(next)
	for i := range p.hosts {
		h := &p.hosts[i]
		if h.Name == n.Host {
			if err := c.allowPorts(next.Name, "host "+h.Name, h.Allows, h.Name == c.self,
				added); err != nil {
				return err
			}
			for _, port := range added {
				if whose := p.used[h.Name].ports[port.String()]; whose != "" {
					return refuse(
						Conflict,
						"port %s of host %s is reserved for %s",
						port,
						h.Name,
						whose,
					)
				}
			}
		}
		card, _ := underlay(h)
		was, is, others := usageOf(prev)[h.Name].rate, used[h.Name].rate, p.used[h.Name].rate
		if card.Rate != 0 && is > was && others+is > card.Rate {
			return refuse(
				Full,
				"host %s has not enough bandwidth left: links that leave it would need %s of %s "+
					"(`pergola reserve ls` shows which nodes have it)",
				h.Name,
				unit.Rate(others+is),
				unit.Rate(card.Rate),
			)
		}
	}
	return nil
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
	return refuse(Forbidden, "%s %s: root can start Pergola there with %s, or apply the network with ports: of the "+
		"topology", host, allows.WhyNot(missing...), strings.Join(hosts.Flags(allows, missing...), " "))
}
