package resolve

import (
	"slices"
	"strings"
	"time"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
)

// longestDelay is a limit against a typing error: nothing else says why a node is not started for days.
const longestDelay = time.Hour

func (r *resolver) startDelay(n *node) time.Duration {
	delay := checked(n.all.Delay.Duration())
	if delay < 0 || delay > longestDelay {
		r.Add(n.at.At("start_delay"), "", "delay %s is out of range: up to 1h", n.all.Delay)
	}
	return delay
}

// checkWaits finds the nodes that others wait for. None may wait for itself, by others.
func (r *resolver) checkWaits() {
	byName, names := make(map[string]*node, len(r.nodes)), make([]string, 0, len(r.nodes))
	for _, n := range r.nodes {
		byName[n.name] = n
		names = append(names, n.name)
	}
	for _, n := range r.nodes {
		for i, text := range n.all.WaitFor {
			at := n.at.At("wait_for").Item(i)
			w, err := slice.ParseWaitFor(text)
			other := byName[w.Node]
			switch {
			case err != nil:
				r.Add(at, "write a node's name, and :ready or :exited behind it", "%v", err)
			case other == nil:
				r.Add(at, diagnostic.Suggest(w.Node, names), "there is no node %q to wait for", w.Node)
			case !other.out.HasSliver():
				r.Add(at, "", "%q has no process to wait for", w.Node)
			case w.Until == slice.UntilExited && other.out.Restart != slice.RestartNever &&
				other.out.Restart != slice.RestartOnFailure:
				r.Add(at, "write restart: never or on-failure at "+w.Node,
					"%q is started again whenever it ends: nothing can wait for its end", w.Node)
			default:
				n.out.WaitFor = append(n.out.WaitFor, w)
			}
		}
	}
	r.checkCircles(byName)
}

// checkCircles reports each circle of nodes that wait for each other, once.
func (r *resolver) checkCircles(byName map[string]*node) {
	done := map[string]bool{}
	var follow func(n *node, behind []string)
	follow = func(n *node, behind []string) {
		if i := slices.Index(behind, n.name); i >= 0 {
			r.Add(byName[n.name].at.At("wait_for"), "", "nodes wait for each other: %s",
				strings.Join(append(behind[i:], n.name), " for "))
			return
		}
		if done[n.name] {
			return
		}
		behind = append(behind[:len(behind):len(behind)], n.name)
		for _, w := range n.out.WaitFor {
			follow(byName[w.Node], behind)
		}
		done[n.name] = true
	}
	for _, n := range r.nodes {
		follow(n, nil)
	}
}
