package follow

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/bench/rounds"
	"github.com/pergola-net/pergola/bench/traffic"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/vnet"
)

// Gaps says for each round for how long frames were lost.
type Gaps struct{ Kernel, Fast []time.Duration }

// Convergence cuts a link that carries traffic. The router before it sees the loss of carrier and takes another
// route, as a routing daemon would that knows one:
//
//	a ── r1 ═══ r2 ── b    two links between the routers
//
// What is measured is the time from the sending of the last frame that arrives by the old link to that of the first
// that arrives by the new one; in rounds that alternate between the fast path and the routers' kernels alone. With an
// error come the rounds before it.
func Convergence(ctx context.Context, number int) (_ Gaps, err error) {
	g, done, err := open(ctx)
	if err != nil {
		return Gaps{}, err
	}
	defer func() { err = errors.Join(err, done()) }()
	n, err := g.New(ctx, twoLinks())
	if err != nil {
		return Gaps{}, err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	c := &cut{Network: n, platform: g}
	window := func(fast bool) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) {
			gap, err := c.round(ctx, fast)
			return gap.Seconds(), err
		}
	}
	kernel := &rounds.Probe{What: "a cut link, kernels alone", Window: window(false), Exact: true}
	fast := &rounds.Probe{What: "a cut link, fast path", Window: window(true), Exact: true}
	runner := rounds.Runner{Counts: rounds.Counts{Wanted: number}}
	err = runner.Run(ctx, []*rounds.Probe{kernel, fast})
	return Gaps{Kernel: times(kernel.Samples), Fast: times(fast.Samples)}, err
}

func times(samples []rounds.Sample) (all []time.Duration) {
	for _, s := range samples {
		all = append(all, time.Duration(s.Value*float64(time.Second)))
	}
	return all
}

// The links of twoLinks.
const (
	first   = 0
	oldLink = 1
	newLink = 2
	last    = 3
)

func twoLinks() vnet.Plan {
	p := vnet.Plan{Slice: 1, Nodes: []vnet.NodePlan{{Name: "a"}, {Name: "r1", Router: true},
		{Name: "r2", Router: true}, {Name: "b"}}}
	join(&p, "a", "r1")
	join(&p, "r1", "r2")
	join(&p, "r1", "r2")
	join(&p, "r2", "b")
	p.Node("a").Routes = []vnet.Route{{To: subnet(last), Hops: []vnet.Hop{{Via: address(first, 1)}}}}
	p.Node("b").Routes = []vnet.Route{{To: subnet(first), Hops: []vnet.Hop{{Via: address(last, 0)}}}}
	p.Node("r1").Routes = []vnet.Route{routeBy(oldLink)}
	p.Node("r2").Routes = []vnet.Route{{To: subnet(first), Hops: []vnet.Hop{{Via: address(newLink, 0)}}}}
	return p
}

// routeBy is the route of r1 to b by one of the two links.
func routeBy(link int) vnet.Route {
	return vnet.Route{To: subnet(last), Hops: []vnet.Hop{{Via: address(link, 1), Interface: device(link)}}}
}

type cut struct {
	*vnet.Network
	platform *vnet.Platform
}

// set cuts the old link, or mends it, as the agent does: carrier first.
func (c *cut) set(ctx context.Context, up bool) error {
	s, ports := c.platform.HostNetwork, []string{c.Port("r1", device(oldLink)), c.Port("r2", device(oldLink))}
	var errs []error
	if up {
		errs = append(errs, s.Join(ctx, ports[0], ports[1]))
	}
	for _, p := range ports {
		errs = append(errs, s.SetUp(ctx, p, up))
		if !up {
			errs = append(errs, s.Unjoin(ctx, p))
		}
	}
	return errors.Join(errs...)
}

// round measures once, and makes sure that it measures what it shall: with the fast path, frames must have walked
// by the new link.
func (c *cut) round(ctx context.Context, fast bool) (time.Duration, error) {
	if err := c.FastPath(ctx, fast); err != nil {
		return 0, err
	}
	if !fast {
		return c.measure(ctx, fast)
	}
	if err := walked(c.Network); err != nil {
		return 0, err
	}
	before, err := c.walks(ctx)
	if err != nil {
		return 0, err
	}
	gap, err := c.measure(ctx, fast)
	if err != nil {
		return 0, err
	}
	after, err := c.walks(ctx)
	if err == nil && after == before {
		err = errNotWalked
	}
	return gap, err
}

// errNotWalked is the error of a round in which the fast path knew the new link too late: the machine is busy.
var errNotWalked = errors.New("no frame walked by the new link")

// walks counts the frames that r1 sent by the new link without its kernel.
func (c *cut) walks(ctx context.Context) (uint64, error) {
	all, err := c.platform.HostNetwork.Counters(ctx)
	if err != nil {
		return 0, err
	}
	return all[c.Port("r1", device(newLink))].WalkedOut.Frames, nil
}

func (c *cut) measure(ctx context.Context, fast bool) (_ time.Duration, err error) {
	d, err := startDaemon(c.Nodes["r1"], device(oldLink), vnet.ReplaceRoute{Route: routeBy(newLink)})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	if err := c.set(ctx, true); err != nil {
		return 0, err
	}
	if err := d.awaitCarrier(ctx); err != nil {
		return 0, err
	}
	if err := c.Nodes["r1"].Apply(vnet.ReplaceRoute{Route: routeBy(oldLink)}); err != nil {
		return 0, err
	}
	if fast {
		if err := c.InStep(ctx); err != nil {
			return 0, err
		}
	}
	s, err := openStream(c.Nodes["a"], c.Nodes["b"])
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	d.armed.Store(true)
	failed := make(chan error, 1)
	ended := make(chan struct{})
	var isCut atomic.Bool
	go func() {
		select {
		case <-s.runs:
			failed <- traffic.OnCPU(other(), func() error { return c.set(ctx, false) })
			isCut.Store(true)
		case <-ended: // gap says why
			failed <- nil
		}
	}()
	var gap time.Duration
	err = traffic.OnCPU(core, func() error {
		gap, err = s.gap(ctx, &isCut)
		return err
	})
	close(ended)
	return gap, errors.Join(err, <-failed)
}

// core is the sender's; all others use another one, if there is one.
const core = 0

func other() int { return min(core+1, runtime.NumCPU()-1) }

// stream is numbered frames from one node to another. Their sender looks itself which ones arrived: all that happens
// to a frame happens while it is sent, or soon after.
type stream struct {
	from, to int
	sent     []time.Duration
	begun    time.Time
	arrived  int           // the last that did
	count    int           // of those that did
	runs     chan struct{} // closed once enough have for the loss of more to be noticed
}

// enough frames have arrived that the stream is known to run.
const enough = 100

func openStream(from, to *vnet.Node) (s *stream, err error) {
	s = &stream{from: -1, to: -1, arrived: -1, begun: time.Now(), runs: make(chan struct{})}
	socket := func(n *vnet.Node, fd *int) error {
		return netns.In(n.NS, func() (err error) {
			*fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
			return err
		})
	}
	err = errors.Join(socket(from, &s.from), socket(to, &s.to))
	if err == nil {
		err = unix.Bind(s.to, &unix.SockaddrInet4{Port: traffic.Port})
	}
	if err == nil {
		err = unix.Connect(s.from, &unix.SockaddrInet4{Port: traffic.Port, Addr: address(last, 1).As4()})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open a stream: %w", err), s.close())
	}
	return s, nil
}

func (s *stream) close() error {
	var errs []error
	for _, fd := range []int{s.from, s.to} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	return errors.Join(errs...)
}

// gap sends until the link has been cut and frames arrive again, and for a while longer, and gives the longest time
// for which none arrived.
func (s *stream) gap(ctx context.Context, isCut *atomic.Bool) (longest time.Duration, err error) {
	const (
		patience = 10 * time.Second
		after    = 50 * time.Millisecond // a mirror that lags must not go unseen
	)
	var cutAt time.Duration
	for now := time.Duration(0); now < patience; now = time.Since(s.begun) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if cutAt == 0 && isCut.Load() {
			cutAt = now
		}
		if err := s.send(now); err != nil {
			return 0, err
		}
		g, err := s.receive()
		if err != nil {
			return 0, err
		}
		longest = max(longest, g)
		if cutAt != 0 && s.arrived >= 0 && s.sent[s.arrived] > cutAt+after {
			return longest, nil
		}
	}
	if s.count < enough {
		return 0, fmt.Errorf("the link was not cut: of %d frames only %d arrived before", len(s.sent), s.count)
	}
	return 0, fmt.Errorf("of %d frames, the last that arrived was number %d", len(s.sent), s.arrived)
}

func (s *stream) send(now time.Duration) error {
	_, err := unix.Write(s.from, binary.BigEndian.AppendUint32(nil, uint32(len(s.sent))))
	if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENOBUFS) &&
		!errors.Is(err, unix.EHOSTUNREACH) && !errors.Is(err, unix.ENETUNREACH) {
		return fmt.Errorf("send: %w", err)
	}
	s.sent = append(s.sent, now)
	return nil
}

// receive takes what has arrived, and gives the longest time between the sending of two frames of which none between
// arrived. Single frames that are lost, or late, leave none worth mentioning.
func (s *stream) receive() (longest time.Duration, err error) {
	var b [4]byte
	for {
		n, _, err := unix.Recvfrom(s.to, b[:], 0)
		if errors.Is(err, unix.EAGAIN) {
			return longest, nil
		}
		if err != nil || n != len(b) {
			return 0, fmt.Errorf("receive %d bytes: %w", n, err)
		}
		number := int(binary.BigEndian.Uint32(b[:]))
		if s.arrived >= 0 && number > s.arrived+1 {
			longest = max(longest, s.sent[number]-s.sent[s.arrived])
		}
		s.arrived = max(s.arrived, number)
		if s.count++; s.count == enough {
			close(s.runs)
		}
	}
}
