package controller

import (
	"fmt"

	"github.com/docker/go-units"

	"github.com/pergola-net/pergola/model/slice"
)

// overcommitted warns of what the nodes of a slice declare that this machine does not have: each node that alone
// declares more than there is, and else, or beside these, their sum. It is no error, because cpu and memory are limits:
// nodes may use less. In a cluster, what nodes declare is theirs, and placement refuses what does not fit.
func (c *Controller) overcommitted(prev, next *slice.Slice) (warnings []string) {
	if prev != nil && Diff(prev, next).Empty() {
		return nil
	}
	cores, memory := c.host.Capacity()
	for _, r := range []struct {
		key, has string
		capacity float64
		declared func(*slice.Node) float64
		amount   func(float64) string
	}{
		{
			"cpu", "cores", cores, func(n *slice.Node) float64 { return n.CPU },
			func(f float64) string { return fmt.Sprintf("%.4g", f) },
		},
		{
			"memory", "of memory", float64(memory),
			func(n *slice.Node) float64 { return float64(n.Memory) }, inBytes,
		},
	} {
		if r.capacity == 0 {
			continue
		}
		var sum float64
		var large []string
		nodes := 0
		for i := range next.Nodes {
			n := &next.Nodes[i]
			declared := r.declared(n)
			if declared == 0 {
				continue
			}
			nodes++
			sum += declared
			if declared > r.capacity {
				large = append(large, fmt.Sprintf("%s (%s)", n.Name, r.amount(declared)))
			}
		}
		has := "this machine has " + r.amount(r.capacity) + " " + r.has
		if len(large) > 0 {
			warnings = append(warnings, fmt.Sprintf("%s of %s is more than there is: %s", r.key,
				list(large), has))
		}
		if nodes > 1 && sum > r.capacity {
			warnings = append(warnings, fmt.Sprintf("the %s of %d nodes is %s together, and %s: they "+
				"cannot all use what they declare at the same time", r.key, nodes, r.amount(sum), has))
		}
	}
	return warnings
}

// inBytes words an amount of memory: 7.8GiB.
func inBytes(bytes float64) string {
	return units.CustomSize("%.4g%s", bytes, 1024, []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"})
}
