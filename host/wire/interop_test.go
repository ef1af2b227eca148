package wire_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/testkit"
)

// foreign is the other end of a tunnel, made by others: a namespace with an interface into the tunnel.
type foreign struct {
	ns     *os.File
	device string
	mac    net.HardwareAddr
}

// foreignEnd is where a bed's tunnel ends that others make.
type foreignEnd struct {
	tunnelOf
	ns            *os.File   // where the NIC is
	local, remote netip.Addr // seen from there
	key           uint32
}

// interoperate joins a node with what others make of a tunnel, and wants all frames to pass, both ways.
func interoperate(t *testing.T, kind tunnelOf, others func(*bed, foreignEnd) foreign) {
	t.Helper()
	b := newBed(t, 1, 1600)
	b.openUnderlays()
	m := b.machines[0]
	e := foreignEnd{tunnelOf: kind, remote: m.ip4, key: 7<<12 | 1}
	peer := &machine{number: 9}
	peer.ns, peer.ip4, peer.ip6 = b.nic(9)
	e.ns, e.local = peer.ns, peer.ip4
	if kind.ipv6 {
		e.local, e.remote = peer.ip6, m.ip6
	}
	far := others(b, e)

	port := m.lab.port("a", nil, "192.0.2.0/31", "2001:db8::/127")
	m.must(m.AddTunnel(m.ctx, kind.tunnel(m, peer, "s7p900", e.key, 1500)))
	m.must(m.Join(m.ctx, port, "s7p900"))
	m.ping("a", "192.0.2.1")
	m.ping("a", "2001:db8::1")
	here := m.nodeNamespace("a")
	carry(t, here, far.ns, "192.0.2.1", 4<<20)
	carry(t, far.ns, here, "192.0.2.0", 4<<20)
	carry(t, here, far.ns, "2001:db8::1", 4<<20)

	near := m.tap("a")
	var there *tap
	b.must(netns.In(far.ns, func() error {
		fd, err := openTap(t, far.device)
		there = &tap{t, fd}
		return err
	}))
	for _, f := range anyFrames {
		exchange(t, f.name+", out", near, there, mac(101), far.mac, f)
		exchange(t, f.name+", in", there, near, far.mac, mac(101), f)
	}
}

// exchange sends one of anyFrames from one station to the other.
func exchange(t *testing.T, what string, from, to *tap, source, station net.HardwareAddr, f anyFrame) {
	t.Helper()
	if !slices.Equal(f.to, mac(2)) {
		station = f.to
	}
	frame := ethernet(station, source, f.head, f.load)
	from.send(frame)
	if _, ok := to.sees(frame); !ok {
		t.Errorf("%s did not come through", what)
	}
}

// kernelEnd makes the kernel's own tunnel device, whose kind and options are given in the words of ip-link(8).
func kernelEnd(words func(foreignEnd) string) func(*bed, foreignEnd) foreign {
	return func(b *bed, e foreignEnd) foreign {
		far := foreign{ns: e.ns, device: "tunnel", mac: mac(901)}
		command := fmt.Sprintf("ip link add %s address %s mtu 1500 type %s", far.device, far.mac, words(e))
		if out, err := runIn(e.ns, strings.Fields(command)...); err != nil {
			b.Fatalf("%s: %v: %s", command, err, out)
		}
		b.must(netns.In(e.ns, func() error {
			return setUp(far.device, prefixes("192.0.2.1/31", "2001:db8::1/127")...)
		}))
		return far
	}
}

func TestKernelVXLANInteroperates(t *testing.T) {
	testkit.Root(t)
	testkit.KernelModule(t, "vxlan")
	for _, kind := range tunnelKinds[2:] {
		t.Run(kind.String(), func(t *testing.T) {
			interoperate(t, kind, kernelEnd(func(e foreignEnd) string {
				words := fmt.Sprintf("vxlan id %d local %v remote %v dstport 4789", e.key, e.local,
					e.remote)
				if kind.ipv6 {
					words += " udp6zerocsumrx" // RFC 6935
				}
				return words
			}))
		})
	}
}

func TestKernelGRETAPInteroperates(t *testing.T) {
	testkit.Root(t)
	testkit.KernelModule(t, "ip_gre")
	testkit.KernelModule(t, "ip6_gre")
	for _, kind := range tunnelKinds[:2] {
		t.Run(kind.String(), func(t *testing.T) {
			interoperate(t, kind, kernelEnd(func(e foreignEnd) string {
				device, more := "gretap", ""
				// By default it puts an extension header (RFC 2473, 4.1.1) between, which no one else
				// does.
				if kind.ipv6 {
					device, more = "ip6gretap", " encaplimit none"
				}
				return fmt.Sprintf("%s local %v remote %v key %d%s", device, e.local, e.remote, e.key,
					more)
			}))
		})
	}
}
