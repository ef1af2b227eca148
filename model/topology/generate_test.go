package topology

import (
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/file"
	"github.com/pergola-net/pergola/model/unit"
)

// network draws a topology in which nothing is wrong.
func network(t *rapid.T) *Topology {
	top := &Topology{Name: "lab", Nodes: map[string]Node{},
		Placement: rapid.SampledFrom([]slice.Strategy{"", slice.Spread, slice.Pack}).Draw(t, "placement")}
	if rapid.IntRange(0, 3).Draw(t, "vxlan") == 0 {
		top.Defaults = &Defaults{Link: &LinkAttributes{Tunnel: slice.VXLAN, DSCP: DSCPCopy,
			StormControl: "20kpps"}}
	}
	daemon := rapid.SampledFrom([]slice.Daemon{"", slice.FRR, slice.BIRD})
	count := rapid.IntRange(1, 14).Draw(t, "nodes")
	var sites, switches []string
	for i := range count {
		name := fmt.Sprintf("n%d", i)
		var n Node
		switch rapid.IntRange(0, 5).Draw(t, "role") {
		case 0:
			n.Kind = slice.Switch
			switches = append(switches, name)
		case 1:
			n.Daemon = daemon.Draw(t, "daemon")
			n.Routing = Strings{"ospf"}
		case 2:
			n.AS = uint32(rapid.IntRange(65001, 65003).Draw(t, "as"))
			n.Daemon = daemon.Draw(t, "daemon")
		case 3:
			n.CPU = float64(rapid.IntRange(0, 8).Draw(t, "cpu")) / 4
			n.Env = map[string]string{"TEXT": rapid.String().Draw(t, "env")}
			n.Exec = Strings{rapid.StringMatching(`[a-z ]{1,10}`).Draw(t, "exec"), "true"}
		case 4:
			object := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "object")
			n.Program = &Source{Path: "x.o", Data: []byte(object)}
			n.Filters = []Filter{{Filter: "any -> drop"}}
		}
		if n.Kind != slice.Switch {
			placeAnyhow(t, &n)
			sites = append(sites, name)
		}
		top.Nodes[name] = n
	}
	for range rapid.IntRange(0, 20).Draw(t, "links") {
		if l, ok := anyLink(t, sites, switches); ok {
			top.Links = append(top.Links, l)
		}
	}
	return top
}

// placeAnyhow draws what a node says about hosts.
func placeAnyhow(t *rapid.T, n *Node) {
	switch rapid.IntRange(0, 5).Draw(t, "where") {
	case 0:
		n.Host = rapid.SampledFrom([]string{"h1", "h2"}).Draw(t, "host")
	case 1:
		n.HostLabels = map[string]string{"rack": rapid.SampledFrom([]string{"a", "b"}).Draw(t, "rack")}
		n.Reschedule = rapid.SampledFrom([]slice.Reschedule{"", slice.RescheduleAlways,
			slice.RescheduleNever}).Draw(t, "reschedule")
	}
}

// anyLink draws a cable, a LAN or a cable to a switch; never one between switches, which might close a loop.
func anyLink(t *rapid.T, sites, switches []string) (l Link, ok bool) {
	if len(sites) == 0 {
		return l, false
	}
	ends := rapid.SliceOfNDistinct(rapid.SampledFrom(sites), 1, min(4, len(sites)),
		rapid.ID[string]).Draw(t, "ends")
	if len(switches) > 0 && (len(ends) == 1 || rapid.Bool().Draw(t, "plug")) {
		ends = []string{ends[0], rapid.SampledFrom(switches).Draw(t, "switch")}
	}
	if len(ends) < 2 {
		return l, false
	}
	for _, e := range ends {
		l.Ends = append(l.Ends, End(e))
	}
	if len(ends) > 2 {
		l.StormControl = rapid.SampledFrom([]FrameRate{"", "off", "250", "1.5kpps"}).Draw(t, "storm control")
	}
	if rapid.Bool().Draw(t, "shaped") {
		l.Rate = file.RateOf(unit.Rate(rapid.IntRange(1, 100_000).Draw(t, "rate")) * 1000)
		l.Delay = Duration(fmt.Sprintf("%dms", rapid.IntRange(0, 100).Draw(t, "delay")))
		l.Loss = rapid.SampledFrom([]Percent{"", "1%", "0.5"}).Draw(t, "loss")
		l.From = map[string]Shape{ends[0]: {Queue: rapid.IntRange(1, 100).Draw(t, "queue")}}
	}
	return l, true
}

// without gives a topology with a node and its links, or one link, taken away.
func without(t *rapid.T, top *Topology) *Topology {
	smaller := *top
	smaller.Nodes = map[string]Node{}
	gone := ""
	if rapid.Bool().Draw(t, "take a node") && len(top.Nodes) > 1 {
		gone = rapid.SampledFrom(slices.Sorted(maps.Keys(top.Nodes))).Draw(t, "gone")
	}
	for name, n := range top.Nodes {
		if name != gone {
			smaller.Nodes[name] = n
		}
	}
	smaller.Links = nil
	for _, l := range top.Links {
		if !slices.ContainsFunc(l.Ends, func(e End) bool { return e.Node() == gone }) {
			smaller.Links = append(smaller.Links, l)
		}
	}
	if gone == "" && len(smaller.Links) > 0 {
		i := rapid.IntRange(0, len(smaller.Links)-1).Draw(t, "gone link")
		smaller.Links = slices.Delete(smaller.Links, i, i+1)
	}
	return &smaller
}
