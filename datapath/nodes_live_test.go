package datapath

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/node"
	"github.com/pergola-net/pergola/lab/testkit"
)

// inLiveProgramWorld is inProgramWorld with devices and stations. The test runs as inProgramWorldEveryWay has it; where
// the processor is emulated, only with frames that come in by tc: each way takes minutes there.
func inLiveProgramWorld(t *testing.T, f func(w *world, n *node.Nodes)) {
	t.Helper()
	if testkit.InVM() {
		t.Run("tc", func(t *testing.T) { inTCProgramWorld(t, f) })
		return
	}
	inProgramWorldEveryWay(t, f)
}

// inProgramWorldEveryWay runs a test with frames that come in by tc, with such as come in by a line card and are handed
// over to tc behind the first packet program, and with such as stay in XDP as long as they can.
func inProgramWorldEveryWay(t *testing.T, f func(w *world, n *node.Nodes)) {
	t.Helper()
	t.Run("tc", func(t *testing.T) { inTCProgramWorld(t, f) })
	for name, takesXDP := range map[string]bool{"handed over": false, "XDP": true} {
		t.Run(name, func(t *testing.T) {
			inTCProgramWorld(t, func(w *world, n *node.Nodes) {
				w.takesXDP = takesXDP
				defer w.behindLineCard()()
				f(w, n)
			})
		})
	}
}

// inTCProgramWorld is inLiveProgramWorld without a line card.
func inTCProgramWorld(t *testing.T, f func(w *world, n *node.Nodes)) {
	t.Helper()
	inLiveWorld(t, func(w *world) {
		n := must(node.Open(w.d.Nodes()))
		defer w.end(n)
		f(w, n)
	})
}

// star makes the ports of a node with a host at each: the first one is that of w.a.
func (w *world) star(interfaces int) (ports, hosts []int) {
	for i := range interfaces {
		host := w.a
		if i > 0 {
			host = w.port(mac(100 + i))
		}
		ports, hosts = append(ports, w.port(mac(200+i))), append(hosts, host)
		w.join(ports[i], host)
	}
	return ports, hosts
}

// obedient does what the frame says: verdict, output, flood, and how to change it.
const obedient = `
struct order { uint8_t verdict, output, flood, change; };

PERGOLA_PARSE(packet)
{
	struct ethernet_header *eth = pergola_header(packet, 0, struct ethernet_header), was = *eth;
	struct order o = *pergola_header(packet, PERGOLA_ETHERNET, struct order);

	packet->output = o.output;
	packet->flood = o.flood;
	if (o.change == 1)
		eth->type = pergola_htons(0x88b6);
	if (o.change == 2 && pergola_grow(packet, 4)) {
		*pergola_header(packet, -4, struct ethernet_header) = was;
		pergola_header(packet, -4, struct ethernet_header)->type = pergola_htons(0x88b7);
	}
	return o.verdict;
}
`

// order is a frame that gives orders.
func order(to [6]byte, orders ...byte) []byte {
	f := ethernet(to, macA, 0x88b5, 46)
	copy(f[14:], make([]byte, 46))
	copy(f[14:], orders)
	return f
}

// The verdicts of parse.
const (
	doDrop = iota
	_
	doSend
	doFlood
	doUDP
	doPunt
)

func TestLivePacketProgramIsObeyed(t *testing.T) {
	inProgramWorldEveryWay(t, func(w *world, n *node.Nodes) {
		ports, hosts := w.star(4)
		x := made(w.compile(obedient), ports...)
		w.check(n.Set("x", x))
		all := map[string]uint64{}
		counts := func(what ...string) {
			for _, c := range what {
				all[c]++
			}
			all["frames in"]++
			have := counted(n, "x")
			delete(have, "bytes in")
			if diff := cmp.Diff(all, have); diff != "" {
				w.Errorf("counted (-want +have):\n%s", diff)
			}
		}
		w.name = "send"
		f := order(mac(102), doSend, 3)
		w.expectReceived(f, arrival{hosts[2], unix.PACKET_HOST, f})
		counts("verdict send")

		w.name = "send back"
		f = order(mac(1), doSend, 1)
		w.expectReceived(f, arrival{hosts[0], unix.PACKET_OTHERHOST, f})
		counts("verdict send")

		w.name = "flood"
		f = order([6]byte{255, 255, 255, 255, 255, 255}, doFlood, 0, 1<<2|1<<3|1<<4|1<<5)
		w.expectFlood(f, arrival{hosts[1], unix.PACKET_BROADCAST, f},
			arrival{hosts[2], unix.PACKET_BROADCAST, f}, arrival{hosts[3], unix.PACKET_BROADCAST, f})
		all["copies flooded"] = 2
		counts("verdict flood")

		w.name = "punt"
		f = order(mac(200), doPunt, 0, 0, 1) // what the program changed is not what the node gets
		w.expectReceived(f, arrival{ports[0], unix.PACKET_HOST, f})
		counts("verdict punt")

		w.name = "change the type"
		f = order(mac(102), doSend, 3, 0, 1)
		g := slices.Clone(f)
		g[13] = 0xb6
		w.expectReceived(f, arrival{hosts[2], unix.PACKET_HOST, g})
		counts("verdict send")

		w.name = "grow"
		f = order(mac(102), doSend, 3, 0, 2)
		g = append(slices.Clone(f[:14]), f[10:]...)
		g[13] = 0xb7
		w.expectReceived(f, arrival{hosts[2], unix.PACKET_HOST, g})
		counts("verdict send")

		for fault, orders := range map[string][]byte{
			"verdict drop": {doDrop}, "fault bad verdict": {77}, "fault no udp": {doUDP},
			"fault no interface": {doSend, 5},
		} {
			w.name = fault
			w.drops(n, order(mac(102), orders...))
			counts(fault)
		}
		w.name = "flood to nobody"
		w.drops(n, order(mac(102), doFlood, 0, 1))
		counts("fault no interface")

		w.name = "no slow path"
		x.SlowPath, x.Digest = node.SlowNone, "other"
		w.check(n.Set("x", x))
		w.drops(n, order(mac(102), doPunt))
		counts("fault no slow path")
		w.name = ""
		if got := w.receiveAll(); len(got) > 0 {
			w.Errorf("received in the end: %v", got)
		}
	})
}

// drops sends a frame that the node x drops.
func (w *world) drops(n *node.Nodes, frame []byte) {
	w.Helper()
	before := must(n.Counters("x"))["frames in"]
	w.check(w.say(w.a, frame))
	w.await("the node to have the frame", func() bool { return must(n.Counters("x"))["frames in"] > before })
}

// awaitActive waits until a device sends: the kernel drops what comes before its queue is active, by linkwatch.
func (w *world) awaitActive(device string) {
	w.Helper()
	w.await(device, func() bool {
		out, err := exec.CommandContext(w.Context(), "ip", "-o", "link", "show", device).Output()
		says := string(out)
		return err == nil && strings.Contains(says, "LOWER_UP") && !strings.Contains(says, "qdisc noop ")
	})
}

func (w *world) await(what string, is func() bool) {
	w.Helper()
	patience := 5 * time.Second
	if testkit.InVM() { // an emulated processor
		patience = time.Minute
	}
	err := testkit.Poll(func() error {
		if is() {
			return nil
		}
		return errors.New("it has not come")
	}, patience)
	if err != nil {
		w.Errorf("wait for %s: %v", what, err)
	}
}

// expectFlood is expectReceived where the order does not count.
func (w *world) expectFlood(sent []byte, want ...arrival) {
	w.Helper()
	w.check(w.say(w.a, sent))
	have := w.awaits(len(want))
	slices.SortFunc(have, func(a, b arrival) int { return a.Port - b.Port })
	if diff := cmp.Diff(want, have); diff != "" {
		w.Errorf("received (-want +have):\n%s", diff)
	}
}

// VLAN tags are in the frame that the program sees, and where they were when it leaves.
func TestLivePacketProgramSeesVLANTags(t *testing.T) {
	inLiveProgramWorld(t, func(w *world, n *node.Nodes) {
		ports, hosts := w.star(2)
		w.check(n.Set("x", made(w.compile(`
PERGOLA_PARSE(packet)
{
	uint16_t *tci = pergola_header(packet, 14, uint16_t);

	packet->output = 2;
	*tci = pergola_htons(pergola_ntohs(*tci) + 1);
	return pergola_header(packet, 0, struct ethernet_header)->type == pergola_htons(0x8100) ? PERGOLA_SEND :
		PERGOLA_DROP;
}
`), ports...)))
		for _, tags := range [][]byte{{0x81, 0, 0, 5}, {0x81, 0, 0, 5, 0x81, 0, 0, 9}} {
			f := ethernet(mac(101), macA, 0x88b5, 46)
			f = slices.Concat(f[:12], tags, f[12:])
			g := slices.Clone(f)
			g[15]++
			w.check(w.say(w.a, f))
			// A packet socket shows the outermost tag beside the frame.
			g = slices.Concat(g[:12], g[16:])
			if diff := cmp.Diff([]arrival{{hosts[1], unix.PACKET_HOST, g}}, w.awaits(1)); diff != "" {
				w.Errorf("%d bytes of tags (-want +have):\n%s", len(tags), diff)
			}
		}
		t.Log(counted(n, "x"))
	})
}

// Super-frames go round by a device that cuts them, and plain frames do not.
func TestLiveSuperFramesComeToPacketProgramsAsSingleFrames(t *testing.T) {
	inTCProgramWorld(t, func(w *world, n *node.Nodes) {
		const size, segment = 9000, 1200
		const frames = (size + segment - 1) / segment
		ports, hosts := w.star(2)
		w.check(n.Set("x", made(w.compile(forward), ports...)))
		refused := uint64(0)
		for _, v6 := range []bool{false, true} {
			f := newSuperFrame(mac(101), v6, size, segment)
			w.name = fmt.Sprintf("IPv6 %v, without the device", v6)
			w.check(w.stations[w.a].sendSuper(f.bytes()))
			w.await("the program to refuse it", func() bool {
				return must(n.Counters("x"))["fault not plain"] == refused+1
			})
			refused++
		}
		w.ip("link add qa type veth peer name qb")
		qa, qb := ifindex(w, "qa"), ifindex(w, "qb")
		tool := must(ethtool.NewEthtool())
		defer tool.Close()
		for name, q := range map[string]struct{ device, port int }{"qa": {qa, w.a}, "qb": {qb, ports[0]}} {
			w.check(tool.Change(name, map[string]bool{"tx-checksum-ip-generic": false}))
			w.check(w.d.Add(q.device, Port{Mode: Peer, Peer: q.port, MTU: 1500}))
			w.check(w.d.Attach(q.device))
			w.ip("link set %s up", name)
			w.change(q.port, func(p *Port) { p.Plain = q.device })
		}
		w.awaitActive("qa")
		w.awaitActive("qb")
		before := must(n.Counters("x"))["frames in"]
		for i, v6 := range []bool{false, true} {
			w.name = fmt.Sprintf("IPv6 %v", v6)
			f := newSuperFrame(mac(101), v6, size, segment)
			w.check(w.stations[w.a].sendSuper(f.bytes()))
			came := w.awaits(frames)
			f.expect(w, came)
			if c := must(n.Counters("x")); c["frames in"] != before+uint64(i+1)*frames {
				w.Errorf("counted %v", c)
			}
		}
		w.name = "plain"
		was := received(w, "qb")
		f := packet{to: mac(101)}.bytes()
		w.expectReceived(f, arrival{hosts[1], unix.PACKET_HOST, f})
		if now := received(w, "qb"); now != was || was != 2*frames {
			w.Errorf("%d frames went round, and with a plain one %d", was, now)
		}
	})
}

// received is how many frames came in at a device.
func received(w *world, device string) (frames int) {
	for line := range strings.Lines(string(must(os.ReadFile("/proc/thread-self/net/dev")))) {
		if name, rest, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name == device {
			var bytes int
			_, err := fmt.Sscan(rest, &bytes, &frames)
			w.check(err)
		}
	}
	return frames
}

// Headers that one node puts before a frame, and others take off, of a protocol that is not IP and of one that is.
func TestLivePacketProgramsGrowAndShrinkFrames(t *testing.T) {
	inLiveProgramWorld(t, func(w *world, n *node.Nodes) {
		const bytes = 100
		push := w.compile(fmt.Sprintf(`
PERGOLA_PARSE(packet)
{
	struct ethernet_header was = *pergola_header(packet, 0, struct ethernet_header), *eth;

	if (!pergola_grow(packet, %d))
		return PERGOLA_DROP;
	eth = pergola_header(packet, -%[1]d, struct ethernet_header);
	*eth = was;
	eth->type = pergola_htons(0x88b7);
	*pergola_header(packet, 14 - %[1]d, uint16_t) = was.type;
	packet->output = 2;
	return PERGOLA_SEND;
}`, bytes))
		pop := w.compile(fmt.Sprintf(`
PERGOLA_PARSE(packet)
{
	struct ethernet_header was = *pergola_header(packet, 0, struct ethernet_header), *eth;
	uint16_t type = *pergola_header(packet, 14, uint16_t);

	if (was.type != pergola_htons(0x88b7) || !pergola_shrink(packet, %d))
		return PERGOLA_DROP;
	eth = pergola_header(packet, %[1]d, struct ethernet_header);
	*eth = was;
	eth->type = type;
	packet->output = 2;
	return PERGOLA_SEND;
}`, bytes))
		_, end := w.chain(n, 4)
		for i, object := range [][]byte{push, push, pop, pop} {
			name := fmt.Sprintf("n%d", i)
			w.check(n.Set(name, made(object, must(n.List())[name].Ports...)))
		}
		for _, kind := range []uint16{0x0800, 0x88b5} {
			for _, length := range []int{60, 200, 256, 300, 1200} {
				w.name = fmt.Sprintf("%d bytes of type %#x", length, kind)
				f := ethernet(macB, macA, kind, length)
				for i := 14; i < length; i++ {
					f[i] = byte(i * 5)
				}
				w.expectReceived(f, arrival{end, unix.PACKET_HOST, f})
			}
		}
		if c := counted(n, "n3"); c["verdict send"] != 10 {
			w.Errorf("counted %v", c)
		}
	})
}
