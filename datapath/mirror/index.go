package mirror

import (
	"encoding/binary"
	"iter"
	"net/netip"
)

// index finds the entries of prefixes. There may be a million of IPv4's: theirs is keyed by a number, half as large
// and twice as fast.
type index struct {
	four map[uint64]*entry
	six  map[netip.Prefix]*entry
}

func newIndex() index { return index{map[uint64]*entry{}, map[netip.Prefix]*entry{}} }

func pack(p netip.Prefix) uint64 {
	a := p.Addr().As4()
	return uint64(binary.BigEndian.Uint32(a[:]))<<8 | uint64(p.Bits())
}

func unpack(k uint64) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(k>>8)))), int(k&0xff))
}

func (x index) get(p netip.Prefix) *entry {
	if p.Addr().Is4() {
		return x.four[pack(p)]
	}
	return x.six[p]
}

func (x index) put(p netip.Prefix, e *entry) {
	if p.Addr().Is4() {
		x.four[pack(p)] = e
	} else {
		x.six[p] = e
	}
}

func (x index) remove(p netip.Prefix) {
	if p.Addr().Is4() {
		delete(x.four, pack(p))
	} else {
		delete(x.six, p)
	}
}

// count is the number of a family's prefixes.
func (x index) count(f family) int { return perFamily[int]{len(x.four), len(x.six)}[f] }

// all are a family's prefixes. Entries may be removed meanwhile.
func (x index) all(f family) iter.Seq2[netip.Prefix, *entry] {
	return func(yield func(netip.Prefix, *entry) bool) {
		if f == family4 {
			for k, e := range x.four {
				if !yield(unpack(k), e) {
					return
				}
			}
			return
		}
		for p, e := range x.six {
			if !yield(p, e) {
				return
			}
		}
	}
}
