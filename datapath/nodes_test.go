package datapath

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/pergola-net/pergola/datapath/node"
	"github.com/pergola-net/pergola/datapath/program"
)

// inProgramWorld runs a test in a world where nodes can have packet programs.
func inProgramWorld(t *testing.T, f func(w *world, n *node.Nodes)) {
	t.Helper()
	inWorld(t, func(w *world) {
		n := must(node.Open(w.d.Nodes()))
		defer func() { w.check(n.Close()) }()
		f(w, n)
	})
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
		SlowPath: true,
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
				l.passed(hops, fmt.Sprintf("handed %d", l.end)))
			if c := counted(n, name); c["frames in"] != 1 || c["verdict send"] != 1 || len(c) != 3 {
				w.Errorf("counted %v", c)
			}
		}
	})
}
