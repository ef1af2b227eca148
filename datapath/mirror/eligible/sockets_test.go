package eligible

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pergola-net/pergola/host/routing"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/daemons"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
)

func TestPacketSockets(t *testing.T) {
	testkit.Root(t)
	testkit.LeakCheck(t)
	b := newWatched(t, newWatcher(t, quick))
	for _, c := range []struct {
		words      string
		ipv4, ipv6 string
	}{
		{"", "packet socket on eth0 receives IPv4", "packet socket on eth0 receives IPv6"},
		{"host 10.0.0.1", "packet socket on eth0", ""},
		{"ip6 and tcp", "", "packet socket on eth0"},
		{"-Q in udp port 53", "packet socket on eth0", "packet socket on eth0"},
		{"arp", "", ""},
		{"isis", "", ""},
		{"ether multicast", "", ""},
		{"ip and dst host 224.0.0.5", "", ""},
		{"ip proto 89 and dst net 224.0.0.0/24", "", ""},
		{"-i any", "packet socket on all interfaces", "packet socket on all interfaces"},
		{"-i any arp", "", ""},
		{"-i any ip", "packet socket on all interfaces", ""},
		{"-i lo", "", ""},
	} {
		t.Run("tcpdump "+c.words, func(t *testing.T) {
			b.t = t
			words := strings.Fields(c.words)
			if !slices.Contains(words, "-i") {
				words = append([]string{"-i", "eth0"}, words...)
			}
			stop := b.start(append([]string{"tcpdump", "-n", "-U", "-w", "-"}, words...)...)
			defer stop()
			b.listening(1)
			b.await(c.ipv4, c.ipv6)
			stop()
			b.await("", "")
		})
	}
}

// pollNow has all namespaces polled now.
func (w *Watcher) pollNow() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.ring()
	}
}

// listening waits until the watcher has seen so many packet sockets that receive something, and looked at them.
func (b *watched) listening(count int) {
	b.t.Helper()
	testkit.Eventually(b.t, func() error {
		b.w.pollNow()
		b.w.mu.Lock()
		defer b.w.mu.Unlock()
		sockets, err := b.w.nodes[0].packetSockets()
		got := 0
		for _, data := range sockets {
			if s, err := parsePacketSocket(data); err == nil && s.proto != 0 {
				got++
			}
		}
		if err == nil && got < count {
			err = fmt.Errorf("%d of %d sockets receive something", got, len(sockets))
		}
		return err
	}, 10*time.Second, fmt.Sprintf("%d packet sockets", count))
	b.examined()
}

func TestRingingPolls(t *testing.T) {
	testkit.Root(t)
	testkit.LeakCheck(t)
	w := newWatcher(t, Config{Interval: time.Hour})
	b := newWatched(t, w)
	stop := b.start("tcpdump", "-n", "-w", "-", "-i", "eth1")
	defer stop()
	testkit.Eventually(t, func() error {
		w.pollNow()
		return b.is("packet socket on eth1", "packet socket on eth1")
	}, 10*time.Second, "the capture to be seen")
	stop()
	w.pollNow()
	b.await("", "")
}

func TestRoutingDaemonsDoNoHarm(t *testing.T) {
	testkit.Root(t)
	testkit.LeakCheck(t)
	topology := &daemons.Topology{}
	topology.Router("r1", slice.FRR, slice.ISIS)
	topology.Router("r2", slice.FRR, slice.ISIS)
	topology.Router("r3", slice.FRR, slice.OSPF)
	topology.Router("r4", slice.BIRD, slice.OSPF)
	topology.Link("r1", "r2")
	topology.Link("r3", "r4")
	l := daemons.New(t, topology.Done())
	nodes := map[string]*watched{}
	for _, name := range []string{"r1", "r3", "r4"} {
		ns, err := netns.Open(netns.Path(l.PID(name)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ns.Close() })
		nodes[name] = &watched{t: t, w: newWatcher(t, quick), ns: ns}
		nodes[name].watch()
	}
	for i := range l.Slice.Nodes {
		n := &l.Slice.Nodes[i]
		r, err := routing.NewRenderer(l.Slice).Render(n)
		if err != nil {
			t.Fatal(err)
		}
		l.Write(n.Name, r.Files)
		l.Start(n.Name, r.Command)
	}
	_, err := daemons.Await{Slice: l.Slice, PIDs: l.PIDs}.Converged(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	nodes["r1"].listening(1) // isisd
	for _, name := range []string{"r1", "r3"} {
		if _, err := l.Exec(name, "/usr/lib/frr/bfdd", "-d", "-A", "127.0.0.1"); err != nil {
			t.Fatal(err)
		}
	}
	nodes["r1"].listening(2)
	nodes["r3"].listening(1)
	for name, b := range nodes {
		b.await("", "")
		t.Logf("%s: %d reports", name, b.reports)
	}
}
