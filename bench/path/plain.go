package path

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/vnet"
)

// plain makes chains of namespaces joined by veth pairs, with nothing between: forwarding as the kernel does it.
type plain struct{}

func (plain) close() error { return nil }

func (plain) hosts(ctx context.Context, routers int) (*Chain, error) { return plainChain(ctx, routers) }

func (plain) nics(ctx context.Context, routers int) (*Chain, error) {
	c, err := plainChain(ctx, routers)
	if err != nil {
		return nil, err
	}
	// A driver hands frames to GRO; a veth does so, and takes frames from XDP at all, only if it is asked to.
	first := c.First
	if first == nil {
		first = c.Right.NS
	}
	if err := vnet.SetOffload(first, leftDevice, vnet.GRO, true); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func in(ns *os.File, f func() error) error { return netns.In(ns, f) }

// newNamespace makes a network namespace that lives as long as the file.
func newNamespace() (ns *os.File, err error) {
	err = netns.New(func() error {
		ns, err = netns.Open("/proc/thread-self/ns/net")
		return err
	})
	return ns, err
}

func plainChain(ctx context.Context, routers int) (_ *Chain, err error) {
	c := &Chain{Routers: routers}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("make a chain of %d routers: %w", routers, err), c.Close())
		}
	}()
	nodes := make([]*os.File, routers+2)
	for i := range nodes {
		if nodes[i], err = newNamespace(); err != nil {
			return nil, err
		}
		c.undo.Push(nodes[i].Close)
	}
	for i := range routers + 1 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := in(nodes[i], func() error { return plainLink(i, nodes[i+1]) }); err != nil {
			return nil, fmt.Errorf("make link %d: %w", i, err)
		}
	}
	for i, ns := range nodes {
		if err := in(ns, func() error { return plainNode(i, routers) }); err != nil {
			return nil, fmt.Errorf("configure node %d: %w", i, err)
		}
	}
	c.Left, c.Right = ends(nodes[0], nodes[routers+1], routers)
	if routers > 0 {
		c.First = nodes[1]
	}
	return c, nil
}

// plainLink makes link i from its left node, whose namespace the thread is in.
func plainLink(i int, right *os.File) error {
	veth := netlink.NewVeth(netlink.LinkAttrs{Name: rightDevice, HardwareAddr: mac(i, 0)})
	veth.PeerName, veth.PeerHardwareAddr, veth.PeerNamespace = leftDevice, mac(i, 1), netlink.NsFd(right.Fd())
	return netlink.LinkAdd(veth)
}

// plainNode configures node i as Pergola would.
func plainNode(i, routers int) error {
	for path, value := range map[string]string{
		"ipv4/conf/all/rp_filter": "0", "ipv4/conf/default/rp_filter": "0", "ipv4/ip_forward": "1",
		"ipv6/conf/all/accept_dad": "0", "ipv6/conf/default/accept_dad": "0",
		"ipv6/conf/all/router_solicitations": "0", "ipv6/conf/default/router_solicitations": "0",
	} {
		if err := os.WriteFile("/proc/sys/net/"+path, []byte(value), 0); err != nil &&
			!errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if i > 0 {
		if err := plainInterface(leftDevice, i-1, 1); err != nil {
			return err
		}
	}
	if i <= routers {
		if err := plainInterface(rightDevice, i, 0); err != nil {
			return err
		}
	}
	for _, r := range routesOf(i, routers) {
		to := r.to
		if err := netlink.RouteAdd(&netlink.Route{Dst: ipNet(to), Gw: r.via.AsSlice()}); err != nil {
			return fmt.Errorf("add route to %s: %w", to, err)
		}
	}
	return nil
}

func plainInterface(name string, link, end int) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	a := &netlink.Addr{IPNet: ipNet(subnet(link))}
	a.IP = address(link, end).AsSlice()
	if err := netlink.AddrAdd(l, a); err != nil {
		return err
	}
	return netlink.LinkSetUp(l)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
