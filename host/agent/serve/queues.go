package serve

import (
	"context"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/model/slice"
)

// Planned says what the last pass found wanted of this host.
func (s *Server) Planned(w *plan.Wanted) { s.planned.Store(w) }

// Queues gives what went through the queues of a slice's links, as far as they are on this host: of all links, or of
// those that are named. Links of other names have none.
func (s *Server) Queues(ctx context.Context, name string, links ...string) ([]api.QueueTraffic, error) {
	w, err := s.inputs.Slice(name)
	if err != nil {
		return nil, err
	}
	var some []*slice.Link
	for _, link := range links {
		if l := w.Spec.Link(link); l != nil {
			some = append(some, l)
		}
	}
	if len(links) == 0 {
		some = linksOf(w.Spec)
	}
	return s.queuesOf(ctx, w.Spec.ID, some)
}

// NodeQueues gives what went through the queues by which a node sends.
func (s *Server) NodeQueues(ctx context.Context, name, node string) ([]api.QueueTraffic, error) {
	w, err := s.inputs.Slice(name)
	if err != nil {
		return nil, err
	}
	var its []*slice.Link
	for _, l := range linksOf(w.Spec) {
		if slices.ContainsFunc(l.Ends, func(e slice.End) bool { return e.Node == node }) {
			its = append(its, l)
		}
	}
	all, err := s.queuesOf(ctx, w.Spec.ID, its)
	return slices.DeleteFunc(all, func(q api.QueueTraffic) bool {
		return !strings.HasPrefix(q.From, node+":")
	}), err
}

func linksOf(spec *slice.Slice) (all []*slice.Link) {
	for i := range spec.Links {
		all = append(all, &spec.Links[i])
	}
	return all
}

func (s *Server) queuesOf(ctx context.Context, id uint16, links []*slice.Link) ([]api.QueueTraffic, error) {
	all := []api.QueueTraffic{}
	n, planned := s.machine.Network(), s.planned.Load()
	if n == nil || planned == nil {
		return all, nil
	}
	queues := planned.Queues(id, links...)
	devices := make([]string, len(queues))
	for i, q := range queues {
		devices[i] = q.Device
	}
	counted, err := n.QueueStats(ctx, devices...)
	if err != nil {
		return nil, err
	}
	for _, q := range queues {
		for _, c := range q.Classes {
			counts, there := counted[q.Device][c.Minor]
			if !there { // not made yet
				continue
			}
			all = append(all, api.QueueTraffic{
				Link: q.Link, From: q.From, To: q.To, Class: c.Name,
				Sent:    api.Traffic{Frames: counts.Frames, Bytes: counts.Bytes},
				Dropped: counts.Drops, Overlimits: counts.Overlimits,
				Backlog: api.Traffic{Frames: uint64(counts.Waiting), Bytes: uint64(counts.Backlog)},
			})
		}
	}
	return all, nil
}
