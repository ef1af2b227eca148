// Package describe is the reverse of package resolve: it writes a slice as a topology, from which the same slice is
// resolved. What resolving decides by itself (names, addresses, router IDs) is written out where it decides otherwise
// than it did for this slice, which has a history; what it decides in the same way is left out.
package describe

import (
	"fmt"
	"net/netip"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/address"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
	"github.com/pergola-net/pergola/model/topology/file"
	"github.com/pergola-net/pergola/model/topology/resolve"
)

// Slice gives a topology of a slice. Files have their data, and paths beside the topology. What nodes asked for while
// they ran (ports, bandwidth) is no part of it. The diagnostics say why no topology gives this slice, where it is so.
func Slice(s *slice.Slice) (*file.Topology, diagnostic.Diagnostics) {
	d := describer{s: s, t: &file.Topology{
		Name: s.Name, Attribution: s.Attribution, Placement: s.Strategy, Nodes: map[string]file.Node{},
	}}
	d.systems = d.asNumbers()
	for i := range s.Nodes {
		d.t.Nodes[s.Nodes[i].Name] = d.node(&s.Nodes[i])
	}
	d.links = inOrder(s)
	for _, l := range d.links {
		d.t.Links = append(d.t.Links, d.link(l))
	}
	for i := range s.LSPs {
		d.t.LSPs = append(d.t.LSPs, file.LSPOf(&s.LSPs[i]))
	}
	for i := range s.Checks {
		d.t.Checks = append(d.t.Checks, check(&s.Checks[i]))
	}
	d.leaveAddressesOpen()
	again, found := resolve.Slice(d.t, nil, true)
	if len(found) > 0 {
		return nil, found
	}
	d.writeOut(again)
	return d.t, nil
}

type describer struct {
	s       *slice.Slice
	t       *file.Topology
	links   []*slice.Link     // in the order of the topology
	systems map[string]uint32 // by node
}

// asNumbers gives the AS numbers of routers: that of one with a configuration of its own is known from its neighbours.
func (d *describer) asNumbers() map[string]uint32 {
	all := map[string]uint32{}
	for i := range d.s.Nodes {
		n := &d.s.Nodes[i]
		if n.Routing == nil || n.Routing.BGP == nil {
			continue
		}
		all[n.Name] = n.Routing.BGP.AS
		for _, b := range n.Routing.BGP.Neighbors {
			all[b.Node] = b.AS
		}
	}
	return all
}

// leaveAddressesOpen lets a family have automatic addresses where that gives nothing that the slice does not have, so
// that nodes which are added to the file get some.
func (d *describer) leaveAddressesOpen() {
	a := file.Addressing{}
	for family, off := range []**bool{&a.IPv4, &a.IPv6} {
		if !d.isUsed(family) {
			*off = new(bool)
			d.t.Addressing = &a
			continue
		}
		for i, l := range d.links {
			out := &d.t.Links[i]
			if off := []**bool{&out.IPv4, &out.IPv6}[family]; !d.linkHas(l, family) {
				*off = new(bool)
			}
		}
	}
}

// isUsed reports whether the slice has addresses of a family, and each of its routers a loopback.
func (d *describer) isUsed(family int) (used bool) {
	has := func(p netip.Prefix) bool { return address.Family(p.Addr()) == family }
	for i := range d.s.Nodes {
		n := &d.s.Nodes[i]
		loopback := slices.ContainsFunc(n.Loopbacks, has)
		if n.Kind == slice.Router && !loopback {
			return false
		}
		used = used || loopback || slices.ContainsFunc(n.Interfaces, func(i slice.Interface) bool {
			return slices.ContainsFunc(i.Addresses, has)
		})
	}
	return used
}

// linkHas reports whether all ends that get automatic addresses have one of the family.
func (d *describer) linkHas(l *slice.Link, family int) bool {
	for _, e := range l.Ends {
		n := d.s.Node(e.Node)
		if n.Kind != slice.Router && n.Kind != slice.Host {
			continue
		}
		if !slices.ContainsFunc(n.Interface(e.Interface).Addresses, func(p netip.Prefix) bool {
			return address.Family(p.Addr()) == family && !address.LinkLocal(p.Addr())
		}) {
			return false
		}
	}
	return true
}

// writeOut adds what was resolved otherwise than the slice has it.
func (d *describer) writeOut(again *slice.Slice) {
	for i := range d.s.Nodes {
		n := &d.s.Nodes[i]
		m := again.Node(n.Name)
		out := d.t.Nodes[n.Name]
		for j := range n.Interfaces {
			in, is := &n.Interfaces[j], m.Interface(n.Interfaces[j].Name)
			if in.Passive != is.Passive {
				w := out.Interfaces[in.Name]
				w.Passive = &in.Passive
				setInterface(&out, in.Name, w)
			}
		}
		if n.Kind == slice.Host && !reflect.DeepEqual(n.Routes, m.Routes) {
			out.Gateway, out.Routes = file.Strings{"none"}, routes(n.Routes)
		}
		writeRouting(&out, n.Routing, m.Routing)
		d.t.Nodes[n.Name] = out
	}
	for i := range d.s.Checks {
		if d.s.Checks[i].Name != again.Checks[i].Name {
			d.t.Checks[i].Name = d.s.Checks[i].Name
		}
	}
}

func writeRouting(out *file.Node, has, is *slice.Routing) {
	if has == nil || is == nil || len(has.Config) > 0 {
		return
	}
	if has.RouterID != is.RouterID {
		out.RouterID = has.RouterID.String()
	}
	if has.ISIS != nil && is.ISIS != nil && has.ISIS.NET != is.ISIS.NET {
		out.ISIS = &file.ISIS{NET: has.ISIS.NET, Level: levels[has.ISIS.Level]}
	}
	if has.BGP == nil || is.BGP == nil {
		return
	}
	for _, p := range has.BGP.Networks {
		if !slices.Contains(is.BGP.Networks, p) {
			out.Networks = append(out.Networks, p.String())
		}
	}
}

func check(c *slice.Check) file.Check {
	out := file.Check{Fails: c.Fails}
	if c.Timeout != defaultTimeout {
		out.Timeout = file.DurationOf(c.Timeout)
	}
	switch c.Kind {
	case slice.CheckPing:
		out.Ping = file.Strings{c.From, c.To}
	case slice.CheckPath:
		out.Path = slices.Concat([]string{c.From}, c.Via, []string{c.To})
	case slice.CheckExec:
		out.Exec, out.Node, out.Status, out.Output = c.Command, c.From, c.Status, c.Output
	}
	return out
}

func setInterface(n *file.Node, name string, w file.Interface) {
	if n.Interfaces == nil {
		n.Interfaces = map[string]file.Interface{}
	}
	n.Interfaces[name] = w
}

// Beside gives the path beside the topology of a file of a node.
func Beside(node, name string) string { return path.Join("nodes", node, strings.TrimPrefix(name, "/")) }

func source(at string, data []byte) *file.Source {
	if data == nil {
		data = []byte{} // nil stands for a file that was not read
	}
	return &file.Source{Path: at, Data: data}
}

func prefixes[T fmt.Stringer](all []T) (out file.Strings) {
	for _, p := range all {
		out = append(out, p.String())
	}
	return out
}
