package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/pergola-net/pergola/bench/tunnel"
)

// tunnelLimit is how long rounds of it may begin.
const tunnelLimit = 8 * time.Minute

// tunnels measures tunnels, as Trellis's figures 4 and 5 do. Its figures have a section of their own in the report.
func tunnels(ctx context.Context, l *lab) ([]row, error) {
	c := tunnel.Default(2 * l.rounds) // rates vary more than times
	c.Limit = tunnelLimit
	var err error
	l.tunnels, err = tunnel.Run(ctx, c)
	return nil, err
}

// tunnelSection is what the report says of tunnels.
func (m *measurement) tunnelSection(pictures []picture) string {
	var b strings.Builder
	r := m.Tunnels
	b.WriteString("\n## Tunnels\n\n")
	fmt.Fprintf(&b, "Made by `bin/bench -only tunnel -rounds %d -out docs/benchmarks.md`, medians of %d rounds. ",
		m.Origin.Rounds, r.Rounds)
	b.WriteString("One core makes, forwards and counts the frames; ratios are medians over the rounds.\n\n")
	goals := r.GoalTable()
	table(&b, goals.Columns, goals.Rows)
	b.WriteString("\nThrough a machine, in by one interface and out by another, by size of the frames in the " +
		"tunnel. In brackets: of native forwarding.\n\n")
	frames, bits := r.FrameTable(), r.BitTable()
	table(&b, frames.Columns, frames.Rows)
	b.WriteString("\n")
	table(&b, bits.Columns, bits.Rows)
	for _, p := range pictures {
		show(&b, []picture{p})
	}
	b.WriteString("\n")
	scale, pairs, isolation := r.ScaleTable(), r.PairTable(), r.IsolationTable()
	table(&b, scale.Columns, scale.Rows)
	b.WriteString("\n")
	table(&b, pairs.Columns, pairs.Rows)
	b.WriteString("\n")
	table(&b, isolation.Columns, isolation.Rows)
	b.WriteString("\n")
	for _, d := range r.Caveats() {
		b.WriteString("- " + d + "\n")
	}
	b.WriteString(tunnelNotes)
	return b.String()
}

// drawTunnels draws what Trellis's figures 4 (rates by variant) and 5 (rates by size) show.
func drawTunnels(r *tunnel.Result, dir string) ([]picture, error) {
	if len(r.Sizes) == 0 {
		return nil, nil
	}
	pictures := []picture{
		{"tunnel-variants.svg", fmt.Sprintf("%d-byte frames through a machine, one core", r.Sizes[0])},
		{"tunnel-frames.svg", "Frames through a machine, one core"},
		{"tunnel-bits.svg", "Gbit/s through a machine, one core"},
	}
	if err := drawVariants(r, dir, pictures[0]); err != nil {
		return nil, err
	}
	frames := func(rate float64, _ int) float64 { return rate / 1e6 }
	if err := drawSizes(r, dir, pictures[1], "Mframes/s", frames); err != nil {
		return pictures[:1], err
	}
	if err := drawSizes(r, dir, pictures[2], "Gbit/s of what is in the tunnel", tunnel.Gbits); err != nil {
		return pictures[:2], err
	}
	return pictures, nil
}

func drawVariants(r *tunnel.Result, dir string, to picture) error {
	p := newPlot(to.title, "Mframes/s", "")
	variants := r.Present()
	slices.Reverse(variants) // the first one is on top
	var names []string
	var values plotter.Values
	for _, w := range variants {
		v := r.Median(tunnel.RateKey(w, r.Sizes[0])) / 1e6
		if math.IsNaN(v) {
			continue
		}
		names, values = append(names, w.Title()), append(values, v)
	}
	if len(values) == 0 {
		return nil
	}
	bars, err := plotter.NewBarChart(values, vg.Points(14))
	if err != nil {
		return err
	}
	bars.Horizontal, bars.Color = true, plotutil.Color(2)
	p.Add(bars)
	p.NominalY(names...)
	p.X.Min, p.X.Max = 0, 1.05*slices.Max(values)
	p.Y.Min, p.Y.Max = -0.5, float64(len(values))-0.5
	return save(p, dir, to.file)
}

func drawSizes(r *tunnel.Result, dir string, to picture, unit string, of func(rate float64, size int) float64) error {
	p := newPlot(to.title, "bytes of a frame", unit)
	p.X.Tick.Marker = ticks(r.Sizes)
	curve := func(rate func(size int) float64) (points plotter.XYs) {
		for _, size := range r.Sizes {
			points = append(points, plotter.XY{X: float64(size), Y: of(rate(size), size)})
		}
		return points
	}
	variants := r.Present()
	for i, w := range variants {
		points := curve(func(size int) float64 { return r.Median(tunnel.RateKey(w, size)) })
		if err := addLine(p, i, w.Title(), points); err != nil {
			return err
		}
	}
	wire := curve(func(size int) float64 { return tunnel.WireRate(1e9, size, false) })
	if err := addLine(p, len(variants), "a wire of 1 Gbit/s", wire); err != nil {
		return err
	}
	p.Y.Max *= 1.6 // for the legend
	p.Legend.Left = true
	return save(p, dir, to.file)
}

const tunnelNotes = `
How it is measured:

- Each variant has a machine of its own, a namespace with two interfaces whose wires are veth pairs: checksums are
  complete, no frame is longer than 1500 bytes outside. All stand at once. A round visits every one of them for every
  size. The generator and the counter are those of the fast path: eBPF programs beyond the wires, which make the
  tunnels' headers and look into them. The TTL of what arrives is checked: the router within has been passed.
- **Native** forwarding is of plain frames between the same interfaces, by the machine's kernel, without any tunnel.
  **Beside tunnels**: the same on a machine whose interfaces have Pergola's programs: what these cost the machine's
  own traffic.
- **Kernel VXLAN, bridges, container** is what users of Docker and containerlab have: on each side a VXLAN device in a
  bridge, and a veth pair from there into the container that forwards. **In the container** saves bridge and veth pair
  (Trellis's *direct tunnel termination*). This kernel has no GRE to compare with.
- **Open vSwitch** is Debian's package with its data path in user space, which ends the tunnels itself; flows rewrite
  addresses and TTL. Its daemon has the other core.
- **Pergola**: a virtual router between two tunnels, point to point. **LANs**: each interface of the router is in a
  LAN that reaches over several machines, so there is a bridge on each side.
- **Slices**: so many on the host, each with a router between two tunnels of its own, all with the same addresses
  within. Frames are for all of them in turn, so that each router's tables are used, or for one of them. The goal for
  1000 tunnels is about a lookup among many, so its frames are for one slice; what frames for all of them reach is
  beside it in the table. **Set up**: all tunnels are added and joined with the routers' ports, one after the other;
  **deleted**: all by one call.
- **Between two machines**: pings of 64 bytes between nodes, the median of all that fit into a window, on one core;
  iperf3, one stream, a core each for sender and receiver, the wire's frames cut to its MTU. What is compared with is
  the same between the machines themselves. What a tunnel adds to that contains the veth pairs of the two nodes,
  between which and their kernels each packet passes four times: a link within one machine costs as much as the
  machines themselves, without any tunnel.
- **With a third between**: another machine on the way forwards: by its kernel; by a container between two bridges; by
  a virtual router between two tunnels. How much more that is than between two is what each tunnel after the first
  adds.
- **No line card**: the mode ` + "`--xdp off`" + `. The wires here are veth pairs: a frame that a kernel's stack
  has sent is copied before an XDP program sees it, which drivers of hardware do not do. **Beside a line card** is the
  cost for other traffic: the machines have Pergola's programs, but no tunnel of Pergola.
- **A reserved rate**: two slices have a link each between the same two machines, with 100 Mbit/s. One sends frames of
  1400 bytes from one core, as many as it can or 90 % of its rate; the other floods its link with small frames from
  the other core.
`
