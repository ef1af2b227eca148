package mapping

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// readRules notes which host each node may be on, as far as that does not depend on other nodes.
func (p *problem) readRules() {
	p.may = make([][]bool, len(p.r.Nodes))
	for n := range p.may {
		p.may[n] = make([]bool, len(p.s.Hosts))
		for h := range p.may[n] {
			p.may[n][h] = p.r.Nodes[n].allowed(&p.s.Hosts[h]) && p.hasRoom(n, p.room[h])
		}
	}
}

// hasRoom reports whether there is enough of each kind for a node.
func (p *problem) hasRoom(n int, room []float64) bool {
	for k, wanted := range p.demand[n] {
		if wanted > room[k]+tolerance {
			return false
		}
	}
	return true
}

// allowed is whyNot without words.
func (n *Node) allowed(h *Host) bool {
	if h.Closed != "" || n.Host != "" && n.Host != h.Name {
		return false
	}
	if len(n.Kinds) == 0 && len(n.Labels) == 0 && len(n.Features) == 0 && n.Near == nil {
		return true
	}
	return n.whyNot(h) == ""
}

// whyNot says which rule keeps a node from a host; empty where none does.
func (n *Node) whyNot(h *Host) string {
	switch {
	case n.Host != "" && n.Host != h.Name:
		return "the node is pinned to " + n.Host
	case h.Closed != "":
		return h.Closed
	case len(n.Kinds) > 0 && !slices.Contains(n.Kinds, h.Kind):
		if h.Kind == "" {
			return "is of no kind, not of kind " + strings.Join(n.Kinds, " or ")
		}
		return fmt.Sprintf("is of kind %s, not %s", h.Kind, strings.Join(n.Kinds, " or "))
	}
	for _, feature := range n.Features {
		if !slices.Contains(h.Features, feature) {
			return "lacks " + feature
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.Labels)) {
		if value, has := h.Labels[name]; !has {
			return "has no label " + name
		} else if value != n.Labels[name] {
			return fmt.Sprintf("its label %s is %s, not %s", name, value, n.Labels[name])
		}
	}
	if n.Near == nil {
		return ""
	}
	if h.Position == nil {
		return "its position is not known"
	}
	if far := h.Position.kilometres(n.Near.Position); far > n.Near.Kilometres {
		return fmt.Sprintf("is %.0f km away, more than %.4g km", far, n.Near.Kilometres)
	}
	return ""
}

// kilometres is the length of the great circle between two points, by the haversine formula.
func (a Position) kilometres(b Position) float64 {
	const radius, degree = 6371, math.Pi / 180 // the mean radius, of IUGG
	north, east := math.Sin((b.Latitude-a.Latitude)*degree/2), math.Sin((b.Longitude-a.Longitude)*degree/2)
	chord := north*north + math.Cos(a.Latitude*degree)*math.Cos(b.Latitude*degree)*east*east
	return 2 * radius * math.Asin(math.Sqrt(min(chord, 1)))
}

// whyFull says of what a host has too little left for a node; empty where there is enough of each.
func (p *problem) whyFull(n, h int, room []float64) string {
	for k, wanted := range p.demand[n] {
		if wanted > room[k]+tolerance {
			return fmt.Sprintf("%.6g %s wanted, %.6g of %.6g free", wanted, p.kinds[k], room[k],
				p.s.Hosts[h].Capacity[p.kinds[k]])
		}
	}
	return ""
}
