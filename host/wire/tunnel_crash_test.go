package wire_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/model/slice"
)

// crashMeWithTunnels builds and changes tunnels over and over, until it is killed.
func crashMeWithTunnels(dir string, pid int) error {
	ctx := context.Background()
	for {
		s, err := wire.Open(ctx, wire.Config{StateDir: dir})
		if err != nil {
			return err
		}
		for range 3 {
			err := buildTunnels(ctx, s, pid)
			err = errors.Join(err, s.DeletePorts(ctx, "s7p101", "s7p201"), s.ShareCard(ctx, wiring.Card{}),
				s.OpenUnderlay(ctx, wire.UnderlayConfig{}))
			if err != nil {
				return err
			}
		}
		if err := s.Remove(ctx); err != nil {
			return err
		}
	}
}

// buildTunnels makes, from whatever is there, the first machine's part of a bed's link, and of a LAN over two machines.
func buildTunnels(ctx context.Context, s *wire.HostNetwork, pid int) error {
	state, err := s.Observe(ctx)
	if err != nil {
		return err
	}
	if err := s.DeletePorts(ctx, state.Remains...); err != nil {
		return err
	}
	one, two := &machine{ip4: testAddress(1)}, &machine{ip4: testAddress(2)}
	kind := tunnelOf{kind: slice.EGRE}
	lan := kind.tunnel(one, two, "s7t00000002", 2, 1400)
	return errors.Join(
		s.OpenUnderlay(ctx, wire.UnderlayConfig{Interfaces: []string{nic}}),
		s.ShareCard(ctx, card(2e9, 1e9)),
		s.AddPort(ctx, wire.Port{
			Name: "s7p101", Slice: 7, Owner: "lab/a:eth0", Digest: "d", PID: pid, Inner: "eth0",
			MAC: mac(101), MTU: 1458, Addresses: prefixes("192.0.2.0/31"),
		}),
		s.AddTunnel(ctx, kind.tunnel(one, two, "s7p201", 1, 1458)),
		s.Join(ctx, "s7p101", "s7p201"),
		s.Shape(ctx, "s7p101", wire.FromNode, slice.Shape{Rate: 1e9}),
		s.AddSwitch(ctx, wire.Switch{Name: "s7b1", Slice: 7, Owner: "lab/lan", Digest: "d"}),
		s.AddTunnel(ctx, lan),
		s.Attach(ctx, lan.Name, "s7b1"),
	)
}

func TestKilledWhileTunnelsAreMade(t *testing.T) {
	const kills = 15
	b := newBed(t, 2, 1500)
	m, far := b.machines[0], b.machines[1]
	far.openUnderlay()
	kind := tunnelOf{kind: slice.EGRE}
	port := far.lab.port("b", func(p *wire.Port) { p.MTU = 1458 }, "192.0.2.1/31")
	far.must(far.AddTunnel(far.ctx, kind.tunnel(far, m, "s7p101", 1, 1458)))
	far.must(far.Join(far.ctx, port, "s7p101"))
	before := m.programs()
	remove := func() {
		t.Helper()
		m.must(m.there(func() error { return errors.Join(m.Close(), wire.Remove(m.ctx, m.dir)) }))
		m.HostNetwork = nil
	}
	remove()
	pid := m.node("a").pid
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range kills {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "PERGOLA_TEST_CRASH_TUNNELS="+m.dir,
			"PERGOLA_TEST_PIDS="+strconv.Itoa(pid))
		var out strings.Builder
		child.Stderr = &out
		m.must(netns.In(m.ns, child.Start))
		time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
		m.must(child.Process.Kill())
		_ = child.Wait() // killed: always an error
		if out.Len() > 0 {
			t.Fatalf("the child failed: %s", out.String())
		}
		m.reopen()
		m.must(buildTunnels(m.ctx, m.HostNetwork, pid))
		state := m.observe()
		if p := state.Ports; len(p) != 3 || len(state.Remains) > 0 || p["s7p101"].Peer != "s7p201" ||
			p["s7p101"].FromNode.Rate != 1e9 || p["s7t00000002"].Switch != "s7b1" {
			t.Fatalf("observed %+v", state)
		}
		m.wantCard(card(2e9, 1e9))
		m.ping("a", "192.0.2.1")
		m.must(m.Close())
		m.HostNetwork = nil
	}
	m.reopen()
	remove()
	m.wantPrograms(before)
}
