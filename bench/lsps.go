package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pergola-net/pergola/control/events"
)

// lspSides is how many routers there are on each side of the network in which each has an LSP to each of the others.
const lspSides = 32

// lspsOf is a network whose LSPs all go from one side to the other: by the link between b and c, or by e.
func lspsOf(n int) topo {
	var b strings.Builder
	b.WriteString("name: lsps\naddressing: {ipv6: false}\ndefaults: {node: {kind: router, routing: ospf}, " +
		"link: {mtu: 1508}}\nnodes:\n  b:\n  c:\n  e:\n")
	for i := range n {
		fmt.Fprintf(&b, "  l%d:\n  r%[1]d:\n", i)
	}
	b.WriteString("links:\n  - [b, c]\n  - [b, e]\n  - [e, c]\n")
	for i := range n {
		fmt.Fprintf(&b, "  - [l%d, b]\n  - [c, r%[1]d]\n", i)
	}
	b.WriteString("lsps:\n")
	for i := range n {
		for j := range n {
			fmt.Fprintf(&b, "  - {path: [l%d, r%d], signalling: rsvp}\n", i, j)
		}
	}
	return topo{name: "lsps", yaml: b.String(), first: "l0", last: "r0"}
}

// lsps measures what signals label-switched paths, and what carries packets by them.
func lsps(ctx context.Context, l *lab) ([]row, error) {
	rows, err := l.signalling(ctx)
	if err != nil {
		return rows, err
	}
	labels, err := l.labels(ctx)
	if rows = append(rows, labels...); err != nil {
		return rows, err
	}
	network, err := l.rerouting(ctx, lspsOf(lspSides))
	return append(rows, network...), err
}

// signalling has the benchmarks of package rsvp.
func (l *lab) signalling(ctx context.Context) ([]row, error) {
	const many, mib = 100_000, 1 << 20
	count := strconv.Itoa(l.rounds)
	figures := map[string]map[string][]float64{}
	for which, times := range map[string]string{"SetUp": "20000x", "Hold": "1x", "Refresh": "2x", "Repair": "5x"} {
		is, err := l.benchmark(ctx, "rsvp", "^Benchmark"+which+"$", times, count)
		if err != nil {
			return nil, err
		}
		figures[which] = is["Benchmark"+which]
	}
	var held []float64
	for _, each := range figures["Hold"]["B/LSP"] {
		held = append(held, each*many/mib)
	}
	return []row{
		{What: "RSVP-TE without I/O: LSPs set up over three hops, four routers by one core", Unit: "1/s",
			Values: figures["SetUp"]["LSPs/core-s"], MoreIsBetter: true},
		{What: "RSVP-TE: memory of 100,000 LSPs at a router", Unit: "MiB", Values: held, Most: 1024},
		{What: "RSVP-TE: a router refreshes 100,000 LSPs, of a core", Unit: "%",
			Values: figures["Refresh"]["%core"], Most: 5},
		{What: "RSVP-TE: a link fails, and 1,000 LSPs get the labels of their bypass", Unit: "ms",
			Values: figures["Repair"]["ms-labels"], Most: 50},
	}, nil
}

// labels has the benchmarks of the walk by labels: round by round, so that all meet the same machine.
func (l *lab) labels(ctx context.Context) ([]row, error) {
	const four = "four routers, frames of 60 bytes: "
	swaps := row{What: four + "label swaps", Unit: "ns", Against: "hops of IPv4", Ratio: 1}
	ip := row{What: four + "an LSP from end to end, with a reservation", Unit: "ns", Against: "one without"}
	rule := row{What: four + "an LSP that the last of 16 rules chooses", Unit: "ns", Against: "by its route"}
	for range l.rounds {
		is, err := l.benchmark(ctx, "datapath", "^BenchmarkSwap$/^routers=4$|^BenchmarkLSP$|"+
			"^BenchmarkWalk$/^port_ingress$/^IPv6=false$/^routers=4$", "1000000x", "1")
		if err != nil {
			return nil, err
		}
		add := func(to *[]float64, name string) { *to = append(*to, is[name]["ns/op"]...) }
		add(&swaps.Values, "BenchmarkSwap/routers=4")
		add(&swaps.Other, "BenchmarkWalk/port_ingress/IPv6=false/routers=4")
		add(&ip.Values, "BenchmarkLSP/reserved=true/rules=0")
		add(&ip.Other, "BenchmarkLSP/reserved=false/rules=0")
		add(&rule.Values, "BenchmarkLSP/reserved=false/rules=16")
		add(&rule.Other, "BenchmarkLSP/reserved=false/rules=0")
	}
	return []row{swaps, ip, rule}, nil
}

// rerouting is a network as it is run: how fast its LSPs come up, and how fast they have another way when a link fails
// that all of them cross.
func (l *lab) rerouting(ctx context.Context, t topo) ([]row, error) {
	const many = lspSides * lspSides
	up := row{What: fmt.Sprintf("%d LSPs over three hops, 67 routers of FRR: up, with converged routing", many),
		Unit: "s"}
	moved := row{What: fmt.Sprintf("a link of %d LSPs is cut: they have another way, from the command on", many),
		Unit: "s", Most: 1}
	file, err := l.file(t)
	if err != nil {
		return nil, err
	}
	for range l.rounds {
		if err := l.start(ctx); err != nil {
			return nil, err
		}
		took, err := timed(func() error { return l.pergola(ctx, "up", file, "--wait") })
		if err != nil {
			return nil, err
		}
		up.Values = append(up.Values, took)
		cut := time.Now()
		if err := l.pergola(ctx, "link", "down", "b:eth1", "-s", t.name); err != nil {
			return nil, err
		}
		last, err := l.lastUp(ctx, t.name, cut, many)
		if err != nil {
			return nil, err
		}
		moved.Values = append(moved.Values, last.Sub(cut).Seconds())
		if err := l.pergola(ctx, "down", t.name); err != nil {
			return nil, err
		}
	}
	return []row{up, moved}, nil
}

// lastUp follows events until so many LSPs have come up since a time, and says when the last one has.
func (l *lab) lastUp(ctx context.Context, network string, since time.Time, many int) (last time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for seen := -1; ; {
		out, err := l.output(ctx, "events", network, "--json")
		if err != nil {
			return last, fmt.Errorf("%d of %d LSPs have another way: %w", seen, many, err)
		}
		lsps := map[string]bool{}
		for line := range bytes.Lines(out) {
			var e events.Event
			if err := json.Unmarshal(line, &e); err != nil {
				return last, fmt.Errorf("read events: %w", err)
			}
			lsp, is := strings.CutPrefix(e.Message, "LSP ")
			if name, _, up := strings.Cut(lsp, " is up by "); is && up && e.Time.After(since) {
				lsps[name], last = true, e.Time
			}
		}
		if seen = len(lsps); seen >= many {
			return last, nil
		}
		select {
		case <-ctx.Done():
			return last, fmt.Errorf("%d of %d LSPs have another way: %w", seen, many, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
