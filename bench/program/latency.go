package program

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/pergola-net/pergola/bench/chart"
	"github.com/pergola-net/pergola/bench/peers"
	"github.com/pergola-net/pergola/bench/rounds"
	"github.com/pergola-net/pergola/bench/traffic"
	"github.com/pergola-net/pergola/host/undo"
)

// Figure 10 of SPP: pings through routers of several slices, each of which has its part of a load.
const (
	LatencySlices = 8
	LatencyPings  = 2000 // of all slices
	LatencyLoad   = 0.8  // of what the routers can do
)

// LatencyPayloads are those of pings and of the load, in bytes.
var LatencyPayloads = []int{400, 1400}

// LatencyKey says of which routers, and of which payload, a series is.
type LatencyKey struct {
	Variant Variant // Program or UDP
	Payload int
}

// Trips is one round of pings.
type Trips struct {
	Took    []float64 // us
	Lost    int       // no answer came
	Load    float64   // frames a second, offered
	Arrived float64   // of them
}

// Mean is in us; ThreeSigma is above it.
func (t Trips) Mean() float64 { mean, _ := chart.Spread(t.Took); return mean }

// ThreeSigma is the mean and three times the standard deviation, in us.
func (t Trips) ThreeSigma() float64 {
	mean, deviation := chart.Spread(t.Took)
	return mean + 3*deviation
}

// Latency is what was measured.
type Latency struct {
	rounds.Counts
	Trips map[LatencyKey][]Trips // by round
}

// crowd is the routers of all slices, of one kind.
type crowd struct {
	variant Variant
	wires   ends
	to      net.HardwareAddr
	data    func(slice int) netip.Addr // that frames for a slice's router are for
	prepare preparation
	sinks   []*traffic.Sink
}

// MeasureLatency takes rounds.
func MeasureLatency(ctx context.Context, wanted int) (_ *Latency, err error) {
	l := &Latency{Counts: rounds.Counts{Wanted: wanted}, Trips: map[LatencyKey][]Trips{}}
	var steps undo.Steps
	defer func() { err = errors.Join(err, steps.Run()) }()
	g, err := openPlatform(ctx)
	if err != nil {
		return nil, err
	}
	steps.Push(g.undo.Run)
	crowds, err := crowds(ctx, g, &steps)
	if err != nil {
		return nil, err
	}
	for range wanted {
		l.Rounds++
		for _, payload := range LatencyPayloads {
			for _, c := range crowds {
				trips, ok, err := rounds.Undisturbed(ctx, &l.Counts, func() (Trips, error) {
					return c.run(ctx, payload)
				})
				k := LatencyKey{c.variant, payload}
				if err != nil {
					return l, fmt.Errorf(
						"ping through %s, %d bytes: %w",
						k.Variant.Title(),
						k.Payload,
						err,
					)
				}
				if ok {
					l.Trips[k] = append(l.Trips[k], trips)
				}
			}
		}
	}
	return l, nil
}

// crowds makes the routers of both kinds.
func crowds(ctx context.Context, g *platform, steps *undo.Steps) ([]*crowd, error) {
	object, err := g.compile(ctx, "ipv4.c")
	if err != nil {
		return nil, err
	}
	n, err := g.build(
		ctx,
		row{first: 100, slices: LatencySlices, nodes: 1, source: true, sink: true, object: object},
	)
	if err != nil {
		return nil, err
	}
	programs := &crowd{variant: Program, wires: endsOf(n), to: inMAC, data: sinkAddress}
	var cards []preparation
	for s := range LatencySlices {
		cards = append(cards, g.threads(func() (*os.File, error) { return netnsOf(g.HostNetwork.Namespace()) },
			n.Port(sourceNode, endDevice(s))))
	}
	programs.prepare = allOf(cards)
	m, err := newMachine(LatencySlices)
	if err != nil {
		return nil, err
	}
	steps.Push(m.undo.Run)
	binary, err := peers.Build(ctx, g.dir, "udp")
	if err != nil {
		return nil, err
	}
	processes := &crowd{variant: UDP, wires: m.ends, to: inMAC,
		data: func(slice int) netip.Addr { return sourceAddress(slice).Next() }}
	var each []preparation
	for s := range LatencySlices {
		each = append(each, m.process(
			s,
			false,
			binary,
			fmt.Sprint(routerCore),
			fmt.Sprint(
				int(peers.Lifetime.Seconds()),
			),
			forwards(s, traffic.Port),
			forwards(s, traffic.EchoPort),
		))
	}
	processes.prepare = allOf(each)
	all := []*crowd{programs, processes}
	for _, c := range all {
		if err := c.open(steps); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// allOf prepares all.
func allOf(each []preparation) preparation {
	return func(ctx context.Context, mode Mode) (func() error, error) {
		var steps undo.Steps
		for _, p := range each {
			done, err := p(ctx, mode)
			if err != nil {
				return nil, errors.Join(err, steps.Run())
			}
			steps.Push(done)
		}
		return steps.Run, nil
	}
}

// open makes the sinks.
func (c *crowd) open(steps *undo.Steps) error {
	for s := range LatencySlices {
		device, err := indexOf(c.wires.sink, endDevice(s))
		if err != nil {
			return err
		}
		sink := traffic.NewEchoSink
		if c.variant.isPeer() {
			sink = traffic.NewHostEchoSink
		}
		opened, err := sink(c.wires.sink, device)
		if err != nil {
			return err
		}
		steps.Push(opened.Close)
		c.sinks = append(c.sinks, opened)
	}
	return nil
}

// generator makes the load of all slices.
func (c *crowd) generator(payload int) (*traffic.Generator, error) {
	f := traffic.Flow{
		From:   [6]byte(sourceMAC),
		To:     [6]byte(c.to),
		Source: sourceAddress(0),
		Size:   headers + payload,
		Batch:  8,
	} // a ping waits for a batch that was begun
	for s := range LatencySlices {
		device, err := indexOf(c.wires.source, endDevice(s))
		if err != nil {
			return nil, err
		}
		f.Devices = append(f.Devices, device)
		f.Destinations = append(f.Destinations, c.data(s))
	}
	return traffic.NewGenerator(c.wires.source, f)
}

// run finds what the routers can do, and pings through them at a part of it.
func (c *crowd) run(ctx context.Context, payload int) (t Trips, err error) {
	done, err := c.prepare(ctx, Peak)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, done()) }()
	g, err := c.generator(payload)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	measure := func(w traffic.Window) (m traffic.Measured, err error) {
		err = traffic.OnCPU(sourceCore, func() error {
			m, err = g.Measure(w, 5e6, c.sinks...)
			return err
		})
		return m, err
	}
	most, err := measure(traffic.Window{Warm: 50 * time.Millisecond, Long: 200 * time.Millisecond})
	if err != nil {
		return t, err
	}
	if most.Frames == 0 {
		return t, errors.New("no frame arrives")
	}
	ended := make(chan error, 1)
	t.Load = LatencyLoad * most.Arrived
	const lasts = 3 * time.Second
	go func() {
		m, err := measure(traffic.Window{Warm: 100 * time.Millisecond, Long: lasts, Rate: t.Load})
		t.Arrived = m.Arrived
		ended <- err
	}()
	err = traffic.OnCPU(sourceCore, func() error { return c.ping(&t, payload, lasts) })
	return t, errors.Join(err, <-ended)
}

// ping pings through all routers in turn, as long as there is load.
func (c *crowd) ping(t *Trips, payload int, load time.Duration) (err error) {
	const settled, gap = 200 * time.Millisecond, 500 * time.Microsecond
	var all []*traffic.Pings
	defer func() {
		for _, p := range all {
			err = errors.Join(err, p.Close())
		}
	}()
	for s := range LatencySlices {
		p, err := traffic.NewPings(c.wires.source, c.data(s), payload)
		if err != nil {
			return err
		}
		all = append(all, p)
	}
	usual, err := traffic.First()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, usual()) }()
	begun := time.Now()
	time.Sleep(settled)
	for i := 0; i < LatencyPings && time.Since(begun) < load; i++ {
		took, answered, err := all[i%len(all)].Once()
		if err != nil {
			return err
		}
		if answered {
			t.Took = append(t.Took, float64(took.Nanoseconds())/1e3)
		} else {
			t.Lost++
		}
		time.Sleep(gap)
	}
	if len(t.Took) == 0 {
		return errors.New("no ping was answered")
	}
	return nil
}
