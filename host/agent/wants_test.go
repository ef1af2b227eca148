package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/model/slice"
)

// network makes a slice of hosts h1, h2, ... and switches s1, s2, ... from links of ends such as "h1:eth1"; an end of the
// form "h1" gets the next free interface.
func network(id uint16, links ...[]string) *slice.Slice {
	s := &slice.Slice{Name: fmt.Sprint("lab", id), ID: id, Generation: 1}
	port := uint16(0)
	for _, ends := range links {
		l := slice.Link{LAN: len(ends) > 2}
		for _, name := range ends {
			n := s.Node(name)
			if n == nil {
				kind := map[byte]slice.Kind{'h': slice.Host, 's': slice.Switch, 'u': slice.Uplink}[name[0]]
				s.Nodes = append(s.Nodes, slice.Node{Name: name, Kind: kind, Restart: slice.RestartAlways, Exec: []string{"true"}})
				n = s.Node(name)
			}
			port++
			i := slice.Interface{Name: fmt.Sprint("eth", len(n.Interfaces)+1), Port: port, MTU: 1500, MAC: "02:00:00:00:00:01"}
			n.Interfaces = append(n.Interfaces, i)
			l.Ends = append(l.Ends, slice.End{Node: name, Interface: i.Name})
			l.Name += name + ":" + i.Name + " "
		}
		for i := range l.Ends {
			s.Node(l.Ends[i].Node).Interface(l.Ends[i].Interface).Link = l.Name
		}
		s.Links = append(s.Links, l)
	}
	return s
}

// names lists the wanted resources of some kinds, sorted.
func (w *wanted) names(kinds ...reconcile.Kind) (names []string) {
	for _, r := range w.resources {
		if slices.Contains(kinds, r.Key.Kind) {
			names = append(names, r.Key.Name)
		}
	}
	slices.Sort(names)
	return names
}

func mustWant(t *testing.T, wishes ...wish) *wanted {
	t.Helper()
	w, broken := wants(place{}, wishes)
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
			w := mustWant(t, wish{spec: network(7, c.links...)})
			if diff := cmp.Diff(c.want, w.names(kindWire)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestALinkThatIsDownHasPortsAndNoWire(t *testing.T) {
	s := network(1, []string{"h1", "h2"})
	w := mustWant(t, wish{spec: s, overrides: slice.Overrides{Down: map[string]bool{s.Links[0].Name: true}}})
	if got := w.names(kindPort, kindWire); !slices.Equal(got, []string{"s1p1", "s1p2"}) {
		t.Errorf("wants %v", got)
	}
}

func TestANodeThatIsOffLeavesItsNeighboursPort(t *testing.T) {
	s := network(1, []string{"h1", "h2"}, []string{"h2", "h3"})
	w := mustWant(t, wish{spec: s, overrides: slice.Overrides{Power: map[string]slice.Power{"h1": slice.PowerOff}}})
	if got := w.names(kindPort, kindWire, kindSliver); !slices.Equal(got, []string{"h2", "h3", "s1p2", "s1p3", "s1p3=s1p4", "s1p4"}) {
		t.Errorf("wants %v", got)
	}
}

func TestANodeThatIsLeftKeepsItsRecordAndNothingElse(t *testing.T) {
	w := mustWant(t, wish{spec: network(1, []string{"h1", "h2"}), left: map[string]bool{"h1": true}})
	if got := w.names(kindPort, kindSliver, kindProcess); !slices.Equal(got, []string{"h1", "h2", "h2", "s1p2"}) {
		t.Errorf("wants %v", got)
	}
}

func TestExecLinesRunOnceAcrossAPause(t *testing.T) {
	s := network(1, []string{"h1", "h2"})
	frozen := slice.Overrides{Power: map[string]slice.Power{"h1": slice.PowerFrozen, "h2": slice.PowerFrozen}}
	w := mustWant(t, wish{spec: s, overrides: frozen, booted: map[string]bool{"h1": true}})
	if got := w.names(kindBoot); !slices.Equal(got, []string{"h1"}) {
		t.Errorf("exec lines are wanted to have run of %v: those of h1 have, those of h2 wait", got)
	}
}

func TestOnlySysctlsOfTheNetworkChangeWhileANodeRuns(t *testing.T) {
	s := network(1, []string{"h1", "h2"})
	before := mustWant(t, wish{spec: s})
	for key, kind := range map[string]reconcile.Kind{"net.ipv4.ip_forward": kindNet, "kernel.msgmax": kindSliver} {
		s.Nodes[0].Sysctls = map[string]string{key: "1"}
		after := mustWant(t, wish{spec: s})
		for i, r := range before.resources {
			if changed := after.resources[i].Digest != r.Digest; changed != (r.Key == reconcile.Key{Kind: kind, Slice: 1, Name: "h1"}) {
				t.Errorf("%s: change of %s %s: %v", key, kindNames[r.Key.Kind], r.Key.Name, changed)
			}
		}
	}
}

func TestARestartChangesTheSliverAndNothingElse(t *testing.T) {
	s := network(1, []string{"h1", "h2"})
	before := mustWant(t, wish{spec: s})
	after := mustWant(t, wish{spec: s, overrides: slice.Overrides{Restarts: map[string]int{"h1": 1}}})
	var changed []string
	for i, r := range before.resources {
		if after.resources[i].Digest != r.Digest {
			changed = append(changed, fmt.Sprint(r.Key.Kind, r.Key.Name))
		}
	}
	if want := []string{fmt.Sprint(kindSliver, "h1")}; !slices.Equal(changed, want) {
		t.Errorf("changed %v, want %v", changed, want)
	}
}

func TestShapesSitWhereTheSliverCannotReachThem(t *testing.T) {
	fast, slow := slice.Shape{Rate: 1e9}, slice.Shape{Rate: 1e6}
	s := network(1, []string{"h1", "h2"}, []string{"h1", "s1"})
	s.Links[0].Ends[0].Shape = slow                                 // h1 sends slowly to h2
	s.Links[1].Ends[0].Shape, s.Links[1].Ends[1].Shape = slow, fast // and to the switch, which answers fast
	w := mustWant(t, wish{spec: s})
	got := map[string]queue{}
	for _, d := range w.details {
		if q, ok := d.(queue); ok {
			got[q.port] = q
		}
	}
	want := map[string]queue{"s1p1": {port: "s1p1", fromNode: slow, joined: true}, "s1p3": {port: "s1p3", fromNode: slow, toNode: fast}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(queue{})); diff != "" {
		t.Error(diff)
	}
}

// drawNetwork makes a random slice with random overrides.
func drawNetwork(t *rapid.T, id uint16) wish {
	name := rapid.SampledFrom([]string{"h1", "h2", "h3", "h4", "s1", "s2", "u1"})
	ends := rapid.SliceOfNDistinct(name, 2, 4, rapid.ID[string])
	s := network(id, rapid.SliceOfN(ends, 0, 8).Draw(t, "links")...)
	w := wish{spec: s, left: map[string]bool{}, overrides: slice.Overrides{Power: map[string]slice.Power{}, Down: map[string]bool{}, Shapes: map[string]slice.Shape{}}}
	for _, n := range s.Nodes {
		w.overrides.Power[n.Name] = rapid.SampledFrom([]slice.Power{"", slice.PowerOn, slice.PowerOff, slice.PowerFrozen}).Draw(t, "power")
		w.left[n.Name] = n.HasSliver() && rapid.IntRange(0, 5).Draw(t, "left") == 0
	}
	for _, l := range s.Links {
		w.overrides.Down[l.Name] = rapid.IntRange(0, 3).Draw(t, "down") == 0
		w.overrides.Shapes[l.Ends[0].String()] = slice.Shape{Rate: rapid.SampledFrom([]uint64{0, 1e6}).Draw(t, "rate")}
	}
	return w
}

func TestWhatIsWantedCanAlwaysBePlannedAndIsThenLeftAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var wishes []wish
		for id := range uint16(rapid.IntRange(0, 3).Draw(t, "slices")) {
			wishes = append(wishes, drawNetwork(t, id+1))
		}
		w, broken := wants(place{}, wishes)
		if len(broken) > 0 {
			t.Fatal(broken)
		}
		plan, err := reconcile.Plan(w.resources, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(plan) != len(w.resources) {
			t.Fatalf("%d actions for %d resources", len(plan), len(w.resources))
		}
		seen := make(map[reconcile.Key]bool)
		var all []reconcile.Observed
		for _, r := range w.resources {
			if seen[r.Key] {
				t.Fatalf("%v is wanted twice", r.Key)
			}
			seen[r.Key] = true
			if noteOf[r.Key.Kind] != "" && r.Digest == "" {
				t.Fatalf("%v: without a digest, its note says that it is not there", r.Key)
			}
			all = append(all, reconcile.Observed{Key: r.Key, Digest: r.Digest, Needs: r.Needs, Falls: r.Falls})
		}
		if plan, _ = reconcile.Plan(w.resources, all, nil); len(plan) != 0 {
			t.Fatalf("plan %v for what is as wanted", plan)
		}
		again, _ := wants(place{}, wishes)
		if !slices.EqualFunc(w.resources, again.resources, func(a, b reconcile.Resource) bool { return a.Digest == b.Digest && a.Key == b.Key }) {
			t.Fatal("equal wishes give different lists")
		}
	})
}

func TestASliceThatMakesNoSenseLeavesTheOthersAlone(t *testing.T) {
	bad := network(1, []string{"h1", "h2"})
	bad.Nodes[0].Routing = &slice.Routing{Daemon: "gated"}
	good := network(2, []string{"h1", "h2"})
	w, broken := wants(place{}, []wish{{spec: bad}, {spec: good}})
	if broken[1] == nil || broken[2] != nil {
		t.Errorf("broken %v", broken)
	}
	want := mustWant(t, wish{spec: good})
	if !slices.EqualFunc(w.resources, want.resources, func(a, b reconcile.Resource) bool { return a.Key == b.Key && a.Digest == b.Digest }) {
		t.Error("the good slice is wanted otherwise beside the bad one")
	}
}

func TestDeviceNamesFitTheKernel(t *testing.T) {
	for _, name := range []string{switchDevice(slice.MaxID, "a"), slice.PortName(slice.MaxID, slice.MaxInterfaces) + "q"} {
		if len(name) > 15 {
			t.Errorf("%q has %d bytes", name, len(name))
		}
		if sliceOf(name) != slice.MaxID {
			t.Errorf("%q belongs to slice %d", name, sliceOf(name))
		}
	}
}

func TestHostsFileNamesEveryNodeByBothFamilies(t *testing.T) {
	s := network(1, []string{"h1", "h2"})
	s.Nodes[0].Loopbacks = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("2001:db8::1/128")}
	for _, line := range []string{"192.0.2.1\th1\n", "2001:db8::1\th1\n", "127.0.0.1\tlocalhost\n"} {
		if !strings.Contains(string(hostsFile(s)), line) {
			t.Errorf("no line %q in\n%s", line, hostsFile(s))
		}
	}
}

func TestASliceThatCannotBeReadLeavesTheOthersAlone(t *testing.T) {
	good, unread := network(1, []string{"h1", "h2"}), errors.New("decode slice: unexpected end")
	w, broken := wants(place{}, []wish{{spec: &slice.Slice{Name: "torn", ID: 2}, corrupt: unread}, {spec: good}})
	alone, _ := wants(place{}, []wish{{spec: good}})
	if !errors.Is(broken[2], unread) || len(broken) != 1 {
		t.Errorf("broken: %v", broken)
	}
	if diff := cmp.Diff(alone.resources, w.resources); diff != "" {
		t.Errorf("resources differ from those of the good slice alone:\n%s", diff)
	}
}
