package observe

import (
	"context"

	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/host/outside"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/sliver"
)

// addOutside adds the connections of slivers with the outside.
func (s *Snapshot) addOutside(connected []outside.Node) {
	for _, n := range connected {
		id, ok := plan.ParseNodeID(n.Owner)
		if !ok {
			continue // not ours
		}
		s.NoIPv6[sliver.ID(id)] = n.NoIPv6
		s.add(reconcile.Observed{
			Key:    reconcile.Key{Kind: plan.KindOutside, Slice: id.Slice, Name: id.Node},
			Digest: n.Digest,
			Needs: []reconcile.Key{
				plan.HostNetKey, {Kind: plan.KindSliver, Slice: id.Slice, Name: id.Node},
			},
		})
	}
}

// addBound adds the ports that processes of slivers have bound.
func (s *Snapshot) addBound(ctx context.Context, gateway machine.Outside, nodes map[int]sliver.ID) error {
	pids := make(map[string]int, len(nodes))
	for pid, id := range nodes {
		pids[plan.NodeID(id).String()] = pid
	}
	bound, err := gateway.BoundPorts(ctx, pids)
	if err != nil {
		return err
	}
	for owner, ports := range bound {
		if id, ok := plan.ParseNodeID(owner); ok {
			s.Bound[sliver.ID(id)] = ports
		}
	}
	return nil
}
