// Package plantest makes slices for tests of what a host must hold.
package plantest

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/pergola-net/pergola/model/slice"
)

// Hosts are three hosts of a cluster, with the addresses of their ends of tunnels.
var Hosts = map[string]netip.Addr{
	"A": netip.MustParseAddr("192.0.2.1"), "B": netip.MustParseAddr("192.0.2.2"),
	"C": netip.MustParseAddr("192.0.2.3"),
}

// Slice makes a slice of hosts h1, h2, ..., programs p1, ..., switches s1, s2, ... and uplinks u1, ... from links
// between them. Each end gets the next interface of its node. A link of more than two ends is a LAN.
func Slice(id uint16, links ...[]string) *slice.Slice {
	s := &slice.Slice{Name: fmt.Sprint("lab", id), ID: id, Generation: 1}
	port := uint16(0)
	for _, ends := range links {
		l := slice.Link{LAN: len(ends) > 2}
		for _, name := range ends {
			n := s.Node(name)
			if n == nil {
				kinds := map[byte]slice.Kind{
					'h': slice.Host, 'p': slice.Program, 's': slice.Switch, 'u': slice.Uplink,
				}
				s.Nodes = append(s.Nodes, slice.Node{
					Name: name, Kind: kinds[name[0]], Restart: slice.RestartAlways,
					Exec: []string{"true"},
				})
				n = s.Node(name)
				if n.Kind == slice.Program {
					SetProgram(s, name, "a program")
				}
			}
			port++
			i := slice.Interface{
				Name: fmt.Sprint("eth", len(n.Interfaces)+1), Port: port, MTU: 1500,
				MAC: "02:00:00:00:00:01",
			}
			n.Interfaces = append(n.Interfaces, i)
			if n.Program != nil {
				n.Program.Interfaces = append(n.Program.Interfaces, i.Name)
			}
			l.Ends = append(l.Ends, slice.End{Node: name, Interface: i.Name})
			l.Name += name + ":" + i.Name + " "
		}
		for i := range l.Ends {
			s.Node(l.Ends[i].Node).Interface(l.Ends[i].Interface).Link = l.Name
		}
		s.Links = append(s.Links, l)
	}
	return s
}

// SetProgram makes a node one of kind program, or gives it another program.
func SetProgram(s *slice.Slice, node, object string) {
	name := slice.ObjectName([]byte(object))
	if s.Programs == nil {
		s.Programs = map[string][]byte{}
	}
	s.Programs[name] = []byte(object)
	n, p := s.Node(node), slice.PacketProgram{}
	if n.Program != nil {
		p = *n.Program
	}
	p.Name, p.Object = "x.c", name
	n.Kind, n.Program = slice.Program, &p
}

// Spread puts nodes on hosts, as the controller does, and numbers the tunnels of what then is on several hosts.
func Spread(s *slice.Slice, hosts map[string]string) *slice.Slice {
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Kind != slice.Switch {
			n.Host = hosts[n.Name]
		}
	}
	span, number := s.Span(), uint16(0)
	next := func(hosts []string) slice.Tunnel {
		if len(hosts) < 2 {
			return slice.Tunnel{}
		}
		number++
		return slice.Tunnel{Number: number}
	}
	isSwitch := func(e slice.End) bool { return s.Node(e.Node).Kind == slice.Switch }
	for i := range s.Links {
		if l := &s.Links[i]; l.LAN || len(l.Ends) > 2 || !slices.ContainsFunc(l.Ends, isSwitch) {
			l.Tunnel = next(span.Link(l.Name))
		}
	}
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Kind == slice.Switch {
			n.Tunnel = next(span.Switch(n.Name))
		}
	}
	return s
}
