package datapath

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
)

func runAt(port int, frame []byte) *ebpf.RunOptions {
	return &ebpf.RunOptions{Data: frame, Context: &skbuff{Ifindex: uint32(port)}}
}

// told reads what the agent has been told since it was called last.
func (w *world) told() (all []Unwalked) {
	w.Helper()
	if w.reader == nil {
		w.reader = must(w.d.ReadUnwalked())
	}
	w.reader.ring.SetDeadline(time.Now())
	for {
		u, err := w.reader.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return all
		}
		w.check(err)
		if err != nil {
			return all
		}
		all = append(all, u)
	}
}

func (w *world) expectTold(want ...Unwalked) {
	w.Helper()
	// As much of a packet is told as there is room for behind the labels: at least this.
	prefix := cmpopts.AcyclicTransformer("", func(u Unwalked) Unwalked {
		u.Packet = u.Packet[:min(len(u.Packet), 128)]
		return u
	})
	if diff := cmp.Diff(want, w.told(), prefix); diff != "" {
		w.Errorf("the agent is told (-want +have):\n%s", diff)
	}
}

// toldCase is a frame into a line of two routers that swap labels 100 and 200, of which one cannot send it on.
type toldCase struct {
	name   string
	packet packet
	came   []entry
	of     func(l line) NHLFE // label 100
	ftn    func(l line) NHLFE // of the first router

	at     int // place of the router
	why    Obstacle
	room   int
	labels []entry // with which the packet came to it
	ttl    int     // of IP; 0: as it was
}

var bigPacket = packet{payload: 1452}

var toldCases = []toldCase{
	{name: "TTL", came: []entry{{100, 1, 6}, {50, 9, 1}}, why: TTLExpired,
		labels: []entry{{100, 1, 6}, {50, 9, 1}}},
	{name: "router alert", came: []entry{{1, 1, 6}, {100, 9, 1}}, why: RouterAlert,
		labels: []entry{{1, 1, 6}, {100, 9, 1}}},
	{name: "behind a label that has come off", came: []entry{{0, 7, 0}, {100, 1, 0}}, why: TTLExpired,
		labels: []entry{{0, 7, 0}, {100, 1, 0}}},
	{name: "IP's TTL at the penultimate hop", packet: packet{ttl: 1}, came: []entry{{100, 9, 0}},
		of: func(l line) NHLFE { return l.ahead(0) }, why: TTLExpired, labels: []entry{{100, 9, 0}}},
	{name: "at the second router", came: []entry{{100, 2, 3}, {50, 9, 1}}, of: func(l line) NHLFE {
		n := l.ahead(0, Label{Label: 201}, Label{Label: 200}).uniform()
		n.KeepClass = true
		return n
	}, at: 1, why: TTLExpired, labels: []entry{{200, 1, 3}, {201, 1, 3}, {50, 9, 1}}},
	{name: "with its first labels", packet: packet{ttl: 2}, ftn: func(l line) NHLFE {
		return l.ahead(0, Label{Label: 201}, Label{Label: 200}).uniform()
	}, at: 1, why: TTLExpired, labels: []entry{{200, 1, 0}, {201, 1, 0}}, ttl: 1},
	{name: "twelve labels", came: twelve(), why: TTLExpired, labels: twelve()},
	{name: "too big", packet: bigPacket, came: []entry{{100, 64, 0}, {50, 9, 0}, {51, 9, 0}},
		why: TooBig, room: 1400, labels: []entry{{100, 64, 0}, {50, 9, 0}, {51, 9, 0}}},
	{name: "too big with two more labels", packet: bigPacket, came: []entry{{100, 64, 0}}, of: func(l line) NHLFE {
		return l.ahead(0, Label{Label: 16}, Label{Label: 17}, Label{Label: 18})
	}, why: TooBig, room: 1392, labels: []entry{{100, 64, 0}}},
	{name: "too big without its labels", packet: bigPacket, came: []entry{{0, 64, 0}, {100, 64, 0}},
		of: func(l line) NHLFE { return l.ahead(0) }, why: TooBig, room: 1408,
		labels: []entry{{0, 64, 0}, {100, 64, 0}}},
}

func twelve() []entry {
	all := []entry{{100, 1, 0}}
	for i := range 11 {
		all = append(all, entry{uint32(300 + i), 1, 0})
	}
	return all
}

func stackOf(entries []entry) (all []StackEntry) {
	for _, e := range entries {
		all = append(all, StackEntry{e.label, e.class, e.ttl})
	}
	return all
}

// The agent is told of the packet as it came to the router, whatever that has already done with it.
func TestAgentIsToldOfThePacketAsItCame(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, v6 := range []bool{false, true} {
			for _, c := range toldCases {
				w.name = fmt.Sprintf("%s, IPv6 %v", c.name, v6)
				w.expectToldOf(c, v6)
			}
		}
	})
}

func (w *world) expectToldOf(c toldCase, v6 bool) {
	w.Helper()
	l := w.line(2)
	w.space(l)
	w.label(0, 100, l.ahead(0, Label{Label: 200}))
	w.label(1, 200, l.ahead(1, Label{Label: 300}))
	if c.of != nil {
		w.label(0, 100, c.of(l))
	}
	if c.ftn != nil {
		w.ftn(l, 0, c.ftn(l))
	}
	w.leg(l.out[0], func(g *objectLeg) { g.Mtu = 1400 })
	c.packet.v6 = v6
	if c.packet.payload > 0 && v6 { // the same length
		c.packet.payload -= 20
	}
	w.send(labelled(c.packet.bytes(), c.came...), skbuff{})
	want := Unwalked{
		Space: uint32(c.at + 1), Port: l.in[c.at], From: w.a, Why: c.why, Room: c.room,
		Labels: stackOf(c.labels),
	}
	if c.at > 0 {
		want.From = l.out[c.at-1]
	}
	if c.ttl > 0 {
		c.packet.ttl = c.ttl
	}
	want.Packet = c.packet.bytes()[ethernetLen:]
	w.expectTold(want)
}

// What is no matter of labels is not told: IP, other drops, and what XDP leaves to tc.
func TestAgentIsNotToldOfTheRest(t *testing.T) {
	inUplinkedWorld(t, func(w *world) {
		l := w.line(2)
		w.space(l)
		w.label(0, 100, l.ahead(0, Label{Label: 200}))
		for _, frame := range [][]byte{
			packet{ttl: 1}.bytes(), packet{payload: 1480}.bytes(),
			labelled(packet{}.bytes(), entry{101, 1, 0}),
		} {
			w.send(frame, skbuff{})
		}
		w.lineCard(labelled(packet{}.bytes(), entry{100, 1, 0}))
		w.expectTold()
	})
}

// A loop of labels is counted by itself, and nobody is told.
func TestLabelsEndAfter64Hops(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.line(65)
		w.space(l)
		for i := range l.routers {
			w.label(i, 100, l.ahead(i, Label{Label: 100}))
		}
		have := w.send(labelled(packet{}.bytes(), entry{100, 255, 0}), skbuff{})
		w.expect(have, verdictShot, have.Frame, l.passed(64, fmt.Sprintf("label loop %d", l.out[63])))
		w.expectTold()
	})
}

// A node that sends what cannot be walked gets so many answers, and cannot load the agent. Another router's are its
// own.
func TestAgentIsToldSoOften(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.line(2)
		w.space(l)
		w.label(1, 101, l.ahead(1))
		w.label(0, 102, l.ahead(0, Label{Label: 101}))
		w.label(0, 100, l.ahead(0))
		frame := labelled(packet{}.bytes(), entry{100, 1, 0})
		begin := time.Now()
		const sent = 200
		for range sent {
			_, err := w.d.programs.PortIngress.Run(runAt(w.a, frame))
			w.check(err)
		}
		// And one for a tick of the clock, and one for the debt of the last.
		most := unwalkedBurst + int(time.Since(begin)*unwalkedRate/time.Second) + 2
		told := len(w.told())
		if told < unwalkedBurst || told > most {
			w.Errorf("%d packets were told, want %d to %d", told, unwalkedBurst, most)
		}
		_, err := w.d.programs.PortIngress.Run(runAt(w.a, labelled(packet{}.bytes(), entry{102, 2, 0})))
		w.check(err)
		if n := len(w.told()); n != 1 {
			w.Errorf("%d packets were told of another router, want 1", n)
		}
		want := map[string]uint64{"agent": uint64(told), "withheld": uint64(sent - told)}
		if diff := cmp.Diff(want, must(w.d.Punted(l.routers[0]))); diff != "" {
			w.Errorf("counted (-want +have):\n%s", diff)
		}
		// Nobody reads: when the buffer is full, the rest is withheld.
		for range 2000 {
			w.check(w.d.maps.UnwalkedFull.Put(l.routers[0], uint64(0)))
			_, err := w.d.programs.PortIngress.Run(runAt(w.a, frame))
			w.check(err)
		}
		if n := must(w.d.Punted(l.routers[0]))["withheld"]; n < sent-uint64(told)+900 {
			w.Errorf("with a full buffer %d were withheld", n)
		}
		w.told()
	})
}

// What is of an earlier agent's time is not answered any more.
func TestOldPacketsAreNotRead(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.line(1)
		w.space(l)
		w.label(0, 100, l.ahead(0))
		w.told() // makes the reader
		later := time.Duration(0)
		w.reader.clock = func() (time.Duration, error) {
			now, err := coarseClock()
			return now + later, err
		}
		for _, tt := range []struct {
			later time.Duration
			told  int
		}{{0, 1}, {tellFor, 0}} {
			later = tt.later
			w.send(labelled(packet{}.bytes(), entry{100, 1, 0}), skbuff{})
			later += 10 * time.Millisecond // more than a tick of the clock
			if n := len(w.told()); n != tt.told {
				w.Errorf("%s later: %d packets are told, want %d", later, n, tt.told)
			}
		}
	})
}

// What goes on along the LSP comes to the router by the same way, and is switched as the packet would have been.
func TestAnswerGoesOnAlongTheLSP(t *testing.T) {
	inLiveWorld(t, func(w *world) {
		for _, v6 := range []bool{false, true} {
			l := w.line(3)
			w.space(l)
			for i := range 3 {
				w.label(i, uint32(100+i), l.ahead(i, Label{Label: uint32(101 + i)}))
			}
			p := packet{v6: v6}
			w.name = fmt.Sprintf("IPv6 %v", v6)
			w.check(w.say(w.a, labelled(p.bytes(), entry{100, 2, 3}, entry{50, 9, 1})))
			var told []Unwalked
			deadline := time.Now().Add(5 * time.Second)
			for len(told) == 0 && time.Now().Before(deadline) {
				told = w.told()
			}
			if len(told) != 1 || told[0].Port != l.in[1] {
				w.Errorf("told: %+v", told)
				return
			}
			answer := packet{v6: v6, sport: 99}
			w.check(w.d.SendOn(&told[0], answer.bytes()[ethernetLen:]))
			want := labelled(answer.behind(0, macB, mac(5)), entry{103, 253, 0}, entry{50, 255, 1})
			if diff := cmp.Diff([]arrival{{l.end, unix.PACKET_HOST, want}}, w.awaits(1)); diff != "" {
				w.Errorf("received (-want +have):\n%s", diff)
			}
		}
		if err := w.d.SendOn(&Unwalked{Port: w.a, From: w.a}, nil); !errors.Is(err, unix.ENODEV) {
			w.Errorf("at a port without a router: %v", err)
		}
	})
}
