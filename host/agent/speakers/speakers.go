// Package speakers lets the routers of networks with signalled LSPs speak RSVP-TE (host/speaker), asks for the LSPs
// that begin at routers of this host, and puts the labels that routers agree on into the data path.
//
// Every pass hands over which routers are to speak (Of); what cannot be done is tried again. Labels of a router that is
// no more are removed; those of a speaker that has ended lead on until its neighbours have asked its successor for new
// ones: want.go is what is wanted, entry.go what is written for a label, path.go the way of an LSP, tunnel.go one LSP
// at its ingress, linkstate.go what other hosts are told of links, advertise.go what FRR is told; lifecycle.go begins
// and ends speakers.
package speakers

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/agent/labels"
	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/signalling/rsvp"
	"github.com/pergola-net/pergola/signalling/te"
)

// Speakers are those of a host. Its methods may be called from many goroutines; Prune from that of Sync.
type Speakers struct {
	log  *slog.Logger
	wake func() // asks for a pass
	tell func(events.Event)

	now   func() time.Time
	speak func(r *router, want *Router) (rsvpSpeaker, error) // makes the speaker of a router

	failed chan struct{} // something is to be asked for again

	asking  sync.Mutex // held while LSPs are asked for; guards what follows
	running map[sliver.ID]*router
	wanted  map[sliver.ID]*Router
	ends    map[sliver.ID]*end // of speakers that have ended, or could not begin
	begin   due                // when the first of those is to begin
	later   *time.Timer        // asks for a pass, if something is to be tried again

	mu      sync.Mutex // guards what follows; taken after that of a router
	path    machine.DataPath
	entries map[labels.Key]owner
	processor
	broken   map[sliver.ID]error   // routers that cannot speak
	known    map[sliver.ID]*router // as running
	flooding                       // what is unreserved
	advertising
}

// owner is who has installed an entry.
type owner struct {
	router *router // nil: a speaker that has ended
	key    rsvp.Key
	entry  datapath.NHLFE
	holds  tunnelKey // that its processor time is held for, if it is
}

const (
	refresh = 30 * time.Second       // RFC 2205, section 3.7, has this as the default
	floor   = 500 * time.Millisecond // between passes that are asked for
	// restart is how long neighbours on other hosts keep the LSPs of a router whose server does not run.
	restart = 10 * time.Minute
	hello   = 3 * time.Second
	retry   = time.Second
)

// New gives speakers of no router. wake asks for a pass; tell hears which LSPs that begin here go up and down.
func New(log *slog.Logger, wake func(), tell func(events.Event)) *Speakers {
	return &Speakers{log: log, wake: wake, tell: tell, now: time.Now, speak: openSpeaker,
		failed:  make(chan struct{}, 1),
		running: map[sliver.ID]*router{}, ends: map[sliver.ID]*end{}, broken: map[sliver.ID]error{},
		known: map[sliver.ID]*router{}, processor: newProcessor(), flooding: newFlooding(),
		advertising: newAdvertising()}
}

// Sync makes these routers speak, and no others, and asks for their LSPs. path is nil where there is no data path.
func (s *Speakers) Sync(path machine.DataPath, want map[sliver.ID]*Router) {
	s.asking.Lock()
	defer s.asking.Unlock()
	now, opened := s.now(), s.open(path)
	if !opened {
		want = nil
	}
	for id, r := range s.running {
		ended := r.ended()
		if ended {
			s.noteEnd(r, now)
		}
		if to := want[id]; to == nil || !r.fits(to) || ended {
			s.stop(r)
		}
	}
	s.forgetBroken(want)
	var due due
	if !opened && path != nil {
		due.at(now.Add(retry))
	}
	s.wanted = want
	for id := range want {
		r := s.running[id]
		if r == nil {
			if r = s.start(id, want[id], now); r == nil {
				due.at(s.ends[id].notYet)
				continue
			}
		}
		r.set(want[id])
	}
	s.begin = due
	s.askLocked(now) // when all speak, so that what they have unreserved is known
}

// askLocked asks for the LSPs that are not as they are wanted.
func (s *Speakers) askLocked(now time.Time) {
	due := s.begin
	known := databases{s, map[uint16]*te.Database{}}
	for _, r := range s.running {
		due.at(r.ask(now, known))
	}
	s.tryAgain(due)
}

// together is how long it takes until nearly all LSPs are known to be broken that a failure breaks.
const together = 20 * time.Millisecond

// Reroute asks for LSPs again that have failed, until ctx ends. Passes do so, too, but there may be none for seconds.
func (s *Speakers) Reroute(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.failed:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(together):
		}
		s.asking.Lock()
		s.askLocked(s.now())
		s.asking.Unlock()
	}
}

// again says that something has failed.
func (s *Speakers) again() {
	select {
	case s.failed <- struct{}{}:
	default: // it is known
	}
	s.wake()
}

// due is when something is to be tried again; zero: nothing is.
type due struct{ time.Time }

// at makes it earlier, if it is later than t. A zero t is never.
func (d *due) at(t time.Time) {
	if !t.IsZero() && (d.IsZero() || t.Before(d.Time)) {
		d.Time = t
	}
}

// tryAgain asks for a pass when something is due.
func (s *Speakers) tryAgain(at due) {
	if at.IsZero() {
		return
	}
	wait := max(at.Sub(s.now()), floor) // each LSP has its own time
	if s.later == nil {
		s.later = time.AfterFunc(wait, s.wake)
	} else {
		s.later.Reset(wait)
	}
}

// open reads the entries of a data path that is another one than before.
func (s *Speakers) open(path machine.DataPath) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if path == s.path {
		s.lookLocked()
		return path != nil
	}
	s.path, s.entries, s.processor = nil, nil, newProcessor()
	if path == nil {
		return false
	}
	entries := map[labels.Key]owner{}
	for e, err := range path.AllLabels() {
		if err != nil {
			s.log.Error("read labels", "error", err)
			return false
		}
		if k := (labels.Key{Space: e.Space, Number: e.Number, FTN: e.FTN}); !k.IsStatic() {
			entries[k] = owner{entry: e.NHLFE}
		}
	}
	s.path, s.entries = path, entries
	s.lookLocked()
	return true
}

// lookLocked has LSPs admitted by what frames take now.
func (s *Speakers) lookLocked() {
	if s.path == nil {
		return
	}
	if err := s.look(s.path); err != nil {
		s.log.Error("read what line cards do at once", "error", err)
	}
}

// adopt gives a router's new speaker the entries of an earlier one, and removes those that do not fit any more.
func (s *Speakers) adopt(r *router, want *Router) (all []rsvp.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, o := range s.entries {
		if k.Space != want.Space {
			continue
		}
		e, ok := want.adopted(k, o.entry)
		switch {
		case ok:
			all = append(all, e)
			o.router, o.key = r, e.Key
			s.entries[k] = o
		default:
			s.removeLocked(k)
		}
	}
	return all
}

// Steer adds to what routers are to have: their label spaces, and which routes and rules lead to LSPs.
func (s *Speakers) Steer(want map[sliver.ID]*Router, to *labels.Want) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, r := range want {
		is := to.Routers[id]
		is.Space = r.Space
		for _, l := range r.LSPs {
			if _, there := s.entries[labels.Key{Space: r.Space, Number: ftnOf(l.ID), FTN: true}]; !there {
				continue
			}
			if is.FTNs == nil {
				is.FTNs = map[netip.Prefix]uint32{}
			}
			for _, p := range l.To {
				is.FTNs[p] = ftnOf(l.ID)
			}
			to.AddRules(id, l, ftnOf(l.ID))
		}
		to.Routers[id] = is
	}
}

// Prune removes the entries of routers that speak no more, and of LSPs that begin nowhere. Those of slices of which it
// is unknown what is wanted stay.
func (s *Speakers) Prune(want map[sliver.ID]*Router, unknown map[uint16]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	spaces := map[uint32]*Router{}
	for _, r := range want {
		spaces[r.Space] = r
	}
	for k := range s.entries {
		r := spaces[k.Space]
		if !unknown[k.Slice()] && (r == nil || k.FTN && !r.begins(k.Number)) {
			s.removeLocked(k)
		}
	}
}

// begins reports whether an LSP with this FTN begins at the router.
func (r *Router) begins(ftn uint32) bool {
	l := r.Tunnels[ftn-slice.LastStaticFTN]
	return l != nil && l.Ingress() == r.Name
}

func (s *Speakers) removeLocked(k labels.Key) {
	if s.path == nil {
		return
	}
	if err := labels.Remove(s.path, k); err != nil {
		s.log.Error("remove a label", "label", k.String(), "error", err)
		return
	}
	s.release(s.entries[k].holds, k)
	delete(s.entries, k)
}

// install writes an entry of a router, or removes it.
func (s *Speakers) install(r *router, want *Router, c rsvp.LabelChange) error {
	k, ok := want.key(c.Entry)
	if !ok {
		return nil
	}
	is := owner{router: r, key: c.Entry.Key}
	if !c.Remove {
		var err error
		if is.entry, err = want.entry(c.Entry); err != nil {
			return err
		}
		if want.comesByCard(c.Entry) {
			is.holds = tunnelKey{want.Network.ID, c.Entry.Key.Session}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch was, there := s.entries[k]; {
	case s.path == nil:
		return machine.ErrNoNetwork
	case !c.Remove:
		reserves := share{reserved: c.Entry.Rate, shared: c.Entry.Shared}
		undo, err := s.hold(k, was.holds, is.holds, reserves, there)
		if err != nil {
			return err
		}
		if err := labels.Put(s.path, k, is.entry); err != nil {
			undo()
			return err
		}
		if !there {
			defer s.wake() // for what leads to it
		}
		s.entries[k] = is
	case !there || was.router != r || k.FTN && was.key != is.key: // another LSP of the tunnel has it by now
	default:
		s.removeLocked(k) // frames that a route leads to an FTN that is not there go by IP
		if k.FTN {
			s.wake() // for the route
		}
	}
	return nil
}

// down are the interfaces of a router whose links are down.
func (r *Router) down() map[string]bool {
	all := map[string]bool{}
	for _, is := range r.Interfaces {
		if is.Down {
			all[is.Name] = true
		}
	}
	return all
}

// Close ends all speakers. Labels stay: they lead on without them.
func (s *Speakers) Close() {
	s.asking.Lock()
	defer s.asking.Unlock()
	for _, r := range s.running {
		s.stop(r)
	}
	if s.later != nil {
		s.later.Stop()
	}
}
