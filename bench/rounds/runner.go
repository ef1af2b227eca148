package rounds

import (
	"context"
	"fmt"
	"time"
)

// Probe measures one thing.
type Probe struct {
	What   string // for progress and errors
	Window func(context.Context) (float64, error)
	// Exact: a window is of its own length, and is counted whatever the hypervisor did meanwhile.
	Exact   bool
	Samples []Sample // at most one for each round
}

// Runner takes rounds. Each visits all probes, one after the other (A B A B): what else happens on the machine hits
// all alike. A window of which the hypervisor took time is thrown away and measured again; a round may end without
// one.
type Runner struct {
	Wanted   int                                // rounds
	Limit    time.Duration                      // after which no further round begins; 0: none
	Progress func(what string, done, total int) // of total windows; nil: none

	Rounds  int // taken
	Windows int // measured
	Thrown  int // of them
}

// Run takes all rounds. With an error, the probes have the samples that came before.
func (r *Runner) Run(ctx context.Context, probes []*Probe) error {
	begun := time.Now()
	for round := range r.Wanted {
		if round > 0 && r.Limit > 0 && time.Since(begun) > r.Limit {
			break
		}
		r.Rounds++
		for i, p := range probes {
			if r.Progress != nil {
				r.Progress(fmt.Sprintf("measuring, round %d of %d", round+1, r.Wanted),
					round*len(probes)+i, r.Wanted*len(probes))
			}
			value, ok, err := r.sample(ctx, p)
			if err != nil {
				return fmt.Errorf("measure %s: %w", p.What, err)
			}
			if ok {
				p.Samples = append(p.Samples, Sample{Round: round, Value: value})
			}
		}
	}
	return nil
}

// sample measures until there is an undisturbed window; ok is false if there was none.
func (r *Runner) sample(ctx context.Context, p *Probe) (value float64, ok bool, err error) {
	window := func() (float64, error) {
		r.Windows++
		return p.Window(ctx)
	}
	if p.Exact {
		if err := ctx.Err(); err != nil {
			return 0, false, err
		}
		value, err = window()
		return value, err == nil, err
	}
	value, thrown, ok, err := undisturbed(ctx, window)
	r.Thrown += thrown
	return value, ok, err
}

// Both gives the values of the rounds of which both have a sample.
func Both(a, b []Sample) (as, bs []float64) {
	for _, s := range a {
		for _, t := range b {
			if s.Round == t.Round {
				as, bs = append(as, s.Value), append(bs, t.Value)
			}
		}
	}
	return as, bs
}
