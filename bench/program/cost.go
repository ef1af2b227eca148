package program

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pergola-net/pergola/bench/chart"
	"github.com/pergola-net/pergola/bench/rounds"
	"github.com/pergola-net/pergola/bench/traffic"
	"github.com/pergola-net/pergola/host/undo"
)

// Figure 4 of QuaSAR: what reservations cost where there is no cross traffic.
const (
	CostRuns   = 5 // at least
	CostRate   = 5000.
	CostWindow = 700 * time.Millisecond // for 3,500 frames
	CostHops   = 8                      // of a long way
)

// streamTime is how long a stream of iperf3 is; it counts whole seconds.
const streamTime = time.Second

// costRouters are those that are measured at rest, so that what is compared is measured one after the other.
func costRouters() (all []FlowRouter) {
	for _, n := range []int{1, CostHops} {
		all = append(all,
			FlowRouter{By: ByKernel, Routers: n}, FlowRouter{By: ByProcess, Routers: n},
			FlowRouter{By: ByLineCard, Routers: n}, FlowRouter{By: ByLineCard, Routers: n, Early: true},
			FlowRouter{By: ByLineCard, Routers: n, LSP: true},
			FlowRouter{By: ByLineCard, Routers: n, LSP: true, Early: true})
	}
	return all
}

// CostRouters lists them.
var CostRouters = costRouters()

// The two that say what a queue costs.
var (
	queued   = FlowRouter{By: ByQueue, Routers: 1}
	unqueued = FlowRouter{By: ByTC, Routers: 1}
)

// Stream is single-flow throughput, in bit/s.
type Stream struct{ TCP, UDP float64 }

// Cost is what was measured. Runs and streams of a router are by round.
type Cost struct {
	rounds.Counts
	Runs    map[FlowRouter][]FlowRun
	Streams map[FlowRouter][]Stream // of those with one router, where frames are IPv4
	Queue   []float64               // ns of a core that a queue takes for a frame
}

// streams tells whether throughput is measured: iperf3 knows nothing of labels.
func (r FlowRouter) streams() bool { return r.Routers == 1 && !r.LSP }

// MeasureCost takes so many runs of each router, and CostRuns at least, in turn.
func MeasureCost(ctx context.Context, wanted int) (_ *Cost, err error) {
	c := &Cost{Counts: rounds.Counts{Wanted: max(wanted, CostRuns)}, Runs: map[FlowRouter][]FlowRun{},
		Streams: map[FlowRouter][]Stream{}}
	var steps undo.Steps
	defer func() { err = errors.Join(err, steps.Run()) }()
	stands, err := flowStands(ctx, append(costRouters(), queued, unqueued), &steps)
	if err != nil {
		return nil, err
	}
	rest, queues := stands[:len(CostRouters)], stands[len(CostRouters):]
	for range c.Wanted {
		c.Rounds++
		for _, s := range rest {
			if err := c.run(ctx, s); err != nil {
				return c, fmt.Errorf("send a flow through %s: %w", s.router.Title(), err)
			}
		}
		took, ok, err := rounds.Undisturbed(ctx, &c.Counts, func() (float64, error) {
			return queueCost(ctx, queues[0], queues[1])
		})
		if err != nil {
			return c, fmt.Errorf("measure what a queue costs: %w", err)
		}
		if ok {
			c.Queue = append(c.Queue, took)
		}
	}
	for _, s := range rest { // programs of XDP at the ends would slow streams down
		if err := s.close(); err != nil {
			return c, err
		}
	}
	return c, c.stream(ctx, rest)
}

// run is one run at rest.
func (c *Cost) run(ctx context.Context, s *flowStand) error {
	s.rate = CostRate
	run, ok, err := rounds.Undisturbed(ctx, &c.Counts, func() (FlowRun, error) {
		return s.run(ctx, traffic.FIFO, traffic.Cross{}, CostWindow)
	})
	if err == nil && ok {
		c.Runs[s.router] = append(c.Runs[s.router], run)
	}
	return err
}

// queueCost gives how much longer a core takes for a frame that goes through a queue, in ns.
func queueCost(ctx context.Context, with, without *flowStand) (float64, error) {
	var each [2]float64
	for i, s := range []*flowStand{with, without} {
		run, err := s.run(ctx, traffic.Ordinary, traffic.Cross{Rate: mostCross}, FlowWindow)
		if err != nil {
			return 0, err
		}
		if each[i] = perFrame(run); each[i] == 0 {
			return 0, fmt.Errorf("no frame arrives through %s", s.router.Title())
		}
	}
	return each[0] - each[1], nil
}

// perFrame is how long a core that has more to do than it can takes for a frame, in ns; 0: it has done none.
func perFrame(r FlowRun) float64 {
	arrived := r.Rate + r.CrossArrived
	if arrived == 0 {
		return 0
	}
	return 1e9 / arrived
}

// stream measures throughput, in turn.
func (c *Cost) stream(ctx context.Context, stands []*flowStand) error {
	for range c.Wanted {
		for _, s := range stands {
			if !s.router.streams() {
				continue
			}
			is, err := s.streamOnce(ctx)
			if err != nil {
				return fmt.Errorf("send a stream through %s: %w", s.router.Title(), err)
			}
			c.Streams[s.router] = append(c.Streams[s.router], is)
		}
	}
	return nil
}

func (s *flowStand) streamOnce(ctx context.Context) (is Stream, err error) {
	if s.stream != nil {
		var done func() error
		if done, err = s.stream(ctx); err != nil {
			return is, err
		}
		defer func() { err = errors.Join(err, done()) }()
	}
	if is.TCP, err = traffic.TCP(ctx, s.wires.source, s.wires.sink, sinkAddress(0), streamTime); err != nil {
		return is, err
	}
	is.UDP, err = traffic.UDPStream(ctx, s.wires.source, s.wires.sink, sinkAddress(0), streamTime)
	return is, err
}

// MeanOfRuns gives the mean of a figure of all runs, with the least and the most of them: as in the paper. They are
// not numbers where there was no run.
func MeanOfRuns(runs []FlowRun, of func(FlowRun) float64) (mean, least, most float64) {
	var all []float64
	for _, r := range runs {
		all = append(all, of(r))
	}
	mean, _ = chart.Spread(all)
	return mean, chart.Quantile(all, 0), chart.Quantile(all, 1)
}
