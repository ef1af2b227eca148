package mapping_test

import (
	"testing"

	"github.com/pergola-net/pergola/model/mapping"
)

// lan is n nodes on one segment.
func lan(n int, demand mapping.Resources, rate uint64) mapping.Request {
	r := chain(n, demand, rate)
	segment := mapping.Link{Rate: rate}
	for _, node := range r.Nodes {
		segment.Nodes = append(segment.Nodes, node.Name)
	}
	r.Links = []mapping.Link{segment}
	return r
}

func BenchmarkGreedy(b *testing.B) {
	s := hosts(20, mapping.Host{Capacity: mapping.Resources{mapping.Cores: 64, mapping.Memory: 256 * gib}})
	demand := mapping.Resources{mapping.Cores: 0.1, mapping.Memory: gib / 8}
	for name, r := range map[string]mapping.Request{"chain-100": chain(100, demand, 1e6),
		"chain-1000": chain(1000, demand, 1e6), "lan-1000": lan(1000, demand, 1e6)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := mapping.Greedy(s, r, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
