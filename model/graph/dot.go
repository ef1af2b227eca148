package graph

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/pergola-net/pergola/model/slice"
)

// DOT writes the slice in the language of Graphviz. Nodes with coordinates are pinned to them (neato).
func DOT(w io.Writer, s *slice.Slice, st *slice.Status) error {
	p := newPicture(s, st)
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "graph %s {\n", dotString(s.Name))
	if p.geographic {
		fmt.Fprintf(b, "\tlayout=neato;\n")
	}
	if s.Attribution != "" {
		fmt.Fprintf(b, "\tlabel=%s;\n", dotString(s.Attribution))
	}
	fmt.Fprintf(b, "\tnode [fontname=\"sans-serif\" fontsize=11];\n\tedge [fontname=\"sans-serif\" fontsize=8];\n")
	for i := range p.vertices {
		v := &p.vertices[i]
		attributes := "shape=" + dotShape(v.kind)
		if v.kind == lan {
			attributes += " xlabel=" + dotString(v.name) + " width=0.1 label=\"\""
		} else {
			attributes += " label=" + dotLabel(v)
		}
		if v.down() {
			attributes += ` color="#c62828" fontcolor="#c62828" style=dashed`
		}
		if p.geographic {
			attributes += fmt.Sprintf(` pos="%.3f,%.3f!"`, v.at.x/2, -v.at.y/2)
		}
		fmt.Fprintf(b, "\t%s [%s];\n", dotID(v), attributes)
	}
	for i := range p.edges {
		e := &p.edges[i]
		ends := e.labels()
		attributes := "taillabel=" + dotString(ends[0])
		if ends[1] != "" {
			attributes += " headlabel=" + dotString(ends[1])
		}
		if e.note != "" {
			attributes += " label=" + dotString(e.note)
		}
		if e.down {
			attributes += ` color="#c62828" style=dashed`
		}
		fmt.Fprintf(b, "\t%s -- %s [%s];\n", dotID(&p.vertices[e.a]), dotID(&p.vertices[e.b]), attributes)
	}
	fmt.Fprintln(b, "}")
	return b.Flush()
}

func dotShape(k slice.Kind) string {
	switch k {
	case slice.Host:
		return "box"
	case slice.Switch:
		return "box3d"
	case slice.Uplink:
		return "house"
	case slice.Program:
		return "hexagon"
	case lan:
		return "point"
	default:
		return "ellipse"
	}
}

// dotID is the node's name, for scripts that read the graph. LANs have a colon, which names of nodes cannot have. Names
// that cannot be printed are written in Go syntax, so that they stay different.
func dotID(v *vertex) string {
	name := v.name
	if name != printable(name) {
		name = strconv.QuoteToASCII(name)
	}
	if v.kind == lan {
		name = "lan:" + name
	}
	return dotString(name)
}

// dotLabel is the node's name, and below it its autonomous system.
func dotLabel(v *vertex) string {
	name := dotString(v.name)
	if v.as == 0 {
		return name
	}
	return fmt.Sprintf(`%s\nAS %d"`, strings.TrimSuffix(name, `"`), v.as)
}

// dotString quotes a string. Graphviz ends a quoted string at a quote alone, but reads escapes in labels, so that
// backslashes are doubled; what cannot be printed becomes a question mark.
func dotString(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(printable(s)) + `"`
}
