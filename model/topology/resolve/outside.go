package resolve

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
	"github.com/pergola-net/pergola/model/topology/file"
)

// outside reads how a node reaches the outside.
func (r *resolver) outside(n *node) {
	in, at := n.all.Outside, n.at.At("outside")
	if n.out.Outside = in.IsOn(); in == nil {
		return
	}
	n.out.OutsideRate, n.out.OutsideReserve = checked(in.Rate.Bits()), checked(in.Reserve.Bits())
	if in.Rate != "" && n.out.OutsideRate == 0 && in.Rate.Check() == nil {
		r.Add(at.At("rate"), "write outside: false", "a rate of 0 lets nothing pass")
	}
	if most := n.out.RateOutside(); n.out.OutsideReserve > most {
		r.Add(at.At("reserve"), "raise the rate, or reserve less",
			"%s are reserved, and the node may send %s to the outside", n.out.OutsideReserve, most)
	}
}

// ports reads the ports of its host that a node reserves.
func (r *resolver) ports(n *node) (all []slice.HostPort) {
	at := n.at.At("ports")
	for i, written := range n.all.Ports {
		p, err := hostPort(written)
		switch {
		case written.Bind != "" && isPlainPort(written) && written.Port == "": // bindPorts reads it
		case n.kind != slice.Program && !isPlainPort(written):
			r.Add(at.Item(i), "write udp/5610, or kind: program",
				"%q is no packet program: no interface of it is a port", n.name)
		case err != nil:
			r.Add(at.Item(i), "", "%v", err)
		case slices.Contains(all, p):
			r.Add(at.Item(i), "", "port %s is listed twice", p)
		default:
			all = append(all, p)
		}
	}
	if len(all) > slice.MaxHostPorts {
		r.Add(at.Item(slice.MaxHostPorts), "", "%q has %d ports, and may have %d", n.name, len(all),
			slice.MaxHostPorts)
	}
	has := len(n.all.Ports) > 0 || n.all.Outside.IsOn()
	if i := n.byName[slice.OutsideInterface]; i != nil && has {
		r.Add(i.at, "give it another name", "interface %q is the one by which %q reaches the outside",
			slice.OutsideInterface, n.name)
	}
	slices.SortFunc(all, slice.HostPort.Compare)
	return all
}

// bindPorts reads the range of ports that the node's processes reserve by binding them. There is one at most: a
// device's alias, where the host notes it, takes no more.
func (r *resolver) bindPorts(n *node) (ports slice.Ports) {
	for i, written := range n.all.Ports {
		if written.Bind == "" {
			continue
		}
		at := n.at.At("ports").Item(i).At("bind")
		is := checked(written.Bind.Value()) // what is wrong has been reported
		switch {
		case ports != (slice.Ports{}):
			r.Add(at, "write one range that has all", "%q has a range of ports that it may bind already",
				n.name)
		case is.First <= slice.LastNATPort && is.Last >= slice.FirstNATPort:
			r.Add(at, "", "ports %d to %d are those of connections that nodes make to the outside",
				slice.FirstNATPort, slice.LastNATPort)
		default:
			ports = is
		}
	}
	return ports
}

// claims are the ports that were asked for while the node ran, and those that its processes have bound: it keeps them
// as long as ports can lead to it, and there is room.
func (r *resolver) claims(n *node) (claims, bound []slice.HostPort) {
	leads := n.kind == slice.Host || n.kind == slice.Program
	if n.prev == nil || !leads || n.byName[slice.OutsideInterface] != nil {
		return nil, nil
	}
	claims = slices.DeleteFunc(slices.Clone(n.prev.Claims), func(p slice.HostPort) bool {
		return slices.Contains(n.out.Ports, p)
	})
	bound = slices.DeleteFunc(slices.Clone(n.prev.BoundPorts), func(p slice.HostPort) bool {
		return slices.Contains(n.out.Ports, p) || !n.out.BindPorts.Has(p.Port)
	})
	room := max(slice.MaxHostPorts-len(n.out.Ports), 0)
	claims = claims[:min(len(claims), room)]
	return claims, bound[:min(len(bound), room-len(claims))]
}

func isPlainPort(p file.Port) bool {
	return p.UDP == 0 && p.Interface == "" && len(p.Peers) == 0 && p.Rate == ""
}

// hostPort reads the port of an entry: it is given as text, or as the number of a UDP port.
func hostPort(p file.Port) (slice.HostPort, error) {
	switch {
	case p.UDP == 0 && !isPlainPort(p):
		return slice.HostPort{}, errors.New("interface, peers and rate are those of a udp: port")
	case p.UDP != 0 && p.Port != "":
		return slice.HostPort{}, errors.New("port and udp both name the port")
	case p.Bind != "":
		return slice.HostPort{}, errors.New("bind: is an entry of its own: it takes no other key")
	case p.UDP != 0:
		return slice.ParseHostPort(fmt.Sprintf("%s/%d", slice.UDP, p.UDP))
	}
	return slice.ParseHostPort(p.Port)
}

// udpPorts lists the ports that are interfaces of a packet program.
func (r *resolver) udpPorts(n *node) (all []slice.UDPPort) {
	for i, written := range n.all.Ports {
		if written.UDP == 0 {
			continue
		}
		at := n.at.At("ports").Item(i)
		p := slice.UDPPort{
			Interface: cmp.Or(written.Interface, fmt.Sprintf("udp%d", written.UDP)),
			Port:      uint16(written.UDP),
			Peers:     r.peers(at.At("peers"), written.Peers), Rate: slice.DefaultUDPRate,
		}
		if bits, err := written.Rate.Bits(); written.Rate != "" && err == nil { // else it has been reported
			p.Rate = bits
			if bits < 8 {
				r.Add(at.At("rate"), "leave peers out", "a rate of %d bit/s lets nothing pass", bits)
			}
		}
		named := func(other slice.UDPPort) bool { return other.Interface == p.Interface }
		if n.byName[p.Interface] != nil || slices.ContainsFunc(all, named) {
			r.Add(at, "give it another interface:", "%q has an interface %q already", n.name, p.Interface)
		}
		all = append(all, p)
	}
	return all
}

// peers reads where a packet program may send.
func (r *resolver) peers(at *diagnostic.Path, list file.Strings) (all []netip.Prefix) {
	for i, text := range list {
		p, err := netip.ParsePrefix(text)
		if a, single := netip.ParseAddr(text); single == nil {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil || !p.Addr().Is4() {
			r.Add(at.Item(i), "write such as 198.51.100.0/24", "%q is no IPv4 address or prefix", text)
			continue
		}
		all = append(all, p.Masked())
	}
	if len(all) > slice.MaxUDPPeers {
		r.Add(at.Item(slice.MaxUDPPeers), "", "%d prefixes are too many: at most %d", len(all),
			slice.MaxUDPPeers)
	}
	return all
}
