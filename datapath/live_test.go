package datapath

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// awaits takes what stations receive until there are so many frames, or it takes too long.
func (w *world) awaits(n int) []arrival {
	var all []arrival
	for deadline := time.Now().Add(10 * time.Second); len(all) < n && w.listen(time.Until(deadline)); {
		all = append(all, w.receiveAll()...)
	}
	return all
}

func (w *world) expectReceived(sent []byte, want ...arrival) {
	w.Helper()
	w.check(w.say(w.a, sent))
	if diff := cmp.Diff(want, w.awaits(len(want))); diff != "" {
		w.Errorf("received (-want +have):\n%s", diff)
	}
}

// The walk's ends, with devices, as the kernel makes them of what the program says.
func TestLiveWalk(t *testing.T) {
	inLiveWorld(t, func(w *world) {
		for _, v6 := range []bool{false, true} {
			p := packet{v6: v6}
			l := w.line(3)
			whole := p.after(macB, mac(5), 3)
			w.name = fmt.Sprintf("IPv6 %v: to the host", v6)
			w.expectReceived(p.bytes(), arrival{l.end, unix.PACKET_HOST, whole})

			w.name = "to the second router"
			w.setNexthop(l.next[1], unresolved, l.out[1], [6]byte{})
			w.expectReceived(p.bytes(), arrival{l.in[1], unix.PACKET_HOST, p.after(mac(2), mac(1), 1)})
			w.setNexthop(l.next[1], gateway, l.out[1], mac(4))

			w.name = "by a queue"
			w.change(l.out[2], func(p *Port) { p.Mode = Queue })
			w.expectReceived(p.bytes(), arrival{l.end, unix.PACKET_HOST, whole})

			w.name = "out of the machine"
			w.change(l.out[2], func(p *Port) { p.Mode = Peer })
			w.change(l.end, func(p *Port) { p.External = true })
			w.expectReceived(p.bytes(), arrival{l.end, unix.PACKET_HOST, whole})

			w.name = "by a bridge"
			w.change(l.out[2], func(p *Port) { p.Mode = Kernel })
			bridge := fmt.Sprintf("br%d", l.end)
			w.ip("link add %s up type bridge mcast_snooping 0", bridge)
			for _, port := range []int{l.out[2], l.end} {
				w.ip("link set %s master %s", device(w, port), bridge)
			}
			w.expectReceived(p.bytes(), arrival{l.end, unix.PACKET_HOST, whole})
		}
	})
}

// Frames from an external device walk in XDP if they can, and else in the tc program there.
func TestLineCardDoesWhatItCanAndLeavesTheRest(t *testing.T) {
	inLiveWorld(t, func(w *world) {
		w.bare = true // so that nothing but the line card moves frames
		w.a = w.port(macA)
		l := w.line(2)
		for _, port := range []int{w.a, l.end} {
			w.change(port, func(p *Port) { p.External = true })
		}
		w.check(w.d.AttachPortLineCard(w.a, true))
		defer func() { w.check(w.d.DetachPortLineCard(w.a)) }()
		p := packet{}
		whole := arrival{l.end, unix.PACKET_HOST, p.after(macB, mac(3), 2)}

		w.name = "no device takes it"
		w.take()
		w.check(w.say(w.a, p.bytes()))
		w.check(w.d.AllowXDPToPort(l.end, l.end))
		w.name = "by XDP"
		w.expectReceived(p.bytes(), whole)
		if diff := cmp.Diff(l.passed(2), w.take()); diff != "" {
			w.Errorf("counters (-want +have):\n%s", diff)
		}
		w.name = "a punt is left, without a trace"
		w.setNexthop(l.next[1], stale, l.out[1], macB)
		w.check(w.say(w.a, p.bytes()))
		w.setNexthop(l.next[0], unresolved, l.out[0], macB)
		w.check(w.say(w.a, p.bytes()))
		w.setNexthop(l.next[0], gateway, l.out[0], mac(2))
		w.check(w.d.Attach(w.a))
		w.expectReceived(p.bytes(), arrival{l.in[1], unix.PACKET_HOST, p.after(mac(2), mac(1), 1)})
		want := l.passed(1, fmt.Sprintf("handed %d", l.in[1]),
			fmt.Sprintf("stale neighbour: router %d", l.routers[1]))
		if diff := cmp.Diff(want, w.take()); diff != "" {
			w.Errorf("counters (-want +have):\n%s", diff)
		}
		w.name = "by tc"
		w.check(w.d.DenyXDPToPort(l.end))
		w.expectReceived(p.bytes(), whole)
	})
}

// A newer line card takes the older one's place.
func TestReplacedLineCardStaysAttached(t *testing.T) {
	inLiveWorld(t, func(w *world) {
		w.bare = true
		w.a = w.port(macA)
		l := w.line(2)
		w.check(w.d.AttachPortLineCard(w.a, true))
		defer func() { w.check(w.d.DetachPortLineCard(w.a)) }()
		newer, err := open(w.dir, byClsact{}, must(loadObject()), version{abi: ABI, programs: "newer"})
		w.check(err)
		defer func() { w.check(newer.Close()) }()
		w.check(newer.AllowXDPToPort(l.end, l.end))
		w.expectReceived(packet{}.bytes(), arrival{l.end, unix.PACKET_HOST, packet{}.after(macB, mac(3), 2)})
	})
}

// A device that went took its line card along, but not what was pinned of it; the next device may have its number.
func TestLineCardOfADeviceThatCameAgain(t *testing.T) {
	inLiveWorld(t, func(w *world) {
		w.a = w.port(macA)
		w.check(w.d.AttachPortLineCard(w.a, true))
		defer func() { w.check(w.d.DetachPortLineCard(w.a)) }()
		w.ip("link del %s", device(w, w.a))
		w.ip("link add again index %d type veth", w.a)
		w.check(w.d.AttachPortLineCard(w.a, true))
	})
}

// Whatever a node sends stays in its slice, and arrives once. The other slice has the same addresses.
func TestLiveFramesStayInTheirSlice(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	inLiveWorld(t, func(w *world) {
		w.Logf("seed %d", seed)
		theirs := w.line(3)
		w.a = w.port(macA)
		ours := w.line(3)
		foreign := append([]int{theirs.end}, append(theirs.in, theirs.out...)...)
		ports := append([]int{w.a, ours.end}, append(ours.in, ours.out...)...)
		for round := range 20 {
			sent := 0
			for range 250 {
				if w.say(ports[r.IntN(len(ports))], anyFrame(r)) == nil {
					sent++
				}
			}
			last := packet{sport: uint16(30000 + round)}
			w.check(w.say(w.a, last.bytes()))
			got := 0
			for end := false; !end; {
				all := w.awaits(1)
				end = len(all) == 0
				for _, h := range all {
					got++
					if slices.Contains(foreign, h.Port) {
						w.Errorf("seed %d: a frame of another slice came to port %d: %x", seed,
							h.Port, h.Frame)
					}
					end = end || bytes.Equal(h.Frame, last.after(macB, mac(5), 3))
				}
			}
			if got > sent+1 {
				w.Errorf("seed %d: %d frames sent, %d came", seed, sent, got)
			}
		}
	})
}

// Newer programs take the place of older ones while frames walk, and none is lost.
func TestLiveUpgradeLosesNoFrame(t *testing.T) {
	inLiveWorld(t, func(w *world) {
		l := w.line(3)
		stop, ended, rounds := make(chan struct{}), make(chan struct{}), make(chan struct{})
		sent, received := 0, 0 // read when it has ended
		go func() {
			defer close(ended)
			sent, received = w.stream(stop, rounds)
		}()
		for i := range 10 {
			d, err := open(w.dir, byClsact{}, must(loadObject()),
				version{abi: ABI, programs: fmt.Sprintf("newer%d", i)})
			w.check(err)
			w.check(d.Close())
			select { // the stream goes on
			case <-rounds:
			case <-ended:
			}
		}
		close(stop)
		<-ended
		if received != sent || sent == 0 {
			w.Errorf("%d frames sent, %d came", sent, received)
		}
		if in := must(w.d.Counters())[l.in[0]].WalkedIn.Frames; in != uint64(sent) {
			w.Errorf("%d frames sent, %d walked", sent, in)
		}
	})
}

// stream sends frames in rounds until it is stopped, or some of a round do not come. A round is no longer than all
// queues on the way: what overflows them would be lost without an upgrade, too. It offers each round that has come.
func (w *world) stream(stop <-chan struct{}, rounds chan<- struct{}) (sent, received int) {
	const round = 64
	frame := packet{}.bytes()
	for received == sent {
		select {
		case <-stop:
			return sent, received
		case rounds <- struct{}{}:
		default:
		}
		for range round {
			if err := w.say(w.a, frame); err != nil {
				w.Error(err)
				return sent, received
			}
			sent++
		}
		received += len(w.awaits(round))
	}
	return sent, received
}
