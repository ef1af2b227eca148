package slice

import "net/netip"

// LSP is a label-switched path (RFC 3031, 3.15): packets to some prefixes get a label at the first router of it, and
// the routers behind look at labels alone. It leads one way.
type LSP struct {
	Name string `json:"name"`
	// ID numbers the LSP within the slice, from 1. It never changes while the LSP exists.
	ID   uint32 `json:"id"`
	Hops []Hop  `json:"hops"` // two or more: from the ingress to the egress
	// To are the prefixes whose packets go by the LSP, sorted: the forwarding equivalence class. They do so where
	// the ingress has a route to this very prefix.
	To  []netip.Prefix `json:"to"`
	TTL TTLModel       `json:"ttl,omitempty"` // empty: Uniform
}

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
