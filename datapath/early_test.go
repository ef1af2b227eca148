package datapath

import (
	"bytes"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/node"
)

// spend empties the buckets of best effort of all cores, for as long as a test takes.
func (w *world) spend() {
	w.Helper()
	var now unix.Timespec
	w.check(unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now))
	all := make([]objectBestEffort, ebpf.MustPossibleCPU())
	for i := range all {
		all[i].Full = uint64(now.Nano() + int64(time.Hour))
	}
	w.check(w.d.maps.BestEfforts.Put(uint32(0), all))
}

// switched is a line of so many routers from the first port, by which frames with label 100 go: each router swaps it
// for the next number, and keeps the class. It leads from one line card to another.
func (w *world) switched(routers int) line {
	w.Helper()
	w.a = w.port(macA)
	l := w.line(routers)
	w.space(l)
	for i := range l.routers {
		n := l.ahead(i, Label{Label: uint32(101 + i)})
		n.KeepClass = true
		w.label(i, uint32(100+i), n)
	}
	for _, port := range []int{w.a, l.end} {
		w.change(port, func(p *Port) { p.External = true })
	}
	return l
}

// What has no reservation goes on by the threads below as it would by the line card, or is dropped where its core has
// no time for it. What has one goes on whatever becomes of the rest.
func TestBestEffortWaitsForWhatIsReserved(t *testing.T) {
	inLiveWorld(t, func(w *world) {
		w.bare = true // so that nothing but line cards moves frames
		l := w.switched(2)
		w.check(w.d.AttachPortLineCard(w.a, true))
		defer func() { w.check(w.d.DetachPortLineCard(w.a)) }()
		w.check(w.d.AllowXDPToPort(l.end, l.end))
		defer func() { w.check(w.d.SetBestEffort(0)) }()
		p := packet{}
		whole := arrival{l.end, unix.PACKET_HOST, p.after(macB, mac(3), 2)}
		reserved := labelled(p.bytes(), entry{100, 20, 5})
		switched := arrival{l.end, unix.PACKET_HOST, labelled(p.behind(0, macB, mac(3)), entry{102, 18, 5})}
		counted := func(want map[string]uint64) {
			w.Helper()
			if diff := cmp.Diff(want, w.take()); diff != "" {
				w.Errorf("counters (-want +have):\n%s", diff)
			}
		}

		for _, share := range []float64{1, 0, 0.25} {
			w.name = fmt.Sprintf("best effort has %v", share)
			w.check(w.d.SetBestEffort(share))
			if have := must(w.d.BestEffort()); have != share {
				w.Errorf("best effort is said to have %v", have)
			}
			w.take()
			w.expectReceived(p.bytes(), whole)
			counted(l.passed(2))
			w.expectReceived(reserved, switched)
			counted(l.passed(2))
		}
		w.name = "no time"
		w.spend()
		other := labelled(p.bytes(), entry{100, 20, 4})
		for _, frame := range [][]byte{p.bytes(), other} {
			w.check(w.say(w.a, frame))
		}
		w.expectReceived(reserved, switched)
		want := l.passed(2)
		want[fmt.Sprintf("no time %d", w.a)] = 2
		counted(want)

		w.name = "newer programs"
		d, err := open(w.dir, byClsact{}, must(loadObject()), version{abi: ABI, programs: "newer"})
		w.check(err)
		defer func() { w.check(d.Close()) }()
		if have := must(d.BestEffort()); have != 0.25 {
			w.Errorf("after an upgrade, best effort has %v", have)
		}
		w.check(w.d.maps.BestEfforts.Put(uint32(0), make([]objectBestEffort, ebpf.MustPossibleCPU())))
		w.expectReceived(p.bytes(), whole)
	})
}

// Of packets, those in tunnels are told apart by the frame inside. All others are the machine's own.
func TestReservationsInTunnelsAreSeen(t *testing.T) {
	inRoutedWorld(t, func(w *world) {
		w.asked(never)
		defer func() { w.check(w.d.SetBestEffort(0)) }()
		for _, tunnel := range sorts {
			w.name = tunnel.named()
			_, _ = w.relay(tunnel)
			in := tunnel
			in.Key = 100
			came := func(frame []byte) []byte {
				return in.turned().outer(frame, around{to: macHere, from: macThere})
			}
			p := packet{}
			reserved, best := came(labelled(p.bytes(), entry{100, 20, 5})), came(p.bytes())
			own := packet{to: macHere}.bytes()
			plain := w.card(reserved)
			w.check(w.d.SetBestEffort(1))
			if have := w.card(reserved); have.Verdict != plain.Verdict {
				w.Errorf("%s: verdict %d of what has a reservation, want %d", w.name, have.Verdict,
					plain.Verdict)
			}
			w.expect(w.card(best), xdpRedirect, best, map[string]uint64{})
			other := came(labelled(p.bytes(), entry{100, 20, 4}))
			w.expect(w.card(other), xdpRedirect, other, map[string]uint64{})
			w.expect(w.card(own), xdpPass, own, map[string]uint64{})
			w.spend()
			if tunnel.Kind == EGRE { // without a key it is no tunnel of ours
				keyless := bytes.Clone(best)
				keyless[len(best)-len(p.bytes())-8] &^= 0x20
				w.expect(w.card(keyless), xdpPass, keyless, map[string]uint64{})
			}
			w.expect(w.card(best), xdpDrop, best, map[string]uint64{"no time": 1})
			w.check(w.d.maps.BestEfforts.Put(uint32(0), make([]objectBestEffort, ebpf.MustPossibleCPU())))
			w.check(w.d.SetBestEffort(0))
			w.forgetTunnels()
		}
	})
}

func TestSharesOfBestEffortAreChecked(t *testing.T) {
	inBench(t, func(b *bench) {
		d := b.open()
		defer func() { b.check(d.Close()) }()
		for _, share := range []float64{-0.1, 1.1, 1e-12, math.NaN(), math.Inf(1)} {
			if d.SetBestEffort(share) == nil {
				b.Errorf("best effort may have %v", share)
			}
		}
	})
}

// inOverload makes a world where best effort waits. tunnelled puts a frame into a tunnel, and card has so many of it
// come by the card, on one core; none comes to the threads below.
func inOverload(t *testing.T, f func(w *world, tunnelled func([]byte) []byte, card func([]byte, uint32) uint32)) {
	t.Helper()
	inRoutedWorld(t, func(w *world) {
		w.asked(never)
		defer func() { w.check(w.d.SetBestEffort(0)) }()
		_, _ = w.relay(sorts[0])
		in := sorts[0]
		in.Key = 100
		in = in.turned()
		w.check(w.d.SetBestEffort(1))
		tunnelled := func(frame []byte) []byte { return in.outer(frame, around{to: macHere, from: macThere}) }
		f(w, tunnelled, func(outer []byte, repeat uint32) uint32 {
			opts := ebpf.RunOptions{Data: outer, Repeat: repeat,
				Context: &xdpMD{DataEnd: uint32(len(outer)), IngressIfindex: uint32(w.a)}}
			verdict, err := w.d.programs.UnderlayLinecard.Run(&opts)
			w.check(err)
			return verdict
		})
	})
}

// Work on reserved frames is measured, and nothing else: not on best effort, nor on control traffic, nor on what is the
// machine's own.
func TestWorkOnReservedFramesIsMeasured(t *testing.T) {
	inOverload(t, func(w *world, tunnelled func([]byte) []byte, card func([]byte, uint32) uint32) {
		control := packet{}.bytes()
		control[15] = 0xc0
		own := packet{to: macHere}.bytes()
		for _, frame := range [][]byte{tunnelled(packet{}.bytes()), tunnelled(control), own} {
			card(frame, 1)
		}
		if is := must(w.d.ReservedWork()); is != (ReservedWork{}) {
			t.Errorf("of others: %+v", is)
		}
		card(tunnelled(labelled(packet{}.bytes(), entry{999, 20, 5})), 1)
		if is := must(w.d.ReservedWork()); is.Sent+is.Left != 1 {
			t.Errorf("of one frame: %+v", is)
		}
	})
}

// leastWalk is less than a walk of a router or two takes.
const leastWalk = 20 * time.Nanosecond

// What is left to programs of tc takes a time that is not known.
func TestWorkOnReservedFramesIsTimed(t *testing.T) {
	const frames = 1 << 12
	inLiveWorld(t, func(w *world) {
		l := w.switched(2)
		w.check(w.d.AllowXDPToPort(l.end, l.end))
		w.check(w.d.SetBestEffort(1))
		defer func() { w.check(w.d.SetBestEffort(0)) }()
		run := func(label uint32) (took time.Duration) {
			frame := labelled(packet{}.bytes(), entry{label, 20, 5})
			program := again(w.bench, true, frame[:18], w.d.programs.Linecard)
			defer func() { _ = program.Close() }()
			begun := time.Now()
			must(program.Run(&ebpf.RunOptions{Data: frame, Repeat: frames,
				Context: &xdpMD{DataEnd: uint32(len(frame)), IngressIfindex: uint32(w.a)}}))
			return time.Since(begun)
		}
		took := run(100)
		is := must(w.d.ReservedWork())
		if is.Sent != frames || is.Left != 0 || is.Time > 2*took || is.Time < frames*leastWalk {
			t.Errorf("of %d frames in %s: %+v", frames, took, is)
		}
		run(999) // a router that does not know it leaves it
		if now := must(w.d.ReservedWork()); now != (ReservedWork{is.Sent, is.Time, frames}) {
			t.Errorf("of as many that are left, then: %+v", now)
		}
	})
}

// A packet program, which may take as long as it wants, is called below what has a reservation. Without early
// demultiplexing it is called at once.
func TestLivePacketProgramsWaitForWhatIsReserved(t *testing.T) {
	inTCProgramWorld(t, func(w *world, n *node.Nodes) {
		l := w.line(1)
		w.space(l)
		in, out, end := w.port(mac(2)), w.port(mac(3)), w.port(macB)
		w.join(l.out[0], in)
		w.join(out, end)
		w.check(n.Set("x", made(w.compile(forward), in, out)))
		is := l.ahead(0, Label{Label: 101})
		is.KeepClass = true
		w.label(0, 100, is)
		w.change(w.a, func(p *Port) { p.External = true })
		w.check(w.d.AttachPortLineCard(w.a, true))
		defer func() { w.check(w.d.DetachPortLineCard(w.a)) }()
		w.check(w.d.AllowXDPToPort(end, end))
		w.handover()
		defer func() { w.detachHandover(ifindex(w, "hb")) }()
		defer func() { w.check(w.d.SetBestEffort(0)) }()
		p := packet{}
		reserved := labelled(p.bytes(), entry{100, 20, 5})
		arrives := arrival{end, unix.PACKET_HOST, labelled(p.behind(0, macB, mac(1)), entry{101, 19, 0})}
		byTC := fmt.Sprintf("handed %d", end)
		for _, c := range []struct {
			name   string
			share  float64
			counts []string
		}{{"at once", 0, nil}, {"below", 1, []string{byTC}}, {"at once again", 0, nil}} {
			w.name = c.name
			w.check(w.d.SetBestEffort(c.share))
			w.take()
			w.expectReceived(reserved, arrives)
			if diff := cmp.Diff(through(l.passed(1, c.counts...), in, out), w.take()); diff != "" {
				w.Errorf("counters (-want +have):\n%s", diff)
			}
			if is := must(w.d.ReservedWork()); is.Left != uint64(len(c.counts)) && c.share > 0 {
				w.Errorf("%+v", is)
			}
		}
		w.name = "no time"
		w.check(w.d.SetBestEffort(1))
		w.spend()
		w.take()
		w.check(w.say(w.a, reserved))
		w.check(w.say(w.a, labelled(p.bytes(), entry{999, 20, 5}))) // what is dropped behind it
		unknown := fmt.Sprintf("unknown label %d", w.a)
		have := map[string]uint64{}
		for deadline := time.Now().Add(10 * time.Second); have[unknown] == 0 && time.Now().Before(deadline); {
			for what, n := range w.take() {
				have[what] += n
			}
		}
		want := map[string]uint64{fmt.Sprintf("no time %d", w.a): 1, unknown: 1}
		if diff := cmp.Diff(want, have); diff != "" {
			w.Errorf("counters (-want +have):\n%s", diff)
		}
	})
}

// Control traffic in tunnels goes first, as far as its meter lets it: what exceeds that is best effort.
func TestControlTrafficGoesFirstWithinItsBound(t *testing.T) {
	inOverload(t, func(w *world, tunnelled func([]byte) []byte, card func([]byte, uint32) uint32) {
		four, six, discovery := packet{}.bytes(), packet{v6: true}.bytes(), packet{v6: true}.bytes()
		four[15], six[14] = 0xc0, 0x6c
		discovery[20], discovery[54] = 58, 135
		arp, isis := bytes.Clone(four), bytes.Clone(four)
		copy(arp[12:], []byte{0x08, 0x06})
		copy(isis[12:], []byte{0, 60})
		label := labelled(packet{}.bytes(), entry{100, 20, 6})
		dropped := func(frame []byte, repeat uint32) bool {
			w.Helper()
			return card(tunnelled(frame), repeat) == xdpDrop && w.takeAll()["no time"] > 0
		}
		for name, frame := range map[string][]byte{
			"IPv4": four, "IPv6": six, "neighbour discovery": discovery, "ARP": arp, "IS-IS": isis,
			"MPLS": label,
		} {
			w.spend()
			_ = w.takeAll()
			if dropped(frame, 1) {
				t.Errorf("%s is best effort", name)
			}
			if !dropped(frame, 10000) {
				t.Errorf("10,000 frames of %s at once go first", name)
			}
		}
		w.spend()
		for _, class := range []byte{0, 0xa0, 0xbf} {
			four[15] = class
			if !dropped(four, 1) {
				t.Errorf("what has the traffic class %#x is control traffic", class)
			}
		}
	})
}

// However long nothing has come, no more frames wait than may. What was taken for lost and comes later, or what a core
// owes by another share, keeps nothing out.
func TestBurstsOfBestEffortAreBounded(t *testing.T) {
	inOverload(t, func(w *world, tunnelled func([]byte) []byte, card func([]byte, uint32) uint32) {
		const most = 512
		best := tunnelled(packet{}.bytes())
		if verdict := card(best, most+1); verdict != xdpDrop {
			t.Errorf("where %d frames wait, the verdict is %d", most, verdict)
		}
		_ = w.takeAll()
		w.spend()
		w.check(w.d.SetBestEffort(0.5))
		w.expect(w.card(best), xdpRedirect, best, map[string]uint64{})
	})
}
