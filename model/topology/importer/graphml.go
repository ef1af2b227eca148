package importer

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"

	"golang.org/x/net/html/charset"

	"github.com/pergola-net/pergola/model/slice"
)

// Limits of a GraphML file. encoding/xml expands no entities but the five of XML, so that size bounds the work.
const (
	maxDepth = 32       // elements within elements
	maxText  = 64 << 10 // bytes of one value
)

// graphFile is a GraphML file (http://graphml.graphdrawing.org/specification.html) without its types: every value
// is a string under the lower-case name of its key.
type graphFile struct {
	values map[string]string // of the graph
	nodes  []graphNode
	edges  []graphEdge
}

type graphNode struct {
	id     string
	values map[string]string
	at     position
}

// graphEdge is an edge, or a hyperedge with any number of ends.
type graphEdge struct {
	ends     []string // ids of nodes
	hyper    bool
	directed bool
	values   map[string]string
	at       position
}

// graphReader reads a file element by element.
type graphReader struct {
	*report
	decoder *xml.Decoder
	keys    map[string]string            // attribute name by key id
	initial map[string]map[string]string // defaults by domain (node, edge, graph) and name
	ids     map[string]bool
	out     graphFile
	// at is where the present token begins.
	at          position
	edgeDefault bool // directed
}

var errStop = errors.New("stop")

// readGraphML parses a file. What it returns is complete where the report has no error.
func readGraphML(r *report, data []byte) *graphFile {
	g := &graphReader{report: r, keys: map[string]string{}, initial: map[string]map[string]string{},
		ids: map[string]bool{}}
	if len(data) > maxBytes {
		r.fail(position{}, "", "the file has %d MiB; at most %d are read", len(data)>>20, maxBytes>>20)
		return &g.out
	}
	g.decoder = xml.NewDecoder(bytes.NewReader(bytes.TrimPrefix(data, []byte("\ufeff"))))
	g.decoder.CharsetReader = charset.NewReaderLabel
	root, err := g.start()
	switch {
	case err != nil:
	case root.Name.Local != "graphml":
		r.fail(g.at, "GraphML begins with <graphml>",
			"the file is XML but no GraphML: its first element is <%s>", root.Name.Local)
	default:
		g.out.values = map[string]string{}
		err = g.children(root.Name.Local, 1, nil)
	}
	if err != nil && !errors.Is(err, errStop) {
		g.broken(err)
	}
	if !r.wrong && len(g.out.nodes) == 0 {
		r.fail(g.at, "", "the file has no nodes")
	}
	return &g.out
}

func (g *graphReader) broken(err error) {
	var syntax *xml.SyntaxError
	switch {
	case errors.Is(err, io.EOF):
		g.fail(g.at, "", "not GraphML: the file ends early")
	case errors.As(err, &syntax):
		line, column := g.decoder.InputPos()
		g.fail(position{Line: line, Column: column}, "", "not XML: %s", syntax.Msg)
	default:
		g.fail(g.at, "", "not XML: %v", err)
	}
}

// token gives the next token and notes where it began.
func (g *graphReader) token() (xml.Token, error) {
	g.at.Line, g.at.Column = g.decoder.InputPos()
	return g.decoder.Token()
}

// start skips to the first element.
func (g *graphReader) start() (xml.StartElement, error) {
	for {
		t, err := g.token()
		if err != nil {
			return xml.StartElement{}, err
		}
		switch t := t.(type) {
		case xml.StartElement:
			return t, nil
		case xml.CharData:
			if len(bytes.TrimSpace(t)) > 0 {
				g.fail(g.at, "", "not GraphML: text before the first element")
				return xml.StartElement{}, errStop
			}
		}
	}
}

// children reads the content of an element. values takes its <data>; nil where it has none.
func (g *graphReader) children(parent string, depth int, values map[string]string) error {
	if depth > maxDepth {
		g.fail(g.at, "", "elements are nested more than %d deep", maxDepth)
		return errStop
	}
	for {
		t, err := g.token()
		if err != nil {
			return err
		}
		switch t := t.(type) {
		case xml.EndElement:
			return nil
		case xml.StartElement:
			if err := g.element(t, parent, depth, values); err != nil {
				return err
			}
		}
	}
}

func (g *graphReader) element(e xml.StartElement, parent string, depth int, values map[string]string) error {
	switch e.Name.Local {
	case "key":
		return g.key(e)
	case "graph":
		return g.graph(e, depth, values)
	case "node":
		return g.node(e, depth)
	case "edge", "hyperedge":
		return g.edge(e, depth)
	case "endpoint":
		if last := len(g.out.edges) - 1; parent == "hyperedge" && last >= 0 {
			g.out.edges[last].ends = append(g.out.edges[last].ends, attribute(e, "node"))
		}
		return g.decoder.Skip()
	case "data":
		text, err := g.text()
		if name, ok := g.keys[attribute(e, "key")]; ok && values != nil {
			values[name] = text
		}
		return err
	default: // ports, and extensions of drawing programs
		return g.decoder.Skip()
	}
}

// graph reads a graph; one within a node is taken as part of the whole.
func (g *graphReader) graph(e xml.StartElement, depth int, outer map[string]string) error {
	before := g.edgeDefault
	g.edgeDefault = attribute(e, "edgedefault") == "directed"
	values := g.out.values
	if outer != nil {
		values = map[string]string{}
	}
	err := g.children("graph", depth+1, values)
	g.edgeDefault = before
	return err
}

func (g *graphReader) key(e xml.StartElement) error {
	id, name, domain := attribute(e, "id"), strings.ToLower(attribute(e, "attr.name")), attribute(e, "for")
	if name == "" {
		name = strings.ToLower(id)
	}
	g.keys[id] = name
	for {
		t, err := g.token()
		if err != nil {
			return err
		}
		switch t := t.(type) {
		case xml.EndElement:
			return nil
		case xml.StartElement:
			if t.Name.Local != "default" {
				if err := g.decoder.Skip(); err != nil {
					return err
				}
				continue
			}
			text, err := g.text()
			if err != nil {
				return err
			}
			if g.initial[domain] == nil {
				g.initial[domain] = map[string]string{}
			}
			g.initial[domain][name] = text
		}
	}
}

func (g *graphReader) node(e xml.StartElement, depth int) error {
	n := graphNode{id: attribute(e, "id"), at: g.at, values: g.defaults("node")}
	switch {
	case n.id == "":
		g.fail(n.at, `write <node id="...">`, "a node has no id")
	case g.ids[n.id]:
		g.fail(n.at, "", "node id %q is used twice", n.id)
	case len(g.out.nodes) == slice.MaxNodes:
		g.fail(n.at, "", "more than %d nodes", slice.MaxNodes)
		return errStop
	}
	g.ids[n.id] = true
	g.out.nodes = append(g.out.nodes, n)
	return g.children("node", depth+1, n.values)
}

func (g *graphReader) edge(e xml.StartElement, depth int) error {
	edge := graphEdge{at: g.at, hyper: e.Name.Local == "hyperedge", directed: g.edgeDefault,
		values: g.defaults("edge")}
	if d := attribute(e, "directed"); d != "" {
		edge.directed = d == "true"
	}
	if !edge.hyper {
		edge.ends = []string{attribute(e, "source"), attribute(e, "target")}
	}
	if len(g.out.edges) == slice.MaxInterfaces/2 {
		g.fail(edge.at, "", "more than %d edges", slice.MaxInterfaces/2)
		return errStop
	}
	g.out.edges = append(g.out.edges, edge)
	return g.children(e.Name.Local, depth+1, edge.values)
}

// defaults gives a fresh map of a domain's default values.
func (g *graphReader) defaults(domain string) map[string]string {
	values := map[string]string{}
	for _, d := range []string{"all", domain} {
		for name, value := range g.initial[d] {
			values[name] = value
		}
	}
	return values
}

// text reads the text of an element up to its end; elements within it are skipped.
func (g *graphReader) text() (string, error) {
	var b strings.Builder
	for {
		t, err := g.token()
		if err != nil {
			return "", err
		}
		switch t := t.(type) {
		case xml.EndElement:
			return strings.TrimSpace(b.String()), nil
		case xml.StartElement:
			if err := g.decoder.Skip(); err != nil {
				return "", err
			}
		case xml.CharData:
			if b.Len()+len(t) > maxText {
				g.fail(g.at, "", "a value is longer than %d KiB", maxText>>10)
				return "", errStop
			}
			b.Write(t)
		}
	}
}

func attribute(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}
