package controller

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/mapping"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/unit"
)

const gib = 1 << 30

// machines makes n hosts, h1 and so on, of which change makes something else.
func machines(n int, change ...func(h []store.HostState)) []store.HostState {
	states := make([]store.HostState, n)
	for i := range states {
		a := netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})
		states[i] = store.HostState{Alive: true, Host: hosts.Host{
			Name: fmt.Sprintf("h%d", i+1), Address: a, Cores: 8, Memory: 16 * gib,
			Features: []string{hosts.FeatureHTB, hosts.FeatureNetem},
			Underlays: []hosts.Underlay{{Name: "eth0", Addresses: []netip.Prefix{netip.PrefixFrom(a, 24)},
				MTU: 1500, Rate: 10e9}},
		}}
	}
	for _, c := range change {
		c(states)
	}
	return states
}

// resolved reads a topology file.
func resolved(t interface{ Fatalf(string, ...any) }, file string, prev *slice.Slice) *slice.Slice {
	top, found := topology.Parse("lab.yaml", []byte(file))
	if len(found) > 0 {
		t.Fatalf("parse: %s", found.Error())
	}
	s, found := topology.Resolve(top, prev)
	if len(found) > 0 {
		t.Fatalf("resolve: %s", found.Error())
	}
	return s
}

// mustPlace places a slice that fits.
func mustPlace(t testing.TB, p *placing) *slice.Slice {
	t.Helper()
	if err := p.place(); err != nil {
		t.Fatal(err)
	}
	return p.next
}

func hostsOf(s *slice.Slice) map[string]string {
	m := map[string]string{}
	for _, n := range s.Nodes {
		m[n.Name] = n.Host
	}
	return m
}

const pair = `
name: lab
nodes: {a: {host: h1}, b: {host: h2}}
links: [[a, b]]
`

func TestALinkBetweenHostsGetsATunnelAndItsMTU(t *testing.T) {
	for _, tt := range []struct {
		name, link string
		change     func(h []store.HostState)
		mtu        int
		kind       slice.TunnelKind
	}{
		{"egre", "{ends: [a, b]}", nil, 1458, slice.EGRE},
		{"vxlan", "{ends: [a, b], tunnel: vxlan}", nil, 1450, slice.VXLAN},
		{"jumbo", "{ends: [a, b]}", func(h []store.HostState) { h[0].Underlays[0].MTU, h[1].Underlays[0].MTU = 9000, 9000 },
			1500, slice.EGRE},
		{"one jumbo", "{ends: [a, b]}", func(h []store.HostState) { h[0].Underlays[0].MTU = 9000 }, 1458, slice.EGRE},
		{"written", "{ends: [a, b], mtu: 1458}", nil, 1458, slice.EGRE},
		{"ipv6", "{ends: [a, b]}", func(h []store.HostState) {
			h[0].Address, h[1].Address = netip.MustParseAddr("2001:db8::1"),
				netip.MustParseAddr("2001:db8::2")
		}, 1438, slice.EGRE},
		{"by address", "{ends: [a, b]}", func(h []store.HostState) {
			h[1].Underlays = append([]hosts.Underlay{{Name: "wlan0", MTU: 1280}}, h[1].Underlays...)
		}, 1458, slice.EGRE},
		{"narrow path", "{ends: [a, b]}", func(h []store.HostState) { h[1].Paths = map[string]int{"h1": 1400, "h3": 1300} },
			1358, slice.EGRE},
		{"wide path", "{ends: [a, b]}", func(h []store.HostState) { h[0].Paths = map[string]int{"h2": 9000} }, 1458, slice.EGRE},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hosts := machines(3)
			if tt.change != nil {
				tt.change(hosts)
			}
			s := mustPlace(t, &placing{hosts: hosts,
				next: resolved(t, strings.Replace(pair, "[a, b]", tt.link, 1), nil)})
			l := s.Links[0]
			if l.Tunnel.Number == 0 || l.Tunnel.Kind != tt.kind {
				t.Errorf("tunnel %+v", l.Tunnel)
			}
			for _, e := range l.Ends {
				if i := s.Node(e.Node).Interface(e.Interface); i.MTU != tt.mtu {
					t.Errorf("%s has mtu %d, want %d", e, i.MTU, tt.mtu)
				}
			}
		})
	}
}

func TestALinkWithinAHostIsNotChanged(t *testing.T) {
	next := resolved(t, "name: lab\nplacement: pack\nnodes: [a, b]\nlinks: [[a, b]]\n", nil)
	s := mustPlace(t, &placing{hosts: machines(2), next: next})
	if l := s.Links[0]; l.Tunnel != (slice.Tunnel{}) || s.Nodes[0].Interfaces[0].MTU != 1500 ||
		s.Nodes[0].Host != s.Nodes[1].Host {
		t.Errorf("%+v, %v", l, hostsOf(s))
	}
}

func TestWhatNoPathCarriesIsPlacedOnOneHost(t *testing.T) {
	const file = "name: lab\nnodes: [a, b, c, d]\n" +
		"links: [{ends: [a, b], mtu: 9000}, [b, c], {ends: [c, d], mtu: 9000}]\n"
	s := mustPlace(t, &placing{hosts: machines(2), next: resolved(t, file, nil)})
	at := hostsOf(s)
	if at["a"] != at["b"] || at["c"] != at["d"] || at["b"] == at["c"] {
		t.Errorf("%v", at)
	}
}

func TestASwitchOverHostsHasTheTunnel(t *testing.T) {
	const file = `
name: lab
nodes: {a: {host: h1}, b: {host: h2}, c: {host: h2}, s: {kind: switch}}
links:
  - {ends: [a, s], tunnel: vxlan}
  - {ends: [b, s], tunnel: vxlan}
  - {ends: [c, s], tunnel: vxlan}
`
	s := mustPlace(t, &placing{hosts: machines(2), next: resolved(t, file, nil)})
	if sw := s.Node("s"); sw.Host != "" || sw.Tunnel.Number == 0 || sw.Tunnel.Kind != slice.VXLAN {
		t.Errorf("switch on %q with tunnel %+v", sw.Host, sw.Tunnel)
	}
	for _, l := range s.Links {
		if l.Tunnel.Number != 0 {
			t.Errorf("cable %s has a tunnel: %+v", l.Name, l.Tunnel)
		}
		for _, e := range l.Ends {
			if i := s.Node(e.Node).Interface(e.Interface); i.MTU != 1450 {
				t.Errorf("%s has mtu %d, want 1450", e, i.MTU)
			}
		}
	}
}

// refused gives the message of a refusal.
func refused(t *testing.T, p *placing) string {
	t.Helper()
	err := p.place()
	var r *Refusal
	if !errors.As(err, &r) {
		t.Fatalf("not refused: %v, %v", err, hostsOf(p.next))
	}
	return r.Message
}

func TestRefusalsSayWhatToDo(t *testing.T) {
	since := time.Date(2026, 11, 21, 9, 30, 0, 0, time.Local)
	wide := strings.Replace(pair, "[a, b]", "{ends: [a, b], mtu: 9000}", 1)
	for _, tt := range []struct {
		name, file, want string
		change           func(h []store.HostState)
	}{
		{"mtu", wide, "network lab does not fit the cluster: link a:eth1--b:eth1: a:eth1 has mtu 9000, which does not fit: between h1 and h2 packets of 1500 bytes pass (eth0 of h2), of which egre takes 42: at most 1458 are left (write mtu: 1458, or no mtu)", func(h []store.HostState) { h[0].Underlays[0].MTU = 9216 }},
		{"way that takes less", wide,
			"network lab does not fit the cluster: link a:eth1--b:eth1: a:eth1 has mtu 9000, which does " +
				"not fit: between h1 and h2 packets of 1400 bytes pass (on the path from h1 to h2), " +
				"of which egre takes 42: at most 1358 are left (write mtu: 1358, or no mtu)",
			func(h []store.HostState) { h[0].Paths = map[string]int{"h2": 1400} }},
		{"path too narrow for IPv6", pair,
			"network lab does not fit the cluster: link a:eth1--b:eth1: a:eth1 has IPv6, which needs " +
				"1280 bytes: between h1 and h2 packets of 1300 bytes pass (wg0 of h2), of which egre " +
				"takes 42: at most 1258 are left (write ipv6: false in this link)",
			func(h []store.HostState) { h[1].Underlays[0].Name, h[1].Underlays[0].MTU = "wg0", 1300 }},
		{"two families", pair, "network lab does not fit the cluster: link a:eth1--b:eth1 cannot be carried: the tunnels of host h1 end at an IPv4 address, those of h2 at an IPv6 address", func(h []store.HostState) { h[1].Address = netip.MustParseAddr("2001:db8::2") }},
		{"unknown host", strings.Replace(pair, "h2", "hh2", 1),
			`network lab does not fit the cluster: node b is to run on host "hh2", which does not exist: ` +
				`did you mean h2?`, nil},
		{"no such host", strings.Replace(pair, "h2", "saturn", 1),
			`network lab does not fit the cluster: node b is to run on host "saturn", which does not ` +
				`exist: the cluster has h1, h2, h3`, nil},
		{"lost", pair, "network lab does not fit the cluster: node b is to run on host h2, which is lost since 2026-11-21 09:30:00", func(h []store.HostState) { h[1].Alive, h[1].Since = false, since }},
		{"cordoned", pair, "network lab does not fit the cluster: node b is to run on host h2, which is cordoned: to end that, `pergola host uncordon h2`", func(h []store.HostState) { h[1].Policy.Cordoned = true }},
		{"drained", pair, "network lab does not fit the cluster: node b is to run on host h2, which is being drained: to end that, `pergola host uncordon h2`", func(h []store.HostState) { h[1].Policy.Draining = true }},
		{"one address", pair, "network lab does not fit the cluster: node b is to run on host h2, which has the address 192.0.2.2, as has h3", func(h []store.HostState) { h[2].Address = h[1].Address }},
		{"binds", "name: lab\nnodes: {a: {binds: '/srv:/srv'}}\n",
			"network lab does not fit the cluster: node a has paths of a machine (binds): write on which " +
				"one, as host: with one of h1, h2, h3", nil},
		{"devices", "name: lab\nnodes: {a: {devices: /dev/kvm}}\n",
			"network lab does not fit the cluster: node a has devices of a machine (devices): write on " +
				"which one, as host: with one of h1, h2, h3", nil},
		{"too big", "name: lab\nnodes: {a: {cpu: 9}}\n",
			"network lab: no host can take node a: h1: is cordoned; h2, h3: 9 cores wanted, 8 of 8 free",
			func(h []store.HostState) { h[0].Policy.Cordoned = true }},
		{"label", "name: lab\nnodes: {a: {host_labels: {rack: b}}}\n",
			"network lab: no host can take node a: h1: its label rack is a, not b; h2: is " +
				"lost; h3: has no label rack",
			func(h []store.HostState) {
				h[0].Labels, h[1].Alive = map[string]string{"rack": "a"}, false
				h[2].Labels, h[2].Policy.Labels = map[string]string{"rack": "b"},
					map[string]string{"rack": ""}
			}},
		{"netem", "name: lab\nnodes: [a, b]\nlinks: [{ends: [a, b], delay: 1ms}]\n",
			"network lab: no host can take node a: h1, h2, h3: its kernel lacks netem",
			func(h []store.HostState) {
				for i := range h {
					h[i].Features = []string{hosts.FeatureHTB}
				}
			}},
		{"rate", strings.Replace(pair, "[a, b]", "{ends: [a, b], rate: 20Gbit}", 1),
			"network lab: no host can take node b: h1, h3: the node is pinned to h2; h2: links that " +
				"leave h1 would need 20 Gbit/s of 10 Gbit/s", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hosts := machines(3)
			if tt.change != nil {
				tt.change(hosts)
			}
			if diff := cmp.Diff(tt.want,
				refused(t, &placing{hosts: hosts, next: resolved(t, tt.file, nil)})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAReservationOfTheCardNeedsWhatHoldsIt(t *testing.T) {
	s, without := resolved(t, "name: lab\nnodes: [a, b]\nlinks: [[a, b]]\n", nil), machines(1)
	without[0].Features = []string{hosts.FeatureNetem}
	mustPlace(t, &placing{hosts: without, next: s})
	s.Nodes[0].Interfaces[0].Reserve = 1e6
	want := "network lab: no host can take node a: h1: its kernel lacks htb"
	if have := refused(t, &placing{hosts: without, next: s}); have != want {
		t.Errorf("refused with %q, want %q", have, want)
	}
}

func TestResourcesOfOtherSlicesAreNotFree(t *testing.T) {
	const file = "name: lab\nnodes: {a: {cpu: 2}}\n"
	used := map[string]usage{"h1": {Resources: mapping.Resources{mapping.Cores: 7}},
		"h2": {Resources: mapping.Resources{mapping.Memory: 16 * gib}}}
	s := mustPlace(t, &placing{hosts: machines(2), used: used, next: resolved(t, file, nil)})
	if s.Nodes[0].Host != "h2" {
		t.Errorf("%v", hostsOf(s))
	}
	// What runs stays, also where another slice was given the same cores.
	used["h2"] = usage{Resources: mapping.Resources{mapping.Cores: 8}}
	again := mustPlace(t, &placing{hosts: machines(3), used: used, prev: s, next: resolved(t, file, s)})
	if again.Nodes[0].Host != "h2" {
		t.Errorf("moved: %v", hostsOf(again))
	}
}

func TestUsageCountsLinksThatLeaveAHost(t *testing.T) {
	const file = `
name: lab
nodes: {a: {host: h1, cpu: 1, memory: 1GiB}, b: {host: h2, cpu: 0.5}, c: {host: h2}, s: {kind: switch}}
links:
  - {ends: [a, b], rate: 10Mbit, from: {b: {rate: 30Mbit}}}
  - {ends: [b, c], rate: 1Gbit}
  - {ends: [a, s], rate: 5Mbit}
  - {ends: [c, s], rate: 7Mbit}
`
	got := usageOf(mustPlace(t, &placing{hosts: machines(2), next: resolved(t, file, nil)}))
	want := map[string]usage{
		"h1": {Resources: mapping.Resources{mapping.Cores: 1, mapping.Memory: gib}, rate: 37e6},
		"h2": {Resources: mapping.Resources{mapping.Cores: 0.5}, rate: 37e6},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(usage{})); diff != "" {
		t.Error(diff)
	}
}

func TestTunnelNumbersStayAndAreNotReusedAtOnce(t *testing.T) {
	links := func(list string) string {
		return "name: lab\nnodes: {a: {host: h1}, b: {host: h2}}\nlinks: [" + list + "]\n"
	}
	number := func(s *slice.Slice, name string) uint16 { return s.Link(name).Tunnel.Number }
	first := mustPlace(t, &placing{hosts: machines(2), next: resolved(t,
		links("{name: x, ends: [a, b]}, {name: y, ends: [a, b]}"), nil)})
	second := mustPlace(t, &placing{hosts: machines(2), prev: first,
		next: resolved(t, links("{name: x, ends: [a, b]}, {name: z, ends: [a, b]}"), first)})
	if number(second, "x") != number(first, "x") {
		t.Errorf("x has number %d, had %d", number(second, "x"), number(first, "x"))
	}
	if z := number(second, "z"); z == 0 || z == number(first, "y") || z == number(first, "x") {
		t.Errorf("z has number %d; x and y had %d and %d", z, number(first, "x"), number(first, "y"))
	}
}

func TestTunnelNumbersWrapAroundAndAreReused(t *testing.T) {
	had := &slice.Slice{}
	next := &slice.Slice{Nodes: []slice.Node{{Name: "a", Kind: slice.Host, Host: "h1"},
		{Name: "b", Kind: slice.Host, Host: "h2"}}}
	for i := range slice.MaxTunnels {
		name := fmt.Sprintf("old%d", i)
		had.Links = append(had.Links, slice.Link{Name: name, Tunnel: slice.Tunnel{Number: uint16(i + 1)}})
		if i%2 == 0 {
			name = fmt.Sprintf("new%d", i)
		}
		next.Links = append(next.Links, slice.Link{Name: name, Ends: []slice.End{{Node: "a", Interface: name},
			{Node: "b", Interface: name}}})
	}
	p := &placing{prev: had, next: next}
	if err := p.numberTunnels(); err != nil {
		t.Fatal(err)
	}
	seen := map[uint16]string{}
	for _, l := range next.Links {
		n := l.Tunnel.Number
		if seen[n] != "" || n == 0 || n > slice.MaxTunnels {
			t.Fatalf("%s has number %d, as has %q", l.Name, n, seen[n])
		}
		if strings.HasPrefix(l.Name, "old") && n != had.Link(l.Name).Tunnel.Number {
			t.Fatalf("%s has number %d", l.Name, n)
		}
		seen[n] = l.Name
	}
	next.Links = append(next.Links, slice.Link{Name: "more", Ends: next.Links[0].Ends})
	if err := p.numberTunnels(); err == nil || !strings.Contains(err.Error(),
		"4096 links and switches reach over several hosts: one network can have 4095") {
		t.Errorf("one more: %v", err)
	}
}

func TestFaultsPointIntoTheFile(t *testing.T) {
	const file = `name: lab
groups: {far: {host: h7, members: [d]}}
nodes:
  a: {host: h1}
  b: {host: h2, interfaces: {eth2: {mtu: 5000}}}
  c: {cpu: 100}
  d:
links:
  - [a, b]
  - {ends: [a, b], mtu: 9000}
`
	for _, tt := range []struct {
		lines int // of the nodes that are left
		want  string
	}{
		{4, `lab.yaml:7:3: node d is to run on host "h7", which does not exist: did you mean h1?`},
		{3, "lab.yaml:6:3: no host can take node c: h1, h2: 100 cores wanted, 8 of 8 free"},
		{2, "lab.yaml:5:42: link a:eth2--b:eth2: b:eth2 has mtu 5000"},
		{2, "lab.yaml:8:25: link a:eth2--b:eth2: a:eth2 has mtu 9000"},
	} {
		text := file
		if tt.lines < 4 {
			text = strings.Replace(strings.Replace(text, "  d:\n", "", 1),
				"{far: {host: h7, members: [d]}}", "", 1)
		}
		if tt.lines < 3 {
			text = strings.Replace(text, "  c: {cpu: 100}\n", "", 1)
		}
		top, found := topology.Parse("lab.yaml", []byte(text))
		if len(found) > 0 {
			t.Fatal(found.Error())
		}
		next, _ := topology.Resolve(top, nil)
		err := (&placing{hosts: machines(2), next: next, top: top}).place()
		var r *Refusal
		if !errors.As(err, &r) {
			t.Fatalf("%d nodes: %v", tt.lines, err)
		}
		var faults topology.Diagnostics
		for _, f := range r.Faults {
			faults = append(faults, topology.Diagnostic{Path: f.Location, Message: f.Message})
		}
		if got := topology.Locate(top, faults).Error(); !strings.Contains(got, tt.want) {
			t.Errorf("got %s\nwant %s", got, tt.want)
		}
	}
}

const reserving = `
name: lab
groups: {all: {members: [a, b], reserve: {filters: 60000, masks: 100}}}
nodes:
  a: {program: p.o, reserve: {masks: 200}}
  b: {program: p.o}
`

func TestReservationsArePlacedWhereThereIsRoom(t *testing.T) {
	room := func(h []store.HostState) {
		for i := range h {
			h[i].Reservable = slice.Reserve{Filters: 98304, Masks: 6144}
		}
	}
	next := func() *slice.Slice {
		top, found := topology.Parse("lab.yaml", []byte(reserving))
		if len(found) > 0 {
			t.Fatal(found)
		}
		for _, s := range top.Sources() {
			s.Data = []byte("an object")
		}
		s, found := topology.Resolve(top, nil)
		if len(found) > 0 {
			t.Fatal(found)
		}
		return s
	}
	s := mustPlace(t, &placing{hosts: machines(2, room), next: next()})
	if want := (slice.Reserve{Filters: 60000, Masks: 200}); s.Node("a").Reserve != want {
		t.Errorf("a reserves %+v: the group's filters and its own masks are wanted", s.Node("a").Reserve)
	}
	if s.Node("a").Host == s.Node("b").Host {
		t.Errorf("both are on %s, which has room for one", s.Node("a").Host)
	}
	used := usageOf(s)
	if got := used["h1"].Resources.Plus(used["h2"].Resources)[mapping.Filters]; got != 120000 {
		t.Errorf("%v filters are in use, 120000 are reserved", got)
	}
	// All or nothing: one of two fits.
	want := "network lab: no host can take node b: h1: 60000 filters wanted, 38304 of 98304 free"
	if got := refused(t, &placing{hosts: machines(1, room), next: next()}); got != want {
		t.Errorf("%s", got)
	}
	// What another slice has is not free, and what the slice has itself stays.
	again := mustPlace(t, &placing{hosts: machines(3, room), used: used, prev: s, next: next()})
	if again.Node("a").Host != s.Node("a").Host {
		t.Errorf("moved: %v", hostsOf(again))
	}
	want = "network lab: no host can take node a: h1, h2: 60000 filters wanted, 38304 of 98304 free"
	if got := refused(t, &placing{hosts: machines(2, room), used: used, next: next()}); got != want {
		t.Errorf("%s", got)
	}
	// A host of an older version has none to reserve.
	want = "network lab: no host can take node a: h1: 60000 filters wanted, 0 of 0 free"
	if got := refused(t, &placing{hosts: machines(1), next: next()}); got != want {
		t.Errorf("%s", got)
	}
}

func TestAPortOfAHostIsReservedOnce(t *testing.T) {
	allow := func(h []store.HostState) {
		for i := range h {
			h[i].Allows = hosts.Allowance{Outside: true, Ports: []hosts.Ports{{First: 8000, Last: 8999}}}
		}
	}
	const file = "name: lab\nnodes: {a: {ports: [tcp/8080, udp/8080]}, b: {ports: tcp/8080}}\n"
	s := mustPlace(t, &placing{hosts: machines(2, allow), next: resolved(t, file, nil)})
	if s.Nodes[0].Host == s.Nodes[1].Host {
		t.Errorf("both have tcp/8080 of %s", s.Nodes[0].Host)
	}
	want := "network lab: no host can take node b: h1: its port tcp/8080 is reserved for node a"
	if got := refused(t, &placing{hosts: machines(1, allow), next: resolved(t, file, nil)}); got != want {
		t.Errorf("%s", got)
	}
	other := resolved(t, "name: other\nnodes: {c: {ports: udp/8080}}\n", nil)
	used := usageOf(s)
	moved := mustPlace(t, &placing{hosts: machines(2, allow), used: used, next: other})
	if moved.Nodes[0].Host != s.Node("b").Host {
		t.Errorf("c is on %s, where a has the port", moved.Nodes[0].Host)
	}
	at := s.Node("a").Host
	pinned := resolved(t, "name: other\nnodes: {c: {ports: udp/8080, host: "+at+"}}\n", nil)
	rest := map[string]string{"h1": "h2", "h2": "h1"}[at]
	want = fmt.Sprintf("network other: no host can take node c: %s: its port udp/8080 is reserved for lab/a; "+
		"%s: the node is pinned to %[1]s", at, rest)
	if at == "h2" {
		want = fmt.Sprintf("network other: no host can take node c: %s: the node is pinned to %s; "+
			"%[2]s: its port udp/8080 is reserved for lab/a", rest, at)
	}
	if got := refused(t, &placing{hosts: machines(2, allow), used: used, next: pinned}); got != want {
		t.Errorf("%s", got)
	}
	// What runs stays, also where two members gave the same port at the same time.
	again := mustPlace(t, &placing{hosts: machines(2, allow), used: used, prev: s, next: resolved(t, file, s)})
	if again.Node("a").Host != at {
		t.Errorf("a moved to %s", again.Node("a").Host)
	}
}

func TestAReservedRateCountsInPlaceOfTheLinks(t *testing.T) {
	next := func(reserve unit.Rate) *slice.Slice {
		s := resolved(
			t,
			"name: lab\nnodes: {a: {host: h1}, b: {host: h2}}\nlinks: [{ends: [a, b], rate: 9Gbit}]\n",
			nil,
		)
		for i := range s.Nodes {
			s.Nodes[i].Interfaces[0].Reserve = reserve
		}
		return s
	}
	used := map[string]usage{"h1": {rate: 5e9}}
	want := "network lab: no host can take node b: h1: the node is pinned to h2; h2: links that leave h1 would " +
		"need 14 Gbit/s of " +
		"10 Gbit/s"
	if got := refused(t, &placing{hosts: machines(2), used: used, next: next(0)}); got != want {
		t.Errorf("%s", got)
	}
	s := mustPlace(t, &placing{hosts: machines(2), used: used, next: next(5e9)})
	if got := usageOf(s)["h1"].rate; got != 5e9 {
		t.Errorf("%d bit/s are in use", got)
	}
	refused(t, &placing{hosts: machines(2), used: used, next: next(5e9 + 1e6)})
}

func TestWhatIsReservedOnALANCountsForEachNodeOfAHost(t *testing.T) {
	const file = `
name: lab
nodes:
  a: {host: h1, program: p.o, reserve: {bandwidth: {eth1: 4Gbit}}}
  b: {host: h1, program: p.o, reserve: {bandwidth: {eth1: B}}}
  c: {host: h2}
  d: {host: h3}
links: [[a, b, c, d]]
`
	place := func(b string) (*slice.Slice, error) {
		next, found := topology.Resolve(parsed(t, strings.Replace(file, "B", b, 1)), nil)
		if len(found) > 0 {
			t.Fatal(found.Error())
		}
		p := &placing{hosts: machines(3), next: next}
		err := p.place()
		return p.next, err
	}
	s, err := place("5Gbit")
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]uint64{"h1": 9e9, "h2": 5e9, "h3": 5e9} {
		if got := usageOf(s)[host].rate; got != want {
			t.Errorf("%s carries %d, want %d", host, got, want)
		}
	}
	_, err = place("7Gbit")
	if err == nil || !strings.Contains(err.Error(), "links that leave h1 would need 11 Gbit/s of 10 Gbit/s") {
		t.Errorf("more than the card: %v", err)
	}
}

func TestWhatIsReservedForTheOutsideCountsAtTheCard(t *testing.T) {
	allow := func(h []store.HostState) {
		for i := range h {
			h[i].Allows = hosts.Allowance{Outside: true}
		}
	}
	const file = "name: lab\nnodes: {a: {host: h1, outside: {rate: 8Gbit, reserve: 6Gbit}}, b: {outside: true}}\n"
	s := mustPlace(t, &placing{hosts: machines(2, allow), next: resolved(t, file, nil)})
	used := usageOf(s)
	if got := used["h1"].rate; got != 6e9 {
		t.Errorf("%d bit/s are in use", got)
	}
	next := func(reserve string) *slice.Slice {
		const file = "name: other\nnodes: {c: {host: h1, outside: {rate: 9Gbit, reserve: %s}}}\n"
		return resolved(t, fmt.Sprintf(file, reserve), nil)
	}
	mustPlace(t, &placing{hosts: machines(2, allow), used: used, next: next("4Gbit")})
	want := "network other: no host can take node c: h1: what leaves h1 would need 10.5 Gbit/s of 10 Gbit/s; " +
		"h2: the node is pinned to h1"
	if got := refused(t, &placing{hosts: machines(2, allow), used: used, next: next("4500Mbit")}); got != want {
		t.Errorf("%s", got)
	}
}

func TestVolumesThatStayBehindAreNamed(t *testing.T) {
	p := &placing{
		next: &slice.Slice{Nodes: []slice.Node{
			{Name: "a", Host: "h2", Volumes: []slice.Volume{{Name: "data", Target: "/srv"}}}, {Name: "b", Host: "h2"},
		}},
		moves: map[string]string{"a": "h1", "b": "h1"},
	}
	p.noteVolumes()
	const want = "a moves to h2 without what is in its volumes, which stay on h1"
	if len(p.notes) != 1 || p.notes[0] != want {
		t.Errorf("it says %q", p.notes)
	}
}
