package importer

import (
	"io/fs"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/topology/address"
)

// said is what a node's own commands and configuration say of addresses.
type said struct {
	addresses map[string][]netip.Prefix // by interface
	hops      []netip.Addr              // next hops and neighbours, which others have to have
	byDefault bool                      // there is a default route
}

// addressLinks has Pergola choose the addresses of all networks that a replaced node is on. Nodes beside it that set
// their addresses themselves keep them, and the replaced node gets the address that their routes and sessions lead to.
func (c *clab) addressLinks() {
	known := map[string]*said{}
	nodes := c.byName()
	on := map[netip.Prefix]string{} // networks, by the first end that has them
	for _, links := range c.segments(nodes) {
		if !slices.ContainsFunc(links, func(l *topology.Link) bool {
			return slices.ContainsFunc(l.Ends, func(e topology.End) bool { return isOurs(nodes[e.Node()]) })
		}) {
			continue
		}
		s := &clabSegment{c: c, links: links, nodes: nodes, taken: map[netip.Addr]bool{}}
		for _, l := range links {
			for _, e := range l.Ends {
				if n := nodes[e.Node()]; n != nil && known[e.Node()] == nil {
					known[e.Node()] = c.listen(n)
				}
			}
		}
		s.known = known
		s.address()
		s.bridged(on)
	}
	c.settle(nodes, known)
}

func isOurs(n *clabNode) bool { return n != nil && n.isOurs() }

// segments are the links, those that switches join together.
func (c *clab) segments(nodes map[string]*clabNode) [][]*topology.Link {
	root := map[string]string{} // of switches
	var find func(string) string
	find = func(s string) string {
		if root[s] == "" || root[s] == s {
			return s
		}
		root[s] = find(root[s])
		return root[s]
	}
	joints := func(l *topology.Link) (names []string) {
		for _, e := range l.Ends {
			if n := nodes[e.Node()]; n != nil && n.out.Kind == slice.Switch {
				names = append(names, e.Node())
			}
		}
		return names
	}
	for i := range c.out.Links {
		if names := joints(&c.out.Links[i]); len(names) == 2 {
			root[find(names[0])] = find(names[1])
		}
	}
	var all [][]*topology.Link
	index := map[string]int{}
	for i := range c.out.Links {
		l := &c.out.Links[i]
		names := joints(l)
		if len(names) == 0 {
			all = append(all, []*topology.Link{l})
			continue
		}
		of, ok := index[find(names[0])]
		if !ok {
			of = len(all)
			index[find(names[0])] = of
			all = append(all, nil)
		}
		all[of] = append(all[of], l)
	}
	return all
}

// clabSegment is one network of IP that Pergola gives addresses.
type clabSegment struct {
	c      *clab
	links  []*topology.Link
	nodes  map[string]*clabNode
	known  map[string]*said
	subnet [address.Families]netip.Prefix
	taken  map[netip.Addr]bool
}

// Kinds of nodes that get no addresses.
var unaddressed = []slice.Kind{slice.Switch, slice.Uplink}

// eachEnd calls do for each end at a node that is no switch.
func (s *clabSegment) eachEnd(do func(l *topology.Link, e topology.End, n *clabNode)) {
	for _, l := range s.links {
		for _, e := range l.Ends {
			if n := s.nodes[e.Node()]; n != nil && !slices.Contains(unaddressed, n.out.Kind) {
				do(l, e, n)
			}
		}
	}
}

const minMTUv6 = 1280 // RFC 8200, section 5

func (s *clabSegment) address() {
	on, off := true, false
	for _, l := range s.links {
		l.IPv4, l.IPv6 = &on, &on
		if l.MTU != 0 && l.MTU < minMTUv6 {
			l.IPv6 = &off
		}
	}
	s.eachEnd(func(l *topology.Link, e topology.End, _ *clabNode) {
		for _, text := range l.Addresses[string(e)] {
			if p, err := netip.ParsePrefix(text); err == nil {
				s.agrees(p)
				s.taken[p.Addr()] = true
			}
		}
	})
	s.eachEnd(func(l *topology.Link, e topology.End, _ *clabNode) {
		for _, p := range s.known[e.Node()].addresses[e.Interface()] {
			if s.agrees(p) && !s.taken[p.Addr()] {
				s.give(l, e, p)
			}
		}
	})
	s.giveHops()
}

// giveHops gives replaced nodes the addresses that routes and sessions of others lead to.
func (s *clabSegment) giveHops() {
	var hops []netip.Addr
	s.eachEnd(func(_ *topology.Link, e topology.End, _ *clabNode) {
		hops = append(hops, s.known[e.Node()].hops...)
	})
	s.eachEnd(func(l *topology.Link, e topology.End, n *clabNode) {
		if !n.isOurs() {
			return
		}
		for family, subnet := range s.subnet {
			if !subnet.IsValid() || has(l.Addresses[string(e)], family) {
				continue
			}
			i := slices.IndexFunc(hops, func(a netip.Addr) bool {
				return subnet.Contains(a) && !s.taken[a] && address.Usable(subnet, a)
			})
			if i >= 0 {
				s.give(l, e, netip.PrefixFrom(hops[i], subnet.Bits()))
			}
		}
	})
}

// agrees reports whether an address is of the segment's network. The first one decides which that is.
func (s *clabSegment) agrees(p netip.Prefix) bool {
	subnet := &s.subnet[address.Family(p.Addr())]
	if p.Bits() == p.Addr().BitLen() || address.LinkLocal(p.Addr()) || !address.Usable(p.Masked(), p.Addr()) {
		return false
	}
	if !subnet.IsValid() {
		*subnet = p.Masked()
	}
	return *subnet == p.Masked()
}

func (s *clabSegment) give(l *topology.Link, e topology.End, p netip.Prefix) {
	if l.Addresses == nil {
		l.Addresses = map[string]topology.Strings{}
	}
	l.Addresses[string(e)] = append(l.Addresses[string(e)], p.String())
	s.taken[p.Addr()] = true
}

func has(addresses topology.Strings, family int) bool {
	return slices.ContainsFunc(addresses, func(text string) bool {
		p, err := netip.ParsePrefix(text)
		return err == nil && address.Family(p.Addr()) == family
	})
}

// bridged warns where two networks that a router joins have the same addresses: the vendor's node bridged them.
func (s *clabSegment) bridged(on map[netip.Prefix]string) {
	for _, subnet := range s.subnet {
		if !subnet.IsValid() {
			continue
		}
		here := string(s.links[0].Ends[0])
		if other := on[subnet]; other != "" {
			s.c.warn(position{}, "--kind KIND=switch makes switches of nodes that bridge",
				"%s is on the links of %s and of %s: routers do not join them", subnet, other, here)
			continue
		}
		on[subnet] = here
	}
}

// settle makes nodes beside replaced ones agree with the addresses that they have already: their commands replace an
// address or a route in place of adding it. Without a default route of their own, they get one.
func (c *clab) settle(nodes map[string]*clabNode, known map[string]*said) {
	for name, says := range known {
		n := nodes[name]
		if n.isOurs() || !n.runs() {
			continue
		}
		for i, line := range n.out.Exec {
			n.out.Exec[i] = ipAdd.ReplaceAllString(line, "${1}replace")
		}
		if n.out.Kind == slice.Host && !says.byDefault {
			n.out.Gateway = nil
		}
	}
}

var (
	ipAdd = regexp.MustCompile(`(\bip\s+(?:-\S+\s+)*(?:a|addr|address|r|ro|route)\s+)add\b`)
	// A command that sets an address; the interface comes before or after it.
	ipAddress = regexp.MustCompile(`\bip\s+(?:-\S+\s+)*(?:a|addr|address)\s+(?:add|replace)\s+` +
		`(?:dev\s+(\S+?)\s+)?(?:local\s+)?([0-9A-Fa-f:.]+/\d+)` +
		`(?:\s+(?:brd|broadcast)\s+\S+)?(?:\s+dev\s+([^\s;&|'"]+))?`)
	ipVia     = regexp.MustCompile(`\bvia\s+(?:inet6?\s+)?([0-9A-Fa-f:.]+)`)
	ipDefault = regexp.MustCompile(
		`\bip\s.*\b(?:r|ro|route)\s+(?:add|replace|change)\s+(?:default|0\.0\.0\.0/0|::/0)`)

	frrInterface = regexp.MustCompile(`^interface\s+(\S+)`)
	frrAddress   = regexp.MustCompile(`^\s+ip(?:v6)?\s+address\s+(\S+/\d+)`)
	frrNeighbor  = regexp.MustCompile(`^\s+neighbor\s+([0-9A-Fa-f:.]+)\s+(?:remote-as|peer-group)`)
)

const maxConfig = 1 << 20 // bytes of a daemon's file in which addresses are looked for

// listen finds what a node says of addresses: in its exec lines, and in FRR's configuration.
func (c *clab) listen(n *clabNode) *said {
	s := &said{addresses: map[string][]netip.Prefix{}}
	for _, line := range n.out.Exec {
		for _, m := range ipAddress.FindAllStringSubmatch(line, -1) {
			s.add(m[1]+m[3], m[2])
		}
		for _, m := range ipVia.FindAllStringSubmatch(line, -1) {
			s.hop(m[1])
		}
		s.byDefault = s.byDefault || ipDefault.MatchString(line)
	}
	config := n.out.Config["frr.conf"]
	if config == nil {
		return s
	}
	info := c.stat(config.Path)
	if info == nil || info.Size() > maxConfig {
		return s
	}
	text, err := fs.ReadFile(c.opt.Dir, path.Clean(config.Path))
	if err != nil {
		return s // whoever reads it to use it reports that
	}
	face := ""
	for line := range strings.Lines(string(text)) {
		if m := frrInterface.FindStringSubmatch(line); m != nil {
			face = m[1]
		} else if m := frrAddress.FindStringSubmatch(line); m != nil && face != "" {
			s.add(face, m[1])
		} else if m := frrNeighbor.FindStringSubmatch(line); m != nil {
			s.hop(m[1])
		}
	}
	return s
}

func (s *said) add(face, text string) {
	if p, err := netip.ParsePrefix(text); err == nil && !p.Addr().Is4In6() {
		s.addresses[face] = append(s.addresses[face], p)
	}
}

func (s *said) hop(text string) {
	if a, err := netip.ParseAddr(text); err == nil {
		s.hops = append(s.hops, a)
	}
}
