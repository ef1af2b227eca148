package server_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/i3/fastpath"
	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/i3/server"
	"github.com/pergola-net/pergola/i3/wire"
)

// drawID gives identifiers with few keys, so that packets match triggers, and each other's.
func drawID(t *rapid.T) ident.ID {
	id := ident.FromName(rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(t, "key"))
	clear(id[16:])
	id[16] = rapid.SampledFrom([]byte{0, 0x80, 0xc0, 0xff}).Draw(t, "suffix begins")
	id[31] = rapid.SampledFrom([]byte{0, 1}).Draw(t, "suffix ends")
	return id
}

// drawPacket gives data with a few identifiers, in which a field may be unusual.
func drawPacket(t *rapid.T) []byte {
	p := wire.New(wire.Data, rapid.SliceOfN(rapid.Custom(drawID), 1, 8).Draw(t, "stack"), []byte("payload"))
	p.SetHopLimit(rapid.SampledFrom([]int{64, 64, 64, 255, 5, 3, 2, 1, 0}).Draw(t, "hop limit"))
	p.SetCopies(rapid.SampledFrom([]int{1024, 1024, 4, 3, 2, 1, 0, 60000}).Draw(t, "copies"))
	b := []byte(p)
	if rapid.IntRange(0, 9).Draw(t, "garbled") == 0 {
		b[rapid.IntRange(0, 7).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
	}
	return append(b, make([]byte, rapid.SampledFrom([]int{0, 0, 6}).Draw(t, "padding"))...)
}

// result gives what a machine sends for a packet, with its fast path or without.
func (m *machine) result(b []byte, fast bool) (sent []string) {
	m.taps = func(to netip.AddrPort, p []byte) { sent = append(sent, fmt.Sprint(to, " ", hex.EncodeToString(p))) }
	defer func() { m.taps = nil }()
	sender := hostAddress(99)
	if fast {
		m.Handle(m.world.Now, sender, bytes.Clone(b))
	} else {
		m.Server.Handle(m.world.Now, sender, bytes.Clone(b))
	}
	return sent
}

// Whatever the triggers and the ring are: with the fast path every packet becomes the same packets as without it, byte
// for byte, and what it can do it does not leave to the server.
func TestFastPathDoesWhatTheServerDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := fastpath.Limits{Copies: rapid.SampledFrom([]int{0, 3}).Draw(t, "copies"),
			Depth: rapid.SampledFrom([]int{0, 2}).Draw(t, "depth")}
		configure := func(c *server.Config) { c.FastPath = &fastpath.Memory{Can: limits} }
		compareWithServer(t, 1, configure, func(m *machine, b []byte, want []string) {
			p, err := wire.Parse(b)
			if err != nil || p.Type() != wire.Data || p.HopLimit() < 2 || p.Copies() == 0 {
				return
			}
			routes := m.Ring().Routes()
			owns := routes.Owns(p.ID(0).Key())
			if !owns && len(want) == 1 && m.punted > 0 {
				t.Fatal("a packet for another server was punted")
			}
			a, _ := m.fast.(*fastpath.Memory).Match(p.ID(0))
			if owns && a.Kind == fastpath.Deliver && m.punted > 0 {
				t.Fatal("a packet that goes to one receiver was punted")
			}
		})
	})
}

// compareWithServer sends random packets, so many at a time, to servers with a fast path, and without, while triggers
// and servers come and go. check is called for those to servers that have one.
func compareWithServer(t *rapid.T, packets int, configure func(*server.Config),
	check func(m *machine, b []byte, want []string),
) {
	w := newWorld(rapid.Uint64().Draw(t, "seed"))
	w.configure = configure
	servers := rapid.SampledFrom([]int{1, 2, 5}).Draw(t, "servers")
	for i := range servers {
		w.start(i, 0)
	}
	w.Run(10 * time.Second) // right or not: it holds at any time
	var hosts []*host
	for i := range 4 {
		hosts = append(hosts, w.host(i))
	}
	compare := func(t *rapid.T) {
		m := w.servers[serverAddress(rapid.IntRange(0, servers-1).Draw(t, "server"))]
		if m == nil || m.fast == nil {
			return
		}
		for range packets {
			b := drawPacket(t)
			m.carried, m.punted = 0, 0
			got, want := m.result(b, true), m.result(b, false)
			if d := cmp.Diff(want, got); d != "" {
				t.Fatalf("the fast path sends other packets (-want +got):\n%s", d)
			}
			check(m, b, want)
		}
	}
	t.Repeat(map[string]func(*rapid.T){
		"insert": func(t *rapid.T) {
			h := rapid.SampledFrom(hosts).Draw(t, "host")
			stack := rapid.SliceOfN(rapid.Custom(drawID), 0, 2).Draw(t, "stack")
			h.insert(0, drawID(t), rapid.ByteRange(1, 8).Draw(t, "handle"), stack...)
		},
		"remove": func(t *rapid.T) {
			handle := wire.Handle{rapid.ByteRange(1, 8).Draw(t, "handle")}
			removal := wire.Removal{ID: drawID(t), Handle: handle, Reply: hosts[0].addr}
			hosts[0].via(0, removal.Packet())
			w.Run(time.Second)
		},
		"wait": func(t *rapid.T) {
			w.Run(time.Duration(rapid.IntRange(1, 30).Draw(t, "seconds")) * time.Second)
		},
		"crash": func(t *rapid.T) {
			if m := w.servers[serverAddress(rapid.IntRange(1, 5).Draw(t, "server"))]; m != nil {
				w.crash(m)
			}
		},
		"start": func(t *rapid.T) {
			if i := rapid.IntRange(1, 5).Draw(t, "server"); i < servers {
				w.start(i, 0)
			}
		},
		"packet":    compare,
		"a packet":  compare,
		"packet, 3": compare,
	})
}

func TestServerClearsWhatAFastPathHeldBefore(t *testing.T) {
	fast := &fastpath.Memory{}
	if err := fast.Set(fastpath.Filter{Prefix: ident.PrefixOf(ident.FromName("a"), 128)}); err != nil {
		t.Fatal(err)
	}
	w := newWorld(1)
	w.configure = func(c *server.Config) { c.FastPath = fast }
	w.start(0)
	if fast.Len() != 0 {
		t.Errorf("%d filters of before are left", fast.Len())
	}
}

func TestFullFastPathIsFilledWhenThereIsRoom(t *testing.T) {
	fast := &fastpath.Memory{Capacity: 2}
	w := newWorld(2)
	w.configure = func(c *server.Config) { c.FastPath = fast }
	m := w.start(0)
	w.Run(time.Second)
	h := w.host(1)
	for i := range 4 {
		h.insert(0, ident.FromName(fmt.Sprint(i)), byte(i))
	}
	if c := m.Counters(); c.FastPathMissing != 2 || c.FastPathBroken || fast.Len() != 2 {
		t.Errorf("with room for 2 of 4 triggers: %+v, %d filters", c, fast.Len())
	}
	for i := range 4 {
		h.send(0, fmt.Sprint(i), ident.FromName(fmt.Sprint(i)))
	}
	same(t, "received", h.got, []string{"0", "1", "2", "3"})
	if m.carried != 2 {
		t.Errorf("the fast path carried %d packets, want 2", m.carried)
	}
	for i := range 2 {
		removal := wire.Removal{ID: ident.FromName(fmt.Sprint(i)), Handle: wire.Handle{byte(i)}, Reply: h.addr}
		h.via(0, removal.Packet())
	}
	w.Run(20 * time.Second)
	if c := m.Counters(); c.FastPathMissing != 0 || fast.Len() != 2 {
		t.Errorf("after two went: %+v, %d filters", c, fast.Len())
	}
}
