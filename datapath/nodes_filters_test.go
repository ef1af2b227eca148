package datapath

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/datapath/filter"
	"github.com/pergola-net/pergola/datapath/node"
	"github.com/pergola-net/pergola/datapath/program"
)

// keyed looks up one byte of the Ethernet type in table 1.
const keyed = `
PERGOLA_KEY { KIND type; };
PERGOLA_PARSE(packet)
{
	pergola_key(packet)->type = *pergola_header(packet, 12, uint8_t);
	packet->table = 1;
	return PERGOLA_LOOKUP;
}
`

func (w *world) filters(lines ...string) (all []program.Filter) {
	for _, line := range lines {
		all = append(all, must(program.ParseFilter(line, []program.Field{{Name: "type", Size: 1}})))
	}
	return all
}

// filtersOf lists a node's filters with their hits.
func (w *world) filtersOf(n *node.Nodes, name string) map[string]uint64 {
	all := map[string]uint64{}
	w.check(n.Filters(name, func(o *program.Object, t *program.Tables) error {
		for _, e := range must(t.List()) {
			all[e.Text(o.Key)] = e.Hits
		}
		return nil
	}))
	return all
}

func TestFiltersOfNodes(t *testing.T) {
	inWorld(t, func(w *world) {
		n := must(node.Open(w.d.Nodes()))
		defer func() { w.check(n.Close()) }()
		w.line(1)
		ports, _ := w.behind(2)
		lookup := func(kind, more string) []byte {
			return w.compile("#define KIND " + kind + "\n" + more + keyed)
		}
		expect := func(what string, want map[string]uint64) {
			if diff := cmp.Diff(want, w.filtersOf(n, "x")); diff != "" {
				w.Errorf("%s: %s", what, diff)
			}
		}
		const ip, other = "table 1 type=8 -> send 2", "table 1 type=9 -> drop"
		x := made(lookup("uint8_t", ""), ports...)
		x.Filters = w.filters(ip)
		w.check(n.Set("x", x))
		neighbour := made(lookup("uint8_t", ""))
		neighbour.Filters = w.filters(other)
		w.check(n.Set("y", neighbour))
		frame := packet{}
		w.sendOnly(frame)
		expect("a frame", map[string]uint64{ip: 1})
		if c := counted(n, "x"); c["verdict send"] != 1 {
			w.Errorf("counted %v", c)
		}

		// What is changed at run time stays, in this process and the next one, as long as the node is not made
		// from other filters.
		w.check(n.Filters("x", func(_ *program.Object, t *program.Tables) error {
			return t.Change(nil, w.filters(other))
		}))
		w.check(n.Set("x", x))
		expect("set as before", map[string]uint64{ip: 1, other: 0})
		w.check(n.Close())
		n = must(node.Open(w.d.Nodes()))
		expect("the next process", map[string]uint64{ip: 1, other: 0})
		newer := made(lookup("uint8_t", "// newer\nstatic int one __attribute__((unused)) = 1;\n"), ports...)
		newer.Digest, newer.Filters = "newer", x.Filters
		w.check(n.Set("x", newer))
		w.sendOnly(frame)
		expect("a newer program", map[string]uint64{ip: 2, other: 0})

		// Other filters, or another key, are made anew.
		newer.Digest, newer.Filters = "other filters", w.filters(ip, "table 1 type=7 -> punt")
		w.check(n.Set("x", newer))
		w.sendOnly(frame)
		expect("other filters", map[string]uint64{ip: 1, "table 1 type=7 -> punt": 0})
		wide := made(lookup("uint64_t", ""), ports...)
		wide.Filters = newer.Filters
		w.check(n.Set("x", wide))
		w.sendOnly(frame)
		expect("another key", map[string]uint64{"table 1 type=576460752303423488/8 -> send 2": 1,
			"table 1 type=504403158265495552/8 -> punt": 0})
		if c := counted(n, "x"); c["verdict send"] != 4 {
			w.Errorf("counted %v", c)
		}

		// A node that is refused leaves nothing, and what is there stays.
		wrong := wide
		wrong.Digest, wrong.Filters = "wrong", append(w.filters(ip), w.filters(ip)...)
		if err := n.Set("x", wrong); err == nil {
			w.Error("the same filter was taken twice")
		}
		w.check(n.Delete("x"))
		w.check(n.Filters("y", func(_ *program.Object, t *program.Tables) error {
			left := must(t.List())
			if len(left) != 1 || left[0].Text(nil) != w.filters(other)[0].Text(nil) {
				w.Errorf("the neighbour has %+v", left)
			}
			return nil
		}))
		if err := n.Filters("x", nil); err == nil {
			w.Error("a node that was deleted has filters")
		}
	})
}

// sendOnly sends a frame into the network, wherever it goes.
func (w *world) sendOnly(p packet) { w.send(p.bytes(), skbuff{}) }

func TestNodesHaveTheFiltersThatTheyReserve(t *testing.T) {
	inWorld(t, func(w *world) {
		n := must(node.Open(w.d.Nodes()))
		w.line(1)
		x := made(w.compile("#define KIND uint8_t\n" + keyed))
		x.Bounds = node.Bounds{Filters: 2, Masks: 1}
		x.Filters = w.filters("table 1 type=1 -> drop")
		w.check(n.Set("x", x))
		free := made(w.compile("#define KIND uint8_t\n" + keyed))
		w.check(n.Set("free", free))
		insert := func(name string, lines ...string) error {
			return n.Filters(name, func(_ *program.Object, t *program.Tables) error {
				return t.Insert(w.filters(lines...)...)
			})
		}
		refused := func(name, want string, lines ...string) {
			w.Helper()
			err := insert(name, lines...)
			if !errors.Is(err, filter.ErrQuota) || !strings.Contains(err.Error(), want) {
				w.Errorf("%s has more than it may: %v", name, err)
			}
		}
		refused("x", "3 of 2 filters that the node has reserved", "table 1 type=2 -> drop",
			"table 2 type=2 -> drop")
		refused("x", "2 of 1 masks that the node has reserved", "table 2 type=2 -> drop")
		w.check(insert("x", "table 1 type=2 -> drop"))
		w.check(insert("free", "table 1 type=1 -> drop", "table 2 type=2 -> drop", "table 3 type=3 -> drop"))

		// They are bounds for the next process, too, and a replacement brings its own.
		w.check(n.Close())
		n = must(node.Open(w.d.Nodes()))
		defer func() { w.check(n.Close()) }()
		refused("x", "3 of 2 filters", "table 1 type=3 -> drop")
		x.Bounds, x.Digest = node.Bounds{Filters: 3, Masks: 1}, "another"
		w.check(n.Set("x", x))
		w.check(insert("x", "table 1 type=3 -> drop"))
		refused("x", "4 of 3 filters", "table 1 type=4 -> drop")
	})
}

// A process that has no nodes does not open the tables; those of nodes that are gone go when it gets its first one.
func TestTablesThatNobodyHasGoWithTheFirstNode(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.d.Nodes()
		tables := func() []uint32 {
			f := must(filter.Open(filter.Maps{
				Index: c.Maps["filter_index"], Buckets: c.Maps["filter_buckets"],
				Chunks: c.Maps["filter_chunks"], Hits: c.Maps["filter_hits"],
			}))
			defer func() { w.check(f.Close()) }()
			return f.Tables()
		}
		n := must(node.Open(c))
		x := w.keptFilters(n)
		y := made(x.Object)
		y.Filters = x.Filters
		w.check(n.Set("y", y))
		if all := tables(); len(all) != 2 {
			w.Fatalf("the nodes' tables are %v", all)
		}
		w.check(n.Close())
		w.check(errors.Join(os.RemoveAll(w.pin("")), os.RemoveAll(filepath.Join(c.Dir, "2-y"))))
		n = must(node.Open(c))
		defer w.end(n)
		if all := tables(); len(all) != 2 {
			w.Errorf("without a node the tables are %v", all)
		}
		x.Filters = nil
		w.check(n.Set("x", x))
		if all := tables(); len(all) > 1 {
			w.Errorf("with the first node, the tables are %v", all)
		}
	})
}
