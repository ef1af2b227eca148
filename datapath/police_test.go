package datapath

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/node"
)

const xdpDrop = 1 // linux/bpf.h

// policed is a policer that lets so many frames of this length pass at once, and one more only after seconds: half a
// frame is left of the bucket for the last one.
func policed(frames, length int) Policer {
	return Policer{Rate: MinPolicedRate, Burst: uint64(frames*length - length/2)}
}

func (w *world) police(port int, p Policer) { w.change(port, func(r *Port) { r.Police = p }) }

// taken is how much has been taken out of a port's policer since its bucket was full, in bytes; refilled is left out.
func (w *world) taken(port int, since uint64) uint64 {
	w.Helper()
	var m objectMeter
	w.check(w.d.maps.Meters.Lookup(firstPolicer+uint32(port), &m))
	if m.BytesFull == 0 {
		return 0
	}
	return ((m.BytesFull-since)<<meterScale + m.PerByte/2) / m.PerByte
}

// now is the time by the policers' clock.
func (w *world) now() uint64 {
	var now unix.Timespec
	w.check(unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	return uint64(now.Nano())
}

// lineCard is what the line card of a port does with a frame.
func (w *world) lineCard(frame []byte) outcome {
	w.Helper()
	context := &xdpMD{DataEnd: uint32(len(frame)), IngressIfindex: uint32(w.a)}
	opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Context: context}
	verdict, err := w.d.programs.Linecard.Run(&opts)
	w.check(err)
	return outcome{verdict, opts.DataOut, w.takeAll()}
}

// inBurst sends frames and compares how many pass: the first ones, whatever the mode of the port.
func (w *world) inBurst(verdict uint32, passes, of int, length int, send func() outcome) {
	w.Helper()
	for i := range of {
		have := send()
		drops := have.Counted[fmt.Sprintf("policed %d", w.a)]
		switch {
		case i < passes && (have.Verdict != verdict || drops != 0):
			w.Errorf("frame %d of %d bytes: verdict %d, %v", i, length, have.Verdict, have.Counted)
		case i >= passes && (have.Verdict != verdictShot || drops != 1 || len(have.Counted) != 1):
			w.Errorf("frame %d of %d bytes, above the burst: verdict %d, %v", i, length, have.Verdict,
				have.Counted)
		}
	}
}

// A burst passes, and no frame more, wherever the link leads. Links in the other direction have their own policer.
func TestPolicerLetsABurstPass(t *testing.T) {
	inUplinkedWorld(t, func(w *world) {
		to := w.port(macB)
		w.join(w.a, to)
		frame := packet{to: macB, payload: 1400}.bytes()
		begin := w.tunnelled(w.port(macB), sorts[0])
		send := func() outcome {
			have := w.send(frame, skbuff{})
			delete(have.Counted, fmt.Sprintf("handed %d", to))
			return have
		}
		for name, c := range map[string]struct {
			mode    Mode
			peer    int
			verdict uint32
			outside bool
		}{
			"to a node":            {Peer, to, verdictRedirect, false},
			"to an outer device":   {Peer, to, verdictRedirect, true},
			"into a queue":         {Queue, to, verdictRedirect, false},
			"to a bridge":          {Kernel, 0, verdictOK, false},
			"from a proxy port on": {Tunnelled, begin, verdictRedirect, false},
		} {
			w.name = name
			w.change(to, func(p *Port) { p.Mode, p.Peer, p.External = Peer, w.a, c.outside })
			for _, frames := range []int{1, 7} {
				w.check(w.d.Set(w.a, Port{Mode: c.mode, Peer: c.peer, MTU: 1500, MAC: macA}))
				w.inBurst(c.verdict, 3, 3, len(frame), send)
				w.police(w.a, policed(frames, len(frame)))
				w.inBurst(c.verdict, frames, frames+3, len(frame), send)
			}
		}
	})
}

func TestPolicerCountsAllFramesOfASuperFrame(t *testing.T) {
	inWorld(t, func(w *world) {
		to := w.port(macB)
		w.check(w.d.Add(w.a, Port{MTU: 1500, MAC: macA}))
		w.join(w.a, to)
		for name, c := range map[string]struct {
			packet  packet
			segment uint32
			want    int
		}{
			"one frame":        {packet{tcp: true, payload: 3000}, 0, 3054},
			"TCP":              {packet{tcp: true, payload: 3000}, 1000, 3000 + 3*54},
			"TCP, a rest":      {packet{tcp: true, payload: 3001}, 1000, 3001 + 4*54},
			"TCP, IPv6":        {packet{tcp: true, payload: 3000, v6: true}, 1448, 3000 + 3*74},
			"UDP":              {packet{payload: 2900}, 1400, 2900 + 3*42},
			"a single segment": {packet{tcp: true, payload: 500}, 1000, 554},
		} {
			w.name = name
			c.packet.to = macB
			w.police(w.a, Policer{})
			w.police(w.a, Policer{Rate: MinPolicedRate, Burst: 10000})
			w.change(w.a, func(p *Port) { p.MTU = 9000 })
			w.change(to, func(p *Port) { p.MTU = 9000 })
			before := w.now()
			w.send(c.packet.bytes(), skbuff{GSOSize: c.segment})
			late := (w.now() - before) * MinPolicedRate / 1e9 // bytes
			if have := w.taken(w.a, before); have < uint64(c.want) || have > uint64(c.want)+late+1 {
				w.Errorf("%d bytes were taken, want %d", have, c.want)
			}
		}
	})
}

// Every policer on the way counts the frame. The one that is against it drops it, and no link behind it is crossed.
func TestWalkIsPolicedAtEachLink(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.line(3)
		w.check(w.d.AllowXDPToPort(l.end, w.b))
		links := []int{w.a, l.out[0], l.out[1], l.out[2]}
		p := packet{payload: 1400}
		length := len(p.bytes())
		after := p.after(macB, mac(5), 3)
		for name, c := range map[string]struct {
			send          func() outcome
			passes, drops uint32
			counted       string
		}{
			"tc":  {func() outcome { return w.send(p.bytes(), skbuff{}) }, verdictRedirect, verdictShot, fmt.Sprintf("handed %d", l.end)},
			"XDP": {func() outcome { return w.lineCard(p.bytes()) }, xdpRedirect, xdpDrop, ""},
		} {
			for tightest, port := range links {
				for _, other := range links {
					w.police(other, Policer{})
					w.police(other, policed(10, length))
				}
				w.police(port, policed(2, length))
				for i := range 4 {
					w.name = fmt.Sprintf("%s, frame %d, tightest link %d", name, i, tightest)
					have := c.send()
					want := l.passed(3)
					if c.counted != "" {
						want[c.counted] = 1
					}
					if i < 2 {
						w.expect(have, c.passes, after, want)
						continue
					}
					w.expect(outcome{have.Verdict, nil, have.Counted}, c.drops, nil,
						l.passed(tightest, fmt.Sprintf("policed %d", port)))
				}
				for i, other := range links {
					frames := 4
					if i >= tightest {
						frames = 2
					}
					want, have := uint64(frames*length), w.taken(other, w.now())
					if slack := uint64(MinPolicedRate * 10); have > want || have+slack < want {
						w.Errorf("%d bytes were taken at link %d, want %d", have, i, want)
					}
				}
			}
		}
	})
}

// What the line card leaves to the programs of tc is policed there, once.
func TestLineCardTakesNoTokensOfWhatItLeaves(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.line(2)
		frame := packet{payload: 1400}.bytes()
		leaves := func(what string) {
			w.Helper()
			w.name = what
			for _, port := range []int{w.a, l.out[0], l.out[1]} {
				w.police(port, Policer{})
				w.police(port, policed(2, len(frame)))
			}
			w.expect(w.lineCard(frame), xdpPass, frame, map[string]uint64{})
			for _, port := range []int{w.a, l.out[0], l.out[1]} {
				if n := w.taken(port, 0); n != 0 {
					w.Errorf("%d bytes were taken at port %d", n, port)
				}
			}
		}
		leaves("no device takes it")
		w.check(w.d.AllowXDPToPort(l.end, w.b))
		w.setNexthop(l.next[1], unresolved, l.out[1], macB)
		leaves("a router's kernel must see it")
		w.setNexthop(l.next[1], gateway, l.out[1], macB)
		w.change(l.out[1], func(p *Port) { p.Mode = Queue })
		leaves("a queue")
	})
}

// Out of a tunnel, over a policed link and into another tunnel, all by the line card.
func TestTunnelCardPolicesWhatItRelays(t *testing.T) {
	inRoutedWorld(t, func(w *world) {
		w.asked(never)
		l := w.line(2)
		in, out := sorts[0], sorts[0]
		in.Key, out.Key, out.Peer = 100, 200, third4
		w.tunnelled(l.in[0], in)
		last := w.tunnelled(l.out[1], out)
		p := packet{}
		came := in.turned().outer(p.bytes(), around{to: macHere, from: macThere})
		w.police(l.out[1], policed(1, len(p.bytes())))
		w.name = "passes"
		have := w.card(came)
		w.expect(outcome{have.Verdict, nil, have.Counted}, xdpTX, nil,
			l.passed(2, Received, Sent, fmt.Sprintf("handed %d", last)))
		w.name = "dropped"
		have = w.card(came)
		w.expect(outcome{have.Verdict, nil, have.Counted}, xdpDrop, nil,
			l.passed(2, Received, fmt.Sprintf("policed %d", l.out[1])))
	})
}

// Behind a policer, segments of TCP are not gathered before it has counted them.
func TestTunnelCardDoesNotGatherBeforeAPolicer(t *testing.T) {
	inRoutedWorld(t, func(w *world) {
		l := w.line(2)
		port := w.tunnelled(l.in[0], sorts[1])
		w.check(w.d.AllowXDPToPort(port, w.b))
		p := packet{tcp: true, payload: 1200}
		came := sorts[1].turned().outer(p.bytes(), around{to: macHere, from: macThere})
		w.setNexthop(l.next[1], unresolved, l.out[1], macB)
		w.name, w.gathers = "a router's kernel must see it", true
		w.expect(w.card(came), xdpRedirect, p.bytes(), map[string]uint64{Received: 1})
		w.name, w.gathers = "and it is policed", false
		w.police(l.out[0], policed(9, 1500))
		w.expect(w.card(came), xdpPass, came, map[string]uint64{})
	})
}

func TestPolicerIsReadBack(t *testing.T) {
	inBench(t, func(b *bench) {
		d := b.open()
		defer func() { b.check(d.Close()) }()
		is := func(want Policer) {
			b.Helper()
			if have, _, err := d.Port(b.a); err != nil || have.Police != want {
				b.Errorf("%+v, %v; want %+v", have.Police, err, want)
			}
			if have := must(d.Ports())[b.a].Police; have != want {
				b.Errorf("of all: %+v, want %+v", have, want)
			}
		}
		b.check(d.Add(b.a, Port{Mode: Kernel, MTU: 1500}))
		is(Policer{})
		for _, p := range []Policer{
			{Rate: 125_000, Burst: 15000}, {Rate: 125_000_000_000, Burst: 1 << 30}, {Rate: MinPolicedRate, Burst: 1 << 30, Single: true}, {},
		} {
			b.check(d.Set(b.a, Port{Mode: Kernel, MTU: 1500, Police: p}))
			is(p)
		}
		for _, p := range []Policer{{Rate: MinPolicedRate - 1, Burst: 1}, {Rate: 1e6}, {Burst: 1e6}} {
			if err := d.Set(b.a, Port{Mode: Kernel, MTU: 1500, Police: p}); err == nil {
				b.Errorf("%+v is taken", p)
			}
		}
	})
}

// Tokens that were taken stay taken when something else about the port changes.
func TestPolicerThatStaysKeepsItsTokens(t *testing.T) {
	inWorld(t, func(w *world) {
		frame := packet{to: macB, payload: 1400}.bytes()
		w.check(w.d.Add(w.a, Port{Mode: Kernel, MTU: 1500, Police: policed(1, len(frame))}))
		send := func() outcome { return w.send(frame, skbuff{}) }
		w.inBurst(verdictOK, 1, 2, len(frame), send)
		w.change(w.a, func(p *Port) { p.MTU = 1400 })
		w.change(w.a, func(p *Port) { p.MTU = 1500 })
		w.inBurst(verdictOK, 0, 1, len(frame), send)
		w.name = "another one"
		w.police(w.a, policed(2, len(frame)))
		w.inBurst(verdictOK, 2, 3, len(frame), send)
		w.name = "a new port"
		w.check(w.d.Forget(w.a))
		w.check(w.d.Add(w.a, Port{Mode: Kernel, MTU: 1500, Police: policed(2, len(frame))}))
		w.inBurst(verdictOK, 2, 3, len(frame), send)
	})
}

// Programs of the underlay follow what the host needs, too, where they are attached.
func TestProgramsOfTheUnderlayAreReplacedWhenTheHostNeedsMore(t *testing.T) {
	inBench(t, func(b *bench) {
		d := b.open()
		defer func() { b.check(d.Close()) }()
		b.check(d.SetUplink(b.b))
		b.check(d.AttachUplink(b.b))
		b.check(d.AttachUnderlay(b.a))
		attached := func() string { return b.tc("filter show dev pb ingress; tc filter show dev pa ingress") }
		ids := func() map[string]string {
			all := map[string]string{}
			for name, id := range b.ids(d) {
				all[name] = fmt.Sprintf("id %d ", id)
			}
			maps.DeleteFunc(all, func(name, _ string) bool {
				return name != objectProgUplinkIngress &&
					name != objectProgUnderlayIngress
			})
			return all
		}
		before := ids()
		const elsewhere = 9999 // the hook attaches nothing at a port without a device
		b.check(d.Add(elsewhere, Port{Mode: Kernel, MTU: 1500, Police: Policer{Rate: 1e6, Burst: 1e6}}))
		now := ids()
		if cmp.Equal(before, now) {
			b.Error("programs are the same")
		}
		for name, id := range now {
			if have := attached(); !strings.Contains(have, name) || !strings.Contains(have, id) {
				b.Errorf("%s is %s, and attached are %s", name, id, have)
			}
		}
		b.check(d.DetachUnderlay(b.a))
		left := b.tc("filter show dev pa ingress")
		b.check(d.Set(elsewhere, Port{Mode: Queue, Peer: b.b, MTU: 1500}))
		if have := b.tc("filter show dev pa ingress"); strings.Contains(have, objectProgUnderlayIngress) ||
			have != left {
			b.Errorf("attached again: %s", have)
		}
	})
}

// A frame that labels have made longer comes to the last link again, before a packet program; single frames of a
// super-frame, to all links but the first.
func TestPolicersTakeNothingOfFramesThatComeAgain(t *testing.T) {
	inProgramWorld(t, func(w *world, n *node.Nodes) {
		l := w.line(2)
		w.space(l)
		in, out := w.port(mac(50)), w.port(mac(51))
		w.join(l.out[1], in)
		w.join(out, l.end)
		w.check(n.Set("x", made(w.compile(forward), in, out)))
		w.ftn(l, 1, l.ahead(1, Label{Label: 100}))
		p := packet{tcp: true, payload: 3000}
		w.change(w.a, func(r *Port) { r.Plain = w.b })
		const label = 4 // bytes
		for _, c := range []struct {
			name  string
			frame packet
			gso   uint32
			taken map[int]int
		}{
			{"grown", packet{payload: 1000}, 0, map[int]int{w.a: 1042, l.out[0]: 1042, l.out[1]: 0}},
			{"super-frame", p, 1000, map[int]int{w.a: 3162, l.out[0]: 0, l.out[1]: 0}},
		} {
			for port := range c.taken {
				w.police(port, Policer{})
				w.police(port, Policer{Rate: MinPolicedRate, Burst: 10000})
			}
			w.name = c.name
			before := w.now()
			have := w.send(c.frame.bytes(), skbuff{GSOSize: c.gso})
			if have.Verdict != verdictRedirect || have.Counted[fmt.Sprintf("policed %d", l.out[1])] != 0 {
				w.Fatalf("verdict %d, %v", have.Verdict, have.Counted)
			}
			for port, want := range c.taken {
				var m objectMeter
				w.check(w.d.maps.Meters.Lookup(firstPolicer+uint32(port), &m))
				taken := (int(m.BytesFull) - int(before)) * MinPolicedRate / 1e9
				late := int(w.now()-before) * MinPolicedRate / 1e9
				if taken > want+late+1 || taken < want-4*label-1 {
					w.Errorf("%d bytes were taken at port %d, want %d", taken, port, want)
				}
			}
		}
	})
}
