package datapath

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/pergola-net/pergola/datapath/node"
	"github.com/pergola-net/pergola/datapath/program"
)

// inProgramWorld runs a test in a world where nodes can have packet programs.
func inProgramWorld(t *testing.T, f func(w *world, n *node.Nodes)) {
	t.Helper()
	inWorld(t, func(w *world) {
		n := must(node.Open(w.d.Nodes()))
		defer w.end(n)
		f(w, n)
	})
}

// end deletes all nodes. A table of programs that nobody has open any more is emptied in the background: until then the
// test would seem to leave it behind.
func (w *world) end(n *node.Nodes) {
	for name := range must(n.List()) {
		w.check(n.Delete(name))
	}
	w.check(n.Close())
}

// compile builds a packet program.
func (w *world) compile(text string) []byte {
	path := filepath.Join(w.TempDir(), "x.c")
	w.check(os.WriteFile(path, []byte("#include <pergola/headers.h>\n#include <pergola/program.h>\n"+text), 0o600))
	return must(program.Build(w.Context(), path))
}

// made is a node from an object.
func made(object []byte, ports ...int) node.Node {
	return node.Node{
		Slice: slice, Object: object, Digest: fmt.Sprintf("%x", sha256.Sum256(object)), Interfaces: ports,
		SlowPath: node.SlowInterface,
	}
}

// behind puts a node with so many interfaces between the first port and what it is joined with; its other interfaces
// are joined with hosts. It returns the node's ports, and the ports of those hosts.
func (w *world) behind(interfaces int) (ports, hosts []int) {
	p, _, err := w.d.Port(w.a)
	w.check(err)
	for i := range interfaces {
		ports = append(ports, w.port(mac(200+i)))
	}
	w.join(ports[1], p.Peer)
	w.join(w.a, ports[0])
	for i := 2; i < interfaces; i++ {
		hosts = append(hosts, w.port(mac(300+i)))
		w.join(ports[i], hosts[i-2])
	}
	return ports, hosts
}

// through adds that a frame has come to a node by the first port, and gone out by the second one.
func through(counts map[string]uint64, ports ...int) map[string]uint64 {
	counts[fmt.Sprintf("walked in %d", ports[0])]++
	counts[fmt.Sprintf("walked out %d", ports[1])]++
	return counts
}

// counted leaves out what is zero.
func counted(n *node.Nodes, name string) map[string]uint64 {
	all := must(n.Counters(name))
	for what, value := range all {
		if value == 0 {
			delete(all, what)
		}
	}
	return all
}

const forward = `
PERGOLA_PARSE(packet)
{
	packet->output = 3 - packet->interface;
	return PERGOLA_SEND;
}
`

func TestWalkGoesThroughPacketPrograms(t *testing.T) {
	inProgramWorld(t, func(w *world, n *node.Nodes) {
		for _, hops := range []int{1, 3} {
			w.name = fmt.Sprintf("%d routers", hops)
			l := w.line(hops)
			ports, _ := w.behind(2)
			name := fmt.Sprintf("s%d/switch", hops)
			w.check(n.Set(name, made(w.compile(forward), ports...)))
			p := packet{}
			w.expect(w.send(p.bytes(), skbuff{}), verdictRedirect, p.after(macB, mac(2*hops-1), hops),
				through(l.passed(hops, fmt.Sprintf("handed %d", l.end)), ports...))
			if c := counted(n, name); c["frames in"] != 1 || c["verdict send"] != 1 || len(c) != 3 {
				w.Errorf("counted %v", c)
			}
		}
	})
}

// The platform's part of a node's program, with the smallest code of a slice.
func TestProgramOfANodeStaysWithinBudget(t *testing.T) {
	inProgramWorld(t, func(w *world, n *node.Nodes) {
		w.check(n.Set("x", made(w.compile(forward), w.port(mac(1)), w.port(mac(2)))))
		var id uint32
		const number = 1 // of the first node
		w.check(w.d.maps.NodePrograms.Lookup(uint32(number), &id))
		p := must(ebpf.NewProgramFromID(ebpf.ProgramID(id)))
		defer func() { w.check(p.Close()) }()
		info := must(p.Info())
		verified, ok := info.VerifiedInstructions()
		used, _ := info.MapIDs()
		t.Logf("%d instructions, %d verified, %d maps", must(info.TranslatedSize())/8, verified, len(used))
		const mostMaps = 64 // MAX_USED_MAPS
		if !ok || verified > budget || len(used) > mostMaps/2 {
			w.Errorf("%d verified instructions, and %d maps", verified, len(used))
		}
	})
}

// A data path of an ABI whose programs of nodes are others has to load them anew. The agent is told so, and memory and
// counters stay.
func TestNewABIKeepsTheMemoryOfPacketPrograms(t *testing.T) {
	inBench(t, func(b *bench) {
		old, err := open(b.dir, byClsact{}, must(loadObject()), version{abi: nodesSince - 1, programs: "older"})
		b.check(err)
		w := newWorld(b, old)
		defer w.close()
		n := must(node.Open(old.Nodes()))
		ports, host := []int{w.port(mac(1)), w.port(mac(2))}, w.port(macB)
		w.check(w.d.Add(w.a, Port{MTU: 1500, MAC: macA}))
		w.join(w.a, ports[0])
		w.join(ports[1], host)
		x := made(w.compile(`
PERGOLA_MEMORY(uint32_t, 1);
PERGOLA_COUNTERS { uint64_t seen; };
PERGOLA_PARSE(packet)
{
	uint32_t *m = pergola_memory(0);

	pergola_count(seen);
	if (m)
		*pergola_header(packet, 14, uint32_t) = ++*m;
	packet->output = 2;
	return PERGOLA_SEND;
}`), ports...)
		w.check(n.Set("x", x))
		frame := ethernet(macB, macA, 0x88b5, 46)
		sent := func(number byte) {
			w.Helper()
			if o := w.send(frame, skbuff{}); o.Verdict != verdictRedirect || o.Frame[14] != number {
				w.Errorf("frame %d: verdict %d, %v, %x", number, o.Verdict, o.Counted, o.Frame[14:18])
			}
		}
		sent(1)
		w.check(n.Close())
		w.check(old.Close())

		w.d = w.open()
		defer func() { w.check(w.d.Close()) }()
		w.check(w.d.need(allNeeds))
		n = must(node.Open(w.d.Nodes()))
		defer w.end(n)
		reason := fmt.Sprintf("no program %d", w.a)
		if o := w.send(frame, skbuff{}); o.Verdict != verdictShot || o.Counted[reason] != 1 {
			w.Errorf("before the program is there: %v", o)
		}
		if s := must(n.List())["x"]; s.Digest == "" || s.Digest == x.Digest || s.Ports != nil {
			w.Errorf("the agent is told %+v", s)
		}
		w.check(n.Set("x", x))
		sent(2)
		if c := counted(n, "x"); c["seen"] != 2 || c["frames in"] != 2 {
			w.Errorf("counted %v", c)
		}
		if s := must(n.List())["x"]; s.Digest != x.Digest {
			w.Errorf("in the end the agent is told %+v", s)
		}
	})
}

// BenchmarkWalkThroughPacketPrograms gives the programs' own time for a frame that passes nodes whose program sends it
// on, without what the kernel does then.
func BenchmarkWalkThroughPacketPrograms(b *testing.B) {
	for _, xdp := range []bool{false, true} {
		for _, nodes := range []int{0, 1, 4} {
			b.Run(fmt.Sprintf("XDP=%v/nodes=%d", xdp, nodes), func(b *testing.B) {
				inWorld(b, func(w *world) { w.benchChain(b, xdp, nodes) })
			})
		}
	}
}

func (w *world) benchChain(b *testing.B, xdp bool, nodes int) {
	b.Helper()
	n := must(node.Open(w.d.Nodes()))
	defer w.end(n)
	w.check(w.d.Add(w.a, Port{MTU: 1500, MAC: macA, External: xdp}))
	_, end := w.chain(n, nodes)
	p := packet{to: macB}
	opts := ebpf.RunOptions{Data: p.bytes(), Context: &skbuff{Ifindex: uint32(w.a)}, Repeat: uint32(b.N)}
	first, want := w.d.programs.PortIngress, uint32(verdictRedirect)
	if xdp {
		w.ip("link set pa up")
		napi := must(passAll(w.a))
		defer func() { w.check(napi.Close()) }()
		w.check(w.d.maps.Handovers.Put(uint32(0), uint32(w.b)))
		opts.Context = &xdpMD{DataEnd: uint32(len(opts.Data)), IngressIfindex: uint32(w.a)}
		first, want = w.d.programs.Linecard, xdpRedirect
		w.check(w.d.AllowXDPToPort(end, w.b))
	}
	program := again(w.bench, xdp, p.bytes()[:34], first)
	defer func() { _ = program.Close() }()
	b.ResetTimer()
	verdict, err := program.Run(&opts)
	w.check(err)
	if verdict != want {
		w.Errorf("verdict %d", verdict)
	}
	b.StopTimer()
}
