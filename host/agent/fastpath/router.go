package fastpath

import (
	"maps"
	"os"

	"github.com/pergola-net/pergola/datapath/mirror"
	"github.com/pergola-net/pergola/host/agent/observe"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/model/slice"
)

// Router is a router as it is to be on the fast path, or off it.
type Router struct {
	Slice uint16
	NetNS uint64      // inode of its network namespace
	PID   int         // of a process in it
	Legs  map[int]int // the substrate's port by the ifindex of the node's interface
	Off   bool        // by the topology

	Labels mirror.Labels
}

// Routers lists the routers that the fast path is to know, by what is wanted and what was observed. It is pure.
func Routers(inputs []plan.Input, seen *observe.Snapshot, labels map[sliver.ID]mirror.Labels) map[sliver.ID]Router {
	all := make(map[sliver.ID]Router)
	for i := range inputs {
		spec := inputs[i].Spec
		for j := range spec.Nodes {
			n := &spec.Nodes[j]
			id := sliver.ID{Slice: spec.ID, Node: n.Name}
			ns, legs := seen.NetNS[id], seen.Legs[id]
			if n.Kind != slice.Router || ns == 0 || len(legs) == 0 {
				continue
			}
			all[id] = Router{
				Slice: spec.ID, NetNS: ns, PID: seen.Slivers[id].PID, Legs: legs,
				Off: n.FastPath == slice.FastPathOff, Labels: labels[id],
			}
		}
	}
	return all
}

func (r Router) equal(o Router) bool {
	return r.NetNS == o.NetNS && r.Off == o.Off && maps.Equal(r.Legs, o.Legs) &&
		r.Labels.Equal(o.Labels)
}

// open opens a router's network namespace, if it still is the one that was observed.
func (r Router) open() (*os.File, error) { return netns.OpenSame(r.PID, r.NetNS) }
