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
)

// Tables reads what the kernel of a node knows, given the pid of one of its processes. The error is netns.ErrGone
// where the process ended.
func Tables(ctx context.Context, pid int) (Table, error) {
	if err := ctx.Err(); err != nil {
		return Table{}, fmt.Errorf("read the tables of process %d: %w", pid, err)
	}
	var t Table
	err := netns.Do(netns.Path(pid), func() error {
		names, err := readInterfaces(&t)
		if err != nil {
			return err
		}
		return readRoutes(&t, names)
	})
	if err != nil {
		return Table{}, fmt.Errorf("read the tables of process %d: %w", pid, err)
	}
	return t, nil
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

// dump asks the kernel for all objects of a kind. The library's own typed lists cost eight times as much, which
// matters when 500 routers have 3,000 routes each.
func dump(kind int, header nl.NetlinkRequestData, reply uint16) ([][]byte, error) {
	for try := 1; ; try++ {
		req := nl.NewNetlinkRequest(kind, unix.NLM_F_DUMP)
		req.AddData(header)
		messages, err := req.Execute(unix.NETLINK_ROUTE, reply)
		if !errors.Is(err, nl.ErrDumpInterrupted) {
			return messages, err
		}
		if try == dumpTries { // it changes faster than it can be read: that is what the caller then sees
			return messages, nil
		}
	}
}

// dumpTries bounds how often a dump that a change interrupted is begun anew.
const dumpTries = 3

// readInterfaces fills in the interfaces with their addresses and gives their names by index.
func readInterfaces(t *Table) (map[int]string, error) {
	links, err := dump(unix.RTM_GETLINK, nl.NewIfInfomsg(unix.AF_UNSPEC), unix.RTM_NEWLINK)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	names, place := map[int]string{}, map[int]int{}
	for _, m := range links {
		msg := nl.DeserializeIfInfomsg(m)
		i := Interface{Index: int(msg.Index), Up: msg.Flags&unix.IFF_UP != 0 && msg.Flags&unix.IFF_RUNNING != 0}
		eachAttr(m[msg.Len():], func(kind uint16, value []byte) {
			switch kind {
			case unix.IFLA_IFNAME:
				i.Name = unix.ByteSliceToString(value)
			case unix.IFLA_MTU:
				i.MTU = int(native.Uint32(value))
			}
		})
		names[i.Index], place[i.Index] = i.Name, len(t.Interfaces)
		t.Interfaces = append(t.Interfaces, i)
	}
	addresses, err := dump(unix.RTM_GETADDR, nl.NewIfInfomsg(unix.AF_UNSPEC), unix.RTM_NEWADDR)
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
	eachAttr(attrs, func(kind uint16, value []byte) {
		switch kind {
		case unix.IFA_LOCAL:
			own, _ = netip.AddrFromSlice(value)
		case unix.IFA_ADDRESS:
			address, _ = netip.AddrFromSlice(value)
		}
	})
	if !own.IsValid() {
		own = address
	}
	return netip.PrefixFrom(own, bits), own.IsValid()
}

// readRoutes fills in the routes of the main table.
func readRoutes(t *Table, names map[int]string) error {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		header := &nl.RtMsg{}
		header.Family = uint8(family)
		messages, err := dump(unix.RTM_GETROUTE, header, unix.RTM_NEWROUTE)
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
	eachAttr(m[msg.Len():], func(kind uint16, value []byte) {
		switch kind {
		case unix.RTA_TABLE:
			table = native.Uint32(value)
		case unix.RTA_DST:
			to, _ = netip.AddrFromSlice(value)
		case unix.RTA_PRIORITY:
			r.Metric = native.Uint32(value)
		case unix.RTA_MULTIPATH:
			r.Hops = parseHops(value, names)
		default:
			hop.attribute(kind, value)
		}
	})
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

func (h *nextHop) attribute(kind uint16, value []byte) {
	switch kind {
	case unix.RTA_OIF:
		h.oif = int(native.Uint32(value))
	case unix.RTA_GATEWAY:
		h.via, _ = netip.AddrFromSlice(value)
	case unix.RTA_VIA: // a next hop of the other family (RFC 5549): the family, then the address
		if len(value) > 2 {
			h.via, _ = netip.AddrFromSlice(value[2:])
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
		eachAttr(value[unix.SizeofRtNexthop:size], h.attribute)
		hops = append(hops, h.live(names)...)
		value = value[min(align(size), len(value)):]
	}
	return hops
}

var native = binary.NativeEndian

// align rounds up as netlink does.
func align(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }

// eachAttr walks over netlink attributes without a copy.
func eachAttr(b []byte, visit func(kind uint16, value []byte)) {
	for len(b) >= unix.SizeofRtAttr {
		size := int(native.Uint16(b))
		if size < unix.SizeofRtAttr || size > len(b) {
			return
		}
		visit(native.Uint16(b[2:])&^uint16(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[unix.SizeofRtAttr:size])
		b = b[min(align(size), len(b)):]
	}
}

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
