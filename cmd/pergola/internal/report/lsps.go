package report

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/lipgloss"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/unit"
)

// LSP is a label-switched path, as JSON has it.
type LSP struct {
	Name string         `json:"name"`
	Up   bool           `json:"up"`
	To   []netip.Prefix `json:"to"`
	// Match are the rules of one that is for packets that match, and not for prefixes.
	Match []topology.Match `json:"match,omitempty"`
	TTL   slice.TTLModel   `json:"ttl"`
	// Hops are the routers of the path. Of one that is signalled and not up, those that its path is to have.
	Hops []LSPHop `json:"hops"`
	// Signal is what was asked for of one that is signalled; nil: it is static.
	Signal *slice.Signal `json:"signal,omitempty"`
	// Problem says why one that is signalled is not up, or why it is not as it was asked for.
	Problem   string    `json:"problem,omitempty"`
	ID        uint16    `json:"lsp_id,omitempty"`
	Bandwidth unit.Rate `json:"bandwidth,omitempty"` // that it has, in bit/s
	Since     time.Time `json:"since,omitzero"`
	// Excess says what becomes of what exceeds the bandwidth, and Measured what was within it, and what was not.
	Excess   slice.Excess    `json:"excess,omitempty"`
	Measured *api.LSPTraffic `json:"measured,omitempty"`
	ByHand   bool            `json:"by_hand,omitempty"` // it is not in the file

	number uint16 // slice.Signal.Number of what it is
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
		out := LSP{Name: l.Name, Up: true, To: l.To, TTL: l.TTL, Signal: l.Signal, ByHand: l.ByHand}
		for _, m := range l.Match {
			out.Match = append(out.Match, topology.MatchOf(m))
		}
		if out.TTL == "" {
			out.TTL = slice.Uniform
		}
		if l.Signal != nil {
			out.signalled(l, is)
			all = append(all, out)
			continue
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

// signalled takes over what the host of the ingress says.
func (l *LSP) signalled(spec *slice.LSP, all *api.SliceLSPs) {
	is, hops := api.SignalledLSP{Problem: notAsked}, spec.Hops
	// They are sorted by name.
	i, ok := slices.BinarySearchFunc(all.Signalled, l.Name, func(s api.SignalledLSP, name string) int {
		return cmp.Compare(s.LSP, name)
	})
	if ok {
		is = all.Signalled[i]
	}
	if len(is.Hops) > 0 {
		hops = is.Hops
	}
	l.Up, l.Problem, l.ID, l.number, l.Bandwidth, l.Since = is.Up, is.Problem, is.ID, is.Number,
		is.Bandwidth, is.Since
	if l.Measured = is.Measured; spec.Signal.Bandwidth != 0 {
		l.Excess = cmp.Or(spec.Excess, slice.Demote)
	}
	for _, h := range hops {
		l.Hops = append(l.Hops, LSPHop{Hop: h})
	}
}

// AsAsked reports whether an LSP is up, and as it was asked for last.
func (l *LSP) AsAsked() bool {
	return l.Up && l.Problem == "" && (l.Signal == nil || l.number == l.Signal.Number)
}

// packets says which packets go by it.
func (l *LSP) packets() string {
	if len(l.Match) == 0 {
		return prefixes(l.To)
	}
	rules := make([]string, len(l.Match))
	for i, m := range l.Match {
		rules[i] = m.String()
	}
	return strings.Join(rules, " ")
}

// isPath reports whether the hops are the way that packets take.
func (l *LSP) isPath() bool { return l.Signal == nil || l.Up }

// LSPTable has a line for each LSP. Why it is down has a column where some are.
func LSPTable(all []LSP, styles ui.Styles) *ui.Table {
	t := &ui.Table{Columns: []string{"LSP", "STATE", "PATH", "TO"}}
	problem, signalled := false, false
	for i := range all {
		problem = problem || all[i].Why() != ""
		signalled = signalled || all[i].Signal != nil
	}
	if signalled {
		t.Columns = append(t.Columns, "RESERVED")
	}
	if problem {
		t.Columns = append(t.Columns, "WHY")
	}
	for i := range all {
		l := &all[i]
		row := []string{l.Name, upOrDown(l.Up), l.Way(), l.packets()}
		if signalled {
			row = append(row, reserved(l))
		}
		if problem {
			row = append(row, l.Why())
		}
		t.Row(row...)
	}
	return withStates(t, styles, 1)
}

// SignalledLSP has what was asked for of an LSP that is signalled, and what it has.
func SignalledLSP(l *LSP, styles ui.Styles) *ui.Table {
	t := &ui.Table{Columns: []string{"LSP", "STATE", "LSP ID", "ASKED FOR", "RESERVED", "PRIORITIES", "WHY"}}
	if l.Problem == "" {
		t.Columns = t.Columns[:6]
	}
	asked := "no bandwidth"
	if l.Signal.Bandwidth != 0 {
		asked = l.Signal.Bandwidth.String()
	}
	row := []string{l.Name, upOrDown(l.Up), strconv.Itoa(int(l.ID)), asked, reserved(l),
		fmt.Sprintf("%d/%d", l.Signal.Setup, l.Signal.Holding)}
	if l.Problem != "" {
		row = append(row, l.Problem)
	}
	t.Row(row...)
	return withStates(t, styles, 1)
}

// LSPTraffic has what an LSP has carried within its reservation, and in excess of it, and its processor time.
func LSPTraffic(l *LSP) *ui.Table {
	m := l.Measured
	t := &ui.Table{Columns: []string{"", "FRAMES", "BYTES", "TIME", "EACH"}}
	excess := "demoted"
	if l.Excess == slice.Drop {
		excess = "dropped"
	}
	frames, took, each := m.Frames+m.ExcessFrames, time.Duration(m.Seconds*float64(time.Second)), "-"
	if frames > 0 {
		each = (took / time.Duration(frames)).String()
	}
	t.Row("reserved", strconv.FormatUint(m.Frames, 10), strconv.FormatUint(m.Bytes, 10), "", "")
	t.Row(excess, strconv.FormatUint(m.ExcessFrames, 10), strconv.FormatUint(m.ExcessBytes, 10), "", "")
	t.Row("all", strconv.FormatUint(frames, 10), strconv.FormatUint(m.Bytes+m.ExcessBytes, 10),
		took.Round(time.Microsecond).String(), each)
	return t
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

// reserved is the bandwidth that an LSP has.
func reserved(l *LSP) string {
	if l.Bandwidth == 0 {
		return ""
	}
	return l.Bandwidth.String()
}

// Way writes the labels between the routers: "pe1 -16> p1 -> pe2".
func (l *LSP) Way() string {
	var b strings.Builder
	for i, h := range l.Hops {
		switch {
		case i > 0 && l.isPath():
			fmt.Fprintf(&b, " -%s> ", labelText(h.Label))
		case i > 0 && h.In == "":
			b.WriteString(" .. ")
		case i > 0:
			b.WriteString(" - ")
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

// Why says what is wrong with an LSP; empty: nothing.
func (l *LSP) Why() string {
	var all []string
	if l.Problem != "" {
		all = append(all, l.Problem)
	}
	for _, h := range l.Hops {
		if h.Problem != "" {
			all = append(all, h.Node+": "+h.Problem)
		}
	}
	return strings.Join(all, "; ")
}
