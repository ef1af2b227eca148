package server_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/wire"
)

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
