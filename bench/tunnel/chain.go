package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/vnet"
	"github.com/pergola-net/pergola/model/slice"
)

// Between the nodes of a chain is a machine more than between those of a pair, with a router on it: what that adds to
// the round trip is what each further tunnel adds.
//
//	node ── left ══ in │ router │ out ══ right ── node

// chainVariants are the variants along a chain.
var chainVariants = []Variant{Native, Bridged, VXLAN, EGRE}

func (b *bench) addChains(ctx context.Context) error {
	for _, w := range chainVariants {
		m, err := newMachine()
		b.undo.Push(m.undo.Run)
		if err != nil {
			return err
		}
		p, err := b.chain(ctx, m, w)
		if err != nil {
			return fmt.Errorf("join nodes of two machines by a third (%s): %w", w, err)
		}
		if err := b.add(ctx, Key{Measure: Far, Variant: w}, p.trip); err != nil {
			return err
		}
	}
	return nil
}

// chain makes the three machines, and gives the path from one end to the other.
func (b *bench) chain(ctx context.Context, m *machine, w Variant) (path, error) {
	switch w {
	case Native:
		return m.nativeChain()
	case Bridged:
		return m.containerChain()
	case VXLAN:
		return b.pergolaChain(ctx, m, slice.VXLAN)
	case EGRE:
		return b.pergolaChain(ctx, m, slice.EGRE)
	case Beside, Direct, OVS, LAN, One, BridgedBeside, VXLANByTC, EGREByTC, Alone, Flooded:
	}
	return path{}, fmt.Errorf("there is no variant %q", w)
}

func (m *machine) ends() [2]end { return [2]end{m.left, m.right} }

func (m *machine) nativeChain() (path, error) {
	if err := netns.In(m.ns, forward); err != nil {
		return path{}, err
	}
	for side, e := range m.ends() {
		if err := routeVia(e.ns, net24(outside(1-side, 0)), outside(side, 1)); err != nil {
			return path{}, err
		}
	}
	return path{m.left.ns, m.right.ns, outside(1, 2)}, nil
}

func routeVia(ns *os.File, to netip.Prefix, gateway netip.Addr) error {
	return netns.In(ns, func() error {
		return netlink.RouteAdd(&netlink.Route{Dst: ipNet(to.Masked()), Gw: gateway.AsSlice()})
	})
}

func (m *machine) containerChain() (path, error) {
	if _, err := m.container(true); err != nil {
		return path{}, err
	}
	var in [2]*os.File
	for side, e := range m.ends() {
		var err error
		if in[side], err = newNamespace(); err != nil {
			return path{}, err
		}
		m.undo.Push(in[side].Close)
		v := kernelVXLAN{
			vni: uint32(side + 1), local: outside(side, 2), peer: outside(side, 1), inside: in[side],
			own: inner(side, 2), other: inner(side, 1),
		}
		err = errors.Join(v.connect(e.ns, true), routeVia(in[side], net24(inner(1-side, 0)), inner(side, 1)))
		if err != nil {
			return path{}, err
		}
	}
	return path{in[0], in[1], inner(1, 2)}, nil
}

func (b *bench) pergolaChain(ctx context.Context, m *machine, kind slice.TunnelKind) (path, error) {
	const number = 1
	if _, err := b.pergola(ctx, m, routers{kind: kind, slices: number}); err != nil {
		return path{}, err
	}
	var in [2]*os.File
	for side, e := range m.ends() {
		g, err := openPlatform(ctx, e.ns, false, far)
		if err != nil {
			return path{}, err
		}
		m.undo.Push(g.undo.Run)
		own, router := inner(side, 2), inner(side, 1)
		n := farNode{
			number: number, own: own, other: router,
			routes: []vnet.Route{{To: net24(inner(1-side, 0)).Masked(),
				Hops: []vnet.Hop{{Via: router, Interface: pairNIC}}}},
		}
		if in[side], err = g.addFarNode(ctx, n,
			tunnel(kind, number, side, outside(side, 2), outside(side, 1))); err != nil {
			return path{}, err
		}
	}
	return path{in[0], in[1], inner(1, 2)}, nil
}
