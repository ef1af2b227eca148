package wire_test

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/lab/testkit"
)

func TestJoinedNodesReachEachOther(t *testing.T) {
	l := newLab(t)
	a, b := l.pair()
	l.ping("a", "192.0.2.1")
	l.ping("a", "2001:db8::1")
	out, err := l.exec("b", "ping", "-c1", "192.0.2.0")
	if err != nil || !strings.Contains(out, "ttl=64") {
		t.Errorf("the TTL changed: %v\n%s", err, out)
	}
	want := wire.PortState{Owner: "lab/a:eth0", Digest: "d1", MTU: 1500, Up: true, Peer: b}
	have := l.observe().Ports[a]
	if line, err := l.exec("a", "ip", "-o", "link", "show", "eth0"); err != nil ||
		!strings.HasPrefix(line, strconv.Itoa(have.Inner)+": ") {
		t.Errorf("the node's interface is said to be %d, in the node: %v\n%s", have.Inner, err, line)
	}
	have.PID, have.Index, have.Inner = 0, 0, 0
	if !cmp.Equal(have, want) {
		t.Errorf("port %+v, want %+v", have, want)
	}
}

func TestUnjoinedNodesDoNotReachEachOther(t *testing.T) {
	l := newLab(t)
	a, b := l.pair()
	l.ping("a", "192.0.2.1")
	l.must(l.Unjoin(l.ctx, b))
	l.noPing("a", "192.0.2.1")
	state := l.observe()
	if state.Ports[a].Peer != "" || state.Ports[b].Peer != "" {
		t.Errorf("still joined: %+v", state.Ports)
	}
	traffic, err := l.Counters(l.ctx)
	l.must(err)
	if traffic[a].Dropped["not wired"] == 0 {
		t.Errorf("drops are not counted: %+v", traffic[a])
	}
}

func TestLinkDownTakesTheCarrier(t *testing.T) {
	l := newLab(t)
	a, _ := l.pair()
	l.ping("a", "2001:db8::1")
	l.carrier("a")
	l.must(l.SetUp(l.ctx, a, false))
	l.link("a", "NO-CARRIER")
	if l.observe().Ports[a].Up {
		t.Error("a port that is down is shown up")
	}
	l.must(l.SetUp(l.ctx, a, true))
	l.carrier("a")
	l.ping("a", "192.0.2.1")
	l.ping("a", "2001:db8::1") // the address outlived it
}

func TestServerRestartAdoptsTheHostNetwork(t *testing.T) {
	l := newLab(t)
	a, b := l.pair()
	l.ping("a", "192.0.2.1")
	before := l.observe()
	l.reopen()
	after := l.observe()
	if !cmp.Equal(before.Ports[a], after.Ports[a]) || !cmp.Equal(before.Ports[b], after.Ports[b]) ||
		len(after.Remains) > 0 {
		t.Errorf("before %+v\nafter %+v", before, after)
	}
	l.ping("a", "192.0.2.1")
	p := l.portOf("a")
	p.Name = a
	p.MAC = mac(1)
	l.must(l.AddPort(l.ctx, p)) // is there: nothing changes
	l.must(l.Join(l.ctx, a, b))
	l.ping("a", "192.0.2.1")
}

func TestNodeThatEndsTakesItsPorts(t *testing.T) {
	l := newLab(t)
	a, b := l.pair()
	l.kill(l.node("b"))
	testkit.Eventually(t, func() error {
		if s := l.observe(); s.Ports[b].Owner != "" || s.Ports[a].Peer != "" {
			return os.ErrExist
		}
		return nil
	}, 5*time.Second, "the port to go")
	l.must(l.DeletePorts(l.ctx, b))
	l.ports = 1
	if again := l.port("b", nil, "192.0.2.1/31"); again != b {
		t.Fatalf("port %s, want %s", again, b)
	}
	l.must(l.Join(l.ctx, a, b))
	l.ping("a", "192.0.2.1")
}
