package resolve

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/address"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
	"github.com/pergola-net/pergola/model/topology/file"
)

// Default timers, in seconds. They are shorter than the protocols' own defaults, so that networks converge quickly.
const (
	defaultHello = 1
	defaultDead  = 10
)

// interior are the protocols that carry routes inside an autonomous system.
var interior = []slice.Protocol{slice.OSPF, slice.ISIS, slice.RIP}

// route makes the configuration of every router's daemon.
func (r *resolver) route() {
	for _, n := range r.nodes {
		if n.kind == slice.Router {
			n.protocols = r.protocols(n)
		}
	}
	systems := r.systems()
	r.defaultProtocols(systems)
	for _, n := range r.nodes {
		r.routes(n)
		if n.kind == slice.Router {
			r.makeRouting(n)
		}
	}
	for _, s := range r.segments {
		r.passive(s)
		r.areas(s)
		r.agreeTimers(s)
	}
	r.checkRouterIDs()
	r.bgp(systems)
	r.gateways()
}

// protocols are those that the file names for a router. A router without any speaks OSPF; one with an AS number gets
// its protocols later (defaultProtocols).
func (r *resolver) protocols(n *node) []slice.Protocol {
	var found []slice.Protocol
	for i, word := range n.all.Routing {
		p := slice.Protocol(word)
		if word == "none" {
			if len(n.all.Routing) > 1 {
				r.Add(n.at.At("routing").Item(i), "write none alone",
					"none stands beside other protocols")
			}
			return nil
		}
		if !slices.Contains(found, p) {
			found = append(found, p)
		}
	}
	if len(n.all.Routing) == 0 && n.all.AS == 0 && len(n.all.Config) == 0 {
		return []slice.Protocol{slice.OSPF}
	}
	return found
}

func (n *node) speaks(p slice.Protocol) bool { return slices.Contains(n.protocols, p) }

func (n *node) speaksInterior() bool { return slices.ContainsFunc(interior, n.speaks) }

// ownConfig reports whether the user's files configure the daemon. Its protocols are not known then.
func (n *node) ownConfig() bool { return len(n.all.Config) > 0 }

// systems joins the routers that are connected inside their autonomous system, by their index in r.nodes: through
// segments that they share, and through routers without an AS number that speak an interior protocol.
func (r *resolver) systems() disjoint {
	index := make(map[*node]int, len(r.nodes))
	for i, n := range r.nodes {
		index[n] = i
	}
	joined := newDisjoint(len(r.nodes))
	for _, s := range r.segments {
		first := map[uint32]*node{}
		for _, p := range s.routers {
			n := p.node
			if n.all.AS == 0 && !n.speaksInterior() && !n.ownConfig() {
				continue
			}
			if first[n.all.AS] == nil {
				first[n.all.AS] = n
			}
			joined.join(index[n], index[first[n.all.AS]])
		}
		if core := first[0]; core != nil {
			for _, n := range first {
				joined.join(index[n], index[core])
			}
		}
	}
	return joined
}

// defaultProtocols decides for routers that have an AS number and name no protocol: BGP, and OSPF inside the AS where
// it has more than this one router here.
func (r *resolver) defaultProtocols(systems disjoint) {
	size := map[int]int{}
	for i, n := range r.nodes {
		if n.kind == slice.Router {
			size[systems.find(i)]++
		}
	}
	for i, n := range r.nodes {
		if n.kind != slice.Router || n.all.AS == 0 || len(n.all.Routing) > 0 || n.ownConfig() {
			continue
		}
		n.protocols = []slice.Protocol{slice.BGP}
		if size[systems.find(i)] > 1 {
			n.protocols = []slice.Protocol{slice.OSPF, slice.BGP}
		}
	}
}

// makeRouting fills a router's slice.Routing, but for its BGP sessions.
func (r *resolver) makeRouting(n *node) {
	a := &n.all
	if n.ownConfig() {
		n.routing = &slice.Routing{Daemon: r.configDaemon(n), RouterID: n.routerID, Config: r.config(n)}
		return
	}
	if len(n.out.Routes) > 0 && len(n.protocols) > 0 && !n.speaks(slice.Static) {
		n.protocols = append(n.protocols, slice.Static)
	}
	onlyStatic := len(n.protocols) == 1 && n.speaks(slice.Static)
	if len(n.protocols) == 0 || onlyStatic && a.Daemon == "" {
		return // the kernel holds the static routes
	}
	n.routing = &slice.Routing{Daemon: a.Daemon, Protocols: n.protocols, RouterID: n.routerID}
	if a.Daemon == "" {
		n.routing.Daemon = slice.FRR
	}
	if n.speaks(slice.ISIS) && n.routing.Daemon == slice.BIRD {
		r.Add(n.at.At("routing"), "write daemon: frr, or routing: ospf",
			"BIRD has no IS-IS, which %q is to speak", n.name)
	}
	n.routing.Static, n.out.Routes = n.out.Routes, nil
	if n.speaks(slice.OSPF) || n.speaks(slice.ISIS) {
		n.routing.Timers = r.timers(n)
	}
	if n.speaks(slice.ISIS) {
		n.routing.ISIS = r.isis(n)
	}
	if n.speaks(slice.BGP) {
		n.routing.BGP = &slice.BGPNode{AS: a.AS}
	}
}

func (r *resolver) timers(n *node) slice.Timers {
	t := slice.Timers{
		Hello: r.seconds(n.all.Hello, defaultHello, n.at.At("hello")),
		Dead:  r.seconds(n.all.Dead, 0, n.at.At("dead")),
	}
	if t.Dead == 0 {
		t.Dead = defaultDead * t.Hello
	}
	t.FastHellos = n.all.FastHellos != nil && *n.all.FastHellos
	if t.Dead <= t.Hello {
		r.Add(n.at.At("dead"), "four times hello is usual", "dead %ds is not longer than hello %ds",
			t.Dead, t.Hello)
	}
	return t
}

// seconds reads an interval of a protocol that counts in whole seconds.
func (r *resolver) seconds(d file.Duration, otherwise int, at *diagnostic.Path) int {
	span, err := d.Duration()
	if err != nil || d == "" {
		return otherwise
	}
	if span < time.Second || span > 65535*time.Second || span%time.Second != 0 {
		r.Add(at, "for less than a second, write fast_hellos: true",
			"%s is not a whole number of seconds, 1s to 65535s", d)
		return otherwise
	}
	return int(span / time.Second)
}

// area writes an OSPF area as an address is written; the backbone is empty.
func (r *resolver) area(text string, at *diagnostic.Path) string {
	if text == "" {
		return ""
	}
	if number, err := strconv.ParseUint(text, 10, 32); err == nil {
		text = address.Offset(netip.AddrFrom4([4]byte{}), number, 0).String()
	}
	a, err := netip.ParseAddr(text)
	if err != nil || !a.Is4() {
		r.Add(at, "write a number or such as 0.0.0.1", "%q is not an OSPF area", text)
		return ""
	}
	if a.IsUnspecified() {
		return ""
	}
	return a.String()
}

// areas sets cost and area of a segment's interfaces and wants its OSPF routers to agree on the area.
func (r *resolver) areas(s *segment) {
	var first *port
	for _, p := range s.routers {
		p.out.Cost = p.link.Cost
		if p.in.Cost != 0 {
			p.out.Cost = p.in.Cost
		}
		switch {
		case p.in.Area != "":
			p.out.Area = r.area(p.in.Area, diagnostic.InInterface(p.node.name, p.name).At("area"))
		case p.link.Area != "":
			p.out.Area = r.area(p.link.Area, p.link.at.At("area"))
		default:
			p.out.Area = r.area(p.node.all.Area, p.node.at.At("area"))
		}
		if !p.node.speaks(slice.OSPF) || p.out.Passive {
			continue
		}
		if first == nil {
			first = p
		} else if p.out.Area != first.out.Area {
			r.Add(p.link.at, "write area: in the link",
				"%s is in area %s and %s in area %s: they will not become neighbors", first,
				areaName(first.out.Area), p, areaName(p.out.Area))
			return
		}
	}
}

func areaName(area string) string {
	if area == "" {
		return "0.0.0.0"
	}
	return area
}

// agreeTimers wants OSPF neighbors to have the same timers: they would ignore each other (RFC 2328, section 10.5).
func (r *resolver) agreeTimers(s *segment) {
	var first *node
	for _, p := range s.routers {
		if !p.node.speaks(slice.OSPF) || p.out.Passive || p.node.routing == nil {
			continue
		}
		if first == nil {
			first = p.node
			continue
		}
		if a, b := first.routing.Timers, p.node.routing.Timers; a != b {
			r.Add(p.link.at, "write them in defaults: or in a group",
				"OSPF timers of %q (hello %ds, dead %ds, fast %t) and %q (hello %ds, dead %ds, fast "+
					"%t) differ: they will not become neighbors",
				first.name, a.Hello, a.Dead, a.FastHellos, p.node.name, b.Hello, b.Dead, b.FastHellos)
			return
		}
	}
}

// passive marks the interfaces on which no adjacency is to be made: no other router of the segment can speak the same
// protocol, or only routers of other autonomous systems can.
func (r *resolver) passive(s *segment) {
	routers := s.routers
	protocols := map[uint32]map[slice.Protocol][2]*node{} // by AS and protocol: up to two routers that speak it
	any := false                                          // a router's protocols are not known
	for _, p := range routers {
		any = any || p.node.ownConfig()
		if protocols[p.node.all.AS] == nil {
			protocols[p.node.all.AS] = map[slice.Protocol][2]*node{}
		}
		for _, protocol := range p.node.protocols {
			known := protocols[p.node.all.AS][protocol]
			if known[0] == nil {
				known[0] = p.node
			} else if known[0] != p.node {
				known[1] = p.node
			}
			protocols[p.node.all.AS][protocol] = known
		}
	}
	for _, p := range routers {
		if !p.node.speaksInterior() {
			continue
		}
		p.out.Passive = !any && !hearsAnother(p.node, protocols)
		if p.in.Passive != nil {
			p.out.Passive = *p.in.Passive
		}
	}
}

// hearsAnother reports whether another node of n's AS, or one without an AS, speaks an interior protocol of n's.
func hearsAnother(n *node, protocols map[uint32]map[slice.Protocol][2]*node) bool {
	for as, speakers := range protocols {
		if as != n.all.AS && as != 0 && n.all.AS != 0 {
			continue
		}
		for _, protocol := range interior {
			if !n.speaks(protocol) {
				continue
			}
			for _, other := range speakers[protocol] {
				if other != nil && other != n {
					return true
				}
			}
		}
	}
	return false
}

// configDaemon is the daemon that the user's files are for.
func (r *resolver) configDaemon(n *node) slice.Daemon {
	if n.all.Daemon != "" {
		return n.all.Daemon
	}
	for name := range n.all.Config {
		if strings.HasPrefix(name, "bird") {
			return slice.BIRD
		}
	}
	return slice.FRR
}

// daemonFiles are the files that a daemon reads, the main one first. A single file of another name is the main one.
var daemonFiles = map[slice.Daemon][]string{
	slice.FRR:  {"frr.conf", "daemons", "vtysh.conf"},
	slice.BIRD: {"bird.conf"},
}

func (r *resolver) config(n *node) map[string][]byte {
	known := daemonFiles[r.configDaemon(n)]
	out := make(map[string][]byte, len(n.all.Config))
	for _, name := range slices.Sorted(maps.Keys(n.all.Config)) {
		source, at := n.all.Config[name], n.at.At("config").At(name)
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
			r.Add(at, "write such as frr.conf: path", "%q is not a name of a file", name)
		}
		if source == nil {
			source = &file.Source{}
		}
		r.checkSource(at, source)
		if len(n.all.Config) == 1 && len(known) > 0 && !slices.Contains(known, name) {
			name = known[0]
		}
		out[name] = source.Data
	}
	return out
}
