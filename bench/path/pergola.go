package path

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/pergola-net/pergola/bench/scratch"
	"github.com/pergola-net/pergola/lab/vnet"
)

// pergola makes chains of Pergola's own ports and wires, on a platform of their own.
type pergola struct {
	dir      scratch.Dir
	platform *vnet.Platform
	slices   uint16 // made so far
}

func openPergola(ctx context.Context) (*pergola, error) {
	dir, err := scratch.New(directories())
	if err != nil {
		return nil, err
	}
	g, err := vnet.Open(ctx, dir.Path, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	return &pergola{dir: dir, platform: g}, nil
}

func (p *pergola) close() error { return errors.Join(p.platform.Close(), p.dir.Remove()) }

// fast makes chains whose frames walk, or do not.
func (p *pergola) fast(on bool) pergolaChains { return pergolaChains{p, on} }

type pergolaChains struct {
	*pergola
	walk bool
}

func (p pergolaChains) close() error { return nil } // its chains stand on the platform of others

func (p pergolaChains) hosts(ctx context.Context, routers int) (*Chain, error) {
	c, _, err := p.chain(ctx, routers)
	return c, err
}

// nics makes a chain with a line card at the ports of both hosts: what the hosts send there with XDP comes as from a
// wire.
func (p pergolaChains) nics(ctx context.Context, routers int) (*Chain, error) {
	c, n, err := p.chain(ctx, routers)
	if err != nil {
		return nil, err
	}
	if err := p.lineCards(n, routers); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (p pergolaChains) chain(ctx context.Context, routers int) (*Chain, *vnet.Network, error) {
	p.slices++
	n, err := p.platform.New(ctx, plan(p.slices, routers))
	if err != nil {
		return nil, nil, err
	}
	c := &Chain{Routers: routers, settle: func(ctx context.Context) error { return n.InStep(ctx) }}
	c.undo.Push(n.Close)
	c.Left, c.Right = ends(n.Nodes[node(0)].NS, n.Nodes[node(routers+1)].NS, routers)
	if routers > 0 {
		c.First = n.Nodes[node(1)].NS
	}
	if p.walk {
		err = n.FastPath(ctx, true)
	}
	if err == nil && p.walk {
		err = n.InStep(ctx)
	}
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return c, n, nil
}

func node(i int) string { return fmt.Sprintf("n%d", i) }

// plan is the chain in vnet's words.
func plan(slice uint16, routers int) vnet.Plan {
	p := vnet.Plan{Slice: slice}
	for i := range routers + 2 {
		n := vnet.NodePlan{Name: node(i), Router: i > 0 && i <= routers}
		for _, r := range routesOf(i, routers) {
			n.Routes = append(n.Routes, vnet.Route{To: r.to, Hops: []vnet.Hop{{Via: r.via}}})
		}
		p.Nodes = append(p.Nodes, n)
	}
	for i := range routers + 1 {
		p.Links = append(p.Links, vnet.LinkPlan{Ends: []vnet.End{planEnd(i, 0), planEnd(i, 1)}})
	}
	return p
}

func planEnd(link, end int) vnet.End {
	device := rightDevice
	if end == 1 {
		device = leftDevice
	}
	return vnet.End{
		Node: node(link + end), Interface: device, MAC: mac(link, end),
		Addresses: []netip.Prefix{netip.PrefixFrom(address(link, end), subnet(link).Bits())},
	}
}
