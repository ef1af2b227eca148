package rsvp

import (
	"testing"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// TestRefreshesAreSummarized counts messages by type while nothing changes.
func TestRefreshesAreSummarized(t *testing.T) {
	w := chain(t, 4, 100000)
	w.reduce()
	for tunnel := range uint16(20) {
		q := w.request(tunnel, 1, 400, 0, 1, 2, 3)
		if tunnel%2 == 0 {
			q.Attribute.Flags = message.SharedStyle
		}
		w.mustAdd(0, q)
	}
	w.run(3 * testRefresh)
	w.check()
	sent := map[message.Type]int{}
	w.sent = func(_ end, b []byte) {
		m, err := message.Decode(b)
		if err != nil {
			t.Error(err)
		}
		sent[m.Type]++
	}
	w.run(20 * testRefresh)
	w.check()
	if sent[message.Srefresh] == 0 || sent[message.Path]+sent[message.Resv] > 0 {
		t.Errorf("sent %v", sent)
	}
	clear(sent)
	w.start(2)
	w.run(4 * testRefresh)
	w.check()
	if got := len(w.routers[2].Entries()); got != 20 || sent[message.Ack] == 0 {
		t.Errorf("%d entries after the restart; sent %v", got, sent)
	}
}

// TestAMessageThatWasOvertakenChangesNothing sends an older Path after a newer one.
func TestAMessageThatWasOvertakenChangesNothing(t *testing.T) {
	w := chain(t, 3, 1000)
	w.reduce()
	var paths [][]byte
	w.sent = func(to end, b []byte) {
		if m, _ := message.Decode(b); m.Type == message.Path && to.router == 1 {
			if _, ok := message.Of[message.ID](m); ok {
				paths = append(paths, b)
			}
		}
	}
	w.mustAdd(0, w.request(1, 1, 100, 0, 1, 2))
	w.run(testTick)
	k := w.mustAdd(0, w.request(2, 1, 100, 0, 1, 2))
	w.run(testTick)
	s := w.routers[0].lsps[k]
	s.path.tspec.Bucket.Rate = 300
	w.routers[0].sendPath(s)
	w.flush(0)
	w.run(testTick)
	if len(paths) < 2 {
		t.Fatalf("%d Paths with a number", len(paths))
	}
	w.routers[1].Receive(w.now, arrived(1, w.address(1, 0), paths[len(paths)-2]))
	w.flush(1)
	if rate := w.routers[1].lsps[k].path.tspec.Bucket.Rate; rate != 300 {
		t.Errorf("the rate is %v, want 300", rate)
	}
}

// A number stands for all LSPs of its message. Where one of them was refused, a refresh by the number is answered that
// it is unknown, so that the message comes in full, and the refused LSP is tried again.
func TestANumberOfWhichOneLSPWasRefusedIsUnknown(t *testing.T) {
	w := chain(t, 3, 1000)
	w.reduce()
	var keys []Key
	for number := range uint16(2) {
		q := w.request(1, number+1, 400, 0, 1, 2)
		q.Attribute.Flags = message.SharedStyle
		keys = append(keys, w.mustAdd(0, q))
	}
	w.run(testTick)
	r, next := w.routers[1], w.address(1, 2)
	const epoch, id = 7, 9
	own := message.RecordRoute{Records: []message.Record{{Addr: w.address(0, 1)}}} // a loop: it is refused
	receive := func(m message.Message) (unknown bool) {
		b, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		r.Receive(w.now, arrived(2, next, b))
		for _, s := range r.Take().Send {
			answer, err := message.Decode(s.Message)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range answer.Objects {
				a, ok := o.(message.IDAck)
				unknown = unknown || ok && a.Nack && a.ID == id
			}
		}
		return unknown
	}
	resv := message.Message{Type: message.Resv, TTL: 9, Flags: message.RefreshReduction,
		Objects: []message.Object{message.ID{Epoch: epoch, ID: id}, keys[0].Session,
			message.Hop{Addr: next, Handle: 2}, message.SharedExplicit,
			message.Flowspec{Service: message.ControlledLoad}, keys[0].filter(), message.Label(900),
			keys[1].filter(), message.Label(901), own}}
	summary := message.Message{Type: message.Srefresh, TTL: 1, Flags: message.RefreshReduction,
		Objects: []message.Object{message.IDList{Epoch: epoch, IDs: []uint32{id}}}}
	receive(resv)
	if !receive(summary) {
		t.Error("the number is known though one of its LSPs was refused")
	}
	resv.Objects = resv.Objects[:len(resv.Objects)-1]
	receive(resv)
	if receive(summary) {
		t.Error("the number is unknown though none of its LSPs was refused")
	}
}
