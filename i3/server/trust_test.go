package server_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/pergola-net/pergola/i3/chord"
	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/server"
	"github.com/pergola-net/pergola/i3/trigger"
	"github.com/pergola-net/pergola/i3/wire"
)

func TestSilentReceiverGetsNothing(t *testing.T) {
	w := newWorld(6)
	w.startRing(4)
	attacker, victim := w.host(1), w.host(2)
	id := ident.FromName("flood")
	forged := wire.Trigger{ID: id, Handle: wire.Handle{1}, Receiver: victim.addr, Lifetime: time.Hour}
	sent := 0
	for range 1000 {
		attacker.via(0, forged.Insertion())
		sent += len(forged.Insertion())
		w.Run(10 * time.Millisecond)
	}
	attacker.send(0, "data", id)
	if len(victim.got) != 0 {
		t.Errorf("a victim that never answered gets %q", victim.got)
	}
	// 10 s at 10 challenges a second, and a burst of 20.
	if size := len(wire.Challenged{}.Packet()); victim.bytes > 120*size || victim.bytes == 0 {
		t.Errorf("the victim got %d bytes of challenges, for %d bytes of insertions", victim.bytes, sent)
	}
	// Another address is not affected.
	receiver := w.host(3)
	receiver.insert(0, id, 2)
	attacker.send(0, "data", id)
	same(t, "received", receiver.got, []string{"data"})
}

func TestAnswersToChallengesDoNotFitOtherTriggers(t *testing.T) {
	w := newWorld(7)
	w.configure = func(c *server.Config) { c.Challenges = server.Rate{All: 1000, Address: 1000} }
	w.start(0)
	w.Run(time.Second)
	h, victim := w.host(1), w.host(2)
	h.mute = true
	id := ident.FromName("a")
	asked := wire.Trigger{ID: id, Handle: wire.Handle{1}, Receiver: h.addr, Lifetime: time.Minute}
	var nonce wire.Nonce
	w.Add(h.addr, listener(func(p wire.Packet) {
		c, err := wire.ParseChallenge(p)
		if err != nil {
			t.Fatal(err)
		}
		nonce = c.Nonce
	}))
	h.via(0, asked.Insertion())
	w.Run(time.Second)
	for what, change := range map[string]func(n *wire.Trigger){
		"another receiver":   func(n *wire.Trigger) { n.Receiver = victim.addr },
		"another identifier": func(n *wire.Trigger) { n.ID = ident.FromName("b") },
		"a stack":            func(n *wire.Trigger) { n.Stack = []ident.ID{id} },
		"another handle":     func(n *wire.Trigger) { n.Handle = wire.Handle{2} },
	} {
		n := asked
		n.Nonce = nonce
		change(&n)
		h.via(0, n.Insertion())
		w.Run(time.Second)
		if got := w.servers[serverAddress(0)].Counters().Inserted; got != 0 {
			t.Fatalf("the answer is accepted for %s", what)
		}
	}
	late := asked
	late.Nonce = nonce
	w.Run(3 * time.Minute)
	h.via(0, late.Insertion())
	w.Run(time.Second)
	if got := w.servers[serverAddress(0)].Counters().Inserted; got != 0 {
		t.Error("the answer is accepted after minutes")
	}
}

// listener is a host that only looks.
type listener func(p wire.Packet)

func (l listener) Tick(time.Time)         {}
func (l listener) Due() (time.Time, bool) { return time.Time{}, false }
func (l listener) Handle(_ time.Time, _ netip.AddrPort, b []byte) {
	if p, err := wire.Parse(b); err == nil {
		l(p)
	}
}

// A client that knows no handle gets answers, or has them sent to a victim, as seldom as challenges.
func TestRemovalsOfNothingAreAnsweredSeldom(t *testing.T) {
	w := newWorld(22)
	w.startRing(2)
	attacker, victim := w.host(1), w.host(2)
	forged := wire.Removal{ID: ident.FromName("a"), Handle: wire.Handle{1}, Reply: victim.addr}.Packet()
	for range 500 {
		attacker.via(0, forged)
		w.Run(10 * time.Millisecond)
	}
	if n := len(victim.acks); n == 0 || n > 70 || victim.bytes > n*len(forged) {
		t.Errorf("the victim gets %d answers, %d bytes", n, victim.bytes)
	}
}

func TestRingKeyKeepsStrangersOut(t *testing.T) {
	w := newWorld(16)
	w.configure = func(c *server.Config) { c.RingKey = wire.RingKey("secret") }
	w.startRing(4)
	w.configure = func(c *server.Config) { c.RingKey = wire.RingKey("wrong") }
	stranger := w.start(9, 0)
	w.Run(time.Minute)
	if !stranger.Ring().Alone() {
		t.Errorf("a server with a wrong key knows %s", stranger.Ring().Successors())
	}
	w.crash(stranger)
	if what := w.broken(); what != "" {
		t.Error(what)
	}
	h := w.host(1)
	forged := wire.Trigger{ID: ident.FromName("a"), Handle: wire.Handle{1}, Receiver: h.addr, Lifetime: time.Minute}
	for i := range 4 {
		m := w.servers[serverAddress(i)]
		w.Send(m.Ring().Predecessor().Addr, m.addr, forged.Handover(nil))
		leave := chord.Message{Kind: chord.Leave, From: m.Ring().Predecessor(), Peers: []chord.Peer{{}}}
		w.Send(m.Ring().Predecessor().Addr, m.addr, wire.Ring(leave, nil))
	}
	w.Run(100 * time.Millisecond)
	if what := w.broken(); what != "" || w.drops(server.NotFromRing) < 8 {
		t.Errorf("forged messages were accepted: %s; %d were dropped", what, w.drops(server.NotFromRing))
	}
	for i := range 4 {
		if n := w.servers[serverAddress(i)].Counters().Triggers; n != 0 {
			t.Errorf("server %d has taken over %d forged triggers", i, n)
		}
	}
}

func TestClientsMayAskARingThatHasAKey(t *testing.T) {
	w := newWorld(17)
	w.configure = func(c *server.Config) { c.RingKey = wire.RingKey("secret") }
	w.startRing(4)
	var answers []chord.Message
	client := hostAddress(1)
	w.Add(client, listener(func(p wire.Packet) {
		m, _, err := wire.ParseRing(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, m)
	}))
	k := ident.FromName("a").Key()
	for _, m := range []chord.Message{
		{Kind: chord.Find, Nonce: 1, Key: k, Peers: make([]chord.Peer, 1)},
		{Kind: chord.Query, Nonce: 2, Peers: make([]chord.Peer, 3)},
		{Kind: chord.Find, Nonce: 3, Key: k, Recursive: true, Origin: hostAddress(2), Peers: make([]chord.Peer, 1)},
	} {
		w.Send(client, serverAddress(0), wire.Ring(m, nil))
		w.Run(time.Second)
	}
	var kinds []chord.Kind
	for _, a := range answers {
		kinds = append(kinds, a.Kind)
	}
	same(t, "answers", kinds, []chord.Kind{chord.Found, chord.State})
}

func TestConstrainedServersWantConstrainedTriggers(t *testing.T) {
	w := newWorld(18)
	w.configure = func(c *server.Config) { c.Constrained = true }
	w.startRing(4)
	h := w.host(1)
	free := ident.FromName("free")
	h.insert(0, free, 1)
	h.insert(0, free, 2, ident.FromName("victim"))
	same(t, "refusals", h.refuse, []wire.Reason{wire.Unconstrained, wire.Unconstrained})

	secret := ident.FromName("secret").Key()
	private := free.WithKey(ident.Left(secret))
	own := wire.Trigger{ID: private, Handle: wire.Handle{3}, Receiver: h.addr, Secret: secret}
	own.Lifetime = time.Minute
	h.wants[own.Handle] = own
	h.via(0, own.Insertion())
	w.Run(time.Second)
	public := free.WithKey(ident.Left(private.Key()))
	h.insert(0, public, 4, private)
	h.send(0, "x", public)
	same(t, "received", h.got, []string{"x"})
}

func TestLimitsAreRefusedWithTheirReason(t *testing.T) {
	for _, c := range []struct {
		limits trigger.Limits
		want   wire.Reason
	}{
		{trigger.Limits{Triggers: 1}, wire.ServerFull},
		{trigger.Limits{PerReceiver: 1}, wire.ReceiverFull},
		{trigger.Limits{Group: 1}, wire.IdentifierFull},
	} {
		w := newWorld(19)
		w.configure = func(config *server.Config) { config.Triggers = c.limits }
		w.start(0)
		w.Run(time.Second)
		h := w.host(1)
		h.insert(0, ident.FromName("a"), 1, ident.FromName("x"))
		h.insert(0, ident.FromName("a"), 2, ident.FromName("y"))
		same(t, "refusals", h.refuse, []wire.Reason{c.want})
	}
}

func TestLifetimesAreBounded(t *testing.T) {
	w := newWorld(20)
	w.start(0)
	w.Run(time.Second)
	h := w.host(1)
	long := wire.Trigger{ID: ident.FromName("a"), Receiver: h.addr, Lifetime: 10 * time.Hour}
	h.wants[long.Handle] = long
	h.via(0, long.Insertion())
	w.Run(time.Second)
	if len(h.acks) != 1 || h.acks[0].Lifetime != server.DefaultLifetime {
		t.Errorf("a lifetime of 10 h is acknowledged as %+v", h.acks)
	}
}
