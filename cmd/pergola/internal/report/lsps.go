package report

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/charmbracelet/lipgloss"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
)

// LSP is a label-switched path, as JSON has it.
type LSP struct {
	Name string         `json:"name"`
	Up   bool           `json:"up"`
	To   []netip.Prefix `json:"to"`
	TTL  slice.TTLModel `json:"ttl"`
	Hops []LSPHop       `json:"hops"`
}

// LSPHop is a router on it.
type LSPHop struct {
	slice.Hop
	Problem string `json:"problem,omitempty"`
}

// notAsked is the problem of a router whose host has not answered.
const notAsked = "its host has not answered"

// LSPs joins what a network is to have with what its hosts say of it.
func LSPs(spec *slice.Slice, is *api.SliceLSPs) []LSP {
	type hop struct{ lsp, node string }
	known := make(map[hop]string, len(is.Hops))
	for _, h := range is.Hops {
		known[hop{h.LSP, h.Node}] = h.Problem
	}
	all := make([]LSP, 0, len(spec.LSPs))
	for i := range spec.LSPs {
		l := &spec.LSPs[i]
		out := LSP{Name: l.Name, Up: true, To: l.To, TTL: l.TTL}
		if out.TTL == "" {
			out.TTL = slice.Uniform
		}
		for _, h := range l.Hops {
			problem, answered := known[hop{l.Name, h.Node}]
			if !answered {
				problem = notAsked
			}
			out.Up = out.Up && problem == ""
			out.Hops = append(out.Hops, LSPHop{h, problem})
		}
		all = append(all, out)
	}
	return all
}

// LSPTable has a line for each LSP. Why it is down has a column where some are.
func LSPTable(all []LSP, styles ui.Styles) *ui.Table {
	t := &ui.Table{Columns: []string{"LSP", "STATE", "PATH", "TO"}}
	down := false
	for i := range all {
		down = down || !all[i].Up
	}
	if down {
		t.Columns = append(t.Columns, "WHY")
	}
	for i := range all {
		l := &all[i]
		row := []string{l.Name, upOrDown(l.Up), pathOf(l), prefixes(l.To)}
		if down {
			row = append(row, problems(l))
		}
		t.Row(row...)
	}
	return withStates(t, styles, 1)
}

// LSPHops has a line for each router of an LSP.
func LSPHops(l *LSP, styles ui.Styles) *ui.Table {
	t := &ui.Table{Columns: []string{"ROUTER", "STATE", "IN", "LABEL", "DOES", "OUT", "LABEL", "WHY"}}
	if l.Up {
		t.Columns = t.Columns[:7]
	}
	for i, h := range l.Hops {
		in, out, does := "", "", "pop"
		if i > 0 {
			in = labelText(h.Label)
		}
		if i < len(l.Hops)-1 {
			out = labelText(l.Hops[i+1].Label)
			switch {
			case i == 0:
				does = "push"
			case out != "":
				does = "swap"
			}
		} else if in == "" {
			does = "route"
		}
		row := []string{h.Node, upOrDown(h.Problem == ""), h.In, in, does, h.Out, out}
		if !l.Up {
			row = append(row, h.Problem)
		}
		t.Row(row...)
	}
	return withStates(t, styles, 1)
}

func withStates(t *ui.Table, styles ui.Styles, state int) *ui.Table {
	t.Style = func(row, column int) (lipgloss.Style, bool) {
		if column != state {
			return lipgloss.Style{}, false
		}
		return stateStyle(t.Rows[row][state], styles), true
	}
	return t
}

func upOrDown(up bool) string {
	if up {
		return "up"
	}
	return "down"
}

// pathOf writes the labels between the routers: "pe1 -16> p1 -> pe2".
func pathOf(l *LSP) string {
	var b strings.Builder
	for i, h := range l.Hops {
		if i > 0 {
			fmt.Fprintf(&b, " -%s> ", labelText(h.Label))
		}
		b.WriteString(h.Node)
	}
	return b.String()
}

// labelText is empty where packets come without a label.
func labelText(label uint32) string {
	if label == slice.ImplicitNull {
		return ""
	}
	return strconv.FormatUint(uint64(label), 10)
}

func problems(l *LSP) string {
	var all []string
	for _, h := range l.Hops {
		if h.Problem != "" {
			all = append(all, h.Node+": "+h.Problem)
		}
	}
	return strings.Join(all, "; ")
}
