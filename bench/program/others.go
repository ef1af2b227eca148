package program

import (
	"context"
	"errors"
	"fmt"

	"github.com/pergola-net/pergola/bench/rounds"
	"github.com/pergola-net/pergola/bench/traffic"
	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/lab/vnet"
	"github.com/pergola-net/pergola/model/slice"
)

// A flow with a reservation beside others that have some, too, and send more than that; beside cross traffic that comes
// by another card of the same core; and how that depends on how the cards' threads are scheduled.
const (
	OthersPart  = 0.1 // of what the core can do is what all others together have reserved
	OthersTimes = 10  // as much as they have reserved is what they send at most
	OthersHops  = 8   // of the shorter way; the longer one is FlowHops
)

// OthersFlows is how many they are.
var OthersFlows = []int{1, 10, 100}

// Others are what a flow is beside.
type Others struct {
	Flows int     // with reservations
	Times int     // as much as they have reserved is what they send
	Cross float64 // without any: frames of best effort a second, in place of Flows
	Apart bool    // they come by another card of the same core
	// Program says that they go through a packet program that takes long for a frame, behind a card of its own.
	Program bool
}

// OthersKey says of which router, and beside what, a series is.
type OthersKey struct {
	Router FlowRouter
	Thread traffic.Policy // of the cards' threads; without early demultiplexing they are ordinary ones
	Others Others
}

// OthersRouters are those whose flow has a reservation that counts.
var OthersRouters = []FlowRouter{LongEarly, {By: ByLineCard, Routers: OthersHops, LSP: true, Early: true}}

// without is the router without early demultiplexing. The flow is the same LSP.
func (r FlowRouter) without() FlowRouter {
	r.Early = false
	return r
}

// reservedOthers are flows with reservations.
func reservedOthers(flows, times int, apart bool) Others {
	return Others{Flows: flows, Times: times, Apart: apart}
}

// OthersKeys lists all series, in the order of rows.
func OthersKeys() (all []OthersKey) {
	most := OthersFlows[len(OthersFlows)-1]
	overload := []Others{{}, {Cross: mostCross}, {Cross: mostCross, Apart: true},
		reservedOthers(most, OthersTimes, false), reservedOthers(most, OthersTimes, true)}
	add := func(r FlowRouter, thread traffic.Policy, others ...Others) {
		for _, o := range others {
			all = append(all, OthersKey{r, thread, o})
		}
	}
	long, short := OthersRouters[0], OthersRouters[1]
	add(long, traffic.FIFO, Others{})
	for _, apart := range []bool{false, true} {
		for _, flows := range OthersFlows {
			for _, times := range []int{1, OthersTimes} {
				add(long, traffic.FIFO, reservedOthers(flows, times, apart))
			}
		}
		if apart {
			for _, times := range []int{1, OthersTimes} {
				add(long, traffic.FIFO, Others{Flows: 1, Times: times, Apart: true, Program: true})
			}
		}
		for _, cross := range CrossRates[1:] {
			if apart || cross == mostCross { // the rest is measured by MeasureFlows
				add(long, traffic.FIFO, Others{Cross: cross, Apart: apart})
			}
		}
	}
	add(long, traffic.Ordinary, overload...)
	add(long, traffic.Deadline, overload...)
	add(long.without(), traffic.Ordinary, overload...)
	add(short, traffic.FIFO, overload...)
	add(short.without(), traffic.Ordinary, overload...)
	return all
}

// Beside is what was measured.
type Beside struct {
	rounds.Counts
	Capacity map[int]float64 // frames a second with reservations that a core does, by number of routers
	Runs     map[OthersKey][]FlowRun
	Refused  map[traffic.Policy]string // why threads could not be scheduled so
}

// cross is the traffic of others, who send by the devices of cards, by row.
func (b *Beside) cross(k OthersKey, devices []int) traffic.Cross {
	o := k.Others
	c := traffic.Cross{Rate: o.Cross}
	if o.Flows > 0 {
		c.Rate = float64(o.Times) * OthersPart * b.Capacity[k.Router.Routers]
		c.Label, c.Labels, c.Times = otherLabel, o.Flows, o.Times
	}
	row := 0
	switch {
	case o.Program:
		row = programRow
	case o.Apart:
		row = apartRow
	}
	c.Device, c.Sink = devices[row], sinkAddress(row)
	return c
}

// MeasureBeside takes rounds.
func MeasureBeside(ctx context.Context, wanted int) (_ *Beside, err error) {
	b := &Beside{Counts: rounds.Counts{Wanted: wanted}, Capacity: map[int]float64{},
		Runs: map[OthersKey][]FlowRun{}, Refused: map[traffic.Policy]string{}}
	var steps undo.Steps
	defer func() { err = errors.Join(err, steps.Run()) }()
	stands, err := othersStands(ctx, &steps)
	if err != nil {
		return nil, err
	}
	for _, r := range OthersRouters {
		if b.Capacity[r.Routers], err = stands[r].capacity(ctx); err != nil {
			return nil, fmt.Errorf("find what a core does of %s: %w", r.Title(), err)
		}
	}
	for range wanted {
		b.Rounds++
		for _, k := range OthersKeys() {
			if b.Refused[k.Thread] != "" {
				continue
			}
			if err := b.run(ctx, k, stands[k.Router]); err != nil {
				return b, fmt.Errorf("send a flow through %s beside %+v, threads by %s: %w",
					k.Router.Title(), k.Others, k.Thread, err)
			}
		}
	}
	return b, nil
}

// run is a window. That the kernel refuses how threads are to be scheduled is noted, and no error.
func (b *Beside) run(ctx context.Context, k OthersKey, s *othersStand) error {
	run, ok, err := rounds.Undisturbed(ctx, &b.Counts, func() (FlowRun, error) {
		return s.run(ctx, k.Thread, b.cross(k, s.devices), FlowWindow)
	})
	switch {
	case errors.Is(err, traffic.ErrPolicy):
		b.Refused[k.Thread] = traffic.ErrPolicy.Error()
		return nil
	case err == nil && ok:
		b.Runs[k] = append(b.Runs[k], run)
	}
	return err
}

// othersStand is a router with several cards, each with a row of routers behind it. The flow comes by the first.
type othersStand struct {
	*flowStand
	devices []int // that lead to cards
}

// Rows of a stand that are not the flow's.
const (
	apartRow   = 1
	programRow = 2
)

// othersStands makes all routers, with early demultiplexing and without.
func othersStands(ctx context.Context, steps *undo.Steps) (map[FlowRouter]*othersStand, error) {
	all := map[FlowRouter]*othersStand{}
	first := uint16(0) // devices have names that are unique on the machine
	for _, early := range []bool{true, false} {
		g, err := openPlatform(ctx)
		if err != nil {
			return nil, err
		}
		steps.Push(g.undo.Run)
		for _, r := range OthersRouters {
			r.Early = early
			first += 100
			s, err := g.othersStand(ctx, r, first)
			if err != nil {
				return nil, fmt.Errorf("make %s: %w", r.Title(), err)
			}
			steps.Push(s.close)
			all[r] = s
		}
		if !early {
			continue
		}
		if err := g.HostNetwork.SetBestEffort(BestEffortShare); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// othersStand makes a router, with the LSPs of the flow and of all others.
func (g *platform) othersStand(ctx context.Context, r FlowRouter, first uint16) (*othersStand, error) {
	p := linePlan{first: first, routers: r.Routers, rows: programRow, program: true}
	n, err := g.line(ctx, p)
	if err != nil {
		return nil, err
	}
	for row := range p.rows {
		many := uint32(OthersFlows[len(OthersFlows)-1])
		err := errors.Join(g.reserveLine(n, p, row, flowLabel, 1), g.reserveLine(n, p, row, otherLabel, many))
		if err != nil {
			return nil, err
		}
	}
	if err := g.setFlood(ctx, n, p); err != nil {
		return nil, err
	}
	s := &othersStand{flowStand: &flowStand{router: r, rate: FlowRate, wires: endsOf(n)}}
	var cards []preparation
	for row := range p.all() {
		device, err := indexOf(s.wires.source, endDevice(row))
		if err != nil {
			return nil, err
		}
		card := n.Port(sourceNode, endDevice(row))
		s.devices, s.cards = append(s.devices, device), append(s.cards, card)
		cards = append(cards, g.threads(g.namespace, card))
	}
	s.prepare = allOf(cards)
	return s, s.open(p.all())
}

// setFlood gives the node of the last row a packet program that takes long for a frame.
func (g *platform) setFlood(ctx context.Context, n *vnet.Network, p linePlan) error {
	object, err := g.compileFlood(ctx)
	if err != nil {
		return err
	}
	node := nodeName(p.rows, 0)
	name := fmt.Sprintf("bench%d.%s", p.first, node)
	err = g.HostNetwork.SetProgram(ctx, name, wire.Program{Slice: p.first, File: "flood.c", Object: object,
		Digest: "bench", SlowPath: slice.SlowInterface,
		Ports: []string{n.Port(node, ifIn), n.Port(node, ifOut)}})
	if err != nil {
		return fmt.Errorf("set the program of %s: %w", node, err)
	}
	g.undo.Push(func() error { return g.HostNetwork.DeleteProgram(context.WithoutCancel(ctx), name) })
	return nil
}

// capacity is how many frames a second with reservations a core does. The median of a few windows counts.
func (s *othersStand) capacity(ctx context.Context) (float64, error) {
	const windows = 3
	var all []float64
	for range windows {
		c := traffic.Cross{Rate: mostCross, Label: otherLabel, Labels: 1, Times: 1}
		r, err := s.run(ctx, traffic.FIFO, c, FlowWindow)
		if err != nil {
			return 0, err
		}
		all = append(all, r.Rate+r.CrossArrived)
	}
	if rounds.Middle(all) == 0 {
		return 0, errors.New("no frame arrives")
	}
	return rounds.Middle(all), nil
}
