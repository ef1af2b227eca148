package slice

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Parts are the sets of nodes that links join, directly or by other nodes: the largest first, and each with its nodes
// in order. A network that is of one piece has one. Links for management join nothing, and a switch that has no others
// is in no part.
func (s *Slice) Parts() [][]string {
	parent := make(map[string]string, len(s.Nodes))
	root := func(name string) string {
		for parent[name] != name {
			parent[name] = parent[parent[name]]
			name = parent[name]
		}
		return name
	}
	for i := range s.Nodes {
		parent[s.Nodes[i].Name] = s.Nodes[i].Name
	}
	management := s.management()
	managed, linked := map[string]bool{}, map[string]bool{}
	for i := range s.Links {
		l := &s.Links[i]
		if management[l.Name] {
			for _, end := range l.Ends {
				managed[end.Node] = true
			}
			continue
		}
		for _, end := range l.Ends {
			linked[end.Node] = true
			parent[root(end.Node)] = root(l.Ends[0].Node)
		}
	}
	members := map[string][]string{}
	for i := range s.Nodes {
		name := s.Nodes[i].Name
		if s.Nodes[i].Kind == Switch && managed[name] && !linked[name] {
			continue
		}
		members[root(name)] = append(members[root(name)], name)
	}
	parts := make([][]string, 0, len(members))
	for _, names := range members {
		slices.Sort(names)
		parts = append(parts, names)
	}
	slices.SortFunc(parts, func(a, b []string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a[0], b[0]))
	})
	return parts
}

// management are the names of links with an interface for management.
func (s *Slice) management() map[string]bool {
	names := map[string]bool{}
	for i := range s.Nodes {
		for _, p := range s.Nodes[i].Interfaces {
			if p.Management {
				names[p.Link] = true
			}
		}
	}
	return names
}

// Disconnected says of which parts the network is, for a person who may have forgotten links; empty if it is of one
// piece.
func (s *Slice) Disconnected() string {
	parts := s.Parts()
	if len(parts) < 2 {
		return ""
	}
	text := fmt.Sprintf("no links join the network's %d parts", len(parts))
	var several []string
	alone := slices.IndexFunc(parts, func(names []string) bool { return len(names) == 1 })
	if alone < 0 {
		alone = len(parts)
	}
	for _, names := range parts[:alone] {
		several = append(several, fmt.Sprintf("%d nodes with %s", len(names), names[0]))
	}
	if len(several) > 0 {
		text += ": " + firstFew(several)
	}
	if singles := slices.Concat(parts[alone:]...); len(singles) > 0 {
		separator := "; "
		if len(several) == 0 {
			separator = ": "
		}
		text += fmt.Sprintf("%s%d without a link: %s", separator, len(singles), firstFew(singles))
	}
	return text
}

// firstFew names the first few of them.
func firstFew(names []string) string {
	const few = 5
	if len(names) <= few+1 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}
