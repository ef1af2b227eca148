// Package path measures how fast frames cross a chain of virtual routers, on the fast path and without it: `pergola
// bench path`.
//
// All chains stand at once. Each round visits every one of them for every measure, so that what else happens on the
// machine hits all alike; and what is compared is compared within a round. A window in which the hypervisor took time
// from this machine is thrown away and measured again. Everything is made of namespaces, devices and programs that
// live no longer than Run.
package path

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/pergola-net/pergola/bench/rounds"
	"github.com/pergola-net/pergola/bench/scratch"
	"github.com/pergola-net/pergola/host/undo"
)

// Config says what to measure.
type Config struct {
	Rounds   int
	Routers  []int                              // lengths of chains
	Measures []Measure                          // none: all
	Networks []Network                          // beside Fast and Plain, which always are
	Table    bool                               // also a router with Many routes
	Window   time.Duration                      // of one measurement
	Limit    time.Duration                      // after which no further round begins; 0: none
	Progress func(what string, done, total int) // of total steps; 0: not known
}

// DefaultWindow is long enough for a rate to settle, and short enough to be rarely disturbed.
const DefaultWindow = 300 * time.Millisecond

func (c *Config) check() error {
	if os.Geteuid() != 0 {
		return errors.New("only root can make network namespaces and devices")
	}
	if c.Rounds < 1 {
		return fmt.Errorf("%d rounds are none", c.Rounds)
	}
	for _, n := range c.Routers {
		if n < 0 || n > MaxRouters {
			return fmt.Errorf("a chain of %d routers: it must be between 0 and %d", n, MaxRouters)
		}
	}
	if len(c.Measures) == 0 {
		c.Measures = Measures
	}
	if c.Window == 0 {
		c.Window = DefaultWindow
	}
	if c.Progress == nil {
		c.Progress = func(string, int, int) {}
	}
	return nil
}

// MaxRouters bounds a chain: at most so many hops are walked at once, and a TTL of 64 reaches no further.
const MaxRouters = 62

// directories is where runs have theirs.
func directories() string { return filepath.Join(os.TempDir(), "pgpath-*") }

// Run measures. When the context ends it gives up and removes what it made.
func Run(ctx context.Context, c Config) (_ *Result, err error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("measure the path: %w", err)
	}
	if err := scratch.Collect(ctx, directories(), scratch.HostNetwork); err != nil {
		return nil, fmt.Errorf("remove what a run that was killed left: %w", err)
	}
	b := &bench{Config: c, result: Result{Counts: rounds.Counts{Wanted: c.Rounds}}}
	defer func() {
		c.Progress("removing the chains", 0, 0)
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

// build makes all chains and probes. The networks of other programs may be absent; then the result says so.
func (b *bench) build(ctx context.Context) error {
	pergola, err := openPergola(ctx)
	if err != nil {
		return fmt.Errorf("open a data path: %w", err)
	}
	b.undo.Push(pergola.close)
	own := []struct {
		network Network
		maker   maker
	}{{Fast, pergola.fast(true)}, {Plain, plain{}}}
	if slices.Contains(b.Networks, Off) {
		own = append(own, struct {
			network Network
			maker   maker
		}{Off, pergola.fast(false)})
	}
	for _, o := range own {
		if err := b.add(ctx, o.network, o.maker); err != nil {
			return fmt.Errorf("build chains (%s): %w", o.network, err)
		}
	}
	for network, open := range map[Network]func(context.Context) (maker, error){Mininet: openMininet,
		OVS: openOVS} {
		if !slices.Contains(b.Networks, network) {
			continue
		}
		if err := b.addPeer(ctx, network, open); err != nil {
			if ctx.Err() != nil {
				return err
			}
			b.result.Missing = append(b.result.Missing, Missing{string(network), err.Error()})
		}
	}
	if slices.Contains(b.Networks, Relay) {
		if err := b.addRelay(ctx); err != nil {
			return fmt.Errorf("build chains (%s): %w", Relay, err)
		}
	}
	if b.Table && slices.Contains(b.Measures, NIC) {
		return b.addTables(ctx, pergola.fast(true), plain{})
	}
	return nil
}

func (b *bench) addPeer(ctx context.Context, network Network, open func(context.Context) (maker, error)) error {
	b.Progress("starting "+network.Title(), 0, 0)
	m, err := open(ctx)
	if err != nil {
		return err
	}
	b.undo.Push(m.close)
	before := len(b.probes)
	if err := b.add(ctx, network, m); err != nil {
		b.probes = b.probes[:before]
		return err
	}
	return nil
}

// add makes a network's chains of all lengths, with their probes, and sees to it that each works.
func (b *bench) add(ctx context.Context, network Network, m maker) error {
	for _, routers := range b.Routers {
		b.Progress(fmt.Sprintf("building a chain of %d routers (%s)", routers, network), 0, 0)
		if err := b.addHosts(ctx, network, m, routers); err != nil {
			return err
		}
		if n, ok := m.(nicMaker); ok && network != Off && routers > 0 && slices.Contains(b.Measures, NIC) {
			if err := b.addNICs(ctx, network, n, routers); err != nil {
				return err
			}
		}
	}
	return nil
}

// addRelay makes what has no routers.
func (b *bench) addRelay(ctx context.Context) error {
	if err := b.addHosts(ctx, Relay, relay{}, 0); err != nil || !slices.Contains(b.Measures, NIC) {
		return err
	}
	return b.addNICs(ctx, Relay, relay{}, 0)
}

func (b *bench) addHosts(ctx context.Context, network Network, m maker, routers int) error {
	c, err := m.hosts(ctx, routers)
	if err != nil {
		return err
	}
	b.undo.Push(c.Close)
	if err := c.ready(ctx); err != nil {
		return err
	}
	for _, measure := range b.Measures {
		if measure == NIC {
			continue
		}
		p, err := newProbe(Key{Measure: measure, Network: network, Routers: routers}, c)
		if err != nil {
			return err
		}
		if err := b.addProbe(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) addNICs(ctx context.Context, network Network, m nicMaker, routers int) error {
	c, err := m.nics(ctx, routers)
	if err != nil {
		return err
	}
	b.undo.Push(c.Close)
	if err := c.ready(ctx); err != nil {
		return err
	}
	p, err := nicProbe(Key{Measure: NIC, Network: network, Routers: routers}, c, repeat(c.Right.Address))
	if err != nil {
		return err
	}
	return b.addProbe(ctx, p)
}

// addProbe takes a probe that has shown that it works. The first window is not counted: neighbours had to be found.
func (b *bench) addProbe(ctx context.Context, p *probe) error {
	b.undo.Push(p.close)
	if _, err := p.window(ctx, b.Window/10); err != nil {
		return fmt.Errorf("try %s across %d routers (%s): %w", p.Measure, p.Routers, p.Network, err)
	}
	p.Slow = 0
	b.probes = append(b.probes, p)
	return ctx.Err()
}

// measure takes all rounds.
func (b *bench) measure(ctx context.Context) error {
	order := slices.Clone(b.probes)
	slices.SortStableFunc(order, func(p, q *probe) int { return p.order() - q.order() })
	runner := rounds.Runner{Counts: b.result.Counts, Limit: b.Limit, Progress: b.Progress}
	err := rounds.Measure(ctx, &runner, order, func(p *probe) (*rounds.Probe, *[]rounds.Sample) {
		return &rounds.Probe{
			What:   fmt.Sprintf("%s across %d routers (%s)", p.Measure, p.Routers, p.Network),
			Window: func(ctx context.Context) (float64, error) { return p.window(ctx, b.Window) },
		}, &p.Samples
	})
	b.result.Counts = runner.Counts
	return err
}

// order sorts probes so that what is compared is measured one after the other.
func (k Key) order() int {
	many := 0
	if k.Routes != 0 {
		many = 1
	}
	return (slices.Index(Measures, k.Measure)*2+many)*(MaxRouters+1) + k.Routers
}
