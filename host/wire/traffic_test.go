package wire_test

import (
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/model/slice"
)

// nodeNamespace holds a node's.
func (l *lab) nodeNamespace(name string) *os.File {
	l.Helper()
	ns, err := netns.Open(netns.Path(l.node(name).pid))
	l.must(err)
	l.Cleanup(func() { _ = ns.Close() })
	return ns
}

// carry sends bytes by TCP from one namespace to an address of another, and wants the same to arrive.
func carry(t testing.TB, from, to *os.File, address string, total int) {
	t.Helper()
	var listener, conn = net.Listener(nil), net.Conn(nil)
	if err := netns.In(to, func() (err error) {
		listener, err = net.Listen("tcp", net.JoinHostPort(address, "0"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	data := make([]byte, total)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data) // never fails
	received := make(chan error, 1)
	go func() { received <- receive(listener, data) }()
	if err := netns.In(from, func() (err error) {
		conn, err = net.DialTimeout("tcp", listener.Addr().String(), 20*time.Second)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	_, err := conn.Write(data)
	if err := errors.Join(err, conn.Close(), <-received); err != nil {
		t.Fatalf("%d bytes to %s: %v", total, address, err)
	}
}

func receive(listener net.Listener, want []byte) error {
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	have, err := io.ReadAll(conn)
	if err == nil && sha256.Sum256(have) != sha256.Sum256(want) {
		err = errors.New("other bytes arrived")
	}
	return err
}

// sentBy reads how many frames, of how many bytes, an interface has sent.
func sentBy(t testing.TB, ns *os.File, device string) (frames, bytes uint64) {
	t.Helper()
	err := netns.In(ns, func() error {
		l, err := netlink.LinkByName(device)
		if err == nil {
			frames, bytes = l.Attrs().Statistics.TxPackets, l.Attrs().Statistics.TxBytes
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return frames, bytes
}

// A node's TCP sends super-frames into the tunnel; on the wire they are frames like others, and all bytes arrive.
func TestSuperFramesCrossATunnel(t *testing.T) {
	forEachKind(t, func(t *testing.T, kind tunnelOf) {
		t.Helper()
		b := newBed(t, 2, 1500)
		b.openUnderlays()
		a, c := b.pair(kind)
		a.ping("a", "192.0.2.1")
		c.ping("b", "2001:db8::")
		from, to := a.nodeNamespace("a"), c.nodeNamespace("b")
		for _, address := range []string{"192.0.2.1", "2001:db8::1"} {
			before, err := a.Counters(a.ctx)
			a.must(err)
			frames, bytes := sentBy(t, a.ns, nic)
			carry(t, from, to, address, 16<<20)
			after, err := a.Counters(a.ctx)
			a.must(err)
			framesNow, bytesNow := sentBy(t, a.ns, nic)
			into := after[c.port].ToNode.Frames - before[c.port].ToNode.Frames
			mean := (after[c.port].ToNode.Bytes - before[c.port].ToNode.Bytes) / into
			if mean < 3*1514 {
				t.Errorf("%s: frames of %d bytes went into the tunnel", address, mean)
			}
			if onWire := (bytesNow - bytes) / (framesNow - frames); onWire > 1514 {
				t.Errorf("%s: frames of %d bytes on the wire", address, onWire)
			}
			t.Logf("%s: %d frames of %d bytes into the tunnel, %d on the wire", address, into, mean,
				framesNow-frames)
		}
		// Also when they wait in a queue first.
		a.must(a.Shape(a.ctx, a.port, wire.FromNode, slice.Shape{Rate: 5e9}))
		carry(t, from, to, "192.0.2.1", 4<<20)
	})
}

// What comes out of a tunnel are super-frames again, whoever made them: TCP in the node has as little work as on one
// machine. All bytes are counted once.
func TestSuperFramesComeOutOfATunnel(t *testing.T) {
	forEachKind(t, func(t *testing.T, kind tunnelOf) {
		t.Helper()
		const total = 16 << 20
		b := newBed(t, 2, 1500)
		b.openUnderlays()
		a, c := b.pair(kind)
		a.ping("a", "192.0.2.1")
		from, to := a.nodeNamespace("a"), c.nodeNamespace("b")
		for _, address := range []string{"192.0.2.1", "2001:db8::1"} {
			before, err := c.Counters(c.ctx)
			c.must(err)
			carry(t, from, to, address, total)
			after, err := c.Counters(c.ctx)
			c.must(err)
			frames := after[c.port].ToNode.Frames - before[c.port].ToNode.Frames
			bytes := after[c.port].ToNode.Bytes - before[c.port].ToNode.Bytes
			if mean := bytes / frames; mean < 3*1514 {
				t.Errorf("%s: frames of %d bytes came to the node", address, mean)
			}
			out := after[a.port].FromNode.Bytes - before[a.port].FromNode.Bytes
			if out < total || out > total*11/10 {
				t.Errorf("%s: %d bytes came out of the tunnel, of %d", address, out, total)
			}
		}
	})
}

// The machine's own traffic does not notice.
func TestTheMachinesOwnTrafficIsLeftAlone(t *testing.T) {
	b := newBed(t, 2, 1500)
	b.openUnderlays()
	a, _ := b.pair(tunnelOf{kind: slice.EGRE})
	a.ping("a", "192.0.2.1")
	m, peer := b.machines[0], b.machines[1]
	m.run("ping", "-c1", "-W5", peer.ip4.String())
	m.run("ping", "-c1", "-W5", peer.ip6.String())
	carry(t, m.ns, peer.ns, peer.ip4.String(), 4<<20)
	carry(t, peer.ns, m.ns, m.ip6.String(), 4<<20)
	a.ping("a", "192.0.2.1")
}
