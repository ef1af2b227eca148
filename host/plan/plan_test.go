package plan

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

// names lists the wanted resources of some kinds, sorted.
func (w *Wanted) names(kinds ...reconcile.Kind) (names []string) {
	for _, r := range w.Resources {
		if slices.Contains(kinds, r.Key.Kind) {
			names = append(names, r.Key.Name)
		}
	}
	slices.Sort(names)
	return names
}

func mustWant(t *testing.T, inputs ...Input) *Wanted {
	t.Helper()
	w, broken := New(Place{}, inputs)
	for _, err := range broken {
		t.Fatal(err)
	}
	return w
}

func TestWiresFollowTheKindsOfTheirEnds(t *testing.T) {
	lan := switchDevice(7, "link h1:eth3 h2:eth2 h3:eth1 ")
	for name, c := range map[string]struct {
		links [][]string
		want  []string
	}{
		"joined":       {[][]string{{"h1", "h2"}}, []string{"s7p1=s7p2"}},
		"plugged":      {[][]string{{"h1", "s1"}}, []string{"s7p1>" + switchDevice(7, "s1")}},
		"either order": {[][]string{{"s1", "h1"}}, []string{"s7p2>" + switchDevice(7, "s1")}},
		"cabled":       {[][]string{{"s1", "s2"}}, []string{"s7p1#s7p2"}},
		"uplink":       {[][]string{{"h1", "u1"}}, []string{"s7p1=s7p2"}},
		"a LAN": {
			[][]string{{"h1", "h2"}, {"h1", "h9"}, {"h1", "h2", "h3"}},
			[]string{"s7p1=s7p2", "s7p3=s7p4", "s7p5>" + lan, "s7p6>" + lan, "s7p7>" + lan},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := mustWant(t, Input{Spec: plantest.Slice(7, c.links...)})
			if diff := cmp.Diff(c.want, w.names(KindWire)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestALinkThatIsDownHasPortsAndNoWire(t *testing.T) {
	s := plantest.Slice(1, []string{"h1", "h2"})
	w := mustWant(t, Input{Spec: s, Overrides: slice.Overrides{Down: map[string]bool{s.Links[0].Name: true}}})
	if got := w.names(KindPort, KindWire); !slices.Equal(got, []string{"s1p1", "s1p2"}) {
		t.Errorf("wants %v", got)
	}
}

func TestANodeThatIsOffLeavesItsNeighboursPort(t *testing.T) {
	s := plantest.Slice(1, []string{"h1", "h2"}, []string{"h2", "h3"})
	w := mustWant(t, Input{
		Spec: s, Overrides: slice.Overrides{Power: map[string]slice.Power{"h1": slice.PowerOff}},
	})
	want := []string{"h2", "h3", "s1p2", "s1p3", "s1p3=s1p4", "s1p4"}
	if got := w.names(KindPort, KindWire, KindSliver); !slices.Equal(got, want) {
		t.Errorf("wants %v", got)
	}
}

func TestANodeThatIsLeftKeepsItsRecordAndNothingElse(t *testing.T) {
	w := mustWant(t, Input{Spec: plantest.Slice(1, []string{"h1", "h2"}), Ended: map[string]bool{"h1": true}})
	if got := w.names(KindPort, KindSliver, KindProcess); !slices.Equal(got, []string{"h1", "h2", "h2", "s1p2"}) {
		t.Errorf("wants %v", got)
	}
}

func TestExecLinesRunOnceAcrossAPause(t *testing.T) {
	s := plantest.Slice(1, []string{"h1", "h2"})
	frozen := slice.Overrides{Power: map[string]slice.Power{"h1": slice.PowerFrozen, "h2": slice.PowerFrozen}}
	w := mustWant(t, Input{Spec: s, Overrides: frozen, Booted: map[string]bool{"h1": true}})
	if got := w.names(KindBoot); !slices.Equal(got, []string{"h1"}) {
		t.Errorf("exec lines are wanted to have run of %v: those of h1 have, those of h2 wait", got)
	}
}

func TestOnlySysctlsOfTheNetworkChangeWhileANodeRuns(t *testing.T) {
	s := plantest.Slice(1, []string{"h1", "h2"})
	before := mustWant(t, Input{Spec: s})
	for key, kind := range map[string]reconcile.Kind{
		"net.ipv4.ip_forward": KindNodeNet, "kernel.msgmax": KindSliver,
	} {
		s.Nodes[0].Sysctls = map[string]string{key: "1"}
		after := mustWant(t, Input{Spec: s})
		for i, r := range before.Resources {
			h1 := reconcile.Key{Kind: kind, Slice: 1, Name: "h1"}
			if changed := after.Resources[i].Digest != r.Digest; changed != (r.Key == h1) {
				t.Errorf("%s: change of %s %s: %v", key, KindName(r.Key.Kind), r.Key.Name, changed)
			}
		}
	}
}

func TestARestartChangesTheSliverAndNothingElse(t *testing.T) {
	s := plantest.Slice(1, []string{"h1", "h2"})
	before := mustWant(t, Input{Spec: s})
	after := mustWant(t, Input{Spec: s, Overrides: slice.Overrides{Restarts: map[string]int{"h1": 1}}})
	var changed []string
	for i, r := range before.Resources {
		if after.Resources[i].Digest != r.Digest {
			changed = append(changed, fmt.Sprint(r.Key.Kind, r.Key.Name))
		}
	}
	if want := []string{fmt.Sprint(KindSliver, "h1")}; !slices.Equal(changed, want) {
		t.Errorf("changed %v, want %v", changed, want)
	}
}

func TestShapesSitWhereTheSliverCannotReachThem(t *testing.T) {
	fast, slow := slice.Shape{Rate: 1e9}, slice.Shape{Rate: 1e6}
	s := plantest.Slice(1, []string{"h1", "h2"}, []string{"h1", "s1"})
	s.Links[0].Ends[0].Shape = slow                                 // h1 sends slowly to h2
	s.Links[1].Ends[0].Shape, s.Links[1].Ends[1].Shape = slow, fast // and to the switch, which answers fast
	w := mustWant(t, Input{Spec: s})
	got := map[string]wiring.Link{}
	for _, d := range w.details {
		if l, ok := d.(wiring.Link); ok {
			got[l.A.Port] = l
		}
	}
	end := func(port string, shape slice.Shape) wiring.End {
		return wiring.End{Port: port, MTU: 1500, Shape: shape}
	}
	want := map[string]wiring.Link{
		"s1p1": {A: end("s1p1", slow), B: end("s1p2", slice.Shape{})},
		"s1p3": {A: end("s1p3", slow), B: wiring.End{Shape: fast}, Switch: switchDevice(1, "s1")},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// drawNetwork makes a random slice with random overrides.
func drawNetwork(t *rapid.T, id uint16) Input {
	name := rapid.SampledFrom([]string{"h1", "h2", "h3", "h4", "s1", "s2", "u1"})
	ends := rapid.SliceOfNDistinct(name, 2, 4, rapid.ID[string])
	s := plantest.Slice(id, rapid.SliceOfN(ends, 0, 8).Draw(t, "links")...)
	w := Input{Spec: s, Ended: map[string]bool{}, Overrides: slice.Overrides{
		Power: map[string]slice.Power{}, Down: map[string]bool{}, Shapes: map[string]slice.Shape{},
	}}
	for _, n := range s.Nodes {
		powers := []slice.Power{"", slice.PowerOn, slice.PowerOff, slice.PowerFrozen}
		w.Overrides.Power[n.Name] = rapid.SampledFrom(powers).Draw(t, "power")
		w.Ended[n.Name] = n.HasSliver() && rapid.IntRange(0, 5).Draw(t, "left") == 0
	}
	for _, l := range s.Links {
		w.Overrides.Down[l.Name] = rapid.IntRange(0, 3).Draw(t, "down") == 0
		w.Overrides.Shapes[l.Ends[0].String()] = slice.Shape{
			Rate: rapid.SampledFrom([]unit.Rate{0, 1e6}).Draw(t, "rate"),
		}
	}
	return w
}

func TestWhatIsWantedCanAlwaysBePlannedAndIsThenLeftAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var inputs []Input
		for id := range uint16(rapid.IntRange(0, 3).Draw(t, "slices")) {
			inputs = append(inputs, drawNetwork(t, id+1))
		}
		w, broken := New(Place{}, inputs)
		if len(broken) > 0 {
			t.Fatal(broken)
		}
		plan, err := reconcile.Plan(w.Resources, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(plan) != len(w.Resources) {
			t.Fatalf("%d actions for %d resources", len(plan), len(w.Resources))
		}
		seen := make(map[reconcile.Key]bool)
		var all []reconcile.Observed
		for _, r := range w.Resources {
			if seen[r.Key] {
				t.Fatalf("%v is wanted twice", r.Key)
			}
			seen[r.Key] = true
			if NoteOf[r.Key.Kind] != "" && r.Digest == "" {
				t.Fatalf("%v: without a digest, its note says that it is not there", r.Key)
			}
			all = append(all, reconcile.Observed{
				Key: r.Key, Digest: r.Digest, Needs: r.Needs, Falls: r.Falls,
			})
		}
		if plan, _ = reconcile.Plan(w.Resources, all, nil); len(plan) != 0 {
			t.Fatalf("plan %v for what is as wanted", plan)
		}
		repeated, _ := New(Place{}, inputs)
		if !slices.EqualFunc(w.Resources, repeated.Resources, func(a, b reconcile.Resource) bool {
			return a.Digest == b.Digest && a.Key == b.Key
		}) {
			t.Fatal("equal inputs give different lists")
		}
	})
}

func TestASliceThatMakesNoSenseLeavesTheOthersAlone(t *testing.T) {
	bad := plantest.Slice(1, []string{"h1", "h2"})
	bad.Nodes[0].Routing = &slice.Routing{Daemon: "gated"}
	good := plantest.Slice(2, []string{"h1", "h2"})
	w, broken := New(Place{}, []Input{{Spec: bad}, {Spec: good}})
	if broken[1] == nil || broken[2] != nil {
		t.Errorf("broken %v", broken)
	}
	want := mustWant(t, Input{Spec: good})
	if !slices.EqualFunc(w.Resources, want.Resources, func(a, b reconcile.Resource) bool {
		return a.Key == b.Key && a.Digest == b.Digest
	}) {
		t.Error("the good slice is wanted otherwise beside the bad one")
	}
}

func TestDeviceNamesFitTheKernel(t *testing.T) {
	for _, name := range []string{
		switchDevice(slice.MaxID, "a"), slice.PortName(slice.MaxID, slice.MaxInterfaces) + "q",
	} {
		if len(name) > 15 {
			t.Errorf("%q has %d bytes", name, len(name))
		}
		if SliceOf(name) != slice.MaxID {
			t.Errorf("%q belongs to slice %d", name, SliceOf(name))
		}
	}
}

func TestHostsFileNamesEveryNodeByBothFamilies(t *testing.T) {
	s := plantest.Slice(1, []string{"h1", "h2"})
	s.Nodes[0].Loopbacks = []netip.Prefix{
		netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("2001:db8::1/128"),
	}
	for _, line := range []string{"192.0.2.1\th1\n", "2001:db8::1\th1\n", "127.0.0.1\tlocalhost\n"} {
		if !strings.Contains(string(hostsFile(s)), line) {
			t.Errorf("no line %q in\n%s", line, hostsFile(s))
		}
	}
}

func TestASliceThatCannotBeReadLeavesTheOthersAlone(t *testing.T) {
	good, unread := plantest.Slice(1, []string{"h1", "h2"}), errors.New("decode slice: unexpected end")
	w, broken := New(Place{}, []Input{{Spec: &slice.Slice{Name: "torn", ID: 2}, Corrupt: unread}, {Spec: good}})
	alone, _ := New(Place{}, []Input{{Spec: good}})
	if !errors.Is(broken[2], unread) || len(broken) != 1 {
		t.Errorf("broken: %v", broken)
	}
	if diff := cmp.Diff(alone.Resources, w.Resources); diff != "" {
		t.Errorf("resources differ from those of the good slice alone:\n%s", diff)
	}
}
