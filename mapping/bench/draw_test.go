package bench_test

import (
	"reflect"
	"testing"

	"github.com/pergola-net/pergola/mapping"
	"github.com/pergola-net/pergola/mapping/bench"
)

func TestScenariosAreOfVirnesDistribution(t *testing.T) {
	trunks, nodes, interval, lifetime, requests := 0.0, 0.0, 0.0, 0.0, 0.0
	const seeds = 20
	for seed := range uint64(seeds) {
		sc := bench.WX100(0.16).Draw(seed)
		if !reflect.DeepEqual(sc, bench.WX100(0.16).Draw(seed)) {
			t.Fatalf("seed %d gives two scenarios", seed)
		}
		trunks += float64(len(sc.Substrate.Trunks)) / seeds
		for _, a := range sc.Arrivals {
			nodes += float64(len(a.Request.Nodes))
			lifetime += a.Lifetime
			requests++
			if least := len(a.Request.Nodes) - 1; len(a.Request.Links) < least {
				t.Errorf("%d links cannot connect %d nodes", len(a.Request.Links), least+1)
			}
		}
		interval += sc.Arrivals[len(sc.Arrivals)-1].At
	}
	for _, tt := range []struct {
		what            string
		have, want, off float64
	}{
		{"trunks", trunks, 510, 40}, // the mean of Waxman's graphs by calculation; Virne's own file has 500
		{"nodes of a request", nodes / requests, 6, 0.1},
		{"time between two", interval / requests, 1 / 0.16, 0.1},
		{"lifetime", lifetime / requests, 500, 15},
	} {
		if tt.have < tt.want-tt.off || tt.have > tt.want+tt.off {
			t.Errorf("%s: %.4g, want %v ± %v", tt.what, tt.have, tt.want, tt.off)
		}
	}
}

func TestWhatLeavesGivesBackWhatItHeld(t *testing.T) {
	setting := bench.WX100(0.16)
	setting.Requests, setting.Lifetime = 100, 0
	sc := setting.Draw(1)
	result := bench.Play(sc, func(s mapping.Substrate, r mapping.Request) (mapping.Mapping, error) {
		for _, h := range s.Hosts {
			if h.Used[bench.Cores] != 0 {
				t.Errorf("%v cores of %s are in use", h.Used[bench.Cores], h.Name)
			}
		}
		for i, trunk := range s.Trunks {
			if trunk.Used != 0 {
				t.Errorf("%v of trunk %d is in use", trunk.Used, i)
			}
		}
		return mapping.Map(s, r, little)
	})
	if result.Accepted != setting.Requests {
		t.Errorf("%d of %d were accepted, where nothing is in use", result.Accepted, setting.Requests)
	}
	if !reflect.DeepEqual(setting.Draw(1), sc) {
		t.Error("the scenario is another one afterwards")
	}
}
