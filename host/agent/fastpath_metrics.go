package agent

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/host/plan"
)

// fastPathMetrics reads the fast path when somebody asks.
type fastPathMetrics struct{ *Agent }

var (
	byInterface = []string{"slice", "node", "interface", "direction"}

	framesMetric       = prometheus.NewDesc("pergola_interface_frames_total", "Frames that a node's interface received or sent, walked ones included.", byInterface, nil)
	bytesMetric        = prometheus.NewDesc("pergola_interface_bytes_total", "Bytes of these frames.", byInterface, nil)
	droppedMetric      = prometheus.NewDesc("pergola_interface_dropped_total", "Frames from a node that its link did not take.", []string{"slice", "node", "interface", "reason"}, nil)
	walkedMetric       = prometheus.NewDesc("pergola_fastpath_walked_frames_total", "Frames that the fast path carried past the node's kernel.", byInterface, nil)
	walkedBytesMetric  = prometheus.NewDesc("pergola_fastpath_walked_bytes_total", "Bytes of these frames.", byInterface, nil)
	puntsMetric        = prometheus.NewDesc("pergola_fastpath_punts_total", "Frames that the fast path handed to a router's kernel.", []string{"slice", "node", "reason"}, nil)
	eligibleMetric     = prometheus.NewDesc("pergola_fastpath_on", "1 where a router's frames of a family are walked.", []string{"slice", "node", "family"}, nil)
	routesMetric       = prometheus.NewDesc("pergola_fastpath_routes", "Routes of a router in the mirror.", []string{"slice", "node"}, nil)
	resyncsMetric      = prometheus.NewDesc("pergola_fastpath_resyncs_total", "How often a router was read again, off the fast path.", []string{"slice", "node"}, nil)
	memoryMetric       = prometheus.NewDesc("pergola_fastpath_memory_bytes", "Kernel memory for routes.", nil, nil)
	memoryBoundMetric  = prometheus.NewDesc("pergola_fastpath_memory_bound_bytes", "How much it may become.", nil, nil)
	nexthopsMetric     = prometheus.NewDesc("pergola_fastpath_nexthops", "Next hops in the mirror.", nil, nil)
	fibNeighboursGauge = prometheus.NewDesc("pergola_fastpath_neighbours", "Neighbours in the mirror.", nil, nil)
)

func newAuditMetric() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Name: "pergola_fastpath_audit_differences_total", Help: "Differences between mirror and kernels that the continuous audit found.",
	})
}

// Describe implements prometheus.Collector.
func (fastPathMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		framesMetric, bytesMetric, droppedMetric, walkedMetric, walkedBytesMetric, puntsMetric, eligibleMetric, routesMetric,
		resyncsMetric, memoryMetric, memoryBoundMetric, nexthopsMetric, fibNeighboursGauge,
		tunnelFramesMetric, tunnelBytesMetric, tunnelDroppedMetric, underlayPacketsMetric, underlayCardMetric, underlayDroppedMetric,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m fastPathMetrics) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	s := scrape{ch}
	u := m.fast.usage()
	s.gauge(memoryMetric, float64(u.Bytes.Used))
	s.gauge(memoryBoundMetric, float64(u.Bytes.Bound))
	s.gauge(nexthopsMetric, float64(u.Nexthops.Used))
	s.gauge(fibNeighboursGauge, float64(u.Neighbours.Used))
	s.underlay(ctx, m.Agent)
	counted, err := m.counters(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(framesMetric, err)
		return
	}
	for _, w := range m.wanted() {
		f, err := m.fastPathOf(ctx, w)
		if err != nil {
			ch <- prometheus.NewInvalidMetric(puntsMetric, err)
			continue
		}
		s.routers(w.Spec.Name, f)
		s.interfaces(w.Spec.Name, trafficOf(m.place(), w.Spec, counted))
		s.tunnels(w.Spec.Name, tunnelsOf(w.Spec, counted))
	}
}

// wanted gives the slices of this host.
func (a *Agent) wanted() (all []*plan.Input) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.wishes {
		all = append(all, w)
	}
	return all
}

// scrape is where one collection goes.
type scrape struct{ ch chan<- prometheus.Metric }

func (s scrape) gauge(d *prometheus.Desc, value float64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

func (s scrape) count(d *prometheus.Desc, value uint64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), labels...)
}

func (s scrape) routers(slice string, f api.FastPath) {
	for _, r := range f.Routers {
		for family, on := range map[string]bool{"ipv4": r.IPv4.On, "ipv6": r.IPv6.On} {
			value := 0.0
			if on {
				value = 1
			}
			s.gauge(eligibleMetric, value, slice, r.Node, family)
		}
		s.gauge(routesMetric, float64(r.Routes), slice, r.Node)
		s.count(resyncsMetric, r.Resyncs, slice, r.Node)
		for reason, n := range r.Punts {
			s.count(puntsMetric, n, slice, r.Node, reason)
		}
	}
}

func (s scrape) interfaces(slice string, all []api.InterfaceTraffic) {
	for _, i := range all {
		for direction, t := range map[string]struct{ all, walked api.Traffic }{"in": {i.Received, i.WalkedIn}, "out": {i.Sent, i.WalkedOut}} {
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
