package labels

import (
	"errors"
	"iter"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/datapath/mirror"
	"github.com/pergola-net/pergola/host/agent/agenttest"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
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
	return agenttest.Resolved(t, file, nil)
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
		Rules: map[sliver.ID][]Rule{}, Missing: map[Hop]string{}, Unknown: map[uint16]bool{},
	}
	compare := cmpopts.EquateComparable(netip.Prefix{})
	if diff := cmp.Diff(want, Of(plan.Place{}, []plan.Input{{Spec: s}}, agenttest.Seen(s)), compare); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	is := agenttest.Seen(s)
	delete(is.Ports, slice.PortName(7, s.Node("b").Interface("eth2").Port))
	w := Of(plan.Place{}, []plan.Input{{Spec: s}}, is)
	missing := map[Hop]string{{7, "a--c", "b"}: "eth2 is not there", {7, "deep", "b"}: "eth2 is not there"}
	if diff := cmp.Diff(missing, w.Missing); diff != "" || len(w.Entries) != 3 {
		t.Errorf("without a port: %d entries, -want +got:\n%s", len(w.Entries), diff)
	}
	is = agenttest.Seen(s)
	delete(is.NetNS, sliver.ID{Slice: 7, Node: "a"})
	w = Of(plan.Place{}, []plan.Input{{Spec: s}}, is)
	if why := w.Missing[Hop{7, "deep", "a"}]; why != "it does not run" || len(w.Entries) != 3 {
		t.Errorf("without a node: %d entries, %q", len(w.Entries), why)
	}
	for i := range s.Nodes {
		s.Nodes[i].Host = map[string]string{"a": "h1", "b": "h2", "c": "h1"}[s.Nodes[i].Name]
	}
	w = Of(plan.Place{Host: "h2"}, []plan.Input{{Spec: s}}, agenttest.Seen(s))
	if len(w.Entries) != 2 || len(w.Routers) != 1 {
		t.Errorf("at the host of b: %+v", w)
	}
}

// Rules are those of all LSPs of a router, by name. The mirror lets no router ask that has none.
func TestRulesAreInTheOrderOfTheirLSPs(t *testing.T) {
	s := resolved(t, `name: lab
nodes: {a: {routing: ospf}, b: {routing: ospf}, c: {routing: ospf}}
links: [[a, b], [b, c]]
lsps:
  - {path: [a, b, c], name: z, match: [{proto: udp}, {dscp: EF}]}
  - {path: [a, b], name: y, match: [{dst: 10.9.0.0/24}]}
  - {path: [b, c], to: 10.9.0.0/24}
`)
	p := agenttest.NewLabels(map[agenttest.Entry]datapath.NHLFE{})
	l := New(slog.New(slog.DiscardHandler))
	pass := func(w Want) Want {
		l.Add(p, w)
		l.Steer(p, w)
		l.Prune(w)
		return w
	}
	of := func() Want { return Of(plan.Place{}, []plan.Input{{Spec: s}}, agenttest.Seen(s)) }
	space := SpaceOf(7, s.Node("a"))
	y, z := s.LSP("y"), s.LSP("z")
	if why := l.Unruled(7, z, s.Node("a")); why != "its rules are about to be written" {
		t.Errorf("before a pass: %q", why)
	}
	p.Refuse[agenttest.Entry{Space: space}] = true
	pass(of())
	if why := l.Unruled(7, z, s.Node("a")); why != "no space left" {
		t.Errorf("refused: %q", why)
	}
	delete(p.Refuse, agenttest.Entry{Space: space})
	w := pass(of())
	ef := datapath.Match{DSCP: 46}
	want := map[uint32][]datapath.LabelRule{space: {
		{FTN: y.ID, Match: datapath.Match{DSCP: -1, Destination: netip.MustParsePrefix("10.9.0.0/24")}},
		{FTN: z.ID, Match: datapath.Match{DSCP: -1, Protocol: 17}}, {FTN: z.ID, Match: ef},
	}}
	compare := cmpopts.EquateComparable(netip.Prefix{})
	if diff := cmp.Diff(want, p.Rules, compare); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if why := l.Unruled(7, z, s.Node("a")); why != "" {
		t.Errorf("written: %q", why)
	}
	for name, asks := range map[string]bool{"a": true, "b": false, "c": false} {
		if w.Routers[sliver.ID{Slice: 7, Node: name}].Rules != asks {
			t.Errorf("%s asks: %t", name, !asks)
		}
	}
	l = New(slog.New(slog.DiscardHandler)) // the next server
	before := p.Writes
	if pass(of()); p.Writes != before {
		t.Errorf("%d writes of what is there", p.Writes-before)
	}
	// Rules that cannot be changed would lead packets to where they went before.
	p.Refuse[agenttest.Entry{Space: space}] = true
	z.Match = z.Match[:1]
	if pass(of()); len(p.Rules) != 0 {
		t.Errorf("old rules stay: %v", p.Rules)
	}
	delete(p.Refuse, agenttest.Entry{Space: space})
	if pass(of()); len(p.Rules[space]) != 2 {
		t.Errorf("they are not written later: %v", p.Rules)
	}
	pass(Want{Unknown: map[uint16]bool{7: true}})
	if len(p.Rules) != 1 {
		t.Errorf("of a network that cannot be read: %v", p.Rules)
	}
	if pass(Want{}); len(p.Rules) != 0 {
		t.Errorf("left: %v", p.Rules)
	}
}

// What frames get as their first label leads on when they get it.
func TestLabelsAreWrittenBeforeWhatLeadsToThem(t *testing.T) {
	s := resolved(t, threeRouters)
	p := agenttest.NewLabels(map[agenttest.Entry]datapath.NHLFE{})
	order := &ordered{Labels: p}
	New(slog.New(slog.DiscardHandler)).Add(order, Of(plan.Place{}, []plan.Input{{Spec: s}}, agenttest.Seen(s)))
	if want := []bool{false, false, false, true, true}; !slices.Equal(order.ftns, want) {
		t.Errorf("FTNs are written in this order: %v, want %v", order.ftns, want)
	}
}

// ordered notes for each entry that is written whether it is an FTN.
type ordered struct {
	*agenttest.Labels
	ftns []bool
}

func (o *ordered) SetLabel(space, label uint32, n datapath.NHLFE) error {
	o.ftns = append(o.ftns, false)
	return o.Labels.SetLabel(space, label, n)
}

func (o *ordered) SetFTN(space, ftn uint32, n datapath.NHLFE) error {
	o.ftns = append(o.ftns, true)
	return o.Labels.SetFTN(space, ftn, n)
}

func TestOnlyWhatDiffersIsWritten(t *testing.T) {
	s := resolved(t, threeRouters)
	want := Of(plan.Place{}, []plan.Input{{Spec: s}}, agenttest.Seen(s))
	signalled, left := Key{7, slice.LastStatic + 1, false}, Key{9, 20, false}
	p := agenttest.NewLabels(map[agenttest.Entry]datapath.NHLFE{agenttest.Entry(signalled): {Pop: true},
		agenttest.Entry(left): {Pop: true}})
	l := New(slog.New(slog.DiscardHandler))
	pass := func(l *Labels, w Want) (writes int) {
		before := p.Writes
		l.Add(p, w)
		l.Prune(w)
		return p.Writes - before
	}
	check := func(when string, writes, want int, entries map[Key]datapath.NHLFE) {
		t.Helper()
		all := map[agenttest.Entry]datapath.NHLFE{agenttest.Entry(signalled): {Pop: true}}
		for k, n := range entries {
			all[agenttest.Entry(k)] = n
		}
		if diff := cmp.Diff(all, p.Is); diff != "" || writes != want {
			t.Errorf("%s: %d writes, want %d; -want +got:\n%s", when, writes, want, diff)
		}
	}
	check("first", pass(l, want), len(want.Entries), want.Entries)
	check("again", pass(l, want), 0, want.Entries)
	l = New(slog.New(slog.DiscardHandler))
	check("by the next server", pass(l, want), 0, want.Entries)

	// A port that was made anew has another ifindex.
	is := agenttest.Seen(s)
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
	p.Refuse[agenttest.Entry(refused)] = true
	pass(l, want)
	lsp := s.LSP("a--c")
	if why := l.Problem(7, lsp, 1, s.Node("b")); why != "no space left" {
		t.Errorf("at b: %q", why)
	}
	if why := l.Problem(7, lsp, 0, s.Node("a")); why != "" {
		t.Errorf("at a: %q", why)
	}
	delete(p.Refuse, agenttest.Entry(refused))
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
type unreadable struct{ *agenttest.Labels }

func (unreadable) AllLabels() iter.Seq2[datapath.LabelEntry, error] {
	return func(yield func(datapath.LabelEntry, error) bool) {
		yield(datapath.LabelEntry{}, errors.New("no such map"))
	}
}

func TestLabelsThatCannotBeReadAreNotTakenForWritten(t *testing.T) {
	s := resolved(t, threeRouters)
	want := Of(plan.Place{}, []plan.Input{{Spec: s}}, agenttest.Seen(s))
	l := New(slog.New(slog.DiscardHandler))
	nothing := map[agenttest.Entry]datapath.NHLFE{}
	l.Add(agenttest.NewLabels(nothing), want)
	l.Add(unreadable{agenttest.NewLabels(nothing)}, want)
	if l.Problem(7, s.LSP("a--c"), 0, s.Node("a")) == "" {
		t.Error("another data path has what the first one got")
	}
	l.Prune(Want{}) // of what it does not know
}

// Of a slice whose record cannot be read it is not known what is wanted.
func TestASliceThatCannotBeReadKeepsItsLabels(t *testing.T) {
	s := resolved(t, threeRouters)
	want := Of(plan.Place{}, []plan.Input{{Spec: s}}, agenttest.Seen(s))
	p := agenttest.NewLabels(map[agenttest.Entry]datapath.NHLFE{})
	New(slog.New(slog.DiscardHandler)).Add(p, want)
	broken := plan.Input{Spec: &slice.Slice{Name: s.Name, ID: s.ID}, Corrupt: errors.New("no record")}
	l := New(slog.New(slog.DiscardHandler)) // the next server
	want = Of(plan.Place{}, []plan.Input{broken}, agenttest.Seen(s))
	l.Add(p, want)
	l.Prune(want)
	if len(p.Is) != 5 {
		t.Errorf("%d labels are left, want 5", len(p.Is))
	}
}

// An entry that cannot be overwritten is not left as it was: packets would go where they went before.
func TestALabelThatCannotBeOverwrittenIsRemoved(t *testing.T) {
	s := resolved(t, threeRouters)
	at := Key{SpaceOf(7, s.Node("b")), 16, false}
	p := agenttest.NewLabels(map[agenttest.Entry]datapath.NHLFE{agenttest.Entry(at): {Pop: true}})
	p.Refuse[agenttest.Entry(at)], p.Keep[agenttest.Entry(at)] = true, true
	want := Of(plan.Place{}, []plan.Input{{Spec: s}}, agenttest.Seen(s))
	l := New(slog.New(slog.DiscardHandler))
	for _, keep := range []bool{true, false} { // by the next pass, if it cannot be at once
		p.Keep[agenttest.Entry(at)] = keep
		l.Add(p, want)
		if _, there := p.Is[agenttest.Entry(at)]; there != keep {
			t.Errorf("it can be removed: %t, and it is there: %t", !keep, there)
		}
		if why := l.Problem(7, s.LSP("a--c"), 1, s.Node("b")); why != "no space left" {
			t.Errorf("at b: %q", why)
		}
	}
}
