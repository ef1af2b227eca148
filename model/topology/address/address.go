package address

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"slices"
)

// Families of addresses, as indices.
const (
	V4 = iota
	V6
	Families
)

// LinkLocal reports whether an address is one that comes beside the others of its interface.
func LinkLocal(a netip.Addr) bool { return a.Is6() && a.IsLinkLocalUnicast() }

// FamilyName are the names of the families, by index.
var FamilyName = [Families]string{"IPv4", "IPv6"}

// Family is the family of an address, as an index.
func Family(a netip.Addr) int {
	if a.Is4() {
		return V4
	}
	return V6
}

// Prefixes parses prefixes of the program's own; it panics on one that is none.
func Prefixes(texts ...string) (ps []netip.Prefix) {
	for _, text := range texts {
		ps = append(ps, netip.MustParsePrefix(text))
	}
	return ps
}

// Holds reports whether a prefix lies in one of the pools.
func Holds(pools []netip.Prefix, p netip.Prefix) bool {
	return slices.ContainsFunc(pools, func(pool netip.Prefix) bool {
		return pool.Bits() <= p.Bits() && pool.Contains(p.Addr())
	})
}

// Hash maps names evenly to numbers. It must never change: automatic addresses depend on it.
func Hash(words ...string) uint64 {
	h := sha256.New()
	for _, word := range words {
		h.Write([]byte(word))
		h.Write([]byte{0})
	}
	return binary.BigEndian.Uint64(h.Sum(nil))
}

// Choose picks the free prefix of a length that a name hashes to, or the next free one, from the first pool that
// has room. It is invalid where none has.
func Choose(pools []netip.Prefix, bits int, name string, used *Set) netip.Prefix {
	for _, pool := range pools {
		if bits < pool.Bits() {
			continue
		}
		slots := uint64(1) << min(bits-pool.Bits(), 62)
		start := Hash(name) % slots
		for i, tries := uint64(0), 0; i < slots && tries < maxTries; tries++ {
			p := netip.PrefixFrom(Offset(pool.Addr(), (start+i)%slots, pool.Addr().BitLen()-bits), bits)
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

// Offset adds n << shift to an address.
func Offset(a netip.Addr, n uint64, shift int) netip.Addr {
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

// Last is the highest address of a prefix.
func Last(p netip.Prefix) netip.Addr {
	host := p.Addr().BitLen() - p.Bits()
	if host >= 63 {
		return netip.Addr{}
	}
	return Offset(p.Masked().Addr(), 1<<host-1, 0)
}

// Usable leaves out the network's own address and the broadcast address; RFC 3021 and RFC 6164 allow both ends of a
// /31 and a /127.
func Usable(subnet netip.Prefix, a netip.Addr) bool {
	if a.BitLen()-subnet.Bits() <= 1 {
		return true
	}
	return a != subnet.Addr() && (a.Is6() || a != Last(subnet))
}
