package path

import (
	"net/netip"
	"testing"

	"github.com/pergola-net/pergola/bench/traffic"
)

func TestTableHasRoutesAndDestinationsInThem(t *testing.T) {
	const routes = 1000
	table := newTable(routes)
	byBits := map[int]int{}
	known := map[netip.Prefix]bool{}
	for _, p := range table {
		if known[p] || p != p.Masked() || p.Addr().IsMulticast() || p.Overlaps(subnet(0)) ||
			p.Overlaps(subnet(1)) {
			t.Errorf("bad route %s", p)
		}
		known[p] = true
		byBits[p.Bits()]++
	}
	if len(table) != routes || byBits[24] < routes/2 {
		t.Errorf("%d routes, by length %v", len(table), byBits)
	}
	all := destinations(table[:3])
	if len(all) != traffic.MaxDestinations {
		t.Errorf("%d destinations", len(all))
	}
	for _, a := range all[:1000] {
		if !table[0].Contains(a) && !table[1].Contains(a) && !table[2].Contains(a) {
			t.Fatalf("destination %s is in no route", a)
		}
	}
}
