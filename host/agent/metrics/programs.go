package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pergola-net/pergola/control/api"
)

var (
	byCounter = []string{"slice", "node", "counter"}

	programCounterMetric = prometheus.NewDesc("pergola_program_counter_total",
		"What packet programs count, by the names of their own counters.", byCounter, nil)
	programPlatformMetric = prometheus.NewDesc("pergola_program_frames_total",
		"What became of the frames of nodes with packet programs.", []string{"slice", "node", "fate"}, nil)
	programVerifiedMetric = prometheus.NewDesc("pergola_program_verified_instructions",
		"Instructions of a packet program that the kernel's verifier looked at.", byRouter, nil)
)

func (s scrape) programs(slice string, all []api.NodeProgram) {
	for _, p := range all {
		s.gauge(programVerifiedMetric, float64(p.Verified), slice, p.Node)
		for name, n := range p.Counters {
			s.count(programCounterMetric, n, slice, p.Node, name)
		}
		for fate, n := range p.Platform {
			s.count(programPlatformMetric, n, slice, p.Node, fate)
		}
	}
}
