package report

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/lipgloss"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/wording"
)

// Plan is what an apply does, a line for each thing: + made, ~ changed, - removed.
func Plan(p api.Plan, t *ui.Terminal) []string {
	if p.Empty() {
		return []string{p.Slice + ": nothing to change"}
	}
	return append(changes(p, t, true), p.Slice+": "+PlanCounts(p))
}

// Changes is the same for something that was changed: without details unless the user asked for every step, and
// nothing of a new slice or of more changes than a person reads.
func Changes(p api.Plan, t *ui.Terminal) []string {
	const few = 20
	if !t.Verbose && (p.Op == api.Create || len(p.Nodes)+len(p.Links) > few) {
		return nil
	}
	return changes(p, t, t.Verbose)
}

func changes(p api.Plan, t *ui.Terminal, details bool) (lines []string) {
	add := func(kind string, changes []api.Change) {
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
		lines = append(lines, t.Paint(t.Styles.Warn, sign(api.Update)+" ")+field(f))
	}
	return lines
}

// grouped writes the fields of a node or link, a line each; an interface that comes or goes as a whole is one line.
func grouped(fields []api.Field) (lines []string) {
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
func whole(group string, fields []api.Field) string {
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

func sign(op api.Op) string {
	switch op {
	case api.Create:
		return "+"
	case api.Remove:
		return "-"
	default:
		return "~"
	}
}

func opStyle(op api.Op, s ui.Styles) lipgloss.Style {
	switch op {
	case api.Create:
		return s.Good
	case api.Remove:
		return s.Bad
	default:
		return s.Warn
	}
}

func field(f api.Field) string {
	switch {
	case f.Old == "":
		return f.Name + ": " + f.New
	case f.New == "":
		return f.Name + ": " + f.Old + " -> none"
	}
	return f.Name + ": " + f.Old + " -> " + f.New
}

// PlanCounts says how much a plan changes: "11 nodes and 14 links new", "1 node changed, 2 links removed".
func PlanCounts(p api.Plan) string {
	var parts []string
	for _, op := range []struct {
		op   api.Op
		word string
	}{{api.Create, "new"}, {api.Update, "changed"}, {api.Remove, "removed"}} {
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

func count(changes []api.Change, op api.Op) (n int) {
	for _, c := range changes {
		if c.Op == op {
			n++
		}
	}
	return n
}
