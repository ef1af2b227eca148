package mapping_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/mapping"
)

// ring is n hosts with 4 cores each, joined to a ring by trunks of 100 Mbit/s and 1 ms.
func ring(n int) mapping.Substrate {
	var s mapping.Substrate
	name := func(i int) string { return fmt.Sprintf("h%d", i%n+1) }
	for i := range n {
		s.Hosts = append(s.Hosts, mapping.Host{Name: name(i), Capacity: map[string]float64{"cores": 4}})
		s.Trunks = append(s.Trunks, mapping.Trunk{A: name(i), B: name(i + 1), Bandwidth: 100e6, Delay: 1e-3})
	}
	return s
}

// two is a request of two nodes that are not on one host, and a link between them.
func two(bandwidth float64) mapping.Request {
	return mapping.Request{PerHost: 1, Nodes: []mapping.Node{{Name: "a"}, {Name: "b"}},
		Links: []mapping.Link{{A: "a", B: "b", Bandwidth: bandwidth}}}
}

// mustMap maps what fits.
func mustMap(t *testing.T, s mapping.Substrate, r mapping.Request) mapping.Mapping {
	t.Helper()
	m, err := mapping.Map(s, r, mapping.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if list := faults(s, r, m); len(list) > 0 {
		t.Fatal(list)
	}
	return m
}

func TestNeighboursAreOnOneHostWhereTheyMayBe(t *testing.T) {
	r := two(10e6)
	r.PerHost = 0
	m := mustMap(t, ring(5), r)
	if m.Hosts["a"] != m.Hosts["b"] || len(m.Paths[0]) != 0 {
		t.Errorf("%+v", m)
	}
}

func TestOfTwoWaysTheEmptierOneIsTaken(t *testing.T) {
	s, r := ring(4), two(10e6)
	s.Trunks[0].Used = 80e6 // from h1 to h2, and on to h3
	r.Nodes[0].Host, r.Nodes[1].Host = "h1", "h3"
	m := mustMap(t, s, r)
	if diff := cmp.Diff([][]int{{3, 2}}, m.Paths); diff != "" {
		t.Errorf("path (-want +got):\n%s", diff)
	}
}

func TestALinkGoesAroundAFullTrunk(t *testing.T) {
	s, r := ring(5), two(30e6)
	s.Trunks[0].Used = 80e6
	r.Nodes[0].Host, r.Nodes[1].Host = "h1", "h2"
	if m := mustMap(t, s, r); len(m.Paths[0]) != 4 {
		t.Errorf("%+v", m)
	}
}

func TestPartsOfALinkHavePathsOfTheirOwn(t *testing.T) {
	s, r := ring(3), two(150e6) // more than a trunk has
	if _, err := mapping.Map(s, r, mapping.Options{}); !errors.Is(err, mapping.ErrImpossible) {
		t.Errorf("in one part: %v", err)
	}
	r.Links[0].Parts = 2
	m := mustMap(t, s, r)
	if len(m.Paths) != 2 || len(m.Paths[0])+len(m.Paths[1]) != 3 || m.Cost(&r) != 3*75e6 {
		t.Errorf("paths %v cost %v", m.Paths, m.Cost(&r))
	}
}

func TestADelayBoundIsKeptByALongerPath(t *testing.T) {
	s, r := ring(5), two(30e6)
	s.Trunks[0].Delay = 0.1
	r.Nodes[0].Host, r.Nodes[1].Host = "h1", "h2"
	if m := mustMap(t, s, r); len(m.Paths[0]) != 1 {
		t.Errorf("without a bound: %+v", m)
	}
	r.Links[0].Delay = 0.004
	if m := mustMap(t, s, r); len(m.Paths[0]) != 4 {
		t.Errorf("with 4 ms: %+v", m)
	}
}

func TestRefusalsSayWhatIsWrong(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		change     func(s *mapping.Substrate, r *mapping.Request)
	}{
		{"cores", "no host can take node a: h1: is lost; h2, h3: 5 cores wanted, 4 of 4 free",
			func(s *mapping.Substrate, r *mapping.Request) {
				s.Hosts[0].Closed = "is lost"
				r.Nodes[0].Demand = map[string]float64{"cores": 5}
			}},
		{"licences", "no host can take node a: h1, h2, h3: 1 licences wanted, 0 of 0 free",
			func(_ *mapping.Substrate, r *mapping.Request) {
				r.Nodes[0].Demand = map[string]float64{"licences": 1}
			}},
		{"rules", "no host can take node a: h1: is of kind board, not server; h2: lacks xdp; " +
			"h3: has no label rack",
			func(s *mapping.Substrate, r *mapping.Request) {
				for i, kind := range []string{"board", "server", "server"} {
					s.Hosts[i].Kind = kind
				}
				s.Hosts[2].Features = []string{"xdp"}
				r.Nodes[0].Kinds, r.Nodes[0].Features = []string{"server"}, []string{"xdp"}
				r.Nodes[0].Labels = map[string]string{"rack": "a"}
			}},
		{"location", "no host can take node a: h1: is 877 km away, more than 100 km; " +
			"h2, h3: its position is not known",
			func(s *mapping.Substrate, r *mapping.Request) {
				s.Hosts[0].Position = &mapping.Position{Latitude: 52.52, Longitude: 13.405} // Berlin
				r.Nodes[0].Near = &mapping.Near{Kilometres: 100,
					Position: mapping.Position{Latitude: 48.8566, Longitude: 2.3522}} // Paris
			}},
		{"pin", "no host can take node a: h1, h2, h3: the node is pinned to h9",
			func(_ *mapping.Substrate, r *mapping.Request) { r.Nodes[0].Host = "h9" }},
		{"too many", "it has 2 nodes, of which 1 may be on each of 1 hosts",
			func(s *mapping.Substrate, _ *mapping.Request) { s.Hosts, s.Trunks = s.Hosts[:1], nil }},
		{"bandwidth", "no host can take node b beside the others: h1, h3: the node is pinned to h2; " +
			"h2: no path to h1, where node a is, has 300 Mbit/s",
			func(_ *mapping.Substrate, r *mapping.Request) {
				r.Nodes[0].Host, r.Nodes[1].Host, r.Links[0].Bandwidth = "h1", "h2", 300e6
			}},
		{"delay", "no host can take node b beside the others: h1, h3: the node is pinned to h2; " +
			"h2: no path to h1, where node a is, has 10 Mbit/s and at most 0.5 ms",
			func(_ *mapping.Substrate, r *mapping.Request) {
				r.Nodes[0].Host, r.Nodes[1].Host, r.Links[0].Delay = "h1", "h2", 5e-4
			}},
		{"apart", "no host can take node b beside the others: h1: has node a, which it has to be apart from; " +
			"h2, h3: the node is pinned to h1",
			func(_ *mapping.Substrate, r *mapping.Request) {
				r.PerHost, r.Apart = 0, [][]string{{"a", "b"}}
				r.Nodes[0].Host, r.Nodes[1].Host = "h1", "h1"
			}},
		{"site", "no host can take node b beside the others: h1, h3: the node is pinned to h2; " +
			"h2: its site has 1 of the nodes, the most that one may have",
			func(s *mapping.Substrate, r *mapping.Request) {
				s.Hosts[0].Site, s.Hosts[1].Site, r.PerSite = "roof", "roof", 1
				r.Nodes[0].Host, r.Nodes[1].Host = "h1", "h2"
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, r := ring(3), two(10e6)
			tt.change(&s, &r)
			_, err := mapping.Map(s, r, mapping.Options{})
			if !errors.Is(err, mapping.ErrImpossible) {
				t.Fatalf("not refused: %v", err)
			}
			if diff := cmp.Diff("map the network: "+tt.want, err.Error()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestConflictNamesWhatCannotBeKeptTogether(t *testing.T) {
	s, r := ring(3), two(80e6)
	s.Trunks[0].Used = 50e6
	r.Nodes[0].Host, r.Nodes[1].Host = "h1", "h2"
	r.Nodes[0].Demand = map[string]float64{"cores": 1}
	names, err := mapping.Conflict(s, r, mapping.Options{})
	if err != nil || names != nil {
		t.Errorf("it fits, by the longer path: %q, %v", names, err)
	}
	r.Links[0].Delay = 1e-3
	names, err = mapping.Conflict(s, r, mapping.Options{})
	want := []string{"pinned hosts", "bandwidth of links", "delay bounds of links"}
	if diff := cmp.Diff(want, names); diff != "" || err != nil {
		t.Errorf("conflict (-want +got): %v\n%s", err, diff)
	}
	for i := range s.Hosts {
		s.Hosts[i].Closed = "is lost"
	}
	names, err = mapping.Conflict(s, r, mapping.Options{})
	if err != nil || names == nil || len(names) > 0 {
		t.Errorf("no host is open: %q, %v", names, err)
	}
}

// TestConflictNamesTheFewest: two constraints contradict each other, and a third one alone cannot be kept.
func TestConflictNamesTheFewest(t *testing.T) {
	s, r := ring(3), two(1e12)
	r.PerHost = 0
	r.Apart = [][]string{{r.Nodes[0].Name, r.Nodes[1].Name}}
	names, err := mapping.Conflict(s, r, mapping.Options{})
	want := []string{"bandwidth of links", "nodes that are to be apart"}
	if diff := cmp.Diff(want, names); diff != "" || err != nil {
		t.Errorf("conflict (-want +got): %v\n%s", err, diff)
	}
	r.Nodes[0].Near = &mapping.Near{Kilometres: 1}
	names, err = mapping.Conflict(s, r, mapping.Options{})
	if diff := cmp.Diff([]string{"locations"}, names); diff != "" || err != nil {
		t.Errorf("conflict (-want +got): %v\n%s", err, diff)
	}
}

func TestBadInputs(t *testing.T) {
	for _, tt := range []struct {
		want   string
		change func(s *mapping.Substrate, r *mapping.Request)
	}{
		{"a host or router called h1 is there twice", func(s *mapping.Substrate, _ *mapping.Request) { s.Routers = []string{"h1"} }},
		{"between h9 and h2 has an end that is no host", func(s *mapping.Substrate, _ *mapping.Request) { s.Trunks[0].A = "h9" }},
		{"a trunk joins h2 to itself", func(s *mapping.Substrate, _ *mapping.Request) { s.Trunks[0].A = "h2" }},
		{"between h1 and h2 has a negative figure", func(s *mapping.Substrate, _ *mapping.Request) { s.Trunks[0].Used = -1 }},
		{"a node called a is there twice", func(_ *mapping.Substrate, r *mapping.Request) { r.Nodes[1].Name = "a" }},
		{"between a and c has an end that is no node", func(_ *mapping.Substrate, r *mapping.Request) { r.Links[0].B = "c" }},
		{"a link joins node a to itself", func(_ *mapping.Substrate, r *mapping.Request) { r.Links[0].B = "a" }},
		{"node a demands -1 of cores", func(_ *mapping.Substrate, r *mapping.Request) {
			r.Nodes[0].Demand = map[string]float64{"cores": -1}
		}},
		{"c is to be apart from others, and is no node", func(_ *mapping.Substrate, r *mapping.Request) { r.Apart = [][]string{{"c"}} }},
	} {
		s, r := ring(3), two(10e6)
		tt.change(&s, &r)
		_, err := mapping.Map(s, r, mapping.Options{})
		if err == nil || errors.Is(err, mapping.ErrImpossible) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want %q", err, tt.want)
		}
	}
}

func TestNothingIsMappedToNothing(t *testing.T) {
	if m := mustMap(t, mapping.Substrate{}, mapping.Request{}); len(m.Hosts) > 0 {
		t.Errorf("%+v", m)
	}
}

func TestStopEndsTheSearchWithWhatThereIs(t *testing.T) {
	asked := 0
	_, err := mapping.Map(ring(10), two(10e6), mapping.Options{Stop: func() bool { asked++; return true }})
	if err != nil || asked == 0 {
		t.Errorf("asked %d times, %v", asked, err)
	}
}
