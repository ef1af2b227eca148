package server

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/pergola-net/pergola/i3/chord"
	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/trigger"
	"github.com/pergola-net/pergola/i3/wire"
)

// epoch is how long challenges are made with the same number; an answer is accepted in its own epoch and the next one.
const epoch = 64 * time.Second

// insert stores a trigger if its receiver has answered a challenge, and otherwise sends one. A challenge is made of
// what it is for and of the server's secret, so the server need not remember it.
func (s *Server) insert(now time.Time, p wire.Packet) {
	t, err := wire.ParseTrigger(p)
	if err != nil {
		s.drop(Malformed)
		return
	}
	if t.Nonce != s.nonce(&t, now) && t.Nonce != s.nonce(&t, now.Add(-epoch)) {
		if !s.challenges.allow(now, t.Receiver.Addr()) {
			s.drop(TooManyChallenges)
			return
		}
		if s.config.Constrained && !mayLead(&t) {
			s.refuse(&t, wire.Unconstrained)
			return
		}
		s.counters.Challenged++
		s.out.Send(t.Receiver, wire.Challenged{ID: t.ID, Handle: t.Handle, Nonce: s.nonce(&t, now)}.Packet())
		return
	}
	if old, ok := s.table.Find(t.ID, t.Handle); ok && old.Sequence > t.Sequence {
		s.refuse(&t, wire.Superseded)
		return
	}
	lifetime := min(max(t.Lifetime, time.Second), s.config.Lifetime)
	switch err := s.store(&t, now.Add(lifetime)); {
	case errors.Is(err, trigger.ErrFull):
		s.refuse(&t, wire.ServerFull)
	case errors.Is(err, trigger.ErrReceiverFull):
		s.refuse(&t, wire.ReceiverFull)
	case err != nil:
		s.refuse(&t, wire.IdentifierFull)
	default:
		s.counters.Inserted++
		s.acknowledge(t.Receiver, wire.Acknowledgement{ID: t.ID, Handle: t.Handle, Lifetime: lifetime})
	}
}

// store puts a trigger into the table and tells the fast path, before anybody hears that it is stored.
func (s *Server) store(t *wire.Trigger, expires time.Time) error {
	err := s.table.Insert(trigger.Trigger{ID: t.ID, Handle: t.Handle, Receiver: t.Receiver, Stack: t.Stack,
		Sequence: t.Sequence, Expires: expires})
	if err == nil {
		s.update(t.ID.Key())
	}
	return err
}

// update brings the fast path's filters of a key up to date.
func (s *Server) update(k ident.Key) {
	if s.mirror == nil {
		return
	}
	if err := s.mirror.Update(k, s.table.Bucket(k)); err != nil {
		s.log.Warn("fast path", "key", k, "error", err)
	}
}

func (s *Server) acknowledge(to netip.AddrPort, a wire.Acknowledgement) {
	a.Server = s.config.Ring.Self.Addr
	s.out.Send(to, a.Packet())
}

func (s *Server) refuse(t *wire.Trigger, why wire.Reason) {
	s.counters.Refused++
	s.out.Send(t.Receiver, wire.Refused{ID: t.ID, Handle: t.Handle, Reason: why}.Packet())
}

func mayLead(t *wire.Trigger) bool {
	to := t.Secret
	if len(t.Stack) > 0 {
		to = t.Stack[0].Key()
	}
	return ident.MayLead(t.ID.Key(), to)
}

// nonce gives the challenge for a trigger in the epoch of a time.
func (s *Server) nonce(t *wire.Trigger, at time.Time) (n wire.Nonce) {
	mac := hmac.New(sha256.New, s.config.Secret[:])
	var number [8]byte
	binary.BigEndian.PutUint64(number[:], uint64(at.Unix()/int64(epoch/time.Second)))
	mac.Write(number[:])
	// All that the trigger is, but not how long: so it can be refreshed with the same answer.
	same := *t
	same.Nonce, same.Lifetime = wire.Nonce{}, 0
	mac.Write(same.Insertion())
	copy(n[:], mac.Sum(nil))
	return n
}

// remove takes a trigger out. The receiver is told, at the address that answered the challenge: not the sender of the
// packet, which may be anybody.
func (s *Server) remove(p wire.Packet) {
	r, err := wire.ParseRemoval(p)
	if err != nil {
		s.drop(Malformed)
		return
	}
	gone, ok := s.table.Find(r.ID, r.Handle)
	if !ok || gone.Sequence > r.Sequence {
		s.drop(NoTrigger)
		return
	}
	s.table.Remove(r.ID, r.Handle)
	s.counters.Removed++
	s.update(gone.ID.Key())
	s.acknowledge(gone.Receiver, wire.Acknowledgement{ID: gone.ID, Handle: gone.Handle})
}

// handover is a trigger on its way to another server.
type handover struct {
	to      netip.AddrPort
	trigger *trigger.Trigger
}

// Handovers are sent so many at a time, with a pause: sockets' buffers are small. One that is lost is made good by the
// receiver's next refresh.
const (
	burst = 64
	pause = 10 * time.Millisecond
)

// handOverLost gives triggers that are not the server's own any more to the new predecessor.
func (s *Server) handOverLost(to chord.Peer) {
	for _, k := range s.table.Keys() {
		if !s.routes.Owns(k) {
			s.handOver(to.Addr, k)
		}
	}
}

// handOver moves the triggers of a key to the outbox.
func (s *Server) handOver(to netip.AddrPort, k ident.Key) {
	for _, g := range slices.Clone(s.table.Bucket(k)) {
		for _, t := range slices.Clone(g.Triggers) {
			s.table.Remove(t.ID, t.Handle)
			s.outbox = append(s.outbox, handover{to: to, trigger: t})
		}
	}
	s.update(k)
}

// flush sends the next part of the outbox.
func (s *Server) flush(now time.Time) {
	if len(s.outbox) == 0 || now.Before(s.flushAt) {
		return
	}
	s.flushAt = now.Add(pause)
	n := min(burst, len(s.outbox))
	for _, h := range s.outbox[:n] {
		left := h.trigger.Expires.Sub(now)
		if left <= 0 {
			continue
		}
		s.counters.HandedOver++
		t := wire.Trigger{ID: h.trigger.ID, Handle: h.trigger.Handle, Receiver: h.trigger.Receiver,
			Stack: h.trigger.Stack, Sequence: h.trigger.Sequence, Lifetime: left}
		s.out.Send(h.to, t.Handover(s.config.RingKey))
	}
	if s.outbox = s.outbox[n:]; len(s.outbox) == 0 {
		s.outbox = nil
	}
}

// takeOver stores a trigger that a neighbour gives up. Its receiver has answered the neighbour's challenge.
func (s *Server) takeOver(now time.Time, from netip.AddrPort, p wire.Packet) {
	t, err := wire.ParseHandover(p, s.config.RingKey)
	switch {
	case errors.Is(err, wire.ErrTag):
		s.drop(NotFromRing)
		return
	case err != nil:
		s.drop(Malformed)
		return
	}
	next := s.ring.Successors()
	if from != s.predecessor.Addr && from != s.former.Addr && (len(next) == 0 || from != next[0].Addr) {
		s.drop(NotFromRing)
		return
	}
	if old, ok := s.table.Find(t.ID, t.Handle); ok && old.Sequence >= t.Sequence {
		return // its receiver has been here itself since
	}
	if err := s.store(&t, now.Add(min(t.Lifetime, s.config.Lifetime))); err != nil {
		s.drop(TableFull)
		return
	}
	s.counters.TakenOver++
}
