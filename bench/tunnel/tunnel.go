// Package tunnel measures how fast a machine forwards frames that come in one tunnel and go in another, as figures 4 and 5 of the Trellis
// paper do, against the same machine's kernel.
//
//	left ── wire ── in │ machine │ out ── wire ── right
//
// Each way has a machine of its own, a namespace with two NICs (veth pairs), and all stand at once: a round visits every one of them
// for every size, so what else happens hits all alike, and what is compared is compared within a round. One core does everything: it makes
// the frames, forwards them, and counts them.
package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/pergola-net/pergola/bench/traffic"
)

// Way is how frames get through the machine.
type Way string

// The ways.
const (
	Native Way = "native" // the kernel forwards plain frames, no tunnels
	Beside Way = "beside" // the same, on a machine that carries tunnels of Pergola: its own traffic
	VXLAN  Way = "vxlan"  // a router that has two of the kernel's VXLAN devices within
	EGRE   Way = "egre"   // a router of Pergola between two tunnels
	Many   Way = "many"   // the same, one of 500 such routers
)

// Ways are all of them, in the order of tables.
var Ways = []Way{Native, Beside, VXLAN, EGRE, Many}

// Config says what to measure.
type Config struct {
	Rounds   int
	Sizes    []int // of frames, in the tunnel
	Ways     []Way // none: all
	Window   time.Duration
	Progress func(what string, done, total int)
}

// Series is what was measured of one way with frames of one size.
type Series struct {
	Way     Way
	Size    int
	Rates   []float64 // frames/s, one a round
	Against []float64 // Rates over those of Native in the same rounds
}

// Median is that of the rates.
func (s *Series) Median() float64 { return median(s.Rates) }

// Ratio is the median of the ratios to native forwarding.
func (s *Series) Ratio() float64 { return median(s.Against) }

func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// Result is all that was measured.
type Result struct {
	Series  []*Series
	Windows int
	Thrown  int           // windows in which the hypervisor took time away
	SetUp   time.Duration // of the tunnels of Many
	Tunnels int           // of Many
}

// many is how many routers, with two tunnels each, Many has.
const many = 500

// Run measures. When the context ends it gives up; what it made is removed in any case.
func Run(ctx context.Context, c Config) (_ *Result, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("measure tunnels: only root can make network namespaces and devices")
	}
	if c.Progress == nil {
		c.Progress = func(string, int, int) {}
	}
	if len(c.Ways) == 0 {
		c.Ways = Ways
	}
	b := &bench{Config: c}
	defer func() { err = errors.Join(err, b.undo.run()) }()
	for _, w := range c.Ways {
		c.Progress("building a machine ("+string(w)+")", 0, 0)
		if err := b.add(ctx, w); err != nil {
			return nil, fmt.Errorf("build a machine (%s): %w", w, err)
		}
	}
	return &b.result, b.measure(ctx)
}

type bench struct {
	Config
	probes []*probe
	result Result
	undo   undo
}

// probe measures one series.
type probe struct {
	*Series
	generator *traffic.Generator
	sink      *traffic.Sink
	expected  float64 // frames/s
}

// add makes a way's machine, and a probe for each size that has shown that it works.
func (b *bench) add(ctx context.Context, w Way) error {
	m, err := newMachine()
	b.undo.push(m.undo.run)
	if err != nil {
		return err
	}
	r, err := b.open(ctx, m, w)
	if err != nil {
		return err
	}
	sink, err := traffic.NewTunnelSink(m.right.ns, m.right.index, len(r.outer(0)))
	if err != nil {
		return err
	}
	b.undo.push(sink.Close)
	for _, size := range b.Sizes {
		p := &probe{Series: &Series{Way: w, Size: size}, sink: sink}
		p.generator, err = traffic.NewGenerator(m.left.ns, traffic.Flow{
			Device: m.left.index, From: r.from, To: r.to, Source: inner(0, 2), Destinations: []netip.Addr{inner(1, 2)},
			Size: size, Outer: r.outer(size),
		})
		if err != nil {
			return err
		}
		b.undo.push(p.generator.Close)
		if _, err := p.window(b.Window / 10); err != nil {
			return fmt.Errorf("try frames of %d bytes: %w", size, err)
		}
		b.probes = append(b.probes, p)
		b.result.Series = append(b.result.Series, p.Series)
	}
	return ctx.Err()
}

// window gives the rate at which frames come through.
func (p *probe) window(d time.Duration) (float64, error) {
	const (
		core   = 0
		least  = 1 << 17 // each run of the generator idles about 25 ms
		atMost = 1 << 24
	)
	frames := min(max(least, int(p.expected*d.Seconds())), atMost)
	if err := p.sink.Reset(); err != nil {
		return 0, err
	}
	if err := traffic.OnCPU(core, func() error { return p.generator.Send(frames) }); err != nil {
		return 0, err
	}
	seen, err := p.sink.Seen()
	if err != nil {
		return 0, err
	}
	if seen.Frames < frames/100 {
		return 0, fmt.Errorf("of %d frames %d arrived", frames, seen.Frames)
	}
	const ttl = 63 // one router
	if seen.TTL != ttl {
		return 0, fmt.Errorf("a frame has TTL %d, not %d", seen.TTL, ttl)
	}
	p.expected = seen.Rate()
	return p.expected, nil
}

// measure takes all rounds.
func (b *bench) measure(ctx context.Context) error {
	order := slices.Clone(b.probes)
	slices.SortStableFunc(order, func(p, q *probe) int { return p.Size - q.Size }) // what is compared comes one after the other
	for round := range b.Rounds {
		native := map[int]float64{}
		for i, p := range order {
			b.Progress(fmt.Sprintf("measuring, round %d of %d", round+1, b.Rounds), round*len(order)+i, b.Rounds*len(order))
			rate, ok, err := b.sample(ctx, p)
			if err != nil {
				return fmt.Errorf("measure %s with frames of %d bytes: %w", p.Way, p.Size, err)
			}
			if !ok {
				continue
			}
			p.Rates = append(p.Rates, rate)
			if p.Way == Native {
				native[p.Size] = rate
			} else if native[p.Size] > 0 {
				p.Against = append(p.Against, rate/native[p.Size])
			}
		}
	}
	return nil
}

// sample measures in windows until there is one that nobody disturbed; ok is false if there was none.
func (b *bench) sample(ctx context.Context, p *probe) (rate float64, ok bool, err error) {
	rate, thrown, ok, err := traffic.Undisturbed(ctx, func() (float64, error) {
		b.result.Windows++
		return p.window(b.Window)
	})
	b.result.Thrown += thrown
	return rate, ok, err
}

// undo holds the reverse of steps taken.
type undo []func() error

func (u *undo) push(f func() error) { *u = append(*u, f) }

// run takes them, the last one first.
func (u *undo) run() error {
	var errs []error
	for _, f := range slices.Backward(*u) {
		errs = append(errs, f())
	}
	*u = nil
	return errors.Join(errs...)
}
