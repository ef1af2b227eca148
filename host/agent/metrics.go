package agent

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/reconcile"
)

// metrics is what the agent counts of its own work.
type metrics struct {
	passes  prometheus.Histogram
	actions *prometheus.CounterVec
}

func newMetrics() metrics {
	return metrics{
		passes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "pergola_reconcile_seconds", Help: "Duration of passes that had something to do.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 14),
		}),
		actions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pergola_reconcile_actions_total", Help: "Actions carried out, by kind of resource, operation and result.",
		}, []string{"resource", "op", "result"}),
	}
}

// Collectors gives the agent's metrics.
func (a *Agent) Collectors() []prometheus.Collector {
	return []prometheus.Collector{a.metrics.passes, a.metrics.actions, a.fast.differences, fastPathMetrics{a}}
}

func (m metrics) acted(act reconcile.Action, err error) {
	result := "ok"
	if err != nil {
		result = "failed"
	}
	m.actions.WithLabelValues(plan.KindName(act.Key.Kind), act.Op.String(), result).Inc()
}

func (m metrics) passed(begin time.Time) { m.passes.Observe(time.Since(begin).Seconds()) }
