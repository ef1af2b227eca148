// Package fib writes the mirror: the maps from which the programs know what each router's kernel would do with a frame
// (bpf/fib.h has their layout). It knows nothing of where routes come from.
//
// Whatever changes for a destination changes by one store of 32 or 64 bits into memory that the programs read: they see the old
// answer or the new one. What they may still be looking at is not used again before the kernel has waited for them.
package fib

import (
	"errors"
	"iter"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
)

// The bounds of the maps.
const (
	MaxRouters  = 4096
	MaxNexthops = 65536 // of all routers
)

// ErrFull is wrapped by the errors of whatever finds a map full. Nothing has changed then.
var ErrFull = errors.New("the fast path's memory is full")

// Maps are the pinned maps of bpf/fib.h.
type Maps struct {
	Legs, Routers, Nodes, Nexthops, Neighbours, Sources, Lease *ebpf.Map
}

// FIB writes the maps. There is one writer at a time. Its methods may be called concurrently.
type FIB struct{}

// Usage is how much of the maps is in use.
type Usage struct {
	Nodes, NodesBound           int   // trie nodes
	Nexthops, NexthopsBound     int   // next hops, without those that all routers share
	Neighbours, NeighboursBound int   // on routers' links
	Routers, RoutersBound       int   // with those of an earlier process
	Bytes, BytesBound           int64 // memory for nodes: taken from the kernel
}

// Open adopts the maps. Routers of an earlier process stay on the fast path as they are, until legs are taken from them by SetLeg or
// DropLeg and Reclaim frees them.
func Open(Maps) (*FIB, error) { return &FIB{}, nil }

// Close lets go of the maps; what is in them stays in force. No router may be used afterwards.
func (f *FIB) Close() error { return nil }

// Limit bounds the memory for nodes, 1 GiB if nobody says otherwise.
func (f *FIB) Limit(_ int64) {}

// Renew makes the programs believe the maps for so long from now.
func (f *FIB) Renew(time.Duration) error { return nil }

// NewRouter takes a router id that nobody uses. The router has no routes, and is on no fast path until Enable.
func (f *FIB) NewRouter(_ uint32) (*Router, error) { return &Router{}, nil }

// Earlier names the ports whose legs still refer to a router of an earlier process.
func (f *FIB) Earlier() []int { return nil }

// DropLeg takes the port's leg away, whosever it is: for ports that are new, or gone.
func (f *FIB) DropLeg(_ int) error { return nil }

// Reclaim frees the routers of an earlier process to which no leg refers any more.
func (f *FIB) Reclaim() error { return nil }

// Usage says how full the maps are.
func (f *FIB) Usage() Usage { return Usage{} }

// Router is what the fast path knows of one router. Its methods may be called concurrently with those of other routers, and with
// its own.
type Router struct{}

// Leg is a router's end of a link: an interface.
type Leg struct {
	MTU        int
	MAC        [6]byte
	Up         bool // administratively, and with carrier
	IPv4, IPv6 bool // forwards what arrives here
}

// Neighbour is a station on a link whose MAC address is known.
type Neighbour struct {
	MAC   [6]byte
	Stale bool // the kernel wants to see the next frame to it
}

// Kind of a route.
type Kind uint8

// The kinds.
const (
	None    Kind = iota // no route: what Lookup finds where there is none
	Unicast             // by one of the paths
	Local               // to the router itself: its addresses, broadcast, multicast
	Reject              // blackhole, unreachable, prohibit
	Other               // of a kind that the programs leave to the kernel
)

// Route says what becomes of frames to a prefix.
type Route struct {
	Kind  Kind
	Paths []Path // Unicast: at least one
}

// Path is one way on.
type Path struct {
	Port    int        // the substrate's end of the link; 0: not known, frames go to the kernel
	Gateway netip.Addr // invalid: the destination is on the link; may be IPv6 for IPv4 (RFC 8950)
	Weight  int        // share of the flows among the route's paths; 0 counts as 1
}

// Same reports whether the programs do the same with both routes: weights matter as far as they can be told apart.
func (r Route) Same(_ Route) bool { return false }

// Enable puts the router's routes in force, or takes them out, which makes the programs leave its frames to its kernel: one store each.
func (r *Router) Enable(_, _ bool) error { return nil }

// SetLeg makes the port a leg of this router, or changes it. While a leg is down, no next hop on it is resolved.
func (r *Router) SetLeg(_ int, _ Leg) error { return nil }

// DeleteLeg takes the leg away, if it is this router's, with all neighbours on it.
func (r *Router) DeleteLeg(_ int) error { return nil }

// SetRoute adds or replaces the route to a prefix.
func (r *Router) SetRoute(_ netip.Prefix, _ Route) error { return nil }

// DeleteRoute removes the route to a prefix. It is no error if there is none.
func (r *Router) DeleteRoute(_ netip.Prefix) error { return nil }

// SetNeighbour tells the MAC address of a neighbour: a gateway of routes, a destination on the link, or both.
func (r *Router) SetNeighbour(_ int, _ netip.Addr, _ Neighbour) error { return nil }

// DeleteNeighbour says that a neighbour's MAC address is not known. It is no error if it was not.
func (r *Router) DeleteNeighbour(_ int, _ netip.Addr) error { return nil }

// SetAddress says that an IPv4 address is the router's own: frames from it that arrive at the router are none of its own.
func (r *Router) SetAddress(_ netip.Addr) error { return nil }

// DeleteAddress undoes SetAddress.
func (r *Router) DeleteAddress(_ netip.Addr) error { return nil }

// Lookup finds the route to an address as a program would, from the maps. Weights are 256ths.
func (r *Router) Lookup(_ netip.Addr) Route { return Route{} }

// LookupNeighbour finds a neighbour on a link as a program would, from the maps.
func (r *Router) LookupNeighbour(_ int, _ netip.Addr) (Neighbour, bool) { return Neighbour{}, false }

// Routes yields what was set, IPv4 first. The router must not be changed meanwhile.
func (r *Router) Routes() iter.Seq2[netip.Prefix, Route] {
	return func(func(netip.Prefix, Route) bool) {}
}

// Close takes the router out of the maps and frees what it held.
func (r *Router) Close() error { return nil }
