package slice

import (
	"maps"
	"slices"
)

// Outline is what every host of a slice has to know of all of it: which nodes there are and where, their interfaces and
// addresses, links, paths, what routing daemons speak. What a node's own host alone needs is left out: its programs,
// files, commands, configurations and grants. It is the same for all hosts, so that it is encoded once. The links are
// those of the slice, which is not changed.
func (s *Slice) Outline() *Slice {
	o := *s
	o.Programs = nil
	o.Nodes = make([]Node, len(s.Nodes))
	for i := range s.Nodes {
		o.Nodes[i] = s.Nodes[i].outline()
	}
	o.Checks = slices.Clone(s.Checks)
	for i := range o.Checks {
		c := &o.Checks[i]
		c.Command, c.Output, c.Status = "", "", 0
	}
	return &o
}

func (n *Node) outline() Node {
	return Node{
		Name: n.Name, Kind: n.Kind, Labels: n.Labels, Position: n.Position, Interfaces: n.Interfaces,
		FastPath: n.FastPath, Host: n.Host, Left: n.Left, Tunnel: n.Tunnel, Loopbacks: n.Loopbacks,
		Routing: n.Routing.outline(),
	}
}

// outline keeps that there are files of the user's own: such a router speaks nothing of Pergola's configuration.
func (r *Routing) outline() *Routing {
	if r == nil {
		return nil
	}
	o := *r
	o.Static = nil
	o.Config = maps.Clone(r.Config)
	for name := range o.Config {
		o.Config[name] = nil
	}
	return &o
}

// Excerpt is what a host has to know of a slice beside its outline: its nodes, with the objects of their packet
// programs, and the checks that begin at them.
func (s *Slice) Excerpt(host string) *Slice {
	e := &Slice{Name: s.Name, Programs: map[string][]byte{}}
	here := map[string]bool{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Host != host {
			continue
		}
		here[n.Name] = true
		e.Nodes = append(e.Nodes, *n)
		if n.Program != nil {
			e.Programs[n.Program.Object] = s.Programs[n.Program.Object]
		}
	}
	for _, c := range s.Checks {
		if here[c.From] {
			e.Checks = append(e.Checks, c)
		}
	}
	return e
}

// Join puts an excerpt into the outline of the same version. Nodes and checks that the outline does not have are left
// out.
func (s *Slice) Join(excerpt *Slice) {
	nodes := make(map[string]int, len(s.Nodes))
	for i := range s.Nodes {
		nodes[s.Nodes[i].Name] = i
	}
	for i := range excerpt.Nodes {
		if at, ok := nodes[excerpt.Nodes[i].Name]; ok {
			s.Nodes[at] = excerpt.Nodes[i]
		}
	}
	checks := make(map[string]int, len(s.Checks))
	for i := range s.Checks {
		checks[s.Checks[i].Name] = i
	}
	for _, c := range excerpt.Checks {
		if at, ok := checks[c.Name]; ok {
			s.Checks[at] = c
		}
	}
	s.Programs = excerpt.Programs
}
