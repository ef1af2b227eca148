package path

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/pergola-net/pergola/bench/traffic"
	"github.com/pergola-net/pergola/host/undo"
)

// probe measures one thing in windows.
type probe struct {
	Series
	chain  *Chain
	window func(ctx context.Context, d time.Duration) (float64, error)
	close  func() error
}

// The sender's core. What it sends is forwarded there, too: the kernel handles a frame on the core on which it was
// sent, as long as no process has to wake up for it.
const core = 0

// newProbe makes one for a chain with sockets.
func newProbe(k Key, c *Chain) (*probe, error) {
	p := &probe{Series: Series{Key: k}, chain: c, close: func() error { return nil }}
	switch k.Measure {
	case UDP:
		p.window = p.udp
	case TCP:
		p.window = p.tcp
	case ICMPTrip:
		p.window = p.icmpTrip
	case UDPTrip:
		p.window = p.udpTrip
	default:
		return nil, fmt.Errorf("measure %s: it needs a chain between NICs", k.Measure)
	}
	return p, nil
}

func (p *probe) udp(_ context.Context, d time.Duration) (_ float64, err error) {
	device, err := p.chain.Right.device()
	if err != nil {
		return 0, err
	}
	sink, err := traffic.NewHostSink(p.chain.Right.NS, device)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, sink.Close()) }()
	flood, err := traffic.NewFlood(p.chain.Left.NS, p.chain.Right.Address, traffic.FrameSize)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, flood.Close()) }()
	return p.counting(sink, func() (sent int, err error) {
		sent, _, err = flood.Send(d)
		return sent, err
	})
}

func (p *probe) tcp(ctx context.Context, d time.Duration) (float64, error) {
	return traffic.TCP(ctx, p.chain.Left.NS, p.chain.Right.NS, p.chain.Right.Address, max(time.Second, 4*d))
}

func (p *probe) icmpTrip(_ context.Context, d time.Duration) (float64, error) {
	return p.trip(traffic.ICMP, d)
}

func (p *probe) udpTrip(_ context.Context, d time.Duration) (_ float64, err error) {
	echo, err := traffic.StartEcho(p.chain.Right.NS, core)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, echo.Stop()) }()
	return p.trip(traffic.UDP, d)
}

func (p *probe) trip(kind string, d time.Duration) (float64, error) {
	took, ttl, err := traffic.RoundTrip(p.chain.Left.NS, kind, p.chain.Right.Address, core, d)
	if err == nil && kind == traffic.ICMP {
		err = p.chain.passed(ttl)
	}
	return took.Seconds(), err
}

// counting gives the rate at which a sink sees frames. It notes how many of them the first router's own kernel
// forwarded, and looks whether they met all routers.
func (p *probe) counting(s *traffic.Sink, send func() (sent int, err error)) (float64, error) {
	forwarded, done, err := p.chain.forwarded()
	if err != nil {
		return 0, err
	}
	defer done()
	before, err := forwarded()
	if err != nil {
		return 0, err
	}
	if err := s.Reset(); err != nil {
		return 0, err
	}
	var sent int
	err = traffic.OnCPU(core, func() error {
		sent, err = send()
		return err
	})
	if err != nil {
		return 0, err
	}
	seen, err := s.Seen()
	if err != nil {
		return 0, err
	}
	after, err := forwarded()
	if err != nil {
		return 0, err
	}
	if seen.Frames < sent/100 {
		return 0, fmt.Errorf("of %d frames %d arrived", sent, seen.Frames)
	}
	if p.Network == Fast {
		p.Slow = max(p.Slow, float64(after-before)/float64(sent))
	}
	return seen.Rate(), p.chain.passed(seen.TTL)
}

// forwarded opens the count of what the first router's kernel forwarded.
func (c *Chain) forwarded() (read func() (uint64, error), done func(), err error) {
	if c.First == nil {
		return func() (uint64, error) { return 0, nil }, func() {}, nil
	}
	s, err := traffic.OpenStatistics(c.First)
	if err != nil {
		return nil, nil, err
	}
	read = func() (uint64, error) {
		v, err := s.Read("Ip:ForwDatagrams")
		if err != nil {
			return 0, err
		}
		return v[0], nil
	}
	return read, func() { _ = s.Close() }, nil
}

// ready waits until the ends reach each other: links come up and neighbours are found in the kernel's own time.
func (c *Chain) ready(ctx context.Context) (err error) {
	const tries = 5 // of two seconds
	for range tries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err = c.ping(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("reach one end of a chain of %d routers from the other: %w", c.Routers, err)
}

func (c *Chain) ping() (err error) {
	pinger, err := traffic.NewPinger(c.Left.NS, traffic.ICMP, c.Right.Address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pinger.Close()) }()
	if _, err := pinger.Ping(0); err != nil {
		return err
	}
	return c.passed(pinger.TTL())
}

// passed checks by a frame's TTL that it has met all routers.
func (c *Chain) passed(ttl int) error {
	const initial = 64
	if want := initial - c.Routers; ttl != want {
		return fmt.Errorf("a frame that passed %d routers has TTL %d, not %d", c.Routers, ttl, want)
	}
	return nil
}

// nicProbe measures between the ends of a chain as between two NICs, with frames for the given destinations.
func nicProbe(k Key, c *Chain, destinations []netip.Addr) (_ *probe, err error) {
	var steps undo.Steps
	defer steps.OnError(&err)
	from, err := c.Left.device()
	if err != nil {
		return nil, err
	}
	to, err := c.Right.device()
	if err != nil {
		return nil, err
	}
	sink, err := traffic.NewNICSink(c.Right.NS, to)
	if err != nil {
		return nil, err
	}
	steps.Push(sink.Close)
	generator, err := traffic.NewGenerator(c.Left.NS, traffic.Flow{
		Device: from, From: c.Left.MAC, To: c.Left.Next,
		Source: c.Left.Address, Destinations: destinations, Size: traffic.FrameSize,
	})
	if err != nil {
		return nil, err
	}
	steps.Push(generator.Close)
	p := &probe{Series: Series{Key: k}, chain: c, close: steps.Run}
	p.window = p.nic(generator, sink)
	return p, nil
}

// nic gives a window that lasts about as long as it shall: each is as long as the one before lets expect.
func (p *probe) nic(g *traffic.Generator, s *traffic.Sink) func(context.Context, time.Duration) (float64, error) {
	const (
		least  = 1 << 18 // each run of the generator idles about 25 ms
		atMost = 1 << 24
	)
	var expected float64
	return func(_ context.Context, d time.Duration) (_ float64, err error) {
		frames := min(max(least, int(expected*d.Seconds())), atMost)
		expected, err = p.counting(s, func() (int, error) { return frames, g.Send(frames) })
		return expected, err
	}
}
