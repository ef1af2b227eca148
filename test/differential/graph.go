package differential

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/pergola-net/pergola/lab/vnet"
	"github.com/pergola-net/pergola/model/slice"
)

// ecmp says how a network's routes use several next hops. The fast path and the kernel choose among them by different
// hashes, and both are right; so a network is made such that receivers cannot see the choice.
type ecmp int

const (
	single   ecmp = iota // one next hop
	parallel             // next hops over several links to the same router
	// all shortest paths, all links alike; the sender of an ICMP error then depends on the path
	spread
)

// graph is a network before it has routes.
type graph struct {
	rng   *rand.Rand
	ecmp  ecmp
	odd   odd
	nodes []*node
	links []*link
}

// odd is what not all networks have, but any may.
type odd struct {
	objects bool // routes name next hop objects
	via6    bool // IPv4 routes have IPv6 gateways (RFC 8950)
	shaped  bool // links have queues, which end a walk
	nics    bool // frames of hosts come in through line cards, by XDP
	special bool // routes are there that the mirror leaves to kernels
}

func randomOdd(rng *rand.Rand) odd {
	one := func() bool { return rng.IntN(4) == 0 }
	return odd{objects: one(), via6: one(), shaped: one(), nics: one(), special: one()}
}

type node struct {
	number int
	name   string
	router bool
	ends   []*end
	routes []vnet.Route
	named  objects
	odd    []string // what oddRouteEvent added
}

type link struct {
	number int
	lan    bool
	v4, v6 netip.Prefix // invalid: not on this link
	ends   []*end
}

// end is a node's interface.
type end struct {
	node  *node
	link  *link
	name  string
	place int // among the link's ends
	mtu   int
	cost  int // of sending by it
	shape slice.Shape
	nic   bool
}

func (e *end) address(family int) netip.Addr {
	p := e.link.prefix(family)
	if p.Bits() == p.Addr().BitLen()-1 { // two addresses, both usable (RFC 3021, RFC 6164)
		return nth(p, e.place)
	}
	return nth(p, e.place+1)
}

func (l *link) prefix(family int) netip.Prefix {
	if family == 4 {
		return l.v4
	}
	return l.v6
}

func (n *node) loopback(family int) netip.Prefix {
	if family == 4 {
		return loopback4(n.number)
	}
	return loopback6(n.number)
}

// randomGraph draws routers, what joins them, and hosts.
func randomGraph(rng *rand.Rand, routers int) *graph {
	g := &graph{rng: rng, ecmp: ecmp(rng.IntN(3)), odd: randomOdd(rng)}
	for range routers {
		g.node(true)
	}
	g.joinRouters()
	for range 2 + rng.IntN(min(6, routers+1)) {
		host := g.node(false)
		at := g.nodes[rng.IntN(routers)]
		if lans := g.lans(); len(lans) > 0 && rng.IntN(3) == 0 {
			g.plug(host, lans[rng.IntN(len(lans))])
		} else {
			g.join(host, at)
		}
	}
	for _, l := range g.links {
		g.queues(l)
		g.number(l)
	}
	g.lineCards()
	return g
}

func (g *graph) node(router bool) *node {
	n := &node{number: len(g.nodes) + 1, router: router}
	n.name = fmt.Sprintf("r%d", n.number)
	if !router {
		n.name = fmt.Sprintf("h%d", n.number)
	}
	g.nodes = append(g.nodes, n)
	return n
}

func (g *graph) join(nodes ...*node) *link {
	l := &link{number: len(g.links) + 1, lan: len(nodes) > 2}
	g.links = append(g.links, l)
	for _, n := range nodes {
		g.plug(n, l)
	}
	return l
}

func (g *graph) plug(n *node, l *link) {
	e := &end{node: n, link: l, name: fmt.Sprintf("eth%d", len(n.ends)), place: len(l.ends), cost: 1}
	if g.ecmp != spread {
		e.cost += g.rng.IntN(4)
	}
	n.ends, l.ends = append(n.ends, e), append(l.ends, e)
}

func (g *graph) lans() (all []*link) {
	for _, l := range g.links {
		if l.lan {
			all = append(all, l)
		}
	}
	return all
}

// joinRouters draws a connected shape: a tree, with more links in some networks.
func (g *graph) joinRouters() {
	routers := g.nodes
	shape := g.rng.IntN(4)
	for i := 1; i < len(routers); i++ {
		at := g.rng.IntN(i)
		if shape == 0 { // a chain, or a ring
			at = i - 1
		}
		if n := i + 1; g.rng.IntN(6) == 0 && n < len(routers) {
			g.join(routers[at], routers[i], routers[n])
			continue
		}
		g.bundle(routers[at], routers[i])
	}
	more := 0
	switch {
	case len(routers) < 3:
	case shape == 0:
		g.bundle(routers[0], routers[len(routers)-1])
	case shape == 1:
		more = len(routers)
	case shape == 2:
		more = 1 + g.rng.IntN(3)
	}
	for range more {
		a, b := g.rng.IntN(len(routers)), g.rng.IntN(len(routers))
		if a != b {
			g.bundle(routers[a], routers[b])
		}
	}
}

// bundle joins two routers, in some networks by several links that are alike.
func (g *graph) bundle(a, b *node) {
	l := g.join(a, b)
	if g.ecmp != parallel || g.rng.IntN(2) == 0 {
		return
	}
	for range 1 + g.rng.IntN(2) {
		twin := g.join(a, b)
		for i := range l.ends {
			twin.ends[i].cost = l.ends[i].cost
		}
	}
}

// number gives a link its subnets and MTU.
func (g *graph) number(l *link) {
	l.v4, l.v6 = subnet4(l.number), subnet6(l.number)
	if len(l.ends) == 2 && g.rng.IntN(3) == 0 {
		l.v4, l.v6 = netip.PrefixFrom(l.v4.Addr(), 31), netip.PrefixFrom(l.v6.Addr(), 127)
	}
	mtu := 1500
	if g.ecmp == single && g.rng.IntN(4) == 0 {
		mtu = []int{9000, 1400, 1280, 600}[g.rng.IntN(4)]
	}
	for _, e := range l.ends {
		e.mtu = mtu
		if g.ecmp == single && l.direct() && g.rng.IntN(40) == 0 { // a mistake in the configuration
			e.mtu = 1300
		}
		if e.mtu < 1280 { // IPv6 does not work there
			l.v6 = netip.Prefix{}
		}
	}
}

// direct says that the ends may disagree about the MTU: frames that are too long for the receiver arrive. A veth
// drops them behind a queue or a LAN, unless the fast path goes on there and hands them over as it does on a direct
// link.
func (l *link) direct() bool {
	shaped := func(e *end) bool { return !e.shape.IsZero() }
	return !l.lan && !slices.ContainsFunc(l.ends, shaped)
}

// queues draws what has one: an end, both, or none. None is so slow that a frame would wait for longer than it takes
// to look.
func (g *graph) queues(l *link) {
	if !g.odd.shaped || g.rng.IntN(3) > 0 {
		return
	}
	for _, e := range l.ends {
		if g.rng.IntN(2) == 0 {
			e.shape = slice.Shape{Rate: 10e9, Queue: g.rng.IntN(2) * 1000}
		}
	}
}

// lineCards draws hosts that are outside, behind a NIC. What ends at a queue or a LAN is none.
func (g *graph) lineCards() {
	for _, n := range g.nodes {
		if !g.odd.nics || n.router || n.ends[0].link.lan || !n.ends[0].shape.IsZero() ||
			!n.ends[0].peer().shape.IsZero() {
			continue
		}
		n.ends[0].nic = g.rng.IntN(3) > 0
	}
}

// plan is the graph with its routes, as a network to make.
func (g *graph) plan(neighbours func(*end, *end) []vnet.Neighbour) vnet.Plan {
	var p vnet.Plan
	for _, n := range g.nodes {
		np := vnet.NodePlan{Name: n.name, Router: n.router, Sysctls: g.sysctls(), Objects: n.named.all,
			Routes: n.routes}
		if n.router {
			np.Loopbacks = []netip.Prefix{n.loopback(4), n.loopback(6)}
		}
		for _, e := range n.ends {
			for _, other := range e.link.ends {
				if other != e {
					np.Neighbours = append(np.Neighbours, neighbours(e, other)...)
				}
			}
		}
		p.Nodes = append(p.Nodes, np)
	}
	for _, l := range g.links {
		lp := vnet.LinkPlan{LAN: l.lan}
		for _, e := range l.ends {
			ve := vnet.End{Node: e.node.name, Interface: e.name, MTU: e.mtu, MAC: mac(l.number, e.place),
				Shape: e.shape, NIC: e.nic}
			for _, family := range []int{4, 6} {
				if s := l.prefix(family); s.IsValid() {
					ve.Addresses = append(ve.Addresses,
						netip.PrefixFrom(e.address(family), s.Bits()))
				}
			}
			lp.Ends = append(lp.Ends, ve)
		}
		p.Links = append(p.Links, lp)
	}
	return p
}

// sysctls make the kernels' answers depend on frames alone: no answer is held back because there were many before it,
// and nothing is given up after a time. A limit of no time per destination is not enough: kernels limit the answers
// of a mask to a thousand a second for all destinations together (icmp_msgs_per_sec), and IPv6's mask of errors is
// full by default. Type 255 is no error. Duplicate addresses are not looked for: that takes as long as a question for a
// neighbour (askPatiently).
func (g *graph) sysctls() map[string]string {
	s := map[string]string{
		"net.ipv4.icmp_ratelimit": "0", "net.ipv4.icmp_ratemask": "0", "net.ipv6.icmp.ratelimit": "0",
		"net.ipv6.icmp.ratemask": "255",
		"net.ipv4.ipfrag_time":   "3600", "net.ipv6.ip6frag_time": "3600",
		"net.ipv6.auto_flowlabels":       "0",
		"net.ipv4.tcp_invalid_ratelimit": "0",
	}
	for _, family := range []string{"4", "6"} {
		s["net.ipv"+family+".conf.default.accept_redirects"] = "0"
	}
	s["net.ipv6.conf.default.accept_dad"] = "0"
	s["net.ipv4.conf.all.accept_redirects"] = "0"
	if g.ecmp != single {
		// A kernel that has sent a redirect to a host holds back the next second's errors to it
		// (ip_rt_send_redirect, ip_error), and with several ways it is the network namespace's own hash that
		// says which frames go back to where they came from.
		s["net.ipv4.conf.all.send_redirects"], s["net.ipv4.conf.default.send_redirects"] = "0", "0"
	}
	return s
}
