package topology

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pergola-net/pergola/model/slice"
)

func TestClassesOfALink(t *testing.T) {
	text := `nodes: [r1, r2]
defaults: {link: {rate: 100Mbit}}
links:
  - ends: [r1, r2]
    classes:
      bulk: {match: [{proto: tcp, port: 5001}, {src: 192.0.2.1, dport: 6000-6010}], share: 2, limit: 50Mbit, queue: 50}
      voice: {match: [{dscp: ef}, {dscp: 44, dst: 2001:db8::/32}], reserve: 10Mbit, priority: 1}
      other: {share: 3}
    from: {r2: {classes: {other: {limit: 20Mbit}}}}
`
	parsed, found := Parse("t.yaml", []byte(text))
	if len(found) > 0 {
		t.Fatal(found)
	}
	s, found := Resolve(parsed, nil)
	if len(found) > 0 {
		t.Fatal(found)
	}
	ef, va := 46, 44
	want := []slice.Class{
		{
			Name: "voice", Share: 1, Reserve: 10e6, Priority: 1,
			Match: []slice.Match{{DSCP: &ef}, {DSCP: &va, Dst: netip.MustParsePrefix("2001:db8::/32")}},
		},
		{
			Name: "bulk", Share: 2, Limit: 50e6, Priority: 8, Queue: 50, Match: []slice.Match{
				{Protocol: 6, Port: slice.Ports{First: 5001, Last: 5001}},
				{Src: netip.MustParsePrefix("192.0.2.1/32"), DstPort: slice.Ports{First: 6000, Last: 6010}},
			},
		},
		{Name: "other", Share: 3, Priority: 8},
	}
	if diff := cmp.Diff(want, s.Links[0].Ends[0].Shape.Classes,
		cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	back := s.Links[0].Ends[1].Shape
	if back.Classes[2].Limit != 20e6 || back.Classes[2].Share != 1 {
		t.Errorf("the other direction: %+v", back.Classes[2])
	}
	for _, e := range s.Links[0].Ends {
		if err := e.Shape.Check(); err != nil {
			t.Errorf("what was resolved is refused: %v", err)
		}
	}
	out, err := Marshal(parsed)
	if err != nil {
		t.Fatal(err)
	}
	if again, found := Parse("t.yaml", out); len(found) > 0 || !cmp.Equal(again.Links, parsed.Links) {
		t.Errorf("written and read again: %v\n%s", found, out)
	}
}

// Where there is no default class, one is made; what a switch sends has none.
func TestDefaultClass(t *testing.T) {
	parsed, found := Parse("t.yaml", []byte("nodes: {a: , s: {kind: switch}}\n"+
		"links: [{ends: [a, s], rate: 1Mbit, classes: {voice: {match: [{dscp: EF}]}}}]\n"))
	if len(found) > 0 {
		t.Fatal(found)
	}
	s, found := Resolve(parsed, nil)
	if len(found) > 0 {
		t.Fatal(found)
	}
	for _, e := range s.Links[0].Ends {
		var names []string
		for _, c := range e.Shape.Classes {
			names = append(names, c.Name)
		}
		want := map[string]string{"a": "voice default", "s": ""}[e.Node]
		if have := strings.Join(names, " "); have != want || e.Shape.Rate != 1e6 {
			t.Errorf("%s: classes %q, want %q; %+v", e, have, want, e.Shape)
		}
	}
}

func TestErrorsInClasses(t *testing.T) {
	for name, c := range map[string]struct{ link, want string }{
		"no rate":       {"classes: {a: {share: 2}}", "classes divide a rate, and there is none here (add rate: to the link)"},
		"oversold":      {"rate: 10Mbit, classes: {a: {match: [{dscp: EF}], reserve: 6Mbit}, b: {reserve: 5Mbit}}", "the classes reserve 11Mbit of a rate of 10Mbit (lower a reserve:, or raise the rate)"},
		"DSCP":          {"rate: 1M, classes: {a: {match: [{dscp: AF14}]}}", `dscp: "AF14" is no DSCP: write a name such as EF, AF41 or CS6, or a number; did you mean AF`},
		"DSCP number":   {"rate: 1M, classes: {a: {match: [{dscp: 64}]}}", "dscp: DSCP 64 is out of range: 0 to 63"},
		"two defaults":  {"rate: 1M, classes: {a: {}, b: {share: 2}}", `classes "a" and "b" have no match: both would be the default class (give all but one of them a match)`},
		"share 0":       {"rate: 1M, classes: {a: {share: 0}}", "share 0 is out of range: 1 to 100 (the least weight is 1; to bound a class, give it a limit)"},
		"priority":      {"rate: 1M, classes: {a: {priority: 9}}", "priority 9 is out of range: 1 to 8"},
		"limit":         {"rate: 1M, classes: {a: {limit: 2M}}", `the limit of class "a" is above the rate, 1Mbit (leave it out: no class gets more than the link's rate)`},
		"reserve":       {"rate: 1M, classes: {a: {reserve: 600k, limit: 500k}}", `class "a" reserves 600kbit and is limited to 500kbit`},
		"queue":         {"rate: 1M, queue: 5, classes: {a: {}}", "each class has a queue of its own, so the link has no queue (write queue: in the classes)"},
		"empty rule":    {"rate: 1M, classes: {a: {match: [{}]}}", "the rule names nothing (name something in it, or leave match out)"},
		"ports of ICMP": {"rate: 1M, classes: {a: {match: [{proto: icmp, port: 5}]}}", "icmp has no ports"},
		"port":          {"rate: 1M, classes: {a: {match: [{port: 70000}]}}", `"70000" is no port`},
		"either port":   {"rate: 1M, classes: {a: {match: [{port: 5, dport: 6}]}}", "port means either port"},
		"protocol":      {"rate: 1M, classes: {a: {match: [{proto: tpc}]}}", `"tpc" is no protocol of IP`},
		"prefix":        {"rate: 1M, classes: {a: {match: [{src: 192.0.2.1/24}]}}", "192.0.2.1/24 has bits behind its length: write 192.0.2.0/24"},
		"families":      {"rate: 1M, classes: {a: {match: [{src: 192.0.2.1, dst: '2001:db8::1'}]}}", "two address families"},
		"taken name":    {"rate: 1M, classes: {default: {match: [{dscp: EF}]}}", `the class "default" is for frames that no rule matches`},
		"unknown key":   {"rate: 1M, classes: {a: {shares: 2}}", `unknown key "shares" (did you mean "share"?)`},
		"many classes":  {"rate: 1M, classes: {a: {}, b: {match: [{dscp: 1}]}, c: {match: [{dscp: 2}]}, d: {match: [{dscp: 3}]}, e: {match: [{dscp: 4}]}, f: {match: [{dscp: 5}]}, g: {match: [{dscp: 6}]}, h: {match: [{dscp: 7}]}, i: {match: [{dscp: 8}]}}", "9 classes, the default one included: at most 8"},
		"of a switch":   {"rate: 1M, from: {s: {classes: {a: {share: 2}}}}", "what a switch sends has no classes (write them at the other end)"},
	} {
		text := "nodes: {n: , s: {kind: switch}}\nlinks:\n  - {ends: [n, s], " + c.link + "}\n"
		parsed, found := Parse("t.yaml", []byte(text))
		if len(found) == 0 {
			_, found = Resolve(parsed, nil)
		}
		if have := found.Error(); !strings.Contains(have, c.want) || !strings.Contains(have, "t.yaml:3:") {
			t.Errorf("%s: %v, want %q at line 3", name, have, c.want)
		}
	}
}
