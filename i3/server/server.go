// Package server is what a server of I3 does with packets: it passes them on around the ring, fires triggers, keeps the
// triggers of its interval, and programs a fast path. It does no I/O and knows no clock: packets and the time go in,
// packets come out by an Output.
package server

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/pergola-net/pergola/i3/chord"
	"github.com/pergola-net/pergola/i3/fastpath"
	"github.com/pergola-net/pergola/i3/trigger"
	"github.com/pergola-net/pergola/i3/wire"
)

// Output sends packets. It does not keep them: their memory is used again.
type Output interface {
	Send(to netip.AddrPort, packet []byte)
}

// Config is what a server needs.
type Config struct {
	Ring chord.Config // with Self, Join, Nonce
	// RingKey is the secret of the ring's servers; empty: anybody can act as one.
	RingKey wire.RingKey
	// Secret is what challenges are made of: 32 random bytes that nobody else knows.
	Secret [32]byte
	// Constrained: triggers must be constrained (ident.MayLead).
	Constrained bool
	Triggers    trigger.Limits
	Challenges  Rate // defaults: DefaultChallenges
	// Lifetime is the longest that a trigger lives without a refresh; default DefaultLifetime.
	Lifetime time.Duration
	// FastPath is what the server programs; nil: nothing.
	FastPath fastpath.FastPath
	Log      *slog.Logger // nil: nothing is logged
}

// Rate bounds how many challenges and refusals a server sends a second, for all insertions that come without the answer
// to one.
type Rate struct {
	All     float64 // to all addresses together
	Address float64 // to one address
}

// Defaults of Config.
const (
	DefaultLifetime = 5 * time.Minute

	retryFastPath = 10 * time.Second
)

// DefaultChallenges is the default of Config.Challenges.
var DefaultChallenges = Rate{All: 2000, Address: 10}

// Server is one server. It is not safe for concurrent use.
type Server struct {
	config Config
	out    Output
	ring   *chord.Node
	table  *trigger.Table
	mirror *fastpath.Mirror // nil: there is no fast path
	log    *slog.Logger

	routes      chord.Routes // as the ring had them after its last change
	successor   chord.Peer   // likewise
	predecessor chord.Peer   // likewise
	former      chord.Peer   // the predecessor before: its last triggers may come after it has left
	challenges  *limiter
	outbox      []handover // to be sent, at a pace that sockets can bear
	flushAt     time.Time
	retryAt     time.Time
	counters    Counters
}

// New makes a server that joins its ring at the first Tick.
func New(c Config, out Output) *Server {
	if c.Lifetime == 0 {
		c.Lifetime = DefaultLifetime
	}
	if c.Challenges == (Rate{}) {
		c.Challenges = DefaultChallenges
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{config: c, out: out, log: c.Log,
		table: trigger.New(c.Triggers), challenges: newLimiter(c.Challenges)}
	s.ring = chord.New(c.Ring, transport{s})
	if c.FastPath != nil {
		var err error
		if s.mirror, err = fastpath.NewMirror(c.FastPath); err != nil {
			s.log.Error("fast path", "error", err)
		}
	}
	s.routes = s.ring.Routes()
	return s
}

// Ring gives the server's part of the ring, to look at.
func (s *Server) Ring() *chord.Node { return s.ring }

// Counters gives what the server has done so far.
func (s *Server) Counters() Counters {
	c := s.counters
	c.Triggers = s.table.Len()
	if s.mirror != nil {
		c.FastPathMissing, c.FastPathBroken = s.mirror.Missing(), s.mirror.Broken()
	}
	return c
}

// Handle takes in one packet that came from an address. It changes its bytes, and keeps nothing of them.
func (s *Server) Handle(now time.Time, from netip.AddrPort, b []byte) {
	s.counters.Received++
	p, err := wire.Parse(b)
	if err != nil {
		s.drop(Malformed)
		return
	}
	switch p.Type() {
	case wire.Data, wire.Insert, wire.Remove:
		s.routed(now, p)
	case wire.Handover:
		s.takeOver(now, from, p)
	case wire.Find, wire.Found, wire.Query, wire.State, wire.Ping, wire.Pong, wire.Leave:
		s.ringMessage(now, from, p)
	default:
		s.drop(NotForServers)
	}
}

// Tick does what is due at now.
func (s *Server) Tick(now time.Time) {
	s.ring.Tick(now)
	s.follow(now)
	for {
		gone, ok := s.table.Expire(now)
		if !ok {
			break
		}
		s.counters.Expired++
		s.update(gone.ID.Key())
	}
	s.flush(now)
	if s.mirror != nil && (s.mirror.Broken() || s.mirror.Missing() > 0) && !now.Before(s.retryAt) {
		s.retryAt = now.Add(retryFastPath)
		if err := s.mirror.Retry(s.table.Bucket); err != nil {
			s.log.Error("fast path", "error", err)
		}
	}
}

// Due gives the time at which Tick is to be called next; ok is false if it need not be.
func (s *Server) Due() (at time.Time, ok bool) {
	earliest := func(t time.Time, is bool) {
		if is && (!ok || t.Before(at)) {
			at, ok = t, true
		}
	}
	earliest(s.ring.Due())
	earliest(s.table.Due())
	earliest(s.flushAt, len(s.outbox) > 0)
	earliest(s.retryAt, s.mirror != nil && (s.mirror.Broken() || s.mirror.Missing() > 0))
	return at, ok
}

// Leave gives the server's triggers to its successor and takes the server out of the ring. From then on it passes all
// packets to its successor; it should do so for some seconds, until others know.
func (s *Server) Leave(now time.Time) {
	if next, ok := s.ring.Successor(); ok {
		for _, k := range s.table.Keys() {
			s.handOver(next.Addr, k)
		}
		for len(s.outbox) > 0 {
			s.flushAt = now
			s.flush(now)
		}
	}
	s.ring.Leave(now)
	s.follow(now)
}

// follow takes over what has changed in the ring.
func (s *Server) follow(now time.Time) {
	s.routes = s.ring.Routes()
	if s.mirror != nil {
		if err := s.mirror.SetRoutes(s.routes); err != nil {
			s.log.Error("fast path", "error", err)
		}
	}
	if next, _ := s.ring.Successor(); next != s.successor {
		s.successor = next
		s.log.Info("ring: new successor", "server", next.Addr, "key", next.Key)
	}
	if before := s.ring.Predecessor(); before != s.predecessor {
		s.log.Info("ring: new predecessor", "server", before.Addr, "key", before.Key)
		s.former, s.predecessor = s.predecessor, before
		if !before.IsZero() {
			s.handOverLost(before)
			s.flush(now)
		}
	}
}
