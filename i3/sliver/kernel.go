package sliver

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/pergola-net/pergola/i3/fastpath/layout"
	"github.com/pergola-net/pergola/sdk/node"
)

// Open makes the packet program of the node in whose sliver this process runs a fast path for a server at an address.
// It waits for the control socket as long as ctx says.
func Open(ctx context.Context, server netip.AddrPort) (*FastPath, error) {
	if !server.Addr().Is4() {
		return nil, fmt.Errorf("use the packet program for a server at %s: it is for IPv4", server)
	}
	n, err := node.Open(ctx)
	if err != nil {
		return nil, err
	}
	return New(ctx, &program{Node: n, server: server})
}

// program is that of the node of this process.
type program struct {
	*node.Node
	server netip.AddrPort
	memory *node.Memory // that was mapped last; nil: none
}

// Memory maps the memory, if it is another block than before.
func (p *program) Memory(ctx context.Context) (Memory, error) {
	m, err := p.Node.Memory(ctx)
	if err != nil {
		return nil, err
	}
	if p.memory != nil && p.memory.Number == m.Number {
		return p.memory, m.Close()
	}
	p.memory = m
	return m, nil
}

// Look asks for the names of the node's interfaces, too: an interface may have come since.
func (p *program) Look(ctx context.Context) (layout.Node, error) {
	hello, err := p.Hello(ctx)
	if err != nil {
		return layout.Node{}, err
	}
	return lookAt(p.server, hello.Interfaces)
}

// lookAt reads what the kernel knows. Devices are those of the node's interfaces 1, 2, ...
func lookAt(server netip.AddrPort, devices []string) (layout.Node, error) {
	n := layout.Node{Addr: server, MACs: make([]layout.MAC, len(devices))}
	numbers := map[string]int{}
	for i, name := range devices {
		device, err := net.InterfaceByName(name)
		if err == nil && len(device.HardwareAddr) == len(layout.MAC{}) { // it may be about to come
			n.MACs[i], numbers[name] = layout.MAC(device.HardwareAddr), i+1
		}
	}
	routes, err := readFile("/proc/net/route", readRoutes)
	if err != nil {
		return n, err
	}
	neighbors, err := readFile("/proc/net/arp", readNeighbors)
	if err != nil {
		return n, err
	}
	n.Reach = func(to netip.Addr) (layout.Neighbor, bool) {
		device, hop, ok := routes.to(to)
		number := numbers[device]
		mac, known := neighbors[neighbor{device, hop}]
		if !ok || !known || number == 0 {
			return layout.Neighbor{}, false
		}
		return layout.Neighbor{Interface: number, To: mac, From: n.MACs[number-1]}, true
	}
	return n, nil
}

func readFile[T any](name string, read func(io.Reader) (T, error)) (all T, err error) {
	f, err := os.Open(name) //nolint:gosec // a constant
	if err != nil {
		return all, err
	}
	defer func() { _ = f.Close() }()
	if all, err = read(f); err != nil {
		return all, fmt.Errorf("read %s: %w", name, err)
	}
	return all, nil
}

// route is a line of /proc/net/route (proc_net(5)), which has the table main of IPv4.
type route struct {
	device  string
	prefix  netip.Prefix
	gateway netip.Addr // 0.0.0.0: there is none
	metric  uint64
	usable  bool
}

type routes []route

// to says by which device an address is reached, and who is next there: that of the longest prefix, then the lowest
// metric.
func (all routes) to(a netip.Addr) (device string, hop netip.Addr, ok bool) {
	var best route
	for _, r := range all {
		if !r.prefix.Contains(a) || ok && (r.prefix.Bits() < best.prefix.Bits() ||
			r.prefix.Bits() == best.prefix.Bits() && r.metric >= best.metric) {
			continue
		}
		best, ok = r, true
	}
	if !ok || !best.usable {
		return "", netip.Addr{}, false
	}
	if best.gateway.IsUnspecified() {
		return best.device, a, true
	}
	return best.device, best.gateway, true
}

func readRoutes(r io.Reader) (all routes, err error) {
	const up, reject = 0x1, 0x200 // RTF_UP, RTF_REJECT
	err = eachLine(r, func(words []string) error {
		const iface, destination, gateway, flags, metric, mask, columns = 0, 1, 2, 3, 6, 7, 8
		if len(words) < columns {
			return fmt.Errorf("a line has %d columns, and not %d", len(words), columns)
		}
		var n [columns]uint64
		for _, i := range []int{destination, gateway, flags, metric, mask} {
			base := 16
			if i == metric {
				base = 10
			}
			if n[i], err = strconv.ParseUint(words[i], base, 32); err != nil {
				return err
			}
		}
		ones, _ := net.IPMask(addr4(uint32(n[mask])).AsSlice()).Size()
		all = append(all, route{
			device: words[iface], prefix: netip.PrefixFrom(addr4(uint32(n[destination])), ones),
			gateway: addr4(uint32(n[gateway])), metric: n[metric], usable: n[flags]&(up|reject) == up,
		})
		return nil
	})
	return all, err
}

type neighbor struct {
	device string
	addr   netip.Addr
}

// readNeighbors reads /proc/net/arp (proc_net(5)): those whose address is known.
func readNeighbors(r io.Reader) (map[neighbor]layout.MAC, error) {
	const complete = 0x2 // ATF_COM
	all := map[neighbor]layout.MAC{}
	err := eachLine(r, func(words []string) error {
		const address, flags, hardware, device, columns = 0, 2, 3, 5, 6
		if len(words) < columns {
			return fmt.Errorf("a line has %d columns, and not %d", len(words), columns)
		}
		a, err := netip.ParseAddr(words[address])
		if err != nil {
			return err
		}
		f, err := strconv.ParseUint(words[flags], 0, 32)
		if err != nil {
			return err
		}
		mac, err := net.ParseMAC(words[hardware])
		if err == nil && f&complete != 0 && len(mac) == len(layout.MAC{}) {
			all[neighbor{words[device], a}] = layout.MAC(mac)
		}
		return nil // of other networks, addresses have other lengths
	})
	return all, err
}

// eachLine gives the words of each line but the first, which names the columns.
func eachLine(r io.Reader, f func(words []string) error) error {
	lines := bufio.NewScanner(r)
	lines.Scan()
	for lines.Scan() {
		if err := f(strings.Fields(lines.Text())); err != nil {
			return err
		}
	}
	return lines.Err()
}

// addr4 is an IPv4 address as /proc/net/route has it: a number whose bytes in memory are the address.
func addr4(n uint32) netip.Addr {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}
