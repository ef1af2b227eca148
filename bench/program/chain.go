package program

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"

	"github.com/pergola-net/pergola/bench/peers"
	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/vnet"
)

// chain is routers in a row, each of which is a namespace, between a source and a sink.
//
//	source ── in │ router 0 │ out ── in │ router 1 │ out ── sink
type chain struct {
	ends
	routers []*os.File
	undo    undo.Steps
}

// between is the address of one end of a link between the routers i and i+1 of a row: 0 is its left end.
func between(row, i, end int) netip.Addr {
	return netip.AddrFrom4([4]byte{198, 18, byte(100 + 20*row + i), byte(1 + end)})
}

// betweenMAC is that end's MAC address.
func betweenMAC(i, end int) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 1, byte(i), byte(end)} }

// hop is what a router has at its two sides: its own addresses, and those of its neighbours.
type hop struct {
	addresses, neighbours [2]netip.Addr
	own, other            [2]net.HardwareAddr
}

// hopOf describes router i of a row of so many.
func hopOf(row, i, routers int) hop {
	h := hop{
		addresses:  [2]netip.Addr{between(row, i-1, 1), between(row, i, 0)},
		neighbours: [2]netip.Addr{between(row, i-1, 0), between(row, i, 1)},
		own:        [2]net.HardwareAddr{betweenMAC(i-1, 1), betweenMAC(i, 0)},
		other:      [2]net.HardwareAddr{betweenMAC(i-1, 0), betweenMAC(i, 1)},
	}
	if i == 0 {
		h.addresses[0], h.neighbours[0] = sourceAddress(row).Next(), sourceAddress(row)
		h.own[0], h.other[0] = inMAC, sourceMAC
	}
	if i == routers-1 {
		h.addresses[1], h.neighbours[1] = sinkAddress(row).Next(), sinkAddress(row)
		h.own[1], h.other[1] = outMAC, sinkMAC
	}
	return h
}

// newChain makes one whose routers forward nothing yet.
func newChain(routers int) (_ *chain, err error) {
	c := &chain{}
	defer c.undo.OnError(&err)
	spaces := make([]*os.File, routers+2)
	for i := range spaces {
		if spaces[i], err = newNamespace(); err != nil {
			return nil, err
		}
		c.undo.Push(spaces[i].Close)
	}
	c.source, c.routers, c.sink = spaces[0], spaces[1:routers+1], spaces[routers+1]
	left := nic{c.source, endDevice(0), sourceAddress(0), sourceMAC}
	for i, ns := range c.routers {
		h := hopOf(0, i, routers)
		if err := lay(nic{ns, inDevice(0), h.addresses[0], h.own[0]}, left); err != nil {
			return nil, fmt.Errorf("lay the wire before router %d: %w", i, err)
		}
		left = nic{ns, outDevice(0), h.addresses[1], h.own[1]}
	}
	if err := lay(left, nic{c.sink, endDevice(0), sinkAddress(0), sinkMAC}); err != nil {
		return nil, fmt.Errorf("lay the last wire: %w", err)
	}
	return c, c.route(hopOf(0, 0, routers), hopOf(0, routers-1, routers))
}

// route tells the source of the sink, and the sink of the source.
func (c *chain) route(first, last hop) error {
	return errors.Join(
		addRoute(c.source, sinkAddress(0), first.addresses[0]),
		addRoute(c.sink, sourceAddress(0), last.addresses[1]))
}

// addRoute leads to the network of an address by a gateway.
func addRoute(ns *os.File, to, gateway netip.Addr) error {
	err := netns.In(ns, func() error {
		return netlink.RouteAdd(&netlink.Route{Gw: gateway.AsSlice(),
			Dst: &net.IPNet{IP: netip.PrefixFrom(to, 24).Masked().Addr().AsSlice(),
				Mask: net.CIDRMask(24, 32)}})
	})
	if err != nil {
		return fmt.Errorf("add a route to the network of %s: %w", to, err)
	}
	return nil
}

// byKernels lets the routers' kernels forward.
func (c *chain) byKernels() error {
	for i, ns := range c.routers {
		if err := netns.In(ns, forwardIPv4); err != nil {
			return err
		}
		h := hopOf(0, i, len(c.routers))
		if i > 0 {
			if err := addRoute(ns, sourceAddress(0), h.neighbours[0]); err != nil {
				return err
			}
		}
		if i < len(c.routers)-1 {
			if err := addRoute(ns, sinkAddress(0), h.neighbours[1]); err != nil {
				return err
			}
		}
	}
	return nil
}

func forwardIPv4() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) }

// ofStrangers lets the ends send to an Ethernet address that is nobody's: routers in user space see all frames, and
// their kernels drop such frames first of all.
func (c *chain) ofStrangers() error {
	last := hopOf(0, len(c.routers)-1, len(c.routers)).addresses[1]
	for ns, gateway := range map[*os.File]netip.Addr{c.source: sourceAddress(0).Next(), c.sink: last} {
		err := netns.In(ns, func() error {
			l, err := netlink.LinkByName(endDevice(0))
			if err != nil {
				return err
			}
			return netlink.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT,
				IP: gateway.AsSlice(), HardwareAddr: strangeMAC})
		})
		if err != nil {
			return fmt.Errorf("set the neighbour %s: %w", gateway, err)
		}
	}
	return nil
}

// byProcesses starts a router in user space in each namespace.
func (c *chain) byProcesses(ctx context.Context, program string) (stop func() error, err error) {
	var steps undo.Steps
	defer steps.OnError(&err)
	lifetime := fmt.Sprint(int(peers.Lifetime.Seconds()))
	for i, ns := range c.routers {
		to := [2]net.HardwareAddr{strangeMAC, strangeMAC}
		if i == 0 {
			to[0] = sourceMAC
		}
		if i == len(c.routers)-1 {
			to[1] = sinkMAC
		}
		h := hopOf(0, i, len(c.routers))
		p, err := peers.Start(ctx, ns, false, program, fmt.Sprint(routerCore), lifetime, inDevice(0),
			outDevice(0), h.own[0].String(), to[0].String(), h.own[1].String(), to[1].String())
		if err != nil {
			return nil, err
		}
		steps.Push(p.Stop)
	}
	return steps.Run, nil
}

// setGRO says whether routers' devices make super-frames, which routers in user space cannot take.
func (c *chain) setGRO(on bool) error {
	var errs []error
	for _, ns := range c.routers {
		for _, device := range []string{inDevice(0), outDevice(0)} {
			errs = append(errs, vnet.SetOffload(ns, device, vnet.GRO, on))
		}
	}
	return errors.Join(errs...)
}
