package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/pergola-net/pergola/bench/traffic"
	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/lab/vnet"
	"github.com/pergola-net/pergola/model/slice"
)

// pair is two machines with a wire between them: their addresses are outside(2, 1) and outside(2, 2).
type pair struct {
	ns   [2]*os.File
	undo undo.Steps
}

const (
	pairSide = 2
	pairNIC  = "eth0"
)

// pairVariants are the variants between two machines, in the order of tables.
var pairVariants = []Variant{Native, Beside, Bridged, BridgedBeside, VXLAN, EGRE, VXLANByTC, EGREByTC}

// path leads from a node of the first machine, or from itself, to one of the second.
type path struct {
	from, to *os.File
	address  netip.Addr // at the far end
}

func newPair() (*pair, error) {
	p := &pair{}
	for i := range p.ns {
		var err error
		if p.ns[i], err = newNamespace(); err != nil {
			return p, err
		}
		p.undo.Push(p.ns[i].Close)
	}
	return p, lay(nic{p.ns[0], pairNIC, outside(pairSide, 1)}, nic{p.ns[1], pairNIC, outside(pairSide, 2)})
}

// addPairs makes pairs whose kernels do all, and pairs with Pergola.
func (b *bench) addPairs(ctx context.Context) error {
	paths := map[Variant]path{}
	if err := b.addKernels(ctx, paths); err != nil {
		return err
	}
	platforms, err := b.addNodes(ctx, paths, false, VXLAN, EGRE)
	if err != nil {
		return err
	}
	if _, err := b.addNodes(ctx, paths, true, VXLANByTC, EGREByTC); err != nil {
		return err
	}
	for _, w := range pairVariants {
		if err := b.add(ctx, Key{Measure: Trip, Variant: w}, paths[w].trip); err != nil {
			return err
		}
	}
	for _, w := range pairVariants { // a window is of a second at least, and frames come through
		b.probes = append(b.probes, &probe{Series{Key: Key{Measure: TCP, Variant: w}}, paths[w].tcp})
	}
	if err := b.addChains(ctx); err != nil {
		return err
	}
	return b.addIsolation(ctx, platforms)
}

// addKernels makes pairs of machines whose kernels do all: one as it is, and one whose interfaces have line cards.
func (b *bench) addKernels(ctx context.Context, paths map[Variant]path) error {
	for _, variants := range [][2]Variant{{Native, Bridged}, {Beside, BridgedBeside}} {
		p, err := newPair()
		b.undo.Push(p.undo.Run)
		if err != nil {
			return err
		}
		if variants[0] == Beside {
			if _, err := p.openPlatforms(ctx, false); err != nil {
				return err
			}
		}
		paths[variants[0]] = path{p.ns[0], p.ns[1], outside(pairSide, 2)}
		if paths[variants[1]], err = p.containers(); err != nil {
			return err
		}
	}
	return nil
}

func (p *pair) openPlatforms(ctx context.Context, noXDP bool) (platforms [2]*platform, err error) {
	for i, ns := range p.ns {
		if platforms[i], err = openPlatform(ctx, ns, noXDP, pairNIC); err != nil {
			return platforms, err
		}
		p.undo.Push(platforms[i].undo.Run)
	}
	return platforms, nil
}

// addNodes makes a pair of machines with Pergola, and on them nodes that VXLAN joins, and nodes that EGRE joins.
func (b *bench) addNodes(ctx context.Context, paths map[Variant]path, noXDP bool, vxlan, egre Variant) (
	platforms [2]*platform, err error,
) {
	p, err := newPair()
	b.undo.Push(p.undo.Run)
	if err != nil {
		return platforms, err
	}
	if platforms, err = p.openPlatforms(ctx, noXDP); err != nil {
		return platforms, err
	}
	for number, kind := range []slice.TunnelKind{slice.VXLAN, slice.EGRE} {
		v := []Variant{vxlan, egre}[number]
		if paths[v], err = nodes(ctx, platforms, uint16(number+1), kind, slice.Shape{}); err != nil {
			return platforms, fmt.Errorf("join nodes of two machines by %s: %w", kind, err)
		}
	}
	return platforms, nil
}

// containers are joined by kernels' VXLAN devices and bridges.
func (p *pair) containers() (path, error) {
	var in [2]*os.File
	for i := range p.ns {
		var err error
		if in[i], err = newNamespace(); err != nil {
			return path{}, err
		}
		p.undo.Push(in[i].Close)
		v := kernelVXLAN{
			vni: 1, local: outside(pairSide, 1+i), peer: outside(pairSide, 2-i),
			inside: in[i], own: inner(pairSide, 1+i), other: inner(pairSide, 2-i),
		}
		if err := v.connect(p.ns[i], true); err != nil {
			return path{}, err
		}
	}
	return path{in[0], in[1], inner(pairSide, 2)}, nil
}

// nodes are a slice's, one on each machine, with a link between them that may have a rate.
func nodes(ctx context.Context, platforms [2]*platform, number uint16, kind slice.TunnelKind,
	shape slice.Shape,
) (path, error) {
	var in [2]*os.File
	for i, g := range platforms {
		n := farNode{number: number, own: inner(pairSide, 1+i), other: inner(pairSide, 2-i), shape: shape}
		var err error
		if in[i], err = g.addFarNode(ctx, n,
			tunnel(kind, number, 0, outside(pairSide, 1+i), outside(pairSide, 2-i))); err != nil {
			return path{}, err
		}
	}
	return path{in[0], in[1], inner(pairSide, 2)}, nil
}

// farNode is a slice's node whose only link leads into a tunnel.
type farNode struct {
	number     uint16 // of the slice
	own, other netip.Addr
	routes     []vnet.Route
	shape      slice.Shape // of what it sends
}

func (g *platform) addFarNode(ctx context.Context, f farNode, t wire.Tunnel) (*os.File, error) {
	const node = "n"
	n, err := g.add(ctx, vnet.Plan{
		Slice: f.number,
		Nodes: []vnet.NodePlan{{Name: node,
			Neighbours: []vnet.Neighbour{{Interface: pairNIC, Address: f.other, MAC: mac(f.other)}},
			Routes:     f.routes}},
		Links: []vnet.LinkPlan{{Ends: []vnet.End{{
			Node: node, Interface: pairNIC, MTU: t.MTU, MAC: mac(f.own),
			Addresses: []netip.Prefix{net24(f.own)},
		}}}},
	})
	if err != nil {
		return nil, err
	}
	port := n.Port(node, pairNIC)
	if err := errors.Join(g.HostNetwork.AddTunnel(ctx, t), g.HostNetwork.Join(ctx, port, t.Name)); err != nil {
		return nil, err
	}
	if !f.shape.IsZero() {
		if err := g.HostNetwork.Shape(ctx, port, wire.FromNode, f.shape); err != nil {
			return nil, err
		}
	}
	return n.Nodes[node].NS, nil
}

func (p path) trip(_ context.Context, d time.Duration) (float64, error) {
	took, _, err := traffic.RoundTrip(p.from, traffic.ICMP, p.address, core, d)
	return took.Seconds(), err
}

func (p path) tcp(ctx context.Context, d time.Duration) (float64, error) {
	return traffic.TCP(ctx, p.from, p.to, p.address, d) // of a second at least
}
