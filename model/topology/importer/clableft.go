package importer

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/topology/yamltree"
	"github.com/pergola-net/pergola/model/wording"
)

// weight says how much the network differs without a key of the file.
type weight uint8

const (
	changesTraffic weight = iota // frames can go elsewhere, or nowhere
	changesNodes                 // something in or around a node is missing
	changesNothing
)

// lack is what a key that is left out means: its weight, and what there is in its place.
type lack struct {
	weight weight
	hint   string
}

// noManagement is the hint of what is about the network of containerlab's eth0, at nodes that are not in it.
const noManagement = "a router of ours is not in the management network; pergola exec and shell need none"

// Keys of nodes that are left out.
var leftKeys = map[string]lack{
	"startup-config": {changesTraffic, "kind linux reads none"},
	"components":     {changesTraffic, ""},

	"aliases":     {changesNodes, "nodes know each other by their names"},
	"certificate": {changesNodes, "no certificates are made"},
	"config":      {changesNodes, ""},
	"credentials": {changesNodes, "pergola exec and shell need none"},
	"hostname":    {changesNodes, "a node's host name is its name"},
	"pid-mode":    {changesNodes, "each node has its own processes"},
	"shm-size":    {changesNodes, ""},
	"tmpfs":       {changesNodes, "/tmp and /run of a node are its own"},
	"volumes":     {changesNodes, ""},

	"apt": {changesNothing, ""}, "auto-remove": {changesNothing, ""}, "cgroup-parent": {changesNothing, ""},
	"cgroupns-mode": {changesNothing, ""}, "cpu-set": {changesNothing, ""},
	"enforce-startup-config": {changesNothing, ""}, "extras": {changesNothing, ""},
	"image-pull-policy": {changesNothing, ""}, "kernel": {changesNothing, ""}, "license": {changesNothing, ""},
	"link-apply-mode": {changesNothing, ""}, "position": {changesNothing, ""}, "privileged": {changesNothing, ""},
	"runtime": {changesNothing, ""}, "sandbox": {changesNothing, ""}, "security-opts": {changesNothing, ""},
	"suppress-startup-config": {changesNothing, ""}, "type": {changesNothing, ""},
}

// Keys that nodes of kind linux have, and replaced ones not.
var leftOfReplaced = map[string]lack{
	"startup-config": {changesTraffic, "addresses and routing are Pergola's"},
	"exec":           {changesTraffic, "these are commands for the vendor's image"},
	"config":         {changesTraffic, "addresses and routing are Pergola's"},
	"network-mode":   {changesTraffic, "each node has a network namespace of its own"},
	"components":     {changesNothing, ""},
	"cpu":            {changesNothing, ""},
	"memory":         {changesNothing, ""},
	"restart-policy": {changesNothing, ""},
	"ports":          {changesNodes, "routers publish none"},
	"stages":         {changesNodes, "nodes start all at once"},
	"healthcheck":    {changesNodes, "pergola check"},
	"mgmt-ipv4":      {changesNodes, noManagement},
	"mgmt-ipv6":      {changesNodes, noManagement},
}

// leaveOfBridge notes the keys of a bridge or of the host, which have no processes. What the defaults say is for the
// other nodes.
func (c *clab) leaveOfBridge(n *clabNode, exec lack) {
	own := *n
	own.levels = n.levels[:len(n.levels)-1]
	c.eachKey(&own, func(f yamltree.Entry) {
		l, isLeft := leftKeys[f.Key]
		switch {
		case contains([]string{"kind", "group", "labels", "network-mode"}, f.Key):
		case f.Key == "exec", f.Key == "stages":
			c.leave(n.name, f, exec)
		case isLeft && l.weight == changesNothing:
			c.leave(n.name, f, l)
		default:
			c.leave(n.name, f, lack{changesNodes, "only what has processes needs it"})
		}
	})
}

func weightOfReplaced(key string) lack {
	if l, ok := leftOfReplaced[key]; ok {
		return l
	}
	if l, ok := leftKeys[key]; ok {
		return l
	}
	return lack{changesNodes, "it is for the vendor's image"}
}

// left is a key that is left out, with all nodes that have it.
type left struct {
	lack
	key   string
	at    position // the first one
	nodes []string // none: of the network, or of links
}

// leave notes a key that is left out. Keys of all nodes with one meaning are reported once.
func (c *clab) leave(node string, f yamltree.Entry, l lack) {
	c.leaveAt(node, f.Key, f.Position, l)
}

func (c *clab) leaveAt(node, key string, at position, l lack) {
	id := key + "\x00" + l.hint
	if c.left[id] == nil {
		c.left[id] = &left{lack: l, key: key, at: at}
	}
	if known := c.left[id]; node != "" && !contains(known.nodes, node) {
		known.nodes = append(known.nodes, node)
	}
}

// sumLeft reports what is left out, what changes the network most first. What changes nothing is one line.
func (c *clab) sumLeft() (found topology.Diagnostics) {
	sorted := slices.SortedFunc(maps.Values(c.left), func(a, b *left) int {
		return cmp.Or(cmp.Compare(a.weight, b.weight), cmp.Compare(len(b.nodes), len(a.nodes)),
			cmp.Compare(a.key, b.key), cmp.Compare(a.hint, b.hint))
	})
	var idle []*left
	for _, l := range sorted {
		if l.weight == changesNothing {
			idle = append(idle, l)
			continue
		}
		text := l.key
		if len(l.nodes) > 0 {
			text += " of " + listed(l.nodes, "node")
		}
		found = append(found, c.leftOut(l.at, text, l.hint))
	}
	if len(idle) > 0 {
		var keys []string
		at, nodes := idle[0].at, map[string]bool{}
		for _, l := range idle {
			keys = append(keys, l.key)
			for _, n := range l.nodes {
				nodes[n] = true
			}
			if l.at.Line < at.Line {
				at = l.at
			}
		}
		slices.Sort(keys)
		text := strings.Join(slices.Compact(keys), ", ")
		if len(nodes) > 0 {
			text += " of " + wording.Count(len(nodes), "node")
		}
		found = append(found, c.leftOut(at, text, "the network is the same without"))
	}
	return found
}

func (c *clab) leftOut(at position, text, hint string) topology.Diagnostic {
	return topology.Diagnostic{File: c.report.file, Line: at.Line, Column: at.Column, Message: text, Hint: hint,
		Warning: true, LeftOut: true}
}
