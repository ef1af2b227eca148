package path

import (
	"fmt"
	"math"
)

// Goal is something that the fast path is to reach.
type Goal struct {
	What    string  `json:"what"`
	Of      Key     `json:"of"` // the value compares this
	To      Key     `json:"to"` // with this
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`            // of the value; "x" is a ratio
	Least   float64 `json:"least,omitempty"` // it must not be below; 0: nothing said
	Most    float64 `json:"most,omitempty"`  // nor above; 0: nothing said
	Reached bool    `json:"reached"`
}

func (g Goal) reached() bool {
	return (g.Least == 0 || g.Value >= g.Least) && (g.Most == 0 || g.Value <= g.Most)
}

// Wanted is the goal in words.
func (g Goal) Wanted() string {
	if g.Most != 0 {
		return fmt.Sprintf("at most %g %s", g.Most, g.Unit)
	}
	return fmt.Sprintf("at least %g %s", g.Least, g.Unit)
}

// Few and Many are the numbers of routes that are compared.
const (
	Few  = 10
	Many = 1_000_000
)

// judge compares what was measured with what is promised. What was not measured is left out.
func (r *Result) judge() []Goal {
	var all []Goal
	for _, g := range goals() {
		g.Value = r.Ratio(g.Of, g.To)
		if g.Unit == "ns" {
			g.Value = r.perHop(g.To, g.Of)
		}
		if math.IsNaN(g.Value) {
			continue
		}
		g.Reached = g.reached()
		all = append(all, g)
	}
	return all
}

func goals() []Goal {
	const long = 16
	fast := func(m Measure, routers int) Key { return Key{Measure: m, Network: Fast, Routers: routers} }
	plain := func(m Measure, routers int) Key { return Key{Measure: m, Network: Plain, Routers: routers} }
	few := Key{Measure: NIC, Network: Fast, Routers: 1, Routes: Few}
	many := few
	many.Routes = Many
	all := []Goal{
		{What: "NIC to NIC, 1 router, 64 B", Of: fast(NIC, 1), Least: 2.5},
		{What: "NIC to NIC, 16 routers, 64 B", Of: fast(NIC, long), Least: 5},
		{What: "NIC to NIC, each router after the first", Of: fast(NIC, long), To: fast(NIC, 1),
			Unit: "ns", Most: 90},
		{What: "UDP from a socket, 1 router, 64 B", Of: fast(UDP, 1), Least: 1.3},
		{What: "UDP from a socket, 4 routers, 64 B", Of: fast(UDP, 4), Least: 1.8},
		{What: "UDP from a socket, 16 routers, 64 B", Of: fast(UDP, long), Least: 3.5},
		{What: "TCP, 16 routers", Of: fast(TCP, long), Least: 1.5},
		{What: "TCP, 16 routers against 1", Of: fast(TCP, long), To: fast(TCP, 1), Least: 0.9},
		{What: "round trip, 16 routers, ICMP", Of: fast(ICMPTrip, long), Most: 0.5},
		{What: "round trip, 16 routers, UDP", Of: fast(UDPTrip, long), Most: 0.5},
		{What: "1,000,000 routes against 10, NIC to NIC", Of: many, To: few, Least: 0.85},
	}
	for i, g := range all {
		if g.To == (Key{}) {
			all[i].To = plain(g.Of.Measure, g.Of.Routers)
		}
		if g.Unit == "" {
			all[i].Unit = "x"
		}
	}
	return all
}

// perHop is what each further router costs a frame, in nanoseconds.
func (r *Result) perHop(short, long Key) float64 {
	return r.paired(short, long, func(a, b float64) float64 {
		return (1/b - 1/a) * 1e9 / float64(long.Routers-short.Routers)
	})
}
