package bench

import (
	"cmp"
	"slices"
	"time"

	"github.com/pergola-net/pergola/mapping"
)

// Solver maps a request.
type Solver func(mapping.Substrate, mapping.Request) (mapping.Mapping, error)

// Result is what a solver has done with a scenario, in Virne's terms.
type Result struct {
	Requests, Accepted int
	// Revenue of a request is the sum of what its nodes and links ask; its cost is that of its nodes, and of its
	// links the bandwidth on all trunks together. Both are here multiplied by the lifetime of what was accepted.
	Revenue, Cost float64
	Time, Slowest time.Duration // that the solver took: together, and of one request
	Until         float64       // when the last request arrived
}

// Acceptance is the part of the requests that was accepted, 0 to 1.
func (r *Result) Acceptance() float64 { return float64(r.Accepted) / float64(r.Requests) }

// Ratio is revenue by cost, with lifetimes: what Virne calls LRC, or long_term_time_r2c_ratio.
func (r *Result) Ratio() float64 { return r.Revenue / r.Cost }

// RevenueRate is the revenue in a unit of time: what Virne calls LAR.
func (r *Result) RevenueRate() float64 { return r.Revenue / r.Until }

// Each is the time of one request.
func (r *Result) Each() time.Duration { return r.Time / time.Duration(max(r.Requests, 1)) }

// Play lets requests of a scenario arrive and leave. The scenario is as it was afterwards.
func Play(sc Scenario, solve Solver) (result Result) {
	st := newStock(sc.Substrate)
	type departure struct {
		at float64
		mapped
	}
	var present []departure
	for i := range sc.Arrivals {
		a := &sc.Arrivals[i]
		present = slices.DeleteFunc(present, func(d departure) bool {
			if d.at > a.At {
				return false
			}
			st.hold(d.mapped, -1)
			return true
		})
		begun := time.Now()
		m, err := solve(st.Substrate, a.Request)
		took := time.Since(begun)
		result.Requests++
		result.Time, result.Slowest, result.Until = result.Time+took, max(result.Slowest, took), a.At
		if err != nil {
			continue
		}
		d := departure{a.At + a.Lifetime, mapped{&a.Request, m}}
		st.hold(d.mapped, 1)
		present = append(present, d)
		result.Accepted++
		nodes, links := Asks(&a.Request)
		result.Revenue += (nodes + links) * a.Lifetime
		result.Cost += (nodes + m.Cost(&a.Request)) * a.Lifetime
	}
	return result
}

// Asks sums what the nodes and the links of a request ask.
func Asks(r *mapping.Request) (nodes, links float64) {
	for i := range r.Nodes {
		nodes += r.Nodes[i].Demand[Cores]
	}
	for i := range r.Links {
		links += r.Links[i].Bandwidth
	}
	return nodes, links
}

// mapped is a request and where it is.
type mapped struct {
	request *mapping.Request
	mapping mapping.Mapping
}

// stock is a substrate of which requests hold something.
type stock struct {
	mapping.Substrate
	host map[string]int
}

func newStock(s mapping.Substrate) *stock {
	st := &stock{Substrate: mapping.Substrate{Hosts: slices.Clone(s.Hosts), Routers: s.Routers,
		Trunks: slices.Clone(s.Trunks)}, host: map[string]int{}}
	for i := range st.Hosts {
		h := &st.Hosts[i]
		st.host[h.Name], h.Used = i, map[string]float64{Cores: h.Used[Cores]}
	}
	return st
}

// hold takes what a mapped request asks, or gives it back (by -1).
func (st *stock) hold(m mapped, by float64) {
	for i := range m.request.Nodes {
		n := &m.request.Nodes[i]
		st.Hosts[st.host[m.mapping.Hosts[n.Name]]].Used[Cores] += by * n.Demand[Cores]
	}
	for l, path := range m.mapping.Paths {
		for _, t := range path {
			st.Trunks[t].Used += by * m.request.Links[l].Bandwidth
		}
	}
}

// Mean is the mean of results, each of which counts the same.
func Mean(results []Result, of func(r *Result) float64) float64 {
	sum := 0.0
	for i := range results {
		sum += of(&results[i])
	}
	return sum / float64(max(len(results), 1))
}

// Longest is the greatest time of one request in any of the results.
func Longest(results []Result) time.Duration {
	return slices.MaxFunc(results, func(a, b Result) int { return cmp.Compare(a.Slowest, b.Slowest) }).Slowest
}
