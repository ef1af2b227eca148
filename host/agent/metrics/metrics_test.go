package metrics

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/host/agent/serve"
)

// counted is a Source of fixed tunnels.
type counted []api.TunnelTraffic

func (counted) FastPathMemory() api.FastPathMemory { return api.FastPathMemory{} }

func (counted) Underlay(context.Context) (api.UnderlayTraffic, error) {
	return api.UnderlayTraffic{}, nil
}

func (c counted) Counters(context.Context) ([]serve.SliceCounters, error) {
	return []serve.SliceCounters{{Slice: "lab", Tunnels: c}}, nil
}

// A scrape with two metrics of the same labels fails as a whole: two tunnels of a slice may have other ends of one
// name.
func TestTunnelsWhoseOtherEndsHaveOneNameAreTwoMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(New().Collectors(counted{
		{To: "b:eth1", Port: "s7p4"},
		{To: "s at h2", Port: "s7t01"},
		{To: "s at h2", Port: "s7t02", Dropped: map[string]uint64{"storm": 9}},
	})...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]int{}
	for _, f := range families {
		have[f.GetName()] = len(f.GetMetric())
	}
	for name, want := range map[string]int{
		"pergola_tunnel_frames_total": 6, "pergola_tunnel_bytes_total": 6, "pergola_tunnel_dropped_total": 1,
	} {
		if diff := cmp.Diff(want, have[name]); diff != "" {
			t.Errorf("%s (-want +have):\n%s", name, diff)
		}
	}
}
