package vnet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pergola-net/pergola/datapath/fib"
	"github.com/pergola-net/pergola/datapath/mirror"
	"github.com/pergola-net/pergola/datapath/mirror/eligible"
	"github.com/pergola-net/pergola/host/wire"
)

// fastPath is the mirror of the routers on a platform, with all that it needs.
type fastPath struct {
	network *wire.HostNetwork
	watcher *eligible.Watcher
	memory  *fib.FIB
	mirror  *mirror.Mirror
}

func openFastPath(s *wire.HostNetwork, log *slog.Logger) (_ *fastPath, err error) {
	f := &fastPath{network: s}
	if f.watcher, err = eligible.New(eligible.Config{Rest: time.Millisecond,
		Interval: 100 * time.Millisecond}); err != nil {
		return nil, err
	}
	if f.memory, err = fib.Open(s.FIB()); err != nil {
		return nil, errors.Join(err, f.watcher.Close())
	}
	f.mirror = mirror.New(mirror.Config{
		FIB: f.memory, Log: log,
		Watch: func(ctx context.Context, ns *os.File, report func(ipv4, ipv6 []string)) error {
			return f.watcher.Watch(ctx, ns, func(v eligible.Verdict) { report(v.IPv4, v.IPv6) })
		},
	})
	return f, nil
}

func (f *fastPath) close() error {
	f.mirror.Close()
	return errors.Join(f.watcher.Close(), f.memory.Close())
}

func (n *Network) mirrorName(node string) string { return fmt.Sprintf("vnet%d/%s", n.Plan.Slice, node) }

// remove takes a network's routers off the fast path.
func (f *fastPath) remove(n *Network) {
	var going []<-chan struct{}
	for _, p := range n.Plan.Nodes {
		if p.Router {
			going = append(going, f.mirror.Remove(n.mirrorName(p.Name)))
		}
	}
	for _, gone := range going {
		<-gone
	}
}

// FastPath switches the whole network between the walk and forwarding in the routers' kernels, and waits until it is
// so.
func (n *Network) FastPath(ctx context.Context, on bool) error {
	for _, l := range n.Plan.Links {
		if err := errors.Join(n.reinject(ctx, l, on), n.xdp(l, on)); err != nil {
			return err
		}
	}
	n.off = !on
	legs := map[string]map[int]int{}
	for at, p := range n.ports {
		if legs[at.node] == nil {
			legs[at.node] = map[int]int{}
		}
		legs[at.node][p.inner] = p.index
	}
	for _, p := range n.Plan.Nodes {
		if !p.Router {
			continue
		}
		r := mirror.Router{Slice: uint32(n.Plan.Slice), NetNS: n.Nodes[p.Name].NS, Legs: legs[p.Name], Off: !on,
			Labels: mirror.Labels{Space: p.LabelSpace}}
		gone, err := n.platform.fast.mirror.Set(n.mirrorName(p.Name), r)
		if err != nil {
			return err
		}
		<-gone // before a port becomes another's
	}
	for _, p := range n.Plan.Nodes {
		if p.Router {
			if err := n.await(ctx, p.Name, on); err != nil {
				return err
			}
		}
	}
	return nil
}

// reinject lets walks go on behind a link that ends them, a LAN or one that is shaped, as the agent does. A router's
// end of a LAN does so for itself, the ends of a link between two nodes only together.
func (n *Network) reinject(ctx context.Context, l LinkPlan, on bool) error {
	router := func(e End) bool { return n.Plan.Node(e.Node).Router }
	shaped := func(e End) bool { return e.Shape.NeedsQdisc() }
	if !l.LAN && !slices.ContainsFunc(l.Ends, shaped) {
		return nil
	}
	for _, e := range l.Ends {
		if !router(e) && (l.LAN || !slices.ContainsFunc(l.Ends, router)) {
			continue
		}
		if err := n.platform.HostNetwork.Reinject(ctx, n.Port(e.Node, e.Interface), on); err != nil {
			return err
		}
	}
	return nil
}

// await waits until the mirror has read a router's kernel, and knows whether the router may be walked.
func (n *Network) await(ctx context.Context, name string, on bool) error {
	var last mirror.Status
	err := poll(ctx, func() error {
		var err error
		if last, err = n.Status(name); err != nil {
			return err
		}
		known := last.Synchronised || !on
		for _, f := range []mirror.FamilyStatus{last.IPv4, last.IPv6} {
			known = known && f.FastPath == (len(f.Why) == 0) && (on || !f.FastPath) &&
				!slices.ContainsFunc(f.Why, n.transient)
		}
		if !known {
			return fmt.Errorf("%+v", last)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("wait for the mirror of %s: %w", name, err)
	}
	return nil
}

// transient are reasons that will give way to others, or to none. Of a router that is no longer switched off the
// mirror may still say it is.
func (n *Network) transient(why string) bool {
	return !n.off && strings.Contains(why, "switched off") || strings.Contains(why, "being examined") ||
		strings.Contains(why, "being read") || strings.Contains(why, "about to be")
}

// Status is what the mirror says of a router.
func (n *Network) Status(name string) (mirror.Status, error) {
	return n.platform.fast.mirror.Status(n.mirrorName(name))
}

// InStep waits until the mirror says what the kernels of routers say: of those named, or all. Nothing may change
// meanwhile.
func (n *Network) InStep(ctx context.Context, names ...string) error {
	for _, p := range n.Plan.Nodes {
		if !p.Router || len(names) > 0 && !slices.Contains(names, p.Name) {
			continue
		}
		if err := poll(ctx, func() error { return n.inStep(ctx, p.Name) }); err != nil {
			return fmt.Errorf("wait for the mirror of %s: %w", p.Name, err)
		}
	}
	return nil
}

func (n *Network) inStep(ctx context.Context, name string) error {
	if err := n.await(ctx, name, true); err != nil {
		return err
	}
	found, err := n.platform.fast.mirror.Verify(ctx, n.mirrorName(name))
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("%d differences: %v", len(found), found[:min(3, len(found))])
	}
	return err
}

// Judged waits until the mirror has taken note of what in a router's namespace speaks against walking it.
func (n *Network) Judged(ctx context.Context, name string) error {
	first, cancel := context.WithCancel(ctx)
	defer cancel()
	var want eligible.Verdict
	err := eligible.Watch(first, n.Nodes[name].NS, eligible.Config{Rest: time.Millisecond},
		func(v eligible.Verdict) {
			if !slices.ContainsFunc(append(v.IPv4, v.IPv6...), n.transient) {
				want = v
				cancel()
			}
		})
	if err != nil && first.Err() == nil {
		return fmt.Errorf("judge %s: %w", name, err)
	}
	return poll(ctx, func() error {
		s, err := n.Status(name)
		if err != nil {
			return err
		}
		if !same(s.IPv4.Why, want.IPv4) || !same(s.IPv6.Why, want.IPv6) {
			return fmt.Errorf("%s: the mirror says %v and %v, and not %+v", name, s.IPv4, s.IPv6, want)
		}
		return nil
	})
}

// same leaves out the reasons that follow from routes, which the mirror finds itself.
func same(all, judged []string) bool {
	ofRoutes := func(why string) bool { return strings.Contains(why, "table local") }
	return slices.Equal(slices.Sorted(slices.Values(slices.DeleteFunc(slices.Clone(all), ofRoutes))),
		slices.Sorted(slices.Values(judged)))
}

// patience is how long the mirror may take: it reads large tables, on machines that do other things.
const patience = 30 * time.Second

// poll calls f until it returns nil.
func poll(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for wait := 50 * time.Microsecond; ; wait = min(2*wait, 20*time.Millisecond) {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}

// FastPathMemory is what the mirrors take of the kernel's memory, in bytes.
func (g *Platform) FastPathMemory() uint64 { return uint64(g.fast.memory.Usage().Bytes) }
