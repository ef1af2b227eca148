package datapath

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/node"
	"github.com/pergola-net/pergola/kernel/tap"
	"github.com/pergola-net/pergola/lab/testkit"
)

// slowHeader is struct pergola_slow in pergola/slow.h.
type slowHeader struct {
	Zero         [12]byte
	EtherType    uint16
	Version      uint8
	Kind         uint8
	Header       uint16
	Interface    uint16
	Reason       uint32
	Flow         uint32
	Queue        uint32
	Time         uint64
	Length       uint32
	OuterPort    uint16
	Table        uint16
	OuterAddress [16]byte
	Key          [64]byte
}

const (
	slowPunted = 1 + iota
	slowSend
	slowEnter

	slowSize = 128
)

func written(kind uint8, iface uint16, frame []byte) []byte {
	h := slowHeader{EtherType: 0x0800, Version: 1, Kind: kind, Header: slowSize, Interface: iface}
	return append(must(binary.Append(nil, binary.BigEndian, h)), frame...)
}

func (w *world) tap(n *node.Nodes, name string) int {
	index, ok, err := n.Tap(name)
	w.check(err)
	if !ok {
		w.Errorf("the slow path of %s is no tap device", name)
	}
	return index
}

// slowPath opens the tap device of a node as a process in its sliver would have it.
func (w *world) slowPath(n *node.Nodes, name string) *os.File {
	f := must(tap.Open("slow0", w.tap(n, name)))
	w.ip("link set slow0 up")
	w.check(w.d.Attach(ifindex(w, "slow0")))
	return f
}

// punted reads the next frame that the program punted.
func (w *world) punted(f *os.File) (h slowHeader, frame []byte) {
	w.Helper()
	w.await("a punted frame", func() bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}, 0)
		return n == 1 && err == nil
	})
	buf := make([]byte, 1<<16)
	got, err := unix.Read(int(f.Fd()), buf)
	w.check(err)
	w.check(binary.Read(bytes.NewReader(buf[:max(got, slowSize)]), binary.BigEndian, &h))
	return h, buf[slowSize:max(got, slowSize)]
}

// clerk punts what it is not told to do otherwise, with a key, a reason and a flow.
const clerk = `
struct order { uint8_t verdict, output, reason, cut; };
PERGOLA_KEY { uint32_t orders, interface; };

PERGOLA_PARSE(packet)
{
	struct order *o = pergola_header(packet, PERGOLA_ETHERNET, struct order);

	pergola_key(packet)->orders = *(uint32_t *)o;
	pergola_key(packet)->interface = packet->interface;
	packet->output = o->output;
	packet->reason = o->reason;
	packet->flow = 99;
	packet->table = 3;
	if (!o->cut)
		return o->verdict;
	*pergola_header(packet, 20, struct ethernet_header) = *pergola_header(packet, 0, struct ethernet_header);
	return pergola_shrink(packet, 20) ? o->verdict : PERGOLA_DROP;
}
`

func inSlowWorld(t *testing.T, f func(w *world, n *node.Nodes, slow *os.File, hosts []int)) {
	t.Helper()
	in := inLiveProgramWorld
	if testkit.InVM() { // an emulated processor
		in = inTCProgramWorld
	}
	in(t, func(w *world, n *node.Nodes) {
		ports, hosts := w.star(3)
		x := made(w.compile(clerk), ports...)
		x.SlowPath = node.SlowSocket
		w.check(n.Set("x", x))
		slow := w.slowPath(n, "x")
		defer func() { w.check(slow.Close()) }()
		w.awaitActive("slow0")
		f(w, n, slow, hosts)
	})
}

func TestLivePuntsReachTheSlowPathWithKeyAndReason(t *testing.T) {
	inSlowWorld(t, func(w *world, n *node.Nodes, slow *os.File, _ []int) {
		for _, length := range []int{18, 60, 1514} {
			f := append(order(mac(200), doPunt, 0, 77), make([]byte, 1500)...)[:length]
			w.check(w.say(w.a, f))
			h, got := w.punted(slow)
			if !bytes.Equal(got, f) {
				w.Errorf("punted\n%s, want\n%s", hex.Dump(got), hex.Dump(f))
			}
			if h.Time == 0 {
				w.Errorf("a punt at no time")
			}
			want := slowHeader{EtherType: 0x0800, Version: 1, Kind: slowPunted, Header: slowSize,
				Interface: 1, Reason: 77, Flow: 99, Table: 3, Length: uint32(length), Time: h.Time}
			copy(want.Key[:], []byte{doPunt, 0, 77, 0, 1})
			if h != want {
				w.Errorf("header %+v, want %+v", h, want)
			}
		}
		if c := counted(n, "x"); c["verdict punt"] != 3 {
			w.Errorf("counted %v", c)
		}
	})
}

func TestLiveSlowPathSendsFrames(t *testing.T) {
	inSlowWorld(t, func(w *world, n *node.Nodes, slow *os.File, hosts []int) {
		for i, length := range []int{14, 15, 33, 34, 60, 1514} {
			for _, kind := range []uint16{0x0800, 0x86dd, 0x88b5} {
				f := ethernet(mac(102), macA, kind, length)
				w.name = fmt.Sprintf("%d bytes of type %04x", length, kind)
				must(slow.Write(written(slowSend, 3, f)))
				w.expectArrivals(arrival{hosts[2], unix.PACKET_HOST, f})
			}
			if c := counted(n, "x"); c["slow path wrote"] != uint64(3*(i+1)) || c["frames in"] != 0 {
				w.Errorf("counted %v", c)
			}
		}
	})
}

func (w *world) expectArrivals(want ...arrival) {
	w.Helper()
	if diff := cmp.Diff(want, w.awaits(len(want))); diff != "" {
		w.Errorf("received (-want +have):\n%s", diff)
	}
}

func TestLiveSlowPathGivesFramesToTheProgram(t *testing.T) {
	inSlowWorld(t, func(w *world, n *node.Nodes, slow *os.File, hosts []int) {
		f := order(mac(102), doSend, 3)
		must(slow.Write(written(slowEnter, 2, f)))
		w.expectArrivals(arrival{hosts[2], unix.PACKET_HOST, f})
		f = order(mac(200), doPunt, 0, 5)
		must(slow.Write(written(slowEnter, 2, f)))
		if h, got := w.punted(slow); h.Interface != 2 || h.Reason != 5 || !bytes.Equal(got, f) {
			w.Errorf("it came back as %+v\n%s", h, hex.Dump(got))
		}
		if c := counted(n, "x"); c["slow path wrote"] != 2 || c["frames in"] != 2 || c["verdict send"] != 1 {
			w.Errorf("counted %v", c)
		}
	})
}

// The tap is one call more than a port: the limit of 33 calls must not fall on a call that loses the frame.
func TestLiveFrameOfTheSlowPathPassesMoreProgramsThanTheLimitOfCalls(t *testing.T) {
	inSlowWorld(t, func(w *world, n *node.Nodes, slow *os.File, hosts []int) {
		const programs = 20
		object, out := w.compile(forward), must(n.List())["x"].Ports[2]
		for i := range programs {
			in, next := w.port(mac(400+2*i)), w.port(mac(401+2*i))
			w.join(out, in)
			w.check(n.Set(fmt.Sprintf("n%d", i), made(object, in, next)))
			out = next
		}
		w.join(out, hosts[2])
		f := order(mac(102), doSend, 3)
		for kind, name := range map[uint8]string{slowSend: "sent", slowEnter: "entered"} {
			w.name = name
			must(slow.Write(written(kind, 3, f)))
			w.expectArrivals(arrival{hosts[2], unix.PACKET_HOST, f})
		}
		if c := counted(n, "n19"); c["verdict send"] != 2 {
			w.Errorf("the last program counted %v", c)
		}
	})
}

func TestLiveWhatTheSlowPathWritesBadlyGoesNowhere(t *testing.T) {
	inSlowWorld(t, func(w *world, n *node.Nodes, slow *os.File, hosts []int) {
		f := order(mac(102), doSend, 3)
		good := written(slowSend, 3, f)
		change := func(at int, value byte) []byte {
			b := bytes.Clone(good)
			b[at] = value
			return b
		}
		for _, bad := range []struct {
			fault string
			frame []byte
		}{
			{"bad header", f},
			{"bad header", good[:100]},
			{"bad header", good[:slowSize]},
			{"bad header", good[:slowSize+13]},
			{"bad header", change(12, 0x86)},
			{"bad header", change(14, 2)},
			{"bad header", change(15, 0)},
			{"bad header", change(15, slowPunted)},
			{"bad header", change(15, 200)},
			{"bad header", change(17, 127)},
			{"no interface", change(19, 0)},
			{"no interface", change(19, 4)},
			{"no interface", change(18, 0xff)},
			{"no interface", written(slowEnter, 9, f)},
		} {
			before := counted(n, "x")["fault "+bad.fault]
			must(slow.Write(bad.frame))
			if after := counted(n, "x")["fault "+bad.fault]; after != before+1 {
				w.Errorf("%x: counted %v", bad.frame[:20], counted(n, "x"))
			}
		}
		random := rand.New(rand.NewPCG(1, 2))
		for range 2000 {
			b := bytes.Clone(good[:14+random.IntN(len(good)-14)])
			for range 1 + random.IntN(8) {
				b[random.IntN(len(b))] = byte(random.Uint32())
			}
			if len(b) > 20 && b[15] != slowPunted {
				b[14] = 77 // else some are in order
			}
			must(slow.Write(b))
		}
		if got := w.receiveAll(); len(got) > 0 {
			w.Errorf("received: %v", got)
		}
		if c := counted(n, "x"); c["slow path wrote"] != 0 {
			w.Errorf("counted %v", c)
		}
		w.name = "afterwards"
		w.expectReceived(f, arrival{hosts[2], unix.PACKET_HOST, f})
	})
}

// A process that never reads, or has ended, costs the frames that are for it, and nothing else.
func TestLiveSlowPathThatNeverReadsHoldsUpNobody(t *testing.T) {
	inSlowWorld(t, func(w *world, n *node.Nodes, slow *os.File, hosts []int) {
		const frames = 3000
		through := func(when string) {
			w.name = when
			before := counted(n, "x")["frames in"]
			for range frames {
				w.check(w.say(w.a, order(mac(200), doPunt)))
			}
			w.await("frames", func() bool { return counted(n, "x")["frames in"] == before+frames })
			f := order(mac(102), doSend, 3)
			w.expectReceived(f, arrival{hosts[2], unix.PACKET_HOST, f})
		}
		through("never reads")
		waiting := 0
		for {
			ready, err := unix.Poll([]unix.PollFd{{Fd: int32(slow.Fd()), Events: unix.POLLIN}}, 0)
			w.check(err)
			if ready == 0 {
				break
			}
			w.punted(slow)
			waiting++
		}
		if waiting == 0 || waiting > 2000 {
			w.Errorf("%d frames have waited", waiting)
		}
		null := must(os.Open(os.DevNull))
		defer func() { w.check(null.Close()) }()
		w.check(unix.Dup3(int(null.Fd()), int(slow.Fd()), unix.O_CLOEXEC)) // its process ends
		through("has ended")
	})
}

// The process has the device for as long as it likes.
func TestLiveSlowPathOfAnotherKindIsNoWayIn(t *testing.T) {
	inSlowWorld(t, func(w *world, n *node.Nodes, slow *os.File, _ []int) {
		x := made(w.compile(clerk), must(n.List())["x"].Ports...)
		x.Digest = "with an interface"
		w.check(n.Set("x", x))
		must(slow.Write(written(slowSend, 3, order(mac(102), doSend, 3))))
		if c := counted(n, "x"); c["fault no slow path"] != 1 {
			w.Errorf("counted %v", c)
		}
		w.check(n.Delete("x"))
		must(slow.Write(written(slowSend, 3, order(mac(102), doSend, 3))))
		if got := w.receiveAll(); len(got) > 0 {
			w.Errorf("received: %v", got)
		}
	})
}

// What is left may be shorter than an IP header: the kernel shortens frames to no less.
func TestLivePacketProgramShrinksFramesToAnyLength(t *testing.T) {
	inSlowWorld(t, func(w *world, n *node.Nodes, _ *os.File, hosts []int) {
		for length := 34; length < 70; length++ {
			w.name = fmt.Sprintf("%d bytes", length)
			f := append(order(mac(102), doSend, 3, 0, 1), make([]byte, 20)...)[:length]
			for i := 18; i < length; i++ {
				f[i] = byte(i)
			}
			g := append(bytes.Clone(f[:14]), f[34:]...)
			w.expectReceived(f, arrival{hosts[2], unix.PACKET_HOST, g})
		}
		if c := counted(n, "x"); c["fault no shrink"] != 0 {
			w.Errorf("counted %v", c)
		}
	})
}
