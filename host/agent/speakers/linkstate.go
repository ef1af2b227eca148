package speakers

import (
	"context"
	"maps"
	"reflect"
	"time"

	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/signalling/rsvp"
	"github.com/pergola-net/pergola/signalling/te"
)

// The link state of other hosts is flooded by the store: each host writes what LSPs leave of its routers' links when a
// threshold is passed, but no more often than floodPause, and all that differs after floodAll. That is as long as a
// link is avoided that has refused an LSP: then it is known why.
const (
	floodPause = time.Second
	floodAll   = avoidFor
)

// flooding is what routers of this host have unreserved, and what other hosts were told of it. Speakers.mu guards it,
// but for news.
type flooding struct {
	thresholds te.Thresholds
	free       map[sliver.ID]bandwidths // of routers that speak
	told       map[uint16]*told         // by network
	news       chan struct{}            // something is due
}

// bandwidths are those of interfaces, by their names.
type bandwidths map[string]rsvp.Bandwidth

// told is what other hosts were told of a network.
type told struct {
	name  string // of the network
	is    slice.LinkState
	known bool // false: what an earlier server has told still stands
	due   bool // it is to be told anew
}

func newFlooding() flooding {
	return flooding{thresholds: te.DefaultThresholds(), free: map[sliver.ID]bandwidths{}, told: map[uint16]*told{},
		news: make(chan struct{}, 1)}
}

// Flood tells other hosts what is unreserved, by tell, until ctx ends. What could not be told is told later.
func (s *Speakers) Flood(ctx context.Context, tell func(context.Context, string, slice.LinkState) error) {
	all := time.NewTicker(floodAll)
	defer all.Stop()
	for {
		everything := false
		select {
		case <-ctx.Done():
			return
		case <-all.C:
			everything = true
		case <-s.news:
		}
		for network, now := range s.due(everything) {
			if err := tell(ctx, now.name, now.is); err != nil {
				s.log.Debug("tell other hosts of links", "network", now.name, "error", err)
				s.tellAgain(network)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(floodPause):
		}
	}
}

// due gives what is to be told, by network, and takes it as told.
func (s *Speakers) due(everything bool) map[uint16]told {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[uint16]told{}
	for network, t := range s.told {
		is, speaks := s.reservedLocked(network)
		switch {
		case t.due || everything && (!t.known || !reflect.DeepEqual(t.is, is)):
			t.is, t.known, t.due = is, true, false
			all[network] = *t
		case !speaks:
			delete(s.told, network)
		}
	}
	return all
}

// tellAgain notes that other hosts could not be told of a network.
func (s *Speakers) tellAgain(network uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.told[network]; t != nil {
		t.known = false
		s.dueLocked(t)
	}
}

// dueLocked has other hosts told of a network.
func (s *Speakers) dueLocked(t *told) {
	t.due = true
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// reservedLocked is the state of the links of a network of which something is reserved. speaks: it has routers here.
func (s *Speakers) reservedLocked(network uint16) (all slice.LinkState, speaks bool) {
	all = slice.LinkState{}
	for id, interfaces := range s.free {
		if id.Slice != network {
			continue
		}
		speaks = true
		for name, is := range interfaces {
			if is.Unreserved == whole(is.Reservable) {
				continue
			}
			if all[id.Node] == nil {
				all[id.Node] = map[string][te.Priorities]uint64{}
			}
			all[id.Node][name] = is.Unreserved
		}
	}
	return all, speaks
}

// whole is a link of which nothing is reserved.
func whole(reservable uint64) (is [te.Priorities]uint64) {
	for p := range is {
		is[p] = reservable
	}
	return is
}

// setUnreserved notes what a router has unreserved at an interface.
func (s *Speakers) setUnreserved(id sliver.ID, network, iface string, is rsvp.Bandwidth) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free[id] == nil {
		s.free[id] = bandwidths{}
	}
	s.free[id][iface] = is
	t := s.told[id.Slice]
	if t == nil {
		t = &told{}
		s.told[id.Slice] = t
	}
	t.name = network
	before, reserved := t.is[id.Node][iface]
	if !reserved {
		before = whole(is.Reservable)
	}
	if s.thresholds.Flood(is.Reservable, before, is.Unreserved) {
		s.dueLocked(t)
	}
}

// forgetLocked forgets the links of a router that speaks no more.
func (s *Speakers) forgetLocked(id sliver.ID) {
	delete(s.free, id)
	delete(s.advertised, id)
	if t := s.told[id.Slice]; t != nil {
		s.dueLocked(t)
	}
}

// databases are those of the networks for which a path is asked in one pass.
type databases struct {
	all  *Speakers
	have map[uint16]*te.Database
}

// of gives the database of a router's network.
func (d databases) of(r *Router) *te.Database {
	id := r.Network.ID
	if d.have[id] == nil {
		d.have[id] = database(r.Network, r.Overrides, d.all.links(id, r.Elsewhere))
	}
	return d.have[id]
}

// links gives what is known of the links of a network: of those at routers of this host by themselves, and of the
// others as their hosts have told.
func (s *Speakers) links(network uint16, elsewhere slice.LinkState) linkState {
	s.mu.Lock()
	defer s.mu.Unlock()
	free := make(map[string]bandwidths, len(s.free))
	for id, all := range s.free {
		if id.Slice == network {
			free[id.Node] = maps.Clone(all)
		}
	}
	down := map[string]map[string]bool{}
	for id, r := range s.wanted {
		if id.Slice == network {
			down[id.Node] = r.down()
		}
	}
	return func(router, iface string) (*[te.Priorities]uint64, bool) {
		if is, ok := free[router][iface]; ok {
			return &is.Unreserved, down[router][iface]
		}
		if is, ok := elsewhere[router][iface]; ok {
			return &is, down[router][iface]
		}
		return nil, down[router][iface]
	}
}
