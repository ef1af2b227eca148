package differential

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pergola-net/pergola/lab/vnet"
)

// arena is where cases are run: twice, side by side.
type arena struct {
	platform *vnet.Platform
	backlog  *backlog
	slice    uint16 // the next one
	fast     bool   // false: both networks forward in their kernels, which tests the test
	stats    stats
}

// stats are sums over all cases.
type stats struct {
	Frames   int // sent, in each of both
	Received int // by hosts, in the network without fast path
	// Frames that routers' kernels forwarded: in networks without fast path, and in those with it; in all, and
	// before anything happened in networks where nothing keeps frames from being walked.
	KernelHops, SlowHops   uint64
	KernelPlain, SlowPlain uint64
}

// failure is a case's outcome that is not as it should be.
type failure struct {
	step  int
	hosts []*difference
}

func (f *failure) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "after step %d:\n", f.step+1)
	for _, d := range f.hosts {
		b.WriteString(d.String())
	}
	return b.String()
}

// sides are the two networks.
const (
	kernel = 0
	fast   = 1
)

type match struct {
	*arena
	c    *testcase
	nets [2]*vnet.Network
	taps [2]map[string]*tap
}

// run plays a case. The calling thread must stay on one CPU.
func (a *arena) run(ctx context.Context, c *testcase) (f *failure, err error) {
	m := &match{arena: a, c: c}
	defer func() { err = errors.Join(err, m.close()) }()
	if err := m.open(ctx); err != nil {
		return nil, fmt.Errorf("prepare case %d: %w", c.seed, err)
	}
	// No fast path is on yet: two kernels that were told the same and do not say the same prove nothing. Seen once,
	// on a busy machine: one of them had made no route for its link-local addresses.
	for tries := 3; ; tries-- {
		why := m.settle(nil)
		if why == nil {
			break
		}
		if tries == 1 {
			return nil, fmt.Errorf("prepare case %d: %w", c.seed, why)
		}
		vnet.Log().Warn("networks that differ from the start are made anew", "case", c.seed, "why", why)
		if err := errors.Join(m.close(), m.open(ctx)); err != nil {
			return nil, fmt.Errorf("prepare case %d again: %w", c.seed, err)
		}
	}
	if err := m.start(ctx); err != nil {
		return nil, fmt.Errorf("prepare case %d: %w", c.seed, err)
	}
	for i, s := range c.steps {
		if len(s.events) > 0 {
			if err := m.happen(ctx, s.events); err != nil {
				return nil, fmt.Errorf("case %d, step %d: %v: %w", c.seed, i+1, s.events, err)
			}
			continue
		}
		hosts, err := m.send(s.frames)
		if err != nil {
			return nil, fmt.Errorf("case %d, step %d: %w", c.seed, i+1, err)
		}
		if len(hosts) > 0 {
			return &failure{i, hosts}, nil
		}
		if i == 0 && c.sound {
			if err := m.count(&m.stats.KernelPlain, &m.stats.SlowPlain); err != nil {
				return nil, err
			}
		}
	}
	return nil, m.count(&m.stats.KernelHops, &m.stats.SlowHops)
}

// open makes the two networks, without a fast path.
func (m *match) open(ctx context.Context) error {
	var g errgroup.Group
	for side := range m.nets {
		plan := m.c.plan
		plan.Slice = 1 + m.slice%4000
		m.slice++
		g.Go(func() (err error) {
			m.nets[side], err = m.platform.New(ctx, plan)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return m.askPatiently()
}

// start listens to the hosts, and has one of the networks take the fast path.
func (m *match) start(ctx context.Context) error {
	for side, n := range m.nets {
		m.taps[side] = map[string]*tap{}
		for _, p := range m.c.plan.Nodes {
			if p.Router {
				continue
			}
			t, err := openTap(n.Nodes[p.Name], "eth0", m.c.lanAddress(p.Name))
			if err != nil {
				return err
			}
			m.taps[side][p.Name] = t
		}
	}
	if !m.fast {
		return nil
	}
	if err := m.nets[fast].FastPath(ctx, true); err != nil {
		return err
	}
	return m.nets[fast].InStep(ctx)
}

// askPatiently lets nodes ask for a neighbour once, and then wait until the test gives it up (send): that no answer
// came within a time would mean nothing on a busy machine.
func (m *match) askPatiently() error {
	for _, n := range m.nets {
		for _, l := range m.c.plan.Links {
			for _, e := range l.Ends {
				for _, v6 := range []bool{false, true} {
					if v6 && e.MTU < 1280 {
						continue
					}
					r := vnet.Resolve{Interface: e.Interface, IPv6: v6, Times: 1,
						Wait: time.Hour, QueueBytes: 4 << 20}
					if err := n.Nodes[e.Node].Apply(r); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

func (m *match) close() error {
	var g errgroup.Group
	for side, n := range m.nets {
		for _, t := range m.taps[side] {
			g.Go(t.close)
		}
		if n != nil {
			g.Go(n.Close)
		}
	}
	m.nets, m.taps = [2]*vnet.Network{}, [2]map[string]*tap{}
	return g.Wait()
}

// settle waits until the kernels of both networks have done what they were told, and say the same of it. nil stands
// for all nodes.
func (m *match) settle(names []string) error {
	if names == nil {
		for _, p := range m.c.plan.Nodes {
			names = append(names, p.Name)
		}
	}
	var why error
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); pause(time.Millisecond) {
		if why = m.settled(names); why == nil {
			return nil
		}
	}
	return fmt.Errorf("wait for the kernels to settle: %w", why)
}

func (m *match) settled(names []string) error {
	for _, name := range names {
		var states [2]vnet.State
		for side, n := range m.nets {
			var err error
			if states[side], err = n.Nodes[name].State(); err != nil {
				return err
			}
			if p := states[side].Pending; len(p) > 0 {
				return fmt.Errorf("node %s: %v", name, p)
			}
		}
		if !slices.Equal(states[kernel].Lines, states[fast].Lines) {
			return fmt.Errorf("node %s: the kernels differ:\n%s\n%s", name,
				missing(states[kernel].Lines, states[fast].Lines),
				missing(states[fast].Lines, states[kernel].Lines))
		}
	}
	return nil
}

// missing are the lines of a that b has not.
func missing(a, b []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(a), func(s string) bool {
		return slices.Contains(b, s)
	}), "\n")
}

// happen lets events happen in both networks, and waits until they have.
func (m *match) happen(ctx context.Context, all []event) error {
	var near []string
	for _, e := range all {
		var outcome [2]error
		for side, n := range m.nets {
			outcome[side] = m.do(ctx, n, e)
		}
		if (outcome[kernel] == nil) != (outcome[fast] == nil) {
			return fmt.Errorf("one network only: %w", errors.Join(outcome[:]...))
		}
		near = append(near, m.near(e.node)...)
	}
	slices.Sort(near)
	near = slices.Compact(near)
	if len(near) == 0 {
		return nil
	}
	if err := m.settle(near); err != nil || !m.fast {
		return err
	}
	for _, e := range all {
		if e.command != nil {
			if err := m.nets[fast].Judged(ctx, e.node); err != nil {
				return err
			}
		}
	}
	return m.nets[fast].InStep(ctx, near...)
}

func (m *match) do(ctx context.Context, n *vnet.Network, e event) error {
	node := n.Nodes[e.node]
	switch {
	case node == nil:
		return nil // left out
	case e.change != nil:
		return node.Apply(e.change)
	case e.carrier != nil:
		return m.platform.HostNetwork.SetUp(ctx, n.Port(e.node, e.carrier.name), e.carrier.up)
	}
	_, err := node.Exec(ctx, e.command[0], e.command[1:]...)
	return err
}

// near are the nodes that share a link with one, and itself.
func (m *match) near(name string) (all []string) {
	for _, l := range m.c.plan.Links {
		if slices.ContainsFunc(l.Ends, func(e vnet.End) bool { return e.Node == name }) {
			for _, e := range l.Ends {
				all = append(all, e.Node)
			}
		}
	}
	return all
}

// send injects frames into both networks and compares what hosts receive.
func (m *match) send(frames []frame) ([]*difference, error) {
	if err := m.inject(frames); err != nil {
		return nil, err
	}
	var got [2]map[string][]received
	for side := range got {
		got[side] = map[string][]received{}
	}
	// How long a frame takes says nothing on a busy machine. That nothing came while the CPUs had nothing left to
	// do, look after look, does. A neighbour that has not answered by then never will: it is given up, and there is
	// an ICMP error for each frame that waited.
	const answer, arrive = 5, 100 // looks in a row
	still := 0                    // looks in a row at which nothing had come
	for ; ; pause(2 * time.Millisecond) {
		came, err := m.collect(&got)
		if err != nil {
			return nil, err
		}
		if still++; came > 0 {
			still = 0
		}
		found := m.compare(got)
		open, err := m.unresolved()
		switch {
		case err != nil:
			return nil, err
		case open > 0 && still > answer:
			if err := m.giveUp(); err != nil {
				return nil, err
			}
			still = 0
		case open == 0 && (len(found) == 0 || still > arrive):
			for _, all := range got[kernel] {
				m.stats.Received += len(all)
			}
			return found, nil
		}
	}
}

// inject sends frames in both networks, and waits until the CPUs have done what they can with them.
func (m *match) inject(frames []frame) error {
	for side := range m.nets {
		for i := range frames {
			if t := m.taps[side][frames[i].host]; t != nil {
				_ = t.send(&frames[i]) // what is too long, say, is refused in both
			}
		}
		if err := m.backlog.drained(); err != nil {
			return err
		}
	}
	m.stats.Frames += len(frames)
	return nil
}

func (m *match) compare(got [2]map[string][]received) (found []*difference) {
	for host := range m.taps[kernel] {
		if d := compare(host, got[kernel][host], got[fast][host], m.c); d != nil {
			found = append(found, d)
		}
	}
	return found
}

// collect takes what has come to the hosts, once the CPUs have nothing left to do, and counts it.
func (m *match) collect(got *[2]map[string][]received) (came int, err error) {
	if err := m.backlog.drained(); err != nil {
		return 0, err
	}
	for side := range m.nets {
		for host, t := range m.taps[side] {
			all, err := t.receive()
			if err != nil {
				return 0, err
			}
			got[side][host] = append(got[side][host], all...)
			came += len(all)
		}
	}
	return came, nil
}

// unresolved counts the neighbours that nodes are asking for.
func (m *match) unresolved() (n int, err error) {
	for _, network := range m.nets {
		for _, node := range network.Nodes {
			k, err := node.Unresolved()
			if err != nil {
				return 0, err
			}
			n += k
		}
	}
	return n, nil
}

// giveUp ends all questions for neighbours.
func (m *match) giveUp() error {
	for _, network := range m.nets {
		for _, node := range network.Nodes {
			if err := node.GiveUp(); err != nil {
				return err
			}
		}
	}
	return nil
}

// count adds up what routers' kernels forwarded.
func (m *match) count(sum ...*uint64) error {
	for side, n := range m.nets {
		for _, p := range m.c.plan.Nodes {
			if !p.Router {
				continue
			}
			k, err := forwarded(n.Nodes[p.Name])
			if err != nil {
				return err
			}
			*sum[side] += k
		}
	}
	return nil
}

// forwarded reads how many packets a node's kernel has forwarded.
func forwarded(n *vnet.Node) (total uint64, err error) {
	err = n.Do(func() error {
		v4, err := os.ReadFile("/proc/thread-self/net/snmp")
		if err != nil {
			return err
		}
		v6, err := os.ReadFile("/proc/thread-self/net/snmp6")
		if err != nil {
			return err
		}
		lines := strings.Split(string(v4), "\n")
		names, values := strings.Fields(lines[0]), strings.Fields(lines[1])
		for _, text := range []string{values[slices.Index(names, "ForwDatagrams")],
			valueOf(string(v6), "Ip6OutForwDatagrams")} {
			k, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				return err
			}
			total += k
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("read counters of node %s: %w", n.Name, err)
	}
	return total, nil
}

func valueOf(text, name string) string {
	for _, line := range strings.Split(text, "\n") {
		if words := strings.Fields(line); len(words) == 2 && words[0] == name {
			return words[1]
		}
	}
	return ""
}
