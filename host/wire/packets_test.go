package wire_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
)

// vpn is an interface of packets between machines, with addresses of its own.
const (
	vpn    = "wg0"
	vpnMTU = 1420 // WireGuard's
)

// behind gives a machine the addresses that it has there.
func (m *machine) behind() *machine {
	b := *m
	b.ip4 = netip.AddrFrom4([4]byte{10, 10, 0, byte(m.number)})
	b.ip6 = netip.MustParseAddr(fmt.Sprintf("fd0a::%d", m.number))
	return &b
}

// setUpVPN sets it up, in the thread's namespace.
func (m *machine) setUpVPN() error {
	b := m.behind()
	if err := setUp(vpn, netip.PrefixFrom(b.ip4, 24), netip.PrefixFrom(b.ip6, 64)); err != nil {
		return err
	}
	_, err := runIn(m.ns, "ip", "link", "set", vpn, "mtu", fmt.Sprint(vpnMTU))
	return err
}

// openTun makes a tun device, and gives what is behind it.
func (m *machine) openTun(flags uint16) *os.File {
	m.Helper()
	var file *os.File
	m.must(netns.In(m.ns, func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		request, err := unix.NewIfreq(vpn)
		if err != nil {
			return err
		}
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | flags)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
			return err
		}
		if flags&unix.IFF_VNET_HDR != 0 {
			const offloads = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6
			if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offloads); err != nil {
				return err
			}
		}
		file = os.NewFile(uintptr(fd), vpn) // now that there is something to wait for
		return m.setUpVPN()
	}))
	return file
}

// byTun joins two machines by a process that carries packets, as VPNs do that are no part of the kernel.
func byTun(flags uint16) func(one, two *machine) {
	return func(one, two *machine) {
		a, b := one.openTun(flags), two.openTun(flags)
		for _, way := range [][2]*os.File{{a, b}, {b, a}} {
			done := make(chan struct{})
			go func() {
				defer close(done)
				to, from := struct{ io.Writer }{way[0]}, struct{ io.Reader }{way[1]}
				_, _ = io.CopyBuffer(to, from, make([]byte, 1<<17)) // until it is closed
			}()
			one.Cleanup(func() {
				_ = way[1].Close()
				<-done
			})
		}
	}
}

// overPackets runs tunnels through an interface of packets between two machines.
func overPackets(t *testing.T, connect func(one, two *machine), kinds ...tunnelOf) {
	t.Helper()
	for _, kind := range kinds {
		t.Run(kind.String(), func(t *testing.T) {
			b := newBed(t, 2, 1500)
			connect(b.machines[0], b.machines[1])
			for _, m := range b.machines {
				m.must(m.OpenUnderlay(m.ctx, wire.UnderlayConfig{Interfaces: []string{vpn}}))
			}
			near := b.machines[0]
			state, err := near.Underlay(near.ctx)
			near.must(err)
			if s := state.NICs[vpn]; !s.Present || !s.Up || s.MTU != vpnMTU ||
				s.XDP != "none: no Ethernet interface" {
				t.Errorf("the interface is %+v", s)
			}
			b.machines = []*machine{near.behind(), b.machines[1].behind()}
			b.mtu = vpnMTU
			crossesVPN(b, kind)
			// The machines' own packets pass as ever.
			near, far := b.machines[0], b.machines[1]
			carry(t, near.ns, far.ns, far.ip4.String(), 1<<20)
			carry(t, far.ns, near.ns, near.ip6.String(), 1<<20)
			near.must(near.OpenUnderlay(near.ctx, wire.UnderlayConfig{}))
			if left := near.run("tc", "filter", "show", "dev", vpn, "ingress"); left != "" {
				t.Errorf("left at the interface: %s", left)
			}
		})
	}
}

// crossesVPN sends packets as long as fit, TCP, and those of anyFrames that fit.
func crossesVPN(b *bed, kind tunnelOf) {
	b.Helper()
	a, c := b.pair(kind)
	inner := vpnMTU - kind.kind.Overhead(kind.ipv6)
	a.ping("a", "192.0.2.1", "-M", "do", "-s", fmt.Sprint(inner-28))
	a.ping("a", "2001:db8::1", "-M", "do", "-s", fmt.Sprint(inner-48))
	here, there := a.nodeNamespace("a"), c.nodeNamespace("b")
	carry(b, here, there, "192.0.2.1", 1<<20)
	carry(b, there, here, "2001:db8::", 1<<20)
	from, to := a.tap("a"), c.tap("b")
	for _, f := range anyFrames {
		station := f.to
		if slices.Equal(station, mac(2)) {
			station = mac(201)
		}
		frame := ethernet(station, mac(101), f.head, min(f.load, inner-8))
		from.send(frame)
		if kind, ok := to.sees(frame); !ok || kind != f.kind {
			b.Errorf("%s: came through: %v, taken as %d, want %d", f.name, ok, kind, f.kind)
		}
	}
}

// ears hears what packets of tunnels come in by a machine's wire, as anybody there could.
type ears struct {
	*machine
	socket int
}

func (m *machine) listen() ears {
	m.Helper()
	e := ears{machine: m}
	m.must(netns.In(m.ns, func() (err error) {
		const flags = unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
		// Receives nothing until it is bound.
		e.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|flags, 0)
		if err != nil {
			return err
		}
		i, err := netlink.LinkByName(nic)
		if err != nil {
			return err
		}
		all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))
		return unix.Bind(e.socket, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Attrs().Index})
	}))
	m.Cleanup(func() { _ = unix.Close(e.socket) })
	return e
}

// hears returns how the packets begin that have come for the address since it was asked last.
func (e ears) hears(to netip.Addr) (heard []string) {
	e.Helper()
	packet := make([]byte, 1<<11)
	for {
		size, _, err := unix.Recvfrom(e.socket, packet, 0)
		if errors.Is(err, unix.EAGAIN) {
			return heard
		}
		e.must(err)
		if size > 40 && (bytes.Equal(packet[16:20], to.AsSlice()) || bytes.Equal(packet[24:40], to.AsSlice())) {
			heard = append(heard, hex.EncodeToString(packet[:min(size, 128)]))
		}
	}
}

// While a VPN is down, the machine's routes may lead elsewhere; what the VPN would have encrypted does not go there.
func TestNothingLeavesInClearWhileTheVPNIsDown(t *testing.T) {
	for _, kind := range []tunnelOf{{slice.EGRE, false}, {slice.VXLAN, true}} {
		t.Run(kind.String(), func(t *testing.T) {
			b := newBed(t, 2, 1500)
			wires := b.machines
			byTun(0)(wires[0], wires[1])
			open := func(m *machine, bound bool) {
				m.Helper()
				m.must(m.OpenUnderlay(m.ctx, wire.UnderlayConfig{
					Interfaces: []string{vpn}, Bound: bound,
				}))
			}
			for _, m := range wires {
				open(m, true)
			}
			b.machines = []*machine{wires[0].behind(), wires[1].behind()}
			b.mtu = vpnMTU
			a, c := b.pair(kind)
			a.ping("a", "192.0.2.1")
			peer, family, by := c.ip4, "-4", wires[1].ip4
			if kind.ipv6 {
				peer, family, by = c.ip6, "-6", wires[1].ip6
			}
			clear := wires[1].listen()
			a.run("ip", family, "route", "add", "default", "via", by.String(), "dev", nic)
			a.run("ip", "link", "set", vpn, "down")
			node := a.nodeNamespace("a")
			send := func() { _, _ = runIn(node, "ping", "-c", "3", "-i", "0.2", "-W", "1", "192.0.2.1") }
			// What leaves before the walk has looked at the routes again goes to the VPN's interface, and
			// that is down.
			before := a.counted()["off underlay"]
			testkit.Await(t, func() bool {
				send()
				return a.counted()["off underlay"] >= before+3
			}, 10*time.Second, "frames to be kept from leaving")
			if heard := clear.hears(peer); heard != nil {
				t.Errorf("by the wire, in clear, came %s", heard)
			}
			a.reopen() // wg0 is down still
			send()
			if heard := clear.hears(peer); heard != nil {
				t.Errorf("after a restart, by the wire, in clear, came %s", heard)
			}
			open(a.machine, false)
			send()
			if clear.hears(peer) == nil {
				t.Error("nothing came by the wire where nothing keeps it from there: " +
					"the test does not see it")
			}
		})
	}
}

// A VPN, or whatever else carries IP, is as good as a wire.
func TestTunnelsThroughAnInterfaceOfPackets(t *testing.T) {
	testkit.Root(t)
	overPackets(t, byTun(0), tunnelKinds...)
}

// The same, where super-frames pass.
func TestTunnelsThroughAnInterfaceOfSuperPackets(t *testing.T) {
	testkit.Root(t)
	overPackets(t, byTun(unix.IFF_VNET_HDR), tunnelKinds...)
}
