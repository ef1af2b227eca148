package topology

import (
	"fmt"
	"slices"
	"testing"
)

// BenchmarkSetLSPs adds an LSP to a network that has many, of which half are signalled.
func BenchmarkSetLSPs(b *testing.B) {
	for _, n := range []int{1_000, 5_000} {
		b.Run(fmt.Sprintf("LSPs=%d", n), func(b *testing.B) {
			top, found := Parse("lab.yaml", []byte(fourRouters))
			if len(found) > 0 {
				b.Fatal(found)
			}
			s, found := Resolve(top, nil)
			if len(found) > 0 {
				b.Fatal(found)
			}
			var all []LSP
			byHand := map[string]bool{}
			for i := range n + 1 {
				l := LSP{Name: fmt.Sprint("l", i), Path: Strings{"pe1", "p1", "p2:eth2", "pe2"},
					To: Strings{fmt.Sprintf("10.%d.%d.0/24", i>>8, i&0xff)}}
				if i%2 == 0 {
					l.Bandwidth = "1Mbit"
				}
				all, byHand[l.Name] = append(all, l), true
			}
			prev := *s
			if found := SetLSPs(&prev, s, all[:n], byHand); len(found) > 0 {
				b.Fatal(found)
			}
			for b.Loop() {
				next := prev
				written := slices.Clone(all)
				if found := SetLSPs(&next, &prev, written, byHand); len(found) > 0 {
					b.Fatal(found)
				}
			}
		})
	}
}
