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
	Counts
	Limit    time.Duration                      // after which no further round begins; 0: none
	Progress func(what string, done, total int) // of total windows; nil: none
}

// Counts says how much was measured. Wanted is what a Runner is asked for, the others are what it did.
type Counts struct {
	Rounds  int `json:"rounds"`
	Wanted  int `json:"wanted"`  // rounds
	Windows int `json:"windows"` // measured
	Thrown  int `json:"thrown"`  // of them, thrown away because time was stolen
}

// Caveats says what readers must know of figures from these rounds.
func (c Counts) Caveats() (all []string) {
	if c.Thrown > 0 {
		all = append(all, fmt.Sprintf("%d of %d windows were thrown away, because the hypervisor took time "+
			"from this machine during them.", c.Thrown, c.Windows))
	}
	if c.Rounds < c.Wanted {
		all = append(all, fmt.Sprintf("Time was up after %d of %d rounds.", c.Rounds, c.Wanted))
	}
	return all
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

// Measure takes all rounds of series. probe gives the probe of a series, and where its samples go.
func Measure[S any](ctx context.Context, r *Runner, all []S, probe func(S) (*Probe, *[]Sample)) error {
	probes, into := make([]*Probe, len(all)), make([]*[]Sample, len(all))
	for i, s := range all {
		probes[i], into[i] = probe(s)
	}
	err := r.Run(ctx, probes)
	for i, p := range probes {
		*into[i] = p.Samples
	}
	return err
}

// sample measures until there is an undisturbed window; ok is false if there was none.
func (r *Runner) sample(ctx context.Context, p *Probe) (value float64, ok bool, err error) {
	if p.Exact {
		if err := ctx.Err(); err != nil {
			return 0, false, err
		}
		r.Windows++
		value, err = p.Window(ctx)
		return value, err == nil, err
	}
	return Undisturbed(ctx, &r.Counts, func() (float64, error) { return p.Window(ctx) })
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
