package topology

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

const reservingQueues = `name: lab
groups: {all: {members: [p, q], reserve: {queues: 40, bandwidth: {eth1: 10Mbit}}}}
nodes:
  p: {program: p.o, reserve: {buffer: 1MiB, bandwidth: {eth2: 5Mbit}}}
  q: {program: p.o, reserve: {bandwidth: {eth1: 20Mbit}}}
  h:
links:
  - {ends: [p, h], rate: 30Mbit, from: {p: {queues: {1: {length: 64KiB}, 2: {length: 100}, 0: {length: 10}}}}}
  - [p, q]
`

func TestQueuesBufferAndBandwidthAreReserved(t *testing.T) {
	top := mustParse(t, "lab.yaml", []byte(reservingQueues))
	for _, source := range top.Sources() {
		source.Data = []byte("an object")
	}
	s := mustResolve(t, throughJSON(t, top), nil)
	p, q := s.Node("p"), s.Node("q")
	if want := (slice.Reserve{Queues: 40, Buffer: 1 << 20}); p.Reserve != want {
		t.Errorf("p reserves %+v: the group's queues and its own buffer are wanted", p.Reserve)
	}
	rates := map[string]unit.Rate{
		"p:eth1": p.Interface("eth1").Reserved(), "p:eth2": p.Interface("eth2").Reserved(),
		"q:eth1": q.Interface("eth1").Reserved(),
	}
	if diff := cmp.Diff(map[string]unit.Rate{"p:eth1": 10e6, "p:eth2": 5e6, "q:eth1": 20e6}, rates); diff != "" {
		t.Error(diff)
	}
	want := map[string]slice.Queueing{"p": {Queues: 3, Buffer: 64<<10 + 110*1514}}
	if diff := cmp.Diff(want, s.Queueing(nil)); diff != "" {
		t.Error(diff)
	}
	// What a node asked for while it ran, a newer version of the slice leaves it.
	p.Claims = []slice.HostPort{{Protocol: slice.TCP, Port: 8080}}
	p.Interface("eth1").Claim, q.Interface("eth1").Claim = 15e6, 4e6
	next := mustResolve(t, throughJSON(t, top), s)
	if got := next.Node("p").Interface("eth1").Reserved(); got != 15e6 {
		t.Errorf("p:eth1 has %s", got)
	}
	if diff := cmp.Diff(p.Claims, next.Node("p").Claims); diff != "" {
		t.Error(diff)
	}
}

func TestErrorsInReservations(t *testing.T) {
	for name, c := range map[string]struct{ reserve, want string }{
		"memory": {"memory: 40MiB", "t.yaml:2:41: 40MiB of memory are reserved, and a packet program has at most 16 MiB"},
		"queues": {"queues: 2", `t.yaml:2:23: "p" has more than it may: there are 3 queues, and 2 are ` +
			`reserved (write a ` +
			"length: in the queues, or reserve more"},
		"buffer": {"buffer: 1MiB", `"p" has more than it may: the lengths of its queues add up to 1242368 ` +
			`bytes, and ` +
			"1048576 are reserved"},
		"too many queues": {"queues: 30000", "t.yaml:2:41: queues 30000 is out of range: 0 to 24576"},
		"bandwidth":       {"bandwidth: {eth1: 2Mbit}", "t.yaml:2:51: 2Mbit are reserved, and the link has a rate of 1Mbit"},
		"interface":       {"bandwidth: {eth2: 1Mbit}", "t.yaml:2:51: no link ends at p:eth2"},
		"rate":            {"bandwidth: {eth1: 2MB}", "t.yaml:2:51: "},
	} {
		text := "nodes:\n  p: {program: ./p.o, reserve: {" + c.reserve + "}}\n  h:\n" +
			"links:\n  - {ends: [p, h], rate: 1Mbit, queues: {1: {length: 1MiB}, 2: {}}}\n"
		parsed, found := Parse("t.yaml", []byte(text))
		if len(found) == 0 {
			_, found = Resolve(parsed, nil)
		}
		if have := found.Error(); !strings.Contains(have, c.want) {
			t.Errorf("%s: %v, want %q", name, have, c.want)
		}
	}
	many := "nodes: {p: {program: ./p.o}, h: }\nlinks:\n  - {ends: [p, h], rate: 1Mbit, queues: {1: {length: " +
		"1GiB}}}\n"
	const want = "t.yaml:1:9: \"p\" has more than it may: the lengths of its queues add up to 1073838720 bytes, " +
		"and " +
		"134217728 are what a node has without a reservation"
	if _, found := Parse("t.yaml", []byte(many)); !strings.Contains(found.Error(), want) {
		t.Error(found.Error())
	}
}
