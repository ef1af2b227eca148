package wire_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("PERGOLA_TEST_CRASH_TUNNELS"); dir != "" {
		pid, err := strconv.Atoi(os.Getenv("PERGOLA_TEST_PIDS"))
		if err == nil {
			err = crashMeWithTunnels(dir, pid)
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) // it was to be killed
	}
	if dir := os.Getenv("PERGOLA_TEST_CRASH"); dir != "" {
		fmt.Fprintln(os.Stderr, crashMe(dir, strings.Fields(os.Getenv("PERGOLA_TEST_PIDS"))))
		os.Exit(1) // it was to be killed
	}
	testkit.Main(m)
}

// crashMe builds and changes a network of three nodes over and over.
func crashMe(dir string, pids []string) error {
	ctx := context.Background()
	for {
		s, err := wire.Open(ctx, wire.Config{StateDir: dir, Plain: os.Getenv("PERGOLA_TEST_PLAIN") == "true"})
		if err != nil {
			return err
		}
		for round := range 3 {
			if err := build(ctx, s, pids, round); err != nil {
				return err
			}
			err := errors.Join(s.DeletePorts(ctx, "s7p1", "s7p3"), s.DeleteSwitches(ctx, "s7b1"))
			if err != nil {
				return err
			}
		}
		if err := s.Remove(ctx); err != nil {
			return err
		}
	}
}

// build makes the network from whatever is there: a and b joined, b and c then on a switch, with queues.
func build(ctx context.Context, s *wire.HostNetwork, pids []string, round int) error {
	state, err := s.Observe(ctx)
	if err != nil {
		return err
	}
	if err := s.DeletePorts(ctx, state.Remains...); err != nil {
		return err
	}
	for i, text := range pids {
		pid, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		err = s.AddPort(ctx, wire.Port{
			Name: fmt.Sprintf("s7p%d", i+1), Slice: 7, Owner: fmt.Sprintf("lab/n%d:eth0", i+1), Digest: "d",
			PID: pid, Inner: "eth0",
			MAC: mac(i + 1), MTU: 1500, Addresses: prefixes(fmt.Sprintf("192.0.2.%d/24", i+1)),
		})
		if err != nil {
			return err
		}
	}
	rate := slice.Shape{Rate: unit.Rate(1e8 * (round + 1))}
	return errors.Join(
		s.Join(ctx, "s7p1", "s7p2"),
		s.Shape(ctx, "s7p1", wire.FromNode, rate),
		s.AddSwitch(ctx, wire.Switch{Name: "s7b1", Slice: 7, Owner: "lab/sw", Digest: "d"}),
		s.Attach(ctx, "s7p2", "s7b1"),
		s.Attach(ctx, "s7p3", "s7b1"),
		s.Shape(ctx, "s7p2", wire.FromNode, rate),
		s.Shape(ctx, "s7p3", wire.FromNode, rate),
		s.Shape(ctx, "s7p3", wire.FromNode, slice.Shape{}),
	)
}

// However a server dies, the next one ends with the same network.
func TestKilledAtAnyMoment(t *testing.T) {
	const kills = 25
	l := newLab(t)
	l.must(l.Remove(l.ctx))
	l.HostNetwork = nil
	var pids []string
	for i := range 3 {
		pids = append(pids, strconv.Itoa(l.node(fmt.Sprint("n", i+1)).pid))
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range kills {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "PERGOLA_TEST_CRASH="+l.dir,
			"PERGOLA_TEST_PIDS="+strings.Join(pids, " "), "PERGOLA_TEST_PLAIN="+strconv.FormatBool(l.plain))
		var out strings.Builder
		child.Stderr = &out
		l.must(child.Start())
		time.Sleep(time.Duration(random.IntN(120)) * time.Millisecond)
		l.must(child.Process.Kill())
		_ = child.Wait() // killed: always an error
		if out.Len() > 0 {
			t.Fatalf("the child failed: %s", out.String())
		}
		l.reopen()
		l.must(build(l.ctx, l.HostNetwork, pids, 0))
		state := l.observe()
		p := state.Ports
		if len(p) != 3 || len(state.Remains) > 0 || p["s7p1"].Peer != "" || p["s7p2"].Switch != "s7b1" ||
			p["s7p3"].Switch != "s7b1" ||
			p["s7p2"].FromNode.Rate != 1e8 || !p["s7p3"].FromNode.IsZero() {
			t.Fatalf("observed %+v", state)
		}
		l.ping("n2", "192.0.2.3")
		l.ping("n3", "192.0.2.2")
		l.must(l.Close())
		l.HostNetwork = nil
	}
}

// Callers work in parallel.
func TestManyAtOnce(t *testing.T) {
	l := newLab(t)
	const pairs = 12
	var ports []wire.Port
	for i := range 2 * pairs {
		ports = append(ports, l.portOf(fmt.Sprint("n", i), fmt.Sprintf("192.0.2.%d/31", i)))
	}
	l.sw("s7b1")
	var all sync.WaitGroup
	for i := range pairs {
		all.Go(func() {
			a, b := ports[2*i], ports[2*i+1]
			err := errors.Join(l.AddPort(l.ctx, a), l.AddPort(l.ctx, b), l.Attach(l.ctx, a.Name, "s7b1"))
			if i%2 == 0 {
				err = errors.Join(err, l.Shape(l.ctx, a.Name, wire.FromNode, slice.Shape{Rate: 1e9}))
			}
			err = errors.Join(err, l.Join(l.ctx, a.Name, b.Name),
				l.Shape(l.ctx, b.Name, wire.ToNode, slice.Shape{Rate: 1e9}))
			if err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			if _, err := l.Observe(l.ctx); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	state := l.observe()
	if len(state.Remains) > 0 {
		t.Errorf("remains: %v", state.Remains)
	}
	for i := range pairs {
		if p := state.Ports[ports[2*i].Name]; p.Peer != ports[2*i+1].Name || p.FromNode.Rate != 1e9 {
			t.Errorf("port %+v", p)
		}
		l.ping(fmt.Sprint("n", 2*i), fmt.Sprintf("192.0.2.%d", 2*i+1))
	}
}
