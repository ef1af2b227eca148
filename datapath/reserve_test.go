package datapath

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/node"
)

// burst is a reservation that so many frames of this length are within, and another one only after seconds.
func burst(frames, length int) Reservation {
	p := policed(frames, length)
	return Reservation{Rate: p.Rate, Burst: p.Burst}
}

// reserve makes the LSP of a line (lsp) one with a reservation.
func (w *world) reserve(l line, is Reservation) {
	w.Helper()
	w.lsp(l, true)
	n := l.ahead(0, Label{Label: 101}).uniform()
	n.Reserved, n.Reservation = true, is
	w.ftn(l, 0, n)
	for i := 1; i < len(l.routers)-1; i++ {
		n := l.ahead(i, Label{Label: uint32(100 + i + 1)}).uniform()
		n.Reserved, n.KeepClass = true, true
		if i == len(l.routers)-2 {
			n.Push = nil
		}
		w.label(i, uint32(100+i), n)
	}
}

// measured reads what a reservation of the line has measured.
func (w *world) measured() Reserved {
	w.Helper()
	is, err := w.d.Reserved(1, 7)
	w.check(err)
	return is
}

// Frames within a reservation have its traffic class. Those in excess have none, or are dropped: by choice.
func TestReservationsAreMeasuredWhereTheLSPBegins(t *testing.T) {
	const within, sent = 3, 5
	inWorld(t, func(w *world) {
		for _, v6 := range []bool{false, true} {
			for _, drop := range []bool{false, true} {
				l := w.line(4)
				w.change(l.out[0], func(p *Port) { p.Mode = Kernel })
				w.name = fmt.Sprintf("IPv6 %v, drop %v", v6, drop)
				p := packet{v6: v6}
				labels := len(p.bytes()) + 4
				r := burst(within, labels)
				r.Drop = drop
				w.check(w.d.DeleteFTN(1, 7))
				w.reserve(l, r)
				for i := range sent {
					class := uint8(ReservedClass)
					if i >= within {
						class = 0
					}
					have := w.send(p.bytes(), skbuff{})
					if drop && i >= within {
						w.expect(have, verdictShot, have.Frame, map[string]uint64{
							fmt.Sprintf("reservation exceeded %d", w.a): 1})
						continue
					}
					w.expectLabelled(have, verdictRedirect, labelled(p.behind(1, mac(2), mac(1)),
						entry{101, 63, class}), l.passed(1))
				}
				want := Reserved{r, within, uint64(within * labels), sent - within,
					uint64((sent - within) * labels), 0}
				is := w.measured()
				is.Time = 0 // one frame in 16 is measured
				if diff := cmp.Diff(want, is); diff != "" {
					w.Errorf("-want +got:\n%s", diff)
				}
			}
		}
	})
}

// A reservation pays for the walks of its frames, within it or not, and for no others.
func TestReservationsPayForTheirWalks(t *testing.T) {
	const sent = 1 << 14
	inWorld(t, func(w *world) {
		l := w.line(4)
		w.reserve(l, burst(sent/2, len(packet{}.bytes())+4))
		if is := w.measured().Time; is != 0 {
			t.Errorf("before the first frame, %s", is)
		}
		frame := packet{}.bytes()
		program := again(w.bench, false, frame[:34], w.d.programs.PortIngress)
		defer func() { _ = program.Close() }()
		opts := ebpf.RunOptions{Data: frame, Context: &skbuff{Ifindex: uint32(w.a)}, Repeat: sent}
		begun := time.Now()
		_ = must(program.Run(&opts))
		is, took := w.measured().Time, time.Since(begun)
		if is > 2*took || is < sent*leastWalk {
			t.Errorf("of %d frames in %s, %s", sent, took, is)
		}
		// By another FTN, without a reservation.
		w.check(w.d.SetFTN(1, 8, l.ahead(0, Label{Label: 101}).uniform()))
		hop := must(w.d.maps.Nexthops.LookupBytes(l.next[0]))
		binary.NativeEndian.PutUint32(hop[12:], 8) // struct nexthop in bpf/fib.h
		w.check(w.d.maps.Nexthops.Put(l.next[0], hop))
		_ = must(program.Run(&opts))
		if now := w.measured().Time; now != is {
			t.Errorf("of frames without a reservation, %s", now-is)
		}
	})
}

// A thousand flows at once, each of which sends more than it has reserved: each has what it has reserved, and no more.
func TestAThousandReservationsAtOnce(t *testing.T) {
	const flows, within, sent, first = 1000, 2, 4, 1000
	inWorld(t, func(w *world) {
		l := w.line(2)
		w.space(l)
		frame := packet{}.bytes()
		n := l.ahead(0, Label{Label: 101}).uniform()
		n.Reserved, n.Reservation = true, burst(within, len(frame)+4)
		for ftn := range uint32(flows) {
			w.check(w.d.SetFTN(1, first+ftn, n))
		}
		hop := must(w.d.maps.Nexthops.LookupBytes(l.next[0]))
		opts := ebpf.RunOptions{Data: frame, Context: &skbuff{Ifindex: uint32(w.a)}}
		for range sent {
			for ftn := range uint32(flows) {
				binary.NativeEndian.PutUint32(hop[12:], first+ftn) // struct nexthop in bpf/fib.h
				w.check(w.d.maps.Nexthops.Put(l.next[0], hop))
				must(w.d.programs.PortIngress.Run(&opts))
			}
		}
		for ftn := range uint32(flows) {
			is := must(w.d.Reserved(1, first+ftn))
			if is.Frames != within || is.ExcessFrames != sent-within {
				t.Fatalf("flow %d: %+v", ftn, is)
			}
		}
	})
}

// IP does not say that it was measured: its precedence 5 is no reservation, whatever the LSP.
func TestPrecedenceIsNoReservation(t *testing.T) {
	inWorld(t, func(w *world) {
		for precedence, class := range map[byte]uint8{4: 4, 5: 4, 6: 6} {
			l := w.line(4)
			w.change(l.out[0], func(p *Port) { p.Mode = Kernel })
			w.lsp(l, true)
			n := l.ahead(0, Label{Label: 101}).uniform()
			n.KeepClass = true
			w.ftn(l, 0, n)
			p := packet{tos: precedence << 5}
			w.expectLabelled(w.send(p.bytes(), skbuff{}), verdictRedirect,
				labelled(p.behind(1, mac(2), mac(1)), entry{101, 63, class}), l.passed(1))
		}
	})
}

// A bypass takes what is reserved to a link where nothing was admitted for it.
func TestNothingIsReservedOnABypass(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.line(4)
		w.reserve(l, burst(9, 100))
		w.change(l.out[0], func(p *Port) { p.Mode, p.Reserves = Queue, true })
		frame := packet{}.bytes()
		if have := w.priority(w.a, frame); have != ReservedQueue {
			t.Errorf("class %x, want %x", have, ReservedQueue)
		}
		n := l.ahead(0, Label{Label: 101}, Label{Label: 500}).uniform()
		n.Reserved, n.Reservation, n.Bypass = true, burst(9, 100), true
		w.ftn(l, 0, n)
		if have := w.priority(w.a, frame); have != classNone {
			t.Errorf("by a bypass: class %x, want none", have)
		}
		if is := w.measured(); is.Frames != 2 {
			t.Errorf("%+v", is)
		}
	})
}

// The class says that a router has measured the frame. A node's word for it does not leave its port, wherever that
// leads.
func TestNodesCannotSayThatTheyHaveAReservation(t *testing.T) {
	inWorld(t, func(w *world) {
		p, at := packet{}, skbuff{}
		w.check(w.d.Add(w.a, Port{MTU: 1500}))
		w.join(w.a, w.port(macB))
		deep := func(class uint8, n int) []byte {
			entries := make([]entry, n)
			for i := range entries {
				entries[i] = entry{uint32(100 + i), 64, class}
			}
			return labelled(p.bytes(), entries...)
		}
		for _, mode := range []Mode{Peer, Queue, Kernel} {
			for name, mac := range map[string][6]byte{"a node": macA, "a queue": {}} {
				w.name = fmt.Sprintf("mode %d, from %s", mode, name)
				w.change(w.a, func(p *Port) { p.Mode, p.MAC = mode, mac })
				want := uint8(ReservedClass)
				if name == "a node" {
					want = 0
				}
				for _, n := range []int{1, 3, 64} {
					have := w.send(deep(ReservedClass, n), at)
					if !cmp.Equal(have.Frame, deep(want, n)) {
						w.Errorf("%d labels: verdict %d, %x", n, have.Verdict, have.Frame)
					}
				}
				if have := w.send(deep(3, 3), at); !cmp.Equal(have.Frame, deep(3, 3)) {
					w.Errorf("another class: %x", have.Frame)
				}
			}
		}
	})
}

// What routers send into a LAN enters at their port anew, as if their node had sent it: by its mark, it keeps the
// class.
func TestWhatRoutersSendIntoALANKeepsItsReservation(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.line(4)
		w.reserve(l, burst(9, 100))
		w.change(l.out[0], func(p *Port) { p.Mode = Kernel })
		var left skbuff
		opts := ebpf.RunOptions{Data: packet{}.bytes(), DataOut: make([]byte, 256),
			Context: &skbuff{Ifindex: uint32(w.a)}, ContextOut: &left}
		must(w.d.programs.PortIngress.Run(&opts))
		sent := opts.DataOut
		w.change(w.a, func(p *Port) { p.Mode = Kernel }) // in the place of that port, which has no device here
		for mark, want := range map[uint32][]byte{
			left.Mark: sent, left.Mark &^ 0x8000: without(sent), 0: without(sent),
		} {
			opts := ebpf.RunOptions{Data: sent, DataOut: make([]byte, len(sent)),
				Context: &skbuff{Ifindex: uint32(w.a), Mark: mark}}
			verdict := must(w.d.programs.PortIngress.Run(&opts))
			if verdict != verdictOK || !cmp.Equal(opts.DataOut, want) {
				w.Errorf("mark %x: verdict %d, %x, want %x", mark, verdict, opts.DataOut, want)
			}
		}
	})
}

// without takes the traffic class off the first label.
func without(frame []byte) []byte {
	out := bytes.Clone(frame)
	out[16] &^= 0xe
	return out
}

// A packet program is its node's, in tc and in XDP.
func TestPacketProgramsCannotSayThatTheyHaveAReservation(t *testing.T) {
	inTCProgramWorld(t, func(w *world, n *node.Nodes) {
		w.check(w.d.Add(w.a, Port{MTU: 1500, External: true}))
		in, out, end := w.port(mac(2)), w.port(mac(3)), w.port(macB)
		w.join(w.a, in)
		w.join(out, end)
		w.check(n.Set("x", made(w.compile(forward), in, out)))
		w.check(w.d.AttachPortLineCard(w.a, true))
		defer func() { w.check(w.d.DetachPortLineCard(w.a)) }()
		w.check(w.d.AllowXDPToPort(end, end))
		p := packet{to: macB}
		frame := labelled(p.bytes(), entry{100, 64, 3}, entry{101, 64, ReservedClass})
		arrives := arrival{end, unix.PACKET_HOST, labelled(p.bytes(), entry{100, 64, 3}, entry{101, 64, 0})}
		w.name = "by tc"
		w.expectReceived(frame, arrives)
		w.name = "by XDP"
		w.handover()
		w.expectReceived(frame, arrives)
	})
}

// Frames shorter than Ethernet's shortest are as much work as that.
func TestShortFramesCountAsTheShortestOfEthernet(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.line(4)
		w.reserve(l, burst(9, 100))
		frame := packet{payload: 1}.bytes()[:14+20+8+1] // without padding, as between nodes
		if w.send(frame, skbuff{}); w.measured().Bytes != 64 {
			t.Errorf("%+v", w.measured())
		}
	})
}

// The class of reservations is for frames of LSPs that have one, if they are within it, and for no others.
func TestWhatIsReservedHasAClassOfItsOwn(t *testing.T) {
	inWorld(t, func(w *world) {
		ip := packet{}.bytes()
		none := burst(0, 0)
		none.Burst = 1 // one frame, which the first one is
		for name, c := range map[string]struct {
			frame  []byte
			is     Reservation
			change func(l line, queue *Port)
			want   uint32
		}{
			"at the ingress": {ip, burst(9, 100), nil, ReservedQueue},
			"in transit": {labelled(ip, entry{100, 64, ReservedClass}), none, func(line, *Port) {
				w.change(w.a, func(p *Port) { p.MAC = [6]byte{} }) // a queue's device
			}, ReservedQueue},
			"with a label that a node wrote": {labelled(ip, entry{100, 64, ReservedClass}), none, nil,
				classNone},
			"in transit, in excess": {labelled(ip, entry{100, 64, 0}), none, nil, classNone},
			"behind the last router": {ip, burst(9, 100), func(l line, queue *Port) {
				w.change(l.out[3], func(p *Port) { p.Mode, p.Reserves = Queue, true })
				queue.Mode = Peer
			}, classNone},
			"with rules, too": {ip, burst(9, 100), func(_ line, queue *Port) { queue.Classified = true },
				ReservedQueue},
			"where there is no such class": {ip, burst(9, 100),
				func(_ line, queue *Port) { queue.Reserves = false }, classNone},
			"without a reservation": {labelled(ip, entry{100, 64, ReservedClass}), none,
				func(l line, _ *Port) {
					n := l.ahead(1, Label{Label: 102})
					n.KeepClass = true
					w.label(1, 101, n)
				}, classNone},
		} {
			l := w.line(4)
			w.check(w.d.DeleteFTN(1, 7))
			w.reserve(l, c.is)
			n := l.ahead(0, Label{Label: 101}).uniform()
			n.Reserved, n.KeepClass = true, true
			w.label(0, 100, n)
			w.change(w.a, func(p *Port) { p.MAC = macA })
			w.change(l.out[1], func(p *Port) {
				p.Mode, p.Reserves = Queue, true
				if c.change != nil {
					c.change(l, p)
				}
			})
			if have := w.priority(w.a, c.frame); have != c.want {
				t.Errorf("%s: class %x, want %x", name, have, c.want)
			}
		}
	})
}

// A policer of a link is not against what was admitted; others get what is left of it.
func TestPolicersLetReservationsPass(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.line(4)
		p := packet{}
		w.reserve(l, burst(9, 100))
		w.police(l.out[1], policed(1, len(p.bytes())))
		since := w.now()
		for range 3 {
			w.expect(w.send(p.bytes(), skbuff{}), verdictRedirect, p.behind(4, macB, mac(7)),
				l.passed(4, fmt.Sprintf("handed %d", l.end)))
		}
		want := uint64(3 * (len(p.bytes()) + 4))
		if taken := w.taken(l.out[1], since); taken < want-3 || taken > want { // refilled meanwhile
			t.Errorf("%d bytes were taken of the policer, want %d", taken, want)
		}
		excess := labelled(p.bytes(), entry{100, 64, 0})
		w.label(0, 100, func() NHLFE {
			n := l.ahead(0, Label{Label: 101}).uniform()
			n.KeepClass = true
			return n
		}())
		have := w.send(excess, skbuff{})
		w.expect(have, verdictShot, have.Frame, l.passed(2, fmt.Sprintf("policed %d", l.out[1])))
	})
}

// Programs of XDP do not measure, and leave it to those of tc; what is on its way is swapped as any other.
func TestXDPLeavesReservationsToTC(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.line(4)
		p := packet{}
		w.reserve(l, burst(9, 100))
		if have := w.lineCard(p.bytes()); have.Verdict != xdpPass || w.measured().Frames != 0 {
			t.Errorf("verdict %d, %+v", have.Verdict, w.measured())
		}
		w.police(l.out[1], policed(1, 1))
		n := l.ahead(0, Label{Label: 101}).uniform()
		n.Reserved, n.KeepClass = true, true
		w.label(0, 100, n)
		w.lineCard(labelled(p.bytes(), entry{100, 64, ReservedClass}))
		if taken := w.taken(l.out[1], 0); taken != 0 {
			t.Errorf("%d bytes were taken of a policer", taken)
		}
	})
}

// A super-frame that goes round by the device that cuts it has taken nothing, before a queue as elsewhere.
func TestSuperFramesTakeNothingBeforeTheyAreCut(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, mode := range []Mode{Kernel, Queue} {
			l := w.line(4)
			w.change(l.out[0], func(p *Port) { p.Mode = mode })
			w.change(w.a, func(r *Port) { r.Plain = w.b })
			p := packet{tcp: true, payload: 3000}
			w.check(w.d.DeleteFTN(1, 7))
			w.reserve(l, burst(1, 1000))
			for range 2 {
				w.expect(w.send(p.bytes(), skbuff{GSOSize: 1400}), verdictRedirect, p.bytes(),
					map[string]uint64{})
			}
			// Of one walk in 16 the time counts, which it has taken in any case.
			if is := w.measured(); is != (Reserved{Reservation: is.Reservation, Time: is.Time}) {
				t.Errorf("mode %d: %+v", mode, is)
			}
			p.payload = 1000
			if w.send(p.bytes(), skbuff{}); w.measured().Frames != 1 {
				t.Errorf("mode %d: a frame behind the device is measured as %+v", mode, w.measured())
			}
		}
	})
}

// Another reservation goes on counting. One that cannot be is refused, and the LSP stays what it was.
func TestReservationsChange(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.line(4)
		p := packet{}
		w.reserve(l, burst(1, len(p.bytes())+4))
		send := func() { w.send(p.bytes(), skbuff{}) }
		send()
		send()
		n := l.ahead(0, Label{Label: 101}).uniform()
		n.Reserved, n.Reservation = true, burst(9, 100)
		w.ftn(l, 0, n)
		send()
		if is := w.measured(); is.Frames != 2 || is.ExcessFrames != 1 || is.Reservation != n.Reservation {
			t.Errorf("after a change: %+v", is)
		}
		bad := n
		bad.Reservation.Rate = 1
		if err := w.d.SetFTN(1, 7, bad); err == nil {
			t.Error("a reservation of a byte a second is taken")
		}
		for e, err := range w.d.AllLabels() {
			w.check(err)
			if e.FTN && (e.Space != 1 || !e.Reserved || e.Reservation != n.Reservation) {
				t.Errorf("read back: %+v", e)
			}
		}
		n.Reserved = false
		w.ftn(l, 0, n)
		if is := w.measured(); is != (Reserved{}) {
			t.Errorf("without a reservation there is %+v", is)
		}
	})
}
