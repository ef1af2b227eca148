package client_test

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pergola-net/pergola/i3/chord"
	"github.com/pergola-net/pergola/i3/client"
	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/internal/virtual"
	"github.com/pergola-net/pergola/i3/server"
	"github.com/pergola-net/pergola/i3/trigger"
	"github.com/pergola-net/pergola/i3/wire"
)

type network = virtual.Network[[]byte]

// machine is a server in a virtual network.
type machine struct {
	*server.Server
	network *network
	addr    netip.AddrPort
}

func (m *machine) Send(to netip.AddrPort, p []byte) { m.network.Send(m.addr, to, bytes.Clone(p)) }

func serverAddress(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), wire.Port)
}

// startRing starts servers 0 to n-1, and gives them time to become a ring.
func startRing(w *network, n int, limits trigger.Limits) (machines []*machine) {
	for i := range n {
		m := &machine{network: w, addr: serverAddress(i)}
		self := chord.Peer{Key: ident.FromName(m.addr.String()).Key(), Addr: m.addr}
		m.Server = server.New(server.Config{Triggers: limits, Ring: chord.Config{Self: self,
			Join: []netip.AddrPort{serverAddress(0)}, Nonce: w.Random.Uint64}}, m)
		w.Add(m.addr, m)
		machines = append(machines, m)
	}
	w.Run(30 * time.Second)
	return machines
}

// receiver is a host with a keeper.
type receiver struct {
	*client.Keeper
	network *network
	addr    netip.AddrPort
	got     []string
	events  []client.EventKind
	sent    int
}

func (r *receiver) Handle(now time.Time, from netip.AddrPort, b []byte) {
	p, err := wire.Parse(b)
	if err != nil {
		panic(err)
	}
	if !r.Keeper.Handle(now, from, p) {
		r.got = append(r.got, string(p.Payload()))
	}
}

func startReceiver(w *network, host byte, gateways ...int) *receiver {
	r := &receiver{network: w, addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, host}), 4000)}
	var addresses []netip.AddrPort
	for _, i := range gateways {
		addresses = append(addresses, serverAddress(i))
	}
	r.Keeper = client.NewKeeper(r.addr, addresses, 0, func(to netip.AddrPort, p wire.Packet) {
		r.sent++
		w.Send(r.addr, to, bytes.Clone(p))
	}, func(e client.Event) { r.events = append(r.events, e.Kind) })
	w.Add(r.addr, r)
	return r
}

// do calls the keeper, which then may have something due.
func (r *receiver) do(call func(now time.Time)) {
	call(r.network.Now)
	r.network.Add(r.addr, r)
}

func (r *receiver) move(host byte) {
	delete(r.network.Hosts, r.addr)
	r.addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, host}), 4000)
	r.do(func(now time.Time) { r.Move(now, r.addr) })
}

func send(w *network, to int, payload string, stack ...ident.ID) {
	w.Send(netip.MustParseAddrPort("203.0.113.1:9"), serverAddress(to), wire.New(wire.Data, stack, []byte(payload)))
	w.Run(2 * time.Second)
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

var camera = wire.Trigger{ID: ident.FromName("camera"), Handle: wire.Handle{1}}

func TestKeptTriggerLivesOn(t *testing.T) {
	w := virtual.NewNetwork[[]byte](1)
	startRing(w, 2, trigger.Limits{})
	w.Loss = 0.1
	r := startReceiver(w, 1, 1)
	r.do(func(now time.Time) { r.Keep(now, camera) })
	for range 6 {
		w.Run(10 * time.Minute)
		w.Loss = 0
		send(w, 0, "x", camera.ID)
		w.Loss = 0.1
	}
	if len(r.got) != 6 {
		t.Errorf("%d of 6 packets arrive", len(r.got))
	}
	// One refresh every 30 s would be 120.
	if r.sent > 200 {
		t.Errorf("%d packets were sent in an hour", r.sent)
	}
	for _, e := range r.events {
		if e != client.Stored {
			t.Errorf("there is an event of kind %d", e)
		}
	}
}

func TestReceiverThatMovesIsFollowedAtOnce(t *testing.T) {
	w := virtual.NewNetwork[[]byte](2)
	startRing(w, 8, trigger.Limits{})
	r := startReceiver(w, 1, 1)
	r.do(func(now time.Time) { r.Keep(now, camera) })
	w.Run(time.Second)
	for host := byte(2); host < 6; host++ {
		send(w, 3, "x", camera.ID)
		r.move(host)
		w.Run(time.Second)
	}
	send(w, 3, "last", camera.ID)
	equal(t, "received", r.got, []string{"x", "x", "x", "x", "last"})
}

// A receiver that was left behind, and goes on refreshing, does not get the trigger back.
func TestReceiverThatStartsLaterHasTheTrigger(t *testing.T) {
	w := virtual.NewNetwork[[]byte](2)
	startRing(w, 4, trigger.Limits{})
	old, young := startReceiver(w, 1, 1), startReceiver(w, 2, 2)
	old.do(func(now time.Time) { old.Keep(now, camera) })
	w.Run(time.Second)
	young.do(func(now time.Time) { young.Keep(now, camera) })
	w.Run(time.Minute)
	send(w, 3, "x", camera.ID)
	equal(t, "at the old one", old.got, []string(nil))
	equal(t, "at the young one", young.got, []string{"x"})
	equal(t, "the old one's events", old.events, []client.EventKind{client.Stored, client.Refused})
	if _, ok := old.Due(); ok {
		t.Error("the old one still wants the trigger")
	}

	// The old one ends, and does not take the young one's trigger with it. Whoever has the handle may do that.
	old.do(func(now time.Time) { old.Forget(now, camera.ID, camera.Handle) })
	w.Run(time.Second)
	send(w, 3, "y", camera.ID)
	old.do(func(now time.Time) { old.Revoke(now, camera.ID, camera.Handle) })
	w.Run(time.Second)
	send(w, 3, "z", camera.ID)
	equal(t, "at the young one", young.got, []string{"x", "y"})
}

func TestTriggersSurviveTheCrashOfTheirServerAndOfTheGateway(t *testing.T) {
	w := virtual.NewNetwork[[]byte](3)
	machines := startRing(w, 6, trigger.Limits{})
	r := startReceiver(w, 1, 1, 2, 3)
	r.do(func(now time.Time) { r.Keep(now, camera) })
	w.Run(time.Second)
	owner := slices.IndexFunc(machines, func(m *machine) bool { return m.Ring().Owns(camera.ID.Key()) })
	for _, i := range []int{owner, 1} {
		delete(w.Hosts, serverAddress(i))
	}
	w.Run(time.Minute)
	alive := slices.IndexFunc([]int{4, 5}, func(i int) bool { return i != owner })
	send(w, 4+alive, "x", camera.ID)
	equal(t, "received", r.got, []string{"x"})
}

func TestForgottenTriggerIsRemoved(t *testing.T) {
	w := virtual.NewNetwork[[]byte](4)
	startRing(w, 4, trigger.Limits{})
	r := startReceiver(w, 1, 1)
	r.do(func(now time.Time) { r.Keep(now, camera) })
	w.Run(time.Second)
	r.do(func(now time.Time) { r.Forget(now, camera.ID, camera.Handle) })
	w.Run(time.Minute)
	send(w, 2, "x", camera.ID)
	equal(t, "received", r.got, []string(nil))
	equal(t, "events", r.events, []client.EventKind{client.Stored, client.Removed})
	if _, ok := r.Due(); ok {
		t.Error("something is left to do")
	}
}

func TestRemovalWithoutAnAnswerEnds(t *testing.T) {
	w := virtual.NewNetwork[[]byte](5)
	r := startReceiver(w, 1, 1)
	r.do(func(now time.Time) { r.Revoke(now, camera.ID, camera.Handle) })
	w.Run(time.Minute)
	equal(t, "events", r.events, []client.EventKind{client.Unconfirmed})
	if r.sent != 3 {
		t.Errorf("%d packets were sent, want 3", r.sent)
	}
}

func TestRefusedTriggerIsTriedAgain(t *testing.T) {
	w := virtual.NewNetwork[[]byte](6)
	startRing(w, 1, trigger.Limits{Triggers: 1})
	first, second := startReceiver(w, 1, 0), startReceiver(w, 2, 0)
	other := wire.Trigger{ID: ident.FromName("other"), Handle: wire.Handle{2}}
	first.do(func(now time.Time) { first.Keep(now, camera) })
	w.Run(time.Second)
	second.do(func(now time.Time) { second.Keep(now, other) })
	w.Run(15 * time.Second)
	first.do(func(now time.Time) { first.Forget(now, camera.ID, camera.Handle) })
	w.Run(15 * time.Second)
	equal(t, "events", second.events, []client.EventKind{client.Refused, client.Refused, client.Stored})
}

func TestChallengesWithoutEndAreNotAnsweredWithoutEnd(t *testing.T) {
	w := virtual.NewNetwork[[]byte](7)
	r := startReceiver(w, 1, 0)
	evil := serverAddress(0)
	r.do(func(now time.Time) { r.Keep(now, camera) })
	for range 1000 {
		c := wire.Challenged{ID: camera.ID, Handle: camera.Handle, Nonce: wire.Nonce{byte(r.sent)}}
		r.Handle(w.Now, evil, c.Packet())
		w.Run(10 * time.Millisecond)
	}
	if r.sent > 60 {
		t.Errorf("within 10 s %d packets were sent", r.sent)
	}
}

func TestStrangersPacketsAreNotTheKeepers(t *testing.T) {
	w := virtual.NewNetwork[[]byte](8)
	r := startReceiver(w, 1, 0)
	r.do(func(now time.Time) { r.Keep(now, camera) })
	sent := r.sent
	for _, p := range []wire.Packet{
		wire.Challenged{ID: camera.ID, Handle: wire.Handle{9}}.Packet(),
		wire.Challenged{ID: ident.FromName("other"), Handle: camera.Handle}.Packet(),
		wire.Acknowledgement{ID: camera.ID, Handle: wire.Handle{9}, Server: serverAddress(1)}.Packet(),
		wire.Refused{ID: camera.ID, Handle: wire.Handle{9}}.Packet(),
		wire.New(wire.Challenge, []ident.ID{camera.ID}, nil),
		wire.New(wire.Ack, []ident.ID{camera.ID}, nil),
		wire.New(wire.Refusal, []ident.ID{camera.ID}, nil),
	} {
		r.Handle(w.Now, serverAddress(9), p)
	}
	if r.sent != sent || len(r.events) != 0 {
		t.Errorf("%d packets are sent, and there are the events %d", r.sent-sent, r.events)
	}
}
