package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/bench/traffic"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/model/constants"
	"github.com/pergola-net/pergola/model/slice"
)

// open sets a machine up for a variant.
func (b *bench) open(ctx context.Context, m *machine, w Variant, slices int) (frameFormat, error) {
	switch w {
	case Native:
		return m.native()
	case Beside:
		if _, err := b.pergola(ctx, m, routers{kind: slice.EGRE, slices: 1}); err != nil {
			return frameFormat{}, err
		}
		return m.native()
	case Bridged, Direct:
		return m.container(w == Bridged)
	case OVS:
		return m.openVSwitch(ctx)
	case EGRE, LAN:
		if _, err := b.pergola(ctx, m, routers{kind: slice.EGRE, lan: w == LAN, slices: slices}); err != nil {
			return frameFormat{}, err
		}
		r := within(greHeaders(key(1, 0)))
		r.keys = traffic.Keys{At: greKeyAt, Count: slices, First: key(1, 0), Step: key(2, 0) - key(1, 0)}
		return r, nil
	case VXLAN:
		_, err := b.pergola(ctx, m, routers{kind: slice.VXLAN, slices: 1})
		return within(vxlanHeaders(key(1, 0))), err
	case One, BridgedBeside, VXLANByTC, EGREByTC, Alone, Flooded:
	}
	return frameFormat{}, fmt.Errorf("there is no variant %q through a machine", w)
}

// native lets the machine's kernel forward what is for the network within.
func (m *machine) native() (frameFormat, error) {
	err := netns.In(m.ns, func() error {
		to := net24(inner(1, 0)).Masked()
		return errors.Join(forward(),
			netlink.RouteAdd(&netlink.Route{Dst: ipNet(to), Gw: outside(1, 2).AsSlice()}))
	})
	return frameFormat{from: [6]byte(mac(outside(0, 2))), to: [6]byte(mac(outside(0, 1))), outer: noTunnel}, err
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), 32)}
}

// container makes a router whose interfaces are VXLAN devices of the machine's kernel, or are bridged with such.
func (m *machine) container(bridged bool) (frameFormat, error) {
	router, err := newNamespace()
	if err != nil {
		return frameFormat{}, err
	}
	m.undo.Push(router.Close)
	if err := netns.In(router, forward); err != nil {
		return frameFormat{}, err
	}
	for side := range 2 {
		v := kernelVXLAN{
			number: side, vni: uint32(side + 1), local: outside(side, 1), peer: outside(side, 2),
			inside: router, own: inner(side, 1), other: inner(side, 2),
		}
		if err := v.connect(m.ns, bridged); err != nil {
			return frameFormat{}, err
		}
	}
	return within(vxlanHeaders(1)), nil
}

// kernelVXLAN is a VXLAN device of a machine's kernel that leads to a container.
type kernelVXLAN struct {
	number      int // of the container's interface
	vni         uint32
	local, peer netip.Addr
	inside      *os.File // the container
	own, other  netip.Addr
}

// connect makes the device in a machine's namespace and moves it into the container, or puts a bridge and a veth pair
// between.
func (v kernelVXLAN) connect(machine *os.File, bridged bool) error {
	name := device(v.number)
	err := netns.In(machine, func() error {
		vxlan := &netlink.Vxlan{
			LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("vxlan%d", v.number),
				MTU: nicMTU - slice.VXLAN.Overhead(false)},
			VxlanId: int(v.vni), SrcAddr: v.local.AsSlice(), Group: v.peer.AsSlice(),
			Port: constants.VXLANPort,
		}
		if !bridged {
			vxlan.Name, vxlan.HardwareAddr = name, mac(v.own)
		}
		if err := netlink.LinkAdd(vxlan); err != nil {
			return err
		}
		if !bridged {
			return netlink.LinkSetNsFd(vxlan, int(v.inside.Fd()))
		}
		return v.bridge(vxlan, name)
	})
	if err == nil {
		err = netns.In(v.inside, func() error { return setUp(name, net24(v.own), v.other) })
	}
	if err != nil {
		return fmt.Errorf("make VXLAN device %d: %w", v.number, err)
	}
	return nil
}

// bridge joins the device with a veth pair whose other end is the container's. What would be learned from traffic in
// both directions is known.
func (v kernelVXLAN) bridge(vxlan *netlink.Vxlan, name string) error {
	br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("br%d", v.number), MTU: vxlan.MTU}}
	if err := netlink.LinkAdd(br); err != nil {
		return err
	}
	veth := netlink.NewVeth(netlink.LinkAttrs{Name: fmt.Sprintf("veth%d", v.number), MTU: vxlan.MTU})
	veth.PeerName, veth.PeerNamespace, veth.PeerMTU, veth.PeerHardwareAddr = name, netlink.NsFd(v.inside.Fd()),
		uint32(vxlan.MTU), mac(v.own)
	if err := netlink.LinkAdd(veth); err != nil {
		return err
	}
	for _, l := range []netlink.Link{vxlan, veth, br} {
		if l != br {
			if err := netlink.LinkSetMaster(l, br); err != nil {
				return err
			}
		}
		if err := netlink.LinkSetUp(l); err != nil {
			return err
		}
	}
	for address, port := range map[netip.Addr]netlink.Link{v.own: veth, v.other: vxlan} {
		station := &netlink.Neigh{
			LinkIndex: port.Attrs().Index, Family: unix.AF_BRIDGE, Flags: netlink.NTF_MASTER,
			State: netlink.NUD_NOARP, HardwareAddr: mac(address),
		}
		if err := netlink.NeighSet(station); err != nil {
			return fmt.Errorf("tell the bridge where %s is: %w", address, err)
		}
	}
	return nil
}
