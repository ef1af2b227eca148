// Package lack says in one message what a machine lacks for the nodes of a slice, and how to install it.
package lack

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/model/wording"
)

// Lack is one thing that a machine has not.
type Lack struct {
	What    string   // a sentence without its end: what is not there, and where it was looked for
	Nodes   []string // that need it; none: everything does
	Package string   // that brings it, as Debian names it; "": none is known
}

// Error is all that a machine lacks.
type Error struct {
	Lacks   []Lack
	Install func(packages []string) string // the line that installs them; nil: as this machine does
}

// New gives an error for what is lacking, with the nodes of what several of them lack together; nil if nothing is.
func New(all ...Lack) error {
	if len(all) == 0 {
		return nil
	}
	return &Error{Lacks: grouped(all)}
}

// grouped joins the nodes that lack the same thing.
func grouped(all []Lack) (some []Lack) {
	for _, l := range all {
		same := slices.IndexFunc(some, func(other Lack) bool {
			return other.What == l.What && len(other.Nodes) > 0 && len(l.Nodes) > 0
		})
		if same < 0 {
			l.Nodes = slices.Clone(l.Nodes)
			some = append(some, l)
			continue
		}
		some[same].Nodes = append(some[same].Nodes, l.Nodes...)
	}
	return some
}

// Error gives each thing on a line, and one line that installs all.
func (e *Error) Error() string {
	var lines []string
	for _, l := range e.Lacks {
		lines = append(lines, l.String())
	}
	text := lines[0]
	if len(lines) > 1 {
		text = fmt.Sprintf("%d things are missing:\n  ", len(lines)) + strings.Join(lines, "\n  ")
	}
	install := e.Install
	if install == nil {
		install = Install
	}
	if line := install(e.packages()); line != "" {
		text += "\ninstall: " + line
	}
	return text
}

// packages lists, sorted, what is to be installed.
func (e *Error) packages() (all []string) {
	for _, l := range e.Lacks {
		if l.Package != "" {
			all = append(all, l.Package)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (l Lack) String() string {
	const most = 3
	nodes := slices.Clone(l.Nodes)
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	switch n := len(nodes); {
	case n == 0:
		return l.What
	case n == 1:
		return "node " + nodes[0] + ": " + l.What
	case n > most+1:
		return fmt.Sprintf("nodes %s and %s: %s", strings.Join(nodes[:most], ", "),
			wording.Count(n-most, "other"), l.What)
	default:
		return "nodes " + strings.Join(nodes, ", ") + ": " + l.What
	}
}
