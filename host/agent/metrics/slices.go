package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pergola-net/pergola/control/api"
)

var (
	byRouter    = []string{"slice", "node"}
	byInterface = []string{"slice", "node", "interface", "direction"}

	framesMetric = prometheus.NewDesc("pergola_interface_frames_total",
		"Frames that a node's interface received or sent, walked ones included.", byInterface, nil)
	bytesMetric   = prometheus.NewDesc("pergola_interface_bytes_total", "Bytes of these frames.", byInterface, nil)
	droppedMetric = prometheus.NewDesc("pergola_interface_dropped_total",
		"Frames from a node that its link did not take.", []string{"slice", "node", "interface", "reason"}, nil)
	walkedMetric = prometheus.NewDesc("pergola_fastpath_walked_frames_total",
		"Frames that the fast path carried past the node's kernel.", byInterface, nil)
	walkedBytesMetric = prometheus.NewDesc("pergola_fastpath_walked_bytes_total",
		"Bytes of these frames.", byInterface, nil)
	puntsMetric = prometheus.NewDesc("pergola_fastpath_punts_total",
		"Frames that the fast path handed to a router's kernel.", []string{"slice", "node", "reason"}, nil)
	eligibleMetric = prometheus.NewDesc("pergola_fastpath_on",
		"1 where a router's frames of a family are walked.", []string{"slice", "node", "family"}, nil)
	routesMetric = prometheus.NewDesc("pergola_fastpath_routes", "Routes of a router in the mirror.", byRouter,
		nil)
	resyncsMetric = prometheus.NewDesc("pergola_fastpath_resyncs_total",
		"How often a router was read again, off the fast path.", byRouter, nil)
	leftMetric = prometheus.NewDesc("pergola_fastpath_left_total",
		"How often a router left the fast path, for whatever reason.", []string{"slice", "node", "family"}, nil)

	memoryMetric      = prometheus.NewDesc("pergola_fastpath_memory_bytes", "Kernel memory for routes.", nil, nil)
	memoryBoundMetric = prometheus.NewDesc("pergola_fastpath_memory_bound_bytes", "How much it may become.", nil,
		nil)
	nexthopsMetric   = prometheus.NewDesc("pergola_fastpath_nexthops", "Next hops in the mirror.", nil, nil)
	neighboursMetric = prometheus.NewDesc("pergola_fastpath_neighbours", "Neighbours in the mirror.", nil, nil)
)

func (s scrape) memory(m api.FastPathMemory) {
	s.gauge(memoryMetric, float64(m.Bytes.Used))
	s.gauge(memoryBoundMetric, float64(m.Bytes.Bound))
	s.gauge(nexthopsMetric, float64(m.Nexthops.Used))
	s.gauge(neighboursMetric, float64(m.Neighbours.Used))
}

func (s scrape) routers(slice string, f api.FastPath) {
	for _, r := range f.Routers {
		for family, f := range map[string]api.FamilyFastPath{"ipv4": r.IPv4, "ipv6": r.IPv6} {
			value := 0.0
			if f.On {
				value = 1
			}
			s.gauge(eligibleMetric, value, slice, r.Node, family)
			s.count(leftMetric, f.Left, slice, r.Node, family)
		}
		s.gauge(routesMetric, float64(r.Routes), slice, r.Node)
		s.count(resyncsMetric, r.Resyncs, slice, r.Node)
		for reason, n := range r.Punts {
			s.count(puntsMetric, n, slice, r.Node, reason)
		}
	}
}

func (s scrape) interfaces(slice string, all []api.InterfaceTraffic) {
	type traffic struct{ all, walked api.Traffic }
	for _, i := range all {
		for direction, t := range map[string]traffic{
			"in": {i.Received, i.WalkedIn}, "out": {i.Sent, i.WalkedOut},
		} {
			s.count(framesMetric, t.all.Frames, slice, i.Node, i.Interface, direction)
			s.count(bytesMetric, t.all.Bytes, slice, i.Node, i.Interface, direction)
			s.count(walkedMetric, t.walked.Frames, slice, i.Node, i.Interface, direction)
			s.count(walkedBytesMetric, t.walked.Bytes, slice, i.Node, i.Interface, direction)
		}
		for reason, n := range i.Dropped {
			s.count(droppedMetric, n, slice, i.Node, i.Interface, reason)
		}
	}
}
