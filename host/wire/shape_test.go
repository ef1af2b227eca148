package wire_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
)

// flood sends UDP datagrams for a while, faster than the link, and gives the rate at which they came through to the
// port's node, in bit/s.
func (l *lab) flood(from, to, toPort string) float64 {
	l.Helper()
	const window = 600 * time.Millisecond
	stop := l.floods(from, to)
	defer stop()
	read := func() (uint64, time.Time) {
		traffic, err := l.Counters(l.ctx)
		l.must(err)
		return traffic[toPort].ToNode.Bytes, time.Now()
	}
	time.Sleep(100 * time.Millisecond) // until the queue is full and the burst gone
	bytes, start := read()
	time.Sleep(window)
	after, end := read()
	return float64(after-bytes) * 8 / end.Sub(start).Seconds()
}

// floods sends UDP datagrams, 50 to 100 Mbit/s, until stop is called.
func (l *lab) floods(from, to string) (stop func()) {
	l.Helper()
	var conn net.Conn
	l.must(netns.Do(netns.Path(l.node(from).pid), func() (err error) {
		conn, err = net.Dial("udp", net.JoinHostPort(to, "9"))
		return err
	}))
	ctx, cancel := context.WithCancel(l.ctx)
	var sender sync.WaitGroup
	sender.Go(func() {
		payload := make([]byte, 1200)
		pace := time.NewTicker(time.Millisecond)
		defer pace.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-pace.C: // as late as timers are
				for range 12 {
					_, _ = conn.Write(payload) // refused by ICMP now and then
				}
			}
		}
	})
	return func() {
		cancel()
		sender.Wait()
		_ = conn.Close()
	}
}

// tries is how often a rate is measured before it is wrong: on a busy machine, the sender may not get to send.
const tries = 5

func (l *lab) wantRate(from, to, toPort string, want float64) {
	l.Helper()
	l.wantFlood(from, to, toPort, 0.93*want, 1.05*want)
}

func (l *lab) wantFaster(from, to, toPort string, than float64) {
	l.Helper()
	l.wantFlood(from, to, toPort, than, math.Inf(1))
}

func (l *lab) wantFlood(from, to, toPort string, least, most float64) {
	l.Helper()
	var have []float64
	for range tries {
		rate := l.flood(from, to, toPort)
		if rate >= least && rate <= most {
			return
		}
		have = append(have, rate)
	}
	l.Errorf("rates %.3g bit/s, want %.3g to %.3g", have, least, most)
}

func TestRateOfJoinedPorts(t *testing.T) {
	l := newLab(t)
	a, b := l.pair()
	l.ping("a", "192.0.2.1")
	l.wantFaster("a", "192.0.2.1", b, 30e6)
	shape := slice.Shape{Rate: 10e6, Queue: 50}
	l.must(l.Shape(l.ctx, a, wire.FromNode, shape))
	l.wantRate("a", "192.0.2.1", b, 10e6)
	state := l.observe()
	if !state.Ports[a].FromNode.Equal(shape) || !state.Ports[b].ToNode.Equal(shape) ||
		!state.Ports[a].ToNode.IsZero() {
		t.Errorf("observed %+v", state.Ports)
	}
	l.must(l.Shape(l.ctx, b, wire.ToNode, slice.Shape{Rate: 20e6})) // in place
	l.wantRate("a", "192.0.2.1", b, 20e6)
	l.wantFaster("b", "192.0.2.0", a, 30e6) // the other direction is free
	l.reopen()
	l.wantRate("a", "192.0.2.1", b, 20e6)
	l.must(l.Shape(l.ctx, a, wire.FromNode, slice.Shape{}))
	l.wantFaster("a", "192.0.2.1", b, 30e6)
	if q := l.observe().Ports[a].FromNode; !q.IsZero() {
		t.Errorf("not removed: %+v", q)
	}
}

func TestRateOnALAN(t *testing.T) {
	l := newLab(t)
	ports := l.lan(l.sw("s7b1"), 3)
	l.ping("n1", "198.51.100.2")
	l.must(l.Shape(l.ctx, ports[0], wire.FromNode, slice.Shape{Rate: 10e6}))
	l.ping("n1", "198.51.100.2")
	l.wantRate("n1", "198.51.100.2", ports[1], 10e6)
	l.wantFaster("n2", "198.51.100.1", ports[0], 30e6)
	l.must(l.Shape(l.ctx, ports[0], wire.ToNode, slice.Shape{Rate: 5e6}))
	l.wantRate("n2", "198.51.100.1", ports[0], 5e6)
	state := l.observe()
	p := state.Ports[ports[0]]
	if p.Switch != "s7b1" || p.FromNode.Rate != 10e6 || p.ToNode.Rate != 5e6 || len(state.Remains) > 0 {
		t.Errorf("observed %+v, remains %v", p, state.Remains)
	}
	l.must(l.Attach(l.ctx, ports[0], l.sw("s7b2")))
	if p := l.observe().Ports[ports[0]]; p.Switch != "s7b2" || p.FromNode.Rate != 10e6 {
		t.Errorf("moved with its queue: %+v", p)
	}
	l.must(l.Attach(l.ctx, ports[0], "s7b1"))
	l.must(l.Shape(l.ctx, ports[0], wire.FromNode, slice.Shape{}))
	l.must(l.Shape(l.ctx, ports[0], wire.ToNode, slice.Shape{}))
	l.wantFaster("n1", "198.51.100.2", ports[1], 30e6)
	state = l.observe()
	if p := state.Ports[ports[0]]; p.Switch != "s7b1" || !p.FromNode.IsZero() || len(state.Remains) > 0 {
		t.Errorf("observed %+v, remains %v", p, state.Remains)
	}
}

// The kernel here may lack netem: then delay is refused before anything changes, and the error names the module.
func TestDelayWithoutNetemIsRefused(t *testing.T) {
	l := newLab(t)
	a, _ := l.pair()
	err := l.Shape(l.ctx, a, wire.FromNode, slice.Shape{Delay: time.Millisecond})
	if wire.HaveNetem() == nil {
		l.must(err)
		return
	}
	var missing *wire.MissingModuleError
	if !errors.As(err, &missing) || missing.Module != "sch_netem" {
		t.Errorf("%v", err)
	}
	if q := l.observe().Ports[a].FromNode; !q.IsZero() {
		t.Errorf("changed: %+v", q)
	}
}

func TestShapeNeedsAWire(t *testing.T) {
	l := newLab(t)
	p := l.port("a", nil)
	if err := l.Shape(l.ctx, p, wire.FromNode, slice.Shape{Rate: 1e6}); !errors.Is(err, wire.ErrNotWired) {
		t.Errorf("%v", err)
	}
	l.must(l.Shape(l.ctx, p, wire.FromNode, slice.Shape{}))
}

func (l *lab) rtts(from, to string, n int) (received int, average time.Duration) {
	l.Helper()
	out, _ := l.exec(from, "ping", "-q", "-c", fmt.Sprint(n), "-i0.005", "-W2", to) // fails if one is lost
	var sent int
	var least, mean, most float64
	for _, line := range splitLines(out) {
		_, _ = fmt.Sscanf(line, "%d packets transmitted, %d received", &sent, &received)
		_, _ = fmt.Sscanf(line, "rtt min/avg/max/mdev = %f/%f/%f", &least, &mean, &most)
	}
	if sent != n {
		l.Fatalf("ping:\n%s", out)
	}
	return received, time.Duration(mean * float64(time.Millisecond))
}

// inOrder sends pings 2 ms apart: jitter must not let one overtake another. At a jitter of 5 ms, one in three would. A
// few are allowed, for the kernel itself lets a frame overtake another where two processors pass frames to one veth,
// each by a backlog of its own: on an emulated machine, about one in a thousand.
func (l *lab) inOrder(from, to string) {
	l.Helper()
	const allowed = 4
	out, err := l.exec(from, "ping", "-c100", "-i0.002", to)
	l.must(err)
	last, seen, overtaken := 0, 0, 0
	for _, line := range splitLines(out) {
		_, rest, ok := strings.Cut(line, "icmp_seq=")
		if !ok {
			continue
		}
		var seq int
		if _, err := fmt.Sscanf(rest, "%d", &seq); err != nil {
			l.Errorf("%q: %v", line, err)
		}
		if seq < last {
			overtaken++
		}
		last = seq
		seen++
	}
	if seen != 100 || overtaken > allowed {
		l.Errorf("%d answers of 100, %d of them overtaken, want all and at most %d:\n%s", seen, overtaken,
			allowed, out)
	}
}

func TestNetemDelaysAndLoses(t *testing.T) {
	testkit.KernelModule(t, "sch_netem")
	l := newLab(t)
	a, b := l.pair()
	l.ping("a", "192.0.2.1")
	l.must(l.Shape(l.ctx, a, wire.FromNode, slice.Shape{Delay: 40 * time.Millisecond}))
	if _, rtt := l.rtts("a", "192.0.2.1", 20); rtt < 40*time.Millisecond || rtt > 60*time.Millisecond {
		t.Errorf("rtt %v, want 40 ms and little more", rtt)
	}
	both := slice.Shape{Delay: 40 * time.Millisecond, Jitter: 5 * time.Millisecond, Rate: 2e6, Queue: 20}
	l.must(l.Shape(l.ctx, a, wire.FromNode, both))
	if _, rtt := l.rtts("a", "192.0.2.1", 50); rtt < 36*time.Millisecond || rtt > 60*time.Millisecond {
		t.Errorf("rtt %v, want 40 ms and little more", rtt)
	}
	l.wantRate("a", "192.0.2.1", b, 2e6)
	l.inOrder("a", "192.0.2.1")
	both.Delay = 10 * time.Millisecond // in place
	l.must(l.Shape(l.ctx, a, wire.FromNode, both))
	if _, rtt := l.rtts("a", "192.0.2.1", 50); rtt < 8*time.Millisecond || rtt > 30*time.Millisecond {
		t.Errorf("rtt %v, want 10 ms and little more", rtt)
	}
	l.must(l.Shape(l.ctx, a, wire.FromNode, slice.Shape{Loss: 50}))
	if received, _ := l.rtts("a", "192.0.2.1", 200); received < 60 || received > 140 {
		t.Errorf("%d of 200 received, want about half", received)
	}
	l.must(l.Shape(l.ctx, a, wire.FromNode, slice.Shape{}))
	if received, rtt := l.rtts("a", "192.0.2.1", 20); received != 20 || rtt > 8*time.Millisecond {
		t.Errorf("without a shape, %d of 20 received, rtt %v", received, rtt)
	}
}
