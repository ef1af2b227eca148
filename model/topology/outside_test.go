package topology

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

func TestNodesReachTheOutsideAndReservePorts(t *testing.T) {
	top := mustParse(t, "lab.yaml", []byte(`name: lab
groups: {all: {members: [web, r], outside: true}}
nodes:
  web: {ports: [udp/5610, tcp/8080, tcp/80]}
  r: {kind: router}
`))
	s := mustResolve(t, throughJSON(t, top), nil)
	want := []slice.HostPort{
		{Protocol: "tcp", Port: 80}, {Protocol: "tcp", Port: 8080}, {Protocol: "udp", Port: 5610},
	}
	if diff := cmp.Diff(want, s.Node("web").Ports); diff != "" || !s.Node("web").Outside {
		t.Errorf("web: %t, %s", s.Node("web").Outside, diff)
	}
	if r := s.Node("r"); r.ReachesOutside() {
		t.Error("a router reaches the outside")
	}
}

func TestTheOutsideHasARate(t *testing.T) {
	top := mustParse(t, "lab.yaml", []byte(`name: lab
groups: {all: {members: [a, b, c, d], outside: {rate: 10Mbit, reserve: 1Mbit}}}
nodes:
  a: {}
  b: {outside: {rate: 20Mbit}}
  c: {outside: false, ports: tcp/80}
  d: {outside: true}
  e: {outside: true}
  f: {outside: {on: false, rate: 30Mbit}, ports: tcp/80}
`))
	s := mustResolve(t, throughJSON(t, top), nil)
	type outside struct {
		on            bool
		rate, reserve unit.Rate
	}
	for name, want := range map[string]outside{
		"a": {true, 10e6, 1e6}, "b": {true, 20e6, 1e6}, "c": {false, 10e6, 1e6}, "d": {true, 10e6, 1e6},
		"e": {true, slice.DefaultOutsideRate, 0}, "f": {false, 30e6, 0},
	} {
		n := s.Node(name)
		if got := (outside{n.Outside, n.RateOutside(), n.ReservedOutside()}); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestBadPorts(t *testing.T) {
	for text, want := range map[string]string{
		"outside: {rate: 0}":        "a rate of 0 lets nothing pass",
		"outside: {reserve: 1Gbit}": "1Gbit are reserved, and the node may send 100Mbit to the outside",
		"outside: maybe":            `outside is true or false, not "maybe"`,
		"ports: [8080]":             `"8080" is no port: write tcp/8080 or udp/5610`,
		"ports: [sctp/80]":          `"sctp/80" is no port: write tcp/8080 or udp/5610`,
		"ports: [tcp/0]":            `"0" is no number of a port`,
		"ports: [tcp/65536]":        `"65536" is no number of a port`,
		"ports: [tcp/61000]": "ports 61000 to 65095 are those of connections that nodes make to " +
			"the outside",
		"ports: [tcp/80, tcp/80]":       "port tcp/80 is listed twice",
		"kind: router, ports: [tcp/80]": "a router has no ports",
		"kind: switch, outside: true":   "a switch has no outside",
		"ports: [{bind: 8000-7000}]": `bind: "8000-7000" is no port: write a number from 1 to 65535, or ` +
			"a range such as 5000-5010",
		"ports: [{bind: 60000-62000}]": "ports 61000 to 65095 are those of connections that nodes make to " +
			"the outside",
		"ports: [{bind: 80}, {bind: 90}]":         `"a" has a range of ports that it may bind already`,
		"ports: [{bind: 80, port: tcp/80}]":       "bind: is an entry of its own: it takes no other key",
		"ports: [{bind: 80, interface: outside}]": `"a" is no packet program: no interface of it is a port`,
	} {
		_, found := Parse("lab.yaml", []byte("name: lab\nnodes: {a: {"+text+"}}\n"))
		if len(found) != 1 || found[0].Message != want {
			t.Errorf("%s: %v", text, found)
		}
	}
	const named = "name: lab\nnodes: {a: {outside: true}, b: {}}\nlinks: [[\"a:outside\", b]]\n"
	if _, found := Parse("lab.yaml", []byte(named)); len(found) != 1 {
		t.Errorf("an interface called outside: %v", found)
	}
}

func TestNodesReserveThePortsThatTheyBind(t *testing.T) {
	const file = "name: lab\nnodes: {a: {ports: [tcp/8080, {bind: 8000-8999}]}}\n"
	s := mustResolve(t, throughJSON(t, mustParse(t, "lab.yaml", []byte(file))), nil)
	a := s.Node("a")
	port := func(n uint16) slice.HostPort { return slice.HostPort{Protocol: slice.TCP, Port: n} }
	if diff := cmp.Diff([]slice.HostPort{port(8080)}, a.Ports); diff != "" || a.BindPorts.String() != "8000-8999" {
		t.Errorf("ports that a may bind: %s, %s", a.BindPorts, diff)
	}
	var holds []string
	for _, h := range a.Holds() {
		holds = append(holds, h.String())
	}
	if diff := cmp.Diff([]string{"its port tcp/8080", "its ports 8000-8999"}, holds); diff != "" {
		t.Error(diff)
	}
	for port, within := range map[string]bool{"tcp/8000": true, "udp/8999": true, "tcp/9000": false,
		"8100-8200": true, "7999-8100": false} {
		if got := (slice.Hold{Port: port}).Within(slice.Hold{Port: "8000-8999"}); got != within {
			t.Errorf("%s is one of 8000-8999: %t", port, got)
		}
	}

	// What is bound stays reserved, unless another version says otherwise.
	a.BoundPorts = []slice.HostPort{port(8080), port(8090), port(8500)}
	for text, want := range map[string][]slice.HostPort{
		file: {port(8090), port(8500)},
		"name: lab\nnodes: {a: {ports: [{bind: 8000-8099}]}}\n": {port(8080), port(8090)},
		"name: lab\nnodes: {a: }\n":                             nil,
	} {
		next := mustResolve(t, mustParse(t, "lab.yaml", []byte(text)), s).Node("a")
		if diff := cmp.Diff(want, next.BoundPorts, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s%s", text, diff)
		}
	}
}

func TestUDPPortsAreInterfacesOfPacketPrograms(t *testing.T) {
	top := mustParse(t, "lab.yaml", []byte(`name: lab
nodes:
  p:
    kind: program
    program: p.o
    ports:
      - tcp/8080
      - {udp: 5611, peers: [198.51.100.7, 10.1.2.3/8], rate: 10Mbit}
      - {udp: 5610, interface: west}
  h:
links: [[p, h]]
`))
	top.Nodes["p"].Program.Data = []byte("an object")
	s := mustResolve(t, throughJSON(t, top), nil)
	p := s.Node("p")
	if diff := cmp.Diff([]slice.HostPort{{Protocol: "tcp", Port: 8080}, {Protocol: "udp", Port: 5610},
		{Protocol: "udp", Port: 5611}}, p.Ports); diff != "" {
		t.Errorf("ports of the machine: %s", diff)
	}
	want := []slice.UDPPort{
		{Interface: "udp5611", Port: 5611, Rate: 10_000_000, Peers: []netip.Prefix{
			netip.MustParsePrefix("198.51.100.7/32"), netip.MustParsePrefix("10.0.0.0/8")}},
		{Interface: "west", Port: 5610, Rate: slice.DefaultUDPRate},
	}
	if diff := cmp.Diff(want, p.Program.UDP, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("UDP ports: %s", diff)
	}
	if diff := cmp.Diff([]string{"eth1", "udp5611", "west"}, p.Program.Interfaces); diff != "" {
		t.Errorf("interfaces: %s", diff)
	}
	if holds := p.Holds(); len(holds) != 4 || !holds[0].Outside {
		t.Errorf("holds %v", holds)
	}
}

func TestBadUDPPorts(t *testing.T) {
	for text, want := range map[string]string{
		"{udp: 4789}":                            "port udp/4789 is that of tunnels between machines (VXLAN)",
		"{port: tcp/80, udp: 80}":                "port and udp both name the port",
		"{port: tcp/80, interface: x}":           "interface, peers and rate are those of a udp: port",
		"{udp: 80, peers: [2001:db8::1]}":        `"2001:db8::1" is no IPv4 address or prefix`,
		"{udp: 80, peers: [here]}":               `"here" is no IPv4 address or prefix`,
		"{udp: 80, interface: eth1}":             `"p" has an interface "eth1" already`,
		"udp/80, {udp: 80}":                      "port udp/80 is listed twice",
		"{udp: 81}, {udp: 80, interface: udp81}": `"p" has an interface "udp81" already`,
	} {
		_, found := Parse(
			"lab.yaml",
			[]byte("name: lab\nnodes: {p: {kind: program, program: p.o, ports: ["+text+
				"]}, h: {}}\nlinks: [[p, h]]\n"),
		)
		if len(found) != 1 || found[0].Message != want {
			t.Errorf("%s: %v", text, found)
		}
	}
	_, found := Parse("lab.yaml", []byte("name: lab\nnodes: {h: {ports: [{udp: 80}]}}\n"))
	if len(found) != 1 || found[0].Message != `"h" is no packet program: no interface of it is a port` {
		t.Errorf("a host: %v", found)
	}
}
