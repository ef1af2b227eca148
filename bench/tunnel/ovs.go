package tunnel

import (
	"context"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/pergola-net/pergola/bench/ovs"
	"github.com/pergola-net/pergola/bench/scratch"
	"github.com/pergola-net/pergola/kernel/netns"
)

// openVSwitch makes a bridge whose flows route between two tunnels. Each NIC is a port of another bridge, which has
// its addresses: so Open vSwitch itself makes and takes the packets outside.
func (m *machine) openVSwitch(ctx context.Context) (frameFormat, error) {
	dir, err := scratch.New(directories)
	if err != nil {
		return frameFormat{}, err
	}
	m.undo.Push(dir.Remove)
	s, err := ovs.Start(ctx, dir.Path, m.ns)
	if err != nil {
		return frameFormat{}, err
	}
	m.undo.Push(s.Stop)
	const bridge = "router"
	words := []string{"add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev", "fail-mode=secure"}
	say := func(format string, args ...any) {
		words = append(words, strings.Fields("-- "+fmt.Sprintf(format, args...))...)
	}
	for side, nic := range []string{inNIC, outNIC} {
		say("add-br %s", outsideBridge(side))
		say("set bridge %s datapath_type=netdev other-config:hwaddr=%s", outsideBridge(side),
			mac(outside(side, 1)))
		say("add-port %s %s", outsideBridge(side), nic)
		say("add-port %s gre%d", bridge, side)
		say("set interface gre%d type=gre ofport_request=%d options:remote_ip=%s "+
			"options:local_ip=%s options:key=%d", side, side+1, outside(side, 2), outside(side, 1),
			key(1, side))
	}
	if err := s.Set(ctx, words...); err != nil {
		return frameFormat{}, err
	}
	for side, nic := range []string{inNIC, outNIC} {
		if err := netns.In(m.ns, func() error {
			return moveAddress(nic, outsideBridge(side), side)
		}); err != nil {
			return frameFormat{}, fmt.Errorf("move the address of %s: %w", nic, err)
		}
		if err := s.Control(ctx, "tnl/neigh/set", outsideBridge(side), outside(side, 2).String(),
			mac(outside(side, 2)).String()); err != nil {
			return frameFormat{}, err
		}
	}
	flow := fmt.Sprintf("in_port=1,ip,nw_dst=%s,dl_dst=%s actions=dec_ttl,mod_dl_src:%s,mod_dl_dst:%s,output:2",
		net24(inner(1, 0)).Masked(), mac(inner(0, 1)), mac(inner(1, 1)), mac(inner(1, 2)))
	return within(greHeaders(key(1, 0))), s.Flows(ctx, bridge, []string{flow})
}

func outsideBridge(side int) string { return fmt.Sprintf("outside%d", side) }

// moveAddress gives a NIC's address to the interface of a bridge.
func moveAddress(nic, bridge string, side int) error {
	l, err := netlink.LinkByName(nic)
	if err != nil {
		return err
	}
	own := &netlink.Addr{IPNet: ipNet(net24(outside(side, 1)))}
	if err := netlink.AddrDel(l, own); err != nil {
		return err
	}
	br, err := netlink.LinkByName(bridge)
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(br, own); err != nil {
		return err
	}
	return netlink.LinkSetUp(br)
}
