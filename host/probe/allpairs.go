package probe

import (
	"context"
	"net/netip"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/pergola-net/pergola/model/slice"
)

// AllPairs pings every router and host from every other that links lead to, both families: the check that
// `pergola check` makes of a network whose file has none. Nodes without an address of a family are left out of it; one
// that does not run, and whose addresses are not known for that reason, is a result that failed. Results are ordered by
// sender, then receiver. The error is ctx's.
func (c Checker) AllPairs(ctx context.Context) ([]CheckResult, error) {
	var jobs []*job
	total := 0
	part := map[string]int{}
	for i, names := range c.Slice.Parts() {
		for _, name := range names {
			part[name] = i
		}
	}
	for i := range c.Slice.Nodes {
		if j := c.stopped(&c.Slice.Nodes[i], part); j != nil {
			jobs = append(jobs, j)
			total++
			continue
		}
		for _, ipv6 := range []bool{false, true} {
			if j := c.job(&c.Slice.Nodes[i], ipv6, part); len(j.results) > 0 {
				jobs = append(jobs, j)
				total += len(j.results)
			}
		}
	}
	report := c.reporter(total)
	var g errgroup.Group
	g.SetLimit(c.parallel())
	for _, j := range jobs {
		g.Go(func() error {
			c.work(ctx, j)
			report(len(j.results))
			return nil
		})
	}
	_ = g.Wait() // results carry the errors
	results := make([]CheckResult, 0, total)
	for _, j := range jobs {
		results = append(results, j.results...)
	}
	return results, ctx.Err()
}

// job is all that one node pings in one family.
type job struct {
	from    string
	source  netip.Addr
	results []CheckResult
}

// stopped is a job that fails, for a node that does not run and to which the slice gives no address.
func (c Checker) stopped(n *slice.Node, part map[string]int) *job {
	if Declares(n) || !n.HasSliver() || !c.tries(n.Name) {
		return nil
	}
	if _, runs := c.PID(n.Name); runs {
		return nil
	}
	if !slices.ContainsFunc(c.Slice.Nodes, func(other slice.Node) bool {
		return other.Name != n.Name && other.HasSliver() && part[other.Name] == part[n.Name]
	}) {
		return nil
	}
	return &job{from: n.Name, results: []CheckResult{
		{Name: n.Name + " reaches others", Kind: slice.CheckPing, From: n.Name},
	}}
}

// job lists the nodes of the same part of the network.
func (c Checker) job(from *slice.Node, ipv6 bool, part map[string]int) *job {
	j := &job{from: from.Name}
	source, ok := c.address(from, ipv6)
	if !ok || !from.HasSliver() || !c.tries(from.Name) {
		return j
	}
	j.source = source
	for i := range c.Slice.Nodes {
		to := &c.Slice.Nodes[i]
		target, ok := c.address(to, ipv6)
		if !ok || to == from || !to.HasSliver() || part[to.Name] != part[from.Name] {
			continue
		}
		j.results = append(j.results, CheckResult{
			Name: from.Name + " reaches " + to.Name, Kind: slice.CheckPing, From: from.Name, To: to.Name,
			Address: target,
		})
	}
	return j
}

// work fills in the job's results.
func (c Checker) work(ctx context.Context, j *job) {
	fail := func(why string) {
		for i := range j.results {
			j.results[i].Message = why
		}
	}
	pid, ok := c.PID(j.from)
	if !ok {
		fail("cannot be tried: node " + j.from + " does not run")
		return
	}
	targets := make([]netip.Addr, len(j.results))
	for i, r := range j.results {
		targets[i] = r.Address
	}
	pings, err := Ping(ctx, pid, targets, PingOptions{Timeout: pairTimeout, Source: j.source})
	if err != nil {
		fail("cannot be tried: " + err.Error())
		return
	}
	for i, p := range pings {
		r := &j.results[i]
		r.OK, r.RTT, r.Duration = p.Err == nil, p.RTT, p.RTT
		if p.Err != nil {
			r.Message = p.Err.Error()
		}
	}
}

// pairTimeout is long enough for a path of many delayed links.
const pairTimeout = defaultCheckTimeout
