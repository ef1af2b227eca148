package wire_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
)

// A node bridges two of its interfaces in one LAN: a frame to all goes round and round there, and a copy of it into
// each tunnel, each time.
func TestStormOfALoopStaysOnItsMachine(t *testing.T) {
	const rate = 100
	b := newBed(t, 2, 1500)
	b.openUnderlays()
	kind := tunnelOf{kind: slice.EGRE}
	b.lanOver(kind)
	near, far := b.machines[0], b.machines[1]
	there, back := lanTunnel(far), lanTunnel(near)
	for _, side := range [][2]*machine{{near, far}, {far, near}} {
		m, peer := side[0], side[1]
		w := kind.tunnel(m, peer, lanTunnel(peer), b.keys, 1458)
		w.Owner, w.Digest, w.StormControl = "lab/lan", "d2", rate
		m.must(m.AddTunnel(m.ctx, w))
	}
	near.ping("n1", "198.51.100.2")
	begin := time.Now()
	before := far.traffic(back).FromNode.Frames

	near.loop("looper", "s7b1")
	defer near.unloop("looper")
	far.tap("n2").send(ethernet(everyone, mac(201), "88b5", 77))
	testkit.Eventually(t, func() error {
		if n := near.traffic(there).Dropped["storm"]; n < 20*rate {
			return fmt.Errorf("%d frames kept out of the tunnel", n)
		}
		return nil
	}, 30*time.Second, "a storm")
	near.unloop("looper")

	came := far.traffic(back).FromNode.Frames - before
	// A second's worth may come at once; frames to one station are not bounded, and there are hardly any.
	if most := rate*(time.Since(begin).Seconds()+1) + 20; float64(came) > most {
		t.Errorf("%d frames came to the other machine, want at most %.0f", came, most)
	}
	if n := far.traffic(there).Dropped["storm"]; n > 0 {
		t.Errorf("%d frames kept out of the tunnel back", n)
	}
	near.ping("n1", "198.51.100.2") // when the storm is over
}

// traffic is a port's.
func (l *lab) traffic(port string) wire.Traffic {
	l.Helper()
	all, err := l.Counters(l.ctx)
	l.must(err)
	return all[port]
}

// loop makes a node that is plugged into a switch twice, and bridges that.
func (l *lab) loop(name, sw string) {
	l.Helper()
	for _, inner := range []string{"eth0", "eth1"} {
		l.must(l.Attach(l.ctx, l.port(name, func(p *wire.Port) { p.Inner, p.MTU = inner, 1458 }), sw))
	}
	for _, command := range [][]string{
		{"link", "add", "loop", "up", "type", "bridge", "forward_delay", "0", "mcast_snooping", "0"},
		{"link", "set", "eth0", "master", "loop"},
		{"link", "set", "eth1", "master", "loop"},
	} {
		if out, err := l.exec(name, append([]string{"ip"}, command...)...); err != nil {
			l.Fatalf("%v: %s", command, out)
		}
	}
}

func (l *lab) unloop(name string) {
	l.Helper()
	if out, err := l.exec(name, "ip", "link", "set", "eth1", "nomaster"); err != nil {
		l.Errorf("open the loop: %s", out)
	}
}
