package controller

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/pergola-net/pergola/model/slice"
)

// misfit is a segment whose frames its tunnels do not carry.
type misfit struct {
	Fault
	segment *slice.Segment
}

func faultsOf(all []misfit) (faults []Fault) {
	for _, m := range all {
		faults = append(faults, m.Fault)
	}
	return faults
}

// keepMisfits makes the moved nodes of misfits stay on their hosts, if no user waits for the answer, and returns a note
// for each. For a segment of which no node moves, there is only a note that it no longer fits: other nodes can move.
// Each node is kept once.
func (p *placing) keepMisfits(misfits []misfit) (kept []string) {
	for _, m := range misfits {
		moves := false
		for _, l := range m.segment.Links {
			for _, e := range l.Ends {
				if p.moves[e.Node] == "" {
					continue
				}
				moves = true
				if !p.stuck[e.Node] {
					p.stuck[e.Node] = true
					kept = append(kept, fmt.Sprintf("%s stays on %s: %s", e.Node,
						p.moves[e.Node], m.Message))
				}
			}
		}
		if !moves {
			p.notes = append(p.notes, m.Message)
		}
	}
	return kept
}

// fitMTUs gives the interfaces of each segment an MTU that its tunnels carry: the default or less. One that the user
// wrote stays, and is a misfit where it does not fit.
func (p *placing) fitMTUs() (misfits []misfit) {
	span := p.next.Span()
	nodes := make(map[string]*slice.Node, len(p.next.Nodes))
	for i := range p.next.Nodes {
		nodes[p.next.Nodes[i].Name] = &p.next.Nodes[i]
	}
	for _, seg := range p.next.Segments() {
		path := p.path(seg, span)
		mtu := slice.DefaultMTU
		if path.tunnelled && p.leaveAsIs(seg, &path) {
			continue
		}
		if path.tunnelled {
			if why := path.broken(); why != "" {
				misfits = append(misfits, misfit{Fault{Location: p.location(seg.Links[0], nil),
					Message: "link " + seg.Links[0].Name + " " + why}, seg})
				continue
			}
			mtu = min(mtu, path.carries())
		}
		said := map[int]bool{} // by MTU: what is wrong at one end is wrong at the others
		for _, l := range seg.Links {
			for i := range l.Ends {
				e := &l.Ends[i]
				at := nodes[e.Node].Interface(e.Interface)
				if !at.FixedMTU {
					at.MTU = mtu
				}
				if why := path.refuses(at); why != "" && !said[at.MTU] {
					said[at.MTU] = true
					misfits = append(misfits, misfit{Fault{Location: p.location(l, e),
						Message: fmt.Sprintf("link %s: %s %s", l.Name, e, why)}, seg})
				}
			}
		}
	}
	return misfits
}

// leaveAsIs reports whether the MTUs of a tunnelled segment stay as they are: all its hosts were removed; or it had
// tunnels already, and the interface of a host is down, whose MTU is known when it is up again.
func (p *placing) leaveAsIs(seg *slice.Segment, path *path) bool {
	if len(path.hosts) == 0 {
		return true
	}
	if !path.unknown || !p.background {
		return false
	}
	before := tunnels(p.prev)
	return slices.ContainsFunc(seg.Links, func(l *slice.Link) bool { return before["link "+l.Name].Number != 0 }) ||
		slices.ContainsFunc(seg.Switches, func(sw *slice.Node) bool {
			return before["switch "+sw.Name].Number != 0
		})
}

// location is the place in the topology where a user would change a link, or the MTU of one of its ends.
func (p *placing) location(l *slice.Link, end *slice.End) string {
	switch {
	case p.top == nil:
		return "links." + l.Name
	case end == nil:
		return p.top.LinkPath(p.next, l)
	case p.top.Nodes[end.Node].Interfaces[end.Interface].MTU != 0:
		return "nodes." + end.Node + ".interfaces." + end.Interface + ".mtu"
	}
	return p.top.LinkPath(p.next, l) + ".mtu"
}

// path is what lies between the hosts of a segment.
type path struct {
	tunnelled bool
	kind      slice.TunnelKind // the one with the greatest overhead
	hosts     []string
	families  map[bool]string // a host with an IPv6 address (true), one with an IPv4 address
	narrowest string          // what carries the least: an interface, or the path from one host to another
	mtu       int             // of it
	unknown   bool            // a host does not report its interface
}

func (p *placing) path(seg *slice.Segment, span *slice.Span) path {
	path := path{families: map[bool]string{}}
	add := func(t slice.Tunnel) {
		if t.Number != 0 && (!path.tunnelled || t.Kind.Overhead(false) > path.kind.Overhead(false)) {
			path.tunnelled, path.kind = true, t.Kind
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
			path.hosts = append(path.hosts, name)
			if h.Address.IsValid() {
				path.families[isIPv6(h.Address)] = name
			}
			u, known := underlay(h)
			path.unknown = path.unknown || !known
			if path.narrowest == "" || u.MTU < path.mtu {
				path.narrowest, path.mtu = u.Name+" of "+name, u.MTU
			}
		}
	}
	for _, sw := range seg.Switches {
		add(sw.Tunnel)
	}
	p.narrow(&path)
	return path
}

// narrow takes the paths between the hosts into account.
func (p *placing) narrow(path *path) {
	for _, from := range path.hosts {
		for _, to := range path.hosts {
			if mtu, narrow := p.byName[from].Paths[to]; narrow && mtu < path.mtu {
				path.narrowest, path.mtu = "on the path from "+from+" to "+to, mtu
			}
		}
	}
}

func isIPv6(a netip.Addr) bool { return a.Unmap().Is6() }

func (w *path) overhead() int { return w.kind.Overhead(w.families[true] != "") }

// carries is the largest packet of a node that fits.
func (w *path) carries() int { return w.mtu - w.overhead() }

// broken says why no tunnel can be made; empty: it can.
func (w *path) broken() string {
	switch {
	case w.families[false] != "" && w.families[true] != "":
		return fmt.Sprintf("cannot be carried: the tunnels of host %s end at an IPv4 address, those "+
			"of %s at an IPv6 address", w.families[false], w.families[true])
	case w.carries() < leastMTU:
		return "cannot be carried: " + w.terms()
	}
	return ""
}

// terms describes the calculation: between h1 and h2, packets of 1500 bytes pass (eth0 of h2), of which egre takes 42:
// 1458 are left.
func (w *path) terms() string {
	last := len(w.hosts) - 1
	between := "between " + list(w.hosts[:last]) + " and " + w.hosts[last]
	if last == 0 { // the others were removed
		between = "to and from " + w.hosts[0]
	}
	return fmt.Sprintf("%s packets of %d bytes pass (%s), of which %s takes %d: at most %d are left",
		between, w.mtu, w.narrowest, w.kind, w.overhead(), max(w.carries(), 0))
}

// refuses says why an interface cannot have the MTU that it has; empty: it can.
func (w *path) refuses(i *slice.Interface) string {
	if !w.tunnelled {
		return ""
	}
	if i.MTU > w.carries() {
		return fmt.Sprintf("has mtu %d, which does not fit: %s (write mtu: %d, or no mtu)", i.MTU, w.terms(),
			w.carries())
	}
	if i.MTU < smallestMTU(i) {
		return fmt.Sprintf("has IPv6, which needs %d bytes: %s (write ipv6: false in this link)",
			leastMTUIPv6, w.terms())
	}
	return ""
}
