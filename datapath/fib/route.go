package fib

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
)

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
	Paths []Path // Unicast: at least one; of more than MaxPaths, the programs leave all frames to the kernel
}

// MaxPaths bounds the paths of a route that the programs choose from.
const MaxPaths = nodeEntries

// Path is one way on.
type Path struct {
	Port    int        // the substrate's end of the link; 0: not known, frames go to the kernel
	Gateway netip.Addr // invalid: the destination is on the link; may be IPv6 for IPv4 (RFC 8950)
	Weight  int        // share of the flows among the route's paths; less than 1 counts as 1

	ftn uint32 // frames get the labels of this FTN, and go their way; 0: none (ftn.go)
}

// Same reports whether the programs do the same with both routes: weights matter as far as they can be told apart.
func (r Route) Same(o Route) bool {
	r, o = r.plain(), o.plain()
	if r.Kind != o.Kind || len(r.Paths) != len(o.Paths) {
		return false
	}
	if r.Kind != Unicast {
		return true
	}
	a, b := shares(r.Paths), shares(o.Paths)
	for i := range r.Paths {
		if r.Paths[i].hop() != o.Paths[i].hop() || a[i] != b[i] {
			return false
		}
	}
	return true
}

// hop is the path without its weight.
func (p Path) hop() Path {
	p.Weight = 0
	return p
}

// plain is the route in the one form that routes which mean the same have in common.
func (r Route) plain() Route {
	if r.Kind != Unicast {
		return Route{Kind: r.Kind}
	}
	paths := make([]Path, len(r.Paths))
	for i, p := range r.Paths {
		p.Weight = max(p.Weight, 1)
		p.Gateway = p.Gateway.WithZone("")
		if p.Port == 0 {
			p.Gateway = netip.Addr{}
		}
		paths[i] = p
	}
	slices.SortFunc(paths, func(a, b Path) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), a.Gateway.Compare(b.Gateway))
	})
	merged := paths[:0]
	for _, p := range paths {
		if n := len(merged); n > 0 && merged[n-1].hop() == p.hop() {
			merged[n-1].Weight += p.Weight
		} else {
			merged = append(merged, p)
		}
	}
	if len(merged) == 1 {
		merged[0].Weight = 1
	}
	if len(merged) == 0 || len(merged) > MaxPaths {
		return Route{Kind: Other}
	}
	return Route{Kind: Unicast, Paths: merged}
}

// shares is how many of 256 flows take each path: what the weights say, rounded, but at least one.
func shares(paths []Path) []int {
	total := 0
	for _, p := range paths {
		total += max(p.Weight, 1)
	}
	all := make([]int, len(paths))
	left := nodeEntries
	for i, p := range paths {
		all[i] = max(1, nodeEntries*max(p.Weight, 1)/total)
		left -= all[i]
	}
	for left != 0 {
		step := left / max(left, -left)
		best := -1
		for i, p := range paths { // the one that is furthest from what it should have
			if step < 0 && all[i] == 1 {
				continue
			}
			if best < 0 || step*(nodeEntries*max(p.Weight,
				1)-all[i]*total) > step*(nodeEntries*max(paths[best].Weight, 1)-all[best]*total) {
				best = i
			}
		}
		all[best] += step
		left -= step
	}
	return all
}

// spread deals the 256 values of a flow's hash out to the paths, in turn, each as often as its share.
func spread(paths []Path) [nodeEntries]uint8 {
	var dealt [nodeEntries]uint8
	all := shares(paths)
	credit := make([]int, len(all))
	for slot := range dealt {
		best := 0
		for i := range all {
			credit[i] += all[i]
			if credit[i] > credit[best] {
				best = i
			}
		}
		credit[best] -= nodeEntries
		dealt[slot] = uint8(best)
	}
	return dealt
}

// A targetKey tells plain routes apart. Most have one path: those need no string.
type targetKey struct {
	kind Kind
	one  Path
	many string
}

func (r Route) key() targetKey {
	k := targetKey{kind: r.Kind}
	switch len(r.Paths) {
	case 0:
	case 1:
		k.one = r.Paths[0]
	default:
		var b []byte
		for _, p := range r.Paths {
			b = binary.NativeEndian.AppendUint64(b, uint64(p.Port))
			b = binary.NativeEndian.AppendUint64(b, uint64(p.Weight))
			b = append(b, uint8(p.Gateway.BitLen()))
			b = append(b, p.Gateway.AsSlice()...)
			b = binary.NativeEndian.AppendUint32(b, p.ftn)
		}
		k.many = string(b)
	}
	return k
}
