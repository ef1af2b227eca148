package topology

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/model/slice"
)

func TestPolicersOfLinks(t *testing.T) {
	text := `nodes: {a: , b: , c: , s: {kind: switch}}
defaults: {link: {police: 100Mbit}}
links:
  - {ends: [a, b], police: {rate: 10Mbit, burst: 64KiB}, from: {b: {police: 20Mbit}}}
  - {ends: [b, c], from: {c: {police: 0}}}
  - {ends: [a, s], police: 1Mbit}
  - {ends: [a, b, c], rate: 1Gbit}
`
	parsed, found := Parse("t.yaml", []byte(text))
	if len(found) > 0 {
		t.Fatal(found)
	}
	s, found := Resolve(parsed, nil)
	if len(found) > 0 {
		t.Fatal(found)
	}
	want := map[string][]slice.Policer{
		"a:eth1--b:eth1": {{Rate: 10e6, Burst: 1 << 16}, {Rate: 20e6}},
		"b:eth2--c:eth1": {{Rate: 100e6}, {}},
		"a:eth2--s:eth1": {{Rate: 1e6}, {Rate: 1e6}},
		"a:eth3--lan":    {{Rate: 100e6}, {Rate: 100e6}, {Rate: 100e6}},
	}
	for _, l := range s.Links {
		var have []slice.Policer
		for _, e := range l.Ends {
			have = append(have, e.Shape.Police)
			if err := e.Shape.Check(); err != nil {
				t.Errorf("what was resolved is refused: %v", err)
			}
		}
		if diff := cmp.Diff(want[l.Name], have); diff != "" {
			t.Errorf("link %s: -want +got\n%s", l.Name, diff)
		}
	}
	out, err := Marshal(parsed)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"police: {rate: 10Mbit, burst: 64KiB}", "police: 20Mbit"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("written as\n%s", out)
		}
	}
	if again, found := Parse("t.yaml", out); len(found) > 0 || !cmp.Equal(again.Links, parsed.Links) {
		t.Errorf("written and read again: %v\n%s", found, out)
	}
}

func TestErrorsInPolicers(t *testing.T) {
	for name, c := range map[string]struct{ link, want string }{
		"no rate":     {"ends: [n, s], police: fast", `"fast" is not a rate`},
		"bytes":       {"ends: [n, s], police: 10MB", `"10MB" may be bytes`},
		"too slow":    {"ends: [n, s], police: 500", "rate 500bit is out of range: 1kbit to 1Tbit, or 0 for no policer"},
		"no burst":    {"ends: [n, s], police: {rate: 1M, burst: many}", `"many" is no number of bytes`},
		"small burst": {"ends: [n, s], police: {rate: 1M, burst: 10}", "burst 10 is out of range: 64 bytes to 1GiB, or 0 for the default"},
		"burst alone": {"ends: [n, s], police: {burst: 64KiB}", "the policer has no rate (write police: 10Mbit, or police: {rate: 10Mbit, burst: 64KiB})"},
		"a list":      {"ends: [n, s], police: [1M]", "police"},
		"unknown key": {"ends: [n, s], police: {rate: 1M, bursts: 1k}", `unknown key "bursts" (did you mean "burst"?)`},
		"of a switch, to a switch": {
			"ends: [s, z], police: 1M",
			"what a switch sends to another switch, or to a LAN, is not policed " +
				"(police the links of the nodes, and write police: 0 here)",
		},
		"of a switch, to a LAN": {"ends: [n, s, m], from: {s: {police: 1M}}", "what a switch sends to another switch, or to a LAN"},
	} {
		text := "nodes: {n: , m: , s: {kind: switch}, z: {kind: switch}}\nlinks:\n  - {" + c.link + "}\n"
		parsed, found := Parse("t.yaml", []byte(text))
		if len(found) == 0 {
			_, found = Resolve(parsed, nil)
		}
		if have := found.Error(); !strings.Contains(have, c.want) || !strings.Contains(have, "t.yaml:3:") {
			t.Errorf("%s: %v, want %q at line 3", name, have, c.want)
		}
	}
}
