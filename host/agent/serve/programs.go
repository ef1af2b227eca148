package serve

import (
	"context"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/wire"
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
	programs, running := s.machine.Programs(), map[string]wire.ProgramState(nil)
	at := s.inputs.Place()
	for i := range w.Spec.Nodes {
		n := &w.Spec.Nodes[i]
		if n.Program == nil || !at.Owns(n) || len(nodes) > 0 && !named[n.Name] {
			continue
		}
		if programs != nil && running == nil {
			var err error
			if running, err = programs.Programs(ctx); err != nil {
				return nil, err
			}
		}
		p := api.NodeProgram{
			Node: n.Name, Program: n.Program.Name, Object: n.Program.Object, State: api.ProgramMissing,
			Filters: len(n.Program.Filters), Interfaces: n.Program.Interfaces,
		}
		id := plan.NodeID{Slice: w.Spec.ID, Node: n.Name}
		if is, runs := running[id.ProgramName()]; runs {
			if err := s.addCounters(ctx, programs, id, is, &p); err != nil {
				return nil, err
			}
		}
		all = append(all, p)
	}
	return all, nil
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
