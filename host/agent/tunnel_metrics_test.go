package agent

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/model/slice"
)

// Two tunnels of a slice whose other ends have one name are told apart: a scrape with two metrics of the same labels
// fails as a whole.
func TestTunnelsOfASliceAreCountedApart(t *testing.T) {
	in, out := datapath.Traffic{Frames: 3, Bytes: 300}, datapath.Traffic{Frames: 5, Bytes: 500}
	lan := &wire.TunnelName{Slice: 7, Owner: "s at h2"}
	counted := map[string]wire.Traffic{
		"s7p1":    {FromNode: in, ToNode: out},
		"s7t02":   {FromNode: in, ToNode: out, Tunnel: lan, Dropped: map[string]uint64{"storm": 9}},
		"s7t01":   {Tunnel: lan},
		"s7p4":    {Tunnel: &wire.TunnelName{Slice: 7, Owner: "b:eth1"}},
		"s8tcafe": {Tunnel: &wire.TunnelName{Slice: 8, Owner: "s at h2"}},
	}
	have := tunnelsOf(&slice.Slice{ID: 7}, counted)
	want := []api.TunnelTraffic{
		{To: "b:eth1", Port: "s7p4"},
		{To: "s at h2", Port: "s7t01"},
		{To: "s at h2", Port: "s7t02", Received: traffic(in), Sent: traffic(out), Dropped: map[string]uint64{"storm": 9}},
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("tunnels (-want +have):\n%s", diff)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(fixed{func(s scrape) { s.tunnels("lab", have) }})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	metrics := map[string]int{}
	for _, f := range families {
		metrics[f.GetName()] = len(f.GetMetric())
	}
	if diff := cmp.Diff(map[string]int{"pergola_tunnel_frames_total": 6, "pergola_tunnel_bytes_total": 6, "pergola_tunnel_dropped_total": 1}, metrics); diff != "" {
		t.Errorf("metrics (-want +have):\n%s", diff)
	}
}

// fixed collects what it is told.
type fixed struct{ collect func(scrape) }

func (f fixed) Describe(chan<- *prometheus.Desc)    {}
func (f fixed) Collect(ch chan<- prometheus.Metric) { f.collect(scrape{ch}) }
