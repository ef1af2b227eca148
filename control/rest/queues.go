package rest

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
)

// QueuesInput names links of a slice.
type QueuesInput struct {
	PartInput
	Links []string `query:"link,explode" doc:"Names of links; none: all that have queues."`
}

// queues asks the hosts that have a part of the links.
func (s *server) queues(ctx context.Context, in *QueuesInput) (*body[api.SliceQueues], error) {
	spec, links, err := s.Find.Links(ctx, in.Slice, in.Links)
	if err != nil {
		return nil, problem(err)
	}
	own := func(ctx context.Context) (part api.SliceQueues, err error) {
		part.Queues, err = s.Agent.Queues(ctx, in.Slice, in.Links...)
		for i := range part.Queues {
			if s.Cluster != nil {
				part.Queues[i].Host = s.Cluster.Self()
			}
		}
		return part, err
	}
	verb := "queues"
	if len(in.Links) > 0 {
		verb += "?" + url.Values{"link": in.Links}.Encode()
	}
	all := api.SliceQueues{Queues: []api.QueueTraffic{}}
	hosts := s.hostsOfLinks(in.PartInput, spec, links)
	all.Unreachable, err = gatherFrom(ctx, s, hosts, in.Slice, http.MethodGet, verb, own,
		func(part api.SliceQueues) { all.Queues = append(all.Queues, part.Queues...) })
	orderQueues(spec, all.Queues)
	return answer(all, err)
}

// hostsOfLinks lists the other hosts that have a part of some links.
func (s *server) hostsOfLinks(in PartInput, spec *slice.Slice, links []*slice.Link) (names []string) {
	if in.Part != "" || s.Cluster == nil {
		return nil
	}
	span := spec.Span()
	for _, l := range links {
		for _, host := range span.Link(l.Name) {
			if s.elsewhere(host) {
				names = append(names, host)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// orderQueues puts the parts of several hosts in the order of the slice's links and their ends: what an end sends is
// before what it gets. Classes stay in the order that their host gave.
func orderQueues(spec *slice.Slice, all []api.QueueTraffic) {
	type direction struct{ link, from, to string }
	place := make(map[direction]int, len(all))
	for i := range spec.Links {
		l := &spec.Links[i]
		for _, e := range l.Ends {
			place[direction{link: l.Name, from: e.String()}] = len(place) + 1
			place[direction{link: l.Name, to: e.String()}] = len(place) + 1
		}
	}
	at := func(q api.QueueTraffic) int {
		if n := place[direction{link: q.Link, from: q.From}]; n != 0 {
			return n
		}
		return place[direction{link: q.Link, to: q.To}] // from a LAN
	}
	slices.SortStableFunc(all, func(a, b api.QueueTraffic) int { return cmp.Compare(at(a), at(b)) })
}
