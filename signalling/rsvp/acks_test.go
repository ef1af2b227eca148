package rsvp

import (
	"testing"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// A router that has restarted knows none of the states that a neighbour lists, and there may be as many as a message
// has room for: the answers fit into packets.
func TestAnswersToALongSummaryFitIntoPackets(t *testing.T) {
	const states, packet = 1000, 1280
	w := chain(t, 2, 1000)
	w.reduce()
	list := message.IDList{Epoch: 1, IDs: make([]uint32, states)}
	for i := range list.IDs {
		list.IDs[i] = uint32(i + 1)
	}
	b, err := (message.Message{Type: message.Srefresh, TTL: 1, Objects: []message.Object{list}}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	w.routers[1].Receive(w.now, arrived(1, w.address(1, 0), b))
	unknown := map[uint32]bool{}
	for _, s := range w.routers[1].Take().Send {
		if len(s.Message) > packet {
			t.Errorf("an answer has %d bytes", len(s.Message))
		}
		m, err := message.Decode(s.Message)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range m.Objects {
			if a, ok := o.(message.IDAck); ok && a.Nack {
				unknown[a.ID] = true
			}
		}
	}
	if len(unknown) != states {
		t.Errorf("%d of %d states are told to be unknown", len(unknown), states)
	}
}
