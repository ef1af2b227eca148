package server_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/pergola-net/pergola/i3/chord"
	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/server"
	"github.com/pergola-net/pergola/i3/wire"
)

// measure is an output that counts bytes.
type measure struct{ bytes int }

func (m *measure) Send(_ netip.AddrPort, p []byte) { m.bytes += len(p) }

// FuzzHandle sends packets of a stranger to a server whose ring has a key. None makes the server send more bytes than
// it was sent, and none gets a trigger stored.
func FuzzHandle(f *testing.F) {
	id, addr := ident.FromName("a"), netip.MustParseAddrPort("192.0.2.1:9")
	trigger := wire.Trigger{ID: id, Receiver: addr, Lifetime: time.Minute, Stack: []ident.ID{id}}
	for _, p := range []wire.Packet{
		wire.New(wire.Data, []ident.ID{id, id}, []byte("payload")), trigger.Insertion(), trigger.Handover(nil),
		wire.Removal{ID: id, Reply: addr}.Packet(), wire.Challenged{ID: id}.Packet(),
	} {
		f.Add([]byte(p))
	}
	for kind := chord.Find; kind <= chord.Leave; kind++ {
		m := chord.Message{Kind: kind, Nonce: 1, Key: id.Key(), Peers: make([]chord.Peer, 3)}
		m.From.Addr = addr
		f.Add([]byte(wire.Ring(m, nil)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		out := &measure{}
		now := time.Unix(1e9, 0)
		self := chord.Peer{Key: id.Key(), Addr: netip.MustParseAddrPort("192.0.2.2:5610")}
		s := server.New(server.Config{Ring: chord.Config{Self: self, Nonce: func() uint64 { return 1 }},
			RingKey: wire.RingKey("secret")}, out)
		s.Tick(now)
		size := len(b)
		s.Handle(now, addr, b)
		if out.bytes > size {
			t.Errorf("%d bytes make the server send %d", size, out.bytes)
		}
		if n := s.Counters().Triggers; n > 0 {
			t.Error("a trigger was stored without an answer to a challenge")
		}
		s.Tick(now.Add(time.Second))
	})
}
