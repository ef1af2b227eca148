package wire_test

import (
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/kernel/netns"
)

// What XDP sends to a veth is lost unless somebody polls at its other end: interfaces have a line card, and are sent
// to, as long as that is so.
func TestLineCardsFollowWhatDriversDo(t *testing.T) {
	b := newBed(t, 1, 1500)
	m := b.machines[0]
	b.must(netns.In(b.wires, func() error {
		pair := netlink.NewVeth(netlink.LinkAttrs{Name: "far", MTU: 1500})
		pair.PeerName, pair.PeerNamespace = "eth1", netlink.NsFd(m.ns.Fd())
		return b.up(pair)
	}))
	m.must(m.there(func() error { return setUp("eth1") }))
	m.must(asAWire(m.ns, "eth1"))
	m.must(asAWire(b.wires, "far"))
	config := wire.UnderlayConfig{Interfaces: []string{nic, "eth1"}}
	is := func(want string) {
		t.Helper()
		state, err := m.Underlay(m.ctx)
		m.must(err)
		if have := state.NICs["eth1"].XDP; have != want && (want == "native" || !strings.Contains(have, want)) {
			t.Errorf("of eth1 is said %q, want %q", have, want)
		}
		if have := state.NICs[nic].XDP; have != "native" && !config.NoXDP {
			t.Errorf("of %s is said %q", nic, have)
		}
	}
	m.must(m.OpenUnderlay(m.ctx, config))
	is("native")
	m.must(switchOffloads(b.wires, "far", map[string]bool{"rx-gro": false}))
	is("by other interfaces leaves it by tc")
	m.must(m.OpenUnderlay(m.ctx, config))
	is("takes nothing from XDP")
	m.must(switchOffloads(b.wires, "far", map[string]bool{"rx-gro": true}))
	m.must(m.OpenUnderlay(m.ctx, config))
	is("native")
	config.NoXDP = true
	m.must(m.OpenUnderlay(m.ctx, config))
	is("none: switched off")
	if with := m.programs(); !strings.Contains(with, "underlay_ingress") || strings.Contains(with, "prog/xdp") {
		t.Errorf("switched off, there is\n%s", with)
	}
	config.NoXDP = false
	m.must(m.OpenUnderlay(m.ctx, config))
	is("native")
}
