package importer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
	"github.com/pergola-net/pergola/model/topology/yamltree"
)

// share has a node be a part of another, whose network namespace it is to have (network-mode: container:NODE). That
// works where both have the machine's own programs: then its commands run in the other one.
func (c *clab) share(n *clabNode, at *yamltree.Node, parent string) {
	if !c.hasNode(parent) || parent == n.name {
		hint := diagnostic.Suggest(parent, slices.Collect(maps.Keys(c.renamed)))
		c.fail(at.Position, cmp.Or(hint, "name a node of this file"),
			"network-mode %q of node %q names no other node here", at.Text, n.name)
		return
	}
	if n.as == AsImage || !c.isOnHost(n) || !c.isOnHost(&clabNode{levels: c.levelsOf(parent)}) {
		c.fail(at.Position, "--image '*=host' has both run the machine's own programs, in one node",
			"network-mode %q of node %q: nodes of different images cannot share a network namespace",
			at.Text, n.name)
		return
	}
	n.partOf = parent
	c.leaveAt(n.name, "network-mode: container", at.Position,
		lack{changesNodes, "they and the node that they name are one node here"})
}

// isOnHost reports whether the image of a node is replaced by the machine's own programs.
func (c *clab) isOnHost(n *clabNode) bool {
	rule, ok := c.opt.Images.find(n.find("image").Text)
	return ok && rule.Rootfs == hostRootfs
}

// levelsOf gives the levels of a node that may not be read yet.
func (c *clab) levelsOf(name string) []*yamltree.Node {
	value, _ := c.root.Field("nodes").Get(name)
	n := &clabNode{name: name, at: value}
	c.inherit(n)
	return n.levels
}

// joinGuests gives the commands of nodes that are parts of others to these.
func (c *clab) joinGuests() {
	for _, f := range c.root.Field("nodes").Entries {
		n := c.nodes[f.Key]
		if n.guest == nil {
			continue
		}
		parent := c.nodes[n.partOf]
		if parent == nil || parent.out == nil {
			c.fail(f.Position, "", "node %q is in the network of %q, which has none of its own", n.name,
				n.partOf)
			continue
		}
		if len(n.guest.Cmd) > 0 {
			c.leaveAt(n.name, "cmd", n.find("cmd").Position,
				lack{changesNodes, "a node has one first process, that of " + n.partOf})
		}
		parent.out.Exec = append(parent.out.Exec, n.guest.Exec...)
	}
}

// innerBridges makes the bridges that are within nodes (NAME|NODE), and puts interfaces into them.
func (c *clab) innerBridges(ports map[string][]string) {
	for _, f := range c.root.Field("nodes").Entries {
		n := c.nodes[f.Key]
		if n == nil || n.inner == "" {
			continue
		}
		parent := c.nodes[n.partOf]
		if parent == nil || parent.out == nil || !parent.runs() {
			c.fail(f.Position, "", "bridge %q is within %q, which runs nothing", n.inner, n.partOf)
			continue
		}
		name := quoted(n.inner)
		lines := topology.Strings{fmt.Sprintf(
			"ip link add name '%s' type bridge && ip link set dev '%s' up", name, name)}
		for _, face := range ports[n.name] {
			lines = append(lines, fmt.Sprintf("ip link set dev '%s' master '%s'", quoted(face), name))
		}
		parent.out.Exec = append(lines, parent.out.Exec...)
	}
}
