package mirror

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/rtnl"
)

// view is the state of one node's kernel, by its messages, and what follows from it for the programs. It has no clock
// and does no I/O but to its sink.
type view struct {
	parser     routeParser
	rib        *rib
	links      *links
	neighbours neighbours
	addresses  addresses
	unsure     bool // an IPv6 route was removed while IPv6 routes were dumped
	events     int  // received so far
}

// newView begins with nothing. ports are the substrate's ends of the node's links, by the node's ifindexes. The three
// parts of the view share one copy of them: links deletes a leg from it when its interface goes, and then the rib and
// the neighbours have no port for it either.
func newView(out sink, ports map[int]int) *view {
	ports = maps.Clone(ports)
	return &view{
		rib:        newRIB(out, ports),
		links:      newLinks(out, ports),
		neighbours: neighbours{out: out, ports: ports, all: map[neighbourKey]neighbour{}},
		addresses: addresses{out: out, all: map[addressKey]uint32{}, own: map[netip.Addr]int{},
			on: map[netip.Addr]int{}},
	}
}

// errUnexpected means a message that should not have come: the view is not to be trusted.
var errUnexpected = errors.New("unexpected netlink message")

// dumped are the parts of a dump, in the order in which they are asked for: routes come after what they refer to.
type part int

const (
	partLinks part = iota
	partNetconf4
	partNetconf6
	partAddresses
	partObjects
	partRoutes4
	partRoutes6
	partNeighbours
	parts // their number
)

// begin opens a dump of everything, at the end of which the view is what the kernel is.
func (v *view) begin() {
	v.parser.forget()
	v.rib.begin()
	v.neighbours.touched.forget()
	v.addresses.touched.forget()
}

// confirm takes over a message of a dump.
func (v *view) confirm(m rtnl.Message) error {
	switch m.Kind {
	case unix.RTM_NEWROUTE:
		p, n, ok, err := v.parser.parse(m)
		if err != nil || !ok {
			return err
		}
		return v.rib.confirm(p, n)
	case unix.RTM_NEWLINK:
		return v.link(m, v.rib.generation)
	}
	return v.apply(m, dumped)
}

// event takes over an event. during is the part of a dump that it came in between; parts if none.
func (v *view) event(m rtnl.Message, during part) error {
	v.events++
	from := alone
	if during != parts {
		from = between
	}
	switch m.Kind {
	case unix.RTM_NEWROUTE:
		p, n, ok, err := v.parser.parse(m)
		if err != nil || !ok {
			return err
		}
		if from == between {
			v.rib.touched.add(n.key(p))
		}
		return v.rib.add(p, n, m.Flags)
	case unix.RTM_DELROUTE:
		p, n, ok, err := v.parser.parse(m)
		if err != nil || !ok {
			return err
		}
		// A dump of IPv6 routes that has to be continued after a change starts over and skips as many prefixes
		// as it had (fib6_dump_table()): if one of them went, it skips one too many.
		if from == between {
			v.rib.touched.add(n.key(p))
		}
		v.unsure = v.unsure || during == partRoutes6 && p.Addr().Is6()
		return v.rib.remove(p, n)
	case unix.RTM_NEWLINK:
		return v.link(m, v.rib.generation+1)
	}
	return v.apply(m, from)
}

func (v *view) apply(m rtnl.Message, from origin) error {
	switch m.Kind {
	case unix.RTM_DELLINK:
		return v.linkGone(m)
	case unix.RTM_NEWNETCONF, unix.RTM_DELNETCONF:
		return v.netconf(m)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return v.address(m, from)
	case unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP:
		return v.object(m)
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		return v.neighbours.apply(m, from, v.rib.generation)
	case unix.RTM_GETNEIGH, // asks a daemon to resolve a neighbour (app_solicit)
		unix.RTM_NEWNEXTHOPBUCKET, unix.RTM_DELNEXTHOPBUCKET: // of resilient groups, which are the kernel's
		return nil
	}
	return fmt.Errorf("%w: type %d", errUnexpected, m.Kind)
}

// link takes over RTM_NEWLINK. What leaves by a link that has changed waits for a dump of that generation: the kernel
// does not announce IPv4 routes that went with a link, and the link may be back before anybody has looked.
func (v *view) link(m rtnl.Message, until uint32) error {
	if len(m.Data) < unix.SizeofIfInfomsg {
		return rtnl.ErrMalformed
	}
	index := int(binary.NativeEndian.Uint32(m.Data[4:]))
	var l link
	switch m.Data[0] {
	case unix.AF_UNSPEC:
		var err error
		if index, l, err = parseLink(m); err != nil {
			return err
		}
	case unix.AF_INET6:
		known := v.links.all[index]
		if known == nil {
			return nil
		}
		l = parseIPv6Link(m, *known)
	default: // a bridge's port
		return nil
	}
	l.generation = v.rib.generation
	if was := v.links.all[index]; was != nil && was.mtu != l.mtu {
		v.rib.stale = "an MTU has changed, and perhaps that of IPv6 after it, which is not announced"
	}
	shaken, err := v.links.set(index, l, until)
	if err != nil || !shaken {
		return err
	}
	return v.rib.suspectLink(index)
}

func (v *view) linkGone(m rtnl.Message) error {
	if len(m.Data) < unix.SizeofIfInfomsg {
		return rtnl.ErrMalformed
	}
	if m.Data[0] != unix.AF_UNSPEC {
		return nil
	}
	return v.removeLink(int(binary.NativeEndian.Uint32(m.Data[4:])))
}

func (v *view) removeLink(index int) error {
	if v.links.all[index] == nil {
		return nil
	}
	if err := v.links.remove(index); err != nil {
		return err
	}
	v.parser.forget() // a new interface with this ifindex leads elsewhere
	return v.rib.suspectLink(index)
}

func (v *view) netconf(m rtnl.Message) error {
	shaken, err := v.links.configure(m)
	if err == nil && shaken {
		v.rib.stale = "net.*.conf.*.ignore_routes_with_linkdown has changed, and perhaps routes with it"
		for index := range v.links.all {
			if err := v.rib.suspectLink(index); err != nil {
				return err
			}
		}
	}
	return err
}

func (v *view) address(m rtnl.Message, from origin) error {
	k, ok, err := parseAddress(m)
	if err != nil {
		return err
	}
	if !ok {
		// Whether IPv6 was switched off or on for an interface shows in its addresses alone.
		v.rib.stale = "an IPv6 address has changed, and perhaps its interface"
		return nil
	}
	if v.addresses.touched.stale(k, from) {
		return nil
	}
	if m.Kind != unix.RTM_NEWADDR {
		return v.removeAddress(k)
	}
	_, known := v.addresses.all[k]
	if err := v.addresses.set(k, v.rib.generation); err != nil || known || from == dumped {
		return err
	}
	return v.rib.suspectLink(k.link) // dead paths by it may be alive again (fib_inetaddr_event())
}

func (v *view) removeAddress(k addressKey) error {
	last, err := v.addresses.remove(k)
	if err != nil {
		return err
	}
	if v.links.all[k.link] != nil && !v.addresses.any(k.link) {
		// The last one: IPv4 ends on the interface, and with it all routes (fib_inetaddr_event()).
		err := v.links.hold(k.link, v.rib.generation+1)
		if err == nil {
			err = v.rib.suspectLink(k.link)
		}
		if err != nil {
			return err
		}
	}
	if !last {
		return nil
	}
	return v.rib.suspectSource(k.prefix.Addr())
}

func (v *view) object(m rtnl.Message) error {
	id, o, err := parseObject(m)
	if err != nil {
		return err
	}
	o.generation = v.rib.generation
	was, known := v.rib.objects[id]
	if m.Kind == unix.RTM_DELNEXTHOP {
		return v.removeObject(id)
	}
	v.rib.objects[id] = o
	if known && was.same(o) {
		return nil
	}
	v.parser.forget() // what was concluded from it
	return v.rib.suspectObject(id)
}

func (v *view) removeObject(id uint32) error {
	if err := v.rib.suspectObject(id); err != nil {
		return err
	}
	delete(v.rib.objects, id)
	v.parser.forget()
	return nil
}

// sweep ends one part of a dump: what it did not confirm is gone.
func (v *view) sweep(p part) error {
	now := v.rib.generation
	switch p {
	case partLinks:
		return v.sweepLinks(now)
	case partAddresses:
		return sweep(v.addresses.all, func(generation uint32) bool { return generation == now },
			v.removeAddress)
	case partObjects:
		return sweep(v.rib.objects, func(o object) bool { return o.generation == now }, v.removeObject)
	case partRoutes4:
		return v.rib.sweep(family4)
	case partRoutes6:
		return v.rib.sweep(family6)
	case partNeighbours:
		return sweep(v.neighbours.all, func(n neighbour) bool { return n.generation == now },
			v.neighbours.remove)
	case partNetconf4, partNetconf6, parts:
	}
	return nil
}

// sweep removes what is not confirmed.
func sweep[K comparable, V any](all map[K]V, confirmed func(V) bool, remove func(K) error) error {
	for k, v := range all {
		if confirmed(v) {
			continue
		}
		if err := remove(k); err != nil {
			return err
		}
	}
	return nil
}

func (v *view) sweepLinks(now uint32) error {
	for index := range v.links.ports {
		if v.links.all[index] != nil {
			continue
		}
		if err := v.links.remove(index); err != nil { // it never was
			return err
		}
	}
	return sweep(v.links.all, func(l *link) bool { return l.generation == now }, v.removeLink)
}

// end ends a dump of everything.
func (v *view) end() error {
	v.neighbours.touched.forget()
	v.addresses.touched.forget()
	if err := v.rib.end(); err != nil {
		return err
	}
	return v.links.release(v.rib.generation)
}

// reasons say what about the node itself keeps a family in its kernel.
func (v *view) reasons() (ipv4, ipv6 []string) {
	if v.rib.ruleSensitive > 0 {
		ipv4 = append(ipv4, "there are routes of type local, or in table local, for more than the node's own "+
			"addresses")
	}
	return ipv4, nil
}
