package controller

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/pergola-net/pergola/slice"
)

// numberTunnels gives a number to each link and each switch that reaches over several hosts. What had one keeps it. A new one gets one that
// the running version does not use, also not for what goes: for a moment, hosts may be at different versions.
func (p *placing) numberTunnels() error {
	span := p.next.Span()
	used, had, last := map[uint16]bool{0: true}, map[string]uint16{}, uint16(0)
	if p.prev != nil {
		for name, t := range tunnels(p.prev) {
			had[name], used[t.Number], last = t.Number, true, max(last, t.Number)
		}
	}
	var wide []*slice.Tunnel
	var names []string
	add := func(t *slice.Tunnel, name string, hosts []string) {
		if t.Number = 0; t.Kind == slice.EGRE {
			t.Kind = "" // the default is written out where there is a tunnel
		}
		if len(hosts) > 1 {
			wide, names = append(wide, t), append(names, name)
		}
	}
	for i := range p.next.Links {
		l := &p.next.Links[i]
		add(&l.Tunnel, "link "+l.Name, span.Link(l.Name))
	}
	for i := range p.next.Nodes {
		if n := &p.next.Nodes[i]; n.Kind == slice.Switch {
			add(&n.Tunnel, "switch "+n.Name, span.Switch(n.Name))
		}
	}
	if len(wide) > slice.MaxTunnels {
		return refuse(Invalid, "slice %s: %d links and switches reach over several hosts: one slice can have %d of them; placement: pack, or host: for nodes that belong together, make them fewer",
			p.next.Name, len(wide), slice.MaxTunnels)
	}
	for i, t := range wide {
		t.Kind = cmp.Or(t.Kind, slice.EGRE)
		t.Number = had[names[i]]
	}
	for _, t := range wide {
		if t.Number != 0 {
			continue
		}
		if len(used) > slice.MaxTunnels { // only what goes can make room
			used = map[uint16]bool{0: true}
			for _, other := range wide {
				used[other.Number] = true
			}
		}
		for used[last] {
			last = last%slice.MaxTunnels + 1
		}
		t.Number, used[last] = last, true
	}
	return nil
}

// tunnels gives the tunnels of a slice by what they belong to.
func tunnels(s *slice.Slice) map[string]slice.Tunnel {
	all := map[string]slice.Tunnel{}
	for i := range s.Links {
		if t := s.Links[i].Tunnel; t.Number != 0 {
			all["link "+s.Links[i].Name] = t
		}
	}
	for i := range s.Nodes {
		if t := s.Nodes[i].Tunnel; t.Number != 0 {
			all["switch "+s.Nodes[i].Name] = t
		}
	}
	return all
}

// fitMTUs gives the interfaces of each segment an MTU that its tunnels carry: the default or less. One that the user wrote stays, and is a fault where it does
// not fit.
func (p *placing) fitMTUs() (faults []Fault) {
	span := p.next.Span()
	nodes := make(map[string]*slice.Node, len(p.next.Nodes))
	for i := range p.next.Nodes {
		nodes[p.next.Nodes[i].Name] = &p.next.Nodes[i]
	}
	for _, seg := range p.next.Segments() {
		way := p.path(seg, span)
		mtu := slice.DefaultMTU
		if way.tunnelled {
			if why := way.broken(); why != "" {
				faults = append(faults, Fault{Location: "links." + seg.Links[0].Name, Message: "link " + seg.Links[0].Name + " " + why})
				continue
			}
			mtu = min(mtu, way.carries())
		}
		for _, l := range seg.Links {
			for _, e := range l.Ends {
				i := nodes[e.Node].Interface(e.Interface)
				if !i.FixedMTU {
					i.MTU = mtu
				}
				if !way.tunnelled {
					continue
				}
				if why := way.refuses(i); why != "" {
					faults = append(faults, Fault{Location: "links." + l.Name + ".mtu", Message: fmt.Sprintf("link %s: %s %s", l.Name, e, why)})
				}
			}
		}
	}
	return faults
}

// path is what lies between the hosts of a segment.
type path struct {
	tunnelled bool
	kind      slice.TunnelKind // the one with the greatest overhead
	hosts     []string
	families  map[bool]string // a host with an IPv6 address (true), one with an IPv4 address
	narrowest string          // the host whose interface carries the least
	device    string          // that interface
	mtu       int             // of it
}

func (p *placing) path(seg *slice.Segment, span *slice.Span) path {
	way := path{families: map[bool]string{}}
	add := func(t slice.Tunnel) {
		if t.Number != 0 && (!way.tunnelled || t.Kind.Overhead(false) > way.kind.Overhead(false)) {
			way.tunnelled, way.kind = true, t.Kind
		}
	}
	seen := map[string]bool{}
	for _, l := range seg.Links {
		add(l.Tunnel)
		for _, name := range span.Link(l.Name) {
			h := p.byName[name]
			if h == nil || seen[name] {
				continue
			}
			seen[name] = true
			way.hosts = append(way.hosts, name)
			if h.Address.IsValid() {
				way.families[isIPv6(h.Address)] = name
			}
			if u := underlay(h); way.narrowest == "" || u.MTU < way.mtu {
				way.narrowest, way.device, way.mtu = name, u.Name, u.MTU
			}
		}
	}
	for _, sw := range seg.Switches {
		add(sw.Tunnel)
	}
	return way
}

func isIPv6(a netip.Addr) bool { return a.Unmap().Is6() }

func (w *path) overhead() int { return w.kind.Overhead(w.families[true] != "") }

// carries is the largest packet of a node that fits.
func (w *path) carries() int { return w.mtu - w.overhead() }

// broken says why no tunnel can be made; empty: it can.
func (w *path) broken() string {
	const least = 68 // RFC 791
	switch {
	case w.families[false] != "" && w.families[true] != "":
		return fmt.Sprintf("cannot be carried: the tunnels of host %s end at an IPv4 address, those of %s at an IPv6 address", w.families[false], w.families[true])
	case w.carries() < least:
		return "cannot be carried: " + w.terms()
	}
	return ""
}

// terms words the sum: between h1 and h2, packets of 1500 bytes pass (eth0 of h2), of which egre takes 42: 1458 are left.
func (w *path) terms() string {
	between := "between " + list(w.hosts[:len(w.hosts)-1]) + " and " + w.hosts[len(w.hosts)-1]
	return fmt.Sprintf("%s packets of %d bytes pass (%s of %s), of which %s takes %d: at most %d are left",
		between, w.mtu, w.device, w.narrowest, w.kind, w.overhead(), max(w.carries(), 0))
}

// refuses says why an interface cannot have the MTU that it has; empty: it can.
func (w *path) refuses(i *slice.Interface) string {
	const leastIPv6 = 1280 // RFC 8200, section 5
	if i.MTU > w.carries() {
		return fmt.Sprintf("has mtu %d, which does not fit: %s (write mtu: %d, or no mtu)", i.MTU, w.terms(), w.carries())
	}
	if !i.FixedMTU && i.MTU < leastIPv6 {
		for _, a := range i.Addresses {
			if a.Addr().Is6() {
				return fmt.Sprintf("has IPv6, which needs %d bytes: %s (write ipv6: false in this link)", leastIPv6, w.terms())
			}
		}
	}
	return ""
}
