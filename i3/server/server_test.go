package server_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/i3/chord"
	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/server"
	"github.com/pergola-net/pergola/i3/trigger"
	"github.com/pergola-net/pergola/i3/wire"
)

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func TestPacketsReachTheReceiverFromEveryServer(t *testing.T) {
	w := newWorld(1)
	w.startRing(16)
	sender, receiver := w.host(1), w.host(2)
	id := ident.FromName("camera")
	receiver.insert(3, id, 1)
	if len(receiver.acks) != 1 {
		t.Fatalf("the trigger was acknowledged by %+v", receiver.acks)
	}
	ack := wire.Acknowledgement{ID: id, Handle: wire.Handle{1}, Lifetime: time.Minute, Server: w.owner(id).addr,
		Nonce: receiver.acks[0].Nonce}
	same(t, "acknowledged", fmt.Sprint(receiver.acks[0]), fmt.Sprint(ack))
	var want []string
	for i := range 16 {
		want = append(want, fmt.Sprint("by server ", i))
		sender.send(i, want[i], id)
	}
	same(t, "received", receiver.got, want)
	same(t, "stack", receiver.stacks[0], []ident.ID{id})
}

func TestReceiverMovesAndTheSenderNoticesNothing(t *testing.T) {
	w := newWorld(2)
	w.startRing(8)
	sender, home := w.host(1), w.host(2)
	id := ident.FromName("camera")
	home.insert(0, id, 1)
	sender.send(4, "to home", id)
	away := w.host(3)
	away.insert(5, id, 1) // the same handle, another address, by another server
	sender.send(4, "to away", id)
	same(t, "at home", home.got, []string{"to home"})
	same(t, "away", away.got, []string{"to away"})
}

func TestTriggersOfOneIdentifierAreAGroup(t *testing.T) {
	w := newWorld(3)
	w.startRing(8)
	id := ident.FromName("radio")
	var hosts []*host
	for i := range 5 {
		hosts = append(hosts, w.host(i))
		hosts[i].insert(i, id, byte(i))
	}
	w.host(100).send(7, "news", id)
	for i, h := range hosts {
		same(t, fmt.Sprint("host ", i), h.got, []string{"news"})
	}
	hosts[0].via(1, wire.Removal{ID: id, Reply: hosts[0].addr}.Packet())
	w.Run(time.Second)
	if last := hosts[0].acks[len(hosts[0].acks)-1]; last.Lifetime != 0 {
		t.Errorf("the removal was acknowledged by %+v", last)
	}
	w.host(100).send(7, "more", id)
	same(t, "the host that left", hosts[0].got, []string{"news"})
	same(t, "another host", hosts[1].got, []string{"news", "more"})
}

// A sender has its packets worked on by a service on their way: the stack says where they go then.
func TestStacksComposeServices(t *testing.T) {
	w := newWorld(4)
	w.startRing(8)
	sender, transcoder, receiver := w.host(1), w.host(2), w.host(3)
	service, target := ident.FromName("transcoder"), ident.FromName("phone")
	transcoder.insert(1, service, 1)
	receiver.insert(2, target, 1)
	sender.send(3, "film", service, target)
	same(t, "at the service", transcoder.got, []string{"film"})
	same(t, "its stack", transcoder.stacks, [][]ident.ID{{service, target}})
	transcoder.send(4, "small film", transcoder.stacks[0][1:]...)
	same(t, "at the receiver", receiver.got, []string{"small film"})

	// A receiver can want that, too: its trigger leads to the service first.
	public := ident.FromName("public")
	receiver.insert(5, public, 2, service, target)
	sender.send(6, "clip", public)
	same(t, "the second stack", transcoder.stacks[1], []ident.ID{service, target})
}

func TestTriggersExpireUnlessRefreshed(t *testing.T) {
	w := newWorld(5)
	w.startRing(4)
	sender, receiver := w.host(1), w.host(2)
	id := ident.FromName("camera")
	receiver.insert(0, id, 1)
	for range 3 {
		w.Run(40 * time.Second)
		receiver.insert(0, id, 1)
	}
	sender.send(1, "alive", id)
	w.Run(time.Minute)
	sender.send(1, "expired", id)
	same(t, "received", receiver.got, []string{"alive"})
	if w.drops(server.NoTrigger) != 1 {
		t.Errorf("%d packets were dropped for want of a trigger", w.drops(server.NoTrigger))
	}
	if n := w.owner(id).Counters().Triggers; n != 0 {
		t.Errorf("%d triggers are left", n)
	}
}

// A flood of insertions uses up all challenges. Who has a trigger keeps it.
func TestRefreshesNeedNoChallenges(t *testing.T) {
	w := newWorld(23)
	w.startRing(1)
	h := w.host(1)
	id := ident.FromName("camera")
	h.insert(0, id, 1)
	for range 10 {
		n := h.wants[wire.Handle{1}]
		n.Nonce = h.acks[len(h.acks)-1].Nonce
		h.via(0, n.Insertion())
		w.Run(40 * time.Second)
	}
	h.send(0, "x", id)
	same(t, "received", h.got, []string{"x"})
	if n := w.servers[serverAddress(0)].Counters().Challenged; n != 1 {
		t.Errorf("%d challenges were sent, want 1", n)
	}
}

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

func TestLoopsOfTriggersEnd(t *testing.T) {
	w := newWorld(8)
	w.startRing(4)
	h := w.host(1)
	a, b := ident.FromName("a"), ident.FromName("b")
	h.insert(0, a, 1, b)
	h.insert(0, b, 2, a)
	h.send(0, "round and round", a)
	w.Run(time.Minute)
	if n := w.drops(server.HopLimit); n != 1 {
		t.Errorf("%d packets were dropped for their hop limit, want 1", n)
	}
}

// Triggers that each lead to two others would make 2^20 packets of one.
func TestTreesOfTriggersAreBounded(t *testing.T) {
	w := newWorld(9)
	w.startRing(4)
	h := w.host(1)
	level := func(i int) ident.ID { return ident.FromName(fmt.Sprint("level ", i)) }
	for i := range 20 {
		h.insert(0, level(i), 1, level(i+1))
		h.insert(0, level(i), 2, level(i+1))
	}
	h.insert(0, level(20), 1)
	before := make(map[*machine]server.Counters)
	for _, m := range w.servers {
		before[m] = m.Counters()
	}
	h.send(0, "x", level(0))
	w.Run(time.Minute)
	if len(h.got) > wire.MaxCopies {
		t.Errorf("one packet became %d", len(h.got))
	}
	var work uint64
	for _, m := range w.servers {
		c := m.Counters()
		work += c.Redirected - before[m].Redirected + c.Passed - before[m].Passed
	}
	// Each of at most 1024 copies is redirected and passed on a few times for each level.
	if work > wire.MaxCopies*20*4 {
		t.Errorf("one packet made the servers send or redirect %d packets", work)
	}
}

func TestOnePacketIsRedirectedSoOftenAtMost(t *testing.T) {
	w := newWorld(9)
	only := w.start(0)
	w.Run(time.Second)
	h := w.host(1)
	a := ident.FromName("a")
	h.insert(0, a, 1, a)
	h.insert(0, a, 2, a)
	h.send(0, "x", a)
	if n := only.Counters().Redirected; n != 256 {
		t.Errorf("one packet was redirected %d times, want 256", n)
	}
}

func TestCopiesAreDividedAmongBranches(t *testing.T) {
	w := newWorld(9)
	w.startRing(2)
	h := w.host(1)
	level := func(i int) ident.ID { return ident.FromName(fmt.Sprint("level ", i)) }
	for i := range 3 {
		h.insert(0, level(i), 1, level(i+1))
		h.insert(0, level(i), 2, level(i+1))
	}
	h.insert(0, level(3), 1)
	for _, c := range []struct{ copies, want int }{{1024, 8}, {8, 8}, {5, 4}, {4, 4}, {1, 1}} {
		h.got = nil
		p := wire.New(wire.Data, []ident.ID{level(0)}, nil)
		p.SetCopies(c.copies)
		h.via(1, p)
		w.Run(time.Second)
		if len(h.got) != c.want {
			t.Errorf("with %d copies %d packets arrive, want %d", c.copies, len(h.got), c.want)
		}
	}
}

func TestGroupLargerThanThePacketsCopiesIsServedInPart(t *testing.T) {
	w := newWorld(10)
	w.startRing(2)
	id := ident.FromName("radio")
	var hosts []*host
	for i := range 4 {
		hosts = append(hosts, w.host(i))
		hosts[i].insert(0, id, byte(i))
	}
	p := wire.New(wire.Data, []ident.ID{id}, []byte("x"))
	p.SetCopies(3)
	hosts[0].via(0, p)
	w.Run(time.Second)
	var got []int
	for _, h := range hosts {
		got = append(got, len(h.got))
	}
	same(t, "copies", got, []int{1, 1, 1, 0})
	if n := w.drops(server.TooManyCopies); n != 1 {
		t.Errorf("%d copies were dropped, want 1", n)
	}
}

func TestStackThatWouldBecomeTooDeepIsDropped(t *testing.T) {
	w := newWorld(11)
	w.startRing(2)
	h := w.host(1)
	a := ident.FromName("a")
	h.insert(0, a, 1, slices.Repeat([]ident.ID{ident.FromName("b")}, 4)...)
	h.send(0, "x", slices.Repeat([]ident.ID{a}, 6)...)
	if n := w.drops(server.StackTooDeep); n != 1 {
		t.Errorf("%d packets were dropped, want 1", n)
	}
}

func TestServerThatJoinsTakesTriggersOver(t *testing.T) {
	w := newWorld(12)
	w.startRing(4)
	sender, receiver := w.host(1), w.host(2)
	ids := make([]ident.ID, 200)
	for i := range ids {
		ids[i] = ident.FromName(fmt.Sprint("id ", i))
		n := wire.Trigger{ID: ids[i], Handle: wire.Handle{byte(i)}, Receiver: receiver.addr}
		n.Lifetime = time.Hour
		receiver.wants[n.Handle] = n
		receiver.via(0, n.Insertion())
		w.Run(200 * time.Millisecond)
	}
	// The receiver is silent from now on: what arrives does so by handed over triggers alone.
	receiver.mute = true
	joins := w.start(4, 0)
	w.settle()
	w.Run(time.Second)
	moved := 0
	for i, id := range ids {
		if w.owner(id) == joins {
			moved++
		}
		sender.via(i%5, wire.New(wire.Data, []ident.ID{id}, []byte{byte(i)}))
	}
	w.Run(2 * time.Second)
	taken := int(joins.Counters().TakenOver)
	if len(receiver.got) != len(ids) || moved == 0 || taken != moved {
		t.Errorf("%d of %d packets arrive; %d triggers moved, %d were taken over",
			len(receiver.got), len(ids), moved, taken)
	}
}

func TestServerThatLeavesGivesItsTriggersAway(t *testing.T) {
	w := newWorld(13)
	w.startRing(5)
	sender, receiver := w.host(1), w.host(2)
	id := ident.FromName("camera")
	receiver.insert(0, id, 1)
	receiver.mute = true
	leaves := w.owner(id)
	leaves.Leave(w.Now)
	w.Run(50 * time.Millisecond) // packets that overtake the triggers are lost
	for i := range 5 {           // by every server, and by the one that leaves
		sender.send(i, "x", id)
	}
	if len(receiver.got) != 5 {
		t.Errorf("%d of 5 packets arrive while the server leaves", len(receiver.got))
	}
	w.Run(3 * time.Second)
	w.crash(leaves)
	w.settle()
	for i := range 5 {
		if w.servers[serverAddress(i)] != nil {
			sender.send(i, "x", id)
		}
	}
	if len(receiver.got) != 9 {
		t.Errorf("%d of 4 packets arrive after the server has left", len(receiver.got)-5)
	}
}

func TestRefreshesRepairWhatACrashTook(t *testing.T) {
	w := newWorld(14)
	w.startRing(5)
	sender, receiver := w.host(1), w.host(2)
	id := ident.FromName("camera")
	receiver.insert(0, id, 1)
	gone := w.owner(id)
	via := 0
	if gone.addr == serverAddress(0) {
		via = 1
	}
	w.crash(gone)
	w.settle()
	receiver.insert(via, id, 1)
	sender.send(via, "x", id)
	same(t, "received", receiver.got, []string{"x"})
}

func TestHigherSequenceNumberHolds(t *testing.T) {
	w := newWorld(21)
	w.startRing(3)
	home, away := w.host(1), w.host(2)
	insert := func(h *host, sequence uint64) {
		n := wire.Trigger{ID: ident.FromName("camera"), Receiver: h.addr, Sequence: sequence}
		n.Lifetime = time.Minute
		h.wants[n.Handle] = n
		h.via(0, n.Insertion())
		w.Run(time.Second)
	}
	insert(home, 1)
	insert(away, 2)
	insert(home, 1) // a refresh of one that does not know that it has moved
	same(t, "refusals at home", home.refuse, []wire.Reason{wire.Superseded})
	removal := wire.Removal{ID: ident.FromName("camera"), Sequence: 1, Reply: home.addr}
	home.via(0, removal.Packet())
	w.Run(time.Second)
	same(t, "refusals at home", home.refuse, []wire.Reason{wire.Superseded, wire.Superseded})
	home.send(0, "x", ident.FromName("camera"))
	same(t, "at home", len(home.got), 0)
	same(t, "away", away.got, []string{"x"})
	removal.Sequence = 2
	away.via(0, removal.Packet())
	w.Run(time.Second)
	home.send(0, "x", ident.FromName("camera"))
	same(t, "after the removal", away.got, []string{"x"})
}

// Who knows no handle gets answers, or has them sent to a victim, as seldom as challenges.
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

// A trigger is handed over while its receiver moves: the old address must not win.
func TestHandedOverTriggerDoesNotReplaceANewerOne(t *testing.T) {
	w := newWorld(15)
	w.startRing(3)
	home, away := w.host(1), w.host(2)
	id := ident.FromName("camera")
	away.insert(0, id, 1)
	owner := w.owner(id)
	old := wire.Trigger{ID: id, Handle: wire.Handle{1}, Receiver: home.addr, Lifetime: time.Minute}
	w.Send(owner.Ring().Predecessor().Addr, owner.addr, old.Handover(nil))
	w.Run(time.Second)
	away.send(0, "x", id)
	same(t, "at the old address", len(home.got), 0)
	same(t, "at the new address", away.got, []string{"x"})
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
