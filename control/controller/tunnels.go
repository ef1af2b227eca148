package controller

import (
	"cmp"

	"github.com/pergola-net/pergola/model/slice"
)

// numberTunnels gives a number to each link and each switch that reaches over several hosts. What had one keeps it. A
// new one gets one that the running version does not use, nor one of a tunnel that is being removed: for a moment,
// hosts may have different versions.
func (p *placing) numberTunnels() error {
	span := p.next.Span()
	used, had, last := map[uint16]bool{0: true}, map[string]uint16{}, uint16(0)
	if p.prev != nil {
		for name, t := range tunnels(p.prev) {
			had[name], used[t.Number], last = t.Number, true, max(last, t.Number)
		}
	}
	var crossing []*slice.Tunnel
	var names []string
	add := func(t *slice.Tunnel, name string, hosts []string) {
		if t.Number = 0; t.Kind == slice.EGRE {
			t.Kind = "" // the default is written out where there is a tunnel
		}
		if len(hosts) > 1 {
			crossing, names = append(crossing, t), append(names, name)
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
	if len(crossing) > slice.MaxTunnels {
		return refuse(Invalid,
			"network %s: %d links and switches reach over several hosts: one network can have %d of them; "+
				"placement: pack, or host: for nodes that belong together, make them fewer",
			p.next.Name, len(crossing), slice.MaxTunnels)
	}
	for i, t := range crossing {
		t.Kind = cmp.Or(t.Kind, slice.EGRE)
		t.Number = had[names[i]]
	}
	for _, t := range crossing {
		if t.Number != 0 {
			continue
		}
		if len(used) > slice.MaxTunnels { // numbers of tunnels that are being removed
			used = map[uint16]bool{0: true}
			for _, other := range crossing {
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
