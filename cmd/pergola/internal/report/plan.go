package report

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/lipgloss"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/controller"
	"github.com/pergola-net/pergola/model/wording"
)

// Plan is what an apply does, a line for each thing: + made, ~ changed, - removed.
func Plan(p controller.Plan, t *ui.Terminal) []string {
	if p.Empty() {
		return []string{p.Slice + ": nothing to change"}
	}
	return append(changes(p, t, true), p.Slice+": "+PlanCounts(p))
}

// Changes is the same for something that was changed: without details unless the user asked for every step, and
// nothing of a new slice or of more changes than a person reads.
func Changes(p controller.Plan, t *ui.Terminal) []string {
	const few = 20
	if !t.Verbose && (p.Op == controller.Create || len(p.Nodes)+len(p.Links) > few) {
		return nil
	}
	return changes(p, t, t.Verbose)
}

func changes(p controller.Plan, t *ui.Terminal, details bool) (lines []string) {
	add := func(kind string, changes []controller.Change) {
		for _, c := range changes {
			line := fmt.Sprintf("%s %s %s", sign(c.Op), kind, c.Name)
			if c.Restarts {
				line += " (restarts)"
			}
			lines = append(lines, t.Paint(opStyle(c.Op, t.Styles), line))
			for _, f := range grouped(c.Fields) {
				if details {
					lines = append(lines, "      "+f)
				}
			}
		}
	}
	add("node", p.Nodes)
	add("link", p.Links)
	for _, f := range p.Fields {
		lines = append(lines, t.Paint(t.Styles.Warn, sign(controller.Update)+" ")+field(f))
	}
	return lines
}

// grouped writes the fields of a node or link, a line each; an interface that comes or goes as a whole is one line.
func grouped(fields []controller.Field) (lines []string) {
	for len(fields) > 0 {
		rest := fields[1:]
		group, _, inside := cutInterface(fields[0].Name)
		for inside && len(rest) > 0 && strings.HasPrefix(rest[0].Name, group+".") {
			rest = rest[1:]
		}
		if line := whole(group, fields[:len(fields)-len(rest)]); inside && line != "" {
			lines = append(lines, line)
		} else {
			for _, f := range fields[:len(fields)-len(rest)] {
				lines = append(lines, field(f))
			}
		}
		fields = rest
	}
	return lines
}

// cutInterface splits interfaces.NAME.field; names of interfaces may have dots.
func cutInterface(name string) (group, last string, ok bool) {
	i := strings.LastIndexByte(name, '.')
	if !strings.HasPrefix(name, "interfaces.") || i < len("interfaces.") {
		return "", "", false
	}
	return name[:i], name[i+1:], true
}

// whole is the line for an interface that comes or goes, or "" where it only changes.
func whole(group string, fields []controller.Field) string {
	come, gone, addresses, link := true, true, "", ""
	for _, f := range fields {
		come, gone = come && f.Old == "", gone && f.New == ""
		switch _, last, _ := cutInterface(f.Name); last {
		case "addresses":
			addresses = f.New
		case "link":
			link = f.New + f.Old
		}
	}
	switch {
	case link == "" || come == gone:
		return ""
	case gone:
		return group + ": removed"
	}
	return strings.TrimSuffix(group+": new, "+addresses, ", ")
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
			what = append(what, wording.Count(n, "node"))
		}
		if n := count(p.Links, op.op); n > 0 {
			what = append(what, wording.Count(n, "link"))
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
