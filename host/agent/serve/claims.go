package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/host/outside"
	"github.com/pergola-net/pergola/model/slice"
)

// A Decider decides for all hosts what nodes of this host ask for while they run, and stores it: the agent then makes
// it so with its next pass. Errors are *api.Problem.
type Decider interface {
	SetLink(ctx context.Context, slice, link string, patch api.LinkPatch) error
	Reserve(ctx context.Context, slice, node string, change api.ReservationChange) error
}

var errNoDecider = errors.New("this agent has nobody who decides what nodes may change")

// SetQueues changes queues by which a node of this host sends, of one of its interfaces: all, or none.
func (s *Server) SetQueues(ctx context.Context, name, node, iface string, queues []api.QueuePatch) error {
	n, err := s.ownNode(name, node)
	if err != nil {
		return err
	}
	i := n.Interface(iface)
	if i == nil {
		return notFound("%s has no interface %q", node, iface)
	}
	end := slice.End{Node: node, Interface: iface}
	return s.decider.SetLink(ctx, name, i.Link, api.LinkPatch{End: end.String(), Queues: queues})
}

// Reserve changes what a node of this host has reserved: all of the change, or nothing. A port that a process of the
// machine has is refused, as far as that can be seen before it is reserved: of those that the slice may have, because
// to see it, the port is bound for a moment.
func (s *Server) Reserve(ctx context.Context, name, node string, change api.ReservationChange) error {
	n, err := s.ownNode(name, node)
	if err != nil {
		return err
	}
	have := map[string]bool{}
	for _, p := range n.HostPorts() {
		have[p.String()] = true
	}
	terms := s.inputs.Terms()
	for _, text := range change.Reserve {
		p, err := slice.ParseHostPort(text)
		if err != nil || have[text] {
			continue
		}
		if terms != nil {
			if _, may := terms.Covers(name, slice.Hold{Port: text}); !may {
				continue // the decider says why
			}
		}
		if outside.InUse(ctx, p) {
			return &api.Problem{Status: http.StatusConflict, Title: http.StatusText(http.StatusConflict),
				Detail: fmt.Sprintf("port %s is in use by a process of host %s itself", p, s.host)}
		}
	}
	return s.decider.Reserve(ctx, name, node, change)
}

// NodeReserved gives what a node of this host has reserved beside what its packet program has: ports and bandwidth.
func (s *Server) NodeReserved(name, node string) (ports []slice.HostPort, bandwidth map[string]uint64, err error) {
	n, err := s.ownNode(name, node)
	if err != nil {
		return nil, nil, err
	}
	bandwidth = map[string]uint64{}
	for i := range n.Interfaces {
		if rate := n.Interfaces[i].Reserved(); rate != 0 {
			bandwidth[n.Interfaces[i].Name] = uint64(rate)
		}
	}
	return n.HostPorts(), bandwidth, nil
}

// ownNode finds a node of this host, of which something is to be changed.
func (s *Server) ownNode(name, node string) (*slice.Node, error) {
	w, err := s.inputs.Slice(name)
	if err != nil {
		return nil, err
	}
	n := w.Spec.Node(node)
	switch {
	case n == nil:
		return nil, notFound("network %s has no node %q", name, node)
	case !s.inputs.Place().Owns(n):
		return nil, fmt.Errorf("%s is on host %s, and this is %s: %w", node, n.Host, s.host, api.ErrNotRunning)
	case s.decider == nil:
		return nil, errNoDecider
	}
	return n, nil
}

func notFound(format string, args ...any) error {
	return &api.Problem{Status: http.StatusNotFound, Title: http.StatusText(http.StatusNotFound),
		Detail: fmt.Sprintf(format, args...)}
}
