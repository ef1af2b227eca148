package mapping_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/model/mapping"
)

const gib = 1 << 30

func hosts(n int, each mapping.Host) mapping.Substrate {
	var s mapping.Substrate
	for i := range n {
		h := each
		h.Name = fmt.Sprintf("h%d", i+1)
		s.Hosts = append(s.Hosts, h)
	}
	return s
}

// chain is n routers in a row, each with the demand.
func chain(n int, demand mapping.Resources, rate uint64) mapping.Request {
	var r mapping.Request
	for i := range n {
		r.Nodes = append(r.Nodes, mapping.Node{Name: fmt.Sprintf("r%02d", i+1), Demand: demand})
		if i > 0 {
			r.Links = append(r.Links, mapping.Link{Nodes: []string{r.Nodes[i-1].Name, r.Nodes[i].Name},
				Rate: rate})
		}
	}
	return r
}

var big = mapping.Host{Capacity: mapping.Resources{mapping.Cores: 8, mapping.Memory: 16 * gib}}

func count(m mapping.Mapping) map[string]int {
	on := map[string]int{}
	for _, host := range m {
		on[host]++
	}
	return on
}

func cut(r mapping.Request, m mapping.Mapping) (links int) {
	for _, l := range r.Links {
		for _, n := range l.Nodes[1:] {
			if m[n] != m[l.Nodes[0]] {
				links++
				break
			}
		}
	}
	return links
}

func TestSpreadCutsAChainOncePerHost(t *testing.T) {
	r := chain(20, mapping.Resources{}, 0)
	m, err := mapping.Greedy(hosts(5, big), r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"h1": 4, "h2": 4, "h3": 4, "h4": 4, "h5": 4}, count(m)); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
	if got := cut(r, m); got != 4 {
		t.Errorf("%d links between hosts, 4 are enough: %v", got, m)
	}
}

func TestSpreadFollowsCores(t *testing.T) {
	s := hosts(2, big)
	s.Hosts[1].Capacity[mapping.Cores] = 24
	m, err := mapping.Greedy(s, chain(20, mapping.Resources{}, 0), nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"h1": 5, "h2": 15}, count(m)); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
}

func TestPackFillsOneHostFirst(t *testing.T) {
	r := chain(10, mapping.Resources{mapping.Cores: 1, mapping.Memory: gib}, 0)
	r.Strategy = mapping.Pack
	m, err := mapping.Greedy(hosts(4, big), r, nil)
	if err != nil {
		t.Fatal(err)
	}
	parts := slices.Sorted(maps.Values(count(m)))
	if diff := cmp.Diff([]int{2, 8}, parts); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
	if got := cut(r, m); got != 1 {
		t.Errorf("%d links between hosts: %v", got, m)
	}
}

func TestPinsLabelsCordonsAndDrains(t *testing.T) {
	s := hosts(4, big)
	s.Hosts[1].Labels = map[string]string{"site": "lab"}
	s.Hosts[2].Cordoned = true
	s.Hosts[3].Draining = true
	r := chain(6, mapping.Resources{}, 0)
	r.Nodes[0].Host = "h1"
	r.Nodes[1].Labels = map[string]string{"site": "lab"}
	now := mapping.Mapping{"r03": "h3", "r04": "h4", "r05": "h9"}
	m, err := mapping.Greedy(s, r, now)
	if err != nil {
		t.Fatal(err)
	}
	if m["r01"] != "h1" || m["r02"] != "h2" || m["r03"] != "h3" {
		t.Errorf("pin, label or cordoned host's own: %v", m)
	}
	for _, n := range []string{"r04", "r05", "r06"} {
		if m[n] != "h1" && m[n] != "h2" {
			t.Errorf("%s is on %s", n, m[n])
		}
	}
	if diff := cmp.Diff([]string{"r04", "r05"}, moved(now, m)); diff != "" {
		t.Errorf("moved (-want +got):\n%s", diff)
	}
}

func TestLinksKeepToTheHostsRate(t *testing.T) {
	each := big
	each.Rate = 1e9
	r := chain(4, mapping.Resources{mapping.Cores: 4}, 600e6)
	m, err := mapping.Greedy(hosts(2, each), r, nil) // one cut: 600 Mbit/s; two cuts at a host would be 1200
	if err != nil {
		t.Fatal(err)
	}
	if got := cut(r, m); got != 1 {
		t.Errorf("%d links between hosts: %v", got, m)
	}
}

func TestReasonsNameEveryHost(t *testing.T) {
	s := hosts(8, big)
	s.Hosts[0].Cordoned = true
	s.Hosts[1].Draining = true
	s.Hosts[2].Used = mapping.Resources{mapping.Cores: 7.5}
	s.Hosts[3].Used = mapping.Resources{mapping.Memory: 16 * gib}
	s.Hosts[4].Rate, s.Hosts[4].UsedRate = 1e9, 1e9
	s.Hosts[5].Labels = map[string]string{"site": "field"}
	s.Hosts[6].Closed = "is lost"
	for i := range 5 {
		s.Hosts[i].Labels = map[string]string{"site": "lab"}
	}
	for i := range 7 {
		s.Hosts[i].Features = []string{"netem"}
	}
	r := mapping.Request{
		Nodes: []mapping.Node{
			{Name: "a", Host: "h3", Demand: mapping.Resources{}},
			{
				Name:   "b",
				Demand: mapping.Resources{mapping.Cores: 1, mapping.Memory: gib},
				Labels: map[string]string{"site": "lab"},
				Needs:  []string{"netem"},
			},
		},
		Links: []mapping.Link{{Nodes: []string{"a", "b"}, Rate: 10e6}},
	}
	_, err := mapping.Greedy(s, r, nil)
	var impossible *mapping.Impossible
	if !errors.As(err, &impossible) || !errors.Is(err, mapping.ErrImpossible) {
		t.Fatalf("%v", err)
	}
	want := map[string]string{
		"h1": "is cordoned",
		"h2": "is being drained",
		"h3": "1 cores wanted, 0.5 of 8 free",
		"h4": "1024 MiB of memory wanted, 0 MiB of 16384 MiB free",
		"h5": "links that leave h5 would need 1.01 Gbit/s of 1 Gbit/s",
		"h6": "its label site is field, not lab",
		"h7": "is lost",
		"h8": "its kernel lacks netem",
	}
	if diff := cmp.Diff(want, impossible.Reasons); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
	if text := err.Error(); !strings.HasPrefix(text,
		"place node b: no host can take it: h1: is cordoned; h2: is being drained; ") {
		t.Errorf("message: %s", text)
	}
}

func TestReasonsCountWhatIsLeftOfEachKind(t *testing.T) {
	each := mapping.Host{Capacity: mapping.Resources{mapping.Cores: 8, mapping.Filters: 98304, mapping.Masks: 6144,
		mapping.FastPath: 1}}
	s := hosts(3, each)
	s.Hosts[0].Used = mapping.Resources{mapping.Filters: 95304}
	s.Hosts[1].Used = mapping.Resources{mapping.Masks: 6144}
	s.Hosts[2].Used = mapping.Resources{mapping.FastPath: 0.75}
	r := mapping.Request{Nodes: []mapping.Node{{Name: "a",
		Demand: mapping.Resources{mapping.Filters: 4000, mapping.Masks: 1, mapping.FastPath: 0.5}}}}
	_, err := mapping.Greedy(s, r, nil)
	var impossible *mapping.Impossible
	if !errors.As(err, &impossible) {
		t.Fatalf("%v", err)
	}
	want := map[string]string{
		"h1": "4000 filters wanted, 3000 of 98304 free",
		"h2": "1 masks wanted, 0 of 6144 free",
		"h3": "0.5 cores of the fast path wanted, 0.25 of 1 free",
	}
	if diff := cmp.Diff(want, impossible.Reasons); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
}

func TestALinkThatNoPathCarriesStaysOnOneHost(t *testing.T) {
	s := hosts(3, big)
	s.Hosts[0].MTU, s.Hosts[1].MTU, s.Hosts[2].MTU = 1500, 9000, 9000
	r := chain(4, mapping.Resources{mapping.Cores: 1}, 0)
	for i := range r.Links {
		r.Links[i].MTU = 5042
	}
	m, err := mapping.Greedy(s, r, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range r.Links {
		if a, b := m[l.Nodes[0]], m[l.Nodes[1]]; a != b && (a == "h1" || b == "h1") {
			t.Errorf("%v: %s to %s", l.Nodes, a, b)
		}
	}
	r.Nodes[0].Host, r.Nodes[1].Host = "h1", "h2"
	if _, err := mapping.Greedy(s, r, nil); err == nil ||
		!strings.Contains(err.Error(), "h2: a link from it would need packets of 5042 bytes, h1 has 1500") {
		t.Errorf("got %v", err)
	}
	// What runs is not moved for it: the path may have become narrower.
	now := mapping.Mapping{r.Nodes[0].Name: "h1", r.Nodes[1].Name: "h2", r.Nodes[2].Name: "h2",
		r.Nodes[3].Name: "h2"}
	if m, err := mapping.Greedy(s, r, now); err != nil || len(moved(now, m)) > 0 {
		t.Errorf("moved: %v, %v", m, err)
	}
}

func TestNodesOfOneUnitAreOnOneHost(t *testing.T) {
	r := chain(9, mapping.Resources{mapping.Cores: 1}, 0)
	r.Together = [][]string{{"r08", "r01", "r05"}, {"r02", "r09"}}
	s := hosts(3, big)
	m, err := mapping.Greedy(s, r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if m["r01"] != m["r05"] || m["r01"] != m["r08"] || m["r02"] != m["r09"] {
		t.Errorf("parted: %v", m)
	}
	if diff := cmp.Diff(map[string]int{"h1": 3, "h2": 3, "h3": 3}, count(m)); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}

	// They move as one, to where most of them are, or away.
	now := maps.Clone(m)
	now["r01"], now["r05"], now["r08"] = "h1", "h2", "h2"
	if m, err := mapping.Greedy(s, r, now); err != nil || m["r01"] != "h2" || len(moved(now, m)) != 1 {
		t.Errorf("brought together: %v, %v", m, err)
	}
	now["r01"] = "h2"
	s.Hosts[1].Draining = true
	m, err = mapping.Greedy(s, r, now)
	if err != nil || m["r01"] == "h2" || m["r01"] != m["r05"] || m["r01"] != m["r08"] {
		t.Errorf("drained: %v, %v", m, err)
	}

	// Where one of them is pinned, all are; where all run there, a drain moves none of them.
	r.Nodes[4].Host = "h2"
	m, err = mapping.Greedy(s, r, now)
	if err != nil || m["r01"] != "h2" || m["r05"] != "h2" || m["r08"] != "h2" {
		t.Errorf("pinned: %v, %v", m, err)
	}
}

func TestReasonsOfAUnitNameItsNodes(t *testing.T) {
	web := []string{"tcp/80"}
	r := mapping.Request{Together: [][]string{{"a", "b", "c"}}, Nodes: []mapping.Node{
		{Name: "c", Host: "h1", Demand: mapping.Resources{mapping.Cores: 5}},
		{Name: "b", Ports: web}, {Name: "a", Demand: mapping.Resources{mapping.Cores: 4}}}}
	_, err := mapping.Greedy(hosts(2, big), r, nil)
	const full = "place node a with b, c: no host can take it: h1: 9 cores wanted, 8 of 8 free; " +
		"h2: node c is pinned to h1"
	if err == nil || err.Error() != full {
		t.Errorf("too much: %v", err)
	}
	r.Nodes[0].Demand, r.Nodes[2].Ports = mapping.Resources{}, web
	_, err = mapping.Greedy(hosts(1, big), r, nil)
	if err == nil || !strings.HasSuffix(err.Error(), "h1: its port tcp/80 is reserved for node a") {
		t.Errorf("a port twice: %v", err)
	}
	r.Nodes[1].Ports, r.Nodes[1].Host = nil, "h2"
	_, err = mapping.Greedy(hosts(2, big), r, nil)
	if err == nil || !strings.HasSuffix(err.Error(), "h1: node b is pinned to h2; h2: node c is pinned to h1") {
		t.Errorf("two pins: %v", err)
	}
}

func TestBadRequests(t *testing.T) {
	for _, tt := range []struct {
		name string
		r    mapping.Request
		want string
	}{
		{"twice", mapping.Request{Nodes: []mapping.Node{{Name: "a"}, {Name: "a"}}}, "two nodes are called a"},
		{"no node", mapping.Request{Nodes: []mapping.Node{{Name: "a"}}, Links: []mapping.Link{{Nodes: []string{"a", "b"}}}},
			"ends at b, which is no node"},
		{"end twice", mapping.Request{Nodes: []mapping.Node{{Name: "a"}}, Links: []mapping.Link{{Nodes: []string{"a", "a"}}}},
			"ends at a twice"},
		{"unit without node", mapping.Request{Nodes: []mapping.Node{{Name: "a"}}, Together: [][]string{{"a", "b"}}},
			`"b" is no node`},
		{"two units", mapping.Request{Nodes: []mapping.Node{{Name: "a"}}, Together: [][]string{{"a"}, {"a"}}},
			`"a" is no node, or is joined twice`},
		{"strategy", mapping.Request{Strategy: "best"}, `unknown strategy "best": spread or pack`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := mapping.Greedy(hosts(1, big), tt.r, nil); err == nil ||
				!strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	if _, err := mapping.Greedy(mapping.Substrate{Hosts: []mapping.Host{{Name: "h"}, {Name: "h"}}},
		chain(1, mapping.Resources{}, 0), nil); err == nil ||
		!strings.Contains(err.Error(), "two hosts are called h") {
		t.Errorf("two hosts of one name: %v", err)
	}
	if _, err := mapping.Greedy(mapping.Substrate{}, chain(1, mapping.Resources{}, 0), nil); err == nil ||
		!strings.Contains(err.Error(), "there is no host") {
		t.Errorf("no hosts: %v", err)
	}
}
