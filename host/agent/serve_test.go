package agent

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/plan/plantest"
	"github.com/pergola-net/pergola/model/slice"
)

func TestAKernelWithoutNATIsNamedBeforeTheSliceStarts(t *testing.T) {
	l := newLoop(t)
	l.noNAT = errors.New("no NAT")
	s := plantest.Slice(1, []string{"h1", "h2"})
	if err := l.agent.Supports(t.Context(), s); err != nil {
		t.Errorf("a slice that does not need it: %v", err)
	}
	s.Nodes[0].Outside = true
	if err := l.agent.Supports(t.Context(), s); err == nil || !strings.Contains(err.Error(), "no NAT") {
		t.Errorf("a slice that needs it: %v", err)
	}
}

func TestAKernelThatTellsOfNoBindsIsNamedBeforeTheSliceStarts(t *testing.T) {
	l := newLoop(t)
	l.noBind = errors.New("no binds")
	s := plantest.Slice(1, []string{"h1", "h2"})
	s.Nodes[0].Ports = []slice.HostPort{{Protocol: slice.TCP, Port: 8080}}
	if err := l.agent.Supports(t.Context(), s); err != nil {
		t.Errorf("a slice that does not need it: %v", err)
	}
	s.Nodes[0].BindPorts = slice.Ports{First: 8000, Last: 8099}
	if err := l.agent.Supports(t.Context(), s); err == nil || !strings.Contains(err.Error(), "no binds") {
		t.Errorf("a slice that needs it: %v", err)
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
