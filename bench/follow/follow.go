// Package follow measures how closely the fast path follows the kernels that it stands for: for how long frames are
// lost when a link fails, and what memory the mirrors of many routers take.
package follow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"

	"github.com/pergola-net/pergola/bench/scratch"
	"github.com/pergola-net/pergola/lab/vnet"
)

const directories = "/tmp/pgfollow-*"

// open makes a platform in a directory of its own, when what runs left that were killed is gone.
func open(ctx context.Context) (g *vnet.Platform, closeIt func() error, err error) {
	if err := scratch.Collect(ctx, directories, scratch.HostNetwork); err != nil {
		return nil, nil, fmt.Errorf("remove what a run that was killed left: %w", err)
	}
	dir, err := scratch.New(directories)
	if err != nil {
		return nil, nil, err
	}
	if g, err = vnet.Open(ctx, dir.Path, slog.New(slog.DiscardHandler)); err != nil {
		return nil, nil, errors.Join(err, dir.Remove())
	}
	return g, func() error { return errors.Join(g.Close(), dir.Remove()) }, nil
}

// walked fails where the kernel of a router still forwards: what is measured would be said of the fast path, and be
// the kernel's.
func walked(n *vnet.Network) error {
	for _, p := range n.Plan.Nodes {
		if !p.Router {
			continue
		}
		s, err := n.Status(p.Name)
		if err == nil && !s.IPv4.FastPath {
			err = errors.New(strings.Join(s.IPv4.Why, ", "))
		}
		if err != nil {
			return fmt.Errorf("put %s on the fast path: %w", p.Name, err)
		}
	}
	return nil
}

// Links are numbered; their ends are 0 and 1. 198.18.0.0/15 is for benchmarks (RFC 2544).
func address(link, end int) netip.Addr {
	return netip.AddrFrom4([4]byte{198, 18 + byte(link>>8), byte(link), byte(1 + end)})
}

func subnet(link int) netip.Prefix { return netip.PrefixFrom(address(link, 0), 24).Masked() }

func mac(link, end int) net.HardwareAddr {
	return net.HardwareAddr{2, 0, 0, byte(link >> 8), byte(link), byte(1 + end)}
}

// join adds a link between two nodes to a plan; they know each other's MAC address from the beginning.
func join(p *vnet.Plan, names ...string) {
	var l vnet.LinkPlan
	number := len(p.Links)
	for end, name := range names {
		l.Ends = append(l.Ends, vnet.End{
			Node: name, Interface: device(number), MAC: mac(number, end),
			Addresses: []netip.Prefix{netip.PrefixFrom(address(number, end), 24)},
		})
		n := p.Node(name)
		n.Neighbours = append(n.Neighbours,
			vnet.Neighbour{Interface: device(number), Address: address(number, 1-end),
				MAC: mac(number, 1-end)})
	}
	p.Links = append(p.Links, l)
}

func device(link int) string { return fmt.Sprintf("eth%d", link) }
