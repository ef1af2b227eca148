package observe

import (
	"github.com/pergola-net/pergola/host/outside"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/reconcile"
)

// addOutside adds the connections of slivers with the outside.
func (s *Snapshot) addOutside(connected []outside.Node) {
	for _, n := range connected {
		id, ok := plan.ParseNodeID(n.Owner)
		if !ok {
			continue // not ours
		}
		s.add(reconcile.Observed{
			Key:    reconcile.Key{Kind: plan.KindOutside, Slice: id.Slice, Name: id.Node},
			Digest: n.Digest,
			Needs: []reconcile.Key{
				plan.HostNetKey, {Kind: plan.KindSliver, Slice: id.Slice, Name: id.Node},
			},
		})
	}
}
