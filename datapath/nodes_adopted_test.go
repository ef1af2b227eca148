package datapath

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/node"
	"github.com/pergola-net/pergola/datapath/program"
)

// keptFilters is a node whose frames go on because a filter says so, between the first port and the line.
func (w *world) keptFilters(n *node.Nodes) node.Node {
	w.line(1)
	ports, _ := w.behind(2)
	x := made(w.compile("#define KIND uint8_t\n"+keyed), ports...)
	x.Filters = w.filters("table 1 type=8 -> send 2")
	w.check(n.Set("x", x))
	w.goesOn("set")
	return x
}

// goesOn sends a frame through the node.
func (w *world) goesOn(when string) {
	w.Helper()
	if o := w.send(packet{}.bytes(), skbuff{}); o.Verdict != verdictRedirect {
		w.Errorf("%s: verdict %d, counted %v", when, o.Verdict, o.Counted)
	}
}

// pin is the path of what is pinned of the first node.
func (w *world) pin(name string) string { return filepath.Join(w.d.nodesDir(), "1-x", name) }

// reopen ends a process that has the nodes open, and starts the next one.
func (w *world) reopen(n *node.Nodes) *node.Nodes {
	w.check(n.Close())
	return must(node.Open(w.d.Nodes()))
}

// replaced sets the node once more, and looks whether it runs with its filters, and nothing else is left.
func (w *world) replaced(n *node.Nodes, x node.Node) {
	w.check(n.Set("x", x))
	w.goesOn("replaced")
	if s := must(n.List())["x"]; s.Digest != x.Digest || !s.Runs {
		w.Errorf("there is %+v", s)
	}
	w.check(n.Filters("x", func(_ *program.Object, t *program.Tables) error {
		if all := must(t.List()); len(all) != 1 {
			w.Errorf("its filters are %+v", all)
		}
		return nil
	}))
}

// A newer version of Pergola may refuse a program that an older one took. It runs until it is set again.
func TestRefusedProgramKeepsItsFiltersWhileItRuns(t *testing.T) {
	inWorld(t, func(w *world) {
		n := must(node.Open(w.d.Nodes()))
		defer func() { w.end(n) }()
		x := w.keptFilters(n)
		w.check(n.Close())
		about := must(ebpf.LoadPinnedMap(w.pin("about"), nil))
		value := make([]byte, about.ValueSize())
		w.check(about.Lookup(uint32(0), &value))
		var fields map[string]any
		w.check(json.Unmarshal([]byte(strings.TrimRight(string(value), "\x00")), &fields))
		fields["Object"] = []byte("an object of another version")
		clear(value)
		copy(value, must(json.Marshal(fields)))
		w.check(errors.Join(about.Put(uint32(0), value), about.Close()))
		n = must(node.Open(w.d.Nodes()))
		if s := must(n.List())["x"]; s.Runs || s.Digest == x.Digest {
			w.Errorf("there is %+v", s)
		}
		w.goesOn("adopted")
		other := made(x.Object)
		other.Filters = w.filters("table 1 type=8 -> drop")
		w.check(n.Set("y", other)) // gets tables of its own, and sweeps those that nobody has
		w.goesOn("with a neighbour")
		w.replaced(n, x)
	})
}

// A node whose pins cannot be read is left to the next Set. It goes on until then, and others are not affected.
func TestUnreadablePinIsLeftToASet(t *testing.T) {
	for _, broken := range []string{"program-tc", "node_5fsettings", "node_5fports"} {
		t.Run(broken, func(t *testing.T) {
			inWorld(t, func(w *world) {
				n := must(node.Open(w.d.Nodes()))
				defer func() { w.end(n) }()
				x := w.keptFilters(n)
				y := made(w.compile(forward))
				w.check(n.Set("y", y))
				w.check(n.Close())
				w.check(os.Remove(w.pin(broken)))
				w.check(w.swap(broken))
				n = must(node.Open(w.d.Nodes()))
				all := must(n.List())
				if all["x"].Runs || !all["y"].Runs || all["y"].Digest != y.Digest {
					w.Errorf("there is %+v", all)
				}
				w.goesOn("adopted")
				other := made(x.Object)
				other.Filters = w.filters("table 1 type=8 -> drop")
				w.check(n.Set("z", other))
				w.goesOn("with a neighbour")
				w.replaced(n, x)
			})
		})
	}
}

// swap pins something else under the name of a program or map.
func (w *world) swap(name string) error {
	if strings.HasPrefix(name, "program-") {
		return must(w.d.maps.Legs.Clone()).Pin(w.pin(name))
	}
	return w.d.programs.WalkOn.Pin(w.pin(name))
}

// While the pins of what was before cannot be removed, the newer program runs; nothing takes the place of its pins.
func TestPinsThatCannotBeRemovedHinderOnlyReplacements(t *testing.T) {
	inWorld(t, func(w *world) {
		n := must(node.Open(w.d.Nodes()))
		defer func() { w.end(n) }()
		x := w.keptFilters(n)
		place := w.pin("")
		w.check(unix.Mount("none", place, "tmpfs", 0, ""))
		second, third := x, x
		second.Digest, third.Digest = "second", "third"
		var tidy *node.TidyError
		if err := n.Set("x", second); !errors.As(err, &tidy) {
			w.Errorf("set: %v", err)
		}
		for range 2 {
			if err := n.Set("x", third); err == nil || errors.As(err, &tidy) {
				w.Errorf("a replacement that has no place for its pins: %v", err)
			}
			if s := must(n.List())["x"]; s.Digest != second.Digest || !s.Runs {
				w.Errorf("there is %+v", s)
			}
			w.goesOn("second")
			pins := must(filepath.Glob(filepath.Join(w.d.nodesDir(), "new-1-x", "program-*")))
			if len(pins) == 0 {
				w.Errorf("the program that runs is not pinned")
			}
		}
		w.check(unix.Unmount(place, 0))
		w.replaced(n, third)
		n = w.reopen(n)
		w.replaced(n, third)
		if pins := must(filepath.Glob(filepath.Join(w.d.nodesDir(), "*"))); len(pins) != 1 {
			w.Errorf("pins: %v", pins)
		}
	})
}

// A node whose pins cannot be removed does not run any more, and can be deleted or set later.
func TestNodeWhosePinsCannotBeRemovedRunsNoMore(t *testing.T) {
	inWorld(t, func(w *world) {
		n := must(node.Open(w.d.Nodes()))
		defer func() { w.end(n) }()
		x := w.keptFilters(n)
		place := w.pin("")
		w.check(unix.Mount("none", place, "tmpfs", 0, ""))
		if err := n.Delete("x"); err == nil {
			w.Error("pins were removed that cannot be")
		}
		if s := must(n.List())["x"]; s.Runs || s.Digest == x.Digest {
			w.Errorf("there is %+v", s)
		}
		w.check(unix.Unmount(place, 0))
		w.replaced(n, x)
		w.check(n.Delete("x"))
		if len(must(n.List())) > 0 {
			w.Error("it is there")
		}
	})
}

func TestPortsStayWhereOthersCannotBeWritten(t *testing.T) {
	inWorld(t, func(w *world) {
		n := must(node.Open(w.d.Nodes()))
		defer func() { w.end(n) }()
		x := w.keptFilters(n)
		m := must(ebpf.LoadPinnedMap(w.pin("node_5fports"), nil))
		w.check(errors.Join(m.Freeze(), m.Close()))
		moved := x
		moved.Interfaces = []int{x.Interfaces[0], w.port(mac(250))}
		if err := n.Set("x", moved); err == nil {
			w.Error("a table was written that cannot be")
		}
		w.goesOn("not moved")
		if s := must(n.List())["x"]; len(s.Ports) != 2 || s.Ports[1] != x.Interfaces[1] {
			w.Errorf("its ports are %v", s.Ports)
		}
	})
}
