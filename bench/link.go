package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/pergola-net/pergola/bench/rounds"
	"github.com/pergola-net/pergola/bench/traffic"
	"github.com/pergola-net/pergola/kernel/netns"
)

// pair is two network namespaces with a link between them, each named by a process that lives in it.
type pair struct {
	client, server int
	address        string // of the server
}

// link compares one link of a network with a bare veth pair between two plain namespaces. The same programs measure
// both, with sockets in these, so that only the link differs.
func link(ctx context.Context, l *lab) ([]row, error) {
	bare, undo, err := barePair(ctx)
	if err != nil {
		return nil, err
	}
	defer undo()
	ours, err := l.ourPair(ctx)
	if err != nil {
		return nil, err
	}
	measures := []struct {
		row     row
		measure func(pair, context.Context) (float64, error)
	}{
		{row{What: "round trip of one link, answered by the kernel (ICMP echo)", Unit: "us"}, pair.icmp},
		{row{What: "round trip of one link, between two programs (UDP)", Unit: "us"}, pair.udp},
		{row{What: "TCP over one link", Unit: "Gbit/s", MoreIsBetter: true}, pair.iperf},
	}
	var rows []row
	for _, m := range measures {
		m.row.Against, m.row.Ratio = "bare veth pair", 0.95
		window := func(p pair) func(context.Context) (float64, error) {
			return func(ctx context.Context) (float64, error) { return m.measure(p, ctx) }
		}
		ours, bare := &rounds.Probe{What: "a link", Window: window(ours)},
			&rounds.Probe{What: "a bare veth pair", Window: window(bare)}
		runner := rounds.Runner{Counts: rounds.Counts{Wanted: windows * l.rounds}}
		err := runner.Run(ctx, []*rounds.Probe{ours, bare})
		m.row.Values, m.row.Other = rounds.Both(ours.Samples, bare.Samples)
		if err != nil {
			return append(rows, m.row), fmt.Errorf("%s: %w", m.row.What, err)
		}
		if !m.row.any() {
			return rows, fmt.Errorf("%s: the hypervisor took time away in every window", m.row.What)
		}
		rows = append(rows, m.row)
	}
	return rows, l.pergola(ctx, "down", "pair")
}

// windows is how many there are in a round: short ones, so that what is compared is measured close together.
const windows = 3

func (l *lab) ourPair(ctx context.Context) (pair, error) {
	t := topo{name: "pair", yaml: "name: pair\nnodes: [a, b]\nlinks:\n" +
		"  - {ends: [a, b], addresses: {a: 192.0.2.1/24, b: 192.0.2.2/24}}\n"}
	file, err := l.file(t)
	if err != nil {
		return pair{}, err
	}
	if err := l.start(ctx); err != nil {
		return pair{}, err
	}
	if err := l.pergola(ctx, "up", file); err != nil {
		return pair{}, err
	}
	nodes, err := l.nodes(ctx, t.name)
	if err != nil {
		return pair{}, err
	}
	p := pair{client: nodes["a"].PID, server: nodes["b"].PID, address: "192.0.2.2"}
	if p.client == 0 || p.server == 0 {
		return pair{}, errors.New("the nodes of the pair have no processes")
	}
	return p, nil
}

// barePair makes the same by hand. Its namespaces have no names: they live as long as the two processes in them.
func barePair(ctx context.Context) (p pair, undo func(), err error) {
	var holders []*exec.Cmd
	undo = func() {
		for _, h := range holders {
			_ = h.Process.Kill()
			_ = h.Wait()
		}
	}
	defer func() {
		if err != nil {
			undo()
		}
	}()
	for range 2 {
		// The shell says when the namespace is there; it then stays until it is killed.
		h := exec.CommandContext(ctx, "unshare", "--net", "sh", "-c",
			"ip link set lo up && echo ready && exec sleep infinity")
		h.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := h.StdoutPipe()
		if err != nil {
			return p, undo, err
		}
		if err := h.Start(); err != nil {
			return p, undo, err
		}
		holders = append(holders, h)
		if _, err := out.Read(make([]byte, 8)); err != nil {
			return p, undo, fmt.Errorf("make a network namespace: %w", err)
		}
	}
	p = pair{client: holders[0].Process.Pid, server: holders[1].Process.Pid, address: "192.0.2.2"}
	for _, args := range [][]string{
		{"link", "add", "eth1", "netns", strconv.Itoa(p.client), "type", "veth", "peer", "name", "eth1",
			"netns", strconv.Itoa(p.server)},
	} {
		if _, err := run(exec.CommandContext(ctx, "ip", args...)); err != nil {
			return p, undo, err
		}
	}
	for pid, address := range map[int]string{p.client: "192.0.2.1/24", p.server: "192.0.2.2/24"} {
		if _, err := run(inside(ctx, pid, "sh", "-c",
			"ip address add "+address+" dev eth1 && ip link set eth1 up")); err != nil {
			return p, undo, err
		}
	}
	return p, undo, nil
}

// inside runs a command in the network namespace of a process.
func inside(ctx context.Context, pid int, command ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--net", "--target", strconv.Itoa(pid), "--"},
		command...)...)
}

func run(cmd *exec.Cmd) ([]byte, error) {
	cmd.WaitDelay = 10 * time.Second // one that was killed may have left its output to others
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("run %v: %w: %s%s", cmd.Args, err, bytes.TrimSpace(out),
			bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

// icmp gives the round trip in microseconds when the other's kernel answers.
func (p pair) icmp(context.Context) (float64, error) { return p.roundTrip(traffic.ICMP) }

// udp gives the round trip in microseconds to a program that answers, on the same core.
func (p pair) udp(context.Context) (_ float64, err error) {
	ns, err := netns.Open(netns.Path(p.server))
	if err != nil {
		return 0, err
	}
	defer func() { _ = ns.Close() }()
	echo, err := traffic.StartEcho(ns, 0)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, echo.Stop()) }()
	return p.roundTrip(traffic.UDP)
}

func (p pair) roundTrip(kind string) (float64, error) {
	ns, err := netns.Open(netns.Path(p.client))
	if err != nil {
		return 0, err
	}
	defer func() { _ = ns.Close() }()
	pinger, err := traffic.NewPinger(ns, kind, netip.MustParseAddr(p.address))
	if err != nil {
		return 0, err
	}
	defer func() { _ = pinger.Close() }()
	var took time.Duration
	err = traffic.OnCPU(0, func() error {
		if _, err := pinger.Ping(warmUp); err != nil {
			return err
		}
		took, err = pinger.Ping(pinging)
		return err
	})
	return float64(took.Nanoseconds()) / 1000, err
}

const (
	warmUp  = 30 * time.Millisecond
	pinging = 300 * time.Millisecond
)

// iperf gives the throughput in Gbit/s of one TCP stream.
func (p pair) iperf(ctx context.Context) (float64, error) {
	from, err := netns.Open(netns.Path(p.client))
	if err != nil {
		return 0, err
	}
	defer func() { _ = from.Close() }()
	to, err := netns.Open(netns.Path(p.server))
	if err != nil {
		return 0, err
	}
	defer func() { _ = to.Close() }()
	bits, err := traffic.TCP(ctx, from, to, netip.MustParseAddr(p.address), time.Second)
	return bits / 1e9, err
}
