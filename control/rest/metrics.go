package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pergola-net/pergola/model/slice"
)

// Measured is an Agent that has metrics of its own, such as how long it takes to reconcile.
type Measured interface {
	Collectors() []prometheus.Collector
}

func (s *server) registerMetrics(mux *http.ServeMux) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), sliceMetrics{s})
	if m, ok := s.Agent.(Measured); ok {
		registry.MustRegister(m.Collectors()...)
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
}

// sliceMetrics counts slices, nodes and links when metrics are collected.
type sliceMetrics struct{ *server }

var (
	slicesMetric = prometheus.NewDesc("pergola_slices", "Slices in the store.", nil, nil)
	nodesMetric  = prometheus.NewDesc("pergola_nodes", "Nodes of a slice in a phase.",
		[]string{"slice", "phase"}, nil)
	linksMetric = prometheus.NewDesc("pergola_links", "Links of a slice by state.",
		[]string{"slice", "state"}, nil)
	aliveMetric = prometheus.NewDesc("pergola_host_alive",
		"1 where a machine of the cluster is alive, 0 where it is lost.", []string{"host"}, nil)
	takesMetric = prometheus.NewDesc("pergola_host_schedulable",
		"1 where a machine of the cluster takes new nodes, if it is alive.", []string{"host"}, nil)
	placedMetric = prometheus.NewDesc("pergola_host_nodes", "Nodes that are placed on a machine of the cluster.",
		[]string{"host"}, nil)
	loadMetric = prometheus.NewDesc("pergola_host_load_cores", "Cores of a machine of the cluster that are busy.",
		[]string{"host"}, nil)
	settledMetric = prometheus.NewDesc("pergola_slice_settled", "1 where nothing is left to do for a slice.",
		[]string{"slice"}, nil)
)

// Describe implements prometheus.Collector.
func (sliceMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{slicesMetric, nodesMetric, linksMetric, settledMetric, aliveMetric,
		takesMetric, placedMetric, loadMetric} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m sliceMetrics) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if m.Controller == nil {
		return // servers have those of all hosts
	}
	records, err := m.Records.Slices(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(slicesMetric, err)
		return
	}
	m.collectHosts(ctx, ch)
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	gauge(slicesMetric, len(records))
	for _, r := range records {
		st, err := m.Records.Status(ctx, r.Name)
		if err != nil {
			ch <- prometheus.NewInvalidMetric(nodesMetric, err)
			continue
		}
		settled := 0
		if summarize(r, st).Settled {
			settled = 1
		}
		gauge(settledMetric, settled, r.Name)
		phases := map[slice.Phase]int{}
		for _, n := range st.Nodes {
			phases[n.Phase]++
		}
		for phase, n := range phases {
			gauge(nodesMetric, n, r.Name, string(phase))
		}
		states := map[string]int{"up": 0, "down": 0}
		for _, l := range st.Links {
			if l.Up {
				states["up"]++
			} else {
				states["down"]++
			}
		}
		for state, n := range states {
			gauge(linksMetric, n, r.Name, state)
		}
	}
}

// collectHosts collects the metrics of the hosts of a cluster, as every server has them.
func (m sliceMetrics) collectHosts(ctx context.Context, ch chan<- prometheus.Metric) {
	if m.Cluster == nil {
		return
	}
	hosts, err := m.hosts(ctx, nil)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(aliveMetric, err)
		return
	}
	yes := map[bool]float64{true: 1}
	for _, h := range hosts.Body {
		for d, n := range map[*prometheus.Desc]float64{
			aliveMetric:  yes[h.Alive],
			takesMetric:  yes[!h.Policy.Cordoned && !h.Policy.Draining && h.Problem == ""],
			placedMetric: float64(h.Nodes), loadMetric: h.Load,
		} {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, h.Name)
		}
	}
}
