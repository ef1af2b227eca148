package tunnel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pergola-net/pergola/bench/scratch"
	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/vnet"
	"github.com/pergola-net/pergola/model/slice"
)

// platform is a machine's substrate, with the networks of slices on it.
type platform struct {
	*vnet.Platform
	undo undo.Steps
}

// openPlatform makes one in a machine's namespace, whose NICs carry tunnels, and have line cards unless noXDP.
func openPlatform(ctx context.Context, ns *os.File, noXDP bool, nics ...string) (_ *platform, err error) {
	g := &platform{}
	defer g.undo.OnError(&err)
	dir, err := scratch.New(directories)
	if err != nil {
		return nil, err
	}
	g.undo.Push(dir.Remove)
	err = netns.In(ns, func() error { // the machine's namespace is that of the caller that opens the host network
		g.Platform, err = vnet.Open(ctx, dir.Path, slog.New(slog.DiscardHandler))
		return err
	})
	if err != nil {
		return nil, err
	}
	g.undo.Push(g.Platform.Close)
	return g, g.HostNetwork.OpenUnderlay(ctx, wire.UnderlayConfig{Interfaces: nics, NoXDP: noXDP})
}

// add makes the network of a slice.
func (g *platform) add(ctx context.Context, plan vnet.Plan) (*vnet.Network, error) {
	n, err := g.New(ctx, plan)
	if err == nil {
		g.undo.Push(n.Close)
	}
	return n, err
}

// tunnel describes one that takes the place of an interface of another machine's node.
func tunnel(kind slice.TunnelKind, number uint16, side int, local, peer netip.Addr) wire.Tunnel {
	const first = 20000 // number of a port: those of networks begin at 1
	return wire.Tunnel{
		Name: slice.PortName(number, uint16(first+side)), Slice: number,
		Owner: fmt.Sprintf("bench%d/far:eth%d", number, side), Digest: "bench",
		Kind: kind, Key: key(int(number), side), Local: local, Peer: peer, MTU: nicMTU - kind.Overhead(false),
	}
}

// key is that of a slice's tunnel, as the agent makes it.
func key(slice, side int) uint32 { return uint32(slice<<12 | (side + 1)) }

func device(side int) string { return fmt.Sprintf("eth%d", side) }

// routers are slices with one router each, which is between two tunnels. All have the same addresses.
type routers struct {
	kind   slice.TunnelKind
	lan    bool // links are LANs
	slices int
}

const router = "r"

func (r routers) plan(number int) vnet.Plan {
	p := vnet.Plan{Slice: uint16(number), Nodes: []vnet.NodePlan{{Name: router, Router: true}}}
	for side := range 2 {
		p.Nodes[0].Neighbours = append(p.Nodes[0].Neighbours,
			vnet.Neighbour{Interface: device(side), Address: inner(side, 2), MAC: mac(inner(side, 2))})
		p.Links = append(p.Links, vnet.LinkPlan{LAN: r.lan, Ends: []vnet.End{{
			Node: router, Interface: device(side), MTU: nicMTU - r.kind.Overhead(false),
			MAC:       mac(inner(side, 1)),
			Addresses: []netip.Prefix{net24(inner(side, 1))},
		}}})
	}
	return p
}

// pergola makes a machine's slices.
func (b *bench) pergola(ctx context.Context, m *machine, r routers) (_ *platform, err error) {
	g, err := openPlatform(ctx, m.ns, false, inNIC, outNIC)
	if err != nil {
		return nil, err
	}
	m.undo.Push(g.undo.Run)
	networks := make([]*vnet.Network, r.slices)
	var making errgroup.Group
	making.SetLimit(runtime.NumCPU())
	for i := range networks {
		making.Go(func() (err error) {
			networks[i], err = g.New(ctx, r.plan(i+1))
			return err
		})
	}
	err = making.Wait()
	for _, n := range networks {
		if n != nil {
			g.undo.Push(n.Close)
		}
	}
	if err == nil {
		err = b.connect(ctx, g, r, networks)
	}
	for _, n := range networks {
		if err == nil {
			err = errors.Join(n.FastPath(ctx, true), n.InStep(ctx))
		}
	}
	return g, err
}

// connect adds all tunnels. Where there are many it does so several times, and notes how long that takes.
func (b *bench) connect(ctx context.Context, g *platform, r routers, networks []*vnet.Network) error {
	times := 1
	if len(networks) > 1 {
		times = min(3, b.Rounds)
	}
	for i := range times {
		begun := time.Now()
		names, err := g.connect(ctx, r, networks)
		if err != nil {
			return err
		}
		if len(networks) == 1 {
			return nil
		}
		b.note(Key{Measure: SetUp, Variant: EGRE, Slices: len(networks)}, time.Since(begun))
		if i+1 == times {
			break
		}
		begun = time.Now()
		if err := g.HostNetwork.DeletePorts(ctx, names...); err != nil {
			return err
		}
		b.note(Key{Measure: Deletion, Variant: EGRE, Slices: len(networks)}, time.Since(begun))
	}
	return nil
}

func (g *platform) connect(ctx context.Context, r routers, networks []*vnet.Network) (names []string, err error) {
	for _, n := range networks {
		for side := range 2 {
			t := tunnel(r.kind, n.Plan.Slice, side, outside(side, 1), outside(side, 2))
			if err := g.HostNetwork.AddTunnel(ctx, t); err != nil {
				return nil, err
			}
			names = append(names, t.Name)
			if r.lan {
				err = g.HostNetwork.Attach(ctx, t.Name, n.Switch(side))
			} else {
				err = g.HostNetwork.Join(ctx, n.Port(router, device(side)), t.Name)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return names, nil
}
