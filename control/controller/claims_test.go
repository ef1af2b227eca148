package controller

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/unit"
)

func TestNodesReserveThePortsThatTheyBind(t *testing.T) {
	f := &fake{hosts: machines(2, func(h []store.HostState) {
		h[0].Allows.Ports = []hosts.Ports{{First: 20000, Last: 20499}, {First: 20500, Last: 20999}}
	})}
	c, s, _ := member(t, f, InCluster(f, "h2"))
	const file = "name: lab\nnodes: {a: {host: h1, ports: [tcp/20000, {bind: 20100-20900}]}, b: {host: h1}}\n"
	mustApply(t, c, file)
	mustApply(t, c, "name: other\nnodes: {x: {host: h1, ports: [{bind: 20100-20200}]}}\n")
	const third = "name: third\nnodes: {x: {host: h1, ports: [{bind: 20900-21000}]}}\n"
	top, _ := topology.Parse("third.yaml", []byte(third))
	_, _, err := c.Apply(t.Context(), Caller{Root: true}, top, false)
	const refusal = "host h1 does not allow node x to use its ports 20900-21000: apply the network on h1 itself, " +
		"as root, or start Pergola there with --ports 20000-21000"
	if err == nil || !strings.Contains(err.Error(), refusal) {
		t.Errorf("a range that the host does not allow: %v", err)
	}
	bound := func(p ...string) api.ReservationChange { return api.ReservationChange{Reserve: p, Bound: true} }
	for _, tt := range []struct {
		slice, node string
		change      api.ReservationChange
		reason      Reason // -1: it is done
		text        string
	}{
		{"lab", "a", bound("tcp/20101", "udp/20102"), -1, ""},
		{"lab", "a", bound("tcp/20000"), -1, ""}, // it is in the topology
		{"other", "x", bound("tcp/20101"), Conflict, "port tcp/20101 of host h1 is reserved for lab/a"},
		{"lab", "a", bound("tcp/20950"), Forbidden, "port tcp/20950 is not one of those that a may bind: " +
			"write ports: [{bind: 20950}] in the topology"},
		{"lab", "b", bound("tcp/20300"), Forbidden, "is not one of those that b may bind"},
		{"lab", "a", api.ReservationChange{Reserve: []string{"tcp/20300"}}, -1, ""},
		{"lab", "a", api.ReservationChange{Release: []string{"tcp/20101"}}, Conflict, "a process of a has bound port"},
		{"lab", "a", api.ReservationChange{Release: []string{"udp/20102", "udp/20103"}, Bound: true}, -1, ""},
	} {
		err := c.Reserve(t.Context(), tt.slice, tt.node, tt.change)
		if reasonOf(err) != tt.reason || err != nil && !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s of %s: %+v: %v", tt.node, tt.slice, tt.change, err)
		}
	}
	check := func(when string, want ...slice.HostPort) {
		t.Helper()
		spec, _, err := s.Slice(t.Context(), "lab")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, spec.Node("a").BoundPorts); diff != "" {
			t.Errorf("%s: %s", when, diff)
		}
	}
	check("stored", slice.HostPort{Protocol: slice.TCP, Port: 20101})
	mustApply(t, c, file+"placement: pack\n")
	check("after a newer version of the slice", slice.HostPort{Protocol: slice.TCP, Port: 20101})
	mustApply(t, c, strings.Replace(file, "20100", "20102", 1))
	check("after a version with another range")
}

func TestNodesReserveWhatTheirHostsAllowAndHave(t *testing.T) {
	f := &fake{hosts: machines(2, func(h []store.HostState) {
		h[0].Allows.Ports = []hosts.Ports{{First: 20000, Last: 20999}}
	})}
	c, s, _ := member(t, f, InCluster(f, "h2"))
	const file = "name: lab\nnodes: {a: {host: h1}, b: {host: h2}, c: {host: h1}}\nlinks: [[a, b]]\n"
	mustApply(t, c, file)
	mustApply(t, c, "name: other\nnodes: {x: {host: h1}, y: {host: h2}}\nlinks: [{ends: [x, y], rate: 9Gbit}]\n")
	ports := func(p ...string) api.ReservationChange { return api.ReservationChange{Reserve: p} }
	rate := func(r unit.Rate) api.ReservationChange { return rateOf("eth1", r) }
	for _, tt := range []struct {
		slice, node string
		change      api.ReservationChange
		reason      Reason // -1: it is done
		text        string
	}{
		{"lab", "a", ports("tcp/20001", "udp/20001"), -1, ""},
		{"lab", "a", ports("tcp/20001"), -1, ""},
		{"lab", "c", ports("tcp/20001"), Conflict, "port tcp/20001 is reserved for lab/a"},
		{"other", "x", ports("tcp/20002", "tcp/20001"), Conflict, "port tcp/20001 of host h1 is reserved for lab/a"},
		{"lab", "a", ports("tcp/80"), Forbidden, "host h1 allows ports 20000-20999 only, not tcp/80: root " +
			"can start " +
			"Pergola there with --ports 80,20000-20999"},
		{"lab", "b", ports("tcp/20001"), Forbidden, "host h2 allows no ports"},
		{"lab", "a", ports("http"), Invalid, "is no port"},
		{"lab", "z", ports("tcp/20001"), NotFound, "has no node"},
		{"lab", "a", api.ReservationChange{Release: []string{"tcp/20007"}}, NotFound, "has not reserved port tcp/20007"},
		{"lab", "a", rate(1e9), -1, ""},
		{"lab", "b", rate(2e9), Full, "links that leave it would need 11Gbit of 10Gbit"},
		{"other", "x", rate(20e9), Invalid, "its link has a rate of 9Gbit"},
		{"lab", "a", api.ReservationChange{Release: []string{"udp/20001"}}, -1, ""},
	} {
		err := c.Reserve(t.Context(), tt.slice, tt.node, tt.change)
		if reasonOf(err) != tt.reason || err != nil && !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s of %s: %+v: %v", tt.node, tt.slice, tt.change, err)
		}
	}
	check := func(when string) {
		t.Helper()
		spec, _, err := s.Slice(t.Context(), "lab")
		if err != nil {
			t.Fatal(err)
		}
		a := spec.Node("a")
		want := []slice.HostPort{{Protocol: slice.TCP, Port: 20001}}
		if diff := cmp.Diff(want, a.Claims); diff != "" || a.Interface("eth1").Reserved() != 1e9 {
			t.Errorf("%s: %s, %s", when, diff, a.Interface("eth1").Reserved())
		}
	}
	check("stored")
	mustApply(t, c, file+"placement: pack\n")
	check("after a newer version of the slice")
	if x, _, err := s.Slice(t.Context(), "other"); err != nil || len(x.Node("x").Claims) > 0 {
		t.Errorf("a part of what was refused is stored: %v, %v", x.Node("x").Claims, err)
	}
}

func rateOf(iface string, r unit.Rate) api.ReservationChange {
	return api.ReservationChange{Bandwidth: map[string]unit.Rate{iface: r}}
}

func TestAUserTakesBackWhatANodeReservedWhileItRan(t *testing.T) {
	f := &fake{hosts: machines(2, func(h []store.HostState) {
		h[0].Allows.Ports = []hosts.Ports{{First: 8000, Last: 8099}}
	})}
	c, s, bus := member(t, f, InCluster(f, "h2"))
	mustApply(t, c, "name: lab\nnodes: {a: {host: h1, program: p.o, ports: [tcp/8000, {bind: 8010-8019}], "+
		"reserve: {bandwidth: {eth2: 1Mbit}}}, b: {host: h2}}\nlinks: [[a, b], [a, b]]\n")
	for _, change := range []api.ReservationChange{
		{Reserve: []string{"tcp/8001", "tcp/8002"}},
		{Reserve: []string{"tcp/8010"}, Bound: true},
		rateOf("eth1", 1e9),
	} {
		if err := c.Reserve(t.Context(), "lab", "a", change); err != nil {
			t.Fatal(err)
		}
	}
	listed := func() api.NodeReservation {
		t.Helper()
		all, err := c.Reservations(t.Context(), slice.Reserve{})
		if err != nil || len(all) != 2 || len(all[0].Nodes) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		return all[0].Nodes[0]
	}
	before := listed()
	if diff := cmp.Diff([]string{"tcp/8001", "tcp/8002", "eth1"}, before.Claims); diff != "" {
		t.Errorf("asked for: %s", diff)
	}
	if diff := cmp.Diff([]string{"tcp/8010"}, before.Bound); diff != "" {
		t.Errorf("bound: %s", diff)
	}
	for _, tt := range []struct {
		what   api.ReservationRelease
		reason Reason // -1: it is done
		text   string
	}{
		{api.ReservationRelease{}, Invalid, "nothing to release"},
		{api.ReservationRelease{Ports: []string{"tcp/8001", "tcp/8003"}}, NotFound, "a has not reserved port tcp/8003"},
		{api.ReservationRelease{Ports: []string{"tcp/8000"}}, Invalid, "is one of the topology"},
		{api.ReservationRelease{Ports: []string{"tcp/8010"}}, Conflict, "a process of a has bound port tcp/8010"},
		{api.ReservationRelease{Interfaces: []string{"eth2"}}, Invalid, "a:eth2 is that of the topology"},
		{api.ReservationRelease{Interfaces: []string{"eth9"}}, NotFound, `no interface of node a "eth9"`},
		{api.ReservationRelease{Ports: []string{"tcp/8001"}, Interfaces: []string{"eth1"}}, -1, ""},
		{api.ReservationRelease{Interfaces: []string{"eth1"}}, NotFound, "a has not reserved bandwidth for eth1"},
	} {
		err := c.Release(t.Context(), "lab", "a", tt.what)
		if reasonOf(err) != tt.reason || err != nil && !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%+v: %v", tt.what, err)
		}
	}
	if err := c.Release(t.Context(), "lab", "z", api.ReservationRelease{Ports: []string{"tcp/1"}}); reasonOf(err) !=
		NotFound {
		t.Errorf("of a node that is not there: %v", err)
	}
	spec, _, err := s.Slice(t.Context(), "lab")
	if err != nil {
		t.Fatal(err)
	}
	a := spec.Node("a")
	want := []slice.HostPort{{Protocol: slice.TCP, Port: 8002}}
	if diff := cmp.Diff(want, a.Claims); diff != "" || a.Interface("eth1").Reserved() != 0 {
		t.Errorf("%s, %s", diff, a.Interface("eth1").Reserved())
	}
	wait(t, bus, "reservations changed by a user: tcp/8001 released, bandwidth of eth1 released")
}

// Of a node that is on no host, nobody could say whether its ports are others'.
func TestANodeWithoutAHostReservesNothing(t *testing.T) {
	f := &fake{hosts: machines(2, func(h []store.HostState) {
		h[0].Allows.Ports = []hosts.Ports{{First: 8000, Last: 8099}}
		h[0].Features = nil
	})}
	c, _, _ := member(t, f, InCluster(f, "h2"))
	mustApply(t, c, "name: lab\nnodes: {a: {host: h1}, b: {host: h2}}\nlinks: [[a, b]]\n")
	err := c.Reserve(t.Context(), "lab", "a", rateOf("eth1", 1e6))
	if reasonOf(err) != Unsupported || !strings.Contains(err.Error(), "its kernel lacks htb") {
		t.Errorf("bandwidth that nothing would keep for it: %v", err)
	}
	port := api.ReservationChange{Reserve: []string{"tcp/8001"}}
	if err := c.Reserve(t.Context(), "lab", "a", port); err != nil {
		t.Fatal(err)
	}
	f.set(without(machines(2), "h1"))
	port.Reserve[0] = "tcp/8002"
	err = c.Reserve(t.Context(), "lab", "a", port)
	if reasonOf(err) != Conflict || !strings.Contains(err.Error(), "a is on no host of the cluster") {
		t.Errorf("a port of a host that was removed: %v", err)
	}
	if err := c.Release(t.Context(), "lab", "a", api.ReservationRelease{Ports: []string{"tcp/8001"}}); err != nil {
		t.Errorf("released: %v", err)
	}
}

// consent keeps in memory what root has given.
type consent struct{ terms hosts.Terms }

func (c *consent) Give(name string, holds []slice.Hold, put func() error) error {
	c.terms.Given = map[string][]slice.Hold{name: holds}
	return put()
}

func (c *consent) Terms() *hosts.Terms { return &c.terms }

func TestTheRangeThatRootGivesCoversWhatIsBoundOnAMachineOfNoCluster(t *testing.T) {
	c, s, _ := member(t, &fake{}, WithHolds(&consent{}))
	top, _ := topology.Parse("lab.yaml", []byte("name: lab\nnodes: {a: {ports: [{bind: 8000-8099}]}}\n"))
	if _, _, err := c.Apply(t.Context(), Caller{Root: true, Local: true}, top, false); err != nil {
		t.Fatal(err)
	}
	bound := api.ReservationChange{Reserve: []string{"udp/8099"}, Bound: true}
	if err := c.Reserve(t.Context(), "lab", "a", bound); err != nil {
		t.Error(err)
	}
	other := api.ReservationChange{Reserve: []string{"tcp/8100"}}
	if err := c.Reserve(t.Context(), "lab", "a", other); reasonOf(err) != Forbidden {
		t.Errorf("a port that root has not given: %v", err)
	}
	spec, _, err := s.Slice(t.Context(), "lab")
	if err != nil {
		t.Fatal(err)
	}
	want := []slice.HostPort{{Protocol: slice.UDP, Port: 8099}}
	if diff := cmp.Diff(want, spec.Node("a").HostPorts()); diff != "" {
		t.Error(diff)
	}
}
