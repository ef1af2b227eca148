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
	w.routers[1].Receive(w.now, 1, w.address(1, 0), paths[len(paths)-2])
	w.flush(1)
	if rate := w.routers[1].lsps[k].path.tspec.Bucket.Rate; rate != 300 {
		t.Errorf("the rate is %v, want 300", rate)
	}
}
