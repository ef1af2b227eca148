package program

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"

	"github.com/pergola-net/pergola/bench/scratch"
	"github.com/pergola-net/pergola/datapath/program"
	"github.com/pergola-net/pergola/examples"
	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/lab/vnet"
	"github.com/pergola-net/pergola/model/slice"
)

// directories is where runs have theirs.
const directories = "/tmp/pgprogram-*"

// platform is a host network for packet programs.
type platform struct {
	*vnet.Platform
	dir  string
	undo undo.Steps
}

func openPlatform(ctx context.Context) (_ *platform, err error) {
	if err := scratch.Collect(ctx, directories, scratch.HostNetwork); err != nil {
		return nil, fmt.Errorf("remove what a run that was killed left: %w", err)
	}
	g := &platform{}
	defer g.undo.OnError(&err)
	dir, err := scratch.New(directories)
	if err != nil {
		return nil, err
	}
	g.dir = dir.Path
	g.undo.Push(dir.Remove)
	g.Platform, err = vnet.Open(ctx, dir.Path, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	g.undo.Push(g.Platform.Close)
	return g, nil
}

// row is networks of program nodes between a source and a sink: a row of so many for each slice.
//
//	source ── if1 p0.0 if2 ── if1 p0.1 if2 ── sink
type row struct {
	first   uint16 // number of the network, and of the first slice
	slices  int
	nodes   int  // in each row
	source  bool // the source has line cards
	sink    bool // the sink has
	object  []byte
	objects [][]byte                 // in place of object: one for each slice
	filters func(slice int) []string // of the last node; those of the others lead to the next one
	reserve func(slice int) slice.Reserve
}

// nodeName is that of node number i of a slice's row.
func nodeName(slice, i int) string { return fmt.Sprintf("p%d.%d", slice, i) }

const (
	sourceNode = "source"
	sinkNode   = "sink"
	ifIn       = "if1"
	ifOut      = "if2"
)

func (r row) plan() vnet.Plan {
	p := vnet.Plan{Slice: r.first, Nodes: []vnet.NodePlan{{Name: sourceNode}, {Name: sinkNode}}}
	for s := range r.slices {
		near := vnet.End{Node: sourceNode, Interface: endDevice(s), MAC: sourceMAC, NIC: r.source,
			Addresses: []netip.Prefix{netip.PrefixFrom(sourceAddress(s), 24)}}
		gateway := sourceAddress(s).Next()
		p.Nodes[0].Neighbours = append(p.Nodes[0].Neighbours,
			vnet.Neighbour{Interface: endDevice(s), Address: gateway, MAC: inMAC})
		p.Nodes[0].Routes = append(p.Nodes[0].Routes, vnet.Route{
			To: netip.PrefixFrom(sinkAddress(s), 24).Masked(), Hops: []vnet.Hop{{Via: gateway}}})
		for i := range r.nodes {
			p.Nodes = append(p.Nodes, vnet.NodePlan{Name: nodeName(s, i)})
			p.Links = append(p.Links, vnet.LinkPlan{Ends: []vnet.End{near, r.end(s, i, ifIn)}})
			near = r.end(s, i, ifOut)
		}
		p.Links = append(p.Links, vnet.LinkPlan{Ends: []vnet.End{near, {
			Node: sinkNode, Interface: endDevice(s), MAC: sinkMAC, NIC: r.sink,
			Addresses: []netip.Prefix{netip.PrefixFrom(sinkAddress(s), 24)}}}})
		p.Nodes[1].Neighbours = append(p.Nodes[1].Neighbours,
			vnet.Neighbour{Interface: endDevice(s), Address: sinkAddress(s).Next(), MAC: outMAC})
	}
	return p
}

func (r row) end(s, i int, name string) vnet.End {
	return vnet.End{Node: nodeName(s, i), Interface: name}
}

// build makes a row: hosts, nodes, and a packet program in each node.
func (g *platform) build(ctx context.Context, r row) (_ *vnet.Network, err error) {
	n, err := g.New(ctx, r.plan())
	if err != nil {
		return nil, err
	}
	var steps undo.Steps
	defer steps.OnError(&err)
	steps.Push(n.Close)
	if err := n.FastPath(ctx, true); err != nil {
		return nil, err
	}
	for s := range r.slices {
		for i := range r.nodes {
			if err := g.setProgram(ctx, n, r, s, i); err != nil {
				return nil, err
			}
			full := r.programName(s, i)
			steps.Push(func() error { return g.HostNetwork.DeleteProgram(context.Background(), full) })
		}
	}
	g.undo.Push(steps.Run)
	return n, nil
}

// programName is that of the packet program of a node.
func (r row) programName(s, i int) string { return fmt.Sprintf("bench%d.%s", r.first, nodeName(s, i)) }

// setProgram gives a node its packet program, or changes what goes with it.
func (g *platform) setProgram(ctx context.Context, n *vnet.Network, r row, s, i int) error {
	name := nodeName(s, i)
	p := wire.Program{
		Slice: r.first + uint16(s), File: "ipv4.c", Object: r.object, Digest: "bench",
		Filters: routes(s), Ports: []string{n.Port(name, ifIn), n.Port(name, ifOut)},
		SlowPath: slice.SlowInterface,
	}
	if r.objects != nil {
		p.Object = r.objects[s]
	}
	if r.filters != nil {
		p.Filters = r.filters(s)
	}
	if r.reserve != nil {
		p.Reserve = r.reserve(s)
	}
	if err := g.HostNetwork.SetProgram(ctx, r.programName(s, i), p); err != nil {
		return fmt.Errorf("set the program of %s: %w", name, err)
	}
	return nil
}

// routes are the filters of a router that is ipv4.c: forward, and back.
func routes(s int) []string {
	to := func(a netip.Addr, iface int, to, from net.HardwareAddr) string {
		return fmt.Sprintf("destination=%s -> send %d args %x%x", netip.PrefixFrom(a, 24).Masked(), iface,
			[]byte(to), []byte(from))
	}
	return []string{to(sinkAddress(s), 2, sinkMAC, outMAC), to(sourceAddress(s), 1, sourceMAC, inMAC)}
}

// compile compiles an example.
func (g *platform) compile(ctx context.Context, name string) ([]byte, error) {
	source, err := examples.WriteProgram(g.dir, name)
	if err != nil {
		return nil, err
	}
	return program.Build(ctx, source)
}

// endsOf are the ends of a row.
func endsOf(n *vnet.Network) ends { return ends{n.Nodes[sourceNode].NS, n.Nodes[sinkNode].NS} }
