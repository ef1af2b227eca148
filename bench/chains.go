package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/pergola-net/pergola/bench/path"
)

// chains measures the fast path with `pergola bench path`, beside everything else that could carry the frames. Its
// figures have a section of their own in the report.
func chains(ctx context.Context, l *lab) ([]row, error) {
	out, err := l.output(ctx, strings.Fields(pathCommand(l.rounds))[1:]...)
	if err != nil {
		return nil, err
	}
	var result path.Result
	if err := json.Unmarshal(out, &result); err != nil {
		return nil, fmt.Errorf("parse what bench path says: %w", err)
	}
	l.path = &result
	return nil, nil
}

// pathScenario measures chains of routers.
const pathScenario = "path"

// pathLimit is how long rounds of it may begin: all of make bench is to take an hour and a quarter.
const pathLimit = 14 * time.Minute

// pathCommand measures twice as many rounds as other measurements have: rates vary more than times.
func pathCommand(rounds int) string {
	return fmt.Sprintf("pergola bench path --routers 0,1,4,8,16 --against off,mininet,ovs,relay --table "+
		"--json --rounds %d --limit %v", 2*rounds, pathLimit)
}

// pathSection is what the report says of the fast path.
func (m *measurement) pathSection(pictures []picture) string {
	var b strings.Builder
	b.WriteString("\n## The fast path\n\n")
	fmt.Fprintf(&b, "Made by `%s`, medians of %d rounds.\n", pathCommand(m.Origin.Rounds), m.Path.Rounds)
	b.WriteString("*Kernel alone* is the same chain of network namespaces, joined by veth pairs, without " +
		"Pergola. Ratios are medians over the rounds.\n\n")
	goals, series := m.Path.GoalTable(), m.Path.SeriesTable()
	table(&b, goals.Columns, goals.Rows)
	b.WriteString("\nIn brackets: how many times better Pergola is.\n\n")
	table(&b, series.Columns, series.Rows)
	b.WriteString("\n")
	for _, d := range m.Path.Caveats() {
		b.WriteString("- " + d + "\n")
	}
	show(&b, pictures)
	b.WriteString(pathNotes)
	return b.String()
}

const pathNotes = `
How it is measured:

- All chains stand at once. A round visits each of them for every measure, so that all suffer alike from what else
  happens on the machine. Before the first round each has been tried, and its neighbours are known.
- **NIC to NIC**: frames are made by an eBPF program in the kernel (BPF_PROG_TEST_RUN with live frames) and enter at
  one end as from a wire; an XDP program counts and drops them at the other end. Generator, routers and counter share
  one core. Frames belong to 256 flows and come in batches of 32: with more at once the kernel's own forwarding loses
  frames half-way across 16 routers, and would look worse than it is.
- **UDP from a socket**: sendmmsg(2) without segmentation offload, in the first host; counted and dropped where frames
  enter the stack of the last host, so that no process wakes up for them. All on one core, except for Open vSwitch,
  whose daemon has the other one.
- **TCP**: iperf3, one stream, all offloads as they are by default; a core each for sender and receiver.
- **Round trip**: the median of all that fit into a window, 64 bytes of data. ICMP is answered by the last host's
  kernel, UDP by a program there, on the same core.
- The TTL of what arrives is checked: every router has been passed. **1,000,000 routes** are of the lengths of the
  Internet's table, but spread over all of the unicast space, and destinations are spread over all of them.
- **Mininet** is Debian's package; its routers are its example's LinuxRouter. **Open vSwitch** is Debian's package
  with its data path in user space (this needs no kernel module): each router is a bridge with flows that rewrite
  addresses and TTL, patch ports join them.
- **A relay** is two hosts whose devices lead to a third namespace, where a program does nothing but hand frames from
  one to the other: no router, no lookup, no counter. With this generator and this sink nothing that stands in the
  middle can be faster.
`
