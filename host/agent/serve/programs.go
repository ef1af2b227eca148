package serve

import (
	"context"
	"fmt"
	"os"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/programs"
	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
)

// Programs gives the packet programs of a slice's nodes on this host, with what they count: of all nodes, or of those
// that are named.
func (s *Server) Programs(ctx context.Context, name string, nodes ...string) ([]api.NodeProgram, error) {
	w, err := s.inputs.Slice(name)
	if err != nil {
		return nil, err
	}
	return s.programsOf(ctx, w, nodes)
}

func (s *Server) programsOf(ctx context.Context, w *plan.Input, nodes []string) ([]api.NodeProgram, error) {
	all := []api.NodeProgram{}
	named := make(map[string]bool, len(nodes))
	for _, n := range nodes {
		named[n] = true
	}
	from, running := s.machine.Programs(), map[string]wire.ProgramState(nil)
	at := s.inputs.Place()
	for i := range w.Spec.Nodes {
		n := &w.Spec.Nodes[i]
		if n.Program == nil || !at.Owns(n) || len(nodes) > 0 && !named[n.Name] {
			continue
		}
		if from != nil && running == nil {
			var err error
			if running, err = from.Programs(ctx); err != nil {
				return nil, err
			}
		}
		p := api.NodeProgram{
			Node: n.Name, Program: n.Program.Name, Object: n.Program.Object, State: api.ProgramMissing,
			Filters: len(n.Program.Filters), Interfaces: n.Program.Interfaces,
		}
		id := plan.NodeID{Slice: w.Spec.ID, Node: n.Name}
		if is := running[id.ProgramName()]; is.Runs {
			if err := s.addCounters(ctx, from, id, is, &p); err != nil {
				return nil, err
			}
		}
		all = append(all, p)
	}
	return all, nil
}

// ProgramMemory opens the memory of a node's program, which has to run here; nil: the program declares none.
func (s *Server) ProgramMemory(ctx context.Context, name, node string) (*os.File, wire.ProgramMemory, error) {
	program, of, err := s.programOf(ctx, name, node)
	if err != nil {
		return nil, wire.ProgramMemory{}, err
	}
	return of.ProgramMemory(ctx, program)
}

// OpenSlowPath gives the file by which a process has the frames that a node's program punts. The error is
// wire.ErrNoSlowPath where they are for no process, and tap.ErrBusy where another process has it.
func (s *Server) OpenSlowPath(ctx context.Context, name, node string) (*os.File, error) {
	program, of, err := s.programOf(ctx, name, node)
	if err != nil {
		return nil, err
	}
	return of.OpenSlowPath(ctx, program, name+"/"+node)
}

// IsSlice reports whether the slice of this name has this id: a name may come to be another slice's.
func (s *Server) IsSlice(id uint16, name string) bool {
	w, err := s.inputs.Slice(name)
	return err == nil && w.Spec.ID == id
}

// programOf finds a node's program, which has to run here, and who runs it.
func (s *Server) programOf(ctx context.Context, name, node string) (program string, of machine.Programs, err error) {
	w, err := s.inputs.Slice(name)
	if err != nil {
		return "", nil, err
	}
	n := w.Spec.Node(node)
	switch {
	case n == nil:
		return "", nil, fmt.Errorf("network %s has no node %s", name, node)
	case !s.inputs.Place().Owns(n):
		return "", nil, fmt.Errorf("%s is on host %s, and this is %s: %w", node, n.Host, s.host,
			api.ErrNotRunning)
	}
	program = plan.NodeID{Slice: w.Spec.ID, Node: node}.ProgramName()
	of = s.machine.Programs()
	if of == nil {
		return "", nil, fmt.Errorf("the packet program of %s: %w", node, machine.ErrNoPrograms)
	}
	running, err := of.Programs(ctx)
	if err != nil {
		return "", nil, err
	}
	if !running[program].Runs {
		return "", nil, fmt.Errorf("the packet program of %s: %w", node, api.ErrNotRunning)
	}
	return program, of, nil
}

// tryPrograms asks the kernel what it has against the packet programs of this host's nodes. The error is a
// topology.Diagnostics.
func (s *Server) tryPrograms(at plan.Place, spec *slice.Slice) error {
	tried := make(map[string]bool)
	var refused topology.Diagnostics
	for i := range spec.Nodes {
		n := &spec.Nodes[i]
		if n.Program == nil || !s.alone && !at.Owns(n) || tried[n.Program.Object] {
			continue
		}
		tried[n.Program.Object] = true
		err := s.machine.Platform.TryProgram(n.Program.Name, spec.Programs[n.Program.Object])
		if err != nil {
			at := diagnostic.InNode(n.Name).At("program").String()
			refused = append(refused, programs.Refused(at, err))
		}
	}
	return refused.Err()
}

// addCounters adds what is known of a program that runs.
func (s *Server) addCounters(ctx context.Context, from machine.Programs, id plan.NodeID, is wire.ProgramState,
	p *api.NodeProgram) error {
	p.State, p.Verified, p.Stack = api.ProgramOlder, is.Verified, is.Stack
	k := reconcile.Key{Kind: plan.KindProgram, Slice: id.Slice, Name: id.Node}
	if planned := s.planned.Load(); planned != nil {
		if want, ok := planned.Detail(k).(plan.Program); ok && want.Digest == is.Digest {
			p.State = api.ProgramRuns
		}
	}
	counters, err := from.ProgramCounters(ctx, id.ProgramName())
	p.Counters, p.Platform = counters.Own, counters.Platform
	return err
}
