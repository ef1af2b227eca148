package wire_test

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/agent/wire"
	"github.com/pergola-net/pergola/netns"
	"github.com/pergola-net/pergola/slice"
)

const tunDevice = "wg0"

// openTun makes an interface that carries packets, as WireGuard's do, and gives what is behind it.
func (m *machine) openTun(mtu int) *os.File {
	m.Helper()
	var file *os.File
	m.must(netns.In(m.ns, func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		request, err := unix.NewIfreq(tunDevice)
		if err != nil {
			return err
		}
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
			return err
		}
		file = os.NewFile(uintptr(fd), tunDevice)
		return setUp(tunDevice, netip.PrefixFrom(m.behind(false), 24), netip.PrefixFrom(m.behind(true), 64))
	}))
	m.run("ip", "link", "set", tunDevice, "mtu", fmt.Sprint(mtu))
	return file
}

// behind is the machine's address there.
func (m *machine) behind(ipv6 bool) netip.Addr {
	if ipv6 {
		return netip.MustParseAddr(fmt.Sprintf("fd0a::%d", m.number))
	}
	return netip.AddrFrom4([4]byte{10, 10, 0, byte(m.number)})
}

// A VPN, or whatever else carries IP, is as good as a wire.
func TestTunnelsThroughAnInterfaceOfPackets(t *testing.T) {
	for _, kind := range []tunnelOf{{slice.EGRE, false}, {slice.VXLAN, true}} {
		t.Run(kind.String(), func(t *testing.T) {
			b := newBed(t, 2, 1500)
			const mtu = 1420
			one, two := b.machines[0].openTun(mtu), b.machines[1].openTun(mtu)
			for _, way := range [][2]*os.File{{one, two}, {two, one}} {
				done := make(chan struct{})
				go func() {
					defer close(done)
					_, _ = io.CopyBuffer(struct{ io.Writer }{way[0]}, struct{ io.Reader }{way[1]}, make([]byte, 1<<16)) // until it is closed
				}()
				t.Cleanup(func() {
					_ = way[1].Close()
					<-done
				})
			}
			for _, m := range b.machines {
				m.must(m.OpenUnderlay(m.ctx, wire.UnderlayConfig{Interfaces: []string{tunDevice}}))
			}
			inner := mtu - kind.kind.Overhead(kind.ipv6)
			short := func(p *wire.Port) { p.MTU = inner }
			a, c := end{machine: b.machines[0]}, end{machine: b.machines[1]}
			a.port = a.lab.port("a", short, "192.0.2.0/31", "2001:db8::/127")
			c.port = c.lab.port("b", short, "192.0.2.1/31", "2001:db8::1/127")
			for _, side := range [][2]end{{a, c}, {c, a}} {
				here, there := side[0], side[1]
				w := kind.tunnel(here.machine, there.machine, there.port, 1, inner)
				w.Local, w.Peer = here.behind(kind.ipv6), there.behind(kind.ipv6)
				here.must(here.AddTunnel(here.ctx, w))
				here.must(here.Join(here.ctx, here.port, there.port))
			}
			a.ping("a", "192.0.2.1", "-M", "do", "-s", fmt.Sprint(inner-28))
			a.ping("a", "2001:db8::1")
			carry(t, a.nodeNamespace("a"), c.nodeNamespace("b"), "192.0.2.1", 1<<20)
		})
	}
}
