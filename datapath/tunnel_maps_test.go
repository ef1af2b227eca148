package datapath

import (
	"encoding/binary"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestTunnelsAreSetReplacedAndDeleted(t *testing.T) {
	inUplinkedWorld(t, func(w *world) {
		one, two := sorts[0], sorts[1]
		one.TTL, two.TTL = 64, 9
		a, b := w.tunnelled(w.a, one), w.tunnelled(w.port(macB), two)
		is := func(want map[int]Tunnel, ends int) {
			w.Helper()
			if diff := cmp.Diff(want, must(w.d.Tunnels()),
				cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				w.Errorf("tunnels (-want +have):\n%s", diff)
			}
			if n := count(w, w.d.maps.Ends); n != ends {
				w.Errorf("tunnels end at %d addresses, want %d", n, ends)
			}
		}
		is(map[int]Tunnel{a: one, b: two}, 2)
		var taken *TunnelTakenError
		if err := w.d.SetTunnel(b, one); !errors.As(err, &taken) || taken.Port != a {
			w.Errorf("a tunnel for two ports: %v", err)
		}
		is(map[int]Tunnel{a: one, b: two}, 2)
		two.Kind, two.Key = EGRE, 77
		w.check(w.d.SetTunnel(b, two))
		w.check(w.d.SetTunnel(b, two))
		is(map[int]Tunnel{a: one, b: two}, 1)
		w.check(w.d.DeleteTunnel(a))
		w.check(w.d.DeleteTunnel(a))
		is(map[int]Tunnel{b: two}, 1)
		w.check(w.d.Add(b, Port{MTU: 1500})) // its device went without a word, and another one has its number
		is(map[int]Tunnel{}, 0)
		w.check(w.d.Add(b, Port{MTU: 1500, External: true}))
		w.check(w.d.SetTunnel(b, two))
		w.check(w.d.Forget(b))
		is(map[int]Tunnel{}, 0)
		for _, bad := range []Tunnel{{}, {Kind: VXLAN, Key: 1 << 24, Local: here4, Peer: there4},
			{Kind: EGRE, Local: here4, Peer: there6}, {Kind: EGRE, Local: here4,
				Peer: netip.MustParseAddr("224.0.0.5")}} {
			if w.d.SetTunnel(a, bad) == nil {
				w.Errorf("accepted: %+v", bad)
			}
		}
		if w.d.SetTunnel(w.a, one) == nil {
			w.Errorf("a tunnel at a node's port")
		}
	})
}

func count(t testing.TB, m *ebpf.Map) int {
	t.Helper()
	var k, v []byte
	n := 0
	for all := m.Iterate(); all.Next(&k, &v); n++ {
	}
	return n
}

// A process was killed while it changed a tunnel: the next one removes the name that leads to a port with another
// tunnel, and the address where no tunnel ends.
func TestStraysOfTunnelsAreForgotten(t *testing.T) {
	inUplinkedWorld(t, func(w *world) {
		port := w.tunnelled(w.a, sorts[0])
		w.check(w.d.maps.Tunnels.Put(sorts[2].name(), uint32(port)))
		w.check(w.d.maps.Ends.Put(sorts[2].end(), uint32(1)))
		d := w.open()
		defer func() { w.check(d.Close()) }()
		if names := slices.Collect(maps.Keys(must(d.names()))); len(names) != 1 || names[0] != sorts[0].name() {
			w.Errorf("left: %+v", names)
		}
		var value uint32
		w.check(d.maps.Ends.Lookup(sorts[0].end(), &value))
		if n := count(w, d.maps.Ends); n != 1 {
			w.Errorf("tunnels end at %d addresses, want 1", n)
		}
	})
}

func TestOuterHeaderIsReadBack(t *testing.T) {
	for _, want := range sorts {
		want.TTL, want.DSCP, want.StormControl = 3, true, 10_000
		e := want.encapsulation()
		if have := tunnelOf(e); have != want {
			t.Errorf("%+v became %+v", want, have)
		}
		want.TTL, want.CountsMet = 0, true
		if have := tunnelOf(want.encapsulation()); have != want {
			t.Errorf("%+v became %+v", want, have)
		}
		if n := binary.BigEndian.Uint16(e.Header[:]); n>>12 != map[bool]uint16{false: 4,
			true: 6}[want.Local.Is6()] {
			t.Errorf("%s: the header begins with %#x", want.named(), n)
		}
	}
}
