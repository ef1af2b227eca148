package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"syscall"
)

// pair is two network namespaces with a link between them, each named by a process that lives in it.
type pair struct {
	client, server int
	address        string // of the server
}

// link compares one link of a network with a bare veth pair between two plain namespaces. The same programs run in both, entered
// from outside, so that only the link differs.
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
	var rtt, tcp, bareRTT, bareTCP []float64
	for range l.rounds {
		for _, side := range []struct {
			p        pair
			rtt, tcp *[]float64
		}{{ours, &rtt, &tcp}, {bare, &bareRTT, &bareTCP}} {
			us, err := side.p.ping(ctx)
			if err != nil {
				return nil, err
			}
			gbit, err := side.p.iperf(ctx)
			if err != nil {
				return nil, err
			}
			*side.rtt, *side.tcp = append(*side.rtt, us), append(*side.tcp, gbit)
		}
	}
	if err := l.pergola(ctx, "down", "pair"); err != nil {
		return nil, err
	}
	return []row{
		{what: "round trip of one link", unit: "us", values: rtt, against: "bare veth pair", other: bareRTT, ratio: 0.95},
		{what: "TCP over one link", unit: "Gbit/s", values: tcp, against: "bare veth pair", other: bareTCP, ratio: 0.95, moreIsBetter: true},
	}, nil
}

func (l *lab) ourPair(ctx context.Context) (pair, error) {
	t := topo{name: "pair", yaml: "name: pair\nnodes: [a, b]\nlinks:\n  - {ends: [a, b], addresses: {a: 192.0.2.1/24, b: 192.0.2.2/24}}\n"}
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
		// The shell says when the namespace is there; it then waits for its input to end, which it never does.
		h := exec.CommandContext(ctx, "unshare", "--net", "sh", "-c", "ip link set lo up && echo ready && exec sleep infinity")
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
		{"link", "add", "eth1", "netns", strconv.Itoa(p.client), "type", "veth", "peer", "name", "eth1", "netns", strconv.Itoa(p.server)},
	} {
		if _, err := run(exec.CommandContext(ctx, "ip", args...)); err != nil {
			return p, undo, err
		}
	}
	for pid, address := range map[int]string{p.client: "192.0.2.1/24", p.server: "192.0.2.2/24"} {
		if _, err := run(inside(ctx, pid, "sh", "-c", "ip address add "+address+" dev eth1 && ip link set eth1 up")); err != nil {
			return p, undo, err
		}
	}
	return p, undo, nil
}

// inside runs a command in the network namespace of a process.
func inside(ctx context.Context, pid int, command ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--net", "--target", strconv.Itoa(pid), "--"}, command...)...)
}

func run(cmd *exec.Cmd) ([]byte, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("run %v: %w: %s%s", cmd.Args, err, bytes.TrimSpace(out), bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

var averageRTT = regexp.MustCompile(`= [0-9.]+/([0-9.]+)/`)

// ping gives the average round trip in microseconds of 2,000 packets.
func (p pair) ping(ctx context.Context) (float64, error) {
	out, err := run(inside(ctx, p.client, "taskset", "-c", "0", "ping", "-q", "-c", "2000", "-i", "0.001", p.address))
	if err != nil {
		return 0, err
	}
	found := averageRTT.FindSubmatch(out)
	if found == nil {
		return 0, fmt.Errorf("ping says no average: %s", out)
	}
	ms, err := strconv.ParseFloat(string(found[1]), 64)
	return ms * 1000, err
}

// iperf gives the throughput in Gbit/s of one TCP stream, with sender and receiver on a core each where there are two.
func (p pair) iperf(ctx context.Context) (float64, error) {
	server := inside(ctx, p.server, "taskset", "-c", "1", "iperf3", "--server", "--one-off", "--forceflush")
	out, err := server.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := server.Start(); err != nil {
		return 0, err
	}
	defer func() {
		_ = server.Process.Kill() // it has ended, or never got its one client
		_ = server.Wait()
	}()
	if _, err := out.Read(make([]byte, 64)); err != nil { // the first line: it listens
		return 0, fmt.Errorf("start iperf3: %w", err)
	}
	text, err := run(inside(ctx, p.client, "taskset", "-c", "0", "iperf3", "--client", p.address, "--time", "3", "--json"))
	if err != nil {
		return 0, err
	}
	var result struct {
		End struct {
			Received struct {
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal(text, &result); err != nil {
		return 0, fmt.Errorf("parse what iperf3 says: %w", err)
	}
	return result.End.Received.BitsPerSecond / 1e9, nil
}
