package mirror

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/fib"
	"github.com/pergola-net/pergola/kernel/rtnl"
)

// link is an interface of the node, by the kernel's messages.
type link struct {
	name       string
	mac        [6]byte
	mtu, mtu6  int
	up         bool // administratively, and with carrier
	taken      bool // what arrives is for a bridge, or for an XDP program of the node's own
	noIPv6     bool
	held       uint32 // generation of the dump until which nothing leaves by this link: 0: none
	generation uint32
}

// settings are net.ipv4.conf.* or net.ipv6.conf.* of an interface, as far as they matter here.
type settings struct {
	forwarding, rpFilter, proxyNDP, ignoreLinkDown bool
}

const allLinks = -1 // NETCONFA_IFINDEX_ALL: what is set for all

// links are those of one node, and what follows for the legs.
type links struct {
	out       sink
	ports     map[int]int // the view's (newView); this is where a leg that is lost is deleted from it
	all       map[int]*link
	settings  perFamily[map[int]settings]
	published map[int]fib.Leg             // by port
	why       map[int]perFamily[[]string] // the frames of a family that arrive are the kernel's
	lost      map[int]string              // names of what were legs
	live      bool                        // the legs may be published
}

func newLinks(out sink, ports map[int]int) *links {
	return &links{
		out: out, ports: ports, all: map[int]*link{}, published: map[int]fib.Leg{},
		why: map[int]perFamily[[]string]{}, lost: map[int]string{},
		settings: perFamily[map[int]settings]{{}, {}},
	}
}

// parseLink reads RTM_NEWLINK of family unspec.
func parseLink(m rtnl.Message) (index int, l link, err error) {
	if len(m.Data) < unix.SizeofIfInfomsg {
		return 0, l, rtnl.ErrMalformed
	}
	const running = unix.IFF_UP | unix.IFF_RUNNING | unix.IFF_LOWER_UP
	index = int(binary.NativeEndian.Uint32(m.Data[4:]))
	l.up = binary.NativeEndian.Uint32(m.Data[8:])&running == running
	for a := m.Attributes(unix.SizeofIfInfomsg); a.Next(); {
		switch a.Kind {
		case unix.IFLA_IFNAME:
			l.name = unix.ByteSliceToString(a.Value)
		case unix.IFLA_ADDRESS:
			if len(a.Value) == len(l.mac) {
				l.mac = [6]byte(a.Value)
			}
		case unix.IFLA_MTU:
			l.mtu = int(a.U32())
		case unix.IFLA_MASTER:
			l.taken = l.taken || a.U32() != 0
		case unix.IFLA_XDP:
			for x := rtnl.Attributes(a.Value); x.Next(); {
				l.taken = l.taken || x.Kind == unix.IFLA_XDP_ATTACHED && len(x.Value) > 0 &&
					x.Value[0] != 0
			}
		case unix.IFLA_AF_SPEC:
			for f := rtnl.Attributes(a.Value); f.Next(); {
				if f.Kind == unix.AF_INET6 {
					l.ipv6(f.Value)
				}
			}
		}
	}
	return index, l, nil
}

// Indexes into IFLA_INET6_CONF (linux/ipv6.h).
const (
	devconfMTU6        = 2
	devconfDisableIPv6 = 26
)

// ipv6 reads what IPv6 adds to an interface.
func (l *link) ipv6(b []byte) {
	for a := rtnl.Attributes(b); a.Next(); {
		if a.Kind != unix.IFLA_INET6_CONF {
			continue
		}
		number := func(i int) uint32 {
			if len(a.Value) < 4*i+4 {
				return 0
			}
			return binary.NativeEndian.Uint32(a.Value[4*i:])
		}
		l.mtu6, l.noIPv6 = int(number(devconfMTU6)), number(devconfDisableIPv6) != 0
	}
}

// parseIPv6Link reads RTM_NEWLINK of family inet6 into what is known of the link.
func parseIPv6Link(m rtnl.Message, known link) link {
	for a := m.Attributes(unix.SizeofIfInfomsg); a.Next(); {
		if a.Kind == unix.IFLA_PROTINFO {
			known.ipv6(a.Value)
		}
	}
	return known
}

// set takes a link over, and reports whether routes may have changed with it: then nothing leaves by it before a dump
// of that generation.
func (ls *links) set(index int, l link, until uint32) (shaken bool, err error) {
	if was := ls.all[index]; was != nil {
		l.held = was.held
		shaken = was.up != l.up || was.taken != l.taken || small(was.mtu) != small(l.mtu)
	}
	if shaken {
		l.held = until
	}
	ls.all[index] = &l
	return shaken, ls.publish(index)
}

// small MTUs end a protocol on an interface, and its routes with it.
func small(mtu int) bool { return mtu < 1280 }

// hold keeps a link down until a dump shows which routes it still has.
func (ls *links) hold(index int, until uint32) error {
	if l := ls.all[index]; l != nil {
		l.held = until
	}
	return ls.publish(index)
}

// release ends the holds that waited for a dump.
func (ls *links) release(generation uint32) error {
	for index, l := range ls.all {
		if l.held == 0 || l.held > generation {
			continue
		}
		l.held = 0
		if err := ls.publish(index); err != nil {
			return err
		}
	}
	return nil
}

// remove forgets a link. If it was a leg, there is none any more, also when another interface takes its ifindex:
// only the owner of the substrate's end knows what a node's new interface leads to.
func (ls *links) remove(index int) error {
	was := ls.all[index]
	delete(ls.all, index)
	delete(ls.why, index)
	port, ok := ls.ports[index]
	if !ok {
		return nil
	}
	delete(ls.ports, index)
	if was != nil {
		ls.lost[index] = was.name
	}
	if _, known := ls.published[port]; !known { // perhaps an earlier process's: taken over first
		if err := ls.out.SetLeg(port, fib.Leg{}); err != nil {
			return err
		}
	}
	delete(ls.published, port)
	return ls.out.DeleteLeg(port)
}

// goLive publishes all legs, and from now on their changes.
func (ls *links) goLive() error {
	ls.live = true
	return ls.publishAll()
}

// publishAll publishes every leg that has changed.
func (ls *links) publishAll() error {
	for index := range ls.ports {
		if err := ls.publish(index); err != nil {
			return err
		}
	}
	return nil
}

// publish gives the programs what has changed of a leg, once links are live.
func (ls *links) publish(index int) error {
	if !ls.live {
		return nil
	}
	port, ok := ls.ports[index]
	if !ok || ls.all[index] == nil {
		return nil
	}
	leg, why := ls.leg(index)
	ls.why[index] = why
	if leg.IPv4 && leg.IPv6 {
		delete(ls.why, index)
	}
	if was, ok := ls.published[port]; ok && was == leg {
		return nil
	}
	ls.published[port] = leg
	return ls.out.SetLeg(port, leg)
}

// leg is what the programs are to know of a link, and why its frames of a family are the kernel's.
func (ls *links) leg(index int) (leg fib.Leg, why perFamily[[]string]) {
	l := ls.all[index]
	why = ls.reasons(index)
	leg = fib.Leg{MTU: l.mtu, MAC: l.mac, Up: l.up && l.held == 0,
		IPv4: len(why[family4]) == 0, IPv6: len(why[family6]) == 0}
	if l.mtu6 > 0 { // frames between the two are the kernel's
		leg.MTU = min(leg.MTU, l.mtu6)
	}
	return leg, why
}

// configure reads RTM_NEWNETCONF: what has changed, or all. It reports whether routes may have changed with it.
func (ls *links) configure(m rtnl.Message) (shaken bool, err error) {
	if len(m.Data) < 1 {
		return false, rtnl.ErrMalformed
	}
	var all map[int]settings
	switch m.Data[0] {
	case unix.AF_INET:
		all = ls.settings[family4]
	case unix.AF_INET6:
		all = ls.settings[family6]
	default:
		return false, nil
	}
	index := 0
	for a := m.Attributes(sizeofNetconf); a.Next(); {
		if a.Kind == netconfIfindex {
			index = int(int32(a.U32()))
		}
	}
	s, known := all[index]
	was := s
	for a := m.Attributes(sizeofNetconf); a.Next(); {
		switch on := a.U32() != 0; a.Kind {
		case netconfForwarding:
			s.forwarding = on
		case netconfRPFilter:
			s.rpFilter = on
		case netconfProxyNeighbour:
			s.proxyNDP = on
		case netconfIgnoreLinkDown:
			s.ignoreLinkDown = on
		}
	}
	if m.Kind == unix.RTM_DELNETCONF {
		delete(all, index)
		return false, nil
	}
	all[index] = s
	shaken = known && s.ignoreLinkDown != was.ignoreLinkDown
	if index == allLinks {
		return shaken, ls.publishAll()
	}
	return shaken, ls.publish(index)
}

// struct netconfmsg and its attributes (linux/netconf.h).
const (
	sizeofNetconf = 4 // one byte, and padding

	netconfIfindex        = 1
	netconfForwarding     = 2
	netconfRPFilter       = 3
	netconfProxyNeighbour = 5
	netconfIgnoreLinkDown = 6
)
