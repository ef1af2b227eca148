package serve

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/probe"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
)

// Convergence reads the routing tables of a slice's nodes that are here once. Routing has converged when this call
// and the one before it found every destination reachable, and the tables equal; see docs/convergence.md.
func (s *Server) Convergence(ctx context.Context, name string) (api.Convergence, error) {
	w, pids, err := s.running(name)
	if err != nil {
		return api.Convergence{}, err
	}
	tables, err := probe.AllTables(ctx, pids)
	if err != nil {
		return api.Convergence{}, err
	}
	at := s.inputs.Place()
	for i := range w.Spec.Nodes {
		n := &w.Spec.Nodes[i]
		if off := w.Overrides.Power[n.Name] == slice.PowerOff; n.HasSliver() && !at.Owns(n) && !off {
			tables[n.Name] = probe.Expected(n)
		}
	}
	v := probe.Converged(w.Spec, tables, func(link string) bool { return !w.Overrides.Down[link] })
	down := s.down(w, pids)
	own := s.judgeSessions(ctx, w, pids)
	lsps, notUp := s.signalledLSPs(w)
	stable := s.isStable(name, tables, own.nodes > 0) // also keeps the tables for the next look
	return api.Convergence{
		Converged: v.Converged && stable && len(down)+len(own.open)+len(notUp) == 0,
		Routers:   v.Routers + own.nodes,
		Pairs:     v.Pairs + own.all + lsps,
		Reached:   v.Reached + own.all - len(own.open) + lsps - len(notUp),
		Missing:   slices.Concat(v.Missing, own.open, notUp), Down: down, Unjudged: own.unjudged,
	}, nil
}

// quiet is how long the tables of routers must not have changed that users configured: what these are to reach is not
// known, and routes come after the session: with BGP (RFC 4271, 9.2.1.1), and with OSPF, where a router waits 5 s
// between two versions of what it announces (MinLSInterval, RFC 2328, appendix B).
const quiet = 6 * time.Second

// look is what the last look at a slice's routing tables found.
type look struct {
	tables  map[string]probe.Table // by node
	changed time.Time              // when they were first found so
}

// isStable reports whether the tables are those of the last look, and keeps them for the next one. With own, they must
// be so for a while.
func (s *Server) isStable(name string, tables map[string]probe.Table, own bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, now := s.looks[name], time.Now()
	if before.tables == nil || !maps.EqualFunc(before.tables, tables, probe.Table.Equal) {
		s.looks[name] = look{tables, now}
		return false
	}
	return !own || now.Sub(before.changed) >= quiet
}

// down says which nodes do not run that are meant to: all but those that a user stopped or paused, and those whose
// restart policy leaves them after their end.
func (s *Server) down(w *plan.Input, pids map[string]int) (all []string) {
	at := s.inputs.Place()
	for i := range w.Spec.Nodes {
		n := &w.Spec.Nodes[i]
		off := w.Overrides.Power[n.Name] == slice.PowerOff || w.Overrides.Power[n.Name] == slice.PowerFrozen
		if _, runs := pids[n.Name]; runs || off || !n.HasSliver() || !at.Owns(n) {
			continue
		}
		o, err := s.machine.Runtime.Observe(sliver.ID{Slice: w.Spec.ID, Node: n.Name})
		switch {
		case err != nil || o.State != sliver.Exited:
			all = append(all, n.Name+" is not started yet")
		case !plan.StaysEnded(n.Restart, o.ExitCode):
			all = append(all, fmt.Sprintf("%s: its first process ended with status %d; it is started again",
				n.Name, o.ExitCode))
		}
	}
	return all
}

// Addresses gives the addresses of nodes that are here and to which the slice gives none, as their kernels have them.
func (s *Server) Addresses(ctx context.Context, name string) (map[string][]netip.Addr, error) {
	w, pids, err := s.running(name)
	if err != nil {
		return nil, err
	}
	return probe.Addresses(ctx, w.Spec, pids)
}

// Check tries the slice's checks from nodes that are here, or pings from them to all others where it has none.
func (s *Server) Check(
	ctx context.Context, name string, r api.CheckRequest, progress func(api.CheckProgress),
) ([]api.CheckResult, error) {
	w, pids, err := s.running(name)
	if err != nil {
		return nil, err
	}
	at := s.inputs.Place()
	c := probe.Checker{
		Slice: w.Spec, Addresses: r.Addresses,
		From: func(node string) bool { // other hosts try theirs
			n := w.Spec.Node(node)
			return n != nil && at.Owns(n)
		},
		PID: func(node string) (int, bool) { pid, ok := pids[node]; return pid, ok },
		Exec: func(ctx context.Context, node, command string) (int, []byte, error) {
			var out bytes.Buffer
			id := sliver.ID{Slice: w.Spec.ID, Node: node}
			status, err := s.machine.Runtime.Exec(ctx, id, sliver.ExecRequest{
				Args: []string{"/bin/sh", "-c", command}, Stdout: &out, Stderr: &out,
			})
			return status, out.Bytes(), err
		},
	}
	if progress != nil {
		c.Progress = func(done, total int) { progress(api.CheckProgress{Done: done, Total: total}) }
	}
	var results []probe.CheckResult
	if r.AllPairs || len(w.Spec.Checks) == 0 {
		results, err = c.AllPairs(ctx)
	} else {
		results, err = c.Run(ctx, chosen(w.Spec.Checks, r))
	}
	if err != nil {
		return nil, fmt.Errorf("check network %s: %w", name, err)
	}
	out := make([]api.CheckResult, len(results))
	for i, r := range results {
		out[i] = api.CheckResult{
			Name: r.Name, Kind: r.Kind, From: r.From, To: r.To, Address: r.Address, OK: r.OK,
			Message: r.Message, RTT: r.RTT, Duration: r.Duration,
		}
	}
	return out, nil
}

// chosen gives the checks that a request names, with its timeout where they have none.
func chosen(all []slice.Check, r api.CheckRequest) (some []slice.Check) {
	for _, c := range all {
		if len(r.Names) > 0 && !slices.Contains(r.Names, c.Name) {
			continue
		}
		if c.Timeout == 0 {
			c.Timeout = r.Timeout
		}
		some = append(some, c)
	}
	return some
}
