package datapath

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/node"
)

// chain makes nodes in a line, from w.a to a host, that send on what comes in.
func (w *world) chain(n *node.Nodes, length int) (names []string, end int) {
	object, from := w.compile(forward), w.a
	for i := range length {
		in, out := w.port(mac(400+2*i)), w.port(mac(401+2*i))
		w.join(from, in)
		name := fmt.Sprintf("n%d", i)
		w.check(n.Set(name, made(object, in, out)))
		names, from = append(names, name), out
	}
	end = w.port(macB)
	w.join(from, end)
	return names, end
}

// 33 calls are possible for one frame, two for each node: then it enters anew, and nothing is lost.
func TestLiveFrameMeetsMorePacketProgramsThanCanBeCalled(t *testing.T) {
	inLiveProgramWorld(t, func(w *world, n *node.Nodes) {
		const length, frames = 40, 10
		names, end := w.chain(n, length)
		f := ethernet(macB, macA, 0x88b5, 46)
		for i := range frames {
			w.name = fmt.Sprintf("frame %d", i)
			w.expectReceived(f, arrival{end, unix.PACKET_HOST, f})
		}
		for _, name := range names {
			if c := must(n.Counters(name)); c["frames in"] != frames || c["verdict send"] != frames {
				w.Errorf("%s counted %v", name, c)
			}
		}
	})
}

// A protocol without a hop limit, in a circle of nodes.
func TestLiveLoopOfPacketProgramsEnds(t *testing.T) {
	inLiveProgramWorld(t, func(w *world, n *node.Nodes) {
		const maxMet = 255 // MAX_MET in bpf/node.h
		round := w.compile("PERGOLA_PARSE(packet) { packet->output = 2; return PERGOLA_SEND; }")
		in, out, back := w.port(mac(1)), w.port(mac(2)), w.port(mac(3))
		there, again := w.port(mac(4)), w.port(mac(5))
		w.join(w.a, in)
		w.join(out, there)
		w.join(again, back)
		w.check(n.Set("x", made(round, in, out, back)))
		w.check(n.Set("y", made(round, there, again)))
		for i := range uint64(5) {
			w.check(w.say(w.a, ethernet(macB, macA, 0x88b5, 46)))
			w.await("the frame's end", func() bool { return must(n.Counters("y"))["fault loop"] == i+1 })
		}
		x, y := must(n.Counters("x")), must(n.Counters("y"))
		if x["verdict send"]+y["verdict send"] != 5*maxMet || x["fault loop"] != 0 {
			w.Errorf("counted %v and %v", x, y)
		}
	})
}

// Tunnels carry on how many packet programs a frame has met: from one into the next, by XDP and by tc.
func TestTunnelsCountThePacketProgramsThatFramesMeet(t *testing.T) {
	// What the TTL of an outer packet becomes behind a program and a tunnel; 0: the frame has met too many.
	ttls := map[uint8]uint8{255: 253, 200: 198, 4: 2, 3: 1, 2: 1, 1: 0}
	inProgramMachine(t, func(w *world, n *node.Nodes) {
		w.handOver(true)
		object := w.compile(forward)
		for _, in := range sorts {
			out := in
			in.Key, out.Key, out.Peer = 100, 200, third4
			if out.Local.Is6() {
				out.Peer = third6
			}
			in.CountsMet, out.CountsMet = true, true
			a, b := w.port(mac(50)), w.port(mac(51))
			w.tunnelled(a, in)
			w.tunnelled(b, out)
			w.check(n.Set("x", made(object, a, b)))
			for came, goes := range ttls {
				w.name = fmt.Sprintf("%s, by XDP, TTL %d", in.named(), came)
				outer := around{ttl: came, to: macHere, from: macThere}
				w.counts(n, in, out, outer, goes, w.card, xdpTX)
				w.name = fmt.Sprintf("%s, by tc, TTL %d", in.named(), came)
				w.counts(n, in, out, around{ttl: came}, goes, w.receive, verdictRedirect)
			}
			w.check(n.Delete("x"))
			for port := range must(w.d.Tunnels()) {
				w.check(w.d.Forget(port))
			}
		}
	})
}

// counts sends a frame from tunnel to tunnel, through node x. It leaves with another TTL; 0: it does not leave.
func (w *world) counts(
	n *node.Nodes, in, out Tunnel, came around, goes uint8, by func([]byte) outcome, verdict uint32,
) {
	w.Helper()
	f, before := ethernet(macB, macA, 0x88b5, 46), must(n.Counters("x"))["fault loop"]
	have := by(in.turned().outer(f, came))
	dropped := must(n.Counters("x"))["fault loop"] - before
	if goes == 0 {
		if have.Verdict == verdict || dropped != 1 {
			w.Errorf("verdict %d, %d were dropped", have.Verdict, dropped)
		}
		return
	}
	o := entropyOf(out, have.Frame)
	o.ttl, o.to, o.from = goes, came.from, came.to
	if diff := cmp.Diff(out.outer(f, o), have.Frame); diff != "" || have.Verdict != verdict || dropped != 0 {
		w.Errorf("verdict %d, %d were dropped (-want +have):\n%s", have.Verdict, dropped, diff)
	}
}

// A protocol without a hop limit, in a circle of nodes on two machines, each of which sees half of it.
func TestLoopOfPacketProgramsOverTunnelsEnds(t *testing.T) {
	inProgramMachine(t, func(w *world, n *node.Nodes) {
		w.handOver(true)
		in := sorts[0]
		in.CountsMet = true
		out := in
		out.Key, out.Peer = in.Key+1, third4
		a, b := w.port(mac(50)), w.port(mac(51))
		w.tunnelled(a, in)
		w.tunnelled(b, out)
		w.check(n.Set("x", made(w.compile(forward), a, b)))
		f, ttl := ethernet(macB, macA, 0x88b5, 46), uint8(255)
		const most = 255 // MAX_MET in bpf/node.h
		for range most {
			have := w.card(in.turned().outer(f, around{to: macHere, from: macThere, ttl: ttl}))
			if have.Verdict == xdpDrop {
				break
			}
			ttl = have.Frame[14+8] // the next machine sends it on as it is
		}
		// A program and a tunnel in each round.
		c := counted(n, "x")
		if sent := c["verdict send"]; c["fault loop"] != 1 || sent > most/2+1 || sent < most/3 {
			w.Errorf("counted %v", c)
		}
	})
}

// Switches that flood in circles, each copy again, stop when the last copies have met as many nodes as they may.
func TestLiveStormOfPacketProgramsEnds(t *testing.T) {
	inLiveProgramWorld(t, func(w *world, n *node.Nodes) {
		hub := w.compile(`PERGOLA_PARSE(packet)
{
	packet->flood = packet->interfaces & ~(1ULL << (packet->interface & 63));
	return PERGOLA_FLOOD;
}`)
		const nodes = 4 // each joined with each
		ports := map[int][]int{}
		for i := range nodes {
			for j := range i {
				a, b := w.port(mac(600+10*i+j)), w.port(mac(600+10*j+i))
				w.join(a, b)
				ports[i], ports[j] = append(ports[i], a), append(ports[j], b)
			}
		}
		first := w.port(mac(1))
		w.join(w.a, first)
		ports[0] = append(ports[0], first)
		for i := range nodes {
			w.check(n.Set(fmt.Sprint(i), made(hub, ports[i]...)))
		}
		total := func() (all map[string]uint64) {
			all = map[string]uint64{}
			for i := range nodes {
				for what, count := range must(n.Counters(fmt.Sprint(i))) {
					all[what] += count
				}
			}
			return all
		}
		w.check(w.say(w.a, ethernet([6]byte{255, 255, 255, 255, 255, 255}, macA, 0x88b5, 46)))
		last := map[string]uint64{}
		w.await("the storm's end", func() bool {
			now := total()
			same := maps.Equal(now, last) && now["frames in"] > nodes
			last = now
			time.Sleep(50 * time.Millisecond) // the window in which nothing may be counted
			return same
		})
		t.Log(last)
		if last["copies flooded"] == 0 || last["fault storm"]+last["fault loop"] == 0 {
			w.Errorf("the storm was %v", last)
		}
		w.receiveAll()
	})
}
