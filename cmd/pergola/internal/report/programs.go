package report

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
)

// Programs is the table of the packet programs of nodes, with their own counters that are not zero.
func Programs(all []api.NodeProgram) *ui.Table {
	t := &ui.Table{Columns: []string{"NODE", "PROGRAM", "STATE", "VERIFIED", "FILTERS", "COUNTERS"}}
	for _, p := range all {
		t.Row(p.Node, path.Base(p.Program), string(p.State), number(p.Verified), strconv.Itoa(p.Filters),
			Counters(slices.Sorted(maps.Keys(p.Counters)), p.Counters))
	}
	return t
}

// ProgramCounters is the table of what packet programs counted since they were first set: the programs' own counters,
// and those of the platform.
func ProgramCounters(all []api.NodeProgram) *ui.Table {
	return programCounters(all, "COUNT", func(_ api.NodeProgram, _ string, _ bool, n uint64) string {
		return total(n)
	})
}

// ProgramRates is the table of what was counted between two looks, a second.
func ProgramRates(before, after []api.NodeProgram, span time.Duration) *ui.Table {
	earlier := make(map[string]api.NodeProgram, len(before))
	for _, p := range before {
		earlier[p.Node] = p
	}
	return programCounters(after, "PER SECOND", func(p api.NodeProgram, name string, own bool, n uint64) string {
		was := earlier[p.Node].Platform[name]
		if own {
			was = earlier[p.Node].Counters[name]
		}
		return perSecond(float64(since(was, n)) / span.Seconds())
	})
}

func programCounters(all []api.NodeProgram, column string,
	show func(p api.NodeProgram, name string, own bool, n uint64) string) *ui.Table {
	t := &ui.Table{Columns: []string{"NODE", "BY", "COUNTER", column}}
	for _, p := range all {
		for _, name := range slices.Sorted(maps.Keys(p.Counters)) {
			t.Row(p.Node, "program", name, show(p, name, true, p.Counters[name]))
		}
		for _, name := range slices.Sorted(maps.Keys(p.Platform)) {
			t.Row(p.Node, "platform", name, show(p, name, false, p.Platform[name]))
		}
	}
	return t
}

// ProgramInterfaces says by which numbers a program knows its node's interfaces.
func ProgramInterfaces(p api.NodeProgram) string {
	var text string
	for i, name := range p.Interfaces {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%d is %s", i+1, name)
	}
	return text
}
