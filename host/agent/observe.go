package agent

import (
	"context"
	"fmt"

	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/host/wiring"
)

// sight is what was seen of the host at one moment.
type sight struct {
	resources []reconcile.Observed
	has       map[reconcile.Key]bool // whole, not broken
	slivers   map[sliver.ID]sliver.Observed
	wires     map[reconcile.Key]plan.Wire
	links     map[reconcile.Key]wiring.Link // with a treatment, by the key of plan.KindQueue
	ports     map[sliver.ID][]reconcile.Key
	netns     map[sliver.ID]uint64      // inodes of network namespaces
	legs      map[sliver.ID]map[int]int // the substrate's ports by the ifindexes of the nodes' interfaces
	slices    map[uint16]bool           // have anything here
}

func (s *sight) add(o reconcile.Observed) {
	s.resources = append(s.resources, o)
	s.has[o.Key] = !o.Broken
	s.slices[o.Key.Slice] = true
}

func newSight() *sight {
	return &sight{
		has: make(map[reconcile.Key]bool), slices: make(map[uint16]bool), slivers: make(map[sliver.ID]sliver.Observed),
		wires: make(map[reconcile.Key]plan.Wire), links: make(map[reconcile.Key]wiring.Link),
		ports: make(map[sliver.ID][]reconcile.Key), netns: make(map[sliver.ID]uint64), legs: make(map[sliver.ID]map[int]int),
	}
}

// observe asks the runtime, the kernel and the data path what is there.
func (a *Agent) observe(ctx context.Context) (*sight, error) {
	s := newSight()
	areas, err := a.runtime.Slices()
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	for _, id := range areas {
		s.add(reconcile.Observed{
			Key: reconcile.Key{Kind: plan.KindArea, Slice: id}, Digest: a.prepared[id], Needs: []reconcile.Key{plan.HostNetKey},
		})
	}
	a.mu.Unlock()
	all, err := a.runtime.List()
	if err != nil {
		return nil, err
	}
	byPort := a.portsOf(all)
	for inode, id := range byPort {
		s.netns[id] = inode
	}
	if network := a.network(); network != nil {
		state, err := network.Observe(ctx)
		if err != nil {
			return nil, err
		}
		s.add(reconcile.Observed{Key: plan.HostNetKey})
		s.addNetwork(state, byPort)
		if len(state.Remains) > 0 {
			if err := network.DeletePorts(ctx, state.Remains...); err != nil {
				return nil, fmt.Errorf("sweep remains: %w", err)
			}
		}
	} else if a.platform.HasNetwork() {
		s.add(reconcile.Observed{Key: plan.HostNetKey, Broken: true})
	}
	for _, o := range all {
		s.addSliver(o)
	}
	return s, nil
}

// portsOf tells which node each port's namespace is: its inode is what the substrate knows of it.
func (a *Agent) portsOf(all []sliver.Observed) map[uint64]sliver.ID {
	nodes := make(map[uint64]sliver.ID, len(all))
	for _, o := range all {
		if inode := a.platform.NetNS(o.PID); inode != 0 {
			nodes[inode] = o.ID
		}
	}
	return nodes
}

// addNetwork adds ports, switches and what joins them. nodes gives the slivers by the inode of their namespace.
func (s *sight) addNetwork(state wire.State, nodes map[uint64]sliver.ID) {
	for name := range state.Switches {
		id := plan.SliceOf(name)
		s.add(reconcile.Observed{
			Key:   reconcile.Key{Kind: plan.KindSwitch, Slice: id, Name: name},
			Needs: []reconcile.Key{plan.HostNetKey, {Kind: plan.KindArea, Slice: id}}, Falls: reconcile.FallsWithAny,
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

func (s *sight) addPort(name string, p wire.PortState, nodes map[uint64]sliver.ID) {
	id := plan.SliceOf(name)
	key := reconcile.Key{Kind: plan.KindPort, Slice: id, Name: name}
	base := reconcile.Key{Kind: plan.KindArea, Slice: id} // of an uplink, or a tunnel
	if node, known := nodes[p.NetNS]; known && !p.Tunnel {
		base = reconcile.Key{Kind: plan.KindSliver, Slice: id, Name: node.Node}
		s.ports[node] = append(s.ports[node], key)
		if s.legs[node] == nil {
			s.legs[node] = make(map[int]int)
		}
		s.legs[node][p.Inner] = p.Index
	}
	s.add(reconcile.Observed{
		Key: key, Digest: p.Digest,
		Needs: []reconcile.Key{plan.HostNetKey, base}, Falls: reconcile.FallsWithAny,
	})
}

// addPortWire adds what a port is joined to, and its queue. A port that has a carrier and nobody at the other end is
// what is left of a wire whose other port went: a broken wire, to be disconnected.
func (s *sight) addPortWire(name string, p wire.PortState, state wire.State) {
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
	if _, twice := s.wires[o.Key]; twice { // seen from the other end
		return
	}
	s.wires[o.Key] = w
	s.add(o)
	s.addQueue(o.Key, l, p.Layout)
}

// addQueue adds the treatment of a link's frames, if it has any.
func (s *sight) addQueue(wire reconcile.Key, l wiring.Link, is *wiring.Layout) {
	if is == nil {
		return
	}
	k := reconcile.Key{Kind: plan.KindQueue, Slice: wire.Slice, Name: wire.Name}
	s.links[k] = l
	s.add(reconcile.Observed{Key: k, Digest: is.Digest(), Needs: []reconcile.Key{wire}, Falls: reconcile.FallsWithAny})
}

// addCables pairs the ends of cables by their owner.
func (s *sight) addCables(ends map[string]wire.CableState) {
	for name, a := range ends {
		if a.Peer < name && a.Peer != "" {
			continue // seen from the other end
		}
		id := plan.SliceOf(name)
		b := ends[a.Peer]
		w := plan.NewCable(plan.Cable{A: name, B: a.Peer, BridgeA: a.Switch, BridgeB: b.Switch})
		o := reconcile.Observed{
			Key: reconcile.Key{Kind: plan.KindWire, Slice: id, Name: w.Name()}, Falls: reconcile.FallsWithAny,
			Broken: a.Switch == "" || b.Switch == "" || !a.Up || !b.Up,
		}
		for _, sw := range []string{a.Switch, b.Switch} {
			if sw != "" {
				o.Needs = append(o.Needs, reconcile.Key{Kind: plan.KindSwitch, Slice: id, Name: sw})
			}
		}
		s.wires[o.Key] = w
		s.add(o)
		l := wiring.Link{A: wiring.End{Port: name, MTU: a.MTU}, B: wiring.End{Port: a.Peer, MTU: b.MTU}, Cable: true}
		s.addQueue(o.Key, l, a.Layout)
	}
}

// addSliver adds a sliver and what was done in it.
func (s *sight) addSliver(o sliver.Observed) {
	s.slivers[o.ID] = o
	k := reconcile.Key{Kind: plan.KindSliver, Slice: o.ID.Slice, Name: o.ID.Node}
	whole := reconcile.Observed{Key: k, Digest: o.Digest, Needs: []reconcile.Key{{Kind: plan.KindArea, Slice: o.ID.Slice}}}
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
