package filter

import (
	"encoding/binary"
	"math/rand/v2"
)

// A generator makes filters that overlap often, for keys of so many bytes.
type generator struct {
	*rand.Rand
	bytes int
	masks []key
	count int
}

func newGenerator(seed uint64, bytes, masks int) *generator {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, uint64(bytes))), bytes: bytes}
	for range masks {
		mask := make([]byte, bytes)
		for i := range mask {
			mask[i] = []byte{0, 255, 255, 240}[g.IntN(4)]
		}
		g.masks = append(g.masks, newKey(mask))
	}
	return g
}

func (g *generator) key() key {
	b := make([]byte, g.bytes)
	for i := range b {
		b[i] = []byte{0, 1, 16, 17}[g.IntN(4)] * byte(g.IntN(2))
	}
	return newKey(b)
}

func (g *generator) filter() Filter {
	g.count++
	k := g.key()
	return Filter{
		Key: k.bytes(g.bytes), Mask: g.masks[g.IntN(len(g.masks))].bytes(g.bytes),
		Priority: g.Uint32N(5), Result: result(g.count),
	}
}

// change is one that can be made: mostly an insertion, up to so many filters.
func (g *generator) change(l list, most int) Change {
	if len(l) > 0 && g.IntN(most) < len(l) {
		return Change{Delete, l[g.IntN(len(l))]}
	}
	f := g.filter()
	if l.named(f) >= 0 {
		return Change{Set, f}
	}
	return Change{Insert, f}
}

func firstWord(r Result) uint64 { return binary.NativeEndian.Uint64(r[:]) }

// unlike is a filter that is not in the list.
func (g *generator) unlike(l list) Filter {
	for {
		if f := g.filter(); l.named(f) < 0 {
			return f
		}
	}
}

func listOf(t *Table) (l list) {
	for _, e := range t.List() {
		l = append(l, e.Filter)
	}
	return l
}
