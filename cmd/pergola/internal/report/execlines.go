package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pergola-net/pergola/model/slice"
)

// ExecLines words how the exec lines of nodes ended: those that failed, and what the others printed in nodes that were
// started at a time or later.
func ExecLines(st *slice.Status, since time.Time) (failed, printed []string) {
	for _, name := range slices.Sorted(maps.Keys(st.Nodes)) {
		n := st.Nodes[name]
		for _, r := range n.Exec {
			switch {
			case r.Failed():
				failed = append(failed, ExecLine(name, r)...)
			case !n.Since.Before(since):
				printed = append(printed, ExecLine(name, r)...)
			}
		}
	}
	return failed, printed
}

// ExecLine words one result: the line, and indented below it what was printed.
func ExecLine(node string, r slice.ExecResult) []string {
	head := fmt.Sprintf("%s: exec %q", node, r.Line)
	switch {
	case r.Status > 0:
		head += fmt.Sprintf(" failed with status %d", r.Status)
	case r.Status < 0:
		head += " could not be run"
	}
	if r.Output == "" {
		return []string{head}
	}
	lines := []string{head + ":"}
	for line := range strings.Lines(r.Output) {
		lines = append(lines, "    "+strings.TrimRight(line, "\r\n"))
	}
	return lines
}
