package mapping_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/mapping"
)

// size bounds what is drawn.
type size struct {
	hosts, trunks, nodes, links int
	parts                       []int // of a link
}

// small is more than can be tried, in little time.
var small = size{hosts: 8, trunks: 14, nodes: 8, links: 12, parts: []int{0, 0, 0, 1, 2}}

// draw makes a substrate with little room and a request for it.
func draw(t *rapid.T, most size) (mapping.Substrate, mapping.Request) {
	whole := func(name string, from, to int) float64 { return float64(rapid.IntRange(from, to).Draw(t, name)) }
	oneIn := func(n int, name string) bool { return rapid.IntRange(1, n).Draw(t, name) == n }
	var s mapping.Substrate
	var places []string
	for i := range rapid.IntRange(1, most.hosts).Draw(t, "hosts") {
		h := mapping.Host{
			Name: fmt.Sprintf("h%d", i),
			Site: rapid.SampledFrom([]string{"", "s1", "s2"}).Draw(t, "site"),
			Kind: rapid.SampledFrom([]string{"server", "server", "board"}).Draw(t, "kind"),
			Capacity: map[string]float64{"cores": whole("cores", 1, 6),
				"licences": whole("licences", 0, 3)},
			Used:     map[string]float64{"cores": whole("used cores", 0, 2)},
			Labels:   map[string]string{"rack": rapid.SampledFrom([]string{"a", "b"}).Draw(t, "rack")},
			Features: rapid.SampledFrom([][]string{{"netem"}, {"netem", "xdp"}, nil}).Draw(t, "features"),
			Position: &mapping.Position{Latitude: whole("latitude", 50, 52)},
		}
		if oneIn(10, "closed") {
			h.Closed = "is lost"
		}
		s.Hosts, places = append(s.Hosts, h), append(places, h.Name)
	}
	if oneIn(3, "router") {
		s.Routers, places = []string{"router"}, append(places, "router")
	}
	for range rapid.IntRange(0, most.trunks).Draw(t, "trunks") {
		if a, b, two := pair(t, places); two {
			s.Trunks = append(s.Trunks, mapping.Trunk{A: a, B: b,
				Bandwidth: rapid.SampledFrom([]float64{0, 20, 40, 60}).Draw(t, "bandwidth"),
				Used:      rapid.SampledFrom([]float64{0, 0, 10}).Draw(t, "used"),
				Delay:     whole("delay", 0, 3)})
		}
	}
	r := mapping.Request{PerHost: rapid.IntRange(0, 2).Draw(t, "per host"),
		PerSite: rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "per site")}
	var names []string
	for i := range rapid.IntRange(1, most.nodes).Draw(t, "nodes") {
		n := mapping.Node{Name: fmt.Sprintf("n%d", i),
			Demand: map[string]float64{"cores": whole("demand", 0, 3)}}
		switch rapid.IntRange(0, 20).Draw(t, "rule") {
		case 0:
			n.Host = rapid.SampledFrom(s.Hosts).Draw(t, "pin").Name
		case 1:
			n.Kinds = []string{"server"}
		case 2:
			n.Labels = map[string]string{"rack": "a"}
		case 3:
			n.Features = []string{"netem"}
		case 4:
			n.Near = &mapping.Near{Position: mapping.Position{Latitude: 50}, Kilometres: 120}
		case 5:
			n.Demand["licences"] = 1
		}
		r.Nodes, names = append(r.Nodes, n), append(names, n.Name)
	}
	for range rapid.IntRange(0, most.links).Draw(t, "links") {
		if a, b, two := pair(t, names); two {
			r.Links = append(r.Links, mapping.Link{A: a, B: b, Bandwidth: 5 * whole("rate", 0, 6),
				Delay: rapid.SampledFrom([]float64{0, 0, 2, 4}).Draw(t, "bound"),
				Parts: rapid.SampledFrom(most.parts).Draw(t, "parts")})
		}
	}
	if len(names) > 1 && oneIn(3, "apart") {
		r.Apart = [][]string{names[:2]}
	}
	return s, r
}

// pair draws two of some names.
func pair(t *rapid.T, names []string) (a, b string, two bool) {
	if len(names) < 2 {
		return "", "", false
	}
	i := rapid.IntRange(0, len(names)-1).Draw(t, "a")
	j := rapid.IntRange(0, len(names)-2).Draw(t, "b")
	if j >= i {
		j++
	}
	return names[i], names[j], true
}

// faults checks a mapping against the definitions, in the plainest way.
func faults(s mapping.Substrate, r mapping.Request, m mapping.Mapping) (list []string) {
	fault := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	hosts := map[string]mapping.Host{}
	for _, h := range s.Hosts {
		hosts[h.Name] = h
	}
	onHost, atSite := map[string]int{}, map[string]int{}
	used := map[[2]string]float64{}
	for _, n := range r.Nodes {
		h, exists := hosts[m.Hosts[n.Name]]
		if !exists {
			fault("%s has no host", n.Name)
		}
		onHost[h.Name]++
		atSite[cmp.Or(h.Site, "that of "+h.Name)]++
		for name, amount := range n.Demand {
			used[[2]string{h.Name, name}] += amount
		}
		switch {
		case h.Closed != "":
			fault("%s is on a closed host", n.Name)
		case n.Host != "" && n.Host != h.Name:
			fault("%s is not where it is pinned", n.Name)
		case n.Kinds != nil && !slices.Contains(n.Kinds, h.Kind):
			fault("%s is on a host of another kind", n.Name)
		case n.Labels != nil && n.Labels["rack"] != h.Labels["rack"]:
			fault("%s is in another rack", n.Name)
		case n.Features != nil && !slices.Contains(h.Features, n.Features[0]):
			fault("%s lacks a feature", n.Name)
		case n.Near != nil && 111.2*math.Abs(h.Position.Latitude-n.Near.Latitude) > n.Near.Kilometres:
			fault("%s is far away", n.Name)
		}
	}
	for what, amount := range used {
		if h := hosts[what[0]]; amount > 0 && amount+h.Used[what[1]] > h.Capacity[what[1]]+1e-6 {
			fault("%s has too little of %s", what[0], what[1])
		}
	}
	for name, n := range onHost {
		if r.PerHost > 0 && n > r.PerHost {
			fault("%s has %d nodes", name, n)
		}
	}
	for name, n := range atSite {
		if r.PerSite > 0 && n > r.PerSite {
			fault("site %s has %d nodes", name, n)
		}
	}
	for _, group := range r.Apart {
		for i, a := range group {
			for _, b := range group[:i] {
				if m.Hosts[a] == m.Hosts[b] {
					fault("%s and %s are together", a, b)
				}
			}
		}
	}
	return append(list, faultsOfPaths(s, r, m)...)
}

func faultsOfPaths(s mapping.Substrate, r mapping.Request, m mapping.Mapping) (list []string) {
	held := make([]float64, len(s.Trunks))
	r = r.Divided()
	for l, link := range r.Links {
		at, delay := m.Hosts[link.A], 0.0
		for _, t := range m.Paths[l] {
			trunk := s.Trunks[t]
			switch at {
			case trunk.A:
				at = trunk.B
			case trunk.B:
				at = trunk.A
			default:
				list = append(list, fmt.Sprintf("link %d jumps to trunk %d", l, t))
			}
			held[t] += link.Bandwidth
			delay += trunk.Delay
		}
		if at != m.Hosts[link.B] {
			list = append(list, fmt.Sprintf("link %d ends at %s", l, at))
		}
		if link.Delay > 0 && delay > link.Delay {
			list = append(list, fmt.Sprintf("link %d has a delay of %v", l, delay))
		}
	}
	for t, amount := range held {
		if trunk := s.Trunks[t]; trunk.Bandwidth > 0 && amount > 0 && amount+trunk.Used > trunk.Bandwidth+1e-6 {
			list = append(list, fmt.Sprintf("trunk %d carries too much", t))
		}
	}
	return list
}

var quick = mapping.Options{Effort: 20_000}

func TestEveryMappingKeepsAllConstraints(t *testing.T) {
	mapped := 0
	rapid.Check(t, func(t *rapid.T) {
		s, r := draw(t, small)
		m, err := mapping.Map(s, r, quick)
		if errors.Is(err, mapping.ErrImpossible) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		mapped++
		if list := faults(s, r, m); len(list) > 0 {
			t.Fatalf("%v\n%+v\n%+v\n%+v", list, s, r, m)
		}
	})
	if mapped == 0 {
		t.Error("nothing was mapped")
	}
}

func TestEqualInputsGiveEqualMappings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, r := draw(t, small)
		a, errA := mapping.Map(s, r, quick)
		b, errB := mapping.Map(s, r, quick)
		if fmt.Sprint(errA) != fmt.Sprint(errB) || !gocmp.Equal(a, b) {
			t.Fatalf("%v, %v\n%+v\n%+v", errA, errB, a, b)
		}
	})
}

// What is known is where the search begins, so the result costs no more, with the prices that the search goes by: where
// nothing is used, these are hops.
func TestTheResultIsNoWorseThanWhatIsKnown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, r := draw(t, small)
		for i := range s.Trunks {
			s.Trunks[i].Used = 0
		}
		for i := range s.Hosts {
			s.Hosts[i].Used = nil
		}
		known, err := mapping.Map(s, r, mapping.Options{Effort: 20_000, Seed: 1})
		if err != nil {
			t.Skip("none is known")
		}
		m, err := mapping.Map(s, r, mapping.Options{Effort: 1, Known: []mapping.Mapping{known}})
		if err != nil {
			t.Fatalf("%v, but %+v is known", err, known)
		}
		if list := faults(s, r, m); len(list) > 0 {
			t.Fatal(list)
		}
		if m.Cost(&r) > known.Cost(&r) {
			t.Fatalf("costs %v, what is known %v", m.Cost(&r), known.Cost(&r))
		}
	})
}
