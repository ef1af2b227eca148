package agent

import (
	"context"
	"fmt"

	"github.com/pergola-net/pergola/agent/sliver"
	"github.com/pergola-net/pergola/agent/wire"
	"github.com/pergola-net/pergola/api"
	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/slice"
)

// Traffic gives what went through the interfaces of a slice's nodes.
func (a *Agent) Traffic(ctx context.Context, name string) (t api.SliceTraffic, err error) {
	a.mu.Lock()
	w := a.wishes[name]
	a.mu.Unlock()
	if w == nil {
		return t, fmt.Errorf("slice %s is not on this host", name)
	}
	counted, err := a.counters(ctx)
	if err != nil {
		return t, err
	}
	t.Interfaces, t.Punts = trafficOf(a.place(), w.spec, counted), make(map[string]map[string]uint64)
	for i := range w.spec.Nodes {
		n := w.spec.Nodes[i].Name // of another host's, nothing is counted
		punts, err := a.fast.punts(ctx, a.network(), sliver.ID{Slice: w.spec.ID, Node: n})
		if err != nil {
			return t, err
		}
		if len(punts) > 0 {
			t.Punts[n] = punts
		}
	}
	return t, nil
}

// counters reads what went through all ports, by their names.
func (a *Agent) counters(ctx context.Context) (map[string]wire.Traffic, error) {
	s := a.network()
	if s == nil {
		return nil, nil
	}
	return s.Counters(ctx)
}

// trafficOf picks the interfaces of a slice's nodes that are at a place out of what was counted: what stands for one elsewhere has the same
// name.
func trafficOf(at place, s *slice.Slice, counted map[string]wire.Traffic) []api.InterfaceTraffic {
	all := []api.InterfaceTraffic{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Kind != slice.Switch && !at.owns(n) {
			continue
		}
		for _, iface := range n.Interfaces {
			c, there := counted[slice.PortName(s.ID, iface.Port)]
			if !there {
				continue
			}
			all = append(all, api.InterfaceTraffic{
				Node: n.Name, Interface: iface.Name, Received: traffic(c.ToNode), Sent: traffic(c.FromNode),
				WalkedIn: traffic(c.WalkedIn), WalkedOut: traffic(c.WalkedOut), Dropped: c.Dropped,
			})
		}
	}
	return all
}

func traffic(t datapath.Traffic) api.Traffic { return api.Traffic{Frames: t.Frames, Bytes: t.Bytes} }
