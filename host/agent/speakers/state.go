package speakers

import (
	"net/netip"
	"strings"
	"time"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// State is how an LSP is at its ingress.
type State struct {
	Up        bool
	ID        uint16    // the LSP ID; 0: nothing was asked for
	Number    uint16    // slice.Signal.Number
	Bandwidth unit.Rate // that it has, if it is up
	Hops      []slice.Hop
	Since     time.Time         // when it was asked for
	Measured  datapath.Reserved // of one that has a bandwidth
	// Problem says why it is not up, or why what was asked for last is not, while an earlier one is.
	Problem string
}

// State says how an LSP of a network is, if it begins at a router of this host.
func (s *Speakers) State(at *Places, l *slice.LSP) State {
	id := sliver.ID{Slice: at.network.ID, Node: l.Ingress()}
	s.mu.Lock()
	r, broken, path := s.known[id], s.broken[id], s.path
	s.mu.Unlock()
	switch {
	case broken != nil:
		why, _, _ := strings.Cut(broken.Error(), "\n") // of a panic, the stack is in the log
		return State{Problem: l.Ingress() + " does not speak RSVP: " + why}
	case r == nil:
		return State{Problem: l.Ingress() + " does not run"}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tunnels[l.Name]
	if t == nil {
		return State{Problem: "it is not asked for yet"}
	}
	is := t.state(at, l, r)
	if is.Bandwidth == 0 || path == nil {
		return is
	}
	var err error
	if is.Measured, err = path.Reserved(r.want.Space, ftnOf(l.ID)); err != nil {
		is.Problem = err.Error()
	}
	return is
}

// state describes the version that is up, else the newest.
func (t *tunnel) state(at *Places, l *slice.LSP, r *router) (is State) {
	v := t.newest()
	if v == nil {
		return State{Problem: t.problem}
	}
	if !v.up {
		is.Problem = v.failed
		if is.Problem == "" {
			is.Problem = "is being set up"
		}
		for _, older := range t.versions {
			if older.up {
				v = older
			}
		}
	}
	if t.problem != "" {
		is.Problem = t.problem
	}
	is.Up, is.ID, is.Number, is.Since = v.up, v.request.Key.LSP, v.number, v.since
	if err := r.failing[v.request.Key]; err != nil {
		is.Up, is.Problem = false, err.Error()
	}
	if is.Up {
		is.Bandwidth = unit.Rate(v.request.Bandwidth * 8)
		is.Hops = at.hops(l.Ingress(), v.route)
	}
	return is
}

// Places says where addresses and interfaces of a network are. It is made once for many LSPs.
type Places struct {
	network  *slice.Slice
	routers  map[netip.Addr]slice.Hop     // with the interface as In; of a loopback without
	segments map[string]map[string]string // by link: interfaces at its segment, by node
}

// NewPlaces makes the places of a network.
func NewPlaces(network *slice.Slice) *Places {
	p := &Places{network: network, routers: map[netip.Addr]slice.Hop{}, segments: map[string]map[string]string{}}
	for i := range network.Nodes {
		n := &network.Nodes[i]
		for _, at := range n.Interfaces {
			for _, a := range at.Addresses {
				p.routers[a.Addr()] = slice.Hop{Node: n.Name, In: at.Name}
			}
		}
		for _, a := range n.Loopbacks {
			p.routers[a.Addr()] = slice.Hop{Node: n.Name}
		}
	}
	for _, seg := range network.Segments() {
		ends := map[string]string{}
		for _, l := range seg.Links {
			p.segments[l.Name] = ends
			for _, e := range l.Ends {
				ends[e.Node] = e.Interface
			}
		}
	}
	return p
}

// hops reads the routers of a recorded route: each says by which interface packets come, and with which label.
func (p *Places) hops(ingress string, route []message.Record) []slice.Hop {
	all := []slice.Hop{{Node: ingress}}
	for _, rec := range route {
		if rec.IsLabel {
			all[len(all)-1].Label = rec.Label
			continue
		}
		if rec.Flags&message.NodeID != 0 { // that of its interface follows
			continue
		}
		hop, ok := p.routers[rec.Addr]
		if !ok {
			hop.Node = rec.Addr.String()
		}
		all = append(all, hop)
	}
	for i := range all[:len(all)-1] {
		all[i].Out = p.across(all[i].Node, all[i+1])
	}
	return all
}

// across names the interface of a router that is on the link by which packets come to the next; empty: not known.
func (p *Places) across(node string, next slice.Hop) string {
	to := p.network.Node(next.Node)
	if to == nil || to.Interface(next.In) == nil {
		return ""
	}
	return p.segments[to.Interface(next.In).Link][node]
}
