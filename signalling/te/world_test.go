package te_test

import (
	"fmt"
	"math"
	"net/netip"
	"slices"

	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/signalling/te"
)

// world is a network as a test makes it, apart from how the database has it: the oracle reads this.
type world struct {
	routers int
	cables  []cable
	lans    [][]port
}

// cable joins two routers. A side that is silent does not advertise it.
type cable [2]port

type port struct {
	router int
	addr   netip.Addr
	silent bool
	link   te.Link // metrics, bandwidths, groups
}

func routerID(i int) string { return fmt.Sprintf("192.0.%d.%d", 2+i/250, i%250+1) }

func routerAddr(i int) netip.Addr { return netip.MustParseAddr(routerID(i)) }

func (w world) database() *te.Database {
	var nodes []te.Node
	for i := range w.routers {
		nodes = append(nodes, te.Node{ID: routerID(i), Address: routerAddr(i)})
	}
	var links []te.Link
	for _, c := range w.cables {
		for side, p := range c {
			if far := c[1-side]; !p.silent {
				l := p.link
				l.LinkID = te.LinkID{From: routerID(p.router), To: routerID(far.router), Local: p.addr,
					Remote: far.addr}
				links = append(links, l)
			}
		}
	}
	for i, lan := range w.lans {
		for _, p := range lan {
			l := p.link
			l.LinkID = te.LinkID{From: routerID(p.router), To: fmt.Sprintf("lan%d", i), LAN: true,
				Local: p.addr}
			links = append(links, l)
		}
	}
	return te.New(nodes, links)
}

// way is one direction of a link to one router, as the oracle sees it.
type way struct {
	out, in port
}

func (w world) ways() []way {
	var all []way
	for _, c := range w.cables {
		if !c[0].silent && !c[1].silent {
			all = append(all, way{c[0], c[1]}, way{c[1], c[0]})
		}
	}
	for _, lan := range w.lans {
		for _, a := range lan {
			for _, b := range lan {
				if a.router != b.router {
					all = append(all, way{a, b})
				}
			}
		}
	}
	return all
}

// metric is what the metrics mean: one that is missing is the other one.
func metric(l te.Link, igp bool) uint64 {
	m := []uint32{l.TEMetric, l.Metric}
	if igp {
		slices.Reverse(m)
	}
	for _, v := range m {
		if v > 0 {
			return uint64(v)
		}
	}
	return 1
}

// unreserved is what a way has at the priority of a request, with what the LSP has there already.
func unreserved(w way, q te.Request) uint64 {
	free := w.out.link.Unreserved[q.Setup]
	if q.Replaces != nil && q.Replaces.Holding <= q.Setup {
		for _, h := range q.Replaces.Path.Hops {
			if h.Local == w.out.addr {
				free += q.Replaces.Bandwidth
			}
		}
	}
	return free
}

// allowed tells whether a request allows a way.
func allowed(w way, q te.Request) bool {
	l, a := w.out.link, q.Affinities
	ok := unreserved(w, q) >= q.Bandwidth && l.Groups&a.ExcludeAny == 0 && l.Groups&a.IncludeAll == a.IncludeAll
	if a.IncludeAny != 0 {
		ok = ok && l.Groups&a.IncludeAny != 0
	}
	for _, addr := range q.Avoid.Links {
		ok = ok && addr != w.out.addr && addr != w.in.addr
	}
	for _, n := range q.Avoid.Nodes {
		ok = ok && n != routerAddr(w.in.router)
	}
	for _, g := range q.Avoid.SRLGs {
		ok = ok && !slices.Contains(l.SRLGs, g)
	}
	return ok
}

// score is what paths are compared by.
type score struct {
	cost       uint64
	hops       int
	unreserved uint64
}

func (s score) better(o score) bool {
	if s.cost != o.cost {
		return s.cost < o.cost
	}
	if s.hops != o.hops {
		return s.hops < o.hops
	}
	return s.unreserved > o.unreserved
}

// every calls f with each path without loops that a request allows.
func (w world) every(q te.Request, f func([]way, score)) {
	ways := w.ways()
	seen := make([]bool, w.routers)
	var path []way
	var walk func(at int, s score)
	walk = func(at int, s score) {
		if routerAddr(at) == q.To {
			f(path, s)
			return
		}
		if q.Hops > 0 && len(path) == q.Hops {
			return
		}
		seen[at] = true
		for _, next := range ways {
			if next.out.router != at || seen[next.in.router] || !allowed(next, q) {
				continue
			}
			path = append(path, next)
			walk(next.in.router, score{s.cost + metric(next.out.link, q.IGP), s.hops + 1,
				min(s.unreserved, unreserved(next, q))})
			path = path[:len(path)-1]
		}
		seen[at] = false
	}
	for i := range w.routers {
		if routerAddr(i) == q.From {
			walk(i, score{unreserved: math.MaxUint64})
		}
	}
}

// draw makes a small network.
func draw(t *rapid.T) world {
	w := world{routers: rapid.IntRange(2, 6).Draw(t, "routers")}
	next := 0
	newPort := func(router int) port {
		next++
		l := te.Link{TEMetric: rapid.Uint32Range(0, 3).Draw(t, "TE metric"),
			Metric: rapid.Uint32Range(0, 3).Draw(t, "metric"),
			Groups: rapid.Uint32Range(0, 7).Draw(t, "groups")}
		for p := range l.Unreserved {
			l.Unreserved[p] = rapid.Uint64Range(0, 4).Draw(t, "unreserved")
		}
		if rapid.IntRange(0, 2).Draw(t, "SRLG") == 0 {
			l.SRLGs = []uint32{rapid.Uint32Range(1, 3).Draw(t, "SRLG")}
		}
		return port{router: router, link: l, addr: netip.AddrFrom4([4]byte{198, 51, 100, byte(next)})}
	}
	router := rapid.IntRange(0, w.routers-1)
	for range rapid.IntRange(0, 10).Draw(t, "cables") {
		a := router.Draw(t, "one end")
		b := (a + rapid.IntRange(1, w.routers-1).Draw(t, "other end")) % w.routers
		c := cable{newPort(a), newPort(b)}
		c[0].silent = rapid.IntRange(0, 9).Draw(t, "silent") == 0
		w.cables = append(w.cables, c)
	}
	for range rapid.IntRange(0, 2).Draw(t, "LANs") {
		var lan []port
		for _, r := range rapid.SliceOfNDistinct(router, 1, w.routers, rapid.ID).Draw(t, "members") {
			lan = append(lan, newPort(r))
		}
		w.lans = append(w.lans, lan)
	}
	return w
}

// drawRequest makes a request in a network, with few constraints, so that many have a path.
func (w world) drawRequest(t *rapid.T) te.Request {
	router := rapid.IntRange(0, w.routers-1)
	from := router.Draw(t, "from")
	to := (from + rapid.IntRange(1, w.routers-1).Draw(t, "to")) % w.routers
	q := te.Request{From: routerAddr(from), To: routerAddr(to),
		Setup: uint8(rapid.IntRange(0, 7).Draw(t, "set-up")), IGP: rapid.Bool().Draw(t, "IGP")}
	some := func(name string, f func()) {
		if rapid.IntRange(0, 3).Draw(t, name) == 0 {
			f()
		}
	}
	bits := rapid.Uint32Range(0, 7)
	some("with bandwidth", func() { q.Bandwidth = rapid.Uint64Range(0, 3).Draw(t, "bandwidth") })
	some("with exclude", func() { q.Affinities.ExcludeAny = bits.Draw(t, "exclude") })
	some("with any", func() { q.Affinities.IncludeAny = bits.Draw(t, "any") })
	some("with all", func() { q.Affinities.IncludeAll = bits.Draw(t, "all") })
	some("with hops", func() { q.Hops = rapid.IntRange(1, 4).Draw(t, "hops") })
	some("with node", func() { q.Avoid.Nodes = []netip.Addr{routerAddr(router.Draw(t, "node"))} })
	some("with SRLG", func() { q.Avoid.SRLGs = []uint32{rapid.Uint32Range(1, 3).Draw(t, "SRLG")} })
	if ways := w.ways(); len(ways) > 0 {
		some("with link", func() {
			q.Avoid.Links = []netip.Addr{rapid.SampledFrom(ways).Draw(t, "link").in.addr}
		})
	}
	return q
}
