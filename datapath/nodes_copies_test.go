package datapath

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/node"
	"github.com/pergola-net/pergola/datapath/program"
	"github.com/pergola-net/pergola/lab/testkit"
)

// copying writes into the frame, and into each copy, what its filter says, and how far it has come. Some grow. The
// key is the frame's first byte; an argument of 9 asks for another lookup, one of 8 for no copy.
const copying = `
struct mark { uint8_t key, argument, copy, change; };

PERGOLA_COUNTERS { uint64_t parsed; };
PERGOLA_KEY { uint8_t type; };

PERGOLA_PARSE(packet)
{
	pergola_key(packet)->type = pergola_header(packet, PERGOLA_ETHERNET, struct mark)->key;
	pergola_count(parsed);
	return PERGOLA_LOOKUP;
}

PERGOLA_FORMAT(packet, result)
{
	struct mark *m = pergola_header(packet, PERGOLA_ETHERNET, struct mark);
	struct ethernet_header was = *pergola_header(packet, 0, struct ethernet_header);

	if (result->arguments[0] == 9) {
		pergola_key(packet)->type--;
		return PERGOLA_LOOKUP;
	}
	if (result->arguments[0] == 8)
		return PERGOLA_DROP;
	if (m->change && !packet->copy && pergola_grow(packet, 4))
		*pergola_header(packet, -4, struct ethernet_header) = was;
	m->argument = result->arguments[0];
	m->copy = packet->copy;
	return result->verdict;
}
`

// Each filter that sends a copy gets one of its own, whatever way the frame came.
func TestLiveCopiesDiffer(t *testing.T) {
	inLiveProgramWorld(t, func(w *world, n *node.Nodes) {
		ports, hosts := w.star(4)
		x := made(w.compile(copying), ports...)
		x.Filters = w.filters(
			"priority 9 type=1 -> send 2 more args 21", "priority 8 type=1 -> send 3 more args 22",
			"priority 7 type=1 -> send 4 args 23", "priority 6 type=1 -> send 2 args 24",
			"type=2 -> send 2 args 09",
			"priority 9 type=3 -> send 4 more args 31", "priority 8 type=3 -> send 7 more args 32",
			"priority 7 type=3 -> send 3 more args 08", "priority 6 type=3 -> send 2 more args 33",
			"priority 5 type=3 -> drop",
			"priority 9 type=4 -> send 4 more args 08", "priority 8 type=4 -> send 3 args 42",
			"type=5 -> send 2 more args 51",
			"type=6 -> send 2 args 09", "type=7 -> send 2 args 09", "type=8 -> send 2 args 09",
			"type=9 -> send 2 args 09",
		)
		w.check(n.Set("x", x))
		everybody := [6]byte{255, 255, 255, 255, 255, 255}
		all := map[string]uint64{}
		expect := func(name string, frame []byte, counts map[string]uint64, want ...arrival) {
			w.Helper()
			w.name = name
			if len(want) == 0 {
				w.drops(n, frame)
			} else {
				w.expectFlood(frame, want...)
			}
			for what, more := range counts {
				all[what] += more
			}
			all["frames in"]++
			have := counted(n, "x")
			delete(have, "bytes in")
			delete(have, "parsed") // twice where a frame that is copied came in XDP
			if diff := cmp.Diff(all, have); diff != "" {
				w.Errorf("counted (-want +have):\n%s", diff)
			}
		}
		at := func(host int, frame []byte, argument, number byte) arrival {
			f := slices.Clone(frame)
			at := len(f) - 32
			f[at+1], f[at+2] = argument, number
			return arrival{hosts[host-1], unix.PACKET_BROADCAST, f}
		}
		three := map[string]uint64{"verdict send": 1, "copies flooded": 2}

		f := order(everybody, 1)
		expect("three", f, three, at(2, f, 0x21, 0), at(3, f, 0x22, 1), at(4, f, 0x23, 2))
		again := order(everybody, 2)
		expect("a lookup leads to three", again, three, at(2, again, 0x21, 0), at(3, again, 0x22, 1),
			at(4, again, 0x23, 2))
		f = order(everybody, 1, 0, 0, 1)
		grown := append(slices.Clone(f[:14]), f[10:]...)
		expect("longer ones", f, three, at(2, grown, 0x21, 0), at(3, grown, 0x22, 1), at(4, grown, 0x23, 2))
		f = order(everybody, 3)
		expect("some are not to be, or cannot", f,
			map[string]uint64{"verdict send": 1, "copies flooded": 1, "fault no interface": 1},
			at(2, f, 0x33, 3), at(4, f, 0x31, 0))
		f = order(everybody, 5)
		expect("none follows", f, map[string]uint64{"verdict send": 1}, at(2, f, 0x51, 0))
		expect("the frame is dropped", order(everybody, 4), map[string]uint64{"verdict drop": 1})
		expect("too many lookups", order(everybody, 9), map[string]uint64{"fault bad verdict": 1})
		w.name = ""
		if got := w.receiveAll(); len(got) > 0 {
			w.Errorf("received in the end: %v", got)
		}
	})
}

// A node's program calls the slice's code from places of its own, with less of the stack left than `pergola program
// build` has.
func TestExamplesFitIntoNodes(t *testing.T) {
	sources := must(filepath.Glob(filepath.Join(testkit.ModuleRoot(t), "examples", "programs", "*.c")))
	if len(sources) < 5 {
		t.Fatal(sources)
	}
	inWorld(t, func(w *world) {
		n := must(node.Open(w.d.Nodes()))
		defer func() { w.check(n.Close()) }()
		w.line(1)
		ports, _ := w.behind(2)
		for _, source := range sources {
			w.name = filepath.Base(source)
			object, err := builtExample(t, source)
			if err == nil {
				err = n.Set("x", made(object, ports...))
			}
			w.check(err)
		}
		w.check(n.Delete("x"))
	})
}

// builtExample gives an example's object. The vm tier compiles outside of its machine, where a compiler takes seconds:
// equal sources make equal objects.
func builtExample(t *testing.T, source string) ([]byte, error) {
	t.Helper()
	if dir := os.Getenv("PERGOLA_VM_OBJECTS"); dir != "" {
		return os.ReadFile(filepath.Join(dir, strings.TrimSuffix(filepath.Base(source), ".c")+".o"))
	}
	return program.Build(t.Context(), source)
}
