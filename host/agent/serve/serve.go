// Package serve answers requests about the nodes of one host: commands, logs, captures, tables, checks, counters. It is
// what control/rest asks of an agent, but for what the agent's loop does.
package serve

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/host/agent/fastpath"
	"github.com/pergola-net/pergola/host/agent/inputs"
	"github.com/pergola-net/pergola/host/agent/labels"
	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/host/agent/speakers"
	"github.com/pergola-net/pergola/host/lack"
	"github.com/pergola-net/pergola/host/member"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/routing"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

// Server answers requests. Its methods may be called from many goroutines; those that rest.Agent has are documented
// there.
type Server struct {
	host     string // this machine's name in the store
	alone    bool   // this machine is in no cluster
	machine  *machine.Machine
	inputs   *inputs.Inputs
	fastPath *fastpath.FastPath
	labels   *labels.Labels
	speakers *speakers.Speakers
	decider  Decider                     // may be nil
	planned  atomic.Pointer[plan.Wanted] // by the last pass; nil: there was none

	mu    sync.Mutex      // guards looks
	looks map[string]look // by slice: the last one for convergence
}

// New gives a server for a host, which is alone if it is in no cluster.
func New(host string, alone bool, m *machine.Machine, in *inputs.Inputs, f *fastpath.FastPath, l *labels.Labels,
	p *speakers.Speakers, d Decider) *Server {
	return &Server{
		host: host, alone: alone, machine: m, inputs: in, fastPath: f, labels: l, speakers: p, decider: d,
		looks: make(map[string]look),
	}
}

// Forget drops what is remembered of a slice that is gone.
func (s *Server) Forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.looks, name)
}

// canRender renders the configuration of all nodes, wherever they are.
func canRender(spec *slice.Slice) error {
	r := routing.NewRenderer(spec)
	for i := range spec.Nodes {
		if spec.Nodes[i].Kind == slice.Switch {
			continue
		}
		if _, err := r.Render(&spec.Nodes[i]); err != nil {
			return err
		}
	}
	return nil
}

// HaveRoom checks that other slices leave what the nodes of a slice have on a host: this one, if it has no name, or
// another one of the cluster. Its links have these shapes in place of their own; nil: those that users gave them by
// hand.
func (s *Server) HaveRoom(ctx context.Context, on *hosts.Host, spec *slice.Slice,
	shapes map[string]slice.Shape) error {
	at := s.inputs.Place()
	if on.Name != "" && on.Name != at.Host {
		at = plan.Place{Host: on.Name, Joined: true, Reservable: on.Reservable}
	}
	lacks, err := s.lackRoom(ctx, at, spec, shapes)
	if err != nil {
		return err
	}
	return lack.New(lacks...)
}

// Reservable is what nodes can reserve of this machine, beside cores and memory.
func (s *Server) Reservable() slice.Reserve { return s.machine.Platform.Reservable() }

// Capacity gives the cores and the bytes of memory of this machine.
func (s *Server) Capacity() (cores float64, memory uint64) { return member.Capacity() }

// find gives a slice and the process of one of its nodes that runs.
func (s *Server) find(name, node string) (id sliver.ID, pid int, err error) {
	w, err := s.inputs.Slice(name)
	if err != nil {
		return id, 0, err
	}
	n := w.Spec.Node(node)
	switch {
	case n == nil:
		return id, 0, fmt.Errorf("network %s has no node %s", name, node)
	case !s.inputs.Place().Owns(n):
		return id, 0, fmt.Errorf("%s is on host %s, and this is %s: %w", node, n.Host, s.host,
			api.ErrNotRunning)
	case !n.HasSliver():
		return id, 0, fmt.Errorf("%s is a %s, which has no processes of its own: %w", node, n.Kind,
			api.ErrNotRunning)
	}
	id = sliver.ID{Slice: w.Spec.ID, Node: node}
	o, err := s.machine.Runtime.Observe(id)
	if errors.Is(err, sliver.ErrNotFound) || err == nil && o.State != sliver.Running && o.State != sliver.Paused {
		return id, 0, fmt.Errorf("%s: %w", node, api.ErrNotRunning)
	}
	if err != nil {
		return id, 0, err
	}
	if o.State == sliver.Paused {
		return id, o.PID, errPaused{node}
	}
	return id, o.PID, nil
}

// errPaused stops requests that need a node's processes, but not those that only read.
type errPaused struct{ node string }

func (e errPaused) Error() string {
	return fmt.Sprintf("%s is paused: `pergola node resume %s` lets it go on", e.node, e.node)
}
func (e errPaused) Unwrap() error { return api.ErrNotRunning }

// running gives a slice and the first process of each of its nodes that has one.
func (s *Server) running(name string) (*plan.Input, map[string]int, error) {
	w, err := s.inputs.Slice(name)
	if err != nil {
		return nil, nil, err
	}
	all, err := s.machine.Runtime.List()
	if err != nil {
		return nil, nil, err
	}
	pids := make(map[string]int)
	for _, o := range all {
		if o.ID.Slice == w.Spec.ID && o.State == sliver.Running {
			pids[o.ID.Node] = o.PID
		}
	}
	return w, pids, nil
}
