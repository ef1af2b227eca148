package report

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/lipgloss"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/controller"
)

// Plan is what an apply does, a line for each thing: + made, ~ changed, - removed.
func Plan(p controller.Plan, t *ui.Terminal) []string {
	if p.Empty() {
		return []string{p.Slice + ": nothing to change"}
	}
	var lines []string
	add := func(kind string, changes []controller.Change) {
		for _, c := range changes {
			line := fmt.Sprintf("%s %s %s", sign(c.Op), kind, c.Name)
			if c.Restarts {
				line += " (restarts)"
			}
			lines = append(lines, t.Paint(opStyle(c.Op, t.Styles), line))
			for _, f := range c.Fields {
				lines = append(lines, "      "+field(f))
			}
		}
	}
	add("node", p.Nodes)
	add("link", p.Links)
	for _, f := range p.Fields {
		lines = append(lines, t.Paint(t.Styles.Warn, sign(controller.Update)+" ")+field(f))
	}
	return append(lines, p.Slice+": "+PlanCounts(p))
}

func sign(op controller.Op) string {
	switch op {
	case controller.Create:
		return "+"
	case controller.Remove:
		return "-"
	default:
		return "~"
	}
}

func opStyle(op controller.Op, s ui.Styles) lipgloss.Style {
	switch op {
	case controller.Create:
		return s.Good
	case controller.Remove:
		return s.Bad
	default:
		return s.Warn
	}
}

func field(f controller.Field) string {
	switch {
	case f.Old == "":
		return f.Name + ": " + f.New
	case f.New == "":
		return f.Name + ": " + f.Old + " -> none"
	}
	return f.Name + ": " + f.Old + " -> " + f.New
}

// PlanCounts says how much a plan changes: "11 nodes and 14 links new", "1 node changed, 2 links removed".
func PlanCounts(p controller.Plan) string {
	var parts []string
	for _, op := range []struct {
		op   controller.Op
		word string
	}{{controller.Create, "new"}, {controller.Update, "changed"}, {controller.Remove, "removed"}} {
		var what []string
		if n := count(p.Nodes, op.op); n > 0 {
			what = append(what, ui.Count(n, "node"))
		}
		if n := count(p.Links, op.op); n > 0 {
			what = append(what, ui.Count(n, "link"))
		}
		if len(what) > 0 {
			parts = append(parts, strings.Join(what, " and ")+" "+op.word)
		}
	}
	if len(parts) == 0 {
		for _, f := range p.Fields {
			parts = append(parts, f.Name+" changed")
		}
	}
	return strings.Join(parts, ", ")
}

func count(changes []controller.Change, op controller.Op) (n int) {
	for _, c := range changes {
		if c.Op == op {
			n++
		}
	}
	return n
}
