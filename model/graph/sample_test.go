package graph

import (
	"fmt"
	"net/netip"
	"sort"
	"time"

	"github.com/pergola-net/pergola/model/slice"
)

// builder makes slices for the tests.
type builder struct {
	s     slice.Slice
	ports map[string]int
}

func build(name string) *builder {
	return &builder{s: slice.Slice{Name: name}, ports: map[string]int{}}
}

func (b *builder) node(kind slice.Kind, name string, at ...float64) *builder {
	n := slice.Node{Name: name, Kind: kind}
	if len(at) == 2 {
		n.Position = &slice.Position{Latitude: at[0], Longitude: at[1]}
	}
	b.s.Nodes = append(b.s.Nodes, n)
	return b
}

func (b *builder) link(shape slice.Shape, nodes ...string) *builder {
	l := slice.Link{Name: fmt.Sprintf("l%d", len(b.s.Links)+1)}
	for k, name := range nodes {
		b.ports[name]++
		face := fmt.Sprintf("eth%d", b.ports[name])
		l.Ends = append(l.Ends, slice.End{Node: name, Interface: face, Shape: shape})
		n := b.s.Node(name)
		n.Interfaces = append(n.Interfaces, slice.Interface{
			Name: face, Link: l.Name, MTU: 1500,
			MAC:  fmt.Sprintf("02:00:00:%02x:%02x:%02x", len(b.s.Links)>>8, len(b.s.Links)&255, k%256),
			Port: uint16(len(b.s.Links)*2 + k + 1),
			Addresses: []netip.Prefix{
				netip.MustParsePrefix(fmt.Sprintf("10.%d.%d.%d/31", len(b.s.Links)/250,
					len(b.s.Links)%250, k%250))},
		})
	}
	b.s.Links = append(b.s.Links, l)
	return b
}

func (b *builder) slice() *slice.Slice {
	sort.Slice(b.s.Nodes, func(i, j int) bool { return b.s.Nodes[i].Name < b.s.Nodes[j].Name })
	return &b.s
}

// abilene is the Abilene network of 2005.
func abilene() *slice.Slice {
	b := build("abilene")
	for _, n := range []struct {
		name      string
		lat, long float64
	}{
		{"new-york", 40.71427, -74.00597}, {"chicago", 41.85003, -87.65005}, {"washington-dc", 38.89511, -77.03637},
		{"seattle", 47.60621, -122.33207}, {"sunnyvale", 37.36883, -122.03635}, {"los-angeles", 34.05223, -118.24368},
		{"denver", 39.73915, -104.9847}, {"kansas-city", 39.11417, -94.62746}, {"houston", 29.76328, -95.36327},
		{"atlanta", 33.749, -84.38798}, {"indianapolis", 39.76838, -86.15804},
	} {
		b.node(slice.Router, n.name, n.lat, n.long)
	}
	none := slice.Shape{}
	b.link(none, "new-york", "chicago").
		link(none, "new-york", "washington-dc").
		link(none, "chicago", "indianapolis").
		link(none, "washington-dc", "atlanta").
		link(slice.Shape{Rate: 1e9, Delay: 5 * time.Millisecond}, "seattle", "sunnyvale").
		link(none, "seattle", "denver").
		link(none, "sunnyvale", "los-angeles").
		link(none, "sunnyvale", "denver").
		link(none, "los-angeles", "houston").
		link(none, "denver", "kansas-city").
		link(none, "kansas-city", "houston").
		link(none, "kansas-city", "indianapolis").
		link(none, "houston", "atlanta").
		link(none, "atlanta", "indianapolis")
	s := b.slice()
	s.Attribution = "Internet Topology Zoo, CC BY 4.0"
	return s
}

// office has every kind of node, two links side by side and a LAN; host b and one of the two links are down.
func office() (*slice.Slice, *slice.Status) {
	b := build("office")
	b.node(slice.Router, "r1").node(slice.Router, "r2").node(slice.Switch, "sw").node(slice.Uplink, "internet").
		node(slice.Host, "a").node(slice.Host, "b").node(slice.Host, "c")
	b.link(slice.Shape{}, "r1", "r2").
		link(slice.Shape{Rate: 10e6, Delay: 20 * time.Millisecond, Loss: 0.5}, "r1", "r2").
		link(slice.Shape{}, "r2", "sw").link(slice.Shape{}, "sw", "a").link(slice.Shape{}, "b", "sw").
		link(slice.Shape{}, "r1", "internet").link(slice.Shape{}, "r1", "c", "r2")
	st := &slice.Status{Slice: "office", Nodes: map[string]slice.NodeStatus{}, Links: map[string]slice.LinkStatus{}}
	for _, n := range b.s.Nodes {
		if n.HasSliver() {
			st.Nodes[n.Name] = slice.NodeStatus{Phase: slice.Running, Host: "h1", PID: 42}
		}
	}
	for _, l := range b.s.Links {
		st.Links[l.Name] = slice.LinkStatus{Up: true}
	}
	st.Nodes["b"] = slice.NodeStatus{Phase: slice.Failed, Message: "create sliver: no space left on device"}
	st.Links["l1"] = slice.LinkStatus{}
	return b.slice(), st
}

func grid(n int) *slice.Slice {
	b := build("grid")
	for y := range n {
		for x := range n {
			name := fmt.Sprintf("r%d-%d", y, x)
			b.node(slice.Router, name)
			if x > 0 {
				b.link(slice.Shape{}, fmt.Sprintf("r%d-%d", y, x-1), name)
			}
			if y > 0 {
				b.link(slice.Shape{}, fmt.Sprintf("r%d-%d", y-1, x), name)
			}
		}
	}
	return b.slice()
}

// star is a switch with n hosts.
func star(n int) *slice.Slice {
	b := build("star").node(slice.Switch, "sw")
	for i := range n {
		name := fmt.Sprintf("h%d", i)
		b.node(slice.Host, name).link(slice.Shape{}, name, "sw")
	}
	return b.slice()
}
