package datapath

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/node"
	"github.com/pergola-net/pergola/lab/testkit"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("PERGOLA_TEST_CRASH_NODES"); dir != "" {
		fmt.Fprintln(os.Stderr, changeNodes(dir, strings.Fields(os.Getenv("PERGOLA_TEST_PORTS")),
			os.Getenv("PERGOLA_TEST_OBJECTS")))
		os.Exit(1) // it was to be killed
	}
	testkit.Main(m)
}

// changeNodes makes, changes and deletes two nodes over and over.
func changeNodes(dir string, texts []string, objects string) error {
	var ports []int
	for _, text := range texts {
		port, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		ports = append(ports, port)
	}
	first, err := os.ReadFile(filepath.Join(objects, "1.o"))
	if err != nil {
		return err
	}
	second, err := os.ReadFile(filepath.Join(objects, "2.o"))
	if err != nil {
		return err
	}
	d, err := Open(dir, byClsact{})
	if err != nil {
		return err
	}
	n, err := node.Open(d.Nodes())
	if err != nil {
		return err
	}
	for {
		for _, step := range []func() error{
			func() error { return n.Set("s/x", made(first, ports[:2]...)) },
			func() error { return n.Set("s/y", made(first, ports[2:]...)) },
			func() error { return n.Set("s/x", made(second, ports[:2]...)) },
			func() error { return n.Delete("s/y") },
			func() error { return n.Set("s/x", made(second, 0, ports[1])) },
			func() error { return n.Set("s/x", made(first, ports[:2]...)) },
		} {
			if err := step(); err != nil {
				return err
			}
		}
	}
}

// Whenever a process is killed that changes nodes, the next one finds nodes that run, or that it can make run, and
// nothing else.
func TestLiveNodesOutliveAProcessThatIsKilled(t *testing.T) {
	inLiveWorld(t, func(w *world) {
		ports, hosts := w.star(4)
		objects := w.TempDir()
		first := w.compile(forward)
		w.check(os.WriteFile(filepath.Join(objects, "1.o"), first, 0o600))
		second := w.compile(forward + "\nPERGOLA_COUNTERS { uint64_t x; };\n")
		w.check(os.WriteFile(filepath.Join(objects, "2.o"), second, 0o600))
		rounds := 25
		if testkit.InVM() {
			rounds = 5
		}
		adopted := 0
		for round := range rounds {
			w.name = fmt.Sprintf("round %d", round)
			child, lines := testkit.Child(w, "PERGOLA_TEST_CRASH_NODES="+w.dir,
				"PERGOLA_TEST_OBJECTS="+objects,
				"PERGOLA_TEST_PORTS="+strings.Trim(fmt.Sprint(ports), "[]"))
			time.Sleep(200*time.Millisecond + rand.N(600*time.Millisecond)) //nolint:gosec // any will do
			testkit.Kill(child)
			for lines.Scan() {
				w.Errorf("the process said %q", lines.Text())
			}
			n := must(node.Open(w.d.Nodes()))
			adopted += w.checkNodes(n, hosts[1], made(first, ports[:2]...), made(second, ports[:2]...))
			w.check(n.Close())
		}
		if adopted == 0 {
			w.Errorf("no process left a node that ran")
		}
		n := must(node.Open(w.d.Nodes()))
		w.check(errors.Join(n.Delete("s/x"), n.Delete("s/y"), n.Close()))
		if left := w.left(); len(left) > 0 {
			w.Errorf("left: %v", left)
		}
	})
}

// checkNodes looks at what a process left, and returns how many nodes ran.
func (w *world) checkNodes(n *node.Nodes, host int, either ...node.Node) (running int) {
	for name, s := range must(n.List()) {
		if name != "s/x" && name != "s/y" {
			w.Errorf("there is %s: %+v", name, s)
		}
		if s.Digest == either[0].Digest || s.Digest == either[1].Digest {
			running++
		}
	}
	for hook, slots := range map[string]*ebpf.Map{"tc": w.d.maps.NodePrograms, "XDP": w.d.maps.NodeProgramsXdp} {
		used := 0
		for number := range uint32(node.MaxNodes) {
			var id uint32
			if err := slots.Lookup(number, &id); err == nil {
				used++
			} else if !errors.Is(err, ebpf.ErrKeyNotExist) {
				w.Error(err)
			}
		}
		if used != running {
			w.Errorf("%d nodes run, and %d slots have programs of %s", running, used, hook)
		}
	}
	for _, pin := range must(filepath.Glob(filepath.Join(w.d.nodesDir(), "new-*"))) {
		w.Errorf("half made: %s", pin)
	}
	w.check(n.Set("s/x", either[rand.N(2)])) //nolint:gosec // any will do
	w.receiveAll()
	f := ethernet(mac(101), macA, 0x88b5, 46)
	w.expectReceived(f, arrival{host, unix.PACKET_HOST, f})
	return running
}

// left lists what is there of nodes.
func (w *world) left() (all []string) {
	all = must(filepath.Glob(filepath.Join(w.d.nodesDir(), "*")))
	for port := range uint32(MaxPorts) {
		var l objectLeg
		w.check(w.d.maps.Legs.Lookup(port, &l))
		if l.Kind == legProgram {
			all = append(all, fmt.Sprintf("leg %d", port))
		}
	}
	for number := range uint32(node.MaxNodes) {
		var id uint32
		for _, slots := range []*ebpf.Map{w.d.maps.NodePrograms, w.d.maps.NodeProgramsXdp} {
			if slots.Lookup(number, &id) == nil {
				all = append(all, fmt.Sprintf("slot %d of %v", number, slots))
			}
		}
	}
	return all
}
