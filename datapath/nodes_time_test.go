package datapath

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/node"
)

// spin sends a frame on; before that, it works for a while at one frame in so many.
const spin = `
PERGOLA_MEMORY(uint32_t, 1);
PERGOLA_PARSE(packet)
{
	uint32_t *frames = pergola_memory(0);

	if (frames && ++*frames %% %d == 0)
		for (int i = 0; i < 8000; i++)
			asm volatile("");
	packet->output = 3 - packet->interface;
	return PERGOLA_SEND;
}
`

// inTimedWorld is inProgramWorld with so many cores for packet programs, and two hosts that send to nodes of different
// slices: run sends frames to the first one, and says how long that took; send sends one to the second one.
func inTimedWorld(t *testing.T, cores float64, text string, reserved float64,
	f func(w *world, n *node.Nodes, run func(frames int) time.Duration, send func()),
) {
	t.Helper()
	inSharedTime(t, cores, text, reserved, func(w *world, n *node.Nodes, run func(i, frames int) time.Duration) {
		f(w, n, func(frames int) time.Duration { return run(0, frames) }, func() { run(1, 1) })
	})
}

// inSharedTime has a host for each of two slices, numbered from 0: run sends frames of one of them.
func inSharedTime(t *testing.T, cores float64, text string, reserved float64,
	f func(w *world, n *node.Nodes, run func(i, frames int) time.Duration),
) {
	t.Helper()
	inWorld(t, func(w *world) {
		config := w.d.Nodes()
		config.Cores = cores
		n := must(node.Open(config))
		defer w.end(n)
		object := w.compile(text)
		p := packet{to: macB}
		var runners []*ebpf.Program
		for i, from := range []int{w.a, w.b} {
			w.check(w.d.Add(from, Port{MTU: 1500, MAC: macA}))
			in, out := w.port(mac(400+10*i)), w.port(mac(401+10*i))
			w.join(from, in)
			w.join(out, w.port(macB))
			x := made(object, in, out)
			x.Slice = uint32(i + 1)
			if i == 1 {
				x.Bounds.FastPath = reserved
			}
			w.check(n.Set(fmt.Sprint(i+1), x))
			again := again(w.bench, false, p.bytes()[:34], w.d.programs.PortIngress)
			defer func() { w.check(again.Close()) }()
			runners = append(runners, again)
		}
		repeat := func(i, frames int) time.Duration {
			port := []int{w.a, w.b}[i]
			opts := ebpf.RunOptions{
				Data: p.bytes(), Context: &skbuff{Ifindex: uint32(port)}, Repeat: uint32(frames),
			}
			began := time.Now()
			_, err := runners[i].Run(&opts)
			w.check(err)
			return time.Since(began)
		}
		f(w, n, repeat)
	})
}

// A slice that takes all it can get has the pool, and no more; one with a reservation loses no frame beside it.
func TestGreedySliceIsHeldAndStarvesNobody(t *testing.T) {
	const cores, reserved = 0.1, 0.05
	inTimedWorld(t, cores, fmt.Sprintf(spin, 1), reserved,
		func(w *world, n *node.Nodes, run func(int) time.Duration, send func()) {
			var pool [8]uint64
			w.check(w.d.maps.FastpathTimes.Lookup(uint32(0), &pool))
			depth := time.Duration(pool[1])
			began, sent := time.Now(), uint64(0)
			var idle time.Duration // in which a full bucket got nothing more: the processor was taken away
			for took, now := time.Duration(0), began; took < time.Second; took = now.Sub(began) {
				run(2000)
				send()
				sent++
				idle += max(0, time.Since(now)-depth/2)
				now = time.Now()
			}
			took := time.Since(began)
			times := must(n.Times())
			greedy, other := times[1], times[2]
			most := (cores - reserved) * (took + depth).Seconds() // a full bucket at the beginning
			least := (cores - reserved) * (took - idle).Seconds()
			spent := greedy.Spent.Seconds()
			w.Logf("greedy: %.4f cores, %d frames dropped; other: %d frames, %+v; idle for %v",
				spent/took.Seconds(), greedy.Metered, sent, other, idle)
			if spent > most*1.05 || spent < least*0.85 {
				w.Errorf("the greedy slice had %.4f s, and the pool %.4f to %.4f s", spent, least, most)
			}
			c := must(n.Counters("1"))
			if greedy.Metered == 0 || c["fault metered"] != greedy.Metered {
				w.Errorf("the greedy slice: %d frames were dropped, and its node counted %v",
					greedy.Metered, c)
			}
			came := must(n.Counters("2"))["frames in"]
			if other.Metered != 0 || came != sent || other.Reserved != reserved {
				w.Errorf("of %d frames of the other slice %d came, and %+v", sent, came, other)
			}
		})
}

// Of slices without a reservation, each has its part of the pool, however much the others send.
func TestSlicesShareThePool(t *testing.T) {
	const cores = 0.1
	inSharedTime(t, cores, fmt.Sprintf(spin, 1), 0,
		func(w *world, n *node.Nodes, run func(i, frames int) time.Duration) {
			for began := time.Now(); time.Since(began) < time.Second; {
				run(0, 400)
				run(1, 40)
			}
			times := must(n.Times())
			many, few := times[1], times[2]
			w.Logf("of ten times as many frames: %+v, the other: %+v", many, few)
			if many.Metered == 0 || few.Metered == 0 {
				w.Error("both wanted more than their share, and got it")
			}
			if r := few.Spent.Seconds() / many.Spent.Seconds(); r < 0.8 || r > 1.25 {
				w.Errorf("the one that sends less had %.2f of what the other one had", r)
			}
		})
}

// A slice that takes less than its share loses nothing beside one that takes all it can get, which has the rest.
func TestWhatASliceLeavesOfThePoolOthersHave(t *testing.T) {
	const cores = 0.1
	inSharedTime(t, cores, fmt.Sprintf(spin, 1), 0,
		func(w *world, n *node.Nodes, run func(i, frames int) time.Duration) {
			var pool [8]uint64
			w.check(w.d.maps.FastpathTimes.Lookup(uint32(0), &pool))
			depth := time.Duration(pool[1])
			began, sent := time.Now(), uint64(0)
			var idle time.Duration // in which a full bucket got nothing more: the processor was taken away
			for now := began; time.Since(began) < time.Second; now = time.Now() {
				run(0, 2000)
				run(1, 1)
				sent++
				idle += max(0, time.Since(now)-depth/2)
			}
			took := time.Since(began)
			times := must(n.Times())
			greedy, modest := times[1], times[2]
			w.Logf("greedy: %+v, modest: %d frames, %+v, in %v, idle for %v", greedy, sent, modest, took,
				idle)
			if came := must(n.Counters("2"))["frames in"]; modest.Metered != 0 || came != sent {
				w.Errorf("of %d frames of the modest slice %d came", sent, came)
			}
			all := (greedy.Spent + modest.Spent).Seconds()
			if most := cores * (took + 2*depth).Seconds() * 1.05; all > most {
				w.Errorf("they had %.4f s, and the pool %.4f s", all, most)
			}
			if least := cores * (took - idle).Seconds() * 0.85; all < least {
				w.Errorf("they had %.4f s of %.4f s: what one leaves is not the other's", all, least)
			}
		})
}

// What is measured at one frame in 16 is right for a program that takes longer for some of its frames, too.
func TestProcessorTimeIsMeasuredRight(t *testing.T) {
	const frames = 400_000
	var slow float64 // ns of a frame of the program that is slow always
	for _, period := range []int{1, 16} {
		inTimedWorld(t, 0, fmt.Sprintf(spin, period), 0,
			func(w *world, n *node.Nodes, run func(int) time.Duration, _ func()) {
				before := processorTime()
				took := run(frames)
				had := processorTime() - before // whoever else has the processor takes none of this
				spent := must(n.Times())[1].Spent
				each := float64(spent) / frames
				w.name = fmt.Sprintf("slow at one frame in %d", period)
				w.Logf("%s: %v, of which %.0f ns a frame were measured", w.name, took, each)
				if spent > took {
					w.Errorf("%v was measured, and all took %v", spent, took)
				}
				// Beside the program, the walk takes time.
				if period == 1 && spent < had/4 {
					w.Errorf("%v was measured, and all had the processor for %v", spent, had)
				}
				if period > 1 && (each < 0.5*slow/float64(period) || each > slow/3) {
					w.Errorf("%.0f ns a frame were measured, and %.0f if all are slow", each, slow)
				}
				slow = each
			})
	}
}

// What decides which frames of a node are measured is another secret at each load.
func TestSecretsOfMeasurementsAreNewAtEachLoad(t *testing.T) {
	inWorld(t, func(w *world) {
		n := must(node.Open(w.d.Nodes()))
		defer w.end(n)
		x, seen := made(w.compile(forward), w.port(mac(1)), w.port(mac(2))), map[[2]uint64]bool{{}: true}
		at := must(ebpf.LoadCollectionSpec("node/node_bpfel.o")).Variables["sample_secrets"].Offset
		const loads = 3
		for i := range loads {
			x.Digest = fmt.Sprint(i)
			w.check(n.Set("x", x))
			m := must(ebpf.LoadPinnedMap(w.pin("_2erodata"), nil))
			constants := must(m.LookupBytes(uint32(0)))
			w.check(m.Close())
			var secrets [2]uint64
			must(binary.Decode(constants[at:], binary.NativeEndian, &secrets))
			seen[secrets] = true
		}
		if len(seen) != 1+loads {
			w.Errorf("%d loads had %v", loads, seen)
		}
	})
}

// Frames that XDP hands over after it has looked at them, because they are to be copied, are measured, too.
func TestWorkOnFramesThatXDPHandsOverIsMeasured(t *testing.T) {
	inProgramMachine(t, func(w *world, n *node.Nodes) {
		w.handOver(true)
		ports := []int{w.port(mac(1)), w.port(mac(2)), w.port(mac(3))}
		tunnel := sorts[0]
		w.tunnelled(ports[0], tunnel)
		x := made(w.compile(copying), ports...)
		x.Filters = w.filters("priority 9 type=1 -> send 2 more args 21", "priority 8 type=1 -> send 3 args 22")
		outer := tunnel.turned().outer(order(mac(102), 1), around{to: macHere, from: macThere})
		const loads, frames = 4, 480 // each load decides anew which of them are measured, on average one in 16
		for i := range loads {
			x.Digest = fmt.Sprint(i)
			w.check(n.Set("x", x))
			before := must(n.Times())[slice].Spent
			for range frames {
				if have := w.card(outer); have.Verdict != xdpRedirect {
					w.Fatalf("verdict %d", have.Verdict)
				}
			}
			if spent := must(n.Times())[slice].Spent - before; spent == 0 {
				w.Errorf("load %d: no time was measured at %d frames", i, frames)
			}
			if c := counted(n, "x"); c["frames in"] != 0 {
				w.Errorf("they are counted here, and not where they go: %v", c)
			}
		}
	})
}

// Reservations that come and go move between slices and the pool; they outlive the process.
func TestProcessorTimeIsShared(t *testing.T) {
	inWorld(t, func(w *world) {
		config := w.d.Nodes()
		config.Cores = 2
		n := must(node.Open(config))
		defer func() { w.check(n.Close()) }()
		cost := func(slice uint32) uint64 {
			var b [8]uint64
			w.check(w.d.maps.FastpathTimes.Lookup(slice, &b))
			return b[0]
		}
		expect := func(what string, slice uint32, cores float64) {
			w.Helper()
			want := uint64(0)
			if cores > 0 {
				want = uint64(65536/cores + 0.5)
			}
			if have := cost(slice); have != want {
				w.Errorf("%s: slice %d pays %d, not %d", what, slice, have, want)
			}
		}
		object := w.compile(forward)
		set := func(name string, slice uint32, cores float64) {
			x := made(object, w.port(mac(w.ports)), w.port(mac(w.ports)))
			x.Slice, x.Bounds.FastPath = slice, cores
			w.check(n.Set(name, x))
		}
		expect("at the beginning", 0, 2)
		set("a", 5, 0.5)
		set("b", 5, 0.25)
		set("c", 6, 0.5)
		set("d", 7, 0)
		expect("two nodes", 5, 0.75)
		expect("one node", 6, 0.5)
		expect("no reservation", 7, 0)
		expect("what is left", 0, 0.75)
		set("e", 6, 0.25)
		expect("a second node", 6, 0.75)
		w.check(n.Delete("e"))
		expect("one of two deleted", 6, 0.5)
		expect("what is left again", 0, 0.75)
		w.check(n.Delete("c"))
		expect("deleted", 6, 0)
		expect("more is left", 0, 1.25)
		w.check(n.Close())
		n = must(node.Open(config))
		expect("adopted", 5, 0.75)
		for _, name := range []string{"a", "b", "d"} {
			w.check(n.Delete(name))
		}
		expect("at the end", 5, 0)
		expect("at the end", 0, 2)
	})
}

// processorTime is the time for which this process had processors until now.
func processorTime() time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
