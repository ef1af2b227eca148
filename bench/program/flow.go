package program

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pergola-net/pergola/bench/chart"
	"github.com/pergola-net/pergola/bench/peers"
	"github.com/pergola-net/pergola/bench/rounds"
	"github.com/pergola-net/pergola/bench/traffic"
	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/model/slice"
)

// Figures 4 and 5 of QuaSAR ("Resource Virtualisation of Network Routers", McIlroy and Sventek, 2006): a flow through a
// router that others' cross traffic overloads. All that a router does is done on one core.
const (
	FlowRate   = 10_000. // frames a second of the flow
	FlowWindow = 300 * time.Millisecond
	FlowHops   = 16 // of a long walk: so much work for a frame that the core is what there is too little of
)

// CrossRates are those of the cross traffic, in frames a second, as far as the generator makes them.
var CrossRates = []float64{0, 200_000, 800_000, 1_600_000, mostCross}

// mostCross is more than a generator makes.
const mostCross = 100e6

// Forwarder is what routers are made of.
type Forwarder string

// Forwarders.
const (
	ByKernel   Forwarder = "kernel"       // IPv4
	ByProcess  Forwarder = "process"      // IPv4, in user space
	ByLineCard Forwarder = "line card"    // Pergola's
	ByQueue    Forwarder = "queue"        // Pergola's, where a queue follows that is never full
	ByTC       Forwarder = "without card" // Pergola's, where what leaves takes no frames from line cards
)

// FlowRouter is what forwards the flow.
type FlowRouter struct {
	By      Forwarder
	Routers int  // one after the other
	LSP     bool // the flow is an LSP with a reservation, of which each router swaps the label; else it is IPv4
	Early   bool // Pergola's have early demultiplexing
}

// Routers beside cross traffic.
var (
	Kernel    = FlowRouter{By: ByKernel, Routers: 1}
	Walk      = FlowRouter{By: ByLineCard, Routers: 1}
	LongWalk  = FlowRouter{By: ByLineCard, Routers: FlowHops}
	Early     = FlowRouter{By: ByLineCard, Routers: 1, LSP: true, Early: true}
	LongEarly = FlowRouter{By: ByLineCard, Routers: FlowHops, LSP: true, Early: true}
)

// FlowRouters lists them, in the order of rows.
var FlowRouters = []FlowRouter{Kernel, Walk, LongWalk, Early, LongEarly}

// BestEffortShare is the share of the core that is the cross traffic's with early demultiplexing.
const BestEffortShare = 0.5

// Plain is the same router without early demultiplexing, where the flow is IPv4.
func (r FlowRouter) Plain() FlowRouter {
	r.LSP, r.Early = false, false
	return r
}

// IsEarly tells whether the flow has a reservation that counts.
func (r FlowRouter) IsEarly() bool { return r.LSP && r.Early }

// Title is the router's name for people.
func (r FlowRouter) Title() string {
	title := map[Forwarder]string{
		ByKernel: "the kernel", ByProcess: "user space", ByLineCard: "Pergola's line card",
		ByQueue: "Pergola, into a queue", ByTC: "Pergola, without a queue",
	}[r.By]
	if r.Routers == 1 {
		title += ", one router"
	} else {
		title += fmt.Sprintf(", %d routers", r.Routers)
	}
	switch {
	case r.IsEarly():
		title += ", the flow has a reservation"
	case r.Early:
		title += " with early demultiplexing, the flow is best effort"
	case r.LSP:
		title += ", the flow is an LSP"
	}
	return title
}

// FlowKey says of which router, and beside which cross traffic, a series is.
type FlowKey struct {
	Router FlowRouter
	Cross  float64 // one of CrossRates
}

// FlowRun is what a window showed of the flow.
type FlowRun struct {
	Sent, Lost   int
	Rate         float64 // frames a second that arrived
	Mean         float64 // us that frames took; not a number where none arrived
	P99, P999    float64
	Jitter       float64 // us: mean of |received interval - sent interval| of frames that followed each other
	Cross        float64 // frames a second of cross traffic that were made
	CrossArrived float64 // of them
	// Of the cross traffic, what was within reservations: frames a second.
	Reserved, ReservedArrived float64
}

// Loss is the part of the flow that was lost.
func (r FlowRun) Loss() float64 { return float64(r.Lost) / float64(r.Sent) }

// describeFlow makes figures of a window.
func describeFlow(r traffic.TimedRun, long time.Duration) FlowRun {
	rate := func(frames int) float64 { return float64(frames) / long.Seconds() }
	f := FlowRun{Sent: r.Sent, Lost: r.Sent - len(r.Arrivals), Rate: rate(len(r.Arrivals)), Cross: rate(r.Cross),
		CrossArrived: rate(r.CrossArrived), Reserved: rate(r.Reserved),
		ReservedArrived: rate(r.ReservedArrived)}
	micro := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	var took, shifts []float64
	for i, a := range r.Arrivals {
		took = append(took, micro(a.Received-a.Sent))
		if i > 0 {
			before := r.Arrivals[i-1]
			shift := (a.Received - before.Received) - (a.Sent - before.Sent)
			shifts = append(shifts, micro(shift.Abs()))
		}
	}
	f.Mean, _ = chart.Spread(took)
	f.Jitter, _ = chart.Spread(shifts)
	f.P99, f.P999 = chart.Quantile(took, 0.99), chart.Quantile(took, 0.999)
	return f
}

// Flows is what was measured.
type Flows struct {
	rounds.Counts
	Runs map[FlowKey][]FlowRun // by round
}

// MeasureFlows takes rounds.
func MeasureFlows(ctx context.Context, wanted int) (_ *Flows, err error) {
	f := &Flows{Counts: rounds.Counts{Wanted: wanted}, Runs: map[FlowKey][]FlowRun{}}
	var steps undo.Steps
	defer func() { err = errors.Join(err, steps.Run()) }()
	stands, err := flowStands(ctx, FlowRouters, &steps)
	if err != nil {
		return nil, err
	}
	for range wanted {
		f.Rounds++
		for _, cross := range CrossRates {
			for _, s := range stands {
				run, ok, err := rounds.Undisturbed(ctx, &f.Counts, func() (FlowRun, error) {
					return s.run(ctx, traffic.FIFO, traffic.Cross{Rate: cross}, FlowWindow)
				})
				if err != nil {
					return f, fmt.Errorf("send a flow through %s beside %.0f frames a second: %w",
						s.router.Title(), cross, err)
				}
				if ok {
					k := FlowKey{s.router, cross}
					f.Runs[k] = append(f.Runs[k], run)
				}
			}
		}
	}
	return f, nil
}

// flowStand is a router between a generator and a sink.
type flowStand struct {
	router  FlowRouter
	timed   *traffic.Timed
	wires   ends
	prepare preparation
	cards   []string // where frames come in, the flow's by the first; of Pergola's routers
	rate    float64  // frames a second of the flow
	// stream is done around streams of iperf3, where something is; it returns what undoes it.
	stream func(context.Context) (done func() error, err error)
}

// flowStands makes routers. Those with early demultiplexing have a platform of their own: the others' programs are
// those of a host that has none.
func flowStands(ctx context.Context, routers []FlowRouter, steps *undo.Steps) (all []*flowStand, err error) {
	plain, err := openPlatform(ctx)
	if err != nil {
		return nil, err
	}
	steps.Push(plain.undo.Run)
	early, err := openPlatform(ctx)
	if err != nil {
		return nil, err
	}
	steps.Push(early.undo.Run)
	for i, r := range routers {
		s := &flowStand{router: r, rate: FlowRate}
		g := plain
		if r.Early {
			g = early
		}
		err := s.make(ctx, g, uint16(100*(i+1)), steps)
		if err == nil {
			err = s.open(1)
		}
		if err != nil {
			return nil, fmt.Errorf("make %s: %w", r.Title(), err)
		}
		steps.Push(s.close)
		all = append(all, s)
	}
	return all, early.HostNetwork.SetBestEffort(BestEffortShare)
}

// make makes the router.
func (s *flowStand) make(ctx context.Context, g *platform, first uint16, steps *undo.Steps) error {
	switch s.router.By {
	case ByKernel, ByProcess:
		return s.makeChain(ctx, g.dir, steps)
	case ByLineCard, ByQueue, ByTC:
	}
	p := linePlan{first: first, routers: s.router.Routers, rows: 1}
	if s.router.By == ByQueue {
		p.shape = slice.Shape{Rate: neverFull}
	}
	n, err := g.line(ctx, p)
	if err != nil {
		return err
	}
	s.wires, s.cards = endsOf(n), []string{n.Port(sourceNode, endDevice(0))}
	s.prepare = g.threads(g.namespace, s.cards[0])
	if s.router.By == ByTC {
		port := n.PortIndex(sinkNode, endDevice(0))
		return g.Data(func(d *datapath.DataPath) error { return d.DenyXDPToPort(port) })
	}
	if !s.router.LSP {
		return nil
	}
	return g.reserveLine(n, p, 0, flowLabel, 1)
}

// neverFull is more than a core can make of small frames, in bit/s.
const neverFull = 20e9

// makeChain makes routers that are namespaces.
func (s *flowStand) makeChain(ctx context.Context, dir string, steps *undo.Steps) error {
	c, err := newChain(s.router.Routers)
	if err != nil {
		return err
	}
	steps.Push(c.undo.Run)
	s.wires = c.ends
	polled := func(ctx context.Context, mode Mode) (func() error, error) {
		return poll(ctx, c.routers[0], inDevice(0), mode)
	}
	if s.router.By == ByKernel {
		s.prepare = polled
		return c.byKernels()
	}
	program, err := peers.Build(ctx, dir, "router")
	if err != nil {
		return err
	}
	processes := func(ctx context.Context, _ Mode) (func() error, error) { return c.byProcesses(ctx, program) }
	s.prepare = allOf([]preparation{polled, processes})
	s.stream = func(ctx context.Context) (func() error, error) {
		if err := c.setGRO(false); err != nil {
			return nil, err
		}
		done, err := c.byProcesses(ctx, program)
		if err != nil {
			return nil, errors.Join(err, c.setGRO(true))
		}
		return func() error { return errors.Join(done(), c.setGRO(true)) }, nil
	}
	return c.ofStrangers()
}

// open makes the flow, and its sink, which is behind so many rows of routers.
func (s *flowStand) open(rows int) error {
	device, err := indexOf(s.wires.source, endDevice(0))
	if err != nil {
		return err
	}
	at := make([]int, rows)
	for row := range at {
		if at[row], err = indexOf(s.wires.sink, endDevice(row)); err != nil {
			return err
		}
	}
	f := traffic.TimedFlow{Device: device, From: [6]byte(sourceMAC), To: [6]byte(inMAC), Source: sourceAddress(0),
		Sink: sinkAddress(0)}
	if s.router.By == ByProcess {
		f.To = [6]byte(strangeMAC)
	}
	if s.router.LSP {
		f.Label, f.Class = flowLabel, flowClass
	}
	s.timed, err = traffic.NewTimed(s.wires.source, f, s.wires.sink, at...)
	return err
}

// close takes the flow away, if it is there.
func (s *flowStand) close() error {
	if s.timed == nil {
		return nil
	}
	t := s.timed
	s.timed = nil
	return t.Close()
}

// schedule says how the threads of cards are scheduled, where early demultiplexing is.
func (s *flowStand) schedule(thread traffic.Policy) error {
	if !s.router.Early {
		return nil
	}
	for _, card := range s.cards {
		if err := traffic.Schedule(card, thread); err != nil &&
			(!anyCore || !errors.Is(err, traffic.ErrNoThreads)) {
			return err
		}
	}
	return nil
}

// run is a window. The generator is before all others on its core, as if it were a card.
func (s *flowStand) run(ctx context.Context, thread traffic.Policy, cross traffic.Cross, long time.Duration) (
	f FlowRun, err error,
) {
	done, err := s.prepare(ctx, Flood)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, done()) }()
	if err := s.schedule(thread); err != nil {
		return f, err
	}
	var r traffic.TimedRun
	err = traffic.OnCPU(sourceCore, func() error {
		usual, err := traffic.First()
		if err != nil {
			return err
		}
		r, err = s.timed.Run(long, s.rate, cross)
		return errors.Join(err, usual())
	})
	if err == nil && r.Sent == 0 {
		err = errors.New("no frame of the flow was made")
	}
	return describeFlow(r, long), err
}
