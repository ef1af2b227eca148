package topology

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"slices"
)

// Families of addresses, as indices.
const (
	v4 = iota
	v6
	families
)

// linkLocal reports whether an address is one that comes beside the others of its interface.
func linkLocal(a netip.Addr) bool { return a.Is6() && a.IsLinkLocalUnicast() }

var familyName = [families]string{"IPv4", "IPv6"}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return v4
	}
	return v6
}

// pools are the ranges of automatic addresses, in the order in which they are filled, and the families in use.
type pools struct {
	loopbacks, links, lans [families][]netip.Prefix
	enabled                [families]bool
}

// Default pools; the package comment shows what they look like. The later ones of a family serve when the earlier
// are full, or lie in networks that the file uses itself.
var defaultPools = pools{
	loopbacks: [families][]netip.Prefix{prefixes("10.192.0.0/10", "100.96.0.0/12"), prefixes("fd50:6572:676f:ffff::/96")},
	links:     [families][]netip.Prefix{prefixes("10.0.0.0/9", "100.64.0.0/11"), prefixes("fd50:6572:676f:fffe::/96")},
	lans:      [families][]netip.Prefix{prefixes("172.16.0.0/12", "10.128.0.0/10", "100.112.0.0/12"), prefixes("fd50:6572:676f::/49")},
	enabled:   [families]bool{true, true},
}

func prefixes(texts ...string) (ps []netip.Prefix) {
	for _, text := range texts {
		ps = append(ps, netip.MustParsePrefix(text))
	}
	return ps
}

// makePools reads the topology's addressing.
func (r *resolver) makePools() pools {
	p := defaultPools
	in := r.t.Addressing
	if in == nil {
		return p
	}
	for family, wanted := range []*bool{in.IPv4, in.IPv6} {
		p.enabled[family] = wanted == nil || *wanted
	}
	at := (*place)(nil).at("addressing")
	r.readPools(&p.loopbacks, in.Loopbacks, at.at("loopbacks"), 32)
	r.readPools(&p.links, in.Links, at.at("links"), 31)
	r.readPools(&p.lans, in.LANs, at.at("lans"), 24)
	return p
}

// readPools puts written pools in place of the default ones of their family. Longest is what an IPv4 pool must be
// able to hold at least once.
func (r *resolver) readPools(pools *[families][]netip.Prefix, written Strings, at *place, longest int) {
	var read [families][]netip.Prefix
	for i, text := range written {
		p, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			r.add(at.item(i), "write such as 10.0.0.0/16", "%q is not a prefix", text)
			continue
		case p != p.Masked():
			r.add(at.item(i), "write "+p.Masked().String(), "%s has bits set beyond its length", text)
			continue
		case !p.Addr().Is4() && !p.Addr().Is6() || p.Addr().IsMulticast() || p.Addr().IsLoopback() || p.Addr().Is4In6():
			r.add(at.item(i), "", "%s cannot be given to interfaces", text)
			continue
		case p.Addr().Is4() && p.Bits() > longest, p.Addr().Is6() && longest == 24 && p.Bits() > 64:
			r.add(at.item(i), "", "pool %s is too small", text)
			continue
		}
		read[familyOf(p.Addr())] = append(read[familyOf(p.Addr())], p)
	}
	for family := range read {
		if len(read[family]) > 0 {
			pools[family] = read[family]
		}
	}
}

// holds reports whether a prefix lies in one of the pools.
func holds(pools []netip.Prefix, p netip.Prefix) bool {
	return slices.ContainsFunc(pools, func(pool netip.Prefix) bool {
		return pool.Bits() <= p.Bits() && pool.Contains(p.Addr())
	})
}

// hash spreads names evenly and is the same everywhere and forever: addresses depend on it.
func hash(words ...string) uint64 {
	h := sha256.New()
	for _, word := range words {
		h.Write([]byte(word))
		h.Write([]byte{0})
	}
	return binary.BigEndian.Uint64(h.Sum(nil))
}

// choose picks the free prefix of a length that a name hashes to, or the next free one, from the first pool that
// has room. It is invalid where none has.
func choose(pools []netip.Prefix, bits int, name string, used *netset) netip.Prefix {
	for _, pool := range pools {
		if bits < pool.Bits() {
			continue
		}
		slots := uint64(1) << min(bits-pool.Bits(), 62)
		start := hash(name) % slots
		for i, tries := uint64(0), 0; i < slots && tries < maxTries; tries++ {
			p := netip.PrefixFrom(offset(pool.Addr(), (start+i)%slots, pool.Addr().BitLen()-bits), bits)
			length, taken := used.overlap(p)
			if !taken {
				return p
			}
			i++
			if length < bits { // step over a larger network at once
				size := uint64(1) << min(bits-length, 62)
				i = min(slots, i+size-1-(start+i-1)%slots%size)
			}
		}
	}
	return netip.Prefix{}
}

// maxTries bounds the search in one pool; a pool of LANs has fewer networks.
const maxTries = 1 << 20

// offset adds n << shift to an address.
func offset(a netip.Addr, n uint64, shift int) netip.Addr {
	if a.Is4() {
		b := a.As4()
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(n<<shift))
		return netip.AddrFrom4(b)
	}
	b := a.As16()
	high, low := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	if shift >= 64 {
		high += n << (shift - 64)
	} else {
		sum := low + n<<shift
		if sum < low {
			high++
		}
		high += n >> (64 - shift) // zero for a shift of 0, as n has 63 bits at most and Go shifts to 0
		low = sum
	}
	binary.BigEndian.PutUint64(b[:8], high)
	binary.BigEndian.PutUint64(b[8:], low)
	return netip.AddrFrom16(b)
}

// netset is a set of prefixes that answers whether one overlaps it, in time that does not grow with the set.
type netset struct {
	prefixes map[netip.Prefix]int
	covers   map[netip.Prefix]int // shorter prefixes that hold one of the set
	lengths  map[int]int          // of the prefixes in the set
}

func newNetset() *netset {
	return &netset{prefixes: map[netip.Prefix]int{}, covers: map[netip.Prefix]int{}, lengths: map[int]int{}}
}

func (s *netset) insert(p netip.Prefix) {
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

// automaticLengths are those of the prefixes that are ever asked for.
var automaticLengths = []int{16, 20, 24, 31, 32, 64, 127, 128}

// overlap finds a prefix of the set that shares addresses with p, which has one of automaticLengths, and gives its
// length where it is the larger of the two.
func (s *netset) overlap(p netip.Prefix) (length int, taken bool) {
	for bits := range s.lengths {
		if bits <= p.Bits() && s.prefixes[netip.PrefixFrom(p.Addr(), bits).Masked()] > 0 {
			return bits, true
		}
	}
	return p.Bits(), s.covers[p] > 0
}

func (s *netset) has(p netip.Prefix) bool { _, taken := s.overlap(p); return taken }
