package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
)

// memory measures what Pergola itself takes with 100 nodes: the server's resident set, and for each node the
// proportional set of the processes that Pergola adds plus the kernel's memory. The latter is the growth of what
// /proc/meminfo counts as unreclaimable slab, kernel stacks, page tables and per-CPU memory, divided by the number of
// nodes. Hosts are plain: they run nothing of the user's.
func memory(ctx context.Context, l *lab) ([]row, error) {
	const n = 100
	t := star(n)
	var server, perNode []float64
	for range l.rounds {
		if err := l.start(ctx); err != nil {
			return nil, err
		}
		before, err := kernelMemory()
		if err != nil {
			return nil, err
		}
		file, err := l.file(t)
		if err != nil {
			return nil, err
		}
		if err := l.pergola(ctx, "up", file); err != nil {
			return nil, err
		}
		after, err := kernelMemory()
		if err != nil {
			return nil, err
		}
		rss, err := l.serverRSS(ctx)
		if err != nil {
			return nil, err
		}
		pss, err := l.initPSS(ctx, t.name)
		if err != nil {
			return nil, err
		}
		server = append(server, rss)
		perNode = append(perNode, pss+(after-before)/n)
		if err := l.pergola(ctx, "down", t.name); err != nil {
			return nil, err
		}
	}
	return []row{
		{What: "server with agent, 100 nodes: resident set", Unit: "MiB", Values: server, Most: 150},
		{What: "each node: its init's proportional set and the kernel's memory", Unit: "MiB",
			Values: perNode, Most: 1.5},
	}, nil
}

func (l *lab) serverRSS(ctx context.Context) (float64, error) {
	pid, err := l.serverPID(ctx)
	if err != nil {
		return 0, err
	}
	return sum(fmt.Sprintf("/proc/%d/status", pid), "VmRSS")
}

// initPSS is the mean over the nodes' first processes.
func (l *lab) initPSS(ctx context.Context, name string) (float64, error) {
	nodes, err := l.nodes(ctx, name)
	if err != nil {
		return 0, err
	}
	var total, n float64
	for _, node := range nodes {
		if node.PID == 0 {
			continue
		}
		pss, err := sum(fmt.Sprintf("/proc/%d/smaps_rollup", node.PID), "Pss")
		if err != nil {
			return 0, err
		}
		total, n = total+pss, n+1
	}
	if n == 0 {
		return 0, fmt.Errorf("%s has no processes", name)
	}
	return total / n, nil
}

func kernelMemory() (float64, error) {
	return sum("/proc/meminfo", "SUnreclaim", "KernelStack", "PageTables", "Percpu")
}

// sum adds up lines such as "VmRSS:   123 kB" of a file and gives MiB.
func sum(path string, keys ...string) (float64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	var kib float64
	found := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, rest, _ := strings.Cut(lines.Text(), ":")
		for _, k := range keys {
			if k != key {
				continue
			}
			var v float64
			if _, err := fmt.Sscan(rest, &v); err != nil {
				return 0, fmt.Errorf("parse %s of %s: %w", key, path, err)
			}
			kib, found = kib+v, found+1
		}
	}
	if found != len(keys) {
		return 0, fmt.Errorf("%s has %d of %v", path, found, keys)
	}
	return kib / 1024, nil
}
