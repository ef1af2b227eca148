// Package observe reads what is there on a host: the runtime's records, the network's devices and maps, and what each
// resource was made from.
package observe

import (
	"context"

	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/model/slice"
)

// Snapshot is what was there on the host at one moment.
type Snapshot struct {
	Resources []reconcile.Observed
	Whole     map[reconcile.Key]bool // by resource that is there: whether it is not broken
	Slices    map[uint16]bool        // that have anything here

	Slivers map[sliver.ID]sliver.Observed
	NetNS   map[sliver.ID]uint64      // inodes of the slivers' network namespaces
	Legs    map[sliver.ID]map[int]int // the substrate's ports by the ifindexes of the nodes' interfaces
	Ports   map[string]int            // ifindexes of all ports

	// Bound has the ports that processes have bound, of slivers that reserve ports so.
	Bound map[sliver.ID][]slice.HostPort

	// NoIPv6 says of slivers that reach the outside why they have no IPv6 there.
	NoIPv6 map[sliver.ID]string

	Programs map[sliver.ID]wire.ProgramState // packet programs that run, perhaps in an older version

	Wires map[reconcile.Key]plan.Wire
	Links map[reconcile.Key]wiring.Link // with a treatment, by the key of plan.KindQueue

	Owners  map[string]string // of devices, for people: node:interface, slice/node, slice/link
	Remains []string          // devices of ports that were left half made: to be deleted before anything is made

	ports map[sliver.ID][]reconcile.Key
}

func newSnapshot() *Snapshot {
	return &Snapshot{
		Whole: make(map[reconcile.Key]bool), Slices: make(map[uint16]bool),
		Slivers: make(map[sliver.ID]sliver.Observed), NetNS: make(map[sliver.ID]uint64),
		Legs: make(map[sliver.ID]map[int]int), Ports: make(map[string]int),
		ports:    make(map[sliver.ID][]reconcile.Key),
		Programs: make(map[sliver.ID]wire.ProgramState), Bound: make(map[sliver.ID][]slice.HostPort),
		Wires: make(map[reconcile.Key]plan.Wire), Links: make(map[reconcile.Key]wiring.Link),
		Owners: make(map[string]string), NoIPv6: make(map[sliver.ID]string),
	}
}

func (s *Snapshot) add(o reconcile.Observed) {
	s.Resources = append(s.Resources, o)
	s.Whole[o.Key] = !o.Broken
	s.Slices[o.Key.Slice] = true
}

// Read takes a snapshot of a machine. areas are the digests of the slices' areas that this process prepared, by slice:
// an area that is there and not among them counts as one that is made from something else.
func Read(ctx context.Context, m *machine.Machine, areas map[uint16]string) (*Snapshot, error) {
	s := newSnapshot()
	prepared, err := m.Runtime.Slices()
	if err != nil {
		return nil, err
	}
	for _, id := range prepared {
		s.add(reconcile.Observed{
			Key: reconcile.Key{Kind: plan.KindArea, Slice: id}, Digest: areas[id],
			Needs: []reconcile.Key{plan.HostNetKey},
		})
	}
	slivers, err := m.Runtime.List()
	if err != nil {
		return nil, err
	}
	nodes := make(map[int]sliver.ID, len(slivers))
	for _, o := range slivers {
		if inode := m.Platform.NetNS(o.PID); inode != 0 {
			s.NetNS[o.ID], nodes[o.PID] = inode, o.ID
		}
	}
	if err := s.readNetwork(ctx, m, nodes); err != nil {
		return nil, err
	}
	for _, o := range slivers {
		s.addSliver(o)
	}
	return s, nil
}

func (s *Snapshot) readNetwork(ctx context.Context, m *machine.Machine, nodes map[int]sliver.ID) error {
	network := m.Network()
	if network == nil {
		if m.Platform.HasNetwork() {
			s.add(reconcile.Observed{Key: plan.HostNetKey, Broken: true})
		}
		return nil
	}
	state, err := network.Observe(ctx)
	if err != nil {
		return err
	}
	s.add(reconcile.Observed{Key: plan.HostNetKey})
	if state.Card != nil {
		s.add(reconcile.Observed{
			Key: plan.CardKey, Digest: state.Card.Digest(), Needs: []reconcile.Key{plan.HostNetKey},
			Falls: reconcile.FallsWithAny,
		})
	}
	s.addNetwork(state, nodes)
	if programs := m.Programs(); programs != nil {
		running, err := programs.Programs(ctx)
		if err != nil {
			return err
		}
		s.addPrograms(running, state.Ports)
	}
	if gateway := m.Outside(); gateway != nil {
		connected, err := gateway.OutsideNodes(ctx)
		if err != nil {
			return err
		}
		s.addOutside(connected)
		if err := s.addBound(ctx, gateway, nodes); err != nil {
			return err
		}
	}
	s.Remains = state.Remains
	return nil
}

// addNetwork adds ports, switches and what joins them. nodes gives the slivers by their first process.
func (s *Snapshot) addNetwork(state wire.State, nodes map[int]sliver.ID) {
	for name, sw := range state.Switches {
		id := plan.SliceOf(name)
		s.Owners[name] = sw.Owner
		s.add(reconcile.Observed{
			Key:   reconcile.Key{Kind: plan.KindSwitch, Slice: id, Name: name},
			Needs: []reconcile.Key{plan.HostNetKey, {Kind: plan.KindArea, Slice: id}},
			Falls: reconcile.FallsWithAny,
		})
	}
	for name, p := range state.Ports {
		s.addPort(name, p, nodes)
	}
	for name, p := range state.Ports {
		s.addPortWire(name, p, state)
	}
	s.addCables(state.Cables)
}

func (s *Snapshot) addPort(name string, p wire.PortState, nodes map[int]sliver.ID) {
	id := plan.SliceOf(name)
	s.Owners[name], s.Ports[name] = p.Owner, p.Index
	key := reconcile.Key{Kind: plan.KindPort, Slice: id, Name: name}
	base := reconcile.Key{Kind: plan.KindArea, Slice: id} // of an uplink, or a tunnel
	if node, known := nodes[p.PID]; known && !p.Tunnel {
		base = reconcile.Key{Kind: plan.KindSliver, Slice: id, Name: node.Node}
		s.ports[node] = append(s.ports[node], key)
		if s.Legs[node] == nil {
			s.Legs[node] = make(map[int]int)
		}
		s.Legs[node][p.Inner] = p.Index
	}
	s.add(reconcile.Observed{
		Key: key, Digest: p.Digest,
		Needs: []reconcile.Key{plan.HostNetKey, base}, Falls: reconcile.FallsWithAny,
	})
}

// addPortWire adds what a port is joined to, and its queue. A port that has a carrier and no port at the other end is
// what is left of a wire whose other port went: a broken wire, to be disconnected.
func (s *Snapshot) addPortWire(name string, p wire.PortState, state wire.State) {
	id := plan.SliceOf(name)
	port := reconcile.Key{Kind: plan.KindPort, Slice: id, Name: name}
	var w plan.Wire
	o := reconcile.Observed{Needs: []reconcile.Key{port}}
	l := wiring.Link{A: wiring.End{Port: name, MTU: p.MTU}, Switch: p.Switch}
	switch {
	case p.Switch != "":
		w = plan.Plug{Port: name, Bridge: p.Switch}
		o.Needs = append(o.Needs, reconcile.Key{Kind: plan.KindSwitch, Slice: id, Name: p.Switch})
		o.Falls, o.Broken = reconcile.FallsWithAny, !p.Up
	case p.Peer != "":
		w = plan.NewJoin(name, p.Peer)
		l.B = wiring.End{Port: p.Peer, MTU: state.Ports[p.Peer].MTU}
		o.Needs = append(o.Needs, reconcile.Key{Kind: plan.KindPort, Slice: id, Name: p.Peer})
		o.Falls, o.Broken = reconcile.FallsWithAll, !p.Up || !state.Ports[p.Peer].Up
	case p.Up && !p.Tunnel: // a tunnel is up before it is wired
		w = plan.Plug{Port: name}
		o.Falls, o.Broken = reconcile.FallsWithAny, true
	default:
		return
	}
	o.Key = reconcile.Key{Kind: plan.KindWire, Slice: id, Name: w.Name()}
	if _, twice := s.Wires[o.Key]; twice { // seen from the other end
		return
	}
	s.Wires[o.Key] = w
	s.add(o)
	s.addQueue(o.Key, l, p.Layout)
}

// addQueue adds the treatment of a link's frames, if it has any.
func (s *Snapshot) addQueue(wire reconcile.Key, l wiring.Link, is *wiring.Layout) {
	if is == nil {
		return
	}
	k := reconcile.Key{Kind: plan.KindQueue, Slice: wire.Slice, Name: wire.Name}
	s.Links[k] = l
	s.add(reconcile.Observed{
		Key: k, Digest: is.Digest(), Needs: []reconcile.Key{wire}, Falls: reconcile.FallsWithAny,
	})
}

// addCables pairs the ends of cables by their owner.
func (s *Snapshot) addCables(ends map[string]wire.CableState) {
	for name, a := range ends {
		s.Owners[name] = a.Owner
		if a.Peer < name && a.Peer != "" {
			continue // seen from the other end
		}
		id := plan.SliceOf(name)
		b := ends[a.Peer]
		w := plan.NewCable(plan.Cable{A: name, B: a.Peer, BridgeA: a.Switch, BridgeB: b.Switch})
		o := reconcile.Observed{
			Key:   reconcile.Key{Kind: plan.KindWire, Slice: id, Name: w.Name()},
			Falls: reconcile.FallsWithAny, Broken: a.Switch == "" || b.Switch == "" || !a.Up || !b.Up,
			Blocks: []reconcile.Key{
				{Kind: plan.KindPort, Slice: id, Name: name},
				{Kind: plan.KindPort, Slice: id, Name: a.Peer},
			},
		}
		for _, sw := range []string{a.Switch, b.Switch} {
			if sw != "" {
				o.Needs = append(o.Needs, reconcile.Key{Kind: plan.KindSwitch, Slice: id, Name: sw})
			}
		}
		s.Wires[o.Key] = w
		s.add(o)
		l := wiring.Link{
			A: wiring.End{Port: name, MTU: a.MTU}, B: wiring.End{Port: a.Peer, MTU: b.MTU}, Cable: true,
		}
		s.addQueue(o.Key, l, a.Layout)
	}
}

// addSliver adds a sliver and what was done in it.
func (s *Snapshot) addSliver(o sliver.Observed) {
	s.Slivers[o.ID] = o
	k := reconcile.Key{Kind: plan.KindSliver, Slice: o.ID.Slice, Name: o.ID.Node}
	whole := reconcile.Observed{Key: k, Digest: o.Digest, Needs: []reconcile.Key{{
		Kind: plan.KindArea, Slice: o.ID.Slice,
	}}}
	switch o.State {
	case sliver.Broken:
		whole.Broken = true
	case sliver.Exited:
		whole.Digest = plan.ExitedDigest(o.Digest)
	case sliver.Created, sliver.Running, sliver.Paused:
	}
	s.add(whole)
	if o.State == sliver.Broken || o.State == sliver.Exited {
		return
	}
	part := func(kind reconcile.Kind, digest string) {
		needs := []reconcile.Key{k}
		if kind == plan.KindNodeNet {
			needs = append(needs, s.ports[o.ID]...)
		}
		s.add(reconcile.Observed{
			Key: reconcile.Key{Kind: kind, Slice: o.ID.Slice, Name: o.ID.Node}, Digest: digest,
			Needs: needs, Falls: reconcile.FallsWithAny,
		})
	}
	for kind, note := range plan.NoteOf {
		if value := o.Notes[note]; value != "" {
			part(kind, value)
		}
	}
	if o.State == sliver.Running || o.State == sliver.Paused {
		part(plan.KindProcess, plan.Process{Frozen: o.State == sliver.Paused}.Digest())
	}
}
