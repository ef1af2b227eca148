package path

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/pergola-net/pergola/bench/ovs"
	"github.com/pergola-net/pergola/bench/scratch"
	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/lab/vnet"
)

// ovsChains makes chains with Open vSwitch: each router is a bridge whose flows route, and patch ports join them.
type ovsChains struct {
	*ovs.Switches
	ns   *os.File
	undo undo.Steps
}

func openOVS(ctx context.Context) (_ maker, err error) {
	o := &ovsChains{}
	defer o.undo.OnError(&err)
	if err := ovs.Installed(); err != nil {
		return nil, err
	}
	d, err := scratch.New(directories())
	if err != nil {
		return nil, err
	}
	o.undo.Push(d.Remove)
	if o.ns, err = newNamespace(); err != nil {
		return nil, err
	}
	o.undo.Push(o.ns.Close)
	if o.Switches, err = ovs.Start(ctx, d.Path, o.ns); err != nil {
		return nil, err
	}
	o.undo.Push(o.Switches.Stop)
	return o, nil
}

func (o *ovsChains) close() error { return o.undo.Run() }

func (o *ovsChains) hosts(ctx context.Context, routers int) (_ *Chain, err error) {
	c := &Chain{Routers: routers}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("make a chain of %d routers with Open vSwitch: %w", routers,
				err), c.Close())
		}
	}()
	left, err := o.host(c, "l", routers, rightDevice, mac(0, 0))
	if err != nil {
		return nil, err
	}
	right, err := o.host(c, "r", routers, leftDevice, mac(routers, 1))
	if err != nil {
		return nil, err
	}
	if err := o.Set(ctx, o.bridges(routers)...); err != nil {
		return nil, err
	}
	for i := range max(1, routers) {
		if err := o.Flows(ctx, bridge(routers, i), flowsOf(i, routers)); err != nil {
			return nil, err
		}
	}
	c.Left, c.Right = ends(left, right, routers)
	// A host without neighbours to ask: bridges that route do not answer ARP.
	if err := in(left, func() error { return ovsHost(rightDevice, 0, 0, routers) }); err != nil {
		return nil, err
	}
	if err := in(right, func() error { return ovsHost(leftDevice, routers, 1, routers) }); err != nil {
		return nil, err
	}
	return c, nil
}

// host makes a namespace with a veth whose other end is in Open vSwitch's.
func (o *ovsChains) host(c *Chain, side string, routers int, device string,
	address net.HardwareAddr,
) (*os.File, error) {
	ns, err := newNamespace()
	if err != nil {
		return nil, err
	}
	c.undo.Push(ns.Close)
	err = in(ns, func() error {
		veth := netlink.NewVeth(netlink.LinkAttrs{Name: device, HardwareAddr: address})
		veth.PeerName, veth.PeerNamespace = ovsPort(side, routers), netlink.NsFd(o.ns.Fd())
		return netlink.LinkAdd(veth)
	})
	if err == nil {
		err = in(o.ns, func() error {
			l, err := netlink.LinkByName(ovsPort(side, routers))
			if err != nil {
				return err
			}
			return netlink.LinkSetUp(l)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("make a host: %w", err)
	}
	// A packet socket hands over frames whose checksum was left to a NIC that there is none of.
	return ns, vnet.SetOffload(ns, device, vnet.Checksum, false)
}

func ovsHost(device string, link, end, routers int) error {
	if err := plainInterface(device, link, end); err != nil {
		return err
	}
	l, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	next := address(link, 1-end)
	to := subnet(routers)
	if end == 1 {
		to = subnet(0)
	}
	if routers > 0 {
		if err := netlink.RouteAdd(&netlink.Route{Dst: ipNet(to), Gw: next.AsSlice()}); err != nil {
			return err
		}
	}
	return netlink.NeighAdd(&netlink.Neigh{
		LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT, IP: next.AsSlice(),
		HardwareAddr: mac(link, 1-end),
	})
}

func ovsPort(side string, routers int) string { return fmt.Sprintf("c%d%s", routers, side) }

func bridge(routers, i int) string { return fmt.Sprintf("c%db%d", routers, i) }

// The numbers of a bridge's ports.
const (
	leftPort  = 1
	rightPort = 2
)

// bridges are the words for ovs-vsctl. A chain of no routers is one bridge.
func (o *ovsChains) bridges(routers int) []string {
	var words []string
	say := func(format string, args ...any) {
		words = append(words, strings.Fields("-- "+fmt.Sprintf(format, args...))...)
	}
	port := func(bridge, name string, number int) {
		say("add-port %s %s", bridge, name)
		say("set Interface %s ofport_request=%d", name, number)
	}
	patch := func(bridge, name, peer string, number int) {
		port(bridge, name, number)
		say("set Interface %s type=patch options:peer=%s", name, peer)
	}
	last := max(1, routers) - 1
	for i := range last + 1 {
		name := bridge(routers, i)
		say("add-br %s", name)
		say("set Bridge %s datapath_type=netdev fail-mode=secure", name)
		if i == 0 {
			port(name, ovsPort("l", routers), leftPort)
		} else {
			patch(name, name+"l", bridge(routers, i-1)+"r", leftPort)
		}
		if i == last {
			port(name, ovsPort("r", routers), rightPort)
		} else {
			patch(name, name+"r", bridge(routers, i+1)+"l", rightPort)
		}
	}
	return words[1:]
}

// flowsOf makes bridge i router number i+1.
func flowsOf(i, routers int) []string {
	if routers == 0 {
		return []string{
			fmt.Sprintf("in_port=%d actions=output:%d", leftPort, rightPort),
			fmt.Sprintf("in_port=%d actions=output:%d", rightPort, leftPort),
		}
	}
	const flow = "ip,nw_dst=%s,dl_dst=%s actions=dec_ttl,mod_dl_src:%s,mod_dl_dst:%s,output:%d"
	return []string{
		fmt.Sprintf(flow, subnet(routers), mac(i, 1), mac(i+1, 0), mac(i+1, 1), rightPort),
		fmt.Sprintf(flow, subnet(0), mac(i+1, 0), mac(i, 1), mac(i, 0), leftPort),
	}
}
