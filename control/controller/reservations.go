package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/mapping"
	"github.com/pergola-net/pergola/model/slice"
)

// Reservations lists what nodes have reserved of each host, and of what. A machine that is in no cluster is one host
// without a name, which offers what is given.
func (c *Controller) Reservations(ctx context.Context, alone slice.Reserve) ([]api.HostReservations, error) {
	var hosts []store.HostState
	var err error
	if c.cluster != nil {
		if hosts, err = c.cluster.Hosts(ctx); err != nil {
			return nil, fmt.Errorf("list hosts: %w", err)
		}
	} else {
		hosts = make([]store.HostState, 1)
		hosts[0].Reservable = alone
	}
	records, err := c.store.Slices(ctx)
	if err != nil {
		return nil, err
	}
	return reservations(hosts, records, func(name string) (*slice.Slice, error) {
		spec, _, err := c.store.Slice(ctx, name)
		return spec, err
	})
}

// reservations sums what slices have reserved of hosts. One that has gone since it was listed has nothing.
func reservations(hosts []store.HostState, records []store.Record, read func(name string) (*slice.Slice, error)) (
	[]api.HostReservations, error) {
	all, at := make([]api.HostReservations, len(hosts)), map[string]int{}
	used := make([]usage, len(hosts))
	for i, h := range hosts {
		all[i] = api.HostReservations{Host: h.Name, Nodes: []api.NodeReservation{}}
		at[h.Name] = i
	}
	for _, r := range records {
		if r.Deleting || r.Corrupt {
			continue
		}
		spec, err := read(r.Name)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read slice %s: %w", r.Name, err)
		}
		for j := range spec.Nodes {
			n := &spec.Nodes[j]
			i, known := at[n.Host]
			if one := reservationOf(r.Name, n); known && one != nil {
				used[i].Resources = used[i].Plus(mapping.Demand(n))
				all[i].Nodes = append(all[i].Nodes, *one)
			}
		}
		for host, u := range usageOf(spec) {
			if i, known := at[host]; known {
				used[i].rate += u.rate
			}
		}
	}
	for i := range hosts {
		all[i].Resources = compare(capacityOf(&hosts[i].Host), used[i].Resources)
		if card, _ := underlay(&hosts[i]); card.Rate != 0 || used[i].rate != 0 {
			all[i].Resources = append(all[i].Resources, api.Reservation{
				Kind: api.Bandwidth, Capacity: float64(card.Rate), Reserved: float64(used[i].rate),
			})
		}
	}
	return all, nil
}

// reservationOf is what a node has reserved; nil: nothing.
func reservationOf(name string, n *slice.Node) *api.NodeReservation {
	demand, bandwidth := mapping.Demand(n), bandwidthOf(n)
	if demand == (mapping.Resources{}) && !n.ReachesOutside() && len(bandwidth) == 0 {
		return nil
	}
	return &api.NodeReservation{
		Slice: name, Node: n.Name, Reserved: byKind(demand), Ports: portNames(n.HostPorts()),
		Outside: n.Outside, Bandwidth: bandwidth,
	}
}

// bandwidthOf is what a node has reserved of its host's card, by interface.
func bandwidthOf(n *slice.Node) map[string]uint64 {
	var all map[string]uint64
	for i := range n.Interfaces {
		if rate := n.Interfaces[i].Reserved(); rate != 0 {
			if all == nil {
				all = map[string]uint64{}
			}
			all[n.Interfaces[i].Name] = uint64(rate)
		}
	}
	return all
}

func byKind(r mapping.Resources) map[string]float64 {
	all := map[string]float64{}
	for kind, n := range r {
		if n != 0 {
			all[mapping.Resource(kind).String()] = n
		}
	}
	return all
}

func compare(capacity, used mapping.Resources) []api.Reservation {
	all := []api.Reservation{}
	for kind := range capacity {
		if capacity[kind] != 0 || used[kind] != 0 {
			all = append(all, api.Reservation{
				Kind: mapping.Resource(kind).String(), Capacity: capacity[kind], Reserved: used[kind],
			})
		}
	}
	return all
}
