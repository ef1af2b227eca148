package daemons

import (
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/model/slice"
)

// wire makes the links and configures the interfaces.
func (l *Lab) wire() error {
	bridges := 0
	switches := map[string]string{} // switch -> its bridge in the hub
	bridge := func() (string, error) {
		bridges++
		name := fmt.Sprintf("br%d", bridges)
		return name, l.bridge(name)
	}
	for i := range l.Slice.Nodes {
		if n := &l.Slice.Nodes[i]; n.Kind == slice.Switch {
			name, err := bridge()
			if err != nil {
				return err
			}
			switches[n.Name] = name
		}
	}
	for i := range l.Slice.Links {
		link := &l.Slice.Links[i]
		if !link.LAN && len(link.Ends) == 2 && switches[link.Ends[0].Node] == "" &&
			switches[link.Ends[1].Node] == "" {
			if err := l.veth(link.Ends[0], link.Ends[1]); err != nil {
				return err
			}
			continue
		}
		if err := l.lan(link, switches, bridge); err != nil {
			return err
		}
	}
	for i := range l.Slice.Nodes {
		if n := &l.Slice.Nodes[i]; n.HasSliver() {
			if err := l.configure(n); err != nil {
				return err
			}
		}
	}
	return nil
}

// in calls f in a node's network namespace.
func (l *Lab) in(name string, f func() error) error { return netns.Do(netns.Path(l.PID(name)), f) }

func (l *Lab) bridge(name string) error {
	return l.in(hub, func() error {
		b := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}
		if err := netlink.LinkAdd(b); err != nil {
			return fmt.Errorf("make bridge: %w", err)
		}
		return netlink.LinkSetUp(b)
	})
}

// veth joins two nodes.
func (l *Lab) veth(a, b slice.End) error {
	return l.in(a.Node, func() error {
		v := &netlink.Veth{
			LinkAttrs:     netlink.LinkAttrs{Name: a.Interface},
			PeerName:      b.Interface,
			PeerNamespace: netlink.NsPid(l.PID(b.Node)),
		}
		if err := netlink.LinkAdd(v); err != nil {
			return fmt.Errorf("join %s and %s: %w", a, b, err)
		}
		return nil
	})
}

// lan joins nodes, and switches, by a bridge.
func (l *Lab) lan(link *slice.Link, switches map[string]string, bridge func() (string, error)) error {
	name := ""
	for _, e := range link.Ends {
		if b := switches[e.Node]; b != "" {
			name = b
		}
	}
	if name == "" {
		var err error
		if name, err = bridge(); err != nil {
			return err
		}
	}
	for i, e := range link.Ends {
		if switches[e.Node] != "" {
			continue
		}
		end := slice.End{Node: hub, Interface: fmt.Sprintf("%sp%s%d", name, link.Name, i)}
		if err := l.veth(e, end); err != nil {
			return err
		}
		if err := l.enslave(end.Interface, name); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) enslave(port, bridge string) error {
	return l.in(hub, func() error {
		p, err := netlink.LinkByName(port)
		if err != nil {
			return err
		}
		b, err := netlink.LinkByName(bridge)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetMaster(p, b); err != nil {
			return err
		}
		return netlink.LinkSetUp(p)
	})
}

// configure gives a node its addresses and routes.
func (l *Lab) configure(n *slice.Node) error {
	return l.in(n.Name, func() error {
		for _, family := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			value := "0"
			if n.Kind == slice.Router {
				value = "1"
			}
			if err := os.WriteFile("/proc/sys/net/"+family, []byte(value), 0); err != nil {
				return err
			}
		}
		if err := addresses("lo", 0, n.Loopbacks); err != nil {
			return fmt.Errorf("configure lo of %s: %w", n.Name, err)
		}
		for _, i := range n.Interfaces {
			if err := addresses(i.Name, i.MTU, i.Addresses); err != nil {
				return fmt.Errorf("configure %s of %s: %w", i.Name, n.Name, err)
			}
		}
		for _, r := range n.Routes {
			if err := netlink.RouteReplace(&netlink.Route{Dst: ipNet(r.To),
				Gw: r.Via.AsSlice()}); err != nil {
				return fmt.Errorf("route %s of %s: %w", r.To, n.Name, err)
			}
		}
		return nil
	})
}

func addresses(name string, mtu int, all []netip.Prefix) error {
	// Link-local addresses are usable at once: no other interface has them.
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/accept_dad", []byte("0"), 0); err != nil {
		return err
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if mtu > 0 {
		if err := netlink.LinkSetMTU(link, mtu); err != nil {
			return err
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	for _, p := range all {
		a := &netlink.Addr{IPNet: ipNet(p)}
		if p.Addr().Is6() {
			a.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrReplace(link, a); err != nil {
			return fmt.Errorf("address %s: %w", p, err)
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// SetLink takes a link of two ends down or up: both nodes lose their carrier.
func (l *Lab) SetLink(name string, up bool) {
	l.t.Helper()
	e := l.Slice.Link(name).Ends[0]
	err := l.in(e.Node, func() error {
		link, err := netlink.LinkByName(e.Interface)
		if err != nil {
			return err
		}
		if up {
			return netlink.LinkSetUp(link)
		}
		return netlink.LinkSetDown(link)
	})
	if err != nil {
		l.t.Fatalf("set link %s: %v", name, err)
	}
}
