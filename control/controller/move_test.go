package controller

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/store"
	"github.com/pergola-net/pergola/model/hosts"
	"github.com/pergola-net/pergola/model/slice"
)

const chain = `
name: lab
defaults: {node: {routing: ospf, reschedule: always, cpu: 1}}
nodes: {a: , b: , c: {reschedule: never}, d: }
links: [[a, b], [b, c], [c, d]]
`

// running gives the chain as it runs: a and b on h1, c and d on h2.
func running(t *testing.T, file string) *slice.Slice {
	t.Helper()
	s := resolved(t, file, nil)
	for i, host := range []string{"h1", "h1", "h2", "h2"} {
		s.Nodes[i].Host = host
	}
	s.Generation = 4
	return s
}

// replaced places the running slice again, as the leader does.
func replaced(t *testing.T, prev *slice.Slice, hosts []store.HostState, lost ...string) *placing {
	t.Helper()
	p := &placing{prev: prev, next: copyForPlacing(prev), generation: prev.Generation + 1, hosts: hosts,
		background: true, lost: map[string]bool{}, reported: map[string]int64{"h1": prev.Generation,
			"h2": prev.Generation}}
	for _, h := range lost {
		p.lost[h] = true
	}
	mustPlace(t, p)
	return p
}

func without(hosts []store.HostState, name string) []store.HostState {
	return slices.DeleteFunc(hosts, func(h store.HostState) bool { return h.Name == name })
}

func lose(name string) func(h []store.HostState) {
	return func(h []store.HostState) {
		for i := range h {
			h[i].Alive = h[i].Alive && h[i].Name != name
		}
	}
}

func TestADrainedHostGivesItsNodesAway(t *testing.T) {
	prev := running(t, chain)
	p := replaced(t, prev, machines(3, func(h []store.HostState) { h[0].Policy.Draining = true }))
	for _, name := range []string{"a", "b"} {
		n := p.next.Node(name)
		if n.Host == "h1" || n.Left["h1"] != 5 || p.moves[name] != "h1" {
			t.Errorf("%s is on %s, left %v, moves %v", name, n.Host, n.Left, p.moves)
		}
	}
	if p.next.Node("c").Host != "h2" || p.next.Node("d").Host != "h2" || len(p.moves) != 2 {
		t.Errorf("moved without need: %v", p.moves)
	}
	if prev.Node("a").Host != "h1" || prev.Links[0].Tunnel.Number != 0 {
		t.Error("the running version was changed")
	}
	plan := Diff(prev, p.next)
	locate(&plan, p.next, p.moves)
	c := plan.Nodes[slices.IndexFunc(plan.Nodes, func(c api.Change) bool { return c.Name == "a" })]
	if c.From != "h1" || c.Host != p.next.Node("a").Host || !c.Restarts {
		t.Errorf("plan %+v", c)
	}
	if text := plan.Summary(); !strings.Contains(text, "2 nodes to move to another host") {
		t.Errorf("summary %q", text)
	}
}

// What a node's processes have bound is of the host that they ran on, where another node may have it.
func TestWhatIsBoundKeepsANodeOnNoHost(t *testing.T) {
	prev := running(t, chain)
	port := slice.HostPort{Protocol: slice.TCP, Port: 8000}
	a, d := prev.Node("a"), prev.Node("d")
	a.BindPorts, a.BoundPorts = slice.Ports{First: 8000, Last: 8099}, []slice.HostPort{port}
	d.Ports = []slice.HostPort{port}
	p := replaced(t, prev, machines(2, func(h []store.HostState) {
		h[0].Policy.Draining = true
		for i := range h {
			h[i].Allows.Ports = []hosts.Ports{a.BindPorts}
		}
	}))
	if a, b := p.next.Node("a"), prev.Node("a"); a.Host != "h2" || len(a.BoundPorts) > 0 || len(b.BoundPorts) != 1 {
		t.Errorf("it is on %s and has bound %v: %q", a.Host, a.BoundPorts, p.notes)
	}
}

func TestANodeThatNoOtherHostCanTakeStays(t *testing.T) {
	full := func(h []store.HostState) { h[0].Policy.Draining, h[1].Cores = true, 3 }
	p := replaced(t, running(t, chain), machines(2, full))
	moved := slices.DeleteFunc([]string{"a", "b"}, func(n string) bool { return p.next.Node(n).Host == "h1" })
	if len(moved) != 1 || len(p.notes) != 1 || !strings.Contains(p.notes[0],
		"stays on h1: no other host can take it: h2: 1 cores wanted, 0 of 3 free") {
		t.Errorf("moved %v: %q", moved, p.notes)
	}
}

func TestOnlyWhatMayStartElsewhereLeavesALostHost(t *testing.T) {
	prev := running(t, chain)
	p := replaced(t, prev, machines(3, lose("h2")))
	if len(p.moves) != 0 {
		t.Errorf("moved before the host can have ended anything: %v", p.moves)
	}
	p = replaced(t, prev, machines(3, lose("h2")), "h2")
	if c, d := p.next.Node("c"), p.next.Node("d"); c.Host != "h2" || d.Host == "h2" || len(d.Left) != 0 ||
		!cmp.Equal(p.moves, map[string]string{"d": "h2"}) {
		t.Errorf("c is on %s, d on %s having left %v; moves %v", c.Host, d.Host, d.Left, p.moves)
	}
}

func TestAHostThatIsBackKeepsItsNodes(t *testing.T) {
	prev := running(t, chain)
	if p := replaced(t, prev, machines(3), "h2"); len(p.moves) != 0 || len(p.freed()) != 0 {
		t.Errorf("moves %v, freed %v", p.moves, p.freed())
	}
	if p := replaced(t, prev, machines(3, lose("h2")), "h2"); !slices.Equal(p.freed(), []string{"h2"}) {
		t.Errorf("freed %v", p.freed())
	}
}

// A host goes by the version that it knew. One that did not hear that its node may start elsewhere does not end it.
func TestANodeStartsElsewhereOnlyIfItsLostHostHadReceivedThePolicy(t *testing.T) {
	prev := running(t, chain)
	next := resolved(t, strings.Replace(chain, "c: {reschedule: never}", "c:", 1), prev)
	p := &placing{prev: prev, next: next, generation: 5, hosts: machines(3), reported: map[string]int64{"h2": 4}}
	mustPlace(t, p)
	next.Generation = 5
	if c, d := next.Node("c"), next.Node("d"); c.Placement.Since != 5 || d.Placement.Since != 0 ||
		len(p.moves) != 0 {
		t.Fatalf("c since %d, d since %d, moves %v", c.Placement.Since, d.Placement.Since, p.moves)
	}
	for generation, want := range map[int64]bool{4: false, 5: true} {
		p := &placing{prev: next, next: copyForPlacing(next), generation: 6, hosts: machines(3, lose("h2")),
			background: true, lost: map[string]bool{"h2": true},
			reported: map[string]int64{"h2": generation}}
		mustPlace(t, p)
		if moved := p.next.Node("c").Host != "h2"; moved != want {
			t.Errorf("host at generation %d: c moved %v, want %v", generation, moved, want)
		}
		if want && p.next.Node("c").Placement.Since != 0 {
			t.Errorf("on its new host, c may start elsewhere since %d", p.next.Node("c").Placement.Since)
		}
	}
}

func TestAMoveIsRecordedUntilTheOldHostHasReleasedTheNode(t *testing.T) {
	pinned := func(host string) string { return strings.Replace(chain, "a: ,", "a: {host: "+host+"},", 1) }
	prev := running(t, strings.Replace(chain, "reschedule: always, ", "", 1))
	apply := func(prev *slice.Slice, host string, hosts []store.HostState, reported map[string]int64) *placing {
		p := &placing{prev: prev,
			next:       resolved(t, strings.Replace(pinned(host), "reschedule: always, ", "", 1), prev),
			generation: prev.Generation + 1, hosts: hosts, reported: reported}
		mustPlace(t, p)
		p.next.Generation = p.generation
		return p
	}
	first := apply(prev, "h3", machines(4), map[string]int64{"h1": 4})
	if diff := cmp.Diff(map[string]int64{"h1": 5}, first.next.Node("a").Left); diff != "" {
		t.Error(diff)
	}
	// It goes on before h1 has let go, and before h3 has said that it never began.
	second := apply(first.next, "h4", machines(4, lose("h1")), map[string]int64{"h1": 4, "h3": 4})
	if diff := cmp.Diff(map[string]int64{"h1": 5, "h3": 6}, second.next.Node("a").Left); diff != "" {
		t.Error(diff)
	}
	const want = "a starts on h4 when h1 has released it, but h1 is lost: if it is lost for good, " +
		"`pergola host rm --force h1`"
	if len(second.notes) != 1 || second.notes[0] != want {
		t.Errorf("notes %q", second.notes)
	}
	third := apply(second.next, "h4", without(machines(4), "h1"), map[string]int64{"h3": 6})
	if left := third.next.Node("a").Left; len(left) != 0 {
		t.Errorf("left %v", left)
	}
	back := apply(second.next, "h3", machines(4), map[string]int64{"h1": 5, "h3": 6, "h4": 6})
	if diff := cmp.Diff(map[string]int64{"h4": 7}, back.next.Node("a").Left); diff != "" {
		t.Error(diff)
	}
}

func TestNodesOfAHostThatWasRemovedStartElsewhere(t *testing.T) {
	prev := running(t, strings.Replace(chain, "d: }", "d: {host: h2, reschedule: never}}", 1))
	p := replaced(t, prev, without(machines(3), "h2"))
	if c, d := p.next.Node("c"), p.next.Node("d"); c.Host == "h2" || len(c.Left) != 0 || d.Host != "h2" {
		t.Errorf("c is on %s having left %v; d, which is pinned, on %s", c.Host, c.Left, d.Host)
	}
}

func TestANodeThatNeedsAMachineStaysThere(t *testing.T) {
	prev := running(t, strings.Replace(chain, "a: ,", "a: {binds: '/srv:/srv'},", 1))
	p := replaced(t, prev, machines(3, func(h []store.HostState) { h[0].Policy.Draining = true }))
	const want = "a stays on h1: it has paths of a machine (binds)"
	if p.next.Node("a").Host != "h1" || p.next.Node("b").Host == "h1" || !slices.Contains(p.notes, want) {
		t.Errorf("%v: %q", hostsOf(p.next), p.notes)
	}
}

func TestANodeThatFitsNowhereDoesNotStopOthers(t *testing.T) {
	prev := running(t, strings.Replace(chain, "d: }", "d: {cpu: 9}}", 1))
	p := replaced(t, prev, without(machines(3), "h2"))
	if c, d := p.next.Node("c"), p.next.Node("d"); c.Host == "h2" || d.Host != "h2" {
		t.Errorf("c is on %s, d, which fits nowhere, on %s", c.Host, d.Host)
	}
	if len(p.notes) != 1 || p.notes[0] != "d has no host since h2 was removed: no other host can take it: h1: 9 "+
		"cores wanted, 6 of 8 free; h3: 9 cores wanted, 8 of 8 free" {
		t.Errorf("%q", p.notes)
	}
}

// A label that goes away moves nothing by itself; the next time that the file is applied, it counts.
func TestLabelsCountOnlyWhenAUserApplies(t *testing.T) {
	prev := running(t, strings.Replace(chain, "d: }", "d: {host_labels: {rack: a}}}", 1))
	labelled := machines(3, func(h []store.HostState) {
		h[0].Policy.Draining, h[2].Labels = true,
			map[string]string{"rack": "a"}
	})
	if p := replaced(t, prev, labelled); p.next.Node("d").Host != "h2" || len(p.moves) != 2 {
		t.Errorf("moves %v", p.moves)
	}
	p := &placing{prev: prev, next: copyForPlacing(prev), generation: 5, hosts: labelled}
	if mustPlace(t, p); p.next.Node("d").Host != "h3" {
		t.Errorf("d is on %s", p.next.Node("d").Host)
	}
}

func TestALinkThatSpansHostsAfterAMoveIsRemade(t *testing.T) {
	prev := running(t, chain)
	mustPlace(t, &placing{prev: prev, next: prev, generation: 4, hosts: machines(3)})
	bc := prev.Link("b:eth2--c:eth1")
	if bc.Tunnel.Number == 0 || prev.Node("b").Interface("eth2").MTU != 1458 {
		t.Fatalf("%+v", bc)
	}
	p := replaced(t, prev, machines(2, func(h []store.HostState) { h[0].Policy.Draining = true }))
	for _, l := range p.next.Links {
		if l.Tunnel != (slice.Tunnel{}) {
			t.Errorf("%s has tunnel %+v on one host", l.Name, l.Tunnel)
		}
	}
	if mtu := p.next.Node("b").Interface("eth2").MTU; mtu != 1500 {
		t.Errorf("mtu %d on one host", mtu)
	}
}

// No host is left that could report what the path between them carried.
func TestALinkWhoseHostsWereRemovedStaysAsItWas(t *testing.T) {
	prev := running(t, strings.NewReplacer("b: ,", "b: {host: h1},", "c: {", "c: {host: h2, ").Replace(chain))
	mustPlace(t, &placing{prev: prev, next: prev, generation: 4, hosts: machines(3)})
	for _, gone := range [][]string{{"h1"}, {"h2"}, {"h1", "h2"}} {
		hosts := machines(3)
		for _, name := range gone {
			hosts = without(hosts, name)
		}
		p := replaced(t, prev, hosts)
		b, c := p.next.Node("b"), p.next.Node("c")
		if b.Host != "h1" || c.Host != "h2" || b.Interface("eth2").MTU != 1458 ||
			c.Interface("eth1").MTU != 1458 {
			t.Errorf("without %v: b is on %s, c on %s, with mtu %d and %d", gone, b.Host, c.Host,
				b.Interface("eth2").MTU, c.Interface("eth1").MTU)
		}
	}
}

// What was there before the cluster is on the one host that reports it, under whatever name it reported it before.
func TestNodesFromBeforeTheClusterStayWhereTheyAre(t *testing.T) {
	prev := running(t, strings.Replace(chain, "d: }", "d: {host: h2}}", 1))
	for i := range prev.Nodes {
		prev.Nodes[i].Host = ""
	}
	for _, reported := range []map[string]int64{{"h1": 4}, {"h1": 4, "localhost": 3}} {
		p := &placing{prev: prev, next: copyForPlacing(prev), generation: 5, hosts: machines(3),
			reported: reported}
		mustPlace(t, p)
		if a, d := p.next.Node("a"), p.next.Node("d"); a.Host != "h1" || len(a.Left) != 0 || d.Host != "h2" ||
			!cmp.Equal(d.Left, map[string]int64{"h1": 5}) {
			t.Errorf("reported by %v: a is on %s having left %v, d on %s having left %v", reported, a.Host,
				a.Left, d.Host, d.Left)
		}
	}
	// Where no host reported it, any may have it.
	p := &placing{prev: prev, next: copyForPlacing(prev), generation: 5, hosts: machines(3)}
	mustPlace(t, p)
	if left := p.next.Node("d").Left; !cmp.Equal(left, map[string]int64{"h1": 5, "h3": 5}) {
		t.Errorf("d left %v", left)
	}
}

// A node that comes back to a host before that host was notified of its departure runs there as the older version wants
// it: it may not be ended there.
func TestANodeThatReturnsMayLeaveOnceItsHostHasReceivedThePolicy(t *testing.T) {
	prev := running(t, chain)
	c := prev.Node("c")
	c.Host, c.Left, c.Placement.Reschedule = "h3", map[string]int64{"h2": 4}, slice.RescheduleAlways
	pinned := copyForPlacing(prev)
	pinned.Node("c").Placement.Host = "h2"
	p := &placing{prev: prev, next: pinned, generation: 5, hosts: machines(3),
		reported: map[string]int64{"h2": 3, "h3": 4}}
	mustPlace(t, p)
	if c := p.next.Node("c"); c.Host != "h2" || c.Placement.Since != 5 ||
		!cmp.Equal(c.Left, map[string]int64{"h3": 5}) {
		t.Errorf("c is on %s, may leave since %d, left %v", c.Host, c.Placement.Since, c.Left)
	}
}

func TestANodeThatWasRemovedAwaitsTheHostThatDidNotReceiveTheRemoval(t *testing.T) {
	prev := running(t, chain)
	prev.Nodes, prev.Links = prev.Nodes[:3], prev.Links[:2]
	again := func(host string) *slice.Node {
		p := &placing{prev: prev, next: resolved(t, strings.Replace(chain, "d: }", "d: {host: "+host+"}}", 1),
			prev), generation: 5, hosts: machines(3)}
		p.next.Node("d").Placement.Reschedule = slice.RescheduleAlways
		p.readReports(map[string]slice.Status{
			"h1": {Generation: 4, Nodes: map[string]slice.NodeStatus{"a": {}, "b": {}}},
			"h2": {Generation: 3, Nodes: map[string]slice.NodeStatus{"c": {}, "d": {}}},
		})
		return mustPlace(t, p).Node("d")
	}
	if d := again("h3"); !cmp.Equal(d.Left, map[string]int64{"h2": 5}) || d.Placement.Since != 0 {
		t.Errorf("elsewhere: left %v, may leave since %d", d.Left, d.Placement.Since)
	}
	if d := again("h2"); len(d.Left) != 0 || d.Placement.Since != 5 {
		t.Errorf("on the same host: left %v, may leave since %d", d.Left, d.Placement.Since)
	}
}

// An interface that is down says nothing of the path: links are as they were when it is up again.
func TestAnInterfaceThatIsDownChangesNoMTU(t *testing.T) {
	jumbo := func(h []store.HostState) {
		for i := range h {
			h[i].Underlays[0].MTU = 9000
		}
	}
	prev := running(t, chain)
	mustPlace(t, &placing{prev: prev, next: prev, generation: 4, hosts: machines(3, jumbo)})
	for name, down := range map[string]func(h []store.HostState){
		"untold": func(h []store.HostState) { h[0].Underlays = nil },
		"named":  func(h []store.HostState) { h[0].Underlays = []hosts.Underlay{{Name: "eth0", XDP: "none"}} },
	} {
		p := replaced(t, prev, machines(3, jumbo, down))
		if plan := Diff(prev, p.next); !plan.Empty() {
			t.Errorf("%s: %+v", name, plan)
		}
	}
}

func TestALinkThatDoesNotFitHoldsOnlyItsOwnNodes(t *testing.T) {
	const file = `
name: lab
defaults: {node: {routing: ospf, reschedule: always, cpu: 1}}
nodes: {a: , b: , c: , d: }
links: [{ends: [a, d], mtu: 8900}, [a, b], [c, d]]
`
	wide := func(h []store.HostState) { h[0].Underlays[0].MTU, h[1].Underlays[0].MTU = 9000, 9000 }
	prev := replaced(t, running(t, file), machines(3, wide)).next
	prev.Generation++
	for _, tt := range []struct {
		name, node, host, want string
		change                 func(h []store.HostState)
	}{
		{
			"a drained host whose other nodes fit elsewhere", "b", "h3",
			"a stays on h1: no other host can take it: ",
			func(h []store.HostState) {
				h[0].Policy.Draining, h[1].Cores, h[1].Policy.Cordoned = true, 2, true
			},
		},
		{
			"an MTU that became smaller", "b", "h3",
			"link a:eth1--d:eth1: a:eth1 has mtu 8900, which does not fit",
			func(h []store.HostState) {
				h[0].Policy.Draining, h[1].Policy.Cordoned = true, true
				h[0].Underlays[0].MTU = 1500
			},
		},
		{
			"addresses of two families", "", "", "b stays on h1: link a:eth2--b:eth1 cannot be carried: ",
			func(h []store.HostState) {
				h[0].Policy.Draining, h[1].Policy.Cordoned = true, true
				h[2].Address = netip.MustParseAddr("2001:db8::3")
				h[2].Underlays[0].Addresses = []netip.Prefix{netip.MustParsePrefix("2001:db8::3/64")}
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := replaced(t, prev, machines(3, wide, tt.change))
			if tt.node != "" && p.next.Node(tt.node).Host != tt.host {
				t.Errorf("%v", hostsOf(p.next))
			}
			if n := p.next.Node("a"); n.Host != "h1" || n.Interface("eth1").MTU != 8900 ||
				p.moves["a"] != "" {
				t.Errorf("a is on %s, mtu %d, moves %v", n.Host, n.Interface("eth1").MTU, p.moves)
			}
			if !slices.ContainsFunc(p.notes, func(n string) bool { return strings.HasPrefix(n, tt.want) }) {
				t.Errorf("notes %q, want %q", p.notes, tt.want)
			}
		})
	}
}

// A port that a process has bound is the sliver's that runs: where the node starts anew, another one may have it.
func TestWhatANodeHasBoundDoesNotMoveWithIt(t *testing.T) {
	port := func(n uint16) []slice.HostPort { return []slice.HostPort{{Protocol: slice.TCP, Port: n}} }
	for what, change := range map[string]func(h []store.HostState){
		"drained": func(h []store.HostState) { h[0].Policy.Draining = true },
		"lost":    lose("h1"),
		"removed": nil,
	} {
		prev := running(t, chain)
		a := prev.Node("a")
		a.Kind, a.Routing = slice.Host, nil
		a.BindPorts, a.BoundPorts, a.Claims = slice.Ports{First: 8000, Last: 8099}, port(8001), port(9001)
		there := machines(2, func(h []store.HostState) {
			h[1].Allows.Ports = []hosts.Ports{{First: 8000, Last: 9999}}
			if change != nil {
				change(h)
			}
		})
		if change == nil {
			there = without(there, "h1")
		}
		p := &placing{prev: prev, next: copyForPlacing(prev), generation: 5, hosts: there, background: true,
			lost: map[string]bool{"h1": true}, reported: map[string]int64{"h1": 4, "h2": 4},
			used: map[string]usage{"h2": {ports: map[string]string{"tcp/8001": "other/x"}}}}
		mustPlace(t, p)
		n := p.next.Node("a")
		if n.Host != "h2" || len(n.BoundPorts) > 0 {
			t.Errorf("%s: on %s, with %v bound; notes %v", what, n.Host, n.BoundPorts, p.notes)
		}
		if diff := cmp.Diff(port(9001), n.Claims); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
		if len(a.BoundPorts) != 1 {
			t.Errorf("%s: the running version was changed", what)
		}
	}
}
