package main

import (
	"fmt"
	"slices"
	"strings"
)

// row is one measurement. A limit or ratio of 0 promises nothing.
type row struct {
	what, unit string
	values     []float64
	most       float64 // the median must not be more
	// What it is compared with, in the same run.
	against string
	other   []float64
	// ratio is how many times better than the other the median must be at least.
	ratio        float64
	moreIsBetter bool
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	if n%2 == 1 {
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}

// better is how many times better than the other this is.
func (r row) better() float64 {
	if r.moreIsBetter {
		return median(r.values) / median(r.other)
	}
	return median(r.other) / median(r.values)
}

func (r row) holds() bool {
	if r.most > 0 && median(r.values) > r.most {
		return false
	}
	return r.against == "" || r.better() >= r.ratio
}

// cells are the columns of the report's table.
func (r row) cells() []string {
	wanted := []string{}
	if r.most > 0 {
		wanted = append(wanted, fmt.Sprintf("at most %g", r.most))
	}
	other, better := "", ""
	if r.against != "" {
		wanted = append(wanted, fmt.Sprintf("at least %g x", r.ratio))
		other = fmt.Sprintf("%s: %s (of %d)", r.against, number(median(r.other)), len(r.other))
		better = fmt.Sprintf("%.2f", r.better())
	}
	verdict := "yes"
	switch {
	case len(wanted) == 0:
		verdict = ""
	case !r.holds():
		verdict = "**no**"
	}
	spread := number(slices.Min(r.values)) + " to " + number(slices.Max(r.values))
	return []string{r.what + ", " + r.unit, number(median(r.values)), spread, other, better, strings.Join(wanted, ", "), verdict}
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

// report is docs/benchmarks.md, but for the section of the fast path.
func (r *results) report(machine string) string {
	var b strings.Builder
	b.WriteString("# Benchmarks\n\n")
	b.WriteString("Written by `make bench`; do not edit. ")
	fmt.Fprintf(&b, "Each figure is the median of %d rounds, with the lowest and the highest beside it. What is compared was measured in the same run,\n", r.rounds)
	b.WriteString("the rounds of both alternating. The programs that measure are in [bench](../bench).\n\n")
	if r.partial {
		b.WriteString("**Only some of the measurements were made.**\n\n")
	}
	for _, f := range r.failed {
		fmt.Fprintf(&b, "**Not measured:** %s\n\n", f)
	}
	b.WriteString(machine + "\n")
	if len(r.rows) == 0 {
		return b.String()
	}
	table(&b, []string{"what", "median", "lowest to highest", "compared with", "times better", "promised", "kept"}, r.rows)
	b.WriteString(notes)
	return b.String()
}

func table(b *strings.Builder, head []string, rows []row) {
	line := func(cells []string) { fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | ")) }
	line(head)
	line(slices.Repeat([]string{"---"}, len(head)))
	for _, r := range rows {
		line(r.cells())
	}
}

const notes = `
How it is measured:

- **up** is the wall time of ` + "`pergola up`" + `, from the command to its end: every node runs, every link is there. **Converged** is ` + "`pergola up --wait`" + `; what converged means
  is said in [convergence.md](convergence.md). *No server* includes the start of the server. **down** is the wall time of ` + "`pergola down`" + `: nothing is left when it ends.
- **Mininet** is Debian's package with its LinuxBridge switch and no controller, timed from the constructor to the end of start(), and stop(). It does not wait for anything beyond. The line of 500 switches
  takes it minutes and is run once.
- After each up, and outside of what is timed, the first host pings the last.
- **The kernel's memory** is the growth of unreclaimable slab, kernel stacks, page tables and per-CPU memory in /proc/meminfo, divided by the number of nodes.
- **The link**: the same programs measure both pairs of namespaces. Round trips: the median of all that fit into 0.3 s, one after the other, 64 bytes, all on one core. TCP: iperf3, 3 s, one stream, a core each
  for sender and receiver. A bare veth pair has nothing between its two ends; a link of Pergola has the substrate, where frames are counted and where a link can be shaped and cut.
`
