package serve

import (
	"context"

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
