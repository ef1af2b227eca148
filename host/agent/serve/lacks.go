package serve

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/host/lack"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/routing"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
)

// Supports says, as an error, what this machine lacks for a slice, whatever other slices have of it (HaveRoom). Doubts
// are what may be missing, or may be meant to be missing; with an error, they are in it.
func (s *Server) Supports(ctx context.Context, spec *slice.Slice) (doubts []string, err error) {
	at := s.inputs.Place()
	here := func(n *slice.Node) bool { return s.alone || at.Owns(n) }
	lacks := slices.Concat(s.lackRoots(ctx, spec, here), s.lackSuites(spec, here), s.lackFeatures(at, spec))
	var nodes []*slice.Node
	for i := range spec.Nodes {
		if n := &spec.Nodes[i]; here(n) {
			nodes = append(nodes, n)
		}
	}
	lacks = append(lacks, lackDevices(at, nodes)...)
	certain, doubtful := s.machine.Runtime.Lacks(nodes)
	doubtful = append(doubtful, s.lackLimits(nodes)...)
	if lacks = append(lacks, certain...); len(lacks) > 0 {
		lacks = append(lacks, doubtful...)
	}
	err = errors.Join(canRender(spec), s.tryPrograms(at, spec), lack.New(lacks...))
	if err == nil && len(doubtful) > 0 {
		doubts = []string{lack.New(doubtful...).Error()}
	}
	return doubts, err
}

// Lacks names what nodes cannot have here, for a person.
func (s *Server) Lacks() (all []string) {
	p := s.machine.Platform
	for _, have := range []func() error{
		p.HaveFastPath, p.HaveNAT, p.HavePorts, p.HaveUplink, p.HaveLimits, p.HaveNetem, p.HaveHTB,
	} {
		if err := have(); err != nil {
			all = append(all, err.Error())
		}
	}
	return all
}

// lackDevices names devices that no node gets unless this machine's operator has named them.
func lackDevices(at plan.Place, nodes []*slice.Node) (lacks []lack.Lack) {
	for _, n := range nodes {
		named := at.NamedDevices(n)
		for _, d := range n.Devices {
			if why := sliver.Refuses(d, named); why != "" {
				lacks = append(lacks, lack.Lack{What: why, Nodes: []string{n.Name}})
			}
		}
	}
	return lacks
}

// lackLimits says that limits of nodes are not kept here.
func (s *Server) lackLimits(nodes []*slice.Node) []lack.Lack {
	var limited []string
	for _, n := range nodes {
		if n.CPU != 0 || n.Memory != 0 || n.PIDs != 0 {
			limited = append(limited, n.Name)
		}
	}
	if len(limited) == 0 {
		return nil
	}
	if err := s.machine.Platform.HaveLimits(); err != nil {
		return []lack.Lack{{What: err.Error(), Nodes: limited}}
	}
	return nil
}

// needs are what links and nodes at a place ask of the kernel beside containers: for nodes, who does.
type needs struct {
	netem, htb, fastPath                     bool
	outside, ports, binds, programs, uplinks []string
}

func (n *needs) ofShape(s slice.Shape) {
	n.netem = n.netem || s.NeedsNetem()
	n.htb = n.htb || s.NeedsHTB()
	n.fastPath = n.fastPath || s.NeedsFastPath()
}

func (n *needs) ofNode(node *slice.Node) {
	if node.Outside {
		n.outside = append(n.outside, node.Name)
	}
	if len(node.Ports)+len(node.Claims) > 0 {
		n.ports = append(n.ports, node.Name)
	}
	if node.BindPorts != (slice.Ports{}) {
		n.binds = append(n.binds, node.Name)
	}
	switch node.Kind {
	case slice.Program:
		n.programs = append(n.programs, node.Name)
	case slice.Uplink:
		n.uplinks = append(n.uplinks, node.Name)
	default: // asks for nothing by its kind
	}
}

// lackFeatures looks for what links, and nodes that reach the outside, need of the kernel.
func (s *Server) lackFeatures(at plan.Place, spec *slice.Slice) (lacks []lack.Lack) {
	var n needs
	for i := range spec.Links {
		for _, e := range spec.Links[i].Ends {
			end := spec.Node(e.Node)
			// Else another host does it.
			if s.alone || end == nil || end.Kind == slice.Switch || at.Owns(end) {
				n.ofShape(e.Shape)
			}
		}
	}
	for i := range spec.Nodes {
		if node := &spec.Nodes[i]; s.alone || at.Owns(node) {
			n.ofNode(node)
		}
	}
	p := s.machine.Platform
	for _, feature := range []struct {
		needed bool
		have   func() error
		nodes  []string
	}{
		{n.netem, p.HaveNetem, nil}, {n.htb, p.HaveHTB, nil},
		{len(n.outside) > 0, p.HaveNAT, n.outside}, {len(n.ports) > 0, p.HavePorts, n.ports},
		{len(n.binds) > 0, p.HaveBind, n.binds},
		{n.fastPath || len(spec.LSPs)+len(n.programs) > 0, p.HaveFastPath, n.programs},
		{len(n.uplinks) > 0, p.HaveUplink, n.uplinks},
	} {
		if !feature.needed {
			continue
		}
		if err := feature.have(); err != nil {
			lacks = append(lacks, lack.Lack{What: err.Error(), Nodes: feature.nodes})
		}
	}
	return lacks
}

// lackSuites looks for the routing suites that this host's nodes take from the machine.
func (s *Server) lackSuites(spec *slice.Slice, here func(*slice.Node) bool) (lacks []lack.Lack) {
	nodes := map[slice.Daemon][]string{}
	for i := range spec.Nodes {
		n := &spec.Nodes[i]
		if n.Routing != nil && n.Rootfs.FromMachine() && here(n) {
			nodes[n.Routing.Daemon] = append(nodes[n.Routing.Daemon], n.Name)
		}
	}
	for _, d := range slices.Sorted(maps.Keys(nodes)) {
		programs, pack := routing.Suite(d)
		if len(programs) == 0 || s.machine.Runtime.Installed(programs...) {
			continue
		}
		lacks = append(lacks, lack.Lack{
			What:  fmt.Sprintf("%s is not installed (no %s)", pack, programs[0]),
			Nodes: nodes[d], Package: pack,
		})
	}
	return lacks
}

// lackRoom looks whether other slices, as they are stored at this moment, leave what the nodes of a slice have at a
// place. Its links have these shapes in place of their own; nil: those that were changed by hand in its present
// version.
func (s *Server) lackRoom(ctx context.Context, at plan.Place, spec *slice.Slice, shapes map[string]slice.Shape) (
	lacks []lack.Lack, err error) {
	all, err := s.inputs.Stored(ctx, at.Host)
	if err != nil {
		return nil, fmt.Errorf("see what other networks have of host %s: %w: %w", at.Host, store.ErrUnread, err)
	}
	room := plan.NewRoom(at)
	for _, other := range all {
		if other.Spec.Name == spec.Name {
			if shapes == nil {
				shapes = other.Overrides.ShapesFor(other.Spec, spec)
			}
			continue
		}
		short := room.Take(other.Spec, other.Overrides.Shapes)
		room.TakeClaims(other.Spec, short)
	}
	short := room.Take(spec, shapes)
	for _, node := range slices.Sorted(maps.Keys(short)) {
		lacks = append(lacks, lack.Lack{What: short[node], Nodes: []string{node}})
	}
	return lacks, nil
}

// lackRoots looks whether the sources of the root file systems of this host's nodes are there.
func (s *Server) lackRoots(ctx context.Context, spec *slice.Slice, here func(*slice.Node) bool) (lacks []lack.Lack) {
	users := make(map[slice.Rootfs][]string)
	for i := range spec.Nodes {
		if n := &spec.Nodes[i]; here(n) {
			users[n.Rootfs] = append(users[n.Rootfs], n.Name)
		}
	}
	var group sync.WaitGroup
	var mu sync.Mutex // guards lacks
	for from, nodes := range users {
		group.Go(func() {
			if err := s.machine.Runtime.Available(ctx, from); err != nil {
				mu.Lock()
				defer mu.Unlock()
				lacks = append(lacks, lack.Lack{What: "root file system: " + err.Error(), Nodes: nodes})
			}
		})
	}
	group.Wait()
	slices.SortFunc(lacks, func(a, b lack.Lack) int { return slices.Compare(a.Nodes, b.Nodes) })
	return lacks
}
