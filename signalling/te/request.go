package te

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// Request asks for a path for an LSP. The zero value of each constraint is none.
type Request struct {
	From, To  netip.Addr // of routers, or of their interfaces
	Bandwidth uint64     // bytes a second, on each link
	Setup     uint8      // the set-up priority at which it has to be unreserved
	// Affinities are administrative groups that links must have or must not have.
	Affinities message.Affinities
	Avoid      Avoid
	// Via are steps to go through in their order. Each is one address. A strict one is the next router, entered by
	// that interface if the address is an interface's; a loose one is a router somewhere on the way. Each part of
	// the way is the shortest one that avoids the parts before it.
	Via []message.Step
	// Hops is the most links that the path may have; 0: any number.
	Hops int
	// IGP has paths compared by the routing protocol's metric instead of the TE metric.
	IGP bool
	// Replaces is what the LSP that the path is for holds already. On links of the old path that counts as
	// unreserved, because the two share it (make before break).
	Replaces *Held
}

// Avoid is what a path must not use.
type Avoid struct {
	Nodes []netip.Addr // routers, by any of their addresses
	// Links are links in both directions, by the address of an interface at one end. Of a LAN, it is what this
	// interface's router uses of it.
	Links []netip.Addr
	SRLGs []uint32
}

// Held is a path with what its LSP holds there.
type Held struct {
	Path      Path
	Bandwidth uint64
	Holding   uint8
}

func (q Request) check() error {
	if q.Setup >= Priorities || q.Hops < 0 {
		return fmt.Errorf("path from %s to %s: set-up priority %d, at most %d hops", q.From, q.To, q.Setup,
			q.Hops)
	}
	for _, step := range q.Via {
		if !step.Prefix.IsSingleIP() {
			return fmt.Errorf("path from %s to %s: the step %s is not a router's address", q.From, q.To,
				step)
		}
	}
	return nil
}

// And joins what is to be avoided.
func (a Avoid) And(b Avoid) Avoid {
	return Avoid{Nodes: slices.Concat(a.Nodes, b.Nodes), Links: slices.Concat(a.Links, b.Links),
		SRLGs: slices.Concat(a.SRLGs, b.SRLGs)}
}

// Path is a way through the network.
type Path struct {
	Hops []Hop
	Cost uint64 // the sum of the metrics
	// Unreserved is the least of its links' unreserved bandwidths at the set-up priority, before the LSP is set up.
	Unreserved uint64
}

// Hop is a link of a path: of a LAN, the way from one router to another.
type Hop struct {
	Link     LinkID     // as advertised at its beginning
	From, To string     // routers
	Local    netip.Addr // of the interface by which it leaves From
	Remote   netip.Addr // of the interface by which it enters To
	SRLGs    []uint32
}

// Route is the path as an explicit route: each router strictly, by the address at which it is entered.
func (p Path) Route() []message.Step {
	steps := make([]message.Step, 0, len(p.Hops))
	for _, h := range p.Hops {
		steps = append(steps, message.Step{Prefix: netip.PrefixFrom(h.Remote, h.Remote.BitLen())})
	}
	return steps
}

// Routers are the identifiers of the routers on the path, with both ends.
func (p Path) Routers() []string {
	var ids []string
	for i, h := range p.Hops {
		if i == 0 {
			ids = append(ids, h.From)
		}
		ids = append(ids, h.To)
	}
	return ids
}
