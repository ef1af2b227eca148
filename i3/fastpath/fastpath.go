// Package fastpath is how a server programs something faster to do its common work: to pass packets on by the ring, and
// to deliver those that match one trigger. All else that something punts to the server, which is then the slow path.
//
// What a fast path does with a packet (wire.Packet), in this order:
//
//  1. A packet that is malformed or not wire.Data, whose hop limit is below 2, or whose copies are 0: punt.
//  2. The key of the first identifier is not the server's own (Routes): send the packet to the hop's server, with
//     the hop limit less 1. If no hop has the key: punt.
//  3. Otherwise the filter with the longest prefix that contains the first identifier decides. If there is none: punt.
//
// A packet is punted as it came, or as Redirect made it. A fast path may punt any packet, and the result is the same:
// in doubt, it does.
//
// The package does no I/O.
package fastpath

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/pergola-net/pergola/i3/chord"
	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/trigger"
)

// Kind says what a filter does.
type Kind uint8

// The kinds of action. For all but Punt the hop limit becomes less by 1.
const (
	Punt Kind = iota
	// Deliver sends the packet to To[0], as wire.Delivery.
	Deliver
	// Multicast sends a copy to each of To, as wire.Delivery. The packet's copies (at most 1024) are divided by the
	// number of receivers, rounded down. A packet that may not be copied so often is punted.
	Multicast
	// Redirect replaces the first identifier by Stack (wire.Packet.Redirect) and begins again at 1. If the stack
	// becomes too deep, the packet is punted as it was before.
	Redirect
)

func (k Kind) String() string {
	switch k {
	case Punt:
		return "punt"
	case Deliver:
		return "deliver"
	case Multicast:
		return "multicast"
	case Redirect:
		return "redirect"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Action is what a filter does.
type Action struct {
	Kind  Kind
	To    []netip.AddrPort
	Stack []ident.ID
}

// Equal reports whether two actions are the same.
func (a Action) Equal(b Action) bool {
	return a.Kind == b.Kind && slices.Equal(a.To, b.To) && slices.Equal(a.Stack, b.Stack)
}

// Filter says what is done with packets whose first identifier has a prefix.
type Filter struct {
	Prefix ident.Prefix // of 128 to 256 bits
	Action Action
}

// Limits says what a fast path can do beyond Punt and Deliver.
type Limits struct {
	Copies int // receivers of Multicast; 0: it cannot
	Depth  int // identifiers of Redirect; 0: it cannot
}

// ErrFull is the error of Set if there is no room for one more filter.
var ErrFull = errors.New("the fast path has no room for more filters")

// FastPath is what a server programs. Each call is atomic: a packet meets the tables as they were before it or as they
// are after it. If a call fails, they are as before.
type FastPath interface {
	Limits() Limits
	// Replace sets everything: what was there before, perhaps from another server process, goes.
	Replace(r chord.Routes, filters []Filter) error
	// SetRoutes replaces the table of the ring.
	SetRoutes(r chord.Routes) error
	// Set adds a filter, or replaces the action of the one with the same prefix.
	Set(f Filter) error
	// Delete takes a filter away. One that is not there is no error.
	Delete(p ident.Prefix) error
}

// Compile gives the filters by which a fast path does what the triggers of one key say. groups is in the order of
// identifiers (trigger.Table.Bucket).
//
// Longest-prefix match over filters is not yet the match of I3, in which the longest common prefix with any identifier
// wins, and of several identifiers the smallest. The two are the same if each identifier's filter has one bit more
// than the identifier has in common with the one before it (the first one's: 128 bits). For let x be the identifier
// that is to win, and L the bits that it has in common with the packet. The identifier before x has fewer in common
// with the packet, so x's filter has at most L bits and contains the packet. If another filter contains it too, with n
// bits, then n <= L, because the filters of those that come after x and share the L bits are longer; so all
// identifiers between its own and x share n bits. Its own cannot come after x, or its filter would be longer than n;
// it comes before x, so x's filter is longer.
func Compile(groups []trigger.Group, l Limits) []Filter {
	filters := make([]Filter, len(groups))
	for i, g := range groups {
		bits := ident.Exact
		if i > 0 {
			bits = ident.Common(groups[i-1].ID, g.ID) + 1
		}
		filters[i] = Filter{Prefix: ident.PrefixOf(g.ID, bits), Action: actionOf(g.Triggers, l)}
	}
	return filters
}

func actionOf(triggers []*trigger.Trigger, l Limits) Action {
	if len(triggers) == 1 && !triggers[0].Direct() {
		if len(triggers[0].Stack) > l.Depth {
			return Action{Kind: Punt}
		}
		return Action{Kind: Redirect, Stack: triggers[0].Stack}
	}
	a := Action{Kind: Deliver}
	for _, t := range triggers {
		if !t.Direct() {
			return Action{Kind: Punt}
		}
		a.To = append(a.To, t.Receiver)
	}
	if len(a.To) > 1 {
		a.Kind = Multicast
		if len(a.To) > l.Copies {
			return Action{Kind: Punt}
		}
	}
	return a
}
