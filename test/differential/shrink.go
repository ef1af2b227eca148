package differential

import (
	"slices"

	"github.com/pergola-net/pergola/lab/vnet"
)

// shrink leaves out as much of a failing case as it can while the case still fails, within so many attempts.
func shrink(c *testcase, attempts int, fails func(*testcase) bool) *testcase {
	try := func(smaller *testcase) bool {
		if attempts <= 0 {
			return false
		}
		attempts--
		if !fails(smaller) {
			return false
		}
		c = smaller
		return true
	}
	for before := -1; attempts > 0 && before != c.size(); {
		before = c.size()
		reduce(len(c.steps), func(from, to int) bool { return try(c.withoutSteps(from, to)) })
		for i := range c.steps {
			reduce(len(c.steps[i].frames), func(from, to int) bool {
				return try(c.withoutFrames(i, from, to))
			})
		}
		for i := len(c.plan.Nodes) - 1; i >= 0; i-- {
			try(c.withoutNode(i))
		}
		for i := len(c.plan.Links) - 1; i >= 0; i-- {
			try(c.withoutLink(i))
		}
		for i := range c.plan.Nodes {
			reduce(len(c.plan.Nodes[i].Routes), func(from, to int) bool {
				return try(c.withoutRoutes(i, from, to))
			})
		}
	}
	return c
}

// reduce offers to leave out ever smaller ranges of n things, from the end.
func reduce(n int, without func(from, to int) bool) {
	for size := n; size > 0; size /= 2 {
		for to := n; to > 0; to -= size {
			from := max(0, to-size)
			if without(from, to) {
				n -= to - from
			}
		}
	}
}

func (c *testcase) size() int {
	n := c.frames() + len(c.steps) + len(c.plan.Nodes) + len(c.plan.Links)
	for _, p := range c.plan.Nodes {
		n += len(p.Routes)
	}
	return n
}

func (c *testcase) clone() *testcase {
	d := *c
	d.steps = slices.Clone(c.steps)
	d.plan.Nodes, d.plan.Links = slices.Clone(c.plan.Nodes), slices.Clone(c.plan.Links)
	return &d
}

// without gives a new slice: the old one stays as it is.
func without[T any](all []T, from, to int) []T {
	return append(append([]T{}, all[:from]...), all[to:]...)
}

func (c *testcase) withoutSteps(from, to int) *testcase {
	d := c.clone()
	d.steps = without(c.steps, from, to)
	return d
}

func (c *testcase) withoutFrames(step, from, to int) *testcase {
	d := c.clone()
	d.steps[step].frames = without(c.steps[step].frames, from, to)
	return d
}

func (c *testcase) withoutRoutes(node, from, to int) *testcase {
	d := c.clone()
	d.plan.Nodes[node].Routes = without(c.plan.Nodes[node].Routes, from, to)
	return d
}

// withoutNode leaves out a node, the links that are then without a second end, and what depends on these.
func (c *testcase) withoutNode(i int) *testcase {
	d := c.clone()
	name := c.plan.Nodes[i].Name
	d.plan.Nodes = without(c.plan.Nodes, i, i+1)
	for l := len(d.plan.Links) - 1; l >= 0; l-- {
		link := d.plan.Links[l]
		link.Ends = slices.DeleteFunc(slices.Clone(link.Ends), func(e vnet.End) bool { return e.Node == name })
		d.plan.Links[l] = link
		if len(link.Ends) < 2 {
			d = d.withoutLink(l)
		}
	}
	return d
}

// withoutLink leaves out a link, and the routes and neighbours that need it.
func (c *testcase) withoutLink(i int) *testcase {
	d := c.clone()
	gone := c.plan.Links[i].Ends
	d.plan.Links = without(c.plan.Links, i, i+1)
	for n := range d.plan.Nodes {
		node := &d.plan.Nodes[n]
		on := func(name string) bool {
			return slices.ContainsFunc(gone, func(e vnet.End) bool {
				return e.Node == node.Name && e.Interface == name
			})
		}
		node.Neighbours = slices.DeleteFunc(slices.Clone(node.Neighbours), func(b vnet.Neighbour) bool {
			return on(b.Interface)
		})
		node.Routes = slices.DeleteFunc(slices.Clone(node.Routes), func(r vnet.Route) bool {
			return slices.ContainsFunc(r.Hops, func(h vnet.Hop) bool { return on(h.Interface) })
		})
		withoutObjects(node, on)
	}
	return d
}
