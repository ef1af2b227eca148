package server_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/server"
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
