package path

import (
	"fmt"
	"math"
)

// Goal is something that the fast path is to reach.
type Goal struct {
	What    string  `json:"what"`
	Value   float64 `json:"value"`           // as measured
	Unit    string  `json:"unit"`            // of it; "x" is a ratio
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

// judge compares what was measured with what is promised. Ratios are to the kernel alone, unless they say otherwise. What was not
// measured is left out.
func (r *Result) judge() []Goal {
	var all []Goal
	for _, g := range r.goals() {
		if math.IsNaN(g.Value) {
			continue
		}
		g.Reached = g.reached()
		all = append(all, g)
	}
	return all
}

func (r *Result) goals() []Goal {
	fast := func(m Measure, routers int) Key { return Key{Measure: m, Network: Fast, Routers: routers} }
	toPlain := func(m Measure, routers int) float64 {
		plain := fast(m, routers)
		plain.Network = Plain
		return r.Ratio(fast(m, routers), plain)
	}
	few := Key{Measure: NIC, Network: Fast, Routers: 1, Routes: Few}
	many := few
	many.Routes = Many
	const long = 16
	return []Goal{
		{What: "NIC to NIC, 1 router, 64 B", Value: toPlain(NIC, 1), Unit: "x", Least: 2.5},
		{What: "NIC to NIC, 16 routers, 64 B", Value: toPlain(NIC, long), Unit: "x", Least: 5},
		{What: "NIC to NIC, each router after the first", Value: r.perHop(fast(NIC, 1), fast(NIC, long)), Unit: "ns", Most: 90},
		{What: "UDP from a socket, 1 router, 64 B", Value: toPlain(UDP, 1), Unit: "x", Least: 1.3},
		{What: "UDP from a socket, 4 routers, 64 B", Value: toPlain(UDP, 4), Unit: "x", Least: 1.8},
		{What: "UDP from a socket, 16 routers, 64 B", Value: toPlain(UDP, long), Unit: "x", Least: 3.5},
		{What: "TCP, 16 routers", Value: toPlain(TCP, long), Unit: "x", Least: 1.5},
		{What: "TCP, 16 routers against 1", Value: r.Ratio(fast(TCP, long), fast(TCP, 1)), Unit: "x", Least: 0.9},
		{What: "round trip, 16 routers, ICMP", Value: toPlain(ICMPTrip, long), Unit: "x", Most: 0.5},
		{What: "round trip, 16 routers, UDP", Value: toPlain(UDPTrip, long), Unit: "x", Most: 0.5},
		{What: "1,000,000 routes against 10, NIC to NIC", Value: r.Ratio(many, few), Unit: "x", Least: 0.85},
	}
}

// perHop is what each further router costs a frame, in nanoseconds.
func (r *Result) perHop(short, long Key) float64 {
	return r.paired(short, long, func(a, b float64) float64 {
		return (1/b - 1/a) * 1e9 / float64(long.Routers-short.Routers)
	})
}
