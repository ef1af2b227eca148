package fib

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// An entry is 32 bits of a node: two of type, eight of prefix length or record number, 22 of index (bpf/fib.h).
type entry uint32

type entryType uint32

const (
	leafEntry  entryType = 0 // index of a next hop
	nodeEntry  entryType = 1 // index of the node for the next byte
	groupEntry entryType = 2 // index of a node whose leaves the flow's hash chooses from
	pathEntry  entryType = 3 // index of a node of records, and the record's number in place of the prefix length
)

const (
	indexBits  = 22
	indexMask  = 1<<indexBits - 1
	lengthMask = 0xff << indexBits
)

func newEntry(t entryType, index uint32) entry { return entry(uint32(t)<<30 | index) }

func (e entry) kind() entryType { return entryType(e >> 30) }
func (e entry) index() uint32   { return uint32(e & indexMask) }

// length is that of the prefix that put a leaf or group here.
func (e entry) length() int            { return int(e & lengthMask >> indexBits) }
func (e entry) withLength(n int) entry { return e&^lengthMask | entry(n)<<indexBits }

// record is the number of a path entry's record in its node.
func (e entry) record() uint32 { return uint32(e.length()) }

// answer reports whether the lookup ends here.
func (e entry) answer() bool { return e.kind() == leafEntry || e.kind() == groupEntry }

// A key is an address, left aligned: an IPv4 address is the first 32 bits.
type key struct{ high, low uint64 }

func keyOf(a netip.Addr) key {
	if a.Is4() {
		b := a.As4()
		return key{high: uint64(binary.BigEndian.Uint32(b[:])) << 32}
	}
	b := a.As16()
	return key{high: binary.BigEndian.Uint64(b[:8]), low: binary.BigEndian.Uint64(b[8:])}
}

// byteAt is the byte that begins with the bit, a multiple of eight.
func (k key) byteAt(bit int) uint8 {
	if bit < 64 {
		return uint8(k.high >> (56 - bit))
	}
	return uint8(k.low >> (120 - bit))
}

// withByte has another byte there.
func (k key) withByte(bit int, b uint8) key {
	if bit < 64 {
		k.high = k.high&^(0xff<<(56-bit)) | uint64(b)<<(56-bit)
	} else {
		k.low = k.low&^(0xff<<(120-bit)) | uint64(b)<<(120-bit)
	}
	return k
}

// first keeps the first n bits.
func (k key) first(n int) key {
	if n <= 64 {
		return key{high: k.high &^ (^uint64(0) >> n)}
	}
	return key{high: k.high, low: k.low &^ (^uint64(0) >> (n - 64))}
}

// common counts the bits that two keys begin with alike.
func (k key) common(o key) int {
	if d := k.high ^ o.high; d != 0 {
		return bits.LeadingZeros64(d)
	}
	return 64 + bits.LeadingZeros64(k.low^o.low)
}
