package address

import "net/netip"

// Set is a set of prefixes that answers whether one overlaps it, in time that does not grow with the set.
type Set struct {
	prefixes map[netip.Prefix]int
	covers   map[netip.Prefix]int // shorter prefixes that hold one of the set
	lengths  map[int]int          // of the prefixes in the set
}

// NewSet gives an empty set.
func NewSet() *Set {
	return &Set{prefixes: map[netip.Prefix]int{}, covers: map[netip.Prefix]int{}, lengths: map[int]int{}}
}

// Insert adds the network of a prefix.
func (s *Set) Insert(p netip.Prefix) {
	p = p.Masked()
	s.prefixes[p]++
	if s.prefixes[p] > 1 {
		return
	}
	s.lengths[p.Bits()]++
	for _, bits := range automaticLengths {
		if bits < p.Bits() {
			s.covers[netip.PrefixFrom(p.Addr(), bits).Masked()]++
		}
	}
}

// automaticLengths are the lengths of the prefixes that overlap is called with.
var automaticLengths = []int{16, 20, 24, 31, 32, 64, 127, 128}

// overlap finds a prefix of the set that shares addresses with p, which has one of automaticLengths, and gives its
// length where it is the larger of the two.
func (s *Set) overlap(p netip.Prefix) (length int, taken bool) {
	for bits := range s.lengths {
		if bits <= p.Bits() && s.prefixes[netip.PrefixFrom(p.Addr(), bits).Masked()] > 0 {
			return bits, true
		}
	}
	return p.Bits(), s.covers[p] > 0
}

// Has reports whether the set shares addresses with p, which has one of automaticLengths.
func (s *Set) Has(p netip.Prefix) bool { _, taken := s.overlap(p); return taken }
