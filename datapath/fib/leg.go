package fib

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
)

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

// The flags of a leg: enum leg_flags in bpf/fib.h.
const (
	legUp uint8 = 1 << iota
	legIPv4
	legIPv6
	legLabelRules
)

// legRouter is LEG_ROUTER in bpf/fib.h. Legs of another kind are not ours.
const legRouter = 0

// A legRecord is struct leg in bpf/fib.h as it is written: two words, each at once.
type legRecord struct {
	router uint64 // and MTU
	link   uint64 // MAC address and flags
}

func (l Leg) record(router uint32, rules bool) legRecord {
	var b [16]byte
	binary.NativeEndian.PutUint32(b[0:], router)
	binary.NativeEndian.PutUint32(b[4:], uint32(l.MTU))
	copy(b[8:], l.MAC[:])
	for flag, on := range map[uint8]bool{legUp: l.Up, legIPv4: l.IPv4, legIPv6: l.IPv6, legLabelRules: rules} {
		if on {
			b[14] |= flag
		}
	}
	return legRecord{router: binary.NativeEndian.Uint64(b[:]), link: binary.NativeEndian.Uint64(b[8:])}
}

// owner is the router that has the leg; 0: none, or no router.
func (r *legRecord) owner() uint32 {
	if !r.isRouters() {
		return 0
	}
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], atomic.LoadUint64(&r.router))
	return binary.NativeEndian.Uint32(b[:])
}

func (r *legRecord) isRouters() bool {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], atomic.LoadUint64(&r.link))
	return b[7] == legRouter
}

// writeLeg writes the link's half first: a program that sees the router sees the link.
func (f *FIB) writeLeg(port int, l legRecord) {
	f.store64(&f.legs[port].link, l.link)
	f.store64(&f.legs[port].router, l.router)
}

func (f *FIB) clearLeg(port int) {
	f.store64(&f.legs[port].router, 0)
	f.store64(&f.legs[port].link, 0)
}

// SetLeg makes the port a leg of this router, whosever it was, or changes it. While a leg is down, no next hop on it
// is resolved.
func (r *Router) SetLeg(port int, l Leg) error {
	if port <= 0 || port >= len(r.fib.legs) {
		return fmt.Errorf("set leg %d: the port's number is not below %d", port, len(r.fib.legs))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fmt.Errorf("set leg %d: %w", port, errClosed)
	}
	old, had := r.legs[port]
	if !had {
		if err := r.fib.forgetNeighbours(port); err != nil {
			return fmt.Errorf("set leg %d: %w", port, err)
		}
	}
	r.legs[port] = l
	if !r.fib.legs[port].isRouters() { // its other half must not be taken for a router's
		r.fib.clearLeg(port)
	}
	r.fib.writeLeg(port, l.record(r.id, r.rules))
	if old.Up != l.Up {
		r.resolvePort(port)
	}
	return nil
}

// DeleteLeg takes the leg away, if it is this router's, with all neighbours on it.
func (r *Router) DeleteLeg(port int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.legs[port]; !ok || r.closed {
		return nil
	}
	if err := r.deleteLeg(port); err != nil {
		return fmt.Errorf("delete leg %d: %w", port, err)
	}
	return nil
}

func (r *Router) deleteLeg(port int) error {
	if r.fib.legs[port].owner() == r.id {
		r.fib.clearLeg(port)
	}
	delete(r.legs, port)
	r.resolvePort(port)
	var errs []error
	for at := range r.neighbours {
		if at.port == port {
			errs = append(errs, r.deleteNeighbour(at))
		}
	}
	return errors.Join(errs...)
}

func (r *Router) resolvePort(port int) {
	for _, h := range r.hops {
		if h.port == port {
			r.resolve(h)
		}
	}
}

// SetNeighbour sets the MAC address of a neighbour: a gateway of routes, a destination on the link, or both. The
// programs themselves take a neighbour that is stale for one that is not when they let the kernel see a frame: so
// this writes even what it wrote before.
func (r *Router) SetNeighbour(port int, address netip.Addr, n Neighbour) error {
	at := station{port: port, address: address.WithZone("")}
	if port <= 0 || !address.IsValid() {
		return fmt.Errorf("set neighbour %v at port %d: no such place", address, port)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fmt.Errorf("set neighbour %v at port %d: %w", address, port, errClosed)
	}
	if _, has := r.neighbours[at]; !has {
		if err := afford(r.id, "neighbours", len(r.neighbours)+1, r.fib.neighbours.bound(),
			tableShare); err != nil {
			return fmt.Errorf("set neighbour %v at port %d: %w", address, port, err)
		}
	}
	if err := r.fib.putNeighbour(at, n); err != nil {
		return fmt.Errorf("set neighbour %v at port %d: %w", address, port, err)
	}
	r.neighbours[at] = n
	r.resolveStation(at)
	return nil
}

// DeleteNeighbour says that a neighbour's MAC address is not known. It is no error if it was not.
func (r *Router) DeleteNeighbour(port int, address netip.Addr) error {
	at := station{port: port, address: address.WithZone("")}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.neighbours[at]; !ok || r.closed {
		return nil
	}
	if err := r.deleteNeighbour(at); err != nil {
		return fmt.Errorf("delete neighbour %v at port %d: %w", address, port, err)
	}
	return nil
}

func (r *Router) deleteNeighbour(at station) error {
	delete(r.neighbours, at)
	r.resolveStation(at)
	return r.fib.dropNeighbour(at)
}

// LookupNeighbour finds a neighbour on a link as a program would, from the maps.
func (r *Router) LookupNeighbour(port int, address netip.Addr) (Neighbour, bool) {
	at := station{port: port, address: address.WithZone("")}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return Neighbour{}, false
	}
	word, ok := r.fib.neighbour(at.key())
	kind, mac := parseAdjacency(word)
	if h := r.hops[hopKey{station: at}]; ok && h != nil && r.legs[port].Up { // routes by it as a gateway look there
		k, m := parseAdjacency(atomic.LoadUint64(&r.fib.hops[h.index].to))
		ok = mac == m && (k == nexthopGateway || k == nexthopStale)
	}
	return Neighbour{MAC: mac, Stale: kind == nexthopStale}, ok
}

// SetAddress says that an IPv4 address is the router's own: frames that arrive at it and claim to come from there do
// not.
func (r *Router) SetAddress(a netip.Addr) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !a.Is4() || r.closed {
		return fmt.Errorf("set address %v: no IPv4 address, or no router", a)
	}
	if r.addresses[a] {
		return nil
	}
	if err := afford(r.id, "sources", len(r.addresses)+1, r.fib.sources.bound(), tableShare); err != nil {
		return fmt.Errorf("set address %v: %w", a, err)
	}
	if err := r.fib.own(a, r.slice, r.id); err != nil {
		return fmt.Errorf("set address %v: %w", a, err)
	}
	r.addresses[a] = true
	return nil
}

// DeleteAddress undoes SetAddress.
func (r *Router) DeleteAddress(a netip.Addr) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.addresses[a] || r.closed {
		return nil
	}
	delete(r.addresses, a)
	if err := r.fib.disown(a, r.slice, r.id); err != nil {
		return fmt.Errorf("delete address %v: %w", a, err)
	}
	return nil
}
