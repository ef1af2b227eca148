package graph

import (
	"math"
	"sort"
)

// point is a position in the picture; y grows downwards. The unit is a degree of latitude in geographic pictures and
// about the length of an edge in computed ones.
type point struct{ x, y float64 }

// arrange gives every vertex its position: by coordinates where at least half of the nodes have them.
func (p *picture) arrange() {
	placed := p.geography()
	if 2*len(placed) >= p.nodes() && len(placed) > 1 {
		p.geographic = true
		p.placeRest(placed)
	} else {
		p.compute()
	}
	p.separate()
}

func (p *picture) nodes() (n int) {
	for i := range p.vertices {
		if p.vertices[i].node != nil {
			n++
		}
	}
	return n
}

// neighbours lists the vertices next to each vertex.
func (p *picture) neighbours() [][]int {
	next := make([][]int, len(p.vertices))
	for _, e := range p.edges {
		next[e.a] = append(next[e.a], e.b)
		next[e.b] = append(next[e.b], e.a)
	}
	return next
}

// geography projects the nodes that have coordinates (equirectangular, true at the mean latitude) and returns which.
func (p *picture) geography() map[int]bool {
	placed := make(map[int]bool)
	var longitudes []float64
	var latitude float64
	for i, v := range p.vertices {
		if v.node != nil && v.node.Position != nil {
			placed[i] = true
			longitudes = append(longitudes, v.node.Position.Longitude)
			latitude += v.node.Position.Latitude
		}
	}
	if len(placed) == 0 {
		return placed
	}
	p.west = westEdge(longitudes)
	p.squeeze = math.Cos(latitude / float64(len(placed)) * math.Pi / 180)
	for i := range placed {
		at := p.vertices[i].node.Position
		p.vertices[i].at = point{math.Mod(at.Longitude-p.west+720, 360) * p.squeeze, -at.Latitude}
	}
	return placed
}

// westEdge is the longitude at which a map is cut: east of the widest gap, so that a network across the Pacific
// stays in one piece.
func westEdge(longitudes []float64) float64 {
	sorted := append([]float64(nil), longitudes...)
	sort.Float64s(sorted)
	west, widest := sorted[0], sorted[0]+360-sorted[len(sorted)-1]
	for i := 1; i < len(sorted); i++ {
		if gap := sorted[i] - sorted[i-1]; gap > widest {
			west, widest = sorted[i], gap
		}
	}
	return west
}

// placeRest puts vertices without coordinates at the centre of their placed neighbours, nearest first; what is not
// connected to anything placed goes below the map.
func (p *picture) placeRest(placed map[int]bool) {
	next := p.neighbours()
	low, high := p.bounds(func(i int) bool { return placed[i] })
	for {
		var found []int
		for i := range p.vertices {
			if placed[i] {
				continue
			}
			var sum point
			n := 0.0
			for _, j := range next[i] {
				if placed[j] {
					sum, n = point{sum.x + p.vertices[j].at.x, sum.y + p.vertices[j].at.y}, n+1
				}
			}
			if n > 0 {
				p.vertices[i].at = point{sum.x / n, sum.y / n}
				found = append(found, i)
			}
		}
		if len(found) == 0 {
			break
		}
		for _, i := range found {
			placed[i] = true
		}
	}
	var lost []int
	for i := range p.vertices {
		if !placed[i] {
			lost = append(lost, i)
		}
	}
	step := math.Max(high.x-low.x, 1) / float64(len(lost)+1)
	for k, i := range lost {
		p.vertices[i].at = point{low.x + float64(k+1)*step, high.y + math.Max(high.y-low.y, 1)/8}
	}
}

// compute lays out each component by itself and packs them in rows, the largest first.
func (p *picture) compute() {
	next := p.neighbours()
	parts := components(next)
	var area float64
	sizes := make([]point, len(parts))
	for k, part := range parts {
		p.stress(part, next)
		p.turn(part)
		low, high := p.bounds(contains(part))
		sizes[k] = point{high.x - low.x + 1, high.y - low.y + 1}
		area += sizes[k].x * sizes[k].y
		for _, i := range part {
			p.vertices[i].at.x -= low.x
			p.vertices[i].at.y -= low.y
		}
	}
	width := math.Sqrt(2 * area)
	var pen point
	tall := 0.0
	for k, part := range parts {
		if pen.x > 0 && pen.x+sizes[k].x > width {
			pen, tall = point{0, pen.y + tall}, 0
		}
		for _, i := range part {
			p.vertices[i].at.x += pen.x
			p.vertices[i].at.y += pen.y
		}
		pen.x += sizes[k].x
		tall = math.Max(tall, sizes[k].y)
	}
}

func contains(part []int) func(int) bool {
	in := make(map[int]bool, len(part))
	for _, i := range part {
		in[i] = true
	}
	return func(i int) bool { return in[i] }
}

// components lists the connected parts, the largest first.
func components(next [][]int) [][]int {
	seen := make([]bool, len(next))
	var parts [][]int
	for i := range next {
		if seen[i] {
			continue
		}
		seen[i] = true
		part := []int{i}
		for k := 0; k < len(part); k++ {
			for _, j := range next[part[k]] {
				if !seen[j] {
					seen[j] = true
					part = append(part, j)
				}
			}
		}
		parts = append(parts, part)
	}
	sort.SliceStable(parts, func(a, b int) bool { return len(parts[a]) > len(parts[b]) })
	return parts
}

// turn rotates a component so that its edges run along the axes as far as they can, the long side is horizontal and
// the first vertex is at the upper left.
func (p *picture) turn(part []int) {
	in := contains(part)
	var sin, cos float64
	for _, e := range p.edges {
		if in(e.a) {
			a, b := p.vertices[e.a].at, p.vertices[e.b].at
			s, c := math.Sincos(4 * math.Atan2(b.y-a.y, b.x-a.x))
			sin, cos = sin+s, cos+c
		}
	}
	p.rotate(part, -math.Atan2(sin, cos)/4)
	low, high := p.bounds(in)
	if high.y-low.y > high.x-low.x {
		p.rotate(part, math.Pi/2)
		low, high = p.bounds(in)
	}
	first := p.vertices[part[0]].at
	for _, i := range part {
		at := &p.vertices[i].at
		if 2*first.x > low.x+high.x {
			at.x = -at.x
		}
		if 2*first.y > low.y+high.y {
			at.y = -at.y
		}
	}
}

func (p *picture) rotate(part []int, angle float64) {
	sin, cos := math.Sincos(angle)
	for _, i := range part {
		at := &p.vertices[i].at
		*at = point{cos*at.x - sin*at.y, sin*at.x + cos*at.y}
	}
}

// separate moves vertices that have the same position apart, by a few hundredths of the picture.
func (p *picture) separate() {
	low, high := p.bounds(func(int) bool { return true })
	extent := math.Max(high.x-low.x, high.y-low.y)
	gap := extent / math.Max(30, 3*math.Sqrt(float64(len(p.vertices))))
	if !p.geographic {
		gap = math.Min(extent/(1.8*math.Sqrt(float64(len(p.vertices)))), 0.5)
	}
	if gap <= 0 {
		gap = 1
	}
	order := make([]int, len(p.vertices))
	for i := range order {
		order[i] = i
	}
	for range 20 {
		sort.SliceStable(order, func(a, b int) bool {
			return p.vertices[order[a]].at.x < p.vertices[order[b]].at.x
		})
		moved := false
		for k, i := range order {
			for _, j := range order[k+1:] {
				if p.vertices[j].at.x-p.vertices[i].at.x > gap {
					break
				}
				moved = p.push(i, j, gap) || moved
			}
		}
		if !moved {
			return
		}
	}
}

// push moves two vertices apart until their distance is gap. From equal positions, the direction depends on their
// indices, so that many vertices of one position form a disc.
func (p *picture) push(i, j int, gap float64) bool {
	a, b := &p.vertices[i].at, &p.vertices[j].at
	dx, dy := b.x-a.x, b.y-a.y
	length := math.Hypot(dx, dy)
	if length >= gap*0.99 {
		return false
	}
	if length < gap/1000 {
		const golden = 2.39996322972865332
		sin, cos := math.Sincos(golden * float64(i+j))
		dx, dy = cos, sin
		a.x, a.y, b.x, b.y = a.x-dx*gap/2, a.y-dy*gap/2, b.x+dx*gap/2, b.y+dy*gap/2
		return true
	}
	move := (gap - length) / 2 / length
	a.x, a.y = a.x-dx*move, a.y-dy*move
	b.x, b.y = b.x+dx*move, b.y+dy*move
	return true
}

// bounds is the box around the chosen vertices.
func (p *picture) bounds(in func(int) bool) (low, high point) {
	first := true
	for i := range p.vertices {
		if !in(i) {
			continue
		}
		at := p.vertices[i].at
		if first {
			low, high, first = at, at, false
		}
		low = point{math.Min(low.x, at.x), math.Min(low.y, at.y)}
		high = point{math.Max(high.x, at.x), math.Max(high.y, at.y)}
	}
	return low, high
}
