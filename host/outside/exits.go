package outside

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// exit is a device of the machine by which packets leave, and the address of a family that they have then.
type exit struct {
	device  string
	address netip.Addr
}

// exits lists those that have an address, of each family that the device has one of.
func exits() (all []exit, err error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		some, err := exitsOf(family)
		if err != nil {
			return nil, fmt.Errorf("list addresses: %w", err)
		}
		all = append(all, some...)
	}
	return all, nil
}

func exitsOf(family int) (all []exit, err error) {
	var addresses []netlink.Addr
	err = again(func() (err error) { addresses, err = netlink.AddrList(nil, family); return err })
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(addresses, func(a, b netlink.Addr) int { return unfit(a) - unfit(b) })
	seen := map[int]bool{}
	for _, a := range addresses {
		at, ok := netip.AddrFromSlice(a.IP)
		if !ok || seen[a.LinkIndex] || a.Scope != unix.RT_SCOPE_UNIVERSE || a.Flags&unix.IFA_F_TENTATIVE != 0 {
			continue
		}
		l, err := netlink.LinkByIndex(a.LinkIndex)
		if err != nil || strings.HasPrefix(l.Attrs().Name, prefix) {
			continue // it has gone meanwhile, or leads to a sliver
		}
		seen[a.LinkIndex] = true
		all = append(all, exit{l.Attrs().Name, at.Unmap()})
	}
	return all, nil
}

// unfit is the larger, the less an address of IPv6 is one to leave by: a unique local one (RFC 4193) reaches no more
// than the site, and with one that is temporary (RFC 8981), or not to be used for what is new, connections end soon.
func unfit(a netlink.Addr) (sum int) {
	if a.IP.To4() == nil && a.IP.IsPrivate() {
		sum += 2
	}
	if a.Flags&(unix.IFA_F_TEMPORARY|unix.IFA_F_DEPRECATED) != 0 {
		sum++
	}
	return sum
}

// whyNoIPv6 says why slivers have no IPv6 to the outside from this machine; empty where they have.
func whyNoIPv6() (string, error) {
	off, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/disable_ipv6")
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "this machine's kernel has none", nil
	case err != nil:
		return "", fmt.Errorf("read whether this machine has IPv6: %w", err)
	case strings.TrimSpace(string(off)) != "0":
		return "it is switched off on this machine (net.ipv6.conf.all.disable_ipv6)", nil
	}
	var routes []netlink.Route
	err = again(func() (err error) {
		main := &netlink.Route{Table: unix.RT_TABLE_MAIN}
		routes, err = netlink.RouteListFiltered(netlink.FAMILY_V6, main, netlink.RT_FILTER_TABLE)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("list routes: %w", err)
	}
	for _, r := range routes {
		if isDefault(r) && r.Type == unix.RTN_UNICAST {
			return "", nil
		}
	}
	return "this machine has no default route of it", nil
}

func isDefault(r netlink.Route) bool {
	if r.Dst == nil {
		return true
	}
	ones, _ := r.Dst.Mask.Size()
	return ones == 0 && r.Dst.IP.IsUnspecified()
}
