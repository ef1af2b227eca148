package report

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/control/events"
	"github.com/pergola-net/pergola/model/slice"
)

// plain is the output to a pipe, with what was written.
func plain() (*ui.Terminal, *bytes.Buffer) {
	var out bytes.Buffer
	return ui.New(strings.NewReader(""), &out, &bytes.Buffer{}), &out
}

func draw(b *ui.Table) string {
	t, out := plain()
	t.Table(b)
	return out.String()
}

func same(t *testing.T, got, want string) {
	t.Helper()
	if diff := cmp.Diff(strings.TrimLeft(want, "\n"), got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// twoRouters is a network of two routers and a switch, one router of which has died, with a link changed by hand.
func twoRouters() *api.Slice {
	a := slice.End{Node: "a", Interface: "eth1", Shape: slice.Shape{Rate: 1e7}}
	b := slice.End{Node: "b", Interface: "eth1", Shape: slice.Shape{Rate: 1e7}}
	return &api.Slice{
		Spec: &slice.Slice{
			Name: "lab",
			Nodes: []slice.Node{
				{Name: "a", Kind: slice.Router, Routing: &slice.Routing{Daemon: slice.FRR},
					Loopbacks: []netip.Prefix{prefix("192.0.2.1/32"), prefix("2001:db8::1/128")},
					Interfaces: []slice.Interface{{Name: "eth1", MTU: 1500,
						MAC: "02:00:00:00:00:01", Link: "a:eth1--b:eth1",
						Addresses: []netip.Prefix{prefix("198.51.100.0/31")}}}},
				{Name: "b", Kind: slice.Router},
				{Name: "sw", Kind: slice.Switch},
			},
			Links: []slice.Link{
				{Name: "a:eth1--b:eth1", Ends: []slice.End{a, b}},
				{Name: "a:eth2--sw:1", Ends: []slice.End{{Node: "a", Interface: "eth2"}, {Node: "sw", Interface: "1"}}},
			},
		},
		Status: slice.Status{
			Settled: true,
			Nodes: map[string]slice.NodeStatus{
				"a":  {Phase: slice.Running, PID: 4711, Restarts: 2, Since: now.Add(-90 * time.Second)},
				"b":  {Phase: slice.Exited, Message: "status 1"},
				"sw": {Phase: slice.Running},
			},
			Links: map[string]slice.LinkStatus{"a:eth1--b:eth1": {Up: true}},
		},
		Overrides: slice.Overrides{
			Shapes: map[string]slice.Shape{"a:eth1": {Delay: 20 * time.Millisecond}},
			Down:   map[string]bool{"a:eth2--sw:1": true},
		},
	}
}

func TestTables(t *testing.T) {
	s := twoRouters()
	same(t, draw(Nodes(s, ui.Styles{}, now)), `
NODE  KIND    STATE    AGE  RESTARTS  PID   ADDRESSES
a     frr     running  90s  2         4711  192.0.2.1 2001:db8::1
b     router  exited   -    0         -     -
sw    switch  running  -    0         -     -
`)
	same(t, draw(Links(s, ui.Styles{}, "")), `
LINK            STATE  SHAPE
a:eth1--b:eth1  up     from a:eth1: 20 ms*; from b:eth1: 10 Mbit/s
a:eth2--sw:1    cut    -
`)
	s.Spec.Links[1].Name = "uplink"
	same(t, draw(Links(s, ui.Styles{}, "sw")), `
LINK    STATE    ENDS         SHAPE
uplink  pending  a:eth2 sw:1  -
`)
	s.Spec.Links[1].Name = "a:eth2--sw:1"
	same(t, draw(Interfaces(s, s.Spec.Node("a"))), `
INTERFACE  ADDRESSES                     MTU   MAC                LINK            TO
lo         192.0.2.1/32 2001:db8::1/128  -     -                  -               -
eth1       198.51.100.0/31               1500  02:00:00:00:00:01  a:eth1--b:eth1  b:eth1
`)
	if diff := cmp.Diff([]string{"b: status 1"}, Troubles(&s.Status, s.Spec.Nodes)); diff != "" {
		t.Error(diff)
	}
	term, _ := plain()
	same(t, Headline(s, term, now), "lab: degraded, 2 of 3 nodes running, 2 links")
}

func TestSlicesSayHowTheyAre(t *testing.T) {
	same(t, draw(Slices([]api.Summary{
		{Name: "a", Nodes: 3, Running: 3, Links: 2, Settled: true, Updated: now.Add(-time.Hour)},
		{Name: "b", Nodes: 3, Running: 1},
		{Name: "c", Nodes: 3, Running: 1, Settled: true},
		{Name: "d", Nodes: 3, Errors: []string{"x"}},
		{Name: "e", Nodes: 3, Deleting: true},
	}, ui.Styles{}, now)), `
NAME  STATE       NODES  LINKS  CHANGED
a     up          3/3    2      60m ago
b     coming up   1/3    0      -
c     degraded    1/3    0      -
d     in trouble  0/3    0      -
e     deleting    0/3    0      -
`)
}

func TestPlanLines(t *testing.T) {
	term, _ := plain()
	p := api.Plan{Slice: "lab", Op: api.Update,
		Nodes: []api.Change{
			{Name: "a", Op: api.Update, Restarts: true, Fields: []api.Field{{Name: "memory", Old: "64 MiB", New: "128 MiB"}}},
			{Name: "b", Op: api.Update, Fields: []api.Field{
				{Name: "interfaces.eth0.1.mtu", Old: "1500", New: "9000"},
				{Name: "interfaces.eth3.addresses", New: "192.0.2.1/31"}, {Name: "interfaces.eth3.link", New: "b:eth3--c:eth1"},
				{Name: "interfaces.eth4.link", Old: "b:eth4--d:eth1"}, {Name: "interfaces.eth4.mtu", Old: "1500"},
			}},
			{Name: "c", Op: api.Create},
		},
		Links:  []api.Change{{Name: "a:eth1--b:eth1", Op: api.Remove}},
		Fields: []api.Field{{Name: "checks", New: "3"}},
	}
	same(t, strings.Join(Plan(p, term), "\n"), `
~ node a (restarts)
      memory: 64 MiB -> 128 MiB
~ node b
      interfaces.eth0.1.mtu: 1500 -> 9000
      interfaces.eth3: new, 192.0.2.1/31
      interfaces.eth4: removed
+ node c
- link a:eth1--b:eth1
~ checks: 3
lab: 1 node new, 2 nodes changed, 1 link removed`)
	same(t, strings.Join(Plan(api.Plan{Slice: "lab", Op: api.Update}, term), "\n"), "lab: nothing to change")
}

var results = []api.CheckResult{
	{Name: "a-b", Kind: slice.CheckPing, From: "a", To: "b", OK: true, RTT: 123456, Duration: time.Millisecond},
	{Kind: slice.CheckPing, From: "b", To: "a", Address: netip.MustParseAddr("2001:db8::1"),
		Message: "no answer <within> 5s", Duration: 5 * time.Second},
}

func TestChecksShowEveryFailure(t *testing.T) {
	table, hidden := Checks(results, ui.Styles{}, false)
	same(t, draw(table), `
CHECK     ADDRESS      RESULT  TIME    DETAIL
a-b       -            ok      123 us  -
ping b a  2001:db8::1  FAILED  5 s     no answer <within> 5s
`)
	if hidden != 0 {
		t.Errorf("%d of two checks are hidden", hidden)
	}
	many := results
	for range manyChecks {
		many = append(many, results[0])
	}
	if table, hidden = Checks(many, ui.Styles{}, false); len(table.Rows) != 1 || hidden != manyChecks+1 {
		t.Errorf("of many, %d are shown and %d hidden", len(table.Rows), hidden)
	}
	term, _ := plain()
	same(t, Verdict("lab", results, time.Second, term), "lab: 1 of 2 checks failed (1.0 s)")
	same(t, Verdict("lab", results[:1], time.Second, term), "lab: the check holds (1.0 s)")
	same(t, Verdict("lab", many[2:], time.Second, term), "lab: all 40 checks hold (1.0 s)")
}

func TestManyFailuresAreSummedUp(t *testing.T) {
	var failed []api.CheckResult
	add := func(from, to, why string) {
		failed = append(failed,
			api.CheckResult{Name: from + " reaches " + to, From: from, To: to, Message: why})
	}
	for i := range manyChecks {
		add("a", fmt.Sprint("n", i), "cannot send: network is unreachable")
		add("b", fmt.Sprint("n", i), "nothing came back")
	}
	add("b", "c", "cannot send: network is unreachable")
	table, hidden := Checks(failed, ui.Styles{}, false)
	same(t, draw(table), `
CHECK             ADDRESS  RESULT  TIME  DETAIL
40 checks from a  -        FAILED  -     cannot send: network is unreachable
40 checks from b  -        FAILED  -     nothing came back
b reaches c       -        FAILED  -     cannot send: network is unreachable
`)
	if hidden != 0 {
		t.Errorf("%d that failed count as hidden", hidden)
	}
	if table, _ = Checks(failed, ui.Styles{}, true); len(table.Rows) != len(failed) {
		t.Errorf("-v shows %d of %d", len(table.Rows), len(failed))
	}
	for i := range manyChecks {
		add(fmt.Sprint("n", i), "a", "nothing came back")
	}
	table, _ = Checks(failed, ui.Styles{}, false)
	same(t, draw(table), `
CHECK      ADDRESS  RESULT  TIME  DETAIL
41 checks  -        FAILED  -     cannot send: network is unreachable
80 checks  -        FAILED  -     nothing came back
`)
}

func TestManyFailuresToOneNodeAreSummedUpByIt(t *testing.T) {
	var failed []api.CheckResult
	for i := range manyChecks {
		from := fmt.Sprint("n", i)
		for _, to := range []string{"a", "b"} {
			failed = append(failed, api.CheckResult{
				Name: from + " reaches " + to, From: from, To: to, Message: "nothing came back",
			})
		}
	}
	table, _ := Checks(failed, ui.Styles{}, false)
	same(t, draw(table), `
CHECK           ADDRESS  RESULT  TIME  DETAIL
40 checks to a  -        FAILED  -     nothing came back
40 checks to b  -        FAILED  -     nothing came back
`)
}

func TestJUnitIsWhatCIReads(t *testing.T) {
	var b bytes.Buffer
	if err := JUnit(&b, "lab", results); err != nil {
		t.Fatal(err)
	}
	var read struct {
		Suites []struct {
			Name     string `xml:"name,attr"`
			Tests    int    `xml:"tests,attr"`
			Failures int    `xml:"failures,attr"`
			Cases    []struct {
				Name    string `xml:"name,attr"`
				Failure *struct {
					Message string `xml:"message,attr"`
				} `xml:"failure"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(b.Bytes(), &read); err != nil {
		t.Fatalf("%v in\n%s", err, &b)
	}
	s := read.Suites[0]
	if s.Name != "lab" || s.Tests != 2 || s.Failures != 1 || s.Cases[0].Failure != nil ||
		s.Cases[0].Name != "a-b" || s.Cases[1].Name != "ping b a 2001:db8::1" ||
		s.Cases[1].Failure.Message != "no answer <within> 5s" {
		t.Errorf("got %+v from\n%s", s, &b)
	}
}

func TestEventIsOneLine(t *testing.T) {
	term, _ := plain()
	e := events.Event{Time: now, Slice: "lab", Node: "a", Kind: events.NodeChanged, Message: "running"}
	same(t, Event(e, term), now.Local().Format("2006-01-02 15:04:05.000")+"  node-changed      lab/a  running")
}
