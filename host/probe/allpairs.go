package probe

import (
	"context"
	"net/netip"

	"golang.org/x/sync/errgroup"

	"github.com/pergola-net/pergola/model/slice"
)

// AllPairs pings every router and host from every other that links lead to, both families: the check that
// `pergola check` makes of a network whose file has none. Nodes without an address of a family are left out of it.
// Results are ordered by sender, then receiver. The error is ctx's.
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

// job lists the nodes of the same part of the network.
func (c Checker) job(from *slice.Node, ipv6 bool, part map[string]int) *job {
	j := &job{from: from.Name}
	source, ok := from.Address(ipv6)
	if !ok || !from.HasSliver() || !c.tries(from.Name) {
		return j
	}
	j.source = source
	for i := range c.Slice.Nodes {
		to := &c.Slice.Nodes[i]
		target, ok := to.Address(ipv6)
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
