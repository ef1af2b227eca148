package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

func TestAHostMakesNoNodeThatReservesMoreThanIsLeft(t *testing.T) {
	at := Place{Host: "A", Joined: true, Reservable: slice.Reserve{Filters: 1000, Masks: 100}}
	first, second := plantest.Slice(2, []string{"h1"}), plantest.Slice(1, []string{"h2", "h3"})
	for _, s := range []*slice.Slice{first, second} {
		for i := range s.Nodes {
			s.Nodes[i].Host = "A"
		}
	}
	first.Node("h1").Reserve = slice.Reserve{Filters: 700}
	second.Node("h2").Reserve = slice.Reserve{Filters: 600, Memory: 1 << 20}
	inputs := []Input{{Spec: first}, {Spec: second}}
	Admit(at, inputs)
	want := "host A has not enough left to reserve: 700 filters wanted, 400 of 1000 free (`pergola reserve ls` " +
		"shows which nodes have it)"
	if got := inputs[0].Barred(at, first.Node("h1")); got != want {
		t.Errorf("h1: %q", got)
	}
	for _, name := range []string{"h2", "h3"} {
		if got := inputs[1].Barred(at, second.Node(name)); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
	w, _ := New(at, inputs)
	if got := strings.Join(w.names(KindSliver), " "); got != "h2 h3" {
		t.Errorf("slivers of %s", got)
	}
	second.Node("h2").Host = "B"
	Admit(at, inputs)
	if got := inputs[0].Barred(at, first.Node("h1")); got != "" {
		t.Errorf("another host's reservation counts here: %q", got)
	}
}

func TestWhatAHostAdmitsNeverExceedsItsCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := func(label string, most int) int { return rapid.IntRange(0, most).Draw(t, label) }
		at := Place{Host: "A", Reservable: slice.Reserve{
			Filters: amount("filters", 2000), Masks: amount("masks", 50),
			FastPath: float64(amount("cores", 4)) / 2,
		}}
		var inputs []Input
		for id := range uint16(amount("slices", 4)) {
			s := &slice.Slice{ID: 4 - id}
			for n := range amount("nodes", 4) {
				s.Nodes = append(s.Nodes, slice.Node{Name: fmt.Sprint("n", n), Reserve: slice.Reserve{
					Filters: amount("wanted filters", 900), Masks: amount("wanted masks", 20),
					FastPath: float64(amount("wanted cores", 3)) / 4,
				}})
			}
			inputs = append(inputs, Input{Spec: s})
		}
		Admit(at, inputs)
		var sum slice.Reserve
		for _, one := range inputs {
			for i := range one.Spec.Nodes {
				n := &one.Spec.Nodes[i]
				if one.Short[n.Name] == "" {
					sum.Filters += n.Reserve.Filters
					sum.Masks += n.Reserve.Masks
					sum.FastPath += n.Reserve.FastPath
				}
			}
		}
		has := at.Reservable
		if sum.Filters > has.Filters || sum.Masks > has.Masks || sum.FastPath > has.FastPath {
			t.Fatalf("%+v admitted of %+v", sum, has)
		}
	})
}

func TestAPortOfAHostIsGivenOnce(t *testing.T) {
	at := Place{Host: "A"}
	first, second := plantest.Slice(1, []string{"h1"}), plantest.Slice(2, []string{"h2"})
	first.Name, second.Name = "first", "second"
	web := slice.HostPort{Protocol: slice.TCP, Port: 8080}
	first.Node("h1").Ports, first.Node("h1").Outside = []slice.HostPort{web}, true
	second.Node("h2").Ports = []slice.HostPort{web}
	inputs := []Input{{Spec: second}, {Spec: first}}
	Admit(at, inputs)
	if got, want := inputs[0].Short["h2"], "port tcp/8080 of host A is reserved for first/h1"; got != want {
		t.Errorf("h2: %q", got)
	}
	w, _ := New(at, inputs)
	if got := strings.Join(w.names(KindOutside), " "); got != "h1" {
		t.Errorf("connections with the outside of %q", got)
	}
	second.Node("h2").Ports = nil
	Admit(at, inputs)
	if w, _ = New(at, inputs); strings.Join(w.names(KindSliver), " ") != "h1 h2" || len(w.names(KindOutside)) != 1 {
		t.Errorf("slivers %v, connections of %v", w.names(KindSliver), w.names(KindOutside))
	}
}

// Two members can give the same port to two nodes that ask for it while they run, if one of them does not keep to the
// rules: then one of both lacks that port, and nothing else.
func TestANodeGoesOnWithoutAPortThatAnotherHas(t *testing.T) {
	at := Place{Host: "A"}
	tcp := func(n uint16) slice.HostPort { return slice.HostPort{Protocol: slice.TCP, Port: n} }
	first, second := plantest.Slice(1, []string{"h1"}), plantest.Slice(2, []string{"h2"})
	first.Name, second.Name = "first", "second"
	h1, h2 := first.Node("h1"), second.Node("h2")
	h1.Claims, h1.BoundPorts = []slice.HostPort{tcp(8001), tcp(8003)}, []slice.HostPort{tcp(8002)}
	h2.Ports, h2.Claims = []slice.HostPort{tcp(8000), tcp(8003)}, []slice.HostPort{tcp(8001), tcp(8004)}
	h2.BindPorts, h2.BoundPorts = slice.Ports{First: 8002, Last: 8009}, []slice.HostPort{tcp(8002)}
	inputs := []Input{{Spec: second}, {Spec: first}}
	Admit(at, inputs)
	w, _ := New(at, inputs)
	ports := func(id uint16, node string) []slice.HostPort {
		o, _ := w.Detail(reconcile.Key{Kind: KindOutside, Slice: id, Name: node}).(Outside)
		return o.Ports
	}
	if diff := cmp.Diff([]slice.HostPort{tcp(8001), tcp(8002)}, ports(1, "h1")); diff != "" {
		t.Errorf("h1: a port of a topology comes first, whatever the slice's id: %s", diff)
	}
	if diff := cmp.Diff([]slice.HostPort{tcp(8000), tcp(8003), tcp(8004)}, ports(2, "h2")); diff != "" {
		t.Errorf("h2: %s", diff)
	}
	for i, want := range []string{
		"port tcp/8001, which it reserved while it ran, is reserved for first/h1 (`pergola reserve rm " +
			"second/h2 tcp/8001` ends the conflict); port tcp/8002, which it reserved while it ran, is " +
			"reserved for first/h1 (`pergola reserve rm second/h2 tcp/8002` ends the conflict)",
		"port tcp/8003, which it reserved while it ran, is reserved for second/h2 (`pergola reserve rm " +
			"first/h1 tcp/8003` ends the conflict)",
	} {
		if got := inputs[i].WhyLost([]string{"h2", "h1"}[i]); got != want || inputs[i].Short != nil {
			t.Errorf("%s, %v", got, inputs[i].Short)
		}
	}
}

func TestNodeIDsAreReadAsTheyAreWritten(t *testing.T) {
	id := NodeID{Slice: 7, Node: "web"}
	if got, ok := ParseNodeID(id.String()); got != id || !ok {
		t.Errorf("%v, %t", got, ok)
	}
	for _, text := range []string{"", "7", "7/", "x/web", "70000/web"} {
		if id, ok := ParseNodeID(text); ok {
			t.Errorf("%q is %v", text, id)
		}
	}
}

// queued is a slice of one node that sends by so many queues of 2 KiB.
func queued(id uint16, queues int, r slice.Reserve) *slice.Slice {
	e := slice.End{Node: "p", Interface: "eth1", Shape: slice.Shape{Rate: 1e6}}
	for range queues {
		e.Shape.Queues = append(e.Shape.Queues, slice.Queue{Share: 1, Length: unit.Length{Bytes: 2048}})
	}
	return &slice.Slice{ID: id, Name: fmt.Sprint("s", id), Nodes: []slice.Node{{Name: "p", Reserve: r}},
		Links: []slice.Link{{Name: "l", Ends: []slice.End{e}}}}
}

func TestQueuesWithoutAReservationShareAPool(t *testing.T) {
	at := Place{Host: "A", Reservable: slice.Reserve{Queues: 30, Buffer: 30 * 2048}}
	inputs := []Input{
		{
			Spec: queued(1, 8, slice.Reserve{}),
		}, {Spec: queued(2, 25, slice.Reserve{Queues: 25, Buffer: 25 * 2048})},
		{Spec: queued(3, 3, slice.Reserve{})}, {Spec: queued(4, 2, slice.Reserve{})},
		{Spec: queued(5, 2, slice.Reserve{Queues: 2, Buffer: 5 * 2048}), Overrides: slice.Overrides{
			Shapes: map[string]slice.Shape{"p:eth1": queued(5, 3, slice.Reserve{}).Links[0].Ends[0].Shape},
		}},
	}
	Admit(at, inputs)
	got := ""
	for _, one := range inputs {
		got += one.Short["p"] + "\n"
	}
	const want = "\n\nhost A has not enough queues left for nodes without a reservation: 3 wanted, 8 of 10 are " +
		"in use " +
		"(write reserve: {queues: 3})\n\nthere are 3 queues, and 2 are reserved\n"
	if got != want {
		t.Errorf("short of:\n%s", got)
	}
	at.Reservable.Queues = 0
	inputs = []Input{{Spec: queued(1, 9, slice.Reserve{})}, {Spec: queued(2, 2, slice.Reserve{})}}
	Admit(at, inputs)
	if got := inputs[1].Short["p"]; inputs[0].Short != nil ||
		!strings.HasPrefix(got, "host A has not enough buffer "+
			"left for queues of nodes without a reservation: 4 KiB wanted, 18 of 20 KiB are in use") {
		t.Errorf("%v, %q", inputs[0].Short, got)
	}
}
