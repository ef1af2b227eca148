package program

import (
	"context"
	_ "embed" // floodSource
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/pergola-net/pergola/bench/rounds"
	"github.com/pergola-net/pergola/bench/traffic"
	"github.com/pergola-net/pergola/datapath/program"
	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/lab/vnet"
	"github.com/pergola-net/pergola/model/slice"
)

// Many slices with packet programs on one host: one of them floods, and the others send at a rate for which they have
// reserved processor time.
const (
	SlicesCount = 64   // a power of two
	SlicesRate  = 500. // frames a second of each of the others
	SlicesFlood = 6    // times what the core could do of the flood, where the flood and the others share a core
)

// Sharing says which core handles the flood.
type Sharing string

// Sharings.
const (
	Apart    Sharing = "a core of its own" // the others' frames are handled where the generator is
	Together Sharing = "the same core"
)

// Sharings lists them.
var Sharings = []Sharing{Apart, Together}

// SlicesRun is one window.
type SlicesRun struct {
	Offered   float64   // frames a second of the flood
	Forwarded float64   // of them
	Due       int       // frames that all others were to send
	Sent      int       // of them; the generator may come late
	Lost      int       // of those that were sent
	Metered   uint64    // of those, because their slice had no processor time left
	Rates     []float64 // frames a second that arrived, of each of the others
}

// Loss is the part of the others' frames that was lost.
func (r SlicesRun) Loss() float64 { return float64(r.Lost) / float64(r.Sent) }

// RateError is how far the rate of a slice is from what it should be, at worst, as a part of it.
func (r SlicesRun) RateError() (worst float64) {
	for _, rate := range r.Rates {
		worst = max(worst, math.Abs(rate/SlicesRate-1))
	}
	return worst
}

// Slices is what was measured.
type Slices struct {
	rounds.Counts
	Capacity float64 // frames a second of the flood that a core could do if nothing bounded it
	Reserved float64 // cores of each of the others
	Runs     map[Sharing][]SlicesRun
}

// MeasureSlices takes rounds.
func MeasureSlices(ctx context.Context, wanted int) (_ *Slices, err error) {
	s := &Slices{Counts: rounds.Counts{Wanted: wanted}, Runs: map[Sharing][]SlicesRun{}}
	var steps undo.Steps
	defer func() { err = errors.Join(err, steps.Run()) }()
	g, err := openPlatform(ctx)
	if err != nil {
		return nil, err
	}
	steps.Push(g.undo.Run)
	stand, err := g.slicesStand(ctx, SlicesCount)
	if err != nil {
		return nil, err
	}
	steps.Push(stand.undo.Run)
	const long = 3 * time.Second
	if s.Capacity, err = stand.capacity(ctx, long/10); err != nil {
		return nil, err
	}
	if err := stand.reserve(ctx); err != nil {
		return nil, err
	}
	s.Reserved = stand.reserved
	for range wanted {
		s.Rounds++
		for _, sharing := range Sharings {
			flood := 0.
			if sharing == Together {
				flood = SlicesFlood * s.Capacity
			}
			run, ok, err := rounds.Undisturbed(ctx, &s.Counts, func() (SlicesRun, error) {
				return stand.run(ctx, sharing, flood, long)
			})
			if err != nil {
				return s, fmt.Errorf("send through %d slices, the flood on %s: %w", SlicesCount,
					sharing, err)
			}
			if ok {
				s.Runs[sharing] = append(s.Runs[sharing], run)
			}
		}
	}
	return s, nil
}

//go:embed code/flood.c
var floodSource []byte

// compileFlood compiles the packet program that takes long for a frame.
func (g *platform) compileFlood(ctx context.Context) ([]byte, error) {
	source := filepath.Join(g.dir, "flood.c")
	if err := os.WriteFile(source, floodSource, 0o644); err != nil {
		return nil, err
	}
	return program.Build(ctx, source)
}

// slicesStand is a row of one node for each slice, of which the first one floods.
type slicesStand struct {
	*platform
	row       row
	network   *vnet.Network
	generator *traffic.Generator
	sinks     []*traffic.Sink
	reserved  float64 // cores of each of the others
	undo      undo.Steps
}

func (g *platform) slicesStand(ctx context.Context, count int) (_ *slicesStand, err error) {
	s := &slicesStand{platform: g, reserved: wire.Reservable().FastPath / float64(count)}
	defer s.undo.OnError(&err)
	object, err := g.compile(ctx, "ipv4.c")
	if err != nil {
		return nil, err
	}
	flood, err := g.compileFlood(ctx)
	if err != nil {
		return nil, err
	}
	s.row = row{first: 100, slices: count, nodes: 1, source: true, sink: true, objects: [][]byte{flood},
		filters: func(i int) []string {
			if i == 0 {
				return nil
			}
			return routes(i)
		},
		// First the flood has all, so that what a core can do of it is seen.
		reserve: func(i int) (r slice.Reserve) {
			if i == 0 {
				r.FastPath = wire.Reservable().FastPath
			}
			return r
		}}
	for len(s.row.objects) < count {
		s.row.objects = append(s.row.objects, object)
	}
	if s.network, err = g.build(ctx, s.row); err != nil {
		return nil, err
	}
	return s, s.open()
}

// open makes the generator and the sinks.
func (s *slicesStand) open() (err error) {
	wires := endsOf(s.network)
	f := traffic.Flow{From: [6]byte(sourceMAC), To: [6]byte(inMAC), Source: sourceAddress(0),
		Size: traffic.FrameSize, Crowd: true}
	for i := range s.row.slices {
		device, err := indexOf(wires.source, endDevice(i))
		if err != nil {
			return err
		}
		f.Devices, f.Destinations = append(f.Devices, device), append(f.Destinations, sinkAddress(i))
		if device, err = indexOf(wires.sink, endDevice(i)); err != nil {
			return err
		}
		sink, err := traffic.NewNICSink(wires.sink, device)
		if err != nil {
			return err
		}
		s.undo.Push(sink.Close)
		s.sinks = append(s.sinks, sink)
	}
	if s.generator, err = traffic.NewGenerator(wires.source, f); err != nil {
		return err
	}
	s.undo.Push(s.generator.Close)
	return nil
}

// reserve lets the others reserve processor time, all that can be had, and the flood none.
func (s *slicesStand) reserve(ctx context.Context) error {
	s.row.reserve = func(i int) (r slice.Reserve) {
		if i > 0 {
			r.FastPath = s.reserved
		}
		return r
	}
	for i := range s.row.slices { // the flood first: it has what the others are to have
		if err := s.setProgram(ctx, s.network, s.row, i, 0); err != nil {
			return err
		}
	}
	return nil
}

// poll gives each card its thread.
func (s *slicesStand) poll(ctx context.Context, sharing Sharing) (done func() error, err error) {
	var steps undo.Steps
	defer steps.OnError(&err)
	ns, err := netnsOf(s.HostNetwork.Namespace())
	if err != nil {
		return nil, err
	}
	steps.Push(ns.Close)
	cards := map[string]int{}
	for i := range s.row.slices {
		core := routerCore
		if i > 0 && sharing == Apart {
			core = sourceCore
		}
		cards[s.network.Port(sourceNode, endDevice(i))] = core
	}
	unpoll, err := pollOn(ctx, ns, cards)
	if err != nil {
		return nil, err
	}
	steps.Push(unpoll)
	return steps.Run, nil
}

// send sends for a while, waits until all has come that comes, and counts. Where nothing else has to be done on its
// core, the generator is before all others there, as if it were a card.
func (s *slicesStand) send(ctx context.Context, sharing Sharing, flood, each float64, long time.Duration) (
	r SlicesRun, err error,
) {
	for _, sink := range s.sinks {
		if err := sink.Reset(); err != nil {
			return r, err
		}
	}
	var first int
	var others []int
	err = traffic.OnCPU(sourceCore, func() (err error) {
		if sharing == Together {
			var usual func() error
			if usual, err = traffic.First(); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, usual()) }()
		}
		const most = 5e6 // frames a second that a generator makes
		first, others, err = s.generator.Crowd(long, each, flood, most)
		return err
	})
	if err != nil {
		return r, err
	}
	arrived, err := s.arrived(ctx)
	if err != nil {
		return r, err
	}
	r.Offered, r.Forwarded = float64(first)/long.Seconds(), float64(arrived[0])/long.Seconds()
	r.Due = int(each * long.Seconds() * float64(len(others)))
	for i, sent := range others {
		r.Sent += sent
		r.Lost += sent - arrived[i+1]
		r.Rates = append(r.Rates, float64(arrived[i+1])/long.Seconds())
	}
	return r, nil
}

// arrived is how many frames came to each sink, when no further one comes.
func (s *slicesStand) arrived(ctx context.Context) (all []int, err error) {
	const quiet = 50 * time.Millisecond
	for last := -1; ; {
		sum := 0
		all = all[:0]
		for _, sink := range s.sinks {
			seen, err := sink.Seen()
			if err != nil {
				return nil, err
			}
			sum += seen.Frames
			all = append(all, seen.Frames)
		}
		if sum == last {
			return all, nil
		}
		last = sum
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(quiet):
		}
	}
}

// capacity is what a core does of the flood.
func (s *slicesStand) capacity(ctx context.Context, long time.Duration) (_ float64, err error) {
	done, err := s.poll(ctx, Together)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, done()) }()
	r, err := s.send(ctx, Together, 0, 1, long)
	if err == nil && r.Forwarded == 0 {
		err = errors.New("no frame of the flood arrives")
	}
	return r.Forwarded, err
}

// run is a window.
func (s *slicesStand) run(ctx context.Context, sharing Sharing, flood float64, long time.Duration) (
	r SlicesRun, err error,
) {
	done, err := s.poll(ctx, sharing)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, done()) }()
	if _, err := s.send(ctx, sharing, flood, SlicesRate, long/10); err != nil { // until the flood's bucket is empty
		return r, err
	}
	before, err := s.metered(ctx)
	if err != nil {
		return r, err
	}
	if r, err = s.send(ctx, sharing, flood, SlicesRate, long); err != nil {
		return r, err
	}
	after, err := s.metered(ctx)
	r.Metered = after - before
	return r, err
}

// metered is how many frames of the others were dropped because their slice had no time.
func (s *slicesStand) metered(ctx context.Context) (sum uint64, err error) {
	times, err := s.HostNetwork.ProgramTimes(ctx)
	for number, t := range times {
		if number != s.row.first {
			sum += t.Metered
		}
	}
	return sum, err
}
