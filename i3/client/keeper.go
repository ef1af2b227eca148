package client

import (
	"net/netip"
	"slices"
	"time"

	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/wire"
)

// Keeper keeps triggers alive: it inserts them, answers challenges, refreshes them and removes them. It does no I/O and
// knows no clock. It is not safe for concurrent use.
//
//	Keep ──> inserting ──Ack──> stored ──a third of its lifetime──> inserting ...
//	             │ ^ └─Refusal─> refused ──10 s──> inserting ... (Superseded: gone)
//	             └─┘ Challenge: at once, with the nonce; silence: after a second, by another gateway
//	Forget ──> removing ──Ack of lifetime 0, or three tries──> gone
type Keeper struct {
	receiver netip.AddrPort
	gateways []netip.AddrPort
	gateway  int // which one is used now
	lifetime time.Duration
	send     func(to netip.AddrPort, p wire.Packet)
	changed  func(e Event)
	kept     []*kept
}

// Event is what became of a trigger.
type Event struct {
	ID       ident.ID
	Handle   wire.Handle
	Kind     EventKind
	Lifetime time.Duration  // Stored: until it needs a refresh, three times that
	Server   netip.AddrPort // Stored, Removed: the one that is responsible
	Reason   wire.Reason    // Refused
}

// EventKind says what became of a trigger.
type EventKind uint8

// The kinds.
const (
	Stored      EventKind = iota // or refreshed
	Refused                      // it is tried again later, unless Reason is Superseded
	Removed                      // as the server said
	Unconfirmed                  // no server answered to the removal: the trigger ends with its lifetime
)

// kept is one trigger.
type kept struct {
	trigger  wire.Trigger
	server   netip.AddrPort // that last answered; it spares the way around the ring
	at       time.Time      // of the next step
	silent   int            // tries without an answer
	answered int            // challenges since the last step
	removing bool
}

const (
	retry       = time.Second // between tries without an answer
	refusedFor  = 10 * time.Second
	removeTries = 3
	// maxAnswers is how many challenges are answered between two steps. Servers that do not agree which of them is
	// responsible would challenge without end.
	maxAnswers = 4
	// DefaultLifetime is that of triggers whose owner asks for no other. They are refreshed every 30 s, as in the
	// paper.
	DefaultLifetime = 90 * time.Second
)

// NewKeeper gives a keeper whose triggers lead to receiver, or are kept by it. Packets go out by send; changed is told
// what became of triggers.
func NewKeeper(receiver netip.AddrPort, gateways []netip.AddrPort, lifetime time.Duration,
	send func(to netip.AddrPort, p wire.Packet), changed func(e Event)) *Keeper {
	if lifetime == 0 {
		lifetime = DefaultLifetime
	}
	return &Keeper{receiver: receiver, gateways: gateways, lifetime: lifetime, send: send, changed: changed}
}

// Gateway gives the server by which packets go into the ring.
func (k *Keeper) Gateway() netip.AddrPort { return k.gateways[k.gateway%len(k.gateways)] }

// NextGateway makes the keeper use the next gateway, because the one before does not answer.
func (k *Keeper) NextGateway() { k.gateway++ }

// Keep inserts a trigger and keeps it. Receiver, lifetime and sequence number are the keeper's.
func (k *Keeper) Keep(now time.Time, t wire.Trigger) {
	t.Receiver, t.Lifetime, t.Sequence = k.receiver, k.lifetime, sequence(now)
	k.drop(t.ID, t.Handle)
	n := &kept{trigger: t}
	k.kept = append(k.kept, n)
	k.insert(now, n)
}

// Forget removes a trigger that is kept, and reports whether it was. Another receiver's with the same handle, which has
// superseded it, stays.
func (k *Keeper) Forget(now time.Time, id ident.ID, h wire.Handle) bool {
	n := k.find(id, h)
	if n == nil {
		return false
	}
	n.removing, n.silent = true, 0
	k.remove(now, n)
	return true
}

// Revoke removes a trigger, whoever keeps it.
func (k *Keeper) Revoke(now time.Time, id ident.ID, h wire.Handle) {
	k.drop(id, h)
	k.kept = append(k.kept, &kept{trigger: wire.Trigger{ID: id, Handle: h, Sequence: sequence(now)}})
	k.Forget(now, id, h)
}

// Move makes all triggers lead to another address.
func (k *Keeper) Move(now time.Time, receiver netip.AddrPort) {
	k.receiver = receiver
	for _, n := range k.kept {
		if !n.removing {
			n.trigger.Receiver, n.trigger.Nonce, n.silent = receiver, wire.Nonce{}, 0
			n.trigger.Sequence = max(n.trigger.Sequence+1, sequence(now))
			k.insert(now, n)
		}
	}
}

// Handle takes in a packet from a server, and reports whether it was for the keeper.
func (k *Keeper) Handle(now time.Time, from netip.AddrPort, p wire.Packet) bool {
	switch p.Type() {
	case wire.Challenge:
		c, err := wire.ParseChallenge(p)
		if n := k.find(c.ID, c.Handle); err == nil && n != nil && !n.removing && n.answered < maxAnswers {
			n.trigger.Nonce, n.server, n.silent = c.Nonce, from, 0
			n.answered++
			k.insert(now, n)
		}
	case wire.Ack:
		a, err := wire.ParseAck(p)
		if n := k.find(a.ID, a.Handle); err == nil && n != nil {
			k.acknowledged(now, n, a)
		}
	case wire.Refusal:
		r, err := wire.ParseRefusal(p)
		n := k.find(r.ID, r.Handle)
		if superseded := r.Reason == wire.Superseded; err == nil && n != nil && (superseded || !n.removing) {
			n.at, n.silent = now.Add(refusedFor), 0
			if superseded {
				k.drop(r.ID, r.Handle)
			}
			k.changed(Event{ID: r.ID, Handle: r.Handle, Kind: Refused, Reason: r.Reason})
		}
	default:
		return false
	}
	return true
}

func (k *Keeper) acknowledged(now time.Time, n *kept, a wire.Acknowledgement) {
	e := Event{ID: a.ID, Handle: a.Handle, Lifetime: a.Lifetime, Server: a.Server}
	switch {
	case n.removing && a.Lifetime == 0:
		k.drop(a.ID, a.Handle)
		e.Kind = Removed
	case n.removing || a.Lifetime == 0:
		return // an old answer
	default:
		n.server, n.silent, n.answered, n.at = a.Server, 0, 0, now.Add(a.Lifetime/3)
		n.trigger.Nonce = a.Nonce
	}
	k.changed(e)
}

// Tick does what is due at now.
func (k *Keeper) Tick(now time.Time) {
	for _, n := range slices.Clone(k.kept) {
		if !now.Before(n.at) {
			n.answered = 0
		}
		switch {
		case now.Before(n.at):
			continue
		case n.removing && n.silent >= removeTries:
			k.drop(n.trigger.ID, n.trigger.Handle)
			k.changed(Event{ID: n.trigger.ID, Handle: n.trigger.Handle, Kind: Unconfirmed})
		case n.removing:
			k.remove(now, n)
		default:
			k.insert(now, n)
		}
	}
}

// Due gives the time at which Tick is to be called next; ok is false if nothing is kept.
func (k *Keeper) Due() (at time.Time, ok bool) {
	for _, n := range k.kept {
		if !ok || n.at.Before(at) {
			at, ok = n.at, true
		}
	}
	return at, ok
}

func (k *Keeper) insert(now time.Time, n *kept) { k.try(now, n, n.trigger.Insertion()) }

func (k *Keeper) remove(now time.Time, n *kept) {
	r := wire.Removal{ID: n.trigger.ID, Handle: n.trigger.Handle, Sequence: n.trigger.Sequence, Reply: k.receiver}
	k.try(now, n, r.Packet())
}

// sequence gives a number that grows with time, so that the receiver that came last has the trigger.
func sequence(now time.Time) uint64 { return uint64(now.UnixMilli()) }

// try sends a packet to the server that last answered; if that is silent, by one gateway after the other.
func (k *Keeper) try(now time.Time, n *kept, p wire.Packet) {
	to := n.server
	if n.silent > 0 || !to.IsValid() {
		if n.silent > 1 {
			k.gateway++
		}
		to = k.Gateway()
	}
	n.silent++
	n.at = now.Add(retry)
	k.send(to, p)
}

func (k *Keeper) find(id ident.ID, h wire.Handle) *kept {
	for _, n := range k.kept {
		if n.trigger.ID == id && n.trigger.Handle == h {
			return n
		}
	}
	return nil
}

func (k *Keeper) drop(id ident.ID, h wire.Handle) {
	k.kept = slices.DeleteFunc(k.kept, func(n *kept) bool { return n.trigger.ID == id && n.trigger.Handle == h })
}
