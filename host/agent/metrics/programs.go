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
	programSecondsMetric = prometheus.NewDesc("pergola_program_seconds_total",
		"Processor time of a slice's packet programs, measured at one frame in 16.", []string{"slice"}, nil)
	programMeteredMetric = prometheus.NewDesc("pergola_program_metered_total",
		"Frames dropped because no processor time was left for the slice's packet programs.",
		[]string{"slice"}, nil)
	programUnreadMetric = prometheus.NewDesc("pergola_program_slow_path_unread",
		"Frames that were handed to the slow path and that it has not read: they wait, or were lost.",
		[]string{"slice", "node"}, nil)
	programReservedMetric = prometheus.NewDesc("pergola_program_reserved_cores",
		"Processor time that the slice's packet programs have for themselves.", []string{"slice"}, nil)
)

func (s scrape) programs(slice string, all []api.NodeProgram) {
	for _, p := range all {
		s.gauge(programVerifiedMetric, float64(p.Verified), slice, p.Node)
		for name, n := range p.Counters {
			s.count(programCounterMetric, n, slice, p.Node, name)
		}
		for fate, n := range p.Platform {
			if fate == "slow path unread" { // falls when the process reads
				s.gauge(programUnreadMetric, float64(n), slice, p.Node)
				continue
			}
			s.count(programPlatformMetric, n, slice, p.Node, fate)
		}
	}
}

func (s scrape) programTime(slice string, all []api.ProgramTime) {
	for _, t := range all {
		s.ch <- prometheus.MustNewConstMetric(programSecondsMetric, prometheus.CounterValue, t.Seconds, slice)
		s.count(programMeteredMetric, t.Metered, slice)
		s.gauge(programReservedMetric, t.Reserved, slice)
	}
}
