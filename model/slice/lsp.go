package slice

import (
	"net/netip"
	"slices"

	"github.com/pergola-net/pergola/model/unit"
)

// LSP is a label-switched path (RFC 3031, 3.15): packets of a forwarding equivalence class get a label at the first
// router of it, and the routers behind look at labels alone. It leads one way. Of the class are the packets to some
// prefixes (To), or those that some rules are for (Match).
type LSP struct {
	Name string `json:"name"`
	// ID numbers the LSP within the slice, from 1. It never changes while the LSP exists.
	ID   uint32 `json:"id"`
	Hops []Hop  `json:"hops"` // two or more: from the ingress to the egress
	// To are the prefixes whose packets go by the LSP, sorted. They do so where the ingress has a route to this
	// very prefix.
	To []netip.Prefix `json:"to"`
	// Match are the rules, of which one has to match. They come before prefixes, those of LSPs by name one after
	// the other, and are for packets that the ingress has a route for by another router, whatever route.
	Match []Match `json:"match,omitempty"`
	// ToEgress is true where no prefixes are named: To are the loopbacks of the egress, also when these change.
	ToEgress bool     `json:"to_egress,omitempty"`
	TTL      TTLModel `json:"ttl,omitempty"` // empty: Uniform
	// Signal is what the ingress asks for by RSVP-TE. Hops are then what the path has to have: the ingress, the
	// egress, and routers between them; they have no labels, which the routers choose. Where In is empty, others
	// may come before that router. nil: the LSP is static.
	Signal *Signal `json:"signal,omitempty"`
	// Excess says what becomes of packets that exceed Signal.Bandwidth. Empty: Demote.
	Excess Excess `json:"excess,omitempty"`
	// ByHand is true of an LSP that a user added while the network ran. Newer versions of the file keep it.
	ByHand bool `json:"by_hand,omitempty"`
}

// Signal is what RSVP-TE sets an LSP up with (RFC 3209).
type Signal struct {
	// Number is another one where something else is asked for, so that the new LSP is set up before the old one is
	// torn down: 1 to LastNumber. The ingress makes LSP IDs of it (RFC 3209, section 4.6.2).
	Number    uint16    `json:"number"`
	Bandwidth unit.Rate `json:"bandwidth,omitempty"` // that is reserved on each link; 0: none
	// Setup and Holding are priorities (RFC 3209, section 4.7.1), 0 being the best: which LSPs this one may take
	// bandwidth from, and which may take it from this one.
	Setup   uint8 `json:"setup"`
	Holding uint8 `json:"holding"`
	// Protect is what packets go round at once if it fails, by a bypass (RFC 4090); empty: nothing.
	Protect Protection `json:"protect,omitempty"`
}

// Protection is what of an LSP's path may fail without its packets being lost for long.
type Protection string

// What there is: each of its links, or nothing, which is the default.
const (
	ProtectLink Protection = "link"
	ProtectNone Protection = "none"
)

// LastNumber is the largest Signal.Number.
const LastNumber = 1<<12 - 1

// LowestPriority is that of LSPs without one.
const LowestPriority = 7

// Hop is a router on an LSP.
type Hop struct {
	Node string `json:"node"`
	// In is the interface by which packets come, and Out that by which they leave; empty at an end of the LSP.
	In  string `json:"in,omitempty"`
	Out string `json:"out,omitempty"`
	// Label is that with which packets come. It is from the router's own label space. At the egress it may be
	// ImplicitNull or ExplicitNull.
	Label uint32 `json:"label,omitempty"`
}

// Special labels (RFC 3032, 2.1), and the labels from which those of LSPs that are not signalled are chosen.
const (
	ExplicitNull  = 0 // of IPv4
	ExplicitNull6 = 2 // of IPv6
	ImplicitNull  = 3 // is never on a packet: the router before the egress takes the label off
	FirstLabel    = 16
	LastStatic    = 15_999
	LastStaticFTN = 1<<19 - 1 // the largest LSP.ID
	MaxLSPRules   = 64        // of all LSPs that begin at a router
	MaxTunnel     = 1<<16 - 1 // the largest LSP.ID of one that is signalled: a tunnel's number (RFC 3209, 4.6.1)
)

// Excess is what becomes of what exceeds a reservation.
type Excess string

// What there is: it goes on as best effort (RFC 2211, section 2.3), or no further.
const (
	Demote Excess = "demote"
	Drop   Excess = "drop"
)

// TTLModel says how an LSP counts hops (RFC 3443).
type TTLModel string

// The models: a path shows its routers to the packets in it, or counts as one hop.
const (
	Uniform TTLModel = "uniform"
	Pipe    TTLModel = "pipe"
)

// Ingress is the router where packets get their label.
func (l *LSP) Ingress() string { return l.Hops[0].Node }

// Egress is the last router.
func (l *LSP) Egress() string { return l.Hops[len(l.Hops)-1].Node }

// NumberAfter is the number of a signalled LSP that was another one before, or nil: the same where the same is asked
// for.
func (l *LSP) NumberAfter(was *LSP) uint16 {
	if was == nil || was.Signal == nil {
		return 1
	}
	asked := *was.Signal
	asked.Number = l.Signal.Number
	if asked == *l.Signal && slices.Equal(l.Hops, was.Hops) {
		return was.Signal.Number
	}
	return was.Signal.Next()
}

// IsSignalled reports whether a slice has an LSP that RSVP-TE sets up.
func (s *Slice) IsSignalled() bool {
	return slices.ContainsFunc(s.LSPs, func(l LSP) bool { return l.Signal != nil })
}

// Reserves reports whether a slice has an LSP with a bandwidth.
func (s *Slice) Reserves() bool {
	return slices.ContainsFunc(s.LSPs, func(l LSP) bool { return l.Signal != nil && l.Signal.Bandwidth != 0 })
}

// SwitchesLabels reports whether a node can be on an LSP.
func (n *Node) SwitchesLabels() bool { return n.Kind == Router && n.FastPath != FastPathOff }

// Next is the number after that of s. None is 0.
func (s *Signal) Next() uint16 {
	if s.Number == LastNumber {
		return 1
	}
	return s.Number + 1
}

// LSP gives the LSP of that name, or nil; so does a slice that is nil.
func (s *Slice) LSP(name string) *LSP {
	if s == nil {
		return nil
	}
	for i := range s.LSPs {
		if s.LSPs[i].Name == name {
			return &s.LSPs[i]
		}
	}
	return nil
}
