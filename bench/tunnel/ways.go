package tunnel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/pergola-net/pergola/agent/wire"
	"github.com/pergola-net/pergola/bench/vnet"
	"github.com/pergola-net/pergola/netns"
	"github.com/pergola-net/pergola/slice"
)

// open makes of a machine what a way needs.
func (b *bench) open(ctx context.Context, m *machine, w Way) (road, error) {
	switch w {
	case Native:
		return m.native()
	case Beside:
		p, err := m.pergola(ctx, 1)
		if err != nil {
			return road{}, errors.Join(err, p.close())
		}
		m.undo.push(p.close)
		return m.native()
	case VXLAN:
		return m.vxlan()
	case EGRE, Many:
		routers := 1
		if w == Many {
			routers = many
		}
		p, err := m.pergola(ctx, routers)
		if err != nil {
			return road{}, errors.Join(err, p.close())
		}
		m.undo.push(p.close)
		if w == Many {
			b.result.SetUp, b.result.Tunnels = p.took, 2*routers
		}
		return road{[6]byte(mac(inner(0, 2))), [6]byte(mac(inner(0, 1))), greHeaders(key(routers/2, 0))}, nil
	}
	return road{}, fmt.Errorf("there is no way %q", w)
}

// native lets the machine's kernel forward what is for the network within.
func (m *machine) native() (road, error) {
	err := netns.In(m.ns, func() error {
		to := net24(inner(1, 0)).Masked()
		return errors.Join(forward(), netlink.RouteAdd(&netlink.Route{Dst: ipNet(to), Gw: outside(1, 2).AsSlice()}))
	})
	return road{[6]byte(mac(outside(0, 2))), [6]byte(mac(outside(0, 1))), noTunnel}, err
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), 32)}
}

// vxlan makes a router whose interfaces are VXLAN devices of the machine's kernel.
func (m *machine) vxlan() (road, error) {
	var router *os.File
	err := netns.New(func() (err error) {
		if router, err = netns.Here(); err == nil {
			err = forward()
		}
		return err
	})
	if err != nil {
		return road{}, err
	}
	m.undo.push(router.Close)
	for side := range 2 {
		name := fmt.Sprintf("vxlan%d", side)
		err := netns.In(m.ns, func() error {
			device := &netlink.Vxlan{
				LinkAttrs: netlink.LinkAttrs{Name: name, MTU: 1500, HardwareAddr: mac(inner(side, 1))},
				VxlanId:   side + 1, SrcAddr: outside(side, 1).AsSlice(), Group: outside(side, 2).AsSlice(), Port: vxlanPort,
			}
			if err := netlink.LinkAdd(device); err != nil {
				return err
			}
			return netlink.LinkSetNsFd(device, int(router.Fd()))
		})
		if err == nil {
			err = netns.In(router, func() error { return setUp(name, net24(inner(side, 1)), inner(side, 2)) })
		}
		if err != nil {
			return road{}, fmt.Errorf("make %s: %w", name, err)
		}
	}
	return road{[6]byte(mac(inner(0, 2))), [6]byte(mac(inner(0, 1))), vxlanHeaders(1)}, nil
}

// pergola is a substrate with routers, each between two tunnels.
type pergola struct {
	dir  string
	undo undo
	took time.Duration // to make the tunnels and to join them
}

func (p *pergola) close() error { return errors.Join(p.undo.run(), os.RemoveAll(p.dir)) }

func (m *machine) pergola(ctx context.Context, routers int) (p *pergola, err error) {
	p = &pergola{}
	if p.dir, err = os.MkdirTemp("/tmp", "pgtunnel"); err != nil {
		return p, err
	}
	var ground *vnet.Ground
	err = netns.In(m.ns, func() error { // the machine's namespace is that of who opens the substrate
		ground, err = vnet.Open(ctx, p.dir, slog.New(slog.DiscardHandler))
		return err
	})
	if err != nil {
		return p, err
	}
	p.undo.push(ground.Close)
	if err := ground.Substrate.OpenUnderlay(ctx, wire.UnderlayConfig{Interfaces: []string{inNIC, outNIC}}); err != nil {
		return p, err
	}
	plan := vnet.Plan{Slice: 1}
	for r := range routers {
		plan.Nodes = append(plan.Nodes, routerPlan(r))
	}
	for r := range routers {
		for side := range 2 {
			plan.Nodes = append(plan.Nodes, vnet.NodePlan{Name: remote(r, side)})
			plan.Links = append(plan.Links, linkPlan(r, side))
		}
	}
	network, err := ground.New(ctx, plan)
	if err != nil {
		return p, err
	}
	p.undo.push(network.Close)
	begun := time.Now()
	for r := range routers {
		for side := range 2 {
			if err := addTunnel(ctx, ground.Substrate, network, r, side); err != nil {
				return p, err
			}
		}
	}
	p.took = time.Since(begun)
	if err := network.FastPath(ctx, true); err != nil {
		return p, err
	}
	return p, network.InStep(ctx)
}

func routerName(r int) string   { return fmt.Sprintf("r%d", r) }
func remote(r, side int) string { return fmt.Sprintf("s%d-%d", r, side) }
func device(side int) string    { return fmt.Sprintf("eth%d", side) }

func key(r, side int) uint32 { return uint32(1<<12 | (2*r + side + 1)) }

// routerPlan has the addresses that the frames are for; its neighbours are at the other ends of the tunnels.
func routerPlan(r int) vnet.NodePlan {
	n := vnet.NodePlan{Name: routerName(r), Router: true}
	for side := range 2 {
		n.Neighbours = append(n.Neighbours, vnet.Neighbour{Interface: device(side), Address: inner(side, 2), MAC: mac(inner(side, 2))})
	}
	return n
}

// linkPlan joins a router's interface to one of a node on another machine, in whose place a tunnel comes.
func linkPlan(r, side int) vnet.LinkPlan {
	return vnet.LinkPlan{Ends: []vnet.End{
		{Node: routerName(r), Interface: device(side), MAC: mac(inner(side, 1)), Addresses: []netip.Prefix{net24(inner(side, 1))}},
		{Node: remote(r, side), Interface: "eth0", MAC: mac(inner(side, 2))},
	}}
}

func addTunnel(ctx context.Context, s *wire.Substrate, n *vnet.Network, r, side int) error {
	const first = 20000 // number of a port: those of the network begin at 1
	t := wire.Tunnel{
		Name: slice.PortName(1, uint16(first+2*r+side)), Slice: 1, Owner: "bench/" + routerName(r), Digest: "bench",
		Kind: slice.EGRE, Key: key(r, side), Local: outside(side, 1), Peer: outside(side, 2), MTU: 1500,
	}
	if err := s.AddTunnel(ctx, t); err != nil {
		return err
	}
	return s.Join(ctx, n.Port(routerName(r), device(side)), t.Name)
}
