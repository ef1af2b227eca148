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
	if !s.answers(&t, now) && !s.answers(&t, now.Add(-epoch)) {
		s.challenge(now, &t)
		return
	}
	refusal := wire.Refused{ID: t.ID, Handle: t.Handle}
	if old, ok := s.table.Find(t.ID, t.Handle); ok && old.Sequence > t.Sequence {
		refusal.Reason = wire.Superseded
		s.refuse(t.Receiver, refusal)
		return
	}
	lifetime := min(max(t.Lifetime, time.Second), s.config.Lifetime)
	switch err := s.store(&t, now.Add(lifetime)); {
	case errors.Is(err, trigger.ErrFull):
		refusal.Reason = wire.ServerFull
	case errors.Is(err, trigger.ErrReceiverFull):
		refusal.Reason = wire.ReceiverFull
	case err != nil:
		refusal.Reason = wire.IdentifierFull
	default:
		s.counters.Inserted++
		s.log.Debug("trigger stored", "id", t.ID, "receiver", t.Receiver, "stack", t.Stack)
		s.acknowledge(t.Receiver, wire.Acknowledgement{ID: t.ID, Handle: t.Handle, Lifetime: lifetime,
			Nonce: s.nonce(&t, now)})
		return
	}
	s.refuse(t.Receiver, refusal)
}

// challenge asks the receiver of a trigger whether it wants it, unless it could not have it anyway.
func (s *Server) challenge(now time.Time, t *wire.Trigger) {
	switch {
	case !s.challenges.allow(now, t.Receiver.Addr()):
		s.drop(TooManyChallenges)
	case s.config.Constrained && !mayLead(t):
		s.refuse(t.Receiver, wire.Refused{ID: t.ID, Handle: t.Handle, Reason: wire.Unconstrained})
	default:
		s.counters.Challenged++
		s.out.Send(t.Receiver, wire.Challenged{ID: t.ID, Handle: t.Handle, Nonce: s.nonce(t, now)}.Packet())
	}
}

// answers reports whether a trigger has the nonce of the challenge that was made for it in the epoch of a time.
func (s *Server) answers(t *wire.Trigger, at time.Time) bool {
	n := s.nonce(t, at)
	return hmac.Equal(n[:], t.Nonce[:])
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

func (s *Server) refuse(to netip.AddrPort, r wire.Refused) {
	s.counters.Refused++
	s.out.Send(to, r.Packet())
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

// remove takes a trigger out, and answers at the address that the packet names. Of a sender who knows no handle that
// may be anybody's, so answers to him are as few as challenges.
func (s *Server) remove(now time.Time, p wire.Packet) {
	r, err := wire.ParseRemoval(p)
	if err != nil {
		s.drop(Malformed)
		return
	}
	gone, ok := s.table.Find(r.ID, r.Handle)
	switch {
	case !ok && !s.challenges.allow(now, r.Reply.Addr()):
		s.drop(TooManyChallenges)
		return
	case !ok:
	case gone.Sequence > r.Sequence:
		s.refuse(r.Reply, wire.Refused{ID: r.ID, Handle: r.Handle, Reason: wire.Superseded})
		return
	default:
		s.counters.Removed++
		s.log.Debug("trigger removed", "id", gone.ID, "receiver", gone.Receiver)
		s.table.Remove(r.ID, r.Handle)
		s.update(r.ID.Key())
	}
	s.acknowledge(r.Reply, wire.Acknowledgement{ID: r.ID, Handle: r.Handle})
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
	if from != s.predecessor.Addr && from != s.former.Addr && from != s.successor.Addr {
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
