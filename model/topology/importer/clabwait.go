package importer

import (
	"maps"
	"slices"
	"strconv"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
	"github.com/pergola-net/pergola/model/topology/yamltree"
)

// reached says until when one waits that waits for a node to reach a stage: links are there before anything is started,
// and what is healthy, pergola check finds out.
var reached = map[string]slice.Until{
	"create": slice.UntilRunning, "create-links": slice.UntilRunning,
	"configure": slice.UntilReady, "healthy": slice.UntilReady, "exit": slice.UntilExited,
}

// waiting is a node, and what it waits for, by the names that they have here.
type waiting struct{ node, wait string }

// waits reads when a node is started: after a delay, and after others.
func (c *clab) waits(n *clabNode, out *topology.Node) {
	if at := n.find("startup-delay"); at.Kind != yamltree.Null {
		seconds, err := strconv.Atoi(c.str(at, "startup-delay"))
		if err != nil || seconds < 0 {
			c.fail(at.Position, "a number of seconds", "startup-delay %q of node %q is not a number",
				at.Text, n.name)
		}
		out.Delay = topology.Duration(strconv.Itoa(seconds) + "s")
	}
	for _, level := range slices.Backward(n.levels) {
		for _, stage := range level.Field("stages").Entries {
			list := stage.Value.Field("wait-for")
			if list.Kind == yamltree.Null || !c.want(list, yamltree.List, "wait-for of stage "+stage.Key) {
				continue
			}
			if !contains(stagesBefore, stage.Key) {
				c.leaveAt(n.name, "wait-for of stage "+stage.Key, list.Position,
					lack{changesNodes, "only the start of a node waits for others"})
				continue
			}
			for _, item := range list.Items {
				c.wait(n, out, item)
			}
		}
	}
}

func (c *clab) wait(n *clabNode, out *topology.Node, item *yamltree.Node) {
	node, stage := c.str(item.Field("node"), "node"), c.str(item.Field("stage"), "stage")
	name, known := c.renamed[node]
	until, ok := reached[stage]
	switch {
	case !known:
		hint := diagnostic.Suggest(node, slices.Collect(maps.Keys(c.renamed)))
		c.fail(item.Position, hint, "node %q waits for %q, which does not exist", n.name, node)
		return
	case !ok:
		c.fail(item.Position, "create, create-links, configure, healthy or exit", "there is no stage %q", stage)
		return
	case stage == "healthy":
		c.leaveAt(n.name, "wait-for: healthy", item.Position, lack{changesNodes,
			"it waits until the exec lines have ended; pergola check looks at the health"})
	}
	w := slice.WaitFor{Node: name, Until: until}.String()
	if !slices.Contains(out.WaitFor, w) {
		out.WaitFor = append(out.WaitFor, w)
		c.waitsAt[waiting{c.renamed[n.name], w}] = item.Position
	}
}

// settleWaits drops waits for what is not made, and has nodes not start again for whose end others wait.
func (c *clab) settleWaits() {
	for _, name := range slices.Sorted(maps.Keys(c.out.Nodes)) {
		node := c.out.Nodes[name]
		node.WaitFor = slices.DeleteFunc(node.WaitFor, func(text string) bool {
			w, err := slice.ParseWaitFor(text)
			n, there := c.out.Nodes[w.Node]
			if err != nil || !there || n.Kind == slice.Switch || n.Kind == slice.Uplink {
				c.leaveAt(name, "wait-for: "+w.Node, c.waitsAt[waiting{name, text}],
					lack{changesNodes, "it has no process of its own here"})
				return true
			}
			if w.Until == slice.UntilExited && n.Restart == "" {
				n.Restart = slice.RestartNever
				c.out.Nodes[w.Node] = n
			}
			return false
		})
		node.Restart = c.out.Nodes[name].Restart // which may just have been set
		c.out.Nodes[name] = node
	}
}
