package speakers

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
	"github.com/pergola-net/pergola/signalling/rsvp/message"
	"github.com/pergola-net/pergola/signalling/te"
)

// defaultMetric is that of a link without a cost, as OSPF has it in networks of Pergola.
const defaultMetric = 10

// linkState gives what an interface of a router has unreserved, by priority, and whether the link is down. nil: it is
// not known.
type linkState func(router, iface string) (free *[te.Priorities]uint64, down bool)

// database is a network as its topology says it, with what is known to be unreserved. Routers that are switched off,
// and links that are down, are not in it.
func database(s *slice.Slice, o *slice.Overrides, state linkState) *te.Database {
	nodes, byName := []te.Node{}, make(map[string]*slice.Node, len(s.Nodes))
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if address, ok := n.Address(false); ok && n.SwitchesLabels() && o.Power[n.Name] != slice.PowerOff {
			nodes = append(nodes, te.Node{ID: n.Name, Address: address, Name: n.Name})
			byName[n.Name] = n
		}
	}
	var links []te.Link
	for _, seg := range s.Segments() {
		links = append(links, linksOf(s, seg, o, byName, state)...)
	}
	return te.New(nodes, links)
}

// linksOf gives the links of a segment: two where two routers are at it, else one from each router to the LAN.
func linksOf(s *slice.Slice, seg *slice.Segment, o *slice.Overrides, nodes map[string]*slice.Node,
	state linkState) (all []te.Link) {
	for _, l := range seg.Links {
		for _, e := range l.Ends {
			n := nodes[e.Node]
			if n == nil || o.Down[l.Name] {
				continue
			}
			at := n.Interface(e.Interface)
			if at == nil {
				continue
			}
			free, down := state(n.Name, at.Name)
			if address, ok := ipv4Of(at); ok && !down {
				all = append(all, link(s, o, n, at, address.Addr(), free))
			}
		}
	}
	if len(all) == 2 {
		all[0].To, all[0].Remote = all[1].From, all[1].Local
		all[1].To, all[1].Remote = all[0].From, all[0].Local
		return all
	}
	for i := range all {
		all[i].To, all[i].LAN = seg.Links[0].Name, true
	}
	return all
}

func link(s *slice.Slice, o *slice.Overrides, n *slice.Node, at *slice.Interface, local netip.Addr,
	free *[te.Priorities]uint64) te.Link {
	l := te.Link{LinkID: te.LinkID{From: n.Name, Local: local}, Metric: defaultMetric,
		Bandwidth: bytesPerSecond(bandwidth(s, o, n.Name, at))}
	l.Reservable = l.Bandwidth
	if at.Cost != 0 {
		l.Metric = uint32(at.Cost)
	}
	for p := range l.Unreserved {
		l.Unreserved[p] = l.Reservable
	}
	if free != nil {
		for p, b := range free { // another host may have told it before the link became slower
			l.Unreserved[p] = min(b, l.Reservable)
		}
	}
	return l
}

// bytesPerSecond is a rate, rounded up.
func bytesPerSecond(r unit.Rate) uint64 { return (uint64(r) + 7) / 8 }

// steps are those of an LSP's path: strict where it says by which interface packets come to a router.
func steps(s *slice.Slice, l *slice.LSP) (all []message.Step) {
	for _, h := range l.Hops[1:] {
		n := s.Node(h.Node)
		if n == nil {
			continue
		}
		step := message.Step{Loose: h.In == ""}
		address, _ := n.Address(false)
		if at := n.Interface(h.In); at != nil {
			if p, ok := ipv4Of(at); ok {
				address = p.Addr()
			}
		}
		step.Prefix = netip.PrefixFrom(address, address.BitLen())
		all = append(all, step)
	}
	return all
}

// route chooses the way of an LSP: the shortest one that has the bandwidth, through the routers that the network names.
// A way by what is to be avoided is taken if there is no other.
func route(s *slice.Slice, o *slice.Overrides, l *slice.LSP, d *te.Database, avoid []netip.Addr,
	held *te.Held) (te.Path, error) {
	for _, h := range l.Hops {
		if n := s.Node(h.Node); n != nil && n.Interface(h.In) != nil && o.Down[n.Interface(h.In).Link] {
			return te.Path{}, fmt.Errorf("link %s is down", n.Interface(h.In).Link)
		}
	}
	session, _ := sessionOf(s, l)
	q := te.Request{From: session.Extended, To: session.End, Bandwidth: bytesPerSecond(l.Signal.Bandwidth),
		Setup: l.Signal.Setup, Via: steps(s, l), Replaces: held, IGP: true}
	if len(avoid) > 0 {
		careful := q
		careful.Avoid.Links = avoid
		if p, err := d.Path(careful); err == nil {
			return p, nil
		}
	}
	p, err := d.Path(q)
	var none *te.NoPath
	if errors.As(err, &none) {
		if a, unnamed := netip.ParseAddr(none.To); unnamed == nil {
			none.To = cmp.Or(routerOf(s, a), none.To)
		}
	}
	return p, err
}
