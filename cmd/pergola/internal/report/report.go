// Package report turns answers of the server into tables. It does no I/O.
package report

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/lipgloss"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
)

// Slices is the list of networks.
func Slices(all []api.Summary, styles ui.Styles, now time.Time) *ui.Table {
	const state = 1
	t := &ui.Table{Columns: []string{"NAME", "STATE", "NODES", "LINKS", "CHANGED"}}
	placed := slices.ContainsFunc(all, func(s api.Summary) bool { return len(s.Hosts) > 0 })
	if placed {
		t.Columns = append(t.Columns, "HOSTS")
	}
	for _, s := range all {
		row := []string{s.Name, sliceState(s), fmt.Sprintf("%d/%d", s.Running, s.Nodes), strconv.Itoa(s.Links),
			ago(s.Updated, now)}
		if placed {
			row = append(row, strings.Join(s.Hosts, ","))
		}
		t.Row(row...)
	}
	t.Style = func(row, column int) (lipgloss.Style, bool) {
		if column != state {
			return lipgloss.Style{}, false
		}
		return stateStyle(sliceState(all[row]), styles), true
	}
	return t
}

func ago(t, now time.Time) string {
	if age := ui.Age(t, now); age != "" {
		return age + " ago"
	}
	return ""
}

func sliceState(s api.Summary) string {
	switch {
	case s.Deleting:
		return "deleting"
	case len(s.Errors) > 0:
		return "in trouble"
	case s.Lost > 0:
		return "degraded"
	case !s.Settled:
		return "coming up"
	case s.Running < s.Nodes:
		return "degraded"
	}
	return "up"
}

func stateStyle(state string, styles ui.Styles) lipgloss.Style {
	switch state {
	case "up", string(slice.Running):
		return styles.Good
	case "in trouble", "down", string(slice.Failed), string(slice.Exited), string(slice.Lost):
		return styles.Bad
	}
	return styles.Warn
}

// Nodes is the table of the nodes of a slice; only limits it to these, if any is given.
func Nodes(s *api.Slice, styles ui.Styles, now time.Time, only ...string) *ui.Table {
	t := &ui.Table{Columns: []string{"NODE", "KIND", "STATE", "AGE", "RESTARTS", "PID", "ADDRESSES"}}
	const state = 2
	placed := slices.ContainsFunc(s.Spec.Nodes, func(n slice.Node) bool { return n.Host != "" })
	if placed {
		t.Columns = []string{"NODE", "KIND", "STATE", "HOST", "AGE", "RESTARTS", "PID", "ADDRESSES"}
	}
	for i := range s.Spec.Nodes {
		n := &s.Spec.Nodes[i]
		if len(only) > 0 && !slices.Contains(only, n.Name) {
			continue
		}
		st := s.Status.Nodes[n.Name]
		phase := string(st.Phase)
		if phase == "" {
			phase = string(slice.Pending)
		}
		row := []string{n.Name, kind(n), phase, ui.Age(st.Since, now), strconv.Itoa(st.Restarts),
			number(st.PID), nodeAddresses(n)}
		if placed {
			row = slices.Insert(row, state+1, n.Host)
		}
		t.Row(row...)
	}
	t.Style = func(row, column int) (lipgloss.Style, bool) {
		if column != state {
			return lipgloss.Style{}, false
		}
		return stateStyle(t.Rows[row][state], styles), true
	}
	return t
}

// Troubles lists what nodes say about their state, as lines "node: message", and what else fails.
func Troubles(st *slice.Status, nodes []slice.Node) []string {
	var lines []string
	for i := range nodes {
		if message := st.Nodes[nodes[i].Name].Message; message != "" {
			lines = append(lines, nodes[i].Name+": "+message)
		}
		if trouble := st.Nodes[nodes[i].Name].FastPath; trouble != "" {
			lines = append(lines, nodes[i].Name+": off the fast path: "+trouble)
		}
		for _, r := range st.Nodes[nodes[i].Name].Exec {
			if r.Failed() {
				lines = append(lines, ExecLine(nodes[i].Name, r)...)
			}
		}
	}
	for _, e := range st.Errors {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, e) }) {
			lines = append(lines, e)
		}
	}
	return lines
}

// kind says what a node is; of a router, which daemon it runs, and of a packet program, its file: a terminal of 80
// columns has no room for more.
func kind(n *slice.Node) string {
	if n.Program != nil {
		return path.Base(n.Program.Name)
	}
	if n.Routing != nil && n.Routing.Daemon != "" {
		return string(n.Routing.Daemon)
	}
	return string(n.Kind)
}

// nodeAddresses are the addresses that the node's name stands for.
func nodeAddresses(n *slice.Node) string {
	var parts []string
	for _, six := range []bool{false, true} {
		if a, ok := n.Address(six); ok {
			parts = append(parts, a.String())
		}
	}
	return strings.Join(parts, " ")
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// Interfaces is the table of the interfaces of a node.
func Interfaces(s *api.Slice, n *slice.Node) *ui.Table {
	t := &ui.Table{Columns: []string{"INTERFACE", "ADDRESSES", "MTU", "MAC", "LINK", "TO"}}
	if len(n.Loopbacks) > 0 {
		t.Row("lo", prefixes(n.Loopbacks), "", "", "", "")
	}
	for _, i := range n.Interfaces {
		var to []string
		if l := s.Spec.Link(i.Link); l != nil {
			for _, e := range l.Ends {
				if e.Node != n.Name || e.Interface != i.Name {
					to = append(to, e.String())
				}
			}
		}
		t.Row(i.Name, prefixes(i.Addresses), strconv.Itoa(i.MTU), i.MAC, i.Link, strings.Join(to, " "))
	}
	return t
}

func prefixes(all []netip.Prefix) string {
	parts := make([]string, len(all))
	for i, p := range all {
		parts[i] = p.String()
	}
	return strings.Join(parts, " ")
}

// Links is the table of links, with what happens to frames that leave their ends. Links of other nodes are left out
// where node is not empty. The ends have a column where some link's name does not say them.
func Links(s *api.Slice, styles ui.Styles, node string) *ui.Table {
	t := &ui.Table{Columns: []string{"LINK", "STATE", "SHAPE"}}
	named := slices.ContainsFunc(s.Spec.Links, hasOwnName)
	if named {
		t.Columns = []string{"LINK", "STATE", "ENDS", "SHAPE"}
	}
	const state = 1
	for i := range s.Spec.Links {
		l := &s.Spec.Links[i]
		if node != "" && !touches(l, node) {
			continue
		}
		if named {
			t.Row(l.Name, linkState(s, l.Name), ends(l), linkShape(s, l))
		} else {
			t.Row(l.Name, linkState(s, l.Name), linkShape(s, l))
		}
	}
	t.Style = func(row, column int) (lipgloss.Style, bool) {
		if column != state {
			return lipgloss.Style{}, false
		}
		return stateStyle(t.Rows[row][state], styles), true
	}
	return t
}

// hasOwnName reports whether the name of a link is not made of its ends.
func hasOwnName(l slice.Link) bool {
	return slices.ContainsFunc(l.Ends, func(e slice.End) bool { return !strings.Contains(l.Name, e.String()) })
}

func touches(l *slice.Link, node string) bool {
	for _, e := range l.Ends {
		if e.Node == node {
			return true
		}
	}
	return false
}

func linkState(s *api.Slice, name string) string {
	st, known := s.Status.Links[name]
	switch {
	case s.Overrides.Down[name]:
		return "cut"
	case !known:
		return string(slice.Pending)
	case st.Up:
		return "up"
	}
	return "down"
}

func ends(l *slice.Link) string {
	names := make([]string, len(l.Ends))
	for i, e := range l.Ends {
		names[i] = e.String()
	}
	return strings.Join(names, " ")
}

// linkShape says what all directions of a link do; one that was changed by hand is marked with a star.
func linkShape(s *api.Slice, l *slice.Link) string {
	texts := make([]string, len(l.Ends))
	same := true
	for i, e := range l.Ends {
		shape, changed := e.Shape, ""
		if over, ok := s.Overrides.Shapes[e.String()]; ok {
			shape, changed = over, "*"
		}
		if texts[i] = ui.Shape(shape); texts[i] != "" {
			texts[i] += changed
		} else if changed != "" {
			texts[i] = "none*"
		}
		same = same && texts[i] == texts[0]
	}
	if same && len(texts) > 0 {
		return texts[0]
	}
	var parts []string
	for i, text := range texts {
		if text != "" {
			parts = append(parts, "from "+l.Ends[i].String()+": "+text)
		}
	}
	return strings.Join(parts, "; ")
}

// LinkState is one link in the JSON of `link ls`.
type LinkState struct {
	Name string    `json:"name"`
	Up   bool      `json:"up"`
	Cut  bool      `json:"cut"` // by `link down`
	Ends []LinkEnd `json:"ends"`
}

// LinkEnd is one end of it, with what happens now to frames that leave it.
type LinkEnd struct {
	End     string      `json:"end"`
	Shape   slice.Shape `json:"shape"`
	Changed bool        `json:"changed"` // by `link set`
}

// LinkStates is the list of links as JSON has it.
func LinkStates(s *api.Slice) []LinkState {
	states := make([]LinkState, 0, len(s.Spec.Links))
	for i := range s.Spec.Links {
		l := &s.Spec.Links[i]
		state := LinkState{Name: l.Name, Up: s.Status.Links[l.Name].Up, Cut: s.Overrides.Down[l.Name]}
		for _, e := range l.Ends {
			over, changed := s.Overrides.Shapes[e.String()]
			end := LinkEnd{End: e.String(), Shape: e.Shape, Changed: changed}
			if changed {
				end.Shape = over
			}
			state.Ends = append(state.Ends, end)
		}
		states = append(states, state)
	}
	return states
}

// Changed reports whether a link was changed by hand.
func Changed(s *api.Slice, l *slice.Link) bool {
	changed := s.Overrides.Down[l.Name]
	for _, e := range l.Ends {
		_, shaped := s.Overrides.Shapes[e.String()]
		changed = changed || shaped
	}
	return changed
}
