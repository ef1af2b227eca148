package metrics

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/host/agent/serve"
	"github.com/pergola-net/pergola/host/outside"
)

// counted is a Source of one slice's counters.
type counted serve.SliceCounters

func (counted) FastPathMemory() api.FastPathMemory { return api.FastPathMemory{} }

func (counted) Underlay(context.Context) (api.UnderlayTraffic, error) {
	return api.UnderlayTraffic{}, nil
}

func (c counted) Counters(context.Context) ([]serve.SliceCounters, error) {
	return []serve.SliceCounters{serve.SliceCounters(c)}, nil
}

func TestWhatIsDroppedOfTheOutsideIsAMetric(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(New().Collectors(counted{
		Slice: "lab", Outside: map[string]outside.Counts{"a": {Refused: 3, Dropped: 5}},
	})...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]float64{}
	for _, f := range families {
		if name := f.GetName(); strings.HasPrefix(name, "pergola_outside_") {
			have[name] = f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	want := map[string]float64{"pergola_outside_refused_total": 3, "pergola_outside_dropped_total": 5}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
}

func TestWhatLSPsCarryIsAMetric(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(New().Collectors(counted{Slice: "lab", LSPs: []api.SignalledLSP{
		{LSP: "gold", Up: true, Bandwidth: 8e6, Measured: &api.LSPTraffic{Frames: 1, Bytes: 2, ExcessFrames: 3,
			ExcessBytes: 4, Seconds: 0.5}},
		{LSP: "down"},
	}})...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if !strings.HasPrefix(f.GetName(), "pergola_lsp_") {
				continue
			}
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			have[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	want := map[string]float64{
		"pergola_lsp_up gold lab": 1, "pergola_lsp_up down lab": 0,
		"pergola_lsp_reserved_bits gold lab": 8e6, "pergola_lsp_reserved_bits down lab": 0,
		"pergola_lsp_frames_total gold reserved lab": 1, "pergola_lsp_frames_total gold excess lab": 3,
		"pergola_lsp_bytes_total gold reserved lab": 2, "pergola_lsp_bytes_total gold excess lab": 4,
		"pergola_lsp_seconds_total gold lab": 0.5,
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
}

// A scrape with two metrics of the same labels fails as a whole: two tunnels of a slice may have other ends of one
// name.
func TestTunnelsWhoseOtherEndsHaveOneNameAreTwoMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(New().Collectors(counted{Slice: "lab", Tunnels: []api.TunnelTraffic{
		{To: "b:eth1", Port: "s7p4"},
		{To: "s at h2", Port: "s7t01"},
		{To: "s at h2", Port: "s7t02", Dropped: map[string]uint64{"storm": 9}},
	}})...)
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
