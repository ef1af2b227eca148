// Package bench draws substrates and requests from a seed, and plays arrivals and departures of requests against a way
// of mapping them, to compare ways of mapping.
//
// The settings are those of Virne (Wang et al., "Virne: A Comprehensive Benchmark for RL-based Network Resource
// Allocation in NFV", arXiv:2507.19234), read from its article and its configuration. Random numbers are drawn in
// another order and by another generator, so a scenario is one of the same distribution, and not the same one.
package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pergola-net/pergola/mapping"
)

// Setting says how a scenario is drawn. Amounts are whole numbers, equally likely from low to high.
type Setting struct {
	Hosts    int
	Trunks   [][2]int // the hosts that each joins, by number from 0; nil: they are drawn as Waxman's graphs are
	Requests int
	// Nodes are those of a request, of which two are joined with probability Joined; all are connected.
	Nodes  [2]int
	Joined float64
	// Room and Demand are the cores of hosts and nodes, Bandwidth is that of trunks, and Link that of links.
	Room, Demand, Bandwidth, Link [2]int
	// Rate is how many requests arrive in a unit of time. The units between two are drawn from a Poisson
	// distribution, as Virne's program does; its article says that the arrivals are a Poisson process.
	Rate float64
	// Lifetime is the mean, in units of time, of an exponential distribution.
	Lifetime float64
}

// WX100 is a graph of 100 hosts and about 500 trunks by Waxman. The article has results for a rate of 0.16 requests by
// its text, and 0.14 by its table.
func WX100(rate float64) Setting {
	return Setting{
		Hosts: 100, Requests: 1000, Nodes: [2]int{2, 10}, Joined: 0.5,
		Room: [2]int{50, 100}, Demand: [2]int{0, 20}, Bandwidth: [2]int{50, 100}, Link: [2]int{0, 50},
		Rate: rate, Lifetime: 500,
	}
}

// Scenario is a substrate, and what is to be mapped onto it.
type Scenario struct {
	Substrate mapping.Substrate
	Arrivals  []Arrival // in the order of time
}

// Arrival is a request that comes at a time and, if it is accepted, leaves after another.
type Arrival struct {
	Request      mapping.Request
	At, Lifetime float64
}

// Cores is the capacity that hosts and nodes have.
const Cores = "cores"

// Draw makes a scenario; equal seeds give equal ones.
func (s Setting) Draw(seed uint64) Scenario {
	random := rand.New(rand.NewPCG(seed, 1))
	sc := Scenario{Substrate: s.drawSubstrate(random)}
	at := 0.0
	for range s.Requests {
		at += poisson(random, 1/s.Rate)
		sc.Arrivals = append(sc.Arrivals, Arrival{
			Request: s.drawRequest(random), At: at, Lifetime: s.Lifetime * random.ExpFloat64(),
		})
	}
	return sc
}

func (s Setting) drawSubstrate(random *rand.Rand) (sub mapping.Substrate) {
	for h := range s.Hosts {
		sub.Hosts = append(sub.Hosts, mapping.Host{Name: fmt.Sprintf("h%d", h+1),
			Capacity: map[string]float64{Cores: whole(random, s.Room)}})
	}
	trunks := s.Trunks
	if trunks == nil {
		trunks = waxman(random, s.Hosts)
	}
	for _, t := range trunks {
		sub.Trunks = append(sub.Trunks, mapping.Trunk{A: sub.Hosts[t[0]].Name, B: sub.Hosts[t[1]].Name,
			Bandwidth: whole(random, s.Bandwidth)})
	}
	return sub
}

// waxman draws points in a square and joins two by a probability that falls with their distance (Waxman, "Routing of
// Multipoint Connections", 1988), until all are connected.
func waxman(random *rand.Rand, n int) [][2]int {
	const most, reach = 0.5, 0.2 // Virne's alpha and beta
	for {
		points := make([][2]float64, n)
		for i := range points {
			points[i] = [2]float64{random.Float64(), random.Float64()}
		}
		distance := func(a, b int) float64 {
			return math.Hypot(points[a][0]-points[b][0], points[a][1]-points[b][1])
		}
		longest := 0.0
		for a := range points {
			for b := range a {
				longest = max(longest, distance(a, b))
			}
		}
		g, joined := newGraph(n), [][2]int{}
		for a := range points {
			for b := range a {
				if random.Float64() < most*math.Exp(-distance(a, b)/(reach*longest)) {
					g.join(a, b)
					joined = append(joined, [2]int{b, a})
				}
			}
		}
		if g.connected() {
			return joined
		}
	}
}

// drawRequest draws a random graph (Erdős and Rényi), until all its nodes are connected.
func (s Setting) drawRequest(random *rand.Rand) mapping.Request {
	n := int(whole(random, s.Nodes))
	r := mapping.Request{PerHost: 1}
	for i := range n {
		r.Nodes = append(r.Nodes, mapping.Node{Name: fmt.Sprintf("n%d", i+1),
			Demand: map[string]float64{Cores: whole(random, s.Demand)}})
	}
	for {
		g := newGraph(n)
		r.Links = nil
		for a := range n {
			for b := range a {
				if random.Float64() < s.Joined {
					g.join(a, b)
					r.Links = append(r.Links, mapping.Link{A: r.Nodes[b].Name, B: r.Nodes[a].Name,
						Bandwidth: whole(random, s.Link)})
				}
			}
		}
		if g.connected() {
			return r
		}
	}
}

func whole(random *rand.Rand, from [2]int) float64 {
	return float64(from[0] + random.IntN(from[1]-from[0]+1))
}

// poisson draws from a Poisson distribution, by the product of uniform numbers (Knuth).
func poisson(random *rand.Rand, mean float64) float64 {
	n, product := 0, random.Float64()
	for limit := math.Exp(-mean); product > limit; n++ {
		product *= random.Float64()
	}
	return float64(n)
}

// graph is which of some points are connected: by point, one of its group.
type graph []int

func newGraph(n int) graph {
	g := make(graph, n)
	for i := range g {
		g[i] = i
	}
	return g
}

func (g graph) group(a int) int {
	for g[a] != a {
		a = g[a]
	}
	return a
}

func (g graph) join(a, b int) { g[g.group(a)] = g.group(b) }

func (g graph) connected() bool {
	return !slices.ContainsFunc(g, func(a int) bool { return g.group(a) != g.group(0) })
}
