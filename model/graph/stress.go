package graph

import (
	"math"
	"math/rand/v2"
)

// The layout makes distances in the picture like distances in the graph, by stochastic gradient descent on the
// stress of vertex pairs (J. X. Zheng, S. Pawar, D. F. M. Goodman, "Graph Drawing by Stochastic Gradient Descent",
// IEEE TVCG 25(9), 2019). It is used in place of gonum's spring layout because that starts from random positions,
// in which long chains and grids stay tangled, and because the hub of a large star oscillates.
const (
	rounds   = 30
	maxPairs = 1 << 20 // above it, each vertex is compared with a sample of the others
)

// pair is two vertices and their distance in the graph.
type pair struct {
	i, j     int
	distance float64
}

func (p *picture) stress(part []int, next [][]int) {
	// A fixed seed: the same network is the same picture.
	random := rand.New(rand.NewPCG(uint64(len(part)), 1))
	for _, i := range part {
		scale := math.Sqrt(float64(len(part)))
		p.vertices[i].at = point{random.Float64() * scale, random.Float64() * scale}
	}
	pairs, longest := distances(part, next, random)
	if len(pairs) == 0 {
		return
	}
	// Step sizes fall exponentially from one that settles the longest pair to one that moves an edge by a tenth.
	decay := math.Log(longest*longest*10) / float64(rounds-1)
	for round := range rounds {
		step := longest * longest * math.Exp(-decay*float64(round))
		random.Shuffle(len(pairs), func(a, b int) { pairs[a], pairs[b] = pairs[b], pairs[a] })
		for _, q := range pairs {
			a, b := &p.vertices[q.i].at, &p.vertices[q.j].at
			dx, dy := a.x-b.x, a.y-b.y
			length := math.Hypot(dx, dy)
			if length < 1e-9 {
				dx, length = 1e-9, 1e-9
			}
			move := math.Min(step/(q.distance*q.distance), 1) * (length - q.distance) / 2 / length
			a.x, a.y = a.x-move*dx, a.y-move*dy
			b.x, b.y = b.x+move*dx, b.y+move*dy
		}
	}
}

// distances gives the pairs of a component and the longest distance among them.
func distances(part []int, next [][]int, random *rand.Rand) (pairs []pair, longest float64) {
	share := float64(2*maxPairs) / float64(len(part)) / float64(len(part))
	hops := make([]int, len(next))
	for _, from := range part {
		for _, i := range part {
			hops[i] = -1
		}
		hops[from] = 0
		queue := []int{from}
		for k := 0; k < len(queue); k++ {
			i := queue[k]
			for _, j := range next[i] {
				if hops[j] < 0 {
					hops[j] = hops[i] + 1
					queue = append(queue, j)
				}
			}
			if i > from && (hops[i] == 1 || share >= 1 || random.Float64() < share) {
				pairs = append(pairs, pair{from, i, float64(hops[i])})
				longest = math.Max(longest, float64(hops[i]))
			}
		}
	}
	return pairs, longest
}
