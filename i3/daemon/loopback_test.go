package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pergola-net/pergola/i3/chord"
	"github.com/pergola-net/pergola/i3/client"
	"github.com/pergola-net/pergola/i3/daemon"
	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/server"
)

// loopback is a ring of daemons on ports of 127.0.0.1, with short periods.
type loopback struct {
	addresses []netip.AddrPort
	daemons   []*daemon.Daemon
	stop      []func() // ends a daemon in order, and waits for it
	crash     []func() // takes its socket away
}

func start(t *testing.T, n int) *loopback {
	t.Helper()
	r := &loopback{}
	for i := range n {
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		a := conn.LocalAddr().(*net.UDPAddr).AddrPort()
		r.addresses = append(r.addresses, a)
		// Keys at equal distances, so that the ring is the same for any ports.
		key := ident.KeyFrom([ident.KeySize]byte{byte(256 * i / n), 1})
		c := chord.Config{Self: chord.Peer{Key: key, Addr: a}, Join: r.addresses[:1]}
		c.Stabilize, c.FixFingers, c.Timeout = 50*time.Millisecond, 100*time.Millisecond, 200*time.Millisecond
		d := daemon.New(conn, server.Config{Ring: c})
		d.Linger = 200 * time.Millisecond
		r.daemons = append(r.daemons, d)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		stop := sync.OnceFunc(func() {
			cancel()
			if err := <-ended; err != nil && !errors.Is(err, net.ErrClosed) {
				t.Errorf("daemon %d: %v", i, err)
			}
			_ = conn.Close()
		})
		r.stop = append(r.stop, stop)
		r.crash = append(r.crash, func() { _ = conn.Close() })
		t.Cleanup(stop)
	}
	return r
}

// eventually waits until nothing is wrong.
func eventually(t *testing.T, wrong func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		what := wrong()
		if what == "" {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal(what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// settle waits until the ring is a ring of the given daemons, in the order of their numbers.
func (r *loopback) settle(t *testing.T, numbers ...int) {
	t.Helper()
	eventually(t, func() string {
		for i, number := range numbers {
			next := r.addresses[numbers[(i+1)%len(numbers)]]
			var after []chord.Peer
			var finger chord.Peer
			r.daemons[number].Inspect(func(s *server.Server) {
				after, finger = s.Ring().Successors(), s.Ring().Finger(ident.Exact-1)
			})
			if len(after) == 0 || after[0].Addr != next || finger.IsZero() {
				return fmt.Sprintf("%s come after daemon %d, want %s first", after, number, next)
			}
		}
		return ""
	})
}

func (r *loopback) client(t *testing.T, gateways ...int) *client.Client {
	t.Helper()
	var o client.Options
	for _, i := range gateways {
		o.Gateways = append(o.Gateways, r.addresses[i])
	}
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// arrives sends a payload until it arrives: loopback may lose packets, too, when a buffer is full.
func arrives(t *testing.T, from, to *client.Client, payload string, stack ...ident.ID) client.Packet {
	t.Helper()
	for range 50 {
		if err := from.Send(stack, []byte(payload)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		for {
			p, err := to.Receive(ctx)
			if err != nil {
				break
			}
			if string(p.Payload) == payload {
				cancel()
				return p
			}
		}
		cancel()
	}
	t.Fatalf("%q does not arrive", payload)
	return client.Packet{}
}

func insert(t *testing.T, c *client.Client, n client.Trigger) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.Insert(ctx, n); err != nil {
		t.Fatal(err)
	}
}

// Eight servers, a receiver that moves, a group, a stack, a server that leaves and one that crashes.
func TestEightDaemonsOnLoopback(t *testing.T) {
	r := start(t, 8)
	r.settle(t, 0, 1, 2, 3, 4, 5, 6, 7)
	camera, radio, service := ident.FromName("camera"), ident.FromName("radio"), ident.FromName("service")

	sender, receiver := r.client(t, 0), r.client(t, 3, 4)
	handle := client.HandleFrom("the camera's secret")
	insert(t, receiver, client.Trigger{ID: camera, Handle: handle})
	for i := range 8 {
		arrives(t, r.client(t, i), receiver, fmt.Sprint("by server ", i), camera)
	}

	// The receiver moves: first to another port, then to another machine, that is another client with its secret.
	before := receiver.Local()
	if err := receiver.Move(netip.AddrPort{}); err != nil {
		t.Fatal(err)
	}
	if receiver.Local() == before {
		t.Fatalf("it still receives at %s", before)
	}
	arrives(t, sender, receiver, "to the new port", camera)
	elsewhere := r.client(t, 2)
	insert(t, elsewhere, client.Trigger{ID: camera, Handle: handle})
	arrives(t, sender, elsewhere, "elsewhere", camera)
	for range 20 {
		arrives(t, sender, elsewhere, "still elsewhere", camera)
	}
	nothing, cancel := context.WithCancel(t.Context())
	cancel()
	for p, err := receiver.Receive(nothing); err == nil; p, err = receiver.Receive(nothing) {
		if string(p.Payload) != "to the new port" {
			t.Errorf("%q went to where the receiver was", p.Payload)
		}
	}

	listener, other := r.client(t, 1), r.client(t, 2)
	for _, c := range []*client.Client{listener, other} {
		insert(t, c, client.Trigger{ID: radio, Handle: client.NewHandle()})
	}
	arrives(t, sender, listener, "news", radio)
	arrives(t, sender, other, "more news", radio)

	insert(t, listener, client.Trigger{ID: service, Handle: client.NewHandle()})
	p := arrives(t, sender, listener, "film", service, radio)
	if p.ID != service || len(p.Rest) != 1 || p.Rest[0] != radio {
		t.Errorf("the service gets %s, and the rest %s", p.ID, p.Rest)
	}

	// The server that has the camera's trigger leaves; the next one crashes.
	find := func() int {
		found, asked, err := sender.Lookup(t.Context(), camera.Key())
		if err != nil || len(asked) > 8 {
			t.Fatalf("%d servers asked: %v", len(asked), err)
		}
		for i, a := range r.addresses {
			if a == found.Addr {
				return i
			}
		}
		t.Fatalf("%s is no server", found)
		return 0
	}
	owner := find()
	if owner == 0 || owner == 2 {
		t.Fatalf("server %d is responsible: choose another identifier, its gateway must stay", owner)
	}
	r.stop[owner]()
	var left []int
	for i := range 8 {
		if i != owner {
			left = append(left, i)
		}
	}
	r.settle(t, left...)
	arrives(t, sender, elsewhere, "after a server has left", camera)
	next := find()
	if next == owner || next == 0 || next == 2 {
		t.Fatalf("server %d is responsible after server %d has left", next, owner)
	}
	r.crash[next]()
	left = slices.DeleteFunc(left, func(i int) bool { return i == next })
	r.settle(t, left...)
	insert(t, elsewhere, client.Trigger{ID: camera, Handle: handle}) // not to wait for its refresh
	arrives(t, sender, elsewhere, "after a server has crashed", camera)
	eventually(t, func() string {
		self, _, after, err := sender.Neighbours(t.Context(), r.addresses[0])
		if err != nil || self.Addr != r.addresses[0] || len(after) != 5 {
			return fmt.Sprintf("server 0 is %s and has the successors %s: %v", self, after, err)
		}
		return ""
	})

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := elsewhere.Remove(ctx, camera, handle); err != nil {
		t.Error(err)
	}
}

func TestClientUsesAGatewayThatAnswers(t *testing.T) {
	r := start(t, 2)
	r.settle(t, 0, 1)
	r.stop[1]()
	c := r.client(t, 1, 0)
	if err := c.Reach(t.Context()); err != nil {
		t.Fatal(err)
	}
	insert(t, c, client.Trigger{ID: ident.FromName("a"), Handle: client.NewHandle()})
	arrives(t, c, c, "x", ident.FromName("a"))

	nobody := r.client(t, 1)
	if err := nobody.Reach(t.Context()); !errors.Is(err, client.ErrSilent) {
		t.Errorf("a gateway that is gone: %v", err)
	}
}

func TestClosedClientEndsItsCallers(t *testing.T) {
	r := start(t, 1)
	c := r.client(t, 0)
	ended := make(chan error, 1)
	go func() {
		_, err := c.Receive(context.Background())
		ended <- err
	}()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, client.ErrClosed) {
		t.Errorf("Receive ends with %v", err)
	}
	if err := c.Send([]ident.ID{{}}, nil); !errors.Is(err, client.ErrClosed) {
		t.Errorf("Send: %v", err)
	}
	if err := c.Insert(t.Context(), client.Trigger{}); !errors.Is(err, client.ErrClosed) {
		t.Errorf("Insert: %v", err)
	}
}
