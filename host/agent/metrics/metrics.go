// Package metrics gives Prometheus what an agent counts: its own work, and what went through the slices on its host.
package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/host/agent/serve"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/reconcile"
)

// Metrics is what an agent counts of its own work.
type Metrics struct {
	passes      prometheus.Histogram
	actions     *prometheus.CounterVec
	differences prometheus.Counter
	unwalked    *prometheus.CounterVec
}

// New gives metrics of nothing.
func New() *Metrics {
	return &Metrics{
		passes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "pergola_reconcile_seconds", Help: "Duration of passes that had something to do.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 14),
		}),
		actions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pergola_reconcile_actions_total",
			Help: "Actions carried out, by kind of resource, operation and result.",
		}, []string{"resource", "op", "result"}),
		differences: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pergola_fastpath_audit_differences_total",
			Help: "Differences between mirror and kernels that the continuous audit found.",
		}),
		unwalked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pergola_labels_unwalked_total",
			Help: "Packets with labels that routers could not send on and the agent was told of, by what " +
				"became of them: answered by IP or along the LSP, or why not.",
		}, []string{"outcome"}),
	}
}

// Collectors gives these metrics, and those of what a source counts.
func (m *Metrics) Collectors(s Source) []prometheus.Collector {
	return []prometheus.Collector{m.passes, m.actions, m.differences, m.unwalked, collector{s}}
}

// Acted counts an action that ended.
func (m *Metrics) Acted(act reconcile.Action, err error) {
	result := "ok"
	if err != nil {
		result = "failed"
	}
	m.actions.WithLabelValues(plan.KindName(act.Key.Kind), act.Op.String(), result).Inc()
}

// Passed takes the duration of a pass that had something to do.
func (m *Metrics) Passed(begin time.Time) { m.passes.Observe(time.Since(begin).Seconds()) }

// Differed counts differences between mirror and kernels.
func (m *Metrics) Differed(count int) { m.differences.Add(float64(count)) }

// Unwalked counts a packet with labels that a router could not send on.
func (m *Metrics) Unwalked(outcome string) { m.unwalked.WithLabelValues(outcome).Inc() }

// Source counts what goes through a host; *serve.Server does.
type Source interface {
	FastPathMemory() api.FastPathMemory
	Underlay(ctx context.Context) (api.UnderlayTraffic, error)
	Counters(ctx context.Context) ([]serve.SliceCounters, error)
}

// collector reads a source whenever its metrics are scraped.
type collector struct{ Source }

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		framesMetric, bytesMetric, droppedMetric, walkedMetric, walkedBytesMetric, puntsMetric, eligibleMetric,
		routesMetric, resyncsMetric, leftMetric, memoryMetric, memoryBoundMetric, nexthopsMetric,
		neighboursMetric,
		tunnelFramesMetric, tunnelBytesMetric, tunnelDroppedMetric,
		underlayPacketsMetric, underlayCardMetric, underlayDroppedMetric,
		queueFramesMetric, queueBytesMetric, queueDroppedMetric, queueOverlimitsMetric, queueBacklogMetric,
		queueBacklogBytesMetric, outsideRefusedMetric, outsideDroppedMetric,
		programCounterMetric, programPlatformMetric, programVerifiedMetric,
		lspUpMetric, lspReservedMetric, lspFramesMetric, lspBytesMetric, lspSecondsMetric,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	s := scrape{ch}
	s.memory(c.FastPathMemory())
	if u, err := c.Underlay(ctx); err != nil {
		ch <- prometheus.NewInvalidMetric(underlayPacketsMetric, err)
	} else {
		s.underlay(u)
	}
	all, err := c.Counters(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(framesMetric, err)
		return
	}
	for _, one := range all {
		if one.FastPathErr != nil {
			ch <- prometheus.NewInvalidMetric(puntsMetric, one.FastPathErr)
			continue
		}
		s.routers(one.Slice, one.FastPath)
		s.interfaces(one.Slice, one.Interfaces)
		s.tunnels(one.Slice, one.Tunnels)
		s.lsps(one.Slice, one.LSPs)
		if one.QueuesErr != nil {
			ch <- prometheus.NewInvalidMetric(queueFramesMetric, one.QueuesErr)
			continue
		}
		s.queues(one.Slice, one.Queues)
		if one.OutsideErr != nil {
			ch <- prometheus.NewInvalidMetric(outsideRefusedMetric, one.OutsideErr)
			continue
		}
		s.outside(one.Slice, one.Outside)
		if one.ProgramsErr != nil {
			ch <- prometheus.NewInvalidMetric(programCounterMetric, one.ProgramsErr)
			continue
		}
		s.programs(one.Slice, one.Programs)
		s.programTime(one.Slice, one.ProgramTime)
	}
}

// scrape is where one collection goes.
type scrape struct{ ch chan<- prometheus.Metric }

func (s scrape) gauge(d *prometheus.Desc, value float64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

func (s scrape) count(d *prometheus.Desc, value uint64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), labels...)
}
