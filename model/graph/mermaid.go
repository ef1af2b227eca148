package graph

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/pergola-net/pergola/model/slice"
)

// Mermaid writes the slice as a Mermaid flowchart, as Markdown on GitHub and GitLab shows it. Mermaid draws at most
// 500 edges unless its page raises maxEdges.
func Mermaid(w io.Writer, s *slice.Slice, st *slice.Status) error {
	p := newPicture(s, st)
	b := bufio.NewWriter(w)
	fmt.Fprintln(b, "flowchart LR")
	if s.Attribution != "" {
		fmt.Fprintf(b, "  %%%% %s\n", mermaidComment(s.Attribution))
	}
	for i := range p.vertices {
		v := &p.vertices[i]
		opening, closing := mermaidShape(v.kind)
		text := mermaidText(v.name)
		if v.as != 0 {
			text += fmt.Sprintf("<br/>AS %d", v.as)
		}
		fmt.Fprintf(b, "  n%d%s\"%s\"%s\n", i, opening, text, closing)
	}
	for i := range p.edges {
		e := &p.edges[i]
		ends := e.labels()
		text := mermaidText(ends[0])
		if ends[1] != "" {
			text += " — " + mermaidText(ends[1])
		}
		if e.note != "" {
			text += "<br/>" + mermaidText(e.note)
		}
		line := "---"
		if e.down {
			line = "-.-"
		}
		fmt.Fprintf(b, "  n%d %s|\"%s\"| n%d\n", e.a, line, text, e.b)
	}
	writeMermaidStyles(b, p)
	return b.Flush()
}

// writeMermaidStyles colours what is down.
func writeMermaidStyles(b *bufio.Writer, p *picture) {
	const red = "stroke:#c62828,stroke-width:2px"
	var nodes, edges []string
	for i := range p.vertices {
		if p.vertices[i].down() {
			nodes = append(nodes, fmt.Sprintf("n%d", i))
		}
	}
	for i := range p.edges {
		if p.edges[i].down {
			edges = append(edges, fmt.Sprint(i))
		}
	}
	if len(nodes) > 0 {
		fmt.Fprintf(b, "  classDef down %s\n  class %s down\n", red, strings.Join(nodes, ","))
	}
	if len(edges) > 0 {
		fmt.Fprintf(b, "  linkStyle %s %s\n", strings.Join(edges, ","), red)
	}
}

func mermaidShape(k slice.Kind) (opening, closing string) {
	switch k {
	case slice.Host:
		return "[", "]"
	case slice.Switch:
		return "[[", "]]"
	case slice.Uplink:
		return "{{", "}}"
	case slice.Program:
		return "[/", "/]"
	case lan:
		return "((", "))"
	default:
		return "([", "])"
	}
}

// mermaidText writes everything that could mean something to Mermaid, to its Markdown or to HTML as an entity code.
func mermaidText(s string) string {
	var b strings.Builder
	for _, r := range printable(s) {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9',
			strings.ContainsRune(" .,:-/%±→←", r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, "#%d;", r)
		}
	}
	return b.String()
}

// mermaidComment makes one line without braces: %%{ would open a directive.
func mermaidComment(s string) string {
	return strings.NewReplacer("{", "(", "}", ")").Replace(printable(s))
}
