package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pergola-net/pergola/host/outside"
)

var (
	outsideRefusedMetric = prometheus.NewDesc("pergola_outside_refused_total",
		"Packets that would have begun a connection with the outside, beyond what the node may have of them.",
		byRouter, nil)
	outsideDroppedMetric = prometheus.NewDesc("pergola_outside_dropped_total",
		"Packets that a node sent to the outside faster than its rate.", byRouter, nil)
)

func (s scrape) outside(slice string, all map[string]outside.Counts) {
	for node, n := range all {
		s.count(outsideRefusedMetric, n.Refused, slice, node)
		s.count(outsideDroppedMetric, n.Dropped, slice, node)
	}
}
