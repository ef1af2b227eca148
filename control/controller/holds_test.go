package controller

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/hosts"
)

// allowing makes a host for each allowance.
func allowing(all ...hosts.Allowance) []store.HostState {
	return machines(len(all), func(h []store.HostState) {
		for i := range h {
			h[i].Allows = all[i]
		}
	})
}

var (
	outsideOnly = hosts.Allowance{Outside: true}
	highPorts   = hosts.Allowance{Ports: []hosts.Ports{{First: 20000, Last: 20999}}}
	webPort     = hosts.Allowance{Outside: true, Ports: []hosts.Ports{{First: 8080, Last: 8080}}}
)

func TestNodesArePlacedOnHostsThatAllowWhatTheyHold(t *testing.T) {
	const file = "name: lab\nnodes: {a: {ports: tcp/8080, outside: true}, b: {outside: true}, c: {}}\n"
	s := mustPlace(t, &placing{hosts: allowing(highPorts, outsideOnly, webPort), next: resolved(t, file, nil)})
	if at := hostsOf(s); at["a"] != "h3" || at["b"] == "h1" || at["c"] != "h1" {
		t.Errorf("%v", at)
	}
}

func TestANodeThatRunsMovesWhereItMayHoldWhatItWantsNow(t *testing.T) {
	running := func() *placing {
		const before = "name: lab\nnodes: {a: {outside: true}, b: {}}\n"
		return &placing{hosts: allowing(outsideOnly, webPort), next: resolved(t, before, nil)}
	}
	s := mustPlace(t, running())
	s.Node("a").Host = "h1"
	p := &placing{hosts: allowing(outsideOnly, webPort), prev: s,
		next: resolved(t, "name: lab\nnodes: {a: {outside: true, ports: tcp/8080}, b: {}}\n", s)}
	if at := hostsOf(mustPlace(t, p)); at["a"] != "h2" || at["b"] != s.Node("b").Host {
		t.Errorf("h1 does not allow what a wants now: %v", at)
	}
	// What it had, it keeps: its host's own root may have given it.
	p = &placing{hosts: allowing(hosts.Allowance{}, webPort), prev: s,
		next: resolved(t, "name: lab\nnodes: {a: {outside: true}, b: {}}\n", s)}
	if at := hostsOf(mustPlace(t, p)); at["a"] != "h1" {
		t.Errorf("what a had is asked for again: %v", at)
	}
}

func TestTheLeaderMovesNodesOnlyToHostsThatAllowWhatTheyHold(t *testing.T) {
	const file = "name: lab\nnodes: {a: {outside: true}}\n"
	drained := func(allow ...hosts.Allowance) *placing {
		p := &placing{hosts: allowing(allow...), background: true, prev: resolved(t, file, nil)}
		p.prev.Nodes[0].Host = "h1"
		p.next, p.hosts[0].Policy.Draining = copyForPlacing(p.prev), true
		return p
	}
	p := drained(outsideOnly, highPorts, outsideOnly)
	if at := hostsOf(mustPlace(t, p)); at["a"] != "h3" {
		t.Errorf("moved to %v", at)
	}
	p = drained(outsideOnly, highPorts)
	at := hostsOf(mustPlace(t, p))
	want := []string{"a stays on h1: no other host can take it: h2: does not allow connections to the outside " +
		"(outside: true, or peers: of a UDP port)"}
	if diff := cmp.Diff(want, p.notes); diff != "" || at["a"] != "h1" {
		t.Errorf("%v: %s", at, diff)
	}
}

func TestHostsDecideAboutTheirPortsAndTheOutside(t *testing.T) {
	const (
		floating = "name: lab\nnodes: {a: {ports: tcp/8080, outside: true}}\n"
		pinned   = "name: lab\nnodes: {a: {ports: [tcp/8080, udp/8081], outside: true, host: h1}}\n"
		uplink   = "name: lab\nnodes: {u: {kind: uplink, host: h1}}\n"
		paths    = "name: lab\nnodes: {a: {host: h1, binds: ['/srv/b:/b', '/srv/c:/c']}}\n"
	)
	for _, tt := range []struct {
		name, file string
		hosts      []store.HostState
		want       string
	}{
		{"allowed", floating, allowing(webPort), ""},
		{"root of that machine asks", floating, allowing(hosts.Allowance{})[:1], ""},
		{"no host", floating, allowing(highPorts, outsideOnly, hosts.Allowance{}),
			"network lab: no host can take node a: " +
				"h1: does not allow connections to the outside (outside: true, or peers: of a UDP " +
				"port) and " +
				"allows ports 20000-20999 only, not tcp/8080; " +
				"h2: allows no ports, not tcp/8080; " +
				"h3: does not allow connections to the outside (outside: true, or peers: of a UDP " +
				"port) and " +
				"allows no ports, not tcp/8080; " +
				"apply the network on h1 itself, as root, or start Pergola there with --outside " +
				"--ports 8080,20000-20999"},
		{"pinned", pinned, allowing(highPorts, webPort),
			"network lab: host h1 does not allow node a to use connections to the outside (outside: " +
				"true, or peers: of a UDP port): " +
				"apply the network on h1 itself, as root, or start Pergola there with --outside " +
				"--ports 8080-8081,20000-20999 (and 2 more)"},
		{"pinned, one port", pinned, allowing(webPort),
			"network lab: host h1 does not allow node a to use its port udp/8081: apply the network on " +
				"h1 itself, as root, or start Pergola there with --ports 8080-8081"},
		{"network", uplink, allowing(hosts.Allowance{Paths: []string{"/srv/a"}}),
			"network lab: host h1 does not allow node u to use its network (kind: uplink): apply the " +
				"network on h1 itself, as root, or start Pergola there with --host-network"},
		{"paths", paths, allowing(hosts.Allowance{Paths: []string{"/srv/a", "/srv/b"}}),
			"network lab: host h1 does not allow node a to use /srv/c: apply the network on h1 itself, " +
				"as root, or start Pergola there with --host-paths /srv/a,/srv/b,/srv/c"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &placing{hosts: tt.hosts, next: resolved(t, tt.file, nil)}
			if tt.name == "root of that machine asks" {
				p.home = "h1"
			}
			err := p.place()
			if err == nil {
				err = p.askHosts()
			}
			got := ""
			if err != nil {
				got = err.Error()
				if r, ok := errors.AsType[*Refusal](err); !ok || r.Reason != Forbidden {
					t.Errorf("refused as %v", err)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
