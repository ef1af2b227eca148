package outside

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
)

// addIPv6 gives both ends of a pair addresses of IPv6. A sliver that has IPv6 switched off keeps it so. The ends know
// each other's hardware addresses for good, so the machine takes no neighbour discovery from slivers.
func (d device) addIPv6(pid int) error {
	conf := "ipv6/conf/" + d.name()
	err := set("net", map[string]string{conf + "/accept_ra": "0", conf + "/accept_redirects": "0"})
	if err == nil {
		err = set("net", map[string]string{conf + "/disable_ipv6": "0"})
	}
	if err != nil {
		return err
	}
	outer, err := netlink.LinkByName(d.name())
	if err != nil {
		return fmt.Errorf("find device %s: %w", d.name(), err)
	}
	if err := addAddress(outer, netip.PrefixFrom(d.at6(), 127)); err != nil {
		return err
	}
	var inner netlink.Link
	err = in(pid, func() error {
		off, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + Inner + "/disable_ipv6")
		if err == nil && strings.TrimSpace(string(off)) != "0" || errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if inner, err = netlink.LinkByName(Inner); err != nil {
			return err
		}
		if err := addAddress(inner, netip.PrefixFrom(d.inner6(), 127)); err != nil {
			return err
		}
		if err := setNeighbour(inner, d.at6(), outer); err != nil {
			return err
		}
		return d.route(inner, d.at6(), d.inner6())
	})
	if err != nil || inner == nil {
		return err
	}
	return setNeighbour(outer, d.inner6(), inner)
}

// setNeighbour says for good which hardware address a neighbour has.
func setNeighbour(at netlink.Link, whose netip.Addr, has netlink.Link) error {
	n := &netlink.Neigh{
		LinkIndex: at.Attrs().Index, Family: unix.AF_INET6, State: netlink.NUD_PERMANENT,
		IP: whose.AsSlice(), HardwareAddr: has.Attrs().HardwareAddr,
	}
	if err := netlink.NeighSet(n); err != nil {
		return fmt.Errorf("set neighbour %s of device %s: %w", whose, at.Attrs().Name, err)
	}
	return nil
}

// removeIPv6 is the reverse of addIPv6. A sliver that ended takes its end along.
func (d device) removeIPv6(pid int) error {
	if err := set("net", map[string]string{"ipv6/conf/" + d.name() + "/disable_ipv6": "1"}); err != nil {
		return err
	}
	err := in(pid, func() error {
		deleteRules(d.at6())
		inner, err := netlink.LinkByName(Inner)
		if err != nil {
			return err
		}
		address := &netlink.Addr{IPNet: network(netip.PrefixFrom(d.inner6(), 127))}
		if err := netlink.AddrDel(inner, address); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("take the address %s back: %w", d.inner6(), err)
		}
		for _, t := range []int{ownRoutes, unix.RT_TABLE_MAIN} {
			r := &netlink.Route{
				Table: t, LinkIndex: inner.Attrs().Index, Gw: d.at6().AsSlice(),
				Dst: network(netip.PrefixFrom(d.at6(), 0).Masked()),
			}
			if err := netlink.RouteDel(r); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("delete the default route: %w", err)
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, netns.ErrGone) {
		return fmt.Errorf("take IPv6 from interface %s in the node: %w", Inner, err)
	}
	return nil
}

// set writes settings below /proc/sys; a machine without IPv6 has none of IPv6.
func set(below string, values map[string]string) error {
	for key, value := range values {
		err := os.WriteFile(filepath.Join("/proc/sys", below, key), []byte(value), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("set %s/%s: %w", below, key, err)
		}
	}
	return nil
}

const (
	forwarding6 = "/proc/sys/net/ipv6/conf/all/forwarding"
	acceptRA    = "/proc/sys/net/ipv6/conf/%s/accept_ra"
)

// noteIPv6 writes into the file what the settings of IPv6 are, before they change, and which devices are to go on to
// take routes from router advertisements, which may have come since.
func (s saved) noteIPv6() error {
	was, err := s.read()
	if err != nil {
		return err
	}
	first := was.Forwarding6 == ""
	if first {
		is, err := os.ReadFile(forwarding6)
		if err != nil {
			return fmt.Errorf("read a setting: %w", err)
		}
		was.Forwarding6 = strings.TrimSpace(string(is))
	}
	before := len(was.AcceptRA)
	if was.Forwarding6 == "0" {
		devices, err := listenForRoutes()
		if err != nil {
			return err
		}
		for _, device := range devices {
			if !slices.Contains(was.AcceptRA, device) {
				was.AcceptRA = append(was.AcceptRA, device)
			}
		}
	}
	if first || len(was.AcceptRA) > before {
		return s.save(was)
	}
	return nil
}

// forwardIPv6 makes the machine forward IPv6, too. A machine that forwards takes no routes from router advertisements,
// unless the device's accept_ra is 2: those that did take them go on to do so.
func (s saved) forwardIPv6() error {
	was, err := s.read()
	if err != nil || was.Forwarding6 != "0" {
		return err
	}
	devices, err := listenForRoutes()
	if err != nil {
		return err
	}
	for _, device := range devices {
		if err := write(fmt.Sprintf(acceptRA, device), "2"); err != nil {
			return err
		}
	}
	return write(forwarding6, "1")
}

// listenForRoutes lists the machine's devices that take routes from router advertisements while it does not forward.
func listenForRoutes() (all []string, err error) {
	found, err := filepath.Glob(fmt.Sprintf(acceptRA, "*"))
	if err != nil {
		return nil, err
	}
	for _, path := range found {
		device := filepath.Base(filepath.Dir(path))
		text, err := os.ReadFile(path)
		if err != nil || strings.HasPrefix(device, prefix) || device == "all" || device == "default" {
			continue // it has gone meanwhile, or leads to a sliver
		}
		if strings.TrimSpace(string(text)) == "1" {
			all = append(all, device)
		}
	}
	return all, nil
}

// restoreIPv6 makes the settings of IPv6 what they were.
func (s saved) restoreIPv6(was settings) error {
	if was.Forwarding6 != "0" {
		return nil
	}
	if err := write(forwarding6, "0"); err != nil {
		return err
	}
	for _, device := range was.AcceptRA {
		path := fmt.Sprintf(acceptRA, device)
		is, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) || err == nil && strings.TrimSpace(string(is)) != "2" {
			continue // it has gone, or somebody has changed it
		}
		if err := write(path, "1"); err != nil {
			return err
		}
	}
	return nil
}
