package program

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/pergola-net/pergola/bench/chart"
	"github.com/pergola-net/pergola/bench/rounds"
	"github.com/pergola-net/pergola/bench/traffic"
	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/vnet"
)

// Figures 4 and 5 of QuaSAR ("Resource Virtualisation of Network Routers", McIlroy and Sventek, 2006): a flow through a
// router that others' cross traffic overloads. All that a router does is done on one core.
const (
	FlowRate   = 10_000. // frames a second of the flow
	FlowWindow = 300 * time.Millisecond
	FlowHops   = 16 // of a long walk: so much work for a frame that the core is what there is too little of
)

// CrossRates are those of the cross traffic, in frames a second, as far as the generator makes them.
var CrossRates = []float64{0, 200_000, 800_000, 1_600_000, 100_000_000}

// FlowRouter is what forwards the flow.
type FlowRouter string

// Routers of flows.
const (
	Kernel    FlowRouter = "kernel" // IPv4
	Walk      FlowRouter = "walk"   // the line card, one router
	LongWalk  FlowRouter = "long walk"
	Early     FlowRouter = "early" // the same with early demultiplexing; the flow is an LSP with a reservation
	LongEarly FlowRouter = "long early"
)

// FlowRouters lists them, in the order of rows.
var FlowRouters = []FlowRouter{Kernel, Walk, LongWalk, Early, LongEarly}

// BestEffortShare is the share of the core that is the cross traffic's with early demultiplexing.
const BestEffortShare = 0.5

// hops is how many routers of Pergola's a flow goes through.
func (r FlowRouter) hops() int {
	if r == LongWalk || r == LongEarly {
		return FlowHops
	}
	return 1
}

// Plain is the same router without early demultiplexing.
func (r FlowRouter) Plain() FlowRouter {
	switch r {
	case Early:
		return Walk
	case LongEarly:
		return LongWalk
	case Kernel, Walk, LongWalk:
	}
	return r
}

// IsEarly tells whether the flow has a reservation.
func (r FlowRouter) IsEarly() bool { return r == Early || r == LongEarly }

// Title is the router's name for people.
func (r FlowRouter) Title() string {
	long := fmt.Sprintf("%d routers", FlowHops)
	return map[FlowRouter]string{
		Kernel: "the kernel, one router", Walk: "Pergola's line card, one router",
		LongWalk:  "Pergola's line card, " + long,
		Early:     "Pergola's line card, one router, the flow has a reservation",
		LongEarly: "Pergola's line card, " + long + ", the flow has a reservation",
	}[r]
}

// FlowKey says of which router, and beside which cross traffic, a series is.
type FlowKey struct {
	Router FlowRouter
	Cross  float64 // one of CrossRates
}

// FlowRun is what a window showed of the flow.
type FlowRun struct {
	Sent, Lost   int
	Mean         float64 // us that frames took; not a number where none arrived
	P99, P999    float64
	Jitter       float64 // us: mean of |received interval - sent interval| of frames that followed each other
	Cross        float64 // frames a second of cross traffic that were made
	CrossArrived float64 // of them
}

// Loss is the part of the flow that was lost.
func (r FlowRun) Loss() float64 { return float64(r.Lost) / float64(r.Sent) }

// describeFlow makes figures of a window.
func describeFlow(r traffic.TimedRun, long time.Duration) FlowRun {
	f := FlowRun{Sent: r.Sent, Lost: r.Sent - len(r.Arrivals), Cross: float64(r.Cross) / long.Seconds(),
		CrossArrived: float64(r.CrossArrived) / long.Seconds()}
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
	stands, err := flowStands(ctx, &steps)
	if err != nil {
		return nil, err
	}
	for range wanted {
		f.Rounds++
		for _, cross := range CrossRates {
			for _, s := range stands {
				run, ok, err := rounds.Undisturbed(ctx, &f.Counts, func() (FlowRun, error) {
					return s.run(ctx, cross, FlowWindow)
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
	prepare preparation
}

// flowStands makes all routers. Those with early demultiplexing have a platform of their own: the others' programs are
// those of a host that has none.
func flowStands(ctx context.Context, steps *undo.Steps) (all []*flowStand, err error) {
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
	for i, r := range FlowRouters {
		s := &flowStand{router: r}
		g := plain
		if r.IsEarly() {
			g = early
		}
		wires, err := s.make(ctx, g, uint16(100*i), steps)
		if err == nil {
			err = s.open(wires)
		}
		if err != nil {
			return nil, fmt.Errorf("make %s: %w", r.Title(), err)
		}
		steps.Push(s.timed.Close)
		all = append(all, s)
	}
	return all, early.HostNetwork.SetBestEffort(BestEffortShare)
}

// make makes the router, and gives its ends.
func (s *flowStand) make(ctx context.Context, g *platform, first uint16, steps *undo.Steps) (ends, error) {
	if s.router == Kernel {
		m, err := newMachine(1)
		if err != nil {
			return ends{}, err
		}
		steps.Push(m.undo.Run)
		s.prepare = func(ctx context.Context, mode Mode) (func() error, error) {
			return poll(ctx, m.ns, inDevice(0), mode)
		}
		return m.ends, netns.In(m.ns, forwardIPv4)
	}
	n, err := g.line(ctx, first, s.router.hops())
	if err != nil {
		return ends{}, err
	}
	card := n.Port(sourceNode, endDevice(0))
	s.prepare = g.threads(func() (*os.File, error) { return netnsOf(g.HostNetwork.Namespace()) }, card)
	if !s.router.IsEarly() {
		return endsOf(n), nil
	}
	polled := s.prepare
	s.prepare = func(ctx context.Context, mode Mode) (func() error, error) {
		done, err := polled(ctx, mode)
		if err != nil {
			return nil, err
		}
		if err := traffic.Prefer(card); err != nil && (!anyCore || !errors.Is(err, traffic.ErrNoThreads)) {
			return nil, errors.Join(err, done())
		}
		return done, nil
	}
	return endsOf(n), g.reserveLine(n, s.router.hops())
}

// The flow's label, the same on all links, and the traffic class of what has a reservation.
const (
	flowLabel = 100
	flowClass = 5
)

// reserveLine makes the LSP of a flow, through all routers.
func (g *platform) reserveLine(n *vnet.Network, routers int) error {
	for i := range routers {
		r := n.Plan.Node(nodeName(0, i))
		next := sinkMAC
		if i < routers-1 {
			next = vnet.MAC(n.Port(nodeName(0, i+1), ifIn))
		}
		err := g.HostNetwork.SetLabel(r.LabelSpace, flowLabel, datapath.NHLFE{
			Port: n.PortIndex(r.Name, ifOut), MAC: [6]byte(next),
			Push: []datapath.Label{{Label: flowLabel}}, KeepClass: true, Reserved: true,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func forwardIPv4() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) }

// line makes a row of so many routers between a source and a sink, which are walked.
func (g *platform) line(ctx context.Context, first uint16, routers int) (_ *vnet.Network, err error) {
	n, err := g.New(ctx, linePlan(first, routers))
	if err != nil {
		return nil, err
	}
	g.undo.Push(n.Close)
	if err := n.FastPath(ctx, true); err != nil {
		return nil, err
	}
	return n, n.InStep(ctx)
}

// linePlan numbers links from the left; 198.18.1.0 to 198.18.17.0 are those between routers.
func linePlan(first uint16, routers int) vnet.Plan {
	near := vnet.End{Node: sourceNode, Interface: endDevice(0), MAC: sourceMAC, NIC: true,
		Addresses: []netip.Prefix{netip.PrefixFrom(sourceAddress(0), 24)}}
	p := vnet.Plan{Slice: first, Nodes: []vnet.NodePlan{{Name: sourceNode}, {Name: sinkNode}}}
	far := netip.PrefixFrom(sinkAddress(0), 24)
	for i := range routers {
		r := vnet.NodePlan{Name: nodeName(0, i), Router: true, LabelSpace: uint32(first) + uint32(i) + 1}
		in := vnet.End{Node: r.Name, Interface: ifIn,
			Addresses: []netip.Prefix{netip.PrefixFrom(sourceAddress(i).Next(), 24)}}
		if i == 0 {
			in.MAC = inMAC
		}
		out := vnet.End{Node: r.Name, Interface: ifOut,
			Addresses: []netip.Prefix{netip.PrefixFrom(sourceAddress(i+1), 24)}}
		next := sourceAddress(i + 1).Next()
		if i == routers-1 {
			out.MAC, out.Addresses[0] = outMAC, netip.PrefixFrom(sinkAddress(0).Next(), 24)
			r.Neighbours = []vnet.Neighbour{{Interface: ifOut, Address: sinkAddress(0), MAC: sinkMAC}}
		} else {
			r.Routes = []vnet.Route{{To: far.Masked(), Hops: []vnet.Hop{{Via: next}}}}
		}
		p.Nodes = append(p.Nodes, r)
		p.Links = append(p.Links, vnet.LinkPlan{Ends: []vnet.End{near, in}})
		near = out
	}
	p.Links = append(p.Links, vnet.LinkPlan{Ends: []vnet.End{near, {Node: sinkNode, Interface: endDevice(0),
		MAC: sinkMAC, NIC: true, Addresses: []netip.Prefix{far}}}})
	return p
}

// open makes the flow, and its sink.
func (s *flowStand) open(wires ends) error {
	device, err := indexOf(wires.source, endDevice(0))
	if err != nil {
		return err
	}
	at, err := indexOf(wires.sink, endDevice(0))
	if err != nil {
		return err
	}
	f := traffic.TimedFlow{Device: device, From: [6]byte(sourceMAC), To: [6]byte(inMAC), Source: sourceAddress(0),
		Sink: sinkAddress(0)}
	if s.router.IsEarly() {
		f.Label, f.Class = flowLabel, flowClass
	}
	s.timed, err = traffic.NewTimed(wires.source, f, wires.sink, at)
	return err
}

// run is a window. The generator is before all others on its core, as if it were a card.
func (s *flowStand) run(ctx context.Context, cross float64, long time.Duration) (f FlowRun, err error) {
	done, err := s.prepare(ctx, Flood)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, done()) }()
	var r traffic.TimedRun
	err = traffic.OnCPU(sourceCore, func() error {
		usual, err := traffic.First()
		if err != nil {
			return err
		}
		r, err = s.timed.Run(long, FlowRate, cross)
		return errors.Join(err, usual())
	})
	if err == nil && r.Sent == 0 {
		err = errors.New("no frame of the flow was made")
	}
	return describeFlow(r, long), err
}
