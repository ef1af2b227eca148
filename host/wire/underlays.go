package wire

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/rtnl"
	"github.com/pergola-net/pergola/model/hosts"
)

// Underlays lists the interfaces of the machine that could carry tunnels: those that are up and have addresses that
// others can reach, the one of the default route first. The machine's namespace is the thread's.
func Underlays() ([]hosts.Underlay, error) {
	c, err := dialHere()
	if err != nil {
		return nil, fmt.Errorf("list underlays: %w", err)
	}
	defer c.close()
	all, err := c.underlays()
	if err != nil {
		return nil, fmt.Errorf("list underlays: %w", err)
	}
	return all, nil
}

func (c *conn) underlays() ([]hosts.Underlay, error) {
	devices, err := c.devices()
	if err != nil {
		return nil, err
	}
	addresses, err := c.addresses()
	if err != nil {
		return nil, err
	}
	preferred, err := c.defaultDevice()
	if err != nil {
		return nil, err
	}
	rates, err := ethtool.NewEthtool()
	if err != nil {
		return nil, fmt.Errorf("ask for rates: %w", err)
	}
	defer rates.Close()
	rank := func(d device) int {
		if d.index == preferred {
			return 0
		}
		return d.index
	}
	slices.SortFunc(devices, func(a, b device) int { return cmp.Compare(rank(a), rank(b)) })
	var all []hosts.Underlay
	for _, d := range devices {
		if !d.up || d.loop || d.marked { // what is marked leads to a node of somebody's slice
			continue
		}
		u := hosts.Underlay{
			Name: d.name, Kind: d.kind, MTU: d.mtu, Addresses: reachable(addresses, d.index),
			Rate: rateOf(rates, d.name), XDP: expectXDP(d),
		}
		if len(u.Addresses) > 0 {
			all = append(all, u)
		}
	}
	return all, nil
}

// reachable lists an interface's addresses that will do as an end of tunnels: not such as end with the link, or soon.
func reachable(all []address, index int) (some []netip.Prefix) {
	const passing = unix.IFA_F_TEMPORARY | unix.IFA_F_DEPRECATED | unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED
	for _, a := range all {
		if a.index == index && a.scope < unix.RT_SCOPE_LINK && a.Addr().IsGlobalUnicast() &&
			a.flags&passing == 0 {
			some = append(some, a.Prefix)
		}
	}
	return some
}

// defaultDevice is the interface of the default route; 0: there is none.
func (c *conn) defaultDevice() (index int, err error) {
	best := uint32(0)
	all, err := c.dump(unix.RTM_GETROUTE, unix.RTM_NEWROUTE, &nl.RtMsg{RtMsg: unix.RtMsg{Family: unix.AF_UNSPEC}})
	if err != nil {
		return 0, fmt.Errorf("list routes: %w", err)
	}
	for _, message := range all {
		h := nl.DeserializeRtMsg(message)
		if h.Dst_len != 0 || h.Table != unix.RT_TABLE_MAIN || h.Type != unix.RTN_UNICAST {
			continue
		}
		var to int
		var metric uint32
		attrs := rtnl.Attributes(message[h.Len():])
		for attrs.Next() {
			switch attrs.Kind {
			case unix.RTA_OIF:
				to = int(attrs.U32())
			case unix.RTA_PRIORITY:
				metric = attrs.U32()
			}
		}
		if err := attrs.Err(); err != nil {
			return 0, fmt.Errorf("list routes: %w", err)
		}
		if h.Family == unix.AF_INET6 { // of two equally good ones, IPv4's
			metric++
		}
		if to != 0 && (index == 0 || metric < best) {
			index, best = to, metric
		}
	}
	return index, nil
}

// rateOf is what the driver says, in bit/s; 0: nothing, as of a link that is down, and of most that are no hardware.
func rateOf(e *ethtool.Ethtool, name string) uint64 {
	const unknown = 1<<32 - 1
	var settings ethtool.EthtoolCmd // GetLinkSettings prints its trouble to the standard output
	speed, err := e.CmdGet(&settings, name)
	if err != nil || speed == unknown {
		return 0
	}
	return uint64(speed) * 1_000_000
}
