package bench_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"testing"

	"github.com/pergola-net/pergola/mapping"
	"github.com/pergola-net/pergola/mapping/bench"
)

func search(s mapping.Substrate, r mapping.Request) (mapping.Mapping, error) {
	return mapping.Map(s, r, mapping.Options{})
}

// little is a hundredth of the effort that is usual.
var little = mapping.Options{Effort: mapping.DefaultEffort / 100}

var requests = flag.Int("requests", 400, "how many requests the search and the greedy one are compared on")

// TestNeverBelowTheGreedyOne asks both for each request of a scenario, in the same state of the substrate: where each
// node has a host of its own, as in Virne, and where they may share one.
func TestNeverBelowTheGreedyOne(t *testing.T) {
	setting := bench.WX100(0.16)
	setting.Requests = *requests
	for name, perHost := range map[string]int{"apart": 1, "together": 0} {
		t.Run(name, func(t *testing.T) {
			compared := 0
			both := func(s mapping.Substrate, r mapping.Request) (mapping.Mapping, error) {
				r.PerHost = perHost
				m, err := mapping.Map(s, r, little)
				if err != nil && !errors.Is(err, mapping.ErrImpossible) {
					t.Fatal(err)
				}
				if err == nil {
					keepsConstraints(t, s, r, m)
				}
				plain, none := greedy(s, r)
				if none != nil {
					return m, err
				}
				compared++
				switch {
				case err != nil:
					t.Errorf("the greedy one maps what the search does not: %v", err)
				case m.Cost(&r) > plain.Cost(&r):
					t.Errorf("cost %v, the greedy one's is %v", m.Cost(&r), plain.Cost(&r))
				}
				return m, err
			}
			bench.Play(setting.Draw(1), both)
			if compared < setting.Requests/4 {
				t.Errorf("the greedy one maps only %d of %d requests", compared, setting.Requests)
			}
			t.Logf("%d of %d requests compared", compared, setting.Requests)
		})
	}
}

// keepsConstraints checks a mapping of a request of these scenarios against the definitions.
func keepsConstraints(t *testing.T, s mapping.Substrate, r mapping.Request, m mapping.Mapping) {
	t.Helper()
	cores, nodes, held := map[string]float64{}, map[string]int{}, make([]float64, len(s.Trunks))
	for _, n := range r.Nodes {
		cores[m.Hosts[n.Name]] += n.Demand[bench.Cores]
		nodes[m.Hosts[n.Name]]++
	}
	for _, h := range s.Hosts {
		if cores[h.Name]+h.Used[bench.Cores] > h.Capacity[bench.Cores] || r.PerHost == 1 && nodes[h.Name] > 1 {
			t.Errorf("host %s has too much", h.Name)
		}
		delete(nodes, h.Name)
	}
	if len(nodes) > 0 {
		t.Errorf("nodes are on no host: %v", nodes)
	}
	for l, link := range r.Links {
		at := m.Hosts[link.A]
		for _, i := range m.Paths[l] {
			if trunk := s.Trunks[i]; trunk.A != at && trunk.B != at {
				t.Errorf("link %d jumps", l)
			}
			at = across(s.Trunks[i], at)
			held[i] += link.Bandwidth
		}
		if at != m.Hosts[link.B] {
			t.Errorf("link %d ends at %s", l, at)
		}
	}
	for i, trunk := range s.Trunks {
		if held[i]+trunk.Used > trunk.Bandwidth {
			t.Errorf("trunk %d carries too much", i)
		}
	}
}

// BenchmarkWX100 plays scenarios of 1,000 requests from seeds 1 to 10.
func BenchmarkWX100(b *testing.B) {
	solvers := []struct {
		name  string
		solve bench.Solver
	}{{"search", search}, {"greedy", greedy}, {"nrm", nodeRanking}}
	for _, rate := range []float64{0.14, 0.16} {
		for _, s := range solvers {
			b.Run(fmt.Sprintf("rate=%v/%s", rate, s.name), func(b *testing.B) {
				var results []bench.Result
				for b.Loop() {
					for seed := range uint64(10) {
						scenario := bench.WX100(rate).Draw(seed + 1)
						results = append(results, bench.Play(scenario, s.solve))
					}
				}
				report(b, results)
			})
		}
	}
}

var (
	gml   = flag.String("gml", "", "`file` of the topology for BenchmarkTopology, in the Graph Modelling Language")
	rate  = flag.Float64("rate", 0.016, "requests in a unit of time, for BenchmarkTopology")
	seeds = flag.Uint64("seeds", 10, "scenarios, for BenchmarkTopology")
)

// BenchmarkTopology plays scenarios as WX100's on a network of a file, such as those that Virne brings: GEANT at a rate
// of 0.016, BRAIN at 0.004.
func BenchmarkTopology(b *testing.B) {
	if *gml == "" {
		b.Skip("no topology: -gml FILE")
	}
	setting := bench.WX100(*rate)
	setting.Hosts, setting.Trunks = readGML(b, *gml)
	for name, solve := range map[string]bench.Solver{"search": search, "greedy": greedy, "nrm": nodeRanking} {
		b.Run(name, func(b *testing.B) {
			var results []bench.Result
			for b.Loop() {
				for seed := range *seeds {
					results = append(results, bench.Play(setting.Draw(seed+1), solve))
				}
			}
			report(b, results)
		})
	}
}

var edge = regexp.MustCompile(`source (\d+)\s+target (\d+)`)

// readGML reads which nodes are joined. Of parallel edges, one counts; nodes without one are left out.
func readGML(b *testing.B, file string) (hosts int, trunks [][2]int) {
	b.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	number, joined := map[string]int{}, map[[2]int]bool{}
	for _, m := range edge.FindAllStringSubmatch(string(text), -1) {
		var ends [2]int
		for i, name := range m[1:] {
			n, known := number[name]
			if !known {
				n = len(number)
				number[name] = n
			}
			ends[i] = n
		}
		if ends[0] > ends[1] {
			ends[0], ends[1] = ends[1], ends[0]
		}
		if ends[0] != ends[1] && !joined[ends] {
			joined[ends] = true
			trunks = append(trunks, ends)
		}
	}
	return len(number), trunks
}

func report(b *testing.B, results []bench.Result) {
	b.Helper()
	b.ReportMetric(100*bench.Mean(results, (*bench.Result).Acceptance), "%accepted")
	b.ReportMetric(bench.Mean(results, (*bench.Result).Ratio), "revenue/cost")
	b.ReportMetric(bench.Mean(results, (*bench.Result).RevenueRate), "revenue/time")
	seconds := func(r *bench.Result) float64 { return r.Each().Seconds() }
	b.ReportMetric(1e3*bench.Mean(results, seconds), "ms/request")
	b.ReportMetric(float64(bench.Longest(results).Milliseconds()), "ms-longest")
	b.ReportMetric(0, "ns/op")
}
