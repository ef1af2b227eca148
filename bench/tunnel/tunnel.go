// Package tunnel measures tunnels as the Trellis paper does in its figures 4 and 5: how fast a machine forwards
// frames that come in one tunnel and go in another, against what the same machine's kernel and others reach.
//
//	left ── wire ── in │ machine │ out ── wire ── right
//
// Each variant has a machine of its own, a namespace with two NICs (veth pairs), and all stand at once: a round visits
// every one of them for every size, so what else happens hits all alike, and what is compared is compared within a
// round. One core does everything: it makes the frames, forwards them, and counts them. Round trips, TCP, and what a
// slice's flood does to another are measured between two machines.
package tunnel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/pergola-net/pergola/bench/ovs"
	"github.com/pergola-net/pergola/bench/rounds"
	"github.com/pergola-net/pergola/bench/scratch"
	"github.com/pergola-net/pergola/bench/traffic"
	"github.com/pergola-net/pergola/host/undo"
	"github.com/pergola-net/pergola/kernel/netns"
)

// Config says what to measure.
type Config struct {
	Rounds   int
	Sizes    []int // of frames, in the tunnel; the smallest first
	Slices   []int // how many there are on a host, beside one
	Window   time.Duration
	Limit    time.Duration // after which no further round begins; 0: none
	Progress func(what string, done, total int)
}

// Default is what the report has. The sizes are those of Trellis's figure 5, up to what fits into a tunnel through
// wires of 1500 bytes.
func Default(rounds int) Config {
	return Config{
		Rounds: rounds, Sizes: []int{64, 128, 256, 512, 1024, 1400}, Slices: []int{8, 64, Scale / 2},
		Window: 200 * time.Millisecond,
	}
}

// directories is where substrates and Open vSwitch have theirs.
const directories = "/tmp/pgtunnel-*"

// clearUp removes the host network of a run that was killed. The NICs that it names were in a namespace that ended with
// the run; here, other interfaces have their numbers: so nothing is looked for in the namespace of the caller.
func clearUp(ctx context.Context, dir string) error {
	return netns.New(func() error { return scratch.HostNetwork(ctx, dir) })
}

// Run measures. When the context ends it gives up; what it made is removed in any case.
func Run(ctx context.Context, c Config) (_ *Result, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("measure tunnels: only root can make network namespaces and devices")
	}
	if err := scratch.Collect(ctx, directories, clearUp); err != nil {
		return nil, fmt.Errorf("remove what a run that was killed left: %w", err)
	}
	if c.Progress == nil {
		c.Progress = func(string, int, int) {}
	}
	b := &bench{Config: c, result: Result{Counts: rounds.Counts{Wanted: c.Rounds}, Sizes: c.Sizes,
		Slices: c.Slices}}
	defer func() {
		c.Progress("removing the machines", 0, 0)
		err = errors.Join(err, b.undo.Run())
	}()
	if err := b.build(ctx); err != nil {
		return nil, err
	}
	if err := b.measure(ctx); err != nil {
		return nil, err
	}
	for _, p := range b.probes {
		b.result.Series = append(b.result.Series, p.Series)
	}
	b.result.Goals = b.result.judge()
	return &b.result, nil
}

type bench struct {
	Config
	probes []*probe
	result Result
	undo   undo.Steps
}

// probe measures one series in windows.
type probe struct {
	Series
	window func(context.Context, time.Duration) (float64, error)
}

// build makes all machines. Open vSwitch may be absent; then the result says so.
func (b *bench) build(ctx context.Context) error {
	for _, w := range Variants {
		if err := ovs.Installed(); w == OVS && err != nil {
			b.result.Missing = append(b.result.Missing, Missing{w, err.Error()})
			continue
		}
		if err := b.addMachine(ctx, w, b.Sizes, 1); err != nil {
			return fmt.Errorf("build a machine (%s): %w", w, err)
		}
	}
	for _, n := range b.Slices {
		if err := b.addMachine(ctx, EGRE, b.Sizes[:1], n); err != nil {
			return fmt.Errorf("build a machine with %d slices: %w", n, err)
		}
	}
	b.Progress("building pairs of machines", 0, 0)
	if err := b.addPairs(ctx); err != nil {
		return fmt.Errorf("build pairs of machines: %w", err)
	}
	return nil
}

// addMachine makes the machine of a variant, with a number of slices where it has any, and a probe for each size.
func (b *bench) addMachine(ctx context.Context, w Variant, sizes []int, number int) error {
	b.Progress(fmt.Sprintf("building a machine (%s, %d)", w, number), 0, 0)
	m, err := newMachine()
	b.undo.Push(m.undo.Run)
	if err != nil {
		return err
	}
	r, err := b.open(ctx, m, w, number)
	if err != nil {
		return err
	}
	sink, err := traffic.NewTunnelSink(m.right.ns, m.right.index, len(r.outer(0)))
	if err != nil {
		return err
	}
	b.undo.Push(sink.Close)
	for _, size := range sizes {
		k := RateKey(w, size)
		if number > 1 {
			k = rate(w, size, number)
		}
		if err := b.addRate(ctx, m, &r, sink, k); err != nil {
			return err
		}
	}
	if number == 1 {
		return nil
	}
	one := within(greHeaders(key(number/2, 0)))
	return b.addRate(ctx, m, &one, sink, rate(One, sizes[0], number))
}

func (b *bench) addRate(ctx context.Context, m *machine, r *frameFormat, sink *traffic.Sink, k Key) error {
	generator, err := traffic.NewGenerator(m.left.ns, r.flow(m, k.Size))
	if err != nil {
		return err
	}
	b.undo.Push(generator.Close)
	return b.add(ctx, k, (&forwarding{generator: generator, sink: sink}).window)
}

// add takes a probe that has shown that it works.
func (b *bench) add(ctx context.Context, k Key, window func(context.Context, time.Duration) (float64, error)) error {
	if _, err := window(ctx, b.Window/10); err != nil {
		return fmt.Errorf("try %s (%s, %d bytes): %w", k.Measure, k.Variant, k.Size, err)
	}
	b.probes = append(b.probes, &probe{Series{Key: k}, window})
	return ctx.Err()
}

// note adds a sample of what is measured while machines are built.
func (b *bench) note(k Key, value time.Duration) {
	i := slices.IndexFunc(b.result.Series, func(s Series) bool { return s.Key == k })
	if i < 0 {
		i = len(b.result.Series)
		b.result.Series = append(b.result.Series, Series{Key: k})
	}
	s := &b.result.Series[i]
	s.Samples = append(s.Samples, rounds.Sample{Round: len(s.Samples), Value: value.Seconds()})
}

// measure takes all rounds. What is compared comes one after the other.
func (b *bench) measure(ctx context.Context) error {
	order := slices.Clone(b.probes)
	slices.SortStableFunc(order, func(p, q *probe) int { return p.Size - q.Size })
	runner := rounds.Runner{Counts: b.result.Counts, Limit: b.Limit, Progress: b.Progress}
	err := rounds.Measure(ctx, &runner, order, func(p *probe) (*rounds.Probe, *[]rounds.Sample) {
		return &rounds.Probe{
			What:   fmt.Sprintf("%s (%s, %d bytes)", p.Measure, p.Variant, p.Size),
			Window: func(ctx context.Context) (float64, error) { return p.window(ctx, b.Window) },
		}, &p.Samples
	})
	b.result.Counts = runner.Counts
	return err
}
