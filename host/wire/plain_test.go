package wire_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/model/slice"
)

// labsArePlain makes all labs of tests such without programs of eBPF.
var labsArePlain bool

func plainLabs(t *testing.T) {
	t.Helper()
	labsArePlain = true
	t.Cleanup(func() { labsArePlain = false })
}

// TestPlainNetworkDoesWhatOthersDo has tests of other files, of what needs no programs of eBPF.
func TestPlainNetworkDoesWhatOthersDo(t *testing.T) {
	plainLabs(t)
	for name, test := range map[string]func(*testing.T){
		"joined nodes": TestJoinedNodesReachEachOther, "link down": TestLinkDownTakesTheCarrier,
		"restart": TestServerRestartAdoptsTheHostNetwork, "end of a node": TestNodeThatEndsTakesItsPorts,
		"LAN": TestLANReachesEveryone, "learning": TestLANLearns,
		"move between link and LAN": TestPortMovesBetweenLinkAndLAN, "cable": TestCableJoinsSwitches,
		"any frame": TestAnyFramePasses, "offloads": TestOffloadsStayOn,
		"single frames": TestShapedLinkTakesSingleFrames, "rate": TestRateOfJoinedPorts,
		"rate on a LAN": TestRateOnALAN, "remove": TestRemoveLeavesNothing,
		"remove half made": TestRemoveOfHalfMade, "configure": TestConfigureNode,
		"many at once": TestManyAtOnce, "killed": TestKilledAtAnyMoment,
	} {
		t.Run(name, test)
	}
}

func TestPlainNetworkKeepsItsRecordsInTheKernel(t *testing.T) {
	plainLabs(t)
	l := newLab(t)
	a, b := l.pair()
	l.ping("a", "192.0.2.1")
	want := wire.PortState{Owner: "lab/a:eth0", Digest: "d1", MTU: 1500, Up: true, Peer: b, PID: l.node("a").pid}
	for range 2 { // the next server finds the same
		have := l.observe().Ports[a]
		have.Index, have.Inner = 0, 0
		if !cmp.Equal(have, want) {
			t.Errorf("port %+v, want %+v", have, want)
		}
		l.reopen()
	}
	traffic, err := l.Counters(l.ctx)
	l.must(err)
	if traffic[a].FromNode.Frames == 0 || traffic[a].ToNode.Frames == 0 {
		t.Errorf("counted %+v", traffic[a])
	}
	l.must(l.Unjoin(l.ctx, b))
	l.noPing("a", "192.0.2.1")
	if state := l.observe(); state.Ports[a].Peer != "" || state.Ports[b].Peer != "" {
		t.Errorf("still joined: %+v", state.Ports)
	}
}

// TestPlainNetworkRefusesWhatItCannotDo, and the link goes on as it was.
func TestPlainNetworkRefusesWhatItCannotDo(t *testing.T) {
	plainLabs(t)
	l := newLab(t)
	a, _ := l.pair()
	if err := l.Shape(l.ctx, a, wire.FromNode, slice.Shape{Police: slice.Policer{Rate: 1e6}}); err == nil {
		t.Error("a policer is taken")
	}
	l.ping("a", "192.0.2.1")
	tunnel := wire.Tunnel{Name: "s7p9", Slice: 7, Owner: "lab/c:eth0", MTU: 1400}
	if err := l.AddTunnel(l.ctx, tunnel); err == nil {
		t.Error("a tunnel is taken")
	}
	if err := l.OpenUnderlay(l.ctx, wire.UnderlayConfig{Interfaces: []string{"lo"}}); err == nil {
		t.Error("an underlay is taken")
	}
	if err := l.OpenUnderlay(l.ctx, wire.UnderlayConfig{}); err != nil {
		t.Error(err)
	}
}
