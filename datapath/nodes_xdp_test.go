package datapath

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/node"
)

// handover makes the veth pair by which XDP hands frames over.
func (w *world) handover() (detach func()) {
	w.ip("link add ha mtu 65535 type veth peer name hb mtu 65535")
	w.ip("link set ha up")
	w.ip("link set hb up")
	from, to := ifindex(w, "ha"), ifindex(w, "hb")
	w.check(w.d.AttachHandover(from, to))
	tool := must(ethtool.NewEthtool())
	defer tool.Close()
	w.check(tool.Change("hb", map[string]bool{"rx-gro": false}))
	return func() { w.detachHandover(to) }
}

// detachHandover undoes DataPath.AttachHandover.
func (w *world) detachHandover(to int) {
	w.Helper()
	w.check(w.d.maps.Handovers.Delete(uint32(0)))
	w.d.programming.Lock()
	defer w.d.programming.Unlock()
	w.check(w.d.underlay.drop(to, objectProgTakenOver))
	w.check(w.d.detachXDP(to, handoverPin))
}

// behindLineCard makes the first port a network card's, with a line card.
func (w *world) behindLineCard() (detach func()) {
	down := w.handover()
	w.change(w.a, func(p *Port) { p.External = true })
	w.check(w.d.AttachPortLineCard(w.a, true))
	if w.takesXDP {
		w.check(w.d.AllowXDPToPort(w.a, w.a))
	}
	return func() {
		w.check(w.d.DetachPortLineCard(w.a))
		down()
	}
}

// A line card calls the packet program behind a router, and sends the frame on.
func TestLiveLineCardCallsPacketPrograms(t *testing.T) {
	inTCProgramWorld(t, func(w *world, n *node.Nodes) {
		l := w.line(1)
		in, out, end := w.port(mac(2)), w.port(mac(3)), w.port(macB)
		w.join(l.out[0], in)
		w.join(out, end)
		w.check(n.Set("x", made(w.compile(forward), in, out)))
		w.change(w.a, func(p *Port) { p.External = true })
		w.check(w.d.AttachPortLineCard(w.a, true))
		defer func() { w.check(w.d.DetachPortLineCard(w.a)) }()
		w.check(w.d.AllowXDPToPort(end, end))
		p := packet{}
		arrives := arrival{end, unix.PACKET_HOST, p.after(macB, mac(1), 1)}
		for i, c := range []struct {
			name   string
			set    func()
			counts []string
		}{
			{"nothing takes over: by tc", func() {}, []string{fmt.Sprintf("handed %d", end)}},
			{"by XDP", func() { w.handover() }, nil},
			{"by XDP, and at the end by tc", func() { w.check(w.d.DenyXDPToPort(end)) },
				[]string{fmt.Sprintf("handed %d", end)}},
		} {
			w.name = c.name
			c.set()
			w.take()
			w.expectReceived(p.bytes(), arrives)
			if diff := cmp.Diff(through(l.passed(1, c.counts...), in, out), w.take()); diff != "" {
				w.Errorf("counters (-want +have):\n%s", diff)
			}
			if c := must(n.Counters("x")); c["verdict send"] != uint64(i+1) {
				w.Errorf("counted %v", c)
			}
		}
		w.detachHandover(ifindex(w, "hb"))
	})
}

// Kinds of handovers (bpf/handover.h).
const (
	handsEnter = iota + 1
	handsPunt
	handsFlood
	handsSlow
	handsUDP
)

// handedOver is a frame as XDP hands it over.
func handedOver(frame []byte, words ...int) []byte {
	var tags []byte
	for _, word := range words {
		tags = append(tags, 0x88, 0xa8, byte(word>>8), byte(word))
	}
	return slices.Concat(frame[:12], tags, frame[12:])
}

// inProgramMachine is inProgramWorld with a network card, where tunnels end, and a device that takes frames over.
func inProgramMachine(t *testing.T, f func(w *world, n *node.Nodes)) {
	t.Helper()
	inRoutedWorld(t, func(w *world) {
		w.asked(never)
		n := must(node.Open(w.d.Nodes()))
		defer w.end(n)
		f(w, n)
	})
}

// handOver lets XDP hand frames over, or not.
func (w *world) handOver(on bool) {
	w.Helper()
	if on {
		w.check(w.d.maps.Handovers.Put(uint32(0), uint32(w.b)))
	} else {
		w.check(w.d.maps.Handovers.Delete(uint32(0)))
	}
}

// The line card of tunnels calls packet programs: from tunnel to tunnel in XDP alone.
func TestTunnelCardCallsPacketPrograms(t *testing.T) {
	inProgramMachine(t, func(w *world, n *node.Nodes) {
		object := w.compile(forward)
		w.betweenTunnels(func(in, out Tunnel, p packet, l line) {
			a, b := w.port(mac(50)), w.port(mac(51))
			w.join(l.out[1], a)
			w.check(n.Set("x", made(object, a, b)))
			came := in.turned().outer(p.bytes(), around{to: macHere, from: macThere})
			wanted := p.after(macB, mac(3), 2)
			last := w.tunnelled(b, out)

			w.expect(w.card(came), xdpPass, came, map[string]uint64{}) // nothing takes over
			w.handOver(true)
			have := w.card(came)
			o := entropyOf(out, have.Frame)
			o.to, o.from = macThere, macHere
			w.expect(have, xdpTX, out.outer(wanted, o),
				through(l.passed(2, Received, Sent, fmt.Sprintf("handed %d", last)), a, b))

			w.check(w.d.changeUplink(func(u *objectUplink) { u.Outside = 0 })) // XDP leads nowhere
			w.expect(w.card(came), xdpRedirect, handedOver(wanted, b, handsEnter|1<<8, 0),
				through(l.passed(2, Received), a, b))
			w.check(w.d.changeUplink(func(u *objectUplink) { u.Outside = uint32(w.b) }))
			if c := counted(n, "x"); c["frames in"] != 2 || c["verdict send"] != 2 || len(c) != 3 {
				w.Errorf("counted %v", c)
			}
			w.check(n.Delete("x"))
			w.handOver(false)
		})
	})
}

// What a handover says, by verdict; and what is dropped in XDP.
func TestXDPHandsOverWhatItCannotDo(t *testing.T) {
	inProgramMachine(t, func(w *world, n *node.Nodes) {
		w.handOver(true)
		ports := []int{w.port(mac(1)), w.port(mac(2)), w.port(mac(3))}
		tunnel := sorts[0]
		w.tunnelled(ports[0], tunnel)
		w.check(n.Set("x", made(w.compile(obedient), ports...)))
		number := int(must(w.numberOf(ports[0])))
		for name, c := range map[string]struct {
			orders []byte
			words  []int
			counts string
		}{
			"send":              {[]byte{doSend, 2}, []int{ports[1], handsEnter | 1<<8, 0}, "verdict send"},
			"punt":              {[]byte{doPunt}, []int{ports[0], handsPunt | 1<<8, 0}, "verdict punt"},
			"drop":              {[]byte{doDrop}, nil, "verdict drop"},
			"no such interface": {[]byte{doSend, 4}, nil, "fault no interface"},
			"flood to nobody":   {[]byte{doFlood, 0, 1 << 5}, nil, "fault no interface"},
			"flood": {[]byte{doFlood, 0, 1<<2 | 1<<3 | 1<<5},
				[]int{ports[0], handsFlood | 1<<8, 0, number, 1<<2 | 1<<3, 0, 0, 0}, ""},
			"UDP":         {[]byte{doUDP}, nil, "fault no udp"},
			"bad verdict": {[]byte{99}, nil, "fault bad verdict"},
		} {
			w.name = name
			before := must(n.Counters("x"))
			f := order(mac(102), c.orders...)
			have := w.card(tunnel.turned().outer(f, around{to: macHere, from: macThere}))
			if c.words != nil {
				want := map[string]uint64{Received: 1}
				if name != "punt" { // what the node's kernel gets is counted where it is handed to it
					want[fmt.Sprintf("walked in %d", ports[0])] = 1
				}
				if name == "send" {
					want[fmt.Sprintf("walked out %d", ports[1])] = 1
				}
				w.expect(have, xdpRedirect, handedOver(f, c.words...), want)
			} else if have.Verdict != xdpDrop {
				w.Errorf("verdict %d", have.Verdict)
			}
			after := must(n.Counters("x"))
			counted := c.counts == "" || after[c.counts] == before[c.counts]+1
			if !counted || after["frames in"] != before["frames in"]+1 {
				w.Errorf("counted %v, and before %v", after, before)
			}
		}
	})
}

// The room before a frame in XDP is bounded. Where a punt to a socket finds too little for the header or for the
// handover, because another program has made the frame longer, it is a fault, and nothing else is counted.
func TestXDPCountsAFrameOnceWhereThereIsNoRoom(t *testing.T) {
	const growing = `
PERGOLA_PARSE(packet)
{
	uint8_t more = *pergola_header(packet, PERGOLA_ETHERNET, uint8_t);

	packet->output = 2;
	return pergola_grow(packet, more) ? PERGOLA_SEND : PERGOLA_DROP;
}`
	const punting = "PERGOLA_PARSE(packet) { return packet ? PERGOLA_PUNT : PERGOLA_DROP; }"
	inProgramMachine(t, func(w *world, n *node.Nodes) {
		w.handOver(true)
		in, out, port, tunnel := w.port(mac(1)), w.port(mac(2)), w.port(mac(3)), sorts[0]
		w.tunnelled(in, tunnel)
		w.join(out, port)
		w.check(n.Set("longer", made(w.compile(growing), in, out)))
		x := made(w.compile(punting), port)
		x.SlowPath = node.SlowSocket
		w.check(n.Set("x", x))
		const most = 128 // PERGOLA_HEADROOM
		fits := -1
		for more := range most + 1 {
			w.name = fmt.Sprintf("%d bytes longer", more)
			before := must(n.Counters("x"))
			f := order(mac(102), byte(more))
			have := w.card(tunnel.turned().outer(f, around{to: macHere, from: macThere}))
			after := must(n.Counters("x"))
			grew := map[string]uint64{}
			for what, value := range after {
				if value != before[what] && what != "bytes in" {
					grew[what] = value - before[what]
				}
			}
			want, verdict := map[string]uint64{"frames in": 1, "fault no room": 1}, uint32(xdpDrop)
			if have.Verdict == xdpRedirect {
				fits = more
				want = map[string]uint64{"frames in": 1, "verdict punt": 1, "slow path handed": 1}
				verdict = xdpRedirect
			}
			if diff := cmp.Diff(want, grew); diff != "" || have.Verdict != verdict {
				w.Errorf("verdict %d, counted (-want +have):\n%s", have.Verdict, diff)
			}
		}
		if fits < 0 || fits == most {
			w.Errorf("frames fit that are up to %d bytes longer", fits)
		}
		w.Logf("frames fit that are up to %d bytes longer", fits)
	})
}

// numberOf is the number of the node that has the port.
func (w *world) numberOf(port int) (uint32, error) {
	var l objectLeg
	err := w.d.maps.Legs.Lookup(uint32(port), &l)
	return l.Router, err
}

// Each frame meets a packet program once, by whatever way it came, and whatever is behind: what the program counts, in
// memory and in counters, what the platform counts, and what receivers get are the same.
func TestLiveEachFrameMeetsAProgramOnce(t *testing.T) {
	const once = `
PERGOLA_MEMORY(uint32_t, 1);
PERGOLA_COUNTERS { uint64_t seen; };
PERGOLA_PARSE(packet)
{
	uint32_t *m = pergola_memory(0);

	pergola_count(seen);
	if (m)
		*pergola_header(packet, 42, uint32_t) = __sync_fetch_and_add(m, 1);
	packet->output = 2;
	packet->flood = 6;
	return %s;
}`
	const frames = 50
	for name, c := range map[string]struct {
		verdict string
		behind  func(w *world, n *node.Nodes, out, end int) (receiver int)
	}{
		"a host": {"PERGOLA_SEND", func(w *world, _ *node.Nodes, out, end int) int {
			w.join(out, end)
			return end
		}},
		"a queue": {"PERGOLA_SEND", func(w *world, _ *node.Nodes, out, end int) int {
			w.join(out, end)
			w.change(out, func(p *Port) { p.Mode = Queue })
			return end
		}},
		"a bridge": {"PERGOLA_SEND", func(w *world, _ *node.Nodes, out, end int) int {
			w.change(out, func(p *Port) { p.Mode = Kernel })
			w.change(end, func(p *Port) { p.Mode = Kernel })
			w.ip("link add bridge up type bridge mcast_snooping 0")
			for _, port := range []int{out, end} {
				w.ip("link set %s master bridge", device(w, port))
			}
			return end
		}},
		"a router that punts": {"PERGOLA_SEND", func(w *world, _ *node.Nodes, out, _ int) int {
			in, far := w.port(macB), w.port(mac(77))
			next := w.nexthop(unresolved, far, [6]byte{})
			id := w.router(table{"0.0.0.0/0": next, "::/0": next})
			leg := objectLeg{Router: id, Mtu: 1500, Mac: macB, Flags: legAll}
			w.leg(in, func(l *objectLeg) { *l = leg })
			w.join(out, in)
			return in
		}},
		"a policer": {"PERGOLA_SEND", func(w *world, _ *node.Nodes, out, end int) int {
			w.join(out, end)
			w.change(out, func(p *Port) { p.Police = Policer{Rate: 1e9, Burst: 1 << 20} })
			return end
		}},
		"20 other programs": {"PERGOLA_SEND", func(w *world, n *node.Nodes, out, end int) int {
			object := w.compile(forward)
			for i := range 20 {
				in, next := w.port(mac(400+2*i)), w.port(mac(401+2*i))
				w.join(out, in)
				w.check(n.Set(fmt.Sprintf("n%d", i), made(object, in, next)))
				out = next
			}
			w.join(out, end)
			return end
		}},
		"copies": {"PERGOLA_FLOOD", func(w *world, _ *node.Nodes, out, end int) int {
			w.join(out, end)
			return end
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inLiveProgramWorld(t, func(w *world, n *node.Nodes) {
				in, out, end := w.port(mac(1)), w.port(mac(2)), w.port(macB)
				w.join(w.a, in)
				w.check(n.Set("x", made(w.compile(fmt.Sprintf(once, c.verdict)), in, out)))
				receiver := c.behind(w, n, out, end)
				copies := 1
				if c.verdict == "PERGOLA_FLOOD" {
					copies = 2 // one comes back
				}
				for i := range uint32(frames) {
					w.check(w.say(w.a, packet{to: macB}.bytes()))
					met := 0
					for _, a := range w.awaits(copies) {
						if a.Port == receiver {
							met++
						}
						if stamp := binary.NativeEndian.Uint32(a.Frame[42:]); stamp != i {
							w.Errorf("frame %d was number %d to the program", i, stamp)
						}
					}
					if met != 1 {
						w.Errorf("frame %d was received %d times", i, met)
						return
					}
				}
				if c := must(n.Counters("x")); c["seen"] != frames || c["frames in"] != frames {
					w.Errorf("counted %v", c)
				}
			})
		})
	}
}
