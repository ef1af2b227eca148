package traffic

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
)

// What comes before the frames is here an EtherType that nobody takes, and a key.
func TestGeneratedFramesTakeTunnelsInTurn(t *testing.T) {
	const experimental, frames = 0x88b5, 7
	l := newLink(t)
	// a veth takes frames from XDP only with a program; this one lets others' pass
	s, err := NewTunnelSink(l.ns[1], l.device[1], 0)
	must(t, err)
	defer func() { must(t, s.Close()) }()
	fd := -1
	must(t, netns.In(l.ns[1], func() (err error) {
		// ETH_P_802_EX1 in network byte order, as packet(7) wants it.
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC,
			experimental>>8|experimental&0xff<<8); err != nil {
			return err
		}
		return unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5})
	}))
	defer func() { _ = unix.Close(fd) }()
	outer := slices.Concat(l.mac[1][:], l.mac[0][:], []byte{experimental >> 8, experimental & 0xff},
		make([]byte, 4))
	g, err := NewGenerator(l.ns[0], Flow{
		Device: l.device[0], From: l.mac[0], To: l.mac[1], Source: l.address(0),
		Destinations: []netip.Addr{l.address(1)}, Size: FrameSize,
		Outer: outer, Keys: Keys{At: 14, Count: 3, First: 5, Step: 100},
	})
	must(t, err)
	defer func() { must(t, g.Close()) }()
	must(t, OnCPU(0, func() error { return g.Send(frames) }))
	var keys []uint32
	for range frames {
		frame := make([]byte, 256)
		n, _, err := unix.Recvfrom(fd, frame, 0)
		must(t, err)
		if n != len(outer)+FrameSize {
			t.Fatalf("%d bytes", n)
		}
		keys = append(keys, binary.BigEndian.Uint32(frame[14:]))
	}
	if want := []uint32{5, 105, 205, 5, 105, 205, 5}; !slices.Equal(keys, want) {
		t.Errorf("keys %v, want %v", keys, want)
	}
}
