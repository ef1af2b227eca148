package bench_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/pergola-net/pergola/mapping"
)

// sites is hosts at sites that a core joins: each host has 1 Gbit/s to its site's router, each site 10 Gbit/s and some
// milliseconds to the core.
func sites(hosts, sites int) mapping.Substrate {
	random := rand.New(rand.NewPCG(1, 0))
	s := mapping.Substrate{Routers: []string{"core"}}
	for i := range sites {
		name := fmt.Sprintf("site%d", i+1)
		s.Routers = append(s.Routers, name)
		s.Trunks = append(s.Trunks, mapping.Trunk{A: name, B: "core", Bandwidth: 10e9,
			Delay: 0.001 * float64(1+random.IntN(100))})
	}
	for i := range hosts {
		h := mapping.Host{Name: fmt.Sprintf("h%d", i+1), Site: fmt.Sprintf("site%d", i%sites+1),
			Capacity: map[string]float64{"cores": float64(1 + random.IntN(8)), "memory": 8 << 30}}
		h.Used = map[string]float64{"cores": h.Capacity["cores"] * random.Float64()}
		s.Hosts = append(s.Hosts, h)
		s.Trunks = append(s.Trunks, mapping.Trunk{A: h.Name, B: h.Site, Bandwidth: 1e9,
			Used: 1e9 * random.Float64(), Delay: 1e-4})
	}
	return s
}

// large is a connected request: a tree, and half as many links again.
func large(nodes int) mapping.Request {
	random := rand.New(rand.NewPCG(2, 0))
	r := mapping.Request{PerHost: 1, PerSite: 2}
	name := func(i int) string { return fmt.Sprintf("n%d", i+1) }
	for i := range nodes {
		r.Nodes = append(r.Nodes, mapping.Node{Name: name(i),
			Demand: map[string]float64{"cores": 0.5, "memory": 1 << 30}})
		if i > 0 {
			r.Links = append(r.Links, mapping.Link{A: name(random.IntN(i)), B: name(i), Bandwidth: 20e6})
		}
		if i > 1 && i%2 == 0 {
			r.Links = append(r.Links, mapping.Link{A: name(random.IntN(i)), B: name(i), Bandwidth: 10e6,
				Delay: 0.15})
		}
	}
	return r
}

// BenchmarkLarge maps a request of 100 nodes, of which at most two may be at one site, onto as many hosts as PlanetLab
// had at as many sites (Lischka and Karl, "RiaS", VISA 2010), and onto 10,000.
func BenchmarkLarge(b *testing.B) {
	for _, size := range [][2]int{{1085, 498}, {10_000, 4590}} {
		b.Run(fmt.Sprintf("%d-hosts", size[0]), func(b *testing.B) {
			s, r := sites(size[0], size[1]), large(100)
			for b.Loop() {
				if _, err := search(s, r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
