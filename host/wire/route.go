package wire

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/rtnl"
	"github.com/pergola-net/pergola/model/slice"
)

// route is one in a form that can be compared.
type route struct {
	to        netip.Prefix
	via       netip.Addr
	index     int // of the interface, or 0 for the one that via is reached by
	blackhole bool
}

// setRoutes adds what is missing and deletes static routes that are not wanted. Static (RTPROT_STATIC) routes in the
// main table are ours; a daemon's carry its own protocol number, and those typed by hand are "boot".
func (c *conn) setRoutes(routes []slice.Route, indexes map[string]int) error {
	wanted := map[route]bool{}
	prefixes := map[netip.Prefix]bool{}
	for _, r := range routes {
		w := route{to: r.To.Masked(), via: r.Via, blackhole: r.Blackhole}
		if r.Interface != "" {
			index, ok := indexes[r.Interface]
			if !ok {
				return fmt.Errorf("add route to %s: no interface %s", r.To, r.Interface)
			}
			w.index = index
		}
		wanted[w], prefixes[w.to] = true, true
		if err := c.changeRoute(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, w); err != nil {
			return fmt.Errorf("add route to %s: %w", r.To, err)
		}
	}
	static, err := c.staticRoutes()
	if err != nil {
		return err
	}
	for _, have := range static {
		if prefixes[have.to] {
			continue // it was replaced
		}
		err := c.changeRoute(unix.RTM_DELROUTE, 0, have)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("delete route to %s: %w", have.to, err)
		}
	}
	return nil
}

func (c *conn) changeRoute(kind, flags uint16, r route) error {
	h := &nl.RtMsg{RtMsg: unix.RtMsg{
		Family: unix.AF_INET, Dst_len: uint8(r.to.Bits()), Table: unix.RT_TABLE_MAIN,
		Protocol: unix.RTPROT_STATIC, Scope: unix.RT_SCOPE_UNIVERSE, Type: unix.RTN_UNICAST,
	}}
	if r.to.Addr().Is6() {
		h.Family = unix.AF_INET6
	}
	var attrs []rtnl.Attr
	if r.to.Bits() > 0 {
		attrs = append(attrs, rtnl.Bytes(unix.RTA_DST, r.to.Addr().AsSlice()))
	}
	switch {
	case r.blackhole:
		h.Type = unix.RTN_BLACKHOLE
	case r.via.IsValid():
		attrs = append(attrs, rtnl.Bytes(unix.RTA_GATEWAY, r.via.AsSlice()))
	default:
		h.Scope = unix.RT_SCOPE_LINK
	}
	if r.index != 0 {
		attrs = append(attrs, rtnl.U32(unix.RTA_OIF, uint32(r.index)))
	}
	return c.do(kind, flags, h, attrs...)
}

func (c *conn) staticRoutes() ([]route, error) {
	all, err := c.dump(unix.RTM_GETROUTE, unix.RTM_NEWROUTE, &nl.RtMsg{RtMsg: unix.RtMsg{Family: unix.AF_UNSPEC}})
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	var static []route
	for _, message := range all {
		h := nl.DeserializeRtMsg(message)
		if h.Protocol != unix.RTPROT_STATIC || h.Table != unix.RT_TABLE_MAIN {
			continue
		}
		r := route{blackhole: h.Type == unix.RTN_BLACKHOLE}
		to := netip.IPv4Unspecified()
		if h.Family == unix.AF_INET6 {
			to = netip.IPv6Unspecified()
		}
		attrs := rtnl.Attributes(message[h.Len():])
		for attrs.Next() {
			switch attrs.Kind {
			case unix.RTA_DST:
				to = attrs.Address()
			case unix.RTA_GATEWAY:
				r.via = attrs.Address()
			case unix.RTA_OIF:
				r.index = int(attrs.U32())
			}
		}
		if err := attrs.Err(); err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		r.to = netip.PrefixFrom(to, int(h.Dst_len))
		static = append(static, r)
	}
	return static, nil
}
