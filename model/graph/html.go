package graph

import (
	_ "embed" // the page's parts
	"fmt"
	"html/template"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/model/slice"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed labels.js
	labelsJS string
	//go:embed page.js
	pageJS string
	//go:embed panel.js
	panelJS string

	page = template.Must(template.New("page").Parse(pageHTML))
)

// HTML writes one page that shows the slice in a browser: a map to move and zoom in, with the data of each node
// and link. The page is complete: it fetches nothing.
func HTML(w io.Writer, s *slice.Slice, st *slice.Status) error {
	p := newPicture(s, st)
	scripts := pageJS + "\n" + labelsJS + "\n" + panelJS
	err := page.Execute(w, struct {
		Name, Attribution string
		Style             template.CSS
		Script            template.JS
		Data              pageData
	}{s.Name, s.Attribution, template.CSS(pageCSS), template.JS(scripts), newPageData(p, st)})
	if err != nil {
		return fmt.Errorf("write page of %s: %w", s.Name, err)
	}
	return nil
}

// pageData is what page.js reads.
type pageData struct {
	Live       bool        `json:"live"` // there is a status
	Geographic bool        `json:"geographic"`
	West       float64     `json:"west"`    // longitude of x = 0
	Squeeze    float64     `json:"squeeze"` // x units of a degree of longitude
	Counts     []pageCount `json:"counts"`
	Nodes      []pageNode  `json:"nodes"`
	Edges      []pageEdge  `json:"edges"`
}

type pageCount struct {
	Text string `json:"text"`
	Bad  bool   `json:"bad,omitempty"`
}

type pageNode struct {
	Name       string        `json:"name"`
	Kind       slice.Kind    `json:"kind"`
	AS         uint32        `json:"as,omitempty"`
	X          float64       `json:"x"`
	Y          float64       `json:"y"`
	Phase      slice.Phase   `json:"phase,omitempty"`
	Message    string        `json:"message,omitempty"`
	Sections   []pageSection `json:"sections,omitempty"`
	Interfaces []pageFace    `json:"interfaces,omitempty"`
	Text       []string      `json:"text,omitempty"` // what the search finds beside the name
}

type pageSection struct {
	Title string     `json:"title"`
	Facts []pageFact `json:"facts"`
}

type pageFact struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

type pageFace struct {
	Name      string         `json:"name"`
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	Facts     []string       `json:"facts,omitempty"`
}

type pageEdge struct {
	Link   string  `json:"link"`
	A      int     `json:"a"`
	B      int     `json:"b"`
	AI     string  `json:"ai"`
	BI     string  `json:"bi,omitempty"`
	Offset float64 `json:"offset"`
	Down   bool    `json:"down,omitempty"`
	Note   string  `json:"note,omitempty"`
}

func newPageData(p *picture, st *slice.Status) pageData {
	d := pageData{Live: st != nil, Geographic: p.geographic, West: p.west, Squeeze: p.squeeze,
		Nodes: []pageNode{}, Edges: []pageEdge{}}
	for _, c := range p.counts() {
		d.Counts = append(d.Counts, pageCount{Text: c.text, Bad: c.ink == inkDown})
	}
	for i := range p.vertices {
		d.Nodes = append(d.Nodes, newPageNode(&p.vertices[i], st))
	}
	for i := range p.edges {
		e := &p.edges[i]
		d.Edges = append(d.Edges, pageEdge{Link: e.link.Name, A: e.a, B: e.b, AI: e.ends[0].Interface,
			BI: e.ends[1].Interface, Offset: e.offset(), Down: e.down, Note: e.note})
	}
	return d
}

func newPageNode(v *vertex, st *slice.Status) pageNode {
	out := pageNode{Name: v.name, Kind: v.kind, AS: v.as, X: v.at.x, Y: v.at.y, Phase: v.phase}
	n := v.node
	if n == nil {
		return out
	}
	if st != nil {
		out.Message = st.Nodes[n.Name].Message
	}
	for _, s := range []pageSection{
		{"Loopback", addressFacts(n.Loopbacks)}, {"Routing", routingFacts(n.Routing)},
		{"Sliver", sliverFacts(n, st)},
		{"Labels", mapFacts(n.Labels)},
	} {
		if len(s.Facts) > 0 {
			out.Sections = append(out.Sections, s)
		}
	}
	for _, a := range n.Loopbacks {
		out.Text = append(out.Text, a.String())
	}
	for _, i := range n.Interfaces {
		face := pageFace{Name: i.Name, Addresses: i.Addresses, Facts: faceFacts(i)}
		out.Interfaces = append(out.Interfaces, face)
		for _, a := range i.Addresses {
			out.Text = append(out.Text, a.String())
		}
		out.Text = append(out.Text, i.MAC)
	}
	return out
}

func faceFacts(i slice.Interface) []string {
	facts := []string{i.MAC, fmt.Sprintf("MTU %d", i.MTU)}
	if i.Cost != 0 {
		facts = append(facts, fmt.Sprintf("cost %d", i.Cost))
	}
	if i.Area != "" {
		facts = append(facts, "area "+i.Area)
	}
	if i.Passive {
		facts = append(facts, "passive")
	}
	return facts
}

func addressFacts(loopbacks []netip.Prefix) (facts []pageFact) {
	for _, a := range loopbacks {
		family := "IPv4"
		if a.Addr().Is6() {
			family = "IPv6"
		}
		facts = append(facts, pageFact{family, a.String()})
	}
	return facts
}

func routingFacts(r *slice.Routing) (facts []pageFact) {
	if r == nil {
		return nil
	}
	add := func(key, value string) {
		if value != "" {
			facts = append(facts, pageFact{key, value})
		}
	}
	var protocols []string
	for _, p := range r.Protocols {
		protocols = append(protocols, string(p))
	}
	add("Daemon", string(r.Daemon))
	if len(r.Config) > 0 {
		add("Configuration", "the user's own files")
		return facts
	}
	add("Protocols", strings.Join(protocols, ", "))
	if r.RouterID.IsValid() {
		add("Router id", r.RouterID.String())
	}
	if r.ISIS != nil {
		add("IS-IS NET", r.ISIS.NET)
	}
	if r.BGP != nil {
		add("BGP AS", fmt.Sprint(r.BGP.AS))
		for _, n := range r.BGP.Neighbors {
			add("Neighbour", fmt.Sprintf("%s (%s, AS %d)", n.Node, n.Address, n.AS))
		}
	}
	return facts
}

func sliverFacts(n *slice.Node, st *slice.Status) (facts []pageFact) {
	if !n.HasSliver() {
		return nil
	}
	add := func(when bool, key, value string) {
		if when {
			facts = append(facts, pageFact{key, value})
		}
	}
	if st != nil {
		now := st.Nodes[n.Name]
		add(now.Host != "", "Host", now.Host)
		add(now.PID != 0, "First process", fmt.Sprint(now.PID))
		add(now.Restarts != 0, "Restarts", fmt.Sprint(now.Restarts))
	}
	add(!n.Rootfs.FromMachine(), "Root", n.Rootfs.Ref)
	add(len(n.Command) > 0, "Command", strings.Join(n.Command, " "))
	add(n.CPU != 0, "CPU", fmt.Sprintf("%g cores", n.CPU))
	add(n.Memory != 0, "Memory", fmt.Sprintf("%d MiB", n.Memory>>20))
	return facts
}

func mapFacts(m map[string]string) (facts []pageFact) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		facts = append(facts, pageFact{k, m[k]})
	}
	return facts
}
