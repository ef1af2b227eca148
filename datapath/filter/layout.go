package filter

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// The bounds of the maps, as bpf/filter.h has them.
const (
	words      = 8 // of 64 bits, of a key
	orderWords = 262144
	maxBuckets = 65536
	slots      = 6  // of a bucket
	probes     = 64 // buckets in which a filter may be
	maxChunks  = 256
	chunkSize  = 1024 // filters
	numberBits = 18   // of a filter's number
	maxStripes = 16

	maskHead   = 3 // words of a mask before the mask itself
	filterHead = 2 // words of a filter before its key

	// same is how many filters of a chain there are at most, with those that were deleted.
	same = 2 * MaxSame

	// alive is when a filter dies that was not deleted.
	alive = 1<<63 - 1

	fixedBytes = int64(unsafe.Sizeof(index{}) + unsafe.Sizeof(bucketMemory{}))
)

// A key is struct filter_key: bytes in their order, as the words of this machine.
type key [words]uint64

func newKey(b []byte) (k key) {
	var padded [8 * words]byte
	copy(padded[:], b)
	for i := range k {
		k[i] = binary.NativeEndian.Uint64(padded[8*i:])
	}
	return k
}

func (k key) bytes(n int) []byte {
	var padded [8 * words]byte
	for i, w := range k {
		binary.NativeEndian.PutUint64(padded[8*i:], w)
	}
	return append([]byte(nil), padded[:n]...)
}

func (k key) and(mask key) key {
	for i := range k {
		k[i] &= mask[i]
	}
	return k
}

// A tableRecord is struct filter_table.
type tableRecord struct {
	version uint64
	order   uint64 // span
	words   uint32 // that are hashed
	bytes   uint32 // of a key; 0: no table
	_       uint64
}

// An index is struct filter_index.
type index struct {
	secret                   key
	buckets, stripes, shared uint32
	_                        [13]uint32
	table                    [MaxTables]tableRecord
	order                    [orderWords]uint64
	_                        [MaxTableMasks * (maskHead + words)]uint64 // no order begins here
}

// A bucket is struct filter_bucket.
type bucket struct {
	slot  [slots]uint32
	marks uint64
}

type bucketMemory [2 * maxBuckets]bucket

// A chunk is struct filter_chunk.
type chunk struct {
	filter [chunkSize * (filterHead + words)]uint64
	result [chunkSize]Result
	life   [chunkSize]life
	hits   [chunkSize]uint64
}

type life struct{ born, died uint64 }

// A head is what struct filter has before its key.
type head struct {
	rank    uint64
	next    uint32
	passing uint32
}

// counters are a stripe of a chunk's counters.
type counters [chunkSize]uint64

func priorityOf(rank uint64) uint32 { return uint32(rank >> 32) }

// newRank is what decides between two filters: the higher priority, then the lower order. It is never 0.
func newRank(priority, order uint32) uint64 { return uint64(priority)<<32 | uint64(^order) }

// lastOrder is the last one that gives a rank.
const lastOrder = 1<<32 - 2

// hashedWords is how many words of keys of so many bytes are hashed: those behind their end are 0.
func hashedWords(bytes int) int {
	switch {
	case bytes <= 16:
		return 2
	case bytes <= 32:
		return 4
	default:
		return words
	}
}

// A hash is where a filter is: bucket, mark and slot.
type hash uint64

// hash is hash_filter() in bpf/filter.h, of what a mask leaves of a key.
func (x *index) hash(seed uint64, masked key, words int) hash {
	h := seed
	for i, w := range masked[:words] {
		s := x.secret[i]
		h += uint64(uint32(w)+uint32(s)) * uint64(uint32(w>>32)+uint32(s>>32))
	}
	h *= 0xff51afd7ed558ccd
	return hash(h ^ h>>32)
}

const (
	laneBits = 10
	laneMask = 1<<laneBits - 1
	passed   = 1 << 63 // in marks: filters that belong here are in the next bucket
)

func (h hash) mark() uint64 { return uint64(h>>54) | 1<<(laneBits-1) }

func newSlot(mask, n uint32) uint32 { return mask<<numberBits | n }

func splitSlot(slot uint32) (mask, n uint32) { return slot >> numberBits, slot & (1<<numberBits - 1) }

// lane is the mark of a slot; 0: the slot is free.
func lane(marks uint64, slot int) uint64 { return marks >> (laneBits * slot) & laneMask }

func setLane(marks uint64, slot int, mark uint64) uint64 {
	return marks&^(laneMask<<(laneBits*slot)) | mark<<(laneBits*slot)
}

// A span is masks that follow one another: the first word in the lower half, the number of masks in the upper one.
type span uint64

func newSpan(first, count int) span { return span(first) | span(count)<<32 }

func (s span) first() int { return int(uint32(s)) }
func (s span) count() int { return int(s >> 32) }

func load32(at *uint32) uint32 { return atomic.LoadUint32(at) }
func load64(at *uint64) uint64 { return atomic.LoadUint64(at) }
