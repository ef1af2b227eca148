package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/mapping"
	"github.com/pergola-net/pergola/model/slice"
)

// Cluster lists the machines that nodes can be placed on. A *store.Store is one.
type Cluster interface {
	Hosts(ctx context.Context) ([]store.HostState, error)
}

// Option changes how a Controller works.
type Option func(*Controller)

// InCluster makes the controller of a member of a cluster, of the name self. Without it there is only this machine, and
// nodes are not placed.
func InCluster(cluster Cluster, self string) Option {
	return func(c *Controller) { c.cluster, c.self = cluster, self }
}

// hosts lists the machines that slices run on. One that is in no cluster is alone and has no name.
func (c *Controller) hosts(ctx context.Context) ([]store.HostState, error) {
	if c.cluster == nil {
		return make([]store.HostState, 1), nil
	}
	all, err := c.cluster.Hosts(ctx)
	if err != nil {
		return nil, fmt.Errorf("list hosts: %w", err)
	}
	return all, nil
}

// Problems gives, by host, why a host can take no nodes, apart from being lost, cordoned or drained.
func Problems(hosts []store.HostState) map[string]string {
	found := map[string]string{}
	for _, h := range hosts {
		if !h.Address.IsValid() {
			if len(hosts) > 1 {
				found[h.Name] = "has no address for tunnels"
			}
			continue
		}
		var others []string
		for _, other := range hosts {
			if other.Name != h.Name && other.Address == h.Address {
				others = append(others, other.Name)
			}
		}
		if len(others) > 0 {
			slices.Sort(others)
			found[h.Name] = fmt.Sprintf("has the address %s, as has %s", h.Address,
				strings.Join(others, ", "))
		}
	}
	return found
}

// underlay is the interface that carries a host's tunnels. If the host reports none that has its address and is up,
// known is false, and the MTU may be the default.
func underlay(h *store.HostState) (u hosts.Underlay, known bool) {
	if u, known = h.Carrier(); known {
		return u, true
	}
	u = hosts.Underlay{Name: "its interface"}
	if len(h.Underlays) > 0 {
		u = h.Underlays[0]
	}
	u.MTU = cmp.Or(u.MTU, slice.DefaultMTU)
	return u, false
}

// usage is what slices use of one host.
type usage struct {
	mapping.Resources
	rate  uint64
	ports map[string]string // of the host's addresses: whose they are
}

// withPorts adds ports.
func (u usage) withPorts(ports map[string]string) usage {
	if len(ports) == 0 {
		return u
	}
	all := maps.Clone(u.ports)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, ports)
	u.ports = all
	return u
}

// portsOf gives a node's ports, with whose they are.
func portsOf(s *slice.Slice, n *slice.Node) map[string]string {
	all := map[string]string{}
	for _, p := range n.HostPorts() {
		all[p.String()] = s.Name + "/" + n.Name
	}
	return all
}

// usageOf is what a slice uses of hosts, by host. Nodes that are on none in particular are on the host without a name.
func usageOf(s *slice.Slice) map[string]usage {
	used, at := map[string]usage{}, map[string]string{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Kind == slice.Switch {
			continue
		}
		at[n.Name] = n.Host
		l := used[n.Host]
		l.Resources = l.Plus(mapping.Demand(n))
		l.rate += uint64(n.ReservedOutside())
		used[n.Host] = l.withPorts(portsOf(s, n))
	}
	for _, link := range joints(s, false) {
		on := map[string]uint64{} // by host: what is reserved of the link there
		for _, n := range link.Nodes {
			on[at[n]] += link.Reserved[n]
		}
		if delete(on, ""); len(on) < 2 {
			continue
		}
		for h, reserved := range on {
			l := used[h]
			l.rate += link.Carries(reserved)
			used[h] = l
		}
	}
	return used
}

// hasUnplaced reports whether a slice has nodes that are on no host in particular.
func hasUnplaced(s *slice.Slice) bool {
	return slices.ContainsFunc(s.Nodes, func(n slice.Node) bool { return n.Kind != slice.Switch && n.Host == "" })
}

// usedByOthers sums what all slices but one use of the hosts. A slice that is being deleted is not counted.
func (c *Controller) usedByOthers(ctx context.Context, but string) (map[string]usage, error) {
	records, err := c.store.Slices(ctx)
	if err != nil {
		return nil, err
	}
	sum := map[string]usage{}
	for _, r := range records {
		if r.Name == but || r.Deleting || r.Corrupt {
			continue
		}
		one, err := c.usage.get(ctx, c.store, r)
		if err != nil {
			return nil, err
		}
		for h, l := range one.of {
			total := sum[h]
			total.Resources = total.Plus(l.Resources)
			total.rate += l.rate
			sum[h] = total.withPorts(l.ports)
		}
	}
	c.usage.forget(records)
	return sum, nil
}
