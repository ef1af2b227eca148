// Package speaker gives the routers of a host their part in RSVP-TE: a Speaker joins the state machine of one router
// (signalling/rsvp) with a raw socket in the router's network namespace, the routes of its kernel, and the time.
//
// Messages along an explicit route have to go to a neighbour that the kernel's route for their destination may not lead
// to. They are then sent to the neighbour's own address, and without Router Alert: each RSVP router takes what is for
// itself (RFC 2205, section 3.1.3, wants the destination of the session, and is written for routed paths).
package speaker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/pergola-net/pergola/signalling/rsvp"
)

// Config is what a Speaker is made with.
type Config struct {
	Namespace *os.File // of the router; not needed after Open
	// Router is its state machine's. Indices of interfaces are those of the kernel; Route is set by Open.
	Router rsvp.Config
	// Labels carries out a change of labels, and Event hears what happens. Both are called one at a time, in the
	// order of what they tell, and must not call the Speaker. An LSP on its way, or at its end, whose label cannot
	// be installed is refused: for want of bandwidth where the error is ErrNoTime, whose text the ingress gets.
	Labels func(rsvp.LabelChange) error
	Event  func(rsvp.Event)
	// Bandwidth, where it is not nil, hears what an interface has unreserved: at first, and when it changes. It is
	// called as Labels is.
	Bandwidth func(rsvp.Bandwidth)
	// Failed hears of a message that could not be sent. RSVP sends it again.
	Failed func(error)
}

// ErrNoTime is the error of a label for whose packets the host has no processor time.
var ErrNoTime = errors.New("no processor time")

// Speaker is a router that takes part in RSVP-TE.
type Speaker struct {
	config Config
	start  time.Time
	socket *socket
	routes *routes

	wake chan struct{} // the timers are to be looked at earlier than Run knows

	mu     sync.Mutex // guards what follows
	router *rsvp.Router
	wakes  time.Duration // when Run looks at the timers next
	broken error         // of a panic: the router may contradict itself, and nothing is asked of it any more
}

// Open makes a speaker without LSPs. Nothing is heard before Run, which has to be called, and closes it.
func Open(c Config) (_ *Speaker, err error) {
	s := &Speaker{config: c, start: time.Now(), wake: make(chan struct{}, 1), wakes: asleep}
	if s.routes, err = openRoutes(c.Namespace); err != nil {
		return nil, fmt.Errorf("open an RSVP speaker: %w", err)
	}
	c.Router.Route = s.routes.to
	if s.router, err = rsvp.New(c.Router); err != nil {
		return nil, errors.Join(err, s.routes.close())
	}
	if s.socket, err = openSocket(c.Namespace); err != nil {
		return nil, errors.Join(err, s.routes.close())
	}
	return s, nil
}

// Run speaks until ctx ends. It does not tear LSPs down: neighbours keep them until they expire, or until the next
// speaker of the router takes them over.
func (s *Speaker) Run(ctx context.Context) error {
	heard := make(chan error, 1)
	go func() { heard <- s.listen() }()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			closed := s.socket.close()
			return errors.Join(closed, <-heard, s.routes.close())
		case err := <-heard:
			return errors.Join(err, s.socket.close(), s.routes.close())
		case <-s.wake:
			s.sleep(timer)
		case <-timer.C:
			if err := s.do(func(now time.Duration) { s.router.Tick(now) }); err != nil {
				closed := s.socket.close()
				return errors.Join(cmp.Or(<-heard, err), closed, s.routes.close()) // the same, or nil
			}
			s.sleep(timer)
		}
	}
}

// asleep is the time of a Run that waits for no timer.
const asleep = time.Duration(math.MaxInt64)

// sleep sets the timer to when the router wants to be looked at.
func (s *Speaker) sleep(timer *time.Timer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil { // Run is to find out
		timer.Reset(0)
		return
	}
	next, ok := s.router.Next()
	if !ok {
		s.wakes = asleep
		timer.Stop()
		return
	}
	s.wakes = next
	timer.Reset(next - time.Since(s.start))
}

// hasten wakes Run if the router has to be looked at earlier than Run knows.
func (s *Speaker) hasten() {
	next, ok := s.router.Next()
	if ok && next < s.wakes {
		s.rouse()
	}
}

func (s *Speaker) rouse() {
	select {
	case s.wake <- struct{}{}:
	default: // it is awake already
	}
}

// Adopt takes over the entries that an earlier speaker has installed, see rsvp.Router.Adopt. It is called before Run.
func (s *Speaker) Adopt(entries []rsvp.Entry) (err error) {
	broken := s.do(func(now time.Duration) { err = s.router.Adopt(now, entries) })
	return errors.Join(err, broken)
}

// Add sets up an LSP that begins here, see rsvp.Router.Add.
func (s *Speaker) Add(q rsvp.Request) (err error) {
	broken := s.do(func(now time.Duration) { err = s.router.Add(now, q) })
	return errors.Join(err, broken)
}

// Remove tears an LSP down that begins here, see rsvp.Router.Remove.
func (s *Speaker) Remove(k rsvp.Key) (err error) {
	broken := s.do(func(now time.Duration) { err = s.router.Remove(now, k) })
	return errors.Join(err, broken)
}

// SetLink tells that an interface is down or up, see rsvp.Router.SetLink.
func (s *Speaker) SetLink(index int, up bool) error {
	return s.do(func(now time.Duration) { s.router.SetLink(now, index, up) })
}

// Entries lists the labels that are in use; none after a panic, of which Run tells.
func (s *Speaker) Entries() (all []rsvp.Entry) {
	_ = s.do(func(time.Duration) { all = s.router.Entries() })
	return all
}

// Repeat calls Labels for all entries: what they mean to the data path has changed.
func (s *Speaker) Repeat() error {
	return s.do(func(now time.Duration) {
		for _, e := range s.router.Entries() {
			s.install(now, rsvp.LabelChange{Entry: e})
		}
	})
}

// Counters counts messages that had no effect.
func (s *Speaker) Counters() (c rsvp.Counters) {
	_ = s.do(func(time.Duration) { c = s.router.Counters })
	return c
}

func (s *Speaker) listen() error {
	for {
		packet, err := s.socket.receive()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			return fmt.Errorf("receive messages of RSVP: %w", err)
		}
		if err := s.do(func(now time.Duration) { s.router.Receive(now, packet) }); err != nil {
			return err
		}
	}
}

// do gives the router an input, and carries out what it wants to be done. A panic ends this speaker, and not the
// process with all other routers: a node of the slice chooses what is in a message.
func (s *Speaker) do(input func(now time.Duration)) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return s.broken
	}
	defer func() {
		if p := recover(); p != nil {
			s.broken = fmt.Errorf("RSVP speaker: panic: %v\n%s", p, debug.Stack())
			err = s.broken
			s.rouse()
		}
	}()
	now := time.Since(s.start)
	input(now)
	// A neighbour may send by a label as soon as it knows it. What is refused has labels to be removed.
	for changes := s.router.Labels(); len(changes) > 0; changes = s.router.Labels() {
		for _, c := range changes {
			s.install(now, c)
		}
	}
	s.hasten()
	out := s.router.Take()
	for _, m := range out.Send {
		if err := s.socket.send(m, m.RouterAlert && !s.leads(m.Dest, m.Interface, m.Next)); err != nil {
			s.config.Failed(err)
		}
	}
	for _, e := range out.Events {
		s.config.Event(e)
	}
	if s.config.Bandwidth == nil {
		return nil
	}
	for _, b := range out.Bandwidth {
		s.config.Bandwidth(b)
	}
	return nil
}

// install carries out a change of labels, or has the LSP refused.
func (s *Speaker) install(now time.Duration, c rsvp.LabelChange) {
	err := s.config.Labels(c)
	if err == nil || c.Remove {
		return
	}
	if errors.Is(err, ErrNoTime) {
		s.router.Uninstalled(now, c.Entry, rsvp.NoProcessor, err.Error())
		return
	}
	s.router.Uninstalled(now, c.Entry, rsvp.NoLabel, "") // why is this host's own business
}

// leads tells whether the kernel's route to an address is by a neighbour.
func (s *Speaker) leads(to netip.Addr, index int, next netip.Addr) bool {
	i, n, ok := s.routes.to(to)
	return ok && i == index && n == next
}
