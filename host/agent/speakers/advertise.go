package speakers

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/signalling/rsvp"
	"github.com/pergola-net/pergola/signalling/te"
	"github.com/pergola-net/pergola/signalling/te/frr"
)

// Daemons are the routing daemons in routers.
type Daemons interface {
	// Configure has those of a router carry out lines of FRR's configuration.
	Configure(ctx context.Context, id sliver.ID, lines []string) error
	// Started tells one start of them from the next: they forget what they were told. Empty: it is not known.
	Started(id sliver.ID) string
}

// advertising is what routing daemons were told of links, which flood it within their network. Speakers.mu guards it,
// but for changes.
type advertising struct {
	advertised map[sliver.ID]*advertised
	changes    chan struct{} // something is due
}

// advertised is what the daemons of a router were told.
type advertised struct {
	links   map[string]te.Link // by interface
	started string             // the start in which they were told
	due     bool               // something is to be told
	asking  bool               // they are being told
	backoff                    // since they took it
}

// askedAtOnce is how many routers' daemons are told at a time: a user may have stopped some.
const askedAtOnce = 8

func newAdvertising() advertising {
	return advertising{advertised: map[sliver.ID]*advertised{}, changes: make(chan struct{}, 1)}
}

// Advertise tells the daemons of routers what is unreserved, by the same thresholds as other hosts are told, until ctx
// ends. Those that did not take it are told all of it later, and so are those that have started anew.
func (s *Speakers) Advertise(ctx context.Context, daemons Daemons) {
	all := time.NewTicker(floodAll)
	defer all.Stop()
	var asked sync.WaitGroup
	defer asked.Wait()
	slots := make(chan struct{}, askedAtOnce)
	for {
		everything := false
		select {
		case <-ctx.Done():
			return
		case <-all.C:
			everything = true
			s.forgetStarted(daemons)
		case <-s.changes:
		}
		for id, lines := range s.toAdvertise(everything) {
			asked.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				started := daemons.Started(id)
				err := daemons.Configure(ctx, id, lines)
				if err != nil {
					s.log.Debug("tell routing daemons of links", "router", id.String(), "error",
						err)
				}
				s.noteAdvertised(id, started, err)
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(floodPause):
		}
	}
}

// toAdvertise gives the lines for each router whose daemons are to be told something, and takes them as told.
func (s *Speakers) toAdvertise(everything bool) map[sliver.ID][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[sliver.ID][]string{}
	for id, a := range s.advertised {
		if !a.due && !everything || a.asking || s.now().Before(a.notYet) {
			continue
		}
		a.due = false
		for _, name := range slices.Sorted(maps.Keys(s.free[id])) {
			is := s.free[id][name]
			var told *te.Link
			if l, known := a.links[name]; known {
				told = &l
			}
			now := te.Link{Bandwidth: is.Reservable, Reservable: is.Reservable, Unreserved: is.Unreserved}
			a.links[name] = now
			all[id] = append(all[id], frr.Link(name, told, now)...)
		}
	}
	maps.DeleteFunc(all, func(_ sliver.ID, lines []string) bool { return len(lines) == 0 })
	for id := range all {
		s.advertised[id].asking = true
	}
	return all
}

// setAdvertised notes what a router with such daemons has unreserved, after setUnreserved.
func (s *Speakers) setAdvertised(id sliver.ID, iface string, is rsvp.Bandwidth) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.advertised[id]
	if a == nil {
		a = &advertised{links: map[string]te.Link{}}
		s.advertised[id] = a
	}
	told, known := a.links[iface]
	if !known || told.Reservable != is.Reservable ||
		s.thresholds.Flood(is.Reservable, told.Unreserved, is.Unreserved) {
		s.advertiseLocked(a)
	}
}

// setFloods has the daemons of a router told everything, or nothing more: its configuration has changed.
func (s *Speakers) setFloods(id sliver.ID, floods bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.advertised, id)
	if floods {
		s.advertised[id] = &advertised{links: map[string]te.Link{}}
		s.advertiseLocked(s.advertised[id])
	}
}

// noteAdvertised notes in which start the daemons of a router were told, or that it is not known what they have taken.
func (s *Speakers) noteAdvertised(id sliver.ID, started string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.advertised[id]
	if a == nil { // the router speaks no more
		return
	}
	if a.asking = false; a.due {
		s.advertiseLocked(a)
	}
	switch {
	case err != nil:
		clear(a.links)
		a.backOff(s.now())
		time.AfterFunc(a.notYet.Sub(s.now()), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.advertiseLocked(a)
		})
	default:
		a.started, a.backoff = started, backoff{}
	}
}

// forgetStarted forgets what daemons were told that have started anew since.
func (s *Speakers) forgetStarted(daemons Daemons) {
	s.mu.Lock()
	told := make(map[sliver.ID]string, len(s.advertised))
	for id, a := range s.advertised {
		told[id] = a.started
	}
	s.mu.Unlock()
	for id, before := range told {
		if daemons.Started(id) == before {
			continue
		}
		s.mu.Lock()
		if a := s.advertised[id]; a != nil {
			clear(a.links)
		}
		s.mu.Unlock()
	}
}

// advertiseLocked has the daemons of a router told.
func (s *Speakers) advertiseLocked(a *advertised) {
	a.due = true
	select {
	case s.changes <- struct{}{}:
	default:
	}
}
