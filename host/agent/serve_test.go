package agent

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/host/lack"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

func TestAKernelWithoutNATIsNamedBeforeTheSliceStarts(t *testing.T) {
	l := newLoop(t)
	l.noNAT = errors.New("no NAT")
	s := plantest.Slice(1, []string{"h1", "h2"})
	if _, err := l.agent.Supports(t.Context(), s); err != nil {
		t.Errorf("a slice that does not need it: %v", err)
	}
	s.Nodes[0].Outside = true
	if _, err := l.agent.Supports(t.Context(), s); err == nil || !strings.Contains(err.Error(), "no NAT") {
		t.Errorf("a slice that needs it: %v", err)
	}
}

func TestWhatAMachineLacksIsOneMessage(t *testing.T) {
	l := newLoop(t)
	s := plantest.Slice(1, []string{"h1", "h2"}, []string{"h2", "h3"})
	iperf := func(node string) []lack.Lack {
		return []lack.Lack{{
			What: `exec "iperf3 -s -D": find "iperf3"`, Nodes: []string{node}, Package: "iperf3",
		}}
	}
	l.doubts = map[string][]lack.Lack{"h1": iperf("h1"), "h3": iperf("h3")}
	doubts, err := l.agent.Supports(t.Context(), s)
	if err != nil || len(doubts) != 1 ||
		!strings.HasPrefix(doubts[0], "nodes h1, h3: exec \"iperf3 -s -D\": find \"iperf3\"\ninstall: ") {
		t.Errorf("doubts alone: %q, %v", doubts, err)
	}
	l.noNAT, l.noRoot = errors.New("no NAT"), errors.New("no such directory")
	l.programs = "/usr/sbin/bird"
	l.lacks = map[string][]lack.Lack{"h2": {{
		What: "bind /srv/data: no such file or directory", Nodes: []string{"h2"},
	}}}
	s.Nodes[0].Outside = true
	s.Nodes[1].Rootfs = slice.Rootfs{Kind: slice.RootfsDir, Ref: "/srv/root"}
	s.Nodes[2].Routing = &slice.Routing{Daemon: slice.FRR}
	doubts, err = l.agent.Supports(t.Context(), s)
	var all *lack.Error
	if !errors.As(err, &all) || len(doubts) > 0 {
		t.Fatal(doubts, err)
	}
	all.Install = func(packages []string) string { return strings.Join(packages, " and ") }
	want := `5 things are missing:
  node h2: root file system: no such directory
  node h3: frr is not installed (no /usr/lib/frr/zebra)
  node h1: no NAT
  node h2: bind /srv/data: no such file or directory
  nodes h1, h3: exec "iperf3 -s -D": find "iperf3"
install: frr and iperf3`
	if diff := cmp.Diff(want, all.Error()); diff != "" {
		t.Errorf("-want +have:\n%s", diff)
	}
}

// Room for what nodes reserve is what other slices leave, and not the slice itself as it is now.
func TestRoomIsWhatOtherSlicesLeave(t *testing.T) {
	l := newLoop(t) // 1000 filters can be reserved
	s, other := plantest.Slice(1, []string{"p1", "h1"}), plantest.Slice(2, []string{"p1", "h1"})
	s.Nodes[0].Reserve.Filters, other.Nodes[0].Reserve.Filters = 400, 600
	for _, one := range []*slice.Slice{s, other} {
		l.wanted[one.Name] = &plan.Input{Spec: one}
	}
	l.load()
	queues := func(n int) map[string]slice.Shape {
		return map[string]slice.Shape{"p1:eth1": {Queues: slices.Repeat([]slice.Queue{{Share: 1}}, n)}}
	}
	for _, c := range []struct {
		filters int
		shapes  map[string]slice.Shape
		want    string // empty: there is room
	}{
		{filters: 400},
		{filters: 401, want: "node p1: host A has not enough left to reserve: 401 filters wanted, 400 of 1000"},
		{shapes: queues(2)},
		{shapes: queues(slice.DefaultQueues + 1), want: "node p1: there are "},
	} {
		next := *s
		next.Nodes = slices.Clone(s.Nodes)
		next.Nodes[0].Reserve = slice.Reserve{Filters: c.filters}
		err := l.agent.HaveRoom(t.Context(), &hosts.Host{}, &next, c.shapes)
		if (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%d filters, shapes of %d ends: %v, want %q", c.filters, len(c.shapes), err, c.want)
		}
	}
}

func TestAKernelThatTellsOfNoBindsIsNamedBeforeTheSliceStarts(t *testing.T) {
	l := newLoop(t)
	l.noBind = errors.New("no binds")
	s := plantest.Slice(1, []string{"h1", "h2"})
	s.Nodes[0].Ports = []slice.HostPort{{Protocol: slice.TCP, Port: 8080}}
	if _, err := l.agent.Supports(t.Context(), s); err != nil {
		t.Errorf("a slice that does not need it: %v", err)
	}
	s.Nodes[0].BindPorts = slice.Ports{First: 8000, Last: 8099}
	if _, err := l.agent.Supports(t.Context(), s); err == nil || !strings.Contains(err.Error(), "no binds") {
		t.Errorf("a slice that needs it: %v", err)
	}
}

// What was admitted a moment ago counts, though the agent has not read it yet.
func TestTheRoomOfAHostIsWhatTheStoreHasNow(t *testing.T) {
	l := newLoop(t)
	first, second := plantest.Slice(1, []string{"h1", "h2"}), plantest.Slice(2, []string{"h1", "h2"})
	first.Name, second.Name = "first", "second"
	first.Node("h1").Reserve.Filters, second.Node("h2").Reserve.Filters = 700, 600
	port := slice.HostPort{Protocol: slice.TCP, Port: 8080}
	first.Node("h1").Claims, second.Node("h1").Ports = []slice.HostPort{port}, []slice.HostPort{port}
	room := func() error { return l.agent.HaveRoom(t.Context(), &hosts.Host{}, second, nil) }
	if err := room(); err != nil {
		t.Fatal(err)
	}
	l.wanted["first"] = &plan.Input{Spec: first}
	err := room()
	for _, want := range []string{"600 filters wanted, 300 of 1000 free", "port tcp/8080 of host", "first/h1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	l.deleting["first"] = 1
	delete(l.wanted, "first")
	if err := room(); err != nil {
		t.Errorf("what is being removed counts: %v", err)
	}
	l.silent = errors.New("no answer")
	if err := room(); !errors.Is(err, store.ErrUnread) || !errors.Is(err, l.silent) {
		t.Errorf("without an answer of the store: %v", err)
	}
	if _, err := l.agent.Supports(t.Context(), second); err != nil {
		t.Errorf("what the machine itself has was looked for in the store: %v", err)
	}
}

func TestTheRoomOfAnotherHostIsKnown(t *testing.T) {
	l := newLoop(t)
	queued := func(id uint16, name string, queues int) *slice.Slice {
		s := plantest.Spread(plantest.Slice(id, []string{"h1", "h2"}), map[string]string{"h1": "B", "h2": "C"})
		s.Name = name
		for range queues {
			e := &s.Links[0].Ends[0]
			e.Shape.Rate, e.Shape.Queues = 1e6, append(e.Shape.Queues, slice.Queue{Share: 1})
		}
		return s
	}
	l.wanted["first"] = &plan.Input{Spec: queued(1, "first", 6)}
	b, c := &hosts.Host{Name: "B", Reservable: slice.Reserve{Queues: 30}}, &hosts.Host{Name: "C"}
	if err := l.agent.HaveRoom(t.Context(), b, queued(2, "second", 4), nil); err != nil {
		t.Errorf("all ten of the pool: %v", err)
	}
	err := l.agent.HaveRoom(t.Context(), b, queued(2, "second", 5), nil)
	const want = "host B has not enough queues left for nodes without a reservation: 5 wanted, 6 of 10 are in use"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("eleven: %v", err)
	}
	if err := l.agent.HaveRoom(t.Context(), c, queued(2, "second", 5), nil); err != nil {
		t.Errorf("of a host that has none of these queues: %v", err)
	}
}

func TestLoopCountsTheQueuesOfLinks(t *testing.T) {
	l := newLoop(t)
	s := plantest.Slice(1, []string{"h1", "h2"}, []string{"h1", "h3"})
	s.Links[0].Ends[0].Shape = slice.Shape{Rate: 1e6, Classes: []slice.Class{
		{Name: "x", Match: []slice.Match{{Protocol: 6}}, Share: 1, Priority: 1, Queue: 5},
		{Name: "y", Share: 1, Priority: 1},
	}}
	s.Links[1].Ends[1].Shape = slice.Shape{Rate: 1e6}
	l.wanted[s.Name] = &plan.Input{Spec: s}
	l.load()
	if have, err := l.agent.Queues(t.Context(), s.Name); err != nil || len(have) > 0 {
		t.Errorf("before anything is made: %+v, %v", have, err)
	}
	l.settle(t)

	first, second := s.Links[0].Name, s.Links[1].Name
	queue := func(link, from, to, class string, sent, waiting uint64) api.QueueTraffic {
		return api.QueueTraffic{
			Link: link, From: from, To: to, Class: class, Sent: api.Traffic{Frames: sent}, Dropped: 1,
			Backlog: api.Traffic{Frames: waiting},
		}
	}
	want := []api.QueueTraffic{
		queue(first, "h1:eth1", "h2:eth1", "x", 16, 5), queue(first, "h1:eth1", "h2:eth1", "y", 17, 1000),
		queue(second, "h3:eth1", "h1:eth2", "", 1, 1000),
	}
	all, err := l.agent.Queues(t.Context(), s.Name)
	if diff := cmp.Diff(want, all); diff != "" || err != nil {
		t.Errorf("-want +have, %v:\n%s", err, diff)
	}
	one, err := l.agent.Queues(t.Context(), s.Name, second, "no such link")
	if diff := cmp.Diff(want[2:], one); diff != "" || err != nil {
		t.Errorf("of one link: -want +have, %v:\n%s", err, diff)
	}
	if have, err := l.agent.Queues(t.Context(), "other"); err == nil {
		t.Errorf("of a slice that is not there: %+v", have)
	}

	registry := prometheus.NewRegistry()
	registry.MustRegister(l.agent.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]int{}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "pergola_queue_") {
			values[f.GetName()] = len(f.GetMetric())
		}
	}
	for name, n := range values {
		if n != len(want) || len(values) != 6 {
			t.Errorf("%s has %d values of %d, in %v", name, n, len(want), values)
		}
	}
	if len(values) == 0 {
		t.Error("no queue is in the metrics")
	}
}
