package wire_test

import (
	"bytes"
	"encoding/hex"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/model/slice"
)

// tap is a packet socket on an interface: it sends and sees whole frames, VLAN tags included.
type tap struct {
	testing.TB
	fd int
}

// tap opens one on a node's eth0.
func (l *lab) tap(name string) *tap {
	l.Helper()
	return &tap{l, in(l, name, func() (int, error) { return openTap(l, "eth0") })}
}

func openTap(t testing.TB, device string) (fd int, err error) {
	t.Helper()
	i, err := net.InterfaceByName(device)
	if err != nil {
		return -1, err
	}
	// It receives nothing until it is bound.
	if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, err
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
		return -1, err
	}
	timeout := &unix.Timeval{Usec: 200_000}
	if err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, timeout); err != nil {
		return -1, err
	}
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL<<8&0xff00
	return fd, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index})
}

func (t *tap) send(frame []byte) {
	t.Helper()
	if _, err := unix.Write(t.fd, frame); err != nil {
		t.Errorf("send a frame of %d bytes: %v", len(frame), err)
	}
}

// sees waits for a frame and reports whether it came, and how the stack took it (PACKET_HOST, ...).
func (t *tap) sees(frame []byte) (kind uint8, ok bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if have, how := t.next(); bytes.Equal(have, frame) {
			return how, true
		}
	}
	return 0, false
}

// copies counts how often a frame comes, until nothing at all has come for a while.
func (t *tap) copies(frame []byte) (n int) {
	t.Helper()
	for {
		have, how := t.next()
		if have == nil {
			return n
		}
		if how != unix.PACKET_OUTGOING && bytes.Equal(have, frame) {
			n++
		}
	}
}

// next waits for a frame; nil: none came. It puts a VLAN tag back that the kernel moved out of the frame.
func (t *tap) next() (frame []byte, kind uint8) {
	buf, oob := make([]byte, 1<<16), make([]byte, 256)
	n, m, _, from, err := unix.Recvmsg(t.fd, buf, oob, 0)
	if err != nil {
		return nil, 0
	}
	link, ok := from.(*unix.SockaddrLinklayer)
	if !ok {
		return nil, 0
	}
	return untag(buf[:n], oob[:m]), link.Pkttype
}

func untag(frame, oob []byte) []byte {
	all, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(all) == 0 || len(all[0].Data) < 20 {
		return frame
	}
	aux := all[0].Data // struct tpacket_auxdata: status at 0, vlan_tci at 16, vlan_tpid at 18
	if status := uint32(aux[0]) | uint32(aux[1])<<8; status&unix.TP_STATUS_VLAN_VALID == 0 {
		return frame
	}
	tagged := append([]byte{}, frame[:12]...)
	tagged = append(tagged, aux[19], aux[18], aux[17], aux[16])
	return append(tagged, frame[12:]...)
}

func ethernet(to, from net.HardwareAddr, header string, payload int) []byte {
	h, err := hex.DecodeString(header)
	if err != nil {
		panic(err)
	}
	f := append(append([]byte{}, to...), from...)
	return append(append(f, h...), bytes.Repeat([]byte{0xa5}, payload)...)
}

const (
	host      = unix.PACKET_HOST
	broadcast = unix.PACKET_BROADCAST
	multicast = unix.PACKET_MULTICAST
	others    = unix.PACKET_OTHERHOST
)

var everyone = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

func group(last byte) net.HardwareAddr { return net.HardwareAddr{0x01, 0x80, 0xc2, 0, 0, last} }

type anyFrame struct {
	name string
	to   net.HardwareAddr
	head string // after the addresses
	load int
	kind uint8
}

// anyFrames are from mac(1), for mac(2) or others.
var anyFrames = []anyFrame{
	{"unknown EtherType", mac(2), "88b5", 100, host},
	{"smallest", mac(2), "88b5", 46, host},
	{"largest", mac(2), "88b5", 1500, host},
	{"broadcast", everyone, "88b5", 46, broadcast},
	{"IS-IS, 802.3 with LLC", group(0x14), "05d9fefe03", 1494, multicast},
	{"LLDP", group(0x0e), "88cc", 100, multicast},
	{"spanning tree", group(0x00), "0026424203", 35, multicast},
	{"LACP", group(0x02), "8809", 110, multicast},
	{"VLAN tag", mac(2), "8100006488b5", 1500, host},
	{"two tags", mac(2), "88a8006481000065" + "88b5", 1400, host},
	{"for another station", mac(99), "88b5", 60, others},
}

// Any frame that a cable would carry comes through, is not changed, and is taken as it would be at the end of a cable.
func TestAnyFramePasses(t *testing.T) {
	for _, way := range []struct {
		name string
		wire func(l *lab, a, b string)
	}{
		{"joined", func(l *lab, a, b string) { l.must(l.Join(l.ctx, a, b)) }},
		{"shaped", func(l *lab, a, b string) {
			l.must(l.Join(l.ctx, a, b))
			l.must(l.Shape(l.ctx, a, wire.FromNode, slice.Shape{Rate: 1e9}))
		}},
		{"LAN", func(l *lab, a, b string) { l.onLAN(a, b) }},
		{"LAN, shaped", func(l *lab, a, b string) {
			l.onLAN(a, b)
			l.must(l.Shape(l.ctx, a, wire.FromNode, slice.Shape{Rate: 1e9}))
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			l := newLab(t)
			a, b := l.port("a", nil), l.port("b", nil)
			way.wire(l, a, b)
			from, to := l.tap("a"), l.tap("b")
			l.carrier("a")
			for _, f := range anyFrames {
				frame := ethernet(f.to, mac(1), f.head, f.load)
				from.send(frame)
				if kind, ok := to.sees(frame); !ok || kind != f.kind {
					t.Errorf("%s: came through: %v, taken as %d, want %d", f.name, ok, kind, f.kind)
				}
			}
		})
	}
}

func (l *lab) onLAN(ports ...string) {
	l.Helper()
	l.sw("s7b1")
	for _, p := range ports {
		l.must(l.Attach(l.ctx, p, "s7b1"))
	}
}

func TestJumboAndUnequalMTU(t *testing.T) {
	l := newLab(t)
	jumbo := func(p *wire.Port) { p.MTU = 9000 }
	a := l.port("a", jumbo)
	b := l.port("b", jumbo)
	c := l.port("c", nil)
	l.must(l.Join(l.ctx, a, b))
	l.carrier("a")
	big, fits := ethernet(everyone, mac(1), "88b5", 9000), ethernet(everyone, mac(1), "88b5", 1500)
	tapA, tapB, tapC := l.tap("a"), l.tap("b"), l.tap("c")
	tapA.send(big)
	if _, ok := tapB.sees(big); !ok {
		t.Error("a jumbo frame did not come through")
	}
	l.must(l.Join(l.ctx, a, c))
	tapA.send(big)
	tapA.send(fits)
	if tapC.copies(big) > 0 {
		t.Error("an interface received more than its MTU")
	}
	traffic, err := l.Counters(l.ctx)
	l.must(err)
	if n := traffic[a].Dropped["too big"]; n != 1 {
		t.Errorf("%d frames counted as too big, want 1", n)
	}
}

// TCP's super-frames cross a link whole: nobody cuts them, nobody computes checksums.
func TestOffloadsStayOn(t *testing.T) {
	l := newLab(t)
	a, b := l.pair()
	l.ping("a", "192.0.2.1")
	l.transfer("192.0.2.1", 64<<20)
	traffic, err := l.Counters(l.ctx)
	l.must(err)
	for what, c := range map[string]struct{ frames, bytes uint64 }{
		"from a": {traffic[a].FromNode.Frames, traffic[a].FromNode.Bytes},
		"to b":   {traffic[b].ToNode.Frames, traffic[b].ToNode.Bytes},
	} {
		if mean := c.bytes / c.frames; mean < 3*1514 {
			t.Errorf("%s: %d bytes in %d frames, %d each", what, c.bytes, c.frames, mean)
		}
	}
	if out, err := l.exec("a", "ethtool", "-k", "eth0"); err == nil { // where it is installed
		for _, f := range []string{"tcp-segmentation-offload: on", "tx-checksumming: on"} {
			if !bytes.Contains([]byte(out), []byte(f)) {
				t.Errorf("not %q:\n%s", f, out)
			}
		}
	}
}

// A queue counts frames: into a slow link, or one that loses frames, TCP sends them one by one.
func TestShapedLinkTakesSingleFrames(t *testing.T) {
	l := newLab(t)
	a, b := l.pair()
	l.ping("a", "192.0.2.1")
	mean := func() uint64 {
		t.Helper()
		before, err := l.Counters(l.ctx)
		l.must(err)
		l.transfer("192.0.2.1", 8<<20)
		after, err := l.Counters(l.ctx)
		l.must(err)
		now, then := after[a].FromNode, before[a].FromNode
		return (now.Bytes - then.Bytes) / (now.Frames - then.Frames)
	}
	shape := slice.Shape{Rate: 500e6, Queue: 200}
	l.must(l.Shape(l.ctx, a, wire.FromNode, shape))
	if m := mean(); m > 1514 {
		t.Errorf("frames of %d bytes into a queue", m)
	}
	l.must(l.Shape(l.ctx, a, wire.FromNode, slice.Shape{}))
	if m := mean(); m < 3*1514 {
		t.Errorf("frames of %d bytes without a queue", m)
	}
	l.onLAN(a, b)
	l.must(l.Shape(l.ctx, a, wire.FromNode, shape))
	if m := mean(); m > 1514 {
		t.Errorf("frames of %d bytes into the queue of a switch", m)
	}
	l.must(l.Join(l.ctx, a, b))
	if m := mean(); m < 3*1514 {
		t.Errorf("frames of %d bytes after the queue", m)
	}
}
