package labels

import (
	"errors"
	"iter"
	"log/slog"
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/datapath/mirror"
	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/host/agent/observe"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
)

const threeRouters = `name: lab
nodes:
  a: {routing: ospf}
  b: {routing: ospf}
  c: {routing: ospf}
links: [[a, b], [b, c]]
lsps:
  - {path: [a, b, c], to: 10.9.0.0/24}
  - {path: [a, b, c], name: deep, to: 2001:db8::/32, last_label: own, ttl: pipe}
`

func resolved(t *testing.T, file string) *slice.Slice {
	t.Helper()
	top, found := topology.Parse("lab.yaml", []byte(file))
	if len(found) > 0 {
		t.Fatal(found)
	}
	s, found := topology.Resolve(top, nil)
	if len(found) > 0 {
		t.Fatal(found)
	}
	s.ID = 7
	return s
}

// seen is a machine that has all ports of a slice: those of number n have the ifindex 100 + n.
func seen(s *slice.Slice) *observe.Snapshot {
	is := &observe.Snapshot{Ports: map[string]int{}, NetNS: map[sliver.ID]uint64{}}
	for i := range s.Nodes {
		is.NetNS[sliver.ID{Slice: s.ID, Node: s.Nodes[i].Name}] = uint64(1000 + i)
		for _, p := range s.Nodes[i].Interfaces {
			is.Ports[slice.PortName(s.ID, p.Port)] = 100 + int(p.Port)
		}
	}
	return is
}

func TestEntriesAreOfThePorts(t *testing.T) {
	s := resolved(t, threeRouters)
	port := func(node, name string) int { return 100 + int(s.Node(node).Interface(name).Port) }
	mac := func(node, name string) [6]byte {
		m, err := net.ParseMAC(s.Node(node).Interface(name).MAC)
		if err != nil {
			t.Fatal(err)
		}
		return [6]byte(m)
	}
	a, b, c := SpaceOf(7, s.Node("a")), SpaceOf(7, s.Node("b")), SpaceOf(7, s.Node("c"))
	push := func(label uint32) []datapath.Label { return []datapath.Label{{Label: label}} }
	toB := datapath.NHLFE{Port: port("a", "eth1"), MAC: mac("b", "eth1"), TTL: 255, KeepClass: true}
	toC := datapath.NHLFE{
		Port: port("b", "eth2"), MAC: mac("c", "eth1"), In: port("b", "eth1"), TTL: 255, KeepClass: true,
	}
	entry := func(e datapath.NHLFE, uniform bool, push []datapath.Label) datapath.NHLFE {
		e.Uniform, e.Push = uniform, push
		return e
	}
	want := Want{
		Entries: map[Key]datapath.NHLFE{
			{a, 1, true}:   entry(toB, true, push(16)),
			{b, 16, false}: entry(toC, true, nil),
			{a, 2, true}:   entry(toB, false, push(17)),
			{b, 17, false}: entry(toC, false, push(16)),
			{c, 16, false}: {Pop: true, In: port("c", "eth1"), KeepClass: true},
		},
		Routers: map[sliver.ID]mirror.Labels{
			{Slice: 7, Node: "a"}: {Space: a, FTNs: map[netip.Prefix]uint32{
				netip.MustParsePrefix("10.9.0.0/24"): 1, netip.MustParsePrefix("2001:db8::/32"): 2,
			}},
			{Slice: 7, Node: "b"}: {Space: b}, {Slice: 7, Node: "c"}: {Space: c},
		},
		Missing: map[Hop]string{},
	}
	compare := cmpopts.EquateComparable(netip.Prefix{})
	if diff := cmp.Diff(want, Of(plan.Place{}, []plan.Input{{Spec: s}}, seen(s)), compare); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	is := seen(s)
	delete(is.Ports, slice.PortName(7, s.Node("b").Interface("eth2").Port))
	w := Of(plan.Place{}, []plan.Input{{Spec: s}}, is)
	missing := map[Hop]string{{7, "a--c", "b"}: "eth2 is not there", {7, "deep", "b"}: "eth2 is not there"}
	if diff := cmp.Diff(missing, w.Missing); diff != "" || len(w.Entries) != 3 {
		t.Errorf("without a port: %d entries, -want +got:\n%s", len(w.Entries), diff)
	}
	is = seen(s)
	delete(is.NetNS, sliver.ID{Slice: 7, Node: "a"})
	w = Of(plan.Place{}, []plan.Input{{Spec: s}}, is)
	if why := w.Missing[Hop{7, "deep", "a"}]; why != "it does not run" || len(w.Entries) != 3 {
		t.Errorf("without a node: %d entries, %q", len(w.Entries), why)
	}
	for i := range s.Nodes {
		s.Nodes[i].Host = map[string]string{"a": "h1", "b": "h2", "c": "h1"}[s.Nodes[i].Name]
	}
	w = Of(plan.Place{Host: "h2"}, []plan.Input{{Spec: s}}, seen(s))
	if len(w.Entries) != 2 || len(w.Routers) != 1 {
		t.Errorf("at the host of b: %+v", w)
	}
}

// path is a data path of labels alone. Those of refuse cannot be written.
type path struct {
	machine.DataPath
	is     map[Key]datapath.NHLFE
	writes int
	refuse map[Key]bool
}

func (p *path) put(k Key, n datapath.NHLFE) error {
	if p.writes++; p.refuse[k] {
		return errors.New("no space left")
	}
	p.is[k] = n
	return nil
}

func (p *path) SetLabel(space, label uint32, n datapath.NHLFE) error {
	return p.put(Key{space, label, false}, n)
}
func (p *path) SetFTN(space, ftn uint32, n datapath.NHLFE) error {
	return p.put(Key{space, ftn, true}, n)
}

func (p *path) DeleteLabel(space, label uint32) error {
	delete(p.is, Key{space, label, false})
	return nil
}

func (p *path) DeleteFTN(space, ftn uint32) error {
	delete(p.is, Key{space, ftn, true})
	return nil
}

func (p *path) AllLabels() iter.Seq2[datapath.LabelEntry, error] {
	return func(yield func(datapath.LabelEntry, error) bool) {
		for k, n := range p.is {
			if !yield(datapath.LabelEntry{Space: k.Space, Number: k.Number, FTN: k.FTN, NHLFE: n}, nil) {
				return
			}
		}
	}
}

func TestOnlyWhatDiffersIsWritten(t *testing.T) {
	s := resolved(t, threeRouters)
	want := Of(plan.Place{}, []plan.Input{{Spec: s}}, seen(s))
	signalled, left := Key{7, slice.LastStatic + 1, false}, Key{9, 20, false}
	p := &path{is: map[Key]datapath.NHLFE{signalled: {Pop: true}, left: {Pop: true}}, refuse: map[Key]bool{}}
	l := New(slog.New(slog.DiscardHandler))
	pass := func(l *Labels, w Want) (writes int) {
		before := p.writes
		l.Add(p, w)
		l.Prune(w)
		return p.writes - before
	}
	check := func(when string, writes, want int, entries map[Key]datapath.NHLFE) {
		t.Helper()
		all := map[Key]datapath.NHLFE{signalled: {Pop: true}}
		for k, n := range entries {
			all[k] = n
		}
		if diff := cmp.Diff(all, p.is); diff != "" || writes != want {
			t.Errorf("%s: %d writes, want %d; -want +got:\n%s", when, writes, want, diff)
		}
	}
	check("first", pass(l, want), len(want.Entries), want.Entries)
	check("again", pass(l, want), 0, want.Entries)
	l = New(slog.New(slog.DiscardHandler))
	check("by the next server", pass(l, want), 0, want.Entries)

	// A port that was made anew has another ifindex.
	is := seen(s)
	is.Ports[slice.PortName(7, s.Node("a").Interface("eth1").Port)] = 200
	want = Of(plan.Place{}, []plan.Input{{Spec: s}}, is)
	check("another port", pass(l, want), 2, want.Entries)
	check("nothing", pass(l, Want{}), 0, nil)
	if why := l.Problem(7, s.LSP("a--c"), 1, s.Node("b")); why != "its label is about to be written" {
		t.Errorf("at b, before a pass: %q", why)
	}
	if why := l.Problem(7, s.LSP("a--c"), 2, s.Node("c")); why != "" {
		t.Errorf("at c, where packets come without a label: %q", why)
	}

	refused := Key{SpaceOf(7, s.Node("b")), 16, false}
	p.refuse[refused] = true
	pass(l, want)
	lsp := s.LSP("a--c")
	if why := l.Problem(7, lsp, 1, s.Node("b")); why != "no space left" {
		t.Errorf("at b: %q", why)
	}
	if why := l.Problem(7, lsp, 0, s.Node("a")); why != "" {
		t.Errorf("at a: %q", why)
	}
	delete(p.refuse, refused)
	check("there is room again", pass(l, want), 1, want.Entries)
	if why := l.Problem(7, lsp, 1, s.Node("b")); why != "" {
		t.Errorf("at b, in the end: %q", why)
	}
	l.Add(nil, want)
	if l.Problem(7, lsp, 0, s.Node("a")) == "" {
		t.Error("without a network of the host no label is switched")
	}
}

// unreadable is a data path whose labels cannot be read.
type unreadable struct{ *path }

func (unreadable) AllLabels() iter.Seq2[datapath.LabelEntry, error] {
	return func(yield func(datapath.LabelEntry, error) bool) {
		yield(datapath.LabelEntry{}, errors.New("no such map"))
	}
}

func TestLabelsThatCannotBeReadAreNotTakenForWritten(t *testing.T) {
	s := resolved(t, threeRouters)
	want := Of(plan.Place{}, []plan.Input{{Spec: s}}, seen(s))
	l := New(slog.New(slog.DiscardHandler))
	l.Add(&path{is: map[Key]datapath.NHLFE{}}, want)
	l.Add(unreadable{&path{is: map[Key]datapath.NHLFE{}}}, want)
	if l.Problem(7, s.LSP("a--c"), 0, s.Node("a")) == "" {
		t.Error("another data path has what the first one got")
	}
	l.Prune(Want{}) // of what it does not know
}
