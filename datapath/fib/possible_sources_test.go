package fib

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Whatever comes, goes and crashes: programs look in map sources for each address that is there, and for no other but
// those that end like one.
func TestPossibleSourcesAreTheEndingsOfSources(t *testing.T) {
	drawn := func(t *rapid.T) netip.Addr {
		end := rapid.SampledFrom([]uint32{1, 2, 63, 64, possibleBits - 1}).Draw(t, "end")
		return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil,
			rapid.Uint32Range(1, 3).Draw(t, "begin")*possibleBits+end)))
	}
	rapid.Check(t, func(t *rapid.T) {
		p := newPlain()
		f := p.open(t)
		died := until(f, rapid.IntRange(0, 40).Draw(t, "stores"), func() {
			var routers []*Router
			for slice := range uint32(2) {
				for range 2 {
					r, err := f.NewRouter(slice)
					must(t, err)
					routers = append(routers, r)
				}
			}
			for range rapid.IntRange(0, 30).Draw(t, "changes") {
				r, a := rapid.SampledFrom(routers).Draw(t, "router"), drawn(t)
				switch rapid.IntRange(0, 4).Draw(t, "change") {
				case 0:
					must(t, r.DeleteAddress(a))
				default:
					must(t, r.SetAddress(a))
				}
			}
		})
		if died {
			f = p.open(t)
		}
		want := make([]uint64, len(p.possibleSources))
		for k := range p.sources {
			end := binary.BigEndian.Uint32(k.Address[:]) % possibleBits
			want[end/64] |= 1 << (end % 64)
		}
		if !slices.Equal(p.possibleSources, want) {
			t.Fatalf("the endings of %v are not the possible sources", p.sources)
		}
	})
}
