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
var CrossRates = []float64{0, 200_000, 400_000, 800_000, 1_600_000, 100_000_000}

// FlowRouter is what forwards the flow.
type FlowRouter string

// Routers of flows.
const (
	Kernel   FlowRouter = "kernel" // IPv4
	Walk     FlowRouter = "walk"   // the line card, one router
	LongWalk FlowRouter = "long walk"
)

// FlowRouters lists them, in the order of rows.
var FlowRouters = []FlowRouter{Kernel, Walk, LongWalk}

// Title is the router's name for people.
func (r FlowRouter) Title() string {
	return map[FlowRouter]string{
		Kernel: "the kernel, one router", Walk: "Pergola's line card, one router",
		LongWalk: fmt.Sprintf("Pergola's line card, %d routers", FlowHops),
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
	g, err := openPlatform(ctx)
	if err != nil {
		return nil, err
	}
	steps.Push(g.undo.Run)
	stands, err := flowStands(ctx, g, &steps)
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

// flowStands makes all routers.
func flowStands(ctx context.Context, g *platform, steps *undo.Steps) (all []*flowStand, err error) {
	m, err := newMachine(1)
	if err != nil {
		return nil, err
	}
	steps.Push(m.undo.Run)
	if err := netns.In(m.ns, forwardIPv4); err != nil {
		return nil, err
	}
	kernel := func(ctx context.Context, mode Mode) (func() error, error) {
		return poll(ctx, m.ns, inDevice(0), mode)
	}
	all = append(all, &flowStand{router: Kernel, prepare: kernel})
	wires := []ends{m.ends}
	for i, r := range []FlowRouter{Walk, LongWalk} {
		n, err := g.line(ctx, uint16(100*(i+1)), map[FlowRouter]int{Walk: 1, LongWalk: FlowHops}[r])
		if err != nil {
			return nil, err
		}
		all = append(all, &flowStand{router: r, prepare: g.threads(
			func() (*os.File, error) { return netnsOf(g.HostNetwork.Namespace()) },
			n.Port(sourceNode, endDevice(0)))})
		wires = append(wires, endsOf(n))
	}
	for i, s := range all {
		if err := s.open(wires[i]); err != nil {
			return nil, err
		}
		steps.Push(s.timed.Close)
	}
	return all, nil
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
		r := vnet.NodePlan{Name: nodeName(0, i), Router: true}
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
	s.timed, err = traffic.NewTimed(wires.source, traffic.TimedFlow{Device: device, From: [6]byte(sourceMAC),
		To: [6]byte(inMAC), Source: sourceAddress(0), Sink: sinkAddress(0)}, wires.sink, at)
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
