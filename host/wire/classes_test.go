package wire_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

// The classes of these tests: what goes to a port of UDP. The last one has all other frames, too.
const (
	voice, bulk, other = wiring.FirstClass, wiring.FirstClass + 1, wiring.FirstClass + 2
	firstPort          = 5000 // of voice
)

// classes divides a rate: voice has three eighths of it and no more; of the rest, bulk has one part and other three.
func classes(rate unit.Rate, queue int) slice.Shape {
	match := func(class uint16) []slice.Match {
		port := firstPort + class - voice
		return []slice.Match{{Protocol: 17, DstPort: slice.Ports{First: port, Last: port}}}
	}
	return slice.Shape{Rate: rate, Classes: []slice.Class{
		{
			Name: "voice", Match: match(voice), Share: 1, Reserve: rate * 3 / 8, Limit: rate * 3 / 8,
			Priority: 1, Queue: queue,
		},
		{Name: "bulk", Match: match(bulk), Share: 1, Priority: 8, Queue: queue},
		{Name: "other", Share: 3, Priority: 8, Queue: queue},
	}}
}

// delayed adds a delay to a shape, where this kernel can.
func delayed(s slice.Shape) slice.Shape {
	if wire.HaveNetem() == nil {
		s.Delay = 2 * time.Millisecond
	}
	return s
}

// takes opens a node's ports of all classes: nothing is answered to what comes there.
func (l *lab) takes(name, address string) {
	l.Helper()
	for class := uint16(voice); class <= other; class++ {
		to := net.JoinHostPort(address, fmt.Sprint(firstPort+class-voice))
		socket := in(l, name, func() (net.PacketConn, error) { return net.ListenPacket("udp", to) })
		l.Cleanup(func() { _ = socket.Close() })
	}
}

// dials opens a socket to the port of a class.
func (l *lab) dials(name, address string, class uint16) net.Conn {
	l.Helper()
	to := net.JoinHostPort(address, fmt.Sprint(firstPort+class-voice))
	conn := in(l, name, func() (net.Conn, error) { return net.Dial("udp", to) })
	l.Cleanup(func() { _ = conn.Close() })
	return conn
}

const payload = 1000 // bytes of a datagram

// overloads sends 32 Mbit/s of each class, a few frames at a time, until the test ends.
func (l *lab) overloads(name, address string) {
	l.Helper()
	ctx, cancel := context.WithCancel(l.ctx)
	var senders sync.WaitGroup
	l.Cleanup(func() {
		cancel()
		senders.Wait()
	})
	for class := uint16(voice); class <= other; class++ {
		conn := l.dials(name, address, class)
		senders.Go(func() {
			pace := time.NewTicker(time.Millisecond)
			defer pace.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-pace.C: // as late as timers are: the queues are long enough
					for range 4 {
						_, _ = conn.Write(make([]byte, payload))
					}
				}
			}
		})
	}
}

// queues reads the counters of one device.
func (l *lab) queues(device string) map[uint16]wire.QueueStats {
	l.Helper()
	all, err := l.QueueStats(l.ctx, device, "no-such-device")
	l.must(err)
	if len(all) > 1 {
		l.Errorf("%s and others have queues: %v", device, all)
	}
	return all[device]
}

// joined is the link of two nodes a and b, with classes in both directions.
func (l *lab) joined(a, b string, s slice.Shape) wiring.Link {
	return wiring.Link{A: wiring.End{Port: a, MTU: 1500, Shape: s}, B: wiring.End{Port: b, MTU: 1500, Shape: s}}
}

// Each frame was sent, waits, or was dropped, and is counted once, at its class.
func TestQueueStatsAccountForEachFrame(t *testing.T) {
	const frames, queue = 40, 10
	l := newLab(t)
	a, b := l.pair()
	l.ping("a", "192.0.2.1")
	if have := l.queues(b); have != nil {
		t.Errorf("without a shape: %+v", have)
	}
	l.takes("b", "192.0.2.1")
	l.must(l.Treat(l.ctx, l.joined(a, b, classes(8e3, queue))))
	l.sends("a", "192.0.2.1", frames, payload)
	for class := uint16(voice); class <= bulk; class++ {
		s := l.queues(b)[class]
		if s.Frames+s.Drops+uint64(s.Waiting) != frames || s.Drops == 0 || s.Waiting == 0 || s.Waiting > queue {
			t.Errorf("of %d frames, class %x counts %+v", frames, class, s)
		}
		long := uint64(payload + 8 + 20 + 14)
		if s.Bytes != s.Frames*long || uint64(s.Backlog) != uint64(s.Waiting)*long {
			t.Errorf("of frames of %d bytes, class %x counts %+v", long, class, s)
		}
	}
	if s := l.queues(b)[wiring.RootClass]; s.Frames == 0 || s.Overlimits == 0 {
		t.Errorf("the link's own class counts %+v", s)
	}

	// Other values keep the classes, their counters and what waits.
	before := l.queues(b)[bulk]
	faster := classes(16e3, queue)
	faster.Classes[bulk-voice].Queue = 2 * queue
	l.must(l.Treat(l.ctx, l.joined(a, b, faster)))
	after := l.queues(b)[bulk]
	if after.Drops != before.Drops || after.Frames < before.Frames || after.Waiting == 0 {
		t.Errorf("at another rate, %+v became %+v", before, after)
	}
}

// Shares and reservations hold as long as all classes have frames that wait, in both directions at once.
func TestClassesShareALinkUnderBacklog(t *testing.T) {
	const rate, queue = 16e6, 400
	for name, reinject := range map[string]bool{"at the ports": false, "at queue devices": true} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			a, b := l.pair()
			l.ping("a", "192.0.2.1")
			link := l.joined(a, b, classes(rate, queue))
			link.Reinject = reinject
			l.must(l.Treat(l.ctx, link))
			l.takes("a", "192.0.2.0")
			l.takes("b", "192.0.2.1")
			l.overloads("a", "192.0.2.1")
			l.overloads("b", "192.0.2.0")
			fromA, fromB := link.Queues()
			l.divides(fromA, fromB)
		})
	}
}

// divides waits until the devices have sent enough, with frames of each class waiting all the time, and wants each
// class to have had its part.
func (l *lab) divides(devices ...string) {
	l.Helper()
	const enough = 2000 // frames of each device
	var before, now map[string]map[uint16]wire.QueueStats
	sent := func(device string, class uint16) float64 {
		return float64(now[device][class].Frames - before[device][class].Frames)
	}
	testkit.Eventually(l, func() (err error) {
		if now, err = l.QueueStats(l.ctx, devices...); err != nil {
			return err
		}
		for _, device := range devices {
			for class := uint16(voice); class <= other; class++ {
				if now[device][class].Waiting == 0 { // the senders did not get to send
					before = nil
					return fmt.Errorf("nothing waits in class %x of %s", class, device)
				}
			}
		}
		if before == nil {
			before = now
		}
		for _, device := range devices {
			if n := sent(device, wiring.RootClass); n < enough {
				return fmt.Errorf("%s has sent %v frames", device, n)
			}
		}
		return nil
	}, time.Minute, "backlogged classes to be served")
	for _, device := range devices {
		all := sent(device, wiring.RootClass)
		for class, want := range map[uint16]float64{voice: 3. / 8, bulk: 5. / 8 / 4, other: 5. / 8 * 3 / 4} {
			if have := sent(device, class) / all; have < 0.93*want || have > 1.07*want {
				l.Errorf("class %x of %s has %.3f of the frames, want %.3f", class, device, have, want)
			}
		}
	}
}

// Frames that the line card would carry from one tunnel to the next go through the queues of the link between them, if
// it has some: XDP leaves them to the programs of tc.
func TestClassesOfALinkThatTheLineCardCrosses(t *testing.T) {
	const frames = 200
	for _, kind := range []tunnelOf{{kind: slice.EGRE}, {kind: slice.VXLAN, ipv6: true}} {
		t.Run(kind.String(), func(t *testing.T) {
			b := newBed(t, 3, 1500)
			b.openUnderlays()
			near, relay, far := b.machines[0], b.machines[1], b.machines[2]
			mtu := b.mtu - kind.kind.Overhead(kind.ipv6)
			change := func(p *wire.Port) { p.MTU = mtu }
			from := near.port("a", change, "192.0.2.0/31", "2001:db8::/127")
			to := far.port("b", change, "192.0.2.1/31", "2001:db8::1/127")
			connect := func(m, peer *machine, port, proxy string, key uint32) {
				m.must(m.AddTunnel(m.ctx, kind.tunnel(m, peer, proxy, key, mtu)))
				m.must(m.Join(m.ctx, port, proxy))
			}
			relay.must(relay.AddTunnel(relay.ctx, kind.tunnel(relay, near, from, 1, mtu)))
			connect(relay, far, from, to, 2)
			connect(near, relay, from, to, 1)
			connect(far, relay, to, from, 2)
			near.ping("a", "192.0.2.1")
			far.takes("b", "192.0.2.1")

			before := relay.counted()
			near.sends("a", "192.0.2.1", frames, payload)
			relay.wantCounted(before, datapath.ByLineCard, 2*frames)

			s := classes(1e9, 0)
			link := relay.joined(from, to, s)
			link.A.MTU, link.B.MTU = mtu, mtu
			relay.must(relay.Treat(relay.ctx, link))
			before = relay.counted()
			near.sends("a", "192.0.2.1", frames, payload)
			device, _ := link.Queues()
			testkit.Eventually(t, func() error {
				all := relay.queues(device)
				if all[voice].Frames != frames || all[bulk].Frames != frames {
					return fmt.Errorf("of %d frames each, the queues sent %+v", frames, all)
				}
				return nil
			}, 10*time.Second, "all frames to pass their queues")
			after := relay.counted()
			if past := after[datapath.ByLineCard] - before[datapath.ByLineCard]; past != 0 {
				t.Errorf("the line card took %d frames past the queues", past)
			}
		})
	}
}

// sends sends so many frames of voice, and of bulk.
func (l *lab) sends(name, address string, frames, payload int) {
	l.Helper()
	first, second := l.dials(name, address, voice), l.dials(name, address, bulk)
	for range frames {
		for _, conn := range []net.Conn{first, second} {
			_, err := conn.Write(make([]byte, payload))
			l.must(err)
		}
	}
}
