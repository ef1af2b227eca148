package graph

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/lipgloss"
)

// list writes each node with the other ends of its interfaces.
func list(p *picture, color bool) string {
	cables := make([][]cable, len(p.vertices))
	for i := range p.edges {
		e := &p.edges[i]
		a, b := &p.vertices[e.a], &p.vertices[e.b]
		if e.ends[1].Interface == "" {
			cables[e.a] = append(cables[e.a],
				cable{e, e.ends[0].Interface, string(mark(lan)) + " " + b.name, ""})
			cables[e.b] = append(cables[e.b], cable{e, "", a.name, e.ends[0].Interface})
			continue
		}
		cables[e.a] = append(cables[e.a], cable{e, e.ends[0].Interface, b.name, e.ends[1].Interface})
		cables[e.b] = append(cables[e.b], cable{e, e.ends[1].Interface, a.name, e.ends[0].Interface})
	}
	var out strings.Builder
	paint := func(k ink, s string) {
		if color && k != blank && s != "" {
			s = "\x1b[" + sgr[k] + "m" + s + "\x1b[0m"
		}
		out.WriteString(s)
	}
	for i := range p.vertices {
		v := &p.vertices[i]
		paint(markInk(v), string(mark(v.kind)))
		state := ""
		if v.down() {
			state = " (" + string(v.phase) + ")"
		}
		out.WriteString(" " + v.label())
		paint(inkDown, state)
		out.WriteString("\n")
		writeCables(&out, paint, cables[i])
	}
	return out.String()
}

// cable is an edge, from one of its vertices.
type cable struct {
	edge       *edge
	here       string
	peer, face string
}

func writeCables(out *strings.Builder, paint func(ink, string), cables []cable) {
	width, far := 0, 0
	for _, c := range cables {
		width = max(width, lipgloss.Width(printable(c.here)))
		far = max(far, lipgloss.Width(printable(c.to())))
	}
	for k, c := range cables {
		branch := "├"
		if k == len(cables)-1 {
			branch = "└"
		}
		line, ink := " ─── ", blank
		switch {
		case c.edge.down:
			line, ink = " ─╳─ ", inkDown
		case c.edge.note != "":
			ink = inkShaped
		}
		here := ""
		if width > 0 {
			here = " " + pad(printable(c.here), width)
		}
		fmt.Fprintf(out, "  %s%s", branch, here)
		paint(ink, line)
		out.WriteString(strings.TrimRight(pad(printable(c.to()), far)+"  "+c.edge.note, " "))
		out.WriteString("\n")
	}
}

func (c cable) to() string {
	if c.face == "" {
		return c.peer
	}
	return c.peer + ":" + c.face
}
