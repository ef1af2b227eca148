package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pergola-net/pergola/control/api"
)

var (
	byTunnel = []string{"slice", "to", "port", "direction"}

	tunnelFramesMetric = prometheus.NewDesc("pergola_tunnel_frames_total",
		"Frames that came out of a tunnel, or were sent to it.", byTunnel, nil)
	tunnelBytesMetric = prometheus.NewDesc("pergola_tunnel_bytes_total",
		"Bytes of these frames, without the tunnel's headers.", byTunnel, nil)
	tunnelDroppedMetric = prometheus.NewDesc("pergola_tunnel_dropped_total",
		"Frames that came out of a tunnel and went no further, or that it did not take from a LAN.",
		[]string{"slice", "to", "port", "reason"}, nil)

	underlayPacketsMetric = prometheus.NewDesc("pergola_underlay_packets_total",
		"Packets of all tunnels, out of which frames were taken, or that were made.",
		[]string{"direction"}, nil)
	underlayCardMetric = prometheus.NewDesc("pergola_underlay_linecard_packets_total",
		"Packets of these that came in and that the line card alone dealt with.", nil, nil)
	underlayDroppedMetric = prometheus.NewDesc("pergola_underlay_dropped_total",
		"Packets dropped where no tunnel is known yet, or any more.", []string{"reason"}, nil)
)

func (s scrape) tunnels(slice string, all []api.TunnelTraffic) {
	for _, t := range all {
		for direction, n := range map[string]api.Traffic{"in": t.Received, "out": t.Sent} {
			s.count(tunnelFramesMetric, n.Frames, slice, t.To, t.Port, direction)
			s.count(tunnelBytesMetric, n.Bytes, slice, t.To, t.Port, direction)
		}
		for reason, n := range t.Dropped {
			s.count(tunnelDroppedMetric, n, slice, t.To, t.Port, reason)
		}
	}
}

// underlay is what the host counts of all tunnels' packets.
func (s scrape) underlay(u api.UnderlayTraffic) {
	s.count(underlayPacketsMetric, u.Received, "in")
	s.count(underlayPacketsMetric, u.Sent, "out")
	s.count(underlayCardMetric, u.ByLineCard)
	for reason, n := range u.Dropped {
		s.count(underlayDroppedMetric, n, reason)
	}
}
