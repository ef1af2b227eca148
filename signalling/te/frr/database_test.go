package frr_test

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pergola-net/pergola/signalling/te"
	"github.com/pergola-net/pergola/signalling/te/frr"
)

// capture is what FRR 8.4.4 printed at r1 of a triangle r1-r2 (198.51.100.0/30), r2-r3 (.4/30), r1-r3 (.8/30), whose
// r1 was told of its link to r2 by the lines of Link. r1 is 192.0.2.1, 0000.0000.0001.
func capture(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func read(t *testing.T, b []byte) *te.Database {
	t.Helper()
	d, err := frr.Database(b)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var addresses = cmpopts.EquateComparable(netip.Addr{})

func TestDatabaseIsWhatRoutersWereTold(t *testing.T) {
	for name, ids := range map[string][]string{
		"ospf": {"192.0.2.1", "192.0.2.2", "192.0.2.3"},
		"isis": {"0000.0000.0001", "0000.0000.0002", "0000.0000.0003"},
	} {
		t.Run(name, func(t *testing.T) {
			d := read(t, capture(t, name))
			want := te.Link{Metric: 10, TEMetric: 20, Groups: 5, Bandwidth: 125_000_000,
				Reservable: 100_000_000}
			want.LinkID = te.LinkID{From: ids[0], To: ids[1], Local: netip.MustParseAddr("198.51.100.1"),
				Remote: netip.MustParseAddr("198.51.100.2")}
			for p := range want.Unreserved {
				want.Unreserved[p] = uint64(100_000_000 - 7_000_000*p)
			}
			links := d.Links()
			if len(links) != 6 || !cmp.Equal(links[0], want, addresses) {
				t.Errorf("%d links, the first differs (+):\n%s", len(links),
					cmp.Diff(want, links[0], addresses))
			}
			var nodes []string
			for _, n := range d.Nodes() {
				nodes = append(nodes, n.ID)
			}
			if !slices.Equal(nodes, ids) {
				t.Errorf("routers %q", nodes)
			}
			q := te.Request{From: netip.MustParseAddr("192.0.2.1"), To: netip.MustParseAddr("192.0.2.2"),
				Bandwidth: 60_000_000, Setup: 7}
			p, err := d.Path(q)
			if err != nil || !slices.Equal(p.Routers(), []string{ids[0], ids[2], ids[1]}) {
				t.Errorf("at priority 7 the link is too small, and the way is %v: %v", p.Routers(), err)
			}
		})
	}
}

func TestAreasOfISISAreOneDatabase(t *testing.T) {
	b := capture(t, "isis")
	if n := len(read(t, slices.Concat(b, capture(t, "ospf"))).Links()); n != 12 {
		t.Errorf("%d links of two areas", n)
	}
	if !cmp.Equal(read(t, slices.Concat(b, b)).Links(), read(t, b).Links(), addresses) {
		t.Error("a link that both areas have is there twice")
	}
}

func TestEdgesThatAreNoLinksForLSPsAreLeftOut(t *testing.T) {
	for name, replace := range map[string][2]string{
		"about to be removed":         {`"status":"Sync"`, `"status":"Orphan"`},
		"not for traffic engineering": {`"max-resv-link-bandwidth"`, `"other"`},
		"with what is not a number":   {`link-bandwidth":100000000.0`, `link-bandwidth":NaN`},
	} {
		b := string(capture(t, "ospf"))
		edges := strings.Index(b, `"edges"`)
		changed := b[:edges] + strings.Replace(b[edges:], replace[0], replace[1], 1)
		if changed == b {
			t.Fatalf("%s: %q is not in the capture", name, replace[0])
		}
		if n := len(read(t, []byte(changed)).Links()); n != 5 {
			t.Errorf("%s: %d links", name, n)
		}
	}
}

// A router can advertise such numbers, and FRR prints them: they must not take the database away from the others.
func TestNumbersThatJSONDoesNotHaveAreNone(t *testing.T) {
	b := string(capture(t, "isis"))
	for _, word := range []string{"NaN", "-NaN", "Infinity", "-Infinity"} {
		changed := strings.Replace(b, `"class-type-0":100000000.0`, `"class-type-0":`+word, 1)
		changed = strings.Replace(changed, `"name":"r1"`, `"name":"\"Infinity"`, 1)
		if strings.Count(changed, "Infinity") < 1 || changed == b {
			t.Fatal("the capture has changed")
		}
		d := read(t, []byte(changed))
		if l := d.Links()[0]; len(d.Links()) != 6 || l.Unreserved[0] != 0 || l.Unreserved[1] != 93_000_000 {
			t.Errorf("%s: %d links, %+v", word, len(d.Links()), l)
		}
		if d.Nodes()[0].Name != `"Infinity` {
			t.Errorf("%s: the name is %q", word, d.Nodes()[0].Name)
		}
	}
}

// Before the routing protocol has heard of anybody.
func TestADatabaseMayBeEmpty(t *testing.T) {
	d := read(t, []byte(`{"ted":{"name":"OSPF","vertices":[],"edges":[]}}`))
	if n := len(d.Nodes()) + len(d.Links()); n > 0 {
		t.Errorf("%d routers and links", n)
	}
}

func TestOtherOutputIsAnError(t *testing.T) {
	for name, b := range map[string]string{
		"off":     "MPLS-TE database is not enabled\n",
		"nothing": "",
		"other":   `{"vertices":[]}`,
		"cut":     string(capture(t, "ospf")[:2000]),
	} {
		d, err := frr.Database([]byte(b))
		if err == nil {
			t.Errorf("%s: %v", name, d)
		} else if name == "off" && !strings.Contains(err.Error(), "MPLS-TE database is not enabled") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
