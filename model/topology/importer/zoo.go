package importer

import (
	"cmp"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/topology/file"
	"github.com/pergola-net/pergola/model/unit"
	"github.com/pergola-net/pergola/model/wording"
)

// ZooOptions say what to make of a graph.
type ZooOptions struct {
	Daemon  slice.Daemon     // empty: FRR
	Routing []slice.Protocol // empty: OSPF
	// Delay gives each link the time that light takes in fibre along the great circle between its ends.
	Delay bool
	// Rate gives each link the rate of its LinkSpeedRaw.
	Rate bool
	// InternalOnly leaves out the nodes that the Zoo marks as belonging to other networks.
	InternalOnly bool
}

// zooAttribution is the note that the licence of the Internet Topology Zoo (CC BY 4.0) requires.
const zooAttribution = "Internet Topology Zoo (S. Knight, H. X. Nguyen, N. Falkner, R. Bowden, M. Roughan, IEEE JSAC " +
	"29(9), 2011), CC BY 4.0"

// zoo is one import.
type zoo struct {
	*report
	opt   ZooOptions
	graph *graphFile
	names map[string]string // of nodes, by id
	byID  map[string]*graphNode
	out   *topology.Topology
	// cables holds directed edges whose way back was not seen yet.
	cables map[[2]string][]int
	// segments joins switches that reach each other without a router: a loop there would flood for ever.
	segments map[string]string
	external map[string]bool // ids of nodes that are left out
	unrated  int
	unplaced int
}

// Zoo imports GraphML: one router a node, one link an edge. It reads the attributes of the Internet Topology Zoo
// (http://www.topology-zoo.org): label, Latitude, Longitude, Internal, hyperedge and LinkSpeedRaw; any other GraphML
// gives routers named by label or id.
func Zoo(file string, data []byte, opt ZooOptions) (*topology.Topology, topology.Diagnostics) {
	z := &zoo{report: &report{file: file}, opt: opt, names: map[string]string{}, byID: map[string]*graphNode{},
		cables: map[[2]string][]int{}, segments: map[string]string{}, external: map[string]bool{}}
	z.graph = readGraphML(z.report, data)
	if z.wrong {
		return nil, z.found
	}
	z.out = &topology.Topology{
		Name:  namer{}.name("net", z.graph.values["network"], z.graph.values["label"], baseName(file)),
		Nodes: make(map[string]topology.Node, len(z.graph.nodes)),
		Defaults: &topology.Defaults{Node: &topology.Attributes{
			Kind: slice.Router, Daemon: cmp.Or(opt.Daemon, slice.FRR), Routing: protocols(opt.Routing)}},
	}
	if strings.Contains(strings.ToLower(z.graph.values["creator"]), "topology zoo") {
		z.out.Attribution = z.attribution()
	}
	z.addNodes()
	z.addLinks()
	z.sum()
	if z.wrong {
		return nil, z.found
	}
	return z.out, z.found
}

func baseName(file string) string {
	name, _, _ := strings.Cut(filepath.Base(file), ".")
	return name
}

func protocols(list []slice.Protocol) (out topology.Strings) {
	for _, p := range list {
		out = append(out, string(p))
	}
	if len(out) == 0 {
		out = topology.Strings{string(slice.OSPF)}
	}
	return out
}

func (z *zoo) attribution() string {
	var words []string
	for _, key := range []string{"network", "networkdate"} {
		if v := z.graph.values[key]; v != "" {
			words = append(words, strings.ReplaceAll(v, "_", "-"))
		}
	}
	if len(words) == 0 {
		return zooAttribution
	}
	return strings.Join(words, " ") + ": " + zooAttribution
}

// addNodes names nodes in the order of the file, so that the same file gives the same names.
func (z *zoo) addNodes() {
	taken := namer{}
	for i := range z.graph.nodes {
		n := &z.graph.nodes[i]
		if z.opt.InternalOnly && n.values["internal"] == "0" {
			z.external[n.id] = true
			continue
		}
		if n.values["label"] == "None" { // what the Zoo's tools write for no label
			delete(n.values, "label")
		}
		name := taken.name("n", n.values["label"], n.id)
		z.names[n.id], z.byID[n.id] = name, n
		node := topology.Node{Position: z.position(n)}
		if isSwitch(n) {
			node.Kind = slice.Switch
			z.segments[n.id] = n.id
		}
		if label := n.values["label"]; slug(label) != label && label != "" {
			node.Labels = map[string]string{"label": label}
		}
		z.out.Nodes[name] = node
	}
	if len(z.out.Nodes) == 0 {
		z.fail(position{}, "", "all nodes belong to other networks (Internal is 0)")
	}
}

// isSwitch reports whether the node stands for an edge with more than two ends, as the Zoo draws VLANs and clouds.
func isSwitch(n *graphNode) bool { return n.values["hyperedge"] == "1" }

// position reads a node's coordinates; nil where there are none, or where they are on no map.
func (z *zoo) position(n *graphNode) *slice.Position {
	lat, long := n.values["latitude"], n.values["longitude"]
	if lat == "" && long == "" {
		return nil
	}
	y, errY := strconv.ParseFloat(lat, 64)
	x, errX := strconv.ParseFloat(long, 64)
	if errY != nil || errX != nil || !(math.Abs(y) <= 90) || !(math.Abs(x) <= 180) {
		z.warn(n.at, "degrees, north and east positive",
			"node %q: latitude %q and longitude %q are no place on Earth; the node gets none",
			n.id, lat, long)
		return nil
	}
	return &slice.Position{Latitude: y, Longitude: x}
}

func (z *zoo) addLinks() {
	for i := range z.graph.edges {
		e := &z.graph.edges[i]
		ends, ok := z.ends(e)
		if !ok {
			continue
		}
		if len(ends) > 2 {
			z.out.Links = append(z.out.Links, topology.Link{Ends: z.endsOf(ends), LAN: true})
			continue
		}
		if e.directed && z.pairs(e) {
			continue
		}
		if z.loops(ends) {
			z.warn(e.at, "", "the link %s - %s would close a loop of switches; it is left out",
				z.names[ends[0]], z.names[ends[1]])
			continue
		}
		l := topology.Link{Ends: z.endsOf(ends)}
		l.Rate, l.Delay = z.rate(e), z.delay(ends)
		z.out.Links = append(z.out.Links, l)
	}
}

// ends checks an edge; ok is false where it cannot be a link.
func (z *zoo) ends(e *graphEdge) (ends []string, ok bool) {
	for _, id := range e.ends {
		_, known := z.names[id]
		switch {
		case known && !slices.Contains(ends, id):
			ends = append(ends, id)
		case known: // a loop, or a hyperedge that names a node twice
		case z.external[id]:
			return nil, false
		default:
			z.fail(e.at, "", "an edge names node %q, which the file does not have", id)
			return nil, false
		}
	}
	if len(ends) < 2 {
		if len(ends) == 1 {
			z.warn(e.at, "", "the link of %s to itself is left out", z.names[ends[0]])
		} else {
			z.warn(e.at, "", "an edge without ends is left out")
		}
		return nil, false
	}
	return ends, true
}

func (z *zoo) endsOf(ids []string) (ends []topology.End) {
	for _, id := range ids {
		ends = append(ends, topology.End(z.names[id]))
	}
	return ends
}

// pairs joins a directed edge with one that goes the other way: together they are one link. It reports whether it
// did; else the edge is a link until its way back comes.
func (z *zoo) pairs(e *graphEdge) bool {
	there, back := [2]string{e.ends[0], e.ends[1]}, [2]string{e.ends[1], e.ends[0]}
	waiting := z.cables[back]
	if len(waiting) == 0 {
		z.cables[there] = append(z.cables[there], len(z.out.Links))
		return false
	}
	l := &z.out.Links[waiting[0]]
	z.cables[back] = waiting[1:]
	if rate := z.rate(e); rate != l.Rate {
		l.From = map[string]topology.Shape{
			z.names[back[0]]:  {Rate: l.Rate},
			z.names[there[0]]: {Rate: rate},
		}
		l.Rate = ""
	}
	return true
}

// loops reports whether a link would close a loop of switches, and joins their segments where it does not.
func (z *zoo) loops(ends []string) bool {
	if !isSwitch(z.byID[ends[0]]) || !isSwitch(z.byID[ends[1]]) {
		return false
	}
	find := func(id string) string {
		for z.segments[id] != id {
			id = z.segments[id]
		}
		return id
	}
	a, b := find(ends[0]), find(ends[1])
	z.segments[a] = b
	return a == b
}

// rate is the link's LinkSpeedRaw, in bit/s.
func (z *zoo) rate(e *graphEdge) topology.Rate {
	if !z.opt.Rate {
		return ""
	}
	raw := e.values["linkspeedraw"]
	if raw == "" {
		z.unrated++
		return ""
	}
	bits, err := strconv.ParseFloat(raw, 64)
	if err == nil {
		r := file.RateOf(unit.Rate(math.Round(math.Max(0, math.Min(bits, 1e18)))))
		if _, rangeErr := r.Bits(); rangeErr == nil && bits >= 1 {
			return r
		}
	}
	z.warn(e.at, "", "LinkSpeedRaw %q is no rate between 8 bit/s and 1 Tbit/s; the link is not limited", raw)
	return ""
}

// Light in fibre travels at about two thirds of its speed in vacuum, 5 µs a kilometre: the group index of silica is
// near 1.47 (ITU-T G.652). Real cables are longer than the great circle.
const (
	fibreSpeed  = 299_792.458 * 2 / 3 // km/s
	earthRadius = 6371.0088           // km, mean (IUGG)
)

func (z *zoo) delay(ends []string) topology.Duration {
	if !z.opt.Delay {
		return ""
	}
	a, b := z.out.Nodes[z.names[ends[0]]].Position, z.out.Nodes[z.names[ends[1]]].Position
	if a == nil || b == nil {
		z.unplaced++
		return ""
	}
	delay := time.Duration(distance(*a, *b) / fibreSpeed * float64(time.Second)).Round(time.Microsecond)
	if delay == 0 {
		return ""
	}
	return file.DurationOf(delay)
}

// distance is the length of the great circle in km, by the haversine formula.
func distance(a, b slice.Position) float64 {
	const degree = math.Pi / 180
	sinLat, sinLong := math.Sin((b.Latitude-a.Latitude)*degree/2), math.Sin((b.Longitude-a.Longitude)*degree/2)
	h := sinLat*sinLat + math.Cos(a.Latitude*degree)*math.Cos(b.Latitude*degree)*sinLong*sinLong
	return 2 * earthRadius * math.Asin(math.Sqrt(math.Min(h, 1)))
}

// sum warns once of what many links lack.
func (z *zoo) sum() {
	n := len(z.out.Links)
	if z.unrated > 0 {
		z.warn(position{}, "", "%s of %d have no LinkSpeedRaw; they are not limited",
			wording.Count(z.unrated, "link"), n)
	}
	if z.unplaced > 0 {
		z.warn(position{}, "", "%s of %d lack coordinates at an end; they have no delay",
			wording.Count(z.unplaced, "link"), n)
	}
}
