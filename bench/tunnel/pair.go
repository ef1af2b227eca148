package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/pergola-net/pergola/agent/wire"
	"github.com/pergola-net/pergola/bench/traffic"
	"github.com/pergola-net/pergola/bench/vnet"
	"github.com/pergola-net/pergola/slice"
	"github.com/pergola-net/pergola/undo"
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

// pairWays are the ways between two machines, in the order of tables.
var pairWays = []Way{Native, Bridged, VXLAN, EGRE}

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

// addPairs makes a pair whose kernels do all, and one with Pergola.
func (b *bench) addPairs(ctx context.Context) error {
	plain, err := newPair()
	b.undo.Push(plain.undo.Run)
	if err != nil {
		return err
	}
	containers, err := plain.containers()
	if err != nil {
		return err
	}
	ours, err := newPair()
	b.undo.Push(ours.undo.Run)
	if err != nil {
		return err
	}
	var grounds [2]*ground
	for i, ns := range ours.ns {
		if grounds[i], err = openGround(ctx, ns, pairNIC); err != nil {
			return err
		}
		ours.undo.Push(grounds[i].undo.Run)
	}
	paths := map[Way]path{Native: {plain.ns[0], plain.ns[1], outside(pairSide, 2)}, Bridged: containers}
	for number, kind := range []slice.TunnelKind{slice.VXLAN, slice.EGRE} {
		way := []Way{VXLAN, EGRE}[number]
		if paths[way], err = nodes(ctx, grounds, uint16(number+1), kind, slice.Shape{}); err != nil {
			return fmt.Errorf("join nodes of two machines by %s: %w", kind, err)
		}
	}
	for _, w := range pairWays {
		if err := b.add(ctx, Key{Measure: Trip, Way: w}, paths[w].trip); err != nil {
			return err
		}
	}
	for _, w := range pairWays { // a window is of a second at least, and frames come through
		b.probes = append(b.probes, &probe{Series{Key: Key{Measure: TCP, Way: w}}, paths[w].tcp})
	}
	return b.addIsolation(ctx, grounds)
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
func nodes(ctx context.Context, grounds [2]*ground, number uint16, kind slice.TunnelKind, shape slice.Shape) (path, error) {
	const node = "n"
	var in [2]*os.File
	for i, g := range grounds {
		own, other := inner(pairSide, 1+i), inner(pairSide, 2-i)
		n, err := g.add(ctx, vnet.Plan{
			Slice: number, Nodes: []vnet.NodePlan{{Name: node, Neighbours: []vnet.Neighbour{{Interface: pairNIC, Address: other, MAC: mac(other)}}}},
			Links: []vnet.LinkPlan{{Ends: []vnet.End{{
				Node: node, Interface: pairNIC, MTU: nicMTU - kind.Overhead(false), MAC: mac(own), Addresses: []netip.Prefix{net24(own)},
			}}}},
		})
		if err != nil {
			return path{}, err
		}
		in[i] = n.Nodes[node].NS
		t, port := tunnel(kind, number, 0, outside(pairSide, 1+i), outside(pairSide, 2-i)), n.Port(node, pairNIC)
		if err := errors.Join(g.Substrate.AddTunnel(ctx, t), g.Substrate.Join(ctx, port, t.Name)); err != nil {
			return path{}, err
		}
		if shape != (slice.Shape{}) {
			if err := g.Substrate.Shape(ctx, port, wire.FromNode, shape); err != nil {
				return path{}, err
			}
		}
	}
	return path{in[0], in[1], inner(pairSide, 2)}, nil
}

func (p path) trip(_ context.Context, d time.Duration) (float64, error) {
	took, _, err := traffic.RoundTrip(p.from, traffic.ICMP, p.address, core, d)
	return took.Seconds(), err
}

func (p path) tcp(ctx context.Context, d time.Duration) (float64, error) {
	return traffic.TCP(ctx, p.from, p.to, p.address, d) // of a second at least
}
