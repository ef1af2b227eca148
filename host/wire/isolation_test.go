package wire_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
)

// raw sends one IPv4 packet, with a header by the kernel.
func raw(t testing.TB, from *os.File, to netip.Addr, protocol int, payload []byte) {
	t.Helper()
	err := netns.In(from, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		return unix.Sendto(fd, payload, 0, &unix.SockaddrInet4{Addr: to.As4()})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// egre is a GRE header with a key, and a frame.
func egre(key uint32, frame []byte) []byte {
	packet := binary.BigEndian.AppendUint32(nil, 0x2000<<16|unix.ETH_P_TEB)
	return append(binary.BigEndian.AppendUint32(packet, key), frame...)
}

// A machine that is not the peer that a tunnel was made for gets nothing into it; nor does the peer with another key.
func TestStrangersPacketsAreDroppedAndCounted(t *testing.T) {
	b := newBed(t, 3, 1500)
	b.openUnderlays()
	a, _ := b.pair(tunnelOf{kind: slice.EGRE})
	a.ping("a", "192.0.2.1")
	tap := a.tap("a")
	frame := ethernet(mac(101), mac(201), "88b5", 99)

	// As it should be.
	raw(t, b.machines[1].ns, a.ip4, unix.IPPROTO_GRE, egre(b.keys, frame))
	if _, ok := tap.sees(frame); !ok {
		t.Error("the peer's packet did not come through")
	}
	for _, stranger := range []struct {
		who  string
		from *machine
		key  uint32
	}{{"a stranger", b.machines[2], b.keys}, {"the peer, with an unknown key,", b.machines[1], b.keys + 1}} {
		before := a.counted()
		frame := ethernet(mac(101), mac(201), "88b5", 90)
		raw(t, stranger.from.ns, a.ip4, unix.IPPROTO_GRE, egre(stranger.key, frame))
		a.wantCounted(before, "unknown tunnel", 1)
		if tap.copies(frame) > 0 {
			t.Errorf("%s got a frame through", stranger.who)
		}
	}
	// GRE of other kinds is the machine's.
	before := a.counted()
	plain := append([]byte{0, 0, 8, 0}, bytes.Repeat([]byte{0x45}, 40)...)
	got := receiveRaw(t, a.ns, func() { raw(t, b.machines[2].ns, a.ip4, unix.IPPROTO_GRE, plain) })
	if !bytes.HasSuffix(got, plain) {
		t.Errorf("the machine got %x", got)
	}
	if after := a.counted(); after["unknown tunnel"] != before["unknown tunnel"] {
		t.Errorf("the machine's packet was counted: %v", after)
	}
}

// receiveRaw is what a raw socket for GRE gets.
func receiveRaw(t testing.TB, ns *os.File, send func()) []byte {
	t.Helper()
	fd := -1
	err := netns.In(ns, func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_GRE); err != nil {
			return err
		}
		return unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5})
	})
	defer func() { _ = unix.Close(fd) }()
	if err != nil {
		t.Fatal(err)
	}
	send()
	buf := make([]byte, 2048)
	n, _, err := unix.Recvfrom(fd, buf, 0)
	if err != nil {
		t.Fatalf("receive a packet of GRE: %v", err)
	}
	return buf[:n]
}

// One slice floods its link, which is shaped, through the same machines and network cards; what another one sends
// within its own rate all arrives.
func TestFloodOfOneSliceLeavesAnotherAlone(t *testing.T) {
	b := newBed(t, 2, 1500)
	b.openUnderlays()
	kind := tunnelOf{kind: slice.EGRE}
	calm, _ := b.pair(kind)
	mtu := func(p *wire.Port) { p.Slice, p.MTU = 8, b.mtu-kind.kind.Overhead(false) }
	near, far := end{machine: calm.machine}, end{machine: b.machines[1]}
	near.port, far.port = near.lab.port("near", mtu, "198.51.100.0/31"), far.lab.port("far", mtu, "198.51.100.1/31")
	b.link(kind, near, far)
	calm.must(calm.Shape(calm.ctx, calm.port, wire.FromNode, slice.Shape{Rate: 10e6}))
	near.must(near.Shape(near.ctx, near.port, wire.FromNode, slice.Shape{Rate: 2e6, Queue: 20}))
	calm.ping("a", "192.0.2.1")
	near.ping("near", "198.51.100.1")

	stop := near.floods("near", "198.51.100.1")
	defer stop()
	testkit.Eventually(t, func() error {
		sent, got := near.traffic(near.port).FromNode.Bytes, far.traffic(far.port).ToNode.Bytes
		if sent < 3*got || got < 1<<16 {
			return fmt.Errorf("of %d bytes, %d came through", sent, got)
		}
		return nil
	}, 30*time.Second, "more than the link takes")
	out, err := calm.exec("a", "ping", "-q", "-c200", "-i0.01", "-s1000", "-W10", "192.0.2.1")
	if err != nil || !strings.Contains(out, " 0% packet loss") {
		t.Errorf("beside the flood: %v\n%s", err, out)
	}
}
