package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/bench/rounds"
)

// row is one measurement. A limit or ratio of 0 promises nothing.
type row struct {
	What   string    `json:"what"`
	Unit   string    `json:"unit"`
	Values []float64 `json:"values"`
	Most   float64   `json:"most,omitempty"` // the median must not be more
	// What it is compared with, in the same run.
	Against string    `json:"against,omitempty"`
	Other   []float64 `json:"other,omitempty"`
	// GaveUp: the other was stopped; its figure is what it took until then.
	GaveUp bool `json:"gave_up,omitempty"`
	// Ratio is how many times better than the other the median must be at least.
	Ratio        float64 `json:"ratio,omitempty"`
	MoreIsBetter bool    `json:"more_is_better,omitempty"`
	// Least is the smallest figure that a window can show, where more is better: less than that was none, and the
	// ratio is then only a bound.
	Least float64 `json:"least,omitempty"`
	// MostMore is how much more than the other it may be, in the median over the rounds.
	MostMore float64 `json:"most_more,omitempty"`
	// None: there must be none of it in any round.
	None bool `json:"none,omitempty"`
}

// any tells whether there are figures of all that the row shows.
func (r row) any() bool { return len(r.Values) > 0 && (r.Against == "" || len(r.Other) > 0) }

// better is how many times better than the other this is: the median over the rounds, where both have as many.
func (r row) better() float64 {
	if len(r.Values) != len(r.Other) {
		return r.ratio(rounds.Middle(r.Values), rounds.Middle(r.Other))
	}
	return rounds.Middle(r.ratios())
}

// ratios are how many times better than the other this is, round by round.
func (r row) ratios() []float64 {
	var all []float64
	for i := range r.Values {
		all = append(all, r.ratio(r.Values[i], r.Other[i]))
	}
	return all
}

func (r row) ratio(this, other float64) float64 {
	if r.MoreIsBetter {
		return this / max(other, r.Least)
	}
	return other / this
}

// bound tells whether the ratio is only known to be more than that: the other showed nothing in a window that matters.
func (r row) bound() bool {
	exact := r
	exact.Least = 0
	return exact.better() != r.better()
}

// more is how much more than the other this is, round by round.
func (r row) more() float64 {
	var all []float64
	for i := range min(len(r.Values), len(r.Other)) {
		all = append(all, r.Values[i]-r.Other[i])
	}
	return rounds.Middle(all)
}

func (r row) holds() bool {
	switch {
	case r.None && slices.Max(r.Values) > 0,
		r.Most > 0 && rounds.Middle(r.Values) > r.Most,
		r.MostMore > 0 && r.more() > r.MostMore:
		return false
	}
	return r.Ratio == 0 || !math.IsInf(r.better(), 0) && r.better() >= r.Ratio
}

var columns = []string{"scenario", "what", "median", "lowest to highest", "compared with", "times better",
	"goal", "reached"}

// cells are the columns of the report's table, but for the scenario.
func (r row) cells() []string {
	goals := []string{}
	if r.None {
		goals = append(goals, "none")
	}
	if r.Most > 0 {
		goals = append(goals, fmt.Sprintf("at most %g", r.Most))
	}
	if r.Ratio > 0 {
		goals = append(goals, fmt.Sprintf("at least %g x", r.Ratio))
	}
	if r.MostMore > 0 {
		goals = append(goals, fmt.Sprintf("at most %g more", r.MostMore))
	}
	other, better := "", ""
	if r.Against != "" {
		other, better = r.compared()
	}
	verdict := "yes"
	switch {
	case len(goals) == 0:
		verdict = ""
	case !r.holds():
		verdict = "**missed**"
	}
	spread := number(slices.Min(r.Values)) + " to " + number(slices.Max(r.Values))
	return []string{r.What + ", " + r.Unit, number(rounds.Middle(r.Values)), spread, other, better,
		strings.Join(goals, ", "), verdict}
}

func (r row) compared() (other, better string) {
	other = fmt.Sprintf("%s: %s (of %d)", r.Against, number(rounds.Middle(r.Other)), len(r.Other))
	if r.MostMore > 0 {
		return other, "" // a difference is what counts, and it may be that neither took any time
	}
	better = fmt.Sprintf("%.2f", r.better())
	if math.IsInf(r.better(), 0) || math.IsNaN(r.better()) { // one of them showed nothing
		better = "-"
	}
	if r.bound() {
		better = "more than " + better
	}
	if r.GaveUp {
		return fmt.Sprintf("%s: gave up after %s", r.Against, number(rounds.Middle(r.Other))),
			"more than " + better
	}
	return other, better
}

func number(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

const preface = `# Benchmarks

Written by ` + "`make bench`" + `; do not edit. Figures are medians, with the lowest and the highest beside them.
What is compared was measured in the same run, with the rounds of both in turn; *times better* is the median over the
rounds, where both have as many. ` + "`bin/bench -only SCENARIO -out docs/benchmarks.md`" + ` measures one scenario
again and leaves the others as they are. The programs that measure are in [bench](../bench); all rounds are in
[benchmarks.json](benchmarks.json).

`

// report writes docs/benchmarks.md.
func (d *document) report(plots plots) string {
	var b strings.Builder
	b.WriteString(preface)
	d.origins(&b)
	var rows [][]string
	var sections strings.Builder
	for _, m := range d.Scenarios {
		if m.Failed != "" {
			fmt.Fprintf(&b, "**%s:** %s: %s\n\n", m.extent(), m.Name, m.Failed)
		}
		for _, r := range m.Rows {
			rows = append(rows, append([]string{m.Name}, r.cells()...))
		}
		if m.Path != nil {
			sections.WriteString(m.pathSection(plots[m.Name]))
		}
		if m.Tunnels != nil {
			sections.WriteString(m.tunnelSection(plots[m.Name]))
		}
		if m.Queues != nil {
			sections.WriteString(m.queueSection(plots[m.Name]))
		}
		if m.Section != nil {
			sections.WriteString(m.section(plots[m.Name]))
		}
	}
	if len(rows) > 0 {
		table(&b, columns, rows)
		b.WriteString(notes)
	}
	return b.String() + sections.String() + d.comparisonSections()
}

// extent says of a scenario that failed what there is of it.
func (m *measurement) extent() string {
	if len(m.Rows) > 0 {
		return "Measured in part"
	}
	return "Not measured"
}

// origins say where and how the figures were made; one for all, as it should be, or else one for each that differs.
func (d *document) origins(b *strings.Builder) {
	var known []origin
	names := map[int][]string{}
	for _, m := range d.Scenarios {
		i := slices.IndexFunc(known, func(o origin) bool { return o.equal(m.Origin) })
		if i < 0 {
			i = len(known)
			known = append(known, m.Origin)
		}
		names[i] = append(names[i], m.Name)
	}
	for i, o := range known {
		if len(known) > 1 {
			fmt.Fprintf(b, "**%s:**\n\n", strings.Join(names[i], ", "))
		}
		o.list(b)
	}
	var missing []string
	for _, s := range scenarios {
		if d.find(s.name) == nil {
			missing = append(missing, s.name)
		}
	}
	if len(missing) > 0 {
		fmt.Fprintf(b, "**Not measured yet:** %s\n\n", strings.Join(missing, ", "))
	}
}

// list writes it as a list.
func (o origin) list(b *strings.Builder) {
	for _, f := range append(o.Machine, fact{"Command", "`" + o.Command + "`"}) {
		fmt.Fprintf(b, "- %s: %s\n", f.Name, f.Value)
	}
	b.WriteString("\n")
}

func table(b *strings.Builder, head []string, rows [][]string) {
	line := func(cells []string) { fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | ")) }
	line(head)
	line(slices.Repeat([]string{"---"}, len(head)))
	for _, r := range rows {
		line(r)
	}
}

const notes = `
How it is measured:

- **up** is the wall time of ` + "`pergola up`" + `, from the command to its end: every node runs, every link is there.
  **Converged** is ` + "`pergola up --wait`" + `, as [convergence.md](convergence.md) defines it. *No server* includes
  the start of the server. **down** is the wall time of ` + "`pergola down`" + `: nothing is left when it ends.
- **Mininet** is Debian's package with its LinuxBridge switch and no controller, timed from the constructor to the end
  of start(), and stop(). It does not wait for anything beyond. The line of 500 switches takes it minutes: it is run
  once, last of all, and stopped after four minutes.
- **A link fails**: between two routers that have two links. The router before it hears that the carrier is gone, and
  changes its route at once, as a routing daemon would that knows another route. Numbered frames are sent every few
  microseconds; what is measured is the longest time for which none arrived.
- **The mirror**: the benchmarks of [datapath/mirror](../datapath/mirror) and [datapath/fib](../datapath/fib). A cold
  start is that of a router whose kernel has the routes already, to the moment from which its frames are walked. A
  change is visible from when the kernel has acknowledged the new route to when the maps hold it; the process that waits
  for it yields (sched_yield(2)), because the kernel may put the reader on the same core, where it would wait for up
  to two timer ticks. A lookup is one within a program, of destinations drawn evenly from all routes, so that nothing
  is found in a cache. Memory is that of the kernel's maps and of the heap of the process that keeps them.
- **LSPs**: the benchmarks of [signalling/rsvp](../signalling/rsvp), whose routers hand each other their messages
  without sockets, in processor time; and of [datapath](../datapath). In the network, 32 routers on each side have an
  LSP to each of those on the other side; their events say when they are up.
- **A cluster**: five machines made of namespaces by ` + "`pergola dev cluster up -n 5 --servers 3`" + `, which share
  this one's processors. The same grid is spread over them by the placement, with tunnels between. Timed are
  ` + "`pergola up --wait`" + ` in one of them, until routing has converged everywhere, and ` + "`pergola down`" + `.
- After each up, and outside of what is timed, the first host pings the last.
- **The kernel's memory** is the growth of unreclaimable slab, kernel stacks, page tables and per-CPU memory in
  /proc/meminfo, divided by the number of nodes.
- **The link**: the same programs measure both pairs of namespaces. Round trips: the median of all that fit into 0.3
  s, one after the other, 64 bytes, all on one core. TCP: iperf3, 1 s, one stream, a core each for sender and
  receiver. A window of which the hypervisor took time is measured again. A bare veth pair has nothing between its two
  ends; a link of Pergola has the substrate, where frames are counted and where a link can be shaped and cut.
`
