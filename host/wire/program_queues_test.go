package wire_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/pergola-net/pergola/datapath/program"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

// A patch panel that puts UDP datagrams to port 5000 + n into queue n, and those to 6000 + n, too, in longer frames.
const byPort = `
#include <pergola/program.h>
#include <pergola/headers.h>

PERGOLA_PARSE(packet)
{
	uint16_t port = pergola_ntohs(*pergola_header(packet, 36, uint16_t));
	struct ethernet_header *eth = pergola_header(packet, 0, struct ethernet_header), was = *eth;

	packet->output = 3 - packet->interface;
	if (eth->type == pergola_htons(0x86dd)) /* what kernels say of their own accord, at any time */
		return PERGOLA_DROP;
	if (*pergola_header(packet, 23, uint8_t) != 17)
		return PERGOLA_SEND;
	if (port >= 6000 && pergola_grow(packet, 8)) {
		*pergola_header(packet, -8, struct ethernet_header) = was;
		pergola_header(packet, -8, struct ethernet_header)->type = pergola_htons(0x88b5);
		port -= 1000;
	}
	packet->queue = port - 5000;
	return PERGOLA_SEND;
}
`

// panelled makes nodes a and b, and between them a node whose program chooses queues towards b.
func (l *lab) panelled(s slice.Shape) (toB wiring.Link) {
	l.Helper()
	a, b := l.port("a", nil, "192.0.2.0/31"), l.port("b", nil, "192.0.2.1/31")
	left, right := l.port("p", nil), l.port("p", func(p *wire.Port) { p.Inner = "eth1" })
	end := func(port string) wiring.End { return wiring.End{Port: port, MTU: 1500} }
	toB = wiring.Link{A: end(right), B: end(b), Program: true, Reinject: true}
	toB.A.Shape = s
	for _, w := range []wiring.Link{{A: end(a), B: end(left), Program: true}, toB} {
		l.must(l.Join(l.ctx, w.A.Port, w.B.Port))
		l.must(l.Treat(l.ctx, w))
	}
	source := filepath.Join(l.TempDir(), "panel.c")
	l.must(os.WriteFile(source, []byte(byPort), 0o600))
	object, err := program.Build(l.ctx, source)
	l.must(err)
	set := wire.Program{Slice: 7, File: "panel.c", Object: object, Ports: []string{left, right}, Digest: "1"}
	l.must(l.SetProgram(l.ctx, "7-p", set))
	return toB
}

func frames(n int) slice.Queue { return slice.Queue{Share: 1, Length: unit.Length{Frames: n}} }

// Each frame waits in the queue that the program chose, or was sent, or was dropped there; also a frame that has grown,
// which enters anew. A queue that is not there is number 0.
func TestFramesWaitInTheQueueThatAProgramChose(t *testing.T) {
	const sent = 40
	l := newLab(t)
	bytes := slice.Queue{Share: 1, Length: unit.Length{Bytes: 5000}}
	queues := []slice.Queue{frames(100), frames(10), bytes, frames(20), frames(30)}
	link := l.panelled(slice.Shape{Rate: 8e3, Queues: queues})
	device, _ := link.Queues()
	l.ping("a", "192.0.2.1")
	was := l.queues(device)
	for _, port := range []uint16{5001, 5002, 6003, 5004, 5009} {
		l.sendsTo("a", "192.0.2.1", port, sent)
	}
	long := uint64(payload + 8 + 20 + 14)
	for queue, most := range map[uint16]uint32{0: 100, 1: 10, 2: uint32(5000 / long), 3: 20, 4: 30} {
		before, s := was[wiring.FirstClass+queue], l.queues(device)[wiring.FirstClass+queue]
		n := s.Frames - before.Frames + s.Drops + uint64(s.Waiting)
		if n != sent || s.Waiting > most || s.Waiting+2 < min(most, sent) {
			t.Errorf("of %d frames, queue %d of %d counts %+v", sent, queue, most, s)
		}
		if queue == 3 && uint64(s.Backlog) != uint64(s.Waiting)*(long+8) {
			t.Errorf("queue 3 has %d bytes of %d grown frames", s.Backlog, s.Waiting)
		}
	}
	if c := l.counts(); c["no such queue"] != sent {
		t.Errorf("%d frames were for a queue that is not there: %v", sent, c)
	}
	if is := l.observe().Ports[link.A.Port].Layout; is == nil || is.Digest() != link.Layout().Digest() {
		t.Errorf("observed %+v", is)
	}
}

// Frames stay in their queues when shares, lengths and rates change, and when others come and go.
func TestQueuesAreChangedWithoutLossOfWaitingFrames(t *testing.T) {
	l := newLab(t)
	queues := []slice.Queue{frames(10), frames(50), frames(50), frames(50)}
	link := l.panelled(slice.Shape{Rate: 8e3, Queues: queues})
	device, _ := link.Queues()
	for _, port := range []uint16{5001, 5002, 5003} {
		l.sendsTo("a", "192.0.2.1", port, 40)
	}
	before := l.queues(device)
	kept := func(what string, queues ...uint16) {
		t.Helper()
		l.must(l.Treat(l.ctx, link))
		after := l.queues(device)
		for _, q := range queues {
			was, is := before[wiring.FirstClass+q], after[wiring.FirstClass+q]
			if is.Drops != was.Drops || uint64(is.Waiting)+is.Frames != uint64(was.Waiting)+was.Frames {
				t.Errorf("%s: queue %d had %+v, and has %+v", what, q, was, is)
			}
		}
	}
	longer := slice.Queue{Share: 9, Length: unit.Length{Frames: 100}}
	link.A.Shape.Queues = []slice.Queue{frames(10), longer, frames(5), frames(50)}
	kept("other shares and lengths", 1, 2, 3)
	link.A.Shape.Queues = append(link.A.Shape.Queues, frames(7), frames(8))
	kept("two more", 1, 2, 3)
	link.A.Shape.Queues = link.A.Shape.Queues[:3]
	kept("fewer", 1, 2)
	link.A.Shape.Rate = 16e3
	kept("another rate", 1, 2)
	if is := l.observe().Ports[link.A.Port].Layout; is == nil || is.Digest() != link.Layout().Digest() {
		t.Errorf("observed %+v, want %+v", is, link.Layout())
	}
}

// Queues come and go while frames are sent to two of them, of which one goes first and one comes last. Frames that wait
// in others stay; those that are for a queue that is not there are in number 0, and counted: so none named a class that
// was not there yet, or not any more.
func TestQueuesComeAndGoWhileFramesAreSentToThem(t *testing.T) {
	const few, many, resizes, last = 3, 203, 6, 202
	l := newLab(t)
	slow := slice.Queue{Share: 1, Rate: 8e3, Length: unit.Length{Frames: 50}}
	link := l.panelled(slice.Shape{Rate: 1e9, Queues: []slice.Queue{frames(100), slow, slow}})
	device, _ := link.Queues()
	l.ping("a", "192.0.2.1")
	for _, port := range []uint16{5001, 5002} {
		l.sendsTo("a", "192.0.2.1", port, 40)
	}
	before, counted := l.queues(device), l.counts()["no such queue"]
	through := func(s wire.QueueStats) uint64 { return s.Frames + s.Drops + uint64(s.Waiting) }
	stop := l.sendsForever("a", "192.0.2.1", 5000+few, 5000+last)
	defer stop()
	for range resizes {
		for len(link.A.Shape.Queues) < many {
			link.A.Shape.Queues = append(link.A.Shape.Queues, frames(20))
		}
		l.must(l.Treat(l.ctx, link))
		l.awaitMore("frames in the appended queue", func() uint64 {
			return through(l.queues(device)[wiring.FirstClass+last])
		})
		link.A.Shape.Queues = link.A.Shape.Queues[:few]
		l.must(l.Treat(l.ctx, link))
		l.awaitMore("frames for a queue that is gone", func() uint64 { return l.counts()["no such queue"] })
	}
	stop()
	after := l.queues(device)
	for _, q := range []uint16{1, 2} {
		was, is := before[wiring.FirstClass+q], after[wiring.FirstClass+q]
		if is.Drops != was.Drops || through(is) != through(was) {
			t.Errorf("queue %d had %+v, and has %+v", q, was, is)
		}
	}
	// The record may change between the program's choice and the frame's leave: of one frame at each processor.
	seen := uint64(runtime.NumCPU() * 2 * resizes)
	none := l.counts()["no such queue"] - counted
	other := through(after[wiring.FirstClass]) - through(before[wiring.FirstClass])
	if other < none || other > none+seen {
		t.Errorf("%d frames were for a queue that was not there, and number 0 got %d", none, other)
	}
}

// awaitMore waits until a counter has grown.
func (l *lab) awaitMore(what string, counter func() uint64) {
	l.Helper()
	was := counter()
	testkit.Eventually(l, func() error {
		if is := counter(); is < was+100 {
			return fmt.Errorf("%d were counted, and are %d", was, is)
		}
		return nil
	}, 10*time.Second, what)
}

// sendsForever sends datagrams to ports in turn until it is stopped.
func (l *lab) sendsForever(name, address string, ports ...uint16) (stop func()) {
	l.Helper()
	var conns []net.Conn
	for _, port := range ports {
		to := net.JoinHostPort(address, fmt.Sprint(port))
		conns = append(conns, in(l, name, func() (net.Conn, error) { return net.Dial("udp", to) }))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			_, err := conns[i%len(conns)].Write(make([]byte, payload))
			if errors.Is(err, net.ErrClosed) {
				return
			}
		}
	}()
	return sync.OnceFunc(func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
		<-done
	})
}

// sendsTo sends so many datagrams of the usual length to a port.
func (l *lab) sendsTo(name, address string, port uint16, frames int) {
	l.Helper()
	to := net.JoinHostPort(address, fmt.Sprint(port))
	conn := in(l, name, func() (net.Conn, error) { return net.Dial("udp", to) })
	defer func() { _ = conn.Close() }()
	for frames > 0 {
		if _, err := conn.Write(make([]byte, payload)); err == nil { // else: nobody listens to an earlier one
			frames--
		}
	}
}

// BenchmarkQueueStats reads the queues of 64 slices, eight each and the default one, as `link stats` does. Five times a
// second, that is five times ns/op of a core's second.
func BenchmarkQueueStats(b *testing.B) {
	const devices = 64
	l := newLab(b)
	l.ctx = context.Background()
	shape := slice.Shape{Rate: 100e6}
	for range 9 {
		shape.Queues = append(shape.Queues, frames(100))
	}
	var names []string
	for i := range devices {
		a, other := l.port(fmt.Sprint("a", i), nil), l.port(fmt.Sprint("b", i), nil)
		link := wiring.Link{
			A: wiring.End{Port: a, MTU: 1500, Shape: shape}, B: wiring.End{Port: other, MTU: 1500},
		}
		l.must(l.Join(l.ctx, a, other))
		l.must(l.Treat(l.ctx, link))
		device, _ := link.Queues()
		names = append(names, device)
	}
	for b.Loop() {
		all, err := l.QueueStats(l.ctx, names...)
		if err != nil || len(all) != devices || len(all[names[0]]) != 10 {
			b.Fatalf("%d devices, %d classes: %v", len(all), len(all[names[0]]), err)
		}
	}
}
