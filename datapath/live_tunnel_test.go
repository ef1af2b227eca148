package datapath

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
)

// machine is a live world with an uplink to a host's namespace, where there is a network card. A wire joins two of
// them.
type machine struct {
	*world
	substrate, host *os.File
	nic             int
}

func hold() (f *os.File, err error) {
	err = netns.New(func() (err error) {
		f, err = netns.Here()
		return errors.Join(err, os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0))
	})
	return f, err
}

func path(ns *os.File) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.Fd()) }

// inside and outside run f in the namespace of the ports, and of the network card.
func (m *machine) inside(f func())  { m.check(netns.In(m.substrate, func() error { f(); return nil })) }
func (m *machine) outside(f func()) { m.check(netns.In(m.host, func() error { f(); return nil })) }

// inTwoMachines runs a test with two machines, on a thread in the first one's substrate.
func inTwoMachines(t testing.TB, f func(a, b *machine)) {
	t.Helper()
	inLiveWorld(t, func(w *world) {
		a := &machine{world: w, substrate: must(netns.Here()), host: must(hold())}
		b := &machine{world: &world{}, substrate: must(hold()), host: must(hold())}
		defer func() {
			for _, ns := range []*os.File{a.substrate, a.host, b.substrate, b.host} {
				w.check(ns.Close())
			}
		}()
		a.outside(func() { w.ip("link add nic type veth peer name nic netns %s", path(b.host)) })
		b.inside(func() {
			other := &bench{TB: t, dir: filepath.Join(w.dir, "b")}
			d := other.open()
			b.world = newWorld(other, d)
			b.ports = 5000 // names of devices, and stations, of their own
			b.stations = map[int]*station{}
			b.a = b.port(macB)
		})
		defer func() {
			b.close()
			w.check(b.d.Close())
		}()
		a.connect(here4.String(), here6.String(), macHere)
		b.connect(there4.String(), there6.String(), macThere)
		f(a, b)
	})
}

// connect makes the uplink, and gives the network card its addresses.
func (m *machine) connect(address4, address6 string, mac [6]byte) {
	m.inside(func() {
		m.ip("link add uplink mtu 65535 type veth peer name outside mtu 65535 netns %s", path(m.host))
		m.ip("link set uplink up")
		m.check(m.d.SetUplink(ifindex(m, "uplink")))
		m.check(m.d.AttachUplink(ifindex(m, "uplink")))
	})
	m.outside(func() {
		m.check(os.WriteFile("/proc/sys/net/ipv4/conf/outside/forwarding", []byte("1"), 0))
		for _, device := range []string{"nic", "outside"} {
			m.check(os.WriteFile("/proc/sys/net/ipv6/conf/"+device+"/disable_ipv6", []byte("0"), 0))
		}
		m.check(os.WriteFile("/proc/sys/net/ipv6/conf/outside/forwarding", []byte("1"), 0))
		m.ip("link set nic address 02:09:00:00:00:%02x mtu 2000", mac[5])
		for _, device := range []string{"lo", "nic", "outside"} {
			m.ip("link set %s up", device)
		}
		m.ip("address add %s/24 dev nic", address4)
		m.ip("address add %s/64 dev nic nodad", address6)
		m.nic = ifindex(m, "nic")
		e, err := ethtool.NewEthtool()
		m.check(err)
		defer e.Close()
		m.check(e.Change("nic", map[string]bool{"tx-checksum-ip-generic": false, "tx-tcp-segmentation": false,
			"tx-tcp6-segmentation": false}))
		m.check(m.d.AttachEgress(ifindex(m, "outside")))
		m.check(m.d.AttachUnderlay(m.nic))
	})
}

// addTunnelPort makes the port of a tunnel, with its device, and joins it with a port.
func (m *machine) addTunnelPort(with int, t Tunnel) (port int) {
	m.inside(func() {
		m.ports++
		near, far := fmt.Sprintf("t%d", m.ports), fmt.Sprintf("t%dt", m.ports)
		m.ip("link add %s up mtu 2000 type veth peer name %s", near, far)
		m.ip("link set %s up mtu 2000", far)
		port = ifindex(m, near)
		m.check(m.d.Add(port, Port{MTU: 1500, External: true}))
		m.check(m.d.Add(ifindex(m, far), Port{Mode: Tunnelled, Peer: port, MTU: 1500}))
		for _, device := range []string{near, far} {
			m.check(m.d.Attach(ifindex(m, device)))
		}
	})
	m.check(m.d.SetTunnel(port, t))
	m.join(with, port)
	return port
}

// padded says whether that is the frame, or what becomes of one that is shorter than the kernel can have it.
func padded(frame, have []byte) bool {
	const least = 14 + 20
	return len(have) == max(least, len(frame)) && bytes.HasPrefix(have, frame) &&
		bytes.Count(have[len(frame):], []byte{0}) == len(have)-len(frame)
}

// untagged is the frame as a packet socket gives it: without its first tag.
func untagged(f []byte) []byte {
	if t := binary.BigEndian.Uint16(f[12:]); t == 0x8100 || t == 0x88a8 {
		return slices.Concat(f[:12], f[16:])
	}
	return f
}

func (m *machine) awaitsFrame(want []byte) {
	m.Helper()
	have := m.awaits(1)
	for i := range have {
		have[i].Kind = 0
		if padded(want, have[i].Frame) {
			have[i].Frame = want
		}
	}
	if diff := cmp.Diff([]arrival{{Port: m.a, Frame: want}}, have); diff != "" {
		m.Errorf("received (-want +have):\n%s", diff)
	}
}

// Any frame comes out on the other machine as it was sent: at once, by queues and by bridges; by tc and, where it
// can, by XDP.
func TestLiveTunnels(t *testing.T) {
	inTwoMachines(t, func(a, b *machine) {
		for _, tunnel := range sorts {
			near, far := a.addTunnelPort(a.a, tunnel), b.addTunnelPort(b.a, tunnel.turned())
			for _, way := range []struct {
				name string
				mode Mode
			}{{"at once", Peer}, {"by queues", Queue}, {"by bridges", Kernel}, {"by XDP", Peer}} {
				a.tunnelWay(near, way.mode)
				b.tunnelWay(far, way.mode)
				if way.name == "by XDP" {
					a.cards(true)
					b.cards(true)
				}
				b.take()
				for name, frame := range odd(macB) {
					a.name, b.name = fmt.Sprintf("%s, %s, %s", tunnel.named(), way.name, name), ""
					b.name = a.name
					if way.mode == Kernel && strings.HasPrefix(name, "runt") {
						continue // bridges refuse them, where they are filtered (br_netfilter)
					}
					if a.say(a.a, frame) == nil {
						b.awaitsFrame(untagged(frame))
					}
				}
				for _, v6 := range []bool{false, true} {
					a.superFrame(b, v6)
				}
				if n := b.take()[fmt.Sprintf("handed %d", b.a)]; way.name == "by XDP" && n > 0 {
					b.Errorf("%d frames came by tc", n)
				}
			}
			a.cards(false)
			b.cards(false)
			a.tunnelWay(near, Peer)
			b.tunnelWay(far, Peer)
			a.check(a.d.Forget(near))
			b.check(b.d.Forget(far))
		}
		for what, n := range merge(must(a.d.Underlay()), must(b.d.Underlay())) {
			// IPv6 speaks at the uplink
			if what != Sent && what != Received && what != ByLineCard && what != "stray" {
				t.Errorf("%d packets dropped: %s", n, what)
			}
		}
	})
}

// Out of a tunnel, past routers, into another one: by tc, and by the line card alone.
func TestLiveRelay(t *testing.T) {
	inTwoMachines(t, func(a, b *machine) {
		var l line
		var end int
		b.inside(func() { l = b.line(2) })
		a.inside(func() { end = a.port(macB) })
		in, out := sorts[0], sorts[3]
		a.addTunnelPort(a.a, in)
		b.addTunnelPort(l.in[0], in.turned())
		b.addTunnelPort(l.out[1], out.turned())
		a.addTunnelPort(end, out)
		for _, card := range []bool{false, true} {
			if card {
				a.cards(true)
				b.cards(true)
				b.asked(never)
				b.outside(func() { b.check(b.d.DetachUnderlay(b.nic)) })
			}
			for _, v6 := range []bool{false, true} {
				p := packet{v6: v6}
				want := arrival{end, unix.PACKET_HOST, p.after(macB, mac(3), 2)}
				a.check(a.say(a.a, p.bytes()))
				if diff := cmp.Diff([]arrival{want}, a.awaits(1)); diff != "" {
					a.Errorf("line card %v, IPv6 %v: received (-want +have):\n%s", card, v6, diff)
				}
			}
		}
		a.cards(false)
		b.cards(false)
	})
}

// A card whose other end polls, but has no program of XDP, sends back what is received at once: on a quiet wire nothing
// else would wake that end.
func TestLiveRelayWakesTheOtherEnd(t *testing.T) {
	inTwoMachines(t, func(a, b *machine) {
		var l line
		var end int
		b.inside(func() { l = b.line(2) })
		a.inside(func() { end = a.port(macB) })
		in, out := sorts[0], sorts[1]
		a.addTunnelPort(a.a, in)
		b.addTunnelPort(l.in[0], in.turned())
		b.addTunnelPort(l.out[1], out.turned())
		a.addTunnelPort(end, out)
		for m, other := range map[*machine]string{a: there4.String(), b: here4.String()} { // nobody else speaks
			m.outside(func() {
				m.check(os.WriteFile("/proc/sys/net/ipv6/conf/nic/disable_ipv6", []byte("1"), 0))
				m.ip("neighbour add %s lladdr 02:09:00:00:00:%02x dev nic nud permanent", other,
					netip.MustParseAddr(other).As4()[3])
			})
		}
		a.outside(func() {
			e, err := ethtool.NewEthtool()
			a.check(err)
			defer e.Close()
			a.check(e.Change("nic", map[string]bool{"rx-gro": true}))
		})
		b.asked(never)
		b.outside(func() {
			b.check(b.d.DetachUnderlay(b.nic))
			b.check(b.d.SendBack(b.nic))
			b.check(b.d.AttachNICLineCard(b.nic, true))
		})
		p := packet{}
		a.check(a.say(a.a, p.bytes()))
		if diff := cmp.Diff([]arrival{{end, unix.PACKET_HOST, p.after(macB, mac(3), 2)}},
			a.awaits(1)); diff != "" {
			a.Errorf("received (-want +have):\n%s", diff)
		}
		b.outside(func() { b.check(b.d.DetachNICLineCard(b.nic)) })
	})
}

// Out of a tunnel and into another one, in by one card and out by another: nothing of it is left to tc.
func TestLiveRelayByAnotherCard(t *testing.T) {
	inTwoMachines(t, func(a, b *machine) {
		own, peer := netip.MustParseAddr("198.51.100.2"), netip.MustParseAddr("198.51.100.1")
		a.outside(func() {
			a.ip("link add nic2 mtu 2000 type veth peer name nic2 mtu 2000 netns %s",
				path(b.host))
		})
		for m, address := range map[*machine]netip.Addr{a: peer, b: own} {
			m.outside(func() {
				m.ip("link set nic2 address 02:09:00:00:01:%02x up", address.As4()[3])
				m.ip("address add %s/24 dev nic2", address)
			})
		}
		var l line
		var end, other int
		b.inside(func() { l = b.line(2) })
		a.inside(func() { end = a.port(macB) })
		in, out := sorts[0], Tunnel{Kind: EGRE, Key: 1, Local: own, Peer: peer}
		a.addTunnelPort(a.a, in)
		b.addTunnelPort(l.in[0], in.turned())
		b.addTunnelPort(l.out[1], out)
		a.addTunnelPort(end, out.turned())
		a.outside(func() {
			nic := ifindex(a, "nic2")
			a.check(a.d.AttachUnderlay(nic))
			a.check(a.d.AttachNICLineCard(nic, true)) // polls for what XDP sends
		})
		b.asked(never, peer)
		b.outside(func() {
			b.ip("neighbour add %s lladdr 02:09:00:00:01:01 dev nic2 nud permanent", peer)
			other = ifindex(b, "nic2")
			b.check(b.d.DetachUnderlay(b.nic))
			b.check(b.d.AttachNICLineCard(b.nic, true))
			b.check(b.d.AllowXDPToNIC(other, true))
		})
		for _, v6 := range []bool{false, true} {
			p := packet{v6: v6}
			a.check(a.say(a.a, p.bytes()))
			if diff := cmp.Diff([]arrival{{end, unix.PACKET_HOST, p.after(macB, mac(3), 2)}},
				a.awaits(1)); diff != "" {
				a.Errorf("IPv6 %v: received (-want +have):\n%s", v6, diff)
			}
		}
		b.check(b.d.DenyXDPToNIC(other))
		a.check(a.say(a.a, packet{}.bytes()))
		if have := a.awaits(1); len(have) > 0 {
			a.Errorf("by a card that takes nothing, and without tc, came %+v", have)
		}
		b.outside(func() { b.check(b.d.DetachNICLineCard(b.nic)) })
		a.outside(func() { a.check(a.d.DetachNICLineCard(ifindex(a, "nic2"))) })
	})
}

// tunnelWay says how frames go between a node's port and the tunnel's.
func (m *machine) tunnelWay(port int, mode Mode) {
	for _, p := range []int{m.a, port} {
		m.change(p, func(r *Port) { r.Mode = mode })
	}
	m.inside(func() {
		if mode != Kernel {
			m.ip("link del br0 2>/dev/null || true")
			return
		}
		m.ip("link add br0 up mtu 1500 type bridge mcast_snooping 0 group_fwd_mask 0x8")
		for _, p := range []int{m.a, port} {
			m.ip("link set %s master br0", device(m, p))
		}
	})
}

func (m *machine) cards(on bool) {
	m.outside(func() {
		if on {
			m.check(m.d.AttachNICLineCard(m.nic, true))
		} else {
			m.check(m.d.DetachNICLineCard(m.nic))
		}
	})
	m.inside(func() {
		if on {
			m.check(m.d.AllowXDPToPort(m.a, m.a))
		} else {
			m.check(m.d.DenyXDPToPort(m.a))
		}
	})
}

// superFrame sends a TCP super-frame, whose checksum is still to be computed. The network card, which cannot cut it,
// has the kernel do so.
func (m *machine) superFrame(to *machine, v6 bool) {
	m.Helper()
	const size, segment = 9000, 1200
	f := newSuperFrame(macB, v6, size, segment)
	m.check(m.stations[m.a].sendSuper(f.bytes()))
	f.expect(to.world, to.awaits((size+segment-1)/segment))
}

// superFrame is a TCP super-frame whose checksum is still to be computed.
type superFrame struct {
	frame   []byte
	above   int // bytes below TCP
	segment int
	kind    byte
}

func newSuperFrame(to [6]byte, v6 bool, size, segment int) superFrame {
	const v4Kind, v6Kind = 1, 4 // VIRTIO_NET_HDR_GSO_TCPV4, _TCPV6
	f := superFrame{packet{to: to, v6: v6, tcp: true, payload: size}.bytes(), 34, segment, v4Kind}
	if v6 {
		f.above, f.kind = 54, v6Kind
	}
	for i := f.above + 20; i < len(f.frame); i++ {
		f.frame[i] = byte(i * 7)
	}
	binary.BigEndian.PutUint16(f.frame[f.above+16:], fold(pseudo(f.frame, f.above)))
	return f
}

// bytes is the frame behind its struct virtio_net_hdr.
func (f superFrame) bytes() []byte {
	header := []byte{1, f.kind} // the checksum is wanted
	for _, n := range []int{f.above + 20, f.segment, f.above, 16} {
		header = binary.LittleEndian.AppendUint16(header, uint16(n))
	}
	return slices.Concat(header, f.frame)
}

// expect compares what came with what the frame stands for.
func (f superFrame) expect(w *world, came []arrival) {
	w.Helper()
	var have []byte
	for _, h := range came {
		if fold(pseudo(h.Frame, f.above)+sum16(h.Frame[f.above:])) != 0xffff {
			w.Errorf("a segment with a wrong checksum: %x", h.Frame)
		}
		have = append(have, h.Frame[f.above+20:]...)
	}
	if !bytes.Equal(have, f.frame[f.above+20:]) {
		w.Errorf("of a super-frame of %d bytes, %d came, or others", len(f.frame), len(have))
	}
}

func sum16(b []byte) (sum uint32) {
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	if len(b)%2 == 1 {
		sum += uint32(b[len(b)-1]) << 8
	}
	return sum
}

// pseudo is the sum of TCP's pseudo-header.
func pseudo(frame []byte, above int) uint32 {
	addresses := frame[26:34]
	if above == 54 {
		addresses = frame[22:54]
	}
	return sum16(addresses) + unix.IPPROTO_TCP + uint32(len(frame)-above)
}

func fold(sum uint32) uint16 {
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

// sendSuper sends a frame behind a struct virtio_net_hdr.
func (s *station) sendSuper(frame []byte) error {
	return netns.In(s.ns, func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		e0, err := net.InterfaceByName("e0")
		if err != nil {
			return err
		}
		err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
			unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: e0.Index}))
		if err != nil {
			return err
		}
		_, err = unix.Write(fd, frame)
		return err
	})
}
