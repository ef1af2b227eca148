package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strconv"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/kernel/rtnl"
)

// Tables reads what the kernel of a node knows, given the pid of one of its processes. The error is netns.ErrGone
// where the process ended.
func Tables(ctx context.Context, pid int) (t Table, err error) {
	err = inside(ctx, pid, "tables", func(c *rtnl.Conn) error {
		names, err := readInterfaces(c, &t)
		if err != nil {
			return err
		}
		return readRoutes(c, &t, names)
	})
	if err != nil {
		return Table{}, err
	}
	return t, nil
}

// Interfaces is Tables without the routes, of which there may be many.
func Interfaces(ctx context.Context, pid int) ([]Interface, error) {
	var t Table
	err := inside(ctx, pid, "interfaces", func(c *rtnl.Conn) error {
		_, err := readInterfaces(c, &t)
		return err
	})
	return t.Interfaces, err
}

// inside lets f ask the kernel in the network namespace of a process.
func inside(ctx context.Context, pid int, what string, f func(*rtnl.Conn) error) error {
	err := ctx.Err()
	if err == nil {
		err = netns.Do(netns.Path(pid), func() error {
			c, err := rtnl.Open(unix.NETLINK_ROUTE)
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			return f(c)
		})
	}
	if err != nil {
		return fmt.Errorf("read the %s of process %d: %w", what, pid, err)
	}
	return nil
}

// AllTables reads the tables of many nodes at once. Nodes that are gone meanwhile are left out.
func AllTables(ctx context.Context, pids map[string]int) (map[string]Table, error) {
	type seen struct {
		name  string
		table Table
	}
	results := make(chan seen, len(pids))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(2 * runtime.NumCPU())
	for name, pid := range pids {
		g.Go(func() error {
			t, err := Tables(ctx, pid)
			if errors.Is(err, netns.ErrGone) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("look into %s: %w", name, err)
			}
			results <- seen{name, t}
			return nil
		})
	}
	err := g.Wait()
	close(results)
	tables := make(map[string]Table, len(pids))
	for r := range results {
		tables[r.name] = r.table
	}
	return tables, err
}

// dump lists all objects of a kind. If they change faster than they can be read, the last list is the answer.
func dump(c *rtnl.Conn, get, answer uint16, header []byte) ([][]byte, error) {
	messages, err := c.Dump(get, answer, header)
	if errors.Is(err, rtnl.ErrInterrupted) {
		return messages, nil
	}
	return messages, err
}

// readInterfaces fills in the interfaces with their addresses and gives their names by index.
func readInterfaces(c *rtnl.Conn, t *Table) (map[int]string, error) {
	links, err := dump(c, unix.RTM_GETLINK, unix.RTM_NEWLINK, make([]byte, unix.SizeofIfInfomsg))
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	names, place := map[int]string{}, map[int]int{}
	for _, m := range links {
		msg := nl.DeserializeIfInfomsg(m)
		i := Interface{Index: int(msg.Index), Up: msg.Flags&unix.IFF_UP != 0 && msg.Flags&unix.IFF_RUNNING != 0}
		for a := rtnl.Attributes(m[msg.Len():]); a.Next(); {
			switch a.Kind {
			case unix.IFLA_IFNAME:
				i.Name = a.Text()
			case unix.IFLA_MTU:
				i.MTU = int(a.U32())
			}
		}
		names[i.Index], place[i.Index] = i.Name, len(t.Interfaces)
		t.Interfaces = append(t.Interfaces, i)
	}
	addresses, err := dump(c, unix.RTM_GETADDR, unix.RTM_NEWADDR, make([]byte, unix.SizeofIfAddrmsg))
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	for _, m := range addresses {
		msg := nl.DeserializeIfAddrmsg(m)
		n, ok := place[int(msg.Index)]
		if !ok {
			continue // came between the two dumps
		}
		if p, ok := parseAddress(m[msg.Len():], int(msg.Prefixlen)); ok {
			t.Interfaces[n].Addresses = append(t.Interfaces[n].Addresses, p)
		}
	}
	return names, nil
}

// parseAddress picks the node's own address: IFA_LOCAL where there is one, for IFA_ADDRESS may be the far end's.
func parseAddress(attrs []byte, bits int) (netip.Prefix, bool) {
	var own, address netip.Addr
	for a := rtnl.Attributes(attrs); a.Next(); {
		switch a.Kind {
		case unix.IFA_LOCAL:
			own = a.Address()
		case unix.IFA_ADDRESS:
			address = a.Address()
		}
	}
	if !own.IsValid() {
		own = address
	}
	return netip.PrefixFrom(own, bits), own.IsValid()
}

// readRoutes fills in the routes of the main table.
func readRoutes(c *rtnl.Conn, t *Table, names map[int]string) error {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		header := rtnl.Encode(unix.RtMsg{Family: uint8(family)})
		messages, err := dump(c, unix.RTM_GETROUTE, unix.RTM_NEWROUTE, header)
		if err != nil {
			return fmt.Errorf("list routes: %w", err)
		}
		for _, m := range messages {
			if r, ok := parseRoute(m, names); ok {
				t.Routes = append(t.Routes, r)
			}
		}
	}
	return nil
}

// parseRoute reads one RTM_NEWROUTE; ok is false for what is no route of the main table.
func parseRoute(m []byte, names map[int]string) (r Route, ok bool) {
	msg := nl.DeserializeRtMsg(m)
	if msg.Flags&unix.RTM_F_CLONED != 0 || msg.Src_len != 0 || msg.Tos != 0 {
		return Route{}, false
	}
	switch msg.Type {
	case unix.RTN_UNICAST:
		r.Type = Unicast
	case unix.RTN_BLACKHOLE:
		r.Type = Blackhole
	case unix.RTN_UNREACHABLE:
		r.Type = Unreachable
	case unix.RTN_PROHIBIT:
		r.Type = Prohibit
	default:
		return Route{}, false
	}
	to := netip.IPv4Unspecified()
	if msg.Family == unix.AF_INET6 {
		to = netip.IPv6Unspecified()
	}
	table := uint32(msg.Table)
	var hop nextHop
	hop.flags = msg.Flags
	for a := rtnl.Attributes(m[msg.Len():]); a.Next(); {
		switch a.Kind {
		case unix.RTA_TABLE:
			table = a.U32()
		case unix.RTA_DST:
			to = a.Address()
		case unix.RTA_PRIORITY:
			r.Metric = a.U32()
		case unix.RTA_MULTIPATH:
			r.Hops = parseHops(a.Value, names)
		default:
			hop.attribute(&a)
		}
	}
	if hop.oif != 0 && r.Type == Unicast {
		r.Hops = append(r.Hops, hop.live(names)...)
	}
	r.To = netip.PrefixFrom(to, int(msg.Dst_len))
	r.Protocol = protocolName(msg.Protocol)
	return r, table == unix.RT_TABLE_MAIN && to.IsValid()
}

// nextHop is a next hop as the kernel tells it.
type nextHop struct {
	flags uint32
	oif   int
	via   netip.Addr
}

func (h *nextHop) attribute(a *rtnl.Attrs) {
	switch a.Kind {
	case unix.RTA_OIF:
		h.oif = int(a.U32())
	case unix.RTA_GATEWAY:
		h.via = a.Address()
	case unix.RTA_VIA: // a next hop of the other family (RFC 5549): the family, then the address
		if len(a.Value) > 2 {
			h.via, _ = netip.AddrFromSlice(a.Value[2:])
		}
	}
}

// live gives the hop, or nothing where its link is dead.
func (h *nextHop) live(names map[int]string) []Hop {
	if h.flags&(unix.RTNH_F_DEAD|unix.RTNH_F_LINKDOWN) != 0 {
		return nil
	}
	return []Hop{{Via: h.via, Interface: names[h.oif]}}
}

// parseHops reads RTA_MULTIPATH: a row of struct rtnexthop, each with attributes behind it.
func parseHops(value []byte, names map[int]string) []Hop {
	var hops []Hop
	for len(value) >= unix.SizeofRtNexthop {
		size := int(native.Uint16(value))
		if size < unix.SizeofRtNexthop || size > len(value) {
			break
		}
		h := nextHop{flags: uint32(value[2]), oif: int(native.Uint32(value[4:]))}
		for a := rtnl.Attributes(value[unix.SizeofRtNexthop:size]); a.Next(); {
			h.attribute(&a)
		}
		hops = append(hops, h.live(names)...)
		value = value[min(rtnl.Align(size), len(value)):]
	}
	return hops
}

var native = binary.NativeEndian

// protocols are the names that iproute2 gives to installers of routes (rtnetlink.h, FRR's and BIRD's included).
var protocols = map[uint8]string{
	unix.RTPROT_KERNEL: "kernel", unix.RTPROT_BOOT: "boot", unix.RTPROT_STATIC: "static", unix.RTPROT_RA: "ra",
	unix.RTPROT_ZEBRA: "zebra", unix.RTPROT_BIRD: "bird", unix.RTPROT_BABEL: "babel", unix.RTPROT_BGP: "bgp",
	unix.RTPROT_ISIS: "isis", unix.RTPROT_OSPF: "ospf", unix.RTPROT_RIP: "rip", unix.RTPROT_EIGRP: "eigrp",
	196: "static", 190: "ripng", // FRR's numbers beyond those of the kernel's header
}

func protocolName(number uint8) string {
	if name, ok := protocols[number]; ok {
		return name
	}
	return strconv.Itoa(int(number))
}
