package program

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/pergola-net/pergola/bench/peers"
	"github.com/pergola-net/pergola/bench/traffic"
	"github.com/pergola-net/pergola/kernel/netns"
)

// netnsOf opens a namespace by its path.
func netnsOf(path string) (*os.File, error) { return netns.Open(path) }

// namespace opens that in which ports are.
func (g *platform) namespace() (*os.File, error) { return netnsOf(g.HostNetwork.Namespace()) }

// threads lets a card be polled on the router's core, where the generator has another one.
func (g *platform) threads(open func() (*os.File, error), card string) preparation {
	return func(ctx context.Context, mode Mode) (func() error, error) {
		ns, err := open()
		if err != nil {
			return nil, err
		}
		done, err := poll(ctx, ns, card, mode)
		if err != nil {
			return nil, errors.Join(err, ns.Close())
		}
		return func() error { return errors.Join(done(), ns.Close()) }, nil
	}
}

// anyCore lets cards be polled on any core, where threads of the kernel are not seen: tests measure nothing.
var anyCore bool

// poll gives a card a thread on the router's core.
func poll(ctx context.Context, ns *os.File, card string, mode Mode) (done func() error, err error) {
	if mode != Peak && mode != Flood {
		return func() error { return nil }, nil
	}
	return pollOn(ctx, ns, map[string]int{card: routerCore})
}

// pollOn gives cards threads, each on its core.
func pollOn(ctx context.Context, ns *os.File, cards map[string]int) (done func() error, err error) {
	err = traffic.ThreadedAll(ctx, ns, cards)
	if err != nil && (!anyCore || !errors.Is(err, traffic.ErrNoThreads)) {
		return nil, err
	}
	return func() error {
		return traffic.Unthreaded(context.WithoutCancel(ctx), ns, slices.Collect(maps.Keys(cards))...)
	}, nil
}

// forwards is what udp is told to forward: what comes to a port of the router's, to the sink's.
func forwards(slice, port int) string {
	return fmt.Sprintf("%s:%d=%s:%d", sourceAddress(slice).Next(), port, sinkAddress(slice), port)
}

// preparation makes a stand forward, in a mode; done ends that.
type preparation func(ctx context.Context, mode Mode) (done func() error, err error)

// redirect hands frames on by a program of XDP.
func (m *machine) redirect(ctx context.Context, mode Mode) (_ func() error, err error) {
	in, err := indexOf(m.ns, inDevice(0))
	if err != nil {
		return nil, err
	}
	out, err := indexOf(m.ns, outDevice(0))
	if err != nil {
		return nil, err
	}
	r, err := traffic.NewRelay(m.ns, in, out, true)
	if err != nil {
		return nil, err
	}
	done, err := poll(ctx, m.ns, inDevice(0), mode)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return func() error { return errors.Join(done(), r.Close()) }, nil
}

// process forwards in user space. In Flood, frames enter the stack on the core of the process, as if the card's
// interrupts came there.
func (m *machine) process(slice int, silent bool, program string, args ...string) preparation {
	return func(ctx context.Context, mode Mode) (func() error, error) {
		cpu := -1
		if mode == Flood {
			cpu = routerCore
		}
		if err := traffic.Steer(ctx, m.ns, inDevice(slice), cpu); err != nil {
			return nil, err
		}
		p, err := peers.Start(ctx, m.ns, silent, program, args...)
		if err != nil {
			return nil, err
		}
		return p.Stop, nil
	}
}
