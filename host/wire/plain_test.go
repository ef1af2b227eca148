package wire_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/host/wire"
)

func TestPlainNetworkJoinsNodes(t *testing.T) {
	l := newPlainLab(t)
	a, b := l.pair()
	l.ping("a", "192.0.2.1")
	l.ping("a", "2001:db8::1")
	want := wire.PortState{Owner: "lab/a:eth0", Digest: "d1", MTU: 1500, Up: true, Peer: b, PID: l.node("a").pid}
	have := l.observe().Ports[a]
	have.Index, have.Inner = 0, 0
	if !cmp.Equal(have, want) {
		t.Errorf("port %+v, want %+v", have, want)
	}
	l.reopen() // the next server finds the same
	again := l.observe().Ports[a]
	again.Index, again.Inner = 0, 0
	if !cmp.Equal(again, want) {
		t.Errorf("port %+v, want %+v", again, want)
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
