package te_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"

	"gonum.org/v1/gonum/graph/path"
	"gonum.org/v1/gonum/graph/simple"

	"github.com/pergola-net/pergola/signalling/te"
)

// large makes a connected network of 1,000 routers and 4,000 links, most with 1 Gbit/s unreserved.
func large(seed uint64) world {
	r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test is to be repeatable
	w := world{routers: 1000}
	next := uint32(10 << 24)
	end := func(router int) port {
		next++
		l := te.Link{TEMetric: 1 + r.Uint32N(100), Metric: 1 + r.Uint32N(100)}
		for p := range l.Unreserved {
			l.Unreserved[p] = 125e6 - uint64(r.IntN(3))*50e6
		}
		return port{router: router, link: l,
			addr: netip.AddrFrom4([4]byte{byte(next >> 24), byte(next >> 16), byte(next >> 8), byte(next)})}
	}
	for i := range 4000 {
		a := i % w.routers
		b := (a + 1) % w.routers
		if i >= w.routers {
			b = (a + 1 + r.IntN(w.routers-1)) % w.routers
		}
		w.cables = append(w.cables, cable{end(a), end(b)})
	}
	return w
}

// TestPathCostsWhatGonumSays compares with gonum's Dijkstra, on the graph of the links that have the bandwidth.
func TestPathCostsWhatGonumSays(t *testing.T) {
	w := large(1)
	d := w.database()
	q := te.Request{Bandwidth: 75e6, Setup: 3}
	g := simple.NewWeightedDirectedGraph(0, math.Inf(1))
	for i := range w.routers {
		g.AddNode(simple.Node(i))
	}
	for _, x := range w.ways() {
		e := simple.WeightedEdge{F: simple.Node(x.out.router), T: simple.Node(x.in.router),
			W: float64(metric(x.out.link, false))}
		if old := g.WeightedEdge(e.F.ID(), e.T.ID()); x.out.link.Unreserved[q.Setup] >= q.Bandwidth &&
			(old == nil || old.Weight() > e.W) {
			g.SetWeightedEdge(e)
		}
	}
	none := 0
	for from := 0; from < w.routers; from += 97 {
		tree := path.DijkstraFrom(simple.Node(from), g)
		for to := 1; to < w.routers; to += 41 {
			if from == to {
				continue
			}
			q.From, q.To = routerAddr(from), routerAddr(to)
			p, err := d.Path(q)
			want := tree.WeightTo(int64(to))
			if err != nil {
				none++
			}
			if (err != nil) != math.IsInf(want, 1) || err == nil && float64(p.Cost) != want {
				t.Fatalf("%d to %d: %+v, %v, want %v", from, to, p, err, want)
			}
		}
	}
	if none == 11*25 {
		t.Fatal("no path at all")
	}
}

func BenchmarkPath(b *testing.B) {
	w := large(1)
	d := w.database()
	between := func(i int) te.Request {
		return te.Request{From: routerAddr(i % w.routers), To: routerAddr((i*7 + 1) % w.routers)}
	}
	for _, hops := range []int{0, 12} {
		b.Run(fmt.Sprintf("hops=%d", hops), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				q := between(i)
				q.Bandwidth, q.Hops = 75e6, hops
				_, _ = d.Path(q)
			}
		})
	}
	b.Run("k=8", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			_, _ = d.Paths(between(i), 8)
		}
	})
	b.Run("database", func(b *testing.B) {
		nodes, links := d.Nodes(), d.Links()
		for b.Loop() {
			te.New(nodes, links)
		}
	})
	b.Run("none", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			q := between(i)
			q.Bandwidth = 250e6
			_, _ = d.Path(q)
		}
	})
}
