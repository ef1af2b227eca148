// Package graph draws a slice: as a map in a terminal, as Mermaid and Graphviz source, and as one HTML page without
// other files.
//
// All of them draw one picture: a vertex for each node and for each LAN, an edge for each end of a LAN and for
// each other link. With a slice.Status the picture also says what is down.
package graph

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/wording"
)

// lan is the kind of a vertex that represents a link with more than two ends.
const lan slice.Kind = "lan"

// picture is what is drawn: vertices and edges between them, by index.
type picture struct {
	vertices []vertex
	edges    []edge
	// geographic is true where vertices are at their coordinates; else the layout was computed.
	geographic bool
	// west is the longitude of x = 0 in a geographic picture, squeeze the length of a degree of longitude there.
	west, squeeze float64
}

// vertex is a node or a LAN.
type vertex struct {
	name string
	kind slice.Kind
	node *slice.Node // nil for a LAN
	as   uint32      // autonomous system; 0: none is known
	// phase is empty where the node has no status.
	phase slice.Phase
	at    point
}

// down reports whether the node has a status and does not run.
func (v *vertex) down() bool { return v.phase != "" && v.phase != slice.Running }

// edge is a cable: a link with two ends, or one end of a LAN.
type edge struct {
	link *slice.Link
	a, b int // vertices; b is the LAN where there is one
	// ends are the link's ends at a and b; the second is zero at a LAN.
	ends [2]slice.End
	// lane and lanes number the edges between the same two vertices, from 0, so that they can be drawn apart.
	lane, lanes int
	down        bool
	note        string // rate, delay, loss and classes, if any
}

// labels are the interface names at both ends of the edge; the second is empty at a LAN.
func (e *edge) labels() [2]string { return [2]string{e.ends[0].Interface, e.ends[1].Interface} }

// newPicture lists vertices and edges. Ends that name no node of the slice are left out: they cannot be drawn.
func newPicture(s *slice.Slice, st *slice.Status) *picture {
	p := &picture{}
	systems := systemsOf(s)
	index := make(map[string]int, len(s.Nodes))
	for i := range s.Nodes {
		n := &s.Nodes[i]
		v := vertex{name: n.Name, kind: n.Kind, node: n, as: systems[n.Name]}
		if st != nil && n.HasSliver() {
			v.phase = st.Nodes[n.Name].Phase
		}
		index[n.Name] = len(p.vertices)
		p.vertices = append(p.vertices, v)
	}
	for i := range s.Links {
		p.addLink(&s.Links[i], st, index)
	}
	p.numberLanes()
	p.arrange()
	return p
}

// systemsOf gives the autonomous systems of nodes that have one. That of a router with a configuration of its own is
// what its neighbours take it to be.
func systemsOf(s *slice.Slice) map[string]uint32 {
	systems := map[string]uint32{}
	for i := range s.Nodes {
		if r := s.Nodes[i].Routing; r != nil && r.BGP != nil {
			systems[s.Nodes[i].Name] = r.BGP.AS
			for _, n := range r.BGP.Neighbors {
				systems[n.Node] = n.AS
			}
		}
	}
	return systems
}

// label is the node's name, and its autonomous system.
func (v *vertex) label() string {
	if v.as == 0 {
		return printable(v.name)
	}
	return fmt.Sprintf("%s (AS %d)", printable(v.name), v.as)
}

func (p *picture) addLink(l *slice.Link, st *slice.Status, index map[string]int) {
	var now slice.LinkStatus
	known := false
	if st != nil {
		now, known = st.Links[l.Name]
	}
	e := edge{link: l, down: known && !now.Up}
	shape := func(end slice.End) slice.Shape {
		if s, ok := now.Shapes[end.String()]; ok {
			return s
		}
		return end.Shape
	}
	if len(l.Ends) == 2 && !l.LAN {
		a, okA := index[l.Ends[0].Node]
		b, okB := index[l.Ends[1].Node]
		if okA && okB {
			e.a, e.b, e.ends = a, b, [2]slice.End{l.Ends[0], l.Ends[1]}
			e.note = note(shape(l.Ends[0]), shape(l.Ends[1]))
			p.edges = append(p.edges, e)
		}
		return
	}
	hub := len(p.vertices)
	p.vertices = append(p.vertices, vertex{name: l.Name, kind: lan})
	for _, end := range l.Ends {
		a, ok := index[end.Node]
		if !ok {
			continue
		}
		e.a, e.b, e.ends = a, hub, [2]slice.End{end}
		e.note = describe(shape(end))
		p.edges = append(p.edges, e)
	}
}

// numberLanes numbers the edges between the same two vertices.
func (p *picture) numberLanes() {
	type pair struct{ low, high int }
	of := func(e edge) pair { return pair{min(e.a, e.b), max(e.a, e.b)} }
	count := make(map[pair]int, len(p.edges))
	for i := range p.edges {
		p.edges[i].lane = count[of(p.edges[i])]
		count[of(p.edges[i])]++
	}
	for i := range p.edges {
		p.edges[i].lanes = count[of(p.edges[i])]
	}
}

// offset is the distance of an edge from the straight line, in lanes: 0 for a single edge, ±1/2 for two, and so on.
// Its sign is relative to the direction from the smaller to the greater vertex.
func (e *edge) offset() float64 { return float64(e.lane) - float64(e.lanes-1)/2 }

// note describes both directions of a link.
func note(there, back slice.Shape) string {
	if there.Equal(back) {
		return describe(there)
	}
	words := func(s slice.Shape) string {
		if d := describe(s); d != "" {
			return d
		}
		return "unshaped"
	}
	return "→ " + words(there) + " ← " + words(back)
}

// describe words a shape briefly; it is empty for the zero shape.
func describe(s slice.Shape) string {
	var words []string
	if s.Police.Rate != 0 {
		words = append(words, "policed at "+rate(uint64(s.Police.Rate)))
	}
	if s.Rate != 0 {
		words = append(words, rate(uint64(s.Rate)))
	}
	if s.Delay != 0 || s.Jitter != 0 {
		d := duration(s.Delay)
		if s.Jitter != 0 {
			d += " ± " + duration(s.Jitter)
		}
		words = append(words, d)
	}
	if s.Loss != 0 {
		words = append(words, strconv.FormatFloat(s.Loss, 'g', 3, 64)+" % loss")
	}
	if s.Queue != 0 {
		words = append(words, fmt.Sprintf("queue %d", s.Queue))
	}
	if len(s.Classes) != 0 {
		names := make([]string, len(s.Classes))
		for i, c := range s.Classes {
			names[i] = c.Name
		}
		words = append(words, "classes "+strings.Join(names, " "))
	}
	if len(s.Queues) != 0 {
		words = append(words, wording.Count(len(s.Queues), "queue"))
	}
	return strings.Join(words, ", ")
}

func rate(bits uint64) string {
	units := []string{"bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"}
	v, u := float64(bits), 0
	for v >= 1000 && u < len(units)-1 {
		v, u = v/1000, u+1
	}
	return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64) + " " + units[u]
}

// duration writes milliseconds, the unit of network delays, to three digits; other times as Go does.
func duration(d time.Duration) string {
	if d >= time.Second || d != 0 && d < 10*time.Microsecond {
		return d.String()
	}
	unit := time.Microsecond
	for d/unit >= 1000 {
		unit *= 10
	}
	return strconv.FormatFloat(float64(d.Round(unit))/1e6, 'f', -1, 64) + " ms"
}
