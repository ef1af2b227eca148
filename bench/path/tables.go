package path

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/pergola-net/pergola/bench/rounds"
)

// Title is the network's name for people.
func (n Network) Title() string {
	return map[Network]string{
		Fast: "Pergola", Off: "Pergola, fast path off", Plain: "kernel alone", Mininet: "Mininet",
		OVS: "Open vSwitch", Relay: "a relay",
	}[n]
}

// Networks lists them, in the order of columns.
var Networks = []Network{Fast, Off, Plain, Mininet, OVS, Relay}

// Title says for people what is measured.
func (m Measure) Title() string {
	return map[Measure]string{
		NIC: "NIC to NIC, 64 B", UDP: "UDP from a socket, 64 B", TCP: "TCP", ICMPTrip: "round trip, ICMP",
		UDPTrip: "round trip, UDP",
	}[m]
}

// Unit is the one for people, and how many of it are one of the series' own.
func (m Measure) Unit() (name string, factor float64) {
	switch m {
	case NIC, UDP:
		return "Mframes/s", 1e-6
	case TCP:
		return "Gbit/s", 1e-9
	default:
		return "us", 1e6
	}
}

// IsTime reports whether the measure is a time, of which less is better; the others are rates.
func (m Measure) IsTime() bool { return m == ICMPTrip || m == UDPTrip }

// Table is text in rows and columns.
type Table = rounds.Table

// GoalTable says what is promised and what is reached.
func (r *Result) GoalTable() Table {
	t := Table{Columns: []string{"what", "Pergola", "compared with", "ratio", "goal", "reached"}}
	for _, g := range r.Goals {
		reached := "yes"
		if !g.Reached {
			reached = "missed"
		}
		t.Rows = append(t.Rows, []string{
			g.What, r.figure(g.Of), r.figure(g.To) + g.apart(),
			fmt.Sprintf("%s %s", rounds.Number(g.Value), g.Unit), g.Wanted(), reached,
		})
	}
	return t
}

// figure is a series' median with its unit.
func (r *Result) figure(k Key) string {
	unit, factor := k.Measure.Unit()
	return rounds.Number(r.Median(k)*factor) + " " + unit
}

// apart says in what the two sides of a comparison differ.
func (g Goal) apart() string {
	switch {
	case g.Of.Network != g.To.Network:
		return fmt.Sprintf(" (%s)", g.To.Network.Title())
	case g.Of.Routers != g.To.Routers:
		return fmt.Sprintf(" (%d router)", g.To.Routers)
	}
	return fmt.Sprintf(" (%d routes)", g.To.Routes)
}

// SeriesTable has the medians of all series: a row for each thing measured, a column for each network, and in
// brackets how many times better the fast path is.
func (r *Result) SeriesTable() Table {
	t := Table{Columns: []string{"what", "routers", "unit"}}
	var present []Network
	for _, n := range Networks {
		if slices.ContainsFunc(r.Series, func(s Series) bool { return s.Network == n }) {
			present = append(present, n)
			t.Columns = append(t.Columns, n.Title())
		}
	}
	var keys []Key
	for _, s := range r.Series {
		k := s.Key
		k.Network = ""
		if !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	slices.SortStableFunc(keys, func(a, b Key) int { return a.order() - b.order() })
	for _, k := range keys {
		what := k.Measure.Title()
		if k.Routes != 0 {
			what += fmt.Sprintf(", %d routes", k.Routes)
		}
		unit, factor := k.Measure.Unit()
		cells := []string{what, strconv.Itoa(k.Routers), unit}
		for _, n := range present {
			k.Network = n
			cells = append(cells, rounds.Number(r.Median(k)*factor)+r.brackets(k))
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

func (r *Result) brackets(k Key) string {
	fast := k
	fast.Network = Fast
	times := r.Ratio(fast, k)
	if k.Measure.IsTime() {
		times = r.Ratio(k, fast)
	}
	if k.Network == Fast || math.IsNaN(times) {
		return ""
	}
	return fmt.Sprintf(" (%s)", rounds.Number(times))
}

// Caveats says what a reader must know of the figures.
func (r *Result) Caveats() []string {
	all := r.Counts.Caveats()
	for _, s := range r.Series {
		what := fmt.Sprintf("%s, %d routers, %s", s.Measure.Title(), s.Routers, s.Network.Title())
		if len(s.Samples) < r.Rounds {
			all = append(all, fmt.Sprintf("%s: %d of %d rounds had a window without that.", what,
				len(s.Samples), r.Rounds))
		}
		if s.Slow > 0.01 {
			all = append(all, fmt.Sprintf("%s: up to %.0f %% of the frames went through "+
				"the first router's kernel.", what, s.Slow*100))
		}
	}
	for _, m := range r.Missing {
		all = append(all, fmt.Sprintf("%s was not measured: %s.", m.What, m.Why))
	}
	return all
}
