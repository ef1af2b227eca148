package serve

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/model/slice"
)

// Two tunnels of a slice whose other ends have one name are told apart by their ports.
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
		{
			To: "s at h2", Port: "s7t02", Received: traffic(in), Sent: traffic(out),
			Dropped: map[string]uint64{"storm": 9},
		},
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("tunnels (-want +have):\n%s", diff)
	}
}
