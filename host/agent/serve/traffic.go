package serve

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/outside"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/model/slice"
)

// Traffic gives what went through the interfaces of a slice's nodes.
func (s *Server) Traffic(ctx context.Context, name string) (t api.SliceTraffic, err error) {
	w, err := s.inputs.Slice(name)
	if err != nil {
		return t, err
	}
	counted, err := s.counters(ctx)
	if err != nil {
		return t, err
	}
	t.Interfaces, t.Punts = trafficOf(s.inputs.Place(), w.Spec, counted), make(map[string]map[string]uint64)
	t.Tunnels = tunnelsOf(w.Spec, counted)
	times, err := s.programTimes(ctx)
	if err != nil {
		return t, err
	}
	t.ProgramTime = times[w.Spec.ID]
	for i := range w.Spec.Nodes {
		n := w.Spec.Nodes[i].Name // of another host's, nothing is counted
		punts, err := s.fastPath.Punts(ctx, sliver.ID{Slice: w.Spec.ID, Node: n})
		if err != nil {
			return t, err
		}
		if len(punts) > 0 {
			t.Punts[n] = punts
		}
	}
	return t, nil
}

// SliceCounters is what is counted of one slice on this host.
type SliceCounters struct {
	Slice       string
	FastPath    api.FastPath
	FastPathErr error
	Interfaces  []api.InterfaceTraffic
	Tunnels     []api.TunnelTraffic
	LSPs        []api.SignalledLSP // that begin here
	Queues      []api.QueueTraffic
	QueuesErr   error
	Programs    []api.NodeProgram
	ProgramsErr error
	ProgramTime []api.ProgramTime         // one, or none
	Outside     map[string]outside.Counts // by node
	OutsideErr  error
}

// Counters gives what is counted of all slices. The ports are read once.
func (s *Server) Counters(ctx context.Context) (all []SliceCounters, err error) {
	counted, err := s.counters(ctx)
	if err != nil {
		return nil, err
	}
	times, err := s.programTimes(ctx)
	if err != nil {
		return nil, err
	}
	dropped, outsideErr := s.outsideCounts(ctx)
	for _, w := range s.inputs.All() {
		c := SliceCounters{
			Slice: w.Spec.Name, ProgramTime: times[w.Spec.ID],
			Interfaces: trafficOf(s.inputs.Place(), w.Spec, counted), Tunnels: tunnelsOf(w.Spec, counted),
		}
		c.LSPs = s.lspsOf(w).Signalled
		c.FastPath, c.FastPathErr = s.fastPathOf(ctx, w)
		c.Queues, c.QueuesErr = s.queuesOf(ctx, w.Spec.ID, linksOf(w.Spec))
		c.Programs, c.ProgramsErr = s.programsOf(ctx, w, nil)
		c.Outside, c.OutsideErr = dropped[w.Spec.ID], outsideErr
		all = append(all, c)
	}
	return all, nil
}

// outsideCounts gives what was dropped of nodes' traffic with the outside, by slice and node.
func (s *Server) outsideCounts(ctx context.Context) (map[uint16]map[string]outside.Counts, error) {
	gateway := s.machine.Outside()
	if gateway == nil {
		return nil, nil
	}
	counted, err := gateway.OutsideCounts(ctx)
	if err != nil {
		return nil, err
	}
	all := map[uint16]map[string]outside.Counts{}
	for owner, n := range counted {
		id, ok := plan.ParseNodeID(owner)
		if !ok {
			continue
		}
		if all[id.Slice] == nil {
			all[id.Slice] = map[string]outside.Counts{}
		}
		all[id.Slice][id.Node] = n
	}
	return all, nil
}

// Underlay gives what went through all tunnels of this host.
func (s *Server) Underlay(ctx context.Context) (t api.UnderlayTraffic, err error) {
	n := s.machine.Network()
	if n == nil {
		return t, nil
	}
	state, err := n.Underlay(ctx)
	if err != nil {
		return t, err
	}
	for what, n := range state.Counters {
		switch what {
		case datapath.Received:
			t.Received = n
		case datapath.ByLineCard:
			t.ByLineCard = n
		case datapath.Sent:
			t.Sent = n
		default:
			if t.Dropped == nil {
				t.Dropped = map[string]uint64{}
			}
			t.Dropped[what] = n
		}
	}
	return t, nil
}

// programTimes is the processor time of packet programs on this host, by slice.
func (s *Server) programTimes(ctx context.Context) (map[uint16][]api.ProgramTime, error) {
	from := s.machine.Programs()
	if from == nil {
		return nil, nil
	}
	times, err := from.ProgramTimes(ctx)
	all := make(map[uint16][]api.ProgramTime, len(times))
	for slice, t := range times {
		all[slice] = []api.ProgramTime{{Reserved: t.Reserved, Seconds: t.Spent.Seconds(), Metered: t.Metered}}
	}
	return all, err
}

// counters reads what went through all ports, by their names.
func (s *Server) counters(ctx context.Context) (map[string]wire.Traffic, error) {
	n := s.machine.Network()
	if n == nil {
		return nil, nil
	}
	return n.Counters(ctx)
}

// trafficOf picks the interfaces of a slice's nodes that are at a place out of what was counted: a proxy port has the
// same name as the port that it represents.
func trafficOf(at plan.Place, s *slice.Slice, counted map[string]wire.Traffic) []api.InterfaceTraffic {
	all := []api.InterfaceTraffic{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Kind != slice.Switch && !at.Owns(n) {
			continue
		}
		for _, iface := range n.Interfaces {
			c, there := counted[slice.PortName(s.ID, iface.Port)]
			if !there {
				continue
			}
			all = append(all, api.InterfaceTraffic{
				Node: n.Name, Interface: iface.Name, Received: traffic(c.ToNode),
				Sent:     traffic(c.FromNode),
				WalkedIn: traffic(c.WalkedIn), WalkedOut: traffic(c.WalkedOut), Dropped: c.Dropped,
			})
		}
	}
	return all
}

// tunnelsOf picks a slice's tunnels out of what was counted, in the order of their other ends.
func tunnelsOf(s *slice.Slice, counted map[string]wire.Traffic) (all []api.TunnelTraffic) {
	for port, c := range counted {
		if c.Tunnel != nil && c.Tunnel.Slice == s.ID {
			all = append(all, api.TunnelTraffic{
				To: c.Tunnel.Owner, Port: port, Received: traffic(c.FromNode), Sent: traffic(c.ToNode),
				Dropped: c.Dropped,
			})
		}
	}
	slices.SortFunc(all, func(a, b api.TunnelTraffic) int {
		return cmp.Or(strings.Compare(a.To, b.To), strings.Compare(a.Port, b.Port))
	})
	return all
}

func traffic(t datapath.Traffic) api.Traffic { return api.Traffic{Frames: t.Frames, Bytes: t.Bytes} }
